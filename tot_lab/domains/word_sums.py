"""Arithmetic word problems of two to five steps, which are hard to compute without a calculator.

The problems are generated from templates and a fixed pseudo-random sequence, so they are the same on every
machine. An answer is right if its number is exact. The domain never computes a step for the model. A step
with a wrong result is not corrected, and `solvable` is then `False`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Hashable
from fractions import Fraction
from functools import lru_cache
from typing import Literal, NamedTuple

from tot_lab.core.arithmetic import joined, number, plain
from tot_lab.core.reading.answers import stated_answer
from tot_lab.core.reading.mathematics import last_number
from tot_lab.core.task import Task
from tot_lab.domains.stated import StepwiseDomain

COUNT = 240
"""Number of problems."""

_WHO = ("Ada", "Bruno", "Celia", "Dario", "Elsa", "Fabio", "Greta", "Hugo", "Ines", "Jonas", "Klara", "Leo")
_EQUATION = re.compile(
    r"(?<![\d.])(\d{1,9}) ?([-+*/]) ?(\d{1,9}) ?= ?(-?\d{1,9}(?:\.\d{1,9}|/\d{1,9})?)(?!\d)", re.ASCII
)

# A template has three parts: the text; the range of each letter, as (low, high), or as ("*x", low, high) for
# x times a number in that range; and the calculations, in which s1, s2, … are earlier results.
_TEMPLATES: tuple[tuple[str, dict[str, tuple[object, ...]], tuple[str, ...]], ...] = (
    (
        "A mill grinds {a} sacks of flour a week. After {b} weeks a flood spoils {c} sacks. How many sacks "
        "are good?",
        {"a": (412, 987), "b": (123, 389), "c": (2100, 9800)},
        ("a * b", "s1 - c"),
    ),
    (
        "{who} copies {a} pages a year. Before the last {b} years there were already {c} copied pages. How "
        "many pages are copied by now?",
        {"a": (2130, 7890), "b": (23, 58), "c": (13100, 98700)},
        ("a * b", "c + s1"),
    ),
    (
        "A theatre with {a} seats was full on {b} evenings. On {c} other evenings {d} seats were taken. How "
        "many seats were taken on all these evenings together?",
        {"a": (713, 1480), "b": (117, 296), "c": (34, 96), "d": (213, 688)},
        ("a * b", "c * d", "s1 + s2"),
    ),
    (
        "A harbour unloads {a} crates a day for {b} days. Each crate holds {c} tins, and {d} tins are "
        "dented. How many tins are sound?",
        {"a": (312, 864), "b": (43, 97), "c": (36, 144), "d": (10400, 98600)},
        ("a * b", "s1 * c", "s2 - d"),
    ),
    (
        "A keeper of bees packs {a} jars of honey into boxes of {b} jars and sells each box for {c} coins. "
        "The boxes cost {d} coins in all. How many coins remain?",
        {"b": (13, 37), "a": ("*b", 217, 893), "c": (119, 478), "d": (1900, 9700)},
        ("a / b", "s1 * c", "s2 - d"),
    ),
    (
        "An orchard has {a} rows of {b} apple trees and {c} rows of {d} pear trees. Every tree bears {e} "
        "fruits. How many fruits does the orchard bear?",
        {"a": (37, 93), "b": (126, 389), "c": (28, 87), "d": (113, 374), "e": (114, 467)},
        ("a * b", "c * d", "s1 + s2", "s3 * e"),
    ),
    (
        "{who} buys {a} chairs for {b} coins each and {c} tables for {d} coins each, and pays from a chest "
        "of {e} coins. How many coins are left in the chest?",
        {"a": (213, 487), "b": (34, 97), "c": (121, 264), "d": (143, 389), "e": (151000, 398000)},
        ("a * b", "c * d", "s1 + s2", "e - s3"),
    ),
    (
        "A railway runs {a} trains of {b} seats and {c} trains of {d} seats a week. In {e} weeks {f} seats "
        "stayed empty. How many seats were taken in these weeks?",
        {"a": (112, 389), "b": (214, 687), "c": (43, 98), "d": (713, 1380), "e": (14, 47),
         "f": (120000, 880000)},
        ("a * b", "c * d", "s1 + s2", "s3 * e", "s4 - f"),
    ),
    (
        "A quarry sends {a} blocks of {b} kilograms and {c} slabs of {d} kilograms to each of {e} building "
        "sites, and keeps {f} kilograms of stone. How many kilograms of stone is that in all?",
        {"a": (37, 86), "b": (213, 874), "c": (112, 376), "d": (34, 97), "e": (23, 68),
         "f": (140000, 970000)},
        ("a * b", "c * d", "s1 + s2", "s3 * e", "s4 + f"),
    ),
    (
        "A library lends {a} books a day for {b} days and {c} maps a day for {d} days. Of all that, {e} came "
        "back late, and each late one cost {f} coins. {who} counts the coins paid, and {g} coins more from a "
        "gift. How many coins are there?",
        {"a": (113, 489), "b": (121, 298), "c": (17, 64), "d": (112, 287), "e": (1130, 8740), "f": (13, 67),
         "g": (21000, 98000)},
        ("e * f", "s1 + g"),
    ),
)  # fmt: skip


class Problem(NamedTuple):
    """A word problem with its numbers and calculations."""

    given: dict[str, int]
    """The numbers of the problem, by letter."""

    steps: tuple[str, ...]
    """Calculations `x op y` of letters and earlier results, which are s1, s2, …"""

    @property
    def results(self) -> list[Fraction]:
        """The result of each step. The last is the answer."""
        known = {name: Fraction(value) for name, value in self.given.items()}
        for k, step in enumerate(self.steps, 1):
            left, op, right = step.split()
            value = joined(known[left], op, known[right])
            assert value is not None
            known[f"s{k}"] = value
        return [known[f"s{k}"] for k in range(1, len(self.steps) + 1)]


class WordSums(StepwiseDomain):
    """Arithmetic word problems. `word_sums` makes its tasks."""

    kind = "word_sums"
    player = "sim/agent"

    grading: Literal["number"] = "number"
    """Always `number`."""

    step_form = (
        "A step is one calculation with its result, such as `612 * 48 = 29376`. Once the number that is "
        "asked for is known, the step is `Answer: ` and the number."
    )

    @classmethod
    def task_factory(cls) -> Callable[..., Task]:
        return word_sums

    @classmethod
    def example_tasks(cls) -> Callable[..., list[Task]]:
        return word_sums_tasks

    def read_answer(self, task: Task, text: str) -> str | None:
        r"""Return the text after the last `Answer:` that begins a line, or else the content of the last
        `\boxed{…}`, or else the last number.
        """
        stated = stated_answer(text)
        if stated is not None:
            return stated
        value = last_number(text)
        return None if value is None else str(value)

    def holds(self, step: str) -> bool | None:
        """Return whether the calculations in `step` are right. Returns `None` if it contains none."""
        found = _EQUATION.findall(plain(step.replace(",", "").replace("`", "")))
        checked = [joined(Fraction(a), op, Fraction(b)) == number(stated) for a, op, b, stated in found]
        return all(checked) if checked else None

    def same(self, task: Task, answer: str) -> Hashable:
        value = last_number(answer)
        return super().same(task, answer) if value is None else value


def word_sums(number: int) -> Task:
    """Make the task of arithmetic word problem `number`, from 1 to 240."""
    if number not in range(1, COUNT + 1):
        raise ValueError(f"Unknown word problem: got number={number!r}. Pass a number from 1 to {COUNT}.")
    return _task(number - 1)


def word_sums_tasks(count: int) -> list[Task]:
    """Make the tasks of the first `count` of 240 arithmetic word problems.

    Any ten consecutive problems use every template once.
    """
    if count not in range(1, COUNT + 1):
        raise ValueError(f"count must be from 1 to {COUNT}, the number of word problems: got {count!r}.")
    return [_task(k) for k in range(count)]


@lru_cache(maxsize=1024)
def problem_in(text: str) -> Problem | None:
    """Return the first word problem of this domain in `text`. Returns `None` if it is not found."""
    found = [
        (match.start(), match, steps) for pattern, steps in _patterns() for match in pattern.finditer(text)
    ]
    if not found:
        return None
    _, match, steps = min(found, key=lambda one: one[0])
    given = {name: int(value) for name, value in match.groupdict().items() if name != "who"}
    return Problem(given, steps)


@lru_cache(maxsize=1)
def _patterns() -> list[tuple[re.Pattern[str], tuple[str, ...]]]:
    def slot(match: re.Match[str]) -> str:
        return r"(?P<who>[A-Z][a-z]+)" if match[1] == "who" else rf"(?P<{match[1]}>\d+)"

    return [
        (re.compile(re.sub(r"\\\{(\w+)\\\}", slot, re.escape(text)).replace(r"\ ", r"\s")), steps)
        for text, _, steps in _TEMPLATES
    ]


def _task(index: int) -> Task:
    text, ranges, steps = _TEMPLATES[index % len(_TEMPLATES)]
    given: dict[str, int] = {}
    for name, bounds in ranges.items():
        low, high = bounds[-2], bounds[-1]
        assert isinstance(low, int)
        assert isinstance(high, int)
        value = low + _hash(index, name) % (high - low + 1)
        given[name] = value * given[str(bounds[0])[1:]] if len(bounds) == 3 else value
    question = text.format(who=_WHO[_hash(index, "who") % len(_WHO)], **given)
    return Task(
        domain=WordSums(),
        question=question,
        reference=int(Problem(given, steps).results[-1]),
        id=f"word_sums-{index + 1}",
    )


def _hash(index: int, name: str) -> int:
    """Return a pseudo-random number, equal on every machine."""
    return int.from_bytes(hashlib.sha256(f"{index} {name}".encode()).digest()[:6], "big")
