"""Puzzles with legal moves: their rules are those of reasoning-gym, whose generators and graders are the
authority, or of a brute-force search; the solver and the simulated player keep to them.
"""

from __future__ import annotations

import json
from functools import cache
from itertools import permutations, product
from random import Random
from typing import Any

import numpy as np
import pytest
import reasoning_gym
from reasoning_gym.games.contrib.sokoban.src.game import Game
from reasoning_gym.games.rush_hour import Board
from support import Scripted, wait
from support.puzzle_tasks import MOVES, puzzle_task

import tot_lab as tl
from tot_lab.core.arithmetic import OPERATORS, win_share
from tot_lab.core.registry import built_in
from tot_lab.core.task import Task
from tot_lab.domains.puzzles.base import PuzzleDomain, PuzzlePosition, solve
from tot_lab.domains.puzzles.countdown import Puzzle as Numbers
from tot_lab.domains.puzzles.player import SimPuzzle
from tot_lab.testing import check_domain

SMALL: dict[str, dict[str, Any]] = {
    "tower_of_hanoi": {"max_disks": 5},
    "knights_knaves": {"n_people": 4, "depth_constraint": 3},
    "zebra_puzzles": {"num_people": 3, "num_characteristics": 3},
    "n_queens": {"n": 6, "max_remove": 6},
    "rush_hour": {"max_moves": 8},
    "sokoban": {"min_w": 5, "min_h": 5, "max_w": 6, "max_h": 6, "min_boxes": 2, "max_boxes": 3},
    "sudoku": {"min_empty": 20, "max_empty": 30},
    "countdown": {"max_numbers": 5},
    "word_ladder": {"min_word_length": 3, "max_word_length": 3},
}
SEEDS = {"countdown": 10, "puzzle24": 4, "sudoku": 10, "word_ladder": 10, "zebra_puzzles": 12}
LENIENT = {
    "knights_knaves": "words between a name and its role do not count",
    "puzzle24": "any numbers in the range are accepted",
    "rush_hour": "illegal moves are skipped",
    "sokoban": "characters that are no moves are skipped",
}
"""Families whose own grader accepts wrong answers, and why."""

every_family = pytest.mark.parametrize("kind", MOVES)


class Item:
    """A generated item, its task here, and the grader of its family."""

    def __init__(self, kind: str, items: Any, item: dict[str, Any]) -> None:
        domain = built_in("domains")[kind]()
        assert isinstance(domain, PuzzleDomain)
        self.data, self.reference = item["metadata"], item["answer"]
        words = " ".join(items.word_sets[self.data["word_length"]]) if kind == "gym/word_ladder" else ""
        self.task = Task(domain=domain, question=item["question"], data={"words": words} if words else {})
        self.domain, self.puzzle = domain, domain.puzzle(self.task)
        self.start = domain.start(self.puzzle)
        self.score = lambda answer: items.score_answer(answer, item)

    @property
    def solution(self) -> list[str]:
        plan = solve(self.domain, self.puzzle, self.start)
        assert plan.solvable
        return [self.domain.write(self.puzzle, move) for move in plan.moves]


@cache
def items_of(kind: str) -> list[Item]:
    name = kind.removeprefix("gym/")
    count = SEEDS.get(name, 25)
    items = reasoning_gym.create_dataset(name, seed=2_000, size=count, **SMALL.get(name, {}))
    return [Item(kind, items, item) for item in items]


# The authority: reasoning-gym.


@pytest.mark.nightly
@every_family
def test_what_the_solver_finds_is_right_here_and_there(kind):
    for item in items_of(kind):
        answer = item.domain.answer(item.task, item.solution)
        assert answer is not None
        assert item.task.grade(answer) == 1.0
        assert item.score(answer) == 1.0
        assert item.reference is None or item.task.grade(item.reference) == 1.0


def changed(answer: str, random: Random) -> list[str]:
    """Answers that differ a little from `answer`."""
    parts = answer.split("\n") if "\n" in answer else answer.split(" ")
    k = random.randrange(len(parts))
    letters = [k for k, letter in enumerate(answer) if letter.isalnum()]
    at, other = random.choice(letters), random.choice(letters)
    return [
        "\n".join(parts[:k] + parts[k + 1 :]),
        "\n".join(parts[:k] + parts[k:][::-1]),
        " ".join([*parts, parts[k]]),
        f"{answer[:at]}{answer[other]}{answer[at + 1 :]}",
        f"{answer[:at]}{random.choice('123ABCQ_')}{answer[at + 1 :]}",
        f"{answer}\n{answer}",
        "",
        "I do not know.",
    ]


@every_family
def test_both_agree_about_answers_that_are_nearly_right(kind):
    random, family = Random(5), kind.removeprefix("gym/")
    seen = {True: 0, False: 0}
    for item in items_of(kind):
        right = item.domain.answer(item.task, item.solution)
        for answer in changed(right, random):
            accepted = item.task.grade(answer) == 1.0
            seen[accepted] += 1
            if accepted:  # the form that the question asks for is what a strategy answers with
                answer = item.domain.read_answer(item.task, f"Answer:\n{answer}")
                shortest = len(item.solution) / max(1, answer.count("\n") + 1)
                assert item.score(answer) == (min(1.0, shortest) if family == "tower_of_hanoi" else 1.0)
            elif family not in LENIENT:
                assert item.score(answer) < 1.0, answer
    assert seen[False] > 4 * len(items_of(kind))


def test_puzzles_are_what_the_metadata_says():
    def of(name: str) -> list[tuple[Any, dict[str, Any]]]:
        return [(item.puzzle, item.data) for item in items_of(f"gym/{name}")]

    for puzzle, data in of("countdown"):
        assert puzzle == (tuple(sorted(data["numbers"])), data["target"])
    for puzzle, data in of("puzzle24"):
        assert puzzle == (tuple(sorted(data["numbers"])), 24)
    for puzzle, data in [*of("mini_sudoku"), *of("sudoku")]:
        assert puzzle == tuple(digit for row in data["puzzle"] for digit in row)
    for puzzle, data in of("tower_of_hanoi"):
        assert puzzle == (data["num_disks"], data["num_pegs"], data["start_peg"], data["target_peg"])
    for puzzle, data in of("jugs"):
        assert puzzle == (tuple(data["puzzle"]["jug_capacities"]), data["puzzle"]["target"])
    for puzzle, data in of("n_queens"):
        assert puzzle == tuple(row.index("Q") if "Q" in row else None for row in data["puzzle"])
    for item in items_of("gym/sokoban"):
        assert item.data["gamestr"].split() == item.domain.show(item.puzzle, item.start).split()
    for puzzle, data in of("word_ladder"):
        assert puzzle[:2] == (data["start_word"], data["end_word"])
    for puzzle, data in of("knights_knaves"):
        terms = data["knight_knave_terms"]
        assert puzzle[:2] == (tuple(data["names"]), (terms["knight"], terms["knave"]))


def test_statements_are_true_when_they_are_there():
    """Compares every assignment of roles, not only the solution."""
    for item in items_of("gym/knights_knaves"):
        holds = reasoning_gym.logic.knights_knaves.KnightsKnavesDataset.test_satisfiability
        for roles in product((True, False), repeat=len(item.data["names"])):
            said = [bool(holds(statement, roles)) for statement in item.data["statements"]]
            assert item.domain.solved(item.puzzle, roles) is (said == list(roles))
            answer = item.domain.write_answer(item.puzzle, PuzzlePosition((), roles))
            assert (item.task.grade(answer) == 1.0) is (item.score(answer) == 1.0)


def test_cars_slide_as_far_as_on_their_board():
    for item in items_of("gym/rush_hour")[:8]:
        state = item.start
        for step in ["", *item.solution]:
            state = reached(item, state, step)
            board = item.domain.show(item.puzzle, state).replace("\n", "").replace(".", "o")
            legal = set(item.domain.moves(item.puzzle, state))
            for car, count in product(range(len(state)), range(-5, 6)):
                one = Board(board)
                before = one._pieces[car].position
                one.move(chr(65 + car), count)
                whole = one._pieces[car].position - before == count * one._pieces[car].stride
                assert ((car, count) in legal) == (whole and count != 0)


def test_a_car_may_be_named_by_all_its_letters():
    """The question calls the red car AA."""
    task = puzzle_task("gym/rush_hour")
    assert task.domain.read_sample(task, MOVES["gym/rush_hour"][:-1], "AA+4") == "A+4"
    assert task.grade("BB+2 D+1 E-1 AA+4") == 1.0
    for wrong in ("BB+2 D+1 E-1 AA+5", "BB+2 D+100 E-1 AA+4", "AB+2 D+1 E-1 AA+4"):
        assert task.grade(wrong) == 0.0


def test_boxes_move_as_there():
    """Every board after every step, also of steps that nothing follows, is the one of their game."""
    random = Random(2)
    for item in items_of("gym/sokoban"):
        board = np.array([row.split() for row in item.domain.show(item.puzzle, item.start).split("\n")])
        game = Game(height=board.shape[0], width=board.shape[1])
        game.load_puzzle_matrix(board)
        state = item.start
        for _ in range(60):
            shown = "\n".join(" ".join(row) for row in game.get_matrix())
            assert item.domain.show(item.puzzle, state) == shown
            assert item.domain.solved(item.puzzle, state) == ("@" not in shown)
            legal = set(item.domain.moves(item.puzzle, state))
            move = random.choice("LRUD")
            assert (move in legal) == bool(game.player.update(key=move))
            state = item.domain.after(item.puzzle, state, move)


def test_a_step_against_a_wall_changes_nothing_in_an_answer():
    """But it is no step of a path."""
    item = items_of("gym/sokoban")[0]
    blocked = next(iter({*"LRUD"} - {*item.domain.moves(item.puzzle, item.start)}))
    answer = f"{blocked}{''.join(item.solution)}"
    assert item.task.grade(answer) == item.score(answer) == 1.0
    assert item.domain.complete(item.task, [blocked]) is None


def reached(item: Item, state: Any, step: str) -> Any:
    (move,) = item.domain.read_moves(item.puzzle, step) or [None] if step else [None]
    return state if move is None else item.domain.after(item.puzzle, state, move)


def test_disks_move_as_there():
    for item in items_of("gym/tower_of_hanoi")[:8]:
        check = reasoning_gym.create_dataset("tower_of_hanoi", size=1, seed=0)._validate_move
        disks, pegs, *_ = item.puzzle
        for state in list(product(range(1, pegs + 1), repeat=disks))[:: max(1, pegs**disks // 20)]:
            there = {
                peg: [d for d in range(disks, 0, -1) if state[d - 1] == peg] for peg in range(1, pegs + 1)
            }
            legal = {item.domain.write(item.puzzle, move) for move in item.domain.moves(item.puzzle, state)}
            for disk, (one, other) in product(range(1, disks + 1), permutations(there, 2)):
                move = f"Move disk {disk} from Peg {one} to Peg {other}"
                assert (move in legal) == check(there, move)


def test_words_have_the_neighbours_that_they_have_there():
    items = reasoning_gym.create_dataset("word_ladder", size=1, seed=0, **SMALL["word_ladder"])
    item = items_of("gym/word_ladder")[0]
    for word in sorted(items.word_sets[3])[::50]:
        assert set(item.domain.moves(item.puzzle, word)) == items._get_neighbors(word, items.word_sets[3])


def test_queens_stand_where_a_solution_has_them():
    """A state can be solved exactly if one of the known solutions contains it."""
    for item in items_of("gym/n_queens"):
        known = [tuple(row.index("Q") for row in board) for board in item.data["solutions"]]
        for move in item.domain.moves(item.puzzle, item.puzzle):
            state = item.domain.after(item.puzzle, item.puzzle, move)
            within = any(all(a in (None, b) for a, b in zip(state, board, strict=True)) for board in known)
            assert solve(item.domain, item.puzzle, state).solvable is within


def test_a_board_that_lacks_a_queen_of_the_puzzle_is_wrong():
    boards = [
        board
        for board in permutations(range(6))
        if len({k + place for k, place in enumerate(board)}) == 6
        and len({k - place for k, place in enumerate(board)}) == 6
    ]
    assert len(boards) == 4
    grades = set()
    for item in items_of("gym/n_queens"):
        for board in boards:
            answer = item.domain.show(item.puzzle, board)
            assert item.task.grade(answer) == item.score(answer)
            grades.add(item.score(answer))
    assert grades == {0.0, 1.0}


@pytest.mark.parametrize("kind", ["gym/mini_sudoku", "gym/sudoku"])
def test_a_digit_keeps_the_solution_exactly_if_it_is_the_digit_of_the_solution(kind):
    """The solution is unique."""
    for item in items_of(kind)[:6]:
        digits = [digit for row in item.data["solution"] for digit in row]
        for cell, digit in list(item.domain.moves(item.puzzle, item.puzzle))[::3]:
            state = item.domain.after(item.puzzle, item.puzzle, (cell, digit))
            assert solve(item.domain, item.puzzle, state).solvable is (digits[cell] == digit)


# Brute force.


def values(numbers: tuple[Any, ...]) -> set[Any]:
    """All results of joining two numbers until one is left."""
    if len(numbers) == 1:
        return set(numbers)
    found = set()
    for i, j in permutations(range(len(numbers)), 2):
        rest = tuple(number for k, number in enumerate(numbers) if k not in (i, j))
        for op in OPERATORS:
            made = tl.core.arithmetic.joined(numbers[i], op, numbers[j])
            if made is not None:
                found |= values((*rest, made))
    return found


def test_numbers_reach_exactly_what_can_be_made_of_them():
    domain = built_in("domains")["gym/countdown"]()
    fractions = tl.core.arithmetic.Fraction
    for numbers in [(3, 5, 7), (2, 2, 9), (1, 1, 1), (4, 4, 6), (0, 2, 3)]:
        state = tuple(map(fractions, numbers))
        made = values(state)
        for target in range(-20, 60):
            plan = solve(domain, Numbers(state, fractions(target)), state)
            assert plan.solvable is (target in made), (numbers, target)
    random = Random(1)
    for _ in range(40):
        state = tuple(fractions(random.randint(1, 13)) for _ in range(4))
        assert solve(domain, Numbers(state, fractions(24)), state).solvable is (win_share(state) > 0)


def test_five_numbers_reach_what_four_reach_after_a_move():
    """The solver treats more than four numbers in another way."""
    domain = built_in("domains")["gym/countdown"]()
    fractions = tl.core.arithmetic.Fraction
    for numbers, target in [
        ((1, 2, 3, 4, 5), 997),
        ((1, 1, 1, 1, 1), 11),
        ((2, 3, 7, 7, 9), 444),
    ]:
        puzzle = Numbers(tuple(map(fractions, numbers)), fractions(target))
        after = {domain.after(puzzle, puzzle.numbers, move) for move in domain.moves(puzzle, puzzle.numbers)}
        expected = any(solve(domain, puzzle, state).solvable for state in after)
        assert solve(domain, puzzle, puzzle.numbers).solvable is expected


# Moves in every way illegal.

ILLEGAL = {
    "gym/countdown": ["39 + 40 = 79", "39 + 39 = 78", "39 + 14 = 54", "39 / 0 = 0", "39 14", "39 ** 14 = 1"],
    "gym/puzzle24": ["5 + 7 = 12", "5 + 5 = 10", "6 * 6 = 35", "5 / 6 = 0.83"],
    "gym/mini_sudoku": [
        "row 1, column 1: 3",
        "row 1, column 1: 2",
        "row 2, column 4: 4",
        "row 2, column 4: 5",
        "row 5, column 1: 1",
        "row 0, column 0: 1",
        "row 4, column 5: 1",
        "row 3, column 2",
    ],
    "gym/sudoku": ["row 1, column 8: 2", "row 1, column 1: 2", "row 1, column 8: 0", "row 0, column 8: 6"],
    "gym/tower_of_hanoi": [
        "Move disk 2 from Peg 1 to Peg 3",
        "Move disk 1 from Peg 2 to Peg 3",
        "Move disk 1 from Peg 1 to Peg 4",
        "Move disk 1 from Peg 1 to Peg 1",
        "Move disk 3 from Peg 1 to Peg 2",
        "Move disk 1 to Peg 2",
    ],
    "gym/knights_knaves": ["Emma is a saint", "Daniel is a knight", "Daniel is not a saint", "saint"],
    "gym/zebra_puzzles": [
        "House 4: bob",
        "House 0: bob",
        "House 2: carol",
        "bob",
        "House 1: child",
    ],
    "gym/word_ladder": ["DOG", "BAT", "BET", "COG", "CATS", "CA"],
    "gym/jugs": ["fill D", "pour A->D", "pour A->A", "empty", "drink A", "FILL ALL"],
    "gym/n_queens": ["row 1, column 1", "row 2, column 3", "row 2, column 2", "row 7, column 1", "row 2"],
    "gym/rush_hour": ["A+3", "A-1", "Z+1", "B+4", "C-1", "E+0", "x+1", "A"],
    "gym/sokoban": ["L", "U", "LU", "right", "X", "d"],
}


@every_family
def test_illegal_moves_are_refused(kind):
    task = puzzle_task(kind)
    for step in ILLEGAL[kind]:
        assert task.domain.read_sample(task, [], step) is None, step
        assert task.domain.read_proposals(task, [], f"1. {step}\n2. {MOVES[kind][0]}") == MOVES[kind][:1], (
            step
        )
        assert task.domain.complete(task, [step]) is None
        assert task.domain.state(task, [step]) is None
        assert task.domain.answer(task, [*MOVES[kind], step]) is None
        assert task.domain.solvable(task, [step]) is None


@every_family
def test_a_move_is_read_from_the_words_around_it(kind):
    task = puzzle_task(kind)
    step = MOVES[kind][0]
    for text in (
        f"- {step}",
        f"1. {step}",
        f"**{step}**",
        f"`{step}`",
        f"Next I do this:\n\n{step}\n",
        f"  {step}  ",
    ):
        assert task.domain.read_sample(task, [], text) == step


@every_family
def test_no_move_follows_the_solution_and_the_solver_says_so(kind):
    task, moves = puzzle_task(kind), MOVES[kind]
    domain = task.domain
    assert domain.assess(task, moves) == 1.0
    assert domain.complete(task, moves) is True
    assert domain.read_proposals(task, moves, "\n".join(moves)) == []
    assert domain.assess(task, moves[:1]) is None
    assert domain.complete(task, moves[:1]) is False
    assert domain.answer(task, moves[:1]) is None
    assert [domain.solvable(task, moves[:k]) for k in range(len(moves) + 1)] == [True] * (len(moves) + 1)
    right = domain.answer(task, moves)
    assert domain.answer(task, [f"So.\nAnswer:\n{right}"]) == right
    assert domain.solvable(task, [*moves[:1], f"Answer: {right}"]) is True
    assert domain.solvable(task, ["Answer: 7"]) is False
    assert domain.verify(task, "7") is False


def test_orders_of_moves_that_lead_to_the_same_position_are_one_state():
    for kind in ("gym/mini_sudoku", "gym/n_queens", "gym/zebra_puzzles", "gym/countdown"):
        task, (one, other, *_) = puzzle_task(kind), MOVES[kind]
        if kind == "gym/countdown":
            one, other = "39 + 14 = 53", "14 + 39 = 53"
            assert task.domain.state(task, [one]) == task.domain.state(task, [other])
            continue
        assert task.domain.state(task, [one, other]) == task.domain.state(task, [other, one])
        assert task.domain.state(task, [one]) != task.domain.state(task, [other])


def test_a_dead_end_is_scored_without_a_model():
    task = puzzle_task("gym/puzzle24")
    path = ["5 + 6 = 11", "6 + 11 = 17", "1 + 17 = 18"]
    assert task.domain.assess(task, path) == 0.0
    assert task.domain.solvable(task, path) is False


# Prompts.


@every_family
@pytest.mark.parametrize("form", ["value_prompt", "judge_prompt"])
def test_siblings_share_the_prompt_up_to_the_candidate(kind, form):
    task = puzzle_task(kind)
    domain = task.domain
    path = MOVES[kind][:1]
    here = domain.position(task, path)
    steps = [
        domain.write(domain.puzzle(task), move) for move in domain.moves(domain.puzzle(task), here.state)
    ]
    prompts = [getattr(domain, form)(task, [*path, step]) for step in steps]
    for prompt, step in zip(prompts, steps, strict=True):
        shared, _, rest = prompt.rpartition("Candidate for the next step:\n")
        assert shared == prompts[0].rpartition("Candidate for the next step:\n")[0]
        assert path[0] in shared
        assert rest.split("\n")[:2] == [step, "State:"]


# Depth.


def test_long_paths_are_walked_without_recursion():
    task = puzzle_task("gym/jugs")
    path = ["fill A", "empty A"] * 2_000
    assert task.domain.complete(task, path) is False
    assert task.domain.solvable(task, path) is True
    assert "fill A" in task.domain.value_prompt(task, path)


def test_a_solver_goes_as_deep_as_the_puzzle():
    empty = "\n".join(["_ _ _ _ _ _ _ _ _"] * 9)
    task = Task(domain=built_in("domains")["gym/sudoku"](), question=f"Solve this Sudoku puzzle:\n{empty}\n")
    assert task.domain.solvable(task, []) is True
    hanoi = "Solve the Tower of Hanoi problem with 9 disks and 3 pegs.\nMove all disks from Peg 1 to Peg 2 f"
    task = Task(domain=built_in("domains")["gym/tower_of_hanoi"](), question=hanoi)
    plan = solve(task.domain, task.domain.puzzle(task), task.domain.start(task.domain.puzzle(task)))
    assert len(plan.moves) == 2**9 - 1


# What cannot be known.


@every_family
def test_a_question_of_another_kind_has_no_moves_and_no_grade(kind):
    task = tl.general("How many legs has a spider?").model_copy(update={"domain": puzzle_task(kind).domain})
    assert task.domain.read_proposals(task, [], MOVES[kind][0]) == []
    assert task.grade("8") is None
    assert task.domain.solvable(task, []) is None
    assert "spider" in task.domain.propose_prompt(task, [], 3)
    with pytest.warns(UserWarning, match="read_puzzle reads no puzzle from the question 'How many legs"):
        check_domain(task)


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        (
            "zebra_puzzles",
            "Arnold is directly left of the person who is the mother of Billy",
            "Arnold likes Bob",
        ),
        ("zebra_puzzles", "in House 1??", "in House 4??"),
        ("zebra_puzzles", "in House 1??", "in House 0??"),
        ("knights_knaves", "Isabella is a saint and", "(Isabella is a saint and"),
        ("knights_knaves", "Isabella is a saint and", "Isabella is a saint) and"),
        ("knights_knaves", "Isabella is a saint and", "and Isabella is a saint and"),
        ("knights_knaves", "Isabella is a saint and", "Isabella is a saint and and"),
        ("sokoban", "+ % - - +", "+ % - - -"),
        ("sokoban", "+ % - - +", "+ - - - +"),
        ("sokoban", "+ % - - +", "+ % - - + +"),
        ("mini_sudoku", "2 _ _ _", "2 _ _"),
        ("n_queens", "_ _ Q _ _ _", "_ _ Q _ Q _"),
        ("rush_hour", "..BB..", "..B.B."),
    ],
)
def test_a_puzzle_of_an_unknown_form_is_not_graded(kind, old, new):
    task = puzzle_task(f"gym/{kind}")
    assert task.question.count(old) == 1
    task = task.model_copy(update={"question": task.question.replace(old, new)})
    assert task.domain.puzzle(task) is None
    assert task.grade("7") is None


def test_a_zebra_puzzle_without_items_is_not_graded():
    task = puzzle_task("gym/zebra_puzzles")
    lines = [line for line in task.question.splitlines() if not line.startswith(" - ")]
    assert task.model_copy(update={"question": "\n".join(lines)}).grade("Bob") is None


@pytest.mark.parametrize("data", [{}, {"words": ["BAT", "COG"]}])
def test_a_word_ladder_without_a_vocabulary_is_an_error_before_a_call(data):
    task = puzzle_task("gym/word_ladder").model_copy(update={"data": data, "id": "ladder 3"})
    model = Scripted()
    with pytest.raises(ValueError, match=r"task 'ladder 3': data\['words'\] must be the vocabulary"):
        wait(tl.Lab(model, runs=None).run(tl.TreeOfThoughts(), task))
    assert model.calls == []
    assert task.grade("BAT,CAT,COT,COG") is None  # a loaded run is shown without it
    assert task.domain.solvable(task, ["CAT"]) is None


def test_more_states_than_the_limit_are_unknown():
    hanoi = "Solve the Tower of Hanoi problem with 12 disks and 5 pegs.\nMove all disks from Peg 1 to Peg 2 f"
    task = Task(domain=built_in("domains")["gym/tower_of_hanoi"](), question=hanoi)
    assert task.domain.solvable(task, []) is None


# The contract, and the simulated player.


@pytest.mark.nightly
@every_family
def test_each_keeps_the_contract(kind):
    seen = check_domain(puzzle_task(kind), MOVES[kind])
    assert all(one.shows_step for one in seen)


def perfect(item: Item) -> SimPuzzle:
    return SimPuzzle(skill=1, noise=0, words=item.task.data.get("words", ""))


@every_family
@pytest.mark.parametrize("reasoning", [False, True])
def test_a_perfect_player_answers_right(kind, reasoning):
    strategy = tl.ChainOfThought() if reasoning else tl.OneAnswer()
    for item in items_of(kind)[:5]:
        run = wait(tl.Lab(perfect(item), runs=None).run(strategy, item.task))
        assert run.correct is True
        assert item.score(run.answer) == 1.0


@every_family
def test_a_search_with_a_perfect_player_solves(kind):
    item = items_of(kind)[0]
    for evaluate in ("value", "joint"):
        search = tl.TreeOfThoughts(
            propose=tl.Propose(count=3),
            evaluate=evaluate,
            search=tl.BeamSearch(width=2),
            stop=tl.Stop(depth=len(item.solution) + 2),
        )
        run = wait(tl.Lab(perfect(item), runs=None).run(search, item.task))
        assert run.correct is True
        assert item.score(run.answer) == 1.0


def test_a_player_improves_its_own_answers():
    """It accepts a right answer, and tries again after a wrong one."""
    item = items_of("gym/mini_sudoku")[0]
    labs = [tl.Lab(SimPuzzle(skill=0.7, noise=0, seed=seed), runs=None) for seed in range(6)]
    once = [wait(lab.run(tl.OneAnswer(), item.task)) for lab in labs]
    refined = [wait(lab.run(tl.methods.SelfRefine(rounds=8), item.task)) for lab in labs]
    assert sum(run.correct for run in once) < sum(run.correct for run in refined)
    assert all(run.stop_reason == "solved" for run in refined if run.correct)


@every_family
def test_skill_decides_how_often_the_first_move_is_right(kind):
    """A player that ignores its settings would pass the tests above."""
    item = max(items_of(kind), key=lambda one: len(list(one.domain.moves(one.puzzle, one.start))))
    task, right = item.task, item.solution[0]
    for skill in (0, 1):
        model = SimPuzzle(skill=skill, words=task.data.get("words", ""))
        prompt = (tl.core.calls.Message("user", task.domain.sample_prompt(task, [])),)
        moves = [wait(model(tl.Call("0", "sample", prompt, k))).text for k in range(12)]
        assert (set(moves) == {right}) is (skill == 1)
        assert all(task.domain.read_sample(task, [], move) == move for move in moves)


def test_a_player_judges_by_noise():
    task, moves = puzzle_task("gym/n_queens"), MOVES["gym/n_queens"]
    domain = task.domain
    puzzle = domain.puzzle(task)
    steps = [domain.write(puzzle, move) for move in domain.moves(puzzle, domain.start(puzzle))]
    good = {step for step in steps if domain.solvable(task, [step])}
    assert moves[0] in good
    assert good < set(steps)
    for noise in (0, 1):
        lab = tl.Lab(SimPuzzle(noise=noise), runs=None)
        for step in steps:
            call = tl.Call("0", "value", (tl.core.calls.Message("user", domain.value_prompt(task, [step])),))
            score = domain.read_value(wait(lab.model(call)).text)
            assert (score > 0.5) == ((step in good) != bool(noise))


def test_an_answer_of_a_path_is_written_in_one_form():
    item = items_of("gym/jugs")[0]
    moves = tuple(item.domain.read_moves(item.puzzle, "\n".join(item.solution)))
    assert json.loads(item.domain.write_answer(item.puzzle, PuzzlePosition(moves, None))) == item.solution
