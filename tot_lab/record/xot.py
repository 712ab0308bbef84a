"""Importer of the published logs of "Everything of Thoughts": Game of 24, 8-puzzle and 2×2 cube.

    file → entries (`Entry`, `Step`) → records (`_Records`) → Run

Logs of tree searches (ToT, GoT) hold the puzzle, the thoughts, and which were kept. Logs of single
answers (IO, CoT, XoT) hold only the number of the puzzle: the puzzle itself is read from the log of a tree
search in the same folder. The text of a reply to a `propose` call is made from its thoughts. `Header.unknown`
lists missing data.

References:
    Ding et al. 2023; github.com/microsoft/Everything-of-Thoughts-XoT.
"""

from __future__ import annotations

import os
import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tot_lab.core.bulk import gc_paused
from tot_lab.core.calls import Call, Reply
from tot_lab.core.files import open_regular
from tot_lab.core.records import Decided, Ended, Note, Record, Scored, Thought
from tot_lab.core.task import Task, make_task
from tot_lab.record.journal import JournalError
from tot_lab.record.logs.common import contents
from tot_lab.record.nodes import question_task
from tot_lab.record.published import (
    Evaluation,
    children_of,
    evaluation,
    id_of,
    path_to,
    recorded_run,
    verdicts,
)
from tot_lab.record.run import Run
from tot_lab.record.waiting import with_progress


class Step(msgspec.Struct):
    """A level of a search, or its end.

    Attributes:
        x: The puzzle, as numbers.
        step: Number of the level.
        ys: The paths that were expanded.
        new_ys: Their children.
        values: The values of `new_ys` (ToT).
        select: The children that the model selected, counted from 1 (GoT).
        select_new_ys: The paths that were kept, best first. Equal to `ys` if the model selected none.
        thoughts: At the end: the paths for which the model was asked to give the answer.
        answer: At the end: the replies of the model.
    """

    x: str
    step: int = 0
    ys: list[str] = []
    new_ys: list[str] = []
    values: list[float | None] | None = None
    select: list[int] | None = None
    select_new_ys: list[str] = []
    thoughts: list[str] | None = None
    answer: list[str] = []


class Entry(msgspec.Struct):
    """A puzzle.

    Attributes:
        ys: The final replies.
        idx: Number of the puzzle.
        steps: The levels of the search, and its end. Empty for a log of single answers.
        infos: The authors' own verdicts on `ys`.
    """

    ys: list[str]
    idx: int = -1
    steps: list[Step] = []
    infos: list[dict[str, Any]] = []


_TREE = re.compile(rb'\s*\[\s*\{\s*"steps"\s*:\s*\[\s*\{\s*(?:"step"\s*:\s*\d+\s*,\s*)?"x"\s*:\s*"\s*\[')
_FLAT = re.compile(rb'\s*\[\s*\{\s*"idx"\s*:\s*\d+\s*,\s*"ys"\s*:\s*\[')


class XoTLog:
    """Importer of the logs of Everything of Thoughts, each a JSON list with one entry per puzzle."""

    expects = 'a JSON list of entries with "steps" whose "x" is a list of numbers, or with "idx" and "ys"'

    @staticmethod
    def recognises(head: bytes) -> bool:
        """Whether a file that begins with `head` is such a log."""
        return bool(_TREE.match(head) or _FLAT.match(head))

    @staticmethod
    @gc_paused()
    def read(path: str | os.PathLike[str]) -> list[Run]:
        """Return the runs of a log in the order of its entries.

        Raises:
            JournalError: If the log is damaged. The message names the entry.
        """
        path = Path(path)
        data = contents(path)
        entries = _entries(path, data)
        named = _Named.of(path.stem)
        multiple = any(isinstance(info.get("r"), dict) for entry in entries for info in entry.infos)
        method = _method(entries, named)
        evaluations = _evaluations(path, entries)
        puzzles = {} if all(entry.steps for entry in entries) else _puzzles(path)
        deepest = max((len(entry.steps) - 1 for entry in entries), default=0)
        runs, unnamed = [], 0
        for number, entry in enumerate(with_progress(entries, f"loading {path}", len(entries))):
            try:
                question = entry.steps[0].x if entry.steps else puzzles.get(entry.idx)
                task = _task(question, entry.idx)
                limit = getattr(task.domain, "limit", 0)
                if limit and (multiple or deepest > limit):
                    task = task.model_copy(
                        update={"domain": task.domain.model_copy(update={"limit": limit + 3})}
                    )
                unnamed += question is None
                records = _Records(task, entry, named.model, evaluations, multiple)
            except (ValueError, IndexError) as error:
                raise JournalError(f"{path}, entry {number}: {error}") from None
            game = _GAMES.get(task.domain.kind, "unknown puzzles")
            name = ", ".join(filter(None, [f"published {method}", game, named.model, *named.settings]))
            unknown = ("prompts", "times", "calls")
            runs.append(recorded_run(task, name, records.records, (method, entry), unknown))
        if unnamed:
            warnings.warn(
                f"{path}: {unnamed} of {len(runs)} answers cannot be graded, because the log names its "
                f"puzzles by number only. Put the log of a tree search (ToT or GoT) into the same folder.",
                UserWarning,
                stacklevel=3,
            )
        return runs


_decoder = msgspec.json.Decoder(list[Entry])


def _entries(path: Path, data: bytes) -> list[Entry]:
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        try:
            for number, raw in enumerate(msgspec.json.decode(data, type=list[Any])):
                try:
                    msgspec.convert(raw, Entry)
                except msgspec.ValidationError as why:
                    raise JournalError(f"{path}, entry {number}: {why}") from None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass
        raise JournalError(f"{path}: not a log of Everything of Thoughts: {error}") from None


# Data from the name of the file and from other files in its folder.


_GAMES = {
    "published/game24": "Game of 24",
    "published/npuzzle": "8-puzzle",
    "published/cube": "2×2 cube",
}

_NAME = re.compile(
    r"(?P<model>.+?)_(?P<temperature>\d+(?:\.\d+)?)_(?P<method>io|cot|tot|got|xot)_(?P<settings>.*)"
)
_RANGE = re.compile(r"_start\d+_end\d+")
_USUAL = re.compile(
    r"(propose|value|laststep|revised|reviseTimes)1|multi0|(greedy|sample|start|end)\d+|", re.ASCII
)
"""Settings in a file name that the name of the run omits: usual values, and what the log itself shows."""


class _Named(NamedTuple):
    """The model, the method and unusual settings in the name of a log. All are empty if the name has another
    format.
    """

    model: str | None = None
    method: str | None = None
    settings: tuple[str, ...] = ()

    @classmethod
    def of(cls, stem: str) -> _Named:
        found = _NAME.fullmatch(stem)
        if found is None:
            return cls()
        unusual = [word for word in found["settings"].split("_") if not _USUAL.fullmatch(word)]
        warm = [] if float(found["temperature"]) == 0 else [f"temperature {found['temperature']}"]
        return cls(found["model"], found["method"], (*warm, *unusual))


_METHODS = {"io": "IO", "cot": "CoT", "tot": "ToT", "got": "GoT", "xot": "XoT"}


def _method(entries: Sequence[Entry], named: _Named) -> str:
    """Name the method, with the width of a search, or with the number of samples if it is above 1."""
    steps = [step for entry in entries for step in entry.steps]
    if steps:
        method = "GoT" if any(step.select is not None for step in steps) else "ToT"
        return f"{method} b={max(1, *(len(step.select_new_ys) for step in steps))}"
    samples = max((len(entry.ys) for entry in entries), default=1)
    return f"{_METHODS.get(named.method or '', 'answers')}{f' ×{samples}' if samples > 1 else ''}"


def _evaluations(path: Path, entries: Sequence[Entry]) -> dict[float, Evaluation]:
    """The evaluations by the values in the log. 0 and null mean that no sample could be read; both have the
    key 0.

    No log states the number of samples. It is estimated as the most samples that any value is the sum of.
    """
    values = {value or 0.0 for entry in entries for step in entry.steps for value in step.values or ()}
    try:
        samples = max([1, *(len(verdicts(value)) for value in values)])
    except ValueError as error:
        raise JournalError(f"{path}: {error}") from None
    return {value: evaluation(value, samples) for value in values}


class _Question(msgspec.Struct):
    x: str


class _Puzzle(msgspec.Struct):
    """The fields of an entry that identify its puzzle."""

    steps: list[_Question] = []
    idx: int = -1


@lru_cache(maxsize=64)
def _puzzles_in(path: Path, changed: int, size: int) -> Mapping[int, str]:
    """The puzzles of a tree log by number. The last two arguments identify the version of the file."""
    with open_regular(path) as file:
        head = file.read(4096)
        if not _TREE.match(head):
            return {}
        data = head + file.read()
    try:
        entries = msgspec.json.decode(data, type=list[_Puzzle])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return {}
    return {entry.idx: entry.steps[0].x for entry in entries if entry.steps}


def _puzzles(path: Path) -> dict[int, str]:
    """The puzzles by number, from tree logs in the folder of a log. Logs with the same range of numbers in
    their names are preferred.

    Numbers that stand for different puzzles are left out.
    """
    range_ = _RANGE.search(path.stem)
    near = [file for file in sorted(path.parent.glob("*.json")) if file != path and file.is_file()]
    alike = [file for file in near if range_ and range_[0] in file.stem]
    for files in (alike, near):
        found: dict[int, set[str]] = {}
        for file in files:
            stat = file.stat()
            for idx, x in _puzzles_in(file, stat.st_mtime_ns, stat.st_size).items():
                found.setdefault(idx, set()).add(x)
        if found:
            return {idx: next(iter(xs)) for idx, xs in found.items() if len(xs) == 1}
    return {}


def _task(question: str | None, idx: int) -> Task:
    """The task of a puzzle. How many numbers the question holds (4, 9 or 24) determines the game. `None`
    makes an ungraded task that states only the number of the puzzle, `idx`.
    """
    if question is None:
        task = question_task(f"puzzle {idx} of a log that does not hold it")
        assert task is not None
        return task.model_copy(update={"id": str(idx)})
    numbers = re.findall(r"\d+", question)
    kind = {4: "published/game24", 9: "published/npuzzle", 24: "published/cube"}.get(len(numbers))
    if kind is None:
        raise ValueError(f"a puzzle must have 4, 9 or 24 numbers: got {question[:80]!r}.")
    task = make_task(kind, " ".join(numbers))
    if task.domain.kind != kind:  # numbers that are no hand make a task of another kind
        raise ValueError(f"a hand must be four integers from 1 to 13: got {question[:80]!r}.")
    return task


# Records.


class _Records:
    """Converts an entry to records."""

    def __init__(
        self,
        task: Task,
        entry: Entry,
        model: str | None,
        evaluations: Mapping[float, Evaluation],
        multiple: bool,
    ) -> None:
        self.task = task
        self.evaluations = evaluations
        self.model = model
        self.multiple = multiple
        self.records: list[Record] = [Thought("0", None, task.question)]
        self.texts: dict[str, str] = {}
        self.ids = {"": "0"}
        self.scores: dict[str, float | None] = {}
        self._born: Counter[str] = Counter()
        self._calls: Counter[tuple[str, str]] = Counter()
        self.records.append(Note("published.entry", "0", {"idx": entry.idx, "infos": entry.infos}))
        levels = [step for step in entry.steps if step.thoughts is None]
        end = next((step for step in entry.steps if step.thoughts is not None), None)
        if levels:
            self.records.append(Note("tot.started", "0"))
        for depth, step in enumerate(levels, 1):
            if step.x != entry.steps[0].x:
                raise ValueError(f"step {step.step} is about another puzzle: got {step.x[:80]!r}.")
            self.level(depth, step)
        if end is None:
            parents = ["0"] * len(entry.ys)
            replies = entry.ys
        else:
            assert end.thoughts is not None
            if len(end.thoughts) != len(end.answer):
                raise ValueError(
                    f"step {end.step} has {len(end.thoughts)} thoughts and {len(end.answer)} answers."
                )
            parents, replies = [id_of(self.ids, y, end.step) for y in end.thoughts], end.answer
            if end.step > len(levels):  # the log omits a level without children
                for at in dict.fromkeys(parents):
                    self.call(at, "propose", "")
        self.end(parents, replies)

    def level(self, depth: int, step: Step) -> None:
        """Add the children of the paths of a level, their values, and the decisions about them."""
        if step.values is not None and len(step.values) != len(step.new_ys):
            raise ValueError(
                f"step {step.step} has {len(step.new_ys)} candidates and {len(step.values)} values."
            )
        ids, texts, scores, add = self.ids, self.texts, self.scores, self.records.append
        separator = "\n" if self.task.domain.kind == "published/game24" else ", "
        fresh: list[str] = []
        values: Sequence[float | None] = step.values or [None] * len(step.new_ys)
        for y, made in children_of(step.ys, step.new_ys, values, step.step).items():
            at = id_of(self.ids, y, step.step)
            steps = [whole[len(y) :].removesuffix("\n") for whole, _ in made]
            self.call(at, "propose", separator.join(steps))
            for number, (text, (whole, value)) in enumerate(zip(steps, made, strict=True), self._born[at]):
                id = f"{at}.{number}"
                texts[id] = text
                add(Thought(id, at, text))
                if whole in ids:
                    add(Decided(id, "duplicate", f"repeats {ids[whole]}"))
                    continue
                ids[whole] = id
                fresh.append(id)
                if step.values is not None:
                    score, raw, samples = self.evaluations[value or 0.0]
                    scores[id] = score
                    add(Scored(id, score, raw, samples, "value"))
            self._born[at] += len(made)
        kept = dict.fromkeys(id_of(self.ids, y, step.step) for y in step.select_new_ys)
        self.records += [Decided(id, "pruned", "not selected") for id in fresh if id not in kept]
        self.records += [Decided(id, "kept") for id in kept]
        data = {"depth": depth, "kept": list(kept), "kept_scores": [scores.get(id) for id in kept]}
        self.records.append(Note("tot.pruned", "0", data))

    def end(self, parents: Sequence[str], replies: Sequence[str]) -> None:
        """Add the final replies, each below the thought that it answers, and the end of the run."""
        ranked: list[str] = []
        for at, text in zip(parents, replies, strict=True):
            self.call(at, "answer", text)
            id = self.thought(at, text.removesuffix("\n"))
            stated = self.stated(text)
            ranked += [self.thought(id, one) for one in stated] if len(stated) > 1 else [id]
        self.records += [Decided(id, "complete", "an answer") for id in ranked]
        best = ranked[0] if ranked else None
        answer = "" if best is None else self.task.domain.answer(self.task, path_to(best, self.texts)) or ""
        if best is not None:
            self.records.append(Decided(best, "answer", "the first answer"))
        self.records.append(Ended("answered", answer, best, None, tuple(ranked)))

    def stated(self, text: str) -> list[str]:
        """The answers in a reply to a prompt that asked for several solutions. Empty for other prompts."""
        find = getattr(self.task.domain, "stated_answers", None)
        return find(text) if self.multiple and find is not None else []

    def thought(self, parent: str, text: str) -> str:
        id = f"{parent}.{self._born[parent]}"
        self._born[parent] += 1
        self.texts[id] = text
        self.records.append(Thought(id, parent, text))
        return id

    def call(self, at: str, purpose: str, text: str) -> None:
        sample = self._calls[at, purpose]
        self._calls[at, purpose] += 1
        self.records += [Call(at, purpose, (), sample), Reply(text, model=self.model)]
