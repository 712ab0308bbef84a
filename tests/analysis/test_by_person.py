"""What a person changed is listed, shown, and distinguished from what the search did."""

import random

import pytest
from support import wait
from support.steering import steered

import tot_lab as tl
from tot_lab.analysis.blame import right_not_chosen
from tot_lab.analysis.by_person import changes_of
from tot_lab.analysis.why import blame_of, why_it_failed
from tot_lab.core.records import Scored

HAND = tl.game24("4 5 6 10")
GOOD = "10 - 4 = 6 (left: 5 6 6)"
BAD = "10 * 6 = 60 (left: 4 5 60)"
HOPE = "could still lead to a right answer"


def honest(task, path):
    return 0.9 if task.domain.solvable(task, path) else 0.1


def branched(*, solvable, **change):
    """A run of which the solvable thoughts below the question were changed, or one that is not solvable."""

    async def go():
        lab = tl.Lab(tl.sim.SimGame24(skill=0.5, noise=0.0, seed=3), runs=None)
        search = tl.TreeOfThoughts(
            propose=tl.Propose(count=5), evaluate=honest, search=tl.BeamSearch(width=1)
        )
        run = await lab.run(search, HAND)
        assert run.correct
        first = [node for node in run.tree if node.depth == 1]
        nodes = [node.id for node in first if HAND.domain.solvable(HAND, [node.text]) is solvable]
        for node in nodes if solvable else nodes[:1]:
            run = await lab.branch(run, node, **change)
        return run

    return wait(go())


@pytest.mark.parametrize(
    ("solvable", "change", "what", "says"),
    [
        (True, {"score": 0.0}, "score set to 0", "Person: set the score of thoughts "),
        (False, {"score": 1.0}, "score set to 1", "Person: set the score of thought "),
        (True, {"content": BAD}, "text replaced", "Person: replaced the text of thoughts "),
    ],
)
def test_a_branch_says_what_was_changed_everywhere_and_blames_no_component(
    tmp_path, solvable, change, what, says
):
    run = branched(solvable=solvable, **change)
    changes = changes_of(run)
    assert {change.what for change in changes} == {what}
    assert all(HAND.domain.solvable(HAND, [run.tree[it.node].text]) in (solvable, False) for it in changes)
    assert run.correct is False
    assert why_it_failed(run).text.startswith(says)
    found = tl.stats.judge_evaluator(run)
    assert found.runs["blame"].tolist() == ["person"] == [blame_of(run).on]
    assert found.runs["nodes"].tolist() == [", ".join(why_it_failed(run).nodes)]
    sentence = "; ".join(f"thought {change.node}: {what}" for change in changes)
    (finding,) = tl.diagnose(run).of("person")
    assert finding.text == f"A person changed this run: {sentence}."
    assert finding.nodes == tuple(change.node for change in changes)
    page = tl.figures.report_html([run], tmp_path / "report.html").read_text("utf-8")
    for text in (repr(run), run._repr_html_(), page):
        assert sentence in text
    assert repr(run).count("[person]") == len(changes)


def test_changes_of_a_run_under_way_are_listed_with_their_thoughts():
    def act(steer):
        steer.prune("0.1")
        steer.graft("0.0", "of my own", 0.9)
        steer.rescore("0.2", 0.99)

    run = steered(act, at=0)
    assert {change.node: change.what for change in changes_of(run)} == {
        "0.1": "pruned",
        "0.0.0": "added with score 0.9",
        "0.2": "score set to 0.99 (was 0.18)",
    }
    assert run.tree["0.0.0"].text == "of my own"
    assert changes_of(steered(lambda steer: None, at=0)) == []


def test_an_edit_that_the_branch_did_not_reach_is_no_change():
    run = branched(solvable=False, score=1.0)
    run.header.branched.update(node="0.9.9")
    assert changes_of(run) == []


def beam(*steps, end="exhausted", task=HAND, answer=""):
    """A recorded level: the text, the scores in order as (score, by), and the decision that follows them. A
    further pair after `None` is a score after the decision."""
    with tl.Recorder("beam", task=task) as recorder:
        root = recorder.thought(task.question)
        recorder.call(root, "What next?", "…", purpose="propose")
        ids = [recorder.thought(text, parent=root) for text, _, _ in steps]
        for id, (_, scores, _) in zip(ids, steps, strict=True):
            for score, by in scores[: scores.index(None)] if None in scores else scores:
                recorder.score(id, score, by=by)
        for id, (_, _, state) in zip(ids, steps, strict=True):
            recorder.decide(id, state)
        for id, (text, scores, state) in zip(ids, steps, strict=True):
            for score, by in scores[scores.index(None) + 1 :] if None in scores else ():
                recorder.score(id, score, by=by)
            if state == "kept" and text == BAD:
                recorder.call(id, "What next?", "…", purpose="propose")
        recorder.end(answer, stop=end)
    return recorder.run


VALUE, PERSON = "value", "person"


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        # The person lifted a thought over it.
        (
            [(GOOD, [(0.8, VALUE)], "pruned"), (BAD, [(0.3, VALUE), (0.9, PERSON)], "kept")],
            f"Person: set the score of thought 0.1 (score 0.9) above that of thought 0.0 (score 0.8), "
            f"which {HOPE} and was pruned.",
        ),
        # The evaluator had put the other one above it before.
        (
            [(GOOD, [(0.8, VALUE)], "pruned"), (BAD, [(0.9, VALUE), (1.0, PERSON)], "kept")],
            f"Evaluator: pruned thought 0.0 (score 0.8), which {HOPE}.",
        ),
        # One thought was lifted, and another pruned one would have come first.
        (
            [
                (GOOD, [(0.4, VALUE)], "pruned"),
                (BAD, [(0.6, VALUE)], "pruned"),
                (BAD, [(0.1, VALUE), (0.9, PERSON)], "kept"),
            ],
            f"Evaluator: pruned thought 0.0 (score 0.4), which {HOPE}.",
        ),
        # At the decision the kept one was higher; the person lowered it later.
        (
            [(GOOD, [(0.8, VALUE)], "pruned"), (BAD, [(0.9, VALUE), None, (0.1, PERSON)], "kept")],
            f"Evaluator: pruned thought 0.0 (score 0.8), which {HOPE}.",
        ),
    ],
)
def test_a_person_is_named_only_for_what_the_person_alone_explains(steps, says):
    run = beam(*steps)
    assert why_it_failed(run).text == says
    blamed = tl.stats.judge_evaluator(run).blame.loc["all"]
    assert blamed[says.partition(":")[0].lower()] == blamed["failed"] == 1


def test_it_never_says_that_no_kept_thought_scored_higher_when_one_did():
    roll = random.Random(1)

    def pair():
        return roll.randrange(6) / 5, roll.choice([VALUE, VALUE, PERSON])

    said = 0
    for _ in range(300):
        before = [pair() for _ in range(roll.randrange(1, 3))]
        steps = [(GOOD, [*before, None, pair()] if roll.random() < 0.3 else before, "pruned")]
        for _ in range(roll.randrange(1, 5)):
            later = [None, pair()] if roll.random() < 0.3 else []
            steps.append((BAD, [pair(), *later], roll.choice(["kept", "pruned"])))
        run = beam(*steps)
        if "although no thought that was kept" in why_it_failed(run).text:
            said += 1
            scores = [event for event in run.events if isinstance(event, Scored)]
            kept = [event.score for event in scores if run.tree[event.id].state == "kept"]
            assert before[-1][0] >= max(kept), steps
    assert said > 30


def deeper(*, stop, waits=True, right=None):
    """A solvable thought was expanded and its good child pruned, while another solvable one waited."""
    with tl.Recorder("deeper", task=HAND) as recorder:
        root = recorder.thought(HAND.question)
        first, other = (recorder.thought(GOOD, parent=root) for _ in range(2))
        recorder.score(first, 0.9)
        recorder.decide(first, "kept")
        recorder.score(other, 0.8)
        recorder.decide(other, "kept" if waits else "pruned")
        recorder.call(first, "What next?", "…", purpose="propose")
        child = recorder.thought("6 - 5 = 1 (left: 1 6)", parent=first)
        assert not HAND.domain.solvable(HAND, [GOOD, "6 - 5 = 1 (left: 1 6)"])
        recorder.score(child, 0.5)
        recorder.decide(child, "kept")
        good = recorder.thought("5 * 6 = 30 (left: 6 30)", parent=first)
        assert HAND.domain.solvable(HAND, [GOOD, "5 * 6 = 30 (left: 6 30)"])
        recorder.score(good, 0.1)
        recorder.decide(good, "pruned")
        if right:
            last = recorder.thought("30 - 6 = 24 (left: 24)", parent=good)
            recorder.score(last, 0.1)
            recorder.decide(last, right)
        recorder.end("", stop=stop)
    return recorder.run


@pytest.mark.parametrize("stop", ["budget:calls", "budget:usd", "limit:nodes", "cancelled"])
@pytest.mark.parametrize("right", [None, "pruned"])
def test_a_run_that_was_stopped_is_not_the_evaluators_fault_while_a_solvable_thought_waited(stop, right):
    assert blame_of(deeper(stop=stop, right=right)) == ("cut short", 2, ("0.1",))
    assert why_it_failed(deeper(stop=stop, right=right)).text.startswith("Cut short: ")


def test_else_the_evaluator_is_to_blame():
    assert blame_of(deeper(stop="exhausted")).on == "evaluator"
    assert blame_of(deeper(stop="budget:calls", waits=False)).on == "evaluator"
    assert blame_of(deeper(stop="budget:calls", right="kept")).on == "answerer"


def test_a_right_answer_that_was_not_chosen_is_marked_in_the_picture():
    task = tl.general("What is six times seven?", answer="42", grade="number")

    def answered(which):
        with tl.Recorder("two", task=task) as recorder:
            root = recorder.thought(task.question)
            ids = [recorder.thought(f"Answer: {number}", parent=root) for number in (42, 41)]
            recorder.end(("42", "41")[which], node=ids[which])
        return recorder.run

    from tot_lab.views.figures.theme import MISSED
    from tot_lab.views.tree_svg import tree_svg

    assert right_not_chosen(answered(1)) == ["0.0"]
    assert right_not_chosen(answered(0)) == []
    assert MISSED in tree_svg(answered(1))
    assert MISSED not in tree_svg(answered(0))
