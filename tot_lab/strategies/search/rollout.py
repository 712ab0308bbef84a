"""Rollouts: a thought is scored by the rewards of its sampled continuations."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

import msgspec
from pydantic import Field, field_validator, model_validator

from tot_lab.core.calls import Call, Reply
from tot_lab.core.protocol import Procedure, SampleCounter, map_steps, resample
from tot_lab.core.records import END_OF_REPLY, Decided, Event, Note, Scored, call_failed
from tot_lab.core.task import Path, Task
from tot_lab.core.tools import TOOL
from tot_lab.strategies.search.evaluators import Evaluator, Value
from tot_lab.strategies.search.proposers import Children, Proposer, Sample
from tot_lab.strategies.search.sampling import (
    Count,
    Expansion,
    Sampler,
    emit_as_list,
    error_in,
    failed,
    unreadable,
)


class Rollout(Evaluator):
    """Scores each thought by sampled continuations: the mean or highest reward of the paths they reach.

    The reward of a path is its assessment by the domain (`Domain.assess`) if it has one, else the score by
    `evaluate`. A continuation adds one step at a time with the proposer of the run. It ends when the path is
    finished, or after `depth` steps. With `depth=None` the proposer writes the rest of the solution in one
    call, and a server that can sample a prompt several times gets one request for all continuations of a
    thought.

    One evaluation serves all continuations that reach the same path. The steps are recorded as calls, not as
    thoughts. Calls: for each thought and sample, those of each step and of `evaluate`.

    References:
        Hao et al. 2023 (RAP), arXiv:2305.14992, section 3.3, simulation; Wang et al. 2024, Math-Shepherd,
        arXiv:2312.08935, section 3.3 (labels by Monte Carlo estimation: `depth=None`, and `aggregate`);
        Snell et al. 2024, arXiv:2408.03314, section 5.2, and search-and-learn, `generate_k_steps`
        (lookahead: `depth` steps at `temperature=0`).
    """

    samples: Count = 1
    """Continuations of each thought."""

    depth: Count | None = 3
    """The most steps of a continuation. `None` continues to the end of the solution in one call, for
    proposers that continue a reply, such as `Continue`."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """Sampling temperature of the continuations. `None` means that of the proposer."""

    aggregate: Literal["mean", "max"] = "mean"
    """How the rewards of the continuations become one score. For rewards of 0 and 1, `mean` is the soft and
    `max` the hard estimation of Math-Shepherd."""

    evaluate: Evaluator = Value()
    """Scores the paths that are reached. It must be an evaluator that scores each thought by itself."""

    propose: Proposer | None = None
    """Continues the thoughts. `None` means the proposer of the run."""

    @field_validator("evaluate")
    @classmethod
    def _compares_nothing(cls, evaluate: Evaluator) -> Evaluator:
        if evaluate.compares != "nothing":
            raise ValueError(
                f"evaluate must score each thought by itself, as Value does: got {evaluate.kind!r}."
            )
        return evaluate

    @model_validator(mode="after")
    def _can_continue(self) -> Self:
        if self.depth is None and self.propose is not None and self.propose.to_the_end() is None:
            raise ValueError(
                f"depth=None needs a proposer that continues a reply, such as Continue: got "
                f"{self.propose.kind!r}. Set depth to the most steps of a continuation."
            )
        return self

    def for_thoughts_of(self, propose: Any) -> Self:
        evaluate = self.evaluate.for_thoughts_of(propose)
        return self.with_(propose=self.propose or propose, evaluate=evaluate)

    @property
    def _proposer(self) -> Proposer:
        propose = self.propose or Sample()
        return (None if self.depth else propose.to_the_end()) or propose

    def calls_per_thought(self, task: Task) -> int:
        steps = (self.depth or 1) * self._proposer.max_calls(1)
        return self.samples * (steps + self.evaluate.calls_per_thought(task))

    def score_thought(self, sampler: Sampler, path: Path, id: str) -> Procedure[list[Event]]:
        proposer = self._proposer
        rolling = [resample(k, self._continue(sampler, proposer, path, id)) for k in range(self.samples)]
        most = (self.depth or 1) * proposer.max_calls(1)
        ends = yield from sampler.gather(rolling, at_most=most)
        paths = list(dict.fromkeys(end for end, _ in ends if end))
        rewarding = [self._reward(sampler, end, id) for end in paths]
        most = self.evaluate.calls_per_thought(sampler.task)
        rewarded = yield from sampler.gather(rewarding, at_most=most)
        outcome = dict(zip(paths, rewarded, strict=True))
        outcomes = [outcome[end] if end else (None, error) for end, error in ends]
        errors = [error for _, error in outcomes if error]
        if len(errors) == len(outcomes):
            return (yield from emit_as_list(failed(id, errors[0])))
        events: list[Event] = []
        for error in errors:
            events += yield from emit_as_list(call_failed(id, "rollout", error))
        rewards = tuple(reward for reward, _ in outcomes)
        read = [reward for reward in rewards if reward is not None]
        score = None if not read else max(read) if self.aggregate == "max" else sum(read) / len(read)
        return events + (yield from emit_as_list(Scored(id, score, score, rewards, "rollout")))

    def _continue(
        self, sampler: Sampler, proposer: Proposer, path: Path, id: str
    ) -> Procedure[tuple[tuple[str, ...], str]]:
        """The path that a continuation reaches, or `()` and the error of a failed call ("" if a reply was
        unreadable)."""
        # Each continuation numbers its calls anew. `resample` tells the calls of different ones apart.
        sampler = sampler._replace(samples=SampleCounter(by_thought=True))
        path, end = [*path], sampler.end
        for _ in range(self.depth or 1):
            if _is_finished(sampler.task, path, end):
                break
            expansion = Expansion(id, path, len(path), open=end == "open")
            step = _Step(sampler, self.evaluate, expansion)
            growing = proposer.grow(sampler, expansion, 1, step)
            events = yield from map_steps(self._as_rollout, growing, (Call, Note))
            error = next(filter(None, map(error_in, events)), "")
            if error or step.text is None:
                return (), error
            path, end = [*expansion.path_to(step.text)], expansion.ended.get(step.number, "")
        return tuple(path), ""

    def _as_rollout(self, step: Call | Note) -> Call | Note | None:
        """Relabel a call or note of the proposer as one of a rollout. `None` drops a `call.failed` note,
        which `score_thought` emits itself."""
        if isinstance(step, Call):
            if step.purpose == TOOL:
                return step
            temperature = step.temperature if self.temperature is None else self.temperature
            return msgspec.structs.replace(step, purpose="rollout", temperature=temperature)
        if step.name == "call.failed":
            return None
        return msgspec.structs.replace(step, data={**step.data, "kind": "rollout"})

    def _reward(self, sampler: Sampler, path: Path, id: str) -> Procedure[tuple[float | None, str]]:
        """The reward of a path, or `None` and the error of its evaluation ("" if the score is unreadable)."""
        known = sampler.task.domain.assess(sampler.task, path)
        if known is not None:
            return known, ""
        scoring = self.evaluate.score_thought(sampler, path, id)
        events = yield from map_steps(lambda event: None, scoring, of=(Scored, Decided))  # not recorded
        *_, last = events
        if not isinstance(last, Scored):
            return None, error_in(last) or ""
        purpose = "part" if self.evaluate.kind == "parts" else self.evaluate.kind
        for index in (k for k, sample in enumerate(last.samples) if sample is None):
            yield unreadable(id, purpose, index)
        return last.score, ""


class _Step(Children):
    """The next step of a continuation, which is neither recorded nor scored."""

    text: str | None = None
    number: int = 0

    def __init__(self, sampler: Sampler, evaluate: Evaluator, expansion: Expansion) -> None:
        super().__init__(sampler, evaluate, expansion)
        self.calls_per_child = 0

    def add(
        self, number: int, text: str, *, repeats: int | None = None, reply: Reply | None = None
    ) -> Procedure[list[Event]]:
        if self.text is None:
            self.number, self.text = number, text
        yield from ()
        return []


def _is_finished(task: Task, path: Path, end: str) -> bool:
    """Whether a path needs no further step. `end` is the entry of its last step in `Expansion.ended`."""
    domain = task.domain
    if domain.complete(task, path) or (domain.is_text and end == END_OF_REPLY):
        return True
    return domain.is_text and end not in ("cut", "open") and domain.states_answer(task, path) is True
