"""Cache keys: which two calls are the same request.

A key holds everything that can change a reply and nothing else. A rerun therefore finds its replies whatever
its timeouts, limits and library versions are, while two endpoints, two sample indices or two tool lists never
share a key. Without the sample index, all candidates of a tree search would be the same text.
"""

from __future__ import annotations

import hashlib
import json
import math
from functools import cached_property
from typing import Any

import msgspec

from tot_lab.core.calls import Call, Message
from tot_lab.core.reading.values import common_length
from tot_lab.core.tools import TOOL

SCHEMA = 1
"""Version of the cache keys and entries. Increment it if the same request would get a different key."""


class Request(
    msgspec.Struct,
    frozen=True,
    dict=True,
    omit_defaults=True,
    rename={"sample_index": "draw"},  # the name that keys are made of
):
    """A call as the cache stores it.

    It has the fields of `Call` that can change the reply, and the identity of the model and its endpoint,
    with sorted keys.
    """

    schema: int
    model: dict[str, Any]
    messages: tuple[Message, ...]
    sample_index: int = 0
    attempt: tuple[int, ...] = ()
    repeat: int = 0
    temperature: float | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    response_format: dict[str, Any] | None = None
    logprobs: int = 0
    tools: tuple[dict[str, Any], ...] = ()
    tool_choice: str | None = None
    effort: str | None = None
    options: dict[str, Any] = {}
    alternatives: int | None = None  # if it is not set, keys are those of earlier versions

    @cached_property
    def key(self) -> str:
        """The sha256 of the request as JSON. The property order of schemas and tools counts, since a model
        sees it.
        """
        return hashlib.sha256(_encoded(self)).hexdigest()

    @property
    def of_any_sample(self) -> bytes:
        """The part of the request that all samples, attempts and repeats of a call have in common."""
        return _encoded(msgspec.structs.replace(self, sample_index=0, attempt=(), repeat=0))


_encoded = msgspec.json.Encoder().encode


def request_of(call: Call, model: dict[str, Any]) -> Request:
    """Return the request of `call` to the model with that identity.

    The reply of a tool depends neither on the caller nor on the sample index.

    Raises:
        ValueError: If JSON cannot hold a setting.
    """
    if call.purpose == TOOL:
        return Request(SCHEMA, model, (Message("user", _normalised(call.prompt)),))
    return Request(
        SCHEMA,
        model,
        call.messages,
        call.sample_index,
        call.attempt,
        call.repeat,
        None if call.temperature is None else float(call.temperature) + 0.0,  # 0, 0.0 and -0.0 are equal
        call.max_tokens,
        call.stop,
        call.seed,
        call.response_format,
        call.logprobs,
        call.tools,
        call.tool_choice,
        call.effort,
        {name: _plain(name, call.options[name]) for name in sorted(call.options)} if call.options else {},
        call.alternatives,
    )


class Requests:
    """Returns the requests of calls to one model. While a call is answered, its request is built once.

    Args:
        model: The identity of the model, with sorted keys.
    """

    def __init__(self, model: dict[str, Any]) -> None:
        self.model = model
        self._on_their_way: dict[int, Request | None] = {}

    def __call__(self, call: Call) -> Request:
        """Return the request of `call`."""
        known = self._on_their_way.get(id(call))
        if known is None:
            known = request_of(call, self.model)
            if id(call) in self._on_their_way:
                self._on_their_way[id(call)] = known
        return known

    def remember(self, call: Call) -> None:
        """Keep the request of `call` from its first use on. `forget` must follow once it is answered."""
        self._on_their_way[id(call)] = None

    def forget(self, call: Call) -> None:
        """Forget the request of `call`, which was answered."""
        self._on_their_way.pop(id(call), None)  # the same object may be on its way twice


def in_order(value: Any) -> Any:
    """Return `value` with the keys of all objects sorted."""
    if isinstance(value, dict):
        return {name: in_order(value[name]) for name in sorted(value)}
    return [in_order(item) for item in value] if isinstance(value, list | tuple) else value


def _normalised(arguments: str) -> str:
    """Return a tool's arguments with sorted keys and no extra spaces."""
    try:
        return json.dumps(json.loads(arguments), sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):  # the tool will report it
        return arguments


def _plain(name: str, value: Any) -> Any:
    """Return a normalised setting: 1.0 and numpy's 1 become 1."""
    if type(value).__module__ == "numpy" and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"The setting {name!r} must be finite: got {value}.")
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {key: _plain(name, value[key]) for key in sorted(value)}
    return [_plain(name, item) for item in value] if isinstance(value, list | tuple) else value


def differences(request: Request, stored: Request) -> list[str]:
    """Describe the fields in which two requests differ, with both values from where they differ."""
    found = []
    for name in request.__struct_fields__:
        here, there = (repr(getattr(one, name)) for one in (request, stored))
        if name != "messages" and here != there:
            same = common_length(here, there)
            found.append(f"{name}: {_from(here, same)} here, {_from(there, same)} there")
    return found


def _from(text: str, place: int, most: int = 120) -> str:
    """Return a text, or the part of a long one that begins shortly before a place."""
    start = max(place - 40, 0) if len(text) > most else 0
    cut = text[start : start + most]
    return f"{'…' if start else ''}{cut}{'…' if start + most < len(text) else ''}"
