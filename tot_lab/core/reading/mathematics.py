"""Numbers and mathematical expressions in texts."""

from __future__ import annotations

import re
from collections import deque
from fractions import Fraction

_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+"
_NUMBER = re.compile(
    rf"(?<![\w.^])(?<!\^[-{{])(?<!\^\{{-)(?P<sign>[-+]?)\$?(?P<above>{_DIGITS})(?:[eE](?P<power>[-+]?\d{{1,3}})(?!\d))?"
    rf"(?:\s{{0,2}}/\s{{0,2}}\$?(?P<below>{_DIGITS}))?",
    re.ASCII,
)
_FRACTION = re.compile(r"\\[dt]?frac ?(?:\{(\d+)\}|(\d)) ?(?:\{(\d+)\}|(\d))", re.ASCII)
_POWER_OF_TEN = re.compile(
    r"(?<=\d) ?(?:\\times|\\cdot|[×·*x]) ?10 ?\^ ?(?:\{([-+]?\d{1,3})\}|([-+]?\d{1,3})(?!\d))", re.ASCII
)
_MIXED = re.compile(
    r"(?<![\w.,/])(\d{1,3}(?:,\d{3})+|\d+)"
    rf"(?: {{0,2}}{_FRACTION.pattern}| {{1,2}}(0|[1-9]\d*) ?/ ?(\d+))(?!\d|[.,/]\d)",
    re.ASCII,
)
_LONGEST = 1000  # characters; a longer number is not compared
_READ = 4000  # characters at the end of an answer that are searched for an expression


# Numbers.


def last_number(text: str) -> Fraction | None:
    r"""Return the exact last number in `text`: `1,000`, `$5`, `2.5e-1`, `3/4`, `\frac{3}{4}`, `1 3/4`.

    An exponent, such as that of `5 cm^2`, is not a number of its own, but `1.5 \times 10^3` is 1500. Returns
    `None` without a number, or if it has over 1,000 characters.
    """
    found = deque(_NUMBER.finditer(_with_slashes(text)), maxlen=1)
    return _value(found[0]) if found else None


def _value(number: re.Match[str]) -> Fraction | None:
    if len(number[0]) > _LONGEST:
        return None
    value = Fraction(number["above"].replace(",", "")) * Fraction(10) ** int(number["power"] or 0)
    if number["below"] is not None:
        below = Fraction(number["below"].replace(",", ""))
        if not below:
            return None
        value /= below
    return -value if number["sign"] == "-" else value


def _with_slashes(text: str) -> str:
    r"""Write numbers plainly: `\frac{3}{4}` as 3/4, `1\frac{3}{4}` as 7/4, `2 × 10^3` as 2e3."""
    text = text.replace("−", "-").replace("\\$", "$").replace("$-", "-$").replace("{,}", ",")
    text = _POWER_OF_TEN.sub(lambda match: f"e{match[1] or match[2]}", text)
    return _FRACTION.sub(lambda match: "/".join(filter(None, match.groups())), improper(text))


def improper(text: str) -> str:
    r"""Write mixed numbers, such as `1 3/4` and `1\frac{3}{4}`, as fractions: `\frac{7}{4}`."""
    return _MIXED.sub(_improper, text)


def _improper(match: re.Match[str]) -> str:
    parts = [part for part in match.groups() if part is not None]
    if max(map(len, parts)) > _LONGEST:
        return match[0]
    whole, above, below = (int(part.replace(",", "")) for part in parts)
    is_mixed = above < below  # `11 7/6` is no mixed number
    return f"\\frac{{{whole * below + above}}}{{{below}}}" if is_mixed else match[0]


def is_rounded(value: Fraction, exact: Fraction) -> bool:
    """Whether `value` is a decimal for `exact`, which no decimal equals: it has six places and five digits or
    more, and is off by less than one unit in the last place.
    """
    places = _places(value)
    if places is None or places < 6 or _places(exact) is not None:
        return False
    unit = Fraction(1, 10**places)
    return abs(value) >= 10_000 * unit and abs(value - exact) < unit


def _places(value: Fraction) -> int | None:
    """Return the number of decimal places of `value`. `None` if no decimal equals it."""
    rest, counts = value.denominator, {2: 0, 5: 0}
    for prime in counts:
        while rest % prime == 0:
            rest //= prime
            counts[prime] += 1
    return max(counts.values()) if rest == 1 else None


# Expressions.

_IGNORED = ("\\$", "€", "£", "¥", "\\left", "\\right", "\\!", "\\,", "\\;", "\\:", "\\ ", "$", "~")
_BRACED = re.compile(r"\\(?:text|textbf|textrm|mathrm|mbox|begin|end)\{([^{}]*)\}")
_NAME = re.compile(r"(?<![\\A-Za-z])(pi|sin|cos|tan|log|ln)\b")
_BETWEEN = re.compile(r"(?:[\s,;$]|\\(?:quad|text\{,? ?(?:and|or) ?\}|[()\[\]])|(?:and|or)\b)*")  # two boxes
_ROOT = re.compile(r"√ ?(\d+|[a-z])")
_JOINED = re.compile(r"\s(?:and|or)\s")
_THOUSANDS = re.compile(r"(?<=\d) (?=\d{3}(?!\d))", re.ASCII)
_LOOSE = re.compile(r"(?<![\d,]) | (?!\d)")
_WORD = re.compile(
    r"(?<![\\A-Za-z])(?!sqrt\b)(?:[A-Za-z]{4,}|(?:the|are|for|is|of|to|in|by|we|it|so|cm|km|mm|kg|ft)\b)"
)


def last_boxed(text: str) -> str | None:
    r"""Return the content of the last `\boxed{…}`. `None` without one, or if it is not closed.

    Boxes that follow each other, such as `\boxed{1}` and `\boxed{2}`, are one list: `1, 2`. A box that
    repeats the one before it is left out.
    """
    found: list[str] = []
    end = len(text)
    while (start := text.rfind("\\boxed{", 0, end)) >= 0:
        close = _closing(text, start + 6)
        if close is None or (found and not (close < end and _BETWEEN.fullmatch(text, close + 1, end))):
            break
        content = text[start + 7 : close]
        if found[-1:] != [content]:
            found.append(content)
        end = start
    return ", ".join(reversed(found)) if found else None


def boxed_answer(text: str) -> str | None:
    r"""Return the content of the last `\boxed{…}`, also of `\boxed{\text{…}}`. `None` if it is empty."""
    boxed = (last_boxed(text) or "").strip()
    braced = _BRACED.fullmatch(boxed)
    return (braced[1].strip() if braced else boxed) or None


def unboxed(text: str) -> str:
    r"""Return the content of a box that is all of `text`, such as `$\boxed{5}$.`, or else `text`."""
    around = text.replace(f"\\boxed{{{last_boxed(text)}}}", "", 1)
    return text if around.strip(" \t\r\n$*_`.,:;()[]\\") else boxed_answer(text) or text


def _closing(text: str, start: int) -> int | None:
    """Return the index of the brace that closes the one at `start`."""
    depth = 0
    for k in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[k], 0)
        if depth == 0:
            return k
    return None


def without_text_marks(text: str) -> str:
    r"""Return `text` without commands such as `\text{…}`, whose content is kept."""
    return _BRACED.sub(r"\1", text)


def math_key(answer: str) -> Fraction | str:
    """Return the value of an answer that is a number, or else its expression without what LaTeX ignores."""
    tail = answer[-_READ:]
    text = without_text_marks(last_boxed(tail) or tail).replace("{,}", ",").replace("\\! ", "")
    for mark in _IGNORED:
        text = text.replace(mark, "")
    text = _LOOSE.sub("", " ".join(text.split())).strip("*`").rstrip(".")
    for degrees in ("^\\circ", "^{\\circ}", "°"):
        text = text.removesuffix(degrees)
    number = _NUMBER.fullmatch(_with_slashes(_THOUSANDS.sub("", improper(text))))
    value = None if number is None else _value(number)
    if value is not None:
        return value
    text = text.replace(", ", ",").replace("dfrac", "frac").replace("tfrac", "frac")
    return text.casefold() if text.isalpha() and len(text) > 3 else text


def as_latex(text: str) -> str:
    """Mark an expression as LaTeX, so that all of it is read. A text with words or marks stays as it is."""
    text = text[-_READ:]
    boxed = last_boxed(text)
    text = _ROOT.sub(r"\\sqrt{\1}", improper(text if boxed is None else boxed).strip(" \t\r\n*`"))
    if boxed is not None:
        return f"${text}$"
    text = _JOINED.sub(", ", text)
    is_marked = "$" in text.replace("\\$", "") or any(mark in text for mark in ("\\(", "\\["))
    is_prose = "\n" in text or _WORD.search(_BRACED.sub("", text)) is not None
    return text if is_marked or is_prose else "$" + _NAME.sub(r"\\\1 ", text.rstrip(".")) + "$"
