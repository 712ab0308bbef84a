"""Sokoban: push all boxes onto goals (`sokoban` of reasoning-gym)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tot_lab.domains.puzzles.base import PuzzleDomain, PuzzleSolution, board_text
from tot_lab.domains.puzzles.sokoban_solver import board_of, solution

_QUESTION = re.compile(r"Here is your puzzle:\n((?:[-+*%@$X](?: [-+*%@$X]){2,29}[ \t]{0,4}(?:\n|\Z)){3,30})")
_MOVES = re.compile(r"\b[LRUD]+\b")

_State = tuple[int, frozenset[int]]  # the cell of the player, and the cells of the boxes


class Puzzle(NamedTuple):
    """A board with walls around it, and its first state. Cells are numbered from 0 in reading order."""

    first: _State
    width: int
    walls: frozenset[int]
    goals: frozenset[int]


class Sokoban(PuzzleDomain):
    """Sokoban. In an answer, a step that the player cannot take changes nothing, as in reasoning-gym."""

    kind = "gym/sokoban"
    move_form = (
        "A move is one step of the player and is written as a letter: `L` (left), `R` (right), `U` (up) or "
        "`D` (down). A step towards a box pushes it, if the cell behind it is free."
    )
    separator = ""

    def read_puzzle(self, text: str) -> Puzzle | None:
        found = _QUESTION.search(text)
        rows = ["".join(row.split()) for row in found[1].splitlines()] if found else []
        border = "".join([*rows[:1], *rows[-1:], *(row[0] + row[-1] for row in rows)])
        player, boxes, walls, goals = (
            frozenset(cell for cell, sign in enumerate("".join(rows)) if sign in signs)
            for signs in ("*%", "@$", "+", "X%$")
        )
        if len({*map(len, rows)}) != 1 or {*border} != {"+"} or len(player) != 1:
            return None
        return Puzzle((min(player), boxes), len(rows[0]), walls, goals)

    def start(self, puzzle: Puzzle) -> _State:
        return puzzle.first

    def moves(self, puzzle: Puzzle, state: _State) -> Iterator[str]:
        return (move for move in "LRUD" if self.after(puzzle, state, move) != state)

    def after(self, puzzle: Puzzle, state: _State, move: str) -> _State:
        player, boxes = state
        step = {"L": -1, "R": 1, "U": -puzzle.width, "D": puzzle.width}[move]
        to, behind = player + step, player + 2 * step
        if to in puzzle.walls or (to in boxes and (behind in puzzle.walls or behind in boxes)):
            return state
        return to, (boxes - {to} | {behind} if to in boxes else boxes)

    def solved(self, puzzle: Puzzle, state: _State) -> bool:
        return state[1] <= puzzle.goals

    def show(self, puzzle: Puzzle, state: _State) -> str:
        player, boxes = state
        signs = dict.fromkeys(range(max(puzzle.walls)), "-") | dict.fromkeys(puzzle.walls, "+")
        signs |= dict.fromkeys(puzzle.goals, "X") | dict.fromkeys(boxes, "@")
        signs |= dict.fromkeys(boxes & puzzle.goals, "$")
        signs[player] = "%" if player in puzzle.goals else "*"
        return board_text([*signs.values()], puzzle.width)

    def read_moves(self, puzzle: Puzzle, text: str) -> Iterator[str]:
        return (move for moves in _MOVES.findall(text) for move in moves)

    def read_solution(self, puzzle: Puzzle, text: str) -> str | None:
        moves, state = tuple(self.read_moves(puzzle, text)), puzzle.first
        for move in moves:
            state = self.after(puzzle, state, move)
        return "".join(moves) if self.solved(puzzle, state) else None

    def plan(self, puzzle: Puzzle, state: _State) -> PuzzleSolution:
        """Return the steps that solve the puzzle from `state` with the fewest pushes."""
        return solution(board_of(puzzle.width, puzzle.walls, puzzle.goals), *state)
