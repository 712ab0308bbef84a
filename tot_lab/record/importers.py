"""Loading runs: journals, and the logs of other tools.

An importer is a class with two static methods: `recognises(head)`, whether it reads files that begin with the
bytes `head`, and `read(path)`, which returns the run or runs of a file. For a Parquet file, which names its
columns at its end, `head` is `PAR1` and the beginning of the footer. An attribute `expects` describes how
such files begin, for the error about a file that no importer recognises. Importers are components of the
group `importers` (`tot_lab.core.registry`); those of installed packages are tried only on files that no
built-in importer recognises. `published.py` is an example.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from tot_lab.core.attach import nearest
from tot_lab.core.files import files_below, open_regular
from tot_lab.core.parquet import MAGIC, parquet_footer
from tot_lab.core.registry import built_in, load_installed, offered
from tot_lab.record.journal import JournalError
from tot_lab.record.published import PublishedLog
from tot_lab.record.run import Run
from tot_lab.record.run import load as load_journal
from tot_lab.record.waiting import with_progress

HEAD = 4096
"""Bytes at the beginning of a file by which importers recognise it."""

ENDINGS = (".jsonl", ".json", ".eval", ".parquet")
"""Suffixes of the files that are read if a folder is loaded."""


class Importer(Protocol):
    """Reads the files of one kind of log. An attribute `expects` (a text) may say how such files begin."""

    @staticmethod
    def recognises(head: bytes) -> bool:
        """Whether the importer reads files that begin with `head`."""

    @staticmethod
    def read(path: str | os.PathLike[str]) -> Run | list[Run]:
        """The run or runs in a file. Raises `JournalError` for a damaged file."""


class Journal:
    """Importer of journals."""

    expects = 'a first line that begins with {"tot_lab":'

    @staticmethod
    def recognises(head: bytes) -> bool:
        """Whether a file begins with the header of a journal."""
        return head.startswith(b'{"tot_lab":')

    @staticmethod
    def read(path: str | os.PathLike[str]) -> Run:
        """The run, up to its last whole line."""
        return load_journal(path)


def load(path: str | os.PathLike[str]) -> Any:
    """Load a run from a journal, or a list of runs from a log of another tool or from a folder.

        run = tl.load("runs/a.jsonl")
        runs = tl.load("runs/sweep")
        runs = tl.load("gpt-4_0.7_propose1_value3_greedy5_start900_end1000.json")

    Nothing in a file is executed or imported. An unfinished journal is read up to its last whole line.
    Installed packages may add importers of other logs. In a folder and its subfolders, such as those of
    sweeps, all files that end in `.jsonl`, `.json`, `.eval` or `.parquet` are read, except empty ones.

    Raises:
        TypeError: If `path` is not a path.
        OSError: If the file cannot be opened, or the folder contains no file that an importer recognises.
        JournalError: If a file is damaged or was written by a newer version, or no importer recognises it.
            The message names the file and the line or entry, or lists what each importer expects.

    Warns:
        UserWarning: If a folder contains files with these endings that no importer recognises. They are left
            out.
    """
    if not isinstance(path, str | os.PathLike):
        hint = " It is loaded already." if isinstance(path, Run) else ""
        raise TypeError(f"path must be a file or a folder: got {type(path).__name__}.{hint}")
    if Path(path).is_dir():
        return _load_folder(Path(path))
    tried = []
    head = _head(_existing(Path(path)))
    for name, importer in _importers():
        if _recognises(name, importer, head):
            try:
                loaded = importer.read(path)
            except RecursionError:
                raise JournalError(f"{path}: the JSON in this file is nested too deeply.") from None
            except (OSError, ImportError):
                raise
            except Exception as error:
                if isinstance(error, JournalError) and str(error).startswith(str(path)):
                    raise
                what = f"{path}: the importer {name!r} cannot read it"
                raise JournalError(f"{what}: {type(error).__name__}: {error}") from error
            runs = loaded if isinstance(loaded, list) else [loaded]
            if not all(isinstance(run, Run) for run in runs):
                raise TypeError(
                    f"{path}: the importer {name!r} must return a Run or a list of Runs: got {loaded!r:.80}."
                )
            return loaded
        tried.append(f"{name} expects {getattr(importer, 'expects', 'another beginning')}")
    if Path(path).suffix.lower() not in ENDINGS:
        raise JournalError(
            f"{path}: no importer recognises this file. Runs are NAME{', NAME'.join(ENDINGS)}, or a folder "
            f"of them; tl.tasks reads tasks."
        )
    if columns := _task_columns(head):
        raise JournalError(
            f"{path}: this file holds tasks, not runs: got {', '.join(map(repr, columns))} in its first row. "
            "tl.tasks reads tasks."
        )
    try:  # a file that is nearly a journal or a published log gets the more precise error of that importer
        return (PublishedLog if head.lstrip()[:1] == b"[" else Journal).read(path)
    except JournalError as error:
        raise JournalError(
            f"{str(error).rstrip('.')}. No importer recognises the file: {'; '.join(tried)}. "
            "tl.read_nodes makes a run of a table of nodes."
        ) from None


def _existing(path: Path) -> Path:
    """Return `path`. Raises FileNotFoundError, with the nearest name in its folder, if it is not found."""
    if not path.exists() and path.parent.is_dir():
        near = nearest(path.name, (file.name for file in path.parent.iterdir()))
        hint = (
            f"Did you mean {path.parent / near}?" if near else "Pass the path of a run or a folder of runs."
        )
        raise FileNotFoundError(f"There is no file {path}. {hint}")
    return path


def run_files(folder: Path, endings: Collection[str] = ENDINGS) -> list[Path]:
    """Return the files of runs in a folder and its subfolders that have a suffix in `endings`.

    Raises:
        FileNotFoundError: If the folder has no such file.

    Warns:
        UserWarning: If no importer recognises some of the files with such a suffix.
    """
    files, others = list[Path](), list[Path]()
    for file in files_below(folder):
        if file.suffix not in endings or file.name.endswith("marks.json") or not file.is_file():
            continue
        if head := _head(file):
            known = any(_recognises(name, importer, head) for name, importer in _importers())
            (files if known else others).append(file)
    names = ", ".join(str(file.relative_to(folder)) for file in others[:5])
    if not files:
        found = f"No importer recognises {names}" if others else f"Runs are NAME{', NAME'.join(ENDINGS)}"
        raise FileNotFoundError(f"{folder}: no run in this folder. {found}.")
    if others:
        warnings.warn(
            f"{folder}: {len(others)} of {len(others) + len(files)} files are not runs: {names}",
            UserWarning,
            stacklevel=4,
        )
    return files


def _load_folder(folder: Path) -> list[Run]:
    runs: list[Run] = []
    files = run_files(folder)
    for file in with_progress(files, f"loading {folder}", len(files)):
        loaded: Run | list[Run] = load(file)
        runs += loaded if isinstance(loaded, list) else [loaded]
    return runs


def _task_columns(head: bytes) -> list[str]:
    """Return the columns of a file of tasks. Empty if its first row does not look like a task."""
    with suppress(ValueError, RecursionError):  # no JSON, nested too deeply, or a row longer than `head`
        row, _ = json.JSONDecoder().raw_decode(head.decode(errors="replace").lstrip("[ \n\r\t"))
        if isinstance(row, dict) and _OF_TASKS.intersection(row):
            return [*row][:5]
    return []


_OF_TASKS = frozenset(("question", "problem", "prompt", "query", "q", "answer", "reference", "target"))


def _head(path: str | os.PathLike[str]) -> bytes:
    with open_regular(path) as file:
        head = file.read(HEAD).removeprefix(b"\xef\xbb\xbf")  # the byte order mark
    return MAGIC + parquet_footer(Path(path), HEAD) if head.startswith(MAGIC) else head


def _recognises(name: str, importer: Importer, head: bytes) -> bool:
    try:
        return importer.recognises(head)
    except Exception as error:
        raise RuntimeError(
            f"The `recognises` of the importer {name!r} raised an error: got {type(error).__name__}: {error}."
        ) from error


def _importers() -> Iterator[tuple[str, Importer]]:
    """Yield the built-in importers with their names, then those of installed packages, which are imported
    when they are reached.
    """
    yield from built_in("importers").items()
    for name in offered("importers"):
        if (component := load_installed(name, "importers")) is not None:
            yield name, component.value
