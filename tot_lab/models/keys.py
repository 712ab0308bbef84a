"""What makes two calls the same question.

Rule: the key holds everything that can change an answer, and nothing else. So a rerun finds its
answers whatever its timeouts, limits and library versions are, and two endpoints, two draws or
two tool lists never share one. The k-th sample of a prompt is (prompt, settings, k): a cache that
forgot k would make all candidates of a tree search the same text.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any, Literal

import msgspec

from tot_lab.core.calls import Call, Message
from tot_lab.core.tools import TOOL

SCHEMA = 1
"""Of keys and entries; a change of either makes a new one."""

DrawScope = Literal["state", "path"]
"""Whether two thoughts that come to the same prompt share its draws (state) or not (path)."""


class Request(
    msgspec.Struct,
    frozen=True,
    gc=False,
    omit_defaults=True,
    rename={"node": "at", "sample_index": "draw"},  # the names that keys are made of
):
    """A call as the cache knows it: the fields of `Call` that can change its answer, and `model`,
    the identity of the model and its endpoint, `in_order`. `node` is there under the draw scope `path`
    alone."""

    schema: int
    model: dict[str, Any]
    messages: tuple[Message, ...]
    sample_index: int = 0
    attempt: tuple[int, ...] = ()
    repeat: int = 0
    node: str = ""
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


_encoded = msgspec.json.Encoder().encode


def request_of(call: Call, model: dict[str, Any], draws: DrawScope = "state") -> Request:
    """`call` as a question to the model of that identity. A setting that JSON cannot hold is a
    ValueError that names it. A tool gives the same whoever calls it, and however often."""
    if call.purpose == TOOL:
        return Request(SCHEMA, model, (Message("user", _in_one_form(call.prompt)),))
    return Request(
        SCHEMA,
        model,
        call.messages,
        call.sample_index,
        call.attempt,
        call.repeat,
        call.node if draws == "path" else "",
        None if call.temperature is None else float(call.temperature) + 0.0,  # 0, 0.0 and -0.0 are one
        call.max_tokens,
        call.stop,
        call.seed,
        call.response_format,
        call.logprobs,
        call.tools,
        call.tool_choice,
        call.effort,
        {name: _plain(name, call.options[name]) for name in sorted(call.options)} if call.options else {},
    )


def key_of(request: Request) -> str:
    """The key of `request`: sha256 of its JSON, in hex. The fields stand in one order; inside a schema
    or a tool the order of properties is kept, since a model writes them in it."""
    return hashlib.sha256(_encoded(request)).hexdigest()


def in_order(value: Any) -> Any:
    """`value` with the names of its objects sorted."""
    if isinstance(value, dict):
        return {name: in_order(value[name]) for name in sorted(value)}
    return [in_order(item) for item in value] if isinstance(value, list | tuple) else value


def _in_one_form(arguments: str) -> str:
    """A tool's arguments, whatever order and spaces they were written in."""
    try:
        return json.dumps(json.loads(arguments), sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):  # the tool says so
        return arguments


def _plain(name: str, value: Any) -> Any:
    """A setting in one form: 1.0 and numpy's 1 are 1."""
    if type(value).__module__ == "numpy" and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"the setting {name!r} is {value}")
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {key: _plain(name, value[key]) for key in sorted(value)}
    return [_plain(name, item) for item in value] if isinstance(value, list | tuple) else value


def differences(asked: Request, stored: Request) -> list[str]:
    """The fields in which two requests differ, each with both values."""
    return [
        f"{name}: {_short(getattr(asked, name))} here, {_short(getattr(stored, name))} there"
        for name in asked.__struct_fields__
        if name != "messages" and getattr(asked, name) != getattr(stored, name)
    ]


def _short(value: object, most: int = 120) -> str:
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}…"
