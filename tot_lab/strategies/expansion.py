"""One expansion of a tree of thoughts: children for a thought, and a score for each child.

Rule: what happens here concerns one parent only, so expansions of different parents run side by
side and never wait for each other. Every method yields its events as they happen and returns them
too, for the search to take into its tree after the join.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from pydantic import Field, ValidationInfo, field_validator

from tot_lab.core.calls import Call, Reply
from tot_lab.core.parts import UserFunction
from tot_lab.core.reading import verdict
from tot_lab.core.records import Decided, Event, Note, Scored, Thought
from tot_lab.core.task import Path, Task
from tot_lab.core.thinking import Thinking, ask, every, happen
from tot_lab.strategies.acting import Acting

T = TypeVar("T")
Count = Annotated[int, Field(ge=1)]
Unit = Annotated[float, Field(ge=0, le=1)]

ALTERNATIVES = 20
"""Tokens whose log-probabilities are asked for: the most that OpenAI reports."""

_SLOT = re.compile(r"\{(problem|steps|count|candidate|candidates)\}")


class Expansion(Acting):
    """How thoughts are made and scored. For the other fields see `TreeOfThoughts`.

    tools: names of the lab's tools that the proposer may ask for before it replies, None = all; by
        default none. max_tool_round_trips: in how many turns of each proposal; each is a call more.
    """

    kind = ""
    notes = "tot"
    tools: Annotated[tuple[str, ...] | None, Field(strict=False)] = ()
    max_tool_round_trips: Count = 3
    branch_factor: Count = 3
    generate: Literal["sample", "propose"] = "sample"
    proposal_draws: Count = 1
    evaluate: Literal["value", "parts", "vote", "joint", "logprob"] | UserFunction = "value"
    evaluation_draws: Count = 1
    combine: Literal["mean", "sum", "vote"] = "mean"
    max_parse_retries: Annotated[int, Field(ge=0)] = 0
    proposer_prompt: str | None = None
    evaluator_prompt: str | None = None

    @field_validator("proposer_prompt", "evaluator_prompt")
    @classmethod
    def _names_the_problem(cls, template: str | None) -> str | None:
        if template is not None and "{problem}" not in template:
            raise ValueError("the template must contain {problem}")
        return template

    @field_validator("evaluator_prompt")
    @classmethod
    def _has_a_use(cls, template: str | None, info: ValidationInfo) -> str | None:
        if template is not None and info.data.get("evaluate") == "parts":
            raise ValueError('evaluate="parts" has a prompt for each part, which the domain alone knows')
        return template

    # How many calls it can take.

    @property
    def calls_per_evaluation(self) -> int:
        """Calls of one thought's `value` or of one of its parts, one parent's `joint` or one round's
        `vote`, at most."""
        return self.evaluation_draws + self.max_parse_retries

    @property
    def calls_per_proposal(self) -> int:
        """Calls of one `sample` or `propose`, at most: before its reply it may ask for tools."""
        return 1 if self.tools == () else 1 + self.max_tool_round_trips

    def calls_per_thought(self, task: Task) -> int:
        """Calls that score one thought by itself, at most."""
        if self.evaluate == "logprob":
            return 1
        if self.evaluate == "parts":
            return task.domain.most_parts(task) * self.calls_per_evaluation
        return self.calls_per_evaluation if self.evaluate == "value" else 0

    def calls_per_expansion(self, task: Task) -> int:
        """Calls of `expand`, at most."""
        asked = self.proposal_draws if self.generate == "propose" else self.branch_factor
        proposing = (asked + self.max_parse_retries) * self.calls_per_proposal
        joint = self.calls_per_evaluation if self.evaluate == "joint" else 0
        return proposing + self.branch_factor * self.calls_per_thought(task) + joint

    # Thoughts.

    def expand(self, task: Task, path: Path, parent: str, count: int) -> Thinking[list[Event]]:
        """Up to `count` children of `parent`, scored unless by vote."""
        grow = self._propose if self.generate == "propose" else self._sample
        events = yield from grow(task, path, parent, count)
        if self.evaluate == "joint":
            events += yield from self._joint(task, path, parent, events)
        return events

    def _propose(self, task: Task, path: Path, parent: str, count: int) -> Thinking[list[Event]]:
        prompt = self._fill(self.proposer_prompt, task, path, count=count)
        prompt = prompt or task.domain.propose_prompt(task, path, count)

        def asked(draw: int) -> Thinking[Reply]:
            return self._proposed(task, self._call(task, path, parent, "propose", prompt, draw))

        failed: list[Event] = []
        read: list[tuple[str, list[str]]] = []
        replies = yield from self._all(
            [asked(draw) for draw in range(self.proposal_draws)], at_most=self.calls_per_proposal
        )
        for draw, reply in enumerate(replies):  # a retry adds to them
            if reply.error is not None:
                failed += yield from said(_no_reply(parent, "propose", reply.error))
            elif steps := task.domain.read_proposals(task, path, reply.text):
                read.append((reply.text, steps))
            else:
                yield _unreadable(parent, "propose", draw)
                if len(replies) < self.proposal_draws + self.max_parse_retries:
                    replies.append((yield from asked(len(replies))))
        # The pool of one reply is what was read in it already.
        texts = read[0][1] if len(read) == 1 else task.domain.pool_proposals(task, path, [t for t, _ in read])
        first: dict[str, int] = {}
        children = [
            self._child(task, path, parent, k, text, repeats=first.setdefault(text, k))
            for k, text in enumerate(texts[:count])
        ]
        grown = yield from self._all(children, at_most=self.calls_per_thought(task))
        return failed + [event for events in grown for event in events]

    def _sample(self, task: Task, path: Path, parent: str, count: int) -> Thinking[list[Event]]:
        prompt = self._fill(self.proposer_prompt, task, path, count=1)
        prompt = prompt or task.domain.sample_prompt(task, path)

        def sampled(k: int, draw: int) -> Thinking[list[Event] | None]:
            call = self._call(task, path, parent, "sample", prompt, draw)
            reply = yield from self._proposed(task, call)
            if reply.error is not None:
                return (yield from said(_no_reply(parent, "sample", reply.error)))
            text = task.domain.read_sample(task, path, reply.text)
            if text is None:
                yield _unreadable(parent, "sample", draw)
                return None
            return (yield from self._child(task, path, parent, k, text, repeats=k))

        at_most = self.calls_per_proposal + self.calls_per_thought(task)
        grown = yield from self._all([sampled(k, draw=k) for k in range(count)], at_most=at_most)
        for draw in range(count, count + self.max_parse_retries):
            if None not in grown:
                break
            missing = grown.index(None)
            grown[missing] = yield from sampled(missing, draw)
        return [event for events in grown for event in events or ()]

    def _proposed(self, task: Task, call: Call) -> Thinking[Reply]:
        return (
            ask(call) if self.tools == () else self.asking_with_tools(task, call, self.max_tool_round_trips)
        )

    def _child(
        self, task: Task, path: Path, parent: str, k: int, text: str, *, repeats: int
    ) -> Thinking[list[Event]]:
        """Child `k` of `parent`, and its score if it gets one by itself. A child that repeats the
        text of an earlier sibling is said to, and not scored again."""
        thought = yield from happen(Thought(f"{parent}.{k}", parent, text))
        if repeats != k and thought.text == text:
            duplicate = Decided(thought.id, "duplicate", f"repeats {parent}.{repeats}")
            return [thought, *(yield from said(duplicate))]
        return [thought, *(yield from self._score(task, [*path, thought.text], thought.id))]

    # Scores.

    def _score(self, task: Task, path: Path, id: str) -> Thinking[list[Event]]:
        known = task.domain.assess(task, path)
        if known is not None:
            return (yield from said(Scored(id, known, known, by="domain")))
        if isinstance(self.evaluate, UserFunction):
            shown = self.evaluate(*task.domain.seen(task, path))
            score = verdict(shown, f"evaluator {self.evaluate.name!r}, thought {id},")
            return (yield from said(Scored(id, score, score, by=self.evaluate.name)))
        if self.evaluate == "logprob":
            return (yield from self._judge(task, path, id))
        if self.evaluate == "parts":
            return (yield from self._by_parts(task, path, id))
        if self.evaluate != "value":
            return []  # by its siblings or its round
        prompt = self._fill(self.evaluator_prompt, task, path[:-1], candidate=path[-1])
        prompt = prompt or task.domain.value_prompt(task, path)
        draws, error = yield from self._draws(task, path, id, "value", prompt, task.domain.read_value)
        return (yield from said(self._combined(task, id, "value", draws, error)))

    def _by_parts(self, task: Task, path: Path, id: str) -> Thinking[list[Event]]:
        """One score out of verdicts on the parts of the state, each 0 to 1. One that could not be read is
        unread, and the others count."""
        prompts = dict.fromkeys(task.domain.part_prompts(task, path))
        if len(prompts) > (most := task.domain.most_parts(task)):
            name = type(task.domain).__name__
            raise ValueError(f"{name} has {len(prompts)} parts at thought {id}; its most_parts says {most}")
        told = yield from self._all(
            [self._draws(task, path, id, "part", prompt, task.domain.read_part) for prompt in prompts],
            at_most=self.calls_per_evaluation,
        )
        errors = [error for _, error in told if error is not None]
        if errors and len(errors) == len(told):
            return (yield from said(_failed(id, errors[0])))
        events: list[Event] = []
        for error in errors:
            events += yield from said(_no_reply(id, "part", error))
        parts = tuple(self._worth(draws, task.domain.value_top)[0] for draws, _ in told)
        read = [part for part in parts if part is not None]
        score = task.domain.join_parts(read) if read else None
        return events + (yield from said(Scored(id, score, score, parts, "parts")))

    def _judge(self, task: Task, path: Path, id: str) -> Thinking[list[Event]]:
        """One score out of the probabilities of the labels that a reply may begin with: the mean of all
        draws that would be one of them, from a single token. `raw` is not made up for those that
        would be something else: with yes and no, the probability of a yes."""
        prompt = self._fill(self.evaluator_prompt, task, path[:-1], candidate=path[-1])
        prompt = prompt or task.domain.judge_prompt(task, path)
        call = self._call(task, path, id, "logprob", prompt, 0)
        reply = yield from ask(msgspec.structs.replace(call, max_tokens=1, logprobs=ALTERNATIVES))
        if reply.error is not None:
            return (yield from said(_failed(id, reply.error)))
        read = task.domain.read_judge(reply.logprobs)
        if read is None:
            return (yield from said(Scored(id, None, None, (None,), "logprob")))
        score, share = read
        return (yield from said(Scored(id, score, score * share, (score,), "logprob")))

    def _joint(self, task: Task, path: Path, parent: str, events: Sequence[Event]) -> Thinking[list[Event]]:
        """One score each for the children that `events` tell of, out of one reply."""
        scored = {event.id for event in events if isinstance(event, Scored | Decided)}
        thoughts = [e for e in events if isinstance(e, Thought) and e.id not in scored]
        if not thoughts:
            return []
        texts = [thought.text for thought in thoughts]
        listed = "\n".join(f"{k}. {text}" for k, text in enumerate(texts, 1))
        prompt = self._fill(self.evaluator_prompt, task, path, candidates=listed)
        prompt = prompt or task.domain.joint_prompt(task, path, texts)

        def read(text: str) -> list[float | None] | None:
            scores = task.domain.read_joint(text, len(texts))
            return None if scores.count(None) == len(scores) else scores

        lists, error = yield from self._draws(task, path, parent, "joint", prompt, read)
        scores: list[Event] = []
        for k, thought in enumerate(thoughts):
            draws = [None if row is None else row[k] for row in lists]
            scores += yield from said(self._combined(task, thought.id, "joint", draws, error))
        return scores

    def vote(self, task: Task, node: str, candidates: Sequence[tuple[str, Path]]) -> Thinking[list[Event]]:
        """Score `candidates`, (id, path) each, by votes among them; `node` asks."""
        paths = [path for _, path in candidates]
        listed = "\n\n".join(f"{k}.\n{paths[k - 1][-1]}" for k in range(1, len(paths) + 1))
        prompt = self._fill(self.evaluator_prompt, task, (), candidates=listed)
        prompt = prompt or task.domain.vote_prompt(task, paths)
        votes, error = yield from self._draws(
            task, (), node, "vote", prompt, lambda text: task.domain.read_vote(text, len(paths))
        )
        scores: list[Event] = []
        for k, (id, _) in enumerate(candidates):
            draws = tuple(None if vote is None else float(vote == k) for vote in votes)
            read = [draw for draw in draws if draw is not None]
            share = sum(read) / len(read) if read else None
            scored = Scored(id, share, sum(read) if read else None, draws, "vote")
            scores += yield from said(_failed(id, error) if error else scored)
        return scores

    def _draws(
        self, task: Task, path: Path, at: str, kind: str, prompt: str, read: Callable[[str], T | None]
    ) -> Thinking[tuple[list[T | None], str | None]]:
        """Ask one prompt `evaluation_draws` times and read each reply; ask anew, with a new draw,
        for those that cannot be read, as often as `max_parse_retries` allows. Returns what was
        read, and an error when no call was answered."""
        if self.evaluation_draws > 1 or self.max_parse_retries:
            return (yield from self._several(task, path, at, kind, prompt, read))
        reply = yield from ask(self._call(task, path, at, kind, prompt, 0))
        return [None if reply.error is not None else read(reply.text)], reply.error

    def _several(
        self, task: Task, path: Path, at: str, kind: str, prompt: str, read: Callable[[str], T | None]
    ) -> Thinking[tuple[list[T | None], str | None]]:
        count = self.evaluation_draws
        replies = yield from self._all(
            [ask(self._call(task, path, at, kind, prompt, draw)) for draw in range(count)], at_most=1
        )
        values = [None if reply.error is not None else read(reply.text) for reply in replies]
        for draw in range(count, count + self.max_parse_retries):
            unread = [k for k in range(count) if values[k] is None and replies[k].error is None]
            if not unread:
                break
            yield _unreadable(at, kind, draw)
            replies[unread[0]] = reply = yield from ask(self._call(task, path, at, kind, prompt, draw))
            values[unread[0]] = None if reply.error is not None else read(reply.text)
        errors = [reply.error for reply in replies if reply.error is not None]
        return values, errors[0] if len(errors) == count else None

    def _combined(
        self, task: Task, id: str, by: str, draws: Sequence[float | None], error: str | None
    ) -> Event:
        """One score of several draws."""
        if error is not None:
            return _failed(id, error)
        score, raw = self._worth(draws, task.domain.value_top if by == "value" else 1.0)
        return Scored(id, score, raw, tuple(draws), by)

    def _worth(self, draws: Sequence[float | None], top: float) -> tuple[float | None, float | None]:
        """Several draws as one: its share of the most it could be, so that a sum lacks what its unread
        draws would have brought; and in the evaluator's own units, of which a draw has at most `top`."""
        read = [draw for draw in draws if draw is not None]
        if not read:
            return None, None
        if self.combine == "mean":
            raw = sum(read) / len(read)
        elif self.combine == "sum":
            raw, top = sum(read), top * len(draws)
        else:
            raw = Counter(read).most_common(1)[0][0]
        return min(raw / top, 1.0), raw

    # Prompts and branches.

    def _all(self, branches: list[Thinking[T]], *, at_most: int) -> Thinking[list[T]]:
        if len(branches) == 1:
            return [(yield from branches[0])]
        return (yield from every(branches, at_most=at_most, at_once=None if self.parallel else 1))

    def _call(self, task: Task, path: Path, at: str, kind: str, prompt: str, draw: int) -> Call:
        return self.call(at, kind, prompt, draw, task.domain.response_format(kind, task, path))

    def _fill(self, template: str | None, task: Task, path: Path, **slots: Any) -> str | None:
        if template is None:
            return None
        known = {"problem": task.domain.statement(task), "steps": task.domain.steps(path), **slots}
        return _SLOT.sub(lambda slot: str(known.get(slot[1], slot[0])), template)


def said(event: Event) -> Thinking[list[Event]]:
    """Yield `event`, and return it as it was recorded, for the tree."""
    return [(yield from happen(event))]


def error_in(event: Event) -> str | None:
    """The error of a call that `event` tells of."""
    if isinstance(event, Decided) and event.what == "failed":
        return event.reason
    if isinstance(event, Note) and event.name == "call.failed":
        return str(event.data["error"])
    return None


def _no_reply(at: str, kind: str, error: str) -> Note:
    return Note("call.failed", at, {"kind": kind, "error": error})


def _unreadable(at: str, kind: str, draw: int) -> Note:
    return Note("parse.unreadable", at, {"kind": kind, "draw": draw})


def _failed(id: str, error: str | None) -> Decided:
    return Decided(id, "failed", error or "")
