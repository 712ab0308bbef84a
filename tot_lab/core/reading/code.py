"""Readers of fenced code in replies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_FENCE_LINE = re.compile(r"^(.*?)(?P<fence>`{3,}+|~{3,}+)(?P<info>.*)", re.MULTILINE)
_QUOTE = re.compile(r"^[ \t]*+>", re.MULTILINE)
_TEXT = re.compile(r"^.*\S", re.MULTILINE)
_TAIL = re.compile(r"(?>\s|</\w{1,20}>|<[|｜][^<>\s]{1,40}[|｜]>)*")
_BEFORE = re.compile(r"((?>(?:[ \t]*+>)*))((?:[ \t]*+(?:[-*+•]|\d{1,3}[.)])(?=[ \t]))?[ \t]*+)")
_PYTHON = re.compile(
    r"\W*+(?:(?:text/|application/)?x-)?(?:(?:code(?:-cell|-block)?|lang(?:uage)?)\b\W*+)?"
    r"(?:i?py(?:thon)?(?:[-_ ]?[\d.]++)?(?![\w-])|(?:\w++=)?\W?[^\s=\"']*?\.py(?!\w))",
    re.IGNORECASE,
)
_NO_LANGUAGE = re.compile(r"[^A-Za-z]*+(?:(?:tool_)?code|\w++=.*+)?\Z", re.IGNORECASE)


class Fenced(NamedTuple):
    """A fenced block of a text.

    Attributes:
        info: The text behind the opening fence.
        body: The lines inside, without the indentation and the quote marks of the fence.
        start: Where the line of the opening fence begins.
        end: Where the block ends.
        closed: Whether it has a closing fence. If not, it ends before the next block or with the text.
    """

    info: str
    body: str
    start: int
    end: int
    closed: bool


def code_blocks(text: str) -> list[str]:
    """Return the fenced blocks of Python in a text, or else those without a language.

    An info string may name Python in any common form: `python title="a.py"`, `python:a.py`, `{.python}`,
    `py3`, `a.py`.
    """
    blocks = list(fenced_blocks(text))
    python = [block.body for block in blocks if _PYTHON.match(block.info)]
    return python or [block.body for block in blocks if _NO_LANGUAGE.match(block.info)]


def fenced_blocks(text: str) -> Iterator[Fenced]:
    """Yield the blocks between fences of three or more backticks or tildes.

    A fence may stand in a list or a quote, and an opening one may follow text on its line. A closing fence
    may also end the last line of the block.
    """
    block: _Block | None = None
    for line in _FENCE_LINE.finditer(text):
        if block is not None:
            end = block.closed_at(line)
            if end is not None:
                yield block.found(min(line.end() + 1, len(text)), end, True)
                block = None
                continue
            if not block.is_fence(line) or _opened(line) is None:
                continue
            yield block.found(line.start(), line.start() - 1, False)
        block = _opened(line)
    if block is not None:
        yield block.found(len(text), len(text), False)


class _Block:
    """A block that is open: its fence, the number of quote marks before it, and its indentation."""

    def __init__(self, line: re.Match[str], quotes: int, column: int) -> None:
        self.text, self.start, self.body_start = line.string, line.start(), line.end() + 1
        self.fence, self.info = line["fence"], line["info"].strip()
        self.quotes, self.column = quotes, column
        self.first: int | None = None  # indentation of the first line that is not blank

    def found(self, end: int, body_end: int, closed: bool) -> Fenced:
        body = self.without_quotes(self.text[self.body_start : max(body_end, 0)]).replace("\r\n", "\n")
        body = body.removesuffix("\r")
        margin = min(self.column, self.first_before(body_end) or 0)
        if margin:
            body = "\n".join(line[min(margin, _indentation(line)) :] for line in body.split("\n"))
        return Fenced(self.info, body, self.start, end, closed)

    def without_quotes(self, text: str) -> str:
        for _ in range(self.quotes):
            text = _QUOTE.sub("", text)
        return text

    def first_before(self, end: int) -> int | None:
        if self.first is None:
            found = _TEXT.search(self.without_quotes(self.text[self.body_start : end]))
            self.first = None if found is None else _indentation(found[0])
        return self.first

    def closed_at(self, line: re.Match[str]) -> int | None:
        """The end of the body if a line ends with the closing fence: before the fence, or before the line if
        there is no code on it. `None` for any other line.
        """
        if not _TAIL.fullmatch(line["info"]):
            return None
        if self.without_quotes(line[1]).strip():
            return line.start("fence") if line["fence"] == self.fence else None
        return line.start() - 1 if self.is_fence(line) else None

    def is_fence(self, line: re.Match[str]) -> bool:
        """Whether a line begins with a fence of this block. A fence that is indented deeper, as in a
        docstring, is part of the code.
        """
        inside = self.without_quotes(line[1])
        deepest = max(self.column, self.first_before(line.start()) or 0) + 3
        return not inside.strip() and line["fence"].startswith(self.fence) and len(inside) <= deepest


def _opened(line: re.Match[str]) -> _Block | None:
    """The block that a line opens. `None` if it opens none."""
    before, info = _BEFORE.match(line[1]), line["info"]
    if before is None:
        return None
    follows_text = before.end() < len(line[1])
    if "`" in info or (follows_text and (line["fence"][0] == "~" or len(info.split()) > 1)):
        return None
    return _Block(line, min(before[1].count(">"), 9), len(before[2]))


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())
