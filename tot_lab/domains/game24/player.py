"""A simulated player of the Game of 24, which needs no key and no network.

It reads only the text of a prompt and the sampling settings, never the purpose of a call or its node. It
knows the game perfectly; `skill` and `noise` set how often it errs.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from random import Random
from typing import NamedTuple

from tot_lab.core.arithmetic import OPERATORS, TARGET, joined, number, value_of, win_share
from tot_lab.core.calls import Call, TokenLogprob
from tot_lab.domains.game24 import step_line, terms_after
from tot_lab.models.simulated import JUDGING, Share, Simulated, without_candidates

_KINDS = (  # kinds of prompts, by their closing words
    ("critique", re.compile(r"`SATISFIED:`")),
    ("none", re.compile(r"nothing is left to join", re.I)),
    *JUDGING,
    ("value", re.compile(r"\A(?>.*?\bsure\b).*\bimpossible\b", re.I | re.S)),
    ("propose", re.compile(r"(\d{1,4}) different next steps", re.I)),
    ("sample", re.compile(r"\bone (?:concise )?next step", re.I)),
    ("answer", re.compile(r"^Answer:", re.M)),
)
_LEFT = re.compile(r"numbers left:([-\d/. \t]*)", re.I)
_STEP_LEFT = re.compile(r"\(left:([-\d/. \t]*)\)", re.I)
_HAND = re.compile(r"(?<![-\d/.])(\d{1,2}(?:[ \t,]+\d{1,2}){3})(?![ \t]*[-+*/=\d])")
_GARBLED = ("", "...", "I have lost the thread here.", '{"steps": [{"a": ', "?? ?? ??")
_UNKNOWN = "I am a simulated player of the Game of 24, and I do not understand this prompt."

_Numbers = tuple[Fraction, ...]


class _Move(NamedTuple):
    a: Fraction
    op: str
    b: Fraction
    line: str
    left: _Numbers


class _Request(NamedTuple):
    """A parsed prompt."""

    kind: str
    """One of `_KINDS`, or "" if the prompt is not understood."""

    steps: int = 1
    """Number of steps requested."""

    left: _Numbers = ()
    """The numbers left."""

    candidates: tuple[_Numbers, ...] = ()
    """The numbers left after each candidate, for `vote` and `joint`."""


class SimGame24(Simulated):
    """A simulated player of the Game of 24.

    If a call requests log-probabilities of yes or no, the reply is that one token.
    """

    kind = "sim/game24"

    skill: Share = 0.8
    """Probability that a step keeps 24 reachable, if there are such steps and others, 0–1."""

    noise: Share = 0.1
    """Probability that a judgement is the opposite of the truth, 0–1."""

    garble: Share = 0.0
    """Share of unreadable replies, 0–1."""

    def written(self, call: Call, random: Random) -> str | Sequence[TokenLogprob]:
        prompt = call.prompt
        request = _parse_prompt(prompt)
        if request.kind == "judge" and call.logprobs:
            return [self._verdict(request.left, random)]
        if request.kind == "":
            return _UNKNOWN
        if random.random() < self.garble:
            return random.choice(_GARBLED)
        text = "none"
        if request.kind in ("sample", "propose"):
            text = _format_moves(self._moves(request.left, request.steps, random), call)
        elif request.kind == "value":
            text = self._judgement(request.left, random)
        elif request.kind == "judge":
            text = "yes" if self._believes(request.left, random) else "no"
        elif request.kind == "joint":
            text = json.dumps([self._score(left, random) for left in request.candidates])
        elif request.kind == "vote":
            scores = [self._score(left, random) for left in request.candidates]
            text = f"best: {scores.index(max(scores)) + 1}"
        elif request.kind == "answer":
            text = self._play(request.left, "step by step" in prompt, random)
        elif request.kind == "critique":
            _, found, rest = prompt.rpartition("<answer>\n")
            text = self._critique(request.left, rest.partition("\n</answer>")[0] if found else "", random)
        return text

    def _critique(self, hand: _Numbers, given: str, random: Random) -> str:
        """A critique of the answer `given`, which is right if it makes 24 of the hand."""
        answer = given.partition("=")[0].strip()
        value, used = value_of(answer) or (None, [])
        right = value == TARGET and tuple(sorted(used)) == hand
        if right != (random.random() < self.noise):
            return f"SATISFIED: {answer} makes {TARGET} of the four numbers."
        made = "cannot be worked out" if value is None else f"makes {value}"
        return f"UNSATISFIED: {answer} {made}, or not of these numbers. Begin with another pair."

    def _moves(self, left: _Numbers, count: int, random: Random) -> list[_Move]:
        """Up to `count` different moves from `left`, in random order."""
        pools = [list(pool) for pool in _possible(left)]
        chosen: list[_Move] = []
        while len(chosen) < count and any(pools):
            first = 0 if random.random() < self.skill else 1
            pool = pools[first] or pools[1 - first]
            chosen.append(pool.pop(random.randrange(len(pool))))
        random.shuffle(chosen)
        return chosen

    def _believes(self, left: _Numbers, random: Random) -> bool:
        """Whether the player believes that 24 can be reached from `left`."""
        return (win_share(left) > 0) != (random.random() < self.noise)

    def _judgement(self, left: _Numbers, random: Random) -> str:
        believes = self._believes(left, random)
        if len(left) == 1:
            return f"The result is {left[0]}.\n{'sure' if believes else 'impossible'}"
        tried = random.choice([move for pool in _possible(left) for move in pool]).line
        label = "impossible"
        if believes:
            label = "sure" if len(left) == 2 or random.random() < 0.5 else "likely"
        return f"I tried {tried} and others.\n{label}"

    def _verdict(self, left: _Numbers, random: Random) -> TokenLogprob:
        """Yes or no as a token, with the log-probabilities of both."""
        likely = random.uniform(0.6, 0.95)
        yes = likely if self._believes(left, random) else 1 - likely
        top = {"yes": math.log(yes), "no": math.log(1 - yes)}
        word = max(top, key=lambda label: top[label])
        return TokenLogprob(word, top[word], top)

    def _score(self, left: _Numbers, random: Random) -> float:
        believes = bool(left) and self._believes(left, random)
        if len(left) == 1:
            return float(believes)
        return round(random.uniform(0.7, 0.95) if believes else random.uniform(0.0, 0.3), 2)

    def _play(self, hand: _Numbers, reasoning: bool, random: Random) -> str:
        """A whole game in one reply."""
        left, lines = hand, list[str]()
        while len(left) > 1:
            move = self._moves(left, 1, random)[0]
            lines.append(move.line)
            left = move.left
        terms = terms_after(" ".join(map(str, hand)), tuple(lines)) or ()
        answer = f"Answer: {terms[0].expression}"
        return "\n".join([*lines, answer]) if reasoning else answer


def _format_moves(moves: Sequence[_Move], call: Call) -> str:
    """`moves` as plain text, or as JSON if the call has a schema: one object, or a list of them."""
    if call.response_format is None or not moves:
        return "\n".join(move.line for move in moves) or "none"
    picks = [{"a": str(move.a), "op": move.op, "b": str(move.b)} for move in moves]
    return json.dumps({"steps": picks} if "steps" in call.response_format.get("properties", {}) else picks[0])


@lru_cache(maxsize=4096)
def _parse_prompt(prompt: str) -> _Request:
    """Parse `prompt`.

    The last paragraph before the candidates takes precedence over the whole prompt, which may quote another.
    """
    if str(TARGET) not in prompt:
        return _Request("")
    for text in (without_candidates(prompt).rpartition("\n\n")[2], prompt):
        for kind, words in _KINDS:
            match = words.search(text)
            if match is not None:
                return _parse_kind(kind, int(match[1]) if kind == "propose" else 1, prompt)
    return _Request("")


def _parse_kind(kind: str, count: int, prompt: str) -> _Request:
    if kind in ("vote", "joint"):
        if kind == "joint":
            listed = prompt.rpartition("Candidates")[2]
            rows = [line for line in listed.split("\n") if re.match(r"\d+\. ", line)]
        else:
            rows = re.split(r"^Candidate \d+:", prompt, flags=re.M)[1:]
        candidates = tuple(_last_left(row) for row in rows)
        return _Request(kind, candidates=candidates) if candidates else _Request("")
    hand = _HAND.search(prompt)
    left = _numbers(hand[1].replace(",", " ")) if hand else ()
    if kind in ("answer", "critique"):
        playable = all(1 <= value <= 13 for value in left)
    else:
        left, playable = _last_left(prompt, left), True
    return _Request(kind, count, left) if left and playable else _Request("")


def _last_left(text: str, otherwise: _Numbers = ()) -> _Numbers:
    """The last list of numbers left in `text`. A separate line takes precedence over steps, which may be an
    example.
    """
    found = _LEFT.findall(text) or _STEP_LEFT.findall(text)
    return _numbers(found[-1]) if found else otherwise


def _numbers(text: str) -> _Numbers:
    """Up to four numbers in ascending order. Empty if `text` is anything else."""
    read = [number(word.rstrip(".")) for word in text.split()]
    values = [value for value in read if value is not None]
    return tuple(sorted(values)) if len(values) == len(read) <= 4 else ()


@lru_cache(maxsize=4096)
def _possible(left: _Numbers) -> tuple[tuple[_Move, ...], tuple[_Move, ...]]:
    """All distinct moves from `left`: those after which 24 can be reached, and the others."""
    moves: dict[str, _Move] = {}
    for i, a in enumerate(left):
        for j, b in enumerate(left):
            for op in OPERATORS:
                value = joined(a, op, b)
                if i == j or value is None or (op in "+*" and i < j):
                    continue
                rest = [other for k, other in enumerate(left) if k not in (i, j)]
                line = step_line(a, op, b, value, rest)
                moves[line] = _Move(a, op, b, line, tuple(sorted([*rest, value])))
    good = tuple(move for move in moves.values() if win_share(move.left) > 0)
    return good, tuple(move for move in moves.values() if win_share(move.left) == 0)
