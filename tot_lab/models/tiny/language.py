"""The language of the small models: what they read, what they write, and their tokens.

A prompt is a request in a short notation, such as `P5 24:4 5 6 10>`: a letter for the kind of reply, a count,
the target and the numbers left. A reply is text that the domains can read. A token stands for a piece of
text, and a reply is exactly the text of its tokens, so that log-probabilities, stop texts and prefills refer
to that text. An integer below 200 is one token. A larger one is a token for its first digits, and tokens of
two digits each for the rest.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

REQUESTS = {
    "P": "propose the given number of steps",
    "V": "judge a state; end with sure, likely or impossible",
    "W": "judge a state; end with a score",
    "J": "judge a state by yes or no",
    "X": "check an expression; end with sure or impossible",
    "Y": "check an expression; end with a score",
    "B": "choose the best of several states",
    "A": "score each of several states",
    "R": "solve in steps, and answer in one line",
    "S": "solve in steps, and answer below a line",
    "D": "answer at once in one line",
    "E": "answer at once below a line",
}
"""The kind of reply that each letter requests."""

_WRITTEN = (
    " + ", " - ", " * ", " / ", " = ", ", ", "\n", "(", ")", "-", "/", "[", "]",
    "sure", "likely", "impossible", "yes", "no", "none", "score: ", "0.5", "best: ", "Answer: ", "Answer:\n",
)  # fmt: skip
_ALONE = 200  # integers below this are one token
_FIRST = ("", "<end>", *REQUESTS, ":", ">", "|", *_WRITTEN)

PIECES = (*_FIRST, *map(str, range(_ALONE)), *(f"{k:02}" for k in range(100)))
"""The text of each token. Token 0 is padding, and token 1 ends a reply."""

END = 1
_IDS = {piece: k for k, piece in enumerate(_FIRST)}
_NUMBERS = len(_FIRST)
_PAIRS = _NUMBERS + _ALONE
_PROMPT = re.compile(r"(?P<digits>\d++)|[A-Z:>|]| (?=\d|-\d|\|)|" + "|".join(map(re.escape, _WRITTEN)))
_REPLY = re.compile(
    r"(?P<digits>0\.5|\d++)|" + "|".join(map(re.escape, sorted(_WRITTEN, key=len, reverse=True)))
)

Value = int | Fraction


def encode_prompt(text: str) -> list[int]:
    """Return the tokens of a request. Raises `ValueError` for text outside the language."""
    return _encode(_PROMPT, text)


def encode_reply(text: str) -> list[int]:
    """Return the tokens of a reply or of its beginning. Raises `ValueError` for text outside the language."""
    return _encode(_REPLY, text)


def decode(tokens: Sequence[int]) -> str:
    """Return the text of the tokens of a reply."""
    return "".join(PIECES[token] for token in tokens if token > END)


def _encode(pattern: re.Pattern[str], text: str) -> list[int]:
    tokens: list[int] = []
    at = 0
    while at < len(text):
        match = pattern.match(text, at)
        if match is None:
            raise ValueError(f"This text is outside the language of the model: got {text[at : at + 40]!r}.")
        piece = match[0]
        if piece in _IDS:
            tokens.append(_IDS[piece])
        elif piece != " ":
            tokens += _digits(piece)
        at = match.end()
    return tokens


def _digits(text: str) -> list[int]:
    pairs: list[int] = []
    while int(text) >= _ALONE:
        pairs.append(_PAIRS + int(text[-2:]))
        text = text[:-2]
    return [_NUMBERS + int(text), *reversed(pairs)]


def term(value: Value) -> str:
    """Return a number as steps write it: negative numbers and fractions are in parentheses."""
    return str(value) if isinstance(value, int) and value >= 0 else f"({value})"
