"""Random trees with a reward for each path. A path is a tuple of child numbers. Needs no package."""

from random import Random


class RewardTree:
    """A random tree: the reward of each path, and which paths are finished, lost or unreadable.

    Args:
        seed: Seed of the tree.
        depth: The most steps of a path.
        finishes: Probability that a shorter path is finished.
        fails: Probability that a step is lost, and that a reward cannot be read.
        decimals: Decimals of the rewards. Few of them make ties.
    """

    def __init__(self, seed, depth=5, finishes=0.15, fails=0.0, decimals=None):
        self.seed, self.depth, self.finishes, self.fails, self.decimals = (
            seed,
            depth,
            finishes,
            fails,
            decimals,
        )

    def _uniform(self, what, path):
        return Random(f"{self.seed} {what} {path}").random()

    def done(self, path):
        return len(path) >= self.depth or self._uniform("done", path) < self.finishes

    def lost(self, path):
        return self._uniform("lost", path) < self.fails

    def reward(self, path):
        """The reward, -1 if it cannot be read."""
        if self._uniform("unreadable", path) < self.fails:
            return -1.0
        reward = self._uniform("reward", path)
        return reward if self.decimals is None else round(reward, self.decimals)

    def steps(self, path, count, first=0):
        """The next `count` paths, without the lost ones."""
        paths = [(*path, number) for number in range(first, first + count)]
        return [step for step in paths if not self.lost(step)]


def candidates(seed):
    """Random finished answers, each with its reward. Some answers are equal."""
    random = Random(seed)
    return [(random.choice("abcd"), random.random()) for _ in range(1 + seed % 9)]


class RecordedRandom(Random):
    """A generator that records the places that `choices` draws (`drawn`), and from what (`weights`)."""

    def __init__(self, seed=None):
        super().__init__(seed)
        self.drawn, self.weights = [], []

    def choices(self, population, weights=None, *, k=1):
        places = super().choices(range(len(population)), weights, k=k)
        self.drawn.append(places)
        self.weights.append([float(weight) for weight in weights])
        return [population[place] for place in places]
