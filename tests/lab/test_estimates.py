"""What a run or a sweep will use, before it is made."""

import math

import pytest
from support import TASK, wait
from support.priced import PRICE, Priced, priced

import tot_lab as tl
from tot_lab.core.calls import estimated_tokens

TASKS = [tl.general(f"What is {k} + 1?" + " Mind the sign." * 9**k) for k in range(4)]
SEARCH = tl.TreeOfThoughts(propose=tl.Sample(count=2), stop=tl.Stop(depth=2), max_tokens=50)


def lab_of(model, tmp_path, **settings):
    return tl.Lab(model, cache=tmp_path / "cache", **{"runs": tmp_path / "runs", **settings})


def test_calls_that_depend_on_nothing_count_their_own_prompts(tmp_path):
    model = Priced()
    lab = lab_of(model, tmp_path)
    strategy = tl.SelfConsistency(strategy=tl.ChainOfThought(max_tokens=50), attempts=3)
    sent = wait(lab.estimate(strategy, TASK)).sent
    assert not model.calls
    wait(lab.run(strategy, TASK))
    prompt = estimated_tokens(model.calls[0].prompt)
    assert sent == (3, 3 * prompt, 150, pytest.approx(priced(3 * prompt, 150)), None)
    assert wait(lab.estimate(strategy, TASK)).sent[:4] == (0, 0, 0, 0), "now the cache has all of them"


def test_calls_after_replies_count_the_largest_prompt_that_the_model_takes(tmp_path):
    model = Priced(context_window=1000)
    lab = lab_of(model, tmp_path)
    estimate = wait(lab.estimate(SEARCH, TASK))
    run = wait(lab.run(SEARCH, TASK))
    first = [call for call in model.calls if call.node == "0"]
    later = estimate.calls - len(first)
    assert len(first) == 2
    prompts = sum(estimated_tokens(call.prompt) for call in first) + 1000 * later
    assert estimate.sent.input_tokens == prompts
    assert estimate.sent.output_tokens == 50 * estimate.calls
    assert run.usage.cost < estimate.sent.cost == pytest.approx(priced(prompts, 50 * estimate.calls))


class Stubborn(tl.OneAnswer):
    """Asks a short question when a call has failed, and a long one after a reply."""

    kind = "test_estimates.stubborn"

    def think(self, task, at="0"):
        yield tl.Thought(at, None, task.question)
        reply = yield from tl.ask(self.call(at, "answer", task.question))
        prompt = "Why?" if reply.error else reply.text * 50
        reply = yield from tl.ask(self.call(at, "answer", prompt, 1))
        return tl.Answer(reply.text, "answered")

    def max_calls(self, task):
        return 2


def test_a_call_after_a_failure_says_nothing_about_the_one_after_a_reply(tmp_path):
    lab = lab_of(Priced(), tmp_path)
    strategy = Stubborn(max_tokens=50)
    sent = wait(lab.estimate(strategy, TASK)).sent
    used = wait(lab.run(strategy, TASK)).usage
    assert used.input_tokens <= sent.input_tokens
    assert sent.input_tokens >= 4000


def test_limits_of_a_budget_and_of_the_lab_bound_too(tmp_path):
    lab = lab_of(Priced(), tmp_path, spend=0.03)
    budget = tl.Budget(calls=4, tokens=900, usd=0.02)
    sent = wait(lab.estimate(SEARCH, TASK, budget=budget)).sent
    assert sent[:4] == (4, 900, 200, 0.02)
    assert wait(lab.estimate_sweep(SEARCH, TASKS, budget=budget)).cost.bound == 0.03
    assert wait(lab.estimate(SEARCH, TASK)).sent.cost == 0.03


def test_what_is_not_known_is_not_bounded_and_a_simulated_model_is_free(tmp_path):
    async def own(call):
        return "Answer: 4"

    assert wait(tl.Lab(own, runs=None).estimate(SEARCH, TASK)).sent[1:] == (None,) * 4
    assert wait(tl.Lab("sim/general", runs=None).estimate(SEARCH, TASK)).sent.cost == 0
    free = str(wait(tl.Lab(own, runs=None).estimate_sweep(SEARCH, TASKS)))
    assert "input tokens   unknown" in free


@pytest.mark.slow
def test_flops_follow_from_the_parameters_of_the_roles(tmp_path):
    roles = {name: {"params": 7e9} for name in ("propose", "evaluate", "answer")}
    lab = lab_of(Priced(), tmp_path, roles=roles)
    estimate = wait(lab.estimate_sweep(SEARCH, TASKS, pilot=2))
    tokens = estimate.input_tokens, estimate.output_tokens
    assert estimate.flops.bound == pytest.approx(14e9 * (tokens[0].bound + tokens[1].bound))
    assert estimate.flops.expected == pytest.approx(14e9 * (tokens[0].expected + tokens[1].expected))


@pytest.mark.slow
def test_a_pilot_is_part_of_the_sweep_and_its_tasks_do_not_depend_on_their_order(tmp_path):
    model = Priced()
    lab = lab_of(model, tmp_path)
    estimate = wait(lab.estimate_sweep([SEARCH, tl.OneAnswer()], TASKS, 2, pilot=2))
    assert (estimate.runs, estimate.finished, estimate.sample) == (16, 4, 2)
    paid, made = lab.spent, len(model.calls)
    asked = {call.prompt for call in model.calls}
    wait(lab.estimate_sweep([SEARCH, tl.OneAnswer()], TASKS[::-1], 2, pilot=2))
    assert len(model.calls) == made
    sweep = wait(lab.sweep([SEARCH, tl.OneAnswer()], TASKS, 2))
    assert sweep.counts.paid == len(model.calls) == sweep.counts.distinct
    assert lab.spent == pytest.approx(sweep.df().paid.sum())
    assert lab.spent > paid
    assert {call.prompt for call in model.calls} > asked


@pytest.mark.slow
def test_the_interval_is_that_of_the_docstring(tmp_path):
    lab = lab_of(Priced(), tmp_path)
    estimate = wait(lab.estimate_sweep(tl.OneAnswer(), TASKS, pilot=2))
    costs = wait(lab.sweep(tl.OneAnswer(), TASKS)).df().sort_values("seconds").cost
    pilot = [run.usage.cost for run in tl.load(tmp_path / "runs" / "sweep")]
    assert len(pilot) == 4
    assert costs.sum() == pytest.approx(sum(pilot))
    pairs = [(a, b) for a in pilot for b in pilot if math.isclose(a + b, estimate.cost.expected)]
    (one, other), *_ = pairs
    mean = (one + other) / 2
    variation = (2 * 0.7**2 + (one - other) ** 2 / 2 / mean**2) / 3
    factor = math.exp(2.35336 * math.sqrt(variation * (1 / 2 + 1 / 2)))  # Student's t of 3 degrees, 95 %
    assert estimate.cost.low == pytest.approx(2 * mean / factor, rel=1e-4)
    assert estimate.cost.high == pytest.approx(min(2 * mean * factor, estimate.cost.bound), rel=1e-4)
    assert PRICE == (3.0, 15.0)


@pytest.mark.parametrize("pilot", [5, -1, True, 1.5])
def test_a_pilot_has_as_many_tasks_as_there_are(tmp_path, pilot):
    with pytest.raises(ValueError, match="pilot must be 1 to 4, the number of tasks"):
        wait(lab_of("sim/general", tmp_path).estimate_sweep(SEARCH, TASKS, pilot=pilot))


def test_a_pilot_shows_its_own_runs(tmp_path, capsys):
    wait(lab_of(Priced(), tmp_path).estimate_sweep(tl.OneAnswer(max_tokens=5), TASKS, pilot=2))
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" · ")[0] for line in lines] == [
        "sweep: 1 of 2 runs (50%)",
        "sweep: 2 of 2 runs (100%)",
    ]


class Unpriced(Priced):
    """Its price is unknown."""

    kind = "test_estimates.unpriced"

    def need(self, calls):
        return super().need(calls)._replace(usd=None, price=None)


def test_without_a_price_nothing_is_sent_under_a_limit_and_nothing_counts_as_sent(tmp_path):
    model = Unpriced()
    lab = lab_of(model, tmp_path, spend=0.5)
    strategy = tl.ChainOfThought(max_tokens=50)
    estimate = wait(lab.estimate_sweep(strategy, TASKS))
    assert (estimate.unpriced, estimate.cost.bound) == (("priced",), None)
    assert "no call to priced will be sent: spend= needs a price. Set price= of the model" in str(estimate)
    assert "$" not in str(estimate)
    one = wait(lab.estimate(strategy, TASK))
    assert (one.unpriced, one.sent.cost) == (("priced",), None)
    sweep = wait(lab.sweep(strategy, TASKS))
    assert not model.calls
    assert sweep.counts == (0, 0, 0, 0)
    assert "0 calls asked, 0 distinct, 0 sent to the model, 0 saved" in str(sweep)
    assert sweep.df().calls.sum() == 0
    assert "the price of priced is unknown, so spend= cannot be enforced" in str(sweep)
    free = lab_of(model, tmp_path)
    assert wait(free.estimate_sweep(strategy, TASKS)).unpriced == ()
    assert wait(free.sweep(strategy, TASKS)).counts.paid == len(model.calls) == len(TASKS)


def test_an_estimate_names_the_settings_that_would_bound_the_tokens(tmp_path):
    server = tl.OpenAICompatible(model="m", base_url="http://127.0.0.1:9/v1", price=(1.0, 1.0))
    text = str(wait(lab_of(server, tmp_path).estimate_sweep(SEARCH, TASKS)))
    assert "Set context_window= of the model and max_tokens= of the strategies" in text
    whole = server.configured(context_window=4000)
    assert "Set" not in str(wait(lab_of(whole, tmp_path).estimate_sweep(SEARCH, TASKS)))


def test_an_estimate_says_how_many_more_calls_the_cache_answers_if_there_are_any(tmp_path):
    assert "cache" not in str(wait(lab_of(Priced(), tmp_path).estimate_sweep(SEARCH, TASKS)))
    wait(lab_of(Priced(), tmp_path, runs=None).sweep(SEARCH, TASKS[:1]))
    assert "the cache answers at least" in str(wait(lab_of(Priced(), tmp_path).estimate_sweep(SEARCH, TASKS)))
