"""Answers that keep some rules and break others, made by search.

The rules are all that is known. What is made is tried, and kept while it comes closer to what is
wanted of each rule; so an answer to a task's rules, all of them kept, proves that there is one, and a player
that forgets a rule breaks that one and no other, where this can be had.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from tot_lab.domains.constrained.constraints import DAYS, FORMS, SORTS, Given, Rule, listed, read

T = TypeVar("T")

Plan = dict[str, tuple[str, ...]]
"""A design as its lines: what stands before the colon, and the values after it."""

_TEXTS = 40  # that are tried for one
_CHANGES = 2400  # of a design that are tried
_ANEW = 300  # after which it begins anew


class Stream:
    """Numbers that look like chance, and are the same everywhere for one `seed`."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._count = 0

    def below(self, most: int) -> int:
        """One of 0 … most − 1."""
        self._count += 1
        digest = hashlib.sha256(f"{self._seed} {self._count}".encode()).digest()
        return int.from_bytes(digest[:6], "big") % most

    def between(self, low: int, high: int) -> int:
        """One of low … high."""
        return low + self.below(high - low + 1)

    def pick(self, among: Sequence[T]) -> T:
        """One of them."""
        return among[self.below(len(among))]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """All of them in another order."""
        rest = list(items)
        return [rest.pop(self.below(len(rest))) for _ in items]


def made_answer(rules: Sequence[Rule], wanted: Sequence[bool], stream: Stream) -> str:
    """An answer that keeps those of `rules` that are `wanted` and breaks the others, or comes close.
    rules: all of one family, at least one."""
    if rules[0].family == "writing":
        return _written(rules, wanted, stream)
    design = _DESIGNS[rules[0].family](rules)
    return design.shown(_searched(design, rules, wanted, stream))


def _matches(rules: Sequence[Rule], wanted: Sequence[bool], answer: str) -> int:
    """Of how many rules what is wanted is so."""
    made = read(rules[0].family, answer)
    if made is None:
        return 0
    return sum(
        FORMS[rule.family][rule.form].kept(made, rule.given) == want
        for rule, want in zip(rules, wanted, strict=True)
    )


# Texts: imperatives, each with things and where and when, of as many words as it takes.

VERBS = {
    letter: tuple(verbs.split())
    for letter, verbs in {
        "a": "ask arrive add", "b": "bring buy book", "c": "come call carry", "d": "do drop dance",
        "e": "enjoy enter", "f": "find follow feel", "g": "give gather go", "h": "help hold have",
        "i": "invite imagine", "j": "join jump", "k": "keep know", "l": "look leave light",
        "m": "meet make mind", "n": "note notice", "o": "open order offer", "p": "pick plan pay",
        "r": "read remember ring", "s": "send see sit", "t": "take tell try", "u": "use",
        "v": "visit", "w": "wait walk write",
    }.items()
}  # fmt: skip
"""How sentences may begin, by their first letters."""

_PHRASES = tuple(
    phrase.split()
    for phrase in (
        "by the door", "after lunch", "with a friend", "in the morning", "near the old mill", "at noon",
        "all day", "with care", "for an hour", "under the big tree", "on Sunday", "before dark", "at cost",
        "along the river", "with both hands", "to the end", "once more", "soon", "again", "today", "slowly",
        "now", "outside", "at home", "here", "there", "together", "often", "behind our house", "in turn",
        "and sing", "or rest", "in silence", "up north", "far off", "in warm air",
        "by express", "with jazz", "in view", "for keeps",
    )
)  # fmt: skip


def _written(rules: Sequence[Rule], wanted: Sequence[bool], stream: Stream) -> str:
    best, most = "", -1
    for _ in range(_TEXTS):
        text = _composed(rules, wanted, stream)
        matches = _matches(rules, wanted, text)
        if matches > most:
            best, most = text, matches
        if most == len(rules):
            break
    return best


def _composed(rules: Sequence[Rule], wanted: Sequence[bool], stream: Stream) -> str:
    """A text that sees to each rule as far as the rules before it leave room."""
    given = {rule.form: rule.given for rule in rules}
    keeps = {rule.form for rule, want in zip(rules, wanted, strict=True) if want}
    breaks = given.keys() - keeps

    def number(form: str, slot: str = "n") -> int:
        return int(given[form][slot])

    count = stream.between(3, 5)
    if "spells" in keeps:
        count = len(given["spells"]["letters"])
    if "sentences" in given:
        count = number("sentences")
        count += stream.pick((-1, 1) if count > 1 else (1,)) if "sentences" in breaks else 0
    total = count * stream.between(5, 8)
    if "short" in keeps:
        total = min(total, count * number("short"))
    if "words" in given:
        low, high = number("words", "low"), number("words", "high")
        total = stream.between(low, high)
        if "words" in breaks:
            total = stream.pick((max(low - stream.between(2, 6), count * 2), high + stream.between(2, 6)))
    lengths = [total // count + (k < total % count) for k in range(count)]
    if "short" in breaks:
        lengths[0] += number("short") + 1 - lengths[0] if lengths[0] <= number("short") else 0
        spare = sum(lengths) - total
        lengths[1:] = [max(length - -(-spare // max(count - 1, 1)), 2) for length in lengths[1:]]
    without = {given["avoids"]["word"]} if "avoids" in keeps else set[str]()
    letters = given["letter"]["letter"] if "letter" in keeps else ""

    def allowed(words: Sequence[str]) -> bool:
        return not any(word.lower() in without or (letters and letters in word.lower()) for word in words)

    things = _things(given, keeps, breaks)
    firsts = _firsts(given, keeps, breaks, count, stream)
    phrases = [phrase for phrase in _PHRASES if allowed(phrase)]
    used: set[str] = set()
    sentences = []
    for k, (length, first) in enumerate(zip(lengths, firsts, strict=True)):
        verbs = [verb for verb in VERBS.get(first, ()) if allowed([verb])]
        fresh = [verb for verb in verbs if verb not in used]
        verb = stream.pick((fresh if "distinct" in keeps else verbs) or verbs or [first])
        if "distinct" in breaks:
            verb = min(used, default=verb)
        used.add(verb)
        words = [verb.capitalize()]
        for n, thing in enumerate(things[k::count]):
            words += [*(["and"] if n and allowed(["and"]) else []), *_article(thing, allowed), thing]
        last = [given["ending"]["word"]] if k == count - 1 and "ending" in keeps else []
        words = _filled(words, length - len(last), phrases, stream) + last
        sentences.append(" ".join(words) + ("?" if k == count - 1 and "question" in keeps else "."))
    text = " ".join(sentences)
    if "comma" in breaks:
        text = text.replace(" ", ", ", 1)
    return _wrapped(text, number("lines")) if "lines" in keeps else text


def _things(given: Mapping[str, Given], keeps: set[str], breaks: set[str]) -> list[str]:
    """Words that have to stand in the text, so that it keeps a rule or breaks one."""
    things = [given["contains"]["word"]] if "contains" in keeps else []
    if "times" in given:
        n = int(given["times"]["n"])
        things += [given["times"]["word"]] * (n if "times" in keeps else n - 1)
    if "number" in keeps:
        things.append(given["number"]["n"])
    if "avoids" in breaks:
        things.append(given["avoids"]["word"])
    if "letter" in breaks:
        known = [word for phrase in _PHRASES for word in phrase if given["letter"]["letter"] in word]
        things += known[:1]
    return things


def _firsts(
    given: Mapping[str, Given], keeps: set[str], breaks: set[str], count: int, stream: Stream
) -> list[str]:
    """The letter that each sentence begins with."""
    firsts = [stream.pick(list(VERBS)) for _ in range(count)]
    if "spells" in given:
        firsts = [*given["spells"]["letters"], *firsts][:count]
        if "spells" in breaks:
            firsts = [stream.pick(list(VERBS)), *firsts[1:]]
    if "initial" in given:
        firsts = [given["initial"]["letter"]] * count
        if "initial" in breaks:
            firsts[-1] = stream.pick(list(VERBS))
    return firsts


def _article(thing: str, allowed: Callable[[Sequence[str]], bool]) -> list[str]:
    return ["the"] if thing.isalpha() and len(thing) > 3 and allowed(["the"]) else []


def _filled(words: list[str], length: int, phrases: Sequence[list[str]], stream: Stream) -> list[str]:
    """`words` with phrases after them until there are `length`; fewer where none fits."""
    left = list(phrases)
    while len(words) < length:
        fitting = [phrase for phrase in left if len(phrase) <= length - len(words)]
        if not fitting:
            fitting = left = [phrase for phrase in phrases if len(phrase) == 1]
            if not fitting:
                break
        phrase = stream.pick(fitting)
        left.remove(phrase)
        words = [*words, *phrase]
    return words


def _wrapped(text: str, most: int) -> str:
    """`text` in at least two lines of at most `most` characters, as far as its words allow."""
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > most:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    if len(lines) == 1 and " " in text:
        lines = [text.rpartition(" ")[0], text.rpartition(" ")[2]]
    return "\n".join(lines)


# Designs.


class Design:
    """What a design can be made of. names: what lines can begin with; values: what can follow one of them."""

    def __init__(self, names: Sequence[str], values: Callable[[Stream], tuple[str, ...]]) -> None:
        self.names = list(names)
        self.values = values

    def begun(self, stream: Stream) -> Plan:
        """One by chance, with a line for each name."""
        return {name: self.values(stream) for name in self.names}

    def changed(self, plan: Plan, stream: Stream) -> Plan:
        """Another that differs in one line, or has two exchanged."""
        what = stream.below(6)
        if what < 3 and len(plan) > 1:
            one, other = stream.shuffled(sorted(plan))[:2]
            return {**plan, one: plan[other], other: plan[one]}
        name = stream.pick(self.names)
        if what == 3:
            return {other: values for other, values in plan.items() if other != name}
        return {**plan, name: self.values(stream)}

    def shown(self, plan: Plan) -> str:
        """Its lines, in the order of the names."""
        lines = [f"{name}: {', '.join(plan[name])}" for name in self.names if name in plan]
        return "\n".join(lines) or "(nothing)"


class _Row(Design):
    """A design that begins with each of the values once."""

    def begun(self, stream: Stream) -> Plan:
        seats = stream.shuffled(range(1, len(self.names) + 1))
        return {name: (str(seat),) for name, seat in zip(self.names, seats, strict=True)}


class _Choice(Design):
    """A design that begins with some of the names."""

    def begun(self, stream: Stream) -> Plan:
        return {name: values for name, values in super().begun(stream).items() if stream.below(2)}


def _given(rules: Sequence[Rule], *slots: str) -> list[str]:
    """What the rules fill `slots` with, each once."""
    return list(dict.fromkeys(r.given[slot] for r in rules for slot in slots if slot in r.given))


def _named(rules: Sequence[Rule], others: Sequence[str] = ()) -> list[str]:
    """The names that the rules list, or else those that they speak of, and `others`."""
    lists = [names for rule in rules for names in listed(rule.given.get("names", "")) if names]
    return lists or list(dict.fromkeys([*_given(rules, "x", "y"), *others]))


def _timetable(rules: Sequence[Rule]) -> Design:
    rooms = [room for rooms in _given(rules, "rooms") for room in listed(rooms)]
    rooms = rooms or [*_given(rules, "room"), "hall"]
    return Design(_named(rules), lambda s: (s.pick(DAYS).capitalize(), s.pick(rooms).capitalize()))


def _seating(rules: Sequence[Rule]) -> Design:
    names = _named(rules)
    return _Row(names, lambda s: (str(s.between(1, len(names))),))


def _packing(rules: Sequence[Rule]) -> Design:
    names = _named(rules, [thing for things in SORTS.values() for thing in things])
    return _Choice([*names, "anchor"], lambda s: (str(s.pick((1, 1, 1, 2, 3))),))


_DESIGNS: Mapping[str, Callable[[Sequence[Rule]], Design]] = {
    "timetable": _timetable,
    "seating": _seating,
    "packing": _packing,
}


def _searched(design: Design, rules: Sequence[Rule], wanted: Sequence[bool], stream: Stream) -> Plan:
    """The best that small changes lead to which do no harm, begun anew now and then."""
    best, most, here = Plan(), -1, 0
    plan = best
    for k in range(_CHANGES):
        other = design.changed(plan, stream) if k % _ANEW else design.begun(stream)
        matches = _matches(rules, wanted, design.shown(other))
        if matches >= here or k % _ANEW == 0:
            plan, here = other, matches
        if matches > most:
            best, most = other, matches
        if most == len(rules):
            break
    return best
