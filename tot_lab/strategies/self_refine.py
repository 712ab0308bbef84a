"""Self-refine: answer, feedback, and a better answer, with the whole history in view."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
from pydantic import Field

from tot_lab.core.calls import Reply, stop_of
from tot_lab.core.protocol import Procedure, ask, emit
from tot_lab.core.reading.verdicts import read_verdict
from tot_lab.core.records import Decided, Scored, Thought, call_failed, parent_of
from tot_lab.core.strategy import Prompting
from tot_lab.core.task import Answer, Task


class SelfRefine(Prompting):
    """Answer, give feedback on the answer, and rewrite it with all earlier answers and feedback, until the
    feedback asks for no change.

    Best for texts and code whose faults show once they are written. Trade-off: the critic is the model
    itself, and may find faults where there are none. Calls: 1, and 2 for each refinement.

    Answer k is the thought `at.k`, its feedback `at.k.0`, and both are the sources of answer k + 1. An answer
    has score 1 if its feedback asks for no change, 0 if it asks for one, and `None` if the feedback says
    neither or is missing. Stops: `solved` (no change needed), `limit:rounds`, `error` (a call failed; the
    last answer counts).

    References:
        Madaan et al. 2023, Self-Refine: Iterative Refinement with Self-Feedback, arXiv:2303.17651,
        Algorithm 1.
    """

    scale: ClassVar[str] = "rounds"

    rounds: Annotated[int, Field(ge=0)] = 4
    """The most refinements."""

    def think(self, task: Task, at: str = "0") -> Procedure[Answer]:
        yield Thought(at, parent_of(at), task.question)
        drafts: list[Answer] = []
        history: list[str] = []
        sources: tuple[str, ...] = ()
        stop = "limit:rounds"
        for number in range(self.rounds + 1):
            reply = yield from self._asked(at, "answer", self._answer_prompt(task, history), number)
            if reply.error is not None:
                stop = stop_of(reply.error)
                break
            draft = yield from emit(Thought(f"{at}.{number}", at, reply.text, sources))
            answer = Answer(task.domain.read_answer(task, draft.text) or "", "answered", draft.id)
            drafts.append(answer)
            if number == self.rounds:
                break
            reply = yield from self._asked(draft.id, "critique", self._critique_prompt(task, draft.text))
            if reply.error is not None:
                stop = stop_of(reply.error)
                break
            feedback = yield from emit(Thought(f"{draft.id}.0", draft.id, reply.text))
            verdict = read_verdict(feedback.text)
            score = None if verdict is None else float(verdict)
            scored = yield from emit(Scored(draft.id, score, score, (score,), "critique"))
            drafts[-1] = msgspec.structs.replace(answer, score=scored.score)
            if scored.score == 1.0:
                stop = "solved"
                break
            history.append(f"An earlier answer:\n{draft.text}\n\nFeedback on it:\n{feedback.text}")
            sources = (draft.id, feedback.id)
        return (yield from self._choose(drafts, stop))

    def max_calls(self, task: Task) -> int:
        return 1 + 2 * self.rounds

    def _asked(self, node: str, purpose: str, prompt: str, sample_index: int = 0) -> Procedure[Reply]:
        reply = yield from ask(self.call(node, purpose, prompt, sample_index))
        if reply.error is not None:
            yield call_failed(node, purpose, reply.error)
        return reply

    def _answer_prompt(self, task: Task, history: list[str]) -> str:
        if history:
            task = task.with_context(*history, "Write a better answer that follows the feedback.")
        return task.answer_prompt(True)

    def _critique_prompt(self, task: Task, answer: str) -> str:
        return (
            f"This task was set:\n<task>\n{task.answer_prompt(False)}\n</task>\n\n"
            f"The answer:\n<answer>\n{answer}\n</answer>\n\n"
            "Give feedback on it. If nothing needs to change, begin your reply with `SATISFIED:`. Otherwise "
            "begin it with `UNSATISFIED:`, and say for each fault where it is and how to mend it."
        )

    def _choose(self, drafts: list[Answer], stop: str) -> Procedure[Answer]:
        """Answer with the last draft from which an answer could be read."""
        chosen = next((draft for draft in reversed(drafts) if draft.text), Answer("", stop))
        for draft in drafts:
            if draft.node is not None:
                is_chosen = draft.node == chosen.node
                reason = stop if is_chosen else "a later answer was chosen"
                yield Decided(draft.node, "answer" if is_chosen else "pruned", reason)
        ranked = tuple(draft.node for draft in reversed(drafts) if draft.node is not None)
        return Answer(chosen.text, stop, chosen.node, chosen.score, ranked)
