"""Shared code of the importers: reading JSON, chat messages in several dialects, and making a run."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tot_lab.core.calls import Message, Reply, ToolCall, is_token_count
from tot_lab.core.files import open_regular, read_regular
from tot_lab.core.parquet import MAGIC, parquet_rows
from tot_lab.core.reading.values import finite
from tot_lab.core.task import Task, make_task
from tot_lab.record.journal import JournalError
from tot_lab.record.nodes import LoggedCall, LoggedEnd, LoggedNode, run_of_nodes
from tot_lab.record.run import Run

ROOT = "question"
"""The id of the node with the question. Other nodes keep the ids that they have in the log."""

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

T = TypeVar("T")


# JSON.


_MARK = b"\xef\xbb\xbf"
"""The byte order mark that some tools write at the start of a file."""


def contents(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a file without a byte order mark."""
    return read_regular(path).removeprefix(_MARK)


def lines(path: str | os.PathLike[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the place (`FILE, line NUMBER`, for error messages) and the text of each non-blank line."""
    with open_regular(path) as file:
        for number, line in enumerate(file, 1):
            text = line if number > 1 else line.removeprefix(_MARK)
            if text and not text.isspace():
                yield f"{path}, line {number}", text


def decoded(data: bytes | msgspec.Raw, type: type[T], place: str) -> T:
    """Decode JSON. `NaN` and infinities, which are not JSON, become null.

    Raises:
        JournalError: If it is damaged or has another type. The message names the place and the field.
    """
    try:
        return msgspec.json.decode(data, type=type)
    except UNREADABLE as error:
        plain = _without_constants(data)
        if plain is None:
            raise JournalError(f"{place}: {error}") from None
    try:
        return msgspec.json.decode(plain, type=type)
    except UNREADABLE as error:
        raise JournalError(f"{place}: {error}") from None


def _without_constants(data: bytes | msgspec.Raw) -> bytes | None:
    """Return JSON with null for `NaN` and `Infinity`, which Python writes. `None` if it contains neither, or
    is damaged.
    """
    held = bytes(data)
    if b"NaN" not in held and b"Infinity" not in held:
        return None
    found: list[str] = []
    try:
        value = json.loads(held, parse_constant=found.append)
        return msgspec.json.encode(value) if found else None
    except (ValueError, RecursionError):
        return None


def entries(path: str | os.PathLike[str]) -> list[tuple[str, Any]]:
    """Return the JSON values of a file, each with its place for error messages.

    The file holds one object, a list, a list in the field `data` or `runs` of an object, one object per line,
    or objects one after the other. Each row of a Parquet file is an object, with times in ISO 8601.
    """
    data = contents(path)
    if data.startswith(MAGIC):
        return list(_rows(path))
    try:
        whole = decoded(data, Any, str(path))
    except JournalError as error:
        return list(_objects(path, data, error))
    if isinstance(whole, dict):
        held = next((whole[name] for name in ("data", "runs") if isinstance(whole.get(name), list)), [whole])
        return [(f"{path}, entry {k}", entry) for k, entry in enumerate(held, 1)]
    if not isinstance(whole, list):
        raise JournalError(f"{path}: expected objects: got {kind(whole)}.")
    return [(f"{path}, entry {k}", entry) for k, entry in enumerate(whole, 1)]


def _rows(path: str | os.PathLike[str]) -> Iterator[tuple[str, Any]]:
    try:
        for number, row in enumerate(parquet_rows(Path(path)), 1):
            yield f"{path}, row {number}", msgspec.to_builtins(row, enc_hook=str)  # for times of pandas
    except ValueError as error:
        raise JournalError(str(error)) from None


def _objects(path: str | os.PathLike[str], data: bytes, error: JournalError) -> Iterator[tuple[str, Any]]:
    """Yield the place and the value of each object in a file with one object per line, or with objects one
    after the other. `error` is raised for a file with neither.
    """
    lines = data.split(b"\n")
    first = next((line.strip() for line in lines if line.strip()), b"")
    if first[-1:] in b"}]" and len(first) > 1:
        for number, line in enumerate(lines, 1):
            if line.strip():
                place = f"{path}, line {number}"
                yield place, decoded(line, Any, place)
        return
    try:
        text = data.decode()
    except UnicodeDecodeError as found:
        raise JournalError(f"{path}: {found}") from None
    read, at, number = json.JSONDecoder(parse_constant=lambda _: None).raw_decode, 0, 0
    while (at := at + len(_SPACE.match(text, at)[0])) < len(text):  # type: ignore[index]
        number += 1
        try:
            entry, at = read(text, at)
        except (ValueError, RecursionError) as found:
            if number == 1:
                raise error from None
            raise JournalError(f"{path}, entry {number}: {found}") from None
        yield f"{path}, entry {number}", entry


_SPACE = re.compile(r"\s*")


def kind(value: Any) -> str:
    """Return the type of a value in words, such as `an object`, for error messages."""
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(
        type(value), "a number" if isinstance(value, int | float) else f"a {type(value).__name__}"
    )


def field(row: Mapping[str, Any], name: str, types: type | tuple[type, ...], default: Any = None) -> Any:
    """Return a field of an object, `default` if it is missing or null.

    Raises:
        ValueError: If it has another type. The message names the field.
    """
    value = row.get(name)
    if value is None:
        return default
    if not isinstance(value, types):
        wanted: tuple[type, ...] = types if isinstance(types, tuple) else (types,)
        shown = " or ".join(_TYPE_NAMES.get(each, "a number") for each in wanted)
        raise ValueError(f"field {name!r} must be {shown}: got {kind(value)}.")
    return value


_TYPE_NAMES: dict[type, str] = {dict: "an object", list: "a list", str: "a text"}


def seconds(value: Any, name: str) -> float | None:
    """Return a time in seconds since 1970, from a date in ISO 8601 (UTC by default) or from milliseconds.
    `None` if it is missing. Raises ValueError, which names the field `name`, for any other value."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            date = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(f"field {name!r} must be a time in ISO 8601: got {value[:80]!r}.") from None
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    number = finite(value)
    if number is None or abs(number) > _MAX_SECONDS * 1000:
        raise ValueError(f"field {name!r} must be a time: got {value!r:.80}.")
    return number / 1000


_MAX_SECONDS = 6e10  # about the year 3871


def tokens(value: Any, name: str) -> int | None:
    """Return a number of tokens. `None` if it is missing. Raises ValueError, which names the field `name`,
    for any other value.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is not None and not is_token_count(value):
        raise ValueError(f"field {name!r} must be a number of tokens: got {value!r:.80}.")
    return None if value is None else int(value)


# Messages.


_ROLES = {
    **{"human": "user", "ai": "assistant", "model": "assistant", "AIMessageChunk": "assistant"},
    **{"function": "tool", "developer": "system"},
}
_PAIRED = ("user", "assistant", "system", "tool", *_ROLES)
_ASKS = ("tool_call", "tool_use", "function_call")
_ANSWERS = ("tool_call_response", "tool_result")


def message_of(value: Any) -> Message:
    """Convert a chat message, which may be in the form of OpenAI, Anthropic, Inspect, LangChain,
    OpenInference or OpenTelemetry.

    Raises:
        ValueError: If it is not a chat message.
    """
    message = unwrapped(value)
    if not isinstance(message, dict):
        raise ValueError(f"a chat message must be an object: got {kind(message)}.")
    role = message.get("role") or message.get("type")
    if not isinstance(role, str):
        raise ValueError(f"a chat message must have a role: got the fields {', '.join(message)[:80]}.")
    content = _content(message)
    # LangChain writes the calls twice: in `tool_calls` and in the content.
    calls = field(message, "tool_calls", list, []) or _parts(content, _ASKS)
    answers = field(message, "tool_call_id", str)
    if answers is None:
        found = next(iter(_parts(content, _ANSWERS)), {})
        answers = field(found, "id", str) or field(found, "tool_use_id", str)
    text, _ = content_of(content)
    return Message(_ROLES.get(role, role), text, tuple(map(tool_call_of, calls)), answers)


def unwrapped(value: Any) -> Any:
    """Return the fields of a message that LangChain or OpenInference wraps in an object, or that LangChain
    writes as a pair of role and text."""
    if isinstance(value, list) and len(value) == 2 and value[0] in _PAIRED and isinstance(value[1], str):
        return {"role": value[0], "content": value[1]}
    while isinstance(value, dict):
        if isinstance(value.get("kwargs"), dict) and "lc" in value:
            value = value["kwargs"]
        elif isinstance(value.get("data"), dict) and isinstance(value.get("type"), str):
            value = {"type": value["type"], **value["data"]}
        elif isinstance(value.get("message"), dict) and "role" not in value:
            value = value["message"]
        else:
            break
    return value


def _content(message: Mapping[str, Any]) -> Any:
    for name in _CONTENTS:
        if (held := message.get(name)) is not None:
            return held
    return None


_CONTENTS = ("parts", "content", "contents")


def thinking_of(value: Any) -> str | None:
    """Return the reasoning in a message. `None` if it has none."""
    message = unwrapped(value)
    own = message.get("reasoning_content")
    if own is None and isinstance(about := message.get("additional_kwargs"), dict):
        own = about.get("reasoning_content")
    return own if isinstance(own, str) and own else content_of(_content(message))[1] or None


def content_of(content: Any) -> tuple[str, str]:
    """Return the text and the reasoning of a message's content: a text, or a list of parts.

    An image or another part that is not text is shown by its type: `[image]`.
    """
    if isinstance(content, str) or content is None:
        return content or "", ""
    if not isinstance(content, list):
        raise ValueError(f"the content of a chat message must be a text or a list: got {kind(content)}.")
    texts, thinking = [], []
    for part in content:
        part = _part(part)
        what = part.get("type") if isinstance(part, dict) else None
        if isinstance(part, str):
            texts.append(part)
        elif what in ("text", "output_text", "input_text"):
            text = _first_of(part, ("text", "content"))
            texts.append(text if isinstance(text, str) else "")
        elif what in ("reasoning", "thinking"):
            # Inspect keeps encrypted reasoning, with a summary that can be read.
            names = ("summary",) if part.get("redacted") else ("reasoning", "thinking", "content", "text")
            thinking += [held for name in names if isinstance(held := part.get(name), str) and held][:1]
        elif what in _ANSWERS:
            texts.append(text_of(_first_of(part, ("response", "result", "content"))))
        elif what not in _ASKS:
            texts.append(f"[{what or 'content'}]")
    return "\n\n".join(texts), "\n\n".join(thinking)


def _first_of(held: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((held[name] for name in names if held.get(name) is not None), None)


def _parts(content: Any, kinds: tuple[str, ...]) -> list[Mapping[str, Any]]:
    if not isinstance(content, list):
        return []
    parts = [part for part in content if isinstance(part, dict)]
    return [part for part in parts if _part(part).get("type") in kinds]


def _part(part: Any) -> Any:
    """Return a part of a message without the object `{"message_content": …}` in which OpenInference wraps
    it."""
    held = part.get("message_content", part) if isinstance(part, dict) else part
    return held if isinstance(held, dict) or not isinstance(part, dict) else {}


def tool_call_of(value: Any) -> ToolCall:
    """Return the call of a tool in a message. Raises ValueError if it has no name."""
    call = value.get("tool_call", value) if isinstance(value, dict) else None
    call = call if isinstance(call, dict) else {}
    function = call.get("function")
    held = function if isinstance(function, dict) else call
    name = function if isinstance(function, str) else held.get("name")
    if not isinstance(name, str):
        raise ValueError(f"a tool call must have a name: got {value!r:.80}.")
    given = _first_of(held, ("arguments", "args", "input"))
    return ToolCall(str(call.get("call_id") or call.get("id") or ""), name, arguments_of(given))


def arguments_of(value: Any) -> str:
    """Return the arguments of a tool as JSON text."""
    return value if isinstance(value, str) else json.dumps({} if value is None else value, ensure_ascii=False)


def shown(text: str, calls: Iterable[ToolCall]) -> str:
    """Return the text of a reply or, if it has none, its tool calls as text."""
    return text or "\n".join(f"{call.name}({call.arguments})" for call in calls)


# Values.


def text_of(value: Any, role: str | None = None) -> str:
    """Return the text of an input or output of a program.

    It is the content of the last message (of the last one with `role`, if that is given), the only value of
    an object, a value under a usual key (`question` of an input, `answer` of an output), or else the whole
    value as JSON.

    Args:
        value: The input or output.
        role: `user` for an input, `assistant` for an output.
    """
    for _ in range(5):
        if isinstance(value, dict):  # `unwrapped` would take a list of two texts for a message
            value = unwrapped(value)
        if isinstance(value, str):
            return value
        if value is None:
            return ""
        if isinstance(value, list):
            if not value or not all(isinstance(unwrapped(each), dict | list) for each in value):
                break
            of_role = [each for each in value if role is not None and _role(each) == role]
            value = unwrapped((of_role or value)[-1])
            continue
        if not isinstance(value, dict):
            break
        if not value.keys().isdisjoint(_CONTENTS) and ("role" in value or "type" in value):
            return content_of(_content(value))[0]
        if isinstance(value.get("messages"), list):
            value = unwrapped(value["messages"])
        elif len(value) == 1:
            value = next(iter(value.values()))
        else:
            names = _OUTPUTS if role == "assistant" else (*_INPUTS, *_OUTPUTS)
            held = next((value[name] for name in names if isinstance(value.get(name), str)), None)
            if held is None:
                break
            value = held
    return json.dumps(value, ensure_ascii=False, default=str)


_INPUTS = ("question", "input", "query", "prompt")
_OUTPUTS = ("output", "answer", "result", "response", "text")


def _role(value: Any) -> str | None:
    message = unwrapped(value)
    role = message.get("role") or message.get("type") if isinstance(message, dict) else None
    return _ROLES.get(role, role) if isinstance(role, str) else None


def json_of(text: Any) -> Any:
    """Return the value of a text that is a JSON object or list. Any other value is returned as it is."""
    if not isinstance(text, str) or text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return msgspec.json.decode(text)
    except UNREADABLE:
        return text


# Runs.


def tool_reply(name: str, result: Any, error: str | None = None) -> Reply:
    """Return the result of a tool as a reply."""
    return Reply("" if error is not None else text_of(result), error, tool=name)


def tool_call(
    name: str,
    arguments: str | None,
    reply: Reply | None,
    start: float | None = None,
    end: float | None = None,
) -> LoggedCall:
    """Return a tool call. Its prompt is `arguments`, a JSON text; `None` if they are unknown."""
    messages = () if arguments is None else (Message("user", arguments),)
    return LoggedCall(messages, reply, "tool", "", start, end, {"model": f"tool:{name}"})


def imported_run(
    nodes: Sequence[LoggedNode],
    *,
    name: str,
    question: str,
    place: str,
    end: LoggedEnd,
    grade: float | None = None,
    id: str = "",
    data: Mapping[str, Any] | None = None,
    started: float | None = None,
    score_range: tuple[float, float] = (0.0, 1.0),
) -> Run:
    """Make a run of the nodes of a log. Its answer has the grade that the log gives it.

    Args:
        nodes: The nodes. The root is the node that has no parent and holds the question.
        name: The name of the run's strategy.
        question: The question. If it is blank, the run has no task.
        place: Names the place in the file, for error messages.
        end: Data of the log about the end. Its note `imported.scores` holds the scores of the answer by
            scorer.
        grade: The grade of the answer in the log, 0 to 1. `None` if it has none.
        id: Name of the task in the log.
        data: Further data of the log about the task.
        started: Start in seconds since 1970.
        score_range: The lowest and the highest score of the nodes.
    """
    return run_of_nodes(
        nodes,
        name=name,
        task=imported_task(question, grade, end.answer, data, id),
        end=end,
        score_range=score_range,
        started="" if started is None else datetime.fromtimestamp(started, UTC).isoformat(timespec="seconds"),
        where=lambda k, field: f"{place}, node {nodes[k].id!r}, field {field!r}",
    )


def imported_task(
    question: str, grade: float | None, answer: str | None, data: Mapping[str, Any] | None, id: str
) -> Task | None:
    """Return the task of an imported run, which grades `answer` as the log does. `None` if the question is
    blank."""
    if not question.strip():
        return None
    grades = None if grade is None or answer is None else {answer: grade}
    return make_task("published/imported", question, grades=grades, data=data, id=id)
