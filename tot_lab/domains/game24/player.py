"""A simulated player of the Game of 24, which needs no API key and no network.

It reads only the text of a prompt and the sampling settings, never the purpose of a call or its node. It
knows the game perfectly. `skill` and `noise` determine the frequency of its mistakes.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import cached_property, lru_cache

from tot_lab.core.arithmetic import OPERATORS, TARGET, joined, number, value_of, win_share
from tot_lab.domains.game24 import step_line, terms_after
from tot_lab.domains.player import Move, Player, Responder, candidates_in
from tot_lab.models.simulated import JUDGING, Probability

_FORMS = (
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

_Numbers = tuple[Fraction, ...]


class _Responder(Responder["SimGame24"]):
    """Composes replies from the numbers left that the prompt states."""

    forms = _FORMS

    @cached_property
    def left(self) -> _Numbers:
        """The numbers that are left. Empty if the prompt does not state them."""
        return _stated_numbers(self.text, self.form in ("answer", "critique"))

    @cached_property
    def candidates(self) -> list[_Numbers]:
        """The numbers left after each candidate."""
        return [_last_numbers(text) for text in candidates_in(self.text)]

    def understands(self) -> bool:
        listed = self.candidates if self.form in ("vote", "joint") else self.left
        return str(TARGET) in self.text and bool(listed)

    # Moves.

    def sample(self) -> str:
        """Return one step."""
        return self.propose()

    def propose(self) -> str:
        """Return different steps, as text or as JSON."""
        return self.format("steps", self.moves(self.left, self.count))

    def moves(self, left: _Numbers, count: int) -> list[Move]:
        """Return up to `count` different moves from `left`, in random order."""
        pools = [list(pool) for pool in _moves_by_outcome(left)]
        chosen: list[Move] = []
        while len(chosen) < count and any(pools):
            first = 0 if self.random.random() < self.player.skill else 1
            pool = pools[first] or pools[1 - first]
            chosen.append(pool.pop(self.random.randrange(len(pool))))
        self.random.shuffle(chosen)
        return chosen

    def answer(self) -> str:
        """Return a whole game in one reply."""
        left, lines = self.left, list[str]()
        while len(left) > 1:
            move = self.moves(left, 1)[0]
            lines.append(move.line)
            left = move.after
        terms = terms_after(" ".join(map(str, self.left)), tuple(lines)) or ()
        answer = f"Answer: {terms[0].expression}"
        return "\n".join([*lines, answer]) if "step by step" in self.text else answer

    # Judgements.

    def reaches(self, left: _Numbers) -> bool:
        """Return whether the player believes that 24 can be reached from `left`."""
        return self.judgement_of(win_share(left) > 0)

    def believes(self) -> bool:
        return self.reaches(self.left)

    def scores(self) -> list[float]:
        return [self._score(left) for left in self.candidates]

    def _score(self, left: _Numbers) -> float:
        believed = bool(left) and self.reaches(left)
        return float(believed) if len(left) == 1 else self.score_of(believed)

    def value(self) -> str:
        """Return a reason in one line, and the label `sure`, `likely` or `impossible`."""
        believed = self.believes()
        if len(self.left) == 1:
            return f"The result is {self.left[0]}.\n{'sure' if believed else 'impossible'}"
        tried = self.random.choice([move for pool in _moves_by_outcome(self.left) for move in pool]).line
        label = "impossible"
        if believed:
            label = "sure" if len(self.left) == 2 or self.random.random() < 0.5 else "likely"
        return f"I tried {tried} and others.\n{label}"

    def critique(self) -> str:
        """Return a critique of the answer in the prompt. An answer is right if it makes 24 of the hand."""
        _, found, rest = self.text.rpartition("<answer>\n")
        answer = rest.partition("\n</answer>")[0].partition("=")[0].strip() if found else ""
        value, used = value_of(answer) or (None, [])
        if self.judgement_of(value == TARGET and tuple(sorted(used)) == self.left):
            return f"SATISFIED: {answer} makes {TARGET} of the four numbers."
        made = "cannot be worked out" if value is None else f"makes {value}"
        return f"UNSATISFIED: {answer} {made}, or not of these numbers. Begin with another pair."


class SimGame24(Player):
    """A simulated player of the Game of 24.

    If a call requests log-probabilities of yes or no, the reply is one token, yes or no.
    """

    kind = "sim/game24"
    responder = _Responder
    garbled = ("", "...", "I have lost the thread here.", '{"steps": [{"a": ', "?? ?? ??")
    unknown = "I am a simulated player of the Game of 24, and I do not understand this prompt."

    skill: Probability = 0.8
    """Probability that a step keeps 24 within reach, if such steps and other steps are possible, 0–1."""


@lru_cache(maxsize=4096)
def _stated_numbers(prompt: str, whole: bool) -> _Numbers:
    """Return the last numbers left in `prompt` or, if `whole` is true, the four numbers of the hand.

    The result is empty if `prompt` does not state them.
    """
    found = _HAND.search(prompt)
    hand = _numbers(found[1].replace(",", " ")) if found else ()
    if not whole:
        return _last_numbers(prompt, hand)
    return hand if all(1 <= value <= 13 for value in hand) else ()


def _last_numbers(text: str, otherwise: _Numbers = ()) -> _Numbers:
    """Return the last list of numbers left in `text`.

    A line `Numbers left: …` takes precedence over a step with `(left: …)`, which may be an example. Returns
    `otherwise` if there is neither.
    """
    found = _LEFT.findall(text) or _STEP_LEFT.findall(text)
    return _numbers(found[-1]) if found else otherwise


def _numbers(text: str) -> _Numbers:
    """Return up to four numbers in ascending order. The result is empty if `text` is anything else."""
    read = [number(word.rstrip(".")) for word in text.split()]
    values = [value for value in read if value is not None]
    return tuple(sorted(values)) if len(values) == len(read) <= 4 else ()


@lru_cache(maxsize=4096)
def _moves_by_outcome(left: _Numbers) -> tuple[tuple[Move, ...], tuple[Move, ...]]:
    """Return two lists of distinct moves from `left`: moves after which 24 can be reached, and others."""
    moves: dict[str, Move] = {}
    for i, a in enumerate(left):
        for j, b in enumerate(left):
            for op in OPERATORS:
                value = joined(a, op, b)
                if i == j or value is None or (op in "+*" and i < j):
                    continue
                rest = [other for k, other in enumerate(left) if k not in (i, j)]
                line = step_line(a, op, b, value, rest)
                moves[line] = Move(line, {"a": str(a), "op": op, "b": str(b)}, tuple(sorted([*rest, value])))
    good = tuple(move for move in moves.values() if win_share(move.after) > 0)
    return good, tuple(move for move in moves.values() if win_share(move.after) == 0)
