"""Recorded trees of replies: what a model writes next, and what a reward model says. Needs no package."""

from random import Random
from typing import NamedTuple

SEPARATOR = "\n\n"

SEPARATED, ENDED, CUT = "separated", "ended", "cut"
"""How a reply ends: at the separator, with the end of the sequence, or at the most tokens of a call."""


def begun(steps):
    """The reply so far, after `steps`."""
    return "".join(step + SEPARATOR for step in steps)


class ReplyTree:
    """What a model replies on one problem, and the rewards of its steps.

    A reply depends on the text so far and on the number of the sample alone. Equal steps are frequent, so
    that thoughts with equal texts ask for several samples of one request.

    Args:
        seed: Number of the tree.
        longest: The most steps of a solution without `odd` replies.
        ends: Probability that a shorter solution ends. With 0 all are equally long.
        odd: Probability of a reply that the published searches treat in different ways.
    """

    def __init__(self, seed, longest=5, ends=0.2, odd=0.0):
        self.seed, self.longest, self.ends, self.odd = seed, longest, ends, odd

    def reply(self, text, sample):
        """The next step after `text`, and how the reply ends."""
        random = Random(f"{self.seed} {sample} {text}")
        number = text.count(SEPARATOR) + 1
        step = f"Step {number}: take {random.randrange(6)}."
        box = f"So the answer is $\\boxed{{{random.randrange(4)}}}$."
        if random.random() < self.odd:
            return random.choice(
                [
                    (f"It is {random.randrange(4)}", ENDED),
                    (box, SEPARATED),
                    (f"A part is \\boxed{{{random.randrange(4)}}}.\nWe go on with it.", SEPARATED),
                    (step[:-1], CUT),
                    (box, CUT),
                    ("", ENDED),
                    ("", SEPARATED),
                ]
            )
        ends = number >= self.longest or random.random() < self.ends
        return (box, ENDED) if ends else (step, SEPARATED)

    def rest(self, text, sample):
        """The steps after `text` of a reply that no separator ends, and how it ends."""
        steps, end = [], SEPARATED
        while end == SEPARATED and len(steps) < 20:
            step, end = self.reply(text + begun(steps), 0 if steps else sample)
            steps.append(step)
        return steps, end

    def rewards(self, steps):
        """The rewards of those steps that are not empty. Each depends on the steps before it as well."""
        steps = [step for step in steps if step] or [""]
        return [round(Random(f"{self.seed} {steps[: k + 1]}").random(), 6) for k in range(len(steps))]


class Case(NamedTuple):
    """A recorded tree, and the settings of the searches on it.

    Attributes:
        tree: The replies. A fourth of the trees has solutions of one length, two fifths have odd replies.
        width: Thoughts kept in a beam, or subtrees.
        count: Steps proposed for each.
        depth: The most steps.
        aggregate: How the rewards of the steps become a score.
    """

    tree: ReplyTree
    width: int
    count: int
    depth: int
    aggregate: str


def case(number):
    """One of the recorded trees."""
    random = Random(f"case {number}")
    odd = random.choice([0, 0, 0, 0.1, 0.1])
    tree = ReplyTree(number, random.randint(3, 6), random.choice([0, 0.1, 0.2, 0.3]), odd)
    width, count, depth = random.randint(1, 5), random.randint(1, 5), random.choice([4, 7, 7, 7, 7])
    return Case(tree, width, count, depth, random.choice(["last", "min", "prod"]))


class Samples:
    """Hands out the samples of each request, and remembers what was asked for at each depth.

    Args:
        by_thought: Whether the copies of one thought take their samples together. Otherwise the requests of
            a batch take them in their order. It matters only between different thoughts with equal texts.
    """

    def __init__(self, by_thought=True):
        self.by_thought, self.used, self.levels = by_thought, {}, []

    def take(self, texts, thoughts):
        """The number of the sample for each request of a batch, whose text goes on from one of `thoughts`."""
        firsts = {}
        for place, thought in enumerate(thoughts):
            firsts.setdefault(thought, place)
        places = range(len(texts))
        if self.by_thought:
            places = sorted(places, key=lambda place: firsts[thoughts[place]])
        taken = [0] * len(texts)
        for place in places:
            taken[place] = self.used.get(texts[place], 0)
            self.used[texts[place]] = taken[place] + 1
        self.levels.append(sorted(zip(texts, taken, strict=True)))
        return taken
