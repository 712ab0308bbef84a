"""Reflexion: attempt, critique, and attempt again with the lessons.

    attempt    the inner strategy, with the lessons so far in `task.context`
    critique   the model says SATISFIED or UNSATISFIED, and what to do differently
    stop       satisfied, stagnated (the critique repeats itself), or no retry left

Lessons are passed on in the task's context. Every domain's prompts show it, so any strategy can be wrapped.
Each critique is recorded as a thought, so that a person can edit it.

References:
    Shinn et al. 2023, Reflexion, arXiv:2303.11366.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import msgspec
from pydantic import Field

from tot_lab.core.calls import halts
from tot_lab.core.protocol import Procedure, ask, emit, intercept, resample
from tot_lab.core.reading.verdicts import read_verdict
from tot_lab.core.records import Decided, Note, Scored, Thought, call_failed, parent_of
from tot_lab.core.strategy import Prompting, Strategy
from tot_lab.core.task import Answer, Path, Task
from tot_lab.strategies.react import ReAct

_LOOK = {
    "shallow": "Does the answer do what the task asks, in the form it asks for?",
    "deep": (
        "Check the way as well as the answer: each step, each calculation, all that the task asks for. Look "
        "for what is wrong, what is missing, and what is only claimed."
    ),
}


class Reflexion(Prompting):
    """Run a strategy, let a critic review the answer, and try again with the critique.

    Best for answers whose faults show once they are written: texts, code, sums. Trade-off: the critic is a
    model too, and may be satisfied too soon. Calls: those of the strategy and 1, for the first attempt and
    for each retry.

    The critic is satisfied if it states SATISFIED, with or without a colon. A negation or a condition (`never
    SATISFIED`, `to be SATISFIED: …`) means that it is not (see `read_verdict`). An attempt without an answer
    never counts as satisfactory.

    The sampling settings are those of the critic. Attempt k runs at `at.k`. The answer is that of the last
    attempt that gave one. Its score is 1 if the critic was satisfied, 0 if not, and `None` if the critique
    did not say. If the critic's call failed, the attempt's own score stays. Stops: `solved` (satisfied),
    `stagnated`, `limit:retries`.

    References:
        Shinn et al. 2023, Reflexion, arXiv:2303.11366; reactive-agents-ts
        (github.com/tylerjrbuell/reactive-agents-ts), strategy `reflexion`.
    """

    setting_aliases: ClassVar[Mapping[str, str]] = {
        "kernel_max_iterations": "strategy.kernel_max_iterations",  # only ReAct has it
        "self_critique_depth": "critique_depth",
    }

    strategy: Strategy = ReAct(max_iterations=3)
    """The strategy of each attempt. The setting name `kernel_max_iterations` sets its `max_iterations` if it
    is `tl.ReAct`."""

    max_retries: Annotated[int, Field(ge=0)] = 3
    """Attempts after the first."""

    critique_depth: Literal["shallow", "deep"] = "deep"
    """`shallow` reviews the answer, `deep` also how it was reached."""

    prior_critiques: list[str] = []
    """Critiques of earlier runs on similar tasks, shown from the first attempt on. `tl.Lab(memory=…)` recalls
    them."""

    def think(self, task: Task, at: str = "0") -> Procedure[Answer]:
        yield Thought(at, parent_of(at), task.question)
        answers: list[Answer] = []
        lessons: list[str] = []
        last, stop = "", "limit:retries"
        for number in range(self.max_retries + 1):
            yield Note("reflexion.attempt", at, {"attempt": number, "lessons": len(lessons)})
            way, root, taught = _ThoughtCollector(), f"{at}.{number}", self._with_lessons(task, lessons)
            answer = yield from resample(number, intercept(way, self.strategy.think(taught, root), calls=1))
            critique = yield from self._criticised(task, root, answer, way, number)
            answers.append(msgspec.structs.replace(answer, score=critique.score))
            if critique.halt is not None:
                stop = critique.halt
            elif critique.satisfied:
                stop = "solved"
            elif is_stagnant(critique.text, last):
                stop = "stagnated"
            if stop != "limit:retries":
                break
            last = critique.text
            lessons.append(_lesson(answer, critique.text))
        return (yield from self._answer(at, answers, stop))

    def checks_answers(self, task: Task) -> bool:
        return self.strategy.checks_answers(task)

    def max_calls(self, task: Task) -> int | None:
        inner = self.strategy.max_calls(task)
        return None if inner is None else (inner + 1) * (self.max_retries + 1)

    def _with_lessons(self, task: Task, lessons: Sequence[str]) -> Task:
        """`task` with the lessons in its context."""
        parts = []
        if self.prior_critiques:
            parts.append(earlier_critiques(self.prior_critiques))
        if lessons:
            parts.append(f"Earlier attempts at this very task, and what was wrong:\n{_listed(lessons)}")
        return task.with_context(*parts)

    def _criticised(
        self, task: Task, root: str, answer: Answer, way: _ThoughtCollector, number: int
    ) -> Procedure[_Critique]:
        """The critique of the attempt at `root`, recorded as a thought and a score."""
        node = answer.node or root
        path = [] if self.critique_depth == "shallow" else way.to(node, root, task.question)
        call = self.call(node, "critique", self._prompt(task, path, answer.text))
        reply = yield from resample(number, ask(call))
        if reply.error is not None:
            yield call_failed(node, "critique", reply.error)
            return _Critique("", answer.score, halt=reply.error if halts(reply.error) else None)
        source = (answer.node,) if answer.node is not None else ()
        thought = yield from emit(Thought(way.free_child(root), root, reply.text, source))
        verdict = read_verdict(thought.text)
        if verdict is None:
            yield Note("parse.unreadable", node, {"kind": "critique", "draw": 0})
        score = None if verdict is None else float(verdict and answer.text != "")
        if answer.node is not None:
            scored = yield from emit(Scored(answer.node, score, score, (score,), "critique"))
            score = scored.score
        data = {"attempt": number, "satisfied": None if score is None else score == 1.0}
        yield Note("reflexion.critiqued", at=root, data={**data, "critique": thought.id})
        return _Critique(thought.text, score, satisfied=score == 1.0)

    def _prompt(self, task: Task, path: Path, answer: str) -> str:
        way = f"The way to it:\n<way>\n{task.domain.steps(task.path(path))}\n</way>\n\n" if path else ""
        return (
            f"This task was set:\n<task>\n{task.answer_prompt(False)}\n</task>\n\n"
            f"{way}The answer:\n<answer>\n{answer or '(none was given)'}\n</answer>\n\n"
            f"Criticise it. {_LOOK[self.critique_depth]}\n"
            "If nothing needs to change, begin your reply with `SATISFIED:` and say why. Otherwise begin it "
            "with `UNSATISFIED:`, say what is wrong, and what the next attempt must do differently."
        )

    def _answer(self, at: str, answers: Sequence[Answer], stop: str) -> Procedure[Answer]:
        chosen = next((answer for answer in reversed(answers) if answer.text), answers[-1])
        for answer in answers:
            if answer.node is not None and answer.node != chosen.node:
                yield Decided(answer.node, "pruned", "another attempt was chosen")
        if chosen.node is not None:
            yield Decided(chosen.node, "answer", stop)
        if not chosen.text and chosen.stop_reason == "error" and not halts(stop):
            stop = "error"
        yield Note("reflexion.completed", at, {"attempts": len(answers), "stop": stop})
        ranked = tuple(answer.node for answer in reversed(answers) if answer.node is not None)
        return Answer(chosen.text, stop, chosen.node, chosen.score, ranked)


class _Critique(NamedTuple):
    """A critique. `halt` is the error of a call refused by a budget or a cancellation, or `None`."""

    text: str
    score: float | None
    satisfied: bool = False
    halt: str | None = None


class _ThoughtCollector:
    """An interceptor that collects the thoughts of an attempt as they were recorded."""

    of = Thought

    def __init__(self) -> None:
        self.thoughts: list[Thought] = []

    def carry_out(self, step: Thought) -> Procedure[Any]:
        recorded = yield step
        self.thoughts.append(recorded or step)
        return recorded

    def fork(self) -> Self:
        return type(self)()

    def join(self, branches: Sequence[Self]) -> None:
        for branch in branches:
            self.thoughts += branch.thoughts

    def to(self, node: str, root: str, question: str) -> list[str]:
        """The texts of the path from below `root` to `node`, without thoughts that only repeat the
        question."""
        known = {thought.id: thought for thought in self.thoughts}
        texts: list[str] = []
        while node != root and node in known:
            texts.insert(0, known[node].text)
            node = known[node].parent or root
        return [text for text in texts if text != question]

    def free_child(self, root: str) -> str:
        """The id of a new child of `root`, numbered after all others."""
        taken = [thought.id.rpartition(".")[2] for thought in self.thoughts if thought.parent == root]
        return f"{root}.{max(map(int, taken), default=-1) + 1}"


def is_stagnant(critique: str, last: str) -> bool:
    """Whether a critique repeats the last one.

    Case and spaces are ignored. A critique also counts as a repetition if the shorter of both texts has more
    than 20 characters and its first 80 % occur in the longer one.
    """
    shorter, longer = sorted((" ".join(text.casefold().split()) for text in (critique, last)), key=len)
    if not shorter:
        return False
    return shorter == longer or (len(shorter) > 20 and shorter[: len(shorter) * 4 // 5] in longer)


def earlier_critiques(critiques: Sequence[str]) -> str:
    """The prompt text about critiques of earlier runs."""
    return f"Earlier answers to similar tasks were criticised:\n{_listed(critiques)}"


def _lesson(answer: Answer, critique: str) -> str:
    outcome = f"It answered: {answer.text}" if answer.text else f"It gave no answer ({answer.stop_reason})."
    return f"{outcome}\nThe critique: {critique}" if critique else outcome


def _listed(texts: Sequence[str]) -> str:
    return "\n".join(f"{k}. {text}" for k, text in enumerate(texts, 1))
