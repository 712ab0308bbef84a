"""One question of reasoning-gym for each domain of `tot_lab.domains.puzzles`, and the moves that solve it.

The questions are those of its generators (Apache-2.0), at low difficulty.
"""

from __future__ import annotations

from tot_lab.core.registry import built_in
from tot_lab.core.task import Task

QUESTIONS = {
    "gym/countdown": (
        "Using all the numbers 39, 14, 93, 51, create an expression that equals 169.\n"
        "You can only use each number once.\n"
        "\n"
        "Final answer format instructions:\n"
        "1. Provide your solution as a arithmetic expression (no '=' sign).\n"
        "2. Do not include the target number in the expression.\n"
        "3. Use '*' for multiplication.\n"
        "4. Use '/' for division.\n"
        "5. Do not include any other text or formatting.\n"
    ),
    "gym/puzzle24": (
        "Make 24 using 5, 6, 1, 6. You can only use each number once. You can use the operators +, "
        "-, *, /.\n"
        "Final answer format instructions:\n"
        "1. Provide your final answer as a arithmetic expression (no '=' sign).\n"
        "2. Do not include the target number in the expression.\n"
        "3. Use '*' for multiplication.\n"
        "4. Use '/' for division.\n"
    ),
    "gym/mini_sudoku": (
        "In 4x4 Mini Sudoku:\n"
        "- Each row must contain each number from 1-4 exactly once\n"
        "- Each column must contain each number 1-4 exactly once\n"
        "- Each 2x2 subgrid must contain each number 1-4 exactly once\n"
        "Solve this 4x4 Mini Sudoku puzzle:\n"
        "3 1 4 2\n"
        "4 2 1 _\n"
        "2 _ _ _\n"
        "1 _ 2 4\n"
        "Format your response as the puzzle above, with spaces separating each number within a row, "
        "and newlines separating rows.\n"
    ),
    "gym/sudoku": (
        "Solve this Sudoku puzzle:\n"
        "2 3 7 1 8 9 5 _ 4\n"
        "8 9 6 2 5 4 1 7 3\n"
        "1 5 4 3 7 6 8 9 2\n"
        "3 1 5 6 9 7 4 2 8\n"
        "9 4 2 8 3 5 6 1 7\n"
        "6 _ 8 4 1 2 3 _ 9\n"
        "5 8 3 7 2 1 9 4 6\n"
        "7 6 9 5 _ 3 2 8 1\n"
        "_ 2 1 9 6 8 7 3 5\n"
        "Respond with only your answer, formatted as the puzzle, a 9x9 grid with numbers separated "
        "by spaces, and rows separated by newlines."
    ),
    "gym/tower_of_hanoi": (
        "Solve the Tower of Hanoi problem with 2 disks and 3 pegs.\n"
        "Move all disks from Peg 1 to Peg 2 following the rules:\n"
        "- Only one disk can be moved at a time.\n"
        "- A larger disk cannot be placed on top of a smaller disk.\n"
        "- All disks must be on a peg at all times.\n"
        "\n"
        "Provide the sequence of moves.\n"
        "\n"
        "Formatting guidelines:\n"
        "- Each instruction should be placed on a single line.\n"
        "- Each line should be formatted as 'Move disk X from Peg Y to Peg Z'\n"
        "- Do not include any other text or formatting.\n"
    ),
    "gym/knights_knaves": (
        "A very special island is inhabited only by saints and sinners. Saints always tell the "
        "truth, and sinners always lie. You meet 3 inhabitants: Daniel, Ethan, and Isabella. "
        '"Isabella is a saint and Ethan is a sinner" - Daniel. Ethan expressed that Daniel is a '
        'saint if and only if Daniel is a sinner. According to Isabella, "Daniel is a sinner or '
        'Isabella is a saint". So who is a saint and who is a sinner? (Format your answer like: '
        '"Daniel is a saint/sinner, Ethan is a saint/sinner, and Isabella is a saint/sinner")'
    ),
    "gym/zebra_puzzles": (
        "This is a logic puzzle. There are 3 houses (numbered 1 on the left, 3 on the right), from "
        "the perspective of someone standing across the street from them. Each has a different "
        "person in them. They have different characteristics:\n"
        " - Each person has a unique name: bob, arnold, alice\n"
        " - Each mother is accompanied by their child: timothy, billy, alice\n"
        "\n"
        "1. The person's child is named Alice is in the first house.\n"
        "2. Arnold is directly left of the person who is the mother of Billy.\n"
        "3. The person's child is named Alice is Bob.\n"
        "\n"
        "What is Name of the person who lives in House 1?? Provide only the name of the person as "
        "your final answer."
    ),
    "gym/word_ladder": (
        "Transform the word ladder 'BAT' to 'COG' by changing one letter at a time.\n"
        "Provide your answer as a comma-separated sequence of uppercase letters without spaces.\n"
        "Each step must be a valid English word."
    ),
    "gym/jugs": (
        "You are a police officer. A maniac has planted a bomb next to a public fountain.\n"
        "\n"
        "To defuse the bomb, you must solve a puzzle. The puzzle is solved when you fill any of the "
        "available jugs with the target amount of water.\n"
        "\n"
        "You have three move types: 'fill', 'empty' and 'pour'.\n"
        "\n"
        "To fill Jug A, you 'fill A'.\n"
        "To empty Jug B, you 'empty B'.\n"
        "To pour the contents of Jug A into Jug B, you 'pour A->B'.\n"
        "All jugs are empty to begin with.\n"
        "\n"
        "The empty jugs hold this many litres of water: A:3, B:4, C:7\n"
        "And your target is: 5 litres.\n"
        "\n"
        "How do you defuse the bomb?\n"
        "\n"
        "Reply as a JSON-parsable list of moves which result in any of the jugs being filled with "
        "the target amount.\n"
    ),
    "gym/n_queens": (
        "Your job is to complete an n x n chess board with n Queens in total, such that no two "
        "attack each other.\n"
        "\n"
        "No two queens attack each other if they are not in the same row, column, or diagonal.\n"
        "\n"
        "You can place a queen by replacing an underscore (_) with a Q.\n"
        "\n"
        "Your output should be also a board in the same format as the input, with queens placed on "
        "the board by replacing underscores with the letter Q.\n"
        "\n"
        "Given the below board of size 6 x 6 your job is to place 4 queen(s) on the board such that "
        "no two queens attack each other.\n"
        "_ _ Q _ _ _\n"
        "_ _ _ _ _ _\n"
        "_ _ _ _ _ _\n"
        "_ _ _ _ Q _\n"
        "_ _ _ _ _ _\n"
        "_ _ _ _ _ _\n"
    ),
    "gym/rush_hour": (
        "Move the red car (AA) to the exit on the right.\n"
        "Specify moves in the format: 'F+1 K+1 M-1 C+3 H+2 ...'\n"
        "where the letter is the vehicle and +/- number is spaces to move right/left or down/up.\n"
        "Walls are marked with an 'x'. Cars cannot move through walls, and walls cannot be moved.\n"
        "A car oriented vertically can only move up and down, a car oriented horizontally can only "
        "move left and right.\n"
        "\n"
        "Board:\n"
        "...C..\n"
        "...C.E\n"
        "AA.D.E\n"
        "...D..\n"
        "..BB..\n"
        "......\n"
    ),
    "gym/sokoban": (
        "You are going to solve a 'sokoban' puzzle.\n"
        "\n"
        "* - The player\n"
        "% - The player on a goal\n"
        "@ - A box\n"
        "X - A goal\n"
        "$ - A box on a goal\n"
        "+ - A wall\n"
        "- - An empty position\n"
        "\n"
        "Your solution must be a string of characters, ex: LDURRUDL.\n"
        "\n"
        "Here is your puzzle:\n"
        "+ + + + +  \n"
        "+ % - - +  \n"
        "+ @ $ - +  \n"
        "+ - - - +  \n"
        "+ + + + +  \n"
        "\n"
    ),
}

MOVES = {
    "gym/countdown": ["51 + 93 = 144", "39 + 144 = 183", "183 - 14 = 169"],
    "gym/puzzle24": ["5 * 6 = 30", "30 - 6 = 24", "1 * 24 = 24"],
    "gym/mini_sudoku": [
        "row 2, column 4: 3",
        "row 3, column 3: 3",
        "row 3, column 2: 4",
        "row 3, column 4: 1",
        "row 4, column 2: 3",
    ],
    "gym/sudoku": [
        "row 1, column 8: 6",
        "row 6, column 2: 7",
        "row 6, column 8: 5",
        "row 8, column 5: 4",
        "row 9, column 1: 4",
    ],
    "gym/tower_of_hanoi": [
        "Move disk 1 from Peg 1 to Peg 3",
        "Move disk 2 from Peg 1 to Peg 2",
        "Move disk 1 from Peg 3 to Peg 2",
    ],
    "gym/knights_knaves": ["Daniel is a saint", "Ethan is a sinner", "Isabella is a saint"],
    "gym/zebra_puzzles": [
        "House 1: child alice",
        "House 1: bob",
        "House 2: arnold",
        "House 3: alice",
        "House 3: child billy",
        "House 2: child timothy",
    ],
    "gym/word_ladder": ["CAT", "COT", "COG"],
    "gym/jugs": ["fill B", "pour B->A", "pour B->C", "fill B", "pour B->C"],
    "gym/n_queens": ["row 3, column 2", "row 2, column 6", "row 5, column 1", "row 6, column 4"],
    "gym/rush_hour": ["B+2", "D+1", "E-1", "A+4"],
    "gym/sokoban": ["R", "R", "D", "D", "L", "L", "U"],
}

WORDS = "BAT CAT COT COG BOT BAG BOG"


def puzzle_task(kind: str) -> Task:
    """The task of the question of a domain."""
    data = {"words": WORDS} if kind == "gym/word_ladder" else {}
    return Task(domain=built_in("domains")[kind](), question=QUESTIONS[kind], data=data)
