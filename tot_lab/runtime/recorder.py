"""The recorder: everything that happens in a run goes through it.

Rule: records are taken in one by one and leave in batches, to the journal and to the watchers. A
record that was made before (a run resumed or replayed) must come again as it was, and is not
recorded anew. What cannot be written is an error that names it, and leaves the record as it was.
"""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tot_lab.core.calls import Call, Halt, Message, Reply, readable
from tot_lab.core.records import (
    STOP_WORDS,
    Decided,
    Decision,
    Ended,
    Line,
    Note,
    Position,
    Record,
    Scored,
    Thought,
    is_stop_word,
)
from tot_lab.core.task import Task
from tot_lab.record.journal import Header, HeldByAnother, encoder, header_text, line_decoder, lines_text
from tot_lab.record.run import Run

try:
    import fcntl
except ImportError:  # not on Windows: there, two writers of one journal are not told apart
    fcntl = None  # type: ignore[assignment]


FALLBACKS = frozenset(
    {
        "call.failed",
        "deep_think.assumed",
        "deep_think.empty",
        "deep_think.matched",
        "deep_think.truncated",
        "deep_think.unrated",
        "tools.called_for_model",
    }
)
"""Notes that something else stands in for what was asked for. A run of a lab logs each of them as a warning
of the logger `tot_lab`, once, when it is recorded: not in a replay, in an estimate, or in the part that a
resumed run repeats. Strategies are pure, so this is the one place that logs. Nothing is printed unless
logging is set up (`logging.NullHandler`)."""

_LOGGER = logging.getLogger("tot_lab")
_LOGGER.addHandler(logging.NullHandler())


class Divergence(Halt):
    """A run that was to repeat a record did something else: the message says what and where."""


def take_away(path: Path) -> None:
    """Remove a journal that was left without a whole header: it holds nothing. Raises `HeldByAnother`, and
    FileNotFoundError when somebody else was first."""
    file = os.open(path, os.O_RDWR)
    try:
        if not _locked(file, path):
            raise HeldByAnother(f"{path}: another process is writing this run")
        path.unlink()
    finally:
        os.close(file)


def hold(path: Path) -> int:
    """Lock the journal at `path` for this process, which writes it itself; one that is not there is created
    empty. Returns its descriptor. Raises `HeldByAnother`."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o644)
    if not _locked(file, path):
        os.close(file)
        raise HeldByAnother(f"{path}: another process is writing this run")
    return file


def let_go(path: Path, file: int) -> None:
    """Give up the lock of `hold`. A journal that is still empty is removed."""
    try:
        if os.fstat(file).st_size == 0:
            path.unlink(missing_ok=True)
    finally:
        os.close(file)


def _locked(file: int, path: Path) -> bool:
    """Whether the open `file` is this process's alone from now on, and still what lies at `path`."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(file), path.stat())
    except OSError:
        return False


class Recorder:
    """Takes records in, appends them to a journal and tells watchers.

    The driver uses it for every run. It is also there for your own search code:

        recorder = tl.Recorder("my search")
        root = recorder.thought("the problem")
        step = recorder.thought("a first step", parent=root)
        recorder.score(step, 0.7)
        recorder.end("the answer", node=step)
        tl.figures.plot_tree(recorder.run)

    name: what the search is called. task: what it works on, if it is a tot_lab task.
    path: file to append to, None = keep the run in memory.
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
        """Whether fallbacks are logged (`FALLBACKS`): in a run that a lab carries out."""
        self._start = time.perf_counter()
        self._written = 0
        self._expected: dict[Position, list[Record]] = {}
        self._only_expected = False
        self._resumed = False
        self._children: dict[str, int] = {}
        self._run: Run | None = None
        self._file: int | None = None
        self._size = 0
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            head = header_text(self.header)
            self._open(os.O_CREAT | os.O_EXCL)
            self._append(head)

    @classmethod
    def resuming(cls, path: Path, header: Header, lines: list[Line], size: int, read: int) -> Recorder:
        """A recorder that goes on with a journal, which had `read` bytes, after its first `size`
        bytes. What the run does again must be what stands there; until it has, the file stays."""
        recorder = cls(header=header)
        recorder.expect(lines)
        recorder.path = path
        recorder._open(0)
        if path.stat().st_size != read:
            recorder.close()
            raise HeldByAnother(f"{path}: another process has just written this run; try again")
        recorder._size = size
        recorder._resumed = True
        recorder._start -= lines[-1].t if lines else 0.0
        return recorder

    def expect(self, lines: list[Line], *, only: bool = False) -> None:
        """Start from `lines`: records of their positions are compared, not recorded anew. With
        `only`, any other record is a `Divergence`."""
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
        """Seconds since the run began."""
        return time.perf_counter() - self._start

    def record(self, position: Position, record: Record, paid: float | None = None) -> None:
        """Take in one record. It is written by the next `flush`."""
        if (self._expected or self._only_expected) and self._repeats(position, record):
            return
        if type(record) is Note and record.name in FALLBACKS and self.logs:
            data = encoder.encode(record.data).decode()
            _LOGGER.warning("run %s, thought %s: %s %s", self.header.id, record.at, record.name, data)
        self.lines.append(Line(position, time.perf_counter() - self._start, record, paid))

    def partial(self, position: Position, call: Call, text: str) -> None:
        """Tell the text so far of an open call, as a note `call.partial`; it is not recorded."""
        at = {"call": list(position), "kind": call.purpose, "draw": call.sample_index}
        for watcher in self.text_watchers:
            watcher(Note("call.partial", call.node, {**at, "text": text}))

    def _repeats(self, position: Position, record: Record) -> bool:
        """True when `record` is what was expected at `position`; a `Divergence` when it is not."""
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
            raise Divergence(
                f"at {_place(position, record)}: a {type(record).__name__} that the record lacks"
            )
        return False

    def missing(self, kind: Any = object) -> Record | None:
        """The first record (of a kind) that was expected and has not come again."""
        left = [(position, records[-1]) for position, records in self._expected.items() if records]
        left = [pair for pair in left if isinstance(pair[1], kind)]
        return min(left, key=lambda pair: pair[0])[1] if left else None

    def flush(self) -> None:
        """Append what is new to the file, in one write, and tell the watchers."""
        batch = self.lines[self._written :]
        if not batch:
            return
        if self._resumed:
            self._resumed = False
            if (missing := self.missing()) is not None:
                del self.lines[self._written :]
                raise Divergence(f"this run did not come again to what the record goes on with: {missing!r}")
            if self._file is not None:
                os.ftruncate(self._file, self._size)
        self._written = len(self.lines)
        if self._file is not None:
            try:
                data = lines_text(self.header, batch)
            except (TypeError, ValueError) as error:
                raise self._unwritable(batch, error) from None
            self._append(data)
        for watcher in self.watchers:
            watcher(batch)

    def _unwritable(self, batch: list[Line], cause: Exception) -> ValueError:
        """Take back the first of `batch` that no file can hold, and all that came after it."""
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
        self.flush()
        return ValueError(f"at {where}: a {kind} that cannot be written: {cause}")

    def close(self) -> None:
        """Write what is left and let go of the file."""
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
            raise HeldByAnother(f"{self.path}: another process is writing this run")

    def _append(self, data: bytes) -> None:
        """A write that fails (a full disk) costs the file, never the run: what is written stays
        whole, and the run goes on in memory, saying so."""
        assert self._file is not None
        try:
            done = 0
            while done < len(data):
                done += os.write(self._file, data[done:])
            self._size += len(data)
        except OSError as error:
            path, file, self.path, self._file = self.path, self._file, None, None
            os.ftruncate(file, self._size)
            os.close(file)
            warnings.warn(
                f"{path}: {error.strerror}; the run goes on in memory only: save it elsewhere "
                f"with run.save(path)",
                RuntimeWarning,
                stacklevel=2,
            )

    # For your own search code.

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if not self._ended:
            if kind is None:
                self.end()
            elif issubclass(kind, KeyboardInterrupt):
                self.end(stop="cancelled")
            else:
                self._happened(Ended("error", error=f"{kind.__name__}: {error}"))
        self.close()

    @property
    def _ended(self) -> bool:
        return any(isinstance(line.e, Ended) for line in self.lines[-1:])

    def _happened(self, record: Record, *more: Record) -> None:
        if self._ended:
            raise ValueError("this run has ended")
        position = (len(self.lines),)
        for checked in [_checked(record) for record in (record, *more)]:
            self.record(position, checked, paid=checked.cost if isinstance(checked, Reply) else None)
        self.flush()

    def thought(
        self, text: str, parent: str | None = None, *, source: Sequence[str] = (), depends: Sequence[str] = ()
    ) -> str:
        """A new thought below `parent` (None = the root, of which a run has one); returns its id."""
        if parent is None:
            if self._children:
                raise ValueError("this run has its root already; name the parent of a further thought")
            id = "0"
        else:
            self._known(parent, *source, *depends)
            id = f"{parent}.{self._children[parent]}"
        self._happened(Thought(id, parent, text, tuple(source), tuple(depends)))
        if parent is not None:
            self._children[parent] += 1
        self._children[id] = 0
        return id

    def score(
        self, id: str, score: float | None, *, draws: Sequence[float | None] = (), by: str = "value"
    ) -> None:
        """An evaluation of a thought: 0–1, or None for one that could not be read."""
        self._known(id)
        if score is not None and not 0 <= score <= 1:
            raise ValueError(f"the score of thought {id!r} is {score}; a score lies in 0–1")
        self._happened(Scored(id, score, score, tuple(draws), by))

    def decide(self, id: str, what: Decision, reason: str = "", other: str | None = None) -> None:
        """A decision about a thought; for the words see `Decided`."""
        self._known(id, *([] if other is None else [other]))
        self._happened(Decided(id, what, reason, other))

    def note(self, name: str, at: str = "0", **data: Any) -> None:
        """An architecture event of your own."""
        self._happened(Note(name, at, data))

    def call(self, at: str, prompt: str, reply: Reply | str, *, kind: str = "ask", draw: int = 0) -> None:
        """A model call that your code made, and its reply."""
        self._known(at)
        text = readable(prompt) if isinstance(prompt, str) else prompt
        got = Reply(reply) if isinstance(reply, str) else reply
        self._happened(Call(at, kind, (Message("user", text),), draw), got)

    def end(self, answer: str = "", *, node: str | None = None, stop: str = "answered") -> None:
        """The end of the run. `stop` says why, in one of the stop words."""
        if not is_stop_word(stop):
            raise ValueError(f"{stop!r} is no stop word; known are {', '.join(STOP_WORDS)}")
        score = None
        if node is not None:
            self._known(node)
            scores = [e.score for line in self.lines if isinstance(e := line.e, Scored) and e.id == node]
            score = scores[-1] if scores else None
            self.decide(node, "solution", stop)
        self._happened(Ended(stop, answer, node, score))

    def _known(self, *ids: str) -> None:
        for id in ids:
            if id not in self._children:
                raise ValueError(f"no thought {id!r} in this run")

    @property
    def run(self) -> Run:
        """The run so far, with its tree, frames and figures (`tl.Run`)."""
        if self._run is None or len(self._run.lines) != len(self.lines) or self._run.path != self.path:
            self._run = Run(self.header, list(self.lines), self.path)
            if self._ended:
                self._run.prepare()
        return self._run


def _checked(record: Record) -> Record:
    """`record` as a file will give it back (a lone surrogate as `?`); one that it would not is a
    ValueError."""
    texts = {name: getattr(record, name) for name in record.__struct_fields__}
    spoilt = {name: readable(text) for name, text in texts.items() if isinstance(text, str)}
    record = msgspec.structs.replace(record, **spoilt)
    try:
        return line_decoder.decode(encoder.encode(Line((), 0.0, record))).e
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise ValueError(f"a {type(record).__name__} that no file can hold: {error}") from None


def check_same(known: Record, record: Record, position: Position = ()) -> None:
    """Raise a `Divergence` if `record` is not `known` as a file has them, where tuples are lists."""
    if known != record and encoder.encode(known) != encoder.encode(record):
        raise Divergence(f"at {_place(position, known)}: {_difference(known, record)}")


def _place(position: Position, record: Record) -> str:
    id = getattr(record, "node", None) or getattr(record, "at", None) or getattr(record, "id", None)
    place = f"position {'.'.join(map(str, position))}" if position else ""
    return ", ".join(filter(None, [place, f"thought {id}" if id else ""])) or "the end"


def _difference(known: Record, now: Record) -> str:
    if type(known) is not type(now):
        return f"the record has a {type(known).__name__}, this run made a {type(now).__name__}"
    fields = [name for name in known.__struct_fields__ if getattr(known, name) != getattr(now, name)]
    shown = "; ".join(
        f"{name} was {_short(getattr(known, name))}, is {_short(getattr(now, name))}" for name in fields
    )
    return f"{type(known).__name__} differs: {shown}"


def _short(value: object, most: int = 200) -> str:
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}…"
