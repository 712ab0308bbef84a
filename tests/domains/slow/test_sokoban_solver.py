"""The solver of Sokoban against a search of all positions, and against reasoning-gym's grader."""

from __future__ import annotations

from collections import deque
from itertools import permutations
from random import Random
from typing import Any

import pytest
import reasoning_gym

from tot_lab.core.registry import built_in
from tot_lab.domains.puzzles import sokoban_solver
from tot_lab.domains.puzzles.base import solve

DOMAIN = built_in("domains")["gym/sokoban"]()
SMALL = {"min_w": 5, "min_h": 5, "max_w": 6, "max_h": 6, "min_boxes": 2, "max_boxes": 3}


def puzzle_of(rows: list[str]) -> Any:
    puzzle = DOMAIN.read_puzzle("Here is your puzzle:\n" + "\n".join(" ".join(row) for row in rows) + "\n")
    assert puzzle is not None
    return puzzle


def generated(count: int, **difficulty: int) -> tuple[Any, list[tuple[dict[str, Any], Any]]]:
    items = reasoning_gym.create_dataset("sokoban", seed=2_000, size=count, **difficulty)
    return items, [(item, DOMAIN.read_puzzle(item["question"])) for item in items]


def fewest_pushes(puzzle: Any, state: Any) -> int | None:
    """The fewest pushes, by a search of all positions of player and boxes, first those with fewer pushes."""
    pushes, queue = {state: 0}, deque([state])
    done = set()
    while queue:
        here = queue.popleft()
        if here in done:
            continue
        done.add(here)
        if here[1] <= puzzle.goals:
            return pushes[here]
        for move in DOMAIN.moves(puzzle, here):
            new = DOMAIN.after(puzzle, here, move)
            cost = pushes[here] + (new[1] != here[1])
            if cost < pushes.get(new, cost + 1):
                pushes[new] = cost
                (queue.append if new[1] != here[1] else queue.appendleft)(new)
    return None


def pushes_in(puzzle: Any, state: Any, moves: tuple[str, ...]) -> int:
    """The pushes of legal moves that solve the puzzle."""
    pushes = 0
    for move in moves:
        assert move in DOMAIN.moves(puzzle, state)
        new = DOMAIN.after(puzzle, state, move)
        pushes += new[1] != state[1]
        state = new
    assert DOMAIN.solved(puzzle, state)
    return pushes


def wandered(puzzle: Any, random: Random) -> Any:
    """A state after random moves. Many of them cannot be solved any more."""
    state = puzzle.first
    for _ in range(random.randrange(40)):
        state = DOMAIN.after(puzzle, state, random.choice(list(DOMAIN.moves(puzzle, state)) or ["L"]))
    return state


def test_it_finds_the_fewest_pushes_and_all_dead_ends():
    random, seen = Random(3), {True: 0, False: 0}
    _, puzzles = generated(40, **SMALL)
    for _, puzzle in puzzles:
        for state in [puzzle.first, *(wandered(puzzle, random) for _ in range(6))]:
            expected, plan = fewest_pushes(puzzle, state), solve(DOMAIN, puzzle, state)
            assert plan.solvable is (expected is not None)
            if plan.solvable:
                assert pushes_in(puzzle, state, plan.moves) == expected
            seen[plan.solvable] += 1
    assert min(seen.values()) > 40


def test_a_player_who_follows_the_plan_gets_closer_with_every_step():
    """Also one who makes a new plan after each step."""
    _, puzzles = generated(15, min_boxes=4, max_boxes=6, max_w=8, max_h=8)
    for _, puzzle in puzzles:
        state = puzzle.first
        plan = solve(DOMAIN, puzzle, state)
        assert plan.solvable
        while plan.moves:
            state, rest = DOMAIN.after(puzzle, state, plan.moves[0]), plan.moves[1:]
            plan = solve(DOMAIN, puzzle, state)
            assert plan.moves == rest
        assert DOMAIN.solved(puzzle, state)


@pytest.mark.nightly
def test_it_decides_every_puzzle_of_the_default_size():
    items, puzzles = generated(20)
    for item, puzzle in puzzles:
        plan = solve(DOMAIN, puzzle, puzzle.first)
        assert plan.solvable is True
        assert items.score_answer("".join(plan.moves), item) == 1.0


@pytest.mark.parametrize(
    ("rows", "solvable"),
    [
        (["++++++", "+*@-X+", "++++++"], True),
        (["++++++", "+@*-X+", "++++++"], False),  # in a corner
        (["+++++++", "+*--@-+", "+--X--+", "+++++++"], False),  # at a wall without a goal
        (["+++++++", "+*--@-+", "+-----+", "+--X--+", "+++++++"], False),
        (["+++++++", "+*----+", "+-@@--+", "+-@@--+", "+XXXX-+", "+++++++"], False),  # a block of four
        (["+++++++", "+*----+", "+-$$--+", "+-$$--+", "+-----+", "+++++++"], True),  # it is solved
        (["+++++++", "+*----+", "+-$$--+", "+-$@--+", "+X----+", "+++++++"], False),
        (["+++++++", "+*-@--+", "+--@--+", "+-----+", "+--X--+", "+++++++"], False),  # too few goals
        (["+++++++", "+*----+", "+--@--+", "+X-X-X+", "+++++++"], True),  # more goals than boxes
        (["+++++", "+*--+", "+++++"], True),  # without boxes
        (["+++++++", "+*+---+", "+++-@X+", "+++---+", "+++++++"], False),  # out of the player's reach
    ],
)
def test_dead_ends(rows, solvable):
    puzzle = puzzle_of(rows)
    assert (fewest_pushes(puzzle, puzzle.first) is not None) is solvable
    assert solve(DOMAIN, puzzle, puzzle.first).solvable is solvable


def test_a_box_that_the_player_must_make_room_for_is_not_stuck():
    """Two boxes touch, and each can be moved after the other."""
    for rows in (
        ["+++++++", "+-----+", "+-@@--+", "+*----+", "+-XX--+", "+++++++"],
        ["+++++++", "++---++", "+-@@--+", "+*-@--+", "+-XXX-+", "+-----+", "+++++++"],
    ):
        puzzle = puzzle_of(rows)
        expected = fewest_pushes(puzzle, puzzle.first)
        plan = solve(DOMAIN, puzzle, puzzle.first)
        assert pushes_in(puzzle, puzzle.first, plan.moves) == expected


def test_it_gives_up_beyond_its_limits(monkeypatch):
    size = 12
    rows = [["-"] * size for _ in range(size)]
    for k in range(size):
        rows[0][k] = rows[-1][k] = rows[k][0] = rows[k][-1] = "+"
    for k in range(17):
        rows[2 + 3 * (k // 6)][2 + k % 6], rows[3 + 3 * (k // 6)][2 + k % 6] = "@", "X"
    rows[10][10] = "*"
    crowd = puzzle_of(["".join(row) for row in rows])
    assert solve(DOMAIN, crowd, crowd.first).solvable is None
    assert solve(DOMAIN, crowd, (crowd.first[0], crowd.goals)).solvable is True

    _, ((_, puzzle), *_) = generated(1)
    monkeypatch.setattr(sokoban_solver, "MAX_ARRANGEMENTS", 5)
    sokoban_solver.fewest_pushes.cache_clear()
    board = sokoban_solver.board_of(puzzle.width, puzzle.walls, puzzle.goals)
    assert sokoban_solver.solution(board, *puzzle.first) == (None, ())


def test_the_matching_is_the_cheapest():
    random = Random(1)
    for _ in range(300):
        rows = random.randint(1, 5)
        columns = random.randint(rows, 6)
        costs = [
            [random.choice([random.randint(0, 9), 1_000_000]) for _ in range(columns)] for _ in range(rows)
        ]
        cheapest = min(
            sum(costs[row][column] for row, column in enumerate(chosen))
            for chosen in permutations(range(columns), rows)
        )
        assert sokoban_solver._Matching(costs).cost == cheapest
