"""Embeds Markdown texts of a model or a person in a document.

The embedded text cannot change the rest of the document. Headings become bold text, HTML is escaped, open
fences are closed, and images become links, so that nothing is fetched. Headings, code and HTML are recognized
by a Markdown parser, not by pattern matching.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING

from tot_lab.core.calls import html_text
from tot_lab.views.figures.theme import printable, short
from tot_lab.views.mathml import FORMULA, element_of, to_latex, to_mathml

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_core import StateCore
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

LONG = 40_000
"""Number of characters above which a text becomes a code block, because parsing can take quadratic time."""

_UNESCAPED = r"(?<!\\)((?:\\\\)*)"
_HTML = re.compile(_UNESCAPED + r"<(?=[A-Za-z/!?])")
_IMAGE = re.compile(_UNESCAPED + r"!(?=\[)")
_CODE = re.compile(r"((?<!`)(`+)(?!`)(?:(?!\n[ \t>]*\n).)+?(?<!`)\2(?!`))", re.DOTALL)
_FIRST = re.compile(r"^(\d*)([#>+=~.)-])")
_PRODUCT = re.compile(r"(?<=[^\W_]|[)\]])\*+(?=[^\W_]|[(\[])")
_SIGNS = re.compile(r"[\\`*\[\]<]|(?<![^\W_])_|_(?![^\W_])|~(?=~)|&(?=#?\w+;)")


def to_html(markdown: str, *, mathml: bool = False) -> str:
    """Render Markdown as HTML. HTML in it is escaped, and images become links.

    Args:
        markdown: The text.
        mathml: Whether formulas become MathML, for a page. In a notebook they stay LaTeX, which the notebook
            renders, because the sanitiser of an untrusted notebook removes the elements of MathML, but not
            their texts.
    """
    return str(_renderer(mathml).render(markdown))


def text_to_html(text: str, *, mathml: bool = False) -> str:
    """Render a text of a model or a person as HTML. The text is plain or Markdown."""
    return to_html(sanitize(text), mathml=mathml)


def sanitize(text: str) -> str:
    """Make Markdown safe to embed between blank lines of a document.

    A text of more than 40,000 characters becomes a code block.
    """
    text = printable(text.replace("\r\n", "\n").replace("\r", "\n")).strip("\n").rstrip()
    if len(text) > LONG:
        return _fence(text)
    text = _close_fence(text)
    lines, code = text.split("\n"), set[int]()
    for token in _parser(False).parse(text):
        first, end = token.map or (0, 0)
        if token.type in ("fence", "code_block"):
            code.update(range(first, end))
        elif token.type == "heading_open":
            _replace_heading(lines, first, end - 1, token)
    parts = [
        (is_code, "\n".join(lines[k] for k in places))
        for is_code, places in groupby(range(len(lines)), lambda k: k in code)
    ]
    return _escape_parts(parts).strip("\n")


def is_paragraph(text: str) -> bool:
    """Whether a Markdown text is one line of prose, which can follow a label on its line."""
    paragraph = ["paragraph_open", "inline", "paragraph_close"]
    return "\n" not in text and [token.type for token in _parser(False).parse(text)] == paragraph


def excerpt(text: str, max_length: int) -> str:
    """Return the beginning of a Markdown text as one line of at most `max_length` characters.

    Code blocks are skipped unless the text contains nothing else. The line can be used in a list.
    """
    tokens = _parser(False).parse(printable(text[: 4 * max_length]))
    prose = " ".join(token.content for token in tokens if token.type == "inline")
    line = _escape_parts([(False, short(prose, max_length))])
    kinds = [token.type for token in _parser(False).parse(f"- {line}")]
    return (
        line
        if kinds[2:-2] == ["paragraph_open", "inline", "paragraph_close"]
        else escape_line(prose or text, max_length)
    )


def escape_line(text: str, max_length: int) -> str:
    """Put plain text on one line of at most `max_length` characters and escape Markdown characters."""
    line = _SIGNS.sub(r"\\\g<0>", short(text, max_length))
    return _FIRST.sub(r"\1\\\2", line)


@cache
def _parser(raw: bool) -> MarkdownIt:
    """Return a parser of CommonMark with tables and strikethrough. `raw` enables HTML and images."""
    from markdown_it import MarkdownIt  # noqa: PLC0415  only reports need it

    parser = MarkdownIt("commonmark", {"html": raw}).enable(["table", "strikethrough"])
    return parser if raw else parser.disable("image")


@cache
def _renderer(mathml: bool) -> MarkdownIt:
    """Return a parser that renders formulas, and keeps line breaks, the asterisks of products such as `2*3*4`
    and the numbers of lists.
    """
    from markdown_it import MarkdownIt  # noqa: PLC0415  only reports need it

    parser = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"])
    parser.disable("image")
    parser.block.ruler.before("fence", "formula", _block_formula, {"alt": ["paragraph", "list"]})
    parser.inline.ruler.before("escape", "formula", _inline_formula)
    parser.inline.ruler.before("emphasis", "product", _product)
    parser.core.ruler.push("numbers", _number_items)
    parser.add_render_rule("text", lambda _, tokens, k, *__: html_text(tokens[k].content))
    parser.add_render_rule(
        "formula",
        lambda _, tokens, k, *__: (to_mathml if mathml else to_latex)(tokens[k].meta["element"]),
    )
    return parser


def _block_formula(state: StateBlock, first: int, end: int, silent: bool) -> bool:
    """Rule of the Markdown parser for a formula that occupies whole lines."""
    start = state.bMarks[first] + state.tShift[first]
    match = state.src[start : start + 2] in ("$$", "\\[", "\\b") and FORMULA.match(state.src, start)
    after = first + match[0].count("\n") + 1 if match else 0
    if not match or after > end or state.src[match.end() : state.eMarks[after - 1]].strip():
        return False
    element = element_of(match)
    if element is None:
        return False
    if not silent:
        state.line = after
        state.push("formula", "math", 0).meta = {"element": element}
    return True


def _inline_formula(state: StateInline, silent: bool) -> bool:
    """Rule of the Markdown parser for a formula in a line. If it cannot be converted, it becomes code."""
    match = state.src[state.pos] in "$\\" and FORMULA.match(state.src, state.pos, state.posMax)
    if not match:
        return False
    if not silent:
        element = element_of(match)
        token = state.push("code_inline" if element is None else "formula", "code", 0)
        token.content, token.meta = match[0], {"element": element}
    state.pos = match.end()
    return True


def _product(state: StateInline, silent: bool) -> bool:
    """Rule of the Markdown parser that keeps the asterisks of `2*3*4`, which mark no emphasis."""
    match = _PRODUCT.match(state.src, state.pos, state.posMax)
    if not match:
        return False
    if not silent:
        state.pending += match[0]
    state.pos = match.end()
    return True


def _number_items(state: StateCore) -> None:
    """Give each item of a list the number that it has in the text."""
    for token in state.tokens:
        if token.type == "list_item_open" and token.info:
            token.attrSet("value", token.info)


def _close_fence(text: str) -> str:
    """Close the fence that is open at the end of `text`, if any."""
    tokens = _parser(False).parse(f"{text}\nend")
    if not tokens:  # `end` completed a link definition, which has no tokens
        return text
    last = tokens[-1]
    is_open = last.type == "fence" and last.content.endswith("end")
    return f"{text}\n{last.markup}" if is_open else text


def _replace_heading(lines: list[str], first: int, last: int, heading: Token) -> None:
    """Replace a heading in `lines` by bold text. The length of `lines` stays the same, because
    tokens refer to lines by number."""
    if heading.markup in ("=", "-"):  # a setext heading, underlined by the last line
        lines[last] = lines[last].rstrip(f"{heading.markup} \t")
        if heading.level == 0 and last == first + 1:
            lines[first] = _bold(lines[first].strip())
        return
    before, _, title = lines[first].partition("#")
    title = re.sub(r"[ \t]#+[ \t]*$", "", title.lstrip("#")).strip()
    blank = re.sub(r"[^\s>]", " ", before).rstrip()  # blank lines of a block quote start with ">"
    lines[first] = f"{blank}\n{before}{_bold(title)}\n{blank}"


def _bold(title: str) -> str:
    return f"**{title}**" if title and "**" not in title else title


def _escape_parts(parts: Iterable[tuple[bool, str]]) -> str:
    """Join parts of a text, and escape HTML and images outside code blocks.

    Each part is a tuple of a flag, which is true for a code block, and the text.
    """
    parts = list(parts)
    made = "\n".join(text if is_code else _escape_prose(text) for is_code, text in parts)
    tokens = _parser(True).parse(made)
    inside = [*tokens, *(child for token in tokens for child in token.children or ())]
    if any(token.type in ("html_block", "html_inline", "image") for token in inside):
        made = "\n".join(text if is_code else _escape(text) for is_code, text in parts)
    return made


def _escape_prose(text: str) -> str:
    """Escape `text` outside of inline code."""
    between = _CODE.split(text)  # prose, inline code, its backticks, prose, ...
    return "".join(part if k % 3 else _escape(part) for k, part in enumerate(between) if k % 3 != 2)


def _escape(text: str) -> str:
    text = re.sub(r"\n{3,}", "\n\n", text)  # replaced headings add blank lines
    return _IMAGE.sub(r"\1\\!", _HTML.sub(r"\1&lt;", text))


def _fence(text: str) -> str:
    longest = max(map(len, re.findall("`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text}\n{fence}"
