"""Reading answers that may have several lines, such as boards and lists of moves."""

from __future__ import annotations

import re

from tot_lab.core.reading.code import fenced_blocks
from tot_lab.core.reading.decoration import undecorated
from tot_lab.core.reading.mathematics import boxed_answer, unboxed

_TAG = re.compile(r"<(/?)answer>", re.I)
_MARKED = re.compile(r"^[ \t>*_#`-]*(?:(?:the|my) )?(?:final )?answer[*_]*[ \t]*(?:[:=]|$)", re.M | re.I)
_SAID = re.compile(r"^(?:[^\W\d_]{2,9},? )?(?:the|my) (?:final )?answer is:?", re.M | re.I)
_PROSE = re.compile(
    r"[\W_]*+(?:[IA][ \t]++)?(?:(?:[^\W\d_][\w']++[^\w\n]++){2}[^\W\d_]|"
    r"(?:explanation|reason|confidence|note|check)\w*+:)",
    re.I,
)
_WORD = re.compile(r"[^\W\d_]{3}")
_FIRST = re.compile(r"[\W\d_]*+(\w*+)")


def read_answer(text: str) -> str | None:
    r"""Return the text between the last `<answer>` tags, or after the last `Answer:` that begins a line
    (or else `The answer is`), or in the last `\boxed{…}`, or else the whole text. Returns `None` if nothing
    is left.

    Remarks after an `Answer:`, a code block or a box around the answer, and its decoration are removed:
    emphasis, marks of math, end-of-turn tokens and, unless it is a sentence, quotes and a final full stop.
    """
    found = tagged_answer(text)
    marked = [] if found is not None else list(_MARKED.finditer(text)) or list(_SAID.finditer(text))
    if marked:
        found = _without_remarks(undecorated(text[marked[-1].end() :], quotes=False))
    elif found is None:
        found = boxed_answer(text) or text
    found = unboxed(undecorated(_first_block(found), quotes=False))
    is_word = "\n" not in found.strip() and not _PROSE.match(found)
    return undecorated(found, quotes=is_word, ends="." if is_word else "").strip() or None


def _first_block(text: str) -> str:
    """Return the code of a block that begins `text`, or else `text`."""
    block = next(fenced_blocks(text), None)
    return text if block is None or text[: block.start].strip() else block.body


def _without_remarks(text: str) -> str:
    """Return an answer up to a line of prose, unless it is prose itself, or a paragraph of another kind."""
    lines = _first_block(text).split("\n")
    is_prose = _PROSE.match(lines[0])
    for k, line in enumerate(lines[1:], 1):
        is_apart = not lines[k - 1].strip() and _WORD.search(line) and _first(line) != _first(lines[0])
        if is_apart or (not is_prose and _PROSE.match(line)):
            return "\n".join(lines[:k])
    return "\n".join(lines)


def _first(line: str) -> str:
    """Return the first word of a line."""
    found = _FIRST.match(line)
    return found[1] if found else ""


def tagged_answer(text: str) -> str | None:
    """Return the text between the last pair of `<answer>` tags."""
    found: str | None = None
    start: int | None = None
    for tag in _TAG.finditer(text):
        if tag[1] and start is not None:
            found, start = text[start : tag.start()], None
        elif not tag[1] and start is None:
            start = tag.end()
    return found
