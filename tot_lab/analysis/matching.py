"""Settings at matched cost: each method with the scale at which it spends the same amount.

A method is scaled by one setting of its own: the attempts of self-consistency, the width of a beam, the
iterations of MCTS. `Strategy.scale_setting` names it, and `Strategy.max_calls` says what it costs at most, so
no model is called. Recorded runs tell how much of that bound a method really uses, and what a call costs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import Any

from tot_lab.analysis.tables import placed, strategy_of
from tot_lab.core.strategy import Strategy, strategy_named
from tot_lab.core.task import Task
from tot_lab.domains.general import general
from tot_lab.record.run import Run

LARGEST = 2**16
"""The largest scale that is tried."""


def match(
    settings: Mapping[str, Strategy | str],
    *,
    calls: float | None = None,
    tokens: float | None = None,
    usd: float | None = None,
    runs: Any = None,
    task: Task | None = None,
) -> dict[str, Strategy]:
    """Scale each method to spend the same amount per run. No model is called.

        settings = tl.match({"beam": tl.TreeOfThoughts(), "vote": tl.SelfConsistency()}, calls=60)
        settings = tl.match(settings, tokens=20_000, runs=sweep)  # what a call costs is taken from its runs

    Each strategy receives the largest scale whose expected use does not exceed the amount. Without `runs` the
    expected use is `max_calls`, which a search that finds a solution early does not reach. With `runs` it is
    `max_calls` times the mean use per possible call of the same method, at whatever scale it was recorded. A
    strategy without a setting of scale (one answer) stays as it is.

    Args:
        settings: Strategies by name.
        calls: Model calls per run. Give exactly one of the three amounts.
        tokens: Input and output tokens per run. Requires `runs`.
        usd: USD per run if every call were paid. Requires `runs`.
        runs: A sweep or runs with the same methods.
        task: The task for which the calls are counted, in case their number depends on it.

    Raises:
        ValueError: If a method costs more than the amount at its smallest scale, has no bound on its calls,
            or is not among `runs`. The message names it.
    """
    amounts = {"calls": calls, "tokens": tokens, "usd": usd}
    given = {unit: amount for unit, amount in amounts.items() if amount is not None}
    if len(given) != 1:
        raise ValueError(f"match needs exactly one of calls=, tokens= and usd=: got {given or 'none'}.")
    ((unit, amount),) = given.items()
    if unit != "calls" and runs is None:
        raise ValueError(f"match with {unit}= needs recorded runs: pass runs=sweep, or match by calls=.")
    task = task or general("?")
    recorded = [] if runs is None else [one.run for one in placed(runs, "match") if one.run is not None]
    matched: dict[str, Strategy] = {}
    for name, method in settings.items():
        strategy = strategy_named(method)
        per_call = _use_per_call(name, strategy, recorded, unit) if runs is not None else 1.0
        matched[name] = _scaled(name, strategy, task, amount / per_call, f"{amount:,g} {unit}")
    return matched


def _scaled(name: str, strategy: Strategy, task: Task, most: float, amount: str) -> Strategy:
    """Return `strategy` with the largest scale at which it makes at most `most` calls."""
    path = strategy.scale_setting()
    if path is None:
        return strategy

    def bound(scale: int) -> int:
        return _max_calls(name, strategy.with_({path: scale}), task)

    scales = range(1, LARGEST + 1)
    scale = bisect_right(scales, most, key=bound)
    if scale == 0:
        raise ValueError(f"{name!r} may make {bound(1):,} calls at {path}=1, which is more than {amount}.")
    if scale == LARGEST and path == "stop.nodes":
        return strategy.with_({path: None})  # the whole tree fits
    scale = bisect_left(scales, bound(scale), key=bound) + 1  # a wider beam than the tree costs no more
    return strategy.with_({path: scale})


def _max_calls(name: str, strategy: Strategy, task: Task) -> int:
    calls = strategy.max_calls(task)
    if calls is None:
        raise ValueError(f"{name!r} has no bound on its calls, so it cannot be matched.")
    return calls


def _use_per_call(name: str, strategy: Strategy, runs: list[Run], unit: str) -> float:
    """Return the mean use of a method per call that it may make, over the runs of the method at any scale."""
    used = possible = 0.0
    for run in runs:
        made_by, task, use = strategy_of(run), run.task, _use(run, unit)
        if made_by is None or task is None or use is None:
            continue
        if _at_scale_one(made_by) == _at_scale_one(strategy):
            used += use
            possible += _max_calls(name, made_by, task)
    if not used:
        raise ValueError(f"runs contain no run of {name!r} whose {unit} are known.")
    return used / possible


def _at_scale_one(strategy: Strategy) -> dict[str, Any]:
    path = strategy.scale_setting()
    return (strategy if path is None else strategy.with_({path: 1})).settings()


def _use(run: Run, unit: str) -> float | None:
    """Return what a run used, or `None` if that is not known."""
    usage = run.usage
    if unit == "calls":
        return None if "calls" in run.header.unknown else usage.calls
    if unit == "usd":
        return usage.cost
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    return usage.input_tokens + usage.output_tokens
