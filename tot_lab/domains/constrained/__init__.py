"""Tasks under hard constraints: short texts and small designs, graded by rules that a program checks.

A step is a complete draft of the answer, and the next step is a better draft. The rules are part of the
question. The grade is the share of rules that an answer satisfies. A search never receives information about
which rules are satisfied.
"""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from typing import Literal, TypeAlias

from tot_lab.core.reading.scores import read_score
from tot_lab.core.task import Path, Task
from tot_lab.domains.constrained.constraints import Rule, check_rules, read, rules_in, strip_answer
from tot_lab.domains.general import General

COUNT = 120
"""Number of tasks: 60 for writing and 60 for design."""

ConstrainedKind: TypeAlias = Literal["writing", "design"]

_KINDS: tuple[ConstrainedKind, ...] = ("writing", "design")
_ALONE = "Write the draft alone."
_HEADING = re.compile(r"[\s>*_#]{0,9}draft[ \t]+\d{1,3}[ \t*_]{0,6}:?[ \t*_]{0,6}", re.IGNORECASE)


class Constrained(General):
    """Texts and designs under rules. `constrained` makes its tasks.

    A path is a list of drafts, and the last draft is its answer. The value of a draft is the share of rules
    that the evaluator believes it satisfies.
    """

    kind = "constrained"
    player = "sim/constrained"

    grading: None = None
    """Always `None`, because answers are graded by the rules."""

    # Prompts.

    @classmethod
    def task_factory(cls) -> Callable[..., Task]:
        return constrained

    @classmethod
    def example_tasks(cls) -> Callable[..., list[Task]]:
        return constrained_tasks

    def steps(self, path: Path) -> str:
        return "\n".join(f"<draft>\n{draft}\n</draft>" for draft in path) or "(no drafts yet)"

    def sample_prompt(self, task: Task, path: Path) -> str:
        return f"{self._position(task, path)}\n\n{self._request(path, 'one draft')} {_ALONE}"

    def propose_prompt(self, task: Task, path: Path, count: int) -> str:
        return (
            f"{self._position(task, path)}\n\n{self._request(path, f'{count} different drafts')} Begin each "
            "with its number on a line of its own, as in `Draft 1:`, and write nothing else."
        )

    def value_prompt(self, task: Task, path: Path) -> str:
        return (
            f"{self._position(task, path[:-1])}\n\nGo through the rules one by one, in a few words each: "
            "does the candidate keep it? Then end with a line `score: K/N`, N being the number of rules and "
            f"K how many of them it keeps.\n\n{self._candidate(path)}"
        )

    def judge_prompt(self, task: Task, path: Path) -> str:
        asked = "Does the candidate keep every rule? Reply with one word, yes or no."
        return f"{self._position(task, path[:-1])}\n\n{asked}\n\n{self._candidate(path)}"

    def vote_prompt(self, task: Task, paths: Sequence[Path]) -> str:
        return (
            f"Problem:\n{self.statement(task)}\n\n"
            "Which candidate's last draft keeps the most rules? Compare them in brief, then end with a line "
            "`best: N`, N being the candidate's number.\n\n"
            f"{_candidates([self.steps(path) for path in paths])}"
        )

    def joint_prompt(self, task: Task, path: Path, candidates: Sequence[str]) -> str:
        return (
            f"{self._position(task, path)}\n\n"
            "What share of the rules does each candidate keep, from 0 to 1? Reply with a JSON array of the "
            f"{len(candidates)} scores in that order and nothing else.\n\n"
            f"{_candidates([self.steps([one]) for one in candidates])}"
        )

    def answer_prompt(self, task: Task, reasoning: bool) -> str:
        how = (
            "Think it through first, rule by rule. Then write the line `Answer:`, and below it the answer "
            "alone."
            if reasoning
            else "Answer at once: the answer is the whole text of your reply."
        )
        return f"Problem:\n{self.statement(task)}\n\n{how}"

    def _position(self, task: Task, path: Path) -> str:
        return f"Problem:\n{self.statement(task)}\n\nDrafts so far:\n{self.steps(path)}"

    def _candidate(self, path: Path) -> str:
        return f"Candidate\n{self.steps(path[-1:])}"

    @staticmethod
    def _request(path: Path, drafts: str) -> str:
        if not path:
            return f"Write {drafts} of the whole answer."
        return f"Hold the last draft against each rule. Write {drafts} of the whole answer that keep more."

    # Reading and grading.

    def read_sample(self, task: Task, path: Path, text: str) -> str | None:
        """Return the draft, without a heading, an `Answer:` line or a code fence."""
        drafts = self.read_proposals(task, path, text)
        return drafts[0] if drafts else None

    def read_proposals(self, task: Task, path: Path, text: str) -> list[str]:
        """Return the drafts in a reply, one per heading. A reply without headings is one draft."""
        parts: list[list[str]] = [[]]
        for line in text.splitlines():
            heading = _HEADING.match(line)
            if heading is not None:
                parts.append([])
            parts[-1].append(line[heading.end() :] if heading else line)
        drafts = [strip_answer("\n".join(lines)) for lines in parts[1:] or parts]
        return [draft for draft in drafts if draft]

    def read_value(self, text: str) -> float | None:
        """Return the score, from 0 to 1, on the last line that states one."""
        scores = map(read_score, reversed(text.splitlines()))
        return next((score for score in scores if score is not None), None)

    def read_answer(self, task: Task, text: str) -> str | None:
        """Return the text after the last line `Answer:`, or else the whole reply.

        If this text has code blocks, return the content of the last one.
        """
        return strip_answer(text) or None

    def solvable(self, task: Task, path: Path) -> bool | None:
        """Return `True` if the last draft satisfies all rules.

        Returns `None` otherwise, because a later draft may be better.
        """
        return True if path and self.grade(task, path[-1]) == 1.0 else None

    def same(self, task: Task, answer: str) -> Hashable:
        """Return a key of the answer. Equal designs have equal keys, whatever their format."""
        rules = rules_in(task.question)
        family = rules[0].family if rules else "writing"
        design = None if family == "writing" else read(family, answer)
        return (
            super().same(task, strip_answer(answer)) if design is None else json.dumps(design, sort_keys=True)
        )

    def verify(self, task: Task, answer: str) -> bool | None:
        """Return whether `answer` satisfies every rule of the task, or `None` if the question states none."""
        rules = rules_in(task.question)
        return all(check_rules(rules, answer)) if rules else None

    def expected(self, task: Task) -> None:
        """Return `None`: every answer that satisfies the rules is right."""

    def grade(self, task: Task, answer: str) -> float | None:
        """Return the share of rules that an answer satisfies, 0–1. Returns `None` without a reference."""
        rules = rules_in(task.question)
        return None if task.reference is None or not rules else sum(check_rules(rules, answer)) / len(rules)


def rules_kept(task: Task, answer: str) -> list[tuple[str, bool]]:
    """Check each rule of a task of `constrained`.

    Markdown, bullets and code fences in the answer are ignored. An unreadable answer satisfies no rule.

    Returns:
        The text of each rule, in the order of the task, and whether `answer` satisfies it.

    Raises:
        TypeError: If `task` is not a task, or `answer` not a string.
        ValueError: If the task belongs to another domain.
    """
    if not isinstance(task, Task):
        raise TypeError(f"task must be a Task: got {task!r}. For a run, pass run.task and run.answer.")
    if not isinstance(answer, str):
        raise TypeError(f"answer must be a string such as run.answer: got {type(answer).__name__}.")
    if not isinstance(task.domain, Constrained):
        raise ValueError(
            f"task must belong to the domain 'constrained': got {task.domain.kind!r}. "
            "Make one with tl.domains.constrained."
        )
    rules = rules_in(task.question)
    return [(rule.text, kept) for rule, kept in zip(rules, check_rules(rules, answer), strict=True)]


def constrained(number: int) -> Task:
    """Make task `number`, from 1 to 120.

    Odd numbers are writing tasks, even numbers design tasks. A task has two rules (easy) to seven (hard),
    which `rules_kept` checks.
    """
    if number not in range(1, COUNT + 1):
        raise ValueError(f"Unknown task: got number={number!r}. Pass a number from 1 to {COUNT}.")
    kind, fields = _KINDS[(number - 1) % 2], _tasks()[number - 1]
    id = f"constrained-{kind}-{len(rules_in(fields['question']))}-{number}"
    return Task(domain=Constrained(), id=id, **fields)


def constrained_tasks(count: int, kind: ConstrainedKind | None = None) -> list[Task]:
    """Make the first `count` of 120 tasks, alternating writing and design.

    Args:
        count: Number of tasks. Six consecutive tasks of one kind have 2, 3, 4, 5, 6 and 7 rules.
        kind: Restricts the tasks to one kind. There are 60 tasks of each kind.
    """
    if kind is not None and kind not in _KINDS:
        raise ValueError(f"Unknown kind: got {kind!r}. Use {' or '.join(map(repr, _KINDS))}.")
    numbers = range(1, COUNT + 1) if kind is None else range(1 + _KINDS.index(kind), COUNT + 1, 2)
    if count not in range(1, len(numbers) + 1):
        raise ValueError(f"count must be from 1 to {len(numbers)}, the number of tasks: got {count!r}.")
    return [constrained(number) for number in numbers[:count]]


@cache
def _tasks() -> list[dict[str, str]]:
    """Return the question and the reference of each task.

    `tests/golden/constrained_tasks.py` generates them.
    """
    text = pathlib.Path(__file__).with_name("tasks.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


@cache
def _references() -> dict[tuple[str, ...], str]:
    """Return the reference of each task by the texts of its rules."""
    return {tuple(rule.text for rule in rules_in(one["question"])): one["reference"] for one in _tasks()}


def reference_of(rules: Sequence[Rule]) -> str | None:
    """Return an answer that satisfies `rules`, for simulated players. Returns `None` if no task has
    exactly these rules.
    """
    return _references().get(tuple(rule.text for rule in rules))


def _candidates(shown: Sequence[str]) -> str:
    return "\n\n".join(f"Candidate {k}\n{text}" for k, text in enumerate(shown, 1))
