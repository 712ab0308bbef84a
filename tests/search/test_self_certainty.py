"""Scores by the confidence of the proposing model in its own tokens, beside the formulas of both papers."""

import json
import math
from random import Random
from statistics import fmean

import pytest
from support import GOLDEN, TASK, Scripted, run, wait
from support.chains import CASES, KINDS, model_of

import tot_lab as tl
from tot_lab.core.calls import TokenLogprob
from tot_lab.core.records import Note

SelfCertainty = tl.evaluators.SelfCertainty


def token(*probabilities):
    """A token with these probabilities of its alternatives. It is the first of them."""
    logs = [math.log(each) for each in probabilities]
    return TokenLogprob("0", logs[0], {str(k): log for k, log in enumerate(logs)})


def random_texts(seed, count, alternatives):
    """Tokens of several texts: for each token a distribution over all of a small vocabulary."""
    random, texts = Random(seed), []
    for _ in range(count):
        rows = [[random.expovariate(1) for _ in range(alternatives)] for _ in range(1 + random.randrange(12))]
        texts.append([[each / sum(row) for each in row] for row in rows])
    return texts


def scored(texts, stop=None, **settings):
    """The children of a root whose replies have the tokens `texts`, their run and the calls."""
    replies = [tuple(token(*row) for row in rows) for rows in texts]
    model = Scripted(lambda call: tl.Reply(f"step {call.sample_index}", logprobs=replies[call.sample_index]))
    strategy = tl.TreeOfThoughts(
        propose=tl.Sample(count=len(texts)),
        evaluate=SelfCertainty(**settings),
        stop=stop or tl.Stop(depth=1),
    )
    made = run(strategy, TASK, model)
    assert strategy.max_calls(TASK) == len(texts) == len(model.calls)  # it makes no calls
    return [made.tree[f"0.{k}"] for k in range(len(texts))], made, model.calls


@pytest.mark.slow
def test_the_mean_is_the_divergence_from_the_uniform_distribution_but_for_a_constant():
    """Kang et al. 2025: the mean over the tokens of KL(uniform || p), here over the whole vocabulary."""

    from scipy.stats import entropy

    for seed in range(20):
        size = 2 + seed % 6
        texts = random_texts(seed, 4, size)
        nodes, made, calls = scored(texts)
        for node, rows in zip(nodes, texts, strict=True):
            assert node.raw - math.log(size) == pytest.approx(
                fmean(entropy([1 / size] * size, row) for row in rows)
            )
            assert node.score == pytest.approx(node.raw / 100)
            assert node.by == "self_certainty"
        assert {call.logprobs for call in calls} == {20}
        assert made.answer == max(nodes, key=lambda node: node.raw).text


@pytest.mark.parametrize("kind", ["lowest", "bottom", "tail"])
def test_the_confidence_of_groups_is_that_of_its_definition(kind):
    texts, group = random_texts(7, 30, 5), 4
    nodes, *_ = scored(texts, confidence=kind, group=group)
    for node, rows in zip(nodes, texts, strict=True):
        values = [-fmean(map(math.log, row)) for row in rows]
        size = min(group, len(values))
        means = sorted(fmean(values[k : k + size]) for k in range(len(values) - size + 1))
        tenth = means[: max(1, int(0.1 * len(means)))]
        expected = {"lowest": means[0], "bottom": fmean(tenth), "tail": fmean(values[-group:])}[kind]
        assert node.raw == pytest.approx(expected)


def test_a_peaked_distribution_is_more_certain_whatever_its_length():
    """The probability of the tokens alone would prefer the short text."""
    peaked, flat = [[0.98, 0.01, 0.01]] * 50, [[0.4, 0.3, 0.3]]
    (sure, unsure), *_ = scored([peaked, flat])
    assert sure.score > unsure.score


def test_no_confidence_counts_as_a_solution():
    """Servers report -9999 for tokens of unknown probability."""
    reply = tl.Reply("step", logprobs=(TokenLogprob("a", 0.0, {"a": 0.0, "b": -9999.0, "c": -9999.0}),))
    made = run(
        tl.TreeOfThoughts(evaluate=SelfCertainty(), stop=tl.Stop(depth=2)),
        TASK,
        Scripted(lambda call: reply),
    )
    assert made.tree["0.0"].raw == pytest.approx(200 / 3)
    assert made.stop_reason == "limit:depth"


def reasons(made):
    return {e.at: e.data["reason"] for e in made.events if isinstance(e, Note) and e.name == "score.missing"}


@pytest.mark.parametrize(
    ("propose", "tokens", "reason"),
    [
        ("propose", (token(0.5, 0.5),), "the thought shares its reply with others"),
        ("sample", (), "the model reported no log-probabilities"),
        ("sample", (TokenLogprob("a", -0.1),), "the model reported no alternatives"),
        ("sample", (TokenLogprob("a", -0.1, {"a": -0.1}),), "the model reported no alternatives"),
    ],
)
def test_without_log_probabilities_there_is_no_score_and_a_reason(propose, tokens, reason):
    """One log-probability per token says nothing of the distribution: its mean would fall with certainty."""
    model = Scripted(lambda call: tl.Reply("1. one\n2. two", logprobs=tokens))
    strategy = tl.TreeOfThoughts(propose=propose, evaluate=SelfCertainty(), stop=tl.Stop(depth=1))
    made = run(strategy, TASK, model)
    children = [made.tree[id] for id in made.tree["0"].children]
    assert children
    assert all(child.score is None and child.unreadable for child in children)
    assert {*reasons(made)} == {child.id for child in children}
    assert all(text.startswith(reason) for text in reasons(made).values())


def test_a_thought_that_a_person_has_changed_has_none():
    texts = random_texts(1, 3, 4)
    _, made, _ = scored(texts)
    model = Scripted(lambda call: tl.Reply("step", logprobs=(token(0.5, 0.5),)))
    changed = wait(tl.Lab(model, runs=None).branch(made, "0.1", content="mine"))
    assert changed.tree["0.1"].score is None
    assert reasons(changed)["0.1"].endswith("a person has changed it")


def test_it_replays_from_a_file(tmp_path):
    strategy = tl.TreeOfThoughts(evaluate=SelfCertainty(confidence="tail", group=2), stop=tl.Stop(depth=2))
    model = Scripted(lambda call: tl.Reply(f"step {call.sample_index}", logprobs=(token(0.7, 0.3),) * 3))
    made = wait(tl.Lab(model, runs=tmp_path).run(strategy, TASK))
    loaded = tl.load(made.path)
    assert loaded.tree == made.tree
    assert wait(loaded.replay()).identical


@pytest.mark.nightly
def test_with_a_majority_vote_of_the_top_it_is_the_vote_of_deep_conf():
    """The votes of the authors' package, in the file of `test_deep_conf.py`."""
    filtered = 0
    for one, theirs in zip(CASES, json.loads((GOLDEN / "deep_conf_votes.json").read_text()), strict=True):
        for kind in KINDS:
            rule = tl.answers.MajorityVote(weighted=True, top=one["top"])
            strategy = tl.TreeOfThoughts(
                propose=tl.Sample(count=len(one["chains"])),
                evaluate=SelfCertainty(confidence=kind, group=one["group"]),
                search=tl.BeamSearch(width=None),
                answer=rule,
                stop=tl.Stop(depth=1, solved=None),
            )
            made = run(strategy, TASK, model_of(one))
            confidences, vote = theirs["offline"][kind]
            assert made.answer == (vote or "")
            whole = run(strategy.with_({"answer.top": 1.0}), TASK, model_of(one))
            filtered += whole.answer != made.answer
            for k, (_, answer) in enumerate(one["chains"]):
                if answer:
                    assert made.tree[f"0.{k}"].raw == pytest.approx(confidences[k])
    assert filtered > 20
