"""Replies made by a grammar that knows what each of them means, to test the readers with.

Each reply is built from named productions: the form of the statement, the decoration of its label or number,
what comes before it and after it. `Case.expected` follows from how the reply was built, never from reading
it, and is `None` where the reply hedges or states nothing. A reply on whose meaning careful people could
disagree is not in the grammar.

`python -m support.reply_grammar [seed] [count] [kind]`, run in `tests/`, prints samples.
"""

import json
import random
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count as count_from
from itertools import islice
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Any

KINDS = ("choice", "vote", "joint", "score")


@dataclass(frozen=True)
class Case:
    """A reply, what its reader knows, and what the reply means."""

    kind: str
    """One of `KINDS`."""
    reply: str
    setting: Any
    """For a choice the options (label to text), for a vote the number of candidates, for joint scores the
    names of the candidates, for a score `None`."""
    expected: Any
    """A label; a number from 1; a score, or `None` for one that is not judged, for each name; a score from 0
    to 1. `None` if the reply states nothing."""
    productions: tuple[str, ...]
    """The productions that built the reply, as `kind part: name`."""


Table = Mapping[str, Sequence[str]]

# A label or number in a template is @, and the text of its option is #.

BRACKETS: Table = {
    "round": ["(@)"],
    "square": ["[@]"],
    "full-width round": ["（@）"],
    "lenticular": ["【@】", "〔@〕"],
    "corner": ["「@」", "『@』"],
    "straight quotes": ['"@"', "'@'"],
    "curly quotes": ["“@”", "‘@’"],
    "low quotes": ["„@“", "‚@‘", "„@”"],
    "guillemets": ["«@»", "»@«", "‹@›", "« @ »"],
    "angle quotes": ["《@》", "〈@〉"],
    "full-width quotes": ["＂@＂", "＇@＇"],
    "angle": ["<@>"],
    "stop in quotes": ["“@.”", '"@."', "«@.»"],
    "emoji": ["✅ @", "👉 @", "@ ✅"],
}
MARKDOWN: Table = {
    "bold": ["**@**", "__@__"],
    "italic": ["*@*", "_@_"],
    "bold italic": ["***@***"],
    "code": ["`@`"],
    "html": [
        "<u>@</u>",
        "<i>@</i>",
        "<span>@</span>",
        "<mark>@</mark>",
        "<b>@</b>",
        "<strong>@</strong>",
        "<em>@</em>",
        "<code>@</code>",
    ],
}
MATH: Table = {
    "dollar": ["$@$", "$ @ $"],
    "dollars": ["$$@$$"],
    "parentheses": [r"\(@\)", r"\( @ \)"],
    "display": [r"\[@\]"],
    "text": [r"$\text{@}$", r"\(\text{@}\)", r"$\textbf{@}$", r"$\textrm{@}$"],
    "alphabet": [r"$\mathbf{@}$", r"$\mathrm{@}$", r"$\mathsf{@}$", r"$\boldsymbol{@}$"],
    "text without dollars": [r"\textbf{@}", r"\text{@}"],
    "brackets": [r"$(@)$", r"$\text{(@)}$", r"$\mathbf{(@)}$"],
    "other macros": [
        r"$\mathit{@}$",
        r"$\underline{@}$",
        r"$\bf @$",
        r"${@}$",
        r"$\operatorname{@}$",
        r"$\text{ @ }$",
    ],
    "macros of text": [r"\emph{@}", r"\underline{@}", r"\texttt{@}"],
}
BOXES: Table = {
    "box": [r"\boxed{@}", r"\boxed{ @ }", r"\fbox{@}"],
    "box text": [r"\boxed{\text{@}}", r"\boxed{\textbf{@}}"],
    "box alphabet": [r"\boxed{\mathbf{@}}", r"\boxed{\mathrm{@}}"],
    "box brackets": [r"\boxed{(@)}", r"\boxed{\text{(@)}}"],
    "box with odd macros": [
        r"\boxed{{@}}",
        r"\boxed {@}",
        r"\boxed{\rm @}",
        r"\boxed{\bf{@}}",
        r"\boxed{\text{ @ }}",
    ],
    "box of macros": [r"\boxed{\displaystyle @}", r"\boxed{\textbf{\text{@}}}", r"\boxed{\mathit{@}}"],
}
BOXES_WITH_WORD: Table = {
    "box in a box": [r"\boxed{\boxed{@}}", r"\boxed{\boxed{\text{@}}}"],
    "box without braces": [r"\boxed @"],
    "box and word": [r"\boxed{\text{Answer: @}}", r"\boxed{\text{Option @}}"],
}
BOXES_WITH_TEXT: Table = {
    "box and text": [
        r"\boxed{\text{@) #}}",
        r"\boxed{\text{@. #}}",
        r"\boxed{\text{@: #}}",
        r"\boxed{\text{(@) #}}",
    ],
}
PLAIN: Table = {"none": ["@"]}
FULL_WIDTH: Table = {"full-width": ["@"]}
BOLD_CHARACTERS: Table = {"bold characters": ["@"]}
OPTION: Table = {
    "size and space": [r"$\Large @$", r"$\quad @$", r"\(\left(@\right)\)", r"$\color{gray}{@}$", r"$\,@$"],
    "option": [
        "**option @**",
        "(option @)",
        '"option @"',
        "“Option @”",
        "option @",
        "Option @",
        "choice @",
        "option (@)",
        "option **@**",
    ],
}
LOWER_CASE: Table = {"lower case": ["(@)", '"@"', "**(@)**", "$(@)$"]}
FRAMES: Table = {
    "bare": ["@"],
    "dollar": ["$@$"],
    "dollars": ["$$@$$"],
    "parentheses": [r"\(@\)"],
    "display": [r"\[ @ \]", "\\[\n@\n\\]"],
}
WITH_TEXT: Table = {
    "space": ["@ #"],
    "round text": ["@ (#)", "(@) (#)"],
    "colon": ["@: #", "(@): #"],
    "dot": ["@. #"],
    "parenthesis": ["@) #"],
    "round label": ["(@) #"],
    "square label": ["[@] #"],
    "dash": ["@ - #", "@ — #", "@ – #"],
    "comma": ["@, #"],
    "full-width": ["@：#", "（@）#", "@（#）", "@、#"],
    "bold label": ["**@** #", "**@)** #", "**@.** #", "**(@)** #", "**@**: #"],
    "all bold": ["**@) #**", "**@. #**", "**(@) #**", "**@: #**"],
    "quoted text": ['@ ("#")', '@ "#"', "@ «#»", "@ „#“", "@ 「#」"],
    "quoted": ['"@) #"', "“@. #”", "„@: #“"],
    "code": ["`@` #", "`@) #`"],
    "math label": ["$@$ (#)", r"\(@\): #", r"$\mathbf{@}$ #"],
    "math": [r"$\text{@) #}$", r"$\text{(@) #}$"],
    "text first": ["# (@)", "# (option @)"],
    "option": ["option @, #", "option @ (#)", "Option @: #", "choice (@) #"],
    "namely": ["@ (that is, #)", "@, namely #", "@, i.e. #", "option @ (“#”)"],
    "capital": ["@) #", "@ (#)", "(@) #", "@: #"],
}

ALONE: Table = {
    "alone": ["#", '"#"', "**#**", "“#”"],
    "alone, capital": ["#", "**#**", '"#"'],
}
MENTIONS: Table = {
    "option": ["option @", "choice @"],
    "brackets": ["(@)", "option (@)"],
    "decorated": ["option **@**", "option $@$"],
}
MENTIONS_BY_LETTER: Table = {"letter": ["@"], "bold letter": ["**@**"]}
MENTIONS_BY_TEXT: Table = {"text": ["#", '"#"'], "label and text": ["option @ (#)", "(@) #"]}
MENTIONS_OF_WORDS: Table = {"word": ['"@"']}

# Templates of statements have the slots {V} (what is stated), {O} (it, with a noun), {W} and {X} (another
# label, {X} without decoration), {M} (a mention of another label) and {R} (a reason that mentions one).

STATEMENTS: Table = {
    "seems": ["The answer seems to be {V}", "The answer remains {V}", "The correct option becomes {V}"],
    "it is": [
        "So it must be {V}",
        "Therefore, it has to be {V}",
        "In this case, it's {V}",
        "That leaves {V}",
    ],
    "leaves us": ["This leaves us with {V}", "That leaves {V}"],
    "i say": ["I'd say {V}", "We conclude {V}", "I would answer {V}"],
    "i opt for": ["I opt for {V}", "We vote for {V}", "I'll go for {V}", "I am going with {V}"],
    "hence": ["Hence {V}", "In conclusion, {V}", "Finally, {V}", "Thus, {V}"],
    "actually": ["Actually {V}", "Correction: {V}", "No, wait, {V}"],
    "the correct one is": ["The correct one is {V}", "The right letter is {V}", "The best statement is {V}"],
    "which fits": ["The answer that fits is {V}", "The option which fits here is {V}"],
    "answer, however": ["The answer, however, is {V}", "The answer, of course, is {V}"],
    "in German": ["Die Antwort ist {V}", "Die richtige Antwort lautet {V}"],
    "in French or Spanish": ["La réponse est {V}", "La respuesta correcta es {V}"],
    "in Italian or Portuguese": ["La risposta è {V}", "A resposta é {V}"],
    "the answer is": ["The answer is {V}", "So the answer is {V}", "Hence, the answer is {V}"],
    "therefore the answer is": ["Therefore, the answer is {V}", "This means that the answer is {V}"],
    "the correct answer is": [
        "The correct answer is {V}",
        "The right answer is {V}",
        "The best answer is {V}",
    ],
    "the correct option is": ["The correct option is {V}", "The correct choice is {V}"],
    "the final answer is": ["The final answer is {V}", "Thus, the final answer is {V}"],
    "the answer is, colon": ["The answer is: {V}", "The correct answer is: {V}", "The final answer is: {V}"],
    "must be": ["The answer must be {V}", "So the answer has to be {V}"],
    "my answer": ["My answer is {V}", "My final answer is {V}"],
    "since, the answer is": [
        "Since {R}, the answer is {V}",
        "{R}, so the answer is {V}",
        "As {R}, the answer is {V}",
    ],
    "i choose": ["I choose {V}", "I pick {V}"],
    "adverb": ["The answer is therefore {V}", "The answer, therefore, is {V}", "The answer is clearly {V}"],
    "to the question": ["The answer to the question is {V}", "The correct answer to this question is {V}"],
    "the answer choice": ["The correct answer choice is {V}", "The answer option is {V}"],
    "i go with": ["I select {V}", "I go with {V}"],
    "the answer i find": ["The answer I find is {V}", "The option that I choose is {V}"],
    "decorated words": [
        "The **answer** is {V}",
        "**The answer is** {V}",
        "The *correct* answer is {V}",
        "The **final answer** is: {V}",
        "<b>The correct answer is</b> {V}",
    ],
    "upper-case words": ["THE ANSWER IS {V}", "THE CORRECT ANSWER IS {V}"],
    "spaces and breaks": [
        "The  answer  is   {V}",
        "The correct\nanswer is {V}",
        "The final answer is\u00a0{V}",
    ],
}
LINES: Table = {
    "other nouns": ["Ans: {V}", "Verdict: {V}", "Choice: {V}", "Solution: {V}", "My pick: {V}"],
    "other languages": ["答案：{V}", "答案是 {V}", "答えは {V}", "정답: {V}", "Ответ: {V}", "Antwort: {V}"],
    "row of a table": ["| Answer | {V} |"],
    "struck out": ["Answer: ~~{X}~~ {V}"],
    "answer": ["Answer: {V}", "answer: {V}"],
    "upper case": ["ANSWER: {V}", "FINAL ANSWER: {V}"],
    "final answer": ["Final answer: {V}", "Final Answer: {V}", "My answer: {V}"],
    "correct answer": ["Correct answer: {V}", "Correct option: {V}"],
    "the answer": ["The answer: {V}", "The final answer: {V}"],
    "full-width colon": ["ANSWER：{V}", "Answer：{V}", "Answer ： {V}"],
    "full-width word": ["Ａｎｓｗｅｒ：{V}", "ＡＮＳＷＥＲ: {V}"],
    "bold word": ["**Answer:** {V}", "**Answer**: {V}", "**Final answer:** {V}", "__Answer:__ {V}"],
    "heading": ["### Answer: {V}", "## Final answer: {V}"],
    "heading above": ["## Answer\n\n{V}", "### Final Answer\n{V}", "**Final Answer**\n\n{V}"],
    "line above": ["Answer:\n{V}", "Final answer:\n\n{V}", "The answer is:\n\n{V}"],
    "quote": ["> Answer: {V}"],
    "bullet": ["- Answer: {V}", "* Answer: {V}", "• Answer: {V}"],
    "hashes": ["#### {V}"],
    "no space": ["Answer:{V}"],
    "equals": ["Answer = {V}"],
    "no-break space": ["Answer:\u00a0{V}", "ANSWER\u202f: {V}"],
    "fence": ["```\nAnswer: {V}\n```", "```text\nANSWER: {V}\n```"],
    "line and statement": [
        "Final Answer: The final answer is {V}. I hope it is correct",
        "Answer: The correct answer is {V}",
        "Answer: the answer is {V}",
    ],
    "bold word, correct": ["**Correct Answer:** {V}", "**Correct option**: {V}", "*Answer*: {V}"],
    "html word": ["<b>Answer:</b> {V}", "<strong>Answer</strong>: {V}", "Answer: {V}<br>"],
    "answer is": ["Answer is {V}", "Answer is: {V}"],
    "line above without a colon": ["The answer is\n\n{V}", "The correct option is\n{V}"],
}
SAME_LINES = ["answer", "upper case", "bold word", "no space"]
"""Lines in the form of `EARLIER_LINES`."""
BOLD_LINES: Table = {
    "bold line": ["**Answer: {V}**", "**ANSWER: {V}**", "**The answer is {V}.**", "__Answer: {V}__"]
}
A_BEFORE_THE_TEXT: Table = {
    "a before the text": ["Answer: A good answer would be #", "Answer: A fitting reply is #"],
}
TAGS: Table = {
    "short tag": ["<ans>{V}</ans>", "<choice>{V}</choice>"],
    "square tag": ["[ANSWER]{V}[/ANSWER]", "[answer] {V} [/answer]"],
    "tag": ["<answer>{V}</answer>", "<answer> {V} </answer>"],
    "tag lines": ["<answer>\n{V}\n</answer>"],
    "tag in upper case": ["<ANSWER>{V}</ANSWER>", "<Answer>{V}</Answer>"],
    "final tag": ["<final_answer>{V}</final_answer>"],
    "statement in a tag": ["<answer>The answer is {V}</answer>", "<answer>Answer: {V}</answer>"],
}
SUBJECTS: Table = {
    "is correct": ["{O} is correct", "{O} is right"],
    "is the correct answer": ["{O} is the correct answer", "{O} is the right answer", "{O} is the answer"],
    "answer, is correct": [
        "Answer: {O} is correct",
        "Answer: {O} is right",
        "ANSWER: {O} is the best answer",
    ],
    "is the only one": ["Answer: {O} is the only one that fits", "Answer: {O} is the one that fits best"],
    "is the best option": ["{O} is the best option", "{O} is the correct choice", "{O} must be the answer"],
}
WORD_LINES: Table = {
    "words behind": [
        "Answer: {V} it is",
        "Answer: {V}! Absolutely",
        "Answer: {V}, that is so",
        "Answer: {V}, of course",
    ]
}
LABEL_ALONE: Table = {"label alone": ["{V}"]}
OUTSIDE: Table = {"no such label": ["The answer is @.", "\\boxed{@}", "Answer: (@)"]}
IN_TURN: Table = {
    "options in turn": ["(@) {}. ", "Option (@) {}. ", "- Option @ {}.\n", "(@) {}.\n", "**@** {}. "]
}
OPTIONS_RESTATED: Table = {"options restated": ["(@) #\n", "@) #\n", "@. #\n", "- @: #\n", "@: #\n"]}
LABELS_LISTED: Table = {"labels listed": ["The options are @. ", "We choose among @. ", "There are @.\n"]}
PARTIAL_LABEL: Table = {
    "partial box with a label": ["The sum is $\\boxed{{W}}$. ", "Step 1 gives \\boxed{{W}}.\n"]
}
OPENINGS: Table = {"opening": ["Let us think step by step. ", "First, we read the question.\n", "{R}. "]}
HEDGED: Table = {"labels and texts": ["(@) #", "@ (#)", "@: #"], "texts": ["#", '"#"']}
CORRECTIONS: Table = {
    "not, but": [
        "The answer isn't {W} but {V}",
        "The correct option is not {W} but {V}",
        "The answer is not {W} but {V}",
        "So the answer is not {W}, but {V}",
    ],
    "cannot be, it is": ["The answer cannot be {W}, it is {V}", "The answer cannot be {W}; it is {V}"],
    "is not, answer": [
        "The answer is not {W}, it is {V}",
        "The answer is not {W}; it is {V}",
        "It is not {W}; the answer is {V}",
        "It is not {W}, so the answer is {V}",
    ],
    "not": ["The answer is {V}, not {W}", "Answer: {V}, not {W}", "Answer: {V} and not {W}"],
    "rather": ["The answer is {V} rather than {W}", "Answer: {V} instead of {W}"],
}
CONTRASTS: Table = {
    "right, not right": [
        "Answer: {O} is right; {M} is wrong",
        "Answer: {O} is correct; {M} is incorrect",
        "Answer: {O} is right; {M} is not",
        "Answer: {O} is correct, but {M} is not",
    ],
}
CLAUSES: Table = {
    "because": [" because {R}", ", because {R}"],
    "since": [", since {R}", " since {R}"],
    "as": [", as {R}"],
    "while": [", while {R}", ", whereas {R}"],
    "unlike": [", unlike {M}", ", in contrast to {M}"],
    "semicolon": ["; {R}"],
    "brackets": [" ({R})", " [{R}]"],
    "dash": [" – {R}", " — {R}"],
    "even though": [", even though {R}"],
    "own reason": [" because it fits all of the facts", ", the only one that fits", ", as it fits the facts"],
}
FOLLOWING: Table = {
    "reason": [" {R}.", "\n{R}.", " {R}. {R}."],
    "reason line": ["\n\nReason: {R}.", "\nReason: {R}.", "\n\n**Reason:** {R}."],
    "explanation": ["\nExplanation: {R}. {R}.", "\n\nExplanation:\n- {R}.\n- {R}."],
    "runner-up": [
        "\nAlternative: {W}",
        "\nRunner up: {W}",
        " The runner-up is {M}.",
        " A close second is {M}.",
        "\nRunner-up: {M}",
    ],
    "second best": [
        "\nSecond-best answer: {W}",
        "\n2nd best: {W}",
        "\nThe next best option is {M}.",
        " The second best answer is {M}.",
        "\nSecond choice: {M}",
    ],
    "others": [" The other options do not fit.", "\n\nThe others were ruled out above."],
    "cut off": [" {M} is", "\n\nReason: {M} was", "\n\n(It"],
    "closing": [" I hope this helps!", "\n\nLet me know if you have any questions.", "\n\nI am sure of it."],
    "confidence": ["\nConfidence: high", "\n\nConfidence: 90%"],
    "negation": [
        " {M} is incorrect.",
        " It is certainly not {W}.",
        "\n{M} is not correct.",
        " It isn't {W}.",
        " It is not {W}.",
        " The answer cannot be {W}.",
        "\nIt cannot be {M}.",
    ],
    "question": [" Why not {M}? That would not fit.", "\n\nWhat about {W}? {R}."],
    "other case": [
        " The answer could have been {W}.",
        " If not for the last sentence, the answer might be {W}.",
        " In another case, the answer would be {W}.",
        " Had the facts been different, {M} would fit.",
    ],
    "others say": [" Many would say that the answer is {W}, but that is too quick."],
    "reason in German": ["\nBegründung: {W} passt nicht zum Text.", " Denn {W} passt nicht."],
    "reason in French": ["\nRaison : {W} ne convient pas.", "\n\nExplication : le choix {W} est faux."],
    "reason in Spanish": ["\nMotivo: la opción {W} no encaja."],
    "reason in Chinese": ["\n理由：选项 {W} 不合适。", "\n因为 {W} 太晚了。"],
    "reason in Russian": ["\nПричина: вариант {W} не подходит."],
    "partial box": ["\n\nCheck: the sum is $\\boxed{144}$.", " The ratio is \\(\\boxed{3.75}\\)."],
}
PRECEDING: Table = {
    "reason": ["{R}. ", "{R}, and {R}. ", "{R}.\n\n"],
    "steps": ["Let us think step by step. {R}.\n\n", "First, we read the question. {R}.\n"],
    "lower-case steps": ["(a) We read the question. (b) We look at each sentence. "],
    "restated": ["The answer is {W}. Wait, that overlooks the first sentence. "],
    "hedge": ["The answer is {W} or {V}. {R}. ", "Answer: {V} or {W}\nLet me look again.\n"],
    "partial box": [
        r"The sum is $\boxed{144}$. ",
        "The product is\n\\[ \\boxed{x + 7y} \\]\n",
        "$\\boxed{3.75}$\n\n",
    ],
    "announcement": [
        "Answer: we first need to compare the options. {R}.\n\n",
        "The answer is found by looking at each option. {R}. ",
        "To find the answer, we compare the options.\n",
    ],
    "question": [
        "So the answer is {W}? That would not fit. ",
        "Is the answer {W}? That would not fit. ",
        "Could it be {M}? We saw that it could not. ",
    ],
    "negation": [
        "It is not {W}. ",
        "The answer is not {W}. ",
        "The answer cannot be {W}. ",
        "{M} is not correct. ",
    ],
    "others say": ["Many would say that the answer is {W}, but that is too quick. "],
    "second best": ["The second best answer is {W}. ", "Runner-up: {W}\n"],
    "reason in other languages": [
        "{W} passt nicht zum Text. ",
        "Le choix {W} ne convient pas. ",
        "选项 {W} 不合适。",
    ],
    "steps in a list": ["1. {R}.\n2. {R}.\n\n", "- {R}.\n- {R}.\n"],
    "earlier box": ["The answer is $\\boxed{{X}}$. Wait, that overlooks the first sentence.\n"],
    "where the answer is not": [
        "The answer is not in the first sentence. ",
        "The answer is a matter of facts.\n",
    ],
}
EARLIER_LINES: Table = {"earlier line": ["ANSWER: {W}\nWait, no.\n", "Answer: {W}\n\nWait, {R}.\n\n"]}
HEDGES: Table = {
    "alternatively": [
        "Answer: {V}; alternatively, {W}",
        "The answer is {V}. Alternatively, {W}.",
        "The answer is {V}, or alternatively {W}.",
    ],
    "less likely": ["The answer is {V} or, less likely, {W}.", "Answer: {V} or maybe {W}"],
    "but it could be": [
        "The answer is {V}, but it could be {W}.",
        "The answer is {V}, but it may also be {W}.",
    ],
    "plus": ["Answer: {V} plus {W}", "The answer is {V} + {W}."],
    "semicolon": ["Answer: {V}; {W}"],
    "or in other languages": ["Answer: {V} oder {W}", "Answer: {V} ou {W}", "Answer: {V} или {W}"],
    "and in other languages": ["Answer: {V} und {W}", "Answer: {V} et {W}", "Answer: {V} y {W}"],
    "two cases": [
        "If the first sentence holds, the answer is {V}. If not, the answer is {W}.",
        "If the first sentence holds, all else fails, so the answer is {V}.\nIf not, then the answer is {W}.",
        "If all of them are meant, then the answer is {V}. Otherwise, the answer is {W}.",
    ],
    "or": [
        "Answer: {V} and/or {W}",
        "Answer: perhaps {V} or {W}",
        "The answer is {V} or {W}.",
        "Answer: {V} or {W}",
        "ANSWER: {V} OR {W}",
        "The correct option is {V} or {W}.",
    ],
    "either": ["The answer is either {V} or {W}.", "Answer: either {V} or {W}", "It is either {V} or {W}."],
    "and": [
        "Answer: {V} & {W}",
        "Answer: {V} as well as {W}",
        "Answer: {V} and {W}",
        "The answer is both {V} and {W}.",
        "The answers are {V} and {W}.",
    ],
    "slash": ["Answer: {V}/{W}", "The answer is {V}/{W}."],
    "several": ["Answer: {V}, {W}", "The correct answers are {V}, {W}."],
    "torn": ["I am torn between {V} and {W}.", "Both {V} and {W} could be right."],
    "depends": ["The answer is {V} or {W}, depending on the reading."],
    "tag": ["<answer>{V} or {W}</answer>", "<answer>{V} and {W}</answer>"],
    "if": ["The answer is {V} if the first sentence is meant, and {W} otherwise."],
    "one of": ["The answer is one of {V} and {W}.", "It is one of {V} and {W}."],
    "could be": [
        "The answer may be {V} or {W}.",
        "The answer might be {V} or {W}.",
        "The answer could be {V} or {W}.",
        "It might be {V}, or it might be {W}.",
        "Maybe {V}, maybe {W}.",
    ],
}
BOXED_HEDGES: Table = {
    "box": [
        r"$\boxed{\text{{v} or {w}}}$",
        r"\boxed{{v} \text{ or } {w}}",
        r"The answer is $\boxed{{v}, {w}}$.",
    ],
}
NEGATIONS: Table = {
    "what fails": [
        "The option that fails is {V}.",
        "The answer that we can rule out is {V}.",
        "The option to reject is {V}.",
        "The option I would exclude is {V}.",
    ],
    "taken back": ["Answer: {V}\nNo, that is wrong.", "The answer is {V}. Wait, that is not correct."],
    "is wrong": ["Answer: {V} is wrong.", "The incorrect option is {V}."],
    "is not": [
        "It is not {V}.",
        "The answer is not {V}.",
        "The correct answer is not {V}.",
        "Answer: not {V}",
    ],
    "cannot be": ["The answer cannot be {V}.", "It cannot be {V}."],
    "isn't": ["The answer isn't {V}.", "The answer isn’t {V}."],
    "neither": [
        "It is neither {V} nor {W}.",
        "The answer is neither {V} nor {W}.",
        "Answer: neither {V} nor {W}",
    ],
    "wrong": [
        "{M} is incorrect.",
        "{M} is not right.",
        "{M} can be ruled out.",
        "{M} is excluded.",
        "{M} is not correct.",
        "{M} is wrong.",
    ],
    "certainly not": [
        "The answer is certainly not {V}.",
        "The answer is never {V}.",
        "It is clearly not {V}.",
        "The answer is definitely not {V}.",
        "It can't be {V}.",
        "The answer can not be {V}.",
    ],
    "not the answer": ["{M} is not the answer.", "{M} cannot be the answer.", "{M} can't be right."],
}
NOTHINGS: Table = {
    "doubt": [
        "Perhaps the answer is {V}.",
        "I doubt that the answer is {V}.",
        "Suppose the answer is {V}.",
        "Some people say that the answer is {V}.",
        "Students claim that the answer is {V}.",
        "I was told that the answer is {V}.",
        "It is unlikely that the answer is {V}.",
        "Nobody knows whether the answer is {V}.",
        "I thought that the answer was {V}.",
        "Assuming that the answer is {V}, we go on.",
        "I wonder why the answer is {V}.",
    ],
    "one case": ["If the first sentence holds, the answer is {V}.", "Unless that is so, the answer is {V}."],
    "if only": [
        "The answer is {V} if the first sentence is meant.",
        "The answer is {V}, provided that it holds.",
    ],
    "none of them": [
        "So the answer is (None of the above).",
        "Answer: None of the above",
        "The answer is none of these.",
        "Answer: none of the options",
    ],
    "announcement": [
        "Answer: we first need to compare the options.",
        "The answer is found by comparing the options.",
        "Answer: let us look at the options one by one.",
        "To find the answer, we look at each sentence.",
        "The answer to this question depends on the facts.",
        "The answer lies in the first sentence.",
        "The answer is not in the first sentence.",
        "Answer: see below.",
        "ANSWER: Let's think about it.",
    ],
    "cannot say": [
        "The question cannot be answered.",
        "Answer: it cannot be said.",
        "The answer is unclear.",
    ],
    "cut off": [
        "The answer is",
        "{R}, so the answer is",
        "Answer:",
        "The correct option is (",
        "{R}. {M} is neutral, since",
        "Final answer: \\boxed{",
        "<answer>",
        "The answer is (",
        "The answer is **",
        "Answer: option",
        "So the answer must be",
        "\\boxed{\\text{",
        "ANSWER",
    ],
    "reasons": ["{R}.", "{R}. {R}.", "{R}, and {R}."],
    "partial box": [r"The sum is $\boxed{144}$.", r"\boxed{x + 7y}", r"{R}. The ratio is \(\boxed{3.75}\)."],
    "question": ["Is the answer {V}?", "Could the answer be {V}?"],
    "others say": ["Many would say that the answer is {V}, but that is too quick."],
    "placeholder": ["Answer: ___", "Answer: ?", "The answer is [label].", "Answer: <letter>", "Answer: ..."],
    "second best": ["The second best answer is {V}.", "The runner-up is {V}."],
}
ARTICLES: Table = {
    "a": [
        "The answer is a matter of taste.",
        "The answer is an open question.",
        "Answer: A good look at the facts is needed first.",
        "Answer: A close call.",
        "Answer: A hard question.",
    ],
    "i": [
        "Answer: I would need more facts.",
        "Answer: I cannot say.",
        "The answer is unknown; I cannot help.",
    ],
}
ENDS: Table = {
    "im_end": ["<|im_end|>"],
    "s": ["</s>"],
    "eot_id": ["<|eot_id|>"],
    "endoftext": ["<|endoftext|>"],
    "end_of_turn": ["<end_of_turn>"],
    "end of sentence": ["<｜end▁of▁sentence｜>"],
    "end": ["<|end|>"],
    "eos": ["<eos>"],
    "end_of_text": ["<|end_of_text|>", "<|eom_id|>", "<|return|>"],
    "after a space": [" </s>", "\n<|im_end|>", "<|im_end|>\n"],
    "twice": ["</s></s>", "<|end|><|endoftext|>"],
}
AROUND: Table = {"space": ["\n\n@", " @ ", "@\n\n", "\n@  \n"], "byte-order mark": ["\ufeff@"]}
PREDICATES = [
    "is too hot",
    "comes too late",
    "contradicts the second premise",
    "leaves out the cost",
    "does not follow",
    "ignores the first sentence",
    "fits only half of the facts",
    "says nothing about the cause",
    "goes too far",
    "was meant for another case",
]
NEUTRAL = [
    "is neutral",
    "is about the cost",
    "speaks of the past",
    "names a cause",
    "is literal",
    "is a comparison",
]

TEXTS: Table = {
    name: texts.split("|")
    for name, texts in {
        "en": "blue|red|green|yellow|purple|orange|silver|crimson|turquoise|ivory|scarlet|violet|amber|"
        "maroon|beige|teal|indigo|magenta|copper|olive|lavender|coral|azure|khaki|charcoal|salmon|emerald|ruby|pearl|"
        "bronze|mauve|ochre|sepia|umber|cobalt|saffron",
        "en phrases": "a warm coat|the old bridge|three wooden boats|a letter from home|the northern border|"
        "a broken clock|fresh bread|the empty theatre|a quiet garden|two tall towers",
        "en names": "Paris|Mount Kenya|Lake Geneva|Marie Curie|New Zealand|The Hague|Rio de Janeiro|"
        "Ada Lovelace",
        "en capitals": "Gravity|Friction|Inertia|Torque|Momentum|Buoyancy|Pressure|Viscosity|Tension|"
        "Velocity",
        "de": "die Gabel|der Löffel|das Messer|die Brücke|der Türgriff|das Gemüse|die Straße|der Frühling",
        "fr": "la forêt|le château|l'été|la fenêtre|le garçon|l’école|le fleuve|la cigogne",
        "es": "el niño|la montaña|el corazón|la mañana|el árbol|la canción|el pingüino|la llave",
        "ru": "синий|красный|зелёный|жёлтый|чёрный|серебряный|белый|бурый",
        "el": "ο ήλιος|η θάλασσα|το βουνό|ο άνεμος|η φωτιά|το δέντρο",
        "tr": "ışık|çiçek|gökyüzü|ırmak|İzmir|yağmur",
        "ar": "أزرق|أحمر|أخضر|أصفر|أسود|أبيض",
        "he": "כחול|אדום|ירוק|צהוב|שחור|לבן",
        "hi": "नीला|लाल|हरा|पीला|काला|सफ़ेद",
        "th": "สีน้ำเงิน|สีแดง|สีเขียว|สีเหลือง|สีดำ",
        "zh": "蓝色|红色|绿色|黄色|黑色|白色",
        "ja": "青いもの|赤いもの|緑の山|カメラ|テレビ|ひまわり",
        "ko": "파란색|빨간색|초록색|노란색|검은색",
        "numbers": "120|135|144.5|160|175|1800|205|2150",
        "formulas": "x^2 + 1|2y - 7|sqrt(50)|3/(x+4)|sin(2t)|ln(9)",
    }.items()
}
TEXTS_WITH_TRAPS: Table = {
    "letters": ["vitamin C", "hepatitis A", "plan B", "group D", "type E", "model F"],
    "hedge words": ["oil and vinegar", "rain or snow", "either side", "salt and pepper", "neither hand"],
    "negations": ["not stated in the passage", "never mentioned", "no change at all", "cannot be computed"],
}
"""Texts that are misread unless the label before them decides. They are never stated without their label."""
SIMPLE = ["@", "@", "(@)", "**@**", "$@$", '"@"']
NOUNS = ["Option @", "Choice @", "Option (@)", "(@)", "@", "**@**", "Option **@**"]
WORDS = [("yes", "no"), ("true", "false"), ("valid", "invalid")]
LABEL_SETS = ["letters", "numbers", *map(" and ".join, WORDS), "more than 10 letters", "more than 10 numbers"]
LABELS = ascii_uppercase + digits
SLOT = re.compile(r"\{([VWXMRO])\}")


class Draw:
    """Random draws that note the productions they use."""

    def __init__(self, kind: str, rng: random.Random) -> None:
        self.kind, self.rng = kind, rng
        self.used: list[str] = []

    def note(self, part: str, name: str) -> None:
        self.used.append(f"{self.kind} {part}: {name}")

    def of(self, part: str, *tables: Table) -> str:
        """A template of a production, each production as likely as any other."""
        table = tables[0] if len(tables) == 1 else {name: t[name] for t in tables for name in t}
        name = self.rng.choice(list(table))
        self.note(part, name)
        return self.rng.choice(table[name])

    def often(self, probability: float) -> bool:
        return self.rng.random() < probability

    def end(self, reply: str) -> str:
        return reply + self.of("end", ENDS) if self.often(0.2) else reply


def end(draw: Draw, reply: str) -> str:
    """The reply with what may follow the end of a reply and stand around it."""
    if draw.often(0.2):
        reply += draw.of("end", ENDS)
    if draw.often(0.06):
        reply = draw.of("around", AROUND).replace("@", reply)
    if draw.often(0.04):
        draw.note("around", "carriage returns")
        reply = reply.replace("\n", "\r\n")
    return reply


def full_width(text: str) -> str:
    """The text with its printable ASCII characters in full width."""
    return "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text)


def bold(text: str) -> str:
    """The text with its letters and digits as the bold ones of mathematics."""
    starts = ((ascii_uppercase, 0x1D400), (ascii_lowercase, 0x1D41A), (digits, 0x1D7CE))
    return text.translate({ord(c): start + i for row, start in starts for i, c in enumerate(row)})


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def sentence(text: str, end: str = ".") -> str:
    """The text with a final stop, unless it has one."""
    return text if text.endswith((".", "!", "?", "。")) else text + end


def decorated(draw: Draw, value: str) -> str:
    """A label or number in one of many dresses, or in none."""
    roll = draw.rng.random()
    if roll < 0.2:
        template = draw.of("decoration", PLAIN)
    elif roll < 0.25:
        template, value = draw.of("decoration", FULL_WIDTH), full_width(value)
    elif roll < 0.28:
        template, value = draw.of("decoration", BOLD_CHARACTERS), bold(value)
    elif roll < 0.45:
        template = draw.of("decoration", BRACKETS)
    elif roll < 0.6:
        template = draw.of("decoration", MARKDOWN)
    elif roll < 0.8:
        template = draw.of("decoration", MATH)
    elif roll < 0.9:
        template = draw.of("decoration", FRAMES).replace("@", draw.of("decoration", BOXES))
    else:
        brackets = {name: BRACKETS[name] for name in BRACKETS if name != "angle"}
        template = draw.of("decoration", MARKDOWN).replace("@", draw.of("decoration", brackets))
    return template.replace("@", value)


def filled(template: str, drawn: Mapping[str, Callable[[], str]]) -> str:
    """Fill the slots of a template. What is drawn for R and M starts a sentence with a capital."""
    pieces = SLOT.split(template)
    for i in range(1, len(pieces), 2):
        slot, before = pieces[i], "".join(pieces[:i])
        starts = before.strip() in ("", "-") or before.rstrip(" ").endswith((".", "!", "?", ":", "\n", "\n-"))
        text = drawn[slot]()
        pieces[i] = capital(text) if starts and slot in "RM" else text
    return "".join(pieces)


# Choices


@dataclass
class Options:
    """The options of a question, with the one that is meant."""

    draw: Draw
    style: str
    """"letters", "numbers" or "words" (such as yes and no)."""
    texts: dict[str, str]
    label: str
    trap: bool
    """Whether the texts are those of `TEXTS_WITH_TRAPS`."""

    @property
    def text(self) -> str:
        return self.texts[self.label]

    def other(self) -> str:
        return self.draw.rng.choice([label for label in self.texts if label != self.label])

    def mention(self) -> str:
        """Another label in a sentence, by its label or by its text."""
        label = self.other()
        if self.style == "words":
            tables = [MENTIONS_OF_WORDS]
        else:
            tables = [MENTIONS]
            tables += [MENTIONS_BY_LETTER] if self.style == "letters" else []
            tables += [] if self.trap else [MENTIONS_BY_TEXT]
        return self.draw.of("mention", *tables).replace("@", label).replace("#", self.texts[label])

    def reason(self) -> str:
        return f"{self.mention()} {self.draw.rng.choice(PREDICATES)}"

    def worded(self, label: str) -> str:
        """The label as it is written: words in any case."""
        if self.style == "words":
            return self.draw.rng.choice([label, capital(label), label.upper()])
        return label

    def value(self) -> str:
        """The label that is meant, with decoration, with or without the text of its option."""
        draw, label, text = self.draw, self.label, self.text
        if text and draw.often(0.9 if self.trap else 0.4):
            # "The answer is not stated (A)" begins like a negation: such a text comes after its label.
            table = {k: v for k, v in WITH_TEXT.items() if not (self.trap and k == "text first")}
            template = draw.of("text", table)
            return template.replace("@", label).replace("#", capital(text) if self.capital_drawn() else text)
        if text and not self.trap and draw.often(0.12):
            template = draw.of("text", ALONE)
            return template.replace("#", capital(text) if self.capital_drawn() else text)
        if self.style != "words" and draw.often(0.12):
            return draw.of("decoration", OPTION).replace("@", label)
        if self.style == "letters" and label.isalpha() and draw.often(0.05):
            return draw.of("decoration", LOWER_CASE).replace("@", label.lower())
        return decorated(draw, self.worded(label))

    def capital_drawn(self) -> bool:
        """Whether the last production writes the text with a capital."""
        return self.draw.used[-1].endswith("capital")

    def simple(self, label: str) -> str:
        """The label with little decoration, as beside another one."""
        return self.draw.rng.choice(SIMPLE).replace("@", self.worded(label))

    def fill(self, template: str, value: str, other: str | None = None) -> str:
        """Fill the slots of a template. Every reason and mention is drawn anew."""
        drawn: dict[str, Callable[[], str]] = {
            "V": lambda: value,
            "W": lambda: other or self.simple(self.other()),
            "X": lambda: self.worded(self.other()),
            "M": self.mention,
            "R": self.reason,
            "O": lambda: self.draw.rng.choice(NOUNS).replace("@", self.label),
        }
        return filled(template, drawn)


def options(draw: Draw) -> Options:
    """A question's options and the one that is meant."""
    rng = draw.rng
    style = rng.choices(["letters", "numbers", "words"], [8, 2, 2])[0]
    if style == "words":
        words = rng.choice([*WORDS, WORDS[0]])
        draw.note("labels", " and ".join(words))
        return Options(draw, style, dict.fromkeys(words, ""), rng.choice(words), False)
    trap = style == "letters" and draw.often(0.1)
    table = TEXTS_WITH_TRAPS if trap else TEXTS
    language = "en" if not trap and draw.often(0.15) else rng.choice(list(table))
    if style == "numbers" and language in ("numbers", "formulas"):
        language = "ru"  # a number is a label here
    draw.note("language", language)
    pool = table[language]
    many = language == "en" and draw.often(0.5)
    size = rng.randint(3, len(pool) if many else min(len(pool), 10))
    labels = list(LABELS[:size]) if style == "letters" else [str(i + 1) for i in range(size)]
    draw.note("labels", f"more than 10 {style}" if size > 10 else style)
    label = rng.choice([x for x in labels if x in "AI"] if style == "letters" and draw.often(0.1) else labels)
    return Options(draw, style, dict(zip(labels, rng.sample(pool, size), strict=True)), label, trap)


def stated_option(draw: Draw, asked: Options, line: bool) -> str:
    """A clause that states the label, without its final stop; a line if it must be one."""
    roll, words = 0.4 if line else draw.rng.random(), asked.style == "words"
    if roll < 0.32:
        return asked.fill(draw.of("statement", STATEMENTS), asked.value())
    if roll < 0.6:
        if draw.often(0.06) and not line:
            shown = draw.rng.choice(["@", "(@)", "$@$", '"@"']).replace("@", asked.worded(asked.label))
            return asked.fill(draw.of("line", BOLD_LINES), shown)
        if draw.often(0.05) and asked.style == "letters" and not asked.trap and not line:
            return draw.of("line", A_BEFORE_THE_TEXT).replace("#", asked.text)
        if draw.often(0.4) and words:
            return asked.fill(draw.of("line", WORD_LINES), asked.worded(asked.label))
        table = {name: LINES[name] for name in SAME_LINES} if line else LINES
        return asked.fill(draw.of("line", table), asked.value())
    if roll < 0.68:
        return asked.fill(draw.of("statement", TAGS), asked.value())
    if roll < 0.78:
        box = draw.of("box", BOXES, BOXES_WITH_WORD, *([BOXES_WITH_TEXT] if asked.text else []))
        box = box.replace("@", asked.worded(asked.label)).replace("#", asked.text)
        return draw.of("frame", FRAMES).replace("@", box)
    if roll < 0.86 and not words:
        return asked.fill(draw.of("statement", SUBJECTS), "")
    if roll < 0.97:
        template = (
            draw.of("correction", CORRECTIONS) if words else draw.of("correction", CORRECTIONS, CONTRASTS)
        )
        value = asked.value()
        return asked.fill(template, f"({value})" if article(value) else value, asked.simple(asked.other()))
    return asked.fill(draw.of("statement", LABEL_ALONE), asked.value())


def article(clause: str) -> bool:
    """Whether the last word is a bare A or I: before a lower-case word it is a label only if that is a verb
    such as "is", or "because"."""
    return re.search(r"(?<!\w)[AI]$", unicodedata.normalize("NFKC", clause)) is not None


def in_turn(draw: Draw, asked: Options, part: str) -> str:
    """The options one after another, with something neutral about each."""
    form = draw.of(part, IN_TURN)
    shown = list(asked.texts)[: draw.rng.randint(2, 5)]
    return "".join(form.replace("@", x).replace("{}", draw.rng.choice(NEUTRAL)) for x in shown)


def restated(draw: Draw, asked: Options, part: str) -> str:
    """The question's options, written out."""
    form = draw.of(part, OPTIONS_RESTATED)
    return (
        "Options:\n" + "".join(form.replace("@", x).replace("#", asked.texts[x]) for x in asked.texts) + "\n"
    )


def labels_in_a_row(draw: Draw, asked: Options, part: str) -> str:
    """The labels of all options in one sentence."""
    *first, last = asked.texts
    return draw.of(part, LABELS_LISTED).replace("@", f"{', '.join(first)} and {last}")


def joined(before: str, block: str) -> str:
    """Both texts; a list begins on a line of its own."""
    between = (
        "\n" if before and not before.endswith("\n") and block.startswith(("- ", "1. ", "Options:")) else ""
    )
    return before + between + block


def before_it(draw: Draw, asked: Options, line: bool) -> str:
    """What comes before the statement."""
    before = ""
    if line:
        before = asked.fill(draw.of("preceding", EARLIER_LINES), "")
    for _ in range(draw.rng.choices([0, 1, 2], [4, 4, 2])[0]):
        roll = draw.rng.random()
        if roll < 0.1 and asked.text:
            before = joined(before, in_turn(draw, asked, "preceding"))
        elif roll < 0.13:
            before += labels_in_a_row(draw, asked, "preceding")
        elif roll < 0.2 and asked.style == "numbers":
            before += asked.fill(draw.of("preceding", PARTIAL_LABEL), "", asked.other())
        elif roll < 0.2 and asked.text and not asked.trap:
            before = joined(before, restated(draw, asked, "preceding"))
        else:
            template = draw.of("preceding", PRECEDING)
            filled_in = asked.fill(template, asked.simple(asked.label), asked.simple(asked.other()))
            before = joined(before, filled_in)
    return before


def something_stated(draw: Draw, asked: Options) -> str:
    words = asked.style == "words"
    line = draw.often(0.05)
    mark = len(draw.used)
    clause = stated_option(draw, asked, line)
    parts = {name.split(": ")[0].split()[1] for name in draw.used[mark:]}
    alone = "choice statement: label alone" in draw.used[mark:]
    # A block stands on lines of its own, and an answer line begins one.
    block = "\n" in clause or clause.startswith(
        ("#", ">", "<", "$", "\\", "**Answer:", "**ANSWER:", "__Answer:")
    )
    begins = block or "line" in parts or clause.startswith(("Answer", "ANSWER"))
    before = "" if alone else before_it(draw, asked, line)
    inline = clause.startswith(("Answer:", "Final answer:", "\\boxed")) and draw.often(0.2) and not line
    if before and begins and not before.endswith("\n") and not inline:
        before = before.rstrip() + draw.rng.choice(["\n", "\n\n"])
    finished = block or alone or clause.endswith((".**", "it is correct"))
    if not finished and not words and "correction" not in parts and draw.often(0.3):
        template = draw.of("clause", CLAUSES)
        if article(clause):
            # A bare A or I is a label before "because" and "is" only, or before a mark.
            template = template if template.startswith((" because", ",", ";", " (", " –")) else ", since {R}"
        clause = sentence(clause + asked.fill(template, ""), draw.rng.choice([".", ".", ""]))
    elif not begins:
        clause = sentence(clause, draw.rng.choice([".", ".", ".", "!", ""]))
    elif clause.startswith("Answer:") and not block and draw.often(0.2):
        clause = sentence(clause)
    if not draw.often(0.4):
        return end(draw, before + clause)
    if draw.often(0.15) and asked.text:
        after = "\n\n" + in_turn(draw, asked, "following").rstrip()
    else:
        after = asked.fill(draw.of("following", FOLLOWING), "")
    if (block or alone or not clause.endswith((".", "!"))) and not after.startswith("\n"):
        after = "\n\n" + filled(after.lstrip(), {})
    reply = before + clause + after
    return reply if "choice following: cut off" in draw.used else end(draw, reply)


def nothing_stated(draw: Draw, asked: Options) -> str:
    """A reply that hedges or states nothing."""
    rng, label, other, listed = draw.rng, asked.label, asked.other(), asked.text != ""
    roll = rng.random()
    if roll < 0.05 and listed and not asked.trap:
        return end(draw, restated(draw, asked, "nothing").rstrip())
    before = asked.fill(draw.of("preceding", OPENINGS), "") if draw.often(0.4) else ""
    if roll < 0.12 and listed:
        return end(draw, joined(before, in_turn(draw, asked, "nothing")).rstrip())
    if roll < 0.15:
        return end(draw, before + labels_in_a_row(draw, asked, "nothing").rstrip())
    outside = "Z" if asked.style == "letters" else "48"
    if roll < 0.2 and listed and outside not in asked.texts:
        return end(draw, before + draw.of("nothing", OUTSIDE).replace("@", outside))
    articles = {name: ARTICLES[name] for name in ARTICLES if name.upper() in asked.texts}
    if articles and draw.often(0.3 if "i" in articles else 0.05):
        return end(draw, before + draw.of("article", articles))
    if roll < 0.5:
        value, second = asked.simple(label), asked.simple(other)
        if listed and not asked.trap and draw.often(0.4):
            form = draw.of("hedged", HEDGED)
            value, second = (form.replace("@", x).replace("#", asked.texts[x]) for x in (label, other))
        if draw.often(0.1):
            template = draw.of("hedge", BOXED_HEDGES)
            return end(draw, template.replace("{v}", label).replace("{w}", other))
        return end(draw, before + asked.fill(draw.of("hedge", HEDGES), value, second))
    if roll < 0.7 and len(asked.texts) > 3:
        template = draw.of("negation", NEGATIONS)
        return end(draw, before + asked.fill(template, asked.simple(label), asked.simple(other)))
    template = draw.of("nothing", NOTHINGS)
    cut_off = draw.used[-1] == "choice nothing: cut off"
    reply = before + asked.fill(template, asked.simple(label))
    return reply if cut_off else end(draw, reply)


def choice(draw: Draw) -> Case:
    """A reply to a question with options."""
    asked = options(draw)
    stated = draw.often(0.7)
    reply = something_stated(draw, asked) if stated else nothing_stated(draw, asked)
    return Case("choice", reply, asked.texts, asked.label if stated else None, tuple(draw.used))


# Votes

VOTES: Table = {
    "best": ["best: {V}", "Best: {V}", "BEST: {V}", "best = {V}"],
    "bold line": ["**best: {k}**", "**Best choice: {k}**"],
    "of so many": ["Of the {c} choices, the best is {V}", "The best of all {c} choices is {V}"],
    "best choice": ["Best choice: {V}", "best candidate: {V}", "Best option: {V}"],
    "bold word": ["**Best:** {V}", "**best**: {V}", "**Best choice:** {V}"],
    "full-width colon": ["best：{V}", "Ｂｅｓｔ：{V}"],
    "heading": ["### Best: {V}", "> best: {V}", "- Best: {V}"],
    "line above": ["Best:\n{V}", "## Best choice\n\n{V}"],
    "the best choice is": [
        "The best choice is {V}",
        "The best candidate is {V}",
        "So the best choice is {V}",
    ],
    "conclusion": ["Conclusion: the best choice is {V}", "In conclusion, the best candidate is {V}"],
    "the best is, colon": ["The best choice is: {V}", "The best one is {V}"],
    "is the best": [
        "Choice {k} is the best",
        "Candidate {k} is the best choice",
        "Candidate {k} is the best one",
    ],
    "tag": ["<best>{V}</best>", "<best> {V} </best>"],
    "not, but": [
        "The best choice isn't {w} but {V}",
        "The best choice cannot be {w}; it is {V}",
        "The best choice is not {w} but {V}",
        "The best choice is not {w}; it is {V}",
    ],
    "is best": ["Choice {k} is best", "Overall, candidate {k} is the best", "{k} is the best choice"],
    "other nouns": [
        "The best thought is {V}",
        "The best step is {V}",
        "Best thought: {V}",
        "The best is {V}",
    ],
    "after all": ["After comparing all of them, I find that the best choice is {V}"],
}
VOTE_CLAUSES: Table = {
    "since": [", since {R}", " because {R}", ", as {R}"],
    "next best": [
        ", followed by {w}",
        ", then {w}",
        " (the next best is {w})",
        " (second best: {w})",
        " (runner-up: {w})",
    ],
    "better than": [", which is better than choice {w}", ", ahead of {w}"],
    "not": [", not {w}", " and not {w}"],
    "while": [", while {R}", "; {R}"],
    "other numbers": [" (it takes {w} steps)", ", because it takes only {w} steps", " with a score of 0.9"],
}
VOTE_FOLLOWING: Table = {
    "reason line": ["\n\nReason: {R}.", "\nReason: {R}.", "\n\nExplanation: {R}. {R}."],
    "reason": [" {R}.", "\n{R}."],
    "second best": [
        "\n2nd best: {w}",
        "\nThe second-best choice is {w}.",
        "\nNext-best choice: {w}",
        "\nThird best: {w}",
        "\nSecond best: {w}",
        "\nsecond-best: {w}",
        "\nNext best: {w}",
    ],
    "runner-up": [
        "\nRunner up: {w}",
        "\nAlternative: {w}",
        "\nRunner-up: {w}",
        "\nThe runner-up is choice {w}.",
    ],
    "worst": [
        "\nThe least good choice is {w}.",
        "\nWeakest: {w}",
        "\nWorst: {w}",
        "\nThe worst choice is {w}.",
    ],
    "closing": ["\n\nI hope this helps!", "\nConfidence: high"],
    "best of something": [
        "\nAt best, choice {w} is half of the way.",
        "\nChoice {w} has the best title, but it leaves out the cost.",
        "\nChoice {w} is not the best.",
    ],
    "reason in other languages": [
        "\nBegründung: Vorschlag {w} ist zu vage.",
        "\nRaison : le choix {w} est trop vague.",
        "\n理由：选项 {w} 太模糊。",
    ],
    "other case": [
        "\nThe best choice could have been {w}.",
        "\nThe best choice might have been {w}.",
        "\nIn another case, the best choice would be {w}.",
    ],
}
VOTE_PRECEDING: Table = {
    "reason": ["{R}. ", "{R}. {R}.\n", "{R}, and {R}.\n\n"],
    "restated": ["best: {w}\nWait, choice {w} leaves out the cost.\n", "The best choice is {w}. Wait, no.\n"],
    "hedge": ["The best choice is {w} or {k}. Let me look again.\n"],
    "second best": ["Second best: {w}\n", "Worst: {w}\n"],
    "question": ["Is choice {w} the best? That would not fit.\n"],
    "negation": [
        "The best choice cannot be {w}.\n",
        "The best choice isn't {w}.\n",
        "The best choice is not {w}.\n",
    ],
    "announcement": [
        "To find the best choice, we compare them. {R}.\n",
        "best: we first need to compare the choices.\n",
    ],
    "scores": ["Choice {w} gets 0.4 and choice {k} gets 0.9.\n"],
    "not the best": ["Choice {w} is not the best.\n", "Choice {w} is good, but not the best.\n"],
    "best of something": ["Choice {w} has the best title, but it leaves out the cost.\n"],
    "in turn": ["1. It is vague.\n2. It is clear.\n\n", "Choice 1: it is short.\nChoice 2: it is clear.\n"],
    "other case": ["The best choice would be {w} if it did not leave out the cost.\n"],
    "others say": ["Many would say that the best choice is {w}, but that is too quick.\n"],
    "ranking": ["From worst to best: {w}, {k}\n", "Ranking (best first): {k}, {w}\n"],
    "at best": ["At best, choice {w} is half of the way.\n"],
}
CANDIDATE: Table = {
    "candidate": [
        "**choice @**",
        "choice **@**",
        "(choice @)",
        "“choice @”",
        "choice @",
        "candidate @",
        "Choice @",
        "#@",
        "option (@)",
        "number @",
    ]
}
NO_VOTES: Table = {
    "or": [
        "best: {w} or {k}",
        "The best choice is {w} or {k}.",
        "best: either {w} or {k}",
        "best: ({w}) or ({k})",
    ],
    "and": [
        "best: {w} & {k}",
        "best: {w} as well as {k}",
        "best: {w} and {k}",
        "The best choices are {w} and {k}.",
        "best: both {w} and {k}",
    ],
    "list": ["best: {w}, {k}"],
    "tie": ["Choices {w} and {k} are equally good.", "best: {w} and {k} are tied"],
    "not": [
        "The best choice isn't {w}.",
        "The best choice cannot be {w}.",
        "The best choice is certainly not {w}.",
        "The best choice is not {w}.",
        "best: not {w}",
    ],
    "announcement": [
        "best: we first need to compare the choices.",
        "To find the best choice, we compare them.",
    ],
    "cut off": ["The best choice is", "best:", "{R}. {R}, so the best"],
    "reasons": ["{R}.", "{R}. {R}."],
    "no such candidate": ["best: {n}", "The best choice is {n}."],
    "second best alone": [
        "2nd best: {w}",
        "The second-best choice is {w}.",
        "The next best choice is {w}.",
        "Second best: {w}",
        "The runner-up is {w}.",
    ],
    "none": ["best: none of them", "The best choice cannot be named."],
    "fraction": ["best: {w}.5"],
    "question": ["Is choice {w} the best?", "Which one is the best, {w} or {k}?"],
    "depends": [
        "If the cost counts, the best choice is {w}; otherwise it is {k}.",
        "best: {w} or {k}, it depends",
    ],
    "not the best": ["Choice {w} is not the best."],
    "best of something": ["Choice {w} has the best title, but it leaves out the cost."],
    "placeholder": ["best: ?", "best: ___", "best: [number]"],
    "not either": ["The best choice is neither {w} nor {k}.", "best: neither {w} nor {k}"],
    "could be": ["The best choice could be {w} or {k}.", "The best choice may be {w} or {k}."],
}


def vote(draw: Draw) -> Case:
    """A reply that votes for one of some numbered candidates."""
    rng = draw.rng
    number = rng.randint(3, 12) if draw.often(0.8) else 2
    best = rng.randint(1, number)
    other = rng.choice([i for i in range(1, number + 1) if i != best])
    draw.note("candidates", "more than 9" if number > 9 else "up to 9")

    def fill(template: str, value: str = "") -> str:
        def reason() -> str:
            shown = rng.choice(["choice @", "candidate @", "option @", "choice (@)", "number @"])
            return f"{shown.replace('@', str(other))} {rng.choice(PREDICATES)}"

        slots = {"V": value, "k": str(best), "w": str(other), "c": str(number)}
        for slot, text in slots.items():
            template = template.replace(f"{{{slot}}}", text)
        return filled(template.replace("{n}", str(number + 25)), {"R": reason})

    if draw.often(0.3):
        # Of two candidates, one that is excluded leaves the other.
        table = (
            NO_VOTES
            if number > 2
            else {name: NO_VOTES[name] for name in NO_VOTES if not name.startswith("not")}
        )
        reply = fill(draw.of("nothing", table))
        if "nothing: cut off" not in draw.used[-1]:
            reply = end(draw, reply)
        return Case("vote", reply, number, None, tuple(draw.used))
    value = decorated(draw, str(best))
    if draw.often(0.15):
        value = draw.of("decoration", CANDIDATE).replace("@", str(best))
    before = "".join(
        fill(draw.of("preceding", VOTE_PRECEDING)) for _ in range(rng.choices([0, 1, 2], [5, 4, 1])[0])
    )
    template = draw.of("statement", VOTES)
    clause = fill(template, value)
    closed = "\n" in template or template.startswith("<") or "not {w}" in template
    if not closed and draw.often(0.35):
        clause += fill(draw.of("clause", VOTE_CLAUSES))
    if not closed and ": {V}" not in template and "= {V}" not in template:
        clause = sentence(clause, rng.choice([".", ".", ""]))
    if before and not before.endswith("\n"):
        before = (
            before.rstrip() + rng.choice([" ", "\n", "\n\n"])
            if template[0] in "TCIOA"
            else before.rstrip() + "\n"
        )
    after = fill(draw.of("following", VOTE_FOLLOWING)) if draw.often(0.4) else ""
    if after.startswith(" ") and not clause.endswith("."):
        after = "\n" + after.lstrip()
    return Case("vote", end(draw, before + clause + after), number, best, tuple(draw.used))


# Scores

SCORES: Table = {
    "bold line": ["**Score: {v}**", "**score: {v}**"],
    "scale in the label": [
        "Score (0 to 1): {V}",
        "Score (from 0 to 1): {V}",
        "Score on a scale of 0 to 1: {V}",
    ],
    "scale before": ["On a scale from 0 to 1, the score is {V}"],
    "a score of": ["I give it a score of {V}", "It gets a score of {V}", "It deserves a score of {V}"],
    "score": ["score: {V}", "Score: {V}", "SCORE: {V}", "score = {V}", "score:{V}"],
    "bold word": ["**Score:** {V}", "**score**: {V}"],
    "full-width colon": ["score：{V}", "Ｓｃｏｒｅ：{V}"],
    "heading": ["### Score: {V}", "- Score: {V}", "> score: {V}"],
    "line above": ["Score:\n{V}", "## Score\n\n{V}"],
    "the score is": ["The score is {V}", "So the score is {V}", "My score is {V}", "The score is: {V}"],
    "final score": ["Final score: {V}", "Overall score: {V}", "The final score is {V}"],
    "tag": ["<score>{V}</score>", "<score> {V} </score>", "<score>\n{V}\n</score>"],
    "json": ['{"score": {v}}', '```json\n{"score": {v}}\n```', '{"score": "{v}"}'],
    "not, but": ["The score is not {w} but {V}"],
    "alone": ["{V}"],
}
SCORE_CLAUSES: Table = {
    "because": [" because the second step loses {w} of it", ", since the first half is worth {w}"],
    "earlier": [" (the step before had {w})", ", up from {w}"],
    "scale": [
        " (0 is worst, 1 is best)",
        " (1 is best)",
        " (on a scale of 0 to 1)",
        " on a scale from 0 to 1",
    ],
    "confidence": [" (confidence 0.9)", ", confidence: {w}"],
}
SCORE_FOLLOWING: Table = {
    "reason": ["\nReason: the second step loses {w} of the mass.", "\n\nThe step before had {w}."],
    "confidence": ["\nConfidence: high"],
    "closing": ["\n\nI hope this helps!"],
    "past": ["\nThe score was {w} before this step.", "\nPrevious score: {w}"],
    "reason in other languages": [
        "\nBegründung: Schritt 2 verliert {w} davon.",
        "\nRaison : l'étape 2 en perd {w}.",
        "\n理由：第 2 步少了 {w}。",
    ],
    "other case": ["\nWith one more step, the score would be {w}."],
}
SCORE_PRECEDING: Table = {
    "reason": [
        "The chance of an error is about {w}.\n",
        "The step before had {w}. ",
        "The first step is sound.\n",
    ],
    "restated": ["score: {w}\nWait, that overlooks the second step.\n", "The score is {w}. Wait, no.\n"],
    "criteria": ["Confidence: {w}\n", "Clarity: {w}\nDetail: {w}\n", "- Progress: {w}\n\n"],
    "announcement": ["score: we first look at the steps.\n", "To find the score, we look at each step.\n"],
    "hedge": ["The score is {w} or {v}. Let me look again.\n"],
    "past": [
        "The score was {w} before this step.\n",
        "Previous score: {w}\n",
        "Score of the step before: {w}\n",
    ],
    "steps": ["1. The first step is sound.\n2. The second step loses {w}.\n\n"],
    "scale": ["We score from 0 to 1.\n"],
}
NO_SCORES: Table = {
    "or": ["score: {w} or {v}", "The score is {w} or {v}.", "score: either {w} or {v}"],
    "range": ["score: between {a} and {b}", "score: {a} - {b}", "score: {a}–{b}", "score: {a} to {b}"],
    "in": ["score: 1 in 10", "score: 3 in 10", "The score is 2 in 10."],
    "middle dot": ["score: 0·{d}", "score: 0·{d}5"],
    "negative": ["score: -{v}", "score: −{v}"],
    "not": ["The score is not {w}.", "score: not {w}"],
    "announcement": ["score: we first look at the steps.", "To find the score, we look at each step."],
    "cut off": ["score:", "The score is", "The first step is sound, so the score"],
    "mention": ["The second step loses {w} of the mass.", "The step before had {w}, which was fair."],
    "words": ["score: high", "score: n/a", "score: unclear", "The score cannot be given."],
    "list": ["score: {w}, {v}", "score: {w} and {v}"],
    "outside": ["score: 1.{d}", "The score is 1.{d}5."],
    "depends": ["The score is {w} if the first step holds, and {v} otherwise."],
    "question": ["Is the score {w}?", "Is the score {w} or {v}?"],
    "placeholder": ["score: ?", "score: ___", "score: [number]"],
}


def written(draw: Draw, hundredths: int) -> str:
    """A score from 0 to 1 as a number, in one of several spellings."""
    roll = draw.rng.random()
    if hundredths % 10 == 0 and roll < 0.15:
        draw.note("number", "tenths")
        return f"{hundredths // 10}/10"
    if roll < 0.25:
        draw.note("number", "two digits")
        return f"{hundredths / 100:.2f}"
    if roll < 0.3:
        draw.note("number", "no zero")
        return str(hundredths / 100)[1:]
    draw.note("number", "decimal")
    return str(hundredths / 100)


def hundredth(draw: Draw) -> int:
    return draw.rng.choice([draw.rng.randint(1, 9) * 10, draw.rng.randint(2, 97)])


def score(draw: Draw) -> Case:
    """A reply that scores one thought from 0 to 1."""
    rng = draw.rng
    meant, other = hundredth(draw), hundredth(draw)
    while other == meant:
        other = hundredth(draw)

    def fill(template: str, value: str = "") -> str:
        low, high = sorted((meant / 100, other / 100))
        for slot, text in (
            ("a", low),
            ("b", high),
            ("w", other / 100),
            ("v", meant / 100),
            ("d", rng.randint(1, 9)),
        ):
            template = template.replace(f"{{{slot}}}", str(text))
        return template.replace("{V}", value)

    if draw.often(0.3):
        reply = fill(draw.of("nothing", NO_SCORES))
        reply = reply if "cut off" in draw.used[-1] else end(draw, reply)
        return Case("score", reply, None, None, tuple(draw.used))
    value = decorated(draw, written(draw, meant))
    template = draw.of("statement", SCORES)
    alone = template == "{V}"
    clause = fill(template, value)
    before = after = ""
    if not alone:
        before = "".join(
            fill(draw.of("preceding", SCORE_PRECEDING)) for _ in range(rng.choices([0, 1, 2], [5, 4, 1])[0])
        )
        if before.endswith(" ") and template[0] not in "TSM":
            before = before.rstrip() + "\n"
    closed = alone or "\n" in template or template[0] in "<{`" or "not {w}" in template
    if not closed and draw.often(0.3):
        clause = sentence(clause + fill(draw.of("clause", SCORE_CLAUSES)))
    elif not closed and " is {V}" in template:
        clause = clause + "."
    if not alone and draw.often(0.3):
        after = fill(draw.of("following", SCORE_FOLLOWING))
    return Case("score", end(draw, before + clause + after), None, meant / 100, tuple(draw.used))


# Joint scores

NAMES: Table = {
    name: names.split("|")
    for name, names in {
        "greek": "alpha|beta|gamma|delta|epsilon|zeta",
        "steps": "Multiply both sides by two|Substitute y into the first equation|Draw the diagram|"
        "Guess and check|Factor the polynomial|Use induction",
        "approaches": "Graph search|Dynamic programming|Greedy heuristic|Linear relaxation|Random restarts",
        "de": "Fläche berechnen|Höhe messen|Winkel schätzen|Größe prüfen",
        "fr": "L’été à Paris|Une forêt|Le château|La fenêtre",
        "ru": "Построить график|Решить систему|Угадать корень|Проверить ответ",
        "ar": "رسم الشكل|حل المعادلة|تخمين الجواب|جمع الأطراف",
        "hi": "चित्र बनाओ|समीकरण हल करो|उत्तर जाँचो",
        "zh": "画出图形|解方程|检验答案|分类讨论",
        "ja": "図を描く|式を解く|答えを確かめる",
        "ko": "그림을 그린다|방정식을 푼다|답을 확인한다",
    }.items()
}
NAME_KEYS = [
    "candidate",
    "name",
    "text",
    "thought",
    "option",
    "title",
    "approach",
    "idea",
    "proposal",
    "step",
    "which",
    "x",
]
NUMBER_KEYS = ["id", "candidate_id", "candidate", "number", "index", "thought", "no", "option"]
JOINT_FORMS = [
    *("array", "objects with names", "objects with numbers", "names as keys", "lines"),
    *("names as keys of objects", "numbers as keys", "object a line", "null in an array"),
    *("one missing", "null score", "one stranger", "one is hedged"),
]
EXTRAS = ["rank", "reason", "mention", "comment", "other number", "number that agrees"]
NO_JOINT_SCORES = ["ranks", "strangers", "length", "cut off", "words"]
CASES: Mapping[str, Callable[[str], str]] = {
    "lower case": str.lower,
    "upper case": str.upper,
    "decomposed": lambda text: unicodedata.normalize("NFD", text),
}
RANK_KEYS = ["rank", "order", "place", "position", "priority"]
SCORE_KEYS = ["score", "score", "score", "value", "rating"]
NAME_FORMS: Table = {
    "as it is": ["@"],
    "bold": ["**@**", "*@*", "`@`"],
    "quotes": ['"@"', "“@”", "«@»", "「@」"],
    "number": ["{k}. @", "Candidate {k}: @", "{k}) @"],
    "letter": ["{L}. @", "({L}) @", "{L}: @"],
    "prefix": ["Approach: @", "Candidate: @"],
    "remark": ["@ (fast)", "@ (as above)"],
    "stop": ["@.", "@:"],
    "spaces": [" @ "],
    "lower case": ["@"],
    "upper case": ["@"],
    "decomposed": ["@"],
}
NUMBER_FORMS: Table = {
    "number": ["{k}"],
    "word and number": [
        "Candidate {k}",
        "candidate {k}",
        "Option {k}",
        "Thought {k}",
        "candidate_{k}",
        "candidate-{k}",
    ],
    "decorated number": ["#{k}", "({k})", "**{k}**", "{k}."],
    "letter": ["{L}", "({L})", "{L}.", "**{L}**"],
    "word and letter": ["Candidate {L}", "Option {L}", "option ({L})", "Thought {L}"],
}
LINE_FORMS: Table = {
    "name": ["@: {s}", "@ : {s}", "@ = {s}", "**@**: {s}", '"@": {s}'],
    "bullets": ["- @: {s}", "* **@**: {s}", "• @: {s}"],
    "numbered": ["{i}. @: {s}", "{i}) @: {s}"],
    "name and number": ["Candidate {k} (@): {s}", "Candidate {k}: @: {s}", "{k}. @: {s}"],
    "number": ["Candidate {k}: {s}", "Option {k}: {s}", "- Candidate {k}: {s}", "**Candidate {k}**: {s}"],
    "letter": ["Candidate {L}: {s}", "Option {L}: {s}", "({L}): {s}"],
    "word": ["@: score {s}", "@: score: {s}", "@ - score: {s}"],
    "reason": ["@: {s} (too late)", "@: {s}, since it leaves out the cost", "@: {s} – it goes too far"],
    "dash": ["@ – {s}", "@ — {s}", "- @ → {s}"],
}
NUMBERS_IN_LINES: Table = {
    "plain": ["@"],
    "full-width digits": ["full-width"],
    "markdown": ["**@**", "`@`"],
    "math": ["$@$", r"\(@\)"],
    "in brackets": ["(@)", "[@]"],
}
KEYED: Table = {"key": ["{{key}: @}"]}
PACKED: Table = {
    "fence": ["```json\n@\n```", "```\n@\n```", "Here are the scores:\n\n```json\n@\n```"],
    "sentence before": ["Here are the scores:\n@", "Scores: @", "I compared the candidates.\n\n@"],
    "sentence after": [
        "@\n\nI hope this helps!",
        "@\nThe others are weaker.",
        "@\n\nLet me know if you need more.",
    ],
    "brackets before": ["I compared [1] and [2].\n@", "The candidates [A, B] are close.\n\n@"],
}
JOINT_SCORES: Table = {
    "number": ["{n}"],
    "string": ['"{n}"'],
    "full-width string": ['"{f}"'],
    "math string": ['"${n}$"'],
    "brackets string": ['"({n})"', '"[{n}]"'],
    "fraction string": ['"{t}"'],
}


def joint(draw: Draw) -> Case:
    """A reply that scores several named candidates."""
    rng = draw.rng
    language = rng.choice(list(NAMES))
    draw.note("language", language)
    pool = list(NAMES[language])
    names = rng.sample(pool, rng.randint(2, len(pool)))
    scores = [hundredth(draw) / 100 for _ in names]
    while len(set(scores)) < len(scores):  # equal scores would hide a wrong order
        scores = [hundredth(draw) / 100 for _ in names]
    order = rng.sample(range(len(names)), len(names))
    means: dict[str, float | None] = dict(zip(names, scores, strict=True))
    form = rng.choices(
        ["array", "names", "numbers", "keys", "lines", *NO_JOINT_SCORES],
        [3, 10, 5, 3, 6, 1.5, 2, 1, 0.7, 0.7],
    )[0]
    if form in NO_JOINT_SCORES:
        return Case("joint", no_scores(draw, form, names, scores, order), names, None, tuple(draw.used))
    if form == "array":
        draw.note("form", "array")
        shown = in_json(draw, scores)
        if draw.often(0.15):
            draw.note("form", "null in an array")
            i = rng.randrange(len(names))
            shown[i], means[names[i]] = "null", None
        reply = packed(draw, "[" + ", ".join(shown) + "]", "scores")
    elif form == "names":
        reply = by_names(draw, names, scores, order, means)
    elif form == "numbers":
        reply = by_numbers(draw, scores, order)
    elif form == "keys":
        shown, keys = in_json(draw, scores), names
        roll = rng.random()
        if roll < 0.25:
            draw.note("form", "names as keys of objects")
            shown = [f'{{"reason": {quoted(rng.choice(PREDICATES))}, "score": {x}}}' for x in shown]
        elif roll < 0.5:
            draw.note("form", "numbers as keys")
            template, start = draw.of("name", NUMBER_FORMS), rng.randint(0, 1)
            keys = [
                template.replace("{k}", str(i + start)).replace("{L}", LABELS[i]) for i in range(len(names))
            ]
        else:
            draw.note("form", "names as keys")
        reply = packed(draw, "{" + ", ".join(f"{quoted(keys[i])}: {shown[i]}" for i in order) + "}", "scores")
    else:
        reply = in_lines(draw, names, scores, order, means)
    return Case("joint", reply, names, means, tuple(draw.used))


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def in_json(draw: Draw, scores: Sequence[float]) -> list[str]:
    """The scores as JSON values, all in one spelling."""
    template = draw.of("number", JOINT_SCORES)
    tenths = not any(round(s * 100) % 10 for s in scores)
    return [
        template.replace("{n}", str(s))
        .replace("{f}", full_width(str(s)))
        .replace("{t}", f"{round(s * 10)}/10" if tenths else f"{round(s * 100)}/100")
        for s in scores
    ]


def objects(draw: Draw, rows: list[list[tuple[str, str]]], between: str | None = None) -> str:
    """A JSON array of objects, given as pairs of a key and a value that is JSON already."""
    for row in rows:
        if draw.often(0.3):
            row.reverse()
    shown = ["{" + ", ".join(f'"{key}": {value}' for key, value in row) + "}" for row in rows]
    if between is None and draw.often(0.4):
        return "[\n  " + ",\n  ".join(shown) + "\n]"
    return "[" + (between or ", ").join(shown) + "]"


def packed(draw: Draw, data: str, key: str) -> str:
    """JSON in a fence, after a sentence, under a key, or as it is."""
    if draw.often(0.15):
        data = draw.of("pack", KEYED).replace("{key}", f'"{key}"').replace("@", data)
    if draw.often(0.1):
        draw.note("pack", "trailing comma")
        data = data[:-1].rstrip() + ",\n" + data[-1]
    if draw.often(0.5):
        data = draw.of("pack", PACKED).replace("@", data)
    return end(draw, data)


def by_names(
    draw: Draw, names: list[str], scores: list[float], order: list[int], means: dict[str, float | None]
) -> str:
    """Objects that name their candidates."""
    rng = draw.rng
    draw.note("form", "objects with names")
    key, score_key = rng.choice(NAME_KEYS), rng.choice(SCORE_KEYS)
    form = draw.of("name", NAME_FORMS)
    form_name = draw.used[-1].removeprefix("joint name: ")
    rank_key = rng.choice(RANK_KEYS)
    shown = in_json(draw, scores)
    kept = list(order)
    if draw.often(0.15) and len(names) > 2:
        draw.note("form", "one missing")
        means[names[kept.pop()]] = None
    unjudged = rng.choice(kept) if draw.often(0.1) else None
    extra = rng.choice(EXTRAS) if draw.often(0.35) else None
    # A number that fits beside a name that does not is ambiguous.
    strange = draw.often(0.1) and len(kept) == len(names) > 2 and extra != "number that agrees"
    stranger = rng.choice(kept) if strange else None
    if extra == "other number":
        score_key = "score"
    rows = []
    for place, i in enumerate(kept, 1):
        shape = CASES.get(form_name, str)
        name = form.replace("@", shape(names[i])).replace("{k}", str(i + 1)).replace("{L}", LABELS[i])
        value = shown[i]
        if i == unjudged:
            draw.note("form", "null score")
            value, means[names[i]] = rng.choice(["null", '"n/a"', '"0.4 or 0.6"']), None
        if i == stranger:
            draw.note("form", "one stranger")
            name, means[names[i]] = "Zed 8", None
        row = [(key, quoted(name)), (score_key, value)]
        if extra == "rank":
            row.insert(rng.randint(0, 2), (rank_key, str(place)))
        elif extra == "reason":
            row.insert(1, ("reason", quoted(rng.choice(PREDICATES))))
        elif extra == "mention":
            row.insert(1, ("reason", quoted(f"It is better than {names[kept[place % len(kept)]]}.")))
        elif extra == "other number":
            row.insert(
                rng.randint(1, 2), rng.choice([("length", "120"), ("steps", "3"), ("confidence", "0.99")])
            )
        elif extra == "number that agrees":
            row.insert(0, ("id", str(i + 1)))
        elif extra == "comment":
            row.insert(2, ("comment", quoted("It has 2 of 3 parts.")))
        rows.append(row)
    if extra:
        draw.note("extra", extra)
    if draw.often(0.06):
        draw.note("form", "object a line")
        return end(draw, objects(draw, rows, "\n")[1:-1].strip())
    return packed(draw, objects(draw, rows), rng.choice(["scores", "candidates", "evaluations"]))


def by_numbers(draw: Draw, scores: list[float], order: list[int]) -> str:
    """Objects that name their candidates by all numbers from 0 or from 1, or by letters."""
    rng = draw.rng
    draw.note("form", "objects with numbers")
    shown = in_json(draw, scores)
    key, score_key = rng.choice(NUMBER_KEYS), rng.choice(SCORE_KEYS)
    template = draw.of("name", NUMBER_FORMS)
    start = 1
    if "{k}" in template and draw.often(0.35):
        draw.note("name", "numbers from 0")
        start = 0
    rows = []
    bare = template == "{k}" and draw.often(0.7)
    for i in order:
        name = template.replace("{k}", str(i + start)).replace("{L}", LABELS[i])
        rows.append([(key, name if bare else quoted(name)), (score_key, shown[i])])
    return packed(draw, objects(draw, rows), "scores")


def in_lines(
    draw: Draw, names: list[str], scores: list[float], order: list[int], means: dict[str, float | None]
) -> str:
    """A line for each candidate."""
    rng = draw.rng
    draw.note("form", "lines")
    template = draw.of("line", LINE_FORMS)
    decoration = draw.of("number", NUMBERS_IN_LINES)
    lines = []
    hedged = (
        rng.choice(order)
        if draw.often(0.06) and "score" not in template and ", since" not in template
        else None
    )
    for place, i in enumerate(order, 1):
        number = (
            full_width(str(scores[i]))
            if decoration == "full-width"
            else decoration.replace("@", str(scores[i]))
        )
        if i == hedged:
            draw.note("form", "one is hedged")
            number, means[names[i]] = f"{scores[i]} or {scores[i - 1]}", None
        line = template.replace("{s}", number).replace("{k}", str(i + 1)).replace("{L}", LABELS[i])
        lines.append(line.replace("{i}", str(place)).replace("@", names[i]))
    before = rng.choice(["", "", "Scores:\n", "I compared the candidates.\n\n"])
    return end(draw, before + "\n".join(lines))


def no_scores(draw: Draw, form: str, names: list[str], scores: list[float], order: list[int]) -> str:
    """A reply that scores nobody in a way that shows who is meant."""
    rng = draw.rng
    draw.note("nothing", form)
    if form == "ranks":
        key = rng.choice(RANK_KEYS)
        rows = [[(key, str(i + 1)), ("score", str(scores[i]))] for i in order]
        return packed(draw, objects(draw, rows), "scores")
    if form == "strangers":
        key = rng.choice(NAME_KEYS)
        rows = [[(key, quoted(f"Zed {i}")), ("score", str(scores[i]))] for i in order]
        return packed(draw, objects(draw, rows), "scores")
    if form == "length":
        shown = scores[:-1] if draw.often(0.5) and len(scores) > 2 else [*scores, 0.55]
        return packed(draw, "[" + ", ".join(map(str, shown)) + "]", "scores")
    if form == "cut off":
        return rng.choice(["[{", '[{"name": "', "Here are the scores:", "Scores:\n", '{"scores": ['])
    return end(
        draw, rng.choice(["All candidates are fine.", "I cannot score them.", f"{names[0]} is neutral."])
    )


MAKERS: dict[str, Callable[[Draw], Case]] = {"choice": choice, "vote": vote, "joint": joint, "score": score}
SHARES = (("choice",) * 5) + ("vote", "joint", "joint", "score", "vote")


def cases(seed: int, count: int, kind: str | None = None) -> Iterator[Case]:
    """Make replies of all kinds, or of one. Equal arguments give equal replies.

    Args:
        seed: Start of the random numbers.
        count: Number of replies.
        kind: One of `KINDS`. `None` mixes them; half of the replies are choices then.
    """
    rng = random.Random(seed)

    def made() -> Iterator[Case]:
        for i in count_from():
            chosen = kind or SHARES[i % len(SHARES)]
            yield MAKERS[chosen](Draw(chosen, rng))

    return islice(made(), count)


DECORATIONS = (PLAIN, FULL_WIDTH, BOLD_CHARACTERS, BRACKETS, MARKDOWN, MATH, FRAMES, BOXES)
PARTS: Mapping[str, Sequence[Iterable[str]]] = {
    "choice labels": [LABEL_SETS],
    "choice language": [TEXTS, TEXTS_WITH_TRAPS],
    "choice decoration": [*DECORATIONS, OPTION, LOWER_CASE],
    "choice text": [WITH_TEXT, ALONE],
    "choice mention": [MENTIONS, MENTIONS_BY_LETTER, MENTIONS_BY_TEXT, MENTIONS_OF_WORDS],
    "choice statement": [STATEMENTS, TAGS, SUBJECTS, LABEL_ALONE],
    "choice line": [LINES, BOLD_LINES, A_BEFORE_THE_TEXT, WORD_LINES],
    "choice box": [BOXES, BOXES_WITH_WORD, BOXES_WITH_TEXT],
    "choice frame": [FRAMES],
    "choice correction": [CORRECTIONS, CONTRASTS],
    "choice clause": [CLAUSES],
    "choice preceding": [
        *(PRECEDING, EARLIER_LINES, OPENINGS, IN_TURN, OPTIONS_RESTATED, LABELS_LISTED, PARTIAL_LABEL)
    ],
    "choice following": [FOLLOWING, IN_TURN],
    "choice nothing": [NOTHINGS, IN_TURN, OPTIONS_RESTATED, OUTSIDE, LABELS_LISTED],
    "choice article": [ARTICLES],
    "choice hedge": [HEDGES, BOXED_HEDGES],
    "choice hedged": [HEDGED],
    "choice negation": [NEGATIONS],
    "choice end": [ENDS],
    "choice around": [AROUND, ["carriage returns"]],
    "vote candidates": [["up to 9", "more than 9"]],
    "vote decoration": [*DECORATIONS, CANDIDATE],
    "vote statement": [VOTES],
    "vote clause": [VOTE_CLAUSES],
    "vote preceding": [VOTE_PRECEDING],
    "vote following": [VOTE_FOLLOWING],
    "vote nothing": [NO_VOTES],
    "vote end": [ENDS],
    "vote around": [AROUND, ["carriage returns"]],
    "joint language": [NAMES],
    "joint form": [JOINT_FORMS],
    "joint name": [NAME_FORMS, NUMBER_FORMS, ["numbers from 0"]],
    "joint line": [LINE_FORMS],
    "joint number": [JOINT_SCORES, NUMBERS_IN_LINES],
    "joint extra": [EXTRAS],
    "joint pack": [KEYED, PACKED, ["trailing comma"]],
    "joint nothing": [NO_JOINT_SCORES],
    "joint end": [ENDS],
    "joint around": [AROUND, ["carriage returns"]],
    "score number": [["tenths", "two digits", "no zero", "decimal"]],
    "score decoration": [*DECORATIONS],
    "score statement": [SCORES],
    "score clause": [SCORE_CLAUSES],
    "score preceding": [SCORE_PRECEDING],
    "score following": [SCORE_FOLLOWING],
    "score nothing": [NO_SCORES],
    "score end": [ENDS],
    "score around": [AROUND, ["carriage returns"]],
}
PRODUCTIONS = frozenset(
    f"{part}: {name}" for part, tables in PARTS.items() for table in tables for name in table
)
"""All productions, as `Case.productions` names them."""


def main(arguments: Sequence[str]) -> None:
    """Print replies: seed, number and kind are optional."""
    seed, count, kind = [*arguments, *["0", "40", ""][len(arguments) :]]
    for case in cases(int(seed), int(count), kind or None):
        print(
            f"{case.kind} {case.setting!r}\n{case.reply}\n  => {case.expected!r}",
            list(case.productions),
            "\n",
        )


if __name__ == "__main__":
    main(sys.argv[1:])
