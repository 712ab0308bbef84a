"""Shared beginnings of prompts: what servers report about them, and what is done to process them once.

Authorities: usage of the OpenAI and Anthropic APIs on the loopback provider, litellm's table of prices, and
llama.cpp's own counters on a real server.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pandas as pd
import pytest
from aiohttp import web
from support import needs_smollm2, wait, weights
from support.endpoint import CallObserver, scripted
from support.providers import Fault, Hang, Providers, Said

import tot_lab as tl
from tot_lab.core.calls import Call, Message, Reply
from tot_lab.models import prefixes
from tot_lab.models.lite_llm import LiteLLM
from tot_lab.models.local import Local, _server_for
from tot_lab.models.openai_compatible import LlamaCpp, OpenAICompatible
from tot_lab.models.prefixes import Prefixes, prefixes_of
from tot_lab.models.stack import Failure
from tot_lab.models.warming import Warmed

KEY = "sk-MARKED-0123456789abcdef"
ONE = tl.OneAnswer()


def call(text: str = "2 + 2?", **more: Any) -> Call:
    return Call("0", "sample", (Message("user", text),), **more)


@pytest.fixture
def server(shared, loaded, monkeypatch):
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    shared.forget()
    return shared


def direct(server: Providers, **more: Any) -> OpenAICompatible:
    return OpenAICompatible(
        **{"model": "m", "base_url": server.base("openai"), "api_key": KEY, "concurrency": 8, **more}
    )


def litellm(server: Providers, family: str = "openai", **more: Any) -> LiteLLM:
    model = {"openai": "openai/gpt-4.1-mini", "anthropic": "anthropic/claude-sonnet-4-5"}[family]
    return LiteLLM(
        **{"model": model, "api_base": server.base(family), "api_key": KEY, "concurrency": 8, **more}
    )


def processed(model: Any, *calls: Call, watched: bool = False) -> list[dict[str, Any]]:
    """What is noted about the processing of a request."""
    observer = CallObserver(watched=watched)
    wait(model.answer(calls or (call(),), observer))
    return [data for name, data in observer.notes if name == "call.processed"]


# What servers report


@pytest.mark.parametrize("watched", [False, True])
def test_cached_tokens_and_speeds_are_noted_as_reported(server, watched):
    server.otherwise = Said(input_tokens=100, cached=60, timings=(125.5, 20.25))
    cached = {"cached_tokens": 60}
    speeds = {"prefill_tokens_per_second": 125.5, "decode_tokens_per_second": 20.25}
    try:
        assert processed(direct(server), watched=watched) == [cached | speeds]
        streamed = cached | speeds if watched else cached  # litellm hands on the fields of a stream alone
        assert processed(litellm(server, "openai"), watched=watched) == [streamed]
        assert processed(litellm(server, "anthropic"), watched=watched) == [cached]
        server.otherwise = Said(input_tokens=100, cached=0)
        for model in (direct(server), litellm(server), litellm(server, "anthropic")):
            assert processed(model, watched=watched) == [{"cached_tokens": 0}]
        server.otherwise = Said()
        for model in (direct(server), litellm(server)):
            assert processed(model, watched=watched) == []
    finally:
        server.otherwise = Said()


@pytest.mark.parametrize("cached", [-1, 101, 10**30, "many", True, 0.5])
def test_numbers_that_cannot_be_true_are_unknown(server, cached):
    server.will(Said(input_tokens=100, cached=cached, timings=(0.0, float("inf"))))
    model = direct(server)
    observer = CallObserver()
    (reply,) = wait(model.answer((call(),), observer))
    assert (reply.text, reply.input_tokens) == ("Four.", 100)
    assert "call.processed" not in observer.names


def test_samples_of_one_request_share_its_cached_tokens(server):
    server.otherwise = Said(input_tokens=100, cached=50)
    try:
        lab = tl.Lab(direct(server), runs=None, mode="off")
        observers = [CallObserver() for _ in range(3)]
        calls = [call(sample_index=k) for k in range(3)]
        replies = wait(together(*map(lab.gateway.ask, calls, observers)))
    finally:
        server.otherwise = Said()
    assert [asked.n for asked in server.calls] == [3]
    notes = [[data for name, data in one.notes if name == "call.processed"] for one in observers]
    assert [note["cached_tokens"] for (note,) in notes] == [50, 50, 50]
    assert [reply.input_tokens for reply in replies] == [100, 100, 100]


def test_calls_df_shows_what_the_server_processed_and_nothing_for_a_cached_reply(server, tmp_path):
    lab = tl.Lab(direct(server), runs=tmp_path / "runs", cache=tmp_path / "calls")
    server.will(Said(input_tokens=100, cached=0, timings=(125.5, 20.25)))
    first = wait(lab.run(ONE, tl.general("2 + 2?"))).calls_df().iloc[0]
    assert (first.cached_tokens, first.prefill_tokens_per_second) == (0, 125.5)
    assert first.decode_tokens_per_second == 20.25
    again = tl.load(wait(lab.run(ONE, tl.general("2 + 2?"))).path).calls_df().iloc[0]
    assert again.source == "cache"
    assert pd.isna(again.cached_tokens)
    assert pd.isna(again.prefill_tokens_per_second)
    plain = wait(tl.Lab(scripted(), runs=None, mode="off").run(ONE, tl.general("2?"))).calls_df().iloc[0]
    assert pd.isna(plain.cached_tokens)


def test_a_call_that_joined_another_does_not_count_its_tokens_twice(server, tmp_path):
    server.otherwise = Said(input_tokens=100, cached=40, pause=0.2)
    try:
        lab = tl.Lab(direct(server), runs=None, cache=tmp_path / "calls")
        runs = wait(together(*(lab.run(ONE, tl.general("2 + 2?")) for _ in range(2))))
    finally:
        server.otherwise = Said()
    frames = pd.concat([run.calls_df() for run in runs])
    assert sorted(frames.source) == ["joined", "model"]
    assert frames.cached_tokens.sum() == 40


def test_what_was_processed_is_no_part_of_the_record(server, tmp_path):
    """A replay and a rerun from the cache meet other numbers, or none, and are equal."""
    lab = tl.Lab(direct(server), runs=tmp_path / "runs", cache=tmp_path / "calls")
    server.will(Said(input_tokens=100, cached=40))
    run = wait(lab.run(ONE, tl.general("2 + 2?")))
    again = wait(lab.run(ONE, tl.general("2 + 2?")))
    assert canonical(run) == canonical(again)
    assert wait(run.replay()).identical


async def together(*awaitables: Any) -> list[Any]:
    return await asyncio.gather(*awaitables)


def canonical(run: tl.Run) -> list[Any]:
    return sorted(((line.p, line.e) for line in run.lines if line.p), key=lambda pair: pair[0])


def test_a_price_of_cached_tokens_is_used(server):
    for model in (direct(server, price=(2.0, 10.0, 0.5)), litellm(server, price=(2.0, 10.0, 0.5))):
        server.will(Said(input_tokens=100, cached=60, output_tokens=5))
        (reply,) = wait(model.answer((call(),), CallObserver()))
        assert reply.cost == pytest.approx((40 * 2.0 + 60 * 0.5 + 5 * 10.0) / 1e6)
        assert tl.part_of(json.loads(json.dumps(model.settings()))).price == (2.0, 10.0, 0.5)
    server.will(Said(input_tokens=100, cached=60, output_tokens=5))
    (reply,) = wait(direct(server, price=(2.0, 10.0)).answer((call(),), CallObserver()))
    assert reply.cost == pytest.approx((100 * 2.0 + 5 * 10.0) / 1e6)
    with pytest.raises(ValueError, match=r"must be at most that of the others, 2\.0: got 3\.0"):
        direct(server, price=(2.0, 10.0, 3.0))


def test_a_check_says_whether_the_server_reuses_prompts_and_how_fast_it_reads(server):
    for cached, found in ((8, True), (0, None), (None, None)):
        server.otherwise = Said(cached=cached, timings=(125.5, 20.25))
        try:
            check = wait(tl.Lab(direct(server), runs=None).check())
        finally:
            server.otherwise = Said()
        assert check.prompt_cache is found
        assert check.prefill_tokens_per_second == 125.5
        assert ("prompt cache       yes" in repr(check)) is (found is True)


# Anthropic

LONG = "The rules of the game, and what was done so far. " * 120  # about 1,300 tokens
SIBLINGS = [call(f"{LONG}\n\nJudge the candidate.\n\nCandidate: {k}", seed=k) for k in range(5)]


def sent(asked: Any) -> list[Any]:
    content = asked.json["messages"][-1]["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def test_anthropics_mark_stands_where_the_siblings_part(server):
    model = litellm(server, "anthropic")
    for sibling in SIBLINGS[:2]:
        wait(model.answer((sibling,), CallObserver()))
    blocks = [sent(asked) for asked in server.calls]
    for sibling, (shared, own) in zip(SIBLINGS, blocks, strict=False):
        assert shared["cache_control"] == {"type": "ephemeral"}
        assert "cache_control" not in own
        assert shared["text"] + own["text"] == sibling.messages[0].content
    assert blocks[0][0] == blocks[1][0], "the marked part is the same for all siblings"
    assert blocks[0][1]["text"] == "Candidate: 0"
    assert json.dumps(server.calls[0].json).count("cache_control") == 1  # Anthropic accepts four


def test_a_prompt_that_the_provider_would_not_cache_is_sent_as_it_is(server):
    short = call("Rules.\n\nJudge.\n\nCandidate: 1")
    one_paragraph = call(LONG)
    for asked in (short, one_paragraph):
        wait(litellm(server, "anthropic").answer((asked,), CallObserver()))
        assert "cache_control" not in json.dumps(server.calls[-1].json)
    # Haiku 4.5 caches from 4,096 tokens, of which this has a third.
    wait(
        litellm(server, "anthropic", model="anthropic/claude-haiku-4-5").answer(
            (SIBLINGS[0],), CallObserver()
        )
    )
    wait(litellm(server).answer((SIBLINGS[0],), CallObserver()))
    assert all("cache_control" not in json.dumps(asked.json) for asked in server.calls[-2:])


def test_the_mark_is_no_part_of_the_cache_key(server, tmp_path):
    lab = tl.Lab(litellm(server, "anthropic"), runs=None, cache=tmp_path)
    wait(lab.gateway.ask(SIBLINGS[0], CallObserver()))
    assert "cache_control" in json.dumps(server.calls[-1].json)
    ((key, entry),) = tl.Cache(tmp_path).entries()
    assert entry.request.messages == SIBLINGS[0].messages
    assert b"cache_control" not in msgspec.json.encode(entry.request)
    assert key == entry.request.key


def test_reads_and_writes_of_anthropics_cache_are_priced_by_the_table(server):
    model = litellm(server, "anthropic")  # 3 and 15 USD per million tokens
    server.will(Said(input_tokens=1_400, cached=0, stored=1_300, output_tokens=5))
    server.will(Said(input_tokens=1_400, cached=1_300, output_tokens=5))
    (first,), (second,) = (wait(model.answer((sibling,), CallObserver())) for sibling in SIBLINGS[:2])
    assert first.cost == pytest.approx((100 * 3 + 1_300 * 3.75 + 5 * 15) / 1e6)
    assert second.cost == pytest.approx((100 * 3 + 1_300 * 0.3 + 5 * 15) / 1e6)
    assert (first.input_tokens, second.input_tokens) == (1_400, 1_400)
    need = model.need((call(f"{LONG}\n\nCandidate: 1", max_tokens=5),))
    assert need.usd is not None
    assert need.prompt is not None
    assert need.usd >= (need.prompt * 3.75 + 5 * 15) / 1e6 * 0.999


def through_warmed(backend: Any, calls: Sequence[Call], beginning: Any) -> list[Any]:
    layer = Warmed(backend, beginning)

    async def all_of() -> list[Any]:
        return await asyncio.gather(*(layer.answer((one,), CallObserver()) for one in calls))

    return asyncio.run(all_of())


class Counted:
    """A backend that counts what is under way, and fails the first `failures` calls."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.at_once: list[int] = []
        self.now = 0

    async def answer(self, calls: Sequence[Call], observer: Any) -> Sequence[Reply]:
        self.now += 1
        self.at_once.append(self.now)
        failed = len(self.at_once) <= self.failures
        await asyncio.sleep(0.02)
        self.now -= 1
        return [Reply(error="overloaded") if failed else Reply(one.prompt) for one in calls]


def test_the_first_call_fills_the_providers_cache_and_the_others_follow_at_once():
    backend = Counted()
    calls = [call(f"shared {k}") for k in range(5)]
    replies = through_warmed(backend, calls, lambda one: "shared")
    assert backend.at_once == [1, 1, 2, 3, 4]
    assert [reply.text for (reply,) in replies] == [one.prompt for one in calls]
    others = Counted()
    through_warmed(others, calls, lambda one: one.prompt)
    assert others.at_once == [1, 2, 3, 4, 5], "different beginnings do not wait for each other"
    free = Counted()
    through_warmed(free, calls, lambda one: None)
    assert free.at_once == [1, 2, 3, 4, 5]


def test_if_the_first_call_fails_the_others_are_not_held_back():
    """In an outage, each would otherwise wait for all retries of those before it."""
    backend = Counted(failures=2)
    replies = through_warmed(backend, [call(f"shared {k}") for k in range(5)], lambda one: "shared")
    assert backend.at_once == [1, 1, 2, 3, 4]
    assert [reply.error for (reply,) in replies].count(None) == 3


def test_a_cancelled_first_call_leaves_the_others_an_answer():
    backend = Counted()
    layer = Warmed(backend, lambda one: "shared")

    async def main() -> Sequence[Reply]:
        first = asyncio.ensure_future(layer.answer((call("shared 0"),), CallObserver()))
        await asyncio.sleep(0.005)
        observer = CallObserver()
        second = asyncio.ensure_future(layer.answer((call("shared 1"),), observer))
        await asyncio.sleep(0.005)
        assert observer.names == ["call.queued"], "its time limit does not run while it waits"
        first.cancel()
        return await asyncio.wait_for(second, 5)

    assert asyncio.run(main())[0].text == "shared 1"


def test_siblings_of_an_anthropic_model_wait_for_the_first(server):
    server.otherwise = Said("yes", pause=0.1)
    try:
        lab = tl.Lab(litellm(server, "anthropic"), runs=None, mode="off")

        async def all_of() -> list[Reply]:
            observers = [CallObserver() for _ in SIBLINGS]
            return await asyncio.gather(*map(lab.gateway.ask, SIBLINGS, observers))

        replies = asyncio.run(all_of())
    finally:
        server.otherwise = Said()
    assert [reply.text for reply in replies] == ["yes"] * 5
    assert server.max_at_once == 4


# Beginnings


def test_beginnings_end_before_paragraphs_and_the_last_one_leaves_out_the_last():
    text = "\n\n".join([*("w" * 100 for _ in range(40)), "Candidate: 7"])
    found = [one.call.messages[-1].content for one in prefixes_of(call(text, seed=1, logprobs=3))]
    assert found[-1] == text.rpartition("\n\n")[0]
    assert all(text.startswith(one) and text[len(one) :].startswith("\n\n") for one in found)
    assert all(len(b) >= 1.5 * len(a) for a, b in pairwise(found[:-1]))
    assert len(found) < 12, "a long prompt has few"
    assert prefixes_of(call("short\n\nalso\n\nshort")) == []
    assert prefixes_of(call("x" * 5_000)) == []
    tool = Call("0", "act", (Message("user", text), Message("tool", text, tool_call_id="1")))
    assert prefixes_of(tool) == []


def test_siblings_and_cousins_have_the_same_beginnings_whatever_their_settings():
    rules, steps = "r" * 200, "s" * 200
    value = [prefixes_of(call(f"{rules}\n\n{steps}\n\nCandidate: {k}", seed=k)) for k in range(2)]
    assert [one.text for one in value[0]] == [one.text for one in value[1]]
    propose = prefixes_of(call(f"{rules}\n\n{steps}\n\nPropose.", temperature=1.0, max_tokens=9))
    assert [one.text for one in propose] == [one.text for one in value[0]]
    offered = prefixes_of(call(f"{rules}\n\n{steps}\n\nPropose.", tools=({"name": "add"},)))
    assert offered[0].text != propose[0].text, "tools are part of the prompt"


# llama.cpp

NAME = "smollm2-135m"
STORY = "A fox and a crow met at the river one morning and talked about the cheese for a long time. " * 3
QUESTIONS = [f"{STORY}\n\nQuestion {k}: what did animal number {k} say?" for k in range(4)]


@pytest.fixture
def models(monkeypatch):
    """Makes small models, and stops their servers afterwards."""
    monkeypatch.setenv("TOT_LAB_MODELS", str(weights(NAME).parent))
    made: list[Local] = []

    def make(**settings: Any) -> Local:
        made.append(Local(**{"weights": NAME, "context_window": 1024, **settings}))
        return made[-1]

    yield make
    for model in made:
        asyncio.run(model.close())


def at_once(model: Local, *calls: Call) -> tuple[list[Reply], list[int]]:
    """The replies to calls at the same time, and the prompt tokens that llama.cpp did not process again."""

    async def all_of() -> tuple[list[Reply], list[int]]:
        observers = [CallObserver() for _ in calls]
        async with asyncio.timeout(300):
            replies = await asyncio.gather(
                *(model.answer([one], observer) for one, observer in zip(calls, observers, strict=True))
            )
        cached = [dict(observer.notes)["call.processed"]["cached_tokens"] for observer in observers]
        return [reply for (reply,) in replies], cached

    return asyncio.run(all_of())


def story(k: int, **settings: Any) -> Call:
    return call(QUESTIONS[k], **{"max_tokens": 6, "temperature": 0.0, "logprobs": 3, **settings})


async def without(self: Prefixes, call: Call, observer: Any) -> Sequence[Reply]:
    """How calls were sent before: llama.cpp selects the slot."""
    if call.seed is not None:
        call = msgspec.structs.replace(call, options={"cache_prompt": False, **call.options})
    return await self.endpoint.answer([call], observer)


def on_loopback(server: Providers, tmp_path: Any, slots: int) -> tuple[Prefixes, list[tuple[str, str]]]:
    """A server that saves and restores states of ten bytes, and the slots and files of these requests."""
    actions: list[tuple[str, str]] = []

    def page(asked: Any) -> Any:
        name = asked.json["filename"]
        actions.append((asked.path, name))
        if name.endswith(".state"):  # restored
            return {"n_restored": 10} if (tmp_path / name).exists() else web.Response(status=400)
        (tmp_path / name).write_bytes(b"0123456789")
        return {"n_saved": 4, "n_written": 10}

    server.pages |= {f"/slots/{slot}": page for slot in range(slots)}
    return Prefixes(LlamaCpp(model="local", base_url=server.base("openai")), slots, tmp_path), actions


def test_the_beginning_is_processed_and_saved_before_the_siblings_are_sent(server, tmp_path):
    server.otherwise = Said("yes", pause=0.05)
    found, actions = on_loopback(server, tmp_path, 2)
    siblings = [story(k, stop=("\n",)) for k in range(4)]
    try:
        replies = wait(together(*(found.answer(one, CallObserver()) for one in siblings)))
    finally:
        server.otherwise = Said()
    assert [reply.text for (reply,) in replies] == ["yes"] * 4
    first, *others = server.calls
    assert first.json["messages"][0]["content"] == STORY
    assert (first.json["max_tokens"], first.json.get("stop"), first.json.get("seed")) == (1, None, None)
    sent = [asked.json["messages"][0]["content"] for asked in others]
    assert sorted(sent) == QUESTIONS, "each is sent once and whole"
    assert {asked.json["id_slot"] for asked in others} == {0, 1}
    assert all(asked.json["cache_prompt"] for asked in others)
    assert server.max_at_once == 2
    (saved, _), *restored = actions
    assert saved == f"/slots/{first.json['id_slot']}"
    assert [name for _, name in restored] == [file.name for file in tmp_path.iterdir()] * 3
    assert len({asked.json["id_slot"] for asked in others}) == 2


def test_equal_prompts_at_the_same_time_are_processed_once(server, tmp_path):
    """Such as samples without a seed. A prompt that no other call has is sent once."""
    server.otherwise = Said("yes", pause=0.05)
    found, _ = on_loopback(server, tmp_path, 2)
    try:
        wait(together(*(found.answer(story(0, sample_index=k), CallObserver()) for k in range(3))))
        sent = [(asked.json["messages"][0]["content"], asked.json["max_tokens"]) for asked in server.calls]
        assert sent == [(STORY, 1), (QUESTIONS[0], 1), *[(QUESTIONS[0], 6)] * 3]
        wait(found.answer(story(1), CallObserver()))
        assert len(server.calls) == 6
    finally:
        server.otherwise = Said()


def test_a_seed_uses_no_state_that_other_steps_led_to(server, tmp_path):
    """A whole prompt that was sent several times may be the beginning of another one."""
    found, _ = on_loopback(server, tmp_path, 2)
    whole = f"{STORY}\n\n{'Which animal spoke? ' * 9}Say it."
    samples = [call(whole, sample_index=k, max_tokens=6) for k in range(2)]
    wait(together(*(found.answer(one, CallObserver()) for one in samples)))
    for k in range(2):
        longer = call(f"{whole}\n\nAnd {k}?", seed=k, max_tokens=6)
        wait(found.answer(longer, CallObserver()))
    processed = [asked.json for asked in server.calls if asked.json["max_tokens"] == 1]
    assert [body["messages"][0]["content"] for body in processed] == [STORY, whole, whole]


@pytest.mark.parametrize("slots", [1, 2])
def test_without_saved_states_a_seed_still_gets_what_it_would_get_with_them(server, tmp_path, slots):
    """The same steps in the same order, so that a full disk does not change the bits of a reply."""
    sent = []
    for saves in (True, False):
        server.forget()
        found, _ = on_loopback(server, tmp_path, slots)
        if not saves:
            server.pages.clear()
            for file in tmp_path.iterdir():
                file.unlink()
        for k in range(2):
            (reply,) = wait(found.answer(story(k, seed=k), CallObserver()))
            assert reply.text == "Four."
        sent.append([(asked.json["max_tokens"], asked.json["cache_prompt"]) for asked in server.calls])
    assert sent == [[(1, False), (6, True), (6, True)], [(1, False), (6, True)] * 2]


def test_options_may_turn_the_cache_off_and_do_not_choose_the_slot(server, tmp_path):
    found, actions = on_loopback(server, tmp_path, 2)
    observer = CallObserver()
    wait(found.answer(story(0, seed=1, options={"cache_prompt": False, "id_slot": 7}), observer))
    (body,) = (asked.json for asked in server.calls)
    assert (body["id_slot"], body["cache_prompt"], body["max_tokens"]) == (0, False, 6)
    assert observer.notes[0] == ("call.dropped", {"settings": ["id_slot"]})
    assert actions == []


@pytest.mark.filterwarnings("ignore")  # of the loop that is closed
@pytest.mark.parametrize("where", ["processing", "saving", "answering"])
@pytest.mark.parametrize("seed", [None, 1])
def test_a_loop_that_is_closed_in_the_middle_leaves_the_slot_to_others(server, tmp_path, where, seed):
    found, _ = on_loopback(server, tmp_path, 2)
    save, reached = server.pages["/slots/0"], threading.Event()

    def hanging(asked: Any) -> Any:
        if asked.json["max_tokens"] == (6 if where == "answering" else 1):
            reached.set()
            return Hang(20)
        return Said()

    def slow_page(asked: Any) -> Any:
        reached.set()
        time.sleep(0.3)
        return save(asked)

    if where == "saving":
        server.pages |= {"/slots/0": slow_page, "/slots/1": slow_page}
    else:
        server.otherwise = hanging

    async def until_reached() -> None:
        while not reached.is_set():
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)

    loop = asyncio.new_event_loop()
    started = [loop.create_task(found.answer(story(k, seed=seed), CallObserver())) for k in range(3)]
    loop.run_until_complete(until_reached())
    assert not any(task.done() for task in started)
    loop.close()
    server.otherwise = Said()
    server.pages |= {"/slots/0": save, "/slots/1": save}

    async def all_of() -> list[Any]:
        async with asyncio.timeout(10):
            return await together(*(found.answer(story(k, seed=seed), CallObserver()) for k in range(4)))

    assert [reply.text for (reply,) in asyncio.run(all_of())] == ["Four."] * 4
    assert {asked.json["id_slot"] for asked in server.calls[-4:]} == {0, 1}, "no slot is lost"


def test_an_architecture_that_cannot_go_back_gets_no_beginnings(server, tmp_path):
    """Such as one with recurrent layers, which processes the whole prompt all the same."""
    server.otherwise = Said(input_tokens=100, cached=0)
    found, _ = on_loopback(server, tmp_path, 1)
    try:
        for k in range(3):
            wait(found.answer(story(k, seed=k), CallObserver()))
    finally:
        server.otherwise = Said()
    assert [asked.json["max_tokens"] for asked in server.calls] == [1, 6, 6, 6]


@pytest.mark.nightly
@needs_smollm2
def test_calls_at_the_same_time_process_what_they_share_once(models, monkeypatch):
    model = models(slots=4)
    replies, cached = at_once(model, *map(story, range(4)))
    whole = sum(reply.input_tokens for reply in replies)
    shared = min(reply.input_tokens for reply in replies) - 40
    assert whole - sum(cached) < shared + 4 * 45
    later, cached = at_once(model, *map(story, range(4)))
    assert sum(reply.input_tokens for reply in later) - sum(cached) < 4 * 45, "nor ever again"
    monkeypatch.setattr(Prefixes, "answer", without)
    alone, cached = at_once(models(slots=4, context_window=1000), *map(story, range(4)))
    assert whole - sum(cached) > 4 * shared, "each slot would process it for itself"
    for one, other in zip(replies, alone, strict=True):  # the model read the same prompt
        assert one.input_tokens == other.input_tokens
        first, same = one.logprobs[0].top, other.logprobs[0].top
        likely = max(first, key=first.__getitem__)
        assert first[likely] == pytest.approx(same[likely], abs=0.1)


@pytest.mark.nightly
@needs_smollm2
def test_a_seed_gives_the_same_bits_whatever_came_before_and_reuses_the_beginning(models):
    model = models()
    (first,), (cached,) = at_once(model, story(0, seed=5, temperature=0.9))
    assert cached < 20, "of the first call, all was processed for it"
    for before in (story(1), call(STORY[:150], max_tokens=1), story(2, seed=1)):
        at_once(model, before)
        (again,), (cached,) = at_once(model, story(0, seed=5, temperature=0.9))
        assert again == first, "its text and log-probabilities"
        assert again.input_tokens - cached < 45
    (other,), _ = at_once(models(context_window=1000), story(0, seed=5, temperature=0.9))
    assert other == first, "on another server too"


@pytest.mark.nightly
@needs_smollm2
def test_states_that_were_removed_are_computed_again_with_the_same_bits(models, monkeypatch):
    model = models()
    (first,), _ = at_once(model, story(0, seed=5))
    folder = _server_for(model).prefixes.folder
    assert list(folder.iterdir())
    monkeypatch.setattr(prefixes, "LARGEST", 1)
    at_once(model, call(f"{STORY[::-1]}\n\nWhat?", seed=1, max_tokens=2))
    assert len(list(folder.iterdir())) == 1, "the least recently used ones go"
    monkeypatch.undo()
    monkeypatch.setenv("TOT_LAB_MODELS", str(weights(NAME).parent))
    for file in folder.iterdir():
        file.write_bytes(b"no state")
    with pytest.raises(Failure) as caught:
        at_once(model, call(f"{STORY[::-1]}\n\nWhat?", seed=1, max_tokens=2))
    assert caught.value.retry
    assert not list(folder.iterdir()), "what is damaged is not used again"
    (again,), _ = at_once(model, story(0, seed=5))
    assert again == first
    asyncio.run(model.close())
    assert not folder.exists()


@pytest.mark.nightly
@needs_smollm2
def test_without_room_for_states_calls_are_answered_all_the_same(models):
    model = models()
    asyncio.run(model.start())
    found = _server_for(model).prefixes
    found.folder.rmdir()
    (first,), _ = at_once(model, story(0, seed=5))
    (again,), (cached,) = at_once(model, story(0, seed=5))
    assert again == first
    assert cached == 0
    assert found.works
    found.folder.mkdir()
    (other,), _ = at_once(models(context_window=1000), story(0, seed=5))
    assert other == first, "with saved states too"


@pytest.mark.nightly
@needs_smollm2
def test_cancelled_calls_leave_their_slots_to_others(models):
    model = models(slots=2)
    endless = {"max_tokens": 500, "options": {"ignore_eos": True}}

    async def main() -> list[Reply]:
        busy = [
            asyncio.ensure_future(model.answer([call(f"{k}", **endless)], CallObserver())) for k in range(2)
        ]
        waiting = [asyncio.ensure_future(model.answer([story(k)], CallObserver())) for k in range(3)]
        await asyncio.sleep(0.5)
        for task in (*busy, waiting[0]):
            task.cancel()
        await asyncio.gather(*busy, waiting[0], return_exceptions=True)
        async with asyncio.timeout(120):
            return [reply for (reply,) in await asyncio.gather(*waiting[1:])]

    assert [reply.error for reply in asyncio.run(main())] == [None, None]
    assert _server_for(model).prefixes._requests == []


@pytest.mark.nightly
@needs_smollm2
@pytest.mark.filterwarnings("ignore")  # of loops that are closed
def test_event_loops_in_several_threads_share_the_slots_whenever_they_end(models):
    """Some end with a call under way, cancelled or not. What they had is not lost, and no call waits for
    ever.
    """
    model = models(slots=2)
    asyncio.run(model.start())
    found: list[Reply] = []

    def work(thread: int) -> None:
        dice = random.Random(thread)
        for turn in range(12):
            asked = [story(k, max_tokens=2, seed=dice.choice([None, k])) for k in range(3)]
            loop = asyncio.new_event_loop()
            tasks = [loop.create_task(model.answer([one], CallObserver())) for one in asked]
            if turn % 3:
                loop.run_until_complete(asyncio.sleep(dice.random() * 0.3))
                if turn % 3 == 1:  # as asyncio.run does
                    for task in tasks:
                        task.cancel()
                    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
                    loop.run_until_complete(loop.shutdown_asyncgens())
            else:
                found.extend(reply for (reply,) in loop.run_until_complete(together(*tasks)))
            loop.close()

    threads = [threading.Thread(target=work, args=(k,), daemon=True) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert not any(thread.is_alive() for thread in threads)
    assert [reply.error for reply in found] == [None] * 4 * 4 * 3
    replies, _ = at_once(model, *map(story, range(4)))
    assert [reply.error for reply in replies] == [None] * 4


@pytest.mark.nightly
@needs_smollm2
@pytest.mark.parametrize("seed", [None, 3])
def test_a_search_recorded_with_sharing_replays_equally_without(models, monkeypatch, tmp_path, seed):
    task = tl.game24_tasks(1, structured=True)[0]
    search = tl.TreeOfThoughts(
        propose=tl.proposers.Sample(count=3),
        evaluate=tl.evaluators.Value(),
        search=tl.searches.BeamSearch(width=2),
        stop=tl.Stop(depth=2),
        seed=seed,
        max_tokens=24,
    )
    lab = tl.Lab(models(slots=2), runs=tmp_path / "runs", cache=tmp_path / "calls", timeout=None)
    run = asyncio.run(lab.run(search, task))
    assert run.calls_df().error.isna().all()
    assert (run.calls_df().cached_tokens > 0).any()
    monkeypatch.setattr(Prefixes, "answer", without)
    other = tl.Lab(models(slots=2), runs=tmp_path / "others", cache=tmp_path / "calls", timeout=None)
    again = asyncio.run(other.run(search, task))
    assert canonical(again) == canonical(run)
    assert set(again.calls_df().source) == {"cache"}
    assert asyncio.run(tl.load(run.path).replay()).identical


def test_a_server_started_by_others_selects_its_slots_itself(server):
    """Its files and slots belong to others too, and it does well with calls one at a time."""
    model = LlamaCpp(model="m", base_url=server.base("openai"))
    wait(model.answer((story(0, seed=3),), CallObserver()))
    assert server.calls[-1].json.keys() & {"id_slot", "cache_prompt"} == set()
    assert [asked.path for asked in server.asked] == ["/v1/chat/completions"]


def test_a_fault_is_not_a_processed_prompt(server):
    server.will(Fault(400, "no"))
    observer = CallObserver()
    with pytest.raises(Failure):
        wait(direct(server).answer((call(),), observer))
    assert observer.names == []
