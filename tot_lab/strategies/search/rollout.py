"""Rollouts: a thought is worth what complete continuations of it are worth."""

from __future__ import annotations

from functools import partial

import msgspec
from pydantic import field_validator

from tot_lab.core.records import Decided, Event, Scored, call_failed
from tot_lab.core.task import Path, Task
from tot_lab.core.thinking import Thinking, ask, map_steps, resample
from tot_lab.strategies.search.evaluators import Evaluator, Value
from tot_lab.strategies.search.sampling import (
    Count,
    Sampler,
    emit_as_list,
    error_in,
    failed,
    unreadable,
)


class Rollout(Evaluator):
    """Scores each thought by sampled continuations to the end: the mean reward of the paths that they reach.

    The reward of a path is what the domain knows of it (`Domain.assess`), else the score by `evaluate`. A
    continuation samples one step at a time. It ends when the domain says that its path is complete, or after
    `depth` steps. One evaluation serves all continuations that reach the same path. The steps are recorded as
    calls, not as thoughts. Calls: for each thought and sample, one per step and those of `evaluate`.

    References:
        Hao et al. 2023 (RAP), arXiv:2305.14992, section 3.3, simulation.
    """

    samples: Count = 1
    """Continuations of each thought."""

    depth: Count = 3
    """The most steps of a continuation."""

    evaluate: Evaluator = Value()
    """Scores the paths that are reached. It must score each by itself."""

    @field_validator("evaluate")
    @classmethod
    def _compares_nothing(cls, evaluate: Evaluator) -> Evaluator:
        if evaluate.compares != "nothing":
            raise ValueError(
                f"an evaluator that scores each thought by itself is needed: got {evaluate.kind!r}"
            )
        return evaluate

    def calls_per_thought(self, task: Task) -> int:
        return self.samples * (self.depth + self.evaluate.calls_per_thought(task))

    def score_thought(self, sampler: Sampler, path: Path, id: str) -> Thinking[list[Event]]:
        rolling = [resample(k, self._continue(sampler, path, id)) for k in range(self.samples)]
        ends = yield from sampler.gather(rolling, at_most=self.depth)
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
        mean = sum(read) / len(read) if read else None
        return events + (yield from emit_as_list(Scored(id, mean, mean, rewards, "rollout")))

    def _continue(self, sampler: Sampler, path: Path, id: str) -> Thinking[tuple[tuple[str, ...], str]]:
        """The path that a continuation reaches, or `()` with the error of a call, "" if it was unreadable."""
        task, domain, path = sampler.task, sampler.task.domain, [*path]
        for index in range(self.depth):
            if domain.complete(task, path) or (domain.is_text and domain.states_answer(task, path)):
                break
            prompt = sampler.prompt(None, path, partial(domain.sample_prompt, task, path))
            call = sampler.call(id, "sample", path, prompt, index)
            reply = yield from ask(msgspec.structs.replace(call, purpose="rollout"))
            if reply.error is not None:
                return (), reply.error
            step = domain.read_sample(task, path, reply.text)
            if step is None:
                yield unreadable(id, "rollout", index)
                return (), ""
            path.append(step)
        return tuple(path), ""

    def _reward(self, sampler: Sampler, path: Path, id: str) -> Thinking[tuple[float | None, str]]:
        """The reward of a path at its end, or `None` with the error of its evaluation, "" if unreadable."""
        known = sampler.task.domain.assess(sampler.task, path)
        if known is not None:
            return known, ""
        scoring = self.evaluate.score_thought(sampler, path, id)
        events = yield from map_steps(lambda event: None, scoring, of=(Scored, Decided))  # of another path
        *_, last = events
        if not isinstance(last, Scored):
            return None, error_in(last) or ""
        purpose = "part" if self.evaluate.kind == "parts" else self.evaluate.kind
        for index in (k for k, sample in enumerate(last.samples) if sample is None):
            yield unreadable(id, purpose, index)
        return last.score, ""
