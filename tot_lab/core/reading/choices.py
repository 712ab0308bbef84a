"""Readers of the choice that a reply states: its label, such as `B`, or the text of the option.

A statement is the text after words such as `the answer is`, `Answer:` or `I choose`, or in a box or a tag;
`B is correct`; a line that holds only a choice; or the beginning of a reply without any of these. The last
statement decides. Reasons, enumerations, exclusions (`not B`), conditions and questions state nothing.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from tot_lab.core.reading.decoration import END_OF_TURN

# Decoration.

_MACRO = re.compile(
    r"\\(?:text)?color\s?\{\w+\}|\\[ ,;:!]|~~[^~\n]{1,200}~~|~"
    r"|\\(?:text|math|emph|underline|bold|operatorname|bf|rm|left|right|displaystyle|q?quad|[Ll]arge)[a-z]*"
)
_MATH = re.compile(r"\\[()\[\]]|\$+|[\u2190-\u21ff\u2600-\u27bf\ufe0f\U0001f300-\U0001faff]")
_BOX = re.compile(r"\\(?:boxed|f?box)(?=\s?[^\s{]|[^}]{0,400}\})")
_TAG = re.compile(
    r"[<\[](/?)(?:final[_ -]?)?(?:ans|answer|choice)(?:\s\w+=[^<>\n]{0,40})?[>\]]"
    r"|^[ \t]*####",
    re.I | re.M,
)
_HTML = re.compile(r"</?(?:b|i|u|em|strong|code|mark|span|p|div|br)\b[^<>\n]{0,60}>")
_WRAPPED = re.compile(r"(?<![\w.])[(<\[{*_`\"']{1,9} ?([^\W_]{1,9}) ?([.:]?)[()<>\[\]{}*_`\"']{1,9}(?!\w)")
_ASIDE = re.compile(r" [(\[{<](?![^\w([{<]{0,9}\w{1,9}\W{0,4}[)\]}>])")
_MARKS = re.compile(r"(?<!\w)['_]+|['_]+(?!\w)|[()\[\]{}*`\"]|[<>](?!\s)|(?<!\s)[<>]")
_BLANK = re.compile(r"\s+")
_ANSWER_IN_OTHER_LANGUAGES = re.compile(
    r"(?:答案|答え|정답|الإجابة)\s?(?:[:=]|是|为|は)"
    r"|\b(?:Antwort|réponse|respuesta|risposta|resposta|ответ)(?: corr?ec?tt?[ae])?\s?"
    r"(?:[:=]|(?:ist|lautet|est|es|è|é)\b)",
    re.IGNORECASE,
)
_STATED, _CLOSE, _MARKED = "\x01", "\x02", "\x03"
"""Placeholders for the start and the end of a box or tag, and, behind a word, for marks around it (`(B)`)."""

_BRACKETS = {"Ps": "(", "Pe": ")", "Pi": '"', "Pf": '"'}
_ESCAPE = {
    code: _BRACKETS[kind]
    for code in range(128, 0x3100)
    if (kind := unicodedata.category(chr(code))) in _BRACKETS
} | str.maketrans(
    dict.fromkeys("\x01\x02\x03", " ")
    | {"’": "'", "‐": "-", "、": " , ", "。": ". "}
    | dict.fromkeys("\ufeff\u200b\u200c\u200d\u2060", None)
)


def _plain(text: str) -> str:
    """Return `text` without its decoration."""
    text = unicodedata.normalize("NFKC", END_OF_TURN.sub(" ", text)).translate(_ESCAPE)
    text = _ANSWER_IN_OTHER_LANGUAGES.sub(" answer: ", text)
    text = _BOX.sub(f" {_STATED} ", _MATH.sub("*", _MACRO.sub(" ", text)))
    text = _HTML.sub("*", text)
    text = _TAG.sub(lambda tag: f" {_CLOSE if tag[1] else _STATED} ", text)
    text = _WRAPPED.sub(rf" \1{_MARKED}\2 ", _ASIDE.sub(f" {_CLOSE} ", text))
    return _BLANK.sub(lambda blank: "\n" if "\n" in blank[0] else " ", _MARKS.sub(" ", text))


# Statements.

_NOUN = (
    r"(?:(?:correct|right|best) (?:one|statement|letter)"
    r"|answer|ans|choice|option|selection|reply|response|solution|verdict|pick)"
)
_BE = r"(?:\b(?:is|was|be|becomes|remains|(?:seems|appears) to be)\b|'s\b)"
_NOT = r"\b(?:\w{2,6}?)?(?:\s?not|n't)\b"
_OUT = r"\b(?:fail|exclude|eliminate|reject|discard|rule|doubt|wrong|incorrect|least|false)"
_CUE = re.compile(
    rf"(?P<box>{_STATED})"
    rf"|(?<![^\W_])(?P<noun>{_NOUN})\b(?>(?:[^\S\n]+(?:letter|number|here|to|for|of|that|which|would"
    rf"|should|must|has|will|therefore|I|we)\b(?:(?!{_BE}|{_NOT}|{_OUT})[^.!?\n:=]){{0,80}})?)"
    r"(?>(?:\x03?,\s?(?:then|however|of\scourse),)?)"
    rf"[\s\x03]*(?>(?P<not>{_NOT})|[:=]+|\|(?!\s*\n)|{_BE}|(?P<heading>(?=\n)))"
    r"|(?P<act>\b(?:choo?se|pick(?:ed)?|select(?:ed)?|go(?:ing)?\s+(?:with|for)|opt\s+for"
    r"|vote\s+for)\b)"
    rf"|(?P<weak>\b(?:it|this|that)\s*(?:{_BE}|must\s+be\b|has\s+to\s+be\b|leaves(?:\s(?:us"
    rf"|me))?(?:\swith)?\b)"
    r"|\b(?:I|we)(?:'d| would)? (?:say|answer|conclude)\b"
    r"|(?:^|(?<=[.!?;,\n]))\s?(?:therefore|thus|hence|so|(?:in\s)?conclusion|finally|(?:no,?\s)?wait"
    r"|actually|correction|sorry)\b[,:]?)",
    re.IGNORECASE,
)
_WORSE = "wrong|incorrect|false|worst|least|second|third|next|other|another|alternative"
_DOUBT = re.compile(
    r"(?:\b(?:if|whether|unless|(?<!is )why|suppos\w{1,4}|assum\w{1,4}|might|may|could|not|never|nor|people"
    r"|students|claim\w{0,2}|told|tempting|unlikely|perhaps|maybe|possibly|doubt|refuse|I thought"
    r"|(?:some|many)(?= (?:\w+ )?(?:say|think|argue|believe|feel)\b)"
    rf"|{_WORSE})\b|n't\b)(?:(?! --? "
    r"| so | and )[^,;:.!?\n–—]){0,24}\Z",
    re.IGNORECASE,
)
_HEADING = re.compile(r"\W*(?:(?:the|my|final|correct)\s){0,3}$", re.IGNORECASE)
_ONESELF = re.compile(r"\b(?:I|we)(?:'\w{1,2}|\s\w{1,8}){0,2}\s$", re.IGNORECASE)
_FILLER = re.compile(
    r"(?:[\s,:=–—>#|\x01-\x03]|-(?!\d)|\bno\."
    r"|\b(?:the|then|clearly|therefore|thus|hence|so|definitely|probably|likely|most|simply|indeed|just|surely"
    r"|certainly|correct|right|best|final|answer|option|choice|letter|label|number|candidate|statement"
    r"|either|both|is|only)\b)",
    re.IGNORECASE,
)
_TURN = re.compile(r"[^.!?\n]{0,120}?\b(?:but|rather|instead)\b(?: rather\b)?", re.IGNORECASE)
_NO_CHOICE = re.compile(r"(?:none|neither|no\s+(?:option|choice|answer))\b", re.IGNORECASE)
_ALSO = re.compile(
    r"[\s\x01\x02\x03.,;–—-]*(?:(?P<or>\b(?:or|and/or|alternatively|oder|ou|или)\b|/|\|(?=[ \t]*\w))"
    r"|\b(?:and|und|et|y|и)\b|&|\+|\bplus\b|\bas\s+well\s+as\b|,|(?P<apart>[;:]))"
    r"[\s\x01\x03,]*(?:\b(?:alternatively|less\s+likely|possibly|maybe|perhaps|even|also|option|choice"
    r"|letter)\b[\s,]*){0,3}",
    re.IGNORECASE,
)
_AT_END = re.compile(r"[^\w\n]*(?:\n|\Z)")
_VERB = re.compile(
    r"[\s\x02\x03]*\b(?:is|was|has|had|does|would|will|can|could|cannot|fails|seems|must|only|\w+n't)\b", re.I
)
_OVER = re.compile(
    r"[\s\x03*]*(?:[\x02.,;:!|)\-–—\n]|$|\b(?:because|since|as|for|due|given|while|whereas|unlike|not|so|but|"
    r"instead of|rather than)\b)",
    re.I,
)
_NO_VERDICT = re.compile(
    r"no (?:longer|doubt|one|way|idea|matter|more|less|need|reason|choice|option|answer)\b|\w{2,9} that\b",
    re.IGNORECASE,
)
_A_WORD = re.compile(r"\s+(?!(?:is|was|must|seems|fits|or|and)\b)[^\W\d_]")
_RIGHT = re.compile(
    r"\b(?:is|must\s+be|seems|remains)\s+(?:(?:therefore|definitely)\s+)?(?:the\s+)?"
    rf"(?:(?!(?:not|never|less|almost|nearly|hardly|partly|{_WORSE})\b)\w{{1,8}}\s+)?"
    r"(?:correct|right|best|true|answer)\b",
    re.IGNORECASE,
)
_SPAN = 600  # characters before "is correct" that are read
_WORDS = 20  # maximum words skipped before a label
_READ = 20_000  # characters at the end and the beginning of a reply that are read
_LABEL_BEHIND = re.compile(r"[ \x03,:]{1,9}")
_LABEL_WORD = re.compile(r"\b(?:option|choice|letter|label|candidate) $", re.IGNORECASE)
_ITEM = re.compile(r"(?:[.!?;]\s|\n)(\w{1,9})(?=\x03|[.:)]\s)")
_LINE = re.compile(r"^[^\w\n]*+\w.*", re.MULTILINE)
_GAP = re.compile(r"[\s\x01\x02\x03]+")
_BESIDE = re.compile(r"[ \t\x01\x02\x03.:,–—-]*(?:(?:namely|i\.e\.|that is|meaning),?\s)?", re.IGNORECASE)
_CONDITION = re.compile(
    r"[ \x02\x03,]*\b(?:if|unless|provided|depending|assuming|otherwise)\b"
    r"|(?:[\s\x02\x03.!…–—-]|\b(?:no|wait|hmm|oops|sorry|but|and)\b,?)*\b(?:that|this|it) (?:is"
    r"|was) (?:wrong|incorrect|not (?:right|correct))\b",
    re.IGNORECASE,
)
_COULD_BE = re.compile(r"[^.!?\n]{0,40}\b(?:could|might|may) (?:also |well |even )?be\b", re.IGNORECASE)
_REJECTED = re.compile(
    r"[ \x02\x03]*\?|[ \x02\x03,]*\b(?:(?:is|was|can?|could|does)(?:\s?not|n't)"
    r"|is (?:wrong|incorrect|false|excluded))\b",
    re.I,
)
_SUPPOSED = re.compile(
    r"\W*(?:(?:but|and|so)\s)?(?:if(?! you\b)|unless|otherwise|in (?:the |an)?other|had)\b", re.IGNORECASE
)
_NEXT_CASE = re.compile(rf"[^.!?\n]*[.!?\n]{_SUPPOSED.pattern}", re.IGNORECASE)
_CONCLUDED = re.compile(r"\b(?:(?<!is )so|then|therefore|thus|hence)\b", re.IGNORECASE)


class _Named(NamedTuple):
    label: str | None
    """`None` if several options are named, the label and the text are those of different options, or no
    option is said to be right.
    """

    end: int


class _Options:
    """Finds the options of a question in a text."""

    def __init__(self, choices: Mapping[str, str]) -> None:
        self.choices = choices
        self.texts: dict[str, list[str]] = {}
        self.texts_in_any_case: dict[str, list[str]] = {}
        for label, text in choices.items():
            if words := _GAP.sub(" ", _plain(text)).strip(" ."):
                self.texts.setdefault(words, []).append(label)
                self.texts_in_any_case.setdefault(words.upper(), []).append(label)
        gap = _GAP.pattern
        texts = [
            gap.join(map(re.escape, words.split())) for words in sorted(self.texts, key=len, reverse=True)
        ]
        self.text = re.compile(rf"(?:{'|'.join(texts) or '(?!)'})(?!\.\d)", re.IGNORECASE)
        plain = {_plain(label).strip(f" .{_MARKED}") or label: label for label in choices}
        self.labels = {word.casefold(): label for word, label in plain.items()} | plain
        one_of = "|".join(sorted(map(re.escape, plain), key=len, reverse=True))
        self.label = re.compile(rf"(?:{one_of})(?![\w'])(?!,\d)(?![-+.]\w)(?!\s?[%°])", re.IGNORECASE)
        self.subject = re.compile(rf"(?<![\w'-])(?<!in )(?<!of )(?:{one_of})")

    def label_at(self, text: str, at: int) -> _Named | None:
        """Return the label at index `at` of `text`. `A` or `I` before another word is no label, except
        after a word such as `option`, or before the text of its option.
        """
        match = self.label.match(text, at)
        if match is None:
            return None
        word, end = match[0], match.end()
        label = self.labels.get(word) or self.labels[word.casefold()]
        is_marked = text[end : end + 1] == _MARKED
        if len(word) == 1 and not is_marked and not _OVER.match(text, end):
            beside = self.text_beside(label, text, end)
            is_word = word in "aAI" and _A_WORD.match(text, end) and not (beside and beside.label == label)
            if word != label or (is_word and not _LABEL_WORD.search(text, max(0, at - 12), at)):
                return None
        if _NO_VERDICT.match(text, at):
            return None
        return _Named(label, end + is_marked)

    def text_at(self, text: str, at: int, own: str | None = None) -> _Named | None:
        """Return the option whose text is at index `at`. If several have this text, it is the one labelled
        `own`, or else `label` is `None`.
        """
        match = self.text.match(text, at)
        if match is None:
            return None
        words = _GAP.sub(" ", match[0])
        labels = self.texts.get(words) or self.texts_in_any_case.get(words.upper(), [])
        return _Named(own if own in labels else labels[0] if len(labels) == 1 else None, match.end())

    def text_beside(self, label: str | None, text: str, at: int) -> _Named | None:
        beside = _BESIDE.match(text, at)
        return self.text_at(text, beside.end() if beside else at, label)

    def one_at(self, text: str, at: int) -> _Named | None:
        """Return the option that is named at index `at` by its label, its text, or both. `label` is `None` if
        the label and the text belong to different options.
        """
        by_text, by_label = self.text_at(text, at), self.label_at(text, at)
        if by_text is not None and (by_label is None or by_text.end > by_label.end):
            behind = _LABEL_BEHIND.match(text, by_text.end)
            if behind and (label := self.label_at(text, behind.end())):
                if label.label == by_text.label:
                    return label
                if _OVER.match(text, label.end):
                    return _Named(None, label.end)
            is_whole = any(pattern.match(text, by_text.end) for pattern in (_OVER, _VERB, _ALSO))
            return by_text if is_whole else None
        if by_label is None:
            return None
        beside = self.text_beside(by_label.label, text, by_label.end)
        if beside is None:
            return by_label
        if beside.label == by_label.label:
            return beside
        return _Named(None, beside.end) if _OVER.match(text, beside.end) else by_label

    def at(self, text: str, at: int) -> _Named | None:
        """Return the option named at index `at`. Its `label` is `None` if another follows, as in `B or C`."""
        if (
            (named := self.one_at(text, at)) is None
            or (also := _ALSO.match(text, named.end)) is None
            or (another := self.one_at(text, also.end())) is None
            or another.label == named.label
        ):
            return named
        if not also["or"] and _VERB.match(text, another.end):
            return named  # `B, and C is wrong`
        if also["apart"] and not _AT_END.match(text, another.end):
            return named  # `B; C, unlike it, is wrong`
        return _Named(None, another.end)


@lru_cache(maxsize=256)
def _options(choices: tuple[tuple[str, str], ...]) -> _Options:
    return _Options(dict(choices))


def stated_choice(reply: str, choices: Mapping[str, str]) -> str | None:
    r"""Return the label of the choice that a reply states. `None` if it states none, or several at once.

    Args:
        reply: A whole reply, or the answer in it. Statements are read in its last 20,000 characters; what
            precedes these is only read for the option with which the reply begins.
        choices: The texts of the options by label; a text may be empty. A letter in the other case than its
            label counts only in marks (`(b)`), or before punctuation, the end of a line or a word such as
            `because`.
    """
    text, options = _plain(reply[-_READ:]), _options(tuple(choices.items()))
    stated = [*_announced(text, options), *_called_right(text, options), *_alone(text, options)]
    if stated:
        return max(stated, key=lambda one: one[0])[1]
    return _at_the_beginning(_plain(reply[:_READ]), options)


def _announced(text: str, options: _Options) -> Iterator[tuple[int, str | None]]:
    """Yield the index of each cue (`the answer is`) and the choice after it. The choice is `None` if
    a condition or another possible choice leaves it open.
    """
    over = 0
    cases: set[tuple[int, str | None]] = set()
    for cue in _CUE.finditer(text):
        at = cue.start()
        start = _start_of_sentence(text, at)
        before = text[start:at]
        if (
            at < over
            or (cue["act"] and not _ONESELF.search(before))
            or (cue["heading"] is not None and not _HEADING.match(before))
            or (not cue["box"] and _DOUBT.search(before))
        ):
            continue
        named = _named(text, cue.end(), options, cue["not"] is not None)
        if named is None or _REJECTED.match(text, named.end):
            continue
        is_open = _is_open(text, named.end, options)
        if supposed := _SUPPOSED.match(before):
            others = {label for sentence, label in cases if sentence != start}
            cases.add((start, named.label))
            if not others and not _CONCLUDED.search(before, supposed.end()):
                continue
            is_open = is_open or bool(others - {named.label} or _NEXT_CASE.match(text, named.end))
        if cue["weak"] is None or _OVER.match(text, named.end):
            over = named.end
            yield at, None if is_open else named.label


def _is_open(text: str, end: int, options: _Options) -> bool:
    """Return whether the text after a choice withdraws it, or names another possible choice."""
    other = _COULD_BE.match(text, end)
    return bool(_CONDITION.match(text, end) or (other and _named(text, other.end(), options, False)))


def _start_of_sentence(text: str, at: int) -> int:
    first = max(0, at - _SPAN)
    return max(first, *(text.rfind(mark, first, at) + 1 for mark in (". ", "! ", "? ", "\n")))


def _named(text: str, at: int, options: _Options, is_negated: bool) -> _Named | None:
    """Return the option that `text` names from index `at` on, after filler words. After `not` it is the
    option behind `but`, `rather` or `instead`.
    """
    for _ in range(_WORDS):
        if not is_negated:
            if named := options.at(text, at):
                return named
            if _NO_CHOICE.match(text, at):
                return _Named(None, at + 4)
            if filler := _FILLER.match(text, at):
                at = filler.end()
                continue
            if text[at : at + 4].lower() != "not ":
                return None
        turn = _TURN.match(text, at)
        if turn is None:
            return None
        at, is_negated = turn.end(), False
    return None


def _called_right(text: str, options: _Options) -> Iterator[tuple[int, str | None]]:
    """Yield the index and the option of each statement such as `B is the correct answer`. The option is
    `None` if the statement leaves it open, or if its sentence also calls another option right.
    """
    before: tuple[int, str | None] = (-1, None)
    for verdict in _RIGHT.finditer(text):
        at = verdict.start()
        first = _start_of_sentence(text, at)
        subjects = [match.start() for match in options.subject.finditer(text, first, at + 1)][-5:]
        found = [options.at(text, k) for k in subjects if not _DOUBT.search(text, max(0, k - 40), k)]
        for named in (*found, _named(text, first, options, False)):
            if named and named.end <= at and not text[named.end : at].strip(" \x02\x03,"):
                is_open = "also" in verdict[0] or _is_open(text, verdict.end(), options)
                is_one_of_two = before[0] == first and before[1] != named.label
                before = first, named.label
                yield at, None if is_open or is_one_of_two else named.label
                break


def _alone(text: str, options: _Options) -> Iterator[tuple[int, str | None]]:
    """Yield the option that is alone on the last line, unless that line ends a list of options."""
    lines = list(_LINE.finditer(text))[-2:]
    label = _only(lines[-1][0], options) if lines else None
    if label is None:
        return
    before = _named(lines[0][0], 0, options, False)
    order = list(options.choices)
    if before and before.label not in (None, label):
        is_next = order.index(label) == order.index(before.label) + 1
        if is_next or _only(lines[0][0], options):
            return
    yield lines[-1].start(), label


def _only(line: str, options: _Options) -> str | None:
    named = _named(line, 0, options, False)
    rest = "" if named is None else line[named.end :].strip(" \t\x02\x03.,!:;")
    return None if named is None or rest else named.label


def _at_the_beginning(text: str, options: _Options) -> str | None:
    """Return the option with which a reply begins, unless it goes on with a list of options."""
    first, _, rest = text.strip().partition("\n")
    named = _named(first, 0, options, False)
    if named is None or not _OVER.match(first, named.end):
        return None
    if _only(first, options) is not None:
        return named.label if _only(rest.partition("\n")[0], options) in (None, named.label) else None
    for match in _ITEM.finditer(text, named.end):
        if options.labels.get(match[1].casefold(), named.label) != named.label:
            return None
    return named.label
