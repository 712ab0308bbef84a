"""Removal of the decoration of an answer: quotes, emphasis, marks of math, end-of-turn tokens."""

from __future__ import annotations

import re

_PAIRS = [("**", "**"), ("__", "__"), ("*", "*"), ("_", "_"), ("`", "`"), ("$$", "$$"), ("$", "$")]
_PAIRS += [("\\(", "\\)"), ("\\[", "\\]"), ("<b>", "</b>"), ("<strong>", "</strong>"), ("<em>", "</em>")]
_QUOTES = [
    (pair[0], pair[1])
    for pair in ['""', "''", "“”", "„“", "„”", "‘’", "‚‘", "«»", "»«", "‹›", "「」", "『』", "《》", "＂＂"]
]
_MACRO = re.compile(r"\\(?:text|math|mbox|boxed|emph)\w*+\{([^{}]*+)\}")
END_OF_TURN = re.compile(r"<[|｜][^<>|｜\s]{1,40}[|｜]>|</?s>|<(?:eos|end_of_turn|end_of_text)>")
END_OF_TURN_AT_END = re.compile(rf"(?:{END_OF_TURN.pattern})\Z")
_EMPTY = re.compile(r"\s_|_\s|\n")  # an underscore as the empty cell of a board
_TAIL = 60  # characters at the end that can be an end-of-turn token
_LAYERS = 20

_SAME_QUOTES = str.maketrans({**dict.fromkeys("‘’‚‛", "'"), **dict.fromkeys("“”„‟«»「」『』《》＂", '"')})
_INSIDE = (
    re.compile(r'"([^"]*+)"'),
    re.compile(r"`([^`]*+)`"),
    re.compile(r"(?<!\w)'(?=\S)((?>(?:[^']|(?<=\w)'(?=\w))*))(?<=\S)'(?!\w)"),
    re.compile(r"(?<![\w*])\*(?![\s*])([^*]*+)(?<!\s)\*(?![\w*])"),
    re.compile(r"(?<![\w*])\*\*(?![\s*])([^*]*+)(?<!\s)\*\*(?![\w*])"),
)


def undecorated(text: str, *, quotes: bool = True, ends: str = "") -> str:
    r"""Remove decoration around the whole of `text`: emphasis, `\(…\)`, `\text{…}` and end-of-turn tokens.

    Args:
        text: Any text. If it is nothing but decoration, it is returned as it is.
        quotes: Whether to remove quotes around it, in any script.
        ends: Punctuation to remove at the end.
    """
    for _ in range(_LAYERS):
        rest = text.strip()
        token = END_OF_TURN_AT_END.search(rest[-_TAIL:])
        rest = (rest[: -len(token[0])] if token else rest).rstrip().rstrip(ends)
        macro = _MACRO.fullmatch(rest)
        rest = macro[1] if macro else _unwrapped(rest, [*_PAIRS, *_QUOTES] if quotes else _PAIRS)
        for mark in ("**", "__", "_", "`"):  # an unpaired mark, as in a truncated text
            if rest.count(mark) % 2 and not (mark == "_" and _EMPTY.search(rest)):
                rest = rest.removeprefix(mark) if rest.startswith(mark) else rest.removesuffix(mark)
        if rest == text or not rest:
            break
        text = rest
    return text


def _unwrapped(text: str, pairs: list[tuple[str, str]]) -> str:
    for first, last in pairs:
        if text.startswith(first) and text.endswith(last):
            inside = text[len(first) : -len(last)]
            if inside and first not in inside and last not in inside:
                return inside
    return text


def without_quotes_and_emphasis(text: str) -> str:
    """Remove pairs of quotes in any script, of backticks and of asterisks around words, wherever they are."""
    text = text.translate(_SAME_QUOTES)
    for pattern in _INSIDE:
        text = pattern.sub(r"\1", text)
    return text
