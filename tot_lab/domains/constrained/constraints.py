"""Rules for short texts, timetables, seating plans and packing lists that a program checks exactly.

A rule is defined by its sentence. Each form of rule has one sentence with slots, and both the grader and the
simulated player parse the rules from the question. Markdown, bullets and code fences are ignored. An
unreadable answer satisfies no rule. All operations are linear in the length of the text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

LONGEST = 20_000
"""Maximum number of characters of an answer. Longer answers are unreadable. The tasks need less than
a tenth of it."""

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday")

GRAMS = {
    "rope": 900, "lamp": 400, "stove": 800, "kettle": 500, "knife": 150, "map": 100, "blanket": 1200,
    "jacket": 700, "scarf": 200, "hat": 150, "bread": 500, "cheese": 400, "apple": 200, "soup": 600,
}  # fmt: skip
"""Weight of one piece of each thing that can be packed, in grams."""

SORTS = {
    "tools": ("rope", "lamp", "stove", "kettle", "knife", "map"),
    "clothes": ("blanket", "jacket", "scarf", "hat"),
    "food": ("bread", "cheese", "apple", "soup"),
}


class Text(NamedTuple):
    """A parsed text."""

    sentences: tuple[tuple[str, ...], ...]
    """The words of each sentence, in lower case."""

    marks: tuple[str, ...]
    """The closing punctuation of each sentence, or ""."""

    lines: tuple[str, ...]
    """The lines that are not empty, without Markdown."""

    @property
    def words(self) -> list[str]:
        """The words of all sentences."""
        return [word for sentence in self.sentences for word in sentence]

    @property
    def whole(self) -> str:
        """The lines, in lower case."""
        return "\n".join(self.lines).lower()


Timetable: TypeAlias = Mapping[str, tuple[int, str]]
"""The day (0–4) and the room of each course."""

Counts: TypeAlias = Mapping[str, int]
"""The seat of each person, or the number of each thing."""

Given: TypeAlias = Mapping[str, str]
"""The value of each slot of a rule, in lower case."""


class Form(NamedTuple):
    """A template of rules, with the function that checks them."""

    template: str
    """The sentence of the rule, with `{slots}`."""

    kept: Callable[[Any, Given], bool]
    """Whether a parsed answer satisfies the rule with the given slots."""


class Rule(NamedTuple):
    """A rule of a task."""

    family: str
    """Family of the rule, a key of `FORMS`: writing, timetable, seating or packing."""

    form: str
    """Key of the form in `FORMS[family]`."""

    text: str
    """The sentence of the rule."""

    given: Given
    """The value of each slot."""


# A short text.


def _ranges(text: Text, given: Given) -> bool:
    return int(given["low"]) <= len(text.words) <= int(given["high"])


def _first_letters_spell(text: Text, given: Given) -> bool:
    return "".join(sentence[0][0] for sentence in text.sentences) == given["letters"]


def _only_last_is_question(text: Text, given: Given) -> bool:
    *others, last = ["?" in mark for mark in text.marks]
    return last and not any(others)


def _contains_only_number(text: Text, given: Given) -> bool:
    return set(re.findall(r"\d+", text.whole)) == {given["n"]}


def _has_short_lines(text: Text, given: Given) -> bool:
    return len(text.lines) > 1 and max(map(len, text.lines)) <= int(given["n"])


def _openings(text: Text) -> list[str]:
    return [sentence[0] for sentence in text.sentences]


_WRITING = {
    "sentences": Form("It has exactly {n} sentences.", lambda t, g: len(t.sentences) == int(g["n"])),
    "words": Form("It has {low} to {high} words.", _ranges),
    "contains": Form('The word "{word}" occurs.', lambda t, g: g["word"] in t.words),
    "times": Form(
        'The word "{word}" occurs exactly {n} times.', lambda t, g: t.words.count(g["word"]) == int(g["n"])
    ),
    "avoids": Form('The word "{word}" does not occur.', lambda t, g: g["word"] not in t.words),
    "letter": Form("The letter {letter} does not occur.", lambda t, g: g["letter"] not in t.whole),
    "initial": Form(
        "Every sentence begins with the letter {letter}.",
        lambda t, g: all(word[0] == g["letter"] for word in _openings(t)),
    ),
    "spells": Form("The first letters of the sentences spell {letters}.", _first_letters_spell),
    "question": Form("The last sentence is a question, and no other is.", _only_last_is_question),
    "number": Form("The number {n} occurs in digits, and no other digits do.", _contains_only_number),
    "lines": Form("It stands on several lines, none of more than {n} characters.", _has_short_lines),
    "short": Form(
        "No sentence has more than {n} words.",
        lambda t, g: max(map(len, t.sentences)) <= int(g["n"]),
    ),
    "distinct": Form(
        "No two sentences begin with the same word.",
        lambda t, g: len(set(_openings(t))) == len(t.sentences),
    ),
    "comma": Form("It has no comma.", lambda t, g: "," not in t.whole),
    "ending": Form('The last word is "{word}".', lambda t, g: t.words[-1] == g["word"]),
}


# A timetable.


def _all_courses_placed(table: Timetable, given: Given) -> bool:
    rooms = split_names(given["rooms"])
    return all(name in table and table[name][1] in rooms for name in split_names(given["names"]))


def _days(table: Timetable) -> Counter[int]:
    return Counter(day for day, _ in table.values())


def _day(table: Timetable, name: str) -> int | None:
    return table[name][0] if name in table else None


def _compare_days(table: Timetable, given: Given, holds: Callable[[int, int], bool]) -> bool:
    one, other = _day(table, given["x"]), _day(table, given["y"])
    return one is not None and other is not None and holds(one, other)


_TIMETABLE = {
    "each": Form(
        "Each of these courses is on one day, Monday to Friday, in one of the rooms {rooms}: {names}.",
        _all_courses_placed,
    ),
    "clash": Form(
        "No two courses are in the same room on the same day.",
        lambda t, g: len(set(t.values())) == len(t),
    ),
    "on": Form("{x} is on {day}.", lambda t, g: _day(t, g["x"]) == DAYS.index(g["day"])),
    "not_on": Form(
        "{x} is not on {day}.",
        lambda t, g: g["x"] in t and _day(t, g["x"]) != DAYS.index(g["day"]),
    ),
    "same": Form(
        "{x} and {y} are on the same day.", lambda t, g: _compare_days(t, g, lambda one, other: one == other)
    ),
    "differ": Form(
        "{x} and {y} have one teacher, so they are on different days.",
        lambda t, g: _compare_days(t, g, lambda one, other: one != other),
    ),
    "before": Form(
        "{x} is on an earlier day than {y}.",
        lambda t, g: _compare_days(t, g, lambda one, other: one < other),
    ),
    "room": Form("{x} is in the room {room}.", lambda t, g: t.get(g["x"], (0, ""))[1] == g["room"]),
    "closed": Form(
        "Nothing is in the room {room} on {day}.",
        lambda t, g: (DAYS.index(g["day"]), g["room"]) not in t.values(),
    ),
    "most": Form("No day has more than {n} courses.", lambda t, g: max(_days(t).values()) <= int(g["n"])),
    "days": Form("There are courses on exactly {n} days.", lambda t, g: len(_days(t)) == int(g["n"])),
}


# A seating plan.


def _all_people_seated(seats: Counts, given: Given) -> bool:
    taken = [seats.get(name) for name in split_names(given["names"])]
    return None not in taken and sorted(map(int, filter(None, taken))) == [*range(1, int(given["n"]) + 1)]


def _seat_difference(seats: Counts, given: Given) -> int:
    """Return the seat of `y` minus the seat of `x`, or 0 if one of them is unknown."""
    one, other = seats.get(given["x"]), seats.get(given["y"])
    return 0 if one is None or other is None else other - one


_SEATING = {
    "each": Form("Each of these people has one of the seats 1 to {n} in a row: {names}.", _all_people_seated),
    "next": Form("{x} sits next to {y}.", lambda s, g: abs(_seat_difference(s, g)) == 1),
    "not_next": Form("{x} does not sit next to {y}.", lambda s, g: abs(_seat_difference(s, g)) > 1),
    "end": Form(
        "{x} sits at an end of the row.",
        lambda s, g: s.get(g["x"]) in (1, len(s)),
    ),
    "between": Form(
        "Exactly {n} people sit between {x} and {y}.",
        lambda s, g: abs(_seat_difference(s, g)) == int(g["n"]) + 1,
    ),
    "lower": Form("{x} has a lower seat number than {y}.", lambda s, g: _seat_difference(s, g) > 0),
    "not_seat": Form("{x} does not have seat {n}.", lambda s, g: g["x"] in s and s[g["x"]] != int(g["n"])),
    "odd": Form("{x} has an odd seat number.", lambda s, g: s.get(g["x"], 0) % 2 == 1),
}


# A packing list.


def _weight(packed: Counts) -> int:
    return sum(GRAMS.get(thing, 0) * count for thing, count in packed.items())


def _count_of_sort(packed: Counts, sort: str) -> int:
    return sum(count for thing, count in packed.items() if thing in SORTS.get(sort, ()))


_PACKING = {
    "listed": Form(
        "Only these things are packed, 1 to 3 of each that is: {names}.",
        lambda p, g: set(p) <= set(split_names(g["names"])) and all(1 <= count <= 3 for count in p.values()),
    ),
    "most": Form("All of it weighs at most {n} g.", lambda p, g: _weight(p) <= int(g["n"])),
    "least": Form("All of it weighs at least {n} g.", lambda p, g: _weight(p) >= int(g["n"])),
    "sort": Form(
        "At least {n} of the things are {sort}, copies counted.",
        lambda p, g: _count_of_sort(p, g["sort"]) >= int(g["n"]),
    ),
    "need": Form("The {x} is on the list.", lambda p, g: g["x"] in p),
    "without": Form("The {x} is not on the list.", lambda p, g: g["x"] not in p),
    "copies": Form("There are exactly {n} of the {x}.", lambda p, g: p.get(g["x"]) == int(g["n"])),
    "either": Form(
        "Either the {x} or the {y} is on the list, not both.", lambda p, g: (g["x"] in p) != (g["y"] in p)
    ),
    "if": Form("If the {x} is on the list, the {y} is too.", lambda p, g: g["x"] not in p or g["y"] in p),
    "total": Form(
        "There are exactly {n} things, copies counted.", lambda p, g: sum(p.values()) == int(g["n"])
    ),
}


FORMS: Mapping[str, Mapping[str, Form]] = {
    "writing": _WRITING,
    "timetable": _TIMETABLE,
    "seating": _SEATING,
    "packing": _PACKING,
}
"""All forms of rules, by family."""


def split_names(names: str) -> list[str]:
    """Split an enumeration such as `Red, Blue and Green` into a list."""
    return re.split(r", | and ", names)


@lru_cache(maxsize=1024)
def rules_in(text: str) -> tuple[Rule, ...]:
    """Parse the first block of rules in `text`: the line `Rules:`, then one line per rule.

    Any other line ends the block. The result is empty if there is no block.
    """
    lines = text.splitlines()
    rules: list[Rule] = []
    for line in lines[lines.index("Rules:") + 1 :] if "Rules:" in lines else []:
        rule = _parse_rule(line.removeprefix("- ")) if line.startswith("- ") else None
        if rule is None:
            break
        rules.append(rule)
    return tuple(rules)


def _parse_rule(text: str) -> Rule | None:
    for family, forms in _PATTERNS.items():
        for form, pattern in forms.items():
            match = pattern.fullmatch(text)
            if match is not None:
                given = {slot: value.lower() for slot, value in match.groupdict().items()}
                return Rule(family, form, text, given)
    return None


_NUMBER = r"\d{1,5}"
_SLOTS = {
    "n": _NUMBER,
    "low": _NUMBER,
    "high": _NUMBER,
    "letter": "[A-Z]",
    "names": r"[\w, ]{1,300}",
    "rooms": r"[\w, ]{1,100}",
}


def _pattern(template: str) -> re.Pattern[str]:
    parts = []
    for k, part in enumerate(re.split(r"\{(\w+)\}", template)):
        slot = _SLOTS.get(part, r"\w{1,40}")
        parts.append(f"(?P<{part}>{slot})" if k % 2 else re.escape(part))
    return re.compile("".join(parts))


_PATTERNS = {
    family: {key: _pattern(form.template) for key, form in forms.items()} for family, forms in FORMS.items()
}


# Reading answers.

_HEADING = re.compile(r"[ \t>*_#`-]*(?:(?:the|my) )?(?:final )?answer[ \t*_`]*:[ \t*_`]*(.*)", re.IGNORECASE)
_BULLET = re.compile(r"[\s>#*•–-]*")
_PLACE = re.compile(r"\(?\d{1,2}[.)][ \t]+")
_WORD = r"[^\W_]+(?:['’-][^\W_]+)*"
_TOKEN = re.compile(rf"(?P<word>{_WORD})|(?<![.!?…])(?P<mark>[.!?…]++)(?=[\"'”’)\]]{{0,4}}(?:\s|$))")
_COUNT = re.compile(r"(?:seat|x|×)?\s*(\d{1,3})\s*(?:x|×|pieces?)?")


def strip_answer(answer: str) -> str:
    """Return the text after the last line `Answer:`, or the whole text. If that has code blocks, return the
    content of the last one.
    """
    lines = answer.splitlines()
    for k in range(len(lines) - 1, -1, -1):
        match = _HEADING.match(lines[k])
        if match is not None:
            lines = [match[1].rstrip("*_` \t"), *lines[k + 1 :]]
            break
    fences: list[list[str]] = []
    inside = False
    for line in lines:
        if line.lstrip().startswith("```"):
            inside = not inside
            fences += [[]] if inside else []
        elif inside:
            fences[-1].append(line)
    return "\n".join(fences[-1] if fences else lines).strip()


def _strip_markup(answer: str) -> list[str]:
    """Return the lines that are not empty, without bullets and Markdown."""
    unmarked = str.maketrans("", "", "*_`")
    lines = [_BULLET.sub("", line, count=1).translate(unmarked).strip() for line in answer.splitlines()]
    return [line for line in lines if line]


def _strip_numbers(lines: Iterable[str]) -> list[str]:
    return [_PLACE.sub("", line, count=1) for line in lines]


def _text(answer: str) -> Text:
    lines = _strip_markup(answer)
    if all(map(_PLACE.match, lines)):  # a numbered list; in other texts a number is part of its sentence
        lines = _strip_numbers(lines)
    sentences: list[list[str]] = [[]]
    marks: list[str] = []
    for token in _TOKEN.finditer("\n".join(lines)):
        if token["word"]:
            sentences[-1].append(token["word"].lower().replace("’", "'"))
        elif sentences[-1]:
            marks.append(token["mark"])
            sentences.append([])
    if sentences[-1]:
        marks.append("")
    return Text(tuple(map(tuple, filter(None, sentences))), tuple(marks), tuple(lines))


def _entries(lines: Iterable[str]) -> dict[str, list[str]]:
    """Return the values in lines `name: value, value`, or in the rows of a Markdown table below its header.

    A name with two different entries has no values.
    """
    found: dict[str, list[str]] = {}
    for line in _strip_numbers(lines):
        if line.startswith("|"):
            name, *cells = line.strip("|").split("|")
            values = ",".join(cells).split(",")
        else:
            name, _, rest = line.partition(":")
            values = rest.split(",")
        name, values = name.strip(), [value.strip(" \t.;") for value in values]
        if line.startswith("|") and not name.strip("-: "):
            found.clear()
        elif name and any(values):
            found[name] = values if found.get(name, values) == values else []
    return found


def _timetable(answer: str) -> Timetable:
    found = {}
    for name, values in _entries(_strip_markup(answer.lower())).items():
        if len(values) == 2 and values[0] in DAYS:
            found[name] = DAYS.index(values[0]), values[1].removeprefix("room ").removesuffix(" room")
    return found


def _counts(answer: str) -> Counts:
    found = {}
    for name, values in _entries(_strip_markup(answer.lower())).items():
        match = _COUNT.fullmatch(values[0]) if len(values) == 1 else None
        if match is not None:
            found[name] = int(match[1])
    return found


_READERS: Mapping[str, Callable[[str], Any]] = {
    "writing": _text,
    "timetable": _timetable,
    "seating": _counts,
    "packing": _counts,
}


def read(family: str, answer: str) -> Any:
    """Parse an answer to a task of `family`, a key of `FORMS`. Returns `None` if it is unreadable or has over
    20,000 characters.
    """
    if len(answer) > LONGEST:
        return None
    parsed = _READERS[family](strip_answer(answer))
    return None if not parsed or (isinstance(parsed, Text) and not parsed.sentences) else parsed


def check_rules(rules: tuple[Rule, ...], answer: str) -> list[bool]:
    """Return whether an answer satisfies each of `rules`, which belong to one family."""
    parsed = read(rules[0].family, answer) if rules else None
    return [parsed is not None and FORMS[rule.family][rule.form].kept(parsed, rule.given) for rule in rules]
