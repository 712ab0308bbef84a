"""What Deep Think came to in a run (Cogtrix, "Deep Think").

All of it is a fold over the records, so that a run that was cut off, or that another strategy made a
part of its own, is told of in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tot_lab.analysis.gathering import Gathering, gathering_of
from tot_lab.analysis.methods import DeepThoughtMethods
from tot_lab.core.calls import Call, Reply
from tot_lab.core.reading import split_thinking
from tot_lab.core.records import Decided, Note, Record, Thought, parent_of
from tot_lab.record.run import Run, expect_run
from tot_lab.strategies.deep_think_replies import IterationResult, ThoughtBranch


class Clamped(NamedTuple):
    """A setting that lay outside of its range, and what was taken instead."""

    field: str
    given: int
    used: int


class Fallback(NamedTuple):
    """A reply that could not be read: its text stands for itself, of CONVERGE the solution of a branch in its
    place. what: `branch`, `develop` or `converge`.
    iteration: its number. node: the thought that it was asked for. error: what was wrong with it."""

    what: str
    iteration: int
    node: str
    error: str


class CutOff(NamedTuple):
    """A reply that was cut off. what: `branch`, `develop` or `converge`. iteration: its number. node: the
    thought that it was asked for; of `develop` the thought that holds it."""

    what: str
    iteration: int
    node: str


class Unsure(NamedTuple):
    """Scores that were not matched to the approaches by name alone, or whose scale is unclear. iteration: its
    number. why: in sentences."""

    iteration: int
    why: str


class LeftOut(NamedTuple):
    """More approaches than were asked for. iteration: its number. given: how many came. used: how many of
    them, the first, were taken."""

    iteration: int
    given: int
    used: int


@dataclass(frozen=True, repr=False)
class DeepThought(DeepThoughtMethods):
    """A search of `tl.DeepThink`, finished or not.

    task: the question. iterations: those that came to a synthesis. answer_iteration: the number of the one
    that answered, `None` if none did. answer: the final solution, whole, "" without one; it is a branch's
    where no iteration was finished. node: the thought that holds it. stop: why the search ended, a stop
    word; `None` if it has not. branches_explored: approaches that were worked on. seconds: wall time of the
    run, NaN when unknown. unfinished: the branches of an iteration that came to no synthesis. failed: what
    its call of BRANCH or CONVERGE failed with. clamped, fallbacks, left_out, cut_off, unsure: what is not as
    it was asked for. number, total: which of the run's Deep Thinks it is, and how many there are. model,
    simulated: who thought, and whether a simulated model took part. gathering: what was gathered for it,
    `None` where it was not a part of `tl.GatherThenThink`. assumed_window: the context window that was
    assumed for what was gathered, `None` where the model's is known.
    """

    task: str
    iterations: tuple[IterationResult, ...]
    answer_iteration: int | None
    answer: str
    node: str | None
    stop: str | None
    branches_explored: int
    seconds: float
    unfinished: tuple[ThoughtBranch, ...]
    failed: str
    clamped: tuple[Clamped, ...]
    fallbacks: tuple[Fallback, ...]
    left_out: tuple[LeftOut, ...]
    number: int
    total: int
    model: str
    simulated: bool
    gathering: Gathering | None = None
    assumed_window: int | None = None
    cut_off: tuple[CutOff, ...] = ()
    unsure: tuple[Unsure, ...] = ()

    if TYPE_CHECKING:  # attached by `tot_lab.views`

        def report(self) -> str:
            """It in Markdown: the task, what each iteration tried and learnt, and the final solution. A star
            marks an iteration's best approach; those in bold are what the next one builds on."""

        def report_html(self) -> str:
            """The same as a panel of HTML, with the iterations to unfold. Its colours follow the page,
            light or dark; it needs no other file, and has no script."""


def deep_thought(run: Run) -> DeepThought:
    """What Deep Think did in `run`, finished or not; `.report()` tells it in Markdown.

    Of several in one run (attempts of Reflexion, steps of a plan) it is the one that holds the run's answer,
    or else the first. Raises ValueError when there is none, or none as yet."""
    expect_run(run, "deep_thought")
    fold = _Fold()
    for event in run.events:
        fold.take_in(event)
    searches = fold.searches
    if not searches:
        raise ValueError(f"there is no Deep Think in this run of {run.name}: it has no call of kind `branch`")
    answer = None if run.best is None else run.best.id
    place = next((k for k, one in enumerate(searches) if one.node == answer and answer is not None), 0)
    found = searches[place]
    is_continuation = run.parent is not None and "strategy" in run.parent and run.parent["node"] == found.at
    return DeepThought(
        run.question if is_continuation else run.tree[found.at].text,
        tuple(found.iterations),
        found.answered,
        "" if found.node is None else run.tree[found.node].text,
        found.node,
        found.stop or run.stop_reason,
        sum(len(result.branches) for result in found.iterations) + len(found.branches),
        run.seconds,
        tuple(found.branches.values()),
        found.failed,
        tuple(found.clamped),
        tuple(found.fallbacks),
        tuple(found.left_out),
        place + 1,
        len(searches),
        run.model,
        run.simulated,
        gathering_of(run, parent_of(found.at) or ""),
        next(
            (e.data["assumed"] for e in run.events if isinstance(e, Note) and e.name == "research.window"),
            None,
        ),
        tuple(found.cut_off),
        tuple(found.unsure),
    )


# The fold.


@dataclass
class _Search:
    """A Deep Think that began at the thought `at`. branches: of the iteration under way, by their thought."""

    at: str
    iterations: list[IterationResult] = field(default_factory=list)
    branches: dict[str, ThoughtBranch] = field(default_factory=dict)
    failed: str = ""
    clamped: list[Clamped] = field(default_factory=list)
    fallbacks: list[Fallback] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    cut_off: list[CutOff] = field(default_factory=list)
    unsure: list[Unsure] = field(default_factory=list)
    answered: int | None = None
    node: str | None = None
    stop: str | None = None

    def say(self, branch: str, **more: str | bool) -> None:
        """Say more of a branch of the iteration under way."""
        if branch in self.branches:
            self.branches[branch] = msgspec.structs.replace(self.branches[branch], **more)


class _Fold:
    """All Deep Thinks of a run, in the order in which they began. homes: to which a thought belongs."""

    def __init__(self) -> None:
        self.searches: list[_Search] = []
        self.homes: dict[str, _Search] = {}
        self.texts: dict[str, str] = {}
        self.last_call: Call | None = None

    def take_in(self, event: Record) -> None:
        """One more record, in canonical order."""
        if isinstance(event, Thought):
            self.texts[event.id] = event.text
            if event.parent in self.homes and event.parent in self.homes[event.parent].branches:
                home = self.homes[event.id] = self.homes[event.parent]
                home.say(event.parent, solution=event.text, solution_node=event.id)
        elif isinstance(event, Call):
            self.last_call = event
            if event.purpose == "branch":
                self._begun_at(event.node)
            elif event.purpose == "develop":
                self._branch(event.node)
        elif isinstance(event, Reply):
            self._reply(event)
        elif isinstance(event, Decided) and event.id in self.homes:
            home = self.homes[event.id]
            if event.what == "failed":
                home.say(event.id, error=event.reason)
            elif event.what == "solution" and home.node is None:
                home.node = event.id
        elif isinstance(event, Note):
            self._note(event)

    def _begun_at(self, node: str) -> _Search:
        if node not in self.homes:
            self.homes[node] = _Search(node)
            self.searches.append(self.homes[node])
        return self.homes[node]

    def _branch(self, node: str) -> None:
        home = self.homes.get(parent_of(node) or "")
        if home is not None and node not in home.branches:
            name, _, strategy = self.texts.get(node, "").partition("\n")
            home.branches[node] = ThoughtBranch(f"b{len(home.branches)}", name, strategy, node=node)
            self.homes[node] = home

    def _reply(self, reply: Reply) -> None:
        call, self.last_call = self.last_call, None
        if call is not None and call.purpose in ("branch", "converge") and call.node in self.homes:
            empty = "" if split_thinking(reply.text)[1].strip() else "the reply was empty"
            why = reply.error or empty
            self.homes[call.node].failed = f"{call.purpose}: {why}" if why else ""

    def _note(self, note: Note) -> None:
        data = note.data
        if note.name == "deep_think.clamped":
            self._begun_at(note.at).clamped.append(Clamped(data["field"], data["given"], data["used"]))
        elif note.name == "deep_think.assumed" and note.at in self.homes:
            home = self.homes[note.at]
            home.fallbacks.append(
                Fallback(data["what"], len(home.iterations) + 1, note.at, data["error"] or "")
            )
            home.say(note.at, assumed=True)
        elif note.name == "deep_think.left_out" and note.at in self.homes:
            home = self.homes[note.at]
            home.left_out.append(LeftOut(len(home.iterations) + 1, data["given"], data["used"]))
        elif note.name == "deep_think.truncated" and note.at in self.homes:
            home = self.homes[note.at]
            home.cut_off.append(CutOff(data["what"], len(home.iterations) + 1, note.at))
            if data["what"] == "develop":
                home.say(parent_of(note.at) or "", truncated=True, assumed=True)
        elif note.name == "deep_think.matched" and note.at in self.homes:
            home = self.homes[note.at]
            home.unsure.append(Unsure(len(home.iterations) + 1, data["why"]))
        elif note.name == "deep_think.iteration":
            result = msgspec.convert(data, IterationResult)
            home = self.homes[result.branches[0].node]
            home.iterations.append(result)
            home.branches, home.failed = {}, ""
            self.homes[note.at] = home
        elif note.name == "deep_think.ended" and note.at in self.homes:
            home = self.homes[note.at]
            home.answered, home.stop = data["iteration"], data["stop"]
