"""A run: what a person holds after a search.

A run is its records. Everything here is a fold over them, computed when it is asked for, so
a run that was loaded, recorded by a person's own code or cut off by a kill shows the same way.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import msgspec

from tot_lab.core.calls import Call, Reply, halts, is_made, refused
from tot_lab.core.parts import needs_functions, part_of
from tot_lab.core.records import Ended, Line, Note, Position, Record, Thought, canonical
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Answer, Domain, Task
from tot_lab.core.tree import Node, Tree
from tot_lab.record.grading import Ungraded, found_in
from tot_lab.record.journal import Header, JournalError, read_journal, write_journal
from tot_lab.record.marks import Mark, Verdict, changed, made, read_marks, write_marks
from tot_lab.record.methods import RunMethods
from tot_lab.record.routed import Routed, routed_in, selected_in

if TYPE_CHECKING:
    from tot_lab.models import Cache


Status: TypeAlias = Literal["completed", "partial", "failed"]
"""What came of a run that has ended."""
UNREADABLE = ("parse.unreadable", "json.failed")
"""What notes of a reply of which nothing could be used are called; the latter after its retries."""


class Usage(NamedTuple):
    """What calls used. cost: USD if each call were paid, paid: USD really paid; `None` if the
    price of a call is not known. Tokens are `None` if a model does not count them."""

    calls: int
    errors: int
    input_tokens: int | None
    output_tokens: int | None
    cost: float | None
    paid: float | None


def money(amount: float | None) -> str:
    """USD with the digits that matter; unknown is said, never 0."""
    if amount is None:
        return "unknown"
    if amount == 0:
        return "$0"
    return f"${amount:,.2f}" if amount >= 1 else f"${amount:.2g}" if amount < 0.01 else f"${amount:.4f}"


class Run(RunMethods):
    """One run, finished or not. `path` is its journal, `None` if it is in memory only.

    What a strategy gives back: its output is `answer`, its status `status` and the reason for it
    `stop_reason` (`interrupted` tells whether a budget cut it short), how sure it is `score`, the thought
    that holds it `best`; `steps_df()` has what was thought, done and observed, as many rows as there are
    steps, and `tree` every thought. What it took: `seconds`, `turns`, and `usage` with calls, tokens and
    cost."""

    def __init__(
        self,
        header: Header,
        lines: list[Line],
        path: Path | None = None,
        *,
        loaded: bool = False,
        task: Task | None = None,
        strategy: Strategy | None = None,
        cache: Cache | None = None,
    ) -> None:
        self.header = header
        self.lines = lines
        self.path = path
        self.cache = cache
        """The answers known to the lab that made it; `None` if it was loaded."""
        self.loaded = loaded
        """Whether its task came from a file, which anybody may have written."""
        if task is not None:
            self.task = task
        if strategy is not None:
            self.strategy = strategy
        self.ungraded: str | None = None
        """Why the answer has no grade although it was asked for; `None` if it has one."""
        self._marks: dict[str, Mark] = {}  # of a run in memory

    # What was asked.

    @property
    def id(self) -> str:
        """The run's id."""
        return self.header.id

    @cached_property
    def task(self) -> Task | None:
        """What it worked on; `None` for a recorded search that has no task of this project."""
        return task_of(self.header.task) if self.header.task else None

    @cached_property
    def strategy(self) -> Strategy | None:
        """How it searched; `None` for a recorded search of your own."""
        part = part_of(self.header.strategy) if self.header.strategy.get("kind") != "recorded" else None
        return part if isinstance(part, Strategy) else None

    @property
    def parent(self) -> dict[str, Any] | None:
        """What it was branched from by `lab.branch`: `run` (its id), `node`, and the `content`, `score`
        or `strategy` that was changed there; `None` for a run that is no branch."""
        return self.header.branched or None

    @property
    def verified(self) -> bool:
        """Whether each line of its file holds a checksum, which is compared whenever the file is read.
        False for a file of an earlier version: damage to it may go unnoticed."""
        return bool(self.header.checksum)

    @property
    def question(self) -> str:
        """The problem in words."""
        if self.header.task:
            return str(self.header.task.get("question", ""))
        thoughts = (line.e for line in self.lines if isinstance(line.e, Thought))
        return next((thought.text for thought in thoughts), "")

    @property
    def name(self) -> str:
        """What the search is called."""
        name = str(self.header.strategy.get("name") or self.header.strategy.get("kind", "run"))
        return f"{name} (counterfactual)" if self.header.counterfactual else name

    @property
    def model(self) -> str:
        """The name of the model that it asked, "" for a search of your own; roles may have had others."""
        settings = self.header.model
        if settings.get("kind") == "local":
            return f"local/{str(settings.get('weights', '')).rpartition('/')[2].removesuffix('.gguf')}"
        return str(settings.get("model") or settings.get("name") or settings.get("kind", ""))

    # What came of it.

    @cached_property
    def _routed(self) -> Routed | None:
        return routed_in(self.events)

    @property
    def selected_strategy(self) -> str | None:
        """The strategy that `tl.Adaptive` selected; `None` if nothing was selected."""
        return self._routed.selected if self._routed else None

    @property
    def strategy_used(self) -> str:
        """The strategy that did the work: `name`, or what `tl.Adaptive` selected, or its default if the
        selected one gave a partial result."""
        return self._routed.used if self._routed else self.name

    @cached_property
    def events(self) -> list[Record]:
        """The canonical list: every record in program order."""
        return canonical(self.lines)

    @cached_property
    def tree(self) -> Tree:
        """The tree of thoughts."""
        return Tree.of(self.events)

    @cached_property
    def _ended(self) -> Ended | None:
        return next((line.e for line in reversed(self.lines) if isinstance(line.e, Ended)), None)

    @property
    def result(self) -> Answer | None:
        """The strategy's answer; None before the end."""
        end = self._ended
        return None if end is None else Answer(end.answer, end.stop_reason, end.node, end.score, end.ranked)

    @property
    def answer(self) -> str:
        """The answer's text, "" when there is none."""
        return self._ended.answer if self._ended else ""

    @property
    def stop_reason(self) -> str | None:
        """Why it ended, a stop word; `None` if it has not (it runs, or was killed)."""
        return self._ended.stop_reason if self._ended else None

    @property
    def status(self) -> Status | None:
        """What came of it; `None` before the end. `completed`: it ended by itself and has an answer.
        `partial`: a budget, a limit, a cancellation or stagnation ended it with an answer in hand. `failed`:
        an error ended it, or it has no answer."""
        if self._ended is None:
            return None
        if self.error is not None or self.stop_reason == "error" or not self.answer:
            return "failed"
        cut = (
            self.interrupted or self.stop_reason == "stagnated" or str(self.stop_reason).startswith("limit:")
        )
        return "partial" if cut else "completed"

    @property
    def interrupted(self) -> bool:
        """Whether a budget or a cancellation ended it, whatever answer it had in hand by then."""
        return self.interruption_reason is not None

    @property
    def interruption_reason(self) -> str | None:
        """The cap that ended it (`budget:calls`), or `cancelled`; `None` if it was not interrupted."""
        return self.stop_reason if self.stop_reason is not None and halts(self.stop_reason) else None

    @property
    def error(self) -> str | None:
        """The bug that ended it, if one did."""
        return self._ended.error if self._ended else None

    @property
    def score(self) -> float | None:
        """The score of the answer's thought, 0–1."""
        return self._ended.score if self._ended else None

    @cached_property
    def grade(self) -> float | None:
        """How right the answer is, 0–1; `None` if the task has nothing to hold it against, or the
        function that grades it was not stored with the run.

        A pattern (`grade="regex"`) that came with a loaded run is matched in another process. When that
        takes longer than 5 s, it is stopped with a warning, the grade is None, and `ungraded` says why.
        Until it is asked for, whatever shows such a run says that it is not graded yet."""
        return None if self._ended is None else self.grades([self.answer])[0]

    def grades(self, answers: Sequence[str]) -> list[float | None]:
        """How right each of `answers` is, in the same way as `grade`."""
        task = self.task
        if task is None or needs_functions(task.domain) or self.ungraded:
            return [None] * len(answers)
        pattern = task.domain.answer_pattern(task) if self.loaded else None
        if pattern is None:
            return [task.grade(answer) for answer in answers]
        try:
            return [float(found) for found in found_in(pattern, answers)]
        except Ungraded as why:
            self.ungraded = str(why)
            warnings.warn(f"run {self.id} is not graded: {why}", RuntimeWarning, stacklevel=3)
            return [None] * len(answers)

    @property
    def waits_for_grading(self) -> bool:
        """Whether nothing that shows the run may grade it: it was loaded, grading may take any time (see
        `Domain.is_bounded`), and nobody has asked for `grade` yet."""
        if not self.loaded or "grade" in self.__dict__ or self.task is None or self._ended is None:
            return False
        return not (self.task.domain.is_bounded(self.task) or needs_functions(self.task.domain))

    @property
    def correct(self) -> bool | None:
        """Whether the answer is right; `None` if that is not known."""
        return None if self.grade is None else self.grade == 1.0

    @cached_property
    def reachable(self) -> float | None:
        """The best grade of any leaf: what a perfect choice among them would have got."""
        if self.task is None or needs_functions(self.task.domain):
            return None
        held = [self.task.domain.answer(self.task, self.steps(leaf.id)) for leaf in self.tree.leaves()]
        answers = [text for text in held if text is not None]
        grades = [grade for grade in self.grades(answers) if grade is not None]
        return max(grades, default=None if self.grade is None else 0.0)

    def steps(self, id: str) -> list[str]:
        """What a domain calls the path to a thought: the texts from the first step on. A thought that
        only holds the question, the root of a strategy inside another, is no step."""
        return [text for text in self.tree.texts(id) if text != self.question]

    @property
    def best(self) -> Node | None:
        """The thought that holds the answer."""
        return self.tree[self._ended.node] if self._ended and self._ended.node is not None else None

    @property
    def candidates(self) -> list[Node]:
        """The ranked leaves, best first."""
        return [self.tree[id] for id in self._ended.ranked] if self._ended else []

    @cached_property
    def solution_path(self) -> list[str]:
        """Ids from the root to the thought that holds the answer; [] without one."""
        return [node.id for node in self.tree.path(self.best.id)] if self.best else []

    # What it took.

    @cached_property
    def usage(self) -> Usage:
        """What all its model calls used; where the record lacks some, only how many it holds."""
        used = usage_of(self.lines)
        return Usage(used.calls, used.errors, *[None] * 4) if "calls" in self.header.unknown else used

    @property
    def turns(self) -> int:
        """Turns of the model: each model call that was made is one, also before an interruption."""
        return self.usage.calls

    @property
    def seconds(self) -> float:
        """Wall time from start to last record, NaN when the record has no times."""
        if "times" in self.header.unknown:
            return nan
        return self.lines[-1].t if self.lines else 0.0

    @cached_property
    def simulated(self) -> bool:
        """True when a simulated model wrote any of its replies."""
        return any(isinstance(line.e, Reply) and line.e.simulated for line in self.lines)

    @cached_property
    def diagnostics(self) -> dict[str, int]:
        """How many of each: replies of which nothing could be used, thoughts whose evaluation could not
        be read, failed thoughts, repeats, replies cut off at `max_tokens`, replies that reported usage which
        cannot be true, failed and refused calls, and calls of tools that failed."""
        states = Counter(node.state for node in self.tree)
        errors = [line.e for line in self.lines if isinstance(line.e, Reply) and line.e.error]
        not_made = sum(refused(reply.error) for reply in errors)
        failed = sum(map(is_made, errors))
        return {
            "unreadable_replies": sum(isinstance(e, Note) and e.name in UNREADABLE for e in self.events),
            "unread_thoughts": sum(node.unread for node in self.tree),
            "failed_thoughts": states["failed"],
            "duplicates": states["duplicate"],
            "cut_off_replies": sum(
                isinstance(line.e, Reply) and line.e.finish_reason == "length" for line in self.lines
            ),
            "disbelieved_usage": sum(
                isinstance(line.e, Reply) and line.e.reported_usage != "" for line in self.lines
            ),
            "failed_calls": failed,
            "refused_calls": not_made,
            "failed_tools": len(errors) - not_made - failed,
        }

    # What can be done with it.

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the whole record to `path`, and the marks beside it; an existing file is replaced at
        once or not at all."""
        marks = self.marks
        saved = write_journal(path, self.header, self.lines)
        write_marks(saved, self.id, marks)
        return saved

    @property
    def marks(self) -> dict[str, Mark]:
        """What people said of its thoughts, by id. They lie beside the journal (`a.marks.json` beside
        `a.jsonl`), and are read anew each time. Raises `JournalError` when the file is damaged."""
        return dict(self._marks) if self.path is None else read_marks(self.path, self.id, self.tree)

    def mark(self, id: str, verdict: Verdict | None, note: str = "") -> None:
        """Say that a thought is `right` or `wrong`, or only a note; it replaces what was said of it, and
        `None` without a note takes it back. It is kept at once, in memory for a run that has no file, and
        seen in an explorer of the run. An unknown thought is a ValueError."""
        mark, marks = made(self.tree, id, verdict, note), self.marks
        marks.pop(id, None)
        if mark != Mark():
            marks = {known: marks.get(known, mark) for known in self.tree.nodes if known in {*marks, id}}
        if self.path is None:
            self._marks = marks
        else:
            write_marks(self.path, self.id, marks)
        changed(self.id)


def expect_run(run: object, taker: str) -> None:
    """A TypeError unless `run` is a run."""
    if not isinstance(run, Run):
        raise TypeError(f"{taker} takes a run, not {type(run).__name__}; was `await` forgotten?")


def load(path: str | os.PathLike[str]) -> Run:
    """The run in a journal, up to its last whole line.

    Raises OSError when the file cannot be opened, `JournalError` (with file and line) when it is
    damaged or written by a newer version. Nothing in it is executed or imported."""
    header, lines, _ = read_journal(path)
    run = Run(header, lines, Path(path), loaded=True)
    try:
        run.tree  # noqa: B018  a record that names an unknown thought shows here, not later
        for id in (run._ended.node, *run._ended.ranked) if run._ended else ():
            if id is not None:
                run.tree[id]
    except (KeyError, ValueError) as error:
        raise JournalError(f"{path}, {_line_of(lines)}: {error.args[0]}") from None
    asked = set()
    for number, line in enumerate(lines, 2):
        if isinstance(line.e, Call):
            asked.add(line.p)
        elif isinstance(line.e, Reply) and line.p not in asked:
            raise JournalError(f"{path}, line {number}: a reply to a call that is not there")
        elif isinstance(line.e, Note) and not line.p:
            try:
                msgspec.convert(line.e.data, _Beside)
            except msgspec.ValidationError as error:
                raise JournalError(f"{path}, line {number}: {line.e.name}: {error}") from None
    return run.prepare()


class _Beside(msgspec.Struct):
    """What a note beside the record says of a call, where it is about one."""

    call: Position = ()
    tries: int = 0


def _line_of(lines: Sequence[Line]) -> str:
    """Which line of the file is the first that the tree cannot take in."""
    tree = Tree()
    for number, line in sorted(enumerate(lines, 2), key=lambda pair: pair[1].p):
        try:
            tree.add(line.e)
        except (KeyError, ValueError):
            return f"line {number}"
    return f"line {max(number for number, line in enumerate(lines, 2) if isinstance(line.e, Ended))}"


def selected_strategies(run: Run) -> dict[str, str]:
    """What `tl.Adaptive` selected, by the id of the thought that the selected strategy began at."""
    return selected_in(run.events)


def usage_of(lines: Sequence[Line]) -> Usage:
    """What the model calls in `lines` used; refused calls were not made and are not counted."""
    replies = [(line.e, line.paid) for line in lines if isinstance(line.e, Reply) and is_made(line.e)]
    # A call that failed used nothing, unless the model says what it used.
    counted = [(r, paid) for r, paid in replies if r.error is None or r.input_tokens is not None]
    return Usage(
        len(replies),
        sum(reply.error is not None for reply, _ in replies),
        _total([reply.input_tokens for reply, _ in counted]),
        _total([reply.output_tokens for reply, _ in counted]),
        _total([reply.cost for reply, _ in counted]),
        _total([paid for _, paid in counted]),
    )


def _total(amounts: list[Any]) -> Any:
    return None if None in amounts else sum(amounts)


def replies_of(lines: Sequence[Line]) -> dict[Position, Reply]:
    """The reply to each call, by its position."""
    return {line.p: line.e for line in lines if isinstance(line.e, Reply)}


def task_of(settings: dict[str, Any]) -> Task:
    """The task that a header tells of."""
    domain = part_of(settings["domain"])
    if not isinstance(domain, Domain):
        raise ValueError(f"{domain.kind!r} is no domain")
    return Task(**{**settings, "domain": domain})
