"""The searches that the package `treequest` has too make the same decisions, given its scores and draws.

`golden/treequest.json` holds the steps of treequest 0.3.3. `make proof` has them made again by the package,
in an environment of its own.
"""

import json
import math
import subprocess
import venv

import pytest
from support import GOLDEN
from support.as_treequest import parents_of, steps_with_two_models
from support.by_hand import drive
from treequest_steps import SEEDS, STEPS, Recorded, scores_of

import tot_lab as tl
from tot_lab.strategies.search.statistics import Statistics

STEPS_OF = json.loads((GOLDEN / "treequest.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("posterior", ["gaussian", "beta"])
def test_adaptive_branching_makes_the_decisions_of_its_authors(posterior):
    for seed, steps in zip(SEEDS, STEPS_OF[f"ab_mcts_a {posterior}"], strict=True):
        random = Recorded(seed)
        search = tl.searches.ABMCTSA(posterior=posterior, iterations=STEPS)
        parents, _ = parents_of(search, seed, 20, random=random)
        assert parents == steps["parents"]
        assert random.used == steps["draws"]


@pytest.mark.slow
@pytest.mark.parametrize("posterior", ["gaussian", "beta"])
def test_adaptive_branching_chooses_the_models_that_its_authors_choose(posterior):
    for seed, golden in zip(SEEDS, STEPS_OF[f"ab_mcts_a {posterior}, two actions"], strict=True):
        random = Recorded(seed)
        search = tl.searches.ABMCTSA(posterior=posterior, iterations=STEPS)
        steps, made = steps_with_two_models(search, seed, random=random)
        assert steps == golden["steps"]
        assert random.used == golden["draws"]
        for (pick, _), (_, model) in zip(made, steps, strict=True):
            terms = pick.why[pick.parents[0]]
            assert terms["member"] == model == max("ab", key=lambda name, t=terms: t[f"{name} drawn"])


def agree(name, search, **options):
    """Check that `search` has the parents of the golden steps, but for an expansion that these cut short."""
    for seed, steps in zip(SEEDS, STEPS_OF[name], strict=True):
        parents, _ = parents_of(search, seed, picks=STEPS, **options)
        assert parents[:STEPS] == steps


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "exploration", "branch"),
    [("mcts", math.sqrt(2), 3), ("mcts 2 samples, exploration 0.3", 0.3, 2)],
)
def test_uct_makes_the_decisions_of_the_package_without_its_priors(name, exploration, branch):
    agree(name, tl.MCTS(exploration=exploration), branch=branch)


@pytest.mark.slow
def test_the_package_weighs_the_exploration_of_uct_by_a_softmax_of_the_scores_of_siblings(monkeypatch):
    """Kocsis & Szepesvári 2006 have no such factor, and neither has ours. With it, all steps agree."""
    given = {}
    plain = Statistics.terms

    def weighted(statistics, id, parent, exploration):
        value, bonus = plain(statistics, id, parent, exploration)
        siblings = [math.exp(score) for other, score in given.items() if other.rpartition(".")[0] == parent]
        return value, bonus * math.exp(given[id]) / sum(siblings)

    for seed, steps in zip(SEEDS, STEPS_OF["mcts with priors"], strict=True):
        assert parents_of(tl.MCTS(), seed, picks=STEPS)[0][:STEPS] != steps
        scores = scores_of(seed)
        given.clear()
        with monkeypatch.context() as patch:
            patch.setattr(Statistics, "terms", weighted)
            search = tl.MCTS()
            _, state = drive(search, lambda id, s=scores: given.setdefault(id, next(s)), picks=STEPS)
        number = {node.id: node.order - 1 for node in state.tree}
        assert [number[node.parent] for node in state.tree if node.parent is not None][:STEPS] == steps


def test_best_first_makes_the_decisions_of_the_package():
    """Where scores are equal, ours takes the deeper thought and the package the shallower one."""
    agree("best_first", tl.BestFirst())


def test_beam_search_makes_the_decisions_of_the_package_below_its_only_first_thought():
    """Yao et al. 2023, Algorithm 1, makes k thoughts of the question. The package makes 1, and k of that."""
    for seed, steps in zip(SEEDS, STEPS_OF["beam_search"], strict=True):
        assert steps[:4] == [-1, 0, 0, 0]
        scores = scores_of(seed)
        next(scores)
        _, state = drive(tl.BeamSearch(width=2), lambda id, scores=scores: next(scores), picks=STEPS)
        number = {node.id: node.order for node in state.tree}
        ours = [number[node.parent] for node in state.tree if node.parent is not None]
        assert ours[: STEPS - 1] == steps[1:]


@pytest.mark.proof
def test_the_golden_steps_are_those_of_the_package(tmp_path):
    venv.create(tmp_path, with_pip=True)
    python = tmp_path / "bin" / "python"
    install = [python, "-m", "pip", "install", "-q", "treequest==0.3.3"]
    done = subprocess.run(install, check=False, capture_output=True, text=True, timeout=600)
    if done.returncode:
        pytest.skip(f"treequest cannot be installed: {done.stderr[-200:]}")
    command = [python, GOLDEN / "treequest_steps.py"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    assert json.loads(printed) == STEPS_OF
