"""Readers of lists of thoughts."""

from __future__ import annotations

import re
from typing import Any

from tot_lab.core.reading.json_values import read_json

_ITEM = re.compile(r"[ \t]*(?:[-*•–]|\(?\d{1,3}[.):])[ \t]+(.*)")


def read_list(text: str) -> list[str]:
    """The items of a reply.

    A JSON array (of strings, or of objects with a `thought`, `step`, `content` or `text`); else the lines
    marked `1.`, `-` or `*`; else every non-empty line. A reply that is JSON without such an array has no
    items.
    """
    value = read_json(text)
    if isinstance(value, dict):
        lists = [item for item in value.values() if isinstance(item, list)]
        value = lists[0] if len(lists) == 1 else None
    if isinstance(value, list):
        items = [_item_text(item) for item in value]
        if any(items):
            return [item for item in items if item]
    lines = text.splitlines()
    marked = [match.group(1).strip() for line in lines if (match := _ITEM.match(line))]
    if not marked and (text.lstrip()[:1] in ("[", "{") or text.strip() == "null"):
        return []
    return [item for item in (marked or [line.strip() for line in lines]) if item]


def _item_text(item: Any) -> str:
    if isinstance(item, dict):
        item = next((item[key] for key in ("thought", "step", "content", "text") if key in item), None)
    return item.strip() if isinstance(item, str) else ""
