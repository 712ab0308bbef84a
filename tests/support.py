"""What several tests share: the scripted model of `tot_lab.testing`, and small helpers."""

import re
import zlib
from pathlib import Path

import pytest

import tot_lab as tl
from tot_lab.models.weights import models_folder
from tot_lab.testing import TASK, Scripted, answer_to, dice, shuffled, wait

__all__ = [
    "TASK",
    "Scripted",
    "answer_to",
    "dice",
    "lines_of",
    "needs_smollm2",
    "resealed",
    "run",
    "shuffled",
    "wait",
    "weights",
]


def run(strategy: tl.Strategy, task: tl.Task = TASK, model: object = None, **options: object) -> tl.Run:
    """One run on a scripted model, kept in memory."""
    return wait(tl.Lab(model or Scripted(), runs=None).run(strategy, task, **options))


def lines_of(path: object) -> list[bytes]:
    """The lines of a file, each with its newline."""
    return Path(str(path)).read_bytes().splitlines(keepends=True)


def resealed(data: bytes) -> bytes:
    """The lines of a journal that a test has edited, each with the checksum of what it now says: what a
    person with bad intentions would write."""
    lines = [re.sub(rb',\s?"crc32":\s?"[0-9a-f]{8}"', b"", line) for line in data.splitlines()]
    return b"".join(b'%b,"crc32":"%08x"}\n' % (line[:-1], zlib.crc32(line[:-1])) for line in lines)


def weights(name: str) -> Path | None:
    """Where the weights of a known model are on this machine, None when they were not pulled."""
    folders = (models_folder(), Path("~/.cache/gguf").expanduser())
    return next((path for folder in folders if (path := folder / f"{name}.gguf").is_file()), None)


needs_smollm2 = pytest.mark.skipif(
    weights("smollm2-135m") is None, reason="needs: tot-lab model pull smollm2-135m"
)
