"""Scores by agreement: the share of the samples of one state that are the same step or answer."""

from collections import Counter

import pytest
from support import TASK, Scripted, dice, run, wait
from support.letters import Letters

import tot_lab as tl
from tot_lab.core.records import Note

Agreement = tl.evaluators.Agreement


def sampled(replies, task=TASK, **settings):
    """A run whose sample k at the root is `replies[k]`."""
    model = Scripted(lambda call: replies[call.sample_index])
    strategy = tl.TreeOfThoughts(
        **{
            "propose": tl.Sample(count=len(replies)),
            "evaluate": Agreement(),
            "stop": tl.Stop(depth=1, solved=None),
            **settings,
        }
    )
    return run(strategy, task, model), model


def scores(made):
    return [made.tree[id].score for id in made.tree["0"].children]


def test_answers_agree_if_the_domain_says_that_they_are_the_same():
    """The texts all differ."""
    made, model = sampled(
        ["So.\nAnswer: Paris", "Well.\nAnswer:  PARIS", "No.\nAnswer: Rome", "Hm.\nAnswer: paris"]
    )
    assert scores(made) == [0.75, 0.75, 0.25, 0.75]
    assert [made.tree[f"0.{k}"].raw for k in range(4)] == [3, 3, 1, 3]
    assert made.tree["0.0"].by == "agreement"
    assert {call.purpose for call in model.calls} == {"sample"}
    assert len(model.calls) == 4
    assert wait(made.replay()).identical


def test_steps_agree_if_they_reach_the_same_state():
    made, _ = sampled(
        ["4 + 6 = 10 (left: 5 10 10)", "6 + 4 = 10 (left: 5 10 10)", "10 - 4 = 6 (left: 5 6 6)"],
        tl.game24("4 5 6 10"),
    )
    assert scores(made) == pytest.approx([2 / 3, 2 / 3, 1 / 3])


class Ends(Letters):
    """Paths end with a full stop. All paths of one length reach one state. A path with `!` has a score."""

    kind = "tests/agreement_ends"

    def complete(self, task, path):
        return bool(path) and path[-1].endswith(".")

    def answer(self, task, path):
        return path[-1][0] if path else None

    def state(self, task, path):
        return len(path)

    def assess(self, task, path):
        return 0.1 if path and "!" in path[-1] else None


ENDS = tl.general("Which end?").model_copy(update={"domain": Ends()})


def test_finished_paths_are_compared_by_their_answers_and_others_by_their_states():
    made, _ = sampled(["a.", "b.", "A, then.", "a", "b"], ENDS)
    assert scores(made) == [0.4, 0.2, 0.4, 0.4, 0.4]


def test_samples_that_the_domain_scores_itself_count_as_samples():
    made, _ = sampled(["a.", "a!.", "b!.", "a."], ENDS)
    assert scores(made) == [0.75, 0.1, 0.1, 0.75]
    assert made.tree["0.1"].by == "domain"


def test_a_lone_sample_has_no_score_and_a_reason():
    made, _ = sampled(["Answer: 26"])
    assert scores(made) == [None]
    (note,) = (event for event in made.events if isinstance(event, Note) and event.name == "score.missing")
    assert (note.at, note.data) == ("0.0", {"by": "agreement", "reason": "there is no other sample"})


def test_earlier_samples_of_the_same_thought_count():
    def one_by_one(state):
        for _ in range(4):
            yield tl.Pick([state.root], 1)

    made, _ = sampled(["Answer: 26", "Answer: 24", "Answer: 26", "Answer: 26"], search=one_by_one)
    assert scores(made) == [None, 0.5, pytest.approx(2 / 3), 0.75]


def test_samples_of_another_thought_do_not_count():
    def reply(call):
        return f"step {call.sample_index}" if call.node == "0" else "the same"

    made = run(
        tl.TreeOfThoughts(
            propose=tl.Sample(count=2), evaluate=Agreement(), stop=tl.Stop(depth=2, solved=None)
        ),
        model=Scripted(reply),
    )
    assert [node.score for node in made.tree if node.depth == 2] == [1.0] * 4
    assert [node.raw for node in made.tree if node.depth == 2] == [2] * 4


@pytest.mark.slow
def test_it_counts_as_a_naive_count_does():
    def reply(call):
        return f"Answer: {dice(call).choice('abc')}"

    for repeat in range(50):
        strategy = tl.TreeOfThoughts(
            propose=tl.Sample(count=7), evaluate=Agreement(), stop=tl.Stop(depth=1, solved=None)
        )
        made = run(strategy, model=Scripted(reply), repeat=repeat)
        texts = [made.tree[f"0.{k}"].text for k in range(7)]
        assert scores(made) == [Counter(texts)[text] / 7 for text in texts]
