"""Readers of answers: the text that a reply states as its answer."""

from __future__ import annotations

import re
import unicodedata

from tot_lab.core.arithmetic import FULL_WIDTH
from tot_lab.core.reading.decoration import undecorated, without_quotes_and_emphasis
from tot_lab.core.reading.mathematics import boxed_answer, unboxed

_FINAL = re.compile(
    r"[\s>*_#`-]*(?:(?:the|my)\s+)?(?:final\s+)?answer[\s*_`]*[:=][\s*_`]*(.*)", re.IGNORECASE
)


def stated_answer(text: str) -> str | None:
    r"""Return the `final_answer` of a reply, or else the content of its last `\boxed{…}`."""
    return final_answer(text) or boxed_answer(text)


def final_answer(text: str) -> str | None:
    r"""Return the text after the last `Answer:` that begins a line.

    It is the rest of that line or, if that is empty, all lines after it. Case and Markdown (bold, quotes,
    bullets) are ignored, and so is a `\boxed{…}` around all of it.
    """
    lines = text.splitlines()
    for k in range(len(lines) - 1, -1, -1):
        match = _FINAL.match(lines[k])
        if match is not None:
            found = match[1].strip().strip("*`").strip() or "\n".join(lines[k + 1 :]).strip()
            return unboxed(found) or None
    return None


def answer_at_end(text: str) -> str | None:
    """Return the answer that a reply states, if at most one line follows it."""
    lines = [line for line in text.splitlines() if any(map(str.isalnum, line))]
    marked = [(k, match) for k, line in enumerate(lines) if (match := _FINAL.match(line)) is not None]
    if marked:
        last, match = marked[-1]
        stands_alone = not match[1].strip(" *`")  # The answer is in the lines that follow.
        if stands_alone or len(lines) - last <= 2:
            return final_answer(text)
    return boxed_answer("\n".join(lines[-2:]))


def normalize(text: str) -> str:
    """Return `text` without case, spacing, quotes, emphasis, end-of-turn tokens and closing punctuation.

    Full-width and plain forms are equal, and so are composed and decomposed letters (é). A text of marks
    alone is kept.
    """
    plain = without_quotes_and_emphasis(unicodedata.normalize("NFC", text.translate(FULL_WIDTH)))
    plain = " ".join(undecorated(plain, ends=" .!?,;:…。！？，；：").split())
    return unicodedata.normalize("NFC", plain.casefold())
