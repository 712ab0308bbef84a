"""The network of the small models in numpy: a decoder-only transformer with a key-value cache.

All matrix products have fixed shapes: rows are computed in tiles of `TILE`, and a row attends to a number of
positions that depends only on its own length. So the logits of a row do not depend on the other rows, to the
last bit. Products are so small that OpenBLAS computes each in the calling thread. Several threads would wait
for each other, and on a busy machine this takes long. The files of weights are numpy arrays without pickled
objects, so that reading them executes no code.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tot_lab.models.tiny.language import PIECES

TILE = 32
"""Rows of each matrix product. Missing rows are padded."""

_SPAN = 32  # a row attends to a multiple of this many positions
_SMALL = 2**18  # the most multiplications in a product for which OpenBLAS starts no threads

Floats = NDArray[np.float32]


class Layer(NamedTuple):
    """Weights of one layer. Matrices are split into blocks of columns; see `_blocks`."""

    norm1: Floats
    qkv: Floats
    out: Floats
    norm2: Floats
    up: Floats
    down: Floats


class Network:
    """The weights of a model, as float32."""

    def __init__(self, path: Path) -> None:
        with np.load(path, allow_pickle=False) as saved:
            arrays = {name: saved[name] for name in saved.files}
        self.facts: dict[str, Any] = json.loads(str(arrays.pop("facts")))
        weights = {name: np.ascontiguousarray(value, np.float32) for name, value in arrays.items()}
        self.tokens, self.places, self.norm = (weights[name] for name in ("tokens", "places", "norm"))
        weights = {name: _blocks(value) if value.ndim == 2 else value for name, value in weights.items()}
        if len(self.tokens) != len(PIECES):
            raise ValueError(
                f"{path} is of another version of the language: got {len(self.tokens)} tokens. This version "
                f"has {len(PIECES)}. Train the model again."
            )
        self.layers = [
            Layer(*(weights[f"{k}.{name}"] for name in Layer._fields)) for k in range(self.facts["layers"])
        ]
        self.heads: int = self.facts["heads"]
        self.context = len(self.places)
        self.output = _blocks(self.tokens.T)


class Decoder:
    """Computes the next tokens of several texts at once.

    Args:
        network: The network.
        slots: The most texts at a time.
    """

    def __init__(self, network: Network, slots: int) -> None:
        self.network = network
        self.lengths = np.zeros(slots + 1, np.int64)  # the last slot pads tiles
        width = len(network.norm) // network.heads
        shape = (len(network.layers), slots + 1, network.heads, network.context, width)
        self._keys, self._values = np.zeros(shape, np.float32), np.zeros(shape, np.float32)

    def reset(self, slot: int) -> None:
        """Begin a new, empty text in `slot`."""
        self.lengths[slot] = 0

    def step(self, slots: Sequence[int], tokens: Sequence[int]) -> Floats:
        """Append a token to the text in each of `slots`, and return the logits of each next token, a row
        each.
        """
        spare = len(self.lengths) - 1
        logits = []
        for first in range(0, len(slots), TILE):
            rows = np.full(TILE, spare)
            given = np.zeros(TILE, np.int64)
            count = len(slots[first : first + TILE])
            rows[:count], given[:count] = slots[first : first + TILE], tokens[first : first + TILE]
            self.lengths[spare] = 0
            logits.append(self._tile(rows, given)[:count])
            self.lengths[rows[:count]] += 1
        return np.concatenate(logits)

    def _tile(self, rows: NDArray[np.int64], tokens: NDArray[np.int64]) -> Floats:
        net, places = self.network, self.lengths[rows]
        spans = (places // _SPAN + 1) * _SPAN
        groups = [(np.flatnonzero(spans == span), int(span)) for span in np.unique(spans)]
        x = net.tokens[tokens] + net.places[places]
        for layer, keys, values in zip(net.layers, self._keys, self._values, strict=True):
            qkv = _product(_normed(x, layer.norm1), layer.qkv).reshape(TILE, 3, net.heads, -1)
            keys[rows, :, places], values[rows, :, places] = qkv[:, 1], qkv[:, 2]
            mixed = np.empty_like(qkv[:, 0])
            for group, span in groups:
                chosen, at = rows[group], places[group]
                query = qkv[group, 0] * np.float32(qkv.shape[-1] ** -0.5)
                scores = (keys[chosen, :, :span] @ query[..., None])[..., 0]
                scores[np.broadcast_to(np.arange(span) > at[:, None, None], scores.shape)] = -np.inf
                shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
                shares /= shares.sum(axis=-1, keepdims=True)
                mixed[group] = (shares[:, :, None] @ values[chosen, :, :span])[:, :, 0]
            x += _product(mixed.reshape(TILE, -1), layer.out)
            up = np.maximum(_product(_normed(x, layer.norm2), layer.up), 0)
            x += _product(up * up, layer.down)
        return _product(_normed(x, net.norm), net.output)


def _blocks(matrix: Floats) -> Floats:
    """Split a matrix into equal blocks of columns, as wide as `_SMALL` allows."""
    rows, columns = matrix.shape
    widths = (width for width in range(columns, 0, -1) if columns % width == 0)
    width = next((width for width in widths if TILE * rows * width <= _SMALL), 1)
    return np.ascontiguousarray(matrix.reshape(rows, -1, width).swapaxes(0, 1))


def _product(x: Floats, blocks: Floats) -> Floats:
    """Return `x` times the matrix of `blocks`."""
    result: Floats = (x @ blocks).swapaxes(0, 1).reshape(len(x), -1)
    return result


def _normed(x: Floats, scale: Floats) -> Floats:
    result: Floats = x * scale / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(1e-6))
    return result
