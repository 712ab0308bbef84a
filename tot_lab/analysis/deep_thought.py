"""The result of Deep Think in a run (Cogtrix, "Deep Think").

The result is computed from the records. It is also available for an interrupted run, and for a run in which
Deep Think is part of another strategy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tot_lab.analysis.deep_thought_methods import DeepThoughtMethods
from tot_lab.analysis.gathering import Gathering, gathering_of
from tot_lab.core.calls import Call, Reply
from tot_lab.core.reading.thinking import split_thinking
from tot_lab.core.records import Decided, Note, Record, Thought, parent_of
from tot_lab.record.run import Run, expect_run
from tot_lab.strategies.deep_think_replies import IterationResult, ThoughtBranch


class Clamped(NamedTuple):
    """A setting outside its range, and the value that replaced it."""

    field: str
    given: int
    used: int


class Fallback(NamedTuple):
    """A reply that could not be read. Its raw text is used instead or, for `converge`, the solution of a
    branch.

    Attributes:
        what: `branch`, `develop` or `converge`.
        iteration: Number of the iteration.
        node: Id of the thought that the call was made for.
        error: What was wrong with the reply. "" if that is unknown.
    """

    what: str
    iteration: int
    node: str
    error: str


class CutOff(NamedTuple):
    """A reply that was cut off.

    Attributes:
        what: `branch`, `develop` or `converge`.
        iteration: Number of the iteration.
        node: Id of the thought that the call was made for or, for `develop`, of the thought with the cut
            text.
    """

    what: str
    iteration: int
    node: str


class Unsure(NamedTuple):
    """Scores of an iteration that could not be matched to the approaches by name, or whose scale is unclear.

    Attributes:
        iteration: Number of the iteration.
        why: The reasons, as sentences.
    """

    iteration: int
    why: str


class LeftOut(NamedTuple):
    """A reply with more approaches than requested, of which the last ones were left out.

    Attributes:
        iteration: Number of the iteration.
        given: Number of approaches in the reply.
        used: Number of approaches that were used: the first ones.
    """

    iteration: int
    given: int
    used: int


class Shortened(NamedTuple):
    """A text of an earlier phase that a prompt showed only in part.

    Attributes:
        iteration: Number of the iteration.
        what: The phase of the prompt: `branch`, `develop` or `converge`.
        text: Name of the text, such as `solution`.
        branch: Id of the branch that the text belongs to. Empty if it belongs to none.
        shown: Number of characters that the prompt showed.
        of: Number of characters of the text.
    """

    iteration: int
    what: str
    text: str
    branch: str
    shown: int
    of: int


@dataclass(frozen=True, repr=False)
class DeepThought(DeepThoughtMethods):
    """A search of `tl.DeepThink`, finished or not.

    Attributes:
        task: The question.
        iterations: Iterations with a synthesis.
        answer_iteration: Number of the iteration with the answer. `None` if there is no answer.
        answer: The final solution, or the solution of a branch if no iteration was finished. Empty if there
            is none.
        node: Id of the thought with the answer. `None` if there is no answer.
        stop: The stop code. `None` if the search has not ended.
        branches_explored: Number of approaches that were developed.
        seconds: Wall time of the run, NaN if unknown.
        unfinished: Branches of the last iteration if it has no synthesis.
        failed: The error of the `branch` or `converge` call of that iteration. Empty if none failed.
        clamped, fallbacks, left_out, cut_off, unsure, shortened: Deviations from what was requested.
        number, total: Number of this Deep Think search in the run, from 1, and how many the run has.
        model: The model.
        model_note: A note that a model is simulated or small, or ""; see `Run.model_note`.
        gathering: The first stage of `tl.GatherThenThink`. `None` if Deep Think is not part of that strategy.
        assumed_window: The context window that was assumed for the gathered text, in tokens. `None` if none
            was assumed.
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
    model_note: str
    gathering: Gathering | None = None
    assumed_window: int | None = None
    cut_off: tuple[CutOff, ...] = ()
    unsure: tuple[Unsure, ...] = ()
    shortened: tuple[Shortened, ...] = ()

    if TYPE_CHECKING:  # attached by `tot_lab.views`

        def report(self) -> str:
            """Return the result as Markdown: the task, all approaches by iteration, the solution.

            A star marks the best approach of an iteration. The next iteration builds on the approaches in
            bold.
            """

        def report_html(self) -> str:
            """Return the report as HTML with collapsible iterations.

            The colours follow the light or dark theme of the page. The HTML needs no other file or script.
            """


def deep_thought(run: Run) -> DeepThought:
    """Return the result of Deep Think in `run`, finished or not. `.report()` shows it as Markdown.

    If the run has several Deep Think searches (attempts of Reflexion, steps of a plan), the search with the
    run's answer is used, else the first.

    Raises:
        ValueError: If the run has no Deep Think.
    """
    expect_run(run, "deep_thought")
    fold = _Fold()
    for event in run.events:
        fold.take_in(event)
    searches = fold.searches
    if not searches:
        raise ValueError(
            f"There is no Deep Think in this run of {run.name}: it has no call with purpose 'branch'."
        )
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
        run.model_note,
        gathering_of(run, parent_of(found.at) or ""),
        next(
            (e.data["assumed"] for e in run.events if isinstance(e, Note) and e.name == "research.window"),
            None,
        ),
        tuple(found.cut_off),
        tuple(found.unsure),
        tuple(found.shortened),
    )


# Reading the records.


@dataclass
class _Search:
    """A Deep Think search that starts at the thought `at`.

    `branches` maps each thought of the current iteration to its branch. `answered` is the number of the
    iteration with the answer, and `node` the thought with the answer.
    """

    at: str
    iterations: list[IterationResult] = field(default_factory=list)
    branches: dict[str, ThoughtBranch] = field(default_factory=dict)
    failed: str = ""
    clamped: list[Clamped] = field(default_factory=list)
    fallbacks: list[Fallback] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    cut_off: list[CutOff] = field(default_factory=list)
    unsure: list[Unsure] = field(default_factory=list)
    shortened: list[Shortened] = field(default_factory=list)
    answered: int | None = None
    node: str | None = None
    stop: str | None = None

    def say(self, branch: str, **more: str | bool) -> None:
        """Set fields of the branch at the thought `branch`, if that branch is in the current iteration."""
        if branch in self.branches:
            self.branches[branch] = msgspec.structs.replace(self.branches[branch], **more)


class _Fold:
    """All Deep Think searches of a run in order. `homes` maps each thought to its search."""

    def __init__(self) -> None:
        self.searches: list[_Search] = []
        self.homes: dict[str, _Search] = {}
        self.texts: dict[str, str] = {}
        self.last_call: Call | None = None

    def take_in(self, event: Record) -> None:
        """Read the next record in canonical order."""
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
            elif event.what == "answer" and home.node is None:
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
        data, name = note.data, note.name
        if name == "deep_think.iteration":
            result = msgspec.convert(data, IterationResult)
            home = self.homes[note.at] = self.homes[result.branches[0].node]
            home.iterations.append(result)
            home.branches, home.failed = {}, ""
            return
        if name in ("deep_think.clamped", "deep_think.shortened"):
            self._begun_at(note.at)
        if (found := self.homes.get(note.at)) is None:
            return
        now = len(found.iterations) + 1
        match name.removeprefix("deep_think."):
            case "clamped":
                found.clamped.append(Clamped(data["field"], data["given"], data["used"]))
            case "assumed":
                found.fallbacks.append(Fallback(data["what"], now, note.at, data["error"] or ""))
                found.say(note.at, assumed=True)
            case "left_out":
                found.left_out.append(LeftOut(now, data["given"], data["used"]))
            case "truncated":
                found.cut_off.append(CutOff(data["what"], now, note.at))
                if data["what"] == "develop":
                    found.say(parent_of(note.at) or "", truncated=True, assumed=True)
            case "matched" | "rescaled":
                found.unsure.append(Unsure(now, data["why"]))
            case "shortened":
                facts = (data[name] for name in ("what", "text", "branch", "shown", "of"))
                found.shortened.append(Shortened(now, *facts))
            case "ended":
                found.answered, found.stop = data["iteration"], data["stop"]
