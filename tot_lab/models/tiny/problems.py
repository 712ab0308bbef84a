"""Problems of the small models with exact answers: what they are trained on, and what is held out.

A problem is a target and a hand of four numbers: 24 and numbers from 1 to 13 (Game of 24), or a target from
10 to 99 and numbers from 1 to 20 (Countdown). `held_out.json` lists the held-out hands, with a target for
those of Countdown. Training examples are drawn from other hands. The only exception is the hand of a false
claim in `check`, which can be any hand.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache, lru_cache
from itertools import chain, combinations, combinations_with_replacement
from pathlib import Path
from random import Random
from typing import NamedTuple

from tot_lab.core.arithmetic import Term, join_terms
from tot_lab.models.tiny.language import Value, term

State = tuple[Value, ...]
"""The numbers that are left, in ascending order."""

HIGHEST = {True: 13, False: 20}
"""The highest number of a hand: `True` for the Game of 24, `False` for Countdown."""

TARGETS = range(10, 100)
_MASK = (1 << TARGETS.stop) - 1


class Move(NamedTuple):
    """A step `a op b = value`, and the numbers left after it."""

    a: Value
    op: str
    b: Value
    value: Value
    after: State

    def __str__(self) -> str:
        return f"{term(self.a)} {self.op} {term(self.b)} = {self.value}"


class Example(NamedTuple):
    """A training example: the model learns to continue `prompt` and `given`, the start of a reply, with
    `reply`.
    """

    prompt: str
    given: str
    reply: str


# The exact solver.


def _quotient(a: Value, b: Value) -> Value:
    value = Fraction(a) / b
    return value.numerator if value.denominator == 1 else value


def _whole(value: Value) -> Value:
    return value.numerator if isinstance(value, Fraction) and value.denominator == 1 else value


def _results(a: Value, b: Value) -> Iterator[tuple[Value, str, Value, Value]]:
    """Yield (left operand, operator, right operand, result) of the operations on `a` <= `b`. If neither is
    negative, only the non-negative difference is yielded, which is enough to reach the same targets.
    """
    yield b, "+", a, _whole(a + b)
    yield b, "-", a, _whole(b - a)
    if a < 0:
        yield a, "-", b, _whole(a - b)
    yield b, "*", a, _whole(a * b)
    if a:
        yield b, "/", a, _quotient(b, a)
    if b and a != b:
        yield a, "/", b, _quotient(a, b)


def moves(state: State) -> list[Move]:
    """Return the possible steps, without those that differ only in the order of their operands."""
    found: dict[tuple[Value, str, Value], Move] = {}
    for i, j in combinations(range(len(state)), 2):
        rest = [value for k, value in enumerate(state) if k not in (i, j)]
        for a, op, b, value in _results(state[i], state[j]):
            if (a, op, b) not in found:
                found[a, op, b] = Move(a, op, b, value, tuple(sorted([*rest, value])))
    return list(found.values())


def reaches(state: State, target: int) -> bool:
    """Whether `target`, which must be in `TARGETS`, can be made from all numbers of `state`."""
    return bool(_reached(state) >> target & 1)


def _reached(state: State) -> int:
    """Return, as a bit mask, the `TARGETS` that can be made from all numbers of `state`. Lower bits are
    incomplete.
    """
    if len(state) == 1:
        return 1 << state[0] if isinstance(state[0], int) and state[0] in TARGETS else 0
    if len(state) == 2:
        bits = 0
        for *_, value in _results(*state):
            if isinstance(value, int) and 0 <= value < TARGETS.stop:
                bits |= 1 << value
        return bits
    return _reached_of_many(state)


@lru_cache(maxsize=2**20)
def _reached_of_many(state: State) -> int:
    bits = 0
    for i, j in combinations(range(len(state)), 2):
        rest = [value for k, value in enumerate(state) if k not in (i, j)]
        for *_, value in _results(state[i], state[j]):
            bits |= _reached(tuple(sorted([*rest, value])))
    return bits & _MASK


# Training and held-out problems.


@cache
def held_out() -> dict[str, list[list[int]]]:
    """Return the content of `held_out.json`: hands for `game24`, rows of a target and a hand for
    `countdown`.
    """
    listed: dict[str, list[list[int]]] = json.loads(Path(__file__).with_name("held_out.json").read_text())
    return listed


@cache
def training_hands(game24: bool) -> list[State]:
    out = {tuple(hand) for hand in held_out()["game24"]} | {tuple(row[1:]) for row in held_out()["countdown"]}
    every = combinations_with_replacement(range(1, HIGHEST[game24] + 1), 4)
    return [hand for hand in every if hand not in out]


@cache
def held_out_hands(game24: bool) -> list[State]:
    """Return the held-out hands of the Game of 24 (`True`) or of Countdown (`False`)."""
    rows = held_out()["game24" if game24 else "countdown"]
    return [tuple(row if game24 else row[1:]) for row in rows]


class Examples:
    """Draws training examples at random.

    Args:
        random: The source of random numbers.
        hands: Returns the hands of the Game of 24 (`True`) or of Countdown (`False`) to draw from. Some must
            be solvable and some not.
        whole: The probability of drawing a step only from those with an integer result, if there are any.
    """

    def __init__(
        self, random: Random, hands: Callable[[bool], list[State]] = training_hands, whole: float = 0.8
    ) -> None:
        self.random = random
        self.hands = hands
        self.whole = whole

    def draw(self) -> Example:
        kinds = (self.propose, self.value, self.judge, self.check, self.vote, self.joint, self.solve)
        (kind,) = self.random.choices(kinds, (22, 42, 12, 3, 4, 3, 14))
        return kind(self.random.random() < 0.5)

    # Kinds of examples.

    def propose(self, game24: bool) -> Example:
        """Draw an example of proposing steps. Steps to solvable states come first."""
        solvable = self.random.random() < 0.85
        target, state = self.state(game24, self.random.choices((4, 3, 2, 1), (50, 30, 18, 2))[0], solvable)
        count = self.random.choice((1, 1, 2, 3, 3, 4, 5, 5, 5, 6, 7, 8))
        listed = moves(state)
        self.random.shuffle(listed)
        listed.sort(key=lambda move: (not reaches(move.after, target), isinstance(move.value, Fraction)))
        distinct = list({move.after: move for move in reversed(listed)}.values())[::-1]
        return Example(
            f"P{count} {_shown(target, state)}", "", "\n".join(map(str, distinct[:count])) or "none"
        )

    def value(self, game24: bool) -> Example:
        """Draw an example of judging a state: up to two sequences of steps are tried, then a
        verdict follows.
        """
        random = self.random
        solvable = random.random() < 0.5
        target, state = self.state(game24, random.choices((4, 3, 2, 1), (8, 60, 28, 4))[0], solvable)
        lines: list[str] = []
        verdict = 0 if not solvable else 1 if len(state) == 1 else random.choices((1, 2, 3), (70, 25, 5))[0]
        if len(state) > 1:
            lines += [
                _line(self.failing(state, target)) for _ in range(2 if verdict in (0, 3) else verdict - 1)
            ]
        if verdict in (1, 2) and len(state) > 1:
            lines.append(_line(self.winning(state, target)))
        lines.append(_verdict(game24, 1.0 if verdict in (1, 2) else 0.5 if verdict else 0.0))
        return Example(
            f"{'V' if game24 else 'W'} {_shown(target, state)}", "", "\n".join(dict.fromkeys(lines))
        )

    def judge(self, game24: bool) -> Example:
        solvable = self.random.random() < 0.5
        target, state = self.state(game24, self.random.choices((4, 3, 2, 1), (8, 60, 28, 4))[0], solvable)
        return Example(f"J {_shown(target, state)}", "", "yes" if solvable else "no")

    def check(self, game24: bool) -> Example:
        """Draw an example of checking an expression: the steps that compute it, then a verdict."""
        random = self.random
        target, hand = self.problem(game24)
        right = random.random() < 0.5
        way = self.winning(hand, target) if right else self.failing(hand, target)
        claimed = expression(hand, way)
        if right and random.random() < 0.25:
            other = tuple(sorted([*hand[:-1], random.randint(1, HIGHEST[game24])]))
            hand, right = other, other == hand
        prompt = f"{'X' if game24 else 'Y'} {_shown(target, hand)[:-1]}|{claimed}>"
        return Example(prompt, "", "\n".join([*map(str, way), _verdict(game24, float(right))]))

    def vote(self, game24: bool) -> Example:
        """Draw an example of a vote: the steps that continue the best candidate, then its number."""
        target, states = self.siblings(game24)
        good = [k for k, state in enumerate(states) if reaches(state, target)]
        best = self.random.choice(good or range(len(states)))
        way = self.winning(states[best], target) if good else self.failing(states[best], target)
        reply = "\n".join(filter(None, [_line(way), f"best: {best + 1}"]))
        return Example(f"B {target}:{'|'.join(map(_listed, states))}>", "", reply)

    def joint(self, game24: bool) -> Example:
        target, states = self.siblings(game24)
        scores = ", ".join("1" if reaches(state, target) else "0" for state in states)
        return Example(f"A {target}:{'|'.join(map(_listed, states))}>", "", f"[{scores}]")

    def solve(self, game24: bool) -> Example:
        random = self.random
        target, hand = self.problem(game24)
        direct = random.random() < 0.25
        given: list[Move] = []
        if not direct and random.random() < 0.15:  # the reply continues after a mistake
            given = self.failing(hand, target)[: random.choice((1, 2))]
        left = given[-1].after if given else hand
        rest = self.winning(left, target) if reaches(left, target) else self.failing(left, target)
        stated = expression(hand, [*given, *rest])
        answer = f"Answer: {stated}" if game24 else f"Answer:\n{stated}"
        letter = ("RD" if game24 else "SE")[direct]
        before = "".join(f"{move}\n" for move in given)
        steps = "" if direct else "".join(f"{move}\n" for move in rest)
        return Example(f"{letter} {_shown(target, hand)}", before, steps + answer)

    # States and sequences of steps.

    def problem(self, game24: bool, solvable: bool = True) -> tuple[int, State]:
        """Draw a target and a hand from which it can be made, or cannot if `solvable` is false."""
        hands = self.hands(game24)
        drawn = (self.random.choice(hands) for _ in range(200))
        for hand in chain(drawn, hands):
            bits = _reached(hand)
            targets = [k for k in ((24,) if game24 else TARGETS) if bits >> k & 1 == solvable]
            if targets:
                return self.random.choice(targets), hand
        sought = "a solvable" if solvable else "an unsolvable"
        raise ValueError(f"The hands must include {sought} one: got {hands[:5]}.")

    def state(self, game24: bool, size: int, solvable: bool) -> tuple[int, State]:
        """Draw a target and a state of `size` numbers. Most unsolvable states of fewer than four numbers
        follow a wrong step from a solvable hand.
        """
        random = self.random
        while True:
            hopeless = not solvable and (size == 4 or random.random() < 0.2)
            target, state = self.problem(game24, not hopeless)
            mistake = None if solvable or hopeless else random.randint(size + 1, 4)
            while len(state) > size:
                listed = moves(state)
                if reaches(state, target):
                    good = len(state) != mistake
                    listed = [move for move in listed if reaches(move.after, target) == good]
                    if not listed:
                        break
                state = self.step(listed).after
            if len(state) == size and reaches(state, target) == solvable:
                return target, state

    def step(self, listed: list[Move]) -> Move:
        """Draw one of the steps `listed`. Of positive differences, 3 % get swapped operands."""
        if self.whole and self.random.random() < self.whole:
            listed = [move for move in listed if isinstance(move.value, int)] or listed
        move = self.random.choice(listed)
        if move.op == "-" and move.value > 0 and self.random.random() < 0.03:
            rest = list(move.after)
            rest.remove(move.value)
            return Move(move.b, "-", move.a, -move.value, tuple(sorted([*rest, -move.value])))
        return move

    def siblings(self, game24: bool) -> tuple[int, list[State]]:
        """Draw a target and up to six states, each after one step from the same solvable state."""
        target, parent = self.state(game24, self.random.choices((4, 3, 2), (6, 3, 1))[0], True)
        found = list({move.after for move in moves(parent)})
        good = [state for state in found if reaches(state, target)]
        bad = [state for state in found if not reaches(state, target)]
        count = self.random.randint(2, 6)
        some = self.random.sample(good, min(len(good), self.random.randint(0, count)))
        some += self.random.sample(bad, min(len(bad), count - len(some)))
        self.random.shuffle(some)
        return (target, some) if some else self.siblings(game24)

    def winning(self, state: State, target: int) -> list[Move]:
        """Draw steps that make `target` from all numbers of `state`, which must be solvable."""
        way = []
        while len(state) > 1:
            way.append(self.random.choice([one for one in moves(state) if reaches(one.after, target)]))
            state = way[-1].after
        return way

    def failing(self, state: State, target: int) -> list[Move]:
        """Draw up to three sequences of steps that miss `target`, and return the one that comes closest."""
        ways: list[tuple[float, int, list[Move]]] = []
        for _ in range(12):
            way, left = list[Move](), state
            while len(left) > 1:
                listed = moves(left)
                move = self.random.choice(listed)
                way.append(self.random.choice(listed) if isinstance(move.value, Fraction) else move)
                left = way[-1].after
            if left != (target,):
                ways.append((abs(float(left[0]) - target), len(ways), way))
            if len(ways) == 3:
                break
        return min(ways)[2]


def expression(hand: State, way: list[Move]) -> str:
    """Return the expression that the steps of `way` compute from all numbers of `hand`."""
    terms = [Term(Fraction(value), str(value)) for value in hand]
    for move in way:
        join_terms(terms, move.a, move.op, move.b, Fraction(move.value))
    return terms[0].expression


def _line(way: list[Move]) -> str:
    return ", ".join(map(str, way))


def _listed(state: State) -> str:
    return " ".join(map(str, state))


def _shown(target: int, state: State) -> str:
    return f"{target}:{_listed(state)}>"


def _verdict(game24: bool, score: float) -> str:
    if game24:
        return {1.0: "sure", 0.5: "likely", 0.0: "impossible"}[score]
    return f"score: {score:g}"
