"""Construction of answers that satisfy some rules and violate others, by local search.

The rules are the only input. A candidate is kept if more rules have the wanted outcome. An answer that
satisfies all rules of a task proves that the task is solvable, and is its reference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from tot_lab.domains.constrained.constraints import DAYS, FORMS, SORTS, Given, Rule, read, split_names

T = TypeVar("T")

DesignLines = dict[str, tuple[str, ...]]
"""The lines of a design: maps the name before the colon to the values after it."""

_TEXTS = 40  # number of texts tried per answer
_CHANGES = 2400  # number of changes of a design tried per answer
_RESTART = 300  # number of changes after which the search restarts


class Stream:
    """Generator of pseudo-random numbers. The numbers depend only on `seed`, not on the machine."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._count = 0

    def below(self, limit: int) -> int:
        """Return a number from 0 to `limit` − 1."""
        self._count += 1
        digest = hashlib.sha256(f"{self._seed} {self._count}".encode()).digest()
        return int.from_bytes(digest[:6], "big") % limit

    def between(self, low: int, high: int) -> int:
        """Return a number from `low` to `high`, both included."""
        return low + self.below(high - low + 1)

    def pick(self, among: Sequence[T]) -> T:
        """Return a random element."""
        return among[self.below(len(among))]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """Return all elements in random order."""
        rest = list(items)
        return [rest.pop(self.below(len(rest))) for _ in items]


def make_answer(rules: Sequence[Rule], wanted: Sequence[bool], stream: Stream) -> str:
    """Make an answer that satisfies the `wanted` rules and violates the others, as far as possible.

    Args:
        rules: At least one rule, all of one family.
        wanted: Whether to satisfy each rule.
        stream: The source of randomness.
    """
    if rules[0].family == "writing":
        return _write(rules, wanted, stream)
    design = _DESIGNS[rules[0].family](rules)
    return design.format(_search(design, rules, wanted, stream))


def _matches(rules: Sequence[Rule], wanted: Sequence[bool], answer: str) -> int:
    """Return the number of rules with the wanted outcome."""
    parsed = read(rules[0].family, answer)
    if parsed is None:
        return 0
    return sum(
        FORMS[rule.family][rule.form].kept(parsed, rule.given) == want
        for rule, want in zip(rules, wanted, strict=True)
    )


# Texts: imperative sentences, filled up with phrases to the required number of words.

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
"""First words of sentences, by their first letter."""

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


def _write(rules: Sequence[Rule], wanted: Sequence[bool], stream: Stream) -> str:
    best, limit = "", -1
    for _ in range(_TEXTS):
        text = _compose(rules, wanted, stream)
        matches = _matches(rules, wanted, text)
        if matches > limit:
            best, limit = text, matches
        if limit == len(rules):
            break
    return best


def _compose(rules: Sequence[Rule], wanted: Sequence[bool], stream: Stream) -> str:
    """Compose a text in which each rule has its wanted outcome, as far as the other rules allow it."""
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

    things = _required_words(given, keeps, breaks)
    firsts = _first_letters(given, keeps, breaks, count, stream)
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
        words = _fill(words, length - len(last), phrases, stream) + last
        sentences.append(" ".join(words) + ("?" if k == count - 1 and "question" in keeps else "."))
    text = " ".join(sentences)
    if "comma" in breaks:
        text = text.replace(" ", ", ", 1)
    return _wrap(text, number("lines")) if "lines" in keeps else text


def _required_words(given: Mapping[str, Given], keeps: set[str], breaks: set[str]) -> list[str]:
    """Return the words that the text must contain to satisfy or violate rules."""
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


def _first_letters(
    given: Mapping[str, Given], keeps: set[str], breaks: set[str], count: int, stream: Stream
) -> list[str]:
    """Return the first letter of each sentence."""
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


def _fill(words: list[str], length: int, phrases: Sequence[list[str]], stream: Stream) -> list[str]:
    """Append phrases to `words` until there are `length` words, or fewer if no phrase fits."""
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


def _wrap(text: str, limit: int) -> str:
    """Wrap `text` into at least two lines of at most `limit` characters, as far as its words allow."""
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > limit:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    if len(lines) == 1 and " " in text:
        lines = [text.rpartition(" ")[0], text.rpartition(" ")[2]]
    return "\n".join(lines)


# Designs.


class Design:
    """The search space of a design.

    Args:
        names: Names that lines can begin with.
        values: Draws the values of a line.
    """

    def __init__(self, names: Sequence[str], values: Callable[[Stream], tuple[str, ...]]) -> None:
        self.names = list(names)
        self.values = values

    def initial(self, stream: Stream) -> DesignLines:
        """Return a random plan with a line for each name."""
        return {name: self.values(stream) for name in self.names}

    def mutate(self, plan: DesignLines, stream: Stream) -> DesignLines:
        """Return a plan that differs in one line, or in which two lines are swapped."""
        move = stream.below(6)
        if move < 3 and len(plan) > 1:
            one, other = stream.shuffled(sorted(plan))[:2]
            return {**plan, one: plan[other], other: plan[one]}
        name = stream.pick(self.names)
        if move == 3:
            return {other: values for other, values in plan.items() if other != name}
        return {**plan, name: self.values(stream)}

    def format(self, plan: DesignLines) -> str:
        """Return the lines of a plan, in the order of the names."""
        lines = [f"{name}: {', '.join(plan[name])}" for name in self.names if name in plan]
        return "\n".join(lines) or "(nothing)"


class _Row(Design):
    """A seating plan. Its initial plan uses each seat once."""

    def initial(self, stream: Stream) -> DesignLines:
        seats = stream.shuffled(range(1, len(self.names) + 1))
        return {name: (str(seat),) for name, seat in zip(self.names, seats, strict=True)}


class _Subset(Design):
    """A packing list. Its initial plan contains a random subset of the names."""

    def initial(self, stream: Stream) -> DesignLines:
        return {name: values for name, values in super().initial(stream).items() if stream.below(2)}


def _slot_values(rules: Sequence[Rule], *slots: str) -> list[str]:
    """Return the distinct values of `slots` in the rules."""
    return list(dict.fromkeys(r.given[slot] for r in rules for slot in slots if slot in r.given))


def _names(rules: Sequence[Rule], others: Sequence[str] = ()) -> list[str]:
    """Return `others` and the names that the rules list. If no rule lists names, use mentioned names."""
    lists = [names for rule in rules for names in split_names(rule.given.get("names", "")) if names]
    return lists or list(dict.fromkeys([*_slot_values(rules, "x", "y"), *others]))


def _timetable(rules: Sequence[Rule]) -> Design:
    rooms = [room for rooms in _slot_values(rules, "rooms") for room in split_names(rooms)]
    rooms = rooms or [*_slot_values(rules, "room"), "hall"]
    return Design(_names(rules), lambda s: (s.pick(DAYS).capitalize(), s.pick(rooms).capitalize()))


def _seating(rules: Sequence[Rule]) -> Design:
    names = _names(rules)
    return _Row(names, lambda s: (str(s.between(1, len(names))),))


def _packing(rules: Sequence[Rule]) -> Design:
    names = _names(rules, [thing for things in SORTS.values() for thing in things])
    return _Subset([*names, "anchor"], lambda s: (str(s.pick((1, 1, 1, 2, 3))),))


_DESIGNS: Mapping[str, Callable[[Sequence[Rule]], Design]] = {
    "timetable": _timetable,
    "seating": _seating,
    "packing": _packing,
}


def _search(design: Design, rules: Sequence[Rule], wanted: Sequence[bool], stream: Stream) -> DesignLines:
    """Find the best plan by hill climbing with restarts. Changes that are not worse are accepted."""
    best, limit, here = DesignLines(), -1, 0
    plan = best
    for k in range(_CHANGES):
        other = design.mutate(plan, stream) if k % _RESTART else design.initial(stream)
        matches = _matches(rules, wanted, design.format(other))
        if matches >= here or k % _RESTART == 0:
            plan, here = other, matches
        if matches > limit:
            best, limit = other, matches
        if limit == len(rules):
            break
    return best
