"""A simulated player of all puzzles with legal moves. It uses the rules of their domains.

It reads only the text of a prompt: the puzzle, the moves so far and the candidates. It finds the right move
with the solver of the domain. `skill` and `noise` determine the frequency of its mistakes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any, cast

from tot_lab.core.parts import REGISTRY, class_of
from tot_lab.core.registry import names
from tot_lab.core.task import Domain, Path, Task
from tot_lab.domains.player import Player, Responder, candidates_in
from tot_lab.domains.puzzles.base import PuzzleDomain, PuzzlePosition, solve
from tot_lab.models.simulated import JUDGING, Probability

_FORMS = (
    ("critique", re.compile(r"`SATISFIED:`")),
    ("none", re.compile(r"the puzzle is solved\. Reply with the word none")),
    *JUDGING,
    ("value", re.compile(r"first line of your reply is `score: `")),
    ("propose", re.compile(r"Propose up to (\d{1,4}) different next moves")),
    ("sample", re.compile(r"Write one next move")),
    ("answer", re.compile(r"a line with the word `Answer:` alone")),
)
_MOVES = re.compile(r"^Moves so far:\n((?:\d{1,4}\. [^\n]*\n?)*)", re.M)
_STEP = re.compile(r"^\d{1,4}\. ([^\n]*)$", re.M)
_CANDIDATE = re.compile(r"^Candidate for the next step:\n([^\n]*)", re.M)
_LONGEST = 300  # maximum moves of an answer


class _Responder(Responder["SimPuzzle"]):
    """Composes replies from the puzzle and the moves that the prompt states."""

    forms = _FORMS

    @cached_property
    def task(self) -> Task | None:
        """The task of the puzzle that the prompt states."""
        return _task(self.text, self.player.words, _families())

    @cached_property
    def domain(self) -> PuzzleDomain:
        assert self.task is not None
        return cast(PuzzleDomain, self.task.domain)

    @cached_property
    def puzzle(self) -> Any:
        assert self.task is not None
        return self.domain.puzzle(self.task)

    @cached_property
    def position(self) -> PuzzlePosition | None:
        """The position after the moves so far."""
        return self.reached(_moves_in(self.text))

    @cached_property
    def candidates(self) -> list[bool]:
        """Whether each candidate leads closer to a solution."""
        moves = _moves_in(self.text)
        if self.form == "vote":
            return [self.improves(_moves_in(text)) for text in candidates_in(self.text)]
        if self.form == "joint":
            return [self.improves([*moves, text]) for text in candidates_in(self.text)]
        return [self.improves([*moves, text]) for text in _CANDIDATE.findall(self.text)[-1:]]

    def understands(self) -> bool:
        if self.task is None:
            return False
        return self.position is not None or self.form not in ("propose", "sample", "answer")

    def reached(self, path: Path) -> PuzzlePosition | None:
        return None if self.task is None else self.domain.position(self.task, path)

    def improves(self, path: Path) -> bool:
        """Return whether the last move of `path` leads closer to a solution. If `path` has an answer, return
        `False` only if that is wrong.
        """
        assert self.task is not None
        stated = self.domain.answer(self.task, path) if path else None
        if stated is not None:
            return self.domain.verify(self.task, stated) is not False
        here, before = self.reached(path), self.reached(path[:-1])
        if here is None or before is None:
            return False
        plan, old = solve(self.domain, self.puzzle, here.state), solve(self.domain, self.puzzle, before.state)
        return bool(plan.solvable) and len(plan.moves) < len(old.moves)

    # Moves.

    def next_moves(self, position: PuzzlePosition, count: int) -> list[Any]:
        """Return up to `count` different legal moves in random order.

        With probability `skill` the move of the solver is one of them. Otherwise all are chosen at random.
        """
        legal = list(dict.fromkeys(self.domain.moves(self.puzzle, position.state)))
        self.random.shuffle(legal)
        right = solve(self.domain, self.puzzle, position.state).moves[:1] if self.succeeds() else ()
        chosen = [*right, *(move for move in legal if move not in right)][:count]
        self.random.shuffle(chosen)
        return chosen

    def propose(self) -> str:
        """Return different moves, one a line."""
        assert self.position is not None
        moves = self.next_moves(self.position, self.count)
        return "\n".join(self.domain.write(self.puzzle, move) for move in moves) or "none"

    def sample(self) -> str:
        """Return one move."""
        return self.propose()

    def answer(self) -> str:
        """Return a complete answer. It stops early if the solver gives up or no move is legal."""
        moves: list[Any] = []
        state = self.domain.start(self.puzzle)
        while len(moves) < _LONGEST and not self.domain.solved(self.puzzle, state):
            if solve(self.domain, self.puzzle, state).solvable is None:
                break
            chosen = self.next_moves(PuzzlePosition((), state), 1)
            if not chosen:
                break
            moves += chosen
            state = self.domain.after(self.puzzle, state, chosen[0])
        answer = f"Answer:\n{self.domain.write_answer(self.puzzle, PuzzlePosition(tuple(moves), state))}"
        lines = (
            [self.domain.write(self.puzzle, move) for move in moves] if "step by step" in self.text else []
        )
        return "\n".join([*lines, answer])

    # Judgements.

    def believes(self) -> bool:
        return self.judgement_of(any(self.candidates))

    def scores(self) -> Sequence[float]:
        return [self.score_of(self.judgement_of(good)) for good in self.candidates]

    def value(self) -> str:
        """Return the score of the candidate."""
        return f"score: {self.score_of(self.believes())}"

    def critique(self) -> str:
        """Return a critique of the answer in the prompt."""
        assert self.task is not None
        answer = self.text.rpartition("<answer>\n")[2].partition("\n</answer>")[0]
        right = self.domain.verify(self.task, self.domain.read_answer(self.task, answer) or "")
        if self.judgement_of(right is True):
            return "SATISFIED: it keeps all rules and solves the puzzle."
        return "UNSATISFIED: it breaks a rule or does not solve the puzzle. Begin again."


class SimPuzzle(Player):
    """A simulated player of puzzles with legal moves.

    If a call requests log-probabilities of yes or no, the reply is one token, yes or no.
    """

    kind = "sim/puzzle"
    responder = _Responder
    garbled = ("", "...", "I have lost the thread here.", "?? ?? ??")
    unknown = "I am a simulated player of puzzles and do not understand this. Word ladders require `words`."

    skill: Probability = 0.8
    """Probability that the move of the solver is put into a proposal, 0–1. The other moves are random."""

    words: str = ""
    """The vocabulary for word ladders, with spaces between the words."""


def _families() -> tuple[type[PuzzleDomain], ...]:
    """Return all puzzle domains: built-in, installed (`gym/…`) and defined in this process."""
    for name in names("domains"):
        if name.startswith("gym/"):
            class_of(name, Domain)
    return tuple(dict.fromkeys(kind for kind in REGISTRY.values() if issubclass(kind, PuzzleDomain)))


@lru_cache(maxsize=1024)
def _task(text: str, words: str, families: tuple[type[PuzzleDomain], ...]) -> Task | None:
    """Return the task of the puzzle that `text` states."""
    for domain in (kind() for kind in families):
        task = Task(domain=domain, question=text, data={"words": words} if words else {})
        if domain.puzzle(task) is not None:
            return task
    return None


def _moves_in(text: str) -> list[str]:
    """Return the moves that `text` lists last."""
    found = _MOVES.findall(text)
    return _STEP.findall(found[-1]) if found else []
