"""The Game of 24: combine four numbers with + - * / until 24 is left (Yao et al. 2023, section 4.1).

The domain does the arithmetic, and the model chooses the steps. A step is valid if it combines two numbers
that are left and does not state a wrong result. It is stored in one canonical form, `4 * 5 = 20 (left: 6 10
20)`, without other text of the model. Only `solvable` tells whether 24 can still be reached. A search does
not use it, but relies on its evaluator.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import combinations_with_replacement
from math import log2
from typing import Any, ClassVar, NamedTuple

from tot_lab.core.arithmetic import (
    OPERATORS,
    TARGET,
    Term,
    equation,
    join_terms,
    joined,
    number,
    plain,
    value_of,
    win_share,
)
from tot_lab.core.parameters import with_example
from tot_lab.core.reading.answers import final_answer
from tot_lab.core.reading.decoration import undecorated
from tot_lab.core.reading.mathematics import boxed_answer
from tot_lab.core.task import Path, Task
from tot_lab.domains.states import StateDomain, picks_schema, read_picks

_RULES = (
    "Game of 24: join numbers with + - * / until only 24 is left. "
    "Every number must be used, and each of them only once."
)
_LIKE = (
    "in the form of this example (it has other numbers; write fractions like 10/3):\n12 / 3 = 4 (left: 2 4 7)"
)

_EXPRESSION = (
    f"Write one expression that equals {TARGET}, using each of the numbers exactly once, with + - * / and "
    "parentheses."
)

_N = r"\d{1,9}(?:\.\d{1,9})?"
_S = r"[ \t]{0,4}"
_WHOLE = rf"\({_S}(-?{_S}{_N}(?:{_S}/{_S}{_N})?){_S}\)"
_STEP = re.compile(
    rf"(?<!\d)(?<!\d\.)(?:{_WHOLE}|(-?{_N}/{_N}|-?{_N}|-?{_N}{_S}/{_S}{_N}))"
    rf"{_S}([-+*/]){_S}"
    rf"(?:{_WHOLE}|(-?{_N}/{_N}|-?{_N}))"
    rf"[ \t*_`]{{0,6}}(?:=>?|->|→)[ \t*_`(]{{0,6}}(-?{_S}{_N}(?:{_S}/{_S}{_N})?)(?!\d|\.\d)",
    re.ASCII,
)
_MATH = re.compile(r"\\[()\[\]]|\$|&|\\(?:begin|end)\{\w{1,20}\*?\}")
_EQUALS = re.compile(r"[=＝]+|→|,?\s(?:which )?(?:equals|is|gives|makes)\s")
_AROUND = " \t\r\n*`$."
_LEAD = re.compile(
    r"\W*+(?:[a-z]++ ){0,3}?(?:answer|solution|expression|equation)(?: is)?[\s:*]++", re.IGNORECASE
)
_LONGEST_LINE = 1_000  # maximum characters of a line that is read as an answer
_MOST_LINES = 1_000


class Hand(NamedTuple):
    """Four numbers that can make 24."""

    numbers: tuple[int, int, int, int]

    difficulty: float
    """Negative binary logarithm of the share of random play-outs that reach 24.

    `arithmetic.win_share` computes the share.
    """


class Game24(StateDomain):
    """The Game of 24. `game24` makes its tasks. The question of a task is the hand.

    A path is complete when only 24 is left. A path that ends with another number is a dead end: it is not
    complete and has no next step.
    """

    kind = "game24"
    player = "sim/game24"
    verifies_paths = True
    value_labels: ClassVar[dict[str, float]] = {"sure": 20.0, "likely": 1.0, "impossible": 0.001}
    most_promising = f"the most promising way to {TARGET}"
    worst = f"{TARGET} is out of reach after it"
    surest = "it is certain to be reached"

    structured: bool = False
    """If `True`, the model chooses `{"a", "op", "b"}` from the numbers left, under a JSON schema, and the
    domain computes the result. If `False`, the model writes steps as text."""

    # Prompts.

    @classmethod
    def task_factory(cls) -> Callable[..., Task]:
        return game24

    @classmethod
    def example_tasks(cls) -> Callable[..., list[Task]]:
        return game24_tasks

    def sample_prompt(self, task: Task, path: Path) -> str:
        if self.structured:
            ask = "Choose one next step that keeps 24 within reach. "
            ask += self._picks('{"a": "12", "op": "/", "b": "3"}')
        else:
            ask = (
                "Write one next step that keeps 24 within reach: join two of the numbers left and list "
                f"what is left then. Write that one line and nothing else, {_LIKE}"
            )
        return self._ask_step(task, path, ask)

    def propose_prompt(self, task: Task, path: Path, count: int) -> str:
        ask = f"Propose up to {count} different next steps, the most promising first"
        if self.structured:
            ask += ". " + self._picks('{"steps": [{"a": "12", "op": "/", "b": "3"}]}')
        else:
            ask += (
                ": each joins two of the numbers left and lists what is left then. Write one line a step "
                f"and nothing else, {_LIKE}"
            )
        return self._ask_step(task, path, ask)

    def value_prompt(self, task: Task, path: Path) -> str:
        terms = _walk(task, path)
        claimed = _stated_answer(path)
        if claimed is None and terms is not None and len(terms) == 1:
            claimed = terms[0].expression
        if claimed is not None:
            ask = (
                "The candidate is the last step. Check it and the steps before it. Is every result computed "
                "correctly, is each of the four numbers used once and no other, and is the end result "
                f"{TARGET}? Give your reasons in a line or two. The last line is one word alone: sure if all "
                "of it is right, impossible if anything is wrong."
            )
            return self._about_last(task, path, ask, f"Together the steps say: {claimed}")
        return self._about_last(
            task,
            path,
            f"Judge whether the numbers left after the candidate can still make {TARGET}. Try a few ways of "
            "joining them, in brief. The last line is one word alone: sure if you found a way, likely if you "
            "found none but their sizes suit, impossible if there is none.",
        )

    def judge_prompt(self, task: Task, path: Path) -> str:
        return self._about_last(
            task,
            path,
            f"Is the candidate computed correctly, and can {TARGET} still be made of the numbers left after "
            "it? Reply with one word, yes or no.",
        )

    def answer_prompt(self, task: Task, reasoning: bool) -> str:
        if reasoning:
            ask = "Think step by step: join two numbers at a time. End with the line\nAnswer: <expression>"
        else:
            ask = "Reply with this line and nothing else:\nAnswer: <expression>"
        return f"{self._problem(task)}\n\n{_EXPRESSION} {ask}"

    def task_prompt(self, task: Task, reasoning: bool) -> str:
        return f"{self._problem(task)}\n\n{_EXPRESSION} A solution is the expression alone."

    def response_format(self, purpose: str, task: Task, path: Path) -> dict[str, Any] | None:
        if not self.structured or purpose not in ("sample", "propose"):
            return None
        terms = _walk(task, path)
        if terms is None or len(terms) < 2:
            return None
        left = list(dict.fromkeys(str(term.value) for term in terms))
        operand = {"type": "string", "enum": left}
        step = {"a": operand, "op": {"type": "string", "enum": list(OPERATORS)}, "b": operand}
        return picks_schema(step, "" if purpose == "sample" else "steps")

    def _problem(self, task: Task) -> str:
        return f"{_RULES}\n\nNumbers: {self.statement(task)}"

    def _progress(self, task: Task, path: Path) -> str:
        return f"Steps so far:\n{self.steps(path)}\n{self._left_line(task, path)}"

    @staticmethod
    def _left_line(task: Task, path: Path) -> str:
        terms = _walk(task, path)
        left = "unclear from the steps" if terms is None else _format_numbers([term.value for term in terms])
        return f"Numbers left: {left}"

    def _about_last(self, task: Task, path: Path, ask: str, claim: str = "") -> str:
        """Return a prompt that asks `ask` about the last step.

        The text before the last step is the same for all siblings.
        """
        lines = [
            "Candidate for the next step:",
            *path[-1:],
            self._left_line(task, path),
            *filter(None, [claim]),
        ]
        return f"{self._position(task, path[:-1])}\n\n{ask}\n\n" + "\n".join(lines)

    def _ask_step(self, task: Task, path: Path, ask: str) -> str:
        terms = _walk(task, path)
        if terms is not None and len(terms) == 1:
            ask = "Nothing is left to join. Reply with the word none."
        return f"{self._position(task, path)}\n\n{ask}"

    @staticmethod
    def _picks(example: str) -> str:
        return (
            "A step joins two of the numbers left, a and b, by op, one of + - * /; its result is computed "
            f"for you. Reply in JSON like this example (it has other numbers): {example}"
        )

    # Reading.

    def read_proposals(self, task: Task, path: Path, text: str) -> list[str]:
        """Return the valid steps in a reply, each in its canonical form.

        Bullets, numbering and all operator signs are accepted, and the `left:` list is recomputed. A step
        that uses a number that is not left, or states a wrong result (also 1.67 for 5/3), is dropped.
        """
        return list(self._valid_steps(task, path, text))

    def read_answer(self, task: Task, text: str) -> str | None:
        r"""Return the expression between the last `<answer>` tags, or else after the last `Answer:` that
        begins a line, or else in the last `\boxed{…}`, or else the last line that is an expression.

        The expression may be LaTeX. `= 24` after it and `24 =` before it are removed.
        """
        stated = _stated(text)
        if stated is not None:
            return stated
        lines = text.splitlines()[::-1]
        led = [line[lead.end() :] for line in lines if (lead := _LEAD.match(line))]
        return _first_expression([boxed_answer(text) or "", *led, *lines])

    def _valid_steps(self, task: Task, path: Path, text: str) -> Iterator[str]:
        terms = _walk(task, path)
        if terms is None or len(terms) < 2:
            return
        left = [term.value for term in terms]
        for a, op, b in _possible_moves(text, left):
            value = joined(a, op, b)
            if value is not None:
                yield step_line(a, op, b, value, _remove_both(left, a, b))

    # Rules.

    def complete(self, task: Task, path: Path) -> bool | None:
        """Return `True` if only 24 is left, or the last step is an answer.

        Returns `None` if a step is not a possible move.
        """
        if _stated_answer(path) is not None:
            return True
        terms = _walk(task, path)
        return None if terms is None else len(terms) == 1 and terms[0].value == TARGET

    def state(self, task: Task, path: Path) -> Hashable | None:
        """Return the numbers left, in ascending order."""
        terms = _walk(task, path)
        return None if terms is None else tuple(sorted(term.value for term in terms))

    def answer(self, task: Task, path: Path) -> str | None:
        """Return the expression that the last step states, or that the steps compose if they reach 24."""
        stated = _stated_answer(path)
        if stated is not None:
            return stated
        terms = _walk(task, path)
        done = terms is not None and len(terms) == 1 and terms[0].value == TARGET
        return terms[0].expression if terms is not None and done else None

    def solvable(self, task: Task, path: Path) -> bool | None:
        """Return whether the numbers left can make 24. `None` if a step is not a possible move.

        If the path states an answer, returns whether the answer is right.
        """
        stated = _stated_answer(path)
        if stated is not None:
            return self.grade(task, stated) == 1.0
        terms = _walk(task, path)
        return None if terms is None else win_share([term.value for term in terms]) > 0

    def verify(self, task: Task, answer: str) -> bool:
        """Return whether `answer` uses each number of the hand once and equals 24."""
        return self.grade(task, answer) == 1.0

    def grade(self, task: Task, answer: str) -> float:
        """Return 1.0 if `answer`, with or without `= 24` or `24 =`, uses each number of the hand once and
        equals 24, else 0.0.

        No reference is needed.
        """
        expression, result = equation(plain(answer).strip(_AROUND))
        read = value_of(expression)
        if read is None or (result is not None and number(result.strip()) != TARGET):
            return 0.0
        value, used = read
        return float(value == TARGET and sorted(used) == sorted(_hand(task.question)))


@with_example('tl.game24("4 5 6 10")')
def game24(numbers: str | Sequence[int], *, structured: bool = False) -> Task:
    """Make the task of one hand: four integers from 1 to 13, as `"4 5 6 10"` or `[4, 5, 6, 10]`.

    A hand that cannot make 24 is allowed.
    """
    shown = " ".join(map(str, [numbers] if isinstance(numbers, str | int) else numbers))
    hand = " ".join(str(value) for value in _hand(shown.replace(",", " ")))
    return Task(domain=Game24(structured=structured), question=hand, id=hand)


def game24_tasks(count: int, *, structured: bool = False) -> list[Task]:
    """Make `count` tasks of the 1,362 solvable hands, evenly spaced from the easiest to the hardest."""
    known = _hands()
    if count not in range(1, len(known) + 1):
        raise ValueError(
            f"count must be from 1 to {len(known)}, the number of solvable hands: got {count!r}."
        )
    last = max(count - 1, 1)
    picked = [known[k * (len(known) - 1) // last] for k in range(count)]
    return [game24(hand.numbers, structured=structured) for hand in picked]


def hands() -> list[Hand]:
    """Return all 1,362 hands of numbers from 1 to 13 that can make 24, from the easiest to the hardest."""
    return list(_hands())


def step_line(a: Fraction, op: str, b: Fraction, value: Fraction, rest: Sequence[Fraction]) -> str:
    """Return a step in its canonical form. `rest` contains the numbers that the step does not use."""
    divisor = f"({b})" if op == "/" and b.denominator > 1 else str(b)
    return f"{a} {op} {divisor} = {value} (left: {_format_numbers([*rest, value])})"


@lru_cache(maxsize=1)
def _hands() -> tuple[Hand, ...]:
    found = []
    for a, b, c, d in combinations_with_replacement(range(1, 14), 4):
        share = win_share((Fraction(a), Fraction(b), Fraction(c), Fraction(d)))
        if share > 0:
            found.append(Hand((a, b, c, d), -log2(share)))
    return tuple(sorted(found, key=lambda hand: (hand.difficulty, hand.numbers)))


@lru_cache(maxsize=4096)
def _hand(question: str) -> tuple[Fraction, ...]:
    words = question.split()
    if len(words) == 4 and all(re.fullmatch(r"[0-9]{1,2}", word) and 1 <= int(word) <= 13 for word in words):
        return tuple(Fraction(int(word)) for word in words)
    raise ValueError(f"A hand must be four integers from 1 to 13, such as '4 5 6 10': got {question[:80]!r}.")


def _format_numbers(values: Sequence[Fraction]) -> str:
    return " ".join(str(value) for value in sorted(values))


def _remove_both(left: Sequence[Fraction], a: Fraction, b: Fraction) -> list[Fraction]:
    rest = list(left)
    rest.remove(a)
    rest.remove(b)
    return rest


def _has_both(left: Sequence[Fraction], a: Fraction, b: Fraction) -> bool:
    return a in left and b in left and (a != b or left.count(a) > 1)


def _possible_moves(text: str, left: Sequence[Fraction]) -> Iterator[tuple[Fraction, str, Fraction]]:
    """Yield the moves in `text` that are possible with the numbers in `left`, in the order of the text."""
    if found := [move for pick in read_picks(text, "op") if (move := _json_move(pick))]:
        yield from (move for move in found if _has_both(left, move[0], move[2]))
        return
    for line in plain(text).splitlines():
        for match in _STEP.finditer(line):
            move = _text_move(match, left)
            if move is not None:
                yield move


def _json_move(pick: Mapping[str, Any]) -> tuple[Fraction, str, Fraction] | None:
    """Return the move in a JSON object {a, op, b}."""
    a, op, b = (plain(str(pick.get(key, "")))[:40].strip(" ()") for key in ("a", "op", "b"))
    op = "*" if op in ("x", "X") else op
    first, second = number(a), number(b)
    if first is None or second is None or op not in tuple(OPERATORS):
        return None
    return first, op, second


def _text_move(match: re.Match[str], left: Sequence[Fraction]) -> tuple[Fraction, str, Fraction] | None:
    """Return the move in a match of `_STEP`, if it is possible and its result is right."""
    a, op = number(match[1] or match[2]), match[3]
    b, stated = number(match[4] or match[5]), number(match[6])
    if a is None or b is None:
        return None
    for first in (a, -a) if a < 0 else (a,):  # "-4 * 5" may be a bullet and a step.
        if _has_both(left, first, b) and joined(first, op, b) == stated:
            return first, op, b
    return None


def _stated_answer(path: Path) -> str | None:
    """Return the expression that the last step states as the answer, or `None`."""
    return _stated(path[-1]) if path else None


def _stated(text: str) -> str | None:
    """Return the expression in `<answer>` tags or after `Answer:`. If the text there contains no expression,
    return that text. `None` if there are neither tags nor `Answer:`.
    """
    stated = final_answer(text)
    if stated is None:
        return None
    return _first_expression([boxed_answer(stated) or "", *stated.splitlines()]) or stated.strip(_AROUND)


def _first_expression(lines: list[str]) -> str | None:
    """Return the first result of `_expression` for `lines`, or `None`."""
    found = (_expression(line) for line in lines[:_MOST_LINES] if len(line) < _LONGEST_LINE)
    return next(filter(None, found), None)


def _expression(line: str) -> str | None:
    """Return the expression in a line: of the sides of an equation, the one with the most numbers. If a side
    is a number other than 24, return the whole line. `None` if no side has at least two numbers.
    """
    text = _MATH.sub("", undecorated(line, ends="."))
    sides = [side.strip(_AROUND) for side in _EQUALS.split(text, 9)]
    counts = [len(read[1]) if (read := value_of(side)) else 0 for side in sides]
    if max(counts) < 2:
        return None
    is_other = any(number(side) not in (None, TARGET) for side in sides)
    return text.strip(_AROUND) if is_other else sides[counts.index(max(counts))]


def _walk(task: Task, path: Path) -> tuple[Term, ...] | None:
    return terms_after(task.question, tuple(path))


@lru_cache(maxsize=4096)  # a search calls this about ten times for each path
def terms_after(question: str, path: tuple[str, ...]) -> tuple[Term, ...] | None:
    """Return the terms left of the hand `question` after the steps `path`, ignoring a last `Answer:` line.

    Returns `None` if a step is not a possible move.
    """
    terms = [Term(value, str(value)) for value in _hand(question)]
    for k, step in enumerate(path, 1):
        if k == len(path) and _stated(step) is not None:
            break
        move = next(_possible_moves(step, [term.value for term in terms]), None)
        value = None if move is None else joined(*move)
        if move is None or value is None:
            return None
        join_terms(terms, *move, value)
    return tuple(terms)
