"""Separation of the thinking in a reply from its answer."""

from __future__ import annotations

import re

import msgspec

from tot_lab.core.calls import Reply

_TAG = r"</?think(?:ing)?(?:\s[^<>]*)?>"
_THINK_TAG = re.compile(rf"(?<!`){_TAG}|{_TAG}(?!`)", re.IGNORECASE)


def split_thinking(text: str) -> tuple[str | None, str]:
    """Separate the `<think>…</think>` blocks of a reply from its answer.

    Tags are `<think>` and `<thinking>` in any case; a quoted tag (`` `<think>` ``) is text. A closing tag
    without an opening one ends thinking that began with the text, and unclosed thinking extends to the end.
    Blocks may be nested.

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
    parts = _separated(reply.text) if "<" in reply.text else []
    if not parts:
        return reply
    inside, text = split_thinking(reply.text)
    thinking = "\n\n".join(part for part in (reply.thinking, inside) if part) or None
    leads = not any(part.strip() for is_thinking, part in parts[:-1] if not is_thinking)
    raw_text = reply.raw_text or ("" if leads else reply.text)
    return msgspec.structs.replace(reply, text=text, thinking=thinking, raw_text=raw_text)


def _separated(text: str) -> list[tuple[bool, str]]:
    """Split `text` at its thinking tags. Returns (is thinking, part) pairs; empty if there are no tags."""
    parts: list[tuple[bool, str]] = []
    depth = end = unopened = 0
    closing = False
    for tag in _THINK_TAG.finditer(text):
        closing = tag[0][1] == "/"
        parts.append((closing or depth > 0, text[end : tag.start()]))
        if closing and depth == 0:
            unopened = len(parts)  # everything before it was thinking
        depth = max(depth - 1, 0) if closing else depth + 1
        end = tag.end()
    if parts:
        parts.append((not closing, text[end:]))
    return [(k < unopened or is_thinking, part) for k, (is_thinking, part) in enumerate(parts)]
