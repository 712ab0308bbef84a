"""Structured output: a question whose answer is a value of a type.

Rule: in layers, each for what the one before it lets through. The provider's own schema output where it
has it; the form in the prompt, fitted to the model; reading and repair; validation; and a new draw that is
shown the exact error. What was repaired, asked again or given up is a note on the thought that asked.
(Reactive Agents, "structured output".)
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache
from itertools import islice
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec
from pydantic import TypeAdapter, ValidationError

from tot_lab.core.calls import Call, Message, Reply, readable, refused
from tot_lab.core.reading import ends_open, find_json, split_thinking
from tot_lab.core.records import Note
from tot_lab.core.thinking import Thinking, ask

T = TypeVar("T")

Tier: TypeAlias = Literal["local", "mid", "large", "frontier"]
"""How much a model makes of a prompt: `local` is shown one filled example and few words, `mid` the schema
and an example, `large` and `frontier` the schema alone."""

RETRIES = 2
"""How often an unusable reply is asked for again (`maxRetries`)."""

_ABOUT_SCHEMAS = re.compile(r"schema|response.?format|structured.?output|grammar", re.I)
_SHOWN = 4_000  # characters of an unusable reply that the model is shown again
_CANDIDATES = 20  # JSON values in one reply that are tried
_PROBLEMS = 10  # of one value that are told


class Structured(NamedTuple, Generic[T]):
    """What came of asking for a value.

    value: it, None when there is none. error: why there is none, in the call's words or the validation's.
    replies: all of them; the last is the one that was read. repaired: its JSON was badly written.
    schema_refused: the call failed over the schema that the provider was given. truncated: the last reply was
    cut off, as its server says, or as its JSON shows, which lacks its end.
    """

    value: T | None
    error: str | None
    replies: tuple[Reply, ...]
    repaired: bool = False
    schema_refused: bool = False
    truncated: bool = False


def calls_per_ask(retries: int = RETRIES) -> int:
    """The most model calls that one `ask_json` makes. Raises ValueError for fewer than no retries."""
    if retries < 0:
        raise ValueError(f"retries is {retries}; it must be 0 or more")
    return 1 + retries


def ask_json(
    call: Call,
    model_type: type[T] | TypeAdapter[T],
    *,
    tier: Tier = "mid",
    retries: int = RETRIES,
    schema: bool = True,
    closing: str = "",
) -> Thinking[Structured[T]]:
    """Ask `call` for a value of `model_type`: a pydantic model, or whatever a TypeAdapter takes. 1 + retries
    calls at most. A call that fails or is refused ends it, unless it failed over the schema: then the next
    goes without one, as all do with `schema=False`.

        result = yield from ask_json(self.call(at, "plan", prompt), PlanDraft)

    The form of the JSON is added to the last message of `call`, and after it `closing`: what tells the call
    from its siblings, so that a server can reuse all that stands before. Each retry is a further turn and the
    next draw. A check of one's own is a validator of the type:
    `TypeAdapter(Annotated[PlanDraft, AfterValidator(check)])`.
    """
    form = _form(model_type) if isinstance(model_type, type) else _Form(model_type)
    *before, last = call.messages
    content = "\n\n".join(filter(None, [last.content, form.told(tier), closing]))
    messages = [*before, msgspec.structs.replace(last, content=content)]
    native: dict[str, Any] | None = form.native if schema else None
    replies: list[Reply] = []
    problem = ""
    for draw in range(call.sample_index, call.sample_index + calls_per_ask(retries)):
        where = {"kind": call.purpose, "draw": draw}
        if replies:
            yield Note("json.retried", call.node, {**where, "error": problem})
        asked = msgspec.structs.replace(
            call, messages=tuple(messages), sample_index=draw, response_format=native
        )
        reply = yield from ask(asked)
        replies.append(reply)
        if reply.error is not None:
            problem = reply.error
            over_schema = native is not None and bool(_ABOUT_SCHEMAS.search(problem)) and not refused(problem)
            if not over_schema or draw == call.sample_index + retries:
                yield Note("call.failed", call.node, {"kind": call.purpose, "error": problem})
                return Structured(None, problem, tuple(replies), schema_refused=over_schema)
            native = None  # a server that has no schema output; the prompt says it all
            continue
        read = form.read(reply.text)
        if isinstance(read, _Value):
            if read.repaired:
                yield Note("json.repaired", call.node, {**where, "cut_off": reply.finish_reason == "length"})
            truncated = reply.finish_reason == "length" or (read.repaired and _ends_open(reply))
            return Structured(read.value, None, tuple(replies), read.repaired, truncated=truncated)
        problem = read
        shown = _cut(reply.text, _SHOWN).strip() or "(nothing)"
        messages += [Message("assistant", shown), Message("user", _again(problem))]
    yield Note("json.failed", call.node, {"kind": call.purpose, "error": problem})
    return Structured(
        None, problem, tuple(replies), truncated=reply.finish_reason == "length" or _ends_open(reply)
    )


def read_json_as(model_type: type[T], text: str) -> T | None:
    """The first value of `model_type` in a reply, repaired where need be; `None` if there is none."""
    found = _form(model_type).read(text)
    return found.value if isinstance(found, _Value) else None


def _ends_open(reply: Reply) -> bool:
    return ends_open(split_thinking(reply.text)[1])


class _Value(NamedTuple):
    value: Any
    repaired: bool


class _Form:
    """How a type is asked for, and read."""

    def __init__(self, model_type: Any) -> None:
        self._adapter = model_type if isinstance(model_type, TypeAdapter) else TypeAdapter(model_type)
        schema = _inlined(self._adapter.json_schema())
        self._wrapped = schema.get("type") != "object"  # providers take nothing else at the top
        if self._wrapped:
            definitions = {"$defs": schema.pop("$defs")} if "$defs" in schema else {}
            schema = {"title": "Reply", "type": "object", "properties": {"value": schema}, **definitions}
        self.native = {"title": schema.get("title", "Reply"), **_closed(schema, _NOT_TAKEN)}
        self._schema = json.dumps(_closed(schema, _NOT_SHOWN), ensure_ascii=False)
        example = json.dumps(_example(schema, "", schema.get("$defs", {}), 0), ensure_ascii=False)
        # One that the type itself gives shows its form, even where a check of one's own refuses it.
        fits = "examples" in schema or isinstance(self.read(example), _Value)
        self._example = example if fits else None

    def told(self, tier: Tier) -> str:
        """What a prompt says of it."""
        if tier == "local" and self._example:
            return f"Reply with JSON and nothing else, in the form of this example:\n{self._example}"
        asked = f"Reply with one JSON object that fits this schema, and nothing else:\n{self._schema}"
        if tier == "mid" and self._example:
            asked += f"\n\nAn example of its form:\n{self._example}"
        return asked

    def read(self, text: str) -> _Value | str:
        """The value in a reply, or in words why there is none. The first that fits is taken; why none does,
        is told of the longest, which was meant."""
        longest, problem = -1, "there is no JSON in the reply"
        for found in islice(find_json(split_thinking(text)[1]), _CANDIDATES):
            try:
                return _Value(self._validated(found.value), found.repaired)
            except ValueError as error:  # pydantic's too
                if found.end - found.start > longest:
                    longest, problem = found.end - found.start, _in_words(error)
        return readable(problem)

    def _validated(self, value: Any) -> Any:
        if self._wrapped and isinstance(value, dict) and value.keys() == {"value"}:
            value = value["value"]
        # As JSON, so that a list is taken for a tuple where the type is strict. It has no infinity, and
        # readable, since for one lone surrogate the whole would be refused.
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        return self._adapter.validate_json(readable(text))


_form: Callable[[Any], _Form] = lru_cache(maxsize=128)(_Form)  # to make one takes milliseconds


def _in_words(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    lines = []
    for problem in error.errors(include_url=False, include_context=False)[:_PROBLEMS]:
        where = ".".join(map(str, problem["loc"])) or "the whole"
        given = "" if problem["type"] == "missing" else f" (it is {_cut(repr(problem['input']), 100)})"
        lines.append(f"{where}: {problem['msg']}{given}")
    if error.error_count() > _PROBLEMS:
        lines.append(f"and {error.error_count() - _PROBLEMS} more")
    return "\n".join(lines)


def _again(problem: str) -> str:
    return f"That cannot be used:\n{problem}\n\nReply again, with the whole JSON corrected and nothing else."


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


# The schema of a type, as providers and prompts have it.

_NOT_SHOWN = frozenset({"title", "default", "examples", "discriminator"})
_NOT_TAKEN = _NOT_SHOWN | {
    "format",
    "minLength",
    "maxLength",
    "uniqueItems",
    "minProperties",
    "maxProperties",
}
"""Words that OpenAI's strict mode refuses, or takes for some values only; validation sees to them."""
_OF_SCHEMAS = ("anyOf", "allOf", "prefixItems")
_DEEPEST = 4  # levels of an example of a type that holds itself


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """`schema` without references; a type that holds itself keeps them, below its top."""
    definitions = schema.get("$defs", {})
    top = {word: part for word, part in schema.items() if word != "$defs"}
    try:
        whole: dict[str, Any] = _expanded(top, definitions, ())
    except RecursionError:
        name = top.pop("$ref", "").rpartition("/")[2]
        whole = {**definitions.get(name, {}), **top, "$defs": definitions}
    return whole


def _expanded(part: Any, definitions: dict[str, Any], inside: tuple[str, ...]) -> Any:
    """Raises RecursionError for a type that holds itself."""
    if isinstance(part, list):
        return [_expanded(item, definitions, inside) for item in part]
    if not isinstance(part, dict):
        return part
    if isinstance(part.get("$ref"), str):
        name = part["$ref"].rpartition("/")[2]
        if name in inside:
            raise RecursionError(name)
        beside = {word: item for word, item in part.items() if word != "$ref"}
        return {**_expanded(definitions[name], definitions, (*inside, name)), **beside}
    return {word: _expanded(item, definitions, inside) for word, item in part.items()}


def _closed(schema: Any, without: frozenset[str]) -> Any:
    """`schema` with objects that have all their properties and no other, as strict modes want them."""
    if not isinstance(schema, dict):
        return schema
    made: dict[str, Any] = {}
    for word, part in schema.items():
        word = "anyOf" if word == "oneOf" else word
        if word in without:
            continue
        if word in ("properties", "$defs"):
            made[word] = {name: _closed(item, without) for name, item in part.items()}
        elif word in _OF_SCHEMAS:
            made[word] = [_closed(item, without) for item in part]
        else:
            made[word] = _closed(part, without) if word in ("items", "additionalProperties") else part
    if "properties" in made:
        made = {"additionalProperties": False, **made, "required": list(made["properties"])}
    return made


def _example(schema: dict[str, Any], name: str, definitions: dict[str, Any], depth: int) -> Any:
    """A value of `schema`, whose texts say what they stand for. It need not be one: there are patterns."""
    if "$ref" in schema:
        schema = {**definitions.get(schema["$ref"].rpartition("/")[2], {}), **schema}
    for word in ("examples", "enum"):
        if schema.get(word):
            return schema[word][0]
    for word in ("const", "default"):
        if schema.get(word) not in (None, "", [], {}):
            return schema[word]
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        last = depth >= _DEEPEST and {"type": "null"} in choices
        return None if last else _example(choices[0], name, definitions, depth)
    kind = schema.get("type")
    if kind == "object":
        properties = schema.get("properties", {})
        return {key: _example(part, key, definitions, depth + 1) for key, part in properties.items()}
    if kind == "array":
        first = schema.get("prefixItems")
        least = schema.get("minItems", 0)
        if first is not None:
            return [_example(part, name, definitions, depth + 1) for part in first]
        count = least if depth >= _DEEPEST else max(least, 1)
        return [_example(schema.get("items", {}), name, definitions, depth + 1) for _ in range(min(count, 3))]
    if kind in ("integer", "number"):
        return _number(schema, whole=kind == "integer")
    if kind in ("boolean", "null"):
        return True if kind == "boolean" else None
    words = schema.get("description") or f"the {name.replace('_', ' ')}".strip()
    return str(words)[: schema.get("maxLength")].ljust(schema.get("minLength", 0), ".")


def _number(schema: dict[str, Any], *, whole: bool) -> float:
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    if low is not None and high is not None:
        middle = (low + high) / 2
    else:
        middle = low + 1 if low is not None else high - 1 if high is not None else 1
    return int(middle) if whole else float(middle)
