"""The record on disk: one JSON object a line, appended as the run goes.

Rule: the first line is a header that says how the run was made, every other line is a `Line`.
A line is whole or it is not there: a file that was cut off in mid-line by a kill reads up to the
last whole line, any other damage is an error that names the file and the line. Nothing that is
read is executed.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from tot_lab.core.bulk import in_bulk
from tot_lab.core.records import Line
from tot_lab.files import write_whole
from tot_lab.version import __version__

SCHEMA = 1


class Header(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a run was made.

    tot_lab: schema of the file. version: of the package that wrote it. started: ISO 8601, UTC.
    task, strategy, model, budget: their settings; {} where a run has none.
    roles: the settings of the models that certain calls went to. draws: see `tot_lab.models.keys`. tools:
        the settings of those that there were, by name; effect_policy: the lab's, {} where it had none.
    branched: which run this one was branched from, and where; see `tot_lab.edits`.
    unknown: what the record cannot say, of `prompts`, `replies` (what was asked and answered), `times`,
        and `calls` (it lacks some, so that nobody knows what they used); for other people's logs.
    counterfactual: ids of the runs whose replies answered this one, in which no model was asked.
    """

    tot_lab: int
    version: str
    id: str
    started: str
    task: dict[str, Any] = {}
    strategy: dict[str, Any] = {}
    model: dict[str, Any] = {}
    budget: dict[str, Any] = {}
    repeat: int = 0
    roles: dict[str, dict[str, Any]] = {}
    draws: Literal["state", "path"] = "state"
    branched: dict[str, Any] = {}
    unknown: tuple[Literal["prompts", "replies", "times", "calls"], ...] = ()
    counterfactual: tuple[str, ...] = ()
    tools: dict[str, dict[str, Any]] = {}
    effect_policy: dict[str, Any] = {}

    @classmethod
    def now(cls, **settings: Any) -> Header:
        """A header of this version and moment, with an id of its own."""
        started = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(SCHEMA, __version__, secrets.token_hex(4), started, **settings)

    @property
    def filename(self) -> str:
        """Where the run is kept inside its folder: date, strategy and id."""
        date = self.started[:19].replace("-", "").replace(":", "").replace("T", "-")
        name = str(self.strategy.get("kind", "run")).replace("/", "-")
        return f"{date}-{name}-{self.id}.jsonl"


class JournalError(ValueError):
    """A journal that cannot be read, or written: the message names the file and the line."""


class HeldByAnother(JournalError):
    """A journal that another process is writing."""


def _scalar(value: Any) -> Any:
    """numpy's numbers are written as the plain ones that they are."""
    if type(value).__module__ == "numpy" and hasattr(value, "item") and not getattr(value, "ndim", 1):
        return value.item()
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON")


encoder = msgspec.json.Encoder(enc_hook=_scalar)
line_decoder = msgspec.json.Decoder(Line)
_header_decoder = msgspec.json.Decoder(Header)


@in_bulk()
def read_journal(path: str | os.PathLike[str]) -> tuple[Header, list[Line], int]:
    """The header and the lines of a journal, and the number of bytes they take.

    Raises OSError when the file cannot be opened, `JournalError` when it is damaged or newer."""
    data = Path(path).read_bytes()
    end = data.rfind(b"\n") + 1  # what stands behind it was cut off by a kill
    first = data.find(b"\n", 0, end) + 1
    if first == 0:
        raise JournalError(
            f"{path}, line 1: no whole header; expected a run's journal, and this is none, or an empty one"
        )
    try:
        schema = msgspec.json.decode(data[:first])
        if isinstance(schema, dict) and isinstance(schema.get("tot_lab"), int) and schema["tot_lab"] > SCHEMA:
            raise JournalError(
                f"{path}, line 1: written by a newer tot_lab ({schema.get('version', 'unknown')}, schema "
                f"{schema['tot_lab']}); this one ({__version__}) reads up to schema {SCHEMA}"
            )
        header = _header_decoder.decode(data[:first])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise JournalError(f"{path}, line 1: no header; expected a run's journal: {error}") from None
    try:
        return header, line_decoder.decode_lines(data[first:end]), end
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        for number, line in enumerate(data[first:end].split(b"\n")[:-1], 2):
            try:
                line_decoder.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise JournalError(f"{path}, line {number}: {error}") from None
        raise


def write_journal(path: str | os.PathLike[str], header: Header, lines: Sequence[Line]) -> Path:
    """Write a whole journal; an existing file is replaced at once or not at all."""
    return write_whole(path, encoder.encode(header) + b"\n" + encoder.encode_lines(lines))
