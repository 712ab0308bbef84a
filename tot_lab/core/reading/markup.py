"""Removal of markup around numbers and words, and detection of words that deny or doubt a statement."""

from __future__ import annotations

import re
import unicodedata

from tot_lab.core.arithmetic import FULL_WIDTH
from tot_lab.core.reading.decoration import END_OF_TURN

READ = 100_000
"""Characters at the end of a reply that are searched for statements."""

MOST = 1_000
"""Maximum number of statements that are read, counted from the end."""

ALL_MARKS = r"\s*`\"'()\[\]{}|#$«»‹›“”„‟‚‘’「」『』【】〔〕《》〈〉"
"""Characters that may surround a number or a word, for use inside the brackets of a regular expression."""

MARKS = ALL_MARKS.replace(r"\s", r" \t\xa0\r")
"""`ALL_MARKS` without line breaks."""

TAKEN_BACK = (
    rf"[.,;…]{{0,3}}[{MARKS}]*+(?:[–—-][{MARKS}]*+)?(?:no|wait|sorry|or rather|correction|actually)\b"
    r"(?:,? wait\b)?[ ,:;–—-]{0,4}"
)
"""Text between a number and the number that corrects it, such as `, no, `."""

_DOUBT = re.compile(
    r"(?:\b(?:second|2nd|third|next|previous|earlier|former|old|current|maximum|minimum|max|min|highest|average)"
    r"[\s-]{0,3}|\d\)?,? or "
    r"|(?:\b(?:nor|not|never|could|might|may|I doubt|to (?:find|choose|decide|determine|get))\b|n['’]t\b)"
    r"[^.,;:!?(\n]*+"
    r"|\b(?:if(?! I (?:had to|must))|whether|unless|otherwise|many|some|maybe|perhaps|so far|initially"
    r"|at first)\b[^.!?\n]*+)\Z",
    re.IGNORECASE,
)
"""Words that deny or doubt a statement: directly before it, earlier in its clause, or in its sentence."""

_BEFORE = 120  # characters before a statement that can deny it

_WIDE = FULL_WIDTH | {
    0x3000: " ",
    0x2212: "-",
    0x2044: "/",
    ord("_"): " ",
    0xFEFF: "",
}
_EMOJI = re.compile("[\u2600-\u27bf\u2b00-\u2bff\U0001f300-\U0001faff\ufe0f]+")
_SYMBOLS = re.compile("[¼-¾⅐-⅞①-⑳\U0001d400-\U0001d7ff]+")
_TAG = re.compile(r"<(/?)([A-Za-z][\w -]{0,30})[^<>\n]{0,100}>")
_ANGLES = re.compile(r"<\s?(\.?\d[\d./%]{0,12})\s?>")
_FRACTION = re.compile(r"\\[dt]?frac\s?\{(\d{1,20})\}\s?\{(\d{1,20})\}")
_LATEX = re.compile(
    r"\\[(\[]\s{0,9}|\s{0,9}\\[)\]]"  # the line breaks inside them too: a displayed formula stays in its line
    r"|\\(?:[A-Za-z]{1,20}\s?\{|(?:rm|bf|displaystyle)\b\s?|[,;! ]|(?=%))|\${1,2}"
)


def without_markup(text: str) -> str:
    r"""A text in plain ASCII forms, without LaTeX commands, tags and end-of-turn tokens.

    Full-width characters are written plainly, `\frac{7}{10}` as `7/10`, and a tag such as `<score>` as a line
    that begins with `score:`. Underscores become spaces. Braces, quotes and other Markdown remain.
    """
    if "<" in text:
        text = END_OF_TURN.sub(" ", text)
    if text.isascii():  # as most replies are
        text = text.replace("_", " ")
    else:
        text = _SYMBOLS.sub(lambda found: unicodedata.normalize("NFKC", found[0]), text)
        text = _EMOJI.sub(" ", text.translate(_WIDE))
    text = "\n".join(text.splitlines())
    if "<" in text:
        text = _ANGLES.sub(r"(\1)", _TAG.sub(_as_label, text))
    if "\\" in text or "$" in text:
        text = _LATEX.sub(" ", _FRACTION.sub(r"\1/\2", text))
    return text


def _as_label(tag: re.Match[str]) -> str:
    states = tag[2].lower() in _STATING or re.fullmatch(r"[A-Za-z]{3,20}[ -]?\d{1,3}", tag[2])
    return f"\n{tag[2]}: " if states and not tag[1] else " "


_STATING = frozenset(
    {"score", "best", "best choice", "choice", "vote", "winner", "confidence", "final score"}
)


def is_doubted(text: str, start: int) -> bool:
    """Whether the words before a statement that begins at `start` deny or doubt it."""
    return _DOUBT.search(text, max(0, start - _BEFORE), start) is not None
