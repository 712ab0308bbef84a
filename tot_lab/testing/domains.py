"""The checks of a domain: every prompt, reader and rule, on the paths that strategies pass to it."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import Any, NamedTuple

from tot_lab.core.task import Domain, Task
from tot_lab.domains.puzzles.base import PuzzleDomain
from tot_lab.testing.model import HOSTILE, expect


class Seen(NamedTuple):
    """What an evaluator sees of a path.

    Attributes:
        prompt: The method that makes the prompt.
        path: Description of the path, such as `a whole reply`.
        shows_step: Whether the prompt contains the last step word for word.
        text: The prompt.
    """

    prompt: str
    path: str
    shows_step: bool
    text: str


def check_domain(task: Task, steps: Sequence[str] = ()) -> list[Seen]:
    """Check the domain of `task`: every prompt, reader and rule, on the paths that strategies pass to it.

    A path does not always consist of single steps. Best of N passes a whole reply as one step, a synthesis
    passes a merged text, and a model may reply with anything. Methods that the domain does not provide are
    skipped.

    Args:
        task: A task of the domain. If it has a reference, `grade` must return 1 or `None` for it.
        steps: A path of steps of the task, such as one that leads to an answer. Its prefixes are tried too.

    Returns:
        What an evaluator would see of each path. If a prompt does not show the step that it asks about, the
        evaluator can only guess.

    Raises:
        AssertionError: If a check fails. The message names the method, the path and what is wrong with the
            result. A `PuzzleDomain` also fails if `read_puzzle` raises an error for a text without a puzzle,
            `read_moves` does not return the move that `write` wrote, a step is not legal, or moves that leave
            the puzzle unsolved are graded 1.
        TypeError: If `task` is not a task, or `steps` is a string.

    Warns:
        UserWarning: If the name of a method is nearly that of a method which domains may override, or a
            `PuzzleDomain` can read no puzzle from the question.
    """
    if not isinstance(task, Task):
        raise TypeError(f'task must be a Task such as tl.general("…"): got {task!r}.')
    if isinstance(steps, str):
        raise TypeError(f"steps must be a list of steps: got {steps!r}.")
    for near, method in _misspelt(type(task.domain)):
        name = f"{type(task.domain).__name__}.{method}"
        warnings.warn(f"No strategy calls {name}. Did you mean {near}?", UserWarning, stacklevel=2)
    trial = _DomainTrial(task)
    if isinstance(task.domain, PuzzleDomain):
        _check_puzzle(task.domain, task, steps)
    texts = [text for text in HOSTILE if isinstance(text, str)]
    for text in texts:
        trial.read(text)
    rows = [row for what, path in _paths(task, steps) for row in trial.follow(what, path)]
    if task.reference is not None:
        grade = trial.call("grade", "the reference", task, str(task.reference))
        expect(grade in (1, None), f"the grade of the reference {task.reference!r} must be 1: got {grade!r}")
    return rows


def _check_puzzle(domain: PuzzleDomain, task: Task, steps: Sequence[str]) -> None:
    """Check the rules of a puzzle first: if they are wrong, the other checks see no legal path."""
    puzzle = domain.puzzle(task)
    if puzzle is None:
        what = f"read_puzzle reads no puzzle from the question {task.question!r:.80}"
        warnings.warn(f"{what}, so moves and grades were not checked.", UserWarning, stacklevel=3)
        return
    for text in ("What is six times seven?", ""):  # `sim/puzzle` passes every prompt to each domain
        try:
            domain.read_puzzle(text)
        except Exception as error:
            what = f"read_puzzle raises {error!r:.80} for {text!r}"
            raise AssertionError(f"{what}; it must return None for a text that states no puzzle") from error
    for move in islice(domain.moves(puzzle, domain.start(puzzle)), 3):
        text = domain.write(puzzle, move)
        read = list(domain.read_moves(puzzle, text))
        expect(
            read == [move], f"read_moves reads {read!r} from {text!r}, the text that write made of {move!r}"
        )
    for depth in range(1, len(steps) + 1):
        legal = domain.position(task, steps[:depth]) is not None
        expect(legal, f"steps: step {depth}, {steps[depth - 1]!r:.80}, states no legal move")
    end = domain.position(task, steps)
    answer = None if end is None else domain.write_answer(puzzle, end)
    for depth in range(len(steps)):
        position = domain.position(task, steps[:depth])
        if position is not None and not domain.solved(puzzle, position.state):
            text = domain.write_answer(puzzle, position)
            # The answers of two states may be equal, since an answer may contain only a part of the state.
            if text != answer:
                grade = domain.grade(task, text)
                expect(
                    grade != 1,
                    f"the grade of {text!r:.80} is {grade!r}, although its moves do not solve the puzzle",
                )


def _misspelt(kind: type[Domain]) -> Iterator[tuple[str, str]]:
    """Yield (method of the base class, method that only `kind` has) if the two names are nearly equal."""
    base = PuzzleDomain if issubclass(kind, PuzzleDomain) else Domain
    known = {name for name, _ in inspect.getmembers(base, inspect.isfunction)} - vars(kind).keys()
    for name, value in vars(kind).items():
        if inspect.isfunction(value) and not hasattr(base, name):
            yield from ((near, name) for near in get_close_matches(name, known, n=1, cutoff=0.91))


def _paths(task: Task, steps: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield a description and the steps of each kind of path that strategies pass to a domain."""
    answer = task.reference or "42"
    yield "no step", []
    for depth in range(1, len(steps)):
        yield f"the first {depth} of {len(steps)} steps", list(steps[:depth])
    if steps:
        yield "all steps", list(steps)
        yield "steps and an answer", [*steps, f"Answer: {answer}"]
    yield "a whole reply", [f"Let me think step by step.\nFirst this, then that.\nAnswer: {answer}"]
    yield "an answer alone", [f"Answer: {answer}"]
    yield "a merged text", [f"Both attempts agree. Combining them:\n\n1. {answer}\n2. {answer}"]
    yield "a reply cut short", ["Let me think step by step.\nFirst th"]
    for text in HOSTILE:
        if isinstance(text, str):
            yield f"the text {text[:20]!r}", [text]


class _DomainTrial:
    """Calls the methods of a task's domain and checks their results."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.domain = task.domain
        self.before = repr(task)

    def call(self, method: str, what: str, *given: Any) -> Any:
        """Call a method twice, and expect the same result and an unchanged task.

        Returns `NotImplemented` if the domain does not provide the method.
        """
        try:
            first, second = (getattr(self.domain, method)(*given) for _ in range(2))
        except NotImplementedError:
            return NotImplemented
        except Exception as error:
            raise AssertionError(f"{method} on {what} raised {type(error).__name__}: {error}") from error
        same = first == second or repr(first) == repr(second)
        expect(same, f"{method} on {what} gives {first!r} and then {second!r}")
        expect(repr(self.task) == self.before, f"{method} on {what} changes the task")
        return first

    def expect(
        self, method: str, what: str, accepted: Callable[[Any], bool], wanted: str, *given: Any
    ) -> Any:
        """Call a method, check its result, and return it. `wanted` describes accepted results in the error.

        Returns `None` if the domain does not provide the method.
        """
        result = self.call(method, what, *given)
        provided = result is not NotImplemented
        expect(
            not provided or accepted(result), f"{method} on {what} gives {result!r}, which is not {wanted}"
        )
        return result if provided else None

    def read(self, text: str) -> None:
        """Pass `text` to every reader of the domain."""
        task, what, top = self.task, f"the text {text[:20]!r}", self.domain.value_top
        texts = "a list of strings"
        self.expect("read_sample", what, _is(str, None), "a string or None", task, [], text)
        self.expect("read_proposals", what, _all_strings, texts, task, [], text)
        self.expect("pool_proposals", what, _all_strings, texts, task, [], [text, text])
        for method in ("read_value", "read_part"):
            self.expect(method, what, _within(top), f"a number from 0 to {top:g} or None", text)
        self.expect("read_vote", what, _is_choice, "a number below 3 or None", text, 3)
        self.expect("read_joint", what, _are_scores, "3 scores from 0 to 1 or None", text, ["a", "b", "c"])
        self.expect("read_answer", what, _is(str, None), "a string or None", task, text)

    def follow(self, what: str, path: list[str]) -> Iterator[Seen]:
        """Check every prompt and rule on `path`, and yield what an evaluator would see."""
        task, text = self.task, "a text that is not empty"
        self.expect("steps", what, _is(str), "a string", path)
        self.expect("sample_prompt", what, _is_text, text, task, path)
        self.expect("propose_prompt", what, _is_text, text, task, path, 3)
        self.expect("complete", what, _is(bool, None), "a bool or None", task, path)
        self.expect("solvable", what, _is(bool, None), "a bool or None", task, path)
        self.expect("state", what, _is_hashable, "hashable", task, path)
        answer = self.expect("answer", what, _is(str, None), "a string or None", task, path)
        if answer is not None:
            self.expect("same", what, _is_hashable, "hashable", task, answer)
            self.expect("grade", what, _within(1), "a number from 0 to 1 or None", task, answer)
        if not path:
            return
        self.expect("assess", what, _within(1), "a number from 0 to 1 or None", task, path)
        prompts = {
            "value_prompt": (task, path),
            "judge_prompt": (task, path),
            "vote_prompt": (task, [path, [*path[:-1], "another step"]]),
            "joint_prompt": (task, path[:-1], [path[-1], "another step"]),
        }
        for method, given in prompts.items():
            prompt = self.expect(method, what, _is_text, text, *given)
            if prompt is not None:
                yield Seen(method, what, path[-1] in prompt, prompt)
        most = self.call("max_parts", what, task)
        if most is not NotImplemented:
            parts = self.expect("part_prompts", what, _all_strings, "a list of texts", task, path) or []
            expect(
                len(parts) <= most,
                f"part_prompts on {what} gives {len(parts)} prompts, more than max_parts={most}",
            )


def _is(*kinds: type | None) -> Callable[[Any], bool]:
    return lambda value: any(value is None if kind is None else isinstance(value, kind) for kind in kinds)


def _within(top: float) -> Callable[[Any], bool]:
    return lambda value: value is None or (isinstance(value, int | float) and 0 <= value <= top)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _all_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _is_choice(value: Any) -> bool:
    return value is None or (isinstance(value, int) and 0 <= value < 3)


def _are_scores(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(map(_within(1), value))


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
