"""Measures what a small model can do on held-out problems, and writes the results to its model card.

Judgements are measured on states that the model itself proposes from held-out hands, since a search judges
such states.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from scipy.stats import rankdata

from tot_lab.core.arithmetic import value_of
from tot_lab.models.tiny.engine import Engine, Wanted, log_softmax
from tot_lab.models.tiny.language import END, encode_prompt, encode_reply
from tot_lab.models.tiny.network import Decoder, Network
from tot_lab.models.tiny.problems import Examples, State, held_out, held_out_hands, moves, reaches

Problem = tuple[int, State]
"""A target and the numbers to make it from."""

_SCORES = {"sure": 1.0, "score: 1": 1.0, "likely": 0.5, "score: 0.5": 0.5, "impossible": 0.0, "score: 0": 0.0}


def card(path: Path, most: int | None = None) -> dict[str, Any]:
    """Measure the checkpoint at `path`, on at most `most` problems of each game.

    Rates are from 0 to 1. `recall` has for k = 1, 3 and 5 the fraction of problems for which at least one of
    the first k proposed steps leads to a solvable state.
    """
    network = Network(path)
    engine = Engine(network)
    result: dict[str, Any] = {**network.facts, "held_out_loss": _loss(network)}
    for name in ("game24", "countdown"):
        result[name] = _game(engine, name == "game24", _problems(name)[:most])
    return result


def _problems(name: str) -> list[Problem]:
    if name == "game24":
        return [(24, hand) for hand in held_out_hands(True) if reaches(hand, 24)]
    return [(row[0], tuple(row[1:])) for row in held_out()["countdown"]]


def _game(engine: Engine, game24: bool, problems: list[Problem]) -> dict[str, Any]:
    first, second = "RS"[not game24], "VW"[not game24]
    proposed = [
        list(_proposed(one, text)) for one, text in zip(problems, _ask(engine, "P5", problems), strict=True)
    ]
    legal = [state for states in proposed for state in states if state is not None]
    lines = sum(map(len, proposed))
    good = [
        [state is not None and reaches(state, target) for state in states]
        for (target, _), states in zip(problems, proposed, strict=True)
    ]
    greedy = _ask(engine, first, problems)
    sampled = _ask(engine, first, problems, temperature=1.0, samples=4)
    met = _met(engine, problems, proposed)
    judged = _ask(engine, second, met, temperature=1.0, samples=3)
    scores = [
        np.mean([_SCORES.get(text.rpartition("\n")[2], 0.0) for text in judged[k :: len(met)]])
        for k in range(len(met))
    ]
    yes = _yes(engine, met)
    truth = np.array([reaches(state, target) for target, state in met])
    return {
        "problems": len(problems),
        "legal_steps": len(legal) / max(lines, 1),
        "solvable_steps": sum(map(sum, good)) / max(len(legal), 1),
        "recall": {k: float(np.mean([any(row[:k]) for row in good])) for k in (1, 3, 5)},
        "greedy_success": float(np.mean([_solved(*pair) for pair in zip(problems, greedy, strict=True)])),
        "sampled_success": float(
            np.mean([_solved(*pair) for pair in zip(problems * 4, sampled, strict=True)])
        ),
        "states_judged": len(met),
        "solvable_states": float(truth.mean()) if met else None,
        "auc_of_values": {
            "all": _auc(scores, truth),
            **{f"{size} numbers": _auc(*_only(met, size, scores, truth)) for size in (3, 2)},
        },
        "auc_of_yes": _auc(yes, truth),
        "calibration_of_values": _calibration(np.array(scores), truth),
        "calibration_of_yes": _calibration(yes, truth),
    }


def _met(engine: Engine, problems: list[Problem], proposed: list[list[State | None]]) -> list[Problem]:
    """Return the states after one proposed step and, for each solvable one of them, the states after a second
    step, for which the model makes up to three proposals. Duplicates are removed.
    """
    after = [
        (target, state)
        for (target, _), states in zip(problems, proposed, strict=True)
        for state in states
        if state is not None
    ]
    goes_on = [one for one in after if reaches(one[1], one[0])]
    texts = _ask(engine, "P3", goes_on)
    later = [
        (one[0], state)
        for one, text in zip(goes_on, texts, strict=True)
        for state in _proposed(one, text)
        if state
    ]
    return list(dict.fromkeys([*after, *later]))


def _ask(
    engine: Engine, letter: str, problems: Sequence[Problem], temperature: float = 0.0, samples: int = 1
) -> list[str]:
    """Return the replies to a request of the kind `letter`: one for each problem, then a second one for each,
    and so on.
    """
    futures = [
        engine.write(_wanted(f"{letter} {target}:{' '.join(map(str, state))}>", temperature, sample))
        for sample in range(samples)
        for target, state in problems
    ]
    return [future.result().text for future in futures]


def _wanted(request: str, temperature: float, sample: int) -> Wanted:
    tokens = tuple(encode_prompt(request))
    return Wanted(tokens, 128 - len(tokens), temperature, 1.0, (), f"{request} {sample}".encode(), 0, None)


def _yes(engine: Engine, problems: Sequence[Problem]) -> Any:
    """Return p(yes) / (p(yes) + p(no)) for the judgement of each problem."""
    futures = [
        engine.write(
            _wanted(f"J {target}:{' '.join(map(str, state))}>", 0.0, 0)._replace(most=1, alternatives=10)
        )
        for target, state in problems
    ]
    tops = [future.result().logprobs[0].top for future in futures]
    return np.array([1 / (1 + np.exp(top.get("no", -30.0) - top.get("yes", -30.0))) for top in tops])


def _proposed(problem: Problem, text: str) -> Iterator[State | None]:
    """Yield the state after each step in `text`, or `None` for a line that is no legal step."""
    possible = moves(problem[1])
    turned = [move._replace(a=move.b, b=move.a) for move in possible if move.op in "+*"]
    known = {str(move): move.after for move in [*possible, *turned]}
    for line in text.splitlines():
        yield known.get(line)


def _solved(problem: Problem, text: str) -> bool:
    target, hand = problem
    read = value_of(text.partition("Answer:")[2].strip())
    return read is not None and read[0] == target and sorted(read[1]) == list(hand)


def _only(met: list[Problem], size: int, scores: Any, truth: Any) -> tuple[Any, Any]:
    some = [k for k, (_, state) in enumerate(met) if len(state) == size]
    return np.array(scores)[some], truth[some]


def _auc(scores: Any, truth: Any) -> float | None:
    """Return the probability that a solvable state scores higher than an unsolvable one; ties count half.
    `None` if all states are solvable, or none is.
    """
    yes = int(truth.sum())
    no = len(truth) - yes
    if not yes or not no:
        return None
    return float((rankdata(scores)[truth].sum() - yes * (yes + 1) / 2) / (yes * no))


def _calibration(scores: Any, truth: Any) -> list[dict[str, float]]:
    """Return for each fifth of the range 0 to 1 in which there are scores: their mean, the fraction of their
    states that are solvable, and the number of their states.
    """
    bins = np.minimum((np.asarray(scores) * 5).astype(int), 4)
    return [
        {
            "score": float(scores[bins == k].mean()),
            "solvable": float(truth[bins == k].mean()),
            "states": int((bins == k).sum()),
        }
        for k in range(5)
        if (bins == k).any()
    ]


def _loss(network: Network, count: int = 500) -> float:
    """Return the mean cross-entropy of the tokens of replies to examples from held-out hands, in nats."""
    examples = Examples(Random("card"), held_out_hands)
    total, tokens = 0.0, 0
    drawn = [examples.draw() for _ in range(count)]
    for first in range(0, count, 50):
        rows = [
            (encode_prompt(one.prompt) + encode_reply(one.given), [*encode_reply(one.reply), END])
            for one in drawn[first : first + 50]
        ]
        decoder = Decoder(network, len(rows))
        texts = [given + reply for given, reply in rows]
        for at in range(max(map(len, texts)) - 1):
            some = [k for k, text in enumerate(texts) if at < len(text) - 1]
            logprobs = log_softmax(decoder.step(some, [texts[k][at] for k in some]))
            for k, row in zip(some, logprobs, strict=True):
                if at >= len(rows[k][0]) - 1:
                    total -= float(row[texts[k][at + 1]])
                    tokens += 1
    return total / tokens


def write_cards(folder: Path) -> None:
    """Measure the checkpoints in `folder`, and write the results to `card.json` there."""
    cards = {path.stem: card(path) for path in sorted(folder.glob("[0-9]*.npz"))}
    (folder / "card.json").write_text(json.dumps(cards, indent=1) + "\n")
