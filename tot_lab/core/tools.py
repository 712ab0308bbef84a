"""Tools as a strategy sees them: their specifications, and how they are called.

A tool call is a `Call` with the purpose `tool`, and the tool's result is its `Reply`. It is therefore
recorded, resumed, replayed and refused like a model call, but budgets do not count it. A strategy knows only
the `ToolSpec` of a tool; the lab runs the tool.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Annotated, Any, TypeAlias

import msgspec
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from tot_lab.core.calls import Call, Message

TOOL = "tool"
"""The purpose of a tool call. Its `model` is `tool:NAME`."""

FUNCTION = "function"
"""Prefix of the `model`, `function:NAME`, of calls that a Python function of the strategy answers instead of
a model.
"""

TOOL_LIMITS = ("timeout", "retries", "backoff")
"""Settings of a tool that a call may replace, in its `options`."""

MODEL = "model"
"""The effect of a tool that calls a model."""


class ToolSpec(BaseModel):
    """The description of a tool for strategies and models."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    """Name by which a model calls it, `lower-case-with-hyphens`."""

    description: str
    """Description for the model: what the tool does and when to use it."""

    parameters: dict[str, Any]
    """JSON schema of its arguments, an object."""

    effects: tuple[str, ...] | None = ()
    """What it reads or changes outside the process (`network`, `files`, …). Empty for a tool that only
    computes. `None` if its effects are not declared.
    """

    guidance: str = ""
    """Text about the tool in the system prompt of an agent that has it."""

    used_when_named: bool = False
    """Whether an agent must call it if the task requests it by name; see `is_requested_in`."""

    output: bool = False
    """Whether it delivers the result of the work instead of finding something out."""

    aliases: tuple[str, ...] = ()
    """Further names by which it can be called; see `names_of`."""

    @model_serializer(mode="wrap")
    def _without_what_few_have(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = written(self)
        few = ("guidance", "used_when_named", "output", "aliases")
        return {name: value for name, value in data.items() if value or name not in few}

    def has_effect(self, effect: str) -> bool:
        """Whether the tool declares `effect`."""
        return effect in (self.effects or ())

    @property
    def takes_one_text(self) -> bool:
        """Whether the only required argument is a free text, and any others are optional."""
        required = self.parameters.get("required", [])
        if len(required) != 1:
            return False
        schema = self.parameters.get("properties", {}).get(required[0], {})
        return schema.get("type") == "string" and not {"enum", "const", "format", "pattern"} & schema.keys()

    def is_requested_in(self, text: str) -> bool:
        """Whether `text` requests the tool by its name. `deep-think` is also matched as `deep_think`, `Deep
        Think` or `deepthink`. A name in a code block, directly before a parenthesis, or in a sentence with a
        negation is no request.
        """
        words = "[-_ ]?".join(map(re.escape, self.name.split("-")))
        name = re.compile(rf"(?<![\w.-]){words}(?![\w(-]|\.\w)", re.IGNORECASE)
        sentences = _END_OF_SENTENCE.split(_CODE_BLOCK.sub("\n", text))
        return any(name.search(sentence) and not _NEGATION.search(sentence) for sentence in sentences)

    def offered(self) -> dict[str, Any]:
        """The tool as an entry of `Call.tools`."""
        return {"name": self.name, "description": self.description, "parameters": self.parameters}


_CODE_BLOCK = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_END_OF_SENTENCE = re.compile(r"[.!?](?=\s)|[;\n]| but ")
_NEGATION = re.compile(
    r"\b(?:not|cannot|never|no|without|avoid|instead of|rather than|except|neither|nor|forbid\w*)\b|n['’]t\b",
    re.IGNORECASE,
)


def tool_name(name: str) -> str:
    """Normalise a name: `webSearch` and `web_search` become `web-search`."""
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()).strip("-")


def names_of(tools: Iterable[ToolSpec]) -> dict[str, str]:
    """Map each name and alias of the tools, normalised by `tool_name`, to the name of the tool.

    An alias that is the name of another tool is left out.
    """
    specs = list(tools)
    aliases = {tool_name(alias): tool.name for tool in specs for alias in tool.aliases}
    return {**aliases, **{tool_name(tool.name): tool.name for tool in specs}}


def stored_name(name: str) -> str:
    """The name of a tool as records store it: normalised by `tool_name`, unless nothing would be left."""
    return name if _STORED.fullmatch(name) else tool_name(name) or name


_STORED = re.compile(r"[a-z][a-z0-9-]*+")
_QUANTITY = re.compile(r"\s*+([A-Za-z][\w-]*+)\s*+(?:[×x*]\s*+(\d{1,3}))?\s*+")


def read_quantities(wanted: Iterable[Any]) -> dict[str, int]:
    """The required number of calls per tool, from texts such as `web-search×4` (or x4, *4; a name alone means
    1).

    Raises:
        ValueError: For any other text.
    """
    quantities: dict[str, int] = {}
    for text in wanted:
        match = _QUANTITY.fullmatch(str(text))
        if match is None or match[2] == "0":
            raise ValueError(f"expected a tool with a quantity, such as web-search×4: got {text!r}.")
        name = stored_name(match[1])
        quantities[name] = quantities.get(name, 0) + int(match[2] or 1)
    return quantities


def _in_words(wanted: Any) -> Any:
    return read_quantities(wanted) if isinstance(wanted, list | tuple) else wanted


def _by_stored_name(quantities: dict[str, int]) -> dict[str, int]:
    named = dict[str, str]()
    for name in quantities:
        if (other := named.setdefault(stored_name(name), name)) != name:
            raise ValueError(f"{other!r} and {name!r} name the same tool. Give one of them.")
    return {stored: quantities[name] for stored, name in named.items()}


Quantities: TypeAlias = Annotated[
    dict[str, Annotated[int, Field(ge=1)]], BeforeValidator(_in_words), AfterValidator(_by_stored_name)
]
"""Required number of calls by tool name (`web_search` is `web-search`), or a list: `["web-search×4"]`."""


_PIECE = re.compile(r"[A-Za-z]{1,6}| ?[0-9]{1,3}| +|[^\x00-\x7f]|.", re.DOTALL)


def tokens_in(text: str) -> int:
    """Estimate the number of tokens in `text` without a tokenizer.

    The estimate differs from GPT-4's count by 10 to 30 %, mostly upwards, for prose, code, JSON, tables and
    non-Latin scripts. Four characters per token would be wrong by up to a factor of ten.
    """
    return math.ceil(sum(map(_tokens_in, _PIECE.findall(text))))


def characters_within(text: str, max_tokens: int) -> int:
    """The number of characters from the start of `text` that fit into `max_tokens`, as counted by
    `tokens_in`.
    """
    if 4 * len(text) <= max_tokens:
        return len(text)
    tokens = 0.0
    for match in _PIECE.finditer(text):
        tokens += _tokens_in(match[0])
        if tokens > max_tokens:
            return match.start()
    return len(text)


@lru_cache(maxsize=8192)
def _tokens_in(piece: str) -> float:
    first = piece[0]
    if not first.isascii():
        size = len(first.encode("utf-8", "replace"))
        return 3.0 if size == 4 else 0.38 * size
    if first == " ":  # tokenizers merge a space into the following word or sign, but not into a number
        return 1.6 if piece[-1] != " " else 0.1 if len(piece) == 1 else 0.6
    return 1.0 if first.isalnum() else 0.5 if first.isspace() else 0.9


def tool_call(
    node: str,
    name: str,
    arguments: dict[str, Any] | str,
    sample_index: int = 0,
    max_tokens: int | None = None,
    limits: Mapping[str, float | None] | None = None,
) -> Call:
    """A call of the tool `name` for the thought `node`.

    Args:
        arguments: By name, or as the JSON that a model wrote.
        sample_index: Distinguishes equal calls at one thought. It does not change the result.
        max_tokens: Maximum tokens of this result (`characters_within`), in place of the tool's own limit.
        limits: `timeout`, `retries` and `backoff` in place of the tool's own. `None` keeps the tool's own.
            They do not change the cache key.
    """
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
    return Call(
        node,
        TOOL,
        (Message("user", text),),
        sample_index,
        model=f"{TOOL}:{name}",
        max_tokens=max_tokens,
        options={limit: value for limit, value in (limits or {}).items() if value is not None},
    )


def named(call: Call) -> str:
    """The name by which a call is displayed: its purpose, or `tool:NAME` for a tool call."""
    return call.model or TOOL if call.purpose == TOOL else call.purpose


def tool_of(call: Call) -> str | None:
    """The name of the tool or function that answers `call`. `None` for a model call."""
    return (call.model or "").partition(":")[2] if asks_no_model(call) else None


def function_call(at: str, purpose: str, name: str, arguments: str, sample_index: int = 0) -> Call:
    """A call that the Python function `name` of the strategy answers. See `core.protocol.Effect`."""
    return Call(at, purpose, (Message("user", arguments),), sample_index, model=f"{FUNCTION}:{name}")


def is_of_function(call: Call) -> bool:
    """Whether a function of the strategy answers `call`."""
    return call.model is not None and call.model.startswith(f"{FUNCTION}:")


def asks_no_model(call: Call) -> bool:
    """Whether a tool or a function answers `call`, so that it does not count as a model call."""
    return call.purpose == TOOL or (call.model is not None and is_of_function(call))
