"""Readers of lists of thoughts."""

from __future__ import annotations

import re
import sys
from bisect import bisect_left
from collections.abc import Sequence
from textwrap import dedent
from typing import Any, NamedTuple

from tot_lab.core.reading.code import Fenced, fenced_blocks
from tot_lab.core.reading.decoration import END_OF_TURN_AT_END
from tot_lab.core.reading.json_values import FoundJSON, find_json

_MARK = re.compile(
    r"^(?P<indent>[ \t>]*+)(?:(?P<bullet>[-*•‣▪◦–—])|(?:\#{1,6}[ \t]++)?(?P<bold>\*\*|__)?"
    r"(?:(?P<word>step|thought|option|idea|approach|proposal)[ \t]++)?"
    r"(?:\#?\(?\d{1,3}(?P<closed>\*\*|__)?[.):、．）](?P<ended>\*\*|__)?|\#\d{1,3}|\[\d{1,3}\]|[①-⑳]"
    r"|(?P<letter>\(?(?-i:[a-z]|[ivx]{2,4})[.)])))"
    r"(?:[ \t]++|\r?$|(?<=[、．）①-⑳])(?!\d)|(?<=\d[.)])(?=[^\W\d_]|\*\*))(?=\s*+\S)",
    re.IGNORECASE | re.MULTILINE,
)
_UNQUOTED = re.compile(r"^[ \t]*+[^>\s]", re.MULTILINE)
_QUOTE = re.compile(r"^[ \t]*+>[ \t]?", re.MULTILINE)
_RULE = re.compile(r"\n[ \t]*+[-*_]{3,}+\Z")
_APART = re.compile(r"\n[ \t]*+\n(?=\S)")
_NEAR = 100  # characters on each side of a JSON value that are read


class FoundList(NamedTuple):
    """The items of a reply.

    Attributes:
        repaired: Whether the items come from malformed JSON that was repaired.
    """

    items: list[str]
    repaired: bool = False


def read_list(text: str) -> list[str]:
    """Return the items of a reply.

    They are read from a JSON array (of strings, or of objects with a `thought`, `step`, `content` or `text`),
    which is repaired if necessary. Without one they are the items marked `1.`, `Step 1:`, `-` or `*`, or else
    all lines that are not empty. An item contains everything up to the next one of its own level: further
    lines, code and nested items. Brackets inside a sentence or an item are text. A reply that is JSON without
    such an array has no items.
    """
    return find_list(text).items


def find_list(text: str) -> FoundList:
    """Return the items of a reply like `read_list`, and whether their JSON was repaired."""
    text = END_OF_TURN_AT_END.sub("", text.rstrip())
    if not _UNQUOTED.search(text):
        text = _QUOTE.sub("", text)
    is_marked = _MARK.search(text) is not None
    blocks = [block for block in fenced_blocks(text) if block.closed] if is_marked else []
    marks = _marks(text, blocks) if is_marked else []
    first, last = (marks[0].start(), marks[-1].start()) if marks else (len(text), 0)
    for found in find_json(text) if {"[", "{"} & {*text[:first]} else ():
        items = _json_items(found.value) if found.start <= first and last < found.end else []
        if items and _stands_apart(text, found):
            return FoundList(items, found.repaired)
    if not marks:  # the list may be in a fenced block
        text = next((block.body for block in blocks if _marks(block.body)), text)
        marks = _marks(text)
    if marks:
        return FoundList(_marked_items(text, _own_level(marks)))
    if text.lstrip()[:1] in ("[", "{") or text.strip() == "null":
        return FoundList([])
    return FoundList([line for line in map(str.strip, text.splitlines()) if line.strip("`~")])


def _marks(text: str, blocks: Sequence[Fenced] = ()) -> list[re.Match[str]]:
    """The marks of items that are outside `blocks`. Letters, as in `a)`, count only if the first mark is a
    letter and there are at least two.
    """
    starts, ends = [block.start for block in blocks], [0, *(block.end for block in blocks)]
    marks = [mark for mark in _MARK.finditer(text) if ends[bisect_left(starts, mark.start())] <= mark.start()]
    letters = [mark for mark in marks if mark["letter"]]
    is_lettered = len(letters) > 1 and letters[0] is marks[0]
    return marks if is_lettered else [mark for mark in marks if not mark["letter"]]


def _json_items(value: Any) -> list[str]:
    if isinstance(value, dict):
        is_numbered = all(key[-1:].isdecimal() for key in value)
        lists = (
            [[*value.values()]]
            if is_numbered
            else [item for item in value.values() if isinstance(item, list)]
        )
        items = list(filter(None, map(_json_items, lists)))
        return items[0] if len(items) == 1 else []
    return list(filter(None, map(_item_text, value))) if isinstance(value, list) else []


def _item_text(item: Any) -> str:
    if isinstance(item, dict):
        texts = {key: text for key, text in item.items() if isinstance(text, str)}
        only = next(iter(texts.values())) if len(texts) == 1 else ""
        item = next((texts[key] for key in ("thought", "step", "content", "text") if key in texts), only)
    return item.strip() if isinstance(item, str) else ""


def _stands_apart(text: str, found: FoundJSON) -> bool:
    """Whether a JSON value is not part of a sentence. A repaired value must also end its line."""
    before = text[max(found.start - _NEAR, 0) : found.start].rpartition("\n")[2].strip(" \t`*")
    after = text[found.end : found.end + _NEAR].partition("\n")[0].strip(" \t\r`*.;")
    return before[-1:] in ("", ":", "=", ">") and (not found.repaired or after[:1] in ("", "<"))


def _own_level(marks: list[re.Match[str]]) -> list[re.Match[str]]:
    """The marks of the outermost list. Marks indented by at least two columns more than the item before them
    are left out. So are marks of another type than the first, unless only the last one is of another type.
    """
    level, kinds, deepest = list[re.Match[str]](), list[str](), sys.maxsize
    for mark in marks:
        space, word, bullet = mark.group("indent", "word", "bullet")
        indent = len(space.expandtabs(4))
        if indent < deepest:
            deepest = indent + 2
            level.append(mark)
            kinds.append(bullet or (word or "1").lower())
    first = kinds[0]
    nests = any(kind != first for kind in kinds[:-1])
    return [mark for mark, kind in zip(level, kinds, strict=True) if kind == first] if nests else level


def _marked_items(text: str, marks: list[re.Match[str]]) -> list[str]:
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    bodies = [text[mark.end() : end] for mark, end in zip(marks, ends, strict=True)]
    if len(bodies) > 1 and not any(map(_APART.search, bodies[:-1])):
        bodies[-1] = _APART.split(bodies[-1], maxsplit=1)[0]  # text after the list is not part of an item
    items = []
    for mark, body in zip(marks, bodies, strict=True):
        line, _, rest = _RULE.sub("", body.rstrip()).partition("\n")
        bold, *closed = mark.group("bold", "closed", "ended")
        line = f"{bold}{line.strip()}" if bold and not any(closed) else line.strip()
        items.append(f"{line}\n{dedent(rest)}".strip() if rest else line)
    return list(filter(None, items))
