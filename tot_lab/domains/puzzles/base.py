"""Base of domains that are puzzles with legal moves. A family adds its rules, about 60 lines.

A family defines how its questions are read, which moves are legal in a state and which state they lead to,
when a state is solved, and how states, moves and answers are written. The prompts, the reply parsers, the
exact grade and the simulated player are derived from these rules. A step of a path is one legal move in its
canonical form. Only `solvable`, the simulated player and the grader of zebra puzzles search for
solutions.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

from tot_lab.core.reading.answers import final_answer, whole_answer
from tot_lab.core.task import Path, Task
from tot_lab.domains.states import StateDomain

MAX_STATES = 50_000
"""Maximum number of states that a solver visits before it gives up."""


class PuzzleSolution(NamedTuple):
    """The result of a solver for one state."""

    solvable: bool | None
    """Whether the puzzle can be solved. `None` if the solver gave up."""

    moves: tuple[Any, ...] = ()
    """Moves that solve the puzzle. Empty unless `solvable` is true."""


class PuzzlePosition(NamedTuple):
    """The moves of a path, and the state after them."""

    moves: tuple[Any, ...]
    state: Any


class PuzzleDomain(StateDomain):
    """Base of puzzles that are solved by legal moves.

    Puzzles, moves and states must be hashable. States must be equal if the same moves lead from them to the
    same results.
    """

    kind = ""
    player = "sim/puzzle"
    verifies_paths = True
    most_promising = "the most promising way to a solution"
    worst = "the puzzle cannot be solved after it, or it leads away from a solution"
    surest = "it is certain to lead to a solution"

    move_form: ClassVar[str]
    """Describes a move and its notation, with an example, in one or two sentences."""

    separator: ClassVar[str] = ", "
    """The text between the moves of an answer."""

    # The rules of a family.

    @abstractmethod
    def read_puzzle(self, text: str) -> Any:
        """Return the puzzle that a question in `text` states. Returns `None` if it states none."""

    def start(self, puzzle: Any) -> Any:
        """Return the first state. By default, the puzzle itself."""
        return puzzle

    @abstractmethod
    def moves(self, puzzle: Any, state: Any) -> Iterable[Any]:
        """Return all legal moves in `state`."""

    @abstractmethod
    def after(self, puzzle: Any, state: Any, move: Any) -> Any:
        """Return the state after a legal move."""

    @abstractmethod
    def solved(self, puzzle: Any, state: Any) -> bool:
        """Return whether the puzzle is solved in `state`."""

    def show(self, puzzle: Any, state: Any) -> str:
        """Return a state as prompts show it. By default `str(state)`."""
        return str(state)

    def write(self, puzzle: Any, move: Any) -> str:
        """Return a move as one line that `read_moves` can parse. By default `str(move)`."""
        return str(move)

    @abstractmethod
    def read_moves(self, puzzle: Any, text: str) -> Iterable[Any]:
        """Return the moves that `text` states, in order. They need not be legal."""

    def write_answer(self, puzzle: Any, position: PuzzlePosition) -> str:
        """Return the answer in the form that the question asks for, also of an unsolved position.

        By default an answer is a list of moves.
        """
        return self.separator.join(self.write(puzzle, move) for move in position.moves)

    def read_solution(self, puzzle: Any, text: str) -> str | None:
        """Return the answer in `text`, in the form that the question asks for. `None` for a wrong answer."""
        moves = tuple(self.read_moves(puzzle, text))
        state = self.start(puzzle)
        for move in moves:
            if move not in self.moves(puzzle, state):
                return None
            state = self.after(puzzle, state, move)
        return self.write_answer(puzzle, PuzzlePosition(moves, state)) if self.solved(puzzle, state) else None

    def plan(self, puzzle: Any, state: Any) -> PuzzleSolution:
        """Return the fewest moves that solve the puzzle from `state`, by breadth-first search. Gives up after
        `MAX_STATES`.
        """
        before: dict[Any, Any] = {state: None}
        queue = deque([state])
        while queue and len(before) <= MAX_STATES:
            one = queue.popleft()
            if self.solved(puzzle, one):
                moves = []
                while before[one] is not None:
                    move, one = before[one]
                    moves.append(move)
                return PuzzleSolution(True, tuple(reversed(moves)))
            for move in self.moves(puzzle, one):
                new = self.after(puzzle, one, move)
                if new not in before:
                    before[new] = (move, one)
                    queue.append(new)
        return PuzzleSolution(None if queue else False)

    # Methods that follow from the rules.

    def puzzle(self, task: Task) -> Any:
        """Return the puzzle of a task. Returns `None` if its question states none."""
        return _puzzle(self, task.question)

    def position(self, task: Task, path: Path) -> PuzzlePosition | None:
        """Return the position after `path`, ignoring a last step `Answer: …`.

        Returns `None` if a step states no legal move, or the question of the task no puzzle.
        """
        puzzle = self.puzzle(task)
        steps = tuple(path)
        if steps and final_answer(steps[-1]) is not None:
            steps = steps[:-1]
        return None if puzzle is None else _walk(self, puzzle, steps)

    def legal(self, puzzle: Any, state: Any, text: str) -> Iterator[Any]:
        """Yield the moves in `text` that are legal in `state`."""
        moves = None
        for move in self.read_moves(puzzle, text):
            moves = set(self.moves(puzzle, state)) if moves is None else moves
            if move in moves:
                yield move

    # Prompts.

    def sample_prompt(self, task: Task, path: Path) -> str:
        return self._ask_step(
            task,
            path,
            "Write one next move that keeps a solution within reach. Write that one line and nothing else.",
        )

    def propose_prompt(self, task: Task, path: Path, count: int) -> str:
        return self._ask_step(
            task,
            path,
            f"Propose up to {count} different next moves, the most promising first. Write one line a move "
            "and nothing else.",
        )

    def value_prompt(self, task: Task, path: Path) -> str:
        return self._about_last(
            task,
            path,
            "How promising is the candidate? Score it from 0 (the puzzle cannot be solved after it, or it "
            "leads away from a solution) to 1 (it is certain to lead to a solution). The first line of your "
            "reply is `score: ` and the number. A line with your reasons may follow.",
        )

    def judge_prompt(self, task: Task, path: Path) -> str:
        return self._about_last(
            task,
            path,
            "Is the candidate legal, and does it lead towards a solution? Reply with one word, yes or no.",
        )

    def answer_prompt(self, task: Task, reasoning: bool) -> str:
        how = "Think step by step, then write" if reasoning else "Reply without explanation: write"
        return (
            f"{self.statement(task)}\n\n"
            f"{how} a line with the word `Answer:` alone, and after it the answer, in the form that the "
            "problem asks for."
        )

    def task_prompt(self, task: Task, reasoning: bool) -> str:
        alone = "A solution is the answer alone, in the form that the problem asks for."
        return f"{self.statement(task)}\n\n{alone}"

    def _problem(self, task: Task) -> str:
        return f"{self.statement(task)}\n\n{self.move_form}"

    def _progress(self, task: Task, path: Path) -> str:
        return f"Moves so far:\n{self.steps(path)}{self._shown(task, path)}"

    def _shown(self, task: Task, path: Path) -> str:
        here = self.position(task, path)
        return "" if here is None else f"\nState:\n{self.show(self.puzzle(task), here.state)}"

    def _ask_step(self, task: Task, path: Path, ask: str) -> str:
        if self.complete(task, path):
            ask = "The puzzle is solved. Reply with the word none."
        return f"{self._position(task, path)}\n\n{ask}"

    def _about_last(self, task: Task, path: Path, ask: str) -> str:
        """Return a prompt that asks `ask` about the last step.

        The text before the last step is the same for all siblings.
        """
        candidate = "\n".join(["Candidate for the next step:", *path[-1:]])
        return f"{self._position(task, path[:-1])}\n\n{ask}\n\n{candidate}{self._shown(task, path)}"

    # Reading.

    def read_proposals(self, task: Task, path: Path, text: str) -> list[str]:
        """Return the legal moves in a reply, each in its canonical form. Other moves are dropped."""
        here = self.position(task, path)
        puzzle = self.puzzle(task)
        if here is None or self.complete(task, path):
            return []
        return [self.write(puzzle, move) for move in self.legal(puzzle, here.state, text)]

    def read_answer(self, task: Task, text: str) -> str | None:
        """Return the answer of one or more lines that a reply states, or else the whole reply.

        A right answer is returned in the form that the question asks for.
        """
        stated = whole_answer(text)
        return stated and (self._solution(task, stated) or stated)

    def _solution(self, task: Task, answer: str) -> str | None:
        puzzle = self.puzzle(task)
        return None if puzzle is None else _solution(self, puzzle, answer)

    # Rules.

    def assess(self, task: Task, path: Path) -> float | None:
        """Return 1 if the path solves the puzzle, 0 if no legal move is left, and `None` otherwise."""
        here = self.position(task, path)
        puzzle = self.puzzle(task)
        if here is None or self._stated(path) is not None:
            return None
        if self.solved(puzzle, here.state):
            return 1.0
        return None if any(True for _ in self.moves(puzzle, here.state)) else 0.0

    def complete(self, task: Task, path: Path) -> bool | None:
        """Return `True` if the moves solve the puzzle, or the last step is an answer.

        Returns `None` if a step states no legal move.
        """
        if self._stated(path) is not None:
            return True
        here = self.position(task, path)
        return None if here is None else self.solved(self.puzzle(task), here.state)

    def state(self, task: Task, path: Path) -> Hashable | None:
        here = self.position(task, path)
        if here is None or self._stated(path) is not None:
            return None
        state: Hashable = here.state
        return state

    def answer(self, task: Task, path: Path) -> str | None:
        """Return the answer that the last step states, or that the moves compose if they solve the puzzle."""
        if self._stated(path) is not None:
            return self.read_answer(task, path[-1])
        here = self.position(task, path)
        puzzle = self.puzzle(task)
        done = here is not None and self.solved(puzzle, here.state)
        return self.write_answer(puzzle, here) if here is not None and done else None

    def solvable(self, task: Task, path: Path) -> bool | None:
        """Return whether the puzzle can be solved after `path`, by an exact solver.

        Returns `None` if the solver gave up or a step states no legal move. If the path states an answer,
        returns whether it is right.
        """
        stated = self.answer(task, path) if self._stated(path) is not None else None
        if stated is not None:
            return self.verify(task, stated)
        here = self.position(task, path)
        return None if here is None else solve(self, self.puzzle(task), here.state).solvable

    def verify(self, task: Task, answer: str) -> bool | None:
        """Return whether `answer` obeys all rules and solves the puzzle. `None` if there is no puzzle."""
        return None if self.puzzle(task) is None else self._solution(task, answer) is not None

    def grade(self, task: Task, answer: str) -> float | None:
        """Return 1.0 if `answer` obeys all rules and solves the puzzle, else 0.0. No reference is needed.

        Returns `None` if `verify` does.
        """
        right = self.verify(task, answer)
        return None if right is None else float(right)

    def expected(self, task: Task) -> Any:
        """Return `None`: several sequences of moves can solve a puzzle."""
        return None

    def same(self, task: Task, answer: str) -> Hashable:
        return super().same(task, self._solution(task, answer) or answer)

    @staticmethod
    def _stated(path: Path) -> str | None:
        return final_answer(path[-1]) if path else None


class AssignmentPuzzle(PuzzleDomain):
    """Base of puzzles whose moves assign values to variables, such as digits to cells, in any order.

    A state is the tuple of all values, and a move is a pair (index of a variable, value). `place` is such an
    index. By default a puzzle is its first state, and an answer shows the last state.
    """

    kind = ""

    blank: ClassVar[Any] = None
    """What a state contains for a variable that has no value yet."""

    @abstractmethod
    def values(self, puzzle: Any, state: Any, place: int) -> Sequence[Any]:
        """Return the values that may be assigned to the variable `place`."""

    def expected(self, task: Task) -> Any:
        """Return the reference, because the puzzles of these families have only one solution."""
        return task.reference

    def read_state(self, puzzle: Any, text: str) -> Any:
        """Parse an answer to a state. Returns `None` if that is not possible.

        By default `text` is read as a list of moves in any order. Moves may be repeated, but must not
        contradict each other.
        """
        moves = set(self.read_moves(puzzle, text))
        values = dict(moves)
        places = range(len(self.start(puzzle)))
        return tuple(map(values.get, places)) if len(values) == len(moves) else None

    def moves(self, puzzle: Any, state: Any) -> Iterator[Any]:
        for moves in self._moves_by_place(puzzle, state):
            yield from moves

    def _moves_by_place(self, puzzle: Any, state: Any) -> Iterator[list[Any]]:
        for place, value in enumerate(state):
            if value == self.blank:
                yield [(place, new) for new in self.values(puzzle, state, place)]

    def after(self, puzzle: Any, state: Any, move: Any) -> Any:
        place, value = move
        return (*state[:place], value, *state[place + 1 :])

    def solved(self, puzzle: Any, state: Any) -> bool:
        return self.blank not in state and all(
            value in self.values(puzzle, self.after(puzzle, state, (place, self.blank)), place)
            for place, value in enumerate(state)
        )

    def write_answer(self, puzzle: Any, position: PuzzlePosition) -> str:
        return self.show(puzzle, position.state)

    def read_solution(self, puzzle: Any, text: str) -> str | None:
        start, state = self.start(puzzle), self.read_state(puzzle, text)
        if state is None or len(state) != len(start) or not self.solved(puzzle, state):
            return None
        kept = all(old in (self.blank, new) for old, new in zip(start, state, strict=True))
        return self.write_answer(puzzle, PuzzlePosition((), state)) if kept else None

    def plan(self, puzzle: Any, state: Any) -> PuzzleSolution:
        """Return moves that solve the puzzle, by depth-first search.

        Each level assigns the variable that has the fewest possible values. Gives up after `MAX_STATES`.
        """
        stack: list[tuple[Any, tuple[Any, ...]]] = [(state, ())]
        for _ in range(MAX_STATES):
            if not stack:
                return PuzzleSolution(False)
            here, moves = stack.pop()
            if self.solved(puzzle, here):
                return PuzzleSolution(True, moves)
            for move in reversed(min(self._moves_by_place(puzzle, here), key=len, default=[])):
                stack.append((self.after(puzzle, here, move), (*moves, move)))
        return PuzzleSolution(None)


@lru_cache(maxsize=4096)
def _puzzle(domain: PuzzleDomain, question: str) -> Any:
    return domain.read_puzzle(question)


@lru_cache(maxsize=4096)  # a search calls this about ten times for each path
def _walk(domain: PuzzleDomain, puzzle: Any, path: tuple[str, ...]) -> PuzzlePosition | None:
    moves, state = [], domain.start(puzzle)
    for step in path:
        move = next(domain.legal(puzzle, state, step), None)
        if move is None:
            return None
        moves.append(move)
        state = domain.after(puzzle, state, move)
    return PuzzlePosition(tuple(moves), state)


@lru_cache(maxsize=1024)
def _solution(domain: PuzzleDomain, puzzle: Any, answer: str) -> str | None:
    return domain.read_solution(puzzle, answer)


@lru_cache(maxsize=4096)
def solve(domain: PuzzleDomain, puzzle: Any, state: Any) -> PuzzleSolution:
    """Return `domain.plan(puzzle, state)`, with a cache."""
    return domain.plan(puzzle, state)


# Boards of cells as text, with one line for each row.


def board_text(signs: Sequence[str], width: int, space: str = " ") -> str:
    """Return a board whose cells show `signs`, in reading order."""
    return "\n".join(space.join(signs[first : first + width]) for first in range(0, len(signs), width))


def read_square(rows: Sequence[str], signs: str) -> list[str] | None:
    """Return the rows of a square board, without characters that are not in `signs`.

    Returns `None` if a row then does not have as many characters as the board has rows.
    """
    lines = ["".join(sign for sign in row if sign in signs) for row in rows]
    return lines if all(len(line) == len(lines) for line in lines) else None
