"""Markdown that a model or a person wrote, as a part of a document of ours.

It stays within its place. Its headings are no sections of the document, its HTML is text, an open fence
ends with it, and nothing in it is fetched from anywhere. What is a heading, code or HTML says a parser, never
a guess from its signs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING

from tot_lab.views.figures.theme import printable, short

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

LONG = 40_000
"""Characters beyond which a text is shown as it is: the parser's time can grow with their square."""

_UNESCAPED = r"(?<!\\)((?:\\\\)*)"
_HTML = re.compile(_UNESCAPED + r"<(?=[A-Za-z/!?])")
_IMAGE = re.compile(_UNESCAPED + r"!(?=\[)")
_CODE = re.compile(r"((?<!`)(`+)(?!`)(?:(?!\n[ \t>]*\n).)+?(?<!`)\2(?!`))", re.DOTALL)
_FIRST = re.compile(r"^(\d*)([#>+=~.)-])")
_SIGNS = re.compile(r"[\\`*\[\]<]|(?<![^\W_])_|_(?![^\W_])|~(?=~)|&(?=#?\w+;)")


def to_html(markdown: str) -> str:
    """`markdown` as HTML, in which HTML is text and an image a link."""
    return str(_parser(False).render(markdown))


def sanitize(text: str) -> str:
    """`text`, to be put between blank lines. One of more than 40,000 characters becomes a block of code."""
    text = printable(text.replace("\r\n", "\n").replace("\r", "\n")).strip("\n").rstrip()
    if len(text) > LONG:
        return _fenced(text)
    text = _closed(text)
    lines, code = text.split("\n"), set[int]()
    for token in _parser(False).parse(text):
        first, end = token.map or (0, 0)
        if token.type in ("fence", "code_block"):
            code.update(range(first, end))
        elif token.type == "heading_open":
            _no_heading(lines, first, end - 1, token)
    parts = [
        (is_code, "\n".join(lines[k] for k in places))
        for is_code, places in groupby(range(len(lines)), lambda k: k in code)
    ]
    return _harmless(parts).strip("\n")


def excerpt(text: str, most: int) -> str:
    """The beginning of what `text` says, on one line of at most `most` characters; of code only where there
    is nothing else. It may stand in a list."""
    tokens = _parser(False).parse(printable(text[: 4 * most]))
    said = " ".join(token.content for token in tokens if token.type == "inline")
    line = _harmless([(False, short(said, most))])
    kinds = [token.type for token in _parser(False).parse(f"- {line}")]
    return (
        line
        if kinds[2:-2] == ["paragraph_open", "inline", "paragraph_close"]
        else escape_line(said or text, most)
    )


def escape_line(text: str, most: int) -> str:
    """`text` on one line of at most `most` characters, none of them a sign of Markdown."""
    line = _SIGNS.sub(r"\\\g<0>", short(text, most))
    return _FIRST.sub(r"\1\\\2", line)


@cache
def _parser(raw: bool) -> MarkdownIt:
    """CommonMark, with tables and what is struck out. raw: with HTML and images."""
    from markdown_it import MarkdownIt  # noqa: PLC0415  only a report needs it

    parser = MarkdownIt("commonmark", {"html": raw}).enable(["table", "strikethrough"])
    return parser if raw else parser.disable("image")


def _closed(text: str) -> str:
    """`text`, with the fence closed that is open at its end."""
    tokens = _parser(False).parse(f"{text}\nend")
    if not tokens:  # the definition of a link, which shows nothing
        return text
    last = tokens[-1]
    is_open = last.type == "fence" and last.content.endswith("end")
    return f"{text}\n{last.markup}" if is_open else text


def _no_heading(lines: list[str], first: int, last: int, heading: Token) -> None:
    """Make bold the heading in `lines`; their number stays as it is."""
    if heading.markup in ("=", "-"):  # underlined, by the last line
        lines[last] = lines[last].rstrip(f"{heading.markup} \t")
        if heading.level == 0 and last == first + 1:
            lines[first] = _bold(lines[first].strip())
        return
    before, _, title = lines[first].partition("#")
    title = re.sub(r"[ \t]#+[ \t]*$", "", title.lstrip("#")).strip()
    apart = re.sub(r"[^\s>]", " ", before).rstrip()  # inside of a quotation a blank line has its sign
    lines[first] = f"{apart}\n{before}{_bold(title)}\n{apart}"


def _bold(title: str) -> str:
    return f"**{title}**" if title and "**" not in title else title


def _harmless(parts: Iterable[tuple[bool, str]]) -> str:
    """The parts in lines, without HTML and images where they are no blocks of code (True)."""
    parts = list(parts)
    made = "\n".join(text if is_code else _careful(text) for is_code, text in parts)
    tokens = _parser(True).parse(made)
    inside = [*tokens, *(child for token in tokens for child in token.children or ())]
    if any(token.type in ("html_block", "html_inline", "image") for token in inside):
        made = "\n".join(text if is_code else _escaped(text) for is_code, text in parts)
    return made


def _careful(text: str) -> str:
    """Escaped but for what looks like code within a line."""
    between = _CODE.split(text)  # each code is followed by its sign alone
    return "".join(part if k % 3 else _escaped(part) for k, part in enumerate(between) if k % 3 != 2)


def _escaped(text: str) -> str:
    text = re.sub(r"\n{3,}", "\n\n", text)  # a heading brings blank lines of its own
    return _IMAGE.sub(r"\1\\!", _HTML.sub(r"\1&lt;", text))


def _fenced(text: str) -> str:
    longest = max(map(len, re.findall("`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text}\n{fence}"
