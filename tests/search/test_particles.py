"""Particle filtering and particle Gibbs: equal to their pseudo-code and to its-hub, and without bias."""

import json
import math
import operator
import subprocess
from collections import Counter
from random import Random
from statistics import fmean, stdev

import numpy as np
import pytest
from support import GOLDEN, run, wait
from support.its_hub import python_with_its_hub
from support.on_reward_trees import drive, path_of
from support.reward_trees import RecordedRandom, RewardTree

import tot_lab as tl
from tot_lab.core.records import Scored, Thought
from tot_lab.strategies.search.particle_filter import filter_particles, odds

THEIRS = json.loads((GOLDEN / "its_hub.json").read_text())
TREES = [RewardTree(seed, depth=1 + seed % 6, finishes=0.15, fails=0.1 * (seed % 2)) for seed in range(500)]


class OneFilter:
    """A search that is one filter, and keeps its final particles."""

    def __init__(self, count, reference=()):
        self.count, self.reference, self.final = count, reference, []

    def run(self, state):
        random = yield state.random_numbers()
        final = yield from filter_particles(state, random, self.count, self.reference)
        self.final = list(map(path_of, final))


# Against the pseudo-code, with the same uniform numbers.


class Naive:
    """Algorithms 1 and 2 of Puri et al. 2025 on particles that are paths."""

    def __init__(self, tree, random):
        self.tree, self.random, self.used, self.picks = tree, random, Counter(), []
        self.final = []

    def theta(self, particles):
        rewards = np.clip([max(self.tree.reward(path), 0) for path in particles], 1e-7, 1 - 1e-7)
        logits = np.log(rewards) - np.log(1 - rewards)
        weights = np.exp(logits - max(logits))
        return weights / weights.sum()

    def sample(self, particles, count):
        cumulative = np.cumsum(self.theta(particles))
        return [particles[np.searchsorted(cumulative, self.random.random(), "right")] for _ in range(count)]

    def transition(self, particles):
        pick = Counter(path for path in particles if not path or not self.tree.done(path))
        steps = {path: self.tree.steps(path, pick[path], self.used[path]) for path in pick}
        self.used += pick
        self.picks += [pick] if pick else []
        return [path if path not in pick else steps[path].pop(0) for path in particles if steps.get(path, 1)]

    def filter(self, count, reference=None):
        particles, t = self.transition([()] * count), 1
        while not all(map(self.tree.done, particles)):
            with_reference = particles if reference is None else [*particles, reference[:t]]
            particles = self.transition(self.sample(with_reference, count))
            t += 1
        particles = particles if reference is None else [*particles, reference]
        self.final += particles
        return particles

    def gibbs(self, count, iterations):
        particles = self.filter(count)
        for _ in range(iterations - 1):
            if not particles:
                return
            (reference,) = self.sample(particles, 1)
            particles = self.filter(count - 1, reference)


@pytest.mark.slow
def test_a_particle_filter_is_algorithm_1():
    for seed, tree in enumerate(TREES):
        naive, search = Naive(tree, Random(seed)), OneFilter(1 + seed % 7)
        assert Counter(naive.filter(1 + seed % 7)) == Counter(search_final(search, tree, Random(seed)))
        driven = drive(tl.searches.ParticleFilter(particles=1 + seed % 7), tree, Random(seed))
        assert driven.picks == naive.picks
        assert held(driven) == Counter(naive.final)


def held(driven):
    """How often the search holds each finished path."""
    return {path_of(id): count for id, count in driven.state.copies.items()}


def search_final(search, tree, random):
    drive(search, tree, random)
    return search.final


@pytest.mark.slow
def test_particle_gibbs_is_algorithm_2():
    for seed, tree in enumerate(TREES):
        count, iterations = 2 + seed % 5, 1 + seed % 3
        naive = Naive(tree, Random(seed))
        naive.gibbs(count, iterations)
        driven = drive(tl.searches.ParticleGibbs(particles=count, iterations=iterations), tree, Random(seed))
        assert driven.picks == naive.picks
        assert held(driven) == Counter(naive.final)


def test_the_decisions_are_recorded_with_their_weights():
    tree = RewardTree(5, depth=4, finishes=0.3)
    driven = drive(tl.searches.ParticleFilter(particles=6), tree, Random(1))
    assert len(driven.whys) > 2
    for pick, why in zip(driven.picks[1:], driven.whys[1:], strict=True):
        assert sum(terms["copies"] for terms in why.values()) == 6
        assert sum(terms["weight"] for terms in why.values()) == pytest.approx(1)
        assert pick == {path: why[path]["copies"] for path in pick}
        assert all(tree.done(path) or path in pick for path, terms in why.items() if terms["copies"])


@pytest.mark.slow
def test_what_is_not_drawn_is_pruned_and_a_reference_never_is():
    tree = RewardTree(2, depth=4, finishes=0.2)
    first = drive(tl.searches.ParticleFilter(particles=4), tree, Random(3))
    drawn = {path for why in first.whys for path, terms in why.items() if terms["copies"]}
    lost = {path for why in first.whys[1:] for path, terms in why.items() if not terms["copies"]}
    pruned = {path_of(node.id) for node in first.state.tree if node.state == "pruned"}
    assert lost
    assert pruned >= lost - drawn
    for seed in range(50):
        tree = RewardTree(seed, depth=4, finishes=0.2)
        driven = drive(tl.searches.ParticleGibbs(particles=4, iterations=4), tree, Random(seed))
        assert any(node.state != "pruned" for node in driven.state.tree if node.id in driven.state.closed)


# Against the authors' package: the same rewards and the same draws.


@pytest.mark.slow
def test_a_particle_filter_draws_what_its_hub_draws_step_by_step():
    steps = worse = 0
    for seed, theirs in THEIRS["filters"].items():
        seed, count = int(seed), 2 + int(seed) % 7
        tree, random, search = RewardTree(seed, 8, finishes=0.1), RecordedRandom(seed), OneFilter(count)
        drive(search, tree, random)
        *draws, last = [[int(place) for place in places] for places in theirs["drawn"].split()]
        final = [tuple(map(int, path)) for path in theirs["final"]]
        if random.drawn != [*draws, last]:
            # All particles were finished before the last draw. Algorithm 1 returns them.
            assert random.drawn == draws
            assert all(map(tree.done, search.final))
            search.final, before = [search.final[place] for place in last], search.final
            worse += max(map(tree.reward, final)) < max(map(tree.reward, before))
        assert search.final == final
        steps += len(random.drawn)
    assert steps >= 1000
    assert worse > 0  # the draw from finished particles loses the best one at times


def test_the_reference_weighs_what_its_thought_at_that_depth_does():
    """its-hub weighs it with its final reward at every depth."""
    for seed, theirs in THEIRS["gibbs"].items():
        naive = Naive(RewardTree(int(seed), depth=8, finishes=0.1), None)
        reference = tuple(map(int, theirs["reference"]))
        assert list(naive.theta([(3,), (4,), reference])) == pytest.approx(theirs["weights"], abs=1e-9)
    compared = 0
    for seed in range(20):
        tree = RewardTree(seed, depth=8, finishes=0.1)
        driven = drive(tl.searches.ParticleGibbs(particles=3), tree, Random(seed))
        _, second = (k for k, pick in enumerate(driven.picks) if () in pick)
        for why in driven.whys[second + 1 : second + 2]:
            weights = [terms["weight"] for terms in why.values()]
            assert {len(path) for path in why} == {1}
            assert weights == pytest.approx(list(Naive(tree, None).theta([*why])))
            compared += len(why) == 3
    assert compared > 10


@pytest.mark.proof
def test_the_file_holds_what_the_package_does(tmp_path):
    """In an environment of its own."""
    python = python_with_its_hub(tmp_path)
    script = subprocess.run([python, GOLDEN / "with_its_hub.py"], check=True, capture_output=True, text=True)
    assert json.loads(script.stdout) == THEIRS


# Closed truth.

CHANCES = (0.5, 0.3, 0.2)
"""The chance of each kind of step."""

LENGTH = 3
"""Steps of the longest paths."""


class Chances(RewardTree):
    """A tree whose steps are of three kinds, with known chances. Its rewards depend on the kinds."""

    def __init__(self, run, finishes):
        super().__init__(0, LENGTH, finishes)
        self.random, self.kinds = Random(f"{run} of {finishes}"), {(): ()}

    def kinds_of(self, path):
        if path not in self.kinds:
            self.kinds[path] = (*self.kinds_of(path[:-1]), *self.random.choices(range(3), CHANCES))
        return self.kinds[path]

    def done(self, path):
        return super().done(self.kinds_of(path))

    def reward(self, path):
        return 0.2 + 0.6 * super().reward(self.kinds_of(path))


class Truth:
    """The same tree, enumerated: its finished paths, their chances and their odds at each step."""

    def __init__(self, finishes):
        tree, paths = RewardTree(0, LENGTH, finishes), [()]
        self.finished = []
        for path in paths:
            if path and tree.done(path):
                self.finished.append(path)
            else:
                paths += [(*path, kind) for kind in range(3)]
        self.tree = tree

    def reward(self, path):
        return 0.2 + 0.6 * self.tree.reward(path)

    def odds(self, path):
        return self.reward(path) / (1 - self.reward(path))

    def weight(self, path, draws, odds=None):
        """The chance of `path`, times its odds in each of the draws."""
        weighed = (path[: min(step, len(path))] for step in range(1, draws + 1))
        return math.prod(CHANCES[kind] for kind in path) * math.prod(map(odds or self.odds, weighed))


def is_wanted(kinds):
    return kinds[-1] != 0


def deviation(values, truth):
    """How many standard errors the mean of `values` is from the truth."""
    return (fmean(values) - truth) / (stdev(values) / math.sqrt(len(values)))


@pytest.mark.slow
def test_the_weights_of_a_particle_filter_are_unbiased():
    """The estimates of the total weight, and of the weight of the wanted paths, over 2,000 filters."""
    truth, totals, wanted = Truth(0.3), [], []
    assert {len(path) for path in truth.finished} == {1, 2, 3}
    for seed in range(2000):
        tree, random, search = Chances(seed, 0.3), RecordedRandom(seed), OneFilter(4)
        drive(search, tree, random)
        draws = len(random.drawn)
        evidence = math.prod(fmean(weights) for weights in random.weights)
        final = [tree.kinds_of(path) for path in search.final]
        # Had it drawn on when all were finished, each would have been weighed again.
        rest = [truth.odds(kinds) ** (LENGTH - 1 - draws) for kinds in final]
        totals.append(evidence * fmean(rest))
        wanted.append(evidence * fmean(map(math.prod, zip(rest, map(is_wanted, final), strict=True))))
    exact = [truth.weight(path, LENGTH - 1) for path in truth.finished]
    assert abs(deviation(totals, sum(exact))) < 3
    assert abs(deviation(wanted, sum(map(operator.mul, exact, map(is_wanted, truth.finished))))) < 3
    by_score = sum(truth.weight(path, LENGTH - 1, odds=truth.reward) for path in truth.finished)
    assert abs(deviation(totals, by_score)) > 3


@pytest.mark.nightly
def test_particle_gibbs_leaves_the_distribution_of_its_reference_as_it_is():
    """A reference of the exact distribution, then one filter beside it, 2,000 times."""
    truth, random, found = Truth(0), Random(7), []
    exact = [truth.weight(path, LENGTH) for path in truth.finished]

    class Beside:
        def __init__(self, tree, kinds):
            self.tree, self.kinds = tree, kinds

        def run(self, state):
            ids = ["0"]
            for step in range(1, LENGTH + 1):
                ids.append(f"{ids[-1]}.99")
                self.tree.kinds[path_of(ids[-1])] = self.kinds[:step]
                state.tree.add(Thought(ids[-1], ids[-2], ""))
                state.tree.add(Scored(ids[-1], self.tree.reward(path_of(ids[-1]))))
            state.closed.add(ids[-1])
            final = yield from filter_particles(state, random, 3, ids[1:])
            (drawn,) = random.choices(final, odds(state, final))
            found.append(self.tree.kinds_of(path_of(drawn)))

    for seed in range(2000):
        tree = Chances(seed, 0)
        drive(Beside(tree, *random.choices(truth.finished, exact)), tree)
    share = sum(map(operator.mul, exact, map(is_wanted, truth.finished))) / sum(exact)
    assert abs(deviation([float(is_wanted(kinds)) for kinds in found], share)) < 3


@pytest.mark.parametrize("search", [tl.searches.ParticleFilter(), tl.searches.ParticleGibbs()])
def test_a_run_replays_and_another_repeat_draws_others(search):
    strategy = tl.TreeOfThoughts(search=search, stop=tl.Stop(solved=None, depth=4))
    made = [run(strategy, repeat=repeat) for repeat in (0, 0, 1)]
    assert made[0].events == made[1].events
    assert made[0].events != made[2].events
    assert wait(made[0].replay()).identical
