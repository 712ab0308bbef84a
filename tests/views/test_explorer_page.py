"""A run as one HTML file, in a real browser with the network off: what is drawn, and what may not happen."""

import gzip
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from support import run as run_
from support.browser import Watched, soon
from support.explorer import HOSTILE

import tot_lab as tl
from tot_lab.core.calls import Reply
from tot_lab.testing import Scripted
from tot_lab.views.explorer.page import save_html

SEARCH = tl.TreeOfThoughts(propose=tl.Sample(count=3))


def run(strategy: tl.Strategy = SEARCH) -> tl.Run:
    """A run, made in a thread of its own: the browser has this one's event loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run_, strategy).result()


def hostile() -> tl.Run:
    recorder = tl.Recorder(HOSTILE[0])
    root = recorder.thought(HOSTILE[1])
    for text in HOSTILE:
        id = recorder.thought(text, parent=root)
        recorder.call(id, text, Reply(text, thinking=text, model=text, finish_reason=text), purpose=text)
        recorder.score(id, 0.5, by=text)
        recorder.decide(id, "pruned", text)
    recorder.end(HOSTILE[1], node=id)
    return recorder.run


def drawn(page, which=0):
    return page.evaluate(
        """which => {
            const app = document.querySelector(".tl-root").parentElement.explorer;
            const recording = app.source.runs[which];
            return Object.fromEntries(Array.from({length: app.frameOf(which).nodes}, (_, node) =>
                [recording.id(node), recording.text(node)]));
        }""",
        which,
    )


@pytest.mark.nightly
def test_it_shows_the_run_and_what_was_asked(opened):
    made = run()
    page = opened(made)
    soon(lambda: drawn(page) == {node.id: node.text for node in made.tree})
    details = page.evaluate("document.querySelector('.tl-root').parentElement.explorer.source.details(0, 1)")
    prompts = list(made.calls_df().query("node == '0.0'").prompt)
    assert [call["prompt"][0]["content"] for call in details["calls"]] == prompts


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("42", "✓ correct · answer 42 · expected 42"),
        ("41", "✗ wrong · answer 42 · expected 41"),
        (None, "ungraded · answer 42"),
    ],
)
def test_the_first_line_is_the_verdict(opened, answer, says):
    task = tl.general("What is six times seven?", answer=answer, grade=None if answer is None else "number")
    search = SEARCH.with_({"stop.depth": 2, "search.width": 1})
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(
            run_, search, task, Scripted(lambda call: "score: 0.9" if call.purpose == "value" else "42")
        ).result()
    strip = opened(made).get_by_role("group", name="verdict")
    assert " ".join(strip.inner_text().split()) == (
        f"{says} · ended: reached the limit of depth, with an answer that is unfinished · "
        "strategy's score 0.9 · settings search=BeamSearch(width=1), stop=Stop(depth=2)"
    )


@pytest.mark.nightly
def test_best_selects_something_where_there_is_no_answer_and_says_what(opened):
    with tl.Recorder("lost") as recorder:
        root = recorder.thought("the problem")
        for score, state in ((0.2, "kept"), (0.7, "kept"), (0.9, "pruned")):
            id = recorder.thought(f"step {score}", parent=root)
            recorder.score(id, score)
            recorder.decide(id, state)
        recorder.end("", stop="exhausted")
    page = opened(recorder.run)
    page.get_by_role("button", name="best", exact=True).click()
    soon(
        lambda: (
            page.get_by_text("no answer; the best of the kept ones is thought 0.1", exact=True).count() == 1
        )
    )
    soon(lambda: page.locator("aside").inner_text().startswith("thought 0.1"))


@pytest.mark.slow
def test_before_its_end_a_run_has_no_verdict(opened):
    page = opened(run())
    page.evaluate("document.querySelector('.tl-root').parentElement.explorer.setStep(5)")
    soon(lambda: page.get_by_role("group", name="verdict").count() == 0)


@pytest.mark.slow
def test_two_runs_are_compared(opened):
    one, other = run(), run(tl.TreeOfThoughts(propose=tl.Sample(count=2), search=tl.BeamSearch(width=1)))
    page = opened(one, other)
    soon(lambda: drawn(page, 1) == {node.id: node.text for node in other.tree})
    assert drawn(page) == {node.id: node.text for node in one.tree}


@pytest.mark.slow
def test_hostile_texts_are_shown_as_texts(opened):
    made = hostile()
    page = opened(made)
    soon(lambda: drawn(page)["0.0"])
    for k, text in enumerate(HOSTILE[:2]):
        assert drawn(page)[f"0.{k}"] == text
    assert page.evaluate("window.hacked") is None
    assert page.locator("body img, .tl-root script, b > b").count() == 0


@pytest.mark.slow
def test_the_policy_forbids_what_is_not_ours(chrome, tmp_path):
    page = Watched(chrome).page
    page.goto(run().save_html(tmp_path / "a.html").as_uri())
    policy = page.locator("meta[http-equiv]").get_attribute("content")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    refused = page.evaluate(
        """() => new Promise(done => {
            document.addEventListener("securitypolicyviolation", event => done(event.effectiveDirective));
            const script = document.createElement("script");
            script.textContent = "window.hacked = 1";
            document.body.append(script);
        })"""
    )
    assert refused.startswith("script-src")
    assert page.evaluate("window.hacked") is None


@pytest.mark.nightly
def test_what_is_drawn_first_stands_first_and_is_small(tmp_path):
    recorder = tl.Recorder("big")
    ids = [recorder.thought("the problem")]
    for k in range(9_999):
        recorder.call(
            ids[k // 5], f"What next? {k}", Reply(f"step {k}", input_tokens=k % 97, output_tokens=9)
        )
        ids.append(recorder.thought(f"a text that is no structure: {k}", parent=ids[k // 5]))
        recorder.score(ids[-1], k * 37 % 100 / 100)
        recorder.decide(ids[-1], "kept" if k % 3 else "pruned", "beam")
    recorder.end("done", node=ids[-1])
    page = recorder.run.save_html(tmp_path / "big.html").read_text()
    structure = re.search(r'id="run-0">(.*?)</script>', page, re.DOTALL)
    assert len(gzip.compress(structure[1].encode())) < 200_000
    assert "no structure" not in structure[1]
    assert structure.end() <= page.index("<script>") < page.index('id="texts-0"')


def test_a_page_never_replaces_the_run(tmp_path):
    made = run(tl.TreeOfThoughts())
    path = made.save(tmp_path / "run.jsonl")
    loaded = tl.load(path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"must end in \.html or \.htm: got .*run\.jsonl'"):
        loaded.save_html(path)
    with pytest.raises(ValueError, match=r"run\.save writes \.jsonl"):
        save_html(made, path, loaded)
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["tree.pdf", "tree", "tree.html.gz", "html"])
def test_a_page_has_the_suffix_of_a_page(name, tmp_path):
    made = run(tl.ChainOfThought())
    for write in (made.save_html, lambda path: tl.figures.report_html([made], path)):
        with pytest.raises(
            ValueError, match=rf"must end in \.html or \.htm: got .*{name}'.*run\.save_figure"
        ):
            write(tmp_path / name)
    assert not list(tmp_path.iterdir())
    assert made.save_html(f"{tmp_path}/TREE.HTM").read_bytes().startswith(b"<!doctype html>")
