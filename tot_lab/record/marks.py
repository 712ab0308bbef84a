"""What a person says of a run's thoughts: right, wrong, a note.

Marks are no part of the record, which stays as it happened; they lie beside it, in one small
file that is checked when it is read and written whole at once. Who shows a run is told when its marks
change, whoever changed them: two holders of one run share its file, not its object.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from tot_lab.core.calls import readable
from tot_lab.core.files import write_whole
from tot_lab.core.tree import Tree
from tot_lab.record.journal import JournalError

SCHEMA = 1
Verdict = Literal["right", "wrong"]


class Mark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a person says of one thought. verdict: `right`, `wrong` or `None` for neither."""

    verdict: Verdict | None = None
    note: str = ""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    marks_schema: int
    run: str
    marks: dict[str, Mark]


_watchers: list[weakref.WeakMethod[Callable[[str], None]]] = []


def watch(told: Callable[[str], None]) -> None:
    """From now on call `told`, a method, with the id of a run whose marks have changed, in the thread that
    changed them. Its object is not kept alive."""
    _watchers.append(weakref.WeakMethod(told, _watchers.remove))


def changed(run: str) -> None:
    """Tell who watches that this run's marks have changed."""
    for watcher in tuple(_watchers):
        if (told := watcher()) is not None:
            told(run)


def marks_file(journal: str | os.PathLike[str]) -> Path:
    """Where the marks of the run in `journal` lie: `a.marks.json` beside `a.jsonl`. A journal with
    another ending has a name for them that is no other's."""
    path = Path(journal)
    return path.with_name(f"{path.stem}.marks.json" if path.suffix == ".jsonl" else f"{path.name}-marks.json")


def made(tree: Tree, id: str, verdict: str | None, note: str) -> Mark:
    """A mark of a thought of `tree`. What is none is a ValueError."""
    if id not in tree:
        raise ValueError(f"no thought {id!r} in this run")
    if verdict not in ("right", "wrong", None):
        raise ValueError(f"the verdict is 'right', 'wrong' or None, not {verdict!r}")
    if not isinstance(note, str):
        raise TypeError(f"a note is a text, not {note!r}")
    return Mark(verdict, readable(note))  # type: ignore[arg-type]  # one of the words


def read_marks(journal: Path, run: str, tree: Tree) -> dict[str, Mark]:
    """The marks beside `journal`, {} when there is no file. Raises `JournalError`, which names the
    file, when it is damaged, belongs to another run, or marks a thought that this one has not."""
    path = marks_file(journal)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    try:
        held = msgspec.json.decode(data, type=_File)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise JournalError(f"{path}: these are no marks: {error}") from None
    if held.marks_schema > SCHEMA:
        raise JournalError(f"{path}: written by a newer tot_lab; this one reads up to schema {SCHEMA}")
    if held.run != run:
        raise JournalError(f"{path}: these are the marks of run {held.run}, not of {run}")
    for id in held.marks:
        if id not in tree:
            raise JournalError(f"{path}: a mark of thought {id!r}, which the run has not")
    return held.marks


def write_marks(journal: Path, run: str, marks: Mapping[str, Mark]) -> None:
    """Write the marks beside `journal`, in place of those that are there; no file where none is left."""
    path = marks_file(journal)
    if marks:
        held = _File(SCHEMA, run, dict(marks))
        write_whole(path, msgspec.json.format(msgspec.json.encode(held)) + b"\n")
    else:
        path.unlink(missing_ok=True)
