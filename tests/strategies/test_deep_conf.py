"""DeepConf beside the published package: confidences of chains, filter and weighted vote.

`pytest -m proof tests/strategies/test_deep_conf.py` runs the published functions. `PYTHONPATH=tests python
tests/strategies/test_deep_conf.py PYTHON` writes the golden file anew, with a Python that has the package.
"""

import json
import subprocess
import sys
import venv
from random import Random

import pytest
from support import GOLDEN, TASK, Scripted, run, wait
from support.chains import CASES, KINDS, model_of

import tot_lab as tl
from tot_lab.core.calls import TokenLogprob, token_confidences
from tot_lab.strategies.confidence import confidence_of, quantile

SCRIPT = GOLDEN / "deep_conf_votes.py"
VOTES = SCRIPT.with_suffix(".json")
DeepConf, DeepConfOnline = tl.methods.DeepConf, tl.methods.DeepConfOnline


def published(python):
    """What the package computes for `CASES`."""
    done = subprocess.run(
        [python, SCRIPT], input=json.dumps(CASES), capture_output=True, text=True, check=True, timeout=300
    )
    return json.loads(done.stdout)


def chains_in(made):
    return {event.at: event.data for event in made.events if getattr(event, "name", "") == "deep_conf.chain"}


@pytest.mark.slow
def test_offline_confidences_filter_and_vote_are_those_of_the_published_package():
    for one, theirs in zip(CASES, json.loads(VOTES.read_text()), strict=True):
        for kind in KINDS:
            confidences, vote = theirs["offline"][kind]
            attempts = len(one["chains"])
            strategy = DeepConf(attempts=attempts, confidence=kind, group=one["group"], top=one["top"])
            made = run(strategy, TASK, model_of(one))
            assert made.answer == (vote or "")
            chains = chains_in(made)
            assert [chains[f"0.{k}"]["confidence"] for k in range(attempts)] == pytest.approx(confidences)


@pytest.mark.slow
def test_online_bar_and_vote_are_those_of_the_published_package():
    compared = 0
    for one, theirs in zip(CASES, json.loads(VOTES.read_text()), strict=True):
        bar, vote = theirs["online"]
        attempts = len(one["chains"])
        made = run(
            DeepConfOnline(
                attempts=attempts, warmup=one["warmup"], group=one["group"], top=one["bar"], consensus=1.0
            ),
            TASK,
            model_of(one),
        )
        recorded = [event.data for event in made.events if getattr(event, "name", "") == "deep_conf.bar"]
        assert [data["confidence"] for data in recorded] == pytest.approx(
            [bar], abs=1e-3
        )  # theirs is rounded
        voters = [chains[f"0.{k}"]["votes"] for chains in [chains_in(made)] for k in range(len(chains))]
        answers = {answer for (_, answer), votes in zip(one["chains"], voters, strict=False) if votes}
        if vote is None:  # no chain above the bar has an answer: theirs gives up, ours counts all answers
            assert not answers
        elif len(voters) < attempts:  # theirs never stops early
            assert answers == {made.answer}
        else:
            compared += 1
            assert made.answer == vote
    assert compared > 40


def test_token_confidences_are_those_of_the_published_package():
    for one, theirs in zip(CASES, json.loads(VOTES.read_text()), strict=True):
        tokens = [
            TokenLogprob("a", row[0], {str(k): value for k, value in enumerate(row)})
            for row in one["logprobs"]
        ]
        assert token_confidences(tokens) == pytest.approx(theirs["tokens"], abs=6e-4)  # theirs is rounded
    assert token_confidences([TokenLogprob("a", -2.0)]) == [2.0]  # without alternatives, that of the token


@pytest.mark.proof
def test_the_golden_file_is_what_the_published_package_computes(tmp_path):
    venv.create(tmp_path / "apart", with_pip=True)
    python = tmp_path / "apart" / "bin" / "python"
    for packages in (["numpy"], ["--no-deps", "deepconf==0.1.0"]):
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True, timeout=300)
    assert published(python) == json.loads(VOTES.read_text())


def test_the_groups_are_all_runs_of_that_many_tokens():
    for seed in range(500):
        random = Random(seed)
        tokens = [random.random() for _ in range(random.randint(1, 40))]
        group = random.randint(1, 50)
        size = min(group, len(tokens))
        means = sorted(sum(tokens[k : k + size]) / size for k in range(len(tokens) - size + 1))
        tenth = means[: max(1, int(0.1 * len(means)))]
        assert confidence_of(tokens, "lowest", group) == pytest.approx(means[0])
        assert confidence_of(tokens, "bottom", group) == pytest.approx(sum(tenth) / len(tenth))
    assert confidence_of([], "tail", 3) == 0.0
    assert quantile([], 0.5) == 0.0


def test_online_sampling_ends_when_the_votes_agree():
    sure = {"chains": [[[5.0], "26"]] * 40}
    model = model_of(sure)
    made = run(DeepConfOnline(attempts=40, warmup=4, batch=4), TASK, model)
    assert (made.answer, len(model.calls)) == ("26", 4)
    split = {"chains": [[[5.0], "26"], [[5.0], "24"]] * 20}
    model = model_of(split)
    assert run(DeepConfOnline(attempts=40, warmup=4, batch=4), TASK, model).answer == "26"
    assert len(model.calls) == 40


def test_a_model_without_log_probabilities_gives_a_plain_vote():
    model = Scripted(lambda call: f"Answer: {(24, 26, 26)[call.sample_index]}")
    made = run(DeepConf(attempts=3), TASK, model)
    assert (made.answer, made.score) == ("26", pytest.approx(2 / 3))
    assert {call.logprobs for call in model.calls} == {20}
    assert all(data == {"confidence": None, "votes": False} for data in chains_in(made).values())
    missing = [event for event in made.events if getattr(event, "name", "") == "score.missing"]
    assert [event.at for event in missing] == ["0.0", "0.1", "0.2"]
    for event in missing:
        assert event.data == {"by": "deep_conf", "reason": "the model reported no log-probabilities"}
    assert wait(made.replay()).identical


def test_a_chain_without_log_probabilities_does_not_lower_the_bar():
    """Of the chains that set it, those whose confidence is known count: here 2 and 4, whose median is 3."""

    def reply(call):
        confidence, answer = [(2.0, 24), (4.0, 26), (None, 24), (2.5, 24)][call.sample_index]
        tokens = () if confidence is None else (TokenLogprob("a", -confidence, {"a": -confidence}),)
        return tl.Reply(f"Answer: {answer}", logprobs=tokens)

    strategy = DeepConfOnline(attempts=4, warmup=3, batch=1, top=0.5, consensus=1.0)
    made = run(strategy, TASK, Scripted(reply))
    (bar,) = [event.data for event in made.events if getattr(event, "name", "") == "deep_conf.bar"]
    assert bar == {"confidence": 3.0}
    assert [chains_in(made)[f"0.{k}"]["votes"] for k in range(3)] == [False, True, False]
    assert made.answer == "26"


if __name__ == "__main__":
    VOTES.write_text("[\n" + ",\n".join(json.dumps(one) for one in published(sys.argv[1])) + "\n]\n")
