"""Settings at matched cost: each method is scaled so that all of them spend the same amount.

The scale of a method is the value of one of its settings: the attempts of self-consistency, the width of a
beam, the iterations of MCTS, the samples of a tree of depth 1. `Strategy.scale_setting` names this setting,
and `Strategy.max_calls` bounds the calls. Simulated players of the task's domain show whether the method may
make far fewer calls. No other model is called. Recorded runs show how much a method really uses at the
recorded scales. Its use at another scale is extrapolated from them in one of three ways:

- a search with a limit of thoughts: by the number of thoughts;
- another method with a tree: by `max_calls`, or by the scale if the recorded runs stay far below it;
- any other method: by a rehearsal with the recorded replies (`rehearsal.py`), because its prompts may grow.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from math import exp, inf, log
from numbers import Real
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple
from warnings import warn

from tot_lab.analysis.frames import each, typed_frame
from tot_lab.analysis.rehearsal import rates_of, rehearse, simulated_calls
from tot_lab.analysis.tables import is_sweep, placed, strategy_of
from tot_lab.core.records import Note
from tot_lab.core.strategy import Strategy, strategy_named
from tot_lab.core.task import Task
from tot_lab.domains.general import general
from tot_lab.record.run import Run

if TYPE_CHECKING:
    import pandas

LARGEST = 2**16
"""The largest scale that is tried."""

TOLERANCE = 0.15
"""Relative deviation from the requested amount beyond which a method gets a warning."""

SIMULATED = 2_000
"""Number of calls after which a run with a simulated player is given up."""

SATURATED = 0.2
"""If the use grows more slowly than the scale to this power, the method is assumed to stop by itself."""

REACHED = 0.9
"""If runs of several scales made less than this share of `max_calls`, extrapolate by scale."""

REHEARSED = 8
"""Maximum number of runs of each recorded scale that are rehearsed."""


class MatchedMethod(NamedTuple):
    """The expected use of a method of `Matched`.

    Attributes:
        setting: Name of the method.
        scaled: Path of the setting that scales the method, `None` if it has none.
        scale: The value of that setting. `None` if there is no such setting, or the setting is `None`.
        unit: Unit of `amount`, `low` and `high`.
        amount: The amount that was requested.
        low: The least that the method is expected to use, `None` if unknown.
        high: The most that the method is expected to use. Infinite if its calls have no bound.
    """

    setting: str
    scaled: str | None
    scale: int | None
    unit: str
    amount: float
    low: float | None
    high: float

    @property
    def near(self) -> bool:
        """Whether both `low` and `high` are within 15% of the amount."""
        least, most = self.amount * (1 - TOLERANCE), self.amount * (1 + TOLERANCE)
        return self.low is not None and least <= self.low and self.high <= most


class Matched(dict[str, Strategy]):
    """Strategies by name, as `match` has scaled them. `df()` lists the expected use of each."""

    def __init__(self, strategies: Mapping[str, Strategy], methods: Sequence[MatchedMethod]) -> None:
        super().__init__(strategies)
        self.methods = methods

    def df(self) -> pandas.DataFrame:
        """Return one row per method: setting: string; scaled: string, the setting that scales the method, and
        scale: Int64, its value, NA if missing; unit: string; amount: Float64, the requested amount;
        low, high: Float64, the least and most expected use, low NA if unknown; near: boolean, whether both
        are within 15% of the amount.
        """
        columns = {"setting": "string", "scaled": "string", "scale": "Int64", "unit": "string"}
        columns |= dict.fromkeys(("amount", "low", "high"), "Float64")
        return typed_frame({**each(self.methods, **columns, near="boolean")})

    def __repr__(self) -> str:
        return "\n".join(_line(method) for method in self.methods)


def _line(method: MatchedMethod) -> str:
    low = "?" if method.low is None else f"{method.low:,.6g}"
    high = f"{method.high:,.6g}"
    scale = f"{method.scaled}={method.scale}" if method.scaled else "no setting of scale"
    use = high if low == high else f"{low} to {high}"
    apart = "" if method.near else f", not within {TOLERANCE:.0%}"
    return f"{method.setting}: {scale}, expected {use} of {method.amount:,.6g} {method.unit}{apart}"


def match(
    settings: Mapping[str, Strategy | str],
    *,
    calls: float | None = None,
    tokens: float | None = None,
    output_tokens: float | None = None,
    usd: float | None = None,
    flops: float | None = None,
    runs: Any = None,
    task: Task | None = None,
) -> Matched:
    """Scale each method to spend the same amount per run. Only simulated models are called.

        settings = tl.match({"beam": tl.TreeOfThoughts(), "vote": tl.SelfConsistency()}, calls=60)
        settings = tl.match(settings, tokens=20_000, runs=first)  # `first` is a sweep at small scales
        settings = tl.match(settings, tokens=20_000, runs=[first, second])  # more exact with each sweep

    Without `runs`, each strategy receives the largest scale at which `max_calls` is at most `calls`. If
    smaller scales have the same `max_calls`, it receives the smallest of them. A search that finds a solution
    early makes fewer calls. How few is estimated by runs with two simulated players of the task's domain, one
    that is always right and one that never is.

    With `runs`, each strategy receives the scale whose expected use is nearest to the amount. At a recorded
    scale, the expected use is the mean of its runs. The use at other scales is extrapolated by the number of
    thoughts, by `max_calls`, or, for methods whose prompts may grow with the scale, by a rehearsal with the
    recorded replies. Runs at two or more scales make the extrapolation more exact. If a method stops by
    itself before it has used the amount, it receives the smallest scale with the largest use.

    A strategy without a scale, such as `OneAnswer`, is returned unchanged.

    Args:
        settings: Strategies by name.
        calls: Model calls per run. Give exactly one of the amounts.
        tokens: Input and output tokens per run. Like all further amounts, it requires `runs`.
        output_tokens: Output tokens per run.
        usd: USD per run if every call were paid.
        flops: FLOPs per run, with every prompt counted in full; see `Run.compute`.
        runs: A sweep, several sweeps, or runs, with the same methods at any scale.
        task: A task for `max_calls` and the simulated players. `None` means a general question.

    Returns:
        A dict of strategies. Its `df()` lists the expected use of each.

    Warns:
        UserWarning: If the use of a method may deviate from the amount by more than 15%.

    Raises:
        ValueError: If the amount is not a positive number. Also if a method uses more than the amount at
            scale 1 or less at scale 65,536 (with `runs`, by more than 15%), has no bound on its calls, or has
            no run in `runs`; the message names the method.
        TypeError: If a value of `settings` is no strategy.
    """
    amounts = {"calls": calls, "tokens": tokens, "output_tokens": output_tokens, "usd": usd, "flops": flops}
    given = {unit: amount for unit, amount in amounts.items() if amount is not None}
    if len(given) != 1:
        names = ", ".join(f"{unit}=" for unit in amounts)
        raise ValueError(f"match needs exactly one of {names}: got {given or 'none'}.")
    ((unit, amount),) = given.items()
    if isinstance(amount, bool) or not isinstance(amount, Real) or not 0 < amount < inf:
        raise ValueError(f"{unit} must be a positive number: got {amount!r}.")
    for name, method in settings.items():
        if not isinstance(method, Strategy | str):
            raise TypeError(f"settings[{name!r}] must be a strategy or its name: got {method!r}.")
    if unit != "calls" and runs is None:
        raise ValueError(f"match with {unit}= needs recorded runs: pass runs=sweep, or match by calls=.")
    task = task or general("?")
    methods = {name: strategy_named(method) for name, method in settings.items()}
    recorded = None if runs is None else [run for run in _recorded(runs) if _use(run, unit) is not None]
    scaled = {
        name: _scaled(name, strategy, task, amount, unit, recorded) for name, strategy in methods.items()
    }
    rows = [row for _, row in scaled.values()]
    if far := [row for row in rows if not row.near]:
        unsure = any(row.low != row.high for row in far)
        advice = " Recorded runs (runs=) tell what a method really uses." if unsure else ""
        warn(f"{'; '.join(map(_line, far))}.{advice}", UserWarning, stacklevel=2)
    return Matched({name: strategy for name, (strategy, _) in scaled.items()}, rows)


def _scaled(
    name: str, strategy: Strategy, task: Task, amount: float, unit: str, recorded: Sequence[Run] | None
) -> tuple[Strategy, MatchedMethod]:
    """Return `strategy` at the scale that spends `amount`, and its expected use."""
    low: float | None
    if recorded is None:
        strategy = _bounded(name, strategy, task, amount)
        most = strategy.max_calls(task)
        low, high = simulated_calls(strategy, task, SIMULATED), inf if most is None else float(most)
    else:
        strategy, high = _expected(name, strategy, task, amount, unit, recorded)
        low = high
    path = strategy.scale_setting()
    scale = None if path is None else _scale(strategy, path)
    return strategy, MatchedMethod(name, path, scale, unit, amount, low, high)


def _bounded(name: str, strategy: Strategy, task: Task, most: float) -> Strategy:
    """Return `strategy` with the largest scale at which `max_calls` is at most `most`. If smaller scales
    have the same `max_calls`, use the smallest of them.
    """
    path = strategy.scale_setting()
    if path is None:
        return strategy

    def bound(scale: int | None) -> int:
        return _max_calls(name, strategy.at_scale(scale), task)

    if path.endswith("stop.nodes") and bound(None) <= most:
        return strategy.at_scale(None)  # the whole tree fits
    scales = range(1, LARGEST + 1)
    scale = bisect_right(scales, most, key=bound)
    if scale == 0:
        raise ValueError(
            f"{name!r} may make {bound(1):,} calls at {path}=1, which is more than {most:,g} calls."
        )
    scale = bisect_left(scales, bound(scale), key=bound) + 1  # the smallest scale with the same bound
    if scale == LARGEST and bound(LARGEST + 1) <= most:
        raise ValueError(_beyond(name, f"makes at most {bound(LARGEST):,} calls", path, most, "calls"))
    return strategy.at_scale(scale)


def _expected(
    name: str, strategy: Strategy, task: Task, amount: float, unit: str, recorded: Sequence[Run]
) -> tuple[Strategy, float]:
    """Return `strategy` with the scale whose expected use is nearest to `amount`, and that use."""
    path = strategy.scale_setting()
    by_scale = _same_method(strategy, recorded)
    if not by_scale:
        hint = " FLOPs need the params of the roles: see tl.Role." if unit == "flops" else ""
        raise ValueError(f"runs contain no run of {name!r} whose {unit} are known.{hint}")
    if path is None:
        return strategy, fmean(_use(run, unit) or 0.0 for run in by_scale[0])
    uses = {scale: fmean(_use(run, unit) or 0.0 for run in runs) for scale, runs in by_scale.items()}
    if not any(uses.values()):
        raise ValueError(f"the runs of {name!r} used 0 {unit}, so its use at other scales is not known.")
    limit = 4 * max(amount, *uses.values())
    measure = _measure(name, strategy, path, task, limit, unit, by_scale)
    points: dict[float, list[float]] = {}
    for scale, runs in by_scale.items():
        points.setdefault(measure(scale), []).extend(_use(run, unit) or 0.0 for run in runs)
    curve = _curve({x: fmean(uses) for x, uses in points.items()})

    @cache
    def use(scale: int) -> float:
        return curve(measure(scale))

    if use(1) > amount * (1 + TOLERANCE):
        raise ValueError(
            f"{name!r} is expected to use {use(1):,.6g} {unit} at {path}=1, which is more than "
            f"{amount:,g} {unit}."
        )
    high = 1
    while use(high) < amount and high < LARGEST:
        high *= 2
    scales = range(1, high + 1)
    scale = min(bisect_left(scales, amount, key=use) + 1, high)
    if scale > 1 and amount - use(scale - 1) < use(scale) - amount:
        scale -= 1
    scale = bisect_left(scales, use(scale), key=use) + 1
    if scale == LARGEST and use(scale) < amount * (1 - TOLERANCE):
        raise ValueError(_beyond(name, f"is expected to use {use(scale):,.6g} {unit}", path, amount, unit))
    return strategy.at_scale(scale), use(scale)


def _beyond(name: str, use: str, path: str, amount: float, unit: str) -> str:
    """Return the error message for a method that would need a larger scale than `LARGEST`."""
    return (
        f"{name!r} cannot be matched to {amount:,.10g} {unit}: it {use} at {path}={LARGEST:,}, the largest "
        "scale that is tried. Pass a smaller amount."
    )


def _measure(
    name: str,
    strategy: Strategy,
    path: str,
    task: Task,
    limit: float,
    unit: str,
    by_scale: Mapping[int, Sequence[Run]],
) -> Callable[[int], float]:
    """Return a function of the scale that is about proportional to the use of the method. It may be infinite
    where the use exceeds `limit`."""
    if path.endswith("stop.nodes"):
        return lambda scale: max(scale - 1, 1)  # the root costs nothing
    runs = [run for same in by_scale.values() for run in same[:REHEARSED]]
    if any(isinstance(event, Note) and event.name == "tot.picked" for run in runs for event in run.events):
        # A rehearsal would mislead: recorded replies of a tree search do not fit the paths at another scale.
        def bound(scale: int) -> int:
            return _max_calls(name, strategy.at_scale(scale), task)

        possible = sum(bound(scale) * len(same) for scale, same in by_scale.items())
        made = sum(run.usage.calls for same in by_scale.values() for run in same)
        return float if len(by_scale) > 1 and made < REACHED * possible else bound
    rates = rates_of(runs, unit)

    def rehearsed(scale: int) -> float:
        return fmean(rehearse(strategy.at_scale(scale), run, rates, limit) for run in runs)

    return rehearsed


def _curve(points: Mapping[float, float]) -> Callable[[float], float]:
    """Return the function through `points` that is linear in logarithms, extrapolated beyond the points.

    Through one point it is proportional. If the use hardly rises between the last two points, the method is
    assumed to stop by itself, and to use no more at any larger scale.
    """
    known = sorted((log(x), log(y)) for x, y in points.items() if 0 < x < inf and y > 0)

    def at(x: float) -> float:
        if x == inf or not known:
            return x
        place = bisect_left(known, (log(x),))
        left = min(max(place - 1, 0), max(len(known) - 2, 0))
        (x0, y0), (x1, y1) = known[left], known[min(left + 1, len(known) - 1)]
        slope = max(y1 - y0, 0.0) / (x1 - x0) if x1 > x0 else 1.0
        if place == 0 and slope < SATURATED:
            slope = 1.0
        if place == len(known) > 1:
            x0, y0, slope = x1, max(y0, y1), slope if slope > SATURATED else 0.0
        return exp(y0 + slope * (log(x) - x0))

    return at


def _max_calls(name: str, strategy: Strategy, task: Task) -> int:
    calls = strategy.max_calls(task)
    if calls is None:
        raise ValueError(f"{name!r} has no bound on its calls (max_calls is None), so it cannot be matched.")
    return calls


def _recorded(runs: Any) -> Iterator[Run]:
    """Yield the runs of a sweep, of several sweeps, or of a list."""
    several = isinstance(runs, Sequence) and any(map(is_sweep, runs))
    for part in runs if several else [runs]:
        yield from (place.run for place in placed(part, "match") if place.run is not None)


def _same_method(strategy: Strategy, runs: Sequence[Run]) -> dict[int, list[Run]]:
    """Return the runs of a method by scale, or by 0 for a method without a scale."""
    path, same = strategy.scale_setting(), _at_scale_one(strategy)
    by_scale: dict[int, list[Run]] = {}
    for run in runs:
        made_by = strategy_of(run)
        if made_by is None or run.task is None or _at_scale_one(made_by) != same:
            continue
        scale = 0 if path is None else _scale(made_by, path)
        if scale is not None:
            by_scale.setdefault(scale, []).append(run)
    return by_scale


def _scale(strategy: Strategy, path: str) -> int | None:
    value: Any = strategy
    for part in path.split("."):
        value = getattr(value, part)
    return None if value is None else int(value)


def _at_scale_one(strategy: Strategy) -> dict[str, Any]:
    return strategy.at_scale(1).settings()


def _use(run: Run, unit: str) -> float | None:
    """Return how much of `unit` a run used, or `None` if that is unknown."""
    usage = run.usage
    if unit == "calls":
        return None if "calls" in run.header.unknown else usage.calls
    if unit == "usd":
        return usage.cost
    if unit == "flops":
        return run.compute.flops
    if unit == "output_tokens":
        return usage.output_tokens
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    return usage.input_tokens + usage.output_tokens
