"""Importer of the state histories of LangGraph: JSON or JSON Lines. Each thread is a run.

A row is a checkpoint: a `StateSnapshot` (`graph.get_state_history(config)`) or a `ThreadState` of the API
(`/threads/{id}/history`), in any order. A node is a message that a model added to the state; its parent is
the last such message before it. Forks of a thread are branches of the tree. States hold no prompts: what a
program sent to its model is unknown.

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
    tool_reply,
    unwrapped,
)
from tot_lab.record.nodes import LoggedCall, LoggedNode
from tot_lab.record.run import Run


class _State(NamedTuple):
    """A checkpoint. `waiting` states whether the graph was to continue from it."""

    thread: str
    id: str
    parent: str | None
    messages: list[Any]
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
        return [_run(thread, states) for thread, states in threads.items()]


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
    failed = [task.get("error") for task in field(row, "tasks", list, []) if isinstance(task, dict)]
    error = next((str(each) for each in failed if each), None)
    return _State(
        str(own.get("thread_id", "")),
        own["checkpoint_id"],
        above.get("checkpoint_id"),
        messages,
        bool(row.get("next")),
        seconds(row.get("created_at"), "created_at"),
        error,
        place,
    )


def _checkpoint(row: Mapping[str, Any], name: str, config: str) -> Mapping[str, Any]:
    held = field(row, name, dict) or field(row, config, dict, {}).get("configurable") or {}
    return held if isinstance(held, dict) else {}


def _run(thread: str, states: Sequence[_State]) -> Run:
    known = {state.id: state for state in states}
    ordered = sorted(states, key=lambda state: (state.time or 0.0, state.id))
    children = {state.parent for state in states}
    try:
        nodes, asked, question = [LoggedNode(ROOT, None, "")], dict[str, tuple[LoggedNode, str]](), ""
        last: dict[str, str] = {}  # by checkpoint, the node of its last reply
        made: dict[tuple[str, str], str] = {}
        for state in ordered:
            before = known.get(state.parent or "")
            parent = last.get(state.parent or "", ROOT)
            old = {_key(message, k) for k, message in enumerate(before.messages)} if before else set()
            for k, raw in enumerate(state.messages):
                key = _key(raw, k)
                if key in old:
                    continue
                message = message_of(raw)
                if message.role == "user":
                    question = question or message.content
                elif message.role == "assistant":
                    call = _call(raw, message)
                    id = key if (key, "") not in made else f"{key} ({state.id})"
                    made[key, ""] = id
                    node = LoggedNode(
                        id, parent, shown(message.content, message.tool_calls), calls=(call,), time=state.time
                    )
                    nodes.append(node)
                    parent = id
                    asked |= {each.id: (node, each.arguments) for each in message.tool_calls}
                elif message.role == "tool" and message.tool_call_id in asked:
                    node, arguments = asked[message.tool_call_id]
                    name = str(unwrapped(raw).get("name") or "tool")
                    error = message.content if unwrapped(raw).get("status") == "error" else None
                    reply = tool_reply(name, message.content, error)
                    asked_for = (Message("user", arguments),)
                    settings = {"model": f"tool:{name}"}
                    node.calls = (*node.calls, LoggedCall(asked_for, reply, "tool", settings=settings))
            last[state.id] = parent
        nodes[0].text, nodes[0].time = question, ordered[0].time
        end = next((state for state in reversed(ordered) if state.id not in children), ordered[-1])
        by_id = {node.id: node for node in nodes}
        best = last[end.id] if last[end.id] != ROOT and not end.waiting else None
        return imported_run(
            nodes,
            name="LangGraph",
            question=question,
            place=states[0].place,
            answer=None if best is None else by_id[best].text,
            answer_node=best,
            stop="answered" if end.error is None else "error",
            error=end.error,
            id=thread,
            started=ordered[0].time,
            complete=False,
        )
    except ValueError as error:
        if isinstance(error, JournalError):
            raise
        raise JournalError(f"{states[0].place}: field 'values': {error}") from None


def _key(message: Any, k: int) -> str:
    """Return what a message is known by in the states of its thread: its id, or its place."""
    held = unwrapped(message)
    id = held.get("id") if isinstance(held, dict) else None
    return id if isinstance(id, str) else f"message {k}"


def _call(raw: Any, message: Message) -> LoggedCall:
    held = unwrapped(raw)
    about = field(held, "response_metadata", dict, {})
    usage = field(held, "usage_metadata", dict, {})
    reply = Reply(
        message.content,
        None,
        thinking_of(held),
        about.get("model_name") or about.get("model"),
        tokens(usage.get("input_tokens"), "input_tokens"),
        tokens(usage.get("output_tokens"), "output_tokens"),
        None,
        about.get("finish_reason") or about.get("stop_reason"),
        (),
        message.tool_calls,
    )
    return LoggedCall((), reply, "act" if message.tool_calls else "ask")
