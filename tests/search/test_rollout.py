"""Rollouts: the value of a thought is the mean reward of its sampled continuations."""

import pytest
from pydantic import ValidationError
from support import TASK, Scripted, dice, run, wait
from support.letters import Letters

import tot_lab as tl
from tot_lab.core.calls import Call
from tot_lab.core.records import Note
from tot_lab.record.losses import losses_of


class Words(Letters):
    """Letters up to a full stop, which completes a path. A path with `!` has a known reward."""

    kind = "tests/rollout_words"

    def complete(self, task, path):
        return bool(path) and path[-1] == "."

    def assess(self, task, path):
        return 0.25 if path and path[-1] == "!" else None


TASK_OF_WORDS = tl.general("Which words?").model_copy(update={"domain": Words()})


def rolled(replies, reward, count=2, **settings):
    """A run whose rollout number k below the thought `letter` replies with `replies[letter][k]`, in order."""

    def reply(call):
        if call.purpose == "sample":
            return "ab"[call.sample_index]
        letter = call.prompt.removeprefix("\nnext after ").split("/")[0]
        return replies[letter][call.attempt[-1]][call.sample_index]

    model = Scripted(reply)
    search = tl.TreeOfThoughts(
        propose=tl.Sample(count=count),
        evaluate=tl.evaluators.Rollout(evaluate=reward, **settings),
        stop=tl.Stop(depth=1, solved=None),
    )
    return run(search, TASK_OF_WORDS, model), model


def test_the_score_is_the_mean_reward_of_the_paths_at_their_ends():
    ends = []

    def reward(task, path):
        ends.append("".join(path))
        return {"axy": 1.0, "a.": 0.5, "bzz": 0.0, "b.": 1.0}["".join(path)]

    made, model = rolled({"a": ["xy", "."], "b": ["zz", "."]}, reward, samples=2, depth=2)
    assert [made.tree[id].score for id in ("0.0", "0.1")] == [0.75, 0.5]
    assert made.tree["0.0"].samples == (1.0, 0.5)
    assert made.tree["0.0"].by == "rollout"
    assert sorted(ends) == ["a.", "axy", "b.", "bzz"]
    steps = [call for call in model.calls if call.purpose == "rollout"]
    assert len(steps) == 2 * (2 + 1)  # a path that is complete is not continued
    assert len(made.tree) == 3  # steps of rollouts are no thoughts
    assert wait(made.replay()).identical


def test_what_the_domain_knows_of_the_end_is_its_reward():
    made, _ = rolled({"a": ["x!"], "b": ["xx"]}, lambda task, path: 0.9, depth=2)
    assert [made.tree[id].score for id in ("0.0", "0.1")] == [0.25, 0.9]


def test_rollouts_to_one_path_share_its_evaluation_and_count_each():
    asked = []

    async def reward(task, path):
        asked.append("".join(path))
        return {"ax": 1.0, "ay": 0.0, "bx": 0.3}["".join(path)]

    made, _ = rolled({"a": ["x", "x", "y"], "b": ["x", "x", "x"]}, reward, samples=3, depth=1)
    assert made.tree["0.0"].score == pytest.approx(2 / 3)
    assert made.tree["0.0"].samples == (1.0, 1.0, 0.0)
    assert sorted(asked) == ["ax", "ay", "bx"]


def test_what_cannot_be_read_is_no_reward():
    made, _ = rolled({"a": [" ", "x"], "b": [" ", " "]}, lambda task, path: 0.5, samples=2, depth=1)
    assert made.tree["0.0"].samples == (None, 0.5)
    assert made.tree["0.0"].score == 0.5
    assert made.tree["0.1"].unreadable
    notes = [e.at for e in made.events if isinstance(e, Note) and e.name == "parse.unreadable"]
    assert sorted(notes) == ["0.0", "0.1", "0.1"]


def test_a_thought_none_of_whose_rollouts_was_answered_has_failed():
    def reply(call):
        if call.purpose == "rollout" and (call.node == "0.1" or call.attempt == (0,)):
            raise ConnectionError("gone")
        return "score: 0.5" if call.purpose == "value" else "ab"[call.sample_index]

    search = tl.TreeOfThoughts(
        propose=tl.Sample(count=2),
        evaluate=tl.evaluators.Rollout(samples=2, depth=1),
        stop=tl.Stop(depth=1, solved=None),
    )
    made = run(search, TASK_OF_WORDS, Scripted(reply))
    assert (made.tree["0.0"].score, made.tree["0.0"].samples) == (0.5, (None, 0.5))
    assert made.tree["0.1"].state == "failed"


def test_a_model_scores_the_ends_and_all_calls_are_bounded_and_in_the_budget():
    search = tl.TreeOfThoughts(
        search=tl.MCTS(iterations=3),
        evaluate=tl.evaluators.Rollout(samples=2, depth=2),
        stop=tl.Stop(solved=None),
    )
    made = run(search)
    values = [e for e in made.events if isinstance(e, Call) and e.purpose == "value"]
    assert values
    assert all(call.prompt.count("step") >= 2 for call in values)
    assert made.usage.calls <= search.max_calls(TASK)
    assert run(search, budget=tl.Budget(calls=20)).usage.calls == 20


def test_an_evaluator_that_compares_thoughts_is_refused():
    with pytest.raises(ValidationError, match="scores each thought by itself is needed: got 'vote'"):
        tl.evaluators.Rollout(evaluate="vote")


@pytest.mark.slow
def test_a_rerun_of_mcts_with_rollouts_takes_all_of_them_from_the_cache(tmp_path):
    search = tl.TreeOfThoughts(
        search=tl.MCTS(iterations=3),
        evaluate=tl.evaluators.Rollout(samples=2),
        stop=tl.Stop(solved=None),
    )
    labs = [tl.Lab("sim/game24", runs=None, cache=tmp_path) for _ in range(2)]
    runs = [wait(lab.run(search, tl.game24("4 5 6 10"))) for lab in labs]
    assert runs[0].tree == runs[1].tree
    first, again = (run.calls_df()["source"] for run in runs)
    assert "model" in set(first)
    assert set(again) == {"cache"}
    rollouts = runs[0].calls_df().query("purpose == 'rollout'")
    assert len(rollouts) > 10


@pytest.mark.slow
def test_the_score_is_an_unbiased_estimate_of_the_expected_reward():
    """Two steps of a fair coin each: three in four paths hold a head."""
    search = tl.TreeOfThoughts(
        propose=tl.Sample(count=1),
        evaluate=tl.evaluators.Rollout(samples=2000, depth=2, evaluate=lambda task, path: float("H" in path)),
        stop=tl.Stop(depth=1, solved=None),
    )
    model = Scripted(lambda call: "start" if call.purpose == "sample" else dice(call).choice("HT"))
    made = run(search, TASK_OF_WORDS, model)
    assert abs(made.tree["0.0"].score - 3 / 4) < 3 * (3 / 4 * 1 / 4 / 2000) ** 0.5


def test_each_unreadable_reply_counts_once_in_its_role():
    def reply(call):
        if call.purpose == "sample":
            return "ab"[call.sample_index]
        if call.purpose == "rollout":
            return " " if call.attempt == (1,) else "x"
        return "hm" if call.prompt.endswith("a/x") else "score: 0.5"

    search = tl.TreeOfThoughts(
        propose=tl.Sample(count=2),
        evaluate=tl.evaluators.Rollout(samples=2, depth=1),
        stop=tl.Stop(depth=1, solved=None),
    )
    made = run(search, TASK_OF_WORDS, Scripted(reply))
    losses = losses_of(made)
    assert (losses["propose"].calls, losses["propose"].unreadable) == (2 + 4, 2)
    assert (losses["evaluate"].calls, losses["evaluate"].unreadable) == (2, 1)
