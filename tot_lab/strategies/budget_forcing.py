"""Budget forcing: make the model continue its reasoning where it would have stopped."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
from pydantic import Field

from tot_lab.core.calls import Message, stop_of
from tot_lab.core.protocol import Procedure, ask, emit
from tot_lab.core.records import Decided, Note, Thought, call_failed, parent_of
from tot_lab.core.strategy import Prompting
from tot_lab.core.task import Answer, Task


class BudgetForcing(Prompting):
    """Ask for reasoning and an answer, and append "Wait" to the reply several times, so that the model
    continues it.

    The last message of a call is the unfinished reply (assistant prefill). The endpoint must continue it, as
    for the proposer `Continue`. `max_tokens` limits each call.

    Best for models that find their mistakes when they look again. Trade-off: a right answer may be given up.
    Calls: 1 + `waits`.

    The text of each call is a thought, a child of the text before it. The answer is read from the whole
    reply.

    References:
        Muennighoff et al. 2025, s1: Simple test-time scaling, arXiv:2501.19393, section 3.1. The paper
        replaces the delimiter that ends the thinking by "Wait". Here `word` follows the whole reply, its
        answer included.
    """

    scale: ClassVar[str] = "waits"

    waits: Annotated[int, Field(ge=0)] = 2
    """How often the reply is continued."""

    word: str = "Wait"
    """The text that is appended to the reply, at the start of a new line, before each further call."""

    def think(self, task: Task, at: str = "0") -> Procedure[Answer]:
        yield Thought(at, parent_of(at), task.question)
        prompt, node, whole, stop = task.answer_prompt(True), at, "", "answered"
        for number in range(self.waits + 1):
            begun = f"\n{self.word}" if number else ""
            call = self.call(node, "answer", prompt)
            if number:
                continued = (*call.messages, Message("assistant", whole + begun))
                call = msgspec.structs.replace(call, messages=continued)
            reply = yield from ask(call)
            if reply.error is not None:
                yield call_failed(node, "answer", reply.error)
                stop = stop_of(reply.error)
                break
            part = yield from emit(Thought(f"{node}.0", node, begun + reply.text))
            node, whole = part.id, whole + part.text
        if node == at:
            return Answer("", stop)
        text = task.domain.read_answer(task, whole)
        if text is None:
            yield Note("parse.unreadable", node, {"kind": "answer", "draw": 0})
        yield Decided(node, "answer", stop)
        return Answer(text or "", stop, node)

    def max_calls(self, task: Task) -> int:
        return 1 + self.waits
