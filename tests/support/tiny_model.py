"""A small model of `tot_lab.models.tiny` with random weights."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from tot_lab.models.tiny.language import PIECES

WIDTH, LAYERS, HEADS = 32, 2, 2


def write_weights(path: Path) -> Path:
    """Write random weights."""
    random = np.random.default_rng(1)
    shapes = {"tokens": (len(PIECES), WIDTH), "places": (128, WIDTH)}
    for k in range(LAYERS):
        shapes |= {
            f"{k}.qkv": (WIDTH, 3 * WIDTH),
            f"{k}.out": (WIDTH, WIDTH),
            f"{k}.up": (WIDTH, 4 * WIDTH),
            f"{k}.down": (4 * WIDTH, WIDTH),
        }
    arrays = {name: random.standard_normal(shape) / 4 for name, shape in shapes.items()}
    norms = ("norm", *(f"{k}.norm{place}" for k in range(LAYERS) for place in (1, 2)))
    arrays |= {name: np.ones(WIDTH) for name in norms}
    facts = json.dumps({"layers": LAYERS, "heads": HEADS, "step": 7})
    np.savez(path, facts=facts, **{name: value.astype(np.float16) for name, value in arrays.items()})
    return path


_FOLDER = TemporaryDirectory(prefix="tot_lab_tiny-")
WEIGHTS = write_weights(Path(_FOLDER.name) / "small.npz")
"""A file of weights."""
