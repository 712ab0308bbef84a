"""Baselines for every search: one answer, chain of thought, best of N, self-consistency.

The last two wrap any strategy, another search included. Each attempt is a subtree with samples of its own,
and attempts are compared when all of them have ended.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from pydantic import Field

from tot_lab.core.calls import stop_of
from tot_lab.core.parts import UserFunction
from tot_lab.core.protocol import Procedure, ask, emit, gather, resample
from tot_lab.core.reading.values import verdict
from tot_lab.core.records import Decided, Note, Scored, Thought, call_failed, parent_of
from tot_lab.core.strategy import Prompting, Strategy
from tot_lab.core.task import Answer, Task
from tot_lab.strategies.voting import choose, choose_by_vote


class OneAnswer(Prompting):
    """Ask for the answer directly, without reasoning (input-output prompting).

    Best for questions that the model knows, and as the lower bound of a comparison. Trade-off: no room for
    intermediate steps. Calls: 1.

    References:
        Yao et al. 2023, Tree of Thoughts, section 2.
    """

    def think(self, task: Task, at: str = "0") -> Procedure[Answer]:
        return _answer_once(self, task, at, reasoning=False)

    def max_calls(self, task: Task) -> int:
        return 1


class ChainOfThought(Prompting):
    """Ask the model to think step by step and then answer.

    Best for problems with a few steps and no dead ends. Trade-off: a wrong step is never noticed. Calls: 1.

    References:
        Wei et al. 2022, Chain-of-Thought Prompting, arXiv:2201.11903.
    """

    def think(self, task: Task, at: str = "0") -> Procedure[Answer]:
        return _answer_once(self, task, at, reasoning=True)

    def max_calls(self, task: Task) -> int:
        return 1


class JudgedAttempts(Prompting):
    """Base of strategies that run another strategy several times and score each attempt."""

    kind: ClassVar[str] = ""

    scale: ClassVar[str] = "attempts"

    strategy: Strategy
    """The strategy of each attempt."""

    attempts: Annotated[int, Field(ge=1)] = 5
    """The number of attempts."""

    evaluate: Literal["value", "score"] | UserFunction = "value"
    """How an attempt is scored: `value` asks the model to rate its answer, `score` takes the score that
    `strategy` returned, and a function `(task, path) -> score` returns 0 to 1, or `None` for no score.
    """

    def judged_attempts(self, task: Task, at: str) -> Procedure[list[Answer]]:
        """The answers of all attempts below a new thought `at`, with their scores."""
        yield Thought(at, parent_of(at), task.question)
        return (
            yield from gather(
                [self._attempt(task, f"{at}.{k}", k) for k in range(self.attempts)],
                at_most=self._calls_per_attempt(task),
            )
        )

    def checks_answers(self, task: Task) -> bool:
        return self.strategy.checks_answers(task)

    def max_calls(self, task: Task) -> int | None:
        each = self._calls_per_attempt(task)
        return None if each is None else each * self.attempts

    def _calls_per_attempt(self, task: Task) -> int | None:
        inner = self.strategy.max_calls(task)
        return None if inner is None else inner + (self.evaluate == "value")

    def _attempt(self, task: Task, at: str, number: int) -> Procedure[Answer]:
        answer = yield from resample(number, self.strategy.think(task, at))
        if answer.node is None or self.evaluate == "score":
            return answer
        path = task.path([f"Answer: {answer.text}"])
        if isinstance(self.evaluate, UserFunction):
            shown = self.evaluate(task.without_steps(), path)
            score = verdict(shown, f"evaluator {self.evaluate.name!r}, thought {answer.node},")
            scored = yield from emit(Scored(answer.node, score, score, by=self.evaluate.name))
        else:
            call = self.call(answer.node, "judge", task.domain.value_prompt(task, path))
            reply = yield from resample(number, ask(call))
            if reply.error is not None:
                yield call_failed(answer.node, "judge", reply.error)
                return answer
            raw = task.domain.read_value(reply.text)
            score = None if raw is None else min(raw / task.domain.value_top, 1.0)
            scored = yield from emit(Scored(answer.node, score, raw, (raw,), "value"))
        return msgspec.structs.replace(answer, score=scored.score)


class BestOf(JudgedAttempts):
    """Run a strategy several times and keep the attempt with the highest score, the first in case of a tie.

    Best for answers that are easier to judge than to find. Trade-off: the choice is no better than the judge.
    Calls: `attempts` times those of the strategy, and with `value` 1 more for each attempt.
    """

    def think(self, task: Task, at: str = "0") -> Procedure[Answer]:
        answers = yield from self.judged_attempts(task, at)
        ranked = sorted(answers, key=_worth, reverse=True)
        return (yield from choose(ranked, ranked[0]))


class SelfConsistency(Strategy):
    """Run a strategy several times and keep the most frequent answer, or the first of equally frequent ones.

    The domain decides which answers count as the same.

    Best for short answers that can be compared, if correct answers are more frequent than any single mistake.
    Trade-off: a mistake that is more frequent than the correct answer wins. Calls: `attempts` times those of
    the strategy.

    References:
        Wang et al. 2023, Self-Consistency Improves Chain of Thought Reasoning, arXiv:2203.11171.
    """

    scale: ClassVar[str] = "attempts"

    strategy: Strategy = ChainOfThought()
    """The strategy of each attempt."""

    attempts: Annotated[int, Field(ge=1)] = 5
    """The number of attempts."""

    def think(self, task: Task, at: str = "0") -> Procedure[Answer]:
        yield Thought(at, parent_of(at), task.question)
        answers = yield from gather(
            [resample(k, self.strategy.think(task, f"{at}.{k}")) for k in range(self.attempts)],
            at_most=self.strategy.max_calls(task),
        )
        return (yield from choose_by_vote(task, answers, "self_consistency"))

    def checks_answers(self, task: Task) -> bool:
        return self.strategy.checks_answers(task)

    def max_calls(self, task: Task) -> int | None:
        inner = self.strategy.max_calls(task)
        return None if inner is None else inner * self.attempts


def baselines(attempts: int = 5, **sampling: Any) -> dict[str, Strategy]:
    """The usual baselines by name: one answer, chain of thought, and best of N and self-consistency over
    `attempts` chains.

        await lab.sweep({**tl.baselines(), "ToT": tl.TreeOfThoughts()}, tasks)

    Args:
        attempts: Number of chains for the last two baselines.
        sampling: Settings shared by all, such as `temperature=0.7`.
    """
    chain = ChainOfThought(**sampling)
    return {
        "one answer": OneAnswer(**sampling),
        "chain of thought": chain,
        f"best of {attempts}": BestOf(strategy=chain, attempts=attempts, **sampling),
        f"self-consistency of {attempts}": SelfConsistency(strategy=chain, attempts=attempts),
    }


def _answer_once(strategy: Prompting, task: Task, at: str, *, reasoning: bool) -> Procedure[Answer]:
    yield Thought(at, parent_of(at), task.question)
    prompt = task.answer_prompt(reasoning)
    reply = yield from ask(strategy.call(at, "answer", prompt))
    if reply.error is not None:
        yield call_failed(at, "answer", reply.error)
        return Answer("", stop_of(reply.error))
    node = f"{at}.0"
    thought = yield from emit(Thought(node, at, reply.text))
    text = task.domain.read_answer(task, thought.text)
    if text is None:
        yield Note("parse.unreadable", at, {"kind": "answer", "draw": 0})
    yield Decided(node, "answer", "answered")
    return Answer(text or "", "answered", node)


def _worth(answer: Answer) -> tuple[bool, float]:
    """Sort key: attempts without an answer lowest, then those without a score, then by score."""
    return bool(answer.text), -1.0 if answer.score is None else answer.score
