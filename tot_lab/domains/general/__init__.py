"""Questions in natural language: the default prompts, and grading against a reference.

The prompt of the proposer contains the problem and the steps of the path. The prompt of the evaluator
contains the problem, the steps before the candidate, and the candidate. `grading` defines which answers are
right. Without `grading`, no answer is graded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Literal, cast

from pydantic import ValidationError, field_validator

from tot_lab.core.parameters import with_example
from tot_lab.core.parts import UserFunction, known_names
from tot_lab.core.reading.answers import answer_at_end, concluded_answer, last_lines, normalize, stated_answer
from tot_lab.core.reading.choices import stated_choice
from tot_lab.core.reading.mathematics import last_number
from tot_lab.core.reading.values import verdict
from tot_lab.core.task import Domain, Path, Task
from tot_lab.domains.general.graders import GRADERS, check_label, choices_of

__all__ = ["General", "Grading", "general", "task_of"]

Grading = Literal["number", "exact", "grid", "choice", "regex", "math", "python"] | UserFunction

_SCALE = (
    "1.0: it is correct and answers the problem finally; 0.7 to 0.9: strong; 0.4 to 0.6: uncertain; "
    "0 to 0.3: wrong, or it contradicts the problem."
)


ALONE = "A solution to it is the answer alone, without the way to it."
"""The sentence that replaces the request for a last line `Answer: …` in prompts that request JSON."""

_TO_WRITE = re.compile(
    r"\s*(?:please\s+)?(?:write(?!\s+(?:down\b|[-+]?[\d.,]+))|draft|compose|rewrite|rephrase|paraphrase)\s",
    re.IGNORECASE,
)


class General(Domain):
    r"""Any question with a short answer.

    The prompt for an answer asks for a last line `Answer: <your answer>`, and the text after `Answer:` is the
    answer. In a reply without such a line, the content of the last `\boxed{…}` is the answer. If the answer
    is a text, such as an essay or a program, use `tl.open_ended`, whose answer is the whole reply. A question
    that asks to write something (`Write …`, `Draft …`, `Rephrase …`) and is not graded gets the prompt of
    `tl.open_ended`.
    """

    kind = "general"

    grading: Grading | None = None
    r"""Method of comparing an answer with the task's reference.

    - `number`: The last number of the answer must equal the last number of the reference exactly. Commas, $
      and % are ignored, 3/4 is 0.75, 1 3/4 is 1.75, and `1e3` and `1 \times 10^3` are 1000. A comma is never
      a decimal point, and spaces do not join digits: `0,5` is the numbers 0 and 5. 50% is 50 and not 0.5.
    - `exact`: The texts must be equal, ignoring case, spacing, quotes, emphasis and closing punctuation.
    - `grid`: The last grid of whole numbers must have the same rows: a line for each row, or a list of lists.
    - `choice`: The reference is the label of a choice, such as `B`. The reply must state it: `B`, `(b) four`,
      `The answer is B`, with reasons or without. The last statement counts; `B or C` states nothing. With
      `task.data["choices"]`, a dict of texts by label, the text of the choice also counts.
    - `regex`: The reference is a pattern (Python's `re`) that must occur in the answer.
    - `math`: Two numbers must be equal, so 0.333 is not 1/3. If no decimal equals the reference, a decimal
      with six or more places may be off by less than one unit in the last place, such as 0.333334. Other
      expressions must have the same value, or be equal according to math-verify. They may be LaTeX, Unicode
      (`x²`, `½`, `√2`) or plain text (`x**2`, `sqrt(2)`), with or without math delimiters or `\boxed`. The
      order of a list or a set does not matter; its elements are separated by commas, "and" or "or". A unit is
      ignored if the reference or the answer has none; two units must be the same. 50% is right for both 50
      and 0.5. In an answer with words, math-verify chooses the expression. If math-verify cannot read an
      expression, it takes the number at the beginning. A comma before three digits, as in 1,234, separates
      thousands; other commas separate the elements of a list. A comma is a decimal point only if the other
      text is a number with a point: 1,22 is 1.22. `math` requires the extra `math`.
    - `python`: The reference is Python code, such as assertions, that must run after the code of the answer
      without an exception. The code is all Python code blocks of the answer, or else the whole answer. It
      continues `task.data["code_before"]`, if that exists. **It runs what the model wrote**, with the limits
      and the isolation of `tl.tools.Python`, for at most 5 s of CPU time. The tests run in the same process,
      so code that is written to deceive them, such as an object that equals everything, can pass.
    - A function `(answer, reference)` returns a bool or a number from 0 to 1.
    - `None`: Answers are not graded.

    `regex` and `math` compare in another process for at most 5 s of CPU time. A pattern that takes longer
    gives no grade, and a warning; an expression that takes longer is wrong. If 15 s of wall time pass first,
    because the machine is busy, neither gives a grade.
    """

    @field_validator("grading", mode="wrap")
    @classmethod
    def _is_grading(cls, given: Any, handler: Callable[[Any], Grading | None]) -> Grading | None:
        try:
            grading = handler(given)
        except ValidationError:
            known = f"{known_names(given, GRADERS)}, or a function (answer, reference)"
            raise ValueError(f"unknown grade {given!r}; {known}") from None
        if isinstance(grading, UserFunction):
            grading.expect_arguments("grade", ("answer", "reference"), "(answer, reference) -> bool or score")
        return grading

    # Prompts.

    @classmethod
    def task_factory(cls) -> Callable[..., Task] | None:
        return general if cls is General else None  # a derived domain has other settings

    def sample_prompt(self, task: Task, path: Path) -> str:
        return (
            f"{self._position(task, path)}\n\n"
            "What is the next step? Give exactly one, and keep it concise: a part of the problem to "
            "settle, a calculation, a decision, or a partial answer. At most one paragraph. Write only the "
            "step itself, with no number or heading before it."
        )

    def propose_prompt(self, task: Task, path: Path, count: int) -> str:
        return (
            f"{self._position(task, path)}\n\n"
            f"Suggest {count} different next steps; any one of them could be taken now. Each is concise: "
            "a part of the problem to settle, a calculation, a decision, or a partial answer. Reply with a "
            f"JSON list of {count} strings and nothing else."
        )

    def value_prompt(self, task: Task, path: Path) -> str:
        return (
            f"{self._position(task, path[:-1])}\n\n"
            f"How good is the candidate for the next step? Rate it from 0 to 1. {_SCALE}\n"
            "The first line of your reply is `score: ` and the number. A line with your reasons may follow."
            f"\n\n{_candidate(path)}"
        )

    def judge_prompt(self, task: Task, path: Path) -> str:
        return (
            f"{self._position(task, path[:-1])}\n\n"
            "Is the candidate for the next step correct, and does it lead towards the answer? Reply with one "
            f"word, yes or no.\n\n{_candidate(path)}"
        )

    def vote_prompt(self, task: Task, paths: Sequence[Path]) -> str:
        listed = "\n\n".join(
            f"Candidate {k}\nSteps before it:\n{self.steps(path[:-1])}\nThe candidate:\n{path[-1]}"
            for k, path in enumerate(paths, 1)
        )
        return (
            f"Problem:\n{self.statement(task)}\n\n"
            "Which candidate leads best to a correct answer? Compare them in brief, then end with a line "
            f"`best: N`, N being the candidate's number.\n\n{listed}"
        )

    def joint_prompt(self, task: Task, path: Path, candidates: Sequence[str]) -> str:
        return (
            f"{self._position(task, path)}\n\n"
            f"How good is each candidate for the next step? Rate each from 0 to 1. {_SCALE}\n"
            f"Reply with a JSON array of the {len(candidates)} numbers in the order of the candidates, and "
            f"nothing else.\n\nCandidates for the next step:\n{self.steps(candidates)}"
        )

    def answer_prompt(self, task: Task, reasoning: bool) -> str:
        if self._asks_to_write(task):
            return self._text_prompt(task, reasoning)
        how = "Think step by step, then end with" if reasoning else "Answer at once, without explanation, in"
        return f"Problem:\n{self.statement(task)}\n\n{how} one line of this form:\nAnswer: <your answer>"

    def task_prompt(self, task: Task, reasoning: bool) -> str:
        if type(self).answer_prompt is not General.answer_prompt or self._asks_to_write(task):
            return super().task_prompt(task, reasoning)
        return f"Problem:\n{self.statement(task)}\n\n{ALONE}"

    def _text_prompt(self, task: Task, reasoning: bool) -> str:
        """Return a prompt that asks for an answer that is the whole reply."""
        how = "Think it through first." if reasoning else "Answer at once."
        return f"Problem:\n{self.statement(task)}\n\n{how} The answer is the whole text of your reply."

    def _asks_to_write(self, task: Task) -> bool:
        """Whether the question asks for a text of any length, although this domain is for short answers."""
        return self.grading is None and task.reference is None and bool(_TO_WRITE.match(task.question))

    def part(self, task: Task, question: str, known: str) -> Task:
        whole = f"It is a part of this problem:\n{task.question}"
        context = "\n\n".join(filter(None, [whole, task.context, known]))
        return task.model_copy(update={"question": question, "context": context})

    def _position(self, task: Task, path: Path) -> str:
        return f"Problem:\n{self.statement(task)}\n\nSteps so far:\n{self.steps(path)}"

    # Reading and grading.

    def read_answer(self, task: Task, text: str) -> str | None:
        r"""Return the text after the last `Answer:` that begins a line, or else the content of the last
        `\boxed{…}`, or else the whole reply.

        Without grading, the line or the box must end the reply, as the prompt requests (one closing line may
        follow), so that a longer text with such a line inside is not truncated. With the grading `python`, a
        reply with a code block is returned whole. With the grading `choice`, the whole reply decides: if the
        line or the box does not state the choice that the reply states last, the label of that choice is
        returned, or the whole reply if it states none.
        """
        if self.grading == "python" and ("```" in text or "~~~" in text):
            return text.strip()  # a line such as `answer = 1` may be part of the code
        stated = stated_answer(text) if self.grading is not None else answer_at_end(text)
        answer = stated or text.strip() or None
        if self.grading == "choice" and answer is not None:
            choices = choices_of(task)
            label = stated_choice(text, choices)
            if stated_choice(answer, choices) != label:
                return label or text.strip()
        return answer

    def answer(self, task: Task, path: Path) -> str | None:
        return self.read_answer(task, path[-1]) if path else None

    def states_answer(self, task: Task, path: Path) -> bool | None:
        """Return whether the last line of the last step states an answer that `grading` can compare."""
        text = "\n".join(path[-2:])
        answer = concluded_answer(text)
        if self.grading == "choice":
            choices, lines = choices_of(task), last_lines(text)
            labels = {label.casefold() for label in choices}
            if lines and normalize(lines[-1]).strip("()[] .") in labels:
                return True
            return answer is not None and stated_choice("\n".join(lines), choices) is not None
        return answer is not None and (self.grading != "number" or last_number(answer) is not None)

    def same(self, task: Task, answer: str) -> Hashable:
        """Return a key that is equal for answers which `grading` cannot tell apart: with `number` their last
        number, with `exact` the text that it compares, with `grid` the rows, with `choice` the label. With
        any other grading but `math`, only case and spacing are ignored.

        With `math` it is the value of the expression, and its unit. 50% has another key than 50 and 0.5,
        although `grade` accepts it for both. If the extra `math` is not installed, or the text is no
        expression, the key is the value of a number or else the text.
        """
        key = GRADERS[self.grading].key(task, answer) if isinstance(self.grading, str) else None
        return super().same(task, answer) if key is None else key

    def grade(self, task: Task, answer: str) -> float | None:
        if self.grading is None or task.reference is None:
            return None
        if isinstance(self.grading, UserFunction):
            return verdict(self.grading(answer, task.reference), f"grade {self.grading.name!r}")
        return GRADERS[self.grading].grade(task, answer)

    def why_ungraded(self, task: Task) -> str:
        if (self.grading is None) == (task.reference is None) or type(self).grade is not General.grade:
            return ""
        if self.grading is None:
            return "pass grade= (number, exact, choice, math, …)"
        return "there is no answer to compare with"

    def expected(self, task: Task) -> Any:
        """Return the reference. Returns `None` if it is a pattern or code, which many answers satisfy."""
        return None if self.grading in ("regex", "python") else task.reference

    def is_bounded(self, task: Task) -> bool:
        compares = task.reference is not None and isinstance(self.grading, str)
        return not compares or GRADERS[str(self.grading)].is_bounded

    def answer_pattern(self, task: Task) -> str | None:
        return str(task.reference) if self._grades_by("regex", task) else None

    def runs_code(self, task: Task) -> bool:
        return self._grades_by("python", task)

    def _grades_by(self, grading: str, task: Task) -> bool:
        is_own = type(self).grade is General.grade
        return self.grading == grading and task.reference is not None and is_own


@with_example('tl.general("…", answer="…")')
def general(
    question: str,
    *,
    answer: Any = None,
    grade: Grading | Callable[..., Any] | None = None,
    context: str = "",
    system_prompt: str = "",
) -> Task:
    """Make a task from one question with a short answer. For longer answers use `tl.open_ended`.

    Args:
        question: The question.
        answer: The reference answer, if known.
        grade: How answers are compared with the reference (see `General.grading`).
        context: See `tl.Task`.
        system_prompt: See `tl.Task`.

    Raises:
        ValueError: If the question is empty, or `grade` cannot use `answer`.
    """
    domain = General(grading=cast("Grading", grade))
    return task_of(domain, question, answer, context=context, system_prompt=system_prompt)


def task_of(domain: General, question: str, reference: Any, **others: Any) -> Task:
    """Make a task after validating its question and its reference."""
    if not isinstance(question, str):
        raise TypeError(f"question must be a string: got {question!r}. Use tl.tasks for a list of questions.")
    if not question.strip():
        raise ValueError("question must not be empty.")
    if reference is not None and isinstance(domain.grading, str):
        grader = GRADERS[domain.grading]
        problem = grader.problem(str(reference))
        if problem is not None:
            shown = repr(str(reference)[:80])
            message = f"answer {grader.needs} for grade={domain.grading!r}: got {shown}. {problem}"
            raise ValueError(message.strip())
        if domain.grading == "choice" and "data" not in others:
            check_label(question, str(reference))
    return Task(domain=domain, question=question, reference=reference, **others)


def _candidate(path: Path) -> str:
    return f"Candidate for the next step:\n{path[-1]}"
