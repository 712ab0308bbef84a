"""Checks of a model and its server: `await lab.check()`.

The model is tested with small calls. `Endpoint.server_facts` adds what replies do not show, such as the
context window. `None` means unknown. A problem is described together with its remedy, if one is known. An
unreachable server, a slow server, a failing server and a server with another API are different problems.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from statistics import mean, median
from typing import Any, NamedTuple

from tot_lab.core.calls import Call, Message, Reply
from tot_lab.core.reading.json_values import read_json
from tot_lab.core.reading.thinking import separated
from tot_lab.models.chat.about import describe
from tot_lab.models.stack import Endpoint, Failure, NullObserver, ServerFacts

PATIENCE = 120.0
"""Seconds to wait for one reply."""

AT_ONCE = 4
"""Concurrent calls that are made to estimate the slots of a server."""

_SCHEMA = {
    "type": "object",
    "properties": {"animal": {"enum": ["okapi"]}},
    "required": ["animal"],
    "additionalProperties": False,
}


class Check(NamedTuple):
    """Results of a check. `None` means unknown.

    Attributes:
        name: Name of the model.
        address: URL of the server, or name of the provider.
        reachable: Whether the server answers.
        concurrency: The recommended setting `concurrency`. `None` lets the lab adapt it.
        model_there: Whether the server offers the model.
        server: Software, version and weights that the server reports, on one line.
        context_window: Tokens of a prompt and its reply, as reported, set, or in litellm's table.
        schema: Whether replies follow a JSON schema.
        logprobs: Whether log-probabilities are returned.
        n: Whether one request can return several samples.
        slots: Calls that the server answers at the same time: as reported, or else as estimated with 4 test
            calls.
        more_slots: Whether the server may have more slots, since it answered all test calls at the same time.
        tokens_per_second: Output tokens per second of one call alone.
        prompt_cache: `True` if the server reported that it reused the beginning of a prompt, else `None`: the
            test prompts may have been too short for its cache.
        prefill_tokens_per_second: Prompt tokens per second, as reported by the server.
        problems: What will not work and, if known, how to fix it.
    """

    name: str
    address: str
    reachable: bool
    concurrency: int | None
    model_there: bool | None = None
    server: str | None = None
    context_window: int | None = None
    schema: bool | None = None
    logprobs: bool | None = None
    n: bool | None = None
    slots: int | None = None
    more_slots: bool = False
    tokens_per_second: float | None = None
    prompt_cache: bool | None = None
    prefill_tokens_per_second: float | None = None
    problems: tuple[str, ...] = ()

    def __repr__(self) -> str:
        speed, prefill = self.tokens_per_second, self.prefill_tokens_per_second
        rows = {
            "reachable": _word(self.reachable),
            "model there": _word(self.model_there),
            "server": _word(self.server),
            "context window": _word(self.context_window and f"{self.context_window} tokens"),
            "schema output": _word(self.schema),
            "log-probabilities": _word(self.logprobs),
            "n": _word(self.n),
            "slots in parallel": f"at least {self.slots}" if self.more_slots else _word(self.slots),
            "tokens/s": _word(speed and f"{speed:.1f}"),
            "prompt cache": _word(self.prompt_cache),
            "prompt tokens/s": _word(prefill and f"{prefill:.1f}"),
            "concurrency": "adaptive" if self.concurrency is None else str(self.concurrency),
        }
        lines = [f"{self.name} at {self.address}" if self.address != self.name else self.name]
        lines += [f"  {name:<18} {value}" for name, value in rows.items()]
        return "\n".join([*lines, *(f"  ! {problem}" for problem in self.problems)])


def _word(value: object) -> str:
    if value is None:
        return "unknown"
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


class _Notes(NullObserver):
    """A call observer that collects dropped settings, cached tokens and prefill speeds."""

    def __init__(self) -> None:
        self.dropped: set[str] = set()
        self.cached = 0
        self.prefill: list[float] = []

    def note(self, name: str, **data: Any) -> None:
        if name == "call.dropped":
            self.dropped.update(data["settings"])
        elif name == "call.processed":
            self.cached += data.get("cached_tokens", 0)
            if "prefill_tokens_per_second" in data:
                self.prefill.append(data["prefill_tokens_per_second"])


async def check(endpoint: Endpoint) -> Check:
    """Test `endpoint` with about ten small calls, which use neither the cache nor the budget.

    The test takes some seconds and a few hundred tokens. Failures of the server are described in `problems`
    and not raised.
    """
    found = Check(endpoint.name, endpoint.address, False, endpoint.concurrency)
    try:
        facts = await asyncio.wait_for(endpoint.server_facts(), PATIENCE)
    except (Failure, TimeoutError) as error:
        facts = ServerFacts()
        if isinstance(error, Failure) and error.connection_failed:
            problem = await endpoint.problem() if endpoint.is_hosted else None  # such as a missing key
            return found._replace(problems=(problem or _explain(endpoint, error, facts),))
        # The server is reachable but slow, or its list of models failed. The model may still answer.
    found = found._replace(reachable=True, context_window=facts.context_window, slots=facts.slots)
    problems: list[str] = []
    try:
        await _send(endpoint, [_call("Say hello.", max_tokens=8)])
    except (Failure, TimeoutError) as error:
        there = False if isinstance(error, Failure) and error.status == 404 else None
        problems.append(_explain(endpoint, error, facts))
        if there is False and facts.models:
            problems.append(f"the server has only the models {_listed(facts.models)}")
        elsewhere = isinstance(error, Failure) and not (error.status or error.unreadable or facts.models)
        return found._replace(reachable=not elsewhere, model_there=there, problems=tuple(problems))
    found = found._replace(model_there=True)
    with suppress(Failure, TimeoutError):
        about = await asyncio.wait_for(endpoint.about(), PATIENCE)
        found = found._replace(server=describe(about) or None)
    if facts.models and not _named(endpoint, facts.models):
        problems.append(f"the server answers to any model name, but lists only {_listed(facts.models)}")
    window, window_problem = _window(endpoint, facts)
    found = found._replace(
        context_window=window,
        schema=await _keeps_schema(endpoint, problems),
        logprobs=await _gives_logprobs(endpoint, problems),
        n=await _takes_n(endpoint, problems),
    )
    notes = _Notes()
    speed, at_once = await _speed(endpoint, problems, notes)
    slots = facts.slots or at_once
    concurrency = endpoint.concurrency
    if slots is not None and (facts.slots is not None or slots < AT_ONCE):
        concurrency = slots
    if endpoint.concurrency is not None and concurrency is not None and concurrency < endpoint.concurrency:
        problems.append(
            f"the server answers only {concurrency} of {endpoint.concurrency} concurrent calls at a time"
        )
    problems += window_problem
    if endpoint.need([_call("")]).usd is None:
        problems.append("the price is unknown: costs are not counted, and a limit on USD cannot be enforced")
    return found._replace(
        slots=slots,
        more_slots=facts.slots is None and slots == AT_ONCE,
        tokens_per_second=speed,
        prompt_cache=True if notes.cached else None,
        prefill_tokens_per_second=median(notes.prefill) if notes.prefill else None,
        concurrency=concurrency,
        problems=tuple(problems),
    )


# Tests of the model.


def _call(text: str, **settings: Any) -> Call:
    return Call("check", "check", (Message("user", text),), **settings)


async def _send(endpoint: Endpoint, calls: Sequence[Call], notes: _Notes | None = None) -> Sequence[Reply]:
    replies = await asyncio.wait_for(endpoint.answer(calls, notes or _Notes()), PATIENCE)
    return [separated(reply) for reply in replies]


def _reason(error: BaseException) -> str:
    if isinstance(error, Failure):
        return error.message if error.status is None else f"{error.status}: {error.message}"
    return f"no answer in {PATIENCE:g} seconds"


def _explain(endpoint: Endpoint, error: BaseException, facts: ServerFacts) -> str:
    """Describe the failure of the first request, and how to fix it if that is known."""
    why = _reason(error)
    if not isinstance(error, Failure):
        there = (
            "the server lists its models, and the model is" if facts.models else "the server is there, but"
        )
        return (
            f"{why}: {there} slow or busy. Wait until the model is loaded and other work on the server is "
            f"done, then check again. A lab waits timeout= seconds for a call"
        )
    if error.connection_failed and facts.models:
        trial = "chat completion" if endpoint.generates else "call"
        return f"the server lists its models, but the trial {trial} failed: {why}. See the server's log"
    if error.connection_failed:
        return f"{why}. Start the server, or correct its address ({endpoint.address})"
    if error.status is None and error.unreadable:
        return (
            f"{why}. The server at {endpoint.address} does not have the API of {endpoint.name}. Correct the "
            f"address (that of an OpenAI-compatible server usually ends in /v1) or the prefix of the model"
        )
    if error.status is not None and error.status >= 500:
        return f"{why}. The server has an internal error. See its log"
    return why


async def _keeps_schema(endpoint: Endpoint, problems: list[str]) -> bool | None:
    notes = _Notes()
    call = _call("Say hello.", max_tokens=256, response_format=_SCHEMA)
    try:
        (reply,) = await _send(endpoint, [call], notes)
    except (Failure, TimeoutError) as error:
        problems.append(f"schema output does not work: {_reason(error)}")
        return False
    if "response_format" in notes.dropped or read_json(reply.text) != {"animal": "okapi"}:
        if reply.finish_reason == "length" and "response_format" not in notes.dropped:
            problems.append("schema output could not be tested: the reply was too long")
            return None
        problems.append("replies do not follow a JSON schema: structured proposals will not work")
        return False
    return True


async def _gives_logprobs(endpoint: Endpoint, problems: list[str]) -> bool:
    try:
        (reply,) = await _send(endpoint, [_call("Say hello.", max_tokens=8, logprobs=2)])
        why = ""
    except (Failure, TimeoutError) as error:
        reply, why = Reply(), f" ({_reason(error)})"
    if not reply.logprobs:
        problems.append(f'no log-probabilities are returned: evaluate="logprob" will not work{why}')
    return bool(reply.logprobs)


async def _takes_n(endpoint: Endpoint, problems: list[str]) -> bool:
    notes, why = _Notes(), ""
    calls = [_call("Say hello.", max_tokens=8, sample_index=draw) for draw in range(2)]
    taken = endpoint.takes_n(calls[0])
    if taken:
        try:
            await _send(endpoint, calls, notes)
        except (Failure, TimeoutError) as error:
            taken, why = False, f" ({_reason(error)})"
    if taken and "n" not in notes.dropped and not endpoint.takes_n(calls[0]):
        why = " (the server does not count the tokens of all of them)"
    taken = taken and "n" not in notes.dropped and not why
    if not taken:
        problems.append(f"n samples are n requests, each with the whole prompt{why}")
    return taken


async def _speed(endpoint: Endpoint, problems: list[str], notes: _Notes) -> tuple[float | None, int | None]:
    """Return the tokens per second of one call, and how many calls are answered at the same time.

    If the server has fewer slots than `AT_ONCE`, calls queue, and their median time is longer than that of
    one call alone: about 2.5 times as long with one slot, and 1.5 times with two. The median ignores a single
    late call. If calls queue, they are made once more, and the better result counts. For a provider's own
    service, only the speed is measured, and the number of calls is `None`. If a call fails, a problem is
    added, and the result is (`None`, 1).
    """
    slots = None
    try:
        alone = [await _timed(endpoint, 0, place, notes) for place in range(2)]
        seconds = mean(took for took, _ in alone)
        for turn in () if endpoint.is_hosted else (1, 2):
            calls = [_timed(endpoint, turn, place, notes) for place in range(AT_ONCE)]
            longer = median(took for took, _ in await asyncio.gather(*calls)) / seconds
            slots = max(slots or 1, 1 if longer > 2 else 2 if longer > 1.4 else AT_ONCE)
            if slots == AT_ONCE:
                break
    except (Failure, TimeoutError) as error:
        problems.append(f"{AT_ONCE} calls at the same time do not work: {_reason(error)}")
        return None, 1
    tokens = mean(reply.output_tokens or 0 for _, reply in alone)
    return tokens / seconds or None, slots


async def _timed(endpoint: Endpoint, turn: int, place: int, notes: _Notes) -> tuple[float, Reply]:
    """Return the seconds that one call took, and its reply. Each (`turn`, `place`) has its own prompt, so
    that no server answers from a cache of replies.
    """
    began = time.perf_counter()
    text = f"Story {turn}.{place}: tell it at length, of rain."
    (reply,) = await _send(endpoint, [_call(text, max_tokens=32, temperature=1.0)], notes)
    return time.perf_counter() - began, reply


# Reports of the server.


def _named(endpoint: Endpoint, models: Sequence[str]) -> bool:
    """Whether `models` lists the endpoint's model. Servers may append a tag or a date to its name."""
    name = endpoint.name.rpartition("/")[2]
    return any(model.rpartition("/")[2].startswith(name) for model in models)


def _listed(models: Sequence[str]) -> str:
    more = f" and {len(models) - 5} more" if len(models) > 5 else ""
    return ", ".join(models[:5]) + more


def _window(endpoint: Endpoint, facts: ServerFacts) -> tuple[int | None, list[str]]:
    """Return the context window, and the problems with it. The window is the reported one, else the one that
    is set or in litellm's table, else `None`.
    """
    own = getattr(endpoint, "context_window", None)
    if own is None and not endpoint.uses_reported_window:
        hint = f", but the model accepts {facts.context_window}" if facts.context_window else ""
        return facts.context_window, [
            f"prompts of more than {endpoint.window()} tokens are refused{hint}. Set context_window"
        ]
    if own is not None and facts.context_window is not None and own > facts.context_window:
        return facts.context_window, [
            f"context_window is set to {own}, but the server has {facts.context_window}"
        ]
    window = facts.context_window or endpoint.window()
    if window is None:
        return None, ["the context window is unknown, so a long prompt may be truncated. Set context_window"]
    return window, []
