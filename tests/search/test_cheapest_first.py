"""A* and Levin tree search: their order on random trees, and what their theorems promise."""

import json
import math
from fractions import Fraction
from random import Random

import pytest
from support import TASK, Scripted, run, wait

import tot_lab as tl
from tot_lab.core.records import Decided, Scored, Thought
from tot_lab.strategies.search.searches import Pick, SearchState

TREES = 500


class Paths(tl.domains.General):
    """A path is complete if its last step ends with `!`, and incomplete otherwise."""

    kind = "tests/paths"

    def complete(self, task, path):
        return path[-1].endswith("!")


TASK_OF_PATHS = tl.general("Which path?").model_copy(update={"domain": Paths()})


class Forest:
    """A random tree: the children of each thought, their scores, step costs, and which are complete."""

    def __init__(self, seed, depth=4, coarse=False):
        random = Random(seed)
        self.children, self.score, self.step, self.goals = {}, {"0": 1.0}, {"0": 0.0}, set()
        level = ["0"]
        for k in range(depth):
            below = []
            for parent in level:
                kids = [f"{parent}.{n}" for n in range(random.randint(0 if k else 1, 3))]
                self.children[parent] = kids
                for id in kids:
                    self.score[id] = random.choice([0.0, 0.25, 0.5, 1.0]) if coarse else random.random()
                    self.step[id] = random.choice([0, 1, 2]) if coarse else random.random()
                    goal = random.random() < 0.25
                    self.goals |= {id} if goal else set()
                    below += [] if goal else [id]
            level = below
        self.closed = self.goals | set(level)
        self.still = {}
        for id in reversed(self.score):  # the cheapest cost from `id` to a complete thought below it
            costs = [self.step[child] + self.still[child] for child in self.children.get(id, [])]
            self.still[id] = 0.0 if id in self.goals else min(costs, default=math.inf)

    def path(self, id):
        parts = id.split(".")
        return [".".join(parts[: k + 1]) for k in range(1, len(parts))]

    def cost(self, id):
        return sum(self.step[one] for one in self.path(id))

    def text(self, id):
        return f"{id}!" if id in self.goals else id


def driven(search, forest):
    """The ids that `search` expands on `forest`, in order, and the thought that it returns."""
    state = SearchState(TASK_OF_PATHS, "0", tl.TreeOfThoughts())
    state.tree.add(Thought("0", None, "root"))
    steps, expanded, value = search.run(state), [], None
    try:
        while True:
            pick = steps.send(value)
            assert isinstance(pick, Pick)
            (parent,) = pick.parents
            assert parent not in state.closed
            expanded.append(parent)
            json.dumps(pick.why, allow_nan=False)
            value = forest.children.get(parent, [])
            for id in value:
                state.tree.add(Thought(id, parent, forest.text(id)))
                state.tree.add(Scored(id, forest.score[id]))
                if id in forest.goals:
                    state.tree.add(Decided(id, "complete"))
                state.closed |= {id} & forest.closed
    except StopIteration as end:
        return expanded, end.value


def naive(forest, key):
    """Best-first search over a plain list; `key(id, born)` orders it. Dead ends are left out."""
    frontier, born, expanded = ["0"], {"0": 0}, []
    while frontier:
        best = min(frontier, key=lambda id: key(id, born[id]))
        frontier.remove(best)
        if best in forest.goals:
            return expanded, best
        expanded.append(best)
        for id in forest.children.get(best, []):
            born[id] = len(born)
            if (id in forest.goals or id not in forest.closed) and key(id, 0)[0] < math.inf:
                frontier.append(id)
    return expanded, None


def functions_of(forest, share=1.0):
    """The cost of a path, and an admissible heuristic: a share of the true cost to the end."""

    def cost(task, path):
        return forest.cost(path[-1].rstrip("!"))

    def heuristic(task, path):
        return share * forest.still[path[-1]]

    return cost, heuristic


@pytest.mark.slow
@pytest.mark.parametrize("coarse", [False, True])
def test_a_star_expands_as_its_pseudo_code_does(coarse):
    for seed in range(TREES):
        forest = Forest(seed, coarse=coarse)
        cost, heuristic = functions_of(forest, share=0.5)
        weight = (0, 1, 2.5)[seed % 3]

        def key(id, born, forest=forest, weight=weight):
            h = 0.0 if id in forest.closed or id == "0" else 0.5 * forest.still[id]
            return (math.inf if h == math.inf else forest.cost(id) + weight * h), h, born

        search = tl.searches.AStar(cost=cost, heuristic=heuristic, weight=weight)
        assert driven(search, forest) == naive(forest, key), seed


@pytest.mark.slow
def test_the_costs_by_score_and_by_steps():
    for seed in range(TREES):
        forest = Forest(seed, coarse=seed % 2 == 0)
        for cost in ("score", "steps"):
            for estimate in ("zero", "score"):

                def key(id, born, cost=cost, estimate=estimate, forest=forest):
                    steps = [1 if cost == "steps" else 1 - forest.score[one] for one in forest.path(id)]
                    known = id in forest.closed or id == "0" or estimate == "zero"
                    h = 0.0 if known else 1 - forest.score[id]
                    return sum(steps) + h, h, born

                assert driven(tl.searches.AStar(cost=cost, heuristic=estimate), forest) == naive(forest, key)


@pytest.mark.slow
def test_a_star_finds_the_cheapest_and_expands_no_more_than_uniform_cost():
    fewer = found = 0
    for seed in range(TREES):
        forest = Forest(seed)
        cost, heuristic = functions_of(forest, share=Random(seed).random())
        expanded, goal = driven(tl.searches.AStar(cost=cost, heuristic=heuristic), forest)
        uniform, other = driven(tl.searches.AStar(cost=cost), forest)
        best = min(map(forest.cost, forest.goals), default=None)
        assert goal == other
        assert (goal is None) if best is None else forest.cost(goal) == best
        assert set(expanded) <= set(uniform)
        found += goal is not None
        fewer += len(expanded) < len(uniform)
    assert found > TREES / 2
    assert fewer > TREES / 4  # the heuristic was of use, so the comparison can fail


@pytest.mark.slow
def test_a_weight_costs_at_most_that_factor():
    dearer = 0
    for seed in range(TREES):
        forest = Forest(seed)
        cost, heuristic = functions_of(forest)
        weight = 1 + 4 * Random(seed).random()
        _, goal = driven(tl.searches.AStar(cost=cost, heuristic=heuristic, weight=weight), forest)
        if goal is not None:
            best = min(map(forest.cost, forest.goals))
            assert best <= forest.cost(goal) <= weight * best
            dearer += forest.cost(goal) > best
    assert dearer > 5  # so the upper bound was tested


def probability(forest, id):
    """The exact probability of a path under the scores shared among siblings."""
    product = Fraction(1)
    for one in forest.path(id):
        siblings = forest.children[one.rpartition(".")[0]]
        scores = [Fraction(forest.score[sibling]) for sibling in siblings]
        share = Fraction(forest.score[one]) / sum(scores) if sum(scores) else Fraction(1, len(scores))
        product *= share
    return product


@pytest.mark.slow
@pytest.mark.parametrize("coarse", [False, True])
def test_levin_expands_as_its_pseudo_code_does(coarse):
    for seed in range(TREES):
        forest = Forest(seed, coarse=coarse)

        def key(id, born, forest=forest):
            share = probability(forest, id)
            return (len(id.split(".")) / share if share else math.inf), born

        assert driven(tl.searches.Levin(), forest) == naive(forest, key), seed


@pytest.mark.slow
def test_levin_expands_at_most_depth_by_probability_thoughts():
    found = 0
    for seed in range(TREES):
        forest = Forest(seed, depth=6)
        expanded, goal = driven(tl.searches.Levin(), forest)
        if goal is not None:
            found += 1
            bounds = [len(id.split(".")) / probability(forest, id) for id in forest.goals]
            assert len(expanded) + 1 <= min(bounds)
    assert found > TREES / 2


@pytest.mark.slow
def test_levin_compares_deep_paths_whose_probability_is_no_longer_a_float():
    """Both chains have probabilities below 1e-308; the second is more probable at each step."""
    forest = Forest(0)
    forest.children = {"0": ["0.0", "0.1"]}
    forest.score = {"0": 1.0, "0.0": 0.5, "0.1": 0.5}
    tips = ["0.0", "0.1"]
    for _ in range(900):
        for k, tip in enumerate(tips):
            forest.children[tip] = [f"{tip}.0", f"{tip}.1"]
            forest.score |= {f"{tip}.0": 0.3 + 0.1 * k, f"{tip}.1": 0.7 - 0.1 * k}
            tips[k] = f"{tip}.0"
    forest.goals = set(tips)
    forest.closed = {*tips} | {id for id in forest.score if id.endswith(".1") and id.count(".") > 1}
    expanded, goal = driven(tl.searches.Levin(), forest)
    assert goal == tips[1]
    assert len(expanded) < 2 * 901


# In a whole run.


def test_the_answer_is_the_thought_that_the_search_found():
    """It is not the thought with the best score."""
    scores = {"cheap!": 0.3, "dear!": 0.9}

    def model(call):
        if call.purpose == "sample":
            return [*scores][call.sample_index]
        return f"score: {next(score for text, score in scores.items() if text in call.prompt)}"

    def cost(task, path):
        return 1 if path[-1] == "cheap!" else 2

    search = tl.TreeOfThoughts(
        propose=tl.Sample(count=2), search=tl.searches.AStar(cost=cost), stop=tl.Stop(solved=None)
    )
    made = run(search, TASK_OF_PATHS, Scripted(model))
    assert (made.answer, made.stop_reason, made.score) == ("cheap!", "answered", 0.3)
    assert made.tree["0.0"].state == "answer"
    assert wait(made.replay()).identical


def test_a_search_that_returns_no_thought_of_its_tree_is_an_error():
    def search(state):
        yield tl.Pick([state.root])
        return "0.9"

    with pytest.raises(ValueError, match=r"the id of a thought, .* or None: got '0\.9'"):
        run(tl.TreeOfThoughts(search=search))


@pytest.mark.parametrize("wrong", [-1, math.nan, "3", None, True])
def test_a_cost_that_is_no_number_is_an_error(wrong):
    def cost(task, path):
        return wrong

    with pytest.raises(ValueError, match="must return a number of at least 0"):
        run(tl.TreeOfThoughts(search=tl.searches.AStar(cost=cost)), TASK)
