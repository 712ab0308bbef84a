"""The explorer marks text that a tool brought from outside, in the details and in the list of steps."""

from support.browser import soon
from support.explorer import APP, carried_out
from support.scripts import Script, final, legs, said, web_search

import tot_lab as tl


def test_text_from_outside_is_marked(opened):
    model = Script(
        said(("web-search", {"query": "legs"}), ("legs", {"animal": "duck"})), said(final("Answer: 2"))
    )
    run = carried_out(model, tl.ReAct(), tl.general("How many legs has a duck?"), [web_search, legs])
    page = opened(run)
    marks = page.locator(".tl-details .tl-outside")
    for text, count in (("web-search →", 1), ("legs →", 0)):
        id = next(node.id for node in run.tree if node.text.startswith(text))
        page.evaluate(f"{APP}.show(['{id}'])")
        soon(lambda id=id: id in page.locator(".tl-details h2").text_content().split())
        assert marks.count() == count
    page.evaluate(f"{APP}.show([])")
    soon(lambda: page.locator(".tl-step", has_text="from outside (web-search)").count() == 1)
