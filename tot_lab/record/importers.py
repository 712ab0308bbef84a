"""Loading runs: journals, and the logs of other people's searches.

An importer is a class with two static methods: `recognises(head)`, whether a file that begins with these
bytes is one of its own, and `read(path)`, its run or runs. Importers are components of the group `importers`
(`tot_lab.core.registry`); those of installed packages are asked only about files that no built-in one
recognises. `published.py` is an example.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from tot_lab.core.registry import built_in, load_installed, offered
from tot_lab.record.published import PublishedLog
from tot_lab.record.run import Run
from tot_lab.record.run import load as load_journal
from tot_lab.record.waiting import with_progress

HEAD = 4096
"""Bytes from the beginning of a file by which it is recognised."""


class Importer(Protocol):
    """Reads the files of one kind of log."""

    @staticmethod
    def recognises(head: bytes) -> bool:
        """Whether a file that begins with `head` is such a log."""

    @staticmethod
    def read(path: str | os.PathLike[str]) -> Run | list[Run]:
        """The run in a file, or its runs. Raises `JournalError` for a damaged file."""


class Journal:
    """Importer of journals."""

    @staticmethod
    def recognises(head: bytes) -> bool:
        """Whether a file begins with the header of a journal."""
        return head.startswith(b'{"tot_lab":')

    @staticmethod
    def read(path: str | os.PathLike[str]) -> Run:
        """The run, up to its last whole line."""
        return load_journal(path)


def load(path: str | os.PathLike[str]) -> Any:
    """Load a run from a journal, or a list of runs from a folder of journals or a published log.

        run = tl.load("runs/a.jsonl")
        runs = tl.load("runs/sweep")
        runs = tl.load("gpt-4_0.7_propose1_value3_greedy5_start900_end1000.json")

    Nothing in a file is executed or imported. An unfinished journal is read up to its last whole line.
    Installed packages may add importers of other logs.

    Raises:
        OSError: If the file cannot be opened.
        JournalError: If it is damaged or was written by a newer version; names the file and the line or
            entry.
    """
    if Path(path).is_dir():
        files = sorted(file for file in Path(path).glob("*.jsonl") if file.stat().st_size)
        if not files:
            raise FileNotFoundError(f"{path}: a folder without a run (NAME.jsonl)")
        return [load_journal(file) for file in with_progress(files, f"loading {path}", len(files))]
    with Path(path).open("rb") as file:
        head = file.read(HEAD)
    for importer in _importers():
        if importer.recognises(head):
            return importer.read(path)
    # Their errors say what is wrong with the file.
    return (PublishedLog if head.lstrip()[:1] == b"[" else Journal).read(path)


def _importers() -> Iterator[Importer]:
    """The built-in ones, then those of packages, each imported when its turn comes."""
    yield from built_in("importers").values()
    for name in offered("importers"):
        if (component := load_installed(name, "importers")) is not None:
            yield component.value
