"""Cache keys, which determine whether two calls are the same request.

A key depends on everything that can change a reply, and on nothing else. A rerun therefore finds its
replies whatever its timeouts, limits and library versions are, while two models, two sample indices or two
lists of tools never share a key. Without the sample index, all candidates of a tree search would be the same
text.

The samples of a request have neighbouring keys, so that a database writes them to the same pages. A key is
`HASH:REPEAT:ATTEMPT:SAMPLE`, where `HASH` is of everything else.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import msgspec

from tot_lab.core.calls import Call, Message
from tot_lab.core.reading.values import common_length
from tot_lab.core.tools import TOOL

SCHEMA = 1
"""Version of the cache keys and entries. Increment it if a change gives the same request another key."""


class Request(
    msgspec.Struct,
    frozen=True,
    dict=True,
    omit_defaults=True,
    rename={"sample_index": "draw"},  # the name in the JSON that is hashed
):
    """A call as the cache stores it.

    It has the fields of `Call` that can change the reply, and in `model` the identity of the endpoint with
    sorted keys.
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
    alternatives: int | None = None  # `None` is omitted, so that keys of earlier versions stay valid

    @cached_property
    def of_any_sample(self) -> str:
        """The beginning of the keys of all samples, attempts and repeats: a 160-bit hash in hex. The order of
        properties in schemas and tools changes it, since a model sees that order.
        """
        shared = _encoded(msgspec.structs.replace(self, sample_index=0, attempt=(), repeat=0))
        return hashlib.blake2b(shared, digest_size=20).hexdigest()

    @cached_property
    def key(self) -> str:
        """The key of the reply in the cache."""
        return self.key_of(self)

    def key_of(self, sample: Call | Request) -> str:
        """Return the key of `sample`. It may differ from this request in sample index, attempt and repeat."""
        attempt = ".".join(map(str, sample.attempt))
        return f"{self.of_any_sample}:{sample.repeat}:{attempt}:{sample.sample_index}"

    def of_sample(self, call: Call) -> Request:
        """Return the request of `call`. It may differ from this one in sample index, attempt and repeat."""
        request = msgspec.structs.replace(
            self, sample_index=call.sample_index, attempt=call.attempt, repeat=call.repeat
        )
        request.__dict__.update(of_any_sample=self.of_any_sample, key=self.key_of(call))
        return request


_encoded = msgspec.json.Encoder().encode


def request_of(call: Call, model: dict[str, Any]) -> Request:
    """Return the request of `call` to the model with the identity `model`.

    The request of a tool call has only the arguments, since the result depends neither on the caller nor on
    the sample index.

    Raises:
        ValueError: If one of the options is infinite or NaN, which JSON cannot hold.
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
    """Builds the requests of calls to one model.

    Args:
        model: The identity of the model, with sorted keys.
    """

    def __init__(self, model: dict[str, Any]) -> None:
        self.model = model
        self._known: dict[int, Request] = {}

    def __call__(self, call: Call) -> Request:
        """Return the request of `call`."""
        return self._known.get(id(call)) or request_of(call, self.model)

    @contextmanager
    def remembered(self, calls: Sequence[Call]) -> Iterator[None]:
        """Build the requests of `calls`, samples of one request, once for the whole block."""
        first = self._known[id(calls[0])] = request_of(calls[0], self.model)
        for call in calls[1:]:
            self._known[id(call)] = first.of_sample(call)
        try:
            yield
        finally:
            for call in calls:
                self._known.pop(id(call), None)  # gone if another block had the same `Call`


def shortened(key: str) -> str:
    """Return `key` with only the beginning of its hash, for messages."""
    hash, colon, sample = key.partition(":")
    return f"{hash[:12]}…{colon}{sample}"


def in_order(value: Any) -> Any:
    """Return `value` with the keys of all dicts in it sorted. Tuples become lists."""
    if isinstance(value, dict):
        return {name: in_order(value[name]) for name in sorted(value)}
    return [in_order(item) for item in value] if isinstance(value, list | tuple) else value


def _normalised(arguments: str) -> str:
    """Return a tool's arguments as JSON with sorted keys and no extra spaces, or unchanged if they are not
    JSON.
    """
    try:
        return json.dumps(json.loads(arguments), sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):  # the tool will report the error
        return arguments


def _plain(name: str, value: Any) -> Any:
    """Return an option in its normal form: 1.0 and numpy's 1 become 1, and dicts are sorted by key."""
    if type(value).__module__ == "numpy" and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"The option {name!r} must be finite: got {value}.")
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {key: _plain(name, value[key]) for key in sorted(value)}
    return [_plain(name, item) for item in value] if isinstance(value, list | tuple) else value


def differences(request: Request, stored: Request) -> list[str]:
    """Describe each field but the messages in which two requests differ: both values, near the difference."""
    found = []
    for name in request.__struct_fields__:
        here, there = (repr(getattr(one, name)) for one in (request, stored))
        if name != "messages" and here != there:
            same = common_length(here, there)
            found.append(f"{name}: {_from(here, same)} here, {_from(there, same)} there")
    return found


def _from(text: str, place: int, most: int = 120) -> str:
    """Return `text` or, if it is longer than `most`, that many characters from 40 before index `place`."""
    start = max(place - 40, 0) if len(text) > most else 0
    cut = text[start : start + most]
    return f"{'…' if start else ''}{cut}{'…' if start + most < len(text) else ''}"
