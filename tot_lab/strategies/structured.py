"""Structured output: model calls whose answer is a value of a type.

The layers are applied in order: the provider's schema output, the format described in the prompt, reading and
repair, validation, and a new sample that is shown the exact error. Repairs, retries and failures are recorded
as notes on the node of the call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec
from pydantic import TypeAdapter, ValidationError

from tot_lab.core.calls import Call, Message, Reply, halts, readable, refused
from tot_lab.core.protocol import Procedure, ask
from tot_lab.core.reading.json_values import ends_open, find_json
from tot_lab.core.reading.thinking import split_thinking
from tot_lab.core.records import Note, call_failed

T = TypeVar("T")

Tier: TypeAlias = Literal["local", "mid", "large", "frontier"]
"""Capability of the model: `local` is shown one filled example and few words, `mid` the schema and an
example, `large` and `frontier` only the schema."""

RETRIES = 2
"""Default number of retries after an unusable reply."""

_ABOUT_SCHEMAS = re.compile(r"schema|response.?format|structured.?output|grammar", re.I)
_SHOWN = 4_000  # characters of an unusable reply that the model is shown again
_CUT_OFF = "the reply was cut off at its length limit, so its end is missing; write it shorter"
_CANDIDATES = 20  # JSON values in one reply that are tried
_PROBLEMS = 10  # errors of one value that the model is shown


class Structured(NamedTuple, Generic[T]):
    """The result of `ask_json`.

    Attributes:
        value: The value. `None` if no reply contained one.
        error: Why there is no value: the error of the call or of the validation.
        replies: All replies. The last one was read.
        repaired: Whether the JSON of the last reply was malformed and repaired.
        schema_refused: Whether the call failed because of the JSON schema.
        truncated: Whether the last reply was truncated, according to its server or because its JSON has no
            end.
    """

    value: T | None
    error: str | None
    replies: tuple[Reply, ...]
    repaired: bool = False
    schema_refused: bool = False
    truncated: bool = False


def calls_per_ask(retries: int = RETRIES) -> int:
    """The most model calls of one `ask_json`. Raises ValueError for a negative number of retries."""
    if retries < 0:
        raise ValueError(f"retries must be 0 or more: got {retries}.")
    return 1 + retries


def described(model_type: type[T], tier: Tier) -> str:
    """The description of the format of a reply, as `ask_json` adds it to a prompt."""
    return _form(model_type).describe(tier)


def _with_form(messages: Sequence[Message], form: str, closing: str) -> list[Message]:
    *before, last = messages
    content = "\n\n".join(filter(None, [last.content, form, closing]))
    return [*before, msgspec.structs.replace(last, content=content)]


def ask_json(
    call: Call,
    model_type: type[T] | TypeAdapter[T],
    *,
    tier: Tier = "mid",
    retries: int = RETRIES,
    schema: bool = True,
    closing: str = "",
    whole: bool = False,
) -> Procedure[Structured[T]]:
    """Make `call` for a value of `model_type`, with at most 1 + `retries` calls.

        result = yield from ask_json(self.call(at, "plan", prompt), PlanDraft)

    A failed or refused call ends the request. If the call failed because of the schema and a retry is left,
    it is repeated without the schema instead.

    Args:
        call: The call. The format of the JSON is added to its last message. Each retry is a further turn and
            the next sample.
        model_type: A pydantic model, or a TypeAdapter. Custom checks are validators of the type:
            `TypeAdapter(Annotated[PlanDraft, AfterValidator(check)])`.
        tier: Capability of the model, which decides how the format is described.
        retries: Further calls after unusable replies.
        schema: Whether to use the provider's schema output.
        closing: Text after the description of the format. Prompts that differ only here share a prefix that a
            server can cache.
        whole: Whether JSON that the length limit cut off is rejected instead of repaired.
    """
    form = _form(model_type) if isinstance(model_type, type) else _Form(model_type)
    messages = _with_form(call.messages, form.describe(tier), closing)
    native: dict[str, Any] | None = form.native if schema else None
    replies, problem = list[Reply](), ""
    for sample_index in range(call.sample_index, call.sample_index + calls_per_ask(retries)):
        where = {"kind": call.purpose, "draw": sample_index}
        if replies:
            yield Note("json.retried", call.node, {**where, "error": problem})
        sent = msgspec.structs.replace(
            call, messages=tuple(messages), sample_index=sample_index, response_format=native
        )
        reply = yield from ask(sent)
        replies.append(reply)
        if reply.error is not None:
            problem = reply.error
            over_schema = native is not None and bool(_ABOUT_SCHEMAS.search(problem)) and not refused(problem)
            if not over_schema or sample_index == call.sample_index + retries:
                yield call_failed(call.node, call.purpose, problem)
                return Structured(None, problem, tuple(replies), schema_refused=over_schema)
            native = None  # the server has no schema output; the prompt describes the format
            continue
        read, at_limit = form.read(reply.text), reply.finish_reason == "length"
        if whole and at_limit and (not isinstance(read, _Value) or read.repaired):
            read = _CUT_OFF
        if isinstance(read, _Value):
            if read.repaired:
                yield Note("json.repaired", call.node, {**where, "cut_off": at_limit})
            truncated = at_limit or (read.repaired and _ends_open(reply))
            return Structured(read.value, None, tuple(replies), read.repaired, truncated=truncated)
        problem = read
        shown = _cut(reply.text, _SHOWN).strip() or "(nothing)"
        messages += [Message("assistant", shown), Message("user", _again(problem))]
    yield Note("json.failed", call.node, {"kind": call.purpose, "error": problem})
    return Structured(
        None, problem, tuple(replies), truncated=reply.finish_reason == "length" or _ends_open(reply)
    )


def ask_name(
    call: Call, field: str, names: Sequence[str], read: Callable[[str], T | None]
) -> Procedure[T | str]:
    """Ask the model for one of `names`, as the JSON object {`field`: name}.

    Returns:
        What `read` reads from the reply, "" if it reads nothing, and the reason if the call failed. The
        reason is the error itself if a budget or a cancellation refused the call.
    """
    form = {
        "type": "object",
        "properties": {field: {"type": "string", "enum": list(names)}},
        "required": [field],
        "additionalProperties": False,
    }
    reply = yield from ask(msgspec.structs.replace(call, response_format=form))
    if reply.error is not None:
        yield call_failed(call.node, call.purpose, reply.error)
        return reply.error if halts(reply.error) else f"the model could not be asked: {reply.error}"
    found = read(reply.text)
    if found is None:
        yield Note("parse.unreadable", call.node, {"kind": call.purpose, "draw": 0})
    return "" if found is None else found


def read_json_as(model_type: type[T], text: str) -> T | None:
    """The first value of `model_type` in a reply, repaired if necessary. `None` if no value can be read."""
    found = _form(model_type).read(text)
    return found.value if isinstance(found, _Value) else None


def _ends_open(reply: Reply) -> bool:
    return ends_open(split_thinking(reply.text)[1])


class _Value(NamedTuple):
    value: Any
    repaired: bool


class _Form:
    """Requests and reads values of one type."""

    def __init__(self, model_type: Any) -> None:
        self._adapter = model_type if isinstance(model_type, TypeAdapter) else TypeAdapter(model_type)
        schema = _inlined(self._adapter.json_schema())
        self._wrapped = schema.get("type") != "object"  # providers require an object at the top
        if self._wrapped:
            definitions = {"$defs": schema.pop("$defs")} if "$defs" in schema else {}
            schema = {"title": "Reply", "type": "object", "properties": {"value": schema}, **definitions}
        self.native = {"title": schema.get("title", "Reply"), **_closed(schema, _NOT_TAKEN)}
        self._schema = json.dumps(_closed(schema, _NOT_SHOWN), ensure_ascii=False)
        example = json.dumps(_example(schema, "", schema.get("$defs", {}), 0), ensure_ascii=False)
        # An example given by the type shows the format, even if a custom check rejects its values.
        fits = "examples" in schema or isinstance(self.read(example), _Value)
        self._example = example if fits else None

    def describe(self, tier: Tier) -> str:
        """The prompt text that describes the format."""
        if tier == "local" and self._example:
            return f"Reply with JSON and nothing else, in the form of this example:\n{self._example}"
        request = f"Reply with one JSON object that fits this schema, and nothing else:\n{self._schema}"
        if tier == "mid" and self._example:
            request += f"\n\nAn example of its form:\n{self._example}"
        return request

    def read(self, text: str) -> _Value | str:
        """The first value in a reply that validates, or an error text about the longest candidate."""
        longest, problem = -1, "there is no JSON in the reply"
        for found in islice(find_json(split_thinking(text)[1]), _CANDIDATES):
            try:
                return _Value(self._validated(found.value), found.repaired)
            except ValueError as error:  # or pydantic's ValidationError, its subclass
                if found.end - found.start > longest:
                    longest, problem = found.end - found.start, _in_words(error)
        return readable(problem)

    def _validated(self, value: Any) -> Any:
        if self._wrapped and isinstance(value, dict) and value.keys() == {"value"}:
            value = value["value"]
        # Validated as JSON, so that a strict type accepts a list for a tuple. `readable` replaces lone
        # surrogates, for which the whole value would be rejected.
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        return self._adapter.validate_json(readable(text))


_form: Callable[[Any], _Form] = lru_cache(maxsize=128)(_Form)  # building one takes milliseconds


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


# JSON schemas for providers and prompts.

_NOT_SHOWN = frozenset({"title", "default", "examples", "discriminator"})
_NOT_TAKEN = _NOT_SHOWN | {
    "format",
    "minLength",
    "maxLength",
    "uniqueItems",
    "minProperties",
    "maxProperties",
}
"""Keywords that OpenAI's strict mode rejects or restricts. Validation checks them instead."""
_OF_SCHEMAS = ("anyOf", "allOf", "prefixItems")
_DEEPEST = 4  # levels in the example of a recursive type


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """`schema` without references. A recursive type keeps the references below its top level."""
    definitions = schema.get("$defs", {})
    top = {word: part for word, part in schema.items() if word != "$defs"}
    try:
        whole: dict[str, Any] = _expanded(top, definitions, ())
    except RecursionError:
        name = top.pop("$ref", "").rpartition("/")[2]
        whole = {**definitions.get(name, {}), **top, "$defs": definitions}
    return whole


def _expanded(part: Any, definitions: dict[str, Any], inside: tuple[str, ...]) -> Any:
    """Inline references. Raises RecursionError for a recursive type."""
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
    """`schema` with all properties required and no additional ones, as strict modes demand, and without the
    keywords in `without`."""
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
    """An example of `schema`, in which each text is the description of its field. It may violate patterns."""
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
