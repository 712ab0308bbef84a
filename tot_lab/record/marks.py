"""People's marks on the thoughts of a run: right, wrong, or a note.

Marks are not part of the record. They are stored beside the journal in one small file, which is checked when
it is read and replaced atomically. Views of a run are notified when its marks change, because several `Run`
objects may share one file.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from tot_lab.core.calls import readable
from tot_lab.core.files import read_regular, write_whole
from tot_lab.core.tree import Tree
from tot_lab.record.journal import JournalError

SCHEMA = 1
Verdict = Literal["right", "wrong"]


class Mark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A person's mark on one thought.

    Attributes:
        verdict: `right`, `wrong`, or `None` for only a note.
        note: The note, "" without one.
    """

    verdict: Verdict | None = None
    note: str = ""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    marks_schema: int
    run: str
    marks: dict[str, Mark]


_watchers: list[weakref.WeakMethod[Callable[[str], None]]] = []


def watch(notify: Callable[[str], None]) -> None:
    """Call the method `notify` with the id of each run whose marks change, in the thread that changes them.

    Only a weak reference to the object of the method is kept.
    """
    _watchers.append(weakref.WeakMethod(notify, _watchers.remove))


def changed(run: str) -> None:
    """Notify the watchers that the marks of a run have changed."""
    for watcher in tuple(_watchers):
        if (notify := watcher()) is not None:
            notify(run)


def marks_file(journal: str | os.PathLike[str]) -> Path:
    """The file of the marks: `a.marks.json` beside `a.jsonl`, and `b.log-marks.json` beside `b.log`."""
    path = Path(journal)
    return path.with_name(f"{path.stem}.marks.json" if path.suffix == ".jsonl" else f"{path.name}-marks.json")


def made(tree: Tree, id: str, verdict: str | None, note: str) -> Mark:
    """A mark on a thought of `tree`. Raises ValueError for an unknown thought or verdict, and TypeError for a
    note that is not a text.
    """
    if id not in tree:
        raise ValueError(f"no thought {id!r} in this run. `run.nodes_df()` lists the ids.")
    if verdict not in ("right", "wrong", None):
        raise ValueError(f"verdict must be 'right', 'wrong' or None: got {verdict!r}.")
    if not isinstance(note, str):
        raise TypeError(f"note must be a string: got {note!r}.")
    return Mark(verdict, readable(note))  # type: ignore[arg-type]  # one of the words


def read_marks(journal: Path, run: str, tree: Tree) -> dict[str, Mark]:
    """Read the marks in the file beside `journal`. Empty if there is no such file.

    Raises:
        JournalError: If the file is damaged, belongs to another run, or marks an unknown thought.
    """
    path = marks_file(journal)
    try:
        data = read_regular(path)
    except FileNotFoundError:
        return {}
    try:
        held = msgspec.json.decode(data, type=_File)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise JournalError(f"{path}: not a file of marks: {error}") from None
    if held.marks_schema > SCHEMA:
        raise JournalError(f"{path}: written by a newer tot_lab; this version reads up to schema {SCHEMA}.")
    if held.run != run:
        raise JournalError(f"{path}: these are the marks of another run: got {held.run}, expected {run}.")
    for id in held.marks:
        if id not in tree:
            raise JournalError(f"{path}: unknown thought: got a mark on {id!r}, which is not in the run.")
    return held.marks


def write_marks(journal: Path, run: str, marks: Mapping[str, Mark]) -> None:
    """Replace the marks beside `journal`. The file is removed if no marks are left."""
    path = marks_file(journal)
    if marks:
        held = _File(SCHEMA, run, dict(marks))
        write_whole(path, msgspec.json.format(msgspec.json.encode(held)) + b"\n")
    else:
        path.unlink(missing_ok=True)
