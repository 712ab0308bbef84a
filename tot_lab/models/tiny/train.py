"""Train a small model: `python -m tot_lab.models.tiny.train FOLDER`.

Needs the extra `train` (JAX and optax). FOLDER receives five checkpoints, their card `card.json`, and
`state.npz`, from which a stopped run continues. Equal settings on one machine give equal weights.
"""

from __future__ import annotations

import argparse
import io
import json
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib

from tot_lab.models.tiny.card import write_cards
from tot_lab.models.tiny.language import END, PIECES, encode_prompt, encode_reply
from tot_lab.models.tiny.problems import Examples

CONTEXT = 128
MARKS = (1 / 15, 1 / 5, 1 / 2, 3 / 4, 1)
"""The fractions of the training steps after which checkpoints are written."""

Weights = dict[str, Any]


def initial(seed: int, width: int, layers: int, heads: int) -> Weights:
    """Return random weights by the names that they have in checkpoints."""
    random = np.random.default_rng(seed)

    def drawn(*shape: int, scale: float = 1.0) -> Any:
        return jnp.asarray(random.standard_normal(shape) * scale / shape[0] ** 0.5, jnp.float32)

    weights = {
        "tokens": jnp.asarray(random.standard_normal((len(PIECES), width)) * 0.05, jnp.float32),
        "places": jnp.asarray(random.standard_normal((CONTEXT, width)) * 0.02, jnp.float32),
        "norm": jnp.ones(width),
    }
    for k in range(layers):
        weights |= {
            f"{k}.norm1": jnp.ones(width),
            f"{k}.qkv": drawn(width, 3 * width),
            f"{k}.out": drawn(width, width, scale=(2 * layers) ** -0.5),
            f"{k}.norm2": jnp.ones(width),
            f"{k}.up": drawn(width, 4 * width),
            f"{k}.down": drawn(4 * width, width, scale=(2 * layers) ** -0.5),
        }
    return weights


def normed(x: Any, scale: Any) -> Any:
    return x * scale * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def forward(weights: Weights, heads: int, tokens: Any, places: Any, parts: Any) -> Any:
    """Return the logits of the next token at each position, as one matrix with the rows of `tokens` in
    sequence.

    A token attends to itself and to earlier tokens of the same example. Products of two-dimensional matrices
    are used, since they are much faster to differentiate on a CPU.
    """
    rows, length = tokens.shape
    width = weights["norm"].shape[0]
    seen = (parts[:, :, None] == parts[:, None, :]) & jnp.tril(jnp.ones((length, length), bool))
    hidden = jnp.where(seen, 0.0, -1e30)[:, None]
    x = weights["tokens"][tokens.reshape(-1)] + weights["places"][places.reshape(-1)]
    for k in range(sum(name.endswith(".up") for name in weights)):
        qkv = normed(x, weights[f"{k}.norm1"]) @ weights[f"{k}.qkv"]
        query, key, value = qkv.reshape(rows, length, 3, heads, -1).transpose(2, 0, 3, 1, 4)
        scores = query @ key.swapaxes(-1, -2) * (width // heads) ** -0.5 + hidden
        mixed = jax.nn.softmax(scores, axis=-1) @ value
        x += mixed.transpose(0, 2, 1, 3).reshape(rows * length, width) @ weights[f"{k}.out"]
        up = jnp.maximum(normed(x, weights[f"{k}.norm2"]) @ weights[f"{k}.up"], 0)
        x += (up * up) @ weights[f"{k}.down"]
    return normed(x, weights["norm"]) @ weights["tokens"].T


def loss_of(weights: Weights, heads: int, batch: Any) -> Any:
    """Return the mean cross-entropy of the tokens of the replies in a batch, in nats per token."""
    tokens, places, parts, learned = batch
    logits = forward(weights, heads, tokens[:, :-1], places[:, :-1], parts[:, :-1])
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:].reshape(-1))
    return (losses * learned[:, 1:].reshape(-1)).sum() / learned.sum()


def batch_of(seed: int, step: int, steps: int, rows: int) -> tuple[Any, ...]:
    """Return a batch of `rows` rows, each packed with several examples. It depends only on the arguments.

    In the first half of the training, arithmetic steps are drawn uniformly. In the second half, most of them
    have integer results, since the states after these are harder to judge and are those that searches judge.

    Returns:
        Four arrays with an entry for each token: its id, its position in its example, the number of its
        example, and whether it counts in the loss (1.0 or 0.0).
    """
    examples = Examples(Random(f"{seed} {step}"), whole=0.8 if step >= steps / 2 else 0.0)
    tokens = np.zeros((rows, CONTEXT + 1), np.int32)
    places, parts, learned = np.zeros_like(tokens), np.zeros_like(tokens), np.zeros_like(tokens, np.float32)
    used, count, misses = [0] * rows, 0, 0
    while misses < 8:
        example = examples.draw()
        given = [*encode_prompt(example.prompt), *encode_reply(example.given)]
        whole = [*given, *encode_reply(example.reply), END]
        row = next((k for k in range(rows) if used[k] + len(whole) <= CONTEXT + 1), None)
        if row is None:
            misses += 1
            continue
        count += 1
        span = slice(used[row], used[row] + len(whole))
        tokens[row, span], parts[row, span], places[row, span] = whole, count, range(len(whole))
        learned[row, span.start + len(given) : span.stop] = 1.0
        used[row] += len(whole)
    return tokens, places, parts, learned


def batches(seed: int, first: int, steps: int, rows: int) -> Iterator[tuple[Any, ...]]:
    """Yield the batches of the steps `first` to `steps` - 1. Another process computes up to 8 in advance."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        ahead = deque(
            pool.submit(batch_of, seed, step, steps, rows) for step in range(first, min(first + 8, steps))
        )
        for step in range(first, steps):
            yield ahead.popleft().result()
            if step + 8 < steps:
                ahead.append(pool.submit(batch_of, seed, step + 8, steps, rows))


def write(path: Path, arrays: dict[str, Any]) -> None:
    """Write arrays atomically, so that a stopped run leaves a complete file."""
    content = io.BytesIO()
    np.savez(content, **arrays)
    part = path.with_suffix(".part")
    part.write_bytes(content.getvalue())
    part.replace(path)


def train(
    folder: Path, seed: int, steps: int, rows: int, width: int, layers: int, heads: int, rate: float
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"seed": seed, "steps": steps, "rows": rows, "width": width, "layers": layers, "heads": heads}
    weights = initial(seed, width, layers, heads)
    decay = round(0.4 * steps)
    schedule = optax.join_schedules(
        [
            optax.linear_schedule(0.0, rate, 100),
            optax.constant_schedule(rate),
            optax.linear_schedule(rate, 0.02 * rate, decay),
        ],
        [100, steps - decay],
    )
    matrices = {
        name: optax.contrib.MuonDimensionNumbers() if name[0].isdigit() and value.ndim == 2 else None
        for name, value in weights.items()
    }
    optimiser = optax.contrib.muon(
        schedule, adam_b2=0.98, consistent_rms=0.2, muon_weight_dimension_numbers=matrices
    )
    state = optimiser.init(weights)
    first = 0
    if (folder / "state.npz").exists():
        with np.load(folder / "state.npz", allow_pickle=False) as saved:
            if json.loads(str(saved["settings"])) != {**settings, "rate": rate}:
                raise SystemExit(
                    f"The settings differ from those of the run in {folder}: got {settings}, rate {rate}. "
                    f"Pass those of the run, {saved['settings']}, or another folder."
                )
            first = int(saved["step"])
            leaves, shape = jax.tree.flatten((weights, state))
            weights, state = jax.tree.unflatten(
                shape, [jnp.asarray(saved[f"leaf{k}"]) for k in range(len(leaves))]
            )

    def update(weights: Weights, state: Any, batch: Any) -> tuple[Weights, Any, Any]:
        loss, gradient = jax.value_and_grad(loss_of)(weights, heads, batch)
        changes, state = optimiser.update(gradient, state, weights)
        return optax.apply_updates(weights, changes), state, loss

    update = jax.jit(update)
    marks = {round(share * steps): k for k, share in enumerate(MARKS, 1)}
    began, losses = time.time(), []
    for step, batch in enumerate(batches(seed, first, steps, rows), first + 1):
        weights, state, loss = update(weights, state, batch)
        losses.append(float(loss))
        if step % 20 == 0:
            took = time.time() - began
            left = took / (step - first) * (steps - step)
            print(
                f"step {step}/{steps}  loss {np.mean(losses[-50:]):.4f}  {took / 60:.1f} min, "
                f"{left / 60:.0f} min left",
                flush=True,
            )
        if step in marks:
            save(
                folder / f"{marks[step]}.npz",
                weights,
                {**settings, "step": step, "loss": float(np.mean(losses[-200:]))},
            )
        if step % 100 == 0 or step == steps:
            leaves, _ = jax.tree.flatten((weights, state))
            kept = {f"leaf{k}": np.asarray(leaf) for k, leaf in enumerate(leaves)}
            write(
                folder / "state.npz",
                {"step": step, "settings": json.dumps({**settings, "rate": rate}), **kept},
            )


def save(path: Path, weights: Weights, facts: dict[str, Any]) -> None:
    """Write a checkpoint: the weights as float16 arrays, and `facts` about them as JSON."""
    arrays = {name: np.asarray(value, np.float16) for name, value in weights.items()}
    write(path, {"facts": json.dumps({**facts, "context": CONTEXT, "tokens": len(PIECES)}), **arrays})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=4800)
    parser.add_argument("--rows", type=int, default=24)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--rate", type=float, default=0.004)
    settings = parser.parse_args()
    train(**vars(settings))
    write_cards(settings.folder)


if __name__ == "__main__":
    main()
