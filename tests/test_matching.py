"""Methods at matched cost: the scale at which each spends the same, found without a call."""

import pytest
from support import Scripted, wait

import tot_lab as tl

SEARCH = tl.TreeOfThoughts(search=tl.BeamSearch(width=2), stop=tl.Stop(solved=None, depth=4))
METHODS = {
    "vote": (tl.SelfConsistency(), "attempts"),
    "best of": (tl.BestOf(strategy=tl.ChainOfThought()), "attempts"),
    "beam": (SEARCH, "search.width"),
    "mcts": (SEARCH.with_(search="mcts"), "search.iterations"),
    "nodes": (SEARCH.with_(search="best_first"), "stop.nodes"),
}
TASK = tl.general("?")


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("calls", [24, 37, 60, 200])
def test_the_scale_is_the_largest_that_the_amount_allows(name, calls):
    strategy, path = METHODS[name]
    bounds = {scale: strategy.with_({path: scale}).max_calls(TASK) for scale in range(1, 300)}
    most = max(bound for bound in bounds.values() if bound <= calls)
    smallest = next(scale for scale, bound in bounds.items() if bound == most)
    (matched,) = tl.match({name: strategy}, calls=calls).values()
    assert matched == strategy.with_({path: smallest})


def test_a_search_whose_whole_tree_fits_has_no_limit_of_thoughts():
    search = METHODS["nodes"][0].with_({"stop.nodes": 30})
    (matched,) = tl.match({"nodes": search}, calls=10_000).values()
    assert matched.stop.nodes is None


def test_a_method_without_a_scale_stays_as_it_is():
    assert tl.match({"one": "one_answer"}, calls=50) == {"one": tl.OneAnswer()}


def test_a_method_that_costs_more_at_any_scale_is_named():
    with pytest.raises(ValueError, match=r"'beam' may make 24 calls at search.width=1, .* 10 calls"):
        tl.match({"vote": tl.SelfConsistency(), "beam": SEARCH}, calls=10)


def test_a_method_without_a_bound_is_named():
    def endless(state):
        while True:
            yield tl.Pick([state.root])

    with pytest.raises(ValueError, match="'endless' has no bound"):
        tl.match({"endless": tl.TreeOfThoughts(search=endless)}, calls=10)


@pytest.mark.parametrize("amounts", [{}, {"calls": 10, "tokens": 100}])
def test_there_is_exactly_one_amount(amounts):
    with pytest.raises(ValueError, match="exactly one of calls=, tokens= and usd="):
        tl.match({"vote": tl.SelfConsistency()}, **amounts)


def test_tokens_need_recorded_runs():
    with pytest.raises(ValueError, match="tokens= needs recorded runs"):
        tl.match({"vote": tl.SelfConsistency()}, tokens=1000)


def test_tokens_of_recorded_runs_give_the_scale_and_a_new_sweep_spends_that_much():
    lab = tl.Lab(tl.sim.SimGame24(skill=0.3, seed=3), runs=None)
    methods = {"vote": tl.SelfConsistency(attempts=3), "beam": SEARCH.with_(propose="propose")}
    tasks = tl.game24_tasks(4)
    first = wait(lab.sweep(methods, tasks))
    matched = tl.match(methods, tokens=9_000, runs=first)
    assert matched["vote"].attempts > 3
    spent = wait(lab.sweep(matched, tasks)).df()
    spent["tokens"] = spent["input_tokens"] + spent["output_tokens"]
    for _, tokens in spent.groupby("setting", observed=True)["tokens"]:
        assert 6_000 < tokens.mean() <= 9_900


def test_use_is_that_of_the_same_method_alone():
    lab = tl.Lab(Scripted(), runs=None)
    runs = [wait(lab.run(tl.SelfConsistency(attempts=n), TASK)) for n in (2, 4)]
    assert tl.match({"vote": tl.SelfConsistency()}, calls=8, runs=runs)["vote"].attempts == 8
    with pytest.raises(ValueError, match="no run of 'beam'"):
        tl.match({"beam": SEARCH}, calls=100, runs=runs)
