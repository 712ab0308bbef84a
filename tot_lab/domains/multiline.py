"""Reading answers that may have several lines, such as boards and lists of moves."""

from __future__ import annotations

import re

from tot_lab.core.reading.mathematics import boxed_answer, unboxed

_TAG = re.compile(r"<(/?)answer>", re.I)
_MARKED = re.compile(
    r"^(?P<open>[ \t>*_#`-]*)(?:(?:the|my) )?(?:final )?answer(?P<bold>[*_]*)[ \t]*[:=][*`]*", re.M | re.I
)
_FENCED = re.compile(r"\s*```[\w-]*\n(.*?)\n?```\s*", re.S)


def read_answer(text: str) -> str | None:
    r"""Return the text between the last `<answer>` tags, or after the last `Answer:` that begins a line, or
    in the last `\boxed{…}`, or else the whole text. A code block or a box around it is removed. Returns
    `None` if nothing is left.
    """
    tagged = _tagged(text)
    marked = list(_MARKED.finditer(text))
    if tagged is not None:
        found = tagged
    elif marked:
        found = text[marked[-1].end() :].strip()
        if "**" in marked[-1]["open"] and not marked[-1]["bold"]:
            found = found.removesuffix("**")
    else:
        found = boxed_answer(text) or text
    found = unboxed(found)
    fenced = _FENCED.fullmatch(found)
    found = (fenced[1] if fenced else found).strip()
    if len(found) > 2 and found[0] == found[-1] == "`" and "`" not in found[1:-1]:
        found = found[1:-1].strip()
    return found or None


def _tagged(text: str) -> str | None:
    """Return the text between the last pair of tags."""
    found: str | None = None
    start: int | None = None
    for tag in _TAG.finditer(text):
        if tag[1] and start is not None:
            found, start = text[start : tag.start()], None
        elif not tag[1] and start is None:
            start = tag.end()
    return found
