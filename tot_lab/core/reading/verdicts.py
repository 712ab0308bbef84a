"""Reader of verdicts: whether a critique states that it is satisfied."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from tot_lab.core.arithmetic import FULL_WIDTH
from tot_lab.core.reading.markup import MOST
from tot_lab.core.reading.thinking import split_thinking

_WORD = re.compile(
    r"(?<![^\W\d_])(?:(un|dis|non|not)[\s_\u2010-\u2015-]{0,3})?(satisfied)(?![^\W\d_])", re.IGNORECASE
)
_BEFORE, _AFTER = 200, 120  # characters around the word that are read

_SENTENCE = re.compile(r"[.!?;\n]")
_CLAUSE = re.compile(r"[.!?;:,\n–—→|{]|\s-\s|=>|\b(?:and|(?<!anything )but|so|hence|thus|therefore)\b")
_ASIDE = re.compile(r"\b(not|never)\s*,[^,.;:!?\n]{1,40},")
_LEADS = re.compile(
    r"(?>[\W\d_]+|(?:a|all|am|assessment|conclusion|critique|d|decision|final|fully|i|is|judge?ment|my|not|now|of|"
    r"overall|quite|rating|result|review|say|status|the|this|verdict|very|would)(?![^\W\d_]))*+"
)
"""Words that may precede a verdict in its clause."""

_NEGATED = re.compile(
    r"\b(?:not(?! (?:only|merely|just)\b)|never|neither|nor|none|nobody|few|some|most|almost|cannot|"
    r"(?:hard|bare|scarce|near|most|part|partial|large)ly|no (?:one|longer|way|means)|nowhere near|far from|"
    r"anything but|(?<!no )(?<!without )(?<!any )doubt\w*|too \w+ to|would have)\b|n't\b"
)
_CONDITIONAL = re.compile(
    r"\b(?:me|us)\Z|\bthen(?: (?:i|we)[ '][amre]+)?\Z|"
    r"(?:\b(?:to|would|could|should|might|may|will|shall|can|must)|'(?:d|ll))(?: \w+)?"
    r" (?:be|become|get|feel)(?: \w+)?\Z"
)
_CONDITION_FIRST = re.compile(
    r"\W*(?:(?:and|but|only) )?(?:if|unless|until|once|when|whenever|provided|assuming|should|were|had|"
    r"as (?:soon|long) as|before (?:i|we))\b"
)
_HEDGED = re.compile(r"\b(?:maybe|perhaps|possibly|probably|presumably)\b")
_SUBJECT = re.compile(
    r"(?:\b(?:i|we) (?:am|are|feel|remain)|\b(?:i'm|we're)|"
    r"\b(?:task|goal|request|critic|reviewer|requirements?|criteria) (?:is|isn't|are|aren't))"
    r"(?: (?:not|never|no|longer|yet|quite|now|still|very|just|\w+ly))*\Z"
)
"""Subjects that may be satisfied, such as `I am` and `the task is`, in a clause with other words."""

_CLOSING = r"[\s*_`~\"'”’»)\]}]{0,9}"
_ANSWERED = re.compile(
    rf"{_CLOSING}[:=?(–—-][\s*_`~\"'“‘«(\[{{]{{0,9}}(?:(yes|true)\b|"
    r"(?:no|not|false|null|none|n/a|0)\b(?=\s{0,9}(?:\Z|[^\w\s]|(?<=\n)))|"
    r"(?:not (?:yet|quite|at all|(?!on)\w+ly|applicable)|hardly|only (?:if|when|once))\b)"
)
_ASKED = re.compile(rf"{_CLOSING}\?")
_ENDS = re.compile(rf"{_CLOSING}(?:\Z|[^\w\s]|(?<=\n)|(?:with|without|and|because|since|as|now)\b)")
_TAKEN_BACK = re.compile(r"\W{1,9}(?:wait|hm+|actually|no(?=[,.!]))\b")
_CONDITION = re.compile(
    rf"{_CLOSING}(?:[:,–—-]\s{{0,3}})?(?:provided|unless|once|pending|subject to|except|apart from|only|"
    r"on (?:the )?condition|as (?:soon|long) as|assuming|mostly|partly|partially|almost|nearly|in part|"
    r"with (?:\w+ )?(?:reservation|caveat)s?)\b|"
    r"[\s,)]{1,3}(?:if|when|after|until|(?:(?:i|it|we) )?(?:am|is|are) not)\b"
)
_BUT = re.compile(r"[\s,)*_`]{1,6}(?:with [^.!?:\n]{1,80}?[\s,]{1,2})?(?:but|however|though|although)\b")
_OR = re.compile(r"[^\w/|]*+(?:\b(?:or|nor|vs)\b|[/|])[^\w/|]*+")

_PLAIN = {**FULL_WIDTH, ord("’"): "'"}


class _Statement(NamedTuple):
    """A verdict in a text. `is_plain`: its clause states it and does not only mention the word."""

    satisfied: bool
    is_plain: bool
    start: int


def read_verdict(text: str) -> bool | None:
    """Whether a critique states `SATISFIED` as its verdict.

    A negation (`UNSATISFIED`, `never SATISFIED`) and a condition (`to be SATISFIED: …`, `SATISFIED if …`)
    mean `False`. The result is the last verdict that forms a whole clause (`SATISFIED. …`, `Verdict:
    SATISFIED`) or is about the critic or the task (`I am SATISFIED`), or else the last negation, condition or
    reply (`Conditions SATISFIED: yes`). A mention (`the condition is satisfied`), a hedge (`SATISFIED or
    UNSATISFIED`) and a question state nothing. Returns `None` without a verdict.
    """
    stated = list(_statements(split_thinking(text)[1]))
    plain = [one for one in stated if one.is_plain]
    return (plain or stated)[-1].satisfied if stated else None


def without_verdict(text: str) -> str:
    """`text` without the lines that begin with a verdict."""
    kept, end = list[str](), 0
    for start in (one.start for one in _statements(text)):
        line = text.rfind("\n", 0, start) + 1
        if _LEADS.fullmatch(text[line:start].lower()):
            kept.append(text[end:line])
            end = text.find("\n", start) + 1 or len(text)
    return "".join([*kept, text[end:]]).strip("\n")


def _statements(text: str) -> Iterator[_Statement]:
    text = text.translate(_PLAIN)
    words = deque(_WORD.finditer(text), maxlen=MOST)
    paired: set[int] = set()
    for one, other in pairwise(words):
        if _OR.fullmatch(text, one.end(), other.start()):
            paired |= {one.start(), other.start()}
    for word in words:
        if word.start() in paired:
            continue
        satisfied, is_plain = _verdict(text, word)
        if satisfied is not None:
            yield _Statement(satisfied, is_plain, word.start())


def _verdict(text: str, word: re.Match[str]) -> tuple[bool | None, bool]:
    """The verdict that one occurrence of the word states (`None` for no verdict), and `is_plain`."""
    before = text[max(0, word.start() - _BEFORE) : word.start()].lower()
    after = text[word.end() : word.end() + _AFTER].lower()
    sentence = _SENTENCE.split(before)[-1]
    clause = _CLAUSE.split(_ASIDE.sub(r"\1", sentence))[-1]
    near = " ".join(re.findall(r"[\w']+", clause)[-7:])
    answered = _ANSWERED.match(after)
    is_plain = bool(
        (_LEADS.fullmatch(clause) and (word[2].isupper() or _ENDS.match(after))) or _SUBJECT.search(near)
    )
    if not is_plain and not word[2].isupper():
        return None, False  # a mention
    negated = _NEGATED.search(near) is not None
    if word[1]:
        double = _NEGATED.search(" ".join(near.split()[-3:]))
        return None if double or _ASKED.match(after) else False, is_plain
    if negated or _CONDITIONAL.search(near) or _CONDITION_FIRST.match(sentence):
        return False, is_plain
    if answered is not None:
        return answered[1] is not None, is_plain
    if _CONDITION.match(after):
        return False, is_plain
    hedges = (_ASKED.match(after), _BUT.match(after), _TAKEN_BACK.match(after), _HEDGED.search(near))
    return (True if is_plain and _ENDS.match(after) and not any(hedges) else None), is_plain
