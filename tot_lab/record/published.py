"""Importer of the published logs of Tree of Thoughts: Game of 24, creative writing and mini crosswords.

    file → entries (`Entry`, `State`) → records (`_breadth_first`, `_crossword`) → Run

The logs have no prompts, no times and no tokens of single calls: `Header.unknown` lists the missing
data. Which thoughts were kept and pruned is taken from the log. The log holds only the sum of the samples of
an evaluation: the samples are computed from it and listed best first, since their order is unknown.

References:
    Yao et al. 2023; github.com/princeton-nlp/tree-of-thought-llm.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from itertools import islice
from typing import Annotated, Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from tot_lab._version import __version__
from tot_lab.core.bulk import gc_paused
from tot_lab.core.calls import Call, Reply
from tot_lab.core.parts import class_of
from tot_lab.core.records import Decided, Ended, Line, Note, Record, Scored, Thought, UnitInterval, positions
from tot_lab.core.task import Domain, Task, make_task
from tot_lab.record.journal import SCHEMA, Header, JournalError
from tot_lab.record.logs.common import contents
from tot_lab.record.run import Run
from tot_lab.record.waiting import with_progress

GAME24, CROSSWORD = "published/game24", "published/crossword"
"""The domains of the tasks (`tot_lab.domains.published`)."""


_published_task = lru_cache(maxsize=4096)(partial(make_task, GAME24))


# The files.


T = TypeVar("T")

Count = Annotated[int, msgspec.Meta(ge=0)]

MAX_SAMPLES = 100
"""Maximum number of evaluations of one thought, or votes on one level. Each takes memory."""


class PublishedStep(msgspec.Struct):
    """One round of a breadth-first search.

    Attributes:
        x: The problem.
        ys: The paths that were expanded.
        new_ys: Their children.
        values: The values of `new_ys`.
        select_new_ys: The children that were kept, best first.
    """

    x: str
    ys: list[str]
    new_ys: list[str]
    values: list[float]
    select_new_ys: list[str]


class Entry(msgspec.Struct):
    """One task of a breadth-first log. `ys` are the final paths, best first."""

    steps: list[PublishedStep]
    ys: list[str]


class Judged(msgspec.Struct):
    """How many clues of a crossword got each label from the evaluator."""

    sure: Count
    maybe: Count
    impossible: Count


class Rates(msgspec.Struct):
    """The shares of a crossword's 25 letters and 10 words that are right."""

    r_letter: UnitInterval
    r_word: UnitInterval


class State(msgspec.Struct):
    """A state of a depth-first search over a crossword. `actions` are its words, such as `h2. motor`."""

    actions: list[str]
    info: Rates
    count: Judged


class PublishedLog:
    """Importer of the published logs, each a JSON list with one entry per task."""

    expects = 'a JSON list of entries with "steps", or of lists of states with "actions"'

    @staticmethod
    def recognises(head: bytes) -> bool:
        """Whether a file that begins with `head` is such a log."""
        return _HEAD.match(head) is not None

    @staticmethod
    def read(path: str | os.PathLike[str]) -> list[Run]:
        """Return the runs of a log in the order of its entries."""
        return published(path)


_HEAD = re.compile(rb'\s*\[\s*(?:\{\s*"(?:steps|idx|ys)"|\[\s*\{\s*"(?:actions|total_step)")')


@gc_paused()
def published(path: str | os.PathLike[str]) -> list[Run]:
    """Return the runs of a published log in the order of its entries.

    Raises:
        JournalError: If the file is not such a log. The message names the entry.
    """
    data = contents(path)
    try:
        entries = msgspec.json.decode(data, type=list[Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise JournalError(f"{path}, line 1: neither a journal nor a published log: {error}") from None
    if not entries:
        raise JournalError(f"{path}, line 1: neither a journal nor a published log: the list is empty")
    read: list[tuple[int, Any, Entry | list[State]]] = []
    samples = 0
    for number, raw in enumerate(entries):
        kind: Any = list[State] if isinstance(raw, list) else Entry
        try:
            read.append((number, raw, entry := msgspec.convert(raw, kind)))
            samples = max(samples, _samples_in(entry) if isinstance(entry, Entry) else 0)
        except (msgspec.ValidationError, ValueError) as error:
            raise JournalError(f"{path}, entry {number}: not an entry of a published log: {error}") from None
    runs = []
    for number, raw, entry in with_progress(read, f"loading {path}", len(read)):
        try:
            records = (
                _crossword(entry, number) if isinstance(entry, list) else _breadth_first(entry, raw, samples)
            )
        except ValueError as error:
            raise JournalError(f"{path}, entry {number}: {error}") from None
        runs.append(recorded_run(records.task, records.name, records.records, raw, records.unknown))
    return runs


class _Converted(NamedTuple):
    """The records that an entry was converted to, and fields for the header."""

    name: str
    task: Task
    records: list[Record]
    unknown: tuple[Any, ...]


def recorded_run(
    task: Task, name: str, records: Sequence[Record], entry: Any, unknown: tuple[Any, ...]
) -> Run:
    """Return the run of an entry. The same entry gives the same id, whatever the path of its file."""
    id = hashlib.sha256(msgspec.json.encode(entry)).hexdigest()[:8]
    strategy = {"kind": "recorded", "name": name}
    header = Header(SCHEMA, __version__, id, "", task.settings(), strategy, unknown=unknown)
    return Run(header, _lines_of(records), task=task)


def _lines_of(records: Sequence[Record]) -> list[Line]:
    """Return `records` as lines. A reply has the position of its call. The times are unknown: all are 0."""
    at = list(islice(positions(), len(records)))
    return [Line(at[place - (type(record) is Reply)], 0.0, record) for place, record in enumerate(records)]


# Breadth-first: the Game of 24 and creative writing.


def _breadth_first(entry: Entry, raw: dict[str, Any], samples: int) -> _Converted:
    if not entry.steps:
        raise ValueError("the entry has no steps. Logs of single answers have no search tree.")
    task = _published_task(entry.steps[0].x)
    settings = {name: value for name, value in raw.items() if name not in ("steps", "ys")}
    search = _Search(task, samples)
    search.records.append(Note("published.entry", "0", settings))
    for depth, step in enumerate(entry.steps, 1):
        if step.x != entry.steps[0].x:
            raise ValueError(f"step {depth - 1} is about another problem: got {step.x[:80]!r}")
        if len(step.values) != len(step.new_ys):
            raise ValueError(
                f"step {depth - 1} has {len(step.new_ys)} candidates and {len(step.values)} values"
            )
        search.level(depth, step)
    search.end(entry)
    game = "Game of 24" if search.is_arithmetic else "creative writing"
    return _Converted(f"published ToT-BFS, {game}", task, search.records, ("prompts", "times", "calls"))


class _Search:
    """The records of a breadth-first search."""

    def __init__(self, task: Task, samples: int) -> None:
        self.task = task
        self.is_arithmetic = task.domain.kind == GAME24
        self.records: list[Record] = [Thought("0", None, task.question), Note("tot.started", "0")]
        self._samples = samples
        self._ids = {"": "0"}
        self._texts: dict[str, str] = {}
        self._scores: dict[str, float | None] = {}

    def level(self, depth: int, step: PublishedStep) -> None:
        """Add the children of a level, their values, and the decisions about them."""
        ids, texts, add = self._ids, self._texts, self.records.append
        fresh: list[tuple[str, float]] = []
        for y, children in children_of(step.ys, step.new_ys, step.values, depth - 1).items():
            at = id_of(ids, y, depth - 1)
            made = [whole[len(y) :] for whole, _ in children]
            if self.is_arithmetic and made:
                made = [text.removesuffix("\n") for text in made]
                self.records += [Call(at, "propose", ()), Reply("\n".join(made))]
            for k, (text, (whole, value)) in enumerate(zip(made, children, strict=True)):
                if not self.is_arithmetic:
                    text = self._sampled(at, k, text)
                id = f"{at}.{k}"
                texts[id] = text
                add(Thought(id, at, text))
                if whole in ids:
                    add(Decided(id, "duplicate", f"repeats {ids[whole]}"))
                else:
                    ids[whole] = id
                    fresh.append((id, value))
        self._evaluate(fresh)
        offered = {y: ids[y] for y in step.new_ys}
        kept = dict.fromkeys(id_of(offered, y, depth - 1) for y in step.select_new_ys)
        self.records += [Decided(id, "pruned", "not selected") for id, _ in fresh if id not in kept]
        self.records += [Decided(id, "kept") for id in kept]
        data = {"depth": depth, "kept": list(kept), "kept_scores": [self._scores[id] for id in kept]}
        add(Note("tot.pruned", "0", data))

    def _sampled(self, at: str, k: int, text: str) -> str:
        self.records += [Call(at, "sample", (), sample_index=k), Reply(text)]
        return self.task.domain.read_sample(self.task, path_to(at, self._texts), text) or text

    def _evaluate(self, fresh: Sequence[tuple[str, float]]) -> None:
        values = [value for _, value in fresh]
        if self.is_arithmetic:
            by, read = "value", {value: evaluation(value, self._samples) for value in set(values)}
        else:
            votes = sum(values)
            by, read = "vote", {value: _voted(value, votes, self._samples) for value in set(values)}
        for id, value in fresh:
            score, raw, samples = read[value]
            self._scores[id] = score
            self.records.append(Scored(id, score, raw, samples, by))

    def end(self, entry: Entry) -> None:
        """Add the end. The published search runs to its last level, even if it has found a solution."""
        ranked = tuple(id_of(self._ids, y, len(entry.steps)) for y in entry.ys)
        best = ranked[0] if ranked else None
        answer = None
        if best is not None:
            answer = self.task.domain.answer(self.task, path_to(best, self._texts))
            self.records.append(Decided(best, "answer", "the best of the last level"))
        self.records.append(Ended("limit:depth", answer or "", best, self._scores.get(best or ""), ranked))


def children_of(
    ys: Sequence[str], new_ys: Sequence[str], values: Sequence[T], number: int
) -> dict[str, list[tuple[str, T]]]:
    """Return the children of each path of a level, with their values.

    The parent of a child is the longest path that it continues.
    """
    children: dict[str, list[tuple[str, T]]] = {y: [] for y in ys}
    lengths = sorted(set(map(len, ys)), reverse=True)
    for child in zip(new_ys, values, strict=True):
        whole = child[0]
        for length in lengths:
            if (held := children.get(whole[:length])) is not None:
                held.append(child)
                break
        else:
            raise ValueError(f"step {number}: {whole[:80]!r} continues none of the paths in `ys`")
    return children


def path_to(id: str, texts: Mapping[str, str]) -> list[str]:
    """Return the texts of the thoughts on the path to `id`."""
    numbers = id.split(".")
    return [texts[".".join(numbers[:k])] for k in range(2, len(numbers) + 1)]


def id_of(ids: Mapping[str, str], y: str, number: int) -> str:
    """Return the id of a path. Raises `ValueError` if it was not proposed before."""
    if y not in ids:
        raise ValueError(f"step {number}: the path {y[:80]!r} was never proposed.")
    return ids[y]


def _samples_in(entry: Entry) -> int:
    """Return the number of samples per evaluation, or of votes per level. 0 without steps.

    The logs do not state it. It is estimated as the largest number of samples that any sum in the entry
    consists of.
    """
    if not entry.steps:
        return 0
    if _published_task(entry.steps[0].x).domain.kind != GAME24:
        return max(_votes(step.values) for step in entry.steps)
    totals = {value for step in entry.steps for value in step.values}
    return max([len(verdicts(total)) for total in totals], default=0)


def _votes(values: Sequence[float]) -> int:
    """Return the number of votes for all candidates of a level together."""
    if not all(value >= 0 and value.is_integer() for value in values):
        raise ValueError(f"votes must be whole numbers of at least 0: got {list(values)[:20]}")
    if sum(values) > MAX_SAMPLES:
        raise ValueError(f"at most {MAX_SAMPLES:,} votes are accepted: got {sum(values):g}")
    return round(sum(values))


@lru_cache(maxsize=1024)
def verdicts(total: float) -> tuple[float, ...]:
    """Return the values that add up to `total`, best first: 20 for sure, 1 for likely, 0.001 for impossible.

    Raises:
        ValueError: If `total` is not such a sum, or is a sum of more than `MAX_SAMPLES` values.
    """
    if total > 20 * MAX_SAMPLES:
        raise ValueError(f"{total} is the sum of more than {MAX_SAMPLES:,} values")
    sure, rest = divmod(total, 20)
    likely = int(rest + 1e-6)
    impossible = round((rest - likely) * 1000)
    if total < 0 or abs(20 * sure + likely + impossible / 1000 - total) > 1e-6:
        raise ValueError(f"{total} is no sum of the values 20, 1 and 0.001")
    return (20.0,) * int(sure) + (1.0,) * likely + (0.001,) * impossible


Evaluation: TypeAlias = tuple[float | None, float | None, tuple[float | None, ...]]
"""The score, the sum of the samples, and the samples, as in `Scored`."""


@lru_cache(maxsize=1024)
def evaluation(total: float, samples: int) -> Evaluation:
    """Return the score, the sum, and the samples of an evaluation from the sum of its samples.

    If the sum consists of fewer than `samples` values, the remaining samples could not be read.
    """
    read = verdicts(total)
    unreadable = (None,) * (samples - len(read))
    if not read:
        return None, None, unreadable
    return min(total / (20.0 * samples), 1.0), total, (*read, *unreadable)


def _voted(votes: float, of: float, samples: int) -> Evaluation:
    """Return the evaluation of a candidate that got `votes` of the `of` readable votes on its level."""
    mine, read = round(votes), round(of)
    against = (1.0,) * mine + (0.0,) * (read - mine) + (None,) * (samples - read)
    return mine / read if read else None, float(mine) if read else None, against


# Depth-first: mini crosswords.


LONGEST_SEARCH = 100
"""Number of states after which the published depth-first search ends (section 4.3)."""


def _crossword(states: Sequence[State], number: int) -> _Converted:
    """Convert a depth-first search.

    The parent of a state is the state without its last word. The score of a state is that of its worst clue,
    as in `MiniCrossword`. States with an impossible clue count as pruned if none of them was expanded. The
    answer is the first of the deepest states (section 4.3).
    """
    domain = class_of(CROSSWORD, Domain)()
    question = f"mini crossword {number} of the log, which does not hold its clues"
    task = Task(domain=domain, question=question, id=str(number))
    entered = {tuple(state.actions[:-1]) for state in states}
    prunes = not any(state.count.impossible and tuple(state.actions) in entered for state in states)
    records: list[Record] = [Thought("0", None, question), Note("tot.started", "0")]
    ids: dict[tuple[str, ...], str] = {(): "0"}
    grids: dict[str, str] = {}
    scores: dict[str, float | None] = {}
    shares: dict[str, float] = {}
    born: Counter[str] = Counter()
    for place, state in enumerate(states):
        path = tuple(state.actions)
        at, grid = ids.get(path[:-1]), domain.answer(task, path)
        if not path or at is None or path in ids or grid is None:
            raise ValueError(
                f"state {place}: the words {list(path)} continue no earlier state, or fit no grid"
            )
        if not born[at]:  # the model was asked for the next words; its reply is not in the log
            records += [Call(at, "propose", ()), Reply()]
        id = ids[path] = f"{at}.{born[at]}"
        born[at] += 1
        worst = float(not state.count.impossible) if any(msgspec.structs.astuple(state.count)) else None
        grids[id], scores[id], shares[grid] = grid, worst, state.info.r_word
        records.append(Thought(id, at, path[-1]))
        records.append(Scored(id, worst, worst, (worst,), "value"))
        records.append(Note("published.judged", id, msgspec.to_builtins(state.count)))
        records.append(Note("published.right", id, msgspec.to_builtins(state.info)))
        pruned = prunes and state.count.impossible > 0
        records.append(Decided(id, "pruned", "impossible") if pruned else Decided(id, "kept"))
    stop = "limit:states" if len(states) >= LONGEST_SEARCH else "exhausted"
    best = ids[max((tuple(state.actions) for state in states), key=len)] if states else None
    if best is None:
        records.append(Ended(stop))
    else:
        records.append(Decided(best, "answer", "the first of the deepest"))
        records.append(Ended(stop, grids[best], best, scores[best]))
    task = task.model_copy(update={"reference": shares})
    unknown = ("prompts", "replies", "times", "calls")
    return _Converted("published ToT-DFS, mini crosswords", task, records, unknown)
