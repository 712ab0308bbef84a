"""Readers of answers: the text that a reply states as its answer."""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

from tot_lab.core.arithmetic import FULL_WIDTH
from tot_lab.core.reading.code import fenced_blocks
from tot_lab.core.reading.decoration import END_OF_TURN, undecorated, without_quotes_and_emphasis
from tot_lab.core.reading.mathematics import boxed_answer, last_boxed, unboxed

_TAG = re.compile(r"<(/?)answer>", re.IGNORECASE)
_ANSWER = re.compile(
    r"^(?:[^\S\n]|[>*_#`-])*+(?:(?:the|my)\s+)?(?:final\s+)?answer(?:[^\S\n]|[*_`])*+(?:[:=]|$)",
    re.MULTILINE | re.IGNORECASE,
)
_ANSWER_IS = re.compile(
    r"^(?:[^\W\d_]{2,9},? )?(?:the|my) (?:final )?answer is:?", re.MULTILINE | re.IGNORECASE
)
_PROSE = re.compile(
    r"[\W_]*+(?:[IA][ \t]++)?(?:(?:[^\W\d_][\w']++[^\w\n]++){2}[^\W\d_]|"
    r"(?:explanation|reason|confidence|note|check)\w*+:)",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W\d_]{3}")
_FIRST = re.compile(r"[\W\d_]*+(\w*+)")


class _Stated(NamedTuple):
    answer: str
    after: str
    is_in_tags: bool

    @property
    def plain(self) -> str | None:
        """The answer without Markdown around it and without a box. `None` if nothing is left."""
        answer = self.answer.strip()
        return unboxed(answer if "\n" in answer else answer.lstrip("*_` ").rstrip("*` ")) or None


def _stated(text: str, mark: re.Pattern[str] = _ANSWER) -> _Stated | None:
    """Find the answer between the last `<answer>` tags, or else after the last match of `mark` (`Answer:`).

    After `mark` it is the rest of the line or, if that is empty, all lines after it.
    """
    if "answer" not in text.casefold():  # which every tag and mark contains
        return None
    start, inside = None, None
    for tag in _TAG.finditer(text):
        if not tag[1]:
            start = tag.end()
        elif start is not None:
            start, inside = None, slice(start, tag.start())
    answer = text[inside] if inside else text
    marked = _last(mark, answer)
    if inside:
        return _Stated(answer[marked.end() :] if marked else answer, text[inside.stop :], True)
    if marked is None:
        return None
    line, _, after = answer[marked.end() :].partition("\n")
    is_empty = line.strip().strip("*`") in ("", "_", "__")
    return _Stated(after, "", False) if is_empty else _Stated(line, after, False)


def _last(mark: re.Pattern[str], text: str) -> re.Match[str] | None:
    """Return the match of `mark` with which a line begins. Of several such lines, the last counts."""
    end = len(text)
    while end >= 0:
        start = text.rfind("\n", 0, end) + 1
        if found := mark.match(text, start):
            return found
        end = start - 1
    return None


def final_answer(text: str) -> str | None:
    r"""Return the text between the last `<answer>` tags, or after the last `Answer:` that begins a line.

    After `Answer:` it is the rest of that line or, if that is empty, all lines after it. Case and Markdown
    (bold, quotes, bullets, headings) are ignored, and so is a `\boxed{…}` around all of it.
    """
    stated = _stated(text)
    return None if stated is None else stated.plain


_LINE = 4_000  # characters at the end of a text that are read for its last lines
_SENTENCE = re.compile(
    r"(?:\b(?:the|our|my) (?:[\w-]{1,12} ){0,2}|(?<=[.!?;:] )(?:final )?)(?:answer|option|choice)\b"
    r"(?: (?:to|for|of) [^.!?:=]{1,80}?)?"
    r"(?: (?:is|equals|must be(?=[^\w\\$]*(?:[\d\\$]|[a-z]\b(?! [a-z]))))\b:?|[*_ ]{0,3}[:=])",
    re.IGNORECASE,
)
_MARKED = re.compile(r"\s*####+")
_TAGGED = re.compile(r"<(answer|ans)>((?:(?!</?ans).)*)</\1>\W*\Z", re.IGNORECASE)
_AFTER_BOX = re.compile(
    r"(?:\s|[.!$%°*_`)}\]]|\\[)\]%]|\^\{?\\circ)*(?:I hope (?:it|this) is correct\W*)?\Z", re.IGNORECASE
)
_PARTIAL = re.compile(r"\b(?:partial|sub-?totals?|so far|intermediate|for now|first part)\b", re.IGNORECASE)
_ANNOUNCED = re.compile(
    r"\W*(?:tbd\b|(?:first|next|now|then|let|to|we|I|you|it|if|not|found|obtained|given|by|still|unclear|unknown"
    r"|maybe|perhaps|possibly|probably|either|going|in|what|which|how|see|needs?|depends)\b(?!\W*\Z)"
    r"|the (?:sum|difference|product|total|number|ratio|value|remainder|same|following|next)\b"
    r"(?! (?:is|=|-?\d)))",
    re.IGNORECASE,
)

_TAKEN_UP = re.compile(
    r"\?(?!\w)|[.!;] (?:wait|let|now|next|hmm|no|actually|hold on|check|verify|we|(?-i:I)(?! hope))\b"
    r"|[.!;,] (?:but|however|I (?:think|guess|believe|suppose))\b",
    re.IGNORECASE,
)


def last_lines(text: str) -> list[str]:
    """Return the last two lines that hold words or numbers, without end-of-turn tokens."""
    lines = END_OF_TURN.sub("", text[-_LINE:]).splitlines()
    return [line.strip() for line in lines if any(map(str.isalnum, line))][-2:]


def concluded_answer(text: str) -> str | None:
    r"""Return the answer that the last line of a text states. `None` if it states none.

    It is stated by `Answer: …`, `#### …`, `<answer>…</answer>`, a `\boxed{…}` with which the line ends, or a
    sentence such as `So the answer is …`. `Answer:` or `The answer is` may also end the line before it.
    Announcements (`Answer: we first need …`), questions, hedges, partial results, answers that the line
    reconsiders (`… is 5. Wait, …`) and boxes followed by words state nothing.
    """
    *before, line = last_lines(text) or [""]
    headings = _marks(before[0]) if before else []
    sentences = list(_SENTENCE.finditer(line))
    if match := _ANSWER.match(line) or _MARKED.match(line):
        found = line[match.end() :]
    elif match := _TAGGED.search(line):
        found = match[2]
    elif (box := line.rfind("\\boxed{")) >= 0:
        inside, last = last_boxed(line), last_boxed(line[box:])
        if not inside or last is None or _PARTIAL.search(line[:box]):
            return None
        return inside if _AFTER_BOX.match(line, box + len("\\boxed{") + len(last) + 1) else None
    elif sentences:
        found = line[sentences[-1].end() :]
    elif headings and not before[0][headings[-1].end() :].strip(" *`:"):
        found = line
    else:
        return None
    found = unboxed(found.strip().strip("*`").strip())
    if _ANNOUNCED.match(found) or _TAKEN_UP.search(found):
        return None
    return None if found.endswith((":", "…", "...")) else found or None


def _marks(line: str) -> list[re.Match[str]]:
    """Return the matches of all phrases in a line that announce an answer."""
    return [*filter(None, [_ANSWER.match(line)]), *_SENTENCE.finditer(line)]


def stated_answer(text: str) -> str | None:
    r"""Return the `final_answer` of a reply, or else the content of its last `\boxed{…}`."""
    return final_answer(text) or boxed_answer(text)


def answer_at_end(text: str) -> str | None:
    r"""Return the `final_answer` of a reply, if at most one line follows it. Otherwise return the content of
    the last `\boxed{…}` in the last two lines.
    """
    stated = _stated(text)
    if stated is not None and len(_lines(stated.after)) <= 1:
        return stated.plain
    return boxed_answer("\n".join(_lines(text)[-2:])) if "\\boxed" in text else None


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if any(map(str.isalnum, line))]


def whole_answer(text: str) -> str | None:
    r"""Return the answer of one or more lines that a reply states, or else the whole reply.

    The answer is found like `stated_answer`, and also after `The answer is` at the beginning of a line.
    Remarks after it, a code block or a box around it, and its decoration are removed: emphasis, marks of
    math, end-of-turn tokens and, unless it is a sentence, quotes and a final full stop. Returns `None` if
    nothing is left.
    """
    stated = _stated(text) or _stated(text, _ANSWER_IS)
    if stated is None:
        answer = boxed_answer(text) or text
    elif stated.is_in_tags:
        answer = stated.answer
    else:
        answer = _without_remarks(undecorated(f"{stated.answer}\n{stated.after}", quotes=False))
    answer = unboxed(undecorated(_first_block(answer), quotes=False))
    is_word = "\n" not in answer.strip() and not _PROSE.match(answer)
    return undecorated(answer, quotes=is_word, ends="." if is_word else "").strip() or None


def _first_block(text: str) -> str:
    """Return the code of the fenced block with which `text` begins, or else `text`."""
    block = next(fenced_blocks(text), None)
    return text if block is None or text[: block.start].strip() else block.body


def _without_remarks(text: str) -> str:
    """Cut an answer before the first paragraph that begins with another word than the answer does and, unless
    the answer is prose, before the first line of prose.
    """
    lines = _first_block(text).split("\n")
    is_prose = _PROSE.match(lines[0])
    for k, line in enumerate(lines[1:], 1):
        is_apart = not lines[k - 1].strip() and _WORD.search(line) and _first(line) != _first(lines[0])
        if is_apart or (not is_prose and _PROSE.match(line)):
            return "\n".join(lines[:k])
    return "\n".join(lines)


def _first(line: str) -> str:
    """Return the first word of a line."""
    found = _FIRST.match(line)
    return found[1] if found else ""


def normalize(text: str) -> str:
    """Return `text` without case, spacing, quotes, emphasis, end-of-turn tokens and closing punctuation.

    Full-width and plain forms are equal, and so are composed and decomposed letters (é). A text of
    punctuation alone is kept.
    """
    plain = without_quotes_and_emphasis(unicodedata.normalize("NFC", text.translate(FULL_WIDTH)))
    plain = " ".join(undecorated(plain, ends=" .!?,;:…。！？，；：").split())
    return unicodedata.normalize("NFC", plain.casefold())
