"""Matching of judgements to the siblings that they are about.

A judgement names its sibling by the sibling's text, number, letter or id, under any key. A name takes
precedence over a number, and the order decides only if no judgement names anything. A match that relies on
anything else than names and ids is reported, so that no score is assigned by an unnoticed guess.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tot_lab.core.reading.markup import without_markup

_LABELS = (
    "approach|option|branch|solution|candidate|idea|plan|method|strategy|proposal|answer|step|way|number|thought|"
    "choice|item|response|path|node|algorithm|no|id"
)
_LABEL = rf"(?:{_LABELS})"
_ORDINAL = r"(?:b?\d{1,3}|[a-z])"
_MARK = r"(?:\s?[^\w\s+%#(\[]+(?=\s|\Z))"  # separates a number from the name behind it
_BEFORE = re.compile(
    rf"[^\w(\[]*(?:(?:{_LABEL}|rank)\.?\s*\#?\s?(?:{_ORDINAL}(?:{_MARK}|\Z)|b?\d{{1,3}}(?=\s))"
    rf"|{_ORDINAL}{_MARK}|\#\d{{1,3}}|b?\d{{1,3}}\Z|[(\[]\s?(?:{_LABEL}\s)?\#?{_ORDINAL}\s?[)\]])"
)
"""One piece of numbering before a name: `1.`, `Approach 3:`, `(b2)`, `#4`."""

_AFTER = re.compile(rf"[(\[]\s?(?:{_LABEL}\s)?\#?{_ORDINAL}\s?[)\]]\W*\Z")
"""One piece of numbering behind a name: `(b2)`, `[approach 3]`."""

_LONGEST_AFTER = 40
_LONGEST = 1_000  # characters; a longer text names a sibling only if it equals its name
_MOST = 1_000  # judgements in one reply
_MOST_LISTED = 20
_MARKDOWN = re.compile(r"[*_`~]")
_OPERATOR = re.compile(r"(?<=[\d)])\s?([-+*/×÷^=<>])\s?(?=[\d(])")
_WORD = re.compile(r"[^\W_]+[+#]*")  # distinguishes C, C++ and C#
_AROUND = frozenset({*_LABELS.split("|"), "the", "a", "an", "using", "use"})
_REMARK = re.compile(r"[(\[][^()\[\]]*+[)\]]")
_SEGMENTS = re.compile(r"[()\[\]:;,]|\s[-–—]+\s")
_REFERENCE = re.compile(rf"(?:{_LABEL})?([a-z]?)(\d{{1,3}})(?:st|nd|rd|th)?|([a-z])")
_KEY_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")

_RANK = re.compile("rank|ord(?:er|inal)|place|position|priorit|star|vote|level|tier")
_SCORE = re.compile(
    "score|rating|value|grade|points|confidence|probability|likelihood|overall|total|average|correctness"
    "|completeness|elegance|practicality"
)
_REMARK_ON = re.compile(
    "verdict|reason|why|comment|expla|rationale|justif|note|feedback|remark|strength|weakness"
)
"""Beginnings of words of keys whose values do not name a sibling."""

_NAMES = frozenset({*_LABELS.split("|"), "name", "title", "label"})
"""Words in keys whose values count as names of siblings, even if no sibling has such a name."""


class Match(NamedTuple):
    """The siblings that judgements refer to.

    Attributes:
        places: For each judgement the index of its sibling, or `None`. Each index occurs at most once.
        warning: Sentences about uncertain matches. Empty if every sibling was recognised by its name or id.
    """

    places: list[int | None]
    warning: str


def judgements(value: Any) -> list[tuple[dict[str, Any], Any]]:
    """Return (fields that may name the sibling, judgement) for each judgement in a JSON value.

    Accepted are a list of objects or of scores, an object of judgements by name (the fields then hold the
    name under the key ""), one judgement, and an object that holds one of these as its only list or under
    a key such as `scores`.
    """
    if isinstance(value, dict) and not {"score", "correctness"} & {*value}:
        inner = [
            one
            for key, one in value.items()
            if (isinstance(one, list) and not _is_table(one))
            or (
                isinstance(one, dict)
                and key in ("scores", "evaluations", "ratings")
                and "correctness" not in one
            )
        ]
        value = inner[0] if len(inner) == 1 else value
    if isinstance(value, dict):
        if {"score", "scores", "correctness", "completeness", "elegance", "practicality"} & {*value}:
            return [(_named_by(value), value)]
        return [({"": key, **_named_by(one)}, one) for key, one in value.items()]
    return [*map(_judgement, value)] if isinstance(value, list) else []


def _is_table(rows: list[Any]) -> bool:
    """Whether a list holds rows of numbers, which name nothing and are no scores."""
    return all(isinstance(row, list) and not any(isinstance(x, str) for x in row) for row in rows)


def _judgement(item: Any) -> tuple[dict[str, Any], Any]:
    match item:
        case [str(name), score, *_]:
            return {"": name}, score
    if isinstance(item, dict) and len(item) == 1 and not is_score_key(key := next(iter(item))):
        return {"": key}, item[key]
    return _named_by(item), item


def _named_by(judgement: Any) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for key, one in judgement.items() if isinstance(judgement, dict) else ():
        if is_score_key(key) or _speaks_of(key, _REMARK_ON) or one is None or isinstance(one, bool):
            continue
        inner = one if isinstance(one, dict) else {"": one}
        named.update({f"{key} {at}": part for at, part in inner.items() if str(part).strip()})
    return named


def _words(key: str) -> set[str]:
    return {word.lower() for word in _KEY_WORD.findall(key)}


def is_score_key(key: str) -> bool:
    """Whether a key such as `score`, `rating` or `overall_score` holds a score."""
    return _speaks_of(key, _SCORE)


def _speaks_of(key: str, beginnings: re.Pattern[str]) -> bool:
    return any(map(beginnings.match, _words(key)))


def core(name: str) -> str:
    """The words of a name, without case, punctuation, Markdown, numbering and ids. Empty if no
    words are left.
    """
    text = _plain(name)
    start, end = 0, len(text)
    while found := _AFTER.search(text, max(start, end - _LONGEST_AFTER), end):
        end = found.start()
    text = text[:end].rstrip()
    while found := _BEFORE.match(text, start):
        start = found.end()
    return " ".join(_WORD.findall(text, start))


def match_all(names: Sequence[str], written: Sequence[str]) -> list[int | None]:
    """The index in `names` of each written name. `None` if it matches none of them, or several."""
    known = _Names(names)
    meant = map(known.meant, written)
    return [places[0] if len(places) == 1 else None for places in meant]


def match_once(names: Sequence[str], written: Sequence[Mapping[str, Any]], ids: Sequence[str] = ()) -> Match:
    """Match judgements to the siblings with these `names`, one to one.

    A judgement may name its sibling under any key except keys of ranks, such as `rank`, `order` and `place`.
    A sibling that is named twice is not matched. Names take precedence over ids, numbers and letters. A text
    that is only an id (`b2`), a number (`Approach 3`) or a letter (`Option C`) refers to the sibling with
    that id or at that position. Numbers count from 1, or from 0 if one of them is 0. The order decides only
    if no judgement names anything, and there are as many judgements as siblings.

    Args:
        names: The names of the siblings, as the model was shown them.
        written: For each judgement the texts that may name its sibling, by key.
        ids: The ids of the siblings. Without them, an id such as `b2` counts as the number 2.
    """
    if len(written) > _MOST:
        return Match([None] * len(written), f"There are {len(written)} judgements: none was used.")
    work = _Matching(names, written, ids)
    work.by_name()
    work.by_reference()
    work.by_shared_name()
    work.by_order()
    return work.result()


class _Names:
    """An index of the names of siblings, by their forms, from exact to loose (`_forms`)."""

    def __init__(self, names: Sequence[str]) -> None:
        self.cores = [core(name[:_LONGEST]) for name in names]
        self.plain = [" ".join(name[: 2 * _LONGEST].casefold().split()) for name in names]
        self._levels: tuple[dict[str, list[int]], ...] = ({}, {}, {}, {})
        for place, name in enumerate(names):
            for level, (form, *_) in zip(self._levels, _forms(name), strict=False):
                level.setdefault(form, []).append(place)

    def meant(self, written: str) -> list[int]:
        """The siblings that a text may name. The most exact form in which any name agrees with it decides."""
        for level, forms in zip(self._levels, _forms(written), strict=False):
            found = {place for form in forms if form for place in level.get(form, ())}
            if found:
                return sorted(found)
        return self._abbreviated(written)

    def _abbreviated(self, written: str) -> list[int]:
        """The sibling whose name begins with a text. Empty if there are several, or the text is one word."""
        words = " ".join(written[:_LONGEST].rstrip(" .…").casefold().split())
        if len(written) > _LONGEST or not re.search(r"\w\W+\w", words):
            return []
        goes_on = "" if written.rstrip().endswith(("…", "...")) else r"\b"
        beginning = re.compile(re.escape(words) + goes_on)
        found = [place for place, name in enumerate(self.plain) if beginning.match(name)]
        return found if len(found) == 1 else []


def _forms(name: str) -> Iterator[list[str]]:
    """Yield lists of forms of a name, from exact to loose: the name itself; its words; its words without
    articles and words such as `approach`; the name without remarks in brackets, and its parts. A long name
    has only the first form.
    """
    yield [" ".join(name.casefold().split())]
    if len(name) > _LONGEST:
        return
    yield [core(name)]
    yield [_trimmed(name)]
    parts = _SEGMENTS.split(name)
    numbered = [part for part in parts if any(map(str.isdigit, part))]
    alone = parts if not numbered else numbered if len(numbered) == 1 else []  # the others are remarks
    yield [_trimmed(_REMARK.sub(" ", name)), *map(_trimmed, alone)]


def _trimmed(name: str) -> str:
    words = core(name).split()
    start, end = 0, len(words)
    while end - start > 1 and words[start] in _AROUND:
        start += 1
    while end - start > 1 and words[end - 1] in _AROUND:
        end -= 1
    return " ".join(words[start:end])


class _Matching:
    def __init__(
        self, names: Sequence[str], written: Sequence[Mapping[str, Any]], ids: Sequence[str]
    ) -> None:
        self.names, self.written, self.ids = names, written, ids
        self.known = _Names(names)
        self.rows = [
            {key: str(one) for key, one in row.items() if not _speaks_of(key, _RANK)} for row in written
        ]
        self.meant = [{key: self.known.meant(one) for key, one in row.items()} for row in self.rows]
        self.places: list[int | None] = [None] * len(written)
        self.naming: set[str] = set()  # keys whose values name siblings
        self.unclear: set[int] = set()  # judgements that name two siblings
        self.repeated: set[int] = set()  # judgements of a sibling that has another judgement
        self.warnings: list[str] = []

    def by_name(self) -> None:
        by_key: dict[str, list[int]] = {}
        for found in self.meant:
            for key, places in found.items():
                if len(places) == 1:
                    by_key.setdefault(key, []).append(places[0])
        distinct = [key for key, places in by_key.items() if len({*places}) == len(places)]
        self.naming.update(distinct or by_key)
        taken: dict[int, list[int]] = {}
        for k, found in enumerate(self.meant):
            named = {found[key][0] for key in self.naming if len(found.get(key, ())) == 1}
            if len(named) > 1:
                self.unclear.add(k)
            elif named:
                taken.setdefault(named.pop(), []).append(k)
        for place, judging in taken.items():
            if len(judging) == 1:
                self.places[judging[0]] = place
            else:
                self.repeated.update(judging)
                self.warnings.append(f"Judged twice, none counts: {_listed([self.names[place]])}.")
        cores = self.known.cores
        if taken and not (all(cores) and len({*cores}) == len(cores)):
            self.warnings.append("The names of the approaches are not distinct but for their numbering.")

    def by_shared_name(self) -> None:
        """Match siblings with the same name by their order, if each of them is judged."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for k in self._left():
            shared = {tuple(places) for places in self.meant[k].values() if len(places) > 1}
            if len(shared) == 1:
                groups.setdefault(shared.pop(), []).append(k)
        for places, judging in groups.items():
            free = [place for place in places if place not in self.places]
            if len(free) == len(judging):
                self._place(dict(zip(judging, free, strict=True)))
                self.warnings.append("Approaches that share a name were matched to their scores by order.")

    def by_reference(self) -> None:
        """Match by the key whose ids, numbers or letters fit most judgements. Two such keys must agree."""
        by_key: dict[str, list[int]] = {}
        for k in self._left():
            strange = any(
                (key in self.naming or _NAMES & _words(key)) and not _REFERENCE.fullmatch(_bare(one))
                for key, one in self.rows[k].items()
            )
            for key, meant in self.meant[k].items():
                if not meant and not strange:
                    by_key.setdefault(key, []).append(k)
        free = {*range(len(self.names))}.difference(self.places)
        found = [self._referred(key, left, free) for key, left in by_key.items()]
        most = max(map(len, found), default=0)
        best = [places for places in found if len(places) == most]
        if not most or any(places != best[0] for places in best):
            return
        self._place(best[0])
        ids = [id for k in best[0] for id in self.ids if id in map(_bare, self.rows[k].values())]
        if len(ids) < most:
            self.warnings.append("Scores were matched by the numbers of the approaches, not by their names.")
        elif all(int(id[1:]) - 1 in free for id in ids):
            self.warnings.append("Scores were matched by ids, which may have been counted from 1.")

    def _referred(self, key: str, left: Sequence[int], free: Collection[int]) -> dict[int, int]:
        """The indices of unmatched siblings to which the values of `key` refer, by judgement. Empty if two
        values refer to one sibling, or a number is too large.
        """
        places, numbers = dict[int, int](), dict[int, int]()
        for k in left:
            reference = _REFERENCE.fullmatch(_bare(self.rows[k][key]))
            if reference is None:
                continue
            prefix, number, letter = reference.groups()
            if letter:
                places[k] = ord(letter) - ord("a")
            elif not (prefix and self.ids):
                numbers[k] = int(number)
            elif reference[0] in self.ids:
                places[k] = self.ids.index(reference[0])
        first = 0 if 0 in numbers.values() else 1
        numbers = {k: number - first for k, number in numbers.items()}
        if any(number >= len(self.names) for number in numbers.values()):
            return {}
        places |= numbers
        fitting = {k: place for k, place in places.items() if place in free}
        return fitting if len({*fitting.values()}) == len(fitting) else {}

    def by_order(self) -> None:
        if self.names and len(self.written) == len(self.names) and not any(self.written):
            self._place({k: k for k in range(len(self.names))})
            self.warnings.append("No approach was named: scores were matched by their order.")

    def result(self) -> Match:
        lost = [" ".join(self.rows[k].values()) for k in (*self._left(), *sorted(self.unclear))]
        if lost:
            self.warnings.append(f"A score was not used, because no approach has this name: {_listed(lost)}.")
        unjudged = [name for place, name in enumerate(self.names) if place not in self.places]
        if unjudged:
            self.warnings.append(f"Not judged: {_listed(unjudged)}.")
        return Match(self.places, " ".join(self.warnings))

    def _left(self) -> list[int]:
        out = self.unclear | self.repeated
        return [k for k, place in enumerate(self.places) if place is None and k not in out]

    def _place(self, places: Mapping[int, int]) -> None:
        for k, place in places.items():
            self.places[k] = place


def _bare(written: str) -> str:
    """The one word in a text besides words such as `approach`. Empty if there are several."""
    words = [
        word for word in _WORD.findall(without_markup(written[:60]).casefold()) if word not in _AROUND - {"a"}
    ]
    return words[0] if len(words) == 1 else ""


def _plain(name: str) -> str:
    text = _MARKDOWN.sub(
        " ", _OPERATOR.sub(_spelled, unicodedata.normalize("NFKC", without_markup(name)).casefold())
    )
    return " ".join(text.split())


def _spelled(operator: re.Match[str]) -> str:
    return f" op{ord(operator[1])} "


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    return ", ".join(f"“{' '.join(name.split())[:80]}”" for name in names[:_MOST_LISTED]) + more
