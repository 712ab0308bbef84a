"""Evaluators: how thoughts are scored.

`compares` says what one evaluation covers: one thought (`nothing`, or `reply` if the score comes from the
reply that the thought was read from), the children of one parent (`siblings`), or all children of one pick
(`pick`). An evaluator implements the one method for its case. A score that cannot be read is `None`, never an
invented number.
"""

from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal, Self, TypeVar

import msgspec
from pydantic import field_validator

from tot_lab.core.calls import Call, Reply
from tot_lab.core.parts import Alias, Part, UserFunction, is_function
from tot_lab.core.protocol import Procedure, ask, ask_function
from tot_lab.core.reading.scores import read_sibling_scores
from tot_lab.core.reading.values import verdict
from tot_lab.core.records import Event, Note, Scored, Thought, call_failed, id_key
from tot_lab.core.task import Path, Task
from tot_lab.core.tools import function_call
from tot_lab.strategies.confidence import ALTERNATIVES
from tot_lab.strategies.search.sampling import (
    OF_THE_STRATEGY,
    Count,
    Expansion,
    Prompt,
    Retries,
    Sampler,
    checked_template,
    emit_as_list,
    failed,
    texts_of,
    unreadable,
)

T = TypeVar("T")


class Evaluator(Part):
    """Scores thoughts from 0 to 1. Subclass it, or pass a function, for a custom evaluator."""

    kind: ClassVar[str] = ""
    setting_aliases: ClassVar[Mapping[str, str | Alias]] = OF_THE_STRATEGY
    compares: ClassVar[Literal["nothing", "reply", "siblings", "pick"]] = "nothing"
    """What one evaluation covers (see the module), and thus which of the four `score_…` methods is called."""

    judges_answers: ClassVar[bool] = False
    """Whether the highest score means that the path answers the problem, and not only that its steps are
    right."""

    logprobs: ClassVar[int] = 0
    """Alternatives per token whose log-probabilities the proposals must report."""

    alternatives: ClassVar[int | None] = None
    """How many of the reported alternatives `score_reply` reads from `Reply.logprobs`. `None` means that
    `Reply.surprisals` and `Reply.confidences` are enough."""

    @classmethod
    def _short_form(cls, value: Any) -> Any:
        if is_function(value) and issubclass(FunctionEvaluator, cls):
            function: Any = value
            made = FunctionEvaluator(function=function)
            return BatchEvaluator(function=made.function) if "paths" in made.function.parameters else made
        return super()._short_form(value)

    def for_thoughts_of(self, propose: Any) -> Self:
        """Return this evaluator, adapted to thoughts made by `propose`. `Rollout` also continues them with
        `propose`."""
        return self

    def calls_per_thought(self, task: Task) -> int:
        """The most calls that score one thought by itself."""
        return 0

    def calls_per_siblings(self, count: int) -> int:
        """The most calls that score `count` children of one parent together."""
        return 0

    def calls_per_pick(self) -> int:
        """The most calls that score all children of one pick together."""
        return 0

    def score_thought(self, sampler: Sampler, path: Path, id: str) -> Procedure[list[Event]]:
        """Score the thought `id`, the last of `path`."""
        raise NotImplementedError(f"the evaluator {self.kind!r} does not define `score_thought`")

    def score_reply(self, id: str, reply: Reply | None) -> Procedure[list[Event]]:
        """Score the thought `id` by the reply that it was read from.

        `reply` is `None` if several thoughts were read from one reply, or if a person has changed this
        thought.
        """
        raise NotImplementedError(f"the evaluator {self.kind!r} does not define `score_reply`")

    def score_siblings(
        self, sampler: Sampler, expansion: Expansion, thoughts: Sequence[Thought]
    ) -> Procedure[list[Event]]:
        """Score `thoughts`, the new children of `expansion.node`."""
        raise NotImplementedError(f"the evaluator {self.kind!r} does not define `score_siblings`")

    def score_pick(
        self, sampler: Sampler, expansion: Expansion, candidates: Sequence[tuple[str, Path]]
    ) -> Procedure[list[Event]]:
        """Score the new children of all parents of a pick together.

        `candidates` holds the id and the path of each child. `expansion.node` is the parent of the first one.
        """
        raise NotImplementedError(f"the evaluator {self.kind!r} does not define `score_pick`")


class _Sampled(Evaluator):
    """An evaluator that can sample several replies to its prompt."""

    judges_answers: ClassVar[bool] = True

    samples: Count = 1
    """Replies sampled for each evaluation."""

    max_parse_retries: Retries = 0
    """The most further samples per evaluation, one for each reply that cannot be read."""

    @property
    def max_calls(self) -> int:
        """The most calls of one evaluation."""
        return self.samples + self.max_parse_retries

    def _read(
        self,
        sampler: Sampler,
        path: Path,
        expansion: Expansion,
        purpose: str,
        prompt: Prompt,
        read: Callable[[str], T | None],
    ) -> Procedure[tuple[list[T | None], str | None]]:
        """Read `samples` replies to one prompt, and retry those that cannot be read.

        Returns the value of each sample (`None` if unreadable), and an error if all calls failed.
        """
        next_call = partial(_next_call, sampler, path, expansion, purpose, prompt)
        if self.max_calls == 1:
            return _read_one(next_call(), read)
        return self._read_several(sampler, next_call, read)

    def _read_several(
        self, sampler: Sampler, next_call: Callable[[], Call], read: Callable[[str], T | None]
    ) -> Procedure[tuple[list[T | None], str | None]]:
        calls = [ask(next_call()) for _ in range(self.samples)]
        replies = yield from sampler.gather(calls, at_most=1)
        values = [None if reply.error is not None else read(reply.text) for reply in replies]
        for _ in range(self.max_parse_retries):
            retried = [k for k, reply in enumerate(replies) if values[k] is None and reply.error is None]
            if not retried:
                break
            call = next_call()
            yield unreadable(call.node, call.purpose, call.sample_index)
            reply = yield from ask(call)
            replies[retried[0]] = reply
            values[retried[0]] = None if reply.error is not None else read(reply.text)
        errors = [reply.error for reply in replies if reply.error is not None]
        return values, errors[0] if len(errors) == len(replies) else None


def _next_call(sampler: Sampler, path: Path, expansion: Expansion, purpose: str, prompt: Prompt) -> Call:
    """The next sample of `prompt`."""
    return sampler.call(expansion.node, purpose, path, prompt, expansion.take_sample_index(purpose))


def _read_one(call: Call, read: Callable[[str], T | None]) -> Procedure[tuple[list[T | None], str | None]]:
    reply: Reply = yield call
    return [None if reply.error is not None else read(reply.text)], reply.error


class _Templated(Evaluator):
    """An evaluator whose prompt can be replaced."""

    prompt: str | None = None
    """Template that replaces the domain's prompt, with `{problem}`, `{steps}` and `{candidate}`, or
    `{candidates}` where several thoughts are compared. A text without any slot is sent as the system message,
    and the domain's prompt follows it."""

    @field_validator("prompt")
    @classmethod
    def _has_the_slots(cls, template: str | None) -> str | None:
        shown = "candidate" if cls.compares == "nothing" else "candidates"
        return checked_template(template, ("problem", "steps", shown), ("problem", shown))


class _Combined(_Sampled):
    """An evaluator that combines the samples of each thought."""

    combine: Literal["mean", "sum", "vote"] = "mean"
    """How samples become one score: their mean, their sum (Yao et al., Game of 24), or the most frequent
    value (the first in case of a tie)."""

    def _combine(
        self, samples: Sequence[float | None], max_value: float
    ) -> tuple[float | None, float | None]:
        """The score of several samples, and `raw`, the mean, sum or most frequent value itself.

        The score is `raw` divided by its highest possible value. For a sum that is `max_value` for each
        sample, so unreadable samples lower the score.
        """
        read = [sample for sample in samples if sample is not None]
        if not read:
            return None, None
        if self.combine == "mean":
            raw = sum(read) / len(read)
        elif self.combine == "sum":
            raw, max_value = sum(read), max_value * len(samples)
        else:
            raw = Counter(read).most_common(1)[0][0]
        return min(raw / max_value, 1.0), raw

    def _scored(self, id: str, samples: Sequence[float | None], max_value: float, error: str | None) -> Event:
        if error is not None:
            return failed(id, error)
        score, raw = self._combine(samples, max_value)
        return Scored(id, score, raw, tuple(samples), self.kind)


class Value(_Combined, _Templated):
    """Scores each thought alone: how promising is the state that it reaches?

    References:
        Yao et al. 2023, section 3, state evaluator (a): value each state independently.
    """

    def calls_per_thought(self, task: Task) -> int:
        return self.max_calls

    def score_thought(self, sampler: Sampler, path: Path, id: str) -> Procedure[list[Event]]:
        task = sampler.task
        prompt = sampler.prompt(
            self.prompt, path[:-1], partial(task.domain.value_prompt, task, path), candidate=path[-1]
        )
        samples, error = yield from self._read(
            sampler, path, Expansion(id, path), "value", prompt, task.domain.read_value
        )
        return (yield from emit_as_list(self._scored(id, samples, task.domain.value_top, error)))


class Parts(_Combined):
    """Scores each part of a thought's state alone, such as each clue of a crossword. The domain defines the
    parts and combines their scores.

    References:
        Yao et al. 2023, section 4.3: each clue of a crossword is judged by itself.
    """

    def calls_per_thought(self, task: Task) -> int:
        return task.domain.max_parts(task) * self.max_calls

    def score_thought(self, sampler: Sampler, path: Path, id: str) -> Procedure[list[Event]]:
        task, domain = sampler.task, sampler.task.domain
        prompts = dict.fromkeys(domain.part_prompts(task, path))
        if len(prompts) > (most := domain.max_parts(task)):
            name = type(domain).__name__
            raise ValueError(f"{name} has {len(prompts)} parts at thought {id}, its max_parts allows {most}.")
        reading = [
            self._read(sampler, path, Expansion(id, path), "part", Prompt(prompt), domain.read_part)
            for prompt in prompts
        ]
        verdicts = yield from sampler.gather(reading, at_most=self.max_calls)
        errors = [error for _, error in verdicts if error is not None]
        if errors and len(errors) == len(verdicts):
            return (yield from emit_as_list(failed(id, errors[0])))
        events: list[Event] = []
        for error in errors:
            events += yield from emit_as_list(call_failed(id, "part", error))
        parts = tuple(self._combine(samples, domain.value_top)[0] for samples, _ in verdicts)
        read = [part for part in parts if part is not None]
        score = domain.join_parts(read) if read else None
        return events + (yield from emit_as_list(Scored(id, score, score, parts, "parts")))


class Vote(_Sampled, _Templated):
    """Compares all new thoughts of a pick. The score of a thought is its share of the votes.

    References:
        Yao et al. 2023, section 3, state evaluator (b): vote across states.
    """

    compares: ClassVar[Literal["nothing", "reply", "siblings", "pick"]] = "pick"

    def calls_per_pick(self) -> int:
        return self.max_calls

    def score_pick(
        self, sampler: Sampler, expansion: Expansion, candidates: Sequence[tuple[str, Path]]
    ) -> Procedure[list[Event]]:
        task, paths = sampler.task, [path for _, path in candidates]
        listed = "\n\n".join(f"{k}.\n{path[-1]}" for k, path in enumerate(paths, 1))
        prompt = sampler.prompt(
            self.prompt, task.steps, partial(task.domain.vote_prompt, task, paths), candidates=listed
        )
        votes, error = yield from self._read(
            sampler,
            task.steps,
            expansion,
            "vote",
            prompt,
            lambda text: task.domain.read_vote(text, len(paths)),
        )
        scores: list[Event] = []
        for k, (id, _) in enumerate(candidates):
            samples = tuple(None if vote is None else float(vote == k) for vote in votes)
            read = [sample for sample in samples if sample is not None]
            share = sum(read) / len(read) if read else None
            scored = Scored(id, share, sum(read) if read else None, samples, "vote")
            scores += yield from emit_as_list(failed(id, error) if error else scored)
        return scores


class Joint(_Combined, _Templated):
    """Scores all new children of one parent in one call."""

    compares: ClassVar[Literal["nothing", "reply", "siblings", "pick"]] = "siblings"

    def calls_per_siblings(self, count: int) -> int:
        return self.max_calls

    def score_siblings(
        self, sampler: Sampler, expansion: Expansion, thoughts: Sequence[Thought]
    ) -> Procedure[list[Event]]:
        task, path, texts = sampler.task, expansion.path, [thought.text for thought in thoughts]
        prompt = sampler.prompt(
            self.prompt,
            path,
            partial(task.domain.joint_prompt, task, path, texts),
            candidates=texts_of(texts),
        )

        repairs = dict[str, None]()

        def read(text: str) -> list[float | None] | None:
            scores, usual = task.domain.read_joint(text, texts), read_sibling_scores(text, texts)
            if usual.repairs and usual.scores == scores:
                repairs[usual.repairs] = None
            return None if scores.count(None) == len(scores) else scores

        rows, error = yield from self._read(sampler, path, expansion, "joint", prompt, read)
        for why in repairs:
            yield Note("joint.matched", expansion.node, {"why": why}, fallback=True)
        scores: list[Event] = []
        for k, thought in enumerate(thoughts):
            samples = [None if row is None else row[k] for row in rows]
            scores += yield from emit_as_list(self._scored(thought.id, samples, 1.0, error))
        return scores


class Logprob(_Templated):
    """Scores each thought alone by a single token: the probability of yes against no.

    The score is the mean value of the domain's labels, such as yes (1) and no (0), weighted by their
    probabilities. `raw` is the score times the probability that the token is one of the labels. The model
    must report log-probabilities.
    """

    def calls_per_thought(self, task: Task) -> int:
        return 1

    def score_thought(self, sampler: Sampler, path: Path, id: str) -> Procedure[list[Event]]:
        task = sampler.task
        prompt = sampler.prompt(
            self.prompt, path[:-1], partial(task.domain.judge_prompt, task, path), candidate=path[-1]
        )
        call = sampler.call(id, "logprob", path, prompt, 0)
        reply = yield from ask(msgspec.structs.replace(call, max_tokens=1, logprobs=ALTERNATIVES))
        if reply.error is not None:
            return (yield from emit_as_list(failed(id, reply.error)))
        read = task.domain.read_judge(reply.logprobs)
        if read is None:
            return (yield from emit_as_list(Scored(id, None, None, (None,), "logprob")))
        score, share = read
        return (yield from emit_as_list(Scored(id, score, score * share, (score,), "logprob")))


class FunctionEvaluator(Evaluator):
    """A function `(task, path) -> score` that returns 0 to 1, or `None` for no score. It may be async.

    `TreeOfThoughts(evaluate=function)` is short for `TreeOfThoughts(evaluate=FunctionEvaluator(function=…))`.
    An async function runs as a recorded call with the purpose `evaluate`.
    """

    function: UserFunction
    """The function. Its name is recorded with each score."""

    @field_validator("function")
    @classmethod
    def _takes_task_and_path(cls, function: UserFunction) -> UserFunction:
        forms = "(task, path) -> score, or (task, paths) -> scores for all new children of a pick"
        function.expect_arguments("evaluator", ("task", "path"), forms)
        return function

    def score_thought(self, sampler: Sampler, path: Path, id: str) -> Procedure[list[Event]]:
        task = sampler.task.without_steps()
        if not inspect.iscoroutinefunction(self.function.wrapped):
            return (yield from self._emit(id, self.function(task, path)))

        scores, error = yield from self._judged(
            Expansion(id, path), [path], (task, path), lambda one: _text([one])
        )
        if error is not None:
            return (yield from emit_as_list(failed(id, error)))
        return (yield from self._emit(id, scores[0]))

    def _judged(
        self,
        expansion: Expansion,
        paths: Sequence[Path],
        arguments: Sequence[Any],
        text: Callable[[Any], str],
    ) -> Procedure[tuple[list[Any], str | None]]:
        """Run the function for `paths` as a recorded call. Returns the scores, or an error."""
        name, index = self.function.name, expansion.take_sample_index("evaluate")
        call = function_call(expansion.node, "evaluate", name, json.dumps([[*path] for path in paths]), index)
        reply = yield from ask_function(call, self.function, arguments, text)
        if reply.error is not None:
            return [], reply.error
        scores = json.loads(reply.text)
        if not isinstance(scores, list):
            raise TypeError(f"evaluator {name!r} must return a list with one score per path: got {scores!r}.")
        if len(scores) != len(paths):
            raise ValueError(
                f"evaluator {name!r} must return one score per path: got {len(scores)} for {len(paths)}."
            )
        return scores, None

    def _emit(self, id: str, shown: Any) -> Procedure[list[Event]]:
        score = verdict(shown, f"evaluator {self.function.name!r}, thought {id},")
        return (yield from emit_as_list(Scored(id, score, score, by=self.function.name)))


class BatchEvaluator(FunctionEvaluator):
    """A function `(task, paths) -> scores` that scores all new children of a pick, for example with a
    reward model in this process.

    `paths` are in the order of the children's ids. The function runs as one recorded call with the purpose
    `evaluate`. `TreeOfThoughts(evaluate=function)` makes a `BatchEvaluator` if the function has a parameter
    named `paths`. The function may be async. Functions that are not async run in one thread, one at a time in
    all runs of the process, so that the event loop is not blocked and a model needs no lock.
    """

    compares: ClassVar[Literal["nothing", "reply", "siblings", "pick"]] = "pick"

    def score_pick(
        self, sampler: Sampler, expansion: Expansion, candidates: Sequence[tuple[str, Path]]
    ) -> Procedure[list[Event]]:
        in_order = sorted(candidates, key=lambda candidate: id_key(candidate[0]))
        task, paths = sampler.task.without_steps(), [path for _, path in in_order]
        scores, error = yield from self._judged(expansion, paths, (task, paths), _text)
        events: list[Event] = []
        for k, (id, _) in enumerate(in_order):
            step = emit_as_list(failed(id, error)) if error is not None else self._emit(id, scores[k])
            events += yield from step
        return events


def _text(scores: Any) -> str:
    try:
        plain = [_plain(score) for score in scores]
    except TypeError:  # not a list: `_judged` raises, so that the run fails and not only this call
        plain = _plain(scores)
    return json.dumps(plain, default=repr)


def _plain(score: Any) -> Any:
    """Convert a score for JSON: numpy numbers to Python numbers."""
    return score.item() if hasattr(score, "item") else score
