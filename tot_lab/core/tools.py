"""Tools as a strategy sees them: what there is, and how one is called.

Rule: a tool call is a `Call` of the kind `tool`, and what the tool gives is its `Reply`. So it is
recorded, resumed, replayed and refused as a model call is, and costs no model call. A strategy
knows a tool by its `ToolSpec` alone; what carries it out belongs to the lab.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
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
"""The kind of a call that goes to a tool, and before a colon what its `model` begins with."""


FUNCTION = "function"
"""What the `model` of a call begins with that a function of the strategy's own answers, before a colon."""

MODEL = "model"
"""The effect of a tool that has a model think."""


class ToolSpec(BaseModel):
    """What a strategy and a model know of a tool.

    name: as a model calls it, `lower-case-with-hyphens`. description: what it does and when to use it.
    parameters: a JSON schema of its arguments, an object. effects: what it changes or reaches outside
    (`network`, `process`, …), () for one that only computes. guidance: what the system prompt of an agent
    that has it says of it. used_when_named: whether a request that names it is held to it. output: whether
    it delivers the result of the work and finds nothing out.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    description: str
    parameters: dict[str, Any]
    effects: tuple[str, ...] = ()
    guidance: str = ""
    used_when_named: bool = False
    output: bool = False

    @model_serializer(mode="wrap")
    def _without_what_few_have(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = written(self)
        few = ("guidance", "used_when_named", "output")
        return {name: value for name, value in data.items() if value or name not in few}

    def is_named_in(self, text: str) -> bool:
        """Whether `text` names it: `deep-think` also as `deep_think`, `Deep Think` or `deepthink`."""
        words = "[-_ ]?".join(map(re.escape, self.name.split("-")))
        return re.search(rf"(?<![\w-]){words}(?![\w-])", text, re.IGNORECASE) is not None

    def offered(self) -> dict[str, Any]:
        """As `Call.tools` has it."""
        return {"name": self.name, "description": self.description, "parameters": self.parameters}


def tool_name(name: str) -> str:
    """A name as tools have them: `webSearch` and `web_search` are `web-search`."""
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()).strip("-")


def stored_name(name: str) -> str:
    """The name that a tool is kept by, for one written as in `tool_name` or as it is kept."""
    return name if _STORED.fullmatch(name) else tool_name(name) or name


_STORED = re.compile(r"[a-z][a-z0-9-]*+")
_QUANTITY = re.compile(r"\s*+([A-Za-z][\w-]*+)\s*+(?:[×x*]\s*+(\d{1,3}))?\s*+")


def read_quantities(wanted: Iterable[Any]) -> dict[str, int]:
    """How often each tool is to be called at least, out of words like `web-search×4` (or x4, *4; the name
    alone is once). Raises ValueError for anything else."""
    quantities: dict[str, int] = {}
    for text in wanted:
        match = _QUANTITY.fullmatch(str(text))
        if match is None or match[2] == "0":
            raise ValueError(f"{text!r} is no tool with a quantity, such as web-search×4")
        name = stored_name(match[1])
        quantities[name] = quantities.get(name, 0) + int(match[2] or 1)
    return quantities


def _in_words(wanted: Any) -> Any:
    return read_quantities(wanted) if isinstance(wanted, list | tuple) else wanted


def _by_stored_name(quantities: dict[str, int]) -> dict[str, int]:
    named = {stored_name(name): count for name, count in quantities.items()}
    if len(named) < len(quantities):
        raise ValueError(f"two names stand for the same tool: got {', '.join(quantities)}")
    return named


Quantities: TypeAlias = Annotated[
    dict[str, Annotated[int, Field(ge=1)]], BeforeValidator(_in_words), AfterValidator(_by_stored_name)
]
"""How often tools are to be called, by name (`web_search` is `web-search`); or in words, as a classifier says
it: `["web-search×4"]`."""


_PIECE = re.compile(r"[A-Za-z]{1,6}| ?[0-9]{1,3}| +|[^\x00-\x7f]|.", re.DOTALL)


def tokens_in(text: str) -> int:
    """About how many tokens `text` has. It is an estimate that needs no tokenizer: of GPT-4's it differs by
    10 to 30 %, mostly to the safe side, in prose, code, JSON, tables and scripts other than Latin, where 4
    characters a token would be wrong by up to ten times."""
    return math.ceil(sum(_tokens_in(match[0]) for match in _PIECE.finditer(text)))


def characters_within(text: str, most_tokens: int) -> int:
    """How many characters from the beginning of `text` fit into `most_tokens`, as `tokens_in` counts."""
    if 4 * len(text) <= most_tokens:
        return len(text)
    tokens = 0.0
    for match in _PIECE.finditer(text):
        tokens += _tokens_in(match[0])
        if tokens > most_tokens:
            return match.start()
    return len(text)


def _tokens_in(piece: str) -> float:
    first = piece[0]
    if not first.isascii():
        size = len(first.encode("utf-8", "replace"))
        return 3.0 if size == 4 else 0.38 * size
    if first == " ":  # a word or a sign takes one in, a number does not
        return 1.6 if piece[-1] != " " else 0.1 if len(piece) == 1 else 0.6
    return 1.0 if first.isalnum() else 0.5 if first.isspace() else 0.9


def tool_call(
    at: str, name: str, arguments: dict[str, Any] | str, draw: int = 0, max_tokens: int | None = None
) -> Call:
    """The call of the tool `name` for the thought `at`. arguments: by name, or as the JSON that a model
    wrote. draw: tells equal calls at one thought apart; it changes no answer. max_tokens: of the result
    (`characters_within`), in the place of the tool's own cap; for this call alone."""
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
    return Call(at, TOOL, (Message("user", text),), draw, model=f"{TOOL}:{name}", max_tokens=max_tokens)


def named(call: Call) -> str:
    """What a call is called where it is shown: its kind, for a tool's `tool:NAME`."""
    return call.model or TOOL if call.purpose == TOOL else call.purpose


def tool_of(call: Call) -> str | None:
    """The name of the tool or of the function that answers `call`, None for a model call."""
    return (call.model or "").partition(":")[2] if asks_no_model(call) else None


def function_call(at: str, purpose: str, name: str, arguments: str, sample_index: int = 0) -> Call:
    """A call that the function `name` of a strategy's own answers; see `core.thinking.Effect`."""
    return Call(at, purpose, (Message("user", arguments),), sample_index, model=f"{FUNCTION}:{name}")


def is_of_function(call: Call) -> bool:
    """Whether a function of the strategy's own answers `call`."""
    return call.model is not None and call.model.startswith(f"{FUNCTION}:")


def asks_no_model(call: Call) -> bool:
    """Whether a tool or a function answers `call`: it costs no model call."""
    return call.purpose == TOOL or (call.model is not None and is_of_function(call))
