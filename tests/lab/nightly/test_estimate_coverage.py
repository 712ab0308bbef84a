"""The interval of an estimate, over many sweeps of real strategies, covers what they then cost."""

import asyncio
import random
import statistics

from support.priced import Priced

import tot_lab as tl

SWEEPS = 40
TASKS = 12

SETTINGS = [
    tl.TreeOfThoughts(
        propose=tl.Sample(count=2), search=tl.BeamSearch(width=2), stop=tl.Stop(depth=3), max_tokens=300
    ),
    tl.SelfConsistency(attempts=4),
    tl.BestOf(strategy=tl.ChainOfThought(), attempts=3),
]


def tasks(number: int) -> list[tl.Task]:
    """Tasks of which the longest has many times the words of the shortest, the short ones first."""
    drawn = random.Random(number)
    lengths = sorted(int(20 * drawn.lognormvariate(1.5, 0.8)) for _ in range(TASKS))
    return [
        tl.general(f"What is {drawn.randrange(99)} + {k}?" + " Mind the sign." * length)
        for k, length in enumerate(lengths)
    ]


def test_the_interval_covers_the_cost_and_the_bound_holds(tmp_path):
    within = {"calls": 0, "cost": 0}
    widths = []
    for number in range(SWEEPS):
        model = Priced()
        lab = tl.Lab(model, runs=tmp_path / f"{number}", cache=tmp_path / f"cache{number}")
        given, repeats = tasks(number), 1 + number % 2
        first = asyncio.run(lab.estimate_sweep(SETTINGS, given, repeats))
        assert not model.calls
        estimate = asyncio.run(lab.estimate_sweep(SETTINGS, given, repeats, pilot=2))
        paid, made = lab.spent, len(model.calls)
        assert made
        assert estimate.sample == 2
        sweep = asyncio.run(lab.sweep(SETTINGS, given, repeats))
        assert not sweep.df().error.notna().any()
        keys = {sweep.key_of(call) for call in model.calls}
        assert len(keys) == len(model.calls), "nothing was paid twice, the pilot tasks included"
        true = {"calls": len(model.calls) - made, "cost": lab.spent - paid}
        assert lab.spent <= first.cost.bound
        for name, amount in true.items():
            forecast = getattr(estimate, name)
            assert amount <= forecast.bound
            within[name] += forecast.low <= amount <= forecast.high
            widths.append(forecast.high / forecast.low)
    assert statistics.median(widths) < 12, "an interval that says something"
    assert within["cost"] >= 34, within
    assert within["calls"] >= 34, within
