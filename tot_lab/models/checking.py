"""What a model and its server can do: `await lab.check()`.

Rule: it is found by asking. Small calls go the way that all calls go, and what servers tell of
themselves (`/v1/models`, llama.cpp's `/props`, Ollama's `/api/show`) adds what no reply shows. What
cannot be told is None, and what will not work is said in words. A server that cannot be reached, one that
is slow, one that fails and one that speaks another language are four findings, each with what to do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from statistics import mean, median
from typing import Any, NamedTuple

from tot_lab.core.calls import Call, Message, Reply
from tot_lab.core.reading import read_json, separated
from tot_lab.models.lite_llm import OLLAMA_WINDOW, LiteLLM
from tot_lab.models.stack import Endpoint, Failure

PATIENCE = 120.0
"""Seconds that one answer may take."""

AT_ONCE = 4
"""Calls made at the same time where a server does not say how many it answers so."""

_SCHEMA = {
    "type": "object",
    "properties": {"animal": {"enum": ["okapi"]}},
    "required": ["animal"],
    "additionalProperties": False,
}


class Check(NamedTuple):
    """What was found. None = it could not be told.

    reachable: whether anybody answers. model_there: whether the model does.
    context_window: tokens, as the server or litellm's table says.
    schema: whether a reply keeps to a JSON schema. logprobs: whether log-probabilities come.
    n: whether several samples can be one request. slots: calls answered at the same time; a server
        that answered all of `AT_ONCE` so may take more. tokens_per_second: generated, by one call.
    concurrency: what to set. problems: what will not work.
    """

    name: str
    address: str
    reachable: bool
    concurrency: int
    model_there: bool | None = None
    context_window: int | None = None
    schema: bool | None = None
    logprobs: bool | None = None
    n: bool | None = None
    slots: int | None = None
    tokens_per_second: float | None = None
    problems: tuple[str, ...] = ()

    def __repr__(self) -> str:
        speed = self.tokens_per_second
        rows = {
            "reachable": _word(self.reachable),
            "model there": _word(self.model_there),
            "context window": _word(self.context_window and f"{self.context_window} tokens"),
            "schema output": _word(self.schema),
            "log-probabilities": _word(self.logprobs),
            "n": _word(self.n),
            "slots in parallel": _word(self.slots),
            "tokens/s": _word(speed and f"{speed:.1f}"),
            "concurrency": str(self.concurrency),
        }
        lines = [f"{self.name} at {self.address}" if self.address != self.name else self.name]
        lines += [f"  {name:<18} {value}" for name, value in rows.items()]
        return "\n".join([*lines, *(f"  ! {problem}" for problem in self.problems)])


def _word(value: object) -> str:
    if value is None:
        return "not known"
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


class _Notes:
    """A wire that remembers the names of the settings that were dropped."""

    def __init__(self) -> None:
        self.paid: float | None = None
        self.watched = False
        self.dropped: set[str] = set()

    def note(self, name: str, **data: Any) -> None:
        if name == "call.dropped":
            self.dropped.update(data["settings"])

    def partial(self, text: str) -> None:
        pass


class _Told(NamedTuple):
    """What a server says of itself."""

    models: tuple[str, ...] = ()
    context_window: int | None = None
    slots: int | None = None


async def check(endpoint: Endpoint) -> Check:
    """Ask `endpoint` about ten small things, outside cache and budget; it takes some seconds and
    a few hundred tokens. Raises nothing for what the server does."""
    found = Check(endpoint.name, endpoint.address, False, endpoint.concurrency)
    try:
        told = await asyncio.wait_for(_told(endpoint), PATIENCE)
    except (Failure, TimeoutError) as error:
        told = _Told()
        if isinstance(error, Failure) and error.away:
            return found._replace(problems=(_explained(endpoint, error, told),))
        # A slow server took the connection; its model may answer all the same.
    found = found._replace(reachable=True, context_window=told.context_window, slots=told.slots)
    problems: list[str] = []
    try:
        await _asked(endpoint, [_call("Say hello.", max_tokens=8)])
    except (Failure, TimeoutError) as error:
        there = False if isinstance(error, Failure) and error.status == 404 else None
        problems.append(_explained(endpoint, error, told))
        if there is False and told.models:
            problems.append(f"the server has {_listed(told.models)}")
        elsewhere = isinstance(error, Failure) and not (error.status or error.unreadable or told.models)
        return found._replace(reachable=not elsewhere, model_there=there, problems=tuple(problems))
    found = found._replace(model_there=True)
    if told.models and not _named(endpoint, told.models):
        problems.append(f"the server lists {_listed(told.models)}, and answers to any name with that")
    window, window_problem = _window(endpoint, told)
    found = found._replace(
        context_window=window,
        schema=await _keeps_schema(endpoint, problems),
        logprobs=await _gives_logprobs(endpoint, problems),
        n=await _takes_n(endpoint, problems),
    )
    speed, at_once = await _speed(endpoint, problems)
    slots = told.slots or at_once
    concurrency = endpoint.concurrency
    if slots is not None and (told.slots is not None or slots < AT_ONCE):
        concurrency = slots
    if concurrency < endpoint.concurrency:
        problems.append(
            f"of {endpoint.concurrency} calls at the same time only {concurrency} are answered so"
        )
    problems += window_problem
    if endpoint.need([_call("")]).usd is None:
        problems.append("no price is known: costs are unknown, and a cap on USD cannot be kept")
    return found._replace(
        slots=slots, tokens_per_second=speed, concurrency=concurrency, problems=tuple(problems)
    )


# What the model does.


def _call(text: str, **settings: Any) -> Call:
    return Call("check", "check", (Message("user", text),), **settings)


async def _asked(endpoint: Endpoint, calls: Sequence[Call], notes: _Notes | None = None) -> Sequence[Reply]:
    replies = await asyncio.wait_for(endpoint.answer(calls, notes or _Notes()), PATIENCE)
    return [separated(reply) for reply in replies]


def _why(error: BaseException) -> str:
    if isinstance(error, Failure):
        return error.message if error.status is None else f"{error.status}: {error.message}"
    return f"no answer in {PATIENCE:g} seconds"


def _explained(endpoint: Endpoint, error: BaseException, told: _Told) -> str:
    """Why the first call brought nothing, and what to do."""
    why = _why(error)
    if not isinstance(error, Failure):
        there = "the server lists its models, and the model is" if told.models else "the server is there, but"
        return (
            f"{why}: {there} slow or busy. Wait until the model is loaded and other work on the server is "
            f"done, then check again; a lab waits timeout= seconds for a call"
        )
    if error.away:
        return f"{why}. Start the server, or correct its address ({endpoint.address})"
    if error.status is None and error.unreadable:
        return (
            f"{why}. Something answers at {endpoint.address}, but not as the API of {endpoint.name} does: "
            f"correct the address (that of an OpenAI-like server mostly ends in /v1) or the model's prefix"
        )
    if error.status is not None and error.status >= 500:
        return f"{why}. The server is there and fails: look into its log"
    return why


async def _keeps_schema(endpoint: Endpoint, problems: list[str]) -> bool | None:
    notes = _Notes()
    call = _call("Say hello.", max_tokens=256, response_format=_SCHEMA)
    try:
        (reply,) = await _asked(endpoint, [call], notes)
    except (Failure, TimeoutError) as error:
        problems.append(f"schema output does not work: {_why(error)}")
        return False
    if "response_format" in notes.dropped or read_json(reply.text) != {"animal": "okapi"}:
        if reply.finish_reason == "length" and "response_format" not in notes.dropped:
            problems.append("whether replies keep to a schema was not seen: the model wrote too long")
            return None
        problems.append("replies do not keep to a JSON schema: structured proposals will not work")
        return False
    return True


async def _gives_logprobs(endpoint: Endpoint, problems: list[str]) -> bool:
    try:
        (reply,) = await _asked(endpoint, [_call("Say hello.", max_tokens=8, logprobs=2)])
        why = ""
    except (Failure, TimeoutError) as error:
        reply, why = Reply(), f" ({_why(error)})"
    if not reply.logprobs:
        problems.append(f'no log-probabilities come: evaluate="logprob" will not work{why}')
    return bool(reply.logprobs)


async def _takes_n(endpoint: Endpoint, problems: list[str]) -> bool:
    notes, why = _Notes(), ""
    calls = [_call("Say hello.", max_tokens=8, sample_index=draw) for draw in range(2)]
    taken = endpoint.takes_n(calls[0])
    if taken:
        try:
            await _asked(endpoint, calls, notes)
        except (Failure, TimeoutError) as error:
            taken, why = False, f" ({_why(error)})"
    if not taken or "n" in notes.dropped:
        problems.append(f"n samples are n requests, each with the whole prompt{why}")
    return taken and "n" not in notes.dropped


async def _speed(endpoint: Endpoint, problems: list[str]) -> tuple[float | None, int | None]:
    """Tokens that one call generates in a second, and how many calls are answered at the same time.
    They queue when half of `AT_ONCE` take longer than one alone: 2.5 times with one slot, 1.5 times
    with two; a single late one is chance. A provider's own service is not put to that test."""
    try:
        alone = [await _timed(endpoint, 0, k) for k in range(2)]
        if isinstance(endpoint, LiteLLM) and endpoint.is_providers_own:
            together = alone
        else:
            together = await asyncio.gather(*[_timed(endpoint, 1, k) for k in range(AT_ONCE)])
    except (Failure, TimeoutError) as error:
        problems.append(f"{AT_ONCE} calls at the same time do not work: {_why(error)}")
        return None, 1
    seconds = mean(took for took, _ in alone)
    tokens = mean(reply.output_tokens or 0 for _, reply in alone)
    longer = median(took for took, _ in together) / seconds
    slots = 1 if longer > 2 else 2 if longer > 1.4 else AT_ONCE
    return tokens / seconds or None, None if together is alone else slots


async def _timed(endpoint: Endpoint, turn: int, place: int) -> tuple[float, Reply]:
    """Seconds until a call is answered, and its reply. Its first words are its own, so that no
    server answers out of what it has read before."""
    began = time.perf_counter()
    text = f"Story {turn}.{place}: tell it at length, of rain."
    (reply,) = await _asked(endpoint, [_call(text, max_tokens=32, temperature=1.0)])
    return time.perf_counter() - began, reply


# What the server says.


async def _told(endpoint: Endpoint) -> _Told:
    if not isinstance(endpoint, LiteLLM):
        own = {name: getattr(endpoint, name, None) for name in ("context_window", "slots")}
        return _Told((), **own)
    name = endpoint.name.partition("/")[2] or endpoint.name
    if endpoint.provider == "ollama_chat":
        _, tags = await endpoint.look("/api/tags")
        _, shown = await endpoint.look("/api/show", {"model": name})
        facts = _get(shown, "model_info") or {}
        windows = [value for key, value in facts.items() if key.endswith(".context_length")]
        models = [_get(model, "name") for model in _get(tags, "models") or ()]
        return _Told(tuple(filter(None, models)), _whole_number(windows[0] if windows else None))
    if endpoint.provider == "gemini":
        _, page = await endpoint.look(f"models/{name}")
        return _Told(context_window=_whole_number(_get(page, "inputTokenLimit")))
    _, page = await endpoint.look("/v1/models" if endpoint.provider == "anthropic" else "models")
    entries = [entry for entry in _get(page, "data") or () if isinstance(entry, dict)]
    models = [str(entry["id"]) for entry in entries if "id" in entry]
    mine = next((entry for entry in entries if entry.get("id") == name), {})
    window = _whole_number(mine.get("max_model_len") or mine.get("max_input_tokens"))  # vLLM, Anthropic
    if endpoint.base_url is None:
        return _Told(tuple(models), window)
    _, props = await endpoint.look("/props")
    slots = _whole_number(_get(props, "total_slots"))
    if slots is None:
        return _Told(tuple(models), window)
    window = _whole_number(_get(_get(props, "default_generation_settings"), "n_ctx"))
    return _Told(tuple(models), window, slots)


def _get(page: Any, name: str) -> Any:
    return page.get(name) if isinstance(page, dict) else None


def _whole_number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _named(endpoint: Endpoint, models: Sequence[str]) -> bool:
    """Whether the endpoint's model is listed; Ollama adds `:latest`, and Anthropic a date."""
    name = endpoint.name.rpartition("/")[2]
    return any(model.rpartition("/")[2].startswith(name) for model in models)


def _listed(models: Sequence[str]) -> str:
    more = f" and {len(models) - 5} more" if len(models) > 5 else ""
    return ", ".join(models[:5]) + more


def _window(endpoint: Endpoint, told: _Told) -> tuple[int | None, list[str]]:
    """The context window, and what is to be said of it."""
    own = getattr(endpoint, "context_window", None)
    window = told.context_window or own
    if isinstance(endpoint, LiteLLM):
        if endpoint.provider == "ollama_chat" and own is None:
            hint = f", the model has {window}" if window else ""
            return window, [
                f"prompts of more than {OLLAMA_WINDOW} tokens are refused{hint}: set context_window"
            ]
        window = window or endpoint.known_window()
    if own is not None and told.context_window is not None and own > told.context_window:
        return window, [f"context_window is set to {own}, and the server has {told.context_window}"]
    if window is None:
        return None, ["the context window is not known: a long prompt may be cut off; set context_window"]
    return window, []
