"""Calibration of the routes of `tl.Adaptive`, and the regret of its choices.

`calibrate_router` finds the best setting for each kind of task, and marks the choices that are not
statistically significant. `regret` compares the choices of the router with other ways to choose a setting.
There, the best setting is selected on one half of the tasks and measured on the other half, and vice versa,
because it looks too good on the tasks that selected it. Only `hindsight`, an upper bound, selects and
measures on the same task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from tot_lab.analysis.statistics import Numbers, compare, compare_all, success_rates
from tot_lab.analysis.tables import solved, table
from tot_lab.record.losses import losses_by, warn_of, without_losses
from tot_lab.record.routed import Routed, routed_in
from tot_lab.record.run import Run, expect_run
from tot_lab.strategies.adaptive import Adaptive, kind_of

if TYPE_CHECKING:
    import pandas

UNDECIDED = "undecided"
"""The kind of a task for which the rules of `tl.Adaptive` do not decide."""

SURE = 0.05
"""Significance level: a choice is settled if its difference to the second best has at most this p-value."""


def routed(run: Run) -> Routed | None:
    """Return the choice of the first `tl.Adaptive` in a run. `None` if the run has no `tl.Adaptive`, or none
    made a choice.
    """
    expect_run(run, "routed")
    return routed_in(run.events)


class Calibrated(NamedTuple):
    """The result of `calibrate_router`: routes for `tl.Adaptive(strategies=…, routes=found.routes)`, and
    their evidence.

    Attributes:
        routes: Maps each kind of task to the setting that solved most tasks. Ties go to the fewest calls.
        evidence: One row per kind of task: kind; chosen (the setting); tasks; rate, low, high (its success
            rate with Wilson's interval); next (the second best setting); difference, difference_low,
            difference_high between the two, as in `tl.stats.compare`; p (of no difference, Holm-corrected for
            all pairs of settings); settled (p ≤ 0.05, or there was only one setting).
    """

    routes: dict[str, str]
    evidence: pandas.DataFrame

    @property
    def unsettled(self) -> list[str]:
        """Kinds of tasks for which the two best settings do not differ significantly."""
        return [str(kind) for kind in self.evidence.loc[~self.evidence["settled"], "kind"]]

    def __repr__(self) -> str:
        lines = [f"{kind} → {setting}" for kind, setting in self.routes.items()]
        if self.unsettled:
            lines.append(f"not settled by so few tasks: {', '.join(self.unsettled)} (see .evidence)")
        return "\n".join(lines)


def calibrate_router(df: Any, *, by: str = "domain") -> Calibrated:
    """Find the best setting of a sweep for each kind of task, as routes for `tl.Adaptive`.

    Args:
        df: A sweep, or a table such as `sweep.df()` (see `tot_lab.analysis.statistics`). Runs of
            `tl.Adaptive` are omitted. The labels of the settings become the names of the strategies, so pass
            the same dict of strategies to `Adaptive`.
        by: The column with the kind of a task. `kind` applies the rules of `tl.Adaptive` (`simple`,
            `writing`, `steps`, `open`) and requires the sweep itself, which contains the tasks.

    Raises:
        ValueError: If the table has no graded run or lacks the column `by`.

    Warns:
        UserWarning: As `tl.stats.success_rates` does.
    """
    import pandas  # noqa: PLC0415

    runs = _graded(_with_kinds(df, by))
    warn_of(losses_by(runs, ["setting"]))
    runs = without_losses(runs)
    routes: dict[str, str] = {}
    rows: list[dict[str, Any]] = []
    for kind, group in runs.groupby(by, sort=False, observed=True):
        if kind == UNDECIDED:
            continue
        first, *others = _Shares(group, by).ranked()
        routes[str(kind)] = first
        rate = success_rates(group).set_index("setting").loc[first]
        row = {"kind": str(kind), "chosen": first, "settled": not others}
        row |= {name: rate[name] for name in ("tasks", "rate", "low", "high")}
        if others:
            found, pairs = compare(group, first, others[0]), compare_all(group)
            pair = pairs["a"].isin([first, others[0]]) & pairs["b"].isin([first, others[0]])
            p = float(pairs.loc[pair, "p_holm"].iloc[0])
            row |= {"next": others[0], "difference": found.difference, "p": p, "settled": p <= SURE}
            row |= {"difference_low": found.low, "difference_high": found.high}
        rows.append(row)
    columns = ["kind", "chosen", "tasks", "rate", "low", "high", "next", "difference"]
    columns += ["difference_low", "difference_high", "p", "settled"]
    return Calibrated(routes, pandas.DataFrame(rows, columns=columns).astype({"settled": bool}))


def regret(df: Any, *, router: str | None = None, by: str = "domain") -> pandas.DataFrame:
    """Compute how much higher the success rate of better choices would be than that of `tl.Adaptive`.

    Negative regret means that `tl.Adaptive` was better.

    Args:
        df: A sweep, or its table, with runs of `Adaptive` and, on the same tasks, of the strategies that it
            chooses from.
        router: The setting of the router. `None` means the one whose strategy is `adaptive`.
        by: As for `calibrate_router`.

    Returns:
        One row per alternative: `one for all` (for each task, the setting that is best on the other half of
        the tasks), `one a kind` (the setting that is best on tasks of the same kind in the other half, or
        on the whole other half if it has none), and `hindsight` (the setting that is best on the task
        itself, an upper bound that is more optimistic with fewer repeats). Every second task of each
        kind, in the order of the table, belongs to the second half. Columns: against; regret, low, high
        (95 %) and p (of no difference), as in `tl.stats.compare`; tasks; rate (of the alternative);
        rate_router.

    Raises:
        ValueError: If the router or the other settings have no graded runs, or have fewer than two graded
            tasks in common.

    Warns:
        UserWarning: As `tl.stats.success_rates` does.
    """
    import pandas  # noqa: PLC0415

    runs = _with_kinds(df, by)
    warn_of(losses_by(runs, ["setting"]))
    runs = without_losses(runs)
    name = _router_in(runs) if router is None else router
    own = runs[runs["setting"] == name]
    if own.empty:
        raise ValueError(f"The table has no setting {name!r}. It has {', '.join(map(str, _labels(runs)))}.")
    others = _graded(runs[(runs["setting"] != name) & runs["task"].isin(own["task"])])
    shares = _Shares(others, by)
    if len(shares.tasks) < 2:
        raise ValueError(f"{name!r} and the other settings must have at least two graded tasks in common.")
    rows = []
    for against, picked in shares.choices():
        chosen = others[others["setting"].astype(object) == others["task"].astype(object).map(picked)]
        sides = [chosen.assign(setting="choice"), own.assign(setting="router")]
        found = compare(pandas.concat(sides, ignore_index=True), "choice", "router")
        rates = (found.tasks, found.rate_a, found.rate_b)
        rows.append((against, found.difference, found.low, found.high, found.p, *rates))
    columns = ["against", "regret", "low", "high", "p", "tasks", "rate", "rate_router"]
    return pandas.DataFrame(rows, columns=columns)


class _Shares:
    """The share of runs that solved the task, and the mean number of calls per run, by task and setting."""

    def __init__(self, runs: pandas.DataFrame, by: str) -> None:
        known = runs.assign(solved=solved(runs).astype(float), calls=runs["calls"].astype(float))
        means = known.groupby(["task", "setting"], sort=False, observed=True)[["solved", "calls"]].mean()
        self.settings = _labels(runs)
        self.solved = means["solved"].unstack().reindex(columns=self.settings)
        self.calls = means["calls"].unstack().reindex(columns=self.settings)
        self.tasks = list(self.solved.index)
        kinds = runs.drop_duplicates("task").set_index("task")[by].astype(object)
        self.kinds = kinds.reindex(self.tasks).to_numpy()

    def ranked(self, on: Any = slice(None)) -> list[str]:
        """Return the settings, best on the tasks `on` first: by success, then by fewer calls, then as
        given.
        """
        solved, calls = self.solved[on].mean(), self.calls[on].mean()
        found = [name for name in self.settings if solved[name] == solved[name]]  # without NaN
        return sorted(found, key=lambda name: (-round(solved[name], 9), calls[name]))

    def choices(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield the name of each way to choose a setting, with the settings that it picks, by task."""
        import numpy  # noqa: PLC0415

        places = numpy.arange(len(self.tasks))
        half = numpy.array([(self.kinds[:k] == kind).sum() % 2 for k, kind in enumerate(self.kinds)])
        masks: dict[str, Callable[[int], Numbers]] = {
            "one for all": lambda k: half != half[k],
            "one a kind": lambda k: (half != half[k]) & (self.kinds == self.kinds[k]),
            "hindsight": lambda k: places == k,
        }
        for against, mask in masks.items():
            picked = {}
            for k, task in enumerate(self.tasks):
                on = next(on for on in (mask(k), half != half[k], places != k) if on.any())
                there = self.solved.loc[task].notna()
                picked[task] = next(name for name in [*self.ranked(on), *self.settings] if there[name])
            yield against, picked


def _with_kinds(df: Any, by: str) -> pandas.DataFrame:
    """Return the table of `df`. If `by` is "kind" and it has no such column, add it: the kind of each task by
    the rules of `tl.Adaptive`.
    """
    given = table(df, ["setting", "task", "correct", "calls", *([by] if by != "kind" else [])])
    if by != "kind" or "kind" in given:
        return given
    if not hasattr(df, "tasks"):
        raise ValueError(
            "by='kind' needs the sweep itself instead of its table, since the rules read the tasks."
        )
    kinds = {label: found.kind if (found := kind_of(task)) else UNDECIDED for label, task in df.tasks.items()}
    return given.assign(kind=given["task"].astype(object).map(kinds))


def _graded(runs: pandas.DataFrame) -> pandas.DataFrame:
    """Return the graded runs without those of a router."""
    kept = runs[solved(runs).notna()]
    if "strategy" in kept:
        kept = kept[kept["strategy"] != Adaptive.kind]
    if kept.empty:
        raise ValueError("The table has no graded run of a strategy other than tl.Adaptive.")
    return kept


def _router_in(runs: pandas.DataFrame) -> str:
    """Return the only setting of `tl.Adaptive`. Raises `ValueError` unless there is exactly one."""
    made = runs["strategy"] == Adaptive.kind if "strategy" in runs else runs["setting"] == Adaptive.kind
    names = _labels(runs[made])
    if len(names) != 1:
        raise ValueError(
            f"The table must have one setting of tl.Adaptive, or router= must name one: got "
            f"{', '.join(names) or 'none'}."
        )
    return names[0]


def _labels(runs: pandas.DataFrame) -> list[str]:
    return [str(name) for name in dict.fromkeys(runs["setting"])]
