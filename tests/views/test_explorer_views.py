"""What the explorer shows of a run, in a real browser: colours, picks, steps, addresses and labels."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import random
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.browser import soon
from support.contrast import contrast
from support.endpoint import scripted
from support.explorer import APP, agent, carried_out, game
from support.plans import GOOD, Planner, plan, think, tool
from support.plans import run as run_plan
from support.scripts import Script, final, said

import tot_lab as tl
from tot_lab.analysis.why import why_it_failed
from tot_lab.core.records import Note
from tot_lab.lab.plan_store import plans_of
from tot_lab.views.figures.theme import colour
from tot_lab.views.figures.timeline import timeline_info


@pytest.mark.nightly
def test_visits_and_values_are_those_by_which_the_search_chose(opened):
    run = game(tl.TreeOfThoughts(search="mcts"), budget=tl.Budget(calls=120))
    picks = [
        (line, id, terms)
        for line, record in enumerate(run.lines)
        if isinstance(record.e, Note) and record.e.name == "tot.picked"
        for id, terms in record.e.data.get("why", {}).items()
    ]
    assert len(picks) > 5
    page = opened(run)
    found = page.evaluate(
        f"""picks => picks.map(([line, id]) => {{
            const app = {APP};
            app.setStep(line);
            const node = app.source.runs[0].indexOf(id);
            return ["visits", "value"].map((colour) => (app.set({{ colour }}), app.colours(0).values[node]));
        }})""",
        [[line, id] for line, id, _ in picks],
    )
    for (_, id, terms), (visits, value) in zip(picks, found, strict=True):
        assert visits == terms["visits"], id
        assert math.isclose(value, terms["value"], rel_tol=1e-9), id


@pytest.mark.nightly
def test_visits_are_shown_where_a_search_counts_them(opened):
    run = game(tl.TreeOfThoughts(search="mcts"), budget=tl.Budget(calls=60))
    page = opened(run)
    id = run.tree.root.children[0]
    below = sum(node.by != "" and f"{node.id}.".startswith(f"{id}.") for node in run.tree)
    page.evaluate(f"{APP}.show(['{id}'])")
    soon(lambda: f"visits{below}value" in page.locator(".tl-facts").text_content())
    names = "[...document.querySelectorAll('option')].filter(one => !one.hidden).map(one => one.textContent)"
    assert {"visits", "value"} <= set(page.evaluate(names))
    beam = opened(game(tl.TreeOfThoughts()))
    soon(lambda: set(beam.evaluate(names)) == {"score", "solvable", "cost", "depth"})
    beam.evaluate(f"{APP}.show(['0.0'])")
    soon(lambda: "proposed" not in beam.locator(".tl-facts").text_content())
    assert "visits" not in beam.locator(".tl-facts").text_content()


@pytest.mark.nightly
def test_a_search_without_terms_picks_by_the_scores(opened):
    run = game(tl.TreeOfThoughts(search="best_first"))
    line = [k for k, line in enumerate(run.lines) if getattr(line.e, "name", "") == "tot.picked"][1]
    (id,) = run.lines[line].e.data["parents"]
    page = opened(run)
    page.evaluate(f"{APP}.setStep({line + 1})")
    soon(lambda: page.locator(".tl-what").text_content().startswith(f"picked thought {id}: score "))
    assert float(page.locator(".tl-what").text_content().split()[-1]) == run.tree[id].score


@pytest.mark.nightly
def test_best_says_what_it_found_if_there_is_no_answer(opened):
    with tl.Recorder("scored", task=tl.general("Six times seven?", answer=42, grade="number")) as recorder:
        root = recorder.thought("Six times seven?")
        for score in (0.3, 0.8):
            id = recorder.thought("a step", parent=root)
            recorder.score(id, score)
            recorder.decide(id, "kept")
        recorder.end("", stop="budget:calls")
    page = opened(recorder.run)
    page.get_by_role("button", name="best").click()
    soon(
        lambda: page.get_by_text(
            "no answer; the best of the kept ones is thought 0.1", exact=True
        ).is_visible()
    )
    assert page.evaluate(f"{APP}.ids()") == ["0.1"]
    page.evaluate(f"{APP}.show(['0.0'])")
    soon(lambda: page.get_by_text("no answer; the best").count() == 0)
    with tl.Recorder("unscored") as recorder:
        recorder.thought("a step", parent=recorder.thought("Six times seven?"))
        recorder.end("42", stop="answered")
    page = opened(recorder.run)
    page.get_by_role("button", name="best").click()
    soon(lambda: page.get_by_text("no thought is the answer; no thought has a score").is_visible())


@pytest.mark.slow
def test_a_step_that_was_evaluated_without_a_readable_score_is_not_called_unscored(opened):
    with tl.Recorder("unreadable") as recorder:
        root = recorder.thought("Six times seven?")
        first = recorder.thought("a step", parent=root)
        recorder.score(first, None, by="value")
        last = recorder.thought("42", parent=first)
        recorder.score(last, None, by="value")
        recorder.decide(last, "answer")
        recorder.end("42", node=last)
    page = opened(recorder.run)
    page.evaluate(f"{APP}.set({{ view: 'steps', viewed: true }})")
    rows = page.locator(".tl-step")
    soon(lambda: rows.count() == 3)
    assert ["score unreadable" in text for text in rows.all_text_contents()] == [False, True, True]
    rows.nth(1).click()
    soon(lambda: "scoreunreadable · by value" in page.locator(".tl-facts").text_content())
    for part in (".tl-steps", ".tl-side"):
        assert "none" not in page.locator(part).text_content()


@pytest.mark.slow
def test_a_step_says_why_the_search_chose_a_thought(opened):
    run = game(tl.TreeOfThoughts(search="mcts"), budget=tl.Budget(calls=60))
    line, (id, terms) = next(
        (line, next(iter(record.e.data["why"].items())))
        for line, record in enumerate(run.lines)
        if isinstance(record.e, Note) and record.e.name == "tot.picked" and "why" in record.e.data
    )
    page = opened(run)
    page.evaluate(f"{APP}.setStep({line + 1})")
    said = page.locator(".tl-what")
    soon(lambda: said.text_content().startswith(f"picked thought {id}: visits {terms['visits']}, value "))
    page.evaluate(f"{APP}.show(['{id}'])")
    facts = page.locator(".tl-facts")
    soon(lambda: f"step {line + 1} · visits {terms['visits']}" in facts.text_content())


@pytest.mark.slow
def test_thoughts_are_coloured_by_what_is_chosen(opened):
    run = game(tl.TreeOfThoughts(propose=tl.Propose(count=4), search=tl.BeamSearch(width=2)), "1 4 8 8")
    task = tl.game24("1 4 8 8")
    truth = {node.id: task.domain.solvable(task, run.steps(node.id)) for node in run.tree}
    assert {True, False} <= set(truth.values())
    page = opened(run)
    page.get_by_label("colour by").select_option("solvable")
    numbers = f"""(() => {{
        const {{ scene }} = {APP}.panes[0];
        const id = (node) => scene.recording.id(node);
        return Object.fromEntries([...scene.nodes].map((node, slot) => [id(node), scene.number(slot)]));
    }})()"""
    wanted = {id: ["yes" if can else "no"] for id, can in truth.items()}
    for id in why_it_failed(run).nodes:
        wanted[id] = [f"thought {id} · {wanted[id][0]}"]  # named in the header
    wanted["0"] = []  # the question has no number
    soon(lambda: page.evaluate(numbers) == wanted)


@pytest.mark.slow
def test_an_agent_is_shown_as_its_steps(opened):
    run = agent(tl.ReAct())
    calls = [(call, reply) for call, reply in tool_calls(run)]
    assert len(calls) > 2
    page = opened(run)
    rows = page.locator(".tl-step")
    soon(lambda: rows.count() == len(run.tree) - len(calls))  # a tool call and its result are one row
    texts = [row.text_content() for row in rows.all() if row.locator(".tl-kind").text_content() == "tool"]
    for text, (call, reply) in zip(texts, calls, strict=True):
        (argument, value) = next(iter(arguments_of(call).items()))
        assert f"{reply.tool} {argument}: {value}" in text
        assert " ".join(reply.text.split())[:60] in text
    assert rows.last.locator(".tl-kind").text_content() == "answer"
    assert "score" not in page.locator(".tl-steps").text_content()
    rows.nth(1).click()
    assert page.evaluate(f"{APP}.ids()") == ["0.0"]
    soon(lambda: rows.nth(1).get_attribute("aria-current") == "true")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    soon(lambda: page.evaluate(f"{APP}.ids()") == ["0.0.0.0"])


@pytest.mark.slow
def test_a_step_shows_its_thinking_its_error_and_that_it_is_named_in_the_reason(opened):
    @tl.tool(pure=True)
    def page_of(title: str) -> str:
        """The page of a title."""
        return {"Delia": "born in Easter Inge"}[title]

    turns = [
        said(("page_of", {"title": "Henno"}), text="I look Henno up first."),
        said(("page_of", {"title": "Delia"}), text="Then Delia."),
        said(final("Fenwell")),
    ]
    task = tl.general("Where was Delia born?", answer="Easter Inge", grade="exact")
    run = carried_out(Script(*turns), tl.ReAct(), task, [page_of])
    page = opened(run)
    rows = page.locator(".tl-step")
    soon(lambda: rows.count() == 5)  # the question, two tool calls, the last turn and the answer
    _, failed, good, *_ = rows.all()
    assert failed.locator(".tl-thinking").text_content() == "I look Henno up first."
    assert "page-of title: Henno" in failed.text_content()
    assert failed.text_content().count("KeyError") == 1
    assert "failed: KeyError: 'Henno'" in failed.locator(".tl-error").text_content()
    assert good.locator(".tl-error").count() == 0
    assert good.locator(".tl-thinking").text_content() == "Then Delia."
    assert "→ born in Easter Inge" in good.text_content()
    assert "the right one is in a tool result" in page.locator(".tl-side").text_content()
    assert [row.get_attribute("title") for row in rows.all()].count("named in “why it failed”") == 1
    assert good.get_attribute("title") == "named in “why it failed”"


def tool_calls(run: tl.Run) -> list[tuple[Any, Any]]:
    asked = {line.p: line.e for line in run.lines if isinstance(line.e, tl.Call)}
    return [
        (asked[line.p], line.e)
        for line in run.lines
        if isinstance(line.e, tl.Reply) and line.e.tool is not None
    ]


def arguments_of(call: Any) -> dict[str, Any]:
    given: dict[str, Any] = json.loads(call.messages[-1].content)
    return given


@pytest.mark.slow
def test_steps_are_folded_by_plan_step_and_strategy(opened):
    run = agent(tl.PlanExecute(), task=3)  # a composite step
    page = opened(run)
    rows = page.locator(".tl-step")
    soon(lambda: rows.count() > 4)
    kinds = [row.locator(".tl-kind").text_content() for row in rows.all()]
    assert (kinds[:3], kinds[-1]) == (["question", "plan step", "react"], "answer ✗")
    whole = rows.count()
    page.get_by_role("button", name=re.compile("▾ .* steps?")).first.click()
    soon(lambda: rows.count() < whole)
    assert [row.locator(".tl-kind").text_content() for row in rows.all()] == [
        "question",
        *["plan step"] * kinds.count("plan step"),
        "answer ✗",
    ]


@pytest.mark.nightly
def test_the_attempts_of_reflexion_and_the_routes_of_deep_think_are_parts(opened):
    rows = "[...document.querySelectorAll('.tl-kind')].map((one) => one.textContent)"
    page = opened(agent(tl.Reflexion()))
    soon(lambda: page.evaluate(rows)[:2] == ["question", "attempt 1"])
    run = carried_out("sim/constrained", tl.DeepThink(), tl.domains.constrained_tasks(2)[1])
    routes = [node for node in run.tree if node.parent == run.tree.root.id]
    page = opened(run)
    page.get_by_role("button", name="steps", exact=True).click()
    soon(lambda: page.evaluate(rows).count("route") == len(routes))


@pytest.mark.slow
def test_a_tree_is_shown_as_a_tree(opened):
    page = opened(game(tl.TreeOfThoughts()))
    assert page.evaluate(f"{APP}.view") == "tree"
    page.get_by_role("button", name="steps").click()
    soon(lambda: page.locator(".tl-step").count() > 3)


def address_of(page: Any) -> str:
    return str(page.evaluate("location.href"))


@pytest.mark.nightly
def test_an_address_names_what_is_shown_and_shows_what_it_names(opened):
    run = game(tl.TreeOfThoughts(), "1 4 8 8")
    page = opened(run)
    page.evaluate(f"{APP}.show(['0.1'])")
    page.get_by_role("button", name="timeline").click()
    soon(lambda: address_of(page).endswith(f"#run={run.id}&node=0.1&view=timeline"))
    page.evaluate(f"{APP}.setStep(20)")
    soon(lambda: address_of(page).endswith(f"#run={run.id}&node=0.1&step=20&view=timeline"))
    page.evaluate("navigator.clipboard.writeText = async text => { window.copied = text; }")
    page.locator("summary", has_text="export").click()
    page.get_by_role("button", name="copy link").click()
    address = page.evaluate("window.copied")
    assert address == address_of(page)
    page.get_by_role("button", name="tree").click()
    soon(lambda: address_of(page).endswith("view=tree"))
    page.evaluate(f"{APP}.show(['0.0'])")
    soon(lambda: "node=0.0" in address_of(page))
    page.go_back()
    soon(lambda: page.evaluate(f"[{APP}.view, {APP}.ids()[0]]") == ["tree", "0.1"])
    page.go_back()
    soon(lambda: page.evaluate(f"[{APP}.view, {APP}.ids()[0]]") == ["timeline", "0.1"])
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_function("document.querySelector('.tl-root')?.parentElement.explorer")
    shown = f"[{APP}.view, {APP}.ids()[0], {APP}.frameOf(0).step]"
    soon(lambda: page.evaluate(shown) == ["timeline", "0.1", 20])


@pytest.mark.nightly
@pytest.mark.parametrize(
    "address",
    [
        "#node=0.99&step=x&view=nowhere",
        "#view=compare&node=%zz",
        "#&&=",
        "#step=-5",
        "#run=other&node=0.0&step=3",
    ],
)
def test_an_address_that_names_nothing_harms_nothing(opened, address):
    run = game(tl.TreeOfThoughts(), "1 4 8 8")
    page = opened(run)
    url = page.url.split("#")[0]
    page.goto("about:blank")
    page.goto(url + address)
    page.wait_for_function("document.querySelector('.tl-root')?.parentElement.explorer")
    assert page.evaluate(f"[{APP}.view, {APP}.ids(), {APP}.frameOf(0).step]") == ["tree", [], len(run.lines)]


@pytest.mark.slow
def test_some_thoughts_always_have_their_text_and_no_text_covers_another(opened):
    run = game(tl.TreeOfThoughts(search="mcts"), budget=tl.Budget(calls=120))
    assert len(run.tree) > 25
    page = opened(run)
    boxes = page.evaluate(
        f"""async () => {{
            const blob = await {APP}.panes[0].save("svg");
            const place = document.createElement("div");
            place.innerHTML = await blob.text();
            document.body.append(place);
            return [...place.querySelectorAll("text")].map((one) => {{
                const {{ x, y, width, height }} = one.getBBox();
                return [one.textContent, x, y, width, height];
            }});
        }}"""
    )
    labels = [box for box in boxes if re.search(r"[-+*/(=]", box[0])]
    assert len(labels) > 10  # the texts of thoughts
    best = run.steps(run.best.id)[-1] if run.best else ""
    assert any(best.startswith(text.rstrip("…")) for text, *_ in labels)
    for at, (one, x, y, width, height) in enumerate(labels):
        for other, x2, y2, width2, height2 in labels[at + 1 :]:
            across = min(x + width, x2 + width2) - max(x, x2)
            down = min(y + height, y2 + height2) - max(y, y2)
            assert across < 2 or down < 3, (one, other)


def written(*texts: str) -> tl.Run:
    """A recorded run: the first two thoughts have calls whose prompts begin alike."""
    with tl.Recorder("written") as recorder:
        root = recorder.thought("question")
        for number, text in enumerate(texts):
            id = recorder.thought(text, parent=root)
            prompt = "The rules are long.\n" * 20 + f"Judge number {number}."
            for sample, says in enumerate(("It is dull.\nunlikely", "It shines.\nsure")):
                recorder.call(id, prompt, tl.Reply(says), purpose="value", sample_index=sample)
            recorder.score(id, 0.5, by="value", samples=(0.1, 0.9))
        recorder.end("", node=None)
    return recorder.run


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("text", "elements", "shown"),
    [
        ("**Sure**, see `a*b`", {"b": ["Sure"], "code": ["a*b"]}, "Sure, see a*b"),
        ("4 ** 2 ** 3 = 2**3**4 * 5 * 6", {"b": [], "code": []}, "4 ** 2 ** 3 = 2**3**4 * 5 * 6"),
        ("# Plan\nfirst\n#2 is not one", {"b": ["Plan"], "code": []}, "Planfirst\n#2 is not one"),
        ("so:\n```python\nx = '**a**'\n```\ndone", {"b": [], "code": ["x = '**a**'"]}, None),
        ('{"a": [1, "<b>"]}', {"b": [], "code": ['{\n  "a": [\n    1,\n    "<b>"\n  ]\n}']}, None),
        ("<b>bold</b> ``` **", {"b": [], "code": []}, "<b>bold</b> ``` **"),
        ("{not json", {"b": [], "code": []}, "{not json"),
    ],
)
def test_markdown_json_and_code_are_shown_as_such_and_nothing_else_changes(opened, text, elements, shown):
    page = opened(written(text))
    page.evaluate(f"{APP}.show(['0.0'])")
    body = page.locator(".tl-details pre").first
    body.wait_for()
    assert {name: body.locator(name).all_text_contents() for name in elements} == elements
    if shown is not None:
        assert body.text_content() == shown


@pytest.mark.slow
@pytest.mark.parametrize("text", ["**" * 20_000, "`" * 40_000, "```\n" * 9_000, "# " * 20_000, "[" * 9_999])
def test_no_text_holds_the_page_up(opened, text):
    page = opened(written(text[:9_999]))
    page.evaluate(f"{APP}.show(['0.0'])")
    page.locator(".tl-details pre").first.wait_for(timeout=5_000)


@pytest.mark.nightly
def test_samples_stand_side_by_side_and_a_prompt_shows_what_is_its_own(opened):
    page = opened(written("one", "two"))
    page.evaluate(f"{APP}.show(['0.1'])")
    samples = page.locator(".tl-samples tr")
    soon(lambda: samples.all_text_contents() == ["0.1It is dull. unlikely", "0.9It shines. sure"])
    page.locator(".tl-details details summary").first.click()
    prompt = page.locator(".tl-details details[open] > pre").nth(1)
    soon(lambda: prompt.text_content() == "Judge number 1.")
    page.get_by_text("the first 400 characters").first.click()
    shared = page.locator(".tl-details details details[open] pre").first
    assert shared.text_content() == ("The rules are long.\n" * 20).strip()


@pytest.mark.slow
def test_reply_prompt_and_messages_are_copied_whole(opened):
    run = written("one")
    page = opened(run)
    page.evaluate("navigator.clipboard.writeText = async text => { window.copied = text; }")
    page.evaluate(f"{APP}.show(['0.0'])")
    page.locator(".tl-details details summary").first.click()
    call = next(line.e for line in run.lines if isinstance(line.e, tl.Call))
    content = call.messages[0].content
    for name, text in [
        ("copy reply", "It is dull.\nunlikely"),
        ("copy prompt", f"user: {content}"),
        ("copy messages as JSON", json.dumps([{"role": "user", "content": content}], indent=2)),
    ]:
        page.get_by_role("button", name=name).first.click()
        assert page.evaluate("window.copied") == text


@pytest.mark.slow
def test_the_details_can_be_widened_and_read_in_full_width(opened):
    page = opened(written("one"))
    side = page.locator(".tl-side")
    before = side.bounding_box()["width"]
    bar = page.get_by_role("separator")
    bar.focus()
    page.keyboard.press("ArrowLeft")
    soon(lambda: side.bounding_box()["width"] > before + 20)
    x, y = bar.bounding_box()["x"] + 3, bar.bounding_box()["y"] + 40
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 150, y)
    page.mouse.up()
    soon(lambda: side.bounding_box()["width"] > before + 150)
    page.keyboard.press("r")
    soon(lambda: side.bounding_box()["width"] > 1200)
    page.keyboard.press("Escape")
    soon(lambda: side.bounding_box()["width"] < 800)


@pytest.mark.slow
def test_an_exported_picture_carries_question_verdict_and_legend(opened):
    run = game(tl.TreeOfThoughts(answer="best_leaf"), "1 4 8 8")
    assert (run.correct, bool(run.answer)) == (False, True)
    page = opened(run)
    shown = page.evaluate(
        f"""async () => {{
            const svg = await (await {APP}.panes[0].save("svg")).text();
            const parsed = new DOMParser().parseFromString(svg, "image/svg+xml");
            return [...parsed.querySelectorAll("text")].map((one) => one.textContent);
        }}"""
    )
    assert shown[0] == "1 4 8 8"
    assert "simulated model" in shown[1]
    assert shown[2].startswith(f"✗ wrong · answer: {run.answer} · ended: reached the limit of depth")
    assert {"question", "wrong answer", "kept", "pruned"} <= set(shown)


@pytest.mark.nightly
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_print_has_light_colours_a_picture_that_fits_and_no_controls(opened, scheme):
    page = opened(game(tl.TreeOfThoughts(), "1 4 8 8"))
    page.emulate_media(media="print", color_scheme=scheme)
    page.evaluate(f"{APP}.show(['0.0'])")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    picture = page.locator(".tl-paper > svg")
    assert picture.bounding_box()["width"] <= page.locator(".tl-root").bounding_box()["width"]
    assert page.locator(".tl-verdict").is_visible()
    assert not page.get_by_role("searchbox").is_visible()
    assert not page.locator(".tl-stage canvas").first.is_visible()
    ground = "getComputedStyle(document.querySelector('.tl-root')).backgroundColor"
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    prompt = page.locator(".tl-details details pre").first
    assert prompt.bounding_box()["height"] > 10  # closed sections are printed too
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert picture.count() == 0
    assert (page.evaluate(ground) == "rgb(255, 255, 255)") == (scheme == "light")


@pytest.mark.nightly
def test_compared_runs_say_what_differs(opened):
    first, second = written("one step", "two"), written("one leap", "two")
    page = opened(first, second)
    page.evaluate(f"{APP}.show(['0.0'])")
    soon(lambda: page.locator(".tl-details del").all_text_contents() == ["step"])
    assert page.locator(".tl-details ins").all_text_contents() == ["leap"]
    assert page.get_by_text("The runs have different questions.").count() == 0
    with tl.Recorder("other") as recorder:
        recorder.end("", node=recorder.thought("another question"))
    page = opened(first, recorder.run)
    soon(lambda: page.get_by_text("The runs have different questions.").count() == 1)


@pytest.mark.nightly
def test_compared_thoughts_have_one_place_and_the_first_difference_comes_first(opened):
    first = game(tl.TreeOfThoughts(propose=tl.Propose(count=4)), "1 4 8 8")
    second = game(tl.TreeOfThoughts(propose=tl.Propose(count=4), search=tl.BeamSearch(width=1)), "1 4 8 8")
    page = opened(first, second)
    page.get_by_role("button", name="compare").click()
    soon(lambda: page.evaluate(f"{APP}.panes.every(pane => pane.scene)"))
    both = page.evaluate(
        f"""() => {APP}.panes.map(({{ scene }}) => Object.fromEntries(
            [...scene.nodes].map((node, at) => [scene.recording.id(node), [scene.x[at], scene.y[at]]])))"""
    )
    equal = [id for id in both[0] if id in both[1] and first.tree[id].text == second.tree[id].text]
    assert len(equal) > 3
    assert all(both[0][id] == both[1][id] for id in equal)
    listed = page.locator(".tl-side .tl-item")
    soon(lambda: listed.count() > 1)
    assert page.get_by_text("first difference in the record").count() == 1
    # The first lines at which the records are not the same.
    ours, theirs = ([repr(line.e) for line in made.lines] for made in (first, second))
    same = next(k for k, (one, other) in enumerate(zip(ours, theirs, strict=False)) if one != other)
    about = {line.e.id for made in (first, second) for line in made.lines[same:] if hasattr(line.e, "id")}
    named = listed.first.text_content()
    assert any(named.startswith(f"thought {id}") for id in about)
    page.get_by_role("button", name="timeline").click()
    clocks = page.locator(".tl-stage canvas[aria-label^='Calls over time']")
    soon(lambda: clocks.count() == 2)
    soon(lambda: all(clock.is_visible() for clock in clocks.all()))
    page.get_by_role("button", name="tree").click()
    soon(lambda: page.locator(".tl-stage").count() == 1)


@pytest.mark.nightly
def test_the_calls_over_time_are_a_table_too(opened):
    run = game(tl.TreeOfThoughts(), "1 4 8 8")
    page = opened(run)
    page.get_by_role("button", name="timeline").click()
    rows = page.get_by_role("table", name="calls").locator("tbody tr, tr:has(td)")
    calls = [line.e for line in run.lines if isinstance(line.e, tl.Call)]
    soon(lambda: rows.count() == len(calls))
    shown = [row.locator("td").all_text_contents()[:2] for row in rows.all()]
    assert shown == [[call.node, call.purpose] for call in calls]


INK = """(() => {
    const canvas = document.querySelector(".tl-stage canvas[aria-label^='Calls over time']");
    const ratio = devicePixelRatio;
    const pen = canvas.getContext("2d");
    const top = x => {
        const data = pen.getImageData(x * ratio, 24 * ratio, 1, 40 * ratio).data;
        for (let y = 0; y < 40; y++)
            if ([31, 41, 51].every((part, k) => Math.abs(data[4 * y * ratio + k] - part) < 8)) return y;
        return null;
    };
    return Array.from({length: canvas.clientWidth}, (_, x) => top(x));
})()"""
"""The height of the highest dark pixel above the calls, from left to right."""


@pytest.mark.nightly
def test_the_limit_of_requests_is_a_step_line(opened):
    strategy = tl.TreeOfThoughts(propose=tl.Sample(count=20), search=tl.BeamSearch(width=20))
    lab = tl.Lab(scripted(seconds=0.05), runs=None, mode="off")
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(lambda: asyncio.run(lab.run(strategy, tl.general("Why?")))).result()
    info = timeline_info(run)
    steps = info.limits["scripted"]
    assert len(steps) > 1
    page = opened(run)
    page.emulate_media(color_scheme="light")
    page.get_by_role("button", name="timeline").click()
    clock = page.locator(".tl-stage canvas[aria-label^='Calls over time']")
    words = " → ".join(str(limit) for _, limit in steps)
    soon(lambda: f"limit {words}" in clock.get_attribute("aria-label"))
    soon(lambda: sum(height is not None for height in page.evaluate(INK)) > 100)
    heights = page.evaluate(INK)
    left, right, end = 64, len(heights) - 30, float(info.end.max())  # the margins of the drawing
    largest = max(*(limit for _, limit in steps), info.most)
    ends = [*(time for time, _ in steps[1:]), end]
    for (begin, limit), stop in zip(steps, ends, strict=True):
        middle = left + (right - left) * (begin + stop) / 2 / end
        if (right - left) * (stop - begin) / end < 6:
            continue  # too narrow to be seen
        assert abs((34 - heights[round(middle)]) - 28 * limit / largest) < 2


@pytest.mark.nightly
def test_every_version_of_a_plan_is_shown_with_its_steps_and_their_states(opened):
    model = Planner(
        plan=plan(tool("drill", depth=3), tool("add", a=3, b=4), think("Say {{from_step:s2}}.")),
        patch=plan({**tool("add", a=7, b=7), "id": "s1"}),
        analysis="It is 14.",
        review=GOOD,
    )
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(run_plan, model).result()
    page = opened(run)
    page.get_by_role("button", name="plan", exact=True).click()
    versions = page.locator(".tl-versions > section")
    soon(lambda: versions.count() == 2)
    shown = [
        [card.locator("b").text_content()[:4] for card in version.locator(".tl-card").all()]
        for version in versions.all()
    ]
    # The first version is shown as it was when the patch replaced it.
    assert shown[0][0] == "✗ s1"
    assert shown[1] == ["✓ s1", "✓ s2", "✓ s3"]
    assert versions.first.locator("h3").text_content() == "version 1 · replaced"
    card = versions.last.locator(".tl-card").nth(2)
    assert "It is 14." in card.text_content()
    card.click()
    assert page.evaluate(f"{APP}.ids()") == [run.plans[0]["s3"].node]
    assert versions.last.locator("path.tl-near").count() == 1
    after = "all => all.map(one => one.previousElementSibling.querySelector('h3').textContent)"
    reviews = page.locator(".tl-review")
    assert reviews.evaluate_all(after) == ["version 2 · completed"]
    [noted] = [line.e.data for line in run.lines if getattr(line.e, "name", "") == "plan.reflected"]
    reviews.get_by_role("button").click()
    assert page.evaluate(f"{APP}.ids()") == [noted["node"]]
    first_four = "all => all.map(one => [...one.textContent].slice(0, 4).join(''))"
    icons = {"pending": "○", "in_progress": "◐", "completed": "✓", "failed": "✗", "skipped": "↷"}
    for step in range(1, len(run.lines), 3):  # the view follows the slider
        page.evaluate(f"{APP}.setStep({step})")
        plans = plans_of(run.header, run.lines[:step])
        now = [f"{icons[one.status]} {one.id}" for one in plans[0].steps] if plans else []
        soon(lambda now=now: versions.last.locator(".tl-card b").evaluate_all(first_four) == now)


SPREAD = """all => all.map(row => {
    const [kind, said, meta] = [...row.children].map(part => part.getBoundingClientRect());
    const fold = row.nextElementSibling?.getBoundingClientRect();
    return [kind.bottom <= said.top, said.bottom <= meta.top, !fold || fold.bottom <= said.top + 2,
        row.scrollWidth <= row.clientWidth, row.offsetWidth];
})"""


@pytest.mark.nightly
def test_steps_and_plans_can_be_read_on_a_phone(opened):
    deep = carried_out("sim/constrained", tl.DeepThink(), tl.domains.constrained_tasks(2)[1])
    for run in (agent(tl.PlanExecute(), 8), deep):
        page = opened(run)
        page.set_viewport_size({"width": 390, "height": 844})
        page.get_by_role("button", name="steps", exact=True).click()
        rows = page.locator(".tl-step")
        rows.last.wait_for()
        page.wait_for_timeout(200)
        for *apart, wide in rows.evaluate_all(SPREAD):
            assert all(apart)
            assert wide > 250  # of whatever depth
        if run is deep:
            continue
        cause = page.locator(".tl-cause").bounding_box()
        assert cause["y"] + cause["height"] < 844
        page.get_by_role("button", name="plan", exact=True).click()
        cards = page.locator(".tl-plans .tl-card")
        soon(lambda cards=cards: cards.count() > 3)
        boxes = cards.evaluate_all("all => all.map(one => one.getBoundingClientRect().toJSON())")
        assert all(one["bottom"] <= next["top"] for one, next in itertools.pairwise(boxes))
        too_big = "one.scrollWidth > one.clientWidth || one.scrollHeight > one.clientHeight"
        cut = f"all => all.filter(one => one.offsetHeight && ({too_big})).length"
        assert page.locator(".tl-plans .tl-card, .tl-plans .tl-card > *").evaluate_all(cut) == 0


@pytest.mark.nightly
def test_paper_shows_the_texts_of_the_steps_whole(opened):
    recorder = tl.Recorder("long")
    node = recorder.thought("question")
    for number in range(4):
        node = recorder.thought(f"{'word ' * 150}end {number}", node)
    page = opened(recorder.run)
    step = page.locator(".tl-step").last
    soon(step.is_visible)
    assert "end 3" not in step.text_content()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert "end 3" in step.text_content()  # at once: a printer does not wait
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert "end 3" not in step.text_content()


@pytest.mark.slow
def test_a_run_without_a_plan_has_no_plan_view(opened):
    page = opened(game(tl.TreeOfThoughts(), "1 4 8 8"))
    assert not page.get_by_role("button", name="plan", exact=True).is_visible()


def random_scores() -> tl.Run:
    """20,000 thoughts with random scores, of which a third was pruned and some have no readable score.

    The branches differ in density, scores and shares, so that no part of them stands for the whole.
    """
    dice = random.Random(7)
    recorder = tl.Recorder("random scores")
    ids = [recorder.thought("the root")]
    for number in range(1, 20_000):
        parent = (number - 1) // 4 if dice.random() < 0.7 else (number - 1) // 6
        ids.append(recorder.thought(f"thought {number}", ids[parent]))
        dull = ids[-1].startswith("0.0.")
        readable = dice.random() > 0.05
        recorder.score(ids[-1], dice.random() * (0.5 if dull else 1.0) if readable else None)
        if readable:
            recorder.decide(ids[-1], "pruned" if dice.random() < (0.6 if dull else 0.2) else "kept")
    return recorder.run


PAINTED = """() => {
    const { scene, picture } = APP.panes[0];
    const [bars, words] = [[], []];
    const brush = CanvasRenderingContext2D.prototype;
    const { beginPath, rect, fill, fillText } = brush;
    let path = [];
    brush.beginPath = function () {
        path = [];
        return beginPath.call(this);
    };
    brush.rect = function (...where) {
        path.push(where);
        return rect.apply(this, where);
    };
    brush.fill = function () {
        for (const [x, y, wide, high] of path)
            if (wide === 3) bars.push({ x, y, high, colour: this.fillStyle, share: this.globalAlpha });
        return fill.call(this);
    };
    brush.fillText = function (text, ...where) {
        words.push(text);
        return fillText.call(this, text, ...where);
    };
    picture.show(scene, picture.theme);
    Object.assign(brush, { beginPath, rect, fill, fillText });
    const { canvas, camera, width, height } = picture;
    const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
    for (const bar of bars) {
        const at = 4 * (Math.floor(bar.y + bar.high / 2) * width + bar.x + 1);
        bar.seen = [...data.slice(at, at + 3)];
    }
    const ids = Array.from(scene.nodes, (node) => scene.recording.id(node));
    const way = ids.filter((_, slot) => scene.flags[slot] & 1);
    return { bars, words, camera, width, height, ids, way, x: [...scene.x], y: [...scene.y] };
}"""

STATES = ("kept", "pruned", "unreadable")
ALPHA = {"kept": 1.0, "pruned": 0.4}


def rgb_of(colour: str) -> list[int]:
    return [int(colour[at : at + 2], 16) for at in (1, 3, 5)]


@pytest.mark.nightly
def test_from_afar_the_painted_means_shares_and_counts_are_the_true_ones(opened):
    """What is drawn on the canvas, and the pixels that remain of it, against the run."""
    run = random_scores()
    page = opened(run)
    assert re.search(r"\d+ of 20,000 thoughts shown", page.inner_text("body"))
    page.evaluate(f"{APP}.open(true)")
    soon(lambda: page.evaluate(f"{APP}.panes[0].scene.count") == len(run.tree))
    page.wait_for_timeout(400)  # the view moves
    assert "thoughts shown" not in page.inner_text("body")
    shown = page.evaluate(PAINTED.replace("APP", APP))
    camera = shown["camera"]

    cells: dict[tuple[int, int], list[Any]] = {}
    hidden = set()  # by the path to the best thought
    for id, x, y in zip(shown["ids"], shown["x"], shown["y"], strict=True):
        column = math.floor(((x - camera["x"]) * camera["kx"] + shown["width"] / 2) / 3)
        cells.setdefault((int(y), column), []).append(run.tree[id])
        if id in set(shown["way"]):
            hidden |= {(int(y), column + by) for by in (-2, -1, 0, 1, 2)}
    painted: dict[tuple[int, int], dict[str, tuple[float, float | None]]] = {}
    for bar in shown["bars"]:
        middle = bar["y"] + bar["high"] / 2
        level = round((middle - shown["height"] / 2) / camera["ky"] + camera["y"])
        place = (level, bar["x"] // 3)
        if bar["colour"] == "#ffffff":  # the ground of a bar
            continue
        rgb = rgb_of(bar["colour"])
        state = "unreadable" if bar["colour"] == "#5f6b78" else "kept" if bar["share"] == 1 else "pruned"
        score = min(range(37), key=lambda k: math.dist(rgb_of(colour(k / 36)), rgb)) / 36
        painted.setdefault(place, {})[state] = (bar["high"], None if state == "unreadable" else score)
        if bar["high"] > 3 and place not in hidden:
            blend = [255 + (one - 255) * ALPHA.get(state, 1.0) for one in rgb]
            assert bar["seen"] == pytest.approx(blend, abs=2)

    assert painted.keys() == cells.keys()
    del painted[min(cells)]  # the question has no score and no decision
    for place, parts in painted.items():
        nodes = cells[place]
        height = sum(high for high, _ in parts.values())
        assert parts.keys() == {node.state for node in nodes}
        for state, (high, mean) in parts.items():
            members = [node for node in nodes if node.state == state]
            assert high / height == pytest.approx(len(members) / len(nodes), abs=1e-9)
            if mean is not None:
                true = sum(node.score for node in members) / len(members)
                assert mean == pytest.approx(true, abs=0.5 / 36 + 1e-9)

    for level in range(1, max(level for level, _ in cells) + 1):
        nodes = [node for node in run.tree if node.depth == level]
        scores = [node.score for node in nodes if node.score is not None]
        dropped = 100 * sum(node.state == "pruned" for node in nodes) / len(nodes)
        mean = sum(scores) / len(scores)
        assert f"{len(nodes):,}" in shown["words"]
        assert f"mean {mean:.3g}, {math.floor(dropped + 0.5)} % pruned" in shown["words"]
        # The mean of what is painted, each cell counted as often as it has thoughts.
        weight = total = 0.0
        for (its, column), parts in painted.items():
            if its == level:
                height = sum(high for high, _ in parts.values())
                for high, score in parts.values():
                    if score is not None:
                        weight += high / height * len(cells[its, column])
                        total += high / height * len(cells[its, column]) * score
        assert total / weight == pytest.approx(mean, abs=0.5 / 36)


def picture_of(page: Any) -> list[list[Any]]:
    """The texts of the exported picture: text, left, right and the width of the picture."""
    return page.evaluate(
        f"""async () => {{
            const place = document.createElement("div");
            place.innerHTML = await (await {APP}.panes[0].save("svg")).text();
            document.body.append(place);
            const wide = place.firstElementChild.viewBox.baseVal.width;
            return [...place.querySelectorAll("g text")].map((one) => {{
                const {{ x, width }} = one.getBBox();
                return [one.textContent, x, x + width, wide];
            }});
        }}"""
    )


@pytest.mark.nightly
def test_a_phone_shows_texts_of_thoughts_and_cuts_none_off(opened):
    run = game(tl.TreeOfThoughts(search="mcts"), budget=tl.Budget(calls=120))
    page = opened(run)
    page.set_viewport_size({"width": 390, "height": 844})
    soon(lambda: page.evaluate(f"{APP}.panes[0].scene.sideways"))
    page.wait_for_timeout(300)
    texts = [text.rstrip("…") for text, *_ in picture_of(page)]
    shown = [node for node in run.tree if node.text[:8] in "\n".join(texts)]
    assert len(shown) > len(run.tree) / 2
    best = run.tree[run.best.id].text[:8]
    assert any(best in text for text in texts)
    title = page.locator(".tl-title h2").bounding_box()
    views = page.get_by_role("group", name="view", exact=True).bounding_box()
    assert title["y"] + title["height"] <= views["y"] + 1  # the question has the whole width


@pytest.mark.nightly
def test_a_selected_thought_has_a_text_and_no_text_leaves_the_picture(opened):
    wide = tl.TreeOfThoughts(propose=tl.Propose(count=12), search=tl.BeamSearch(width=20))
    run = game(wide, "4 5 6 10")
    assert len(run.tree) > 150
    page = opened(run)
    pruned = [node.id for node in run.tree if node.state == "pruned"]
    for id in (pruned[0], pruned[len(pruned) // 2], pruned[-1]):
        page.evaluate(f"{APP}.show(['{id}'])")
        page.wait_for_timeout(400)
        boxes = picture_of(page)
        assert any(run.tree[id].text.startswith(text.rstrip("…")) for text, *_ in boxes), id
    page.get_by_role("button", name="fit").click()
    page.wait_for_timeout(400)
    for text, left, right, width in picture_of(page):
        assert left > -3, text
        assert right < width + 3, text


@pytest.mark.slow
def test_numbers_have_three_significant_digits(opened):
    with tl.Recorder("written") as recorder:
        root = recorder.thought("question")
        id = recorder.thought("one", parent=root)
        recorder.score(id, 2 / 3, by="value", samples=(20 / 3, 0.00005))
        recorder.end("", node=None)
    page = opened(recorder.run)
    page.evaluate(f"{APP}.show(['0.0'])")
    facts = page.locator(".tl-facts")
    soon(lambda: "0.667 · by value · samples 6.67, 0.00005 · raw 0.667" in facts.text_content())


@pytest.mark.slow
def test_a_thought_that_was_voted_on_leads_to_the_votes(opened):
    run = game(tl.TreeOfThoughts(evaluate=tl.Vote()), "1 4 8 8")
    page = opened(run)
    page.evaluate(f"{APP}.show(['0.0'])")
    page.get_by_text("The replies of the evaluator (vote) are at").get_by_role("button", name="0").click()
    soon(lambda: page.evaluate(f"{APP}.ids()") == ["0"])
    page.locator(".tl-details summary b", has_text="vote").first.wait_for()


LONG = "The whole text of a thought. " * 60


@pytest.mark.nightly
def test_paper_has_the_reason_and_the_path_with_its_full_texts(opened):
    task = tl.general("Which number?", answer="41", grade="number")
    with tl.Recorder("own", task=task) as recorder:
        first = recorder.thought(LONG, parent=recorder.thought(task.question))
        last = recorder.thought("So it is 42.", parent=first)
        other = recorder.thought("Another way.", parent=first)
        for id, state in ((first, "kept"), (other, "pruned"), (last, "answer")):
            recorder.score(id, 0.9)
            recorder.decide(id, state)
        recorder.end("42", node=last)
    page = opened(recorder.run)
    page.evaluate(f"{APP}.show(['{other}'])")
    paper = page.locator(".tl-texts")
    assert not paper.is_visible()
    page.wait_for_timeout(300)
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert paper.locator("pre").all_text_contents() == [task.question, LONG, "So it is 42."]
    reason = tl.analysis.why.first_findings(recorder.run)[0].text
    assert reason in paper.text_content()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert paper.locator("pre").count() == 0


CORNER = """(() => {
    const canvas = [...document.querySelectorAll(".tl-stage canvas")].find((one) => one.checkVisibility());
    return [...canvas.getContext("2d").getImageData(2, canvas.height - 3, 1, 1).data].slice(0, 3);
})()"""
"""The colour of a corner of the visible picture."""


@pytest.mark.nightly
def test_a_timeline_is_printed_light_and_shown_dark_again(opened):
    page = opened(game(tl.TreeOfThoughts(), "1 4 8 8"))
    page.emulate_media(color_scheme="dark")
    page.get_by_role("button", name="timeline").click()
    page.locator("canvas[aria-label^='Calls over time']").wait_for()  # before, the tree is shown, dark too
    dark = [17, 20, 24]
    soon(lambda: page.evaluate(CORNER) == dark)
    # At once: the browser prints what is there when the event ends.
    at_once = f"(() => {{ dispatchEvent(new Event('beforeprint')); return {CORNER}; }})()"
    assert page.evaluate(at_once) == [255, 255, 255]
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    soon(lambda: page.evaluate(CORNER) == dark)


@pytest.mark.nightly
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_forced_colours_reach_the_pictures(opened, scheme):
    page = opened(game(tl.TreeOfThoughts(), "1 4 8 8"))
    page.emulate_media(color_scheme=scheme, forced_colors="active")
    system = """name => {
        const probe = document.createElement("canvas").getContext("2d");
        document.body.append(probe.canvas);
        probe.fillStyle = name;
        probe.fillRect(0, 0, 1, 1);
        return [...probe.getImageData(0, 0, 1, 1).data].slice(0, 3);
    }"""
    paper = page.evaluate(system, "Canvas")
    for view in ("tree", "timeline"):
        page.get_by_role("button", name=view, exact=True).click()
        soon(lambda: page.evaluate(CORNER) == paper)
    ground = page.evaluate("getComputedStyle(document.querySelector('.tl-badge')).backgroundColor")
    ink = page.evaluate("getComputedStyle(document.querySelector('.tl-badge')).color")
    assert contrast(ink, ground) > 7


@pytest.mark.nightly
def test_compare_lists_what_was_set_differently_and_explains_its_colours(opened):
    both = tl.TreeOfThoughts(propose=tl.Propose(count=4), evaluate=tl.Value(samples=3))
    first = game(both, "1 4 8 8")
    second = game(both.with_({"evaluate.samples": 1, "search": tl.BeamSearch(width=1)}), "1 4 8 8")
    page = opened(first, second)
    rows = page.locator(".tl-differences table tr")
    soon(lambda: rows.count() > 3)
    shown = [row.locator("th, td").all_text_contents() for row in rows.all()[1:]]
    assert shown[:2] == [
        ["evaluate", "Value(samples=3)", "default"],
        ["search", "default", "BeamSearch(width=1)"],
    ]
    assert [row[0] for row in shown[2:]] == ["answer", "verdict", "ended", "usage"]
    legend = page.get_by_role("group", name="legend")
    for words in ("only here", "other text", "other score", "other state"):
        assert legend.get_by_text(words).is_visible()
    item = page.locator(".tl-differences .tl-item").first.bounding_box()
    box = page.locator(".tl-differences").bounding_box()
    assert item["y"] < box["y"] + box["height"]  # the first difference is visible at once
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_timeout(300)
    side = page.locator(".tl-side").bounding_box()
    assert side["y"] + side["height"] <= page.get_by_role("group", name="time").bounding_box()["y"] + 1
    page.get_by_role("group", name="time").get_by_role("button", name="play").click()  # nothing covers it
    page.get_by_role("button", name="tree", exact=True).click()
    soon(lambda: not legend.get_by_text("other state").is_visible())


HOST = """([host, theme, ground, ink]) => {
    const { body } = document;
    const [paper, text] = {
        "marimo": ["background", "color"],
        "VS Code": ["--vscode-editor-background", "--vscode-editor-foreground"],
        "JupyterLab": ["--jp-layout-color0", "--jp-ui-font-color0"],
    }[host];
    body.removeAttribute("style");
    delete body.dataset.vscodeThemeKind;
    if (host === "VS Code") {
        body.dataset.vscodeThemeKind = `vscode-${theme}`;
        body.style.setProperty("--jp-layout-color0", "white"); // as the style sheet of ipywidgets does
    }
    body.style.setProperty(paper, ground);
    body.style.setProperty(text, ink);
}"""
"""Makes a page look like that of a notebook."""


@pytest.mark.slow
def test_the_theme_is_that_of_the_notebook_and_not_of_the_desktop(opened):
    page = opened(game(tl.TreeOfThoughts(), "1 4 8 8"))
    root = page.locator(".tl-root")
    for desktop, host, theme in itertools.product(
        ("light", "dark"), ("marimo", "VS Code", "JupyterLab"), ("light", "dark")
    ):
        page.emulate_media(color_scheme=desktop)
        ground, ink = ("#202124", "#e8eaed") if theme == "dark" else ("#fdfdfd", "#202124")
        page.evaluate(HOST, [host, theme, ground, ink])
        paper = {"light": "#ffffff", "dark": "#111418"}[theme] if host == "marimo" else ground
        look = "root => [root.style.colorScheme, root.style.getPropertyValue('--paper')]"
        soon(lambda look=look, known=(theme, paper): tuple(root.evaluate(look)) == known)
        lowest = root.evaluate("root => root.style.getPropertyValue('--scores').split(',')[0]")
        assert theme == "light" or contrast(lowest, paper) >= 3
