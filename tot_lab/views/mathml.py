r"""LaTeX formulas in texts as MathML.

A formula is written as `$…$`, `$$…$$`, `\(…\)` or `\[…\]`, or is an environment such as `align`. Amounts of
money are not formulas. A formula that cannot be converted, or is longer than 2,000 characters, remains LaTeX.
The MathML has only the elements and attributes of `_TAG` and `_ATTRIBUTE`, so that it can execute nothing.

Searching takes time proportional to the length of the text. The converter is imported with the first formula.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from html import escape, unescape
from typing import Any

LONGEST = 2000
"""Maximum number of characters of a formula."""

DEPTH = 60
"""Maximum depth of nested elements of a formula."""

# No alternative can contain its own opening delimiter, so that many unclosed delimiters take linear time.
# `formulaAt` in rich.js finds the same formulas.
FORMULA = re.compile(
    r"""
    (?<!\\)(?:
    \$\$(?P<dollars>(?:(?!\$\$|\n[ \t]*\n).)+)\$\$
    | \$(?![\s$])(?P<dollar>(?:[^$\n\\]|\\[^\n])+)(?<!\s)\$(?!\d)
    | \\\[(?P<square>(?:(?!\\\[|\\\]|\n[ \t]*\n).)+)\\\]
    | \\\((?P<round>(?:(?!\\\(|\\\)|\n[ \t]*\n).)+)\\\)
    | (?P<whole>\\begin\{(?P<name>(?:align|gather|equation|multline)\*?)\}
      (?:(?!\\begin\{(?P=name)\}|\n[ \t]*\n).)+?\\end\{(?P=name)\})
    )
    """,
    re.DOTALL | re.VERBOSE,
)

_TAG = re.compile(
    "m(ath|row|i|n|o|text|space|frac|sqrt|root|su[bp]|subsup|under|over|underover|table|t[rd]|style|enclose|"
    "padded|phantom)"
)
_ATTRIBUTE = re.compile(
    "accent|columnalign|display(style)?|fence|form|linethickness|mathvariant|m(ax|in)size|movablelimits|"
    "notation|scriptlevel|separator|stretchy|width"
)
_VALUE = re.compile(r"[\w.%+ -]{1,40}")
# A formula that defines a macro is not converted, and becomes code. As LaTeX, it would define the macro for
# the whole notebook, and a recursive macro would never end.
_DEFINITION = re.compile(r"\\(?:[gex]?def|let|(?:re)?new\w+|provide\w+|Declare\w+)\b")
# Environments and commands that the converter does not know, with their replacements.
_SYNONYMS = (
    (re.compile(r"\\(begin|end)\{(?:aligned|alignedat|align)\}"), r"\\\1{align*}"),
    (re.compile(r"\\(begin|end)\{(?:gathered|gather|multline)\*?\}"), r"\\\1{matrix}"),
    (re.compile(r"\\(?:begin|end)\{equation\*?\}|\\(?:label|nonumber|notag)\b(?:\{[^{}]*\})?"), ""),
)

Element = list[Any]
"""An element as `[tag, attributes, *children]`. A child is an element or a text."""


def formulas_of(texts: Iterable[str]) -> dict[str, Element]:
    """Map the source of each formula in `texts`, with delimiters, to its element.

    Formulas that cannot be converted are left out.
    """
    found: dict[str, Element] = {}
    for text in texts:
        if "$" in text or "\\" in text:
            for match in FORMULA.finditer(text):
                if match[0] not in found and (element := element_of(match)) is not None:
                    found[match[0]] = element
    return found


def element_of(match: re.Match[str]) -> Element | None:
    """Return the element of a match of `FORMULA`, or `None` if the formula cannot be converted."""
    inline = match["dollar"] or match["round"]
    latex = inline or match["dollars"] or match["square"] or match["whole"]
    if len(latex) > LONGEST or _DEFINITION.search(latex):
        return None
    return _convert(latex, inline is None)


def to_mathml(element: Element | str) -> str:
    """Return the MathML source of an element. Texts and attribute values are escaped."""
    if isinstance(element, str):
        return escape(element)
    tag, attributes, *children = element
    given = "".join(f' {name}="{escape(value)}"' for name, value in attributes.items())
    return f"<{tag}{given}>{''.join(map(to_mathml, children))}</{tag}>"


def to_latex(element: Element) -> str:
    """Return the LaTeX source of a formula's element, with delimiters and escaped for HTML."""
    latex, is_block = element[1]["alttext"], element[1]["display"] == "block"
    if FORMULA.fullmatch(latex):  # an environment
        return escape(latex)
    return escape(rf"\[{latex}\]" if is_block else rf"\({latex}\)")


@lru_cache(4096)
def _convert(latex: str, is_block: bool) -> Element | None:
    from latex2mathml.converter import convert_to_element  # noqa: PLC0415  few texts contain formulas

    source = latex = latex.replace("&lt;", "<")  # escaped by `sanitize`
    for pattern, known in _SYNONYMS:
        latex = pattern.sub(known, latex)
    try:
        made = _checked(convert_to_element(latex, display="block" if is_block else "inline"), 0)
        made[1]["alttext"] = source
        return made
    except Exception:
        return None


def _checked(element: Any, depth: int) -> Element:
    """Convert an XML element of the converter to an `Element`.

    Raises:
        ValueError: The tag is not allowed, the nesting is too deep, or LaTeX remains unconverted.
    """
    text = unescape(element.text or "")
    is_known = _TAG.fullmatch(element.tag) is not None and depth <= DEPTH
    if not is_known or text == "&" or "\\" in text or "href" in element.attrib:
        raise ValueError(element.tag)
    if element.tag == "mfrac" and len(element) != 2:
        raise ValueError("fraction without two parts")
    attributes = {
        name: value
        for name, value in element.attrib.items()
        if _ATTRIBUTE.fullmatch(name) and _VALUE.fullmatch(value)
    }
    return [
        element.tag,
        attributes,
        *([text] if text else []),
        *(_checked(one, depth + 1) for one in element),
    ]
