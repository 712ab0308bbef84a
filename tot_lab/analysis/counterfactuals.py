"""What another strategy would have done, computed from recorded runs without new calls.

The strategy itself is run, and only recorded replies answer it. A recorded reply answers a call with the same
request (prompt, settings, sample index), at any position. A call without a recorded reply is listed as
missing, and the strategy receives an error. The result is exact if no call is missing. Otherwise only the
records before the first missing call are those of a real run.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar, overload

from tot_lab.core.bulk import seldom_collecting
from tot_lab.core.calls import Call, CallObserver, Reply, refused
from tot_lab.core.parts import needs_functions
from tot_lab.core.protocol import Procedure, WithBudget, map_steps
from tot_lab.core.records import Line, Position, canonical
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Task
from tot_lab.core.tree import Node, Tree
from tot_lab.lab.sweeps.sweep import Sweep
from tot_lab.models.keys import request_of
from tot_lab.record.journal import Header, encoder
from tot_lab.record.nodes import RECORDED
from tot_lab.record.run import Run, expect_run, replies_of
from tot_lab.runtime.driver import Driver
from tot_lab.runtime.recorder import Recorder
from tot_lab.runtime.replay import called_model, requests_of
from tot_lab.runtime.roles import calling_roles, roles_from, thinking_of
from tot_lab.strategies.search import Proposer

LACKING = "lacking: no record holds this call"

T = TypeVar("T")


class Lack(NamedTuple):
    """A call without a recorded reply.

    Attributes:
        node: Id of the thought that the call is made for.
        purpose: The purpose of the call.
        sample_index: Index among the samples of the same prompt.
        prompt: The prompt.
        position: Position of the call in the simulated run.
        certain: Whether a real run would certainly make the call. `False` means that this may depend on the
            replies to other missing calls.
    """

    node: str
    purpose: str
    sample_index: int
    prompt: str
    position: Position
    certain: bool


@dataclass(frozen=True, eq=False, repr=False)
class Counterfactual:
    """What a strategy would have done on one task, according to recorded runs.

    Attributes:
        run: The simulated run. A call without a recorded reply counts as failed. Costs are hypothetical;
            nothing was paid. The answer and the stop reason are meaningful only if no call is missing
            (`whole`). Otherwise use `certain` and `reached`.
        lacking: The missing calls in program order. `pandas.DataFrame(c.lacking)` is a table of them.
    """

    run: Run
    lacking: tuple[Lack, ...]

    @property
    def whole(self) -> bool:
        """Whether no call is missing. The run then equals a real one, record by record."""
        return not self.lacking

    @property
    def first_lack(self) -> Lack | None:
        """The first missing call. All records before it are certain. `None` if no call is missing."""
        return self.lacking[0] if self.lacking else None

    @cached_property
    def certain(self) -> Tree:
        """The certain part of the tree: the thoughts before the first missing call."""
        lack = self.first_lack
        if lack is None:
            return self.run.tree
        return Tree.of(canonical([line for line in self.run.lines if line.p < lack.position]))

    @property
    def solved(self) -> bool | None:
        """Whether the answer would be correct. `None` if a call is missing or the answer cannot be graded.

        Over many tasks, the success rate is at least the share of `True`, and at most the share of `True` and
        `None` together.
        """
        return self.run.correct if self.whole else None

    @cached_property
    def reached(self) -> bool | None:
        """Whether some thought would contain a correct answer, even if the search did not choose it.

        `True` if a thought of the certain tree does, `False` if no call is missing and no thought does.
        Otherwise, or if answers cannot be graded, `None`.
        """
        task = self.run.task
        assert task is not None
        held = [task.domain.answer(task, self.run.steps(node.id)) for node in list(self.certain)[1:]]
        grades = self.run.grades([answer for answer in held if answer is not None])
        if self.solved or 1.0 in grades:
            return True
        return False if self.whole and self.run.correct is not None else None

    def __repr__(self) -> str:
        words = {True: "solved", False: "not solved", None: "unknown whether solved"}
        head = f"<{self.run.name} on {self.run.question[:40]!r}: {words[self.solved]}"
        lack = self.first_lack
        if lack is None:
            return f"{head}, nothing lacks>"
        return f"{head}, {len(self.lacking)} calls lack, the first a {lack.purpose} at thought {lack.node}>"


@overload
def counterfactual(runs: Run, strategy: Strategy) -> Counterfactual: ...
@overload
def counterfactual(runs: Sweep | Iterable[Run], strategy: Strategy) -> list[Counterfactual]: ...
def counterfactual(
    runs: Run | Sweep | Iterable[Run], strategy: Strategy
) -> Counterfactual | list[Counterfactual]:
    """Run `strategy` on recorded replies, without a new call.

        would = tl.counterfactual(run, tl.TreeOfThoughts(search=tl.BeamSearch(width=2)))
        would.whole, would.solved, would.lacking

    Args:
        runs: A run, a sweep, or several runs. The replies of all runs with the same task, repeat, model and
            roles are pooled, and each such group has one result, in order of appearance. Runs need not be
            finished. Failed calls are ignored. The records of a published log (`tl.load`) or of your own
            search code contain no sampling settings, so only the prompt, the attempt and the sample index are
            compared. A log does not tell the order of a thought's samples, so samples that differ answer only
            a strategy that takes the mean or the sum of all of them. In a run made of nodes
            (`tl.read_nodes`), children and scores serve as replies to the prompts of the task's domain, and
            every sample of a value is the recorded score.
        strategy: The strategy. Its own caps on calls apply; the budgets of the runs do not.

    Raises:
        LookupError: For a run without a task, or whose task needs a function that files do not contain.
        ValueError: For a strategy that caps anything but calls, because the records do not show when such a
            cap would end the search.
        Exception: Whatever a bug in the strategy raises before the first missing call.
    """
    if not isinstance(strategy, Strategy):
        raise TypeError(f"strategy must be a Strategy such as tl.TreeOfThoughts(): got {strategy!r}.")
    given = [runs] if isinstance(runs, Run) else runs.runs() if isinstance(runs, Sweep) else runs
    groups: dict[bytes, list[Run]] = {}
    for run in given:
        expect_run(run, "counterfactual")
        groups.setdefault(_alike(run), []).append(run)
    made = result_of(_all(list(groups.values()), strategy))
    return made[0] if isinstance(runs, Run) else made


def _alike(run: Run) -> bytes:
    """Return a key that is equal for runs whose replies can be pooled.

    Raises `LookupError` for a run that has no task, or whose task lacks functions.
    """
    if run.task is None:
        raise LookupError(f"run {run.id} has no task of tot_lab, so no strategy can be run on it")
    if missing := needs_functions(run.task.domain):
        raise LookupError(
            f"the task of run {run.id} needs functions that files do not contain ({', '.join(missing)}): "
            f"pass the original run instead of a loaded one"
        )
    header = run.header
    return encoder.encode((header.task, header.model, calling_roles(header.roles), header.repeat))


def result_of(thinking: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a new event loop in a thread, because a notebook's own loop is already running. The
    calling thread waits for the result, so the coroutine must not wait for a task of the notebook's loop."""
    with seldom_collecting(), ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, thinking).result()


async def _all(groups: list[list[Run]], strategy: Strategy) -> list[Counterfactual]:
    return [await _made(runs, strategy) for runs in groups]


async def _made(runs: list[Run], strategy: Strategy) -> Counterfactual:
    first, task = runs[0], runs[0].task
    assert task is not None
    book = _Book(runs, task, strategy)
    unknown = {word for run in runs for word in run.header.unknown if word == "prompts"}
    header = Header.now(
        task=first.header.task,
        strategy=strategy.settings(),
        model=first.header.model,
        repeat=first.header.repeat,
        roles=first.header.roles,
        unknown=(*unknown, "times"),
        counterfactual=tuple(run.id for run in runs),
    )
    recorder, caps = Recorder(header=header), set[str]()
    driver = Driver(book.ask, recorder, repeat=header.repeat)
    thinking = _collecting_caps(thinking_of(strategy, task, roles_from(first.header.roles)), caps)
    bug: Exception | None = None
    try:
        await driver.drive(thinking)
    except Exception as error:
        bug = error
    if others := sorted(caps - {"calls"}):
        raise ValueError(
            f"the records do not show when a cap on {', '.join(others)} ends a search. Use a cap on calls."
        )
    lines = [Line(line.p, 0.0, line.e, line.paid) for line in recorder.lines]
    made = Run(header, lines, loaded=first.loaded, task=task, strategy=strategy)
    lacking = tuple(_lacking(made, bool(caps)))
    if bug is not None and not lacking:
        raise bug
    return Counterfactual(made, lacking)


def _collecting_caps(thinking: Procedure[T], caps: set[str]) -> Procedure[T]:
    """Run `thinking`, and add to `caps` the names of the amounts that its own budgets limit."""

    def collect(step: WithBudget) -> WithBudget:
        caps.update(step.budget.model_dump(exclude_none=True))
        return step

    return map_steps(collect, thinking, WithBudget)


class _Book:
    """The recorded replies, by request."""

    def __init__(self, runs: list[Run], task: Task, strategy: Strategy) -> None:
        self.header = runs[0].header
        self.known: dict[Any, tuple[Reply, str]] = {}
        self.who: dict[str | None, dict[str, Any]] = {}
        for run in runs:
            answers = _answers_of_calls(run) if run.header.model else _recorded(run, task, strategy)
            for what, at, reply in answers:
                # Without a cache, two thoughts with the same prompt may have got different replies, so a call
                # at the same thought gets the reply of that thought.
                self.known.setdefault((what, at), (reply, run.id))
                self.known.setdefault(what, (reply, run.id))

    async def ask(self, call: Call, observer: CallObserver) -> Reply:
        what: Any
        if self.header.model:
            if call.model not in self.who:
                self.who[call.model] = called_model(self.header, call.model)[0]
            what = request_of(call, self.who[call.model]).key
        else:
            what = (call.prompt, call.attempt, call.sample_index)
        known = self.known.get((what, call.node)) or self.known.get(what)
        observer.paid = 0.0
        if known is None:
            return Reply(error=LACKING)
        reply, run = known
        observer.note("call.cached", run=run)
        return reply


def _answers_of_calls(run: Run) -> Iterator[tuple[str, str, Reply]]:
    """Yield the request's key, the id of the thought and the reply of each answered call of a run."""
    replies, calls = replies_of(run.lines), {line.p: line.e for line in run.lines if isinstance(line.e, Call)}
    for position, request, _ in requests_of(run):
        yield request.key, calls[position].node, replies[position]


def _recorded(run: Run, task: Task, strategy: Strategy) -> Iterator[tuple[Any, str, Reply]]:
    """Yield the key (prompt, attempt, sample index), the id of the thought and the reply of each answered
    call of a run whose model is unknown. If a log lacks prompts, the task's domain writes them from the paths
    of the thoughts."""
    domain, count = task.domain, _max_children(strategy)
    replies = replies_of(run.lines)
    for line in run.lines if "replies" not in run.header.unknown else ():
        call, reply = line.e, replies.get(line.p)
        if isinstance(call, Call) and reply is not None and reply.error is None:
            prompt, path = call.prompt, run.steps(call.node)
            if not call.messages:
                propose = call.purpose == "propose"
                prompt = (
                    domain.propose_prompt(task, path, count) if propose else domain.sample_prompt(task, path)
                )
            yield (prompt, call.attempt, call.sample_index), call.node, reply
    if "prompts" in run.header.unknown:
        yield from _values(run, task, strategy)
        yield from _votes(run, task, strategy)
    if any(node.by == RECORDED for node in run.tree):
        yield from _nodes(run, task, strategy)


def _nodes(run: Run, task: Task, strategy: Strategy) -> Iterator[tuple[Any, str, Reply]]:
    """Yield the children and the scores of a run made of nodes (`tl.read_nodes`) as replies to the prompts of
    the task's domain. Texts that the domain would read differently are left out.
    """
    domain, samples = task.domain, _of_evaluator(strategy, "samples") or 1
    words = {worth / domain.value_top: word for word, worth in domain.value_labels.items()}
    for node in run.tree:
        path, texts = run.steps(node.id), [run.tree[id].text for id in node.children]
        with suppress(NotImplementedError):  # a domain need not have every prompt
            for sample_index, text in enumerate(texts):
                if domain.read_sample(task, path, text) == text:
                    yield (domain.sample_prompt(task, path), (), sample_index), node.id, Reply(text)
            listed = json.dumps(texts, ensure_ascii=False)
            for reply in (listed, "\n".join(texts)):
                if texts and domain.read_proposals(task, path, reply) == texts:
                    prompt = domain.propose_prompt(task, path, _max_children(strategy))
                    yield (prompt, (), 0), node.id, Reply(reply)
                    break
            if node.by == RECORDED and path:
                reply = "" if node.score is None else words.get(node.score, f"score: {node.score!r}")
                value = domain.read_value(reply)
                if (None if value is None else value / domain.value_top) == node.score:
                    for sample_index in range(samples):
                        yield (domain.value_prompt(task, path), (), sample_index), node.id, Reply(reply)


def _values(run: Run, task: Task, strategy: Strategy) -> Iterator[tuple[Any, str, Reply]]:
    """Yield the value samples of each thought of a log as replies, if their unknown order does not matter."""
    words = {worth: word for word, worth in task.domain.value_labels.items()}
    for node in run.tree:
        if node.by == "value" and _answers(strategy, node):
            prompt = task.domain.value_prompt(task, run.steps(node.id))
            for draw, worth in enumerate(node.samples):
                yield (prompt, (), draw), node.id, Reply("" if worth is None else words[worth])


def _votes(run: Run, task: Task, strategy: Strategy) -> Iterator[tuple[Any, str, Reply]]:
    """Yield the votes among the thoughts of each depth as replies.

    A log has only the number of votes of each thought. Depths at which the order of the votes could matter
    are left out.
    """
    levels: dict[int, list[Node]] = {}
    for node in run.tree:
        if node.by == "vote":
            levels.setdefault(node.depth, []).append(node)
    for nodes in levels.values():
        cast = [f"best: {k}" for k, node in enumerate(nodes, 1) for _ in range(round(node.raw or 0))]
        cast += [""] * (len(nodes[0].samples) - len(cast))
        if len(set(cast)) == 1 or _of_evaluator(strategy, "samples") == len(cast):
            prompt = task.domain.vote_prompt(task, [run.steps(node.id) for node in nodes])
            for draw, text in enumerate(cast):
                yield (prompt, (), draw), nodes[0].parent or "", Reply(text)


def _answers(strategy: Strategy, node: Node) -> bool:
    """Return whether the samples of `node`, whose order is unknown, can replace those that `strategy` would
    take."""
    whole = _of_evaluator(strategy, "samples") == len(node.samples)
    return len(set(node.samples)) == 1 or (whole and _of_evaluator(strategy, "combine") in ("mean", "sum"))


def _max_children(strategy: Strategy) -> int:
    """Return the number of children that a prompt for proposals requests for one thought."""
    propose = getattr(strategy, "propose", None)
    return propose.max_children() if isinstance(propose, Proposer) else 1


def _of_evaluator(strategy: Strategy, setting: str) -> Any:
    """Return a setting of the strategy's evaluator, or `None` if the evaluator has no such setting."""
    return getattr(getattr(strategy, "evaluate", None), setting, None)


def _lacking(run: Run, capped: bool) -> Iterator[Lack]:
    calls = {line.p: line.e for line in run.lines if isinstance(line.e, Call)}
    errors = {p: reply.error for p, reply in replies_of(run.lines).items() if reply.error is not None}
    # Any error counts as a missing call, even that of an unknown model. Refusals do not count, since they
    # come from the strategy's own budget.
    places = sorted(p for p, error in errors.items() if not refused(error))
    # A position is (step, branch, step, …). A later call in the same branch, or after its join, may depend on
    # the missing reply. A call in another branch of the same join does not, unless they share a cap.
    earliest: dict[Position, int] = {}
    for place in places:
        call, steps = calls[place], range(0, len(place), 2)
        certain = all(earliest.get(place[:k], place[k]) >= place[k] for k in steps)
        certain = certain and not (capped and earliest)
        yield Lack(call.node, call.purpose, call.sample_index, call.prompt, place, certain)
        for k in steps:
            earliest.setdefault(place[:k], place[k])
