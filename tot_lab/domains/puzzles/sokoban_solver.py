"""Exact solver of Sokoban: the fewest pushes that bring all boxes onto goals.

A* over pushes. Positions with the same boxes are one position if the player can walk from one to the other.
The lower bound is the cheapest matching of boxes and goals, where a pair costs the pushes that it needs
without other boxes. Positions from which a box cannot reach any goal are left out. Sets of cells are the bits
of integers, which are shifted to move all cells at once. The border of a board must be walls.

References:
    Junghanns and Schaeffer 2001, "Sokoban: Enhancing general single-agent search methods using domain
    knowledge": the matching bound and the deadlocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from heapq import heappop, heappush
from itertools import count
from typing import Any, NamedTuple

from tot_lab.domains.puzzles.base import PuzzleSolution

MAX_ARRANGEMENTS = 100_000
"""Maximum number of box arrangements that the solver considers before it gives up."""

MAX_BOXES = 16
"""With more boxes or more goals, the solver gives up immediately: a bound takes time cubic in their number.
"""

_NEVER = 1_000_000  # stands for infinitely many pushes

_Line = tuple["Push", Any] | None  # a linked list: the last push, and the list before it
_Open = tuple[int, int, int, int, int, _Line]  # estimate, bound, order, boxes, player, the pushes so far


class Push(NamedTuple):
    """A push of the box at `cell` in a direction, one of `LRUD`. Afterwards the player stands at `cell`."""

    cell: int
    direction: str


class Board:
    """What no move changes: walls, goals and what follows from them. Cells are numbered in reading order."""

    def __init__(self, width: int, walls: frozenset[int], goals: frozenset[int]) -> None:
        self.width = width
        self.steps = {"L": -1, "R": 1, "U": -width, "D": width}
        self.walls = _bits(walls)
        self.floor = _bits(range(max(walls))) & ~self.walls
        self.goals = _bits(goals)
        pulls = [self._pulls(goal) for goal in sorted(goals)]
        self.pushes = {cell: [one.get(cell, _NEVER) for one in pulls] for cell in _cells(self.floor)}
        """For each cell, the number of pushes from there to each goal, without other boxes."""
        self.dead = self.floor & ~_bits(cell for one in pulls for cell in one)
        """Cells from which a box cannot reach any goal."""

    def _pulls(self, goal: int) -> dict[int, int]:
        """Return the number of pushes from each cell to `goal`, found by pulling a box away from the goal."""
        pulls, cells = {goal: 0}, [goal]
        for cell in cells:
            for step in self.steps.values():
                to, player = cell - step, cell - 2 * step
                if to not in pulls and self.floor >> to & 1 and self.floor >> player & 1:
                    pulls[to] = pulls[cell] + 1
                    cells.append(to)
        return pulls

    def legal(self, boxes: int, around: int) -> Iterator[Push]:
        """Yield the pushes to cells that are not dead, for a player who can walk to the cells `around`."""
        for direction, step in self.steps.items():
            free = self.floor & ~self.dead & ~boxes
            for cell in _cells(boxes & _shifted(around, step) & _shifted(free, -step)):
                yield Push(cell, direction)

    def after(self, boxes: int, push: Push) -> int:
        """Return the boxes after a push."""
        box = 1 << push.cell
        return boxes ^ box | _shifted(box, self.steps[push.direction])

    def rings(self, player: int, boxes: int) -> list[int]:
        """Return the cells that the player can walk to with 0 steps, with 1 step, and so on."""
        free = self.floor & ~boxes
        rings, ring = [], 1 << player
        while ring:
            rings.append(ring)
            free &= ~ring
            ring = (ring << 1 | ring >> 1 | ring << self.width | ring >> self.width) & free
        return rings

    def walk(self, player: int, boxes: int, to: int) -> str:
        """Return the steps of a shortest path of the player to the cell `to`, which must be within reach."""
        rings = self.rings(player, boxes)
        near = next(k for k, ring in enumerate(rings) if ring >> to & 1)
        way = ""
        for ring in reversed(rings[:near]):
            letter = next(letter for letter, step in self.steps.items() if ring >> (to - step) & 1)
            to -= self.steps[letter]
            way = letter + way
        return way

    def is_stuck(self, boxes: int) -> bool:
        """Return `True` if a box that is not on a goal can certainly never be pushed onto one. `False` proves
        nothing.

        Each box that remains in `fixed` is blocked along both axes: by a wall, by another of these boxes, or
        because both sides are dead.
        """
        fixed, before = boxes, 0
        while fixed != before:
            before = fixed
            for step in (1, self.width):
                solid = self.walls | fixed
                fixed &= solid << step | solid >> step | (self.dead << step & self.dead >> step)
        return bool(fixed & ~self.goals)

    def bound(self, boxes: int) -> int:
        """Return a lower bound of the pushes that are left. `_NEVER` or more means that none can succeed."""
        if boxes & self.dead or self.is_stuck(boxes) or boxes.bit_count() > self.goals.bit_count():
            return _NEVER
        return _Matching([self.pushes[cell] for cell in _cells(boxes)]).cost


@lru_cache(maxsize=64)
def board_of(width: int, walls: frozenset[int], goals: frozenset[int]) -> Board:
    """Return the board, with a cache."""
    return Board(width, walls, goals)


def solution(board: Board, player: int, boxes: frozenset[int]) -> PuzzleSolution:
    """Return the steps of the player that solve the puzzle with the fewest pushes.

    After each push, the next push is planned anew. The result for the state after a step is therefore the
    rest of the result for the state before it.
    """
    left = _bits(boxes)
    plan = fewest_pushes(board, player, left)
    pushes, steps = plan.moves, ""
    while pushes:
        push, *others = pushes
        steps += board.walk(player, left, push.cell - board.steps[push.direction]) + push.direction
        player, left = push.cell, board.after(left, push)
        pushes = fewest_pushes(board, player, left).moves or tuple(others)
    return PuzzleSolution(plan.solvable, tuple(steps))


@lru_cache(maxsize=4096)  # plans from earlier and later states of a game share pushes
def fewest_pushes(board: Board, player: int, boxes: int) -> PuzzleSolution:
    """Return the fewest pushes that solve the puzzle, by A*."""
    if boxes & ~board.goals and max(boxes.bit_count(), board.goals.bit_count()) > MAX_BOXES:
        return PuzzleSolution(None)
    bounds = {boxes: board.bound(boxes) if boxes & ~board.goals else 0}
    reached = {(boxes, player): 0}
    done: set[tuple[int, int]] = set()
    order = count(0, -1)  # of equally good positions, the last one is tried first
    queue: list[_Open] = [(bounds[boxes], 0, 0, boxes, player, None)] if bounds[boxes] < _NEVER else []
    while queue and len(bounds) <= MAX_ARRANGEMENTS:
        *_, boxes, player, line = heappop(queue)
        if not boxes & ~board.goals:
            return PuzzleSolution(True, _pushes(line))
        around = sum(board.rings(player, boxes))
        if (boxes, around) in done:
            continue
        done.add((boxes, around))
        pushes = reached[boxes, player] + 1
        for push in board.legal(boxes, around):
            new, player_there = board.after(boxes, push), push.cell
            if new not in bounds:
                bounds[new] = board.bound(new)
            bound = bounds[new]
            if bound < _NEVER and pushes < reached.get((new, player_there), _NEVER):
                reached[new, player_there] = pushes
                heappush(queue, (pushes + bound, bound, next(order), new, player_there, (push, line)))
    return PuzzleSolution(None if queue else False)


def _pushes(line: _Line) -> tuple[Push, ...]:
    pushes = []
    while line is not None:
        push, line = line
        pushes.append(push)
    return tuple(reversed(pushes))


class _Matching:
    """The matching of rows and columns that has the lowest total cost, by the Hungarian algorithm.

    Each row gets a different column, so there must not be more rows than columns. The sum of the prices of
    a row and a column never exceeds the cost of the pair, and equals it if the pair is matched.
    """

    def __init__(self, costs: Sequence[Sequence[int]]) -> None:
        self.costs = costs
        self.row_prices = [min(row) for row in costs]
        self.column_prices = [0] * len(costs[0])
        self.columns = [-1] * len(costs)
        self.rows = [-1] * len(costs[0])
        for row, price in enumerate(self.row_prices):
            cheapest = costs[row].index(price)
            if self.rows[cheapest] < 0:
                self.columns[row], self.rows[cheapest] = cheapest, row
        for row, column in enumerate(self.columns):
            if column < 0:
                self._match(row)
        self.cost = sum(self.row_prices) + sum(self.column_prices)

    def _match(self, new: int) -> None:
        """Match the row `new`. Rows on the shortest augmenting path to a free column change their columns."""
        lengths, via = [_NEVER * len(self.rows)] * len(self.rows), [new] * len(self.rows)
        ahead, passed, row, length = {*range(len(self.rows))}, [], new, 0
        while True:
            costs, before = self.costs[row], length - self.row_prices[row]
            for column in ahead:
                here = before + costs[column] - self.column_prices[column]
                if here < lengths[column]:
                    lengths[column], via[column] = here, row
            end = min(ahead, key=lengths.__getitem__)
            ahead.remove(end)
            length, row = lengths[end], self.rows[end]
            if row < 0:
                break
            passed.append(end)
        self.row_prices[new] += length
        for column in passed:
            self.row_prices[self.rows[column]] += length - lengths[column]
            self.column_prices[column] -= length - lengths[column]
        while row != new:
            row = self.rows[end] = via[end]
            self.columns[row], end = end, self.columns[row]


def _bits(cells: Iterable[int]) -> int:
    bits = 0
    for cell in cells:
        bits |= 1 << cell
    return bits


def _cells(bits: int) -> Iterator[int]:
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def _shifted(bits: int, step: int) -> int:
    return bits << step if step > 0 else bits >> -step
