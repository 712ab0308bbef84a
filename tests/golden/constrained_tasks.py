"""Writes the tasks of the constrained domain anew: `python tests/golden/constrained_tasks.py`.

The 120 tasks are data (`tot_lab/domains/constrained/tasks.jsonl`); this is how they came about, from a fixed
stream of numbers.

Rule: no task without a solution. A text is written by the rules until one keeps them all; a design is drawn
first, and only rules that it keeps are asked for, each of which most designs by chance break. What keeps
them all is the task's reference, and stands in no prompt.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from golden.constrained_answers import DesignLines, Stream, make_answer

from tot_lab.domains.constrained import constraints
from tot_lab.domains.constrained.constraints import (
    DAYS,
    FORMS,
    GRAMS,
    SORTS,
    Rule,
    check_rules,
)

COUNT = 120
"""Tasks, writing and design in turn."""

EASIEST, HARDEST = 2, 7
"""The fewest and the most rules of a task."""

TARGET = Path(constraints.__file__).with_name("tasks.jsonl")

DESIGNS = ("timetable", "seating", "packing")


def made_rule(family: str, form: str, **given: object) -> Rule:
    """A rule of that form with its slots filled."""
    text = FORMS[family][form].template.format(**given)
    return Rule(family, form, text, {slot: str(value).lower() for slot, value in given.items()})


class Made(NamedTuple):
    """A task's question, its rules, and an answer that keeps them all."""

    question: str
    rules: tuple[Rule, ...]
    witness: str


def question_of(asked: str, rules: Sequence[Rule], form: str) -> str:
    """A task in words: what is asked, the rules, and the form of the answer."""
    return "\n".join([f"{asked}\n\nRules:", *(f"- {rule.text}" for rule in rules), f"\n{form}"])


# Texts.

_OCCASIONS = (
    ("a notice for the door of a bakery", ("flour", "oven", "bread", "loaf")),
    ("a greeting for a colleague who retires", ("garden", "desk", "coffee", "thanks")),
    ("a description of a lamp for a shop", ("lamp", "light", "shade", "cable")),
    ("an invitation to a village fair", ("music", "tent", "pony", "cake")),
    ("a weather report for a harbour town", ("wind", "rain", "harbour", "sunshine")),
    ("a reminder to the members of a library", ("book", "shelf", "card", "reader")),
    ("an advertisement for a bicycle workshop", ("wheel", "brake", "chain", "bell")),
    ("a note for a neighbour about a parcel", ("parcel", "hall", "stairs", "letter")),
    ("a welcome for guests of a mountain hut", ("boots", "stove", "summit", "blanket")),
    ("a sign for the gate of a school garden", ("bench", "pond", "seed", "path")),
    ("a thank-you card for a choir", ("song", "voice", "concert", "stage")),
    ("a recipe card for a simple soup", ("soup", "onion", "salt", "spoon")),
)
_ACROSTICS = ("gold", "home", "bake", "spring", "light", "march", "water", "stone", "calm", "bird")
_COMMON = ("the", "and", "with", "a", "for", "our", "you", "is")
_RARE, _FREQUENT = "xzkvjwgb", "bcdfghmpuw"
_TEXT_FORM = (
    "The answer is the text alone. A sentence ends in a full stop, a question mark or an exclamation mark; "
    "hyphens and apostrophes are parts of words."
)
_TEXT_FORMS = (
    "words", "contains", "times", "avoids", "letter", "initial", "question", "number", "lines", "short",
    "distinct", "comma", "ending",
)  # fmt: skip


def made_text(number: int, count: int) -> Made:
    """Text `number` under `count` rules."""
    for attempt in range(1000):
        stream = Stream(f"constrained text {number} {attempt}")
        occasion, words = stream.pick(_OCCASIONS)
        rules = _text_rules(stream, count, stream.shuffled(words))
        witness = make_answer(rules, [True] * count, stream)
        if all(check_rules(rules, witness)):
            return Made(question_of(f"Write {occasion}.", rules, _TEXT_FORM), rules, witness)
    raise AssertionError(f"text {number}: no text keeps any choice of {count} rules")


def _text_rules(stream: Stream, count: int, words: Sequence[str]) -> tuple[Rule, ...]:
    acrostic = stream.pick(_ACROSTICS).upper() if stream.below(3) == 0 else ""
    sentences = len(acrostic) or stream.between(3, 6)
    low = sentences * stream.between(5, 8) + stream.between(0, 3)
    high = low + stream.between(1, 4)
    letters = _FREQUENT if count > 4 else _RARE
    given: dict[str, dict[str, object]] = {
        "words": {"low": low, "high": high},
        "contains": {"word": words[0]},
        "times": {"word": words[1], "n": stream.between(2, 3)},
        "avoids": {"word": stream.pick(_COMMON)},
        "letter": {"letter": stream.pick(letters).upper()},
        "initial": {"letter": stream.pick("abcdefghlmnoprstw").upper()},
        "number": {"n": stream.between(10, 99)},
        "lines": {"n": stream.between(24, 44)},
        "short": {"n": -(-high // sentences) + stream.between(0, 1)},
        "ending": {"word": words[2]},
    }
    forms = [form for form in stream.shuffled(_TEXT_FORMS) if not (acrostic and form == "initial")]
    first = ("spells", {"letters": acrostic}) if acrostic else ("sentences", {"n": sentences})
    chosen = [first, *((form, given.get(form, {})) for form in forms[: count - 1])]
    return tuple(made_rule("writing", form, **slots) for form, slots in chosen)


# Designs.

_COURSES = ("Pottery", "Chess", "Choir", "Yoga", "Drawing", "Spanish", "Cooking", "Sewing", "Guitar")
_ROOMS = ("Red", "Blue", "Green", "White")
_PEOPLE = ("Ada", "Bruno", "Celia", "Dario", "Elsa", "Fabio", "Greta", "Hugo", "Ines", "Jonas")
_PLACES = ("a village hall", "an evening school", "a club house", "a community centre")


class _Draft(NamedTuple):
    """A design before its rules. asked, form: as the question says them. first: the rule that all such tasks
    begin with. plan: what has to keep the rules. drawn: makes others like it by chance. slots: what a rule
    may speak of. numbers: what it may count, by its form and the plan."""

    asked: str
    form: str
    first: Rule
    plan: DesignLines
    drawn: Callable[[], DesignLines]
    slots: Mapping[str, Sequence[str]]
    numbers: Callable[[str, DesignLines], Sequence[int]]


_OTHERS = 24
"""Designs by chance that a rule is tried on; three of four at most keep it."""

_DRAWS = 40
"""Rules of one form that are tried."""


def made_design(number: int, family: str, count: int) -> Made:
    """Design `number`, of that family, under `count` rules."""
    stream = Stream(f"constrained {family} {number}")
    draft = _DRAFTS[family](stream, count)
    witness, others = shown(draft.plan), [shown(draft.drawn()) for _ in range(_OTHERS)]
    rules = [draft.first]
    forms = [form for form in FORMS[family] if form != draft.first.form]
    for form in stream.shuffled(forms) + stream.shuffled(forms):
        tried = (_drawn_rule(family, form, draft, stream) for _ in range(_DRAWS))
        fitting = (
            rule
            for rule in tried
            if rule is not None
            and rule not in rules
            and check_rules((rule,), witness)[0]
            and sum(check_rules((rule,), other)[0] for other in others) <= _OTHERS * 3 // 4
        )
        rules += islice(fitting, 1 if len(rules) < count else 0)
    if len(rules) < count:
        raise AssertionError(f"{family} {number}: only {len(rules)} rules were found")
    return Made(question_of(draft.asked, rules, draft.form), tuple(rules), witness)


def _drawn_rule(family: str, form: str, draft: _Draft, stream: Stream) -> Rule | None:
    """A rule of that form about things of the design; None when it speaks of one thing as of two."""
    template = FORMS[family][form].template
    given: dict[str, object] = {
        slot: stream.pick(values) for slot, values in draft.slots.items() if f"{{{slot}}}" in template
    }
    if "{n}" in template:
        given["n"] = stream.pick(draft.numbers(form, draft.plan))
    return None if given.get("x") == given.get("y", "") else made_rule(family, form, **given)


def _timetable(stream: Stream, count: int) -> _Draft:
    courses = stream.shuffled(_COURSES)[: 4 + count // 3]
    rooms = stream.shuffled(_ROOMS)[:2]
    first = made_rule("timetable", "each", rooms=" and ".join(rooms), names=_listed(courses))
    days = [day.capitalize() for day in DAYS]

    def drawn() -> DesignLines:
        return {course: (stream.pick(days), stream.pick(rooms)) for course in courses}

    def numbers(form: str, plan: DesignLines) -> list[int]:
        used = Counter(day for day, _ in plan.values())
        return [len(used) if form == "days" else max(used.values())]

    return _Draft(
        f"Plan the week of {stream.pick(_PLACES)}.",
        "The answer is one line for each course, `course: day, room`, and nothing else.",
        first,
        drawn(),
        drawn,
        {"x": courses, "y": courses, "day": days, "room": rooms},
        numbers,
    )


def _seating(stream: Stream, count: int) -> _Draft:
    people = stream.shuffled(_PEOPLE)[: 5 + count // 3]
    seats = range(1, len(people) + 1)

    def drawn() -> DesignLines:
        return {name: (str(seat),) for name, seat in zip(people, stream.shuffled(seats), strict=True)}

    return _Draft(
        "Seat the guests of a dinner at one side of a long table.",
        "The answer is one line for each person, `person: seat number`, and nothing else.",
        made_rule("seating", "each", n=len(people), names=_listed(people)),
        drawn(),
        drawn,
        {"x": people, "y": people},
        lambda form, plan: range(1, 4) if form == "between" else seats,
    )


def _packing(stream: Stream, count: int) -> _Draft:
    sorts = {sort: stream.shuffled(things)[:3] for sort, things in SORTS.items()}
    things = [thing for some in sorts.values() for thing in some]

    def drawn() -> DesignLines:
        some = stream.shuffled(things)[: stream.between(4, 6)]
        return {thing: (str(stream.pick((1, 1, 1, 2, 3))),) for thing in some}

    def numbers(form: str, plan: DesignLines) -> list[int]:
        counts = {thing: int(value) for thing, (value,) in plan.items()}
        weight = sum(GRAMS[thing] * n for thing, n in counts.items())
        return {
            "most": [weight, weight + 100],
            "least": [weight, weight - 100],
            "total": [sum(counts.values())],
            "copies": [2, 3],
        }.get(form, [2, 3, 4])

    weights = ", ".join(f"{thing} {GRAMS[thing]}" for thing in things)
    known = "; ".join(f"{sort}: {_listed(some)}" for sort, some in sorts.items())
    return _Draft(
        f"Pack for a night in the hills. One of each weighs, in grams: {weights}. Of these are {known}.",
        "The answer is one line for each thing that is packed, `thing: how many`, and nothing else.",
        made_rule("packing", "listed", names=_listed(things)),
        drawn(),
        drawn,
        {"x": things, "y": things, "sort": list(SORTS)},
        numbers,
    )


_DRAFTS: Mapping[str, Callable[[Stream, int], _Draft]] = {
    "timetable": _timetable,
    "seating": _seating,
    "packing": _packing,
}


def shown(plan: DesignLines) -> str:
    """A design as an answer has it."""
    return "\n".join(f"{name}: {', '.join(values)}" for name, values in plan.items())


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def made(number: int) -> Made:
    """Task `number`, from 1 on: six levels in turn, and every design at every level."""
    place, levels = (number - 1) // 2, HARDEST - EASIEST + 1
    count = EASIEST + place % levels
    if number % 2:
        return made_text(place, count)
    return made_design(place, DESIGNS[(place + place // levels) % len(DESIGNS)], count)


def told(number: int) -> str:
    """Task `number` as a line of the file."""
    task = made(number)
    return json.dumps({"question": task.question, "reference": task.witness}, ensure_ascii=False)


if __name__ == "__main__":
    TARGET.write_text("".join(f"{told(number)}\n" for number in range(1, COUNT + 1)), "utf-8")
