"""Scores by the probability of a proposal's tokens, and Levin tree search with the model as its policy."""

import math

import pytest
from support import TASK, Scripted, run, wait

import tot_lab as tl
from tot_lab.core.calls import TokenLogprob

Likelihood = tl.evaluators.Likelihood
PROBABILITIES = ([0.5, 0.5], [0.9, 0.1, 0.4], [1.0])


def proposing(call):
    assert call.purpose in ("sample", "propose")
    if call.purpose == "propose":
        return tl.Reply("1. one\n2. two", logprobs=(TokenLogprob("1", -0.1),))
    tokens = PROBABILITIES[call.sample_index % 3]
    text = f"step {call.node}.{call.sample_index}"
    return tl.Reply(text, logprobs=tuple(TokenLogprob("t", math.log(each)) for each in tokens))


def searched(evaluate, search="beam", model=proposing, **settings):
    model = Scripted(model)
    stop = tl.Stop(solved=None, depth=2)
    return run(
        tl.TreeOfThoughts(evaluate=evaluate, search=search, stop=stop, **settings), TASK, model
    ), model.calls


@pytest.mark.parametrize("per_token", [True, False])
def test_the_score_is_the_probability_of_the_tokens_of_the_proposal(per_token):
    made, calls = searched(Likelihood(per_token=per_token))
    for k, tokens in enumerate(PROBABILITIES):
        product = math.prod(tokens)
        node = made.tree[f"0.{k}"]
        assert node.score == pytest.approx(product ** (1 / len(tokens)) if per_token else product)
        assert node.raw == pytest.approx(math.log(product))
    assert {call.logprobs for call in calls} == {1}
    assert {call.purpose for call in calls} == {"sample"}  # it makes no calls
    assert wait(made.replay()).identical


def test_other_evaluators_request_no_log_probabilities():
    _, calls = searched("value", model=lambda call: "step" if call.purpose == "sample" else "score: 0.5")
    assert {call.logprobs for call in calls} == {0}


@pytest.mark.parametrize(
    ("propose", "model"),
    [
        ("propose", proposing),  # several thoughts share one reply
        ("sample", lambda call: f"step {call.sample_index}"),
    ],
)
def test_without_log_probabilities_of_the_thought_the_score_is_unreadable(propose, model):
    made, _ = searched(Likelihood(), model=model, propose=propose)
    children = [made.tree[id] for id in made.tree["0"].children]
    assert children
    assert all(child.score is None and child.unreadable for child in children)


def test_a_thought_that_a_person_has_changed_has_no_likelihood():
    made, _ = searched(Likelihood())
    changed = wait(tl.Lab(Scripted(proposing), runs=None).branch(made, "0.1", content="mine"))
    assert changed.tree["0.1"].score is None


def test_tools_and_continuation_keep_the_log_probabilities():
    for propose in (tl.WithTools(), tl.proposers.Continue(), tl.proposers.Mixture(temperatures=[1.0])):
        made, _ = searched(Likelihood(), propose=propose)
        assert made.tree["0.0"].score == pytest.approx(0.5)


def test_levin_with_likelihood_expands_by_the_probabilities_of_the_model():
    made, _ = searched(Likelihood(per_token=False), search=tl.searches.Levin())
    picks = [event.data for event in made.events if getattr(event, "name", "") == "tot.picked"]
    assert [pick["parents"] for pick in picks] == [["0"], ["0.2"]]
    total = 0.25 + 0.036 + 1.0
    assert picks[1]["why"]["0.2"]["log_probability"] == pytest.approx(math.log(1 / total))
    assert made.answer == "step 0.2.2"
