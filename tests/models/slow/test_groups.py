"""Samples in groups: best of N, weighted best of N and self-consistency ask for whole groups of samples, and
their record does not show it.

The server on loopback numbers the samples of each prompt, as if a model had drawn them in this order, and
counts tokens as vLLM does. Samples differ in length and in their answers.
"""

import json
import random
import sqlite3
from collections import Counter
from contextlib import closing
from itertools import count

import pytest
from support import wait
from support.providers import Asked, Fault, Raw

import tot_lab as tl
from tot_lab.core.calls import Call, Reply
from tot_lab.models.openai_compatible import VLLM, OpenAICompatible

N = 24
PRICE = (1.0, 2.0)
TASK = tl.Task(question="What is six times seven?", domain=tl.domains.General())
NAMES = count()
STRATEGIES = {
    "self-consistency": tl.SelfConsistency(attempts=N),
    "best of N": tl.BestOf(strategy=tl.ChainOfThought(), attempts=N),
    "weighted best of N": tl.methods.WeightedBestOf(attempts=N),
}
every_strategy = pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)


class Sampling:
    """Answers requests with the next samples of their prompts.

    Args:
        most: The most choices of a response. Requests for more are refused if `refuses`, or get fewer.
        longest: Seconds that a response takes at most, at random.
        broken: The samples of a chain that the server cannot finish.
        counting: Whether it counts the tokens of each choice when it is asked to.
    """

    def __init__(self, most=10**6, *, refuses=False, longest=0.0, broken=(), counting=True):
        self.most, self.refuses, self.longest = most, refuses, longest
        self.broken, self.counting = broken, counting
        self.drawn = Counter()
        self.dice = random.Random(0)

    def __call__(self, asked: Asked):
        if asked.n > self.most and self.refuses:
            return Fault(400, "n is too large")
        prompt = asked.json["messages"][-1]["content"]
        read, choices, output = len(prompt.split()), [], 0
        for index in range(min(asked.n, self.most)):
            k = self.drawn[prompt]
            self.drawn[prompt] += 1
            is_chain = "Candidate" not in prompt
            words = ["so"] * (k % 7 + 1) + ["it", "is", str(42 + k % 3)] if is_chain else []
            words = words or ["score:", f"0.{len(prompt) % 7 + k % 3}"]
            choice = {"index": index, "message": {"role": "assistant", "content": " ".join(words)}}
            choice["finish_reason"] = "error" if is_chain and k in self.broken else "stop"
            if self.counting and asked.json.get("return_token_ids"):
                choice["token_ids"] = list(range(len(words)))
            choices.append(choice)
            output += len(words)
        page = {"model": "m", "choices": choices}
        return paused(page, read, output, self.dice.uniform(0.0, self.longest))


def paused(page, read, output, pause):
    """The response with its usage, after `pause` seconds."""
    page["usage"] = {"prompt_tokens": read, "completion_tokens": output}
    return Raw(json.dumps(page), pause=pause)


@pytest.fixture
def server(shared):
    shared.forget()
    return shared


@pytest.fixture
def lab(server, tmp_path):
    """Makes a lab whose server is a `Sampling`. What a server does with n is remembered by the name of the
    model, so each has a name of its own.
    """

    def make(sampling, kind=VLLM, *, mode="off", concurrency=1, folder=None, model=None):
        server.otherwise = sampling
        name = model or f"m{next(NAMES)}"
        end = kind(
            model=name, base_url=server.base("openai"), price=PRICE, retries=0, concurrency=concurrency
        )
        folder = folder or tmp_path / name
        cache = folder / "calls" if mode != "off" else None
        return tl.Lab(end, runs=folder / "runs", cache=cache, mode=mode)

    return make


def numbers(server):
    return [asked.json.get("n", 1) for asked in server.calls]


def record(run):
    """The canonical record. It names the model of each call nowhere."""
    assert all(event.model is None for event in run.events if isinstance(event, Call))
    return run.events


@every_strategy
def test_a_record_does_not_show_how_samples_were_requested(lab, server, strategy):
    """Together, one by one or a few at a time, fast or slow, cached or not, repeated or resumed."""
    known = wait(lab(Sampling()).run(strategy, TASK))
    assert numbers(server)[0] == N
    replies = [event for event in known.events if isinstance(event, Reply)]
    assert len({reply.text for reply in replies[:N]}) > 6  # the samples differ
    chains = [reply for reply in replies if reply.text.startswith("so")]
    assert {reply.input_tokens for reply in chains} == {len(TASK.answer_prompt(True).split())}
    assert [reply.output_tokens for reply in chains] == [len(reply.text.split()) for reply in chains]
    for reply in replies:
        assert reply.cost == pytest.approx((reply.input_tokens + 2 * reply.output_tokens) / 1e6)
        assert not reply.shared_tokens
    for sampling, concurrency in (
        (Sampling(1, refuses=True), 1),
        (Sampling(1, refuses=True, longest=0.01), 1),
        (Sampling(5), 1),
        (Sampling(longest=0.05), None),
        (Sampling(longest=0.05), 8),
    ):
        server.forget()
        assert record(wait(lab(sampling, concurrency=concurrency).run(strategy, TASK))) == record(known)
        if sampling.most == 1:
            assert set(numbers(server)[1:]) == {1}

    cached = lab(Sampling(longest=0.05), mode="auto", concurrency=8)
    run = wait(cached.run(strategy, TASK))
    assert record(run) == record(known)
    server.forget()
    again = wait(cached.run(strategy, TASK))
    assert record(again) == record(known)
    assert wait(run.replay()).identical
    assert record(wait(cached.replaying().run(strategy, TASK))) == record(known)
    assert (again.usage.paid, again.usage.cost) == (0.0, known.usage.cost)
    lines = run.path.read_bytes().splitlines(keepends=True)
    for share in (0.2, 0.5, 0.8):
        path = run.path.with_name(f"{share}.jsonl")
        path.write_bytes(b"".join(lines[: int(len(lines) * share)]))
        assert record(wait(cached.resume(path))) == record(known)
    assert server.calls == []


@every_strategy
def test_a_group_is_paid_once_and_each_of_its_calls_costs_what_it_would_alone(lab, server, strategy):
    together = lab(Sampling())
    run = wait(together.run(strategy, TASK))
    alone = lab(Sampling(1, refuses=True))
    single = wait(alone.run(strategy, TASK))
    assert run.usage.cost == pytest.approx(single.usage.cost)
    assert run.usage[:5] == single.usage[:5]
    chain = len(TASK.answer_prompt(True).split())
    assert run.usage.paid <= run.usage.cost - (N - 1) * chain / 1e6 + 1e-9
    assert single.usage.paid == pytest.approx(single.usage.cost)
    assert together.spent == pytest.approx(run.usage.paid)
    assert alone.spent == pytest.approx(single.usage.paid)


@pytest.mark.parametrize("kind", [VLLM, OpenAICompatible])
def test_a_choice_that_failed_is_a_failed_call_for_itself_alone(lab, server, kind):
    strategy = STRATEGIES["self-consistency"]
    found = {}
    for most in (10**6, 1):
        run = wait(lab(Sampling(most, refuses=True, broken=(3, 17)), kind).run(strategy, TASK))
        replies = [event for event in run.events if isinstance(event, Reply)]
        assert [k for k, reply in enumerate(replies) if reply.error is not None] == [3, 17]
        assert run.usage.calls == N
        found[most] = [(reply.text, reply.error and reply.error.partition(":")[2]) for reply in replies]
    assert found[1] == found[10**6]


def test_tokens_that_a_server_counts_together_are_equal_shares_and_marked(lab, server):
    run = wait(lab(Sampling(counting=False), OpenAICompatible).run(STRATEGIES["self-consistency"], TASK))
    replies = [event for event in run.events if isinstance(event, Reply)]
    tokens = [reply.output_tokens for reply in replies]
    assert len(set(tokens[1:])) == 1
    assert 0 <= tokens[0] - tokens[1] < N  # the remainder
    assert sum(tokens) == sum(len(reply.text.split()) for reply in replies)
    assert {reply.input_tokens for reply in replies} == {len(TASK.answer_prompt(True).split())}
    assert all(reply.shared_tokens for reply in replies)
    assert run.calls_df().shared_tokens.all()
    assert tl.diagnose(run).of("shared_tokens")
    exact = wait(lab(Sampling()).run(STRATEGIES["self-consistency"], TASK))
    assert not exact.calls_df().shared_tokens.any()
    assert not tl.diagnose(exact).of("shared_tokens")


@pytest.mark.parametrize("mode", ["off", "auto"])
def test_whole_groups_are_requested_for_every_task_of_a_sweep(lab, server, mode):
    """Also by repeats, and although all tasks send their calls at the same time."""
    tasks = [tl.general(f"What is {k} times seven?") for k in range(12)]
    one = lab(Sampling(longest=0.02), mode=mode, concurrency=None)
    sweep = wait(one.sweep(tl.SelfConsistency(attempts=80), tasks))
    assert sweep.counts.asked == 12 * 80
    assert sorted(numbers(server), reverse=True) == [32] * 24 + [16] * 12


def test_tokens_are_counted_by_role(lab, server):
    one = lab(Sampling(), mode="auto")
    sweep = wait(one.sweep({"weighted": STRATEGIES["weighted best of N"]}, [TASK]))
    (row,) = sweep.df().to_dict("records")
    run = sweep.run(row["run_id"])
    for role in ("answer", "evaluate"):
        ours = [
            reply
            for call, reply in zip(
                (event for event in run.events if isinstance(event, Call)),
                (event for event in run.events if isinstance(event, Reply)),
                strict=True,
            )
            if (call.purpose == "judge") == (role == "evaluate")
        ]
        assert len(ours) == N
        assert row[f"{role}_input_tokens"] == sum(reply.input_tokens for reply in ours)
        assert row[f"{role}_output_tokens"] == sum(reply.output_tokens for reply in ours)
    figure = tl.figures.plot_scaling(sweep.df(), cost="answer_output_tokens")
    assert "tokens out, answer calls" in figure.layout.xaxis.title.text
    assert figure.data[0].x[0] == row["answer_output_tokens"]


def test_a_sample_takes_two_kilobytes_of_journal_and_cache_above_its_text(server, tmp_path):
    """The question is as long as those of grade-school mathematics, and 512 samples share it."""
    server.otherwise = Sampling(counting=False)
    model = OpenAICompatible(model="m", base_url=server.base("openai"))
    lab = tl.Lab(model, runs=tmp_path / "runs", cache=tmp_path / "calls")
    made = wait(lab.run(tl.SelfConsistency(attempts=512), tl.general("What is six times seven? " * 8)))
    lab.gateway.cache.close()
    for file in (tmp_path / "calls").rglob("*.db"):
        with closing(sqlite3.connect(file)) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    size = sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file())
    text = sum(len(reply) for reply in made.calls_df().reply)
    assert (size - text) / 512 <= 2048
    assert made.path.stat().st_size / 512 <= 1200
