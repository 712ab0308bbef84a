"""Prints the steps of the searches of `treequest` 0.3 as the golden file `treequest.json`.

It runs in an environment of its own (`pip install treequest==0.3.3`); `test_treequest.py` makes one. Both
that package and tot_lab read the same scores and one list of uniform numbers, which are those of a seed.
"""

import json
import math
import random
import sys
from statistics import NormalDist

STEPS = 100
SEEDS = range(10)


class Recorded(random.Random):
    """Draws that are functions of one recorded list of uniform numbers.

    The functions are monotone in the number, but only rough approximations of the quantiles.
    """

    def __init__(self, seed):
        super().__init__(seed)
        self.used = 0

    def uniform_number(self):
        self.used += 1
        return min(max(self.random(), 1e-12), 1 - 1e-12)

    def gauss(self, mu=0.0, sigma=1.0):
        return mu + sigma * NormalDist().inv_cdf(self.uniform_number())

    def gammavariate(self, alpha, beta):  # Wilson & Hilferty 1931
        z = NormalDist().inv_cdf(self.uniform_number())
        return beta * alpha * max(1 - 1 / (9 * alpha) + z / (3 * math.sqrt(alpha)), 0.01) ** 3

    def betavariate(self, alpha, beta):
        one, other = self.gammavariate(alpha, 1.0), self.gammavariate(beta, 1.0)
        return one / (one + other)


def scores_of(seed, levels=10**9):
    """The score of each new thought, in order of generation. With few `levels`, many are equal."""
    dice = random.Random(f"scores {seed}")
    while True:
        yield dice.randrange(levels + 1) / levels


def steps_of(algorithm, scores, steps):
    """The parent of each thought that a search of treequest makes. -1 is the root, 0 the first thought."""
    state, parents = algorithm.init_tree(), []

    def generate(node_state):
        return len(parents), next(scores)

    for _ in range(steps):
        state, trial = algorithm.ask(state, ["sample"])
        parents.append(trial.node_to_expand)
        state = algorithm.tell(state, trial.trial_id, (len(parents), next(scores)))
    return parents


def actions_of(algorithm, scores, steps):
    """Parent and action of each thought, if there are two actions. Thoughts by `b` get half of the scores."""
    state, made = algorithm.init_tree(), []
    for _ in range(steps):
        state, trial = algorithm.ask(state, ["a", "b"])
        made.append([trial.node_to_expand, trial.action])
        score = next(scores) / (1 if trial.action == "a" else 2)
        state = algorithm.tell(state, trial.trial_id, (len(made), score))
    return made


def patched(draws):
    """Have the posteriors of treequest take their draws from `draws`."""
    from types import SimpleNamespace

    import numpy
    from treequest.algos.ab_mcts_a import prob_state

    prob_state.invgamma = SimpleNamespace(rvs=lambda a, scale: scale / draws.gammavariate(a, 1.0))
    prob_state.beta = SimpleNamespace(rvs=draws.betavariate)
    numpy.random.normal = draws.gauss


def adaptive(posterior, seed):
    import treequest

    draws = Recorded(seed)
    patched(draws)
    parents = steps_of(treequest.ABMCTSA(dist_type=posterior), scores_of(seed, 20), STEPS)
    return {"parents": parents, "draws": draws.used}


def adaptive_with_two_actions(posterior, seed):
    import treequest

    draws = Recorded(seed)
    patched(draws)
    steps = actions_of(treequest.ABMCTSA(dist_type=posterior), scores_of(seed, 20), STEPS)
    return {"steps": steps, "draws": draws.used}


def ucts(samples, exploration, *, priors):
    """Steps of UCT, with the priors that weigh its exploration term or without them."""
    import treequest

    made = []
    for seed in SEEDS:
        search = treequest.StandardMCTS(samples_per_action=samples, exploration_weight=exploration)
        if not priors:
            search._update_priors = lambda state, parent: None
        made.append(steps_of(search, scores_of(seed), STEPS))
    return made


def main():
    import treequest
    from treequest.algos.best_first_search import BestFirstSearchAlgo

    rows = []
    golden = {f"ab_mcts_a {p}": [adaptive(p, seed) for seed in SEEDS] for p in ("gaussian", "beta")}
    for p in ("gaussian", "beta"):
        golden[f"ab_mcts_a {p}, two actions"] = [adaptive_with_two_actions(p, seed) for seed in SEEDS]
    golden["mcts"] = ucts(3, math.sqrt(2), priors=False)
    golden["mcts 2 samples, exploration 0.3"] = ucts(2, 0.3, priors=False)
    golden["mcts with priors"] = ucts(3, math.sqrt(2), priors=True)
    best_first = BestFirstSearchAlgo(num_samples=3)
    golden["best_first"] = [steps_of(best_first, scores_of(seed), STEPS) for seed in SEEDS]
    breadth_first = treequest.TreeOfThoughtsBFSAlgo(breadth_limit=2, size_limit=3)
    golden["beam_search"] = [steps_of(breadth_first, scores_of(seed), STEPS) for seed in SEEDS]
    for name, runs in golden.items():
        rows.append(f' "{name}": [\n' + ",\n".join(f"  {json.dumps(run)}" for run in runs) + "\n ]")
    sys.stdout.write("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main()
