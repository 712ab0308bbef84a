"""Budget forcing, mixture of agents and forest of thoughts, beside their pseudo-code on scripted replies."""

from collections import Counter
from random import Random

import pytest
from support import TASK, Scripted, run, wait

import tot_lab as tl

BudgetForcing, MixtureOfAgents = tl.methods.BudgetForcing, tl.methods.MixtureOfAgents
Forest = tl.methods.ForestOfThoughts


def notes(made, name):
    return [event.data for event in made.events if getattr(event, "name", "") == name]


# Budget forcing.


@pytest.mark.parametrize("waits", [0, 1, 3])
def test_each_wait_continues_the_whole_reply_so_far(waits):
    def reply(call):
        begun = call.messages[-1].content if call.messages[-1].role == "assistant" else ""
        assert not begun or begun.endswith("\nWait")
        return f" step {begun.count('Wait')}.\nAnswer: {20 + begun.count('Wait')}"

    model = Scripted(reply)
    made = run(BudgetForcing(waits=waits), TASK, model)
    whole = " step 0.\nAnswer: 20" + "".join(
        f"\nWait step {k}.\nAnswer: {20 + k}" for k in range(1, waits + 1)
    )
    assert "".join(node.text for node in list(made.tree)[1:]) == whole
    assert made.answer == str(20 + waits)
    assert len(model.calls) == waits + 1 == BudgetForcing(waits=waits).max_calls(TASK)
    for k, call in enumerate(model.calls):
        assert [message.role for message in call.messages] == ["user"] + ["assistant"] * (k > 0)
        assert call.messages[0].content == TASK.answer_prompt(True)
    assert wait(made.replay()).identical


def test_a_wait_whose_call_fails_leaves_the_answer_so_far():
    def reply(call):
        if call.messages[-1].role == "assistant":
            raise RuntimeError("prefill is not supported")
        return "Answer: 26"

    made = run(BudgetForcing(), TASK, Scripted(reply))
    assert (made.answer, made.stop_reason) == ("26", "error")


# Mixture of agents.


def naive_mixture(agents, layers, reply):
    """The published procedure: each layer reads the texts of the layer before, and an aggregator ends it."""
    texts, shown = [], []
    for layer in range(layers):
        shown.append(texts)
        texts = [reply(layer * agents + k, texts) for k in range(agents)]
    shown.append(texts)
    return shown, reply(layers * agents, texts)


def test_each_layer_reads_the_layer_before():
    for agents, layers in [(1, 1), (2, 3), (3, 2), (4, 1)]:
        asked = []

        def reply(number, texts):
            return f"text {number} after {len(texts)}\nAnswer: {number}"

        def scripted(call, reply=reply, asked=asked):
            number = call.sample_index
            shown = [text for text in (f"text {k} after" for k in range(99)) if text in call.prompt]
            asked.append((number, [int(text.split()[1]) for text in shown]))
            return reply(number, shown)

        made = run(MixtureOfAgents(agents=agents, layers=layers), TASK, Scripted(scripted))
        shown, last = naive_mixture(agents, layers, reply)
        assert made.answer == last.rpartition(" ")[2]
        for number, read in sorted(asked):
            layer = number // agents
            assert read == [int(text.split()[1]) for text in shown[layer]]
            assert made.tree[f"0.{number}"].source == tuple(f"0.{k}" for k in read)
        assert wait(made.replay()).identical


def test_agents_have_the_models_in_turn_and_the_aggregator_its_own():
    model = Scripted(lambda call: "Answer: 26")
    lab = tl.Lab(model, runs=None, roles={"a": model, "b": model, "c": model})
    wait(lab.run(MixtureOfAgents(agents=3, layers=2, models=["a", "b"], model="c"), TASK))
    used = [call.model for call in sorted(model.calls, key=lambda call: call.sample_index)]
    assert used == ["@a", "@b", "@a"] * 2 + ["@c"]


def test_a_failed_agent_is_left_out():
    def reply(call):
        if call.sample_index in (0, 4):
            raise RuntimeError("no reply")
        return "Answer: 26"

    made = run(MixtureOfAgents(agents=2, layers=2), TASK, Scripted(reply))
    assert (made.tree["0.2"].source, made.tree["0.3"].source) == (("0.1",), ("0.1",))
    assert made.answer == "26"  # that of the last agent, because the aggregator failed


# Forest of thoughts.


def forest(answers, judge="best: 1", **settings):
    """A run of chains of thought as trees; tree k answers `answers[k]`."""
    model = Scripted(
        lambda call: (
            judge
            if call.purpose == "vote"
            else f"Answer: {answers[call.attempt[0]]}"
            if answers[call.attempt[0]] is not None
            else ""
        )
    )
    strategy = Forest(strategy=tl.ChainOfThought(), **{"trees": len(answers), **settings})
    made = run(strategy, TASK, model)
    purposes = Counter(call.purpose for call in model.calls)
    return made, purposes["answer"], purposes["vote"]


@pytest.mark.slow
def test_trees_grow_until_more_than_half_agree():
    stopped = 0
    for seed in range(200):
        random = Random(seed)
        answers = [random.choice([24, 26, 26, 26, None]) for _ in range(random.randint(1, 7))]
        grown = next(
            (
                k
                for k in range(1, len(answers) + 1)
                if any(n > len(answers) / 2 for a, n in Counter(answers[:k]).items() if a is not None)
            ),
            None,
        )
        made, trees, judged = forest(answers, judge="best: 2")
        assert trees == (grown or len(answers))
        distinct = list(dict.fromkeys(answer for answer in answers if answer is not None))
        assert judged == (grown is None and len(distinct) > 1)
        if grown is not None:
            assert made.answer == str(
                Counter(a for a in answers[:grown] if a is not None).most_common(1)[0][0]
            )
        elif judged:
            assert made.answer == str(distinct[1])
        stopped += trees < len(answers)
    assert stopped > 40


def test_without_a_readable_verdict_the_most_frequent_answer_wins():
    made, trees, judged = forest([24, 26, 25, 26], judge="I cannot say.")
    assert (made.answer, trees, judged) == ("26", 4, 1)
    assert made.score == pytest.approx(2 / 4)
    assert wait(made.replay()).identical


def test_the_answer_of_the_judge_has_its_share_of_the_votes():
    made, _, _ = forest([24, 26, 25, 26], judge="best: 1")
    assert (made.answer, made.score) == ("24", pytest.approx(1 / 4))
    assert notes(made, "forest.judged") == [{"answers": ["24", "26", "25"], "choice": 0}]


def test_a_tree_below_the_least_score_takes_no_part():
    def reply(call):
        if call.purpose == "sample":
            return ("24", "24", "26")[call.attempt[0]]
        return f"score: {(0.1, 0.2, 0.7)[call.attempt[0]]}"

    trees = tl.TreeOfThoughts(propose=tl.Sample(count=1), stop=tl.Stop(depth=1))
    made = run(Forest(strategy=trees, trees=3, min_score=0.5, batch=3), TASK, Scripted(reply))
    assert made.answer == "26"
    everyone = run(Forest(strategy=trees, trees=3, batch=3), TASK, Scripted(reply))
    assert everyone.answer == "24"
