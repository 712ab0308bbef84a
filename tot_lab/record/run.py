"""A run: its header and its records.

Everything that a run shows is computed from its records on demand. Loaded runs, killed runs and runs that a
user's own code recorded therefore have the same attributes as any other.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from itertools import chain
from math import fsum, nan
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import msgspec

from tot_lab.core.calls import REFUSED, Call, Reply, halts, is_admitted, is_cost, is_made, refused
from tot_lab.core.files import read_regular
from tot_lab.core.model_setting import mark_loaded
from tot_lab.core.parts import map_parts, needs_functions, part_of, stored_settings
from tot_lab.core.processes import found_in
from tot_lab.core.purposes import OTHER, role_of
from tot_lab.core.records import RESUMED, Decided, Ended, Line, Note, Position, Record, Thought, canonical
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Answer, Domain, Task, Ungraded
from tot_lab.core.tree import Node, Tree
from tot_lab.record.compute import Compute, compute_of, params_in
from tot_lab.record.journal import Header, JournalError, parse_journal, write_journal
from tot_lab.record.marks import Mark, Verdict, changed, made, read_marks, write_marks
from tot_lab.record.routed import Routed, routed_in, selected_in
from tot_lab.record.run_methods import RunMethods

GRADING = 5.0
"""Seconds of CPU time that matching the answer pattern of a loaded run may take."""

KEPT = ("kept", "complete", "answer")
"""Decisions after which a thought is still part of the search."""

UNREADABLE = ("parse.unreadable", "json.failed")
"""Names of the notes about unreadable replies. `json.failed` is recorded after the retries."""

NO_EVALUATOR = ("", "root", "domain", "person", "self_consistency")
"""Values of `Scored.by` that are not judgements of a thought by an evaluator."""


class Usage(NamedTuple):
    """Usage of calls.

    Attributes:
        calls: Model calls that were made.
        errors: Calls that failed.
        input_tokens: Prompt tokens. `None` if a model does not report them.
        output_tokens: Tokens of the replies. `None` if a model does not report them.
        cost: USD that the calls would cost without a cache. `None` if the price of a call is not
            known.
        paid: USD that was actually paid, 0 for replies from a cache. A reply that was requested
            again when the run was resumed counts both times. `None` if the price of a call is not known.
    """

    calls: int
    errors: int
    input_tokens: int | None
    output_tokens: int | None
    cost: float | None
    paid: float | None


def money(amount: float | None) -> str:
    """Format an amount of USD with its significant digits; an unknown amount is "unknown", never 0."""
    if amount is None:
        return "unknown"
    if amount == 0:
        return "$0"
    if amount < 0.01:
        return f"${Decimal(f'{amount:.2g}'):f}"  # without an exponent
    return f"${amount:,.2f}" if amount >= 1 else f"${amount:.4f}"


def text_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table: its first column is aligned on the left, the others on the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]


SIMULATED = "simulated model"
SMALL = "real model of a small formal language"


def model_note(notes: Iterable[str]) -> str:
    """Return one note about the models of several runs. `notes` are the `Run.model_note` of each."""
    found = set(notes)
    return SIMULATED if SIMULATED in found else SMALL if SMALL in found else ""


def model_name(settings: Mapping[str, Any]) -> str:
    """The name of a model from its settings. Empty if there are no settings."""
    if (kind := settings.get("kind")) in ("local", "tiny"):
        file = str(settings.get("weights", "")).rpartition("/")[2]
        return f"{kind}/{file.removesuffix('.gguf').removesuffix('.npz')}"
    return str(settings.get("model") or settings.get("name") or settings.get("kind", ""))


class ReplyCache(Protocol):
    """The part of `tot_lab.models.Cache` that a replay needs."""

    path: Path

    def replies(self, key: str) -> Iterator[Reply]:
        """Yield all cached replies under `key`."""


class Run(RunMethods):
    """One run, finished or not.

    The outcome: `answer`, `status`, `stop_reason` (and `interrupted`, whether a budget or a cancellation
    ended the run), `score`, and `best`, the thought that holds the answer. The search: `tree`, and
    `steps_df()` with one row per step. The cost: `seconds`, `turns`, and `usage` with calls, tokens and USD.
    `path` is the journal, or `None` if the run is in memory only.
    """

    _inside: ClassVar[Mapping[str, type]] = {"usage": Usage}
    _meant: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(["text", "output", "content", "response"], "answer"),
        **dict.fromkeys(["accuracy", "success", "is_right"], "correct"),
        **dict.fromkeys(["to_df", "to_dataframe", "to_pandas", "to_csv"], "nodes_df()"),
    }

    def __init__(
        self,
        header: Header,
        lines: list[Line],
        path: Path | None = None,
        *,
        loaded: bool = False,
        task: Task | None = None,
        strategy: Strategy | None = None,
        cache: ReplyCache | None = None,
    ) -> None:
        self.header = header
        self.lines = lines
        self.path = path
        self.cache = cache
        """The cache of the lab that made the run. `None` if the run was loaded."""
        self.loaded = loaded
        """Whether its task was loaded from a file, which may be untrusted."""
        if task is not None:
            self.task = task
        if strategy is not None:
            self.strategy = strategy
        self.ungraded: str | None = None
        """Why grading failed or was refused when `grade` was read. `None` if it succeeded."""
        self._marks: dict[str, Mark] = {}  # of a run in memory

    # The question.

    @property
    def id(self) -> str:
        """The run's id."""
        return self.header.id

    @cached_property
    def task(self) -> Task | None:
        """The task. `None` if the header holds none."""
        return task_of(self.header.task) if self.header.task else None

    @cached_property
    def strategy(self) -> Strategy | None:
        """The strategy. `None` if the header holds no settings of a strategy, as in imported runs."""
        return recorded_strategy(self.header)

    @property
    def parent(self) -> dict[str, Any] | None:
        """The origin of a branch made by `lab.branch`. `None` if the run is not a branch.

        A dict with `run` (the id of the parent), `node`, and the new `content`, `score` or `strategy` there.
        """
        return self.header.branched or None

    @property
    def verified(self) -> bool:
        """Whether every line of the file has a checksum. Checksums are checked whenever the file is read.

        `False` for files of earlier versions, in which damage may go unnoticed.
        """
        return bool(self.header.checksum)

    @property
    def question(self) -> str:
        """The question of the task. Without a task, the text of the first thought."""
        if self.header.task:
            return str(self.header.task.get("question", ""))
        thoughts = (line.e for line in self.lines if isinstance(line.e, Thought))
        return next((thought.text for thought in thoughts), "")

    @property
    def name(self) -> str:
        """The name of the strategy, with `(counterfactual)` if replies of other runs answered the calls."""
        name = str(self.header.strategy.get("name") or self.header.strategy.get("kind", "run"))
        return f"{name} (counterfactual)" if self.header.counterfactual else name

    @property
    def model(self) -> str:
        """The name of the lab's model. Empty if no lab made the run. Roles may have other models."""
        return model_name(self.header.model)

    # The outcome.

    @cached_property
    def _routed(self) -> Routed | None:
        return routed_in(canonical(self.lines_of(Note)))

    @property
    def selected_strategy(self) -> str | None:
        """The strategy that `tl.Adaptive` selected, or `None` if nothing was selected."""
        return self._routed.selected if self._routed else None

    @property
    def strategy_used(self) -> str:
        """The strategy that gave the result.

        This is `name`, or the strategy that `tl.Adaptive` selected, or its default if the selected one gave a
        partial result.
        """
        return self._routed.used if self._routed else self.name

    @cached_property
    def _by_kind(self) -> dict[type[Record], list[Line]]:
        lines = defaultdict[type[Record], list[Line]](list)
        for line in self.lines:
            lines[type(line.e)].append(line)
        return lines

    def lines_of(self, *kinds: type[Record]) -> list[Line]:
        """The lines with records of these types, grouped by type, and in recorded order within a type."""
        known = self._by_kind.items()
        wanted = (lines for kind in kinds for found, lines in known if issubclass(found, kind))
        return list(chain.from_iterable(wanted))

    @cached_property
    def admitted(self) -> list[tuple[Call, Line]]:
        """The model calls that were not refused, each with the line of its reply."""
        calls = {line.p: line.e for line in self.lines_of(Call) if isinstance(line.e, Call)}
        replies = [line for line in self.lines_of(Reply) if isinstance(line.e, Reply) and is_admitted(line.e)]
        return [(calls[line.p], line) for line in replies if line.p in calls]

    @cached_property
    def events(self) -> list[Record]:
        """The records in the order of their positions, not of time, so that a replay has the same list.
        Records without a position, such as notes that depend on timing, are left out.
        """
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
        """The strategy's answer. `None` before the end."""
        end = self._ended
        return None if end is None else Answer(end.answer, end.stop_reason, end.node, end.score, end.ranked)

    @property
    def answer(self) -> str:
        """The text of the answer, empty if it is missing."""
        return self._ended.answer if self._ended else ""

    @property
    def stop_reason(self) -> str | None:
        """The stop code. `None` if the run has not ended (it is in progress, or was killed)."""
        return self._ended.stop_reason if self._ended else None

    @property
    def status(self) -> str | None:  # not `Literal[…]`: Jedi 0.20 would not complete `Run`
        """The outcome of a run that has ended, else `None`.

        `completed`: it ended by itself and has an answer. `partial`: a budget, a limit, a cancellation or
        stagnation ended it with an answer. `failed`: an error ended it, or it has no answer.
        """
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
        """Whether a budget or a cancellation ended the run, with or without an answer."""
        return self.interruption_reason is not None

    @property
    def interruption_reason(self) -> str | None:
        """The budget that ended the run (such as `budget:calls`), or `cancelled`. `None` if it was not
        interrupted."""
        return self.stop_reason if self.stop_reason is not None and halts(self.stop_reason) else None

    @property
    def error(self) -> str | None:
        """The exception that ended the run, as text, or `None`."""
        return self._ended.error if self._ended else None

    @cached_property
    def failure(self) -> str | None:
        """Why the run failed, or `None` if it did not. A failed run has no grade.

        It is the exception that ended the run, the spending limit of its lab, or the error of its last failed
        model call, or else of its last failed evaluator or tool. A failed call counts as the reason if it
        ended the run, or if all calls failed and there is no answer. A run that lost some calls but ended by
        itself has not failed.
        """
        if self.stop_reason == REFUSED:
            noted = (
                line.e.data
                for line in reversed(self.lines)
                if isinstance(line.e, Note) and line.e.name == "call.refused"
            )
            found = next((data for data in noted if {"most", "left"} <= data.keys()), None)
            return (
                f"the lab's spending limit refused a call{_refusal(found)}. A lower max_tokens reserves "
                "less. With a higher spend=, the same lab.sweep(…) continues, or lab.resume finishes one run"
            )
        if self._ended is None or self.error is not None:
            return self.error
        if self.stop_reason != "error" and self.answer:
            return None
        replies = [line.e for line in self.lines if isinstance(line.e, Reply) and not refused(line.e.error)]
        errors = [reply.error for reply in replies if is_admitted(reply)]
        failed = [error for error in errors if error is not None]
        if failed and (self.stop_reason == "error" or len(failed) == len(errors)):
            return failed[-1]
        if self.stop_reason == "error":  # no model call failed, so an evaluator or a tool did
            return next((reply.error for reply in reversed(replies) if reply.error is not None), None)
        return None

    @property
    def score(self) -> float | None:
        """The score of the thought that holds the answer, 0–1. `None` if it has none."""
        return self._ended.score if self._ended else None

    @cached_property
    def grade(self) -> float | None:
        """How correct the answer is, 0–1.

        `None` if the task has no reference, if the function that grades it was not stored with the run, or if
        the run failed (see `failure`) or was cancelled, since a missing answer is not wrong.

        A pattern (`grade="regex"`) of a loaded run is matched in another process. If that takes longer than 5
        s, it is stopped with a warning, the grade is `None`, and `ungraded` gives the reason. Until `grade`
        is read, all views of such a run say that it is not graded yet. Code (`grade="python"`) of a
        loaded run is never run.
        """
        if self._ended is None or self.failure is not None or self.stop_reason == "cancelled":
            return None
        return self.grades([self.answer])[0]

    def grades(self, answers: Sequence[str]) -> list[float | None]:
        """Grade each of `answers`, in the same way as `grade`."""
        task = self.task
        if task is None or needs_functions(task.domain) or self.ungraded:
            return [None] * len(answers)
        if self.loaded and task.domain.runs_code(task):
            self.ungraded = "its tests are code from a file. To run them, call run.task.grade(run.answer)"
            return [None] * len(answers)
        pattern = task.domain.answer_pattern(task) if self.loaded else None
        try:
            if pattern is None:
                return [task.grade(answer) for answer in answers]
            return [float(found) for found in found_in(pattern, answers, GRADING)]
        except Ungraded as why:
            self.ungraded = str(why)
            warnings.warn(f"run {self.id} is not graded: {why}", RuntimeWarning, stacklevel=3)
            return [None] * len(answers)

    @property
    def waits_for_grading(self) -> bool:
        """Whether views must not grade the run, because grading may take long (`Domain.is_bounded`).

        Only a loaded run waits, until `grade` is read.
        """
        if not self.loaded or "grade" in self.__dict__ or self.task is None or self._ended is None:
            return False
        return not (self.task.domain.is_bounded(self.task) or needs_functions(self.task.domain))

    @property
    def correct(self) -> bool | None:
        """Whether the answer is correct. `None` if that is not known."""
        return None if self.grade is None else self.grade == 1.0

    @cached_property
    def kept_answers(self) -> list[str]:
        """The run's answer first, then the other answers on the leaves that the search kept (`KEPT`)."""
        task = self.task
        if task is None or needs_functions(task.domain):
            return [self.answer]
        kept = [leaf for leaf in self.tree.leaves() if leaf.state in KEPT]
        held = [task.domain.answer(task, self.steps(leaf.id)) for leaf in kept]
        return list(dict.fromkeys([self.answer, *filter(None, held)]))

    @cached_property
    def any_of_kept(self) -> bool | None:
        """Whether any of the kept answers is correct, which many publications count as success.

        `correct` considers only the answer of the run. `None` if the run kept only one answer, or if its
        correctness is not known.
        """
        if self.correct is None or len(self.kept_answers) < 2:
            return None
        return self.correct or 1.0 in self.grades(self.kept_answers[1:])

    @cached_property
    def credit(self) -> float | None:
        """Partial credit for the answer, 0–1, which never counts as correct. `None` if there is no credit."""
        task = self.task
        return None if self.grade is None or task is None else task.domain.credit(task, self.answer)

    @cached_property
    def reachable(self) -> float | None:
        """The best grade of any leaf: the grade if the best leaf had been chosen as the answer. `None` if the
        leaves cannot be graded.
        """
        if self.task is None or needs_functions(self.task.domain):
            return None
        held = [self.task.domain.answer(self.task, self.steps(leaf.id)) for leaf in self.tree.leaves()]
        answers = list(dict.fromkeys(text for text in held if text is not None))
        grades = [grade for grade in self.grades(answers) if grade is not None]
        return max(grades, default=None if self.grade is None else 0.0)

    def steps(self, id: str) -> list[str]:
        """The path to a thought, as domains receive it: the texts from the first step on.

        A thought that only holds the question (the root of a nested strategy) is not a step.
        """
        texts = [text for text in self.tree.texts(id) if text != self.question]
        return [*self.header.task.get("steps", ()), *texts]

    @property
    def best(self) -> Node | None:
        """The thought that holds the answer. `None` if no thought does."""
        return self.tree[self._ended.node] if self._ended and self._ended.node is not None else None

    @cached_property
    def answer_state(self) -> str | None:
        """`finished` if the path of the answer is complete, `None` if that is not known.

        If the domain cannot tell whether a path is complete (`Domain.is_text`): `unfinished` if the last step
        states no answer, and `cut` if that step ended at `max_tokens`.
        """
        best = self._ended.node if self._ended else None
        for event in canonical(self.lines_of(Note)):
            if isinstance(event, Note) and event.name == "answer.unfinished" and event.at == best:
                return "cut" if event.data.get("cut") else "unfinished"
        decided = (line.e for line in self.lines_of(Decided))
        complete = (e.id for e in decided if isinstance(e, Decided) and e.what == "complete")
        return "finished" if best is not None and best in complete else None

    @property
    def candidates(self) -> list[Node]:
        """The ranked leaves, best first."""
        return [self.tree[id] for id in self._ended.ranked] if self._ended else []

    @cached_property
    def solution_path(self) -> list[str]:
        """Ids from the root to the thought that holds the answer, empty if it is missing."""
        return [node.id for node in self.tree.path(self.best.id)] if self.best else []

    # The cost.

    @cached_property
    def usage(self) -> Usage:
        """Usage of the model calls. Tokens and costs are `None` if the record lacks calls."""
        used = usage_of(self.lines_of(Reply))
        if used.paid is not None:
            notes = (line.e for line in self.lines_of(Note) if isinstance(line.e, Note))
            lost = [note.data.get("replies", 0.0) for note in notes if note.name == RESUMED]
            used = used._replace(paid=fsum([used.paid, *(usd for usd in lost if is_cost(usd))]))
        return Usage(used.calls, used.errors, *[None] * 4) if "calls" in self.header.unknown else used

    @cached_property
    def params(self) -> dict[str, float | None]:
        """Numbers of parameters of the models, by the name of a model, a call purpose or a role, from the
        roles of the lab (`Role.params`). Set them for a record that lacks them:
        `run.params = {"propose": 1.5e9}`.
        """
        return params_in(self.header.roles)

    @property
    def compute(self) -> Compute:
        """FLOPs of the model calls, and the time that the run would take alone, each `None` if unknown."""
        return compute_of(self.lines_of(Call, Reply, Note), self.params, self.header.unknown)

    @property
    def turns(self) -> int:
        """The number of model calls that were made."""
        return self.usage.calls

    @property
    def seconds(self) -> float:
        """Wall time from the start to the last record. NaN if the record has no times."""
        if "times" in self.header.unknown:
            return nan
        return self.lines[-1].t if self.lines else 0.0

    @cached_property
    def simulated(self) -> bool:
        """Whether a simulated model wrote any of the replies."""
        return any(isinstance(line.e, Reply) and line.e.simulated for line in self.lines_of(Reply))

    @cached_property
    def model_note(self) -> str:
        """A note for views, if the model is simulated or very small. Empty for other models."""
        if self.simulated:
            return SIMULATED
        models = (self.header.model, *(role.get("model") for role in self.header.roles.values()))
        kinds = (one.get("kind") if isinstance(one, dict) else str(one).split("/")[0] for one in models)
        names = (line.e.model or "" for line in self.lines_of(Reply) if isinstance(line.e, Reply))
        return SMALL if "tiny" in kinds and any(name.startswith("tiny/") for name in names) else ""

    @cached_property
    def diagnostics(self) -> dict[str, int]:
        """Counts of losses and errors.

        Unreadable replies, thoughts with an unreadable evaluation, failed thoughts, duplicates,
        replies cut off at `max_tokens`, replies whose reported usage cannot be true, failed calls, refused
        calls, and failed tool calls.
        """
        states = Counter(node.state for node in self.tree)
        errors = [line.e for line in self.lines if isinstance(line.e, Reply) and line.e.error]
        not_made = sum(refused(reply.error) for reply in errors)
        failed = sum(map(is_admitted, errors))
        return {
            "unreadable_replies": sum(isinstance(e, Note) and e.name in UNREADABLE for e in self.events),
            "unreadable_thoughts": sum(node.unreadable for node in self.tree),
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

    # Files and marks.

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the record to `path`, and the marks beside it. An existing file is replaced atomically.

        Raises:
            ValueError: If the suffix is that of another kind of file, such as `.html`.
        """
        if (suffix := Path(path).suffix.lower()) in _OTHER_FILES:
            raise ValueError(
                f"run.save writes .jsonl: got {os.fspath(path)!r}. Write {_OTHER_FILES[suffix]}."
            )
        marks = self.marks
        saved = write_journal(path, self.header, self.lines)
        write_marks(saved, self.id, marks)
        return saved

    @property
    def marks(self) -> dict[str, Mark]:
        """Marks of people on the thoughts, by id.

        They are stored beside the journal (`a.marks.json` beside `a.jsonl`) and read each time.

        Raises:
            JournalError: If the file is damaged.
        """
        return dict(self._marks) if self.path is None else read_marks(self.path, self.id, self.tree)

    def mark(self, id: str, verdict: Verdict | None, note: str = "") -> None:
        """Mark a thought as `right` or `wrong`, or add a note. It replaces the thought's earlier mark.

        The mark is stored at once (in memory for a run without a file) and shown in explorers of the run.

        Args:
            id: The thought.
            verdict: `right`, `wrong`, or `None` for only a note. `None` without a note removes the mark.
            note: A note.

        Raises:
            ValueError: For an unknown thought.
        """
        mark, marks = made(self.tree, id, verdict, note), self.marks
        marks.pop(id, None)
        if mark != Mark():
            marks = {known: marks.get(known, mark) for known in self.tree.nodes if known in {*marks, id}}
        if self.path is None:
            self._marks = marks
        else:
            write_marks(self.path, self.id, marks)
        changed(self.id)


_OTHER_FILES = {
    **dict.fromkeys((".html", ".htm"), "run.save_html(PATH)"),
    **dict.fromkeys((".svg", ".png", ".jpg", ".pdf"), "run.save_figure(PATH)"),
    **dict.fromkeys((".csv", ".parquet", ".xlsx"), "run.nodes_df().to_csv(PATH)"),
}
"""What to write instead of `run.save(PATH)`, by suffix."""


def expect_run(run: object, taker: str) -> None:
    """Raise TypeError unless `run` is a run. `taker` is the name of the function that it was passed to."""
    if not isinstance(run, Run):
        raise TypeError(f"{taker} expects a Run: got {type(run).__name__}. {no_run(run, taker)}")


def no_run(given: object, taker: str) -> str:
    """Return what to pass to `taker` instead of `given`, which is not a run, as a sentence."""
    if isinstance(given, str | os.PathLike):
        return f"Load it first: {taker}(tl.load({os.fspath(given)!r}))."
    if hasattr(given, "df") and hasattr(given, "run"):
        return "Pass one of its runs: sweep.run(sweep.df().iloc[0])."
    if isinstance(given, list | tuple) and any(isinstance(each, Run) for each in given):
        return "Pass one of them."
    return "Was `await` forgotten?"


def load(path: str | os.PathLike[str]) -> Run:
    """Load the run in a journal, up to its last whole line. Nothing in the file is executed or imported.

    Raises:
        OSError: If the file cannot be opened.
        JournalError: If it is damaged or was written by a newer version; names the file and the line.
    """
    run = parse(read_regular(path), path)
    run.path = Path(path)
    return run


def parse(data: bytes, path: str | os.PathLike[str]) -> Run:
    """Return the run in the bytes of a journal, as `load` does. `path` names it in errors."""
    header, lines, _ = parse_journal(data, path)
    run = Run(header, lines, loaded=True)
    try:
        run.tree  # noqa: B018  raises if a record names an unknown thought
        for id in (run._ended.node, *run._ended.ranked) if run._ended else ():
            if id is not None:
                run.tree[id]
    except (KeyError, ValueError) as error:
        raise JournalError(f"{path}, {_line_of(lines)}: {error.args[0]}") from None
    called = set()
    for number, line in enumerate(lines, 2):
        if isinstance(line.e, Call):
            called.add(line.p)
        elif isinstance(line.e, Reply) and line.p not in called:
            raise JournalError(f"{path}, line {number}: a reply without a call. An earlier line is missing.")
        elif isinstance(line.e, Note) and not line.p:
            try:
                msgspec.convert(line.e.data, _Beside)
            except msgspec.ValidationError as error:
                raise JournalError(f"{path}, line {number}: {line.e.name}: {error}") from None
    return run


class _Beside(msgspec.Struct):
    """The fields of a note about a call. Such a note is outside the canonical record."""

    call: Position = ()
    tries: int = 0


def _line_of(lines: Sequence[Line]) -> str:
    """The first line of the file that does not fit the tree, or else the line with the end, as text for an
    error.
    """
    tree = Tree()
    for number, line in sorted(enumerate(lines, 2), key=lambda pair: pair[1].p):
        try:
            tree.add(line.e)
        except (KeyError, ValueError):
            return f"line {number}"
    return f"line {max(number for number, line in enumerate(lines, 2) if isinstance(line.e, Ended))}"


def selected_strategies(run: Run) -> dict[str, str]:
    """The strategies that `tl.Adaptive` selected, by the id of the thought at which each began."""
    return selected_in(run.events)


def _refusal(found: dict[str, Any] | None) -> str:
    """Return what `found`, the data of a note `call.refused`, states: the maximum cost of the call, and what
    was left of the limit. "" for `None`.
    """
    if found is None:
        return ""
    left, cap = found["left"], found.get("cap")
    if round(left, 9) > 0:
        most, rest = money(found["most"]), money(left)
        return f": it can cost up to {most}, and {'slightly less' if rest == most else rest} was left"
    of = "" if cap is None else f" of {money(cap)}: up to {money(cap - left)} may already have been paid"
    return f". Nothing was left{of}. Interrupted calls count as the most that they can cost"


def usage_of(lines: Sequence[Line]) -> Usage:
    """Usage of the model calls in `lines`. Calls that were refused or could not be sent do not count."""
    replies = [(line.e, line.paid) for line in lines if isinstance(line.e, Reply) and is_made(line.e)]
    counted = [reply for reply, _ in replies if _has_usage(reply)]
    return Usage(
        len(replies),
        sum([reply.error is not None for reply, _ in replies]),
        _total([reply.input_tokens for reply in counted]),
        _total([reply.output_tokens for reply in counted]),
        _total([reply.cost for reply in counted], fsum),  # does not depend on the order of the lines
        # A failed call may have earlier tries that were paid.
        _total([paid for r, paid in replies if _has_usage(r) or paid is not None], fsum),
    )


def _has_usage(reply: Reply) -> bool:
    """Whether a call has usage. A failed call has none, unless the model reports some."""
    return reply.error is None or reply.input_tokens is not None


def usage_by_role(run: Run) -> dict[str, Usage]:
    """Usage of the model calls of each role. Roles without calls are left out."""
    replies = defaultdict[str, list[Line]](list)
    for call, line in run.admitted:
        replies[role_of(call.purpose) or OTHER].append(line)
    used = {role: usage_of(its) for role, its in replies.items()}
    return {role: usage for role, usage in used.items() if usage.calls}


def _total(amounts: list[Any], add: Callable[[list[Any]], Any] = sum) -> Any:
    return None if None in amounts else add(amounts)


def replies_of(lines: Sequence[Line]) -> dict[Position, Reply]:
    """The reply to each call, by its position."""
    return {line.p: line.e for line in lines if isinstance(line.e, Reply)}


def recorded_strategy(header: Header) -> Strategy | None:
    """The strategy of a run with this header. Settings that the header lacks get the values of the version
    that wrote it. `None` if the header holds no settings of a strategy, as in imported runs.
    """
    if header.strategy.get("kind") in (None, "recorded"):
        return None
    with stored_settings():
        part = part_of(header.strategy)
        if not isinstance(part, Strategy):
            return None
        strategy: Strategy = map_parts(part, lambda inner: inner.recorded_by(header.tot_lab))
    mark_loaded(strategy)
    return strategy


def task_of(settings: dict[str, Any]) -> Task:
    """Return the task that a header describes."""
    domain = part_of(settings["domain"])
    if not isinstance(domain, Domain):
        raise ValueError(f"the kind of a task's domain must be that of a domain: got {domain.kind!r}.")
    return Task(**{**settings, "domain": domain})
