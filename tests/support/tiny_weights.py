"""Weights of a model in three small parts."""

from __future__ import annotations

import hashlib

from tot_lab.models.weights import Weights

PARTS = [hashlib.shake_128(bytes([number])).digest(size) for number, size in enumerate((300_000,) * 2 + (7,))]
CONTENT = b"".join(PARTS)


def tiny(**changes: object) -> Weights:
    """What is known of a file in three parts."""
    known = Weights(
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        size=len(CONTENT),
        licence="MIT",
        requirement="tiny-model-part{}==1.0",
        member="tiny_model_part{0}/data/part{0:02}.bin",
        part_size=300_000,
        parts=tuple(hashlib.sha256(part).hexdigest() for part in PARTS),
    )
    return known._replace(**changes)  # type: ignore[arg-type]
