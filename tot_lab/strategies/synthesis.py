"""Context synthesis: condense long conversations between turns, for any strategy.

    opening    the messages before the model's first turn (task, tools, instructions); kept
    past       the earlier turns; condensed to a few lines at the end of the opening
    last       the newest turns; kept

Only the outgoing prompts are edited: the strategy keeps its conversation, and the tree and all recorded
results stay complete. Each turn is condensed once: a later synthesis combines the last summary
with the turns since then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

import msgspec
from pydantic import Field

from tot_lab.core.calls import Call, Message, estimated_tokens
from tot_lab.core.protocol import Procedure, ask, intercept
from tot_lab.core.records import Note, call_failed
from tot_lab.core.strategy import Prompting, Strategy
from tot_lab.core.task import Answer, Task
from tot_lab.core.tools import TOOL

_CHARACTERS = 200
"""Characters of each text of a turn that a template shows."""

_SYNTHESIZE = "synthesize"
_GOVERNS = "context.synthesis"
"""Name of the note that each `WithSynthesis` records at its node. A conversation is condensed only by the
innermost `WithSynthesis` at or above the node of its call."""

Turn = tuple[Message, ...]


class WithSynthesis(Prompting):
    """Condense the conversation of a strategy when it becomes long.

    Best for long tool loops, and models with a small context window. Trade-off: the model cannot see what a
    summary omits. Calls: those of the strategy; with `deep`, one more for each synthesis, which is at most
    one per call.

    A wrapper around `tl.Adaptive` applies to all strategies that it may choose; a wrapper around one of these
    applies to that strategy. The innermost wrapper decides. The sampling settings apply to `deep`.
    """

    strategy: Strategy
    """The strategy whose conversations are condensed."""

    synthesis: Literal["off", "fast", "deep"] = "fast"
    """`fast` fills in templates with the first 200 characters of each text, `deep` asks the model, `off`
    leaves the conversation as it is."""

    above: Annotated[int, Field(ge=0)] = 1000
    """Earlier turns are condensed when they have more tokens than this in total (estimated)."""

    keep: Annotated[int, Field(ge=1)] = 1
    """The newest turns that are left as they are."""

    def think(self, task: Task, at: str = "0") -> Procedure[Answer]:
        yield Note(_GOVERNS, at, {"synthesis": self.synthesis})
        if self.synthesis == "off":
            return (yield from self.strategy.think(task, at))
        condenser = _Condenser(self, {}, frozenset())
        return (yield from intercept(condenser, self.strategy.think(task, at), calls=self._calls_each))

    def checks_answers(self, task: Task) -> bool:
        return self.strategy.checks_answers(task)

    def max_calls(self, task: Task) -> int | None:
        inner = self.strategy.max_calls(task)
        return None if inner is None else inner * self._calls_each

    @property
    def _calls_each(self) -> int:
        """The most calls made for one call of the strategy."""
        return 2 if self.synthesis == "deep" else 1


class _Condenser:
    """Condenses the conversations of one branch.

    Attributes:
        known: Summaries, by the conversation that each replaces.
        others: Nodes at which an inner `WithSynthesis` begins. It handles the calls there and below.
    """

    of = (Call, Note)

    def __init__(self, settings: WithSynthesis, known: dict[Turn, str], others: frozenset[str]) -> None:
        self.settings = settings
        self.known = known
        self.others = others

    def carry_out(self, step: Call | Note) -> Procedure[Any]:
        if isinstance(step, Note) and step.name == _GOVERNS:
            self.others |= {step.at}
        elif isinstance(step, Call) and step.purpose != TOOL and not self._is_anothers(step.node):
            step = yield from self._tightened(step)
        return (yield step)

    def _is_anothers(self, node: str) -> bool:
        return any(node == other or node.startswith(f"{other}.") for other in self.others)

    def _tightened(self, call: Call) -> Procedure[Call]:
        opening, turns = _parts(call.messages)
        past, last = turns[: -self.settings.keep], turns[-self.settings.keep :]
        summary, since = "", past
        for count in range(len(past), 0, -1):
            known = self.known.get(_joined(opening, past[:count]))
            if known is not None:
                summary, since = known, past[count:]
                break
        if estimated_tokens(summary) + _size(since) > self.settings.above and since:
            made = yield from self._condensed(call, summary, since)
            before, after = estimated_tokens(summary) + _size(since), estimated_tokens(made)
            if after < before:
                yield Note(
                    "context.synthesized",
                    call.node,
                    {
                        "synthesis": self.settings.synthesis,
                        "turns": len(since),
                        "tokens_before": before,
                        "tokens_after": after,
                    },
                )
                summary, since = made, []
                self.known[_joined(opening, past)] = made
        if not summary:
            return call
        messages = (*_with(opening, summary), *_joined((), [*since, *last]))
        return msgspec.structs.replace(call, messages=messages)

    def _condensed(self, call: Call, summary: str, turns: Sequence[Turn]) -> Procedure[str]:
        """One summary of `turns` and of all turns before them. `summary` is the earlier summary of those, ""
        if there are none."""
        fast = "\n".join(filter(None, [summary, *map(_in_short, turns)]))
        if self.settings.synthesis == "fast":
            return fast
        sent = self.settings.call(call.node, _SYNTHESIZE, _prompt(call, summary, turns), call.sample_index)
        reply = yield from ask(msgspec.structs.replace(sent, attempt=call.attempt))
        if reply.error is not None or not reply.text.strip():
            why = reply.error or "an empty reply"
            yield call_failed(call.node, _SYNTHESIZE, why, instead="fast")
            return fast
        return reply.text.strip()

    def fork(self) -> Self:
        return type(self)(self.settings, dict(self.known), self.others)

    def join(self, branches: Sequence[Self]) -> None:
        for branch in branches:
            self.known = {**branch.known, **self.known}
            self.others |= branch.others


def _prompt(call: Call, summary: str, turns: Sequence[Turn]) -> str:
    earlier = f"What was noted of the turns before:\n<notes>\n{summary}\n</notes>\n\n" if summary else ""
    work, whole = _parts(call.messages)[0][-1].content, "\n\n".join(map(_whole, turns))
    return (
        f"You are in the midst of a piece of work:\n<work>\n{work}\n</work>\n\n"
        f"{earlier}The turns since then:\n<turns>\n{whole}\n</turns>\n\n"
        "Rewrite the notes and turns into one set of short notes from which the work can go on without "
        "them: what was found (numbers, names and quotations exactly), what failed, and what is left "
        "to do. Write the notes alone."
    )


def _parts(messages: Sequence[Message]) -> tuple[Turn, list[Turn]]:
    """Split messages into the opening and the turns. A turn includes its answers, so a tool result stays with
    its call.
    """
    starts = [k for k, message in enumerate(messages) if message.role == "assistant"]
    if not starts:
        return tuple(messages), []
    ends = [*starts[1:], len(messages)]
    opening = tuple(messages[: starts[0]]) or (Message("user", ""),)
    return opening, [tuple(messages[a:b]) for a, b in zip(starts, ends, strict=True)]


def _joined(opening: Turn, turns: Sequence[Turn]) -> Turn:
    return (*opening, *(message for turn in turns for message in turn))


def _with(opening: Turn, summary: str) -> Turn:
    """The opening with the summary of the earlier turns at its end."""
    *first, last = opening
    content = f"{last.content}\n\nWhat was done so far, in short:\n{summary}"
    return (*first, msgspec.structs.replace(last, content=content))


def _size(turns: Sequence[Turn]) -> int:
    return sum(estimated_tokens(_whole(turn)) for turn in turns)


def _whole(turn: Turn) -> str:
    """A turn as text."""
    requests = {call.id: f"{call.name}({call.arguments})" for call in turn[0].tool_calls}
    lines = [turn[0].content]
    for message in turn[1:]:
        call = requests.pop(message.tool_call_id or "", "")
        lines.append(f"{call} → {message.content}" if call else message.content)
    return "\n".join(filter(None, [*lines, *requests.values()]))


def _in_short(turn: Turn) -> str:
    """A turn, shortened by the template."""
    requests = {call.id: f"{call.name}({_cut(call.arguments)})" for call in turn[0].tool_calls}
    lines = [_cut(turn[0].content)]
    for message in turn[1:]:
        call = requests.pop(message.tool_call_id or "", "")
        lines.append(f"{call} → {_cut(message.content)}" if call else _cut(message.content))
    return "- " + "; ".join(filter(None, [*lines, *requests.values()]))


def _cut(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _CHARACTERS else f"{flat[:_CHARACTERS]}…"
