"""Readers of fenced code in replies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_FENCE = re.compile(r"`{3,}+|~{3,}+")
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
    start = end = 0
    for full in text.split("\n") if "```" in text or "~~~" in text else ():
        line, at, end = full.removesuffix("\r"), end, min(end + len(full) + 1, len(text))
        has_fence = "```" in line or "~~~" in line
        if block is not None:
            inside = block.without_quotes(line)
            if has_fence and block.closed_by(inside):
                yield block.found(start, end, True)
                block = None
                continue
            if not has_fence or not block.is_fence(inside) or _opened(line) is None:
                block.add(inside)
                continue
            yield block.found(start, at, False)
        if has_fence:
            block, start = _opened(line), at
    if block is not None:
        yield block.found(start, end, False)


class _Block:
    """A block that is open: its fence, the quote marks and the indentation of it, and the lines so far."""

    def __init__(self, fence: str, info: str, quotes: int, column: int) -> None:
        self.fence, self.info, self.quotes, self.column = fence, info, quotes, column
        self.lines: list[str] = []
        self.first: int | None = None  # indentation of the first line that is not blank

    def found(self, start: int, end: int, closed: bool) -> Fenced:
        margin = min(self.column, self.first or 0)
        lines = [line[min(margin, _indentation(line)) :] for line in self.lines]
        return Fenced(self.info, "\n".join(lines), start, end, closed)

    def add(self, line: str) -> None:
        self.lines.append(line)
        if self.first is None and line.strip():
            self.first = _indentation(line)

    def without_quotes(self, line: str) -> str:
        for _ in range(self.quotes):
            bare = line.lstrip(" \t")
            if not bare.startswith(">"):
                return line
            line = bare[1:]
        return line

    def closed_by(self, line: str) -> bool:
        """Whether a line ends with the closing fence. Code before the fence is added."""
        fence = _FENCE.search(line)
        if fence is None or not _TAIL.fullmatch(line, fence.end()):
            return False
        before = line[: fence.start()]
        if not before.strip():
            return self.is_fence(line)
        if fence[0] == self.fence:
            self.add(before)
        return fence[0] == self.fence

    def is_fence(self, line: str) -> bool:
        """Whether a line begins with a fence that is no part of the code, as one in a docstring is."""
        deepest = max(self.column, self.first or 0) + 3
        return line.lstrip().startswith(self.fence) and _indentation(line) <= deepest


def _opened(line: str) -> _Block | None:
    """The block that a line opens."""
    fence, before = _FENCE.search(line), _BEFORE.match(line)
    if fence is None or before is None:
        return None
    info = line[fence.end() :].strip()
    follows_text = before.end() < fence.start()
    if "`" in info or (follows_text and (fence[0][0] == "~" or len(info.split()) > 1)):
        return None
    return _Block(fence[0], info, min(before[1].count(">"), 9), len(before[2]))


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())
