"""A model of your own that streams: the text so far can be watched, and the run is the same."""

import asyncio

import pytest
from support import TASK, wait

import tot_lab as tl
from tot_lab.core.calls import Reply
from tot_lab.core.records import Note


def partials(lines):
    """The texts so far, by call."""
    found = {}
    for line in lines:
        if isinstance(line.e, Note) and line.e.name == "call.partial":
            found.setdefault(tuple(line.e.data["call"]), []).append(line.e.data["text"])
    return found


async def streaming(call):
    for piece in ("Answer", ": ", "26"):
        await asyncio.sleep(0)
        yield piece


async def at_once(call):
    return "Answer: 26"


def test_an_async_generator_streams_and_gives_the_run_of_one_that_answers_at_once():
    heard = []
    made = wait(tl.Lab(streaming, runs=None).run(tl.OneAnswer(), TASK, watch=heard.extend))
    (texts,) = partials(heard).values()
    assert texts == ["Answer", "Answer: ", "Answer: 26"]
    assert partials(made.lines) == {}, "the text so far is not recorded"
    assert [line for line in heard if line.p] == [line for line in made.lines if line.p]
    assert made.events == wait(tl.Lab(at_once, runs=None).run(tl.OneAnswer(), TASK)).events
    assert made.correct
    assert wait(made.replay()).identical


def test_a_stream_has_the_texts_of_all_open_calls_apart():
    async def model(call):
        yield f"{call.purpose} {call.sample_index}"
        await asyncio.sleep(0.001 * (7 - call.sample_index))
        yield ", to the end"

    async def watched():
        stream = tl.Lab(model, runs=None).stream(tl.SelfConsistency(attempts=7), TASK)
        heard = [event async for event in stream if isinstance(event, Note)]
        return heard, stream.run

    heard, made = wait(watched())
    ends = [note.data["text"] for note in heard if note.data.get("text", "").endswith("to the end")]
    assert sorted(ends) == sorted(line.e.text for line in made.lines if isinstance(line.e, Reply))
    assert len(ends) == 7


def test_a_reply_ends_the_stream_and_is_the_answer():
    closed = []

    async def model(call):
        try:
            yield "Answer: 2"
            yield Reply("Answer: 26", input_tokens=5, output_tokens=3, cost=0.25)
            yield "nobody waits for this"
        finally:
            closed.append(call)

    made = wait(tl.Lab(model, runs=None).run(tl.OneAnswer(), TASK))
    assert (made.answer, made.usage.cost, len(closed)) == ("26", 0.25, 1)


@pytest.mark.slow
def test_what_breaks_off_is_a_failed_call_and_what_is_cancelled_is_closed():
    async def broken(call):
        yield "Answer: 2"
        raise ConnectionResetError("the line is dead")

    made = wait(tl.Lab(broken, runs=None).run(tl.OneAnswer(), TASK))
    errors = [line.e.error for line in made.lines if isinstance(line.e, Reply)]
    assert errors == ["ConnectionResetError: the line is dead"]
    assert made.answer == ""

    ended = []

    async def endless(call):
        try:
            while True:
                yield "word "
                await asyncio.sleep(0.01)
        finally:
            ended.append(call)

    slow = wait(tl.Lab(endless, runs=None, timeout=0.1).run(tl.OneAnswer(), TASK))
    assert "timeout" in str(slow.events)
    assert len(ended) == 1


@pytest.mark.parametrize("cached", [False, True])
def test_a_generator_is_cached_like_any_function(tmp_path, cached):
    calls = []

    class Counted(tl.Part):
        kind = "test_streaming.counted"

        async def __call__(self, call):
            calls.append(call)
            yield "Answer: "
            yield "26"

    lab = tl.Lab(Counted(), runs=None, cache=tmp_path / "calls" if cached else None)
    for _ in range(2):
        assert wait(lab.run(tl.OneAnswer(), TASK)).answer == "26"
    assert len(calls) == (1 if cached else 2)


def test_thinking_that_is_streamed_is_kept_apart():
    async def model(call):
        for piece in ("<thi", "nk>24 + 2</th", "ink>Ans", "wer: 26"):
            yield piece

    made = wait(tl.Lab(model, runs=None).run(tl.OneAnswer(), TASK))
    (reply,) = [line.e for line in made.lines if isinstance(line.e, Reply)]
    assert (reply.thinking, reply.text) == ("24 + 2", "Answer: 26")
