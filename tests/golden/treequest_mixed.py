"""Prints what `ABMCTSM` of `treequest` 0.3 does as the golden file `treequest_mixed.json`.

It runs in an environment of its own (`pip install "treequest[abmcts-m]==0.3.3"`), which `test_ab_mcts_m.py`
makes.

- `steps`: the decisions of the package, where it takes the draws from the posterior from `Dense` instead of
  NUTS. Both sides read the same scores and the same random numbers. The package looks for the name of an
  action among the codes of the actions and never finds it, so that it draws for each action as for one that
  has no thoughts yet. `mended` steps are those with the names in place of the codes.
- `fits`: the posterior that NUTS samples for four trees, and how often the package then chooses what.
"""

import json
import sys
from collections import Counter
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
from scipy.stats import halfnorm
from treequest_steps import SEEDS, Recorded, actions_of, scores_of, steps_of

STEPS = 100
POINTS = 8
DRAWS, DECISIONS = 5_000, 5_000
ACTIONS = ["a", "b", "c"]

TREES = {
    "one thought": [(-1, "a", 0.8)],
    "three children": [
        *[(-1, "a", 0.31), (0, "a", 0.42), (0, "a", 0.25), (1, "a", 0.47), (-1, "a", 0.72), (4, "a", 0.58)],
        *[(-1, "a", 0.12), (5, "a", 0.81), (2, "a", 0.36)],
    ],
    "one large subtree": [
        *[(-1, "a", score) for score in (0.93, 0.55, 0.61, 0.18, 0.74, 0.5)],
        *[(0, "a", score) for score in (0.88, 0.97, 0.71, 0.83, 0.79, 0.92, 0.66, 0.9, 0.85, 0.99, 0.77)],
    ],
    "two of three actions": [
        *[(-1, "a", 0.2), (-1, "b", 0.65), (1, "a", 0.41), (1, "b", 0.77), (0, "b", 0.58), (-1, "a", 0.33)],
        *[(3, "b", 0.83), (2, "a", 0.27), (0, "a", 0.15), (4, "b", 0.49)],
    ],
}
"""Thoughts as parent (-1 is the root, 0 the first thought), action and score. The last tree has an action
without thoughts.
"""


class Dense:
    """The posterior over a grid of both standard deviations, by the joint distribution of all scores."""

    def __init__(self, groups, scores):
        between, within = (
            np.geomspace(0.001, 5 * scale, POINTS).reshape(shape)
            for scale, shape in ((0.2, (-1, 1, 1, 1)), (0.3, (1, -1, 1, 1)))
        )
        self.between, self.within, self.groups = between, within, np.array(groups, int)
        same = self.groups[:, None] == self.groups
        self.covariance = 0.2**2 + between**2 * same + within**2 * np.eye(len(scores))
        self.solved = np.linalg.solve(self.covariance, (np.array(scores, float) - 0.5)[:, None])[..., 0]
        logs = -(np.linalg.slogdet(self.covariance)[1] + self.solved @ (np.array(scores) - 0.5)) / 2
        chances = np.outer(self.chances(between.ravel(), 0.2), self.chances(within.ravel(), 0.3))
        self.weights = chances * np.exp(logs - logs.max())

    @staticmethod
    def chances(values, scale):
        edges = [0, *np.sqrt(values[:-1] * values[1:]), np.inf]
        return np.diff(halfnorm.cdf(edges, scale=scale))

    def draw(self, group, draws):
        """A draw of the next score of a group. -1 is a new group."""
        sums = np.cumsum(self.weights)
        place = np.unravel_index(np.searchsorted(sums, draws.random() * sums[-1]), self.weights.shape)
        between, within = float(self.between[place[0]].item()), float(self.within[0, place[1]].item())
        shared = 0.2**2 + between**2 * (self.groups == group)
        mean = 0.5 + shared @ self.solved[place]
        explained = shared @ np.linalg.solve(self.covariance[place], shared)
        return draws.gauss(mean, np.sqrt(0.2**2 + between**2 + within**2 - explained))


def stepped(seed, actions, mended):
    """Steps of the package with the draws of `Dense`."""
    import treequest
    from treequest.algos.ab_mcts_m import pymc_interface as module

    draws = Recorded(seed)

    class Interface(module.PyMCInterface):
        """Takes scores from `Dense`, given the observations that the package would fit."""

        def preprocess_observations_for_multiarm_bandit(self, observations):
            codes, scores, names = super().preprocess_observations_for_multiarm_bandit(observations)
            return names["action"] if mended else codes, scores, names

        def _build_model_impl(self, observations, action, is_prediction_model, is_prior_model=False):
            return self.fitted(self.preprocess_observations(observations, action), actions)

        def _build_model_for_multiarm_bandit(self, observations, is_prediction_model):
            return self.fitted(super().preprocess_observations_for_multiarm_bandit(observations), actions - 1)

        def fitted(self, observed, is_choice):
            groups, scores, coordinates = observed
            self.is_choice = is_choice
            if scores:
                self.names, self.posterior = next(iter(coordinates.values())), Dense(groups, scores)
            return nullcontext()

        def get_score(self, group):
            if group == "prior" or not self.is_choice:  # the only candidate needs no draw
                return 0.0
            return self.posterior.draw(-1 if group == "new" else self.names.index(group), draws)

    def first_action(actions):  # drawn like any other: the package has equal chances for it
        prior = Dense([], [])
        scores = {action: prior.draw(-1, draws) for action in actions}
        return max(scores, key=scores.get)

    of_group = SimpleNamespace(sel=lambda **coordinate: next(iter(coordinate.values())))
    predicted = SimpleNamespace(posterior_predictive=SimpleNamespace(y=of_group, y_new="new"))
    prior = SimpleNamespace(prior=SimpleNamespace(y="prior"))
    module.pm = SimpleNamespace(
        sample_prior_predictive=lambda **_: prior, sample_posterior_predictive=lambda *_, **__: predicted
    )
    module.sample_numpyro_nuts = lambda **_: None
    module.random = SimpleNamespace(choice=first_action)
    search = treequest.ABMCTSM(enable_pruning=False)
    search.pymc_interface = Interface(enable_pruning=False)
    run = steps_of if actions == 1 else actions_of
    return run(search, scores_of(seed, 20), STEPS)


def fit(rows):
    """What NUTS and the package make of a tree. Each model is fitted once, with many draws."""
    import arviz
    import treequest
    from treequest.algos.ab_mcts_m import pymc_interface as module

    pm, built, done = module.pm, {}, {}

    class Interface(module.PyMCInterface):
        def _build_model_impl(self, *args, is_prediction_model, **named):
            key = "child", is_prediction_model
            if key not in built:
                built[key] = super()._build_model_impl(*args, is_prediction_model, **named)
            return built[key]

        def _build_model_for_multiarm_bandit(self, observations, is_prediction_model):
            key = "action", is_prediction_model
            if key not in built:
                built[key] = super()._build_model_for_multiarm_bandit(
                    observations, is_prediction_model=is_prediction_model
                )
            return built[key]

    def once(function, **settings):
        def first(*args, **named):
            key = id(pm.modelcontext(None))
            if key not in done:
                done[key] = function(*args, **(named | settings | {"random_seed": 1}))
            return done[key]

        return first

    module.pm = SimpleNamespace(**vars(pm))
    module.pm.sample_posterior_predictive = once(pm.sample_posterior_predictive)
    nuts = module.sample_numpyro_nuts
    module.sample_numpyro_nuts = once(nuts, draws=DRAWS, tune=4000, target_accept=0.99)

    search = treequest.ABMCTSM(enable_pruning=False)
    search.pymc_interface = Interface(enable_pruning=False)
    actions = ["a"] if len({action for _, action, _ in rows}) == 1 else ACTIONS
    state = search.init_tree()
    for number, (parent, action, score) in enumerate(rows):
        trial = state.trial_store.create_trial(state.tree.get_node(parent), action)
        state = search.tell(state, trial.trial_id, (number, score))
    np.random.seed(0)
    choices = Counter()
    for _ in range(DECISIONS):
        node, action = search._select_child(state, state.tree.root, actions)
        choices[action or f"child {node.expand_idx}"] += 1
    module.pm, module.sample_numpyro_nuts = pm, nuts

    moments = {}
    for (kind, predicts), model in built.items():
        drawn = done[id(model)].posterior_predictive if predicts else done[id(model)].posterior
        for name in ("y", "y_new") if predicts else ("mu_alpha", "sigma_alpha", "sigma_y"):
            if name == "y":
                groups = drawn.y.dims[-1]
                named = {f"y {group}": drawn.y.sel({groups: group}) for group in drawn[groups].values}
            else:
                named = {name: drawn[name]}
            moments |= {f"{kind}: {each}": moments_of(arviz, named[each].values) for each in named}
    return {"moments": moments, "choices": dict(choices)}


def moments_of(arviz, draws):
    """Mean and standard deviation of the draws, each with its Monte Carlo error."""
    mean, sd = float(draws.mean()), float(draws.std())
    errors = [float(arviz.mcse({"x": each})["x"]) for each in (draws, (draws - mean) ** 2)]
    return [mean, errors[0], sd, errors[1] / (2 * sd)]


def main():
    fits = {name: fit(rows) for name, rows in TREES.items()}
    golden = {"points": POINTS, "trees": TREES, "fits": fits}
    rows = [f' "{name}": {json.dumps(value)}' for name, value in golden.items()]
    for name, *options in ("1 action", 1, False), ("2 actions", 2, False), ("2 actions, mended", 2, True):
        runs = ",\n".join(f"  {json.dumps(stepped(seed, *options))}" for seed in SEEDS)
        rows.append(f' "steps, {name}": [\n{runs}\n ]')
    sys.stdout.write("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main()
