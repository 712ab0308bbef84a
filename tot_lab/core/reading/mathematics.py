"""Numbers and mathematical expressions in texts."""

from __future__ import annotations

import re
from collections import deque
from fractions import Fraction
from typing import NamedTuple
from unicodedata import normalize

from tot_lab.core.arithmetic import FULL_WIDTH

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
    r"""Return the exact value of the last number in `text`: `1,000`, `2.5e-1`, `\frac{3}{4}`, `1 3/4`.

    An exponent, such as the 2 of `5 cm^2`, does not count as a number, but `1.5 \times 10^3` is 1500. Returns
    `None` for a text without numbers, or if the last one has over 1,000 characters or divides by zero.
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
    """Whether `value` is a decimal rounded from `exact`.

    `value` must have at least six decimal places and five significant digits, and differ from `exact` by less
    than one unit in the last place. `False` if a decimal equals `exact`.
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

_BRACED = re.compile(r"\\(?:text|textbf|textrm|mathrm|mbox|begin|end)\{([^{}]*)\}")
_BETWEEN = re.compile(  # text between two boxes of one list
    r"(?>(?:[\s,;$]|[-+*_=]{3,40}|\\(?:quad|text\{,? ?(?:and|or) ?\}|[()\[\]])|(?:and|or)\b)*)\\?"
    r"|[^.!?\n]{0,40}\b(?:and|or)[\s$}]*+(?:\\[(\[]\s*+)?(?:[A-Za-z]\w*\s*=\s*)?"
)
_STATED = re.compile(r"\banswer(?: is|:)[:\s*]*+", re.IGNORECASE)
_HOPE = " I hope it is correct"

# Signs and marks.

_COMMANDS = r"times cdot cdot infty emptyset pm le ge ne approx cup in pi alpha beta gamma theta lambda"
_SIGNS = str.maketrans(
    {
        **{sign: rf"\{name} " for sign, name in zip("×·⋅∞∅±≤≥≠≈∪∈παβγθλ", _COMMANDS.split(), strict=True)},
        **dict(zip("−–÷⁄~\xa0", "--//  ", strict=True)),
        **dict.fromkeys("€£¥", ""),
        **{chr(wide): plain for wide, plain in FULL_WIDTH.items()},
        "√": " sqrt",
        "°": r"^\circ ",
    }
)
_SMALL = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ₀₁₂₃₄₅₆₇₈₉", "0123456789+-n0123456789")
_RAISED = re.compile(r"[⁰¹²³⁴-⁹⁺⁻ⁿ]+")
_LOWERED = re.compile(r"[₀-₉]+")
_VULGAR = re.compile(r"[¼-¾⅐-⅞]|[⁰¹²³⁴-⁹]{1,9}⁄[₀-₉]{1,9}")
_ROOT = re.compile(r"([√∛]) ?(\d+(?:\.\d+)?)", re.ASCII)
_REPEATING = re.compile(r"(\d{0,40})\.(\d{0,40})\\(?:overline|bar)\{(\d{1,40})\}", re.ASCII)
_SCIENTIFIC = re.compile(r"(?<![\w.])(\d{1,40}(?:\.\d{1,40})?)[eE]([-+]?\d{1,3})(?!\w)", re.ASCII)
_TEXT = re.compile(r"\\(?:text|math(?!bb|cal)|mbox|operatorname)\w*+\*?\s*+\{\s*+")
_IGNORED = re.compile(
    r"\\(?:left|right)(?![A-Za-z])|\\(?:[Bb]igg?[lr]?|displaystyle)(?![A-Za-z])|(?<!\\)\\! ?"
    r"|\\\$|\\color\{\w+\}|</?answer>"
)
_SPACE = re.compile(r"(?<!\\)\\[,;: ()\[\]\"]|\\q?quad(?![A-Za-z])|\$")
_FRACTIONS = re.compile(r"\\[dtc]frac(?![A-Za-z])")
_STARS = re.compile(r"(?<=[\w)}\]]) ?\*\* ?(?=[\w({\\-])", re.ASCII)
_JOINED = re.compile(
    r"(?<![, ])[, ]*+(?:(?:\\text\{)?[, ]*+(?<![A-Za-z\\])(?:and|or|und|oder|et|ou)(?![A-Za-z])[, ]*+\}?"
    r"|\\lor\b|[、和或])"
)
_PERCENT = re.compile(r" ?(?:\\text\{)?\b(?:percent(?:age)?|pct)\b\}?")
_DEGREES = re.compile(r" ?(?:\\text\{)?\bdegrees?\b\}?")
_RATIO_OF_UNITS = re.compile(r"\\frac\{(\\text\{[^{}]*\})\}\{(\\text\{[^{}]*\}(?:\^\d)?)\}")
_BUILDER = re.compile(r"^\\?\{ ?\w(?: ?\\in ?\\mathbb\{R\})? ?(?:\||:|\\mid) ?(.*?)\\?\}$")
_BASE = re.compile(r"(?<=[\dA-Z]) ?\(?(?:in )?base[ -](\d{1,2})\)?$", re.ASCII)
_GROUPS = re.compile(r"[()\[\]]|\\[{}]|(?<![\w.,])\d{1,3}((?:,\d{3})+|(?: \d{3})+)(?![\d,])", re.ASCII)
_SYMBOL = re.compile(r"\\text\{ ?(\(?[A-Za-z]\)?|[\d.]++) ?\}", re.ASCII)
_LOOSE = re.compile(r"(?<![\d,]) | (?!\d)")

# Words around an expression.

_WORD = re.compile(
    r"(?<![\\A-Za-z])(?!(?:sqrt|sinh|cosh|tanh|arc(?:sin|cos|tan)|infinity|alpha|beta|gamma|theta)\b)"
    r"(?:[A-Za-z]{4,}|(?:the|are|for|is|of|to|in|by|we|it|so)\b)"
)
_LEAD = re.compile(
    r"^(?:[^\d\n=<>\\]{0,80}\b(?:is|are|was|were|has|have|equals|takes|gives|get)\b:? ?)?"
    r"(?:(?:either|both|exactly|only|just|about|approximately|roughly)\b ?)*",
    re.IGNORECASE,
)
_ASIDE = re.compile(
    r"(?:,? (?:since|because|as|where|rather|instead)\b.*|, not\b.*"
    r"|,? (?:or|i\.e\.,?) (?:about|approximately|roughly)\b.*"
    rf"| \((?!(?:in )?base)(?=[^()]*(?:{_WORD.pattern}|[%=<>≈]))[^()]*\)\.?)$"
)
_HEDGE = re.compile(r"\b(?:maybe|perhaps|possibly|probably|might|could|guess|sure)\b|\?$")
_DOUBT = re.compile(
    rf"{_HEDGE.pattern}|(?<!\\)\b(?:between|then|up to|except|suppose|wrong|incorrect|impossible|cannot"
    r"|not(?!\D*\d\S*\D+\d)|at (?:least|most)|(?:more|less|fewer|greater) than|over|under|above|below|nearly"
    r"|almost|half|twice|double|triple|(?:of|by|from|on|root|step|case|option|equation|the) (?=\d)"
    r"|times|factorial|squared|cubed|dozen|hundred|thousand|million|billion)\b"
    r"|^\$?(?:[<>≤≥≠](?!answer)|\\(?:[lg]e|ne|[lg]t))"
)

# Units.

_UNITS = """
mm millimeter millimetre, cm centimeter centimetre, dm, m meter metre, km kilometer kilometre, in inch inches,
ft foot feet, yd yard, mi mile, mg milligram, g gram, kg kilogram, lb lbs pound, oz ounce, mol mole,
ms millisecond, s sec second, min minute, h hr hour, day, week, month, year, ml mL milliliter,
l L liter litre, gal gallon, cup,
tbsp tablespoon, tsp teaspoon, mph, N newton, J joule, W watt, V volt, A ampere, Pa pascal, Hz hertz,
rad radian, unit, dollar, cent, euro, yen
"""
_UNIT_NAMES = {
    name + ending: names[0]
    for names in map(str.split, _UNITS.split(","))
    for name in names
    for ending in ("", "s")
    if not ending or (len(name) > 2 and not name.endswith("s"))
}
_MONEY = {"\\$": "dollar", "€": "euro", "£": "pound", "¥": "yen"}
_DEGREE = r"(?<=\d)\^\{?\\circ\}? ?(?:\\text\{)?[CF]?\}?"
_UNIT_WORD = (
    r"(?:\\text\{[^{}]{0,40}\}|(?<![A-Za-z])(?:(?:square|sq|cubic|cu)\.? )?"
    rf"(?:{'|'.join(sorted(_UNIT_NAMES, key=len, reverse=True))})(?![A-Za-z]))(?:\^\{{?-?\d\}}?)?"
)
_UNIT = re.compile(
    rf"(?<=[\d}}) !])({_DEGREE}|{_UNIT_WORD}(?: ?(?:/|per\b|\\cdot|\*|)? ?{_UNIT_WORD}){{0,3}})\.?$"
)
_UNIT_POWER = re.compile(r"\b(square|sq|cubic|cu)\b\.? ?([A-Za-z]+)")
_INVERSE = re.compile(r"(?<![A-Za-z])([A-Za-z]++)\^-(?:1|(\d))")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_UNIT_PART = re.compile(r"[A-Za-z]+|\^?-?\d|/")


class Expression(NamedTuple):
    """An expression in LaTeX without delimiters, and its unit.

    Attributes:
        text: The expression. `None` if it contains words or several lines.
        unit: Its unit. Empty if it has none.
    """

    text: str | None
    unit: str


def read_expression(text: str) -> Expression:
    r"""Read an expression in LaTeX, Unicode or plain text, without its box and delimiters (`$…$`, `\(…\)`).

    A list with "and" or "or" becomes one with commas. Signs such as `½`, `x²` and `**` become LaTeX.
    """
    stated = _stated(text)
    if "\n" in stated.strip(" \t\r\n*`$[]\\") and "\\begin{" not in stated:
        return Expression(None, "")
    money = next((name for sign, name in _MONEY.items() if sign in stated), "")
    text = _plain(stated)
    whole = _BRACED.fullmatch(text)
    text, unit = _split_unit(whole[1].strip() if whole else text)
    text = _SYMBOL.sub(r"\1", text)
    has_words = _WORD.search(_BRACED.sub("", text)) or _DOUBT.search(text)
    return Expression(None if has_words else text, unit or money)


def math_key(answer: str) -> Fraction | str:
    """Return a key of an answer: the value of a number, a word in lower case, or any other expression in
    normalised notation.
    """
    text = _LOOSE.sub("", without_text_marks(_plain(_stated(answer))))
    for degrees in ("^\\circ", "^{\\circ}"):
        text = text.removesuffix(degrees)
    number = _NUMBER.fullmatch(_with_slashes(text))
    value = None if number is None else _value(number)
    if value is not None:
        return value
    is_word = text.isalpha() and (len(text) > 3 or text.casefold() in ("yes", "no", "odd"))
    return text.casefold() if is_word else text


def as_latex(text: str) -> str:
    """Mark an expression as LaTeX (`$…$`), so that math-verify reads all of it. A text with words is not
    marked; only its signs and mixed numbers are written in LaTeX.
    """
    found = read_expression(text).text
    return improper(_signs_as_latex(text[-_READ:])) if found is None else f"${found}$"


def is_doubtful(text: str) -> bool:
    """Whether a short text has words that leave open which number it states."""
    text = _stated(text).strip(" \t\r\n*`.")
    is_short = "\n" not in text and ". " not in text
    return is_short and (_DOUBT.search(text) or _JOINED.search(text)) is not None


def _stated(text: str) -> str:
    """Return what follows the last `answer is` behind the last box, or else the content of the last box, or
    else the end of the text. Without a box, `answer is` may be anywhere.
    """
    tail = text[-_READ:]
    found = deque(_STATED.finditer(tail, max(tail.rfind("\\boxed{"), 0)), maxlen=1)
    stated = tail[found[0].end() :].partition(_HOPE)[0].strip().partition("\n")[0] if found else ""
    return _without_words_around(stated or last_boxed(tail) or tail)


def _without_words_around(text: str) -> str:
    """Return the `5` of `The sum is 5 (as computed), not 6`. A text with several lines or doubts is
    unchanged.
    """
    line = _ASIDE.sub("", text.strip(" \t\r\n*`"))
    is_open = _HEDGE.search(text) or _DOUBT.search(line)
    return text if "\n" in text.strip() or is_open else _LEAD.sub("", line, count=1)


def _plain(text: str) -> str:
    """Normalise the notation of signs, commands, lists, powers and mixed numbers."""
    text = _TEXT.sub(r"\\text{", _signs_as_latex(text))
    text = _SPACE.sub(" ", _IGNORED.sub("", text)).replace("{,}", ",")
    text = _SCIENTIFIC.sub(r"\1 \\times 10^{\2}", text)
    text = _FRACTIONS.sub(r"\\frac", _STARS.sub("^", text))
    text = _DEGREES.sub(r"^\\circ", _PERCENT.sub(r"\\%", _JOINED.sub(", ", text)))
    text = " ".join(text.split()).strip(" *`").rstrip(".,; ")
    text = _BUILDER.sub(r"\1", _RATIO_OF_UNITS.sub(r" \1/\2", text))
    return _BASE.sub(r"_{\1}", _without_thousands(improper(text)))


def _signs_as_latex(text: str) -> str:
    text = _VULGAR.sub(
        lambda match: "\\frac{{{}}}{{{}}}".format(*normalize("NFKC", match[0]).split("⁄")), text
    )
    text = _REPEATING.sub(_repeating, text)
    text = _RAISED.sub(lambda match: "^{" + match[0].translate(_SMALL) + "}", text)
    text = _LOWERED.sub(lambda match: "_{" + match[0].translate(_SMALL) + "}", text)
    text = _ROOT.sub(lambda match: f"\\sqrt{'[3]' if match[1] == '∛' else ''}{{{match[2]}}}", text)
    return text.translate(_SIGNS)


def _repeating(match: re.Match[str]) -> str:
    whole, before, period = match.groups()
    above = int(f"{whole}{before}{period}") - int(f"0{whole}{before}")
    return f"\\frac{{{above}}}{{{10 ** len(before) * (10 ** len(period) - 1)}}}"


def _without_thousands(text: str) -> str:
    """Join the digits of `1,234` and `1 234`. Inside brackets a comma separates numbers."""
    depth = 0

    def joined(match: re.Match[str]) -> str:
        nonlocal depth
        if match[1] is None:
            depth += 1 if match[0][-1] in "([{" else -1
        return match[0] if match[1] is None or depth > 0 else match[0].replace(",", "").replace(" ", "")

    return _GROUPS.sub(joined, text)


def _split_unit(text: str) -> tuple[str, str]:
    """Split a number from the unit after it. Any other text is returned whole, with the unit ""."""
    found = _UNIT.search(text)
    if found is None:
        return text, ""
    before = text[: found.start()].strip()
    letters = _COMMAND.sub("", before.rpartition("=")[2])
    is_number = any(map(str.isdigit, before)) and not any(map(str.isalpha, letters))
    is_angle = found[1].startswith("^") and "\\" in before  # `\cos 58^\circ`
    return (before, found[1]) if is_number and not is_angle else (text, "")


def unit_key(unit: str) -> str:
    """Return the standard spelling of a unit: `m/s` for `meters per second`."""
    text = without_text_marks(unit).replace("{", "").replace("}", "")
    text = _UNIT_POWER.sub(lambda match: f"{match[2]}^{3 if match[1].startswith('cu') else 2}", text)
    parts = _UNIT_PART.findall(_INVERSE.sub(r"/\1\2", text).replace("per ", "/"))
    return "".join(_UNIT_NAMES.get(part) or _UNIT_NAMES.get(part.lower(), part.lower()) for part in parts)


# Boxes.


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
    r"""Return the content of the last `\boxed{…}`, also of `\boxed{\text{…}}`. `None` without a box."""
    boxed = (last_boxed(text) or "").strip()
    braced = _BRACED.fullmatch(boxed)
    return (braced[1].strip() if braced else boxed) or None


def unboxed(text: str) -> str:
    r"""Return the content of a box that is all of `text`, such as `$\boxed{5}$.`, or else `text`."""
    if "\\boxed" not in text:
        return text
    around = text.replace(f"\\boxed{{{last_boxed(text)}}}", "", 1).replace("\\boxed", "")
    return text if around.strip(" \t\r\n$*_`.,:;()[]{}\\") else boxed_answer(text) or text


def _closing(text: str, start: int) -> int | None:
    """Return the index of the brace that closes the one at `start`. `None` if it is not closed."""
    depth = 0
    for k in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[k], 0)
        if depth == 0:
            return k
    return None


def without_text_marks(text: str) -> str:
    r"""Return `text` without commands such as `\text{…}`, whose content is kept."""
    return _BRACED.sub(r"\1", text)
