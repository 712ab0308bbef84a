"""A domain with its simulated player: reach a number by doubling and by adding 1."""

import re

import tot_lab as tl
from tot_lab.models.simulated import Simulated

MOVES = re.compile(r"double|add 1")


class Climb(tl.Domain):
    """Reach the number of the question from `start` by doubling and by adding 1."""

    kind = "acme_climb"
    value_labels = {"sure": 1.0, "impossible": 0.0}

    start: int = 1
    """The number to begin with."""

    @classmethod
    def example_tasks(cls):
        return climb_tasks

    def reached(self, path):
        number = self.start
        for move in MOVES.findall(" ".join(path)):
            number = 2 * number if move == "double" else number + 1
        return number

    def position(self, task, path):
        moves = ", ".join(MOVES.findall(" ".join(path))) or "none"
        return f"{self.statement(task)}\nMoves: {moves}. Now {self.reached(path)}, target {target(task)}."

    def sample_prompt(self, task, path):
        return f"{self.position(task, path)}\nReply with the next move: double or add 1."

    def propose_prompt(self, task, path, count):
        return f"{self.position(task, path)}\nList {count} possible moves: double, add 1."

    def value_prompt(self, task, path):
        return f"{self.position(task, path)}\nCan the target still be reached? Reply sure or impossible."

    def answer_prompt(self, task, reasoning):
        return f"{self.position(task, [])}\nReply with all moves to the target, separated by commas."

    def read_sample(self, task, path, text):
        return next(iter(MOVES.findall(text)), None)

    def read_proposals(self, task, path, text):
        return MOVES.findall(text)

    def read_answer(self, task, text):
        return ", ".join(MOVES.findall(text)) or None

    def complete(self, task, path):
        return self.reached(path) == target(task)

    def state(self, task, path):
        return self.reached(path)

    def answer(self, task, path):
        return ", ".join(MOVES.findall(" ".join(path))) or None

    def solvable(self, task, path):
        return self.reached(path) <= target(task)

    def grade(self, task, answer):
        return float(self.reached([answer]) == target(task))


def target(task):
    return int(re.sub(r"[^0-9]", "", task.question)[:9] or 0)


def climb_tasks(count):
    """Make `count` of 3 tasks, from the easiest to the hardest."""
    if count not in (1, 2, 3):
        raise ValueError(f"count must be from 1 to 3: got {count!r}.")
    return [tl.Task(domain=Climb(), question=number, id=number) for number in ("3", "6", "20")[:count]]


class SimClimb(Simulated):
    """Plays `Climb`: its samples are random moves, its judgements and whole answers are right."""

    kind = "sim/acme_climb"

    def written(self, call, random):
        match = re.search(r"Now (\d+), target (\d+)\.\n(\w+ )", call.prompt)
        if match is None:
            return "I only play acme_climb."
        now, target = int(match[1]), int(match[2])
        if match[3] == "Can ":
            return "sure" if now <= target else "impossible"
        if match[3] == "List ":
            return "double, add 1"
        if "next move" in call.prompt:
            return random.choice(["double", "add 1"])
        moves = []
        while target > now:
            halved = target % 2 == 0 and target // 2 >= now
            moves.append("double" if halved else "add 1")
            target = target // 2 if halved else target - 1
        return ", ".join(reversed(moves))
