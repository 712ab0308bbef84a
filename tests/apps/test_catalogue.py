"""What a request from outside may run and change: `tot-lab serve` and `tot-lab mcp` share these rules."""

import pytest
from support import SETTINGS, STRATEGIES, TASK, for_each

import tot_lab as tl
from tot_lab.apps.catalogue import Catalogue, NotAllowed, NotOffered, changeable
from tot_lab.apps.cli.arguments import InvalidArgument, parse_offers
from tot_lab.core.parts import Part, UserFunction
from tot_lab.models.openai_compatible import OpenAICompatible

SEARCH = tl.TreeOfThoughts(search=tl.BeamSearch(width=2))
OFFERED = Catalogue({"fast": SEARCH, "vote": tl.SelfConsistency()}, tl.Budget(calls=100, usd=0.5))


def test_a_name_stands_for_its_strategy():
    assert OFFERED.changed("fast", TASK) == SEARCH
    assert OFFERED.changed("fast", TASK, {}) == SEARCH
    for name in ("slow", "tree_of_thoughts", "", None, 5, ["fast"]):
        with pytest.raises(NotOffered, match="nown are fast, vote"):
            OFFERED.changed(name, TASK)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("search.width", 3),
        ("search.width", None),
        ("stop.solved", 0.5),
        ("temperature", 1),
        ("evaluate.combine", "vote"),
        ("merge", True),
    ],
)
def test_numbers_switches_and_choices_of_a_search_can_be_changed(path, value):
    assert OFFERED.changed("fast", TASK, {path: value}) == SEARCH.with_({path: value})


def test_a_setting_of_a_strategy_inside_can_be_changed():
    changed = OFFERED.changed("vote", TASK, {"attempts": 2, "strategy.temperature": 0.5})
    assert (changed.attempts, changed.strategy.temperature) == (2, 0.5)


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "gpt-4.1"},
        {"model": {"kind": "openai_compatible", "base_url": "http://elsewhere"}},
        {"search": "mcts"},
        {"search": {"kind": "mcts"}},
        {"search.kind": "mcts"},
        {"evaluate": {"kind": "reward_model", "model": "vllm_pooling/x"}},
        {"evaluate.prompt": "Say 1."},
        {"evaluate.model": "x"},
        {"budget": {"calls": 1000}},
        {"budget.calls": 1000},
        {"kind": "react"},
        {"nothing": 1},
        {"search.nothing": 1},
        {"search.width": "3"},
        {"search.width": 2.0},
        {"search.width": True},
        {"search.width": 0},
        {"temperature": 2.5},
        {"temperature": float("nan")},
        {"evaluate.combine": "other"},
        {"merge": 1},
        {"propose.count": 10**6},
        {"propose.count": 10**18, "stop.depth": 1000, "search.width": None},
        [["search.width", 3]],
        "search.width=3",
    ],
    ids=str,
)
def test_every_other_change_is_refused_by_name(settings):
    name = next(iter(settings)) if isinstance(settings, dict) else "settings"
    with pytest.raises(NotAllowed) as refused:
        OFFERED.changed("fast", TASK, settings)
    assert refused.value.field in (f"settings.{name}", "settings")
    assert refused.value.field in str(refused.value)


def test_no_strategy_lets_a_request_reach_a_model_a_tool_or_a_function():
    server = OpenAICompatible(model="m", base_url="http://localhost:1/v1", api_key="sk-of-the-server")

    def check(kind):
        strategy = kind(**SETTINGS.get(kind, {}))
        if "model" in kind.model_fields:
            strategy = strategy.with_(model=server)
        for path, value in changeable(strategy):
            assert value is None or isinstance(value, int | float | str), path
            assert not isinstance(value, Part | UserFunction), path
            words = path.split(".")
            assert not {"model", "models", "base_url", "api_key", "price", "prompt", "budget"}.intersection(
                words
            )
            assert "tool" not in path

    for_each(STRATEGIES, check)


def test_a_reward_model_cannot_be_changed_through_its_evaluator():
    inner = OpenAICompatible(model="m", base_url="http://localhost:1/v1", price=(1.0, 1.0))
    search = tl.TreeOfThoughts(evaluate=tl.evaluators.RewardModel(model=inner))
    paths = [path for path, _ in changeable(search) if path.startswith("evaluate")]
    assert paths == ["evaluate.aggregate"]


def test_a_budget_is_only_lowered():
    assert OFFERED.lowered() == OFFERED.lowered({}) == tl.Budget(calls=100, usd=0.5)
    assert OFFERED.lowered({"calls": 60}) == tl.Budget(calls=60, usd=0.5)
    assert OFFERED.lowered({"calls": 100, "tokens": 9, "usd": 0}) == tl.Budget(calls=100, tokens=9, usd=0)
    assert OFFERED.lowered({"calls": None}) == tl.Budget(calls=100, usd=0.5)  # does not lift the limit
    assert Catalogue({}).lowered({}) is None
    for given in (
        {"calls": 101},
        {"usd": 0.51},
        {"calls": "9"},
        {"calls": -1},
        {"runs": 1},
        {"usd": float("nan")},
    ):
        with pytest.raises(NotAllowed, match=f"budget.{next(iter(given))}"):
            OFFERED.lowered(given)
    with pytest.raises(NotAllowed, match="budget: must be an object"):
        OFFERED.lowered(5)


def test_offers_are_parsed_from_the_command_line():
    offers = parse_offers(["fast=tree_of_thoughts search.width=2", "vote=self_consistency attempts=3"])
    assert offers == {"fast": SEARCH, "vote": tl.SelfConsistency(attempts=3)}
    assert parse_offers(['a=tree_of_thoughts \'search={"kind": "mcts"}\''])["a"].search == tl.MCTS()
    assert set(parse_offers(None)) >= {"tree_of_thoughts", "self_consistency"}
    for word in ("fast", "fast=", "=react", "a b=react", "a/b=react", "a='"):
        with pytest.raises(InvalidArgument, match="--as"):
            parse_offers([word])
    for word in ("a=nothing", "a=react nothing=1", "a=react one_answer"):
        with pytest.raises(InvalidArgument):
            parse_offers([word])
    with pytest.raises(InvalidArgument, match="one strategy: got 2"):
        parse_offers(["a=tree_of_thoughts search.width=1,2"])
    with pytest.raises(InvalidArgument, match="--as"):
        parse_offers(["a=react", "a=one_answer"])
