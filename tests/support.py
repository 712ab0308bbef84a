"""What several tests share: the scripted model of `tot_lab.testing`, and small helpers."""

from pathlib import Path

import pytest

import tot_lab as tl
from tot_lab.models.weights import models_folder
from tot_lab.testing import TASK, Scripted, answer_to, dice, shuffled, wait

__all__ = ["TASK", "Scripted", "answer_to", "dice", "needs_smollm2", "run", "shuffled", "wait", "weights"]


def run(strategy: tl.Strategy, task: tl.Task = TASK, model: object = None, **options: object) -> tl.Run:
    """One run on a scripted model, kept in memory."""
    return wait(tl.Lab(model or Scripted(), runs=None).run(strategy, task, **options))


def weights(name: str) -> Path | None:
    """Where the weights of a known model are on this machine, None when they were not pulled."""
    folders = (models_folder(), Path("~/.cache/gguf").expanduser())
    return next((path for folder in folders if (path := folder / f"{name}.gguf").is_file()), None)


needs_smollm2 = pytest.mark.skipif(
    weights("smollm2-135m") is None, reason="needs: tot-lab model pull smollm2-135m"
)
