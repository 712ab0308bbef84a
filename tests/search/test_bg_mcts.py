"""Budget-guided MCTS: against a second implementation of the paper, and what the budget changes."""

import math
import statistics
from random import Random

import pytest
from support import TASK, run, wait
from support.by_hand import drive
from support.steering import check_graft, check_prune, check_rescore

import tot_lab as tl
from tot_lab.core.protocol import Budget
from tot_lab.core.records import Note
from tot_lab.strategies.search.bg_mcts import share_left


def naive(score, budget, first, picks, c, kappa, lam, closed):
    """The thoughts that get children, by the equations of the paper, from the definition of each term."""
    q, children, parents = {}, {"0": []}, []

    def below(s):
        return [x for x in q if f"{x}.".startswith(f"{s}.")]

    for _ in range(picks):
        rho = max(1 - len(q) / budget, 0)
        answers = [x.count(".") for x in q if closed(x)]
        d_ans = statistics.fmean(answers) if answers else max((x.count(".") for x in q), default=1)
        p = "0"
        while children[p]:
            values = [q[s] for s in children[p]]
            generate = statistics.fmean(values) + lam * rho * statistics.pvariance(values)
            chosen, most = None, -math.inf
            for s in children[p]:
                m_s, m_p = len(below(s)), len(below(p))
                w = sum(q[x] + kappa * (1 - rho) * x.count(".") / d_ans for x in below(s))
                prior = math.exp(q[s]) / sum(math.exp(value) for value in values)
                puct = w / m_s + rho * c * prior * math.sqrt(math.log(m_p) / m_s)
                if puct > most and not closed(s):
                    chosen, most = s, puct
            if generate >= most:
                break
            p = chosen
        parents.append(p)
        for _ in range(1 if children[p] else first):
            child = f"{p}.{len(children[p])}"
            q[child] = score(child)
            children[p].append(child)
            children[child] = []
    return parents


def spent(budget):
    """Answers what is left of a budget of one token per thought."""
    return lambda state: Budget(output_tokens=max(budget - (len(state.tree) - 1), 0), seconds=None)


@pytest.mark.nightly
def test_it_decides_by_the_equations_of_the_paper_on_500_random_trees():
    shapes = set()
    for seed in range(500):
        dice, numbers = Random(seed), {}
        budget, first, picks = dice.randint(5, 40), dice.randint(1, 3), dice.randint(1, 20)
        depth, c, kappa, lam = (
            dice.randint(2, 6),
            dice.choice([0.0, 0.5, math.sqrt(2)]),
            dice.random(),
            dice.random(),
        )

        def score(id, dice=dice, numbers=numbers):
            return numbers.setdefault(id, dice.random())

        search = tl.searches.BGMCTS(exploration=c, completion=kappa, widening=lam, iterations=picks)
        made, state = drive(search, score, branch=first, depth=depth, left=spent(budget))
        parents = naive(
            score, budget, first, picks, c, kappa, lam, lambda id, depth=depth: id.count(".") >= depth
        )
        assert [pick.parents[0] for pick, _ in made] == parents
        shapes.add((len(state.tree), max(node.depth for node in state.tree)))
    assert len(shapes) > 50


def shape(budget, picks=60):
    """The mean depth of thoughts made in the first and the last third of a search."""
    depths = []
    for seed in range(20):
        dice = Random(seed)
        search = tl.searches.BGMCTS(iterations=picks)
        made, state = drive(
            search, lambda id, dice=dice: dice.random(), branch=2, depth=8, left=spent(budget)
        )
        order = [state.tree[id].depth for _, ids in made for id in ids]
        depths.append(
            (statistics.fmean(order[: len(order) // 3]), statistics.fmean(order[-len(order) // 3 :]))
        )
    return [statistics.fmean(column) for column in zip(*depths, strict=True)]


@pytest.mark.slow
def test_it_is_wide_while_the_budget_lasts_and_deep_when_it_runs_out():
    first, last = shape(70)
    _, rich = shape(10**6)
    assert last > first + 1
    assert last > rich + 1


@pytest.mark.parametrize(
    ("left", "whole", "share"),
    [
        (Budget(), Budget(), 1.0),
        (Budget(calls=3), Budget(calls=12), 0.25),
        (Budget(calls=9, tokens=100), Budget(calls=12, tokens=1000), 0.1),
        (Budget(usd=0.0), Budget(usd=0.0), 0.0),
        (Budget(calls=20), Budget(calls=12), 1.0),  # a person has raised it
    ],
)
def test_the_scarcest_limit_counts(left, whole, share):
    assert share_left(left, whole) == share


def test_a_run_knows_what_is_left_of_its_budget_and_records_it():
    search = tl.TreeOfThoughts(search=tl.searches.BGMCTS(), stop=tl.Stop(solved=None, depth=5))
    made = run(search, budget=tl.Budget(calls=40))
    picked = [e.data for e in made.events if isinstance(e, Note) and e.name == "tot.picked"]
    left = [data["why"]["0"]["budget left"] for data in picked]
    assert left[0] == 1.0
    assert left[1] == (40 - 6) / 40
    assert left == sorted(left, reverse=True)
    assert left[-1] < 0.2
    assert all(list(data["why"])[-1] == data["parents"][0] for data in picked)
    assert "generate" in picked[-1]["why"]["0"]
    assert wait(made.replay()).identical
    assert made.usage.calls <= min(40, search.max_calls(TASK))


def test_a_changed_score_counts_as_if_the_evaluator_had_given_it():
    dice, numbers = Random(2), {}

    def score(id):
        return numbers.setdefault(id, dice.random())

    def terms(score, rescore=None):
        search = tl.searches.BGMCTS(iterations=30)
        made, _ = drive(search, score, branch=2, depth=5, left=spent(50), rescore=rescore)
        return [(pick.parents[0], dict(pick.why)) for pick, _ in made]

    id, number = "0.0", 12
    usual = terms(score)
    new = numbers[id] + 1e-6
    changed, rescored = (
        terms(lambda other: new if other == id else score(other)),
        terms(score, {number: {id: new}}),
    )
    for (one, whys), (other, expected) in zip(rescored[number:], changed[number:], strict=True):
        assert one == other
        for node, terms_of in whys.items():
            assert terms_of == pytest.approx(expected[node], rel=1e-12)
    assert rescored[number:] != usual[number:]


def test_complete_thoughts_are_not_expanded_and_a_thought_with_none_left_is_widened():
    made, state = drive(tl.searches.BGMCTS(iterations=40), lambda id: 0.5, branch=2, depth=1, left=spent(100))
    assert [pick.parents for pick, _ in made] == [["0"]] * 40  # the driver refuses closed thoughts
    assert len(state.tree) == 1 + 2 + 39


@pytest.mark.parametrize("check", [check_prune, check_rescore, check_graft])
def test_a_person_steers_it_as_any_search(check):
    check(tl.searches.BGMCTS(iterations=15))
