"""Importer of the state histories of LangGraph: JSON or JSON Lines. Each thread is a run.

A row is a checkpoint: a `StateSnapshot` (`graph.get_state_history(config)`) or a `ThreadState` of the API
(`/threads/{id}/history`), in any order. A node is a message that a model added to the state; its parent is
the last message of a model before it. Forks of a thread are branches of the tree. If a message is
replaced by one with the same id, the node has the last version; if a fork replaces it, the fork gets its own
node. States hold no prompts: the messages that a program sent to its model are unknown.

References:
    docs.langchain.com/oss/python/langgraph/persistence; `ThreadState` in langgraph_sdk.schema.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tot_lab.core.bulk import gc_paused
from tot_lab.core.calls import Message, Reply
from tot_lab.core.reading.finish_reasons import read_finish_reason
from tot_lab.record.journal import JournalError
from tot_lab.record.logs.common import (
    ROOT,
    entries,
    field,
    imported_run,
    kind,
    message_of,
    seconds,
    shown,
    thinking_of,
    tokens,
    tool_call,
    tool_reply,
    unwrapped,
)
from tot_lab.record.nodes import LoggedCall, LoggedEnd, LoggedNode
from tot_lab.record.run import Run


class _State(NamedTuple):
    """A checkpoint.

    Attributes:
        messages: The messages of its state by their key in the thread: their id or, without one, their index.
        waiting: Whether the graph had further nodes to run at this checkpoint (`next` is not empty).
    """

    thread: str
    id: str
    parent: str | None
    messages: dict[str, Any]
    waiting: bool
    time: float | None
    error: str | None
    place: str


class LangGraphStates:
    """Importer of the state histories of LangGraph."""

    expects = "objects whose first field is values"

    @staticmethod
    def recognises(head: bytes) -> bool:
        """Whether a file that begins with `head` is such a history."""
        return _HEAD.match(head) is not None

    @staticmethod
    @gc_paused()
    def read(path: str | os.PathLike[str]) -> list[Run]:
        """Return the run of each thread, in the order in which the threads occur in the file."""
        threads: dict[str, list[_State]] = {}
        for place, entry in entries(path):
            try:
                state = _state(entry, place)
            except ValueError as error:
                raise JournalError(f"{place}: {error}") from None
            threads.setdefault(state.thread, []).append(state)
        return [_Thread(thread, states).run() for thread, states in threads.items()]


_HEAD = re.compile(rb'\s*(?:\[\s*)?\{\s*"values"\s*:\s*[{\[]')


def _state(row: Any, place: str) -> _State:
    if not isinstance(row, dict):
        raise ValueError(f"expected an object: got {kind(row)}.")
    own, above = (
        _checkpoint(row, "checkpoint", "config"),
        _checkpoint(row, "parent_checkpoint", "parent_config"),
    )
    if not isinstance(own.get("checkpoint_id"), str):
        raise ValueError("field 'checkpoint_id' is missing.")
    values = field(row, "values", (dict, list), {})
    messages = values if isinstance(values, list) else field(values, "messages", list, [])
    held = [unwrapped(message) for message in messages]
    failed = [task.get("error") for task in field(row, "tasks", list, []) if isinstance(task, dict)]
    error = next((str(each) for each in failed if each), None)
    return _State(
        str(own.get("thread_id", "")),
        own["checkpoint_id"],
        field(above, "checkpoint_id", str),
        {_key(message, k): message for k, message in enumerate(held)},
        bool(row.get("next")),
        seconds(row.get("created_at"), "created_at"),
        error,
        place,
    )


def _checkpoint(row: Mapping[str, Any], name: str, config: str) -> Mapping[str, Any]:
    held = field(row, name, dict) or field(row, config, dict, {}).get("configurable") or {}
    return held if isinstance(held, dict) else {}


class _Thread:
    """The nodes of a thread."""

    def __init__(self, name: str, states: Sequence[_State]) -> None:
        self.name = name
        self.states = sorted(states, key=lambda state: (state.time or 0.0, state.id))
        self.nodes = [LoggedNode(ROOT, None, "", time=self.states[0].time)]
        self._by_id = {state.id: state for state in states}
        children: dict[str | None, list[_State]] = {}
        for state in self.states:
            children.setdefault(state.parent, []).append(state)
        self._forks = {parent for parent, held in children.items() if len(held) > 1}
        self._latest: dict[str, Mapping[str, Any]] = {}  # by checkpoint, the last versions of its messages
        for state in reversed(self.states):
            held = children.get(state.id, ())
            later = self._latest.get(held[0].id, {}) if len(held) == 1 else {}
            self._latest[state.id] = {
                key: later.get(key, message) if _has_id(message) else message
                for key, message in state.messages.items()
            }
        self._of_key: dict[str, LoggedNode] = {}  # by key of a message, its latest node
        self._last: dict[str | None, LoggedNode] = {}  # by checkpoint, the node of its last reply
        self._answers: dict[str, str] = {}  # the texts of the replies that call no tools, by node
        self._asked: dict[str, tuple[LoggedNode, str]] = {}  # by tool call

    def run(self) -> Run:
        for state in self.states:
            try:
                self._add(state)
            except ValueError as error:
                raise JournalError(f"{state.place}: field 'values': {error}") from None
        parents = {state.parent for state in self.states}
        end = next((state for state in reversed(self.states) if state.id not in parents), self.states[-1])
        best = self._last[end.id].id
        answer = None if end.waiting else self._answers.get(best)
        stop = "answered" if end.error is None else "error"
        return imported_run(
            self.nodes,
            name="LangGraph",
            question=self.nodes[0].text,
            place=self.states[0].place,
            end=LoggedEnd(answer, [] if answer is None else [best], stop, end.error, complete=False),
            id=self.name,
            started=self.states[0].time,
        )

    def _add(self, state: _State) -> None:
        """Add the replies and the results of tools that the state before this one does not have."""
        before = self._by_id.get(state.parent or "")
        old: Mapping[str, Any] = {} if before is None else before.messages
        parent = self._last.get(state.parent, self.nodes[0])
        for key, raw in self._latest[state.id].items():
            if key in old:
                if (
                    state.parent in self._forks
                    and key in self._of_key
                    and _replaces(state.messages[key], old[key])
                ):
                    above = self._of_key[key].parent or ROOT
                    parent = self._reply(key, raw, message_of(raw), above, state)
                continue
            message = message_of(raw)
            if message.role == "user":
                self.nodes[0].text = self.nodes[0].text or message.content
            elif message.role == "assistant":
                parent = self._reply(key, raw, message, parent.id, state)
            elif message.role == "tool" and message.tool_call_id in self._asked:
                self._result(raw, message)
        self._last[state.id] = parent

    def _reply(
        self, key: str, raw: Mapping[str, Any], message: Message, parent: str, state: _State
    ) -> LoggedNode:
        id = f"{key} ({state.id})" if key in self._of_key else key
        text = shown(message.content, message.tool_calls)
        node = LoggedNode(id, parent, text, calls=[_call(raw, message)], time=state.time)
        self._of_key[key] = node
        self.nodes.append(node)
        if not message.tool_calls:
            self._answers[id] = text
        self._asked |= {each.id: (node, each.arguments) for each in message.tool_calls}
        return node

    def _result(self, raw: Mapping[str, Any], message: Message) -> None:
        node, arguments = self._asked[message.tool_call_id or ""]
        name = field(raw, "name", str, "tool")
        reply = tool_reply(name, message.content, message.content if raw.get("status") == "error" else None)
        node.calls.append(tool_call(name, arguments, reply))


def _key(message: Any, k: int) -> str:
    return message["id"] if _has_id(message) else f"message {k}"


def _replaces(message: Any, earlier: Any) -> bool:
    return _has_id(message) and message != earlier and message_of(message) != message_of(earlier)


def _has_id(message: Any) -> bool:
    return isinstance(message, dict) and isinstance(message.get("id"), str)


def _call(raw: Mapping[str, Any], message: Message) -> LoggedCall:
    about = field(raw, "response_metadata", dict, {})
    usage = field(raw, "usage_metadata", dict, {})
    reply = Reply(
        message.content,
        None,
        thinking_of(raw),
        field(about, "model_name", str) or field(about, "model", str),
        tokens(usage.get("input_tokens"), "input_tokens"),
        tokens(usage.get("output_tokens"), "output_tokens"),
        None,
        read_finish_reason(field(about, "finish_reason", str) or field(about, "stop_reason", str)),
        (),
        message.tool_calls,
    )
    return LoggedCall((), reply, "act" if message.tool_calls else "ask")
