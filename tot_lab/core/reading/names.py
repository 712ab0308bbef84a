"""Reader of names: which of several given names a reply states."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice, pairwise
from typing import Any, TypeVar

from tot_lab.core.reading.json_values import find_json
from tot_lab.core.reading.thinking import split_thinking

T = TypeVar("T")

_LONGEST = 4_000  # characters at the end of a reply that are searched for names in prose
_CANDIDATES = 5  # JSON values in one reply
_ARTICLE = r"(?:\W{1,3}(?:an?|the))*[\W_]*\Z"
_LABELLED = re.compile(
    rf"\b(?:category|kind|strategy|type|class|answer|choice|approach)\b[\W_]{{0,6}}(?:is\b)?{_ARTICLE}"
)
_DESCRIBED = re.compile(rf"\b(?:it|this|that|task|question|problem)(?:'s| is){_ARTICLE}")
_NEGATED = re.compile(r"(?:\b(?:not|no|never|neither|nor|than|instead of)|n't)(?: (?:an?|the))?\W*\Z")
_HEDGED = re.compile(r"\b(?:maybe|perhaps|possibly|probably|(?:could|might|may) be|either)(?: an?)?\W*\Z")
_JOINED = re.compile(r"[\s,]*(?:\b(?:or|and)\b|[/,&|])\W*")
_REASONS = re.compile(r"\b(?:because|since|although|though|despite|while|whereas|even if|as it)\b")
_ASKED = re.compile(r"[\s*_`\"'”’)\]]*\?")
_ENDS = re.compile(r"\s*(?:\Z|[^\w\s])")


def read_name(text: str, names: Mapping[str, T], key: str) -> T | None:
    """Return the value in `names` of the name that a reply states.

    A name is accepted in any case and with any separators (`tree-of-thought`, `Tree of Thought`,
    `treeOfThought`). JSON states the name below `key`, or else the only name among its values. In prose, the
    last labelled name (`Category: planning`) takes precedence, then a name at the beginning of a line, the
    last `It is planning`, and a mention in the last line that has a name. Negated names do not count.
    Returns `None` without a name, and for several names with different values.

    Args:
        names: Values by name.
    """
    known = {_core(name): meaning for name, meaning in names.items()}
    pattern = _pattern(tuple(names))
    answer = split_thinking(text)[1]
    found = sorted(islice(find_json(answer), _CANDIDATES), key=lambda one: one.start)
    for value in reversed([one.value for one in found]):
        leaves = list(_leaves(value, ""))
        asked = [leaf for at, leaf in leaves if _core(at) == _core(key)]
        if leaves:
            stated = [_in_words(leaf, known, pattern) for leaf in asked]
            stated = stated or [one for _, leaf in leaves if (one := _meaning(leaf, known)) is not None]
            return stated[0] if len({*stated}) == 1 else None
    return _in_words(answer, known, pattern)


def _in_words(text: str, known: Mapping[str, T], pattern: re.Pattern[str]) -> T | None:
    """Return the value of the name that prose, not JSON, states."""
    labelled: list[T | None] = []
    leading: list[T | None] = []
    described: list[T | None] = []
    last: set[T | None] = set()
    plain = unicodedata.normalize("NFKC", text[-_LONGEST:]).replace("’", "'")
    for line in plain.lower().splitlines():
        mentions = list(pattern.finditer(line))
        meanings = [_meaning(found[0], known) for found in mentions]
        pairs = enumerate(pairwise(mentions))
        joined = [k for k, (one, other) in pairs if _JOINED.fullmatch(line, one.end(), other.start())]
        hedged = {k + more for k in joined if meanings[k] != meanings[k + 1] for more in (0, 1)}
        reasons = _REASONS.search(line)
        here: set[T | None] = set()
        for k, found in enumerate(mentions):
            if reasons and mentions[0].start() < reasons.start() < found.start():
                break
            before = line[max(0, found.start() - 80) : found.start()]
            if _NEGATED.search(before):
                continue
            meaning = (
                None
                if k in hedged or _HEDGED.search(before) or _ASKED.match(line, found.end())
                else meanings[k]
            )
            if _LABELLED.search(before):
                labelled.append(meaning)
            elif not re.search(r"[^\W_]", line[: found.start()]) and _ENDS.match(line, found.end()):
                leading.append(meaning)
            elif _DESCRIBED.search(before):
                described.append(meaning)
            else:
                here.add(meaning)
        last = here or last
    stated = {*labelled[-1:]} or {*leading} or {*described[-1:]} or last
    return stated.pop() if len(stated) == 1 else None


def _meaning(name: str, known: Mapping[str, T]) -> T | None:
    """Return the value of a name, which may be in the plural."""
    core = _core(name[:_LONGEST])
    return known.get(core, known.get(core.removesuffix("s")))


def _leaves(value: Any, key: str) -> Iterator[tuple[str, str]]:
    """The texts in a JSON value, each after the nearest key above it (`key` without one)."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(item, str(name))
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, key)


def _core(name: str) -> str:
    """The letters and digits of a name without `and`, in lower case."""
    return re.sub(r"and|[\W_]", "", name.casefold())


@lru_cache(maxsize=64)
def _pattern(names: tuple[str, ...]) -> re.Pattern[str]:
    """The pattern of the names in lower-case text, with any separators, and in the plural."""
    words = (re.findall(r"[^\W_][^\W_A-Z]*", name) for name in names)
    spelled = {r"[\s_\u2010-\u2015-]{0,3}(?:and[\s_-])?".join(one) for one in words}
    longest = sorted(filter(None, spelled), key=len, reverse=True)
    return re.compile(rf"(?<![^\W_])(?:{'|'.join(longest)})s?(?![^\W_])", re.IGNORECASE)
