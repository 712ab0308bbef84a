"""Separation of the thinking in a reply from its answer."""

from __future__ import annotations

import re
from bisect import bisect

import msgspec

from tot_lab.core.calls import Reply
from tot_lab.core.reading.code import fenced_blocks

_HEADER = r"(?:<\|end\|>\s*+)?(?:<\|start\|>\s*+assistant\s*+)?<\|channel\|>\s*+"
_TAG = re.compile(
    rf"(?P<open><(?:seed:)?think(?:ing)?(?:\s[^<>]*)?>|(?-i:\[THINK\])|◁think▷"
    rf"|{_HEADER}(?:analysis|commentary)\s*+<\|message\|>)"
    rf"|(?P<close></(?:seed:)?think(?:ing)?(?:\s[^<>]*)?>|(?-i:\[/THINK\])|◁/think▷)"
    rf"|(?P<final>{_HEADER}final\b[^<>]{{0,99}}(?:<\|constrain\|>[^<>]{{0,99}})?<\|message\|>)"
    r"|(?P<end><\|(?:end|return)\|>)",
    re.IGNORECASE,
)
_ANSWER = re.compile(
    r"(?:^[ \t>*_#`-]*+|(?<=[>\]▷])[ \t*_`]*+)"
    r"(?:(?:the|my)[ \t]++)?(?:final[ \t]++)?answer[ \t*_`]*+(?:[:=]|is\b)|<answer>",
    re.IGNORECASE | re.MULTILINE,
)
_ENDS_LINE = re.compile(r"[ \t]*+\r?\n\s*+\S")
_QUOTED = re.compile(
    r"""(?<!`)(`{1,3})(?![`\s])[^`\n]++(?<!\s)\1(?!`)"""
    r"""|(?<=[{\[:,])\s*+(?:"(?>(?:[^"\\]|\\.)*)"|'(?>(?:[^'\\]|\\.)*)')(?=\s*+[,:}\]])""",
    re.DOTALL,
)
_QUOTES = ("'", '"', "“", "”", "‘", "’")
_CUT_OFF = re.compile(r""""\s*+:\s*+"(?>(?:[^"\\]|\\.)*)\Z""", re.DOTALL)


def split_thinking(text: str) -> tuple[str | None, str]:
    """Separate the `<think>…</think>` blocks of a reply from its answer.

    Tags are `<think>` and `<thinking>` in any case, `[THINK]` and `◁think▷`; in OpenAI's harmony format, all
    channels but `final` are thinking. A tag is plain text inside a JSON string, a block of code, inline code
    or a line that states the answer. An opening tag that is never closed is plain text too if it comes after
    a line that states the answer; otherwise its thinking extends to the end. A closing tag without an
    opening one ends thinking that began with the text. Blocks may be nested.

    Returns:
        The thinking, its blocks joined by blank lines, or `None`; and the answer. A text without tags is
        returned unchanged.
    """
    parts = _separated(text)
    if not parts:
        return None, text
    answer: list[str] = []
    for is_thinking, part in parts:
        if is_thinking or not part:
            continue
        if answer and not answer[-1][-1].isspace() and not part[0].isspace():
            answer.append("\n")  # `0.<think>…</think>7` must not become a number
        answer.append(part)
    thoughts = [part.strip() for is_thinking, part in parts if is_thinking]
    return "\n\n".join(filter(None, thoughts)) or None, "".join(answer).lstrip()


def separated(reply: Reply) -> Reply:
    """Move the thinking in the text of `reply` to `thinking`. If it is not all at the beginning, `raw_text`
    keeps the original.
    """
    parts = _separated(reply.text)
    if not parts:
        return reply
    inside, text = split_thinking(reply.text)
    thinking = "\n\n".join(part for part in (reply.thinking, inside) if part) or None
    leads = not any(part.strip() for is_thinking, part in parts[:-1] if not is_thinking)
    raw_text = reply.raw_text or ("" if leads else reply.text)
    return msgspec.structs.replace(reply, text=text, thinking=thinking, raw_text=raw_text)


def _separated(text: str) -> list[tuple[bool, str]]:
    """Split `text` at its thinking tags. Returns (is thinking, part) pairs; empty if there are no tags."""
    low = text.lower()
    if "think" not in low and "<|" not in low:
        return []
    tags = list(_TAG.finditer(text))
    context = _Context(text, tags) if tags else None
    parts: list[tuple[bool, str]] = []
    depth = end = unopened = 0
    kind, in_channels = "", False
    for tag in tags:
        kind_here = str(tag.lastgroup)
        if context is None or context.is_text(tag, depth, end) or (kind_here == "end" and not in_channels):
            continue
        kind, in_channels = kind_here, in_channels or "<|channel|>" in tag[0].lower()
        parts.append((depth > 0 or kind in ("close", "final"), text[end : tag.start()]))
        if depth == 0 and kind in ("close", "final"):
            unopened = len(parts)  # everything before it was thinking
        depth = depth + 1 if kind == "open" else max(depth - 1, 0) if kind == "close" else 0
        end = tag.end()
    if parts:
        parts.append((kind == "open", text[end:]))
    return [(k < unopened or is_thinking, part) for k, (is_thinking, part) in enumerate(parts)]


class _Context:
    """The ranges of a text in which a thinking tag is plain text, and the tags seen there so far."""

    def __init__(self, text: str, tags: list[re.Match[str]]) -> None:
        self.text = text
        self.quoted = [match.span() for match in _QUOTED.finditer(text)]
        self.fenced = [
            (text.find("\n", block.start), text.rfind("\n", 0, block.end - 1))
            for block in fenced_blocks(text)
            if block.closed
        ]
        self.cut_off = [match.span() for match in _CUT_OFF.finditer(text)]
        self.answers: list[tuple[int, int, int]] = []  # of statements: end, start, end of the line
        line_end = -1
        for match in _ANSWER.finditer(text):
            if line_end < match.end():
                line_end = text.find("\n", match.end()) % (len(text) + 1)
            self.answers.append((match.end(), match.start(), line_end))
        self.last_close = max((tag.start() for tag in tags if tag.lastgroup != "open"), default=-1)
        self.opened: set[tuple[int, int]] = set()  # places with an opening tag
        self.spoken = 0  # opening tags in lines that state the answer, not yet closed
        self.is_answered = False

    def is_text(self, tag: re.Match[str], depth: int, since: int) -> bool:
        """Whether `tag` is text, given the depth of thinking around it and the end of the markup before it.

        A closing tag in a block of code or a truncated JSON string ends open thinking, unless the opening tag
        is there too: the block or string may have begun inside the thinking.
        """
        at, opens = tag.start(), tag.lastgroup == "open"
        is_in_quotes = self.text[at - 1 : at] in _QUOTES and self.text[tag.end() : tag.end() + 1] in _QUOTES
        if at and (is_in_quotes or (self.quoted and _around(at, self.quoted))):
            return True
        for places in (self.fenced, self.cut_off):
            place = _around(at, places) if places else None
            if place and opens:
                self.opened.add(place)
            if place and (place in self.opened or (depth == 0 and places is self.fenced)):
                return True
        return depth == 0 and tag.lastgroup in ("open", "close") and self._is_of_answer(tag, opens, since)

    def _is_of_answer(self, tag: re.Match[str], opens: bool, since: int) -> bool:
        k = bisect(self.answers, (tag.start(), tag.start(), 0)) - 1
        _, start, line_end = self.answers[k] if k >= 0 else (0, -1, 0)
        self.is_answered = self.is_answered or start >= since
        in_line = start >= since and tag.start() < line_end
        if opens:
            self.spoken += in_line
            return in_line or (self.is_answered and tag.start() > self.last_close)
        if self.spoken:
            self.spoken -= 1
            return True
        after = tag.end()
        return in_line and not _ENDS_LINE.match(self.text, after) and not _ANSWER.match(self.text, after)


def _around(at: int, places: list[tuple[int, int]]) -> tuple[int, int] | None:
    """Return the (start, end) in `places` that contains the index `at`. `None` if it is not found."""
    k = bisect(places, (at, len(places) and places[-1][1])) - 1
    return places[k] if k >= 0 and places[k][0] <= at < places[k][1] else None
