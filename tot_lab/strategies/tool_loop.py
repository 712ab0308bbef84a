"""The plain tool loop: call the model, carry out its tool calls, show the results, until it replies without a
call.

Nothing is added to the model's behaviour, with one exception: a tool with `used_when_named` that the task
names is called if the model does not call it. The loop is the baseline for strategies that use tools.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tot_lab.core.calls import Message, stop_of
from tot_lab.core.protocol import Procedure
from tot_lab.core.records import Decided, Note, Thought, parent_of
from tot_lab.core.task import Answer, Task
from tot_lab.strategies.acting import Acting, describe_named_results, describe_tools, successful_results
from tot_lab.strategies.conversation import exchange, halt_in, with_hints


class ToolLoop(Acting):
    """Call the model with tools until it replies without a tool call.

    Best for questions that one or two tools answer, and as the baseline of strategies that use tools.
    Trade-off: nothing checks that tools were used, or that the answer is finished. Calls: 1 for each round
    trip, plus 1.

    If a budget or a failed model call ends the loop, the answer is read from the last turn without a tool
    call, or is empty if every turn has one.

    References:
        reactive-agents-ts (github.com/tylerjrbuell/reactive-agents-ts), an agent without reasoning.
    """

    kind = "tool_loop"
    notes = "tool_loop"

    max_tool_round_trips: Annotated[int, Field(ge=1, le=400)] = 3
    """The most turns that may call tools. One further turn may not."""

    def think(self, task: Task, at: str = "0") -> Procedure[Answer]:
        yield Thought(at, parent_of(at), task.question)
        available = self.available_tools(task)
        prompt = task.answer_prompt(True)
        talk = [Message("user", f"{prompt}\n\n{describe_tools(available)}" if available.tools else prompt)]
        place, source, offered = at, list[str](), list(available.tools.values())
        unused, known = self.named(task, available), list[str]()
        last, stop = Answer("", ""), ""
        for trip in range(self.max_tool_round_trips + 1):
            closing = trip == self.max_tool_round_trips
            turn = yield from self.turn(
                talk, place, known=available.known, offered=offered, source=source, closing=closing
            )
            if turn.error is not None:
                stop = stop_of(turn.error)
                break
            if closing or not (turn.calls or unused):
                break
            words = "" if turn.calls or turn.unknown else turn.words
            if words and (held := task.domain.read_answer(task, words)) is not None:
                last = Answer(held, "", turn.id)
            observations = yield from self.carry_out(available, turn)
            used = [call.name for call, seen in zip(turn.calls, observations, strict=True) if not seen.error]
            unused = [name for name in unused if name not in used]
            known += successful_results(turn.calls, observations)
            talk += exchange(turn, observations)
            *source, place = [seen.id for seen in observations] or [turn.id]
            halt = halt_in(observations)
            if halt is None and unused and (not turn.calls or trip + 1 == self.max_tool_round_trips):
                given = yield from self.called_for_model(task, available, place, unused, known)
                talk, unused = with_hints(talk, describe_named_results(unused, given)), []
                *source, place = [seen.id for seen in given]
                halt = halt_in(given)
            if halt is not None:
                stop = halt
                break
        if stop:
            if last.node is not None:
                yield Decided(last.node, "answer", stop)
            return Answer(last.text, stop, last.node)
        text = task.domain.read_answer(task, turn.words)
        if text is None:
            yield Note("parse.unreadable", turn.id, {"kind": "act", "draw": 0})
        stop = "limit:round_trips" if turn.calls else "answered"
        yield Decided(turn.id, "answer", stop)
        return Answer(text or "", stop, turn.id)

    def max_calls(self, task: Task) -> int:
        return self.max_tool_round_trips + 1
