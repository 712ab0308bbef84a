"""The explorer says why a run failed, marks what a person changed, counts each call once, and plays picks."""

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.browser import soon
from support.explorer import APP, agent, carried_out, game
from support.plans import TASK as SUM
from support.plans import Planner, add, echo, plan, think, tool

import tot_lab as tl
from tot_lab.core.records import Note

SCENE = f"{APP}.panes[0].scene"
TOKENS = re.compile(r"([\d,]+) → ([\d,]+) tokens")


def passed_over():
    """A run whose right answer was found, and another one given; a person's mark is not needed for it."""
    task = tl.general("What is six times seven?", answer="42", grade="number")
    with tl.Recorder("two", task=task) as recorder:
        root = recorder.thought(task.question)
        for text, score in (("Answer: 42", 0.3), ("Answer: 41", 0.9), ("Answer: 40", 0.00004)):
            recorder.score(recorder.thought(text, parent=root), score)
        recorder.end("41", node="0.1")
    return recorder.run


def lifted():
    """A run in which a person lifted a thought that cannot lead to a right answer."""
    hand = tl.game24("4 5 6 10")
    search = tl.TreeOfThoughts(
        propose=tl.Propose(count=5),
        evaluate=lambda task, path: 0.9 if task.domain.solvable(task, path) else 0.1,
        search=tl.BeamSearch(width=1),
    )

    async def go():
        lab = tl.Lab(tl.sim.SimGame24(skill=0.5, noise=0.0, seed=3), runs=None)
        run = await lab.run(search, hand)
        first = [node for node in run.tree if node.depth == 1]
        wrong = next(node for node in first if not hand.domain.solvable(hand, [node.text]))
        return await lab.branch(run, wrong.id, score=1.0), wrong.id

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(go())).result()


@pytest.mark.slow
def test_the_cause_stays_in_the_header_and_escape_comes_back_to_the_whole_run(opened):
    page = opened(passed_over())
    cause = page.get_by_role("group", name="cause")
    why = (
        "Evaluator: scored the wrong answer, thought 0.1 (score 0.9), higher than the right one, thought 0.0"
    )
    soon(lambda: why in cause.inner_text())
    page.evaluate(f"{APP}.show(['0.2'])")
    soon(lambda: "thought 0.2" in page.locator(".tl-details").inner_text())
    assert "why it failed" not in page.locator(".tl-details").inner_text()
    assert why in cause.inner_text()
    page.get_by_role("tree").press("Escape")
    soon(lambda: "Select a thought." in page.locator(".tl-details").inner_text())
    assert page.evaluate(f"{APP}.ids()") == []
    assert page.get_by_text("why it failed").count() == 1  # once, in the header
    legend = page.get_by_role("group", name="legend")
    legend.get_by_role("button", name="right, not chosen 1").click()
    soon(lambda: page.evaluate(f"{APP}.ids()") == ["0.0"])
    numbers = page.evaluate(f"[1, 2, 3].map((slot) => {SCENE}.number(slot))")
    assert numbers == [["thought 0.0 · 0.3"], ["0.9"], ["<0.001"]]
    page.evaluate(f"{APP}.setStep(3)")
    soon(lambda: not cause.is_visible())  # before the end nothing has failed


@pytest.mark.slow
def test_what_a_person_changed_is_marked_in_the_header_on_the_thought_and_in_the_legend(opened):
    run, id = lifted()
    page = opened(run)
    soon(lambda: f"a person changed thought {id}: score set to 1" in page.locator(".tl-cause").inner_text())
    marked = f"{SCENE}.changed.map((slot) => {SCENE}.recording.id({SCENE}.nodes[slot]))"
    assert page.evaluate(marked) == [id]
    page.get_by_role("button", name="changed by a person 1").click()
    soon(lambda: "score set to 1" in page.locator(".tl-facts").inner_text())
    page.evaluate(f"{APP}.setStep(2)")
    soon(lambda: page.evaluate(marked) == [])
    assert not page.locator(".tl-cause").is_visible()


@pytest.mark.slow
def test_a_search_with_visits_opens_with_them_and_is_played_pick_by_pick(opened):
    run = game(tl.TreeOfThoughts(search="mcts"), budget=tl.Budget(calls=60))
    picks = [e.data for e in run.events if isinstance(e, Note) and e.name == "tot.picked"]
    page = opened(run)
    bar = page.get_by_role("group", name="time")
    assert page.get_by_label("colour by").input_value() == "visits"
    page.evaluate(f"{APP}.setStep(0)")
    forward = page.get_by_role("button", name="pick ›")
    for number, data in enumerate(picks[:4], 1):
        forward.click()
        soon(
            lambda n=number: (
                f"pick {n} of {len(picks)}" in page.get_by_role("group", name="time").inner_text()
            )
        )
        assert page.evaluate(f"{APP}.ids()") == data["parents"]
        (id,), why = data["parents"], data.get("why", {})
        if why:
            text = page.locator(".tl-what").inner_text()
            assert text.startswith(f"picked thought {id}: visits {why[id]['visits']}, value ")
            slot = f"{SCENE}.slot[{SCENE}.recording.indexOf('{id}')]"
            label = page.evaluate(f"{SCENE}.number({slot}).join()")
            value = why[id]["value"]
            assert label == f"{why[id]['visits']} · {'<0.001' if 0 < value < 0.001 else f'{value:.3g}'}"
    page.get_by_label("colour by").select_option("score")
    page.evaluate(f"{APP}.setStep(1)")
    page.get_by_role("button", name="pick by pick").click()
    soon(lambda: f"pick 2 of {len(picks)}" in bar.inner_text(), 10)
    assert page.get_by_label("colour by").input_value() == "score"  # what a person chose stays


def shared_calls():
    """Runs of which some steps share a call, and some calls have no step."""
    steps = plan(think("First add."), tool("add", a=3, b=4), think("Then double it."))
    tokens = tl.Reply(steps, input_tokens=613, output_tokens=141)
    reply = {"analysis": tl.Reply("14", input_tokens=20, output_tokens=3)}
    done = tl.Reply("SATISFIED: it adds up.\nAnswer: 14", input_tokens=50, output_tokens=9)
    planned = carried_out(Planner(plan=tokens, review=done, **reply), tl.PlanExecute(), SUM, [add, echo])
    deep = carried_out(
        tl.sim.SimConstrained(skill=0.3, noise=0.5, seed=5),
        tl.DeepThink(),
        tl.domains.constrained_tasks(20)[11],
    )
    return planned, deep


def drawn():
    """A run whose thoughts come from samples, three calls for three thoughts."""
    sampling = tl.TreeOfThoughts(propose=tl.Sample(count=3), search=tl.MCTS(iterations=3))
    return game(sampling)


def check_rows(page, run):
    """Check that the rows of the steps add up to the usage of the run."""
    page.evaluate(f"{APP}.set({{ view: 'steps', viewed: true }})")
    rows = page.locator(".tl-step")
    soon(lambda: rows.count() > 0)
    found = [TOKENS.search(text) for text in rows.locator("> .tl-quiet").all_text_contents()]
    sums = [sum(int(match[side].replace(",", "")) for match in found if match) for side in (1, 2)]
    used = run.usage
    assert sums == [used.input_tokens, used.output_tokens], run.name
    total = page.locator(".tl-total").text_content()
    assert f"{used.calls} call" in total
    assert TOKENS.search(total).groups() == (f"{used.input_tokens:,}", f"{used.output_tokens:,}")


@pytest.mark.slow
def test_a_shared_call_counts_once_and_the_rows_add_up(opened):
    planned, deep = shared_calls()
    page = opened(planned)
    check_rows(page, planned)
    texts = page.locator(".tl-step").all_text_contents()
    assert sum("one call for 3 steps: 613 → 141 tokens" in text for text in texts) == 1
    assert sum("the same call" in text for text in texts) == 2
    sampled = drawn()
    page = opened(sampled)
    check_rows(page, sampled)
    texts = page.locator(".tl-step").all_text_contents()
    used = sampled.calls_df()[["node", "purpose", "input_tokens", "output_tokens"]]
    first = used[(used.node == "0") & (used.purpose == "sample")].sum()
    assert f"3 calls for 3 steps: {first.input_tokens} → {first.output_tokens} tokens" in texts[1]
    assert ["the same calls" in text for text in texts[:2]] == [False, False]
    shared = sum("3 calls for 3 steps" in text for text in texts)
    assert sum("the same calls" in text for text in texts) == 2 * shared > 0
    assert not any("sample" in text and "without a thought" in text for text in texts)
    page = opened(deep)
    check_rows(page, deep)
    syntheses = sum(event.name == "deep_think.iteration" for event in deep.events if isinstance(event, Note))
    kinds = page.locator(".tl-step .tl-kind").all_text_contents()
    assert kinds.count("converge") == syntheses - 1  # the last one is the answer
    assert kinds[-1] != "converge"


@pytest.mark.nightly
def test_the_rows_of_forty_runs_add_up(opened):
    searches = ["beam", "best_first", "depth_first", "mcts"]
    runs = [
        game(tl.TreeOfThoughts(search=search, evaluate=evaluate), cards)
        for search in searches
        for evaluate in ("value", "vote", "joint")
        for cards in ("4 8 8 11", "1 4 8 8")
    ]
    agents = [tl.ReAct(), tl.PlanExecute(), tl.Reflexion(strategy=tl.ReAct()), tl.TreeThenAct()]
    runs += [agent(strategy, task) for strategy in agents for task in (0, 1, 2)]
    runs += shared_calls()
    runs += [game(strategy) for strategy in (tl.ChainOfThought(), tl.SelfConsistency())]
    assert len(runs) == 40
    for run in runs:
        page = opened(run)
        check_rows(page, run)
        page.close()
