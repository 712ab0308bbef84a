"""The recorder: receives every record of a run, writes the journal and calls the watchers.

Records arrive one by one and are written in batches. When a run is resumed or replayed, a record at a
position of the earlier journal must equal the record there, and is not recorded again. A record that cannot
be written raises an error that names it. Neither that record nor a later one is written.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec

from tot_lab.core.calls import Call, Halt, Message, Reply, format_error, readable
from tot_lab.core.records import (
    RESUMED,
    STOP_CODES,
    Decided,
    Decision,
    Ended,
    Line,
    Note,
    Position,
    Record,
    Scored,
    Thought,
    is_stop_code,
)
from tot_lab.core.task import Task
from tot_lab.record.journal import (
    Header,
    HeldByAnother,
    Texts,
    encoder,
    header_text,
    line_decoder,
    lines_text,
)
from tot_lab.record.run import Run

try:
    import fcntl
except ImportError:  # not available on Windows, where two writers of one journal are not detected
    fcntl = None  # type: ignore[assignment]


_LOGGER = logging.getLogger("tot_lab")
"""Logs fallbacks. Nothing is printed unless logging is configured (`logging.NullHandler`)."""
_LOGGER.addHandler(logging.NullHandler())


class Divergence(Halt):
    """A repeated run differs from its record. The message names the first difference and its position."""


def remove_journal(path: Path) -> None:
    """Remove a journal with an incomplete header, which holds no run. Raises `HeldByAnother` if another
    process is writing it, and FileNotFoundError if it no longer exists.
    """
    file = os.open(path, os.O_RDWR)
    try:
        if not _locked(file, path):
            raise HeldByAnother(f"{path}: another process is writing this run.")
        path.unlink()
    finally:
        os.close(file)


def _locked(file: int, path: Path) -> bool:
    """Lock `file` exclusively. Returns whether that worked and `path` still refers to it."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(file), path.stat())
    except OSError:
        return False


class Recorder:
    """Appends records to a journal and passes them to watchers.

    The driver uses it for every run. It can also record your own search code:

        recorder = tl.Recorder("my search")
        root = recorder.thought("the problem")
        step = recorder.thought("a first step", parent=root)
        recorder.score(step, 0.7)
        recorder.end("the answer", node=step)
        tl.figures.plot_tree(recorder.run)

    Args:
        name: Name of the search.
        task: The task, if it is a tot_lab task.
        path: The journal to create. `None` keeps the run in memory.
        header: A header to use instead of `name` and `task`.
    """

    def __init__(
        self,
        name: str = "",
        *,
        task: Task | None = None,
        path: str | os.PathLike[str] | None = None,
        header: Header | None = None,
    ) -> None:
        self.header = header or Header.now(
            strategy={"kind": "recorded", "name": name}, task=task.settings() if task else {}
        )
        self.lines: list[Line] = []
        self.path = None if path is None else Path(path)
        self.watchers: list[Callable[[Sequence[Line]], None]] = []
        self.text_watchers: list[Callable[[Note], None]] = []
        self.logs = False
        """Whether fallbacks (`Note.fallback`) are logged when they are recorded, as in a run of a lab. A
        replay, an estimate and the repeated part of a resumed run log nothing.
        """
        self._start = perf_counter()
        self._written = 0
        self._expected: dict[Position, list[Record]] = {}
        self._only_expected = False
        self._resumed = False
        self._lost: dict[str, float] = {}
        self._children: dict[str, int] = {}
        self._run: Run | None = None
        self._file: int | None = None
        self._size = 0
        self._texts = Texts()
        if self.path is not None:
            head = header_text(self.header)
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._open(os.O_CREAT | os.O_EXCL)
            except OSError as error:
                if not self.path.exists():
                    error.strerror = f"{error.strerror}. Pass the lab another folder as runs=, or runs=None"
                raise
            self._append(head)

    @classmethod
    def resuming(
        cls,
        path: Path | None,
        header: Header,
        lines: list[Line],
        replayed_bytes: int = 0,
        size_when_read: int = 0,
        lost: float = 0.0,
        replied: float = 0.0,
    ) -> Recorder:
        """Return a recorder that continues a journal.

        The repeated part of the run must equal `lines`. The file is not changed before all of these lines
        were repeated.

        Args:
            path: The journal. `None` continues a run in memory.
            header: Its header.
            lines: The lines to repeat.
            replayed_bytes: Bytes of the header and of `lines`.
            size_when_read: Bytes that the journal had when it was read.
            lost: USD paid, according to the journal, for calls that are made again.
            replied: The part of `lost` that was paid for replies.

        Raises:
            HeldByAnother: If another process is writing the journal, or has written it since it was read.
        """
        recorder = cls(header=header)
        recorder.expect(lines)
        recorder.path = path
        if path is not None:
            recorder._open(0)
            if path.stat().st_size != size_when_read:
                recorder.close()
                raise HeldByAnother(f"{path}: another process has just written this run. Try again.")
            recorder._texts = Texts(lines)
        recorder._size = replayed_bytes
        recorder._resumed = True
        amounts = {"paid": lost, "replies": replied}
        recorder._lost = {name: usd for name, usd in amounts.items() if usd > 0.0}
        recorder._start -= lines[-1].t if lines else 0.0
        return recorder

    def expect(self, lines: list[Line], *, only: bool = False) -> None:
        """Start from `lines`. A new record at a position of `lines` is compared and not recorded again.

        With `only`, any other record with a position raises `Divergence`.
        """
        self._only_expected = only
        self.lines = list(lines)
        self._written = len(lines)
        for line in lines:
            if line.p:
                self._expected.setdefault(line.p, []).append(line.e)
        for records in self._expected.values():
            records.reverse()

    @property
    def now(self) -> float:
        """Seconds since the start of the run, in whole microseconds, which keeps journals short."""
        return int((perf_counter() - self._start) * 1e6) / 1e6  # faster than `round`

    def record(self, position: Position, record: Record, paid: float | None = None) -> None:
        """Add one record, which the next `flush` writes. `paid` is the USD really paid for a reply."""
        fallback: Note | None = None
        if type(record) is Note and record.fallback:
            record = fallback = msgspec.structs.replace(record, fallback=False)
        if (self._expected or self._only_expected) and self._repeats(position, record):
            return
        if fallback is not None and self.logs:
            data = encoder.encode(fallback.data).decode()
            _LOGGER.warning("run %s, thought %s: %s %s", self.header.id, fallback.at, fallback.name, data)
        seconds = int((perf_counter() - self._start) * 1e6) / 1e6  # `now`, which takes longer to look up
        self.lines.append(Line(position, seconds, record, paid))

    def beside(self, name: str, at: str, **data: Any) -> None:
        """Record a note that depends on timing, outside the canonical record."""
        self.record((), Note(name, at, data))

    def _repeats(self, position: Position, record: Record) -> bool:
        """Whether `record` repeats the expected record at `position`. Raises `Divergence` if it differs."""
        expected = self._expected.get(position)
        if expected:
            known = expected.pop()
            try:
                check_same(known, record, position)
            except Divergence:
                if self._resumed:
                    del self.lines[self._written :]
                raise
            return True
        if self._only_expected and position:
            raise Divergence(f"at {_place(position, record)}: the record has no {type(record).__name__} here")
        return False

    def extend(self, lines: Sequence[Line]) -> None:
        """Record lines that another process recorded after it had repeated the expected ones."""
        self._expected.clear()
        self.lines += lines
        self.flush()

    def missing(self, kind: Any = object) -> Record | None:
        """Return the first expected record of the type `kind` that has not been repeated, or `None`."""
        left = [(position, records[-1]) for position, records in self._expected.items() if records]
        left = [pair for pair in left if isinstance(pair[1], kind)]
        return min(left, key=lambda pair: pair[0])[1] if left else None

    def flush(self) -> None:
        """Append new records to the file in one write, and call the watchers.

        For a resumed run, the first call cuts off the file after the repeated lines. It raises `Divergence`
        if one of these lines was not repeated.
        """
        batch = self.lines[self._written :]
        if not batch:
            return
        if self._resumed:
            self._resumed = False
            if (missing := self.missing()) is not None:
                del self.lines[self._written :]
                raise Divergence(f"the run did not repeat the next record: {missing!r}")
            if self._file is not None:
                os.ftruncate(self._file, self._size)
            if self._lost:
                note = Note(RESUMED, "", self._lost)
                batch.insert(0, Line((), batch[0].t, note))
                self.lines.insert(self._written, batch[0])
        self._written = len(self.lines)
        if self._file is not None:
            try:
                data = lines_text(self.header, batch, self._texts)
            except (TypeError, ValueError) as error:
                raise self._unwritable(batch, error) from None
            self._append(data)
        for watcher in self.watchers:
            watcher(batch)

    def _unwritable(self, batch: list[Line], cause: Exception) -> ValueError:
        """Remove the first record of `batch` that cannot be written and all that follow, and write those
        before it. Returns the error.
        """
        good = 0
        try:
            for line in batch:
                encoder.encode(line)
                good += 1
        except (TypeError, ValueError) as error:
            cause = error
        first = len(self.lines) - len(batch) + good
        where = _place(self.lines[first].p, self.lines[first].e)
        kind = type(self.lines[first].e).__name__
        del self.lines[first:]
        self._written = first - good
        self._texts = Texts(self.lines[: self._written])
        self.flush()
        return ValueError(f"at {where}: {kind} cannot be written: {cause}")

    def close(self) -> None:
        """Write the remaining records and close the file."""
        try:
            self.flush()
        finally:
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def _open(self, flags: int) -> None:
        assert self.path is not None
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_BINARY", 0) | flags, 0o644)
        if not _locked(self._file, self.path):
            os.close(self._file)
            self._file = None
            raise HeldByAnother(f"{self.path}: another process is writing this run.")

    def _append(self, data: bytes) -> None:
        """Append bytes. If a write fails, for example on a full disk, the file stays valid and the run
        continues in memory with a warning.
        """
        assert self._file is not None
        try:
            done = 0
            while done < len(data):
                done += os.write(self._file, data[done:])
            self._size += len(data)
        except OSError as error:
            path, file, self.path, self._file = self.path, self._file, None, None
            assert path is not None
            os.ftruncate(file, self._size)
            if not self._size:
                path.unlink(missing_ok=True)
            os.close(file)
            warnings.warn(
                f"{path}: {error.strerror}. The run continues in memory only. Save it elsewhere with "
                f"run.save(path).",
                RuntimeWarning,
                stacklevel=2,
            )

    # For your own search code.

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if not self._ended:
            if error is None:
                self.end()
            elif isinstance(error, KeyboardInterrupt):
                self.end(stop="cancelled")
            else:
                self._record(Ended("error", error=format_error(error)))
        self.close()

    @property
    def _ended(self) -> bool:
        return any(isinstance(line.e, Ended) for line in self.lines[-1:])

    def _record(self, record: Record, *more: Record) -> None:
        if self._ended:
            raise ValueError("This run has ended. No records can be added.")
        position = (len(self.lines),)
        for checked in [_checked(record) for record in (record, *more)]:
            self.record(position, checked, paid=checked.cost if isinstance(checked, Reply) else None)
        self.flush()

    def thought(
        self, text: str, parent: str | None = None, *, source: Sequence[str] = (), depends: Sequence[str] = ()
    ) -> str:
        """Record a thought below `parent` and return its id. `parent=None` records the root, of which a run
        has only one. For `source` and `depends`, which are ids of thoughts, see `Thought`.
        """
        if parent is None:
            if self._children:
                raise ValueError("This run has a root already. Pass parent= for every other thought.")
            id = "0"
        else:
            self._known(parent, *source, *depends)
            id = f"{parent}.{self._children[parent]}"
        self._record(Thought(id, parent, text, tuple(source), tuple(depends)))
        if parent is not None:
            self._children[parent] += 1
        self._children[id] = 0
        return id

    def score(
        self, id: str, score: float | None, *, samples: Sequence[float | None] = (), by: str = "value"
    ) -> None:
        """Record an evaluation of a thought: a score between 0 and 1, or `None` if it could not be read. For
        `samples` and `by`, see `Scored`.
        """
        self._known(id)
        if score is not None and not 0 <= score <= 1:
            raise ValueError(f"The score of thought {id!r} must be between 0 and 1: got {score}.")
        self._record(Scored(id, score, score, tuple(samples), by))

    def decide(self, id: str, what: Decision, reason: str = "", other: str | None = None) -> None:
        """Record a decision about a thought; see `Decided`. `other` is the id of the thought that it was
        merged into.
        """
        self._known(id, *([] if other is None else [other]))
        self._record(Decided(id, what, reason, other))

    def note(self, name: str, at: str = "0", **data: Any) -> None:
        """Record a custom event."""
        self._record(Note(name, at, data))

    def call(
        self, node: str, prompt: str, reply: Reply | str, *, purpose: str = "ask", sample_index: int = 0
    ) -> None:
        """Record a model call of your own code and its reply."""
        self._known(node)
        text = readable(prompt) if isinstance(prompt, str) else prompt
        got = Reply(reply) if isinstance(reply, str) else reply
        self._record(Call(node, purpose, (Message("user", text),), sample_index), got)

    def end(self, answer: str = "", *, node: str | None = None, stop: str = "answered") -> None:
        """Record the end of the run. `node` is the thought that holds the answer, and `stop` a stop code."""
        if not is_stop_code(stop):
            raise ValueError(f"Unknown stop code: got {stop!r}. Use {', '.join(STOP_CODES)}.")
        score = None
        if node is not None:
            self._known(node)
            scores = [e.score for line in self.lines if isinstance(e := line.e, Scored) and e.id == node]
            score = scores[-1] if scores else None
            self.decide(node, "answer", stop)
        self._record(Ended(stop, answer, node, score))

    def _known(self, *ids: str) -> None:
        for id in ids:
            if id not in self._children:
                raise ValueError(f"Unknown thought: got {id!r}. Pass an id that recorder.thought returned.")

    @property
    def run(self) -> Run:
        """The run so far, with its tree, frames and figures (`tl.Run`)."""
        if self._run is None or len(self._run.lines) != len(self.lines) or self._run.path != self.path:
            self._run = Run(self.header, list(self.lines), self.path)
        return self._run


def _checked(record: Record) -> Record:
    """Return `record` as it will be read from a file, with lone surrogates as `?`. Raises `ValueError` if it
    cannot be written.
    """
    texts = {name: getattr(record, name) for name in record.__struct_fields__}
    spoilt = {name: readable(text) for name, text in texts.items() if isinstance(text, str)}
    record = msgspec.structs.replace(record, **spoilt)
    try:
        return line_decoder.decode(encoder.encode(Line((), 0.0, record))).e
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise ValueError(f"{type(record).__name__} cannot be written to a file: {error}.") from None


def check_same(known: Record, record: Record, position: Position = ()) -> None:
    """Raise `Divergence` if `record` differs from `known` in encoded form, in which tuples are lists."""
    if known != record and encoder.encode(known) != encoder.encode(record):
        raise Divergence(f"at {_place(position, known)}: {_difference(known, record)}")


def _place(position: Position, record: Record) -> str:
    id = getattr(record, "node", None) or getattr(record, "at", None) or getattr(record, "id", None)
    place = f"position {'.'.join(map(str, position))}" if position else ""
    return ", ".join(filter(None, [place, f"thought {id}" if id else ""])) or "the end"


def _difference(known: Record, now: Record) -> str:
    if type(known) is not type(now):
        return f"the record has {type(known).__name__}, this run made {type(now).__name__}"
    fields = [name for name in known.__struct_fields__ if getattr(known, name) != getattr(now, name)]
    shown = "; ".join(
        f"{name} was {_short(getattr(known, name))}, is {_short(getattr(now, name))}" for name in fields
    )
    return f"{type(known).__name__} differs: {shown}"


def _short(value: object, most: int = 200) -> str:
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}…"
