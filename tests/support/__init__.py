"""What several tests share: the scripted model of `tot_lab.testing`, and small helpers."""

import json
import re
import subprocess
import sys
import zlib
from collections.abc import Callable, Collection, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from _pytest.mark import ParameterSet

import tot_lab as tl
from tot_lab.core.registry import axes, built_in
from tot_lab.models.weights import models_folder
from tot_lab.strategies.search import Stop
from tot_lab.testing import TASK, Scripted, answer_to, dice, shuffled, wait

__all__ = [
    "ANSWERS",
    "AXES",
    "DATA",
    "DOMAINS",
    "EVALUATORS",
    "GOLDEN",
    "IN_PARTS",
    "PROPOSERS",
    "ROOT",
    "SEARCHES",
    "SETTINGS",
    "SMALL",
    "STRATEGIES",
    "TASK",
    "TESTS",
    "InParts",
    "Scripted",
    "answer_to",
    "dice",
    "for_each",
    "lines_of",
    "llama_server",
    "mostly_nightly",
    "needs_smollm2",
    "resealed",
    "run",
    "shuffled",
    "wait",
    "weights",
]

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
GOLDEN = TESTS / "golden"
DATA = TESTS / "data"

T = TypeVar("T")

STRATEGIES = list(built_in("strategies").values())
PROPOSERS = list(built_in("proposers").values())
EVALUATORS = list(built_in("evaluators").values())
SEARCHES = list(built_in("searches").values())
ANSWERS = list(built_in("answers").values())
AXES = [*axes(), Stop]
DOMAINS = [kind for name, kind in built_in("domains").items() if not name.startswith("published/")]

SMALL = tl.TreeOfThoughts(propose=tl.Sample(count=2), stop=Stop(depth=2))
SETTINGS = {
    tl.BestOf: {"strategy": SMALL, "attempts": 2},
    tl.SelfConsistency: {"attempts": 3},
    tl.methods.WeightedBestOf: {"strategy": SMALL, "attempts": 2},
    tl.methods.EarlyStopping: {"attempts": 6, "window": 2},
    tl.methods.ForestOfThoughts: {"strategy": SMALL, "trees": 3, "batch": 2},
    tl.methods.DeepConf: {"attempts": 6, "top": 0.5},
    tl.methods.DeepConfOnline: {"attempts": 8, "warmup": 4, "batch": 2, "top": 1.0},
    tl.Reflexion: {"strategy": tl.ChainOfThought(), "max_retries": 2},
    tl.GatherThenThink: {
        "gatherer": tl.ReAct(max_iterations=3),
        "strategy": tl.DeepThink(max_iterations=1),
    },
    tl.WithThinking: {"strategy": SMALL, "level": "medium", "reflect_every": 2},
    tl.WithSynthesis: {"strategy": tl.ReAct(), "synthesis": "deep", "above": 0},
    tl.searches.PhiDecoding: {"beams": 2, "count": 2},
}
"""Settings of the strategies and searches that cannot be made without any, or are large by default."""


class InParts(tl.domains.General):
    """A state has as many parts as its last step has even digits, and one."""

    kind = "tests/in_parts"

    def part_prompts(self, task, path):
        shown = f"{task.question}\n{self.steps(path)}"
        return [f"{shown}: {name}" for name in ("all", *(c for c in path[-1][-2:] if c in "02468"))]

    def max_parts(self, task):
        return 3


IN_PARTS = TASK.model_copy(update={"domain": InParts()})


def run(strategy: tl.Strategy, task: tl.Task = TASK, model: object = None, **options: object) -> tl.Run:
    """One run on a scripted model, kept in memory."""
    return wait(tl.Lab(model or Scripted(), runs=None).run(strategy, task, **options))


def for_each(items: Collection[T], check: Callable[[T], object]) -> None:
    """Run one check on every item and report all items that fail, not only the first.

    Raises:
        AssertionError: If an item fails, or if there are no items.
    """
    assert items, "There are no items to check."
    failures = []
    for item in items:
        try:
            check(item)
        except (Exception, pytest.fail.Exception) as error:
            failures.append(f"{item}: {type(error).__name__}: {error}")
    assert not failures, f"{len(failures)} of {len(items)} items fail:\n" + "\n".join(failures)


def mostly_nightly(values: Iterable[T], kept: Collection[T]) -> list[ParameterSet]:
    """Parameters of a test: `make nightly` runs it with all values, the other lanes with those in `kept`. A
    tuple holds the values of several arguments.

    Raises:
        ValueError: If a value in `kept` is not in `values`.
    """
    values = list(values)
    if missing := [value for value in kept if value not in values]:
        raise ValueError(f"kept must contain values of the test only: got {missing}.")
    return [
        pytest.param(
            *(value if isinstance(value, tuple) else (value,)),
            marks=() if value in kept else pytest.mark.nightly,
        )
        for value in values
    ]


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
    weights("smollm2-135m") is None, reason="needs: python tests/support/fetch_weights.py"
)


@contextmanager
def llama_server(**settings):
    """Runs llama.cpp's server on the loopback address. Yields the URL of its API."""
    script = Path(tl.__file__).parent / "models" / "llama_server.py"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen([sys.executable, "-P", str(script)], text=True, **pipes)
    try:
        server.stdin.write(json.dumps(settings) + "\n")
        server.stdin.flush()
        yield json.loads(server.stdout.readline())["address"] + "/v1"
    finally:
        server.kill()
        server.communicate()
