"""Texts of models in the explorer: Markdown and formulas are rendered, and hostile ones are inert."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from support.browser import soon
from support.explorer import APP
from support.plans import GOOD, Planner, plan, think, tool
from support.plans import run as run_plan

import tot_lab as tl

TEXT = r"""The **sum** is *easy*: 2*3*4 = 24, costs $5 and $10.

| step | value |
|---|--:|
| one | $\frac{3}{6}$ |

\[
\begin{aligned} a &= 1 \\ b &= \boxed{2} \end{aligned}
\]

9. nine

<img src=x onerror="document.title='bad'"> [x](javascript:alert(1)) $\unknown{3}$ `$y$`
"""


def recorded(text: str) -> tl.Run:
    with tl.Recorder("text") as recorder:
        node = recorder.thought(text, parent=recorder.thought("Six times seven?"))
        recorder.decide(node, "answer")
        recorder.end("42", node=node)
    return recorder.run


def test_markdown_and_formulas_are_rendered_and_inert(opened):
    page = opened(recorded(TEXT))
    page.evaluate(f"{APP}.show(['0.0'])")
    text = page.locator(".tl-details pre").first
    soon(lambda: text.locator("math").count() == 2)
    assert text.locator("b").text_content() == "sum"
    assert text.locator("em").text_content() == "easy"
    assert text.locator("td").all_text_contents()[0] == "one"
    assert text.locator("td mfrac").count() == 1
    assert text.locator("mtr").count() == 2
    assert text.locator("menclose").text_content() == "2"
    assert text.locator("li").get_attribute("value") == "9"
    assert text.locator("code").all_text_contents() == [r"$\unknown{3}$", "$y$"]
    for kept in ("2*3*4 = 24, costs $5 and $10", "<img src=x", "[x](javascript:alert(1))"):
        assert kept in text.text_content()
    assert text.locator("a, img").count() == 0
    assert page.title() != "bad"


def test_hostile_nesting_is_shown_as_it_is_in_time(opened):
    for text in (">" * 9000, "*_a" * 3000, "[" * 9000):
        page = opened(recorded(text))
        page.evaluate(f"{APP}.show(['0.0'])")
        soon(
            lambda text=text, page=page: (
                page.locator(".tl-details pre").first.text_content().count("a") >= text.count("a")
            )
        )


def test_plans_open_as_steps_with_values_and_states_on_a_phone(opened):
    model = Planner(
        plan=plan(tool("add", a=3, b=4), tool("add", a="{{from_step:s1}}", b=7), think("Say it.")),
        analysis="It is 14.",
        review=GOOD,
    )
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(run_plan, model).result()
    page = opened(run)
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate(f"{APP}.view") == "steps"
    row = page.locator(".tl-step").nth(2)
    soon(lambda: "a: 7 · b: 7" in row.text_content() and "completed" in row.text_content())
    assert "from_step" not in row.text_content()
    assert "from_step" in row.get_attribute("title")
    said, meta = (row.locator(part).bounding_box() for part in (".tl-said", "> .tl-quiet"))
    assert meta["y"] >= said["y"] + said["height"] - 1
    assert said["width"] > 200
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    row.click()
    soon(lambda: "completed" in page.locator(".tl-details h2").text_content())
    assert "not evaluated" not in page.locator(".tl-details").text_content()
