"""What the importers share: reading JSON, chat messages in several dialects, and finishing a run."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tot_lab.core.calls import Message, Reply, ToolCall, is_token_count
from tot_lab.core.domain import Domain
from tot_lab.core.parts import class_of
from tot_lab.core.reading import finite
from tot_lab.core.records import Decided, Ended, Line, Note, Record, Scored
from tot_lab.record.journal import JournalError, encoder
from tot_lab.record.nodes import LoggedNode, run_of_nodes
from tot_lab.record.run import Run

ROOT = "question"
"""The id of the node with the question, among the ids of a log."""

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

T = TypeVar("T")


# JSON.


def decoded(data: bytes | msgspec.Raw, type: type[T], place: str) -> T:
    """Decode JSON. Raises `JournalError`, which names the place and the field."""
    try:
        return msgspec.json.decode(data, type=type)
    except UNREADABLE as error:
        raise JournalError(f"{place}: {error}") from None


def entries(path: str | os.PathLike[str]) -> list[tuple[str, Any]]:
    """Return the JSON values of a file, each with its place for error messages.

    The file holds a list, a list in the field `data` or `runs` of an object, one object per line, or objects
    one after the other.
    """
    data = Path(path).read_bytes().removeprefix(b"\xef\xbb\xbf")
    try:
        whole = msgspec.json.decode(data)
    except UNREADABLE as error:
        return list(_objects(path, data, error))
    if isinstance(whole, dict):
        held = next((whole[name] for name in ("data", "runs") if isinstance(whole.get(name), list)), [whole])
        return [(f"{path}, entry {k}", entry) for k, entry in enumerate(held, 1)]
    if not isinstance(whole, list):
        raise JournalError(f"{path}: expected objects: got {kind(whole)}.")
    return [(f"{path}, entry {k}", entry) for k, entry in enumerate(whole, 1)]


def _objects(path: str | os.PathLike[str], data: bytes, error: Exception) -> Iterator[tuple[str, Any]]:
    """Yield the objects of a file with one object per line, or with objects one after the other."""
    lines = data.split(b"\n")
    first = next((line.strip() for line in lines if line.strip()), b"")
    if first[-1:] in b"}]" and len(first) > 1:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield f"{path}, line {number}", decoded(line, Any, f"{path}, line {number}")
        return
    try:
        text = data.decode()
    except UnicodeDecodeError as found:
        raise JournalError(f"{path}: {found}") from None
    read, at, number = json.JSONDecoder().raw_decode, 0, 0
    while (at := at + len(_SPACE.match(text, at)[0])) < len(text):  # type: ignore[index]
        number += 1
        try:
            entry, at = read(text, at)
        except (ValueError, RecursionError) as found:
            raise JournalError(f"{path}, entry {number}: {found if number > 1 else error}") from None
        yield f"{path}, entry {number}", entry


_SPACE = re.compile(r"\s*")


def kind(value: Any) -> str:
    """Return what a JSON value is, for error messages."""
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


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
    """Return a time in seconds: a date in ISO 8601 (UTC without a zone), or a number of milliseconds."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            date = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(f"field {name!r} must be a time in ISO 8601: got {value[:80]!r}.") from None
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    number = finite(value)
    if number is None:
        raise ValueError(f"field {name!r} must be a time: got {kind(value)}.")
    return number / 1000


def tokens(value: Any, name: str) -> int | None:
    """Return a number of tokens. `None` if it is missing."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is not None and not is_token_count(value):
        raise ValueError(f"field {name!r} must be a number of tokens: got {value!r:.80}.")
    return None if value is None else int(value)


# Messages.


_ROLES = {"human": "user", "ai": "assistant", "function": "tool", "developer": "system", "model": "assistant"}


def message_of(value: Any) -> Message:
    """Return a chat message in the dialect of OpenAI, Inspect, LangChain, OpenInference or OpenTelemetry.

    Raises:
        ValueError: If it is not a chat message.
    """
    message = unwrapped(value)
    if not isinstance(message, dict):
        raise ValueError(f"a chat message must be an object: got {kind(message)}.")
    role = message.get("role") or message.get("type")
    if not isinstance(role, str):
        raise ValueError(f"a chat message must have a role: got the fields {', '.join(message)[:80]}.")
    content = message.get("parts") if "parts" in message else message.get("content", message.get("contents"))
    text, _ = content_of(content)
    calls, answers = message.get("tool_calls") or [], message.get("tool_call_id")
    if isinstance(content, list):
        calls = [*calls, *_parts(content, "tool_call")]
        answers = answers or next((part.get("id") for part in _parts(content, "tool_call_response")), None)
    return Message(_ROLES.get(role, role), text, tuple(map(tool_call_of, calls)), answers)


def unwrapped(value: Any) -> Any:
    """Return the fields of a message that LangChain or OpenInference wraps in an object."""
    while isinstance(value, dict):
        if isinstance(value.get("kwargs"), dict) and "lc" in value:
            value = value["kwargs"]
        elif isinstance(value.get("data"), dict) and "type" in value:
            value = {"type": value["type"], **value["data"]}
        elif isinstance(value.get("message"), dict) and "role" not in value:
            value = value["message"]
        else:
            break
    return value


def thinking_of(value: Any) -> str | None:
    """Return the reasoning in a message. `None` if it has none."""
    message = unwrapped(value)
    own = message.get("reasoning_content") or (message.get("additional_kwargs") or {}).get(
        "reasoning_content"
    )
    content = message.get("parts") if "parts" in message else message.get("content", message.get("contents"))
    return own if isinstance(own, str) and own else content_of(content)[1] or None


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
        part = part.get("message_content", part) if isinstance(part, dict) else part
        what = part.get("type") if isinstance(part, dict) else None
        if isinstance(part, str):
            texts.append(part)
        elif what in ("text", "output_text", "input_text"):
            texts.append(str(part.get("text", part.get("content", ""))))
        elif what in ("reasoning", "thinking"):
            thinking.append(
                str(
                    part.get("reasoning")
                    or part.get("thinking")
                    or part.get("content")
                    or part.get("text")
                    or ""
                )
            )
        elif what == "tool_call_response":
            texts.append(text_of(part.get("response", part.get("result"))))
        elif what not in ("tool_call", "tool_use", "function_call"):
            texts.append(f"[{what or 'content'}]")
    return "\n\n".join(texts), "\n\n".join(thinking)


def _parts(content: list[Any], what: str) -> list[Mapping[str, Any]]:
    return [part for part in content if isinstance(part, dict) and part.get("type") == what]


def tool_call_of(value: Any) -> ToolCall:
    """Return the call of a tool in a message. Raises ValueError if it has no name."""
    call = value.get("tool_call", value) if isinstance(value, dict) else {}
    function = call.get("function")
    held = function if isinstance(function, dict) else call
    name = function if isinstance(function, str) else held.get("name")
    if not isinstance(name, str):
        raise ValueError(f"a tool call must have a name: got {value!r:.80}.")
    return ToolCall(str(call.get("id") or ""), name, arguments_of(held.get("arguments", held.get("args"))))


def arguments_of(value: Any) -> str:
    """Return the arguments of a tool as JSON text."""
    return value if isinstance(value, str) else json.dumps({} if value is None else value, ensure_ascii=False)


def shown(text: str, calls: Iterable[ToolCall]) -> str:
    """Return the text of a reply, or the tool calls of one that has no text."""
    return text or "\n".join(f"{call.name}({call.arguments})" for call in calls)


# Values.


def text_of(value: Any, role: str | None = None) -> str:
    """Return the text of an input or output of a program.

    It is the content of the last message (with `role`, of the last one of that role), the only text of an
    object, or else the value as JSON.
    """
    for _ in range(5):
        value = unwrapped(value)
        if isinstance(value, str):
            return value
        if value is None:
            return ""
        if isinstance(value, list):
            if not value or not all(isinstance(unwrapped(each), dict | list) for each in value):
                break
            of_role = [each for each in value if role is not None and _role(each) == role]
            value = (of_role or value)[-1]
            continue
        if "content" in value and ("role" in value or "type" in value):
            return content_of(value["content"])[0]
        if isinstance(value.get("messages"), list):
            value = value["messages"]
        elif len(value) == 1:
            value = next(iter(value.values()))
        elif (held := [value[name] for name in _TELLING if isinstance(value.get(name), str)]) != []:
            return str(held[0])
        else:
            break
    return json.dumps(value, ensure_ascii=False, default=str)


_TELLING = ("question", "input", "query", "prompt", "output", "answer", "result", "text")


def _role(value: Any) -> str | None:
    message = unwrapped(value)
    role = message.get("role") or message.get("type") if isinstance(message, dict) else None
    return _ROLES.get(role, role) if isinstance(role, str) else None


def json_of(text: Any) -> Any:
    """Return the value of a JSON text. A text that is not JSON is returned as it is."""
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


def imported_run(
    nodes: Sequence[LoggedNode],
    *,
    name: str,
    question: str,
    place: str,
    answer: str | None = None,
    answer_node: str | None = None,
    stop: str = "answered",
    error: str | None = None,
    grade: float | None = None,
    notes: Mapping[str, Mapping[str, Any]] | None = None,
    id: str = "",
    data: Mapping[str, Any] | None = None,
    started: float | None = None,
    repeat: int = 0,
    complete: bool = True,
    score_range: tuple[float, float] = (0.0, 1.0),
) -> Run:
    """Make a run of the nodes of a log, with what the log says about its end and its answer.

    Args:
        nodes: The nodes. One without a parent that holds the question is the root.
        name: The name of the run's strategy.
        question: The question. If it is blank, the run has no task.
        place: Names the place in the file, for error messages.
        answer: The answer. `None` if the log has none; the run then has an end only if `stop` says why.
        answer_node: The id of the node that holds the answer, in the log.
        stop: Why the run ended, one of the stop codes.
        error: The error that ended the run.
        grade: The log's own verdict about the answer, 0 to 1. `None` if it has none.
        notes: What else the log says about the run, by the names of notes: `imported.scores` holds the
            scores of the answer by scorer. Empty ones are left out.
        id: Name of the task in the log.
        data: What else the log says about the task.
        started: Start in seconds since 1970.
        repeat: Which repeat of the task it is.
        complete: Whether the log holds all calls, with their tokens as far as the model reported them.
        score_range: The lowest and the highest score of the nodes.
    """
    task = None
    if question.strip():
        make = class_of("published/imported", Domain).task_factory()
        assert make is not None
        grades = None if grade is None or answer is None else {answer: grade}
        task = make(question, grades=grades, data=data, id=id)
    date = "" if started is None else datetime.fromtimestamp(started, UTC).isoformat(timespec="seconds")
    where = lambda k, field: f"{place}, node {nodes[k].id!r}, field {field!r}"  # noqa: E731
    run = run_of_nodes(nodes, name=name, task=task, score_range=score_range, started=date, where=where)
    lines = list(run.lines)
    ids = {}
    for line in lines:
        if isinstance(line.e, Note) and line.e.name == "imported.ids":
            ids = {own: made for made, own in line.e.data.items()}
    best = None if answer_node is None else ids.get(answer_node, answer_node)
    last = max((line.t for line in lines), default=0.0)
    score = next((e.score for line in lines if isinstance(e := line.e, Scored) and e.id == best), None)
    at = "0" if best is None else best
    more: list[Record] = [Note(name, at, dict(held)) for name, held in (notes or {}).items() if held]
    if best is not None:
        more.append(Decided(best, "answer"))
    if answer is not None or stop != "answered":
        more.append(Ended(stop, answer or "", best, score, (), error))
    lines += [Line((len(lines) + k,), last, record) for k, record in enumerate(more)]
    # The same entry is the same run, wherever its file lies.
    digest = hashlib.sha256(encoder.encode((run.header.id, more, repeat))).hexdigest()[:8]
    unknown: set[str] = {*run.header.unknown, "calls"}
    if complete:
        unknown.discard("calls")
        if not any(node.calls for node in nodes):  # no call was made
            unknown &= {"times"}
    header = msgspec.structs.replace(run.header, id=digest, repeat=repeat, unknown=tuple(sorted(unknown)))
    return Run(header, lines, task=task)
