"""Steering: a person pauses a live run and changes its search, and the record repeats it exactly."""

import asyncio
import json
import re

import pytest
from support import TASK, Scripted, lines_of, resealed, wait
from support.letters import TASK_OF_LETTERS, letters
from support.steering import (
    BY_BUDGET,
    SEARCHES,
    check_graft,
    check_prune,
    check_rescore,
    picks,
    plain,
    same,
    steered,
    strategy,
    worth,
)

import tot_lab as tl
from tot_lab.analysis.why import blame_and_findings
from tot_lab.core.records import Note, canonical
from tot_lab.views.explorer.recording import about_of


@pytest.mark.parametrize("search", [*SEARCHES, *BY_BUDGET], ids=repr)
def test_nothing_below_a_pruned_thought_is_expanded_and_it_is_not_the_answer(search):
    check_prune(search)


@pytest.mark.slow
@pytest.mark.parametrize("search", [*SEARCHES, *BY_BUDGET], ids=repr)
def test_a_new_score_counts_as_if_the_evaluator_had_given_it(search):
    check_rescore(search)


def test_a_later_new_score_reorders_what_waits():
    run = steered(lambda steer: steer.rescore("0.0", 0.99), tl.BestFirst(), at=2)
    assert "0.0" not in [id for pick in picks(run)[:3] for id in pick]
    assert picks(run)[3] == ["0.0"]


def test_a_later_new_score_changes_all_values_that_mcts_had_backed_up():
    # With this score from the start, the first picks are the same, and later ones differ.
    search, new = tl.MCTS(iterations=12), 0.8
    usual = plain(search, score=lambda path: new if path == ["b"] else worth(path))
    assert picks(usual)[:4] == picks(plain(search))[:4]
    assert picks(usual) != picks(plain(search))
    run = steered(lambda steer: steer.rescore("0.1", new), search, at=3)
    assert picks(run) == picks(usual)


@pytest.mark.parametrize("search", SEARCHES, ids=repr)
def test_a_grafted_thought_counts_as_if_the_proposer_had_made_it(search):
    # The fourth sample below the root is d. It has the score that the person gives.
    def score(path):
        return 0.97 if path == ["d"] else worth(path)

    class Wide(tl.Sample):
        """Four children of the root, three of all others."""

        kind = "tests/wide"

        def grow(self, sampler, place, count, children):
            return super().grow(sampler, place, 4 if place.node == "0" else 3, children)

    usual = wait(
        tl.Lab(Scripted(letters), runs=None).run(
            strategy(search, score).model_copy(update={"propose": Wide(count=3)}), TASK_OF_LETTERS
        )
    )
    run = steered(lambda steer: steer.graft("0", "d", 0.97), search, at=0)
    assert run.tree["0.3"].text == "d"
    assert run.tree["0.3"].by == "person"
    assert picks(run) == picks(usual)
    assert ["0.3"] in picks(run) or any("0.3" in pick for pick in picks(run))
    assert same(run)


@pytest.mark.parametrize("search", SEARCHES, ids=repr)
def test_a_thought_can_be_grafted_wherever_the_search_has_been(search):
    check_graft(search)


@pytest.mark.parametrize("search", BY_BUDGET, ids=repr)
def test_a_graft_takes_part_in_the_next_choice(search):
    run = steered(lambda steer: steer.graft("0", "z", 1.0), search, at=0)
    assert run.tree["0.6"].by == "person"
    assert "0.6" in picks(run)[1]
    assert same(run)


def test_a_strategy_around_a_search_sees_what_a_person_adds():
    """Reflexion adds its critique as the next child of the question, whoever has made the others."""
    run = steered(
        lambda steer: steer.graft("0.0", "d", 0.97),
        at=0,
        wrap=lambda search: tl.Reflexion(strategy=search, max_retries=1),
    )
    assert run.tree["0.0.3"].by == "person"
    assert run.tree["0.0.4"].text == "score: 0.5"  # the critique, which the model of letters words so
    assert same(run)


def test_levin_comes_back_to_a_thought_that_had_no_probability():
    """A thought with the score 0 is never expanded, and neither is what a person adds below it. With a new
    score, both are."""

    def score(path):
        return 0.0 if path == ["a"] else worth(path)

    def act(steer):
        steer.graft("0.0", "z", 1.0)
        steer.rescore("0.0", 0.9)

    usual = plain(tl.searches.Levin(), score=score)
    assert ["0.0"] not in picks(usual)
    below = steered(lambda steer: steer.graft("0.0", "z", 1.0), tl.searches.Levin(), at=1, score=score)
    assert below.stop_reason == usual.stop_reason
    assert not [id for pick in picks(below) for id in pick if id.startswith("0.0")]
    run = steered(act, tl.searches.Levin(), at=1, score=score)
    assert picks(run)[2] == ["0.0"]
    assert ["0.0.0"] in picks(run)
    assert same(run)


def test_a_search_of_ones_own_hears_of_new_scores_by_what_it_registers():
    heard = []

    class Best:
        """The score of the best thought, which a search may keep for itself."""

        def __init__(self, state):
            self.state = state

        def rescored(self, id, old):
            heard.append((id, round(old, 3), self.state.tree[id].score))

    def search(state):
        state.remember(Best(state))
        children = yield tl.Pick([state.root])
        yield tl.Pick(children[:1])

    steered(lambda steer: steer.rescore("0.1", 0.25), search, at=0)
    assert heard == [("0.1", round(worth(["b"]), 3), 0.25)]


def test_mcts_comes_back_to_what_was_exhausted():
    # Everything is expanded to depth 2, so the tree is exhausted but for the graft.
    run = steered(lambda steer: steer.graft("0.1", "z", 1.0), tl.MCTS(), at=3, depth=2)
    assert picks(run)[:4] == [["0"], ["0.1"], ["0.2"], ["0.0"]]
    assert run.tree["0.1.3"].state in ("kept", "answer")  # at the depth limit
    run = steered(lambda steer: steer.graft("0.1.0", "z", 1.0), tl.MCTS(), at=5, depth=3)
    assert same(run)


def test_a_raised_budget_holds_from_the_next_pick_on():
    usual = wait(
        tl.Lab(Scripted(letters), runs=None).run(strategy(), TASK_OF_LETTERS, budget=tl.Budget(calls=9))
    )
    assert (usual.usage.calls, usual.stop_reason) == (9, "budget:calls")
    run = steered(lambda steer: steer.raise_budget(calls=18), budget=tl.Budget(calls=9))
    assert (run.usage.calls, run.stop_reason) == (18, "budget:calls")
    assert same(run)
    assert run.header.budget["calls"] == 9
    assert about_of(run)["budget"]["calls"] == 18
    assert about_of(usual)["budget"]["calls"] == 9


def test_a_budget_that_is_raised_as_it_is_spent_lets_the_search_go_on():
    # The third expansion is refused its last call. The raise arrives before the search ends.
    run = steered(lambda steer: steer.raise_budget(calls=20), at=1, budget=tl.Budget(calls=6))
    assert run.usage.calls == 20
    with pytest.raises(ValueError, match="no limit on tokens"):
        raise_it(tokens=5)


def raise_it(**limits):
    raised = []

    def act(steer):
        try:
            steer.raise_budget(**limits)
        except ValueError as error:
            raised.append(error)

    steered(act, budget=tl.Budget(calls=9))
    raise raised[0]


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (lambda steer: steer.prune("0.9"), "node must be a thought of this run: got '0.9'."),
        (lambda steer: steer.prune("0"), "Thought 0 is the question and cannot be changed."),
        (lambda steer: steer.rescore("0", 0.5), "Thought 0 is the question and cannot be changed."),
        (lambda steer: steer.rescore("0.1", 1.5), "score must be a number from 0 to 1: got 1.5."),
        (lambda steer: steer.rescore("0.1", float("nan")), "score must be a number from 0 to 1: got nan."),
        (lambda steer: steer.graft("0.9", "z"), "node must be a thought of this run: got '0.9'."),
        (lambda steer: steer.graft("0.1", 7), "text must be a step that the domain can read: got '7'."),
        (lambda steer: steer.graft("0.1", " "), "text must be a step that the domain can read: got ' '."),
        (lambda steer: steer.graft("0.1", "z", True), "score must be a number from 0 to 1: got True."),
        (lambda steer: steer.raise_budget(calls=9), "calls must be more than its limit of 9: got 9."),
        (lambda steer: steer.raise_budget(usd=9), "The budget of this run has no limit on usd."),
        (lambda steer: steer.raise_budget(), "Name a limit to raise, as in raise_budget(calls=120)."),
    ],
)
def test_a_change_that_cannot_be_made_is_refused_and_the_run_goes_on(act, says):
    def refused(steer):
        with pytest.raises(ValueError, match=f"^{re.escape(says)}$"):
            act(steer)

    usual = wait(
        tl.Lab(Scripted(letters), runs=None).run(strategy(), TASK_OF_LETTERS, budget=tl.Budget(calls=9))
    )
    run = steered(refused, budget=tl.Budget(calls=9))
    assert texts(run) == texts(usual)


def texts(run):
    return {node.id: (node.text, node.state, node.score) for node in run.tree}


def test_before_and_after_the_run_nothing_can_be_changed():
    stream = tl.Lab(Scripted(letters), runs=None).stream(strategy(), TASK_OF_LETTERS)
    with pytest.raises(ValueError, match="This run is not under way"):
        stream.steer.prune("0.0")

    async def go():
        async for _ in stream:
            pass

    asyncio.run(go())
    with pytest.raises(
        ValueError, match=r"This run is not under way\. Branch a finished run with lab\.branch"
    ):
        stream.steer.prune("0.0")


def test_a_change_without_a_search_waits_in_vain():
    async def go():
        async for event in stream:
            if isinstance(event, tl.Thought) and event.id != "0" and not stream.steer.waiting:
                stream.steer.rescore(event.id, 0.5)
        return stream.run

    stream = tl.Lab(Scripted(), runs=None).stream(tl.Reflexion(), TASK)
    run = asyncio.run(go())
    assert not stream.steer.searches
    if run.tree.nodes.keys() - {"0"}:
        assert not [e for e in run.events if isinstance(e, Note) and e.name == "person.acts"]


def test_a_search_can_be_changed_before_its_first_choice():
    """While its first thoughts are not decided."""
    begun = []

    def act(steer):
        begun.append(steer.searches)
        steer.rescore("0.0", 0.99)
        steer.prune("0.1")

    run = steered(act, tl.BeamSearch(width=1), at=0)
    assert begun == [True]
    assert (run.tree["0.1"].state, run.tree["0.1"].reason) == ("pruned", "person")
    assert picks(run)[1] == ["0.0"]
    assert picks(plain(tl.BeamSearch(width=1)))[1] == ["0.1"]


@pytest.mark.slow
def test_a_paused_run_makes_no_call_until_it_is_resumed():
    calls = []

    async def model(call):
        calls.append(call)
        if len(calls) == 4:
            stream.steer.pause()
        return letters(call)

    async def go():
        recorder, task = stream.start()
        while not stream.steer.paused:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.7)
        assert len(calls) == 4
        assert isinstance(recorder.lines[-1].e, tl.Reply)  # the call under way was answered
        stream.steer.graft("0.1", "z", 0.5)
        await asyncio.sleep(0.3)
        assert len(calls) == 4
        stream.steer.resume()
        return await task

    stream = tl.Lab(model, runs=None).stream(strategy(), TASK_OF_LETTERS)
    run = asyncio.run(go())
    assert run.stop_reason == plain().stop_reason
    assert run.tree["0.1.3"].text == "z"
    assert same(run)


@pytest.mark.slow
def test_a_call_that_waits_for_a_budget_waits_on_while_the_run_is_paused():
    """The cap has no known price, so that its ramp lets one call through, then two, then four."""
    calls = []

    async def model(call):
        calls.append(call)
        if len(calls) == 2:
            stream.steer.pause()
        await asyncio.sleep(0)
        return letters(call)

    async def go():
        _, task = stream.start()
        while not stream.steer.paused:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)
        made = len(calls)
        await asyncio.sleep(0.5)
        assert len(calls) == made <= 3  # two may have been sent together
        stream.steer.resume()
        return await task

    search = strategy().with_(parallel=True)
    cap = tl.Budget(tokens=10**9)
    stream = tl.Lab(model, runs=None).stream(search, TASK_OF_LETTERS, budget=cap)
    run = asyncio.run(go())
    free = wait(tl.Lab(Scripted(letters), runs=None).run(search, TASK_OF_LETTERS))
    assert texts(run) == texts(free)
    assert same(run)


@pytest.mark.slow
def test_a_pause_alone_leaves_no_trace():
    async def go():
        _, task = stream.start()
        stream.steer.pause()
        await asyncio.sleep(0.3)
        stream.steer.resume()
        return await task

    stream = tl.Lab(Scripted(letters), runs=None).stream(strategy(), TASK_OF_LETTERS)
    run = asyncio.run(go())
    assert [*map(repr, canonical(run.lines))] == [*map(repr, canonical(plain().lines))]


@pytest.mark.slow
def test_a_paused_run_can_be_cancelled():
    async def go():
        _, task = stream.start()
        await asyncio.sleep(0.05)
        stream.steer.pause()
        await asyncio.sleep(0.3)
        task.cancel()
        await asyncio.wait([task], timeout=5)
        return task.cancelled()

    async def slow(call):
        await asyncio.sleep(0.02)
        return letters(call)

    stream = tl.Lab(slow, runs=None).stream(strategy(), TASK_OF_LETTERS)
    assert asyncio.run(go())
    assert stream.run.stop_reason == "cancelled"


@pytest.mark.slow
@pytest.mark.parametrize("search", [*SEARCHES, *BY_BUDGET], ids=repr)
def test_a_run_that_was_cut_off_anywhere_is_resumed_with_its_changes(search, tmp_path):
    def act(steer):
        steer.prune("0.2")
        steer.rescore("0.0", 0.9)
        steer.graft("0.1", "z", 0.8)
        steer.raise_budget(calls=30)

    run = steered(act, search, runs=tmp_path / "whole", budget=tl.Budget(calls=15))
    whole = lines_of(run.path)
    acted = next(k for k, line in enumerate(whole) if b"person.acts" in line)
    for kept in (acted, acted + 1, acted + 3, len(whole) - 1):
        path = tmp_path / str(kept) / run.path.name
        path.parent.mkdir()
        path.write_bytes(b"".join(whole[:kept]))
        lab = tl.Lab(Scripted(letters), runs=path.parent)
        made = wait(lab.resume(path, strategy=strategy(search), task=TASK_OF_LETTERS))
        if kept > acted:
            assert texts(made) == texts(run)
            assert picks(made) == picks(run)
        else:
            assert "0.1.3" not in made.tree  # what was not written before the cut is not known


def test_a_branch_of_a_steered_run_has_its_changes():
    run = steered(lambda steer: steer.prune("0.1"), at=1)
    lab = tl.Lab(Scripted(letters), runs=None)
    made = wait(lab.branch(run, "0.2", score=0.01))
    assert made.tree["0.1"].state == "pruned"
    assert made.tree["0.1"].reason == "person"
    assert made.tree["0.2"].score == 0.01
    assert same(made)


@pytest.mark.parametrize(
    "data",
    [
        {"pick": "x", "acts": []},
        {"pick": 1, "acts": [{"act": "explode", "node": "0.1"}]},
        {"pick": 1, "acts": [{"act": "rescore", "node": "0.1", "score": 7}]},
        {"pick": 1, "acts": 7},
        {},
    ],
)
def test_a_file_with_bad_changes_is_refused_by_name(tmp_path, data):
    run = steered(lambda steer: steer.prune("0.1"), runs=tmp_path)
    bad = json.dumps(data).encode()
    lines = []
    for line in lines_of(run.path):
        if b"person.acts" in line:
            record = json.loads(line)
            record["e"]["data"] = json.loads(bad)
            line = json.dumps(record).encode() + b"\n"
        lines.append(line)
    run.path.write_bytes(resealed(b"".join(lines)))
    loaded = tl.load(run.path)
    assert len(loaded.tree) == len(run.tree)
    assert about_of(loaded)["id"] == run.id
    with pytest.raises(ValueError, match=r"The note person\.acts at thought 0 has an invalid"):
        wait(loaded.replay(strategy=strategy(), task=TASK_OF_LETTERS))


def test_the_reason_of_a_failure_names_a_person_who_pruned():
    hand, good = tl.game24("4 5 6 10"), "10 - 4 = 6 (left: 5 6 6)"
    with tl.Recorder("pruned", task=hand) as recorder:
        root = recorder.thought(hand.question)
        id = recorder.thought(good, parent=root)
        recorder.score(id, 0.9)
        recorder.decide(id, "pruned", "person")
        recorder.end("", stop="exhausted")
    why = blame_and_findings(recorder.run)[1][0]
    assert why.text == "Person: pruned thought 0.0 (score 0.9), which could still lead to a right answer."
