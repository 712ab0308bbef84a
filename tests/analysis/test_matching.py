"""Methods at matched cost: the scale at which each spends the same, found without a call."""

import msgspec
import numpy
import pytest
from support import Scripted, mostly_nightly, wait

import tot_lab as tl
from tot_lab.core.registry import names
from tot_lab.core.strategy import strategy_named

SEARCH = tl.TreeOfThoughts(search=tl.BeamSearch(width=2), stop=tl.Stop(solved=None, depth=4))
METHODS = {
    "vote": (tl.SelfConsistency(), "attempts"),
    "best of": (tl.BestOf(strategy=tl.ChainOfThought()), "attempts"),
    "beam": (SEARCH, "search.width"),
    "mcts": (SEARCH.with_(search="mcts"), "search.iterations"),
    "nodes": (SEARCH.with_(search="best_first"), "stop.nodes"),
}
TASK = tl.general("?")


@pytest.mark.slow
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


@pytest.mark.parametrize("unit", ["calls", "tokens", "usd"])
@pytest.mark.parametrize("amount", [0, -5, float("nan"), float("inf"), "60", True])
def test_an_amount_is_a_positive_number(unit, amount):
    with pytest.raises(ValueError, match=f"{unit} must be a positive number: got {amount!r}"):
        tl.match({"vote": tl.SelfConsistency()}, **{unit: amount})


def test_numbers_of_numpy_are_amounts():
    (matched,) = tl.match({"vote": tl.SelfConsistency()}, calls=numpy.int64(7)).values()
    assert matched.attempts == 7


def test_a_setting_that_is_no_strategy_is_named():
    with pytest.raises(TypeError, match=r"settings\['vote'\] must be a strategy or its name: got 3"):
        tl.match({"vote": 3}, calls=10)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", [tl.SelfConsistency(), SEARCH.with_({"search": "best_first", "stop.depth": 1000})]
)
def test_an_amount_beyond_the_largest_scale_is_an_error(method):
    """A tree of 1,000 levels needs more than a million calls, and a vote can use more too."""
    with pytest.raises(ValueError, match=r"'big' .*65,536, the largest scale that is tried"):
        tl.match({"big": method}, calls=1_000_000)


def test_an_amount_beyond_the_largest_scale_is_an_error_with_runs_too():
    method = {"particles": SEARCH.with_(search="particle_filter")}
    first = wait(tl.Lab("sim/game24", runs=None).sweep(method, tl.game24_tasks(1)))
    with pytest.raises(ValueError, match=r"'particles' .*65,536, the largest scale that is tried"):
        tl.match(method, tokens=1e12, runs=first)


def test_runs_that_cost_nothing_tell_nothing():
    first = wait(tl.Lab("sim/game24", runs=None).sweep({"vote": tl.SelfConsistency()}, tl.game24_tasks(1)))
    with pytest.raises(ValueError, match="the runs of 'vote' used 0 usd"):
        tl.match({"vote": tl.SelfConsistency()}, usd=1, runs=first)


@pytest.mark.slow
def test_runs_at_a_large_scale_tell_the_use_at_a_small_one():
    """The recorded use is far above the amount."""
    vote = tl.SelfConsistency(attempts=40)
    first = wait(tl.Lab("sim/game24", runs=None).sweep({"vote": vote}, tl.game24_tasks(2)))
    each = spent(first, "tokens")["vote"] / 40
    (matched,) = tl.match({"vote": vote}, tokens=2 * each, runs=first).values()
    assert matched.attempts == 2
    with pytest.raises(ValueError, match=r"'vote' is expected to use \d[\d.,]* tokens at attempts=1"):
        tl.match({"vote": vote}, tokens=each / 5, runs=first)


def test_tokens_need_recorded_runs():
    with pytest.raises(ValueError, match="tokens= needs recorded runs"):
        tl.match({"vote": tl.SelfConsistency()}, tokens=1000)


def priced(player):
    """The player, whose replies cost 1 USD per million tokens in and 5 out."""

    async def model(call):
        reply = await player(call)
        return msgspec.structs.replace(reply, cost=(reply.input_tokens + 5 * reply.output_tokens) / 1e6)

    return model


def spent(sweep, unit):
    """Mean use of a run, by setting."""
    frame = sweep.df()
    frame["tokens"] = frame["input_tokens"] + frame["output_tokens"]
    frame["usd"] = frame["cost"]
    return frame.groupby("setting", observed=True)[unit].mean().to_dict()


TREE = tl.TreeOfThoughts(propose=tl.Sample(count=3), stop=tl.Stop(solved=None, depth=3))
CHAIN = tl.ChainOfThought()
GIVEN = {"best_of": tl.BestOf(strategy=CHAIN), "self_consistency": tl.SelfConsistency(strategy=CHAIN)}
UNFIT = dict.fromkeys(
    ("deep_conf", "deep_conf_online", "mur", "phi_decoding", "uncertainty_branching"),
    "the player reports no log-probabilities",
)


def scalable():
    """Every registered search, and every registered strategy that has a scale, without those of `UNFIT`."""
    made = {name: TREE.with_(search=name) for name in names("searches") if name not in UNFIT}
    for name in names("strategies"):
        if name in GIVEN:
            made[name] = GIVEN[name]
        elif name not in UNFIT and name not in ("tree_of_thoughts", "with_thinking", "with_synthesis"):
            strategy = strategy_named(name)
            made |= {name: strategy} if strategy.scale_setting() is not None else {}
    return made


ELSEWHERE = {
    "self_refine": "ends when the model finds no fault",
    "sampled_beam": "ends when all that it draws is there already",
    "graph_of_thoughts": "its operations are a fixed list",
    "bg_mcts": "ends when its tree is complete",
    "a_star": "ends with the best path",
    "levin": "ends with the first path to a solution",
}
"""Methods that may spend less than the amount, and why."""

COARSE = {"prm_beam": 0.5, "dvts": 0.5, "forest_of_thoughts": 0.55, "particle_gibbs": 0.35}
"""Methods of which a step of the scale costs more than 30% of the amount: half of that step."""


def matching_lab():
    return tl.Lab(priced(tl.sim.SimGame24(skill=0.4, noise=0.2)), runs=None)


@pytest.fixture(scope="module")
def small_scales():
    """A sweep over two small scales of every method."""
    small = {}
    for name, method in scalable().items():
        path = method.scale_setting()
        for k in (15, 45) if path == "stop.nodes" else (2, 4):
            small[f"{name} {k}"] = method.with_({path: k})
    return wait(matching_lab().sweep(small, tl.game24_tasks(6)[::2]))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("unit", "amount"),
    [
        ("tokens", 8_000),
        pytest.param("usd", 0.012, marks=pytest.mark.nightly),
        pytest.param("calls", 56, marks=pytest.mark.nightly),
    ],
)
def test_every_method_spends_what_was_asked(unit, amount, small_scales):
    lab, methods, tasks = matching_lab(), scalable(), tl.game24_tasks(6)
    sweeps = [small_scales]
    for _ in range(2):
        matched = tl.match(methods, runs=sweeps, task=tasks[0], **{unit: amount})
        sweeps.append(wait(lab.sweep(matched, tasks)))
    off = {name: use / amount - 1 for name, use in spent(sweeps[-1], unit).items()}
    assert off.keys() == methods.keys()
    wrong = {
        name: round(share, 2)
        for name, share in off.items()
        if share > COARSE.get(name, 0.15) or (share < -COARSE.get(name, 0.15) and name not in ELSEWHERE)
    }
    assert not wrong


@pytest.mark.nightly
@pytest.mark.parametrize(
    "amount", mostly_nightly([{"tokens": 9_000}, {"usd": 0.02}, {"calls": 40}], [{"tokens": 9_000}])
)
@pytest.mark.parametrize("small", mostly_nightly([2, 4], [2]))
def test_one_small_scale_tells_how_prompts_grow(amount, small):
    ((unit, wanted),) = amount.items()
    lab = tl.Lab(priced(tl.sim.SimMiniCrossword(skill=0.4, noise=0.2)), runs=None)
    methods = {
        "debate": tl.methods.Debate(agents=small),
        "mixture": tl.methods.MixtureOfAgents(agents=small),
        "refine": tl.methods.SelfRefine(rounds=small),
        "vote": tl.SelfConsistency(strategy=CHAIN, attempts=small),
    }
    tasks = [tl.domains.mini_crossword(number) for number in range(1, 5)]
    first = wait(lab.sweep(methods, tasks))
    second = wait(lab.sweep(tl.match(methods, runs=first, **amount), tasks))
    for name, use in spent(second, unit).items():
        assert use == pytest.approx(wanted, rel=0.15), name


@pytest.mark.slow
def test_a_limit_of_thoughts_follows_from_the_recorded_use_and_not_from_the_bound():
    lab = tl.Lab(tl.sim.SimGame24(skill=0.4, noise=0.2), runs=None)
    methods = {name: TREE.with_(search=name).with_({"stop.nodes": 12}) for name in ("depth_first", "a_star")}
    first = wait(lab.sweep(methods, tl.game24_tasks(3)))
    second = wait(lab.sweep(tl.match(methods, tokens=6_000, runs=first), tl.game24_tasks(3)))
    for tokens in spent(second, "tokens").values():
        assert tokens == pytest.approx(6_000, rel=0.15)


@pytest.mark.slow
def test_a_recorded_scale_is_found_again():
    lab = tl.Lab(tl.sim.SimMiniCrossword(skill=0.4), runs=None)
    methods = {"debate": tl.methods.Debate(agents=7), "vote": tl.SelfConsistency(attempts=9)}
    first = wait(lab.sweep(methods, [tl.domains.mini_crossword(1)]))
    for name, tokens in spent(first, "tokens").items():
        assert tl.match({name: methods[name]}, tokens=tokens, runs=first) == {name: methods[name]}


def test_a_method_that_ends_by_itself_has_the_smallest_scale_at_which_it_does():
    def reply(call):
        return "SATISFIED: nothing to change." if call.purpose == "critique" else "Answer: 4"

    lab = tl.Lab(Scripted(reply), runs=None)
    methods = {"refine": tl.methods.SelfRefine(rounds=4)}
    first = wait(lab.sweep(methods, [TASK]))
    assert tl.match(methods, calls=100, runs=first)["refine"].rounds == 1


def test_no_model_is_called_and_no_function_of_a_tool():
    calls = []

    async def model(call):
        calls.append(call)
        return "Answer: 4"

    lab = tl.Lab(model, runs=None)
    first = wait(lab.sweep({"debate": tl.methods.Debate()}, [TASK]))
    made = len(calls)
    tl.match({"debate": tl.methods.Debate()}, calls=100, runs=first)
    assert len(calls) == made


def test_a_method_that_is_expected_to_cost_more_at_any_scale_is_named():
    lab = tl.Lab(Scripted(), runs=None)
    first = wait(lab.sweep({"beam": SEARCH}, [TASK]))
    with pytest.raises(ValueError, match=r"'beam' is expected to use .* calls at search.width=1"):
        tl.match({"beam": SEARCH}, calls=2, runs=first)


def test_use_is_that_of_the_same_method_alone():
    lab = tl.Lab(Scripted(), runs=None)
    runs = [wait(lab.run(tl.SelfConsistency(attempts=n), TASK)) for n in (2, 4)]
    assert tl.match({"vote": tl.SelfConsistency()}, calls=8, runs=runs)["vote"].attempts == 8
    with pytest.raises(ValueError, match="no run of 'beam'"):
        tl.match({"beam": SEARCH}, calls=100, runs=runs)
