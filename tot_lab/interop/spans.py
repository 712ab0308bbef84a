"""Converts the records of a run to the spans of one trace. Live records and a journal give the same spans.

    invoke_agent STRATEGY
      └ thought 0
           ├ chat MODEL, execute_tool TOOL     the calls that were made for the thought
           └ thought 0.0                       a child, with links to other thoughts that it derives from

A call becomes a span when its reply arrives. Thoughts and the run become spans when the run ends, since a
thought may be scored or pruned until then. A span id is a hash of the run and the thought or call.

References:
    opentelemetry.io/docs/specs/semconv/gen-ai; github.com/Arize-ai/openinference/tree/main/spec.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from tot_lab.core.calls import Call, Message, Reply
from tot_lab.core.records import Ended, Line, Note, Position, Scored, Thought, canonical
from tot_lab.core.records import parent_of as above
from tot_lab.core.scrubbing import clean, without_keys
from tot_lab.core.tools import asks_no_model
from tot_lab.core.tree import Node, Tree
from tot_lab.record.journal import Header, encoder
from tot_lab.record.logs.own_spans import COUNT, HEADER, LINES, NUMBERS, without_texts
from tot_lab.record.run import Run, model_name

LONGEST = 50_000
"""Maximum characters of a text in a span. Longer texts are cut."""


class Event(NamedTuple):
    """An event of a span. `time` is in nanoseconds since 1970."""

    name: str
    time: int
    attributes: dict[str, Any]


class Span(NamedTuple):
    """A span. Its times are in nanoseconds since 1970.

    Attributes:
        attributes: Attributes by name. Attributes that are `None` are not sent.
        links: Ids of spans, other than the parent, from which this one was derived, and attributes of each
            link.
        error: The error message. `None` if there was no error.
        is_request: Whether the span is a model call. Its OpenTelemetry kind is then CLIENT, not INTERNAL.
    """

    id: bytes
    parent: bytes | None
    name: str
    start: int
    end: int
    attributes: dict[str, Any]
    events: Sequence[Event] = ()
    links: Sequence[tuple[bytes, dict[str, Any]]] = ()
    error: str | None = None
    is_request: bool = False


class Score(NamedTuple):
    """A score of a span.

    Attributes:
        span: The id of the span.
        name: The evaluator (`Scored.by`), or `correctness` for the grade of the run.
        score: The score. `None` if it was unreadable.
        label: `correct` or `incorrect` for a grade, else `scored` or `unreadable`.
        number: Its index among the scores of the span.
        by_model: Whether a language model gave the score.
    """

    span: bytes
    name: str
    score: float | None
    label: str
    number: int
    by_model: bool


class RunSpans:
    """Makes the spans of one run from its records.

    Args:
        header: The header of the run.
        secrets: Texts that no span may contain, the longest first.
        run: The run whose grade becomes a score. `None` means that the grade is computed from `header` and
            the records.
    """

    def __init__(self, header: Header, secrets: Sequence[str], run: Run | None = None) -> None:
        self._secrets = secrets
        self.header: Header = self._shown(header)
        self.run = run
        self.trace = self._id(16)
        self.scores: list[Score] = []
        """Scores of the spans. They are complete when `has_ended` is true."""
        self.has_ended = False
        """Whether all spans have been yielded."""
        self.is_lost = False
        """Whether a record could not be sent. Later records of the run are then not sent either."""
        started = header.started
        self._start = datetime.fromisoformat(started).timestamp() if started else time.time()
        self._count = 0
        self._last = 0.0
        self._open: dict[Position, tuple[int, Line]] = {}
        self._lines: dict[str, list[tuple[int, Line]]] = {"": []}
        self._times: dict[str, list[float]] = {}

    def take(self, line: Line) -> Iterator[Span]:
        """Add the next line of the journal, and yield the spans that this line completes."""
        if self.has_ended:
            return
        number, self._count = self._count, self._count + 1
        line = msgspec.structs.replace(line, e=self._shown(line.e))
        record, self._last = line.e, max(self._last, line.t)
        if isinstance(record, Call):
            self._open[line.p] = number, line
        elif isinstance(record, Reply) and line.p in self._open:
            yield self._call([self._open.pop(line.p), (number, line)])
        else:
            self._keep(number, line)
        if isinstance(record, Ended):
            yield from self.finish()

    def finish(self) -> Iterator[Span]:
        """Yield the spans that have not ended: those of open calls, of thoughts and of the run."""
        if self.has_ended:
            return
        self.has_ended = True
        yield from [self._call([one]) for one in self._open.values()]
        tree = Tree.of(canonical([line for held in self._lines.values() for _, line in held]))
        for node in reversed(tree.nodes.values()):
            parent = self._times.get(node.parent or "")
            if parent is not None:
                parent[1] = max(parent[1], self._times[node.id][1])
        for node in tree:
            yield self._thought(node)
        question = str(self.header.task.get("question", ""))
        yield self._whole(question or (tree.root.text if tree.roots else ""))

    # Spans.

    def _whole(self, question: str) -> Span:
        lines = self._lines.pop("")
        ended = next((line.e for _, line in reversed(lines) if isinstance(line.e, Ended)), None)
        header, end, id = self.header, self._at(self._last), self._id(8)
        shown = Run(header, [line for _, line in lines], loaded=True)
        run, grade = self.run or shown, None
        if not run.waits_for_grading:
            with suppress(Exception):  # an error of a user's domain, which `run.grade` raises
                grade = run.grade
        events = []
        if grade is not None:
            label = "correct" if grade == 1 else "incorrect"
            self.scores.append(Score(id, "correctness", float(grade), label, 0, False))
            events.append(_evaluation(self.scores[-1], end))
        error = None
        if ended is not None and ended.stop_reason == "error":
            error = ended.error or "a model call failed"
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": shown.name,
            "gen_ai.agent.id": header.agent_id or None,
            "gen_ai.conversation.id": header.session_id or None,
            "session.id": header.session_id or None,
            "openinference.span.kind": "AGENT",
            "agent.name": shown.name,
            "input.value": question,
            "output.value": None if ended is None else ended.answer,
            "tot_lab.run": header.id,
            "tot_lab.stop_reason": None if ended is None else ended.stop_reason,
            "tot_lab.answer": None if ended is None else ended.node,
            "tot_lab.score": None if ended is None else ended.score,
            HEADER: encoder.encode(msgspec.structs.replace(header, checksum="")).decode(),
            COUNT: self._count,
            **_record(lines),
        }
        return Span(
            id, None, f"invoke_agent {shown.name}", self._at(0.0), end, attributes, events, error=error
        )

    def _thought(self, node: Node) -> Span:
        lines, id = self._lines.pop(node.id), self._id(8, "thought", node.id)
        start, end = self._times[node.id]
        events: list[Event] = []
        for time_of, scored in [(line.t, line.e) for _, line in lines]:
            if not isinstance(scored, Scored) or scored.by == "root":  # a root is not evaluated
                continue
            label = "scored" if scored.score is not None else "unreadable"
            by = scored.by or "value"
            score = Score(id, by, scored.score, label, len(events), by in _MODELS)
            self.scores.append(score)
            events.append(_evaluation(score, self._at(time_of)))
        linked = {"source": node.source, "depends": node.depends, "merged": (node.merged,)}
        attributes = {
            "openinference.span.kind": "CHAIN",
            "output.value": node.text,
            "graph.node.id": node.id,
            "graph.node.parent_id": node.parent,
            "tot_lab.thought": node.id,
            "tot_lab.score": None if node.by == "root" else node.score,
            "tot_lab.state": node.state,
            "tot_lab.reason": node.reason or None,
            **_record(lines),
        }
        return Span(
            id,
            self._id(8) if node.parent is None else self._id(8, "thought", node.parent),
            f"thought {node.id}",
            self._at(start),
            self._at(end),
            attributes,
            events,
            [
                (self._id(8, "thought", other), {"tot_lab.link": kind})
                for kind, others in linked.items()
                for other in others
                if other is not None
            ],
        )

    def _call(self, lines: list[tuple[int, Line]]) -> Span:
        (_, first), (_, last) = lines[0], lines[-1]
        call, reply = first.e, last.e
        assert isinstance(call, Call)
        if not isinstance(reply, Reply):
            reply = Reply(error="no reply was recorded")
        id: str | None = call.node
        while id is not None and id not in self._times:
            id = above(id)
        if id is not None:
            self._times[id][1] = max(self._times[id][1], last.t)
        if asks_no_model(call):
            name, attributes = _tool(call, reply)
        else:
            name, attributes = self._chat(call, reply)
            lines = [(number, without_texts(line)) for number, line in lines]
        attributes |= {
            "error.type": None if reply.error is None else reply.error.partition(":")[0],
            "tot_lab.thought": call.node,
            "tot_lab.purpose": call.purpose,
            "tot_lab.sample": call.sample_index,
            "tot_lab.paid": last.paid,
            **_record(lines),
        }
        return Span(
            self._id(8, "call", ".".join(map(str, first.p))),
            self._id(8) if id is None else self._id(8, "thought", id),
            name,
            self._at(first.t),
            self._at(last.t),
            attributes,
            error=reply.error,
            is_request=not asks_no_model(call),
        )

    def _chat(self, call: Call, reply: Reply) -> tuple[str, dict[str, Any]]:
        model = call.model or self.header.model
        if isinstance(model, str):  # the name of a role, or of a model
            model = self.header.roles.get(model, {"model": model}).get("model") or self.header.model
        named = model if isinstance(model, str) else model_name(model)
        provider, slash, _ = named.partition("/")
        provider = _PROVIDERS.get(provider, provider) if slash else ""
        total = None
        if reply.input_tokens is not None and reply.output_tokens is not None:
            total = reply.input_tokens + reply.output_tokens
        settings = {
            "temperature": call.temperature,
            "max_tokens": call.max_tokens,
            "stop_sequences": call.stop or None,
            "seed": call.seed,
            "reasoning_effort": call.effort,
            **call.options,
        }
        given = {name: value for name, value in settings.items() if value is not None}
        known = {name: value for name, value in given.items() if name in _REQUEST}
        answer = Message("assistant", reply.text, reply.tool_calls)
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": provider or None,
            "gen_ai.request.model": named,
            "gen_ai.response.model": reply.model,
            **{f"gen_ai.request.{name}": value for name, value in known.items()},
            "gen_ai.response.finish_reasons": [reply.finish_reason] if reply.finish_reason else None,
            "gen_ai.usage.input_tokens": reply.input_tokens,
            "gen_ai.usage.output_tokens": reply.output_tokens,
            "gen_ai.input.messages": _json([_message(message) for message in call.messages]),
            "gen_ai.tool.definitions": _json([_definition(tool) for tool in call.tools]),
            "openinference.span.kind": "LLM",
            "llm.model_name": reply.model or named,
            "llm.provider": provider or None,
            "llm.invocation_parameters": _json(given),
            "llm.finish_reason": reply.finish_reason,
            "llm.token_count.prompt": reply.input_tokens,
            "llm.token_count.completion": reply.output_tokens,
            "llm.token_count.total": total,
            "llm.cost.total": reply.cost,
            "input.value": call.messages[-1].content if call.messages else None,
        }
        for number, message in enumerate(call.messages):
            attributes |= _flat(f"llm.input_messages.{number}", message)
        for number, tool in enumerate(call.tools):
            attributes[f"llm.tools.{number}.tool.json_schema"] = _json(_definition(tool))
        if reply.error is None:
            written = {**_message(answer, reply.thinking), "finish_reason": reply.finish_reason or "unknown"}
            attributes["gen_ai.output.messages"] = _json([written])
            attributes["output.value"] = reply.text
            attributes |= _flat("llm.output_messages.0", answer, reply.thinking)
        return f"chat {named}", attributes

    # Parts.

    def _keep(self, number: int, line: Line) -> None:
        """Store a line for the span of the thought that it belongs to, or else for the span of the run."""
        record = line.e
        if isinstance(record, Thought):
            self._lines[record.id] = []
            self._times[record.id] = [line.t, line.t]
        id = record.at if isinstance(record, Note) else getattr(record, "id", "")
        if id in self._times:
            self._times[id][1] = max(self._times[id][1], line.t)
        self._lines[id if id in self._times else ""].append((number, line))

    def _at(self, seconds: float) -> int:
        return int((self._start + seconds) * 1e9)

    def _id(self, size: int, *place: str) -> bytes:
        """Return an id of `size` bytes: a hash of the run and of `place`, such as `("thought", id)`. `place`
        is empty for the run itself.
        """
        text = "\n".join([self.header.id, self.header.started, *place])
        return hashlib.sha256(text.encode()).digest()[:size]

    def _shown(self, value: Any) -> Any:
        """Return `value` with secrets removed from its texts and texts cut to `LONGEST` characters."""
        if isinstance(value, str):
            text = without_keys(clean(value), self._secrets)
            more = len(text) - LONGEST
            return text if more <= 0 else f"{text[:LONGEST]}… [{more:,} more characters were cut]"
        if not value or isinstance(value, int | float):
            return value
        if isinstance(value, list | tuple):
            return type(value)([self._shown(each) for each in value])
        if isinstance(value, dict):
            return {self._shown(name): self._shown(each) for name, each in value.items()}
        if isinstance(value, msgspec.Struct):
            held = [(name, getattr(value, name)) for name in value.__struct_fields__]
            shown = {name: self._shown(each) for name, each in held if each}
            return msgspec.structs.replace(value, **shown)
        return value


_MODELS = ("value", "parts", "vote", "joint", "logprob")
"""Names of evaluators (`Scored.by`) whose scores come from a language model."""

_PROVIDERS = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "vertex_ai": "gcp.vertex_ai",
    "xai": "x_ai",
}
"""OpenTelemetry's names of providers, by the prefix of a model name. Other prefixes are used unchanged."""

_REQUEST = (
    *("temperature", "max_tokens", "stop_sequences", "seed", "top_p", "top_k"),
    *("frequency_penalty", "presence_penalty"),
)
"""The settings of a call that have an attribute `gen_ai.request.…` in OpenTelemetry's conventions."""


def _record(lines: Sequence[tuple[int, Line]]) -> dict[str, Any]:
    return {
        LINES: b"\n".join(encoder.encode(line) for _, line in lines).decode(),
        NUMBERS: [number for number, _ in lines],
    }


def _evaluation(score: Score, at: int) -> Event:
    held = {"name": score.name, "score.value": score.score, "score.label": score.label}
    return Event(
        "gen_ai.evaluation.result", at, {f"gen_ai.evaluation.{name}": value for name, value in held.items()}
    )


def _tool(call: Call, reply: Reply) -> tuple[str, dict[str, Any]]:
    name = reply.tool or str(call.model).partition(":")[2]
    arguments = call.messages[-1].content if call.messages else None
    return f"execute_tool {name}", {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.arguments": arguments,
        "gen_ai.tool.call.result": reply.text,
        "openinference.span.kind": "TOOL",
        "tool.name": name,
        "input.value": arguments,
        "output.value": reply.text,
    }


def _message(message: Message, thinking: str | None = None) -> dict[str, Any]:
    """Return a message in the JSON format of OpenTelemetry's attributes."""
    parts: list[dict[str, Any]] = [] if thinking is None else [{"type": "reasoning", "content": thinking}]
    if message.tool_call_id is not None:
        parts.append({"type": "tool_call_response", "id": message.tool_call_id, "response": message.content})
    elif message.content or not message.tool_calls:
        parts.append({"type": "text", "content": message.content})
    for call in message.tool_calls:
        parts.append({"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments})
    return {"role": message.role, "parts": parts}


def _flat(name: str, message: Message, thinking: str | None = None) -> dict[str, Any]:
    """Return a message as flat attributes of OpenInference, whose names begin with `name`."""
    name = f"{name}.message"
    found: dict[str, Any] = {f"{name}.role": message.role, f"{name}.tool_call_id": message.tool_call_id}
    if thinking is None:
        found[f"{name}.content"] = message.content
    else:
        for number, (kind, text) in enumerate((("reasoning", thinking), ("text", message.content))):
            found[f"{name}.contents.{number}.message_content.type"] = kind
            found[f"{name}.contents.{number}.message_content.text"] = text
    for number, call in enumerate(message.tool_calls):
        place = f"{name}.tool_calls.{number}.tool_call"
        found[f"{place}.id"] = call.id
        found[f"{place}.function.name"] = call.name
        found[f"{place}.function.arguments"] = call.arguments
    return found


def _definition(tool: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": tool}


def _json(value: Any) -> str | None:
    """Return a value as JSON. `None` if it is empty."""
    return encoder.encode(value).decode() if value else None
