"""Readers of answers: the text that a reply states as its answer."""

from __future__ import annotations

import re
import unicodedata

from tot_lab.core.arithmetic import FULL_WIDTH
from tot_lab.core.reading.decoration import END_OF_TURN, undecorated, without_quotes_and_emphasis
from tot_lab.core.reading.mathematics import boxed_answer, last_boxed, unboxed

_FINAL = re.compile(
    r"[\s>*_#`-]*(?:(?:the|my)\s+)?(?:final\s+)?answer[\s*_`]*[:=][\s*_`]*(.*)", re.IGNORECASE
)

_LINE = 4_000  # characters at the end of a text that are read for its last lines
_SENTENCE = re.compile(
    r"\b(?:the|our|my) (?:[\w-]{1,12} ){0,2}(?:answer|option|choice)\b(?: (?:to|for|of) [^.!?:=]{1,80}?)?"
    r"(?: (?:is|must be|equals)\b:?|[*_ ]{0,3}[:=])",
    re.IGNORECASE,
)
_MARKED = re.compile(r"\s*####+\s*(.*)")
_TAGGED = re.compile(r"<(answer|ans)>((?:(?!</?ans).)*)</\1>\W*\Z", re.IGNORECASE)
_AFTER_BOX = re.compile(r"(?:\s|[.!$*_`)}\]]|\\[)\]])*(?:I hope (?:it|this) is correct\W*)?\Z", re.IGNORECASE)
_PARTIAL = re.compile(r"\b(?:partial|sub-?totals?|so far|intermediate|for now|first part)\b", re.IGNORECASE)
_ANNOUNCED = re.compile(
    r"\W*(?:(?:first|next|now|then|let|to|we|I|you|it|if|not|found|obtained|given|by|still|unclear|unknown"
    r"|maybe|perhaps|possibly|probably|either|going|in|what|which|how|see|needs?|depends)\b(?!\W*\Z)"
    r"|the (?:sum|difference|product|total|number|ratio|value|remainder|same|following|next)\b"
    r"(?! (?:is|=|-?\d)))",
    re.IGNORECASE,
)


def last_lines(text: str) -> list[str]:
    """Return the last two lines that hold words or numbers, without end-of-turn tokens."""
    lines = END_OF_TURN.sub("", text[-_LINE:]).splitlines()
    return [line.strip() for line in lines if any(map(str.isalnum, line))][-2:]


def concluded_answer(text: str) -> str | None:
    r"""Return the answer that the last line of a text states. `None` if it states none.

    It is stated by `Answer: …`, `#### …`, `<answer>…</answer>`, a `\boxed{…}` with which the line ends, or a
    sentence such as `So the answer is …`. `Answer:` may stand alone on the line before. Announcements
    (`Answer: we first need …`), questions, hedges, partial results and boxes that words follow state nothing.
    """
    *before, line = last_lines(text) or [""]
    heading = _FINAL.match(before[0]) if before else None
    sentences = list(_SENTENCE.finditer(line))
    if match := _FINAL.match(line) or _MARKED.match(line):
        found = match[1]
    elif match := _TAGGED.search(line):
        found = match[2]
    elif (box := line.rfind("\\boxed{")) >= 0:
        inside = last_boxed(line)
        ends = inside is not None and _AFTER_BOX.match(line, line.find("}", box + 7 + len(inside)) + 1)
        return inside if ends and not _PARTIAL.search(line[:box]) else None
    elif sentences:
        found = line[sentences[-1].end() :]
    elif heading and not heading[1].strip(" *`"):
        found = line
    else:
        return None
    found = unboxed(found.strip().strip("*`").strip())
    is_open = _ANNOUNCED.match(found) or found.endswith(("?", ":", "…", "..."))
    return None if is_open else found or None


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
