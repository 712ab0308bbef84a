"""Translation of the prompts of the Game of 24 and Countdown into the language of the small models.

A prompt is translated by reading its problem and steps, and is accepted only if the domain writes exactly the
same prompt for them. All other prompts are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from tot_lab.core.parts import class_of
from tot_lab.core.reading.answers import final_answer
from tot_lab.core.task import Domain, Task

MOST_STEPS = 8
"""The most steps that one reply proposes."""

ANSWERS = (
    "It answers the prompts of the Game of 24 and of Countdown with three or four numbers from 1 to 20 and a "
    "target from 10 to 99, without a system prompt, context, tools or a schema"
)
"""The prompts that the models answer, for error messages."""

_HEADING = {"game24": "Steps so far:\n", "gym/countdown": "Moves so far:\n"}
_SHOWN = {"game24": "\nNumbers left: ", "gym/countdown": "\nState:\n"}
_CANDIDATE = "\n\nCandidate for the next step:\n"
_LISTED = "\n\nCandidates for the next step:\n"
_NUMBERED = re.compile(r"^(?:\d+\. |\(no steps yet\)$)", re.M)
_VOTED = re.compile(r"\n\nCandidate \d+:\n")
_COUNT = re.compile(r"Propose up to (\d{1,4}) different next (?:steps|moves)")
_ENDS = re.compile(r"\n\n(?:Think step by step, then|Reply without explanation:|A move joins two)")
_BEGINS = re.compile("Using all the numbers |Find a way to make |Calculate ")
_KNOWN = "\n\nWhat is known so far:\n"
_EXPRESSION = re.compile(r"[-+*/() \d]+")
_LONG_NUMBER = re.compile(r"\d{10}")


@lru_cache(maxsize=4096)
def read_prompt(prompt: str) -> str:
    """Return `prompt` as a request in the language of the models.

    Raises:
        ValueError: If the models cannot answer the prompt.
    """
    for kind in _HEADING:
        domain = class_of(kind, Domain)()
        for task in _tasks(kind, domain, prompt):
            for written, request in _readings(domain, task, prompt):
                if written == prompt and request:
                    return request
    raise ValueError(f"This prompt is not understood: got {prompt[:80]!r}. {ANSWERS}.")


def _tasks(kind: str, domain: Domain, prompt: str) -> Iterator[Task]:
    """Yield the task in a prompt of the domain `kind`, if there is one and its numbers are in range."""
    if kind == "game24":
        found = re.search(r"\n\nNumbers: (\d{1,2}(?: \d{1,2}){3})\n\n", prompt)
        if found and all(1 <= int(word) <= 13 for word in found[1].split()):
            yield Task(domain=domain, question=found[1])
        return
    countdown: Any = domain
    question = _ENDS.split(prompt)[0]
    task = Task(domain=domain, question=question)
    puzzle = countdown.puzzle(task)
    if not _BEGINS.match(question) or _KNOWN in question:
        return
    if puzzle and len(puzzle.numbers) in (3, 4) and 10 <= puzzle.target <= 99 and max(puzzle.numbers) <= 20:
        yield task


def _readings(domain: Domain, task: Task, prompt: str) -> Iterator[tuple[str, str | None]]:
    """Yield prompts that the domain writes for `task` and the steps in `prompt`, each with its request, or
    with `None` if the models cannot answer it. One of them should equal `prompt`.
    """
    words = domain.kind == "game24"
    target, hand = _problem(domain, task)
    for reasoning, letter in ((True, "R" if words else "S"), (False, "D" if words else "E")):
        yield domain.answer_prompt(task, reasoning), f"{letter} {target}:{hand}>"
    if _VOTED.search(prompt):
        paths = [_path(domain, part) for part in _VOTED.split(prompt)[1:]]
        states = [_state(domain, task, path) for path in paths]
        yield domain.vote_prompt(task, paths), _joined("B", target, states)
        return
    path = _path(domain, prompt)
    if _LISTED in prompt:
        candidates = _steps(prompt.rpartition(_LISTED)[2])
        states = [_state(domain, task, [*path, step]) for step in candidates]
        yield domain.joint_prompt(task, path, candidates), _joined("A", target, states)
    elif _CANDIDATE in prompt:
        candidate = prompt.rpartition(_CANDIDATE)[2].partition(_SHOWN[domain.kind])[0]
        whole = [*path, candidate]
        state = _state(domain, task, whole)
        yield domain.judge_prompt(task, whole), state and f"J {target}:{state}>"
        if final_answer(candidate) is None:
            yield domain.value_prompt(task, whole), state and f"{'V' if words else 'W'} {target}:{state}>"
        elif claim := _claim(domain.answer(task, whole)):
            letter = "X" if words else "Y"
            yield domain.value_prompt(task, whole), f"{letter} {target}:{hand}|{claim}>"
    else:
        state = _state(domain, task, path)
        yield domain.sample_prompt(task, path), state and f"P1 {target}:{state}>"
        if found := _COUNT.search(prompt):
            count = int(found[1])
            request = f"P{min(count, MOST_STEPS)} {target}:{state}>" if state and count else None
            yield domain.propose_prompt(task, path, count), request


def _problem(domain: Any, task: Task) -> tuple[str, str]:
    if domain.kind == "game24":
        return "24", " ".join(sorted(task.question.split(), key=int))
    puzzle = domain.puzzle(task)
    return str(puzzle.target), " ".join(map(str, puzzle.numbers))


def _path(domain: Domain, text: str) -> list[str]:
    """Return the numbered steps below the domain's heading in `text`."""
    return _steps(text.partition(_HEADING[domain.kind])[2].partition(_SHOWN[domain.kind])[0])


def _steps(text: str) -> list[str]:
    return [step.removesuffix("\n") for step in _NUMBERED.split(text)[1:] if step]


def _state(domain: Domain, task: Task, path: list[str]) -> str | None:
    """Return the numbers left after the steps of `path`, or `None` if the domain cannot compute them."""
    state: Any = domain.state(task, path)
    return None if state is None else " ".join(map(str, state))


def _joined(letter: str, target: str, states: list[str | None]) -> str | None:
    shown = [state for state in states if state]
    return f"{letter} {target}:{'|'.join(shown)}>" if states and len(shown) == len(states) else None


def _claim(answer: str | None) -> str | None:
    """Return the expression in `answer` as the models read it, or `None` if they cannot."""
    expression = "" if answer is None else answer.partition("=")[0]
    if not _EXPRESSION.fullmatch(expression) or _LONG_NUMBER.search(expression):
        return None
    return re.sub(r"([-+*/])", r" \1 ", "".join(expression.split()))
