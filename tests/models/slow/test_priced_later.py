"""A price that is set after the first calls: cached replies cost what their tokens cost, and records stay."""

import pytest
from support import TASK, wait
from support.dollars import Asks, compatible
from support.providers import Said

import tot_lab as tl
from tot_lab.lab.sharing import export_calls, prune, replies_by_key


@pytest.fixture
def server(shared):
    shared.forget()
    shared.otherwise = Said("Yes.", output_tokens=10)
    return shared


def lab_with(server, tmp_path, price, **more):
    model = compatible(server).configured(price=price)
    return tl.Lab(model, cache=tmp_path / "calls", runs=more.pop("runs", None), **more)


@pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "together"])
def test_a_cached_reply_costs_its_tokens_at_the_present_price_and_is_not_paid_again(
    server, tmp_path, at_once
):
    asks = Asks(count=3, at_once=at_once, same=at_once)
    unpriced = wait(lab_with(server, tmp_path, None).run(asks, TASK))
    assert unpriced.usage.cost is None
    prompt, reply = unpriced.usage.input_tokens, unpriced.usage.output_tokens
    sent = len(server.calls)
    priced = wait(lab_with(server, tmp_path, (7.0, 3.0)).run(asks, TASK))
    assert priced.usage.cost == pytest.approx((prompt * 7.0 + reply * 3.0) / 1e6)
    assert priced.usage.paid == 0.0
    assert len(server.calls) == sent
    for run, cost in ((unpriced, None), (priced, priced.usage.cost)):
        assert wait(run.replay()).identical
        assert run.usage.cost == cost


def test_a_recorded_cost_stays(server, tmp_path):
    first = wait(lab_with(server, tmp_path, (7.0, 3.0)).run(Asks(count=2), TASK))
    for price in (None, (70.0, 30.0)):
        assert wait(lab_with(server, tmp_path, price).run(Asks(count=2), TASK)).usage.cost == first.usage.cost


def test_the_calls_of_runs_with_and_without_a_price_are_exported_and_kept(server, tmp_path):
    runs = [wait(lab_with(server, tmp_path, price).run(Asks(count=2), TASK)) for price in (None, (7.0, 3.0))]
    cache = tl.Cache(tmp_path / "calls")
    for one in ([runs[1]], runs):
        assert export_calls(tmp_path / f"{len(one)}.jsonl.gz", one, cache).calls == 2
        assert prune(cache, replies_by_key(one), really=False) == 0


def test_a_sweep_says_that_runs_from_before_the_price_have_no_cost_and_what_prices_them(server, tmp_path):
    def swept(price, tasks, name):
        lab = lab_with(server, tmp_path, price, runs=tmp_path / "runs")
        return wait(
            lab.sweep({"asks": Asks(count=2)}, tl.tasks(tasks, answer="answer", grade="number"), name=name)
        )

    questions = [{"question": f"{k} + 1?", "answer": k + 1} for k in range(3)]
    before = swept(None, questions[:1], "one")
    assert "!" not in str(before)  # a model without a price: nothing to expect
    with pytest.raises(ValueError, match="Set price= of the model"):
        tl.figures.plot_pareto(before, cost="cost")
    after = swept((7.0, 3.0), questions, "one")
    assert after.df()["cost"].isna().sum() == 1
    assert "! 1 of 3 runs have an unknown cost" in str(after)
    assert "Run the sweep with another name=" in str(after)
    anew = swept((7.0, 3.0), questions, "two")
    assert not anew.df()["cost"].isna().any()
    assert "!" not in str(anew)
    assert anew.df()["paid"].sum() == 0.0
