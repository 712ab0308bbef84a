"""Success rates with intervals, and comparisons of settings on the same tasks.

Tasks are the unit of sampling: repeats of a task are not independent samples, and two settings are compared
on the tasks that both have. A run that failed with an error is neither solved nor unsolved: it is counted as
an error and left out. Runs without a grade are left out too. Random draws have a fixed seed, so the same
table gives the same numbers.

A table is a sweep, several runs, or a DataFrame with one row per run and the columns `setting`, `task` and
`correct`, and optionally `error` and `run_id`.

Every result reports the shares of failed, unreadable and truncated calls by role (see
`tot_lab.record.losses`), because a run whose evaluator wrote nothing readable still has an answer and a
grade. A share above 5 % causes a `UserWarning`.

Intervals, tests and corrections are those of statsmodels (`proportion_confint`, `mcnemar`, `multipletests`)
and scipy (`permutation_test`, `bootstrap`, `stats`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import combinations
from math import ceil, sqrt
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tot_lab.analysis.tables import expect_runs_once, failed, solved, table
from tot_lab.record.losses import ByRole, describe, losses_by, warn_of, without_losses

if TYPE_CHECKING:
    import numpy
    import pandas

SEED = 24
"""Seed of all random draws."""


_SWAPS = 9_999
"""Random swaps of a permutation test that has too many swaps to try all."""


class Comparison(NamedTuple):
    """Two settings on the same tasks.

    Attributes:
        a: The first setting.
        b: The second setting.
        tasks: Number of tasks with graded runs of both settings. The next four fields count these tasks.
        both: Tasks that both solved. With repeats, a task is solved if more than half of its runs solved it.
        a_only: Tasks that only `a` solved.
        b_only: Tasks that only `b` solved.
        neither: Tasks that neither solved.
        rate_a: Mean over the tasks of the share of runs of `a` that solved the task.
        rate_b: The same for `b`.
        difference: rate_a - rate_b.
        low: Lower end of the interval of the difference.
        high: Upper end of that interval.
        p: Two-sided p-value of no difference.
        unpaired: Tasks with graded runs of only one of the two settings. They are left out.
        ungraded: Runs of the two settings without a grade, failed ones included. They are left out.
        lost_a: Shares of lost calls of `a`, as in `success_rates`.
        lost_b: The same for `b`.
        swaps: Number of random swaps or reassignments from which `p` was estimated (see `compare`). The
            estimate is slightly too high, since the observed difference counts as one of them. 0 means that
            `p` is exact.
    """

    a: Any
    b: Any
    tasks: int
    both: int
    a_only: int
    b_only: int
    neither: int
    rate_a: float
    rate_b: float
    difference: float
    low: float
    high: float
    p: float
    unpaired: int
    ungraded: int
    lost_a: str | None = None
    lost_b: str | None = None
    swaps: int = 0

    def __repr__(self) -> str:
        """All fields, floats with three significant digits, and `p≤…` if random swaps estimated `p`."""
        fields = []
        for name, value in self._asdict().items():
            sign = "≤" if name == "p" and self.swaps else "="
            fields.append(f"{name}{sign}{f'{value:.3g}' if isinstance(value, float) else repr(value)}")
        return f"Comparison({', '.join(fields)})"


ANSWER_STATES = ["finished", "cut", "unfinished"]


def success_rates(
    df: Any, by: str | Sequence[str] = "setting", *, confidence: float = 0.95
) -> pandas.DataFrame:
    """Compute the success rate of each setting, with Wilson's interval.

    With repeats, the interval uses the effective number of runs: as many independent runs as would give the
    observed spread between tasks (Rao and Scott 1992), corrected for few tasks (Korn and Graubard 1998), at
    least the number of tasks and at most the number of runs. In simulations, the 95 % interval covered the
    rate in 94–98 % of the cases, and in 91 % with 20 tasks and a rate of 0.1.

    Args:
        df: A table with one row per run; see the module.
        by: Column, or columns, that identify a setting.
        confidence: Confidence level of the interval, between 0 and 1.

    Returns:
        One row per setting, in the order of the table, with the columns of `by` and: runs (graded runs),
        tasks, solved (runs), errors (runs that failed with an error), ungraded (other runs without a grade),
        Int64; rate (mean over the tasks of the share of runs that solved the task; NA without a graded run),
        low and high (its interval), Float64; lost (string), the shares of failed, unreadable and truncated
        calls by role, such as `evaluate 12.5% failed`; `none` if no call was lost, NA if that is unknown.
        `lost_calls` gives these as numbers. If runs kept several answers (the table has the column
        `any_of_kept`), also first_answer, the runs whose first answer is correct, which equals solved, and
        any_of_kept, the runs with any correct answer among those kept, Int64. Many publications report
        any_of_kept. If the table has the column `answer_state`, also finished, cut and unfinished, the
        numbers of runs whose answer has that state, Int64.

    Warns:
        UserWarning: If more than 5 % of the calls of a role were lost.
    """
    import numpy  # noqa: PLC0415
    import pandas  # noqa: PLC0415

    check_share(confidence, "confidence")
    keys, given = _keys(by), table(df)
    runs = _runs(given, keys)
    losses = losses_by(given, keys)
    rows = []
    for names, group in runs.groupby(keys, sort=False, observed=True, dropna=False):
        graded = group[~group["ungraded"]]
        tasks = graded.groupby("task", observed=True)["solved"]
        shares, sizes = tasks.mean().to_numpy(float), tasks.size().to_numpy(float)
        row: dict[str, Any] = {
            **dict(zip(keys, names, strict=True)),
            "runs": len(graded),
            "tasks": len(shares),
            "solved": int(graded["solved"].sum()),
            "errors": int(group["failed"].sum()),
            "ungraded": int((group["ungraded"] & ~group["failed"]).sum()),
            "first_answer": int(graded["solved"].sum()),
            "any_of_kept": int(graded["any_of_kept"].sum()),
            **{state: int((group["answer_state"] == state).sum()) for state in ANSWER_STATES},
        }
        if len(shares):
            row["rate"] = float(shares.mean())
            even = numpy.full(len(shares), 1 / len(shares))
            row["low"], row["high"] = wilson(shares, sizes, even, confidence)
        rows.append(row)
    counts = ["runs", "tasks", "solved", "errors", "ungraded"]
    if "any_of_kept" in given:
        counts += ["first_answer", "any_of_kept"]
    if "answer_state" in given:
        counts += ANSWER_STATES
    shown = pandas.DataFrame(rows, columns=[*keys, *counts, "rate", "low", "high"])
    shown["lost"] = pandas.array([describe(losses[names]) for names in losses], dtype="string")
    warn_of(losses)
    kinds = {key: runs[key].dtype for key in keys}
    return shown.astype(
        {**kinds, **dict.fromkeys(counts, "Int64"), **dict.fromkeys(["rate", "low", "high"], "Float64")}
    )


def rates_of(frame: pandas.DataFrame) -> dict[Any, tuple[float, float, float]]:
    """Return, by setting, the success rate and the ends of its interval, without ungraded settings."""
    if frame.empty:
        return {}
    known = success_rates(without_losses(frame)).dropna(subset="rate")
    return dict(
        zip(known["setting"], zip(known["rate"], known["low"], known["high"], strict=True), strict=True)
    )


def compare(df: Any, a: Any, b: Any, *, by: str = "setting", confidence: float = 0.95) -> Comparison:
    """Compare settings `a` and `b` on the tasks that both have.

    The interval of the difference is a percentile bootstrap over tasks, to which two tasks with differences
    of +1 and -1 are added (Bonett and Price 2012), so that equal settings still have an interval of some
    width. `p` is the p-value of McNemar's exact test. With repeats it is that of the sign-flip test over
    tasks, of which McNemar's test is a special case: exact, from all swaps of the two settings within tasks,
    if at most 13 tasks differ, else from 9,999 random swaps (`swaps`). If the settings have different numbers
    of runs of a task, `p` is the larger of this p-value and that of a permutation test, which reassigns the
    runs of each task to the settings, 9,999 times at random.

    Args:
        df: A table with one row per run; see the module.
        a: The first setting.
        b: The second setting.
        by: The column that identifies a setting.
        confidence: Confidence level of the interval, between 0 and 1.

    Raises:
        ValueError: If a setting is not in the table, `a` and `b` are equal, or they have no graded task in
            common.

    Warns:
        UserWarning: If more than 5 % of the calls of a role were lost.
    """
    shares = _shares(df, by)
    found = _compared(shares, a, b, by, confidence)
    warn_of({name: shares.losses[name] for name in (a, b)})
    return found


def compare_all(
    df: Any, against: Any = None, *, by: str = "setting", confidence: float = 0.95
) -> pandas.DataFrame:
    """Compare every two settings, or every setting with `against`.

    Args:
        df: A table with one row per run; see the module.
        against: The setting to compare all others with. `None` compares every pair.
        by: The column that identifies a setting.
        confidence: Confidence level of each interval, between 0 and 1. Intervals are not corrected for the
            number of pairs.

    Returns:
        One row per pair with the fields of `Comparison`, and `p_holm`, the p-value corrected for the
        number of pairs (Holm 1979).

    Warns:
        UserWarning: If more than 5 % of the calls of a role were lost. One warning covers all settings.
    """
    import pandas  # noqa: PLC0415
    from statsmodels.stats.multitest import multipletests  # noqa: PLC0415

    shares = _shares(df, by)
    names = list(shares.of)
    if against is None:
        pairs = list(combinations(names, 2))
    else:
        pairs = [(name, against) for name in names if name != against]
    if not pairs:
        raise ValueError(f"compare_all needs at least two values of {by!r}: got only {names[0]!r}.")
    rows = pandas.DataFrame([_compared(shares, a, b, by, confidence) for a, b in pairs])
    rows["p_holm"] = multipletests(rows["p"], method="holm")[1]
    warn_of({name: shares.losses[name] for name in dict.fromkeys(name for pair in pairs for name in pair)})
    return rows


def lost_calls(df: Any, by: str | Sequence[str] = "setting") -> pandas.DataFrame:
    """Count failed calls, and unreadable and truncated replies.

    Args:
        df: As for `success_rates`.
        by: Column, or columns, that identify a setting.

    Returns:
        One row per setting and role, in the order of the table. Columns: those of `by`; role: string;
        calls, failed, unreadable, truncated: Int64, counts; failed_share, unreadable_share,
        truncated_share: Float64, 0 to 1 (see `tot_lab.record.losses`), NA if there was no call or reply.
        A setting with unknown calls, such as that of a published log, has one row of NA.
    """
    import pandas  # noqa: PLC0415

    keys, counts = _keys(by), ["calls", "failed", "unreadable", "truncated"]
    shares = [f"{name}_share" for name in counts[1:]]
    rows: list[dict[Any, Any]] = []
    given = table(df, keys)
    for names, losses in losses_by(given, keys).items():
        group = dict(zip(keys, names, strict=True))
        if losses is None:
            rows.append(group)
        for role, lost in (losses or {}).items():
            row = {f"{kind}_share": share for kind, share in lost.shares.items()}
            rows.append({**group, "role": role, **lost._asdict(), **row})
    shown = pandas.DataFrame(rows, columns=[*keys, "role", *counts, *shares])
    kinds = {key: given[key].dtype for key in keys}
    return shown.astype(
        {**kinds, "role": "string", **dict.fromkeys(counts, "Int64"), **dict.fromkeys(shares, "Float64")}
    )


def required_sample_size(
    difference: float = 0.05, *, discordant: float = 0.5, power: float = 0.8, alpha: float = 0.05
) -> int:
    """Compute how many tasks `compare` needs to detect a difference, with one run per task and setting.

    The power is that of McNemar's exact test, summed over the possible numbers of discordant tasks. The
    approximation of Connor (1987, Biometrics 43:207) gives slightly fewer tasks.

    Args:
        difference: Difference of the success rates, 0–1.
        discordant: Share of the tasks that exactly one of the two settings solves. A pilot estimates it by
            (a_only + b_only) / tasks. 0.5 is the share for two independent settings with rates near one half.
        power: Probability that p ≤ alpha if the difference is as large as `difference`.
        alpha: Significance level.
    """
    from scipy.stats import norm  # noqa: PLC0415

    check_share(difference, "difference")
    _check_design(difference, discordant, power, alpha)
    one_side, beyond = norm.ppf(1 - alpha / 2), norm.ppf(power)
    roots = one_side * sqrt(discordant) + beyond * sqrt(discordant - difference**2)
    enough = max(ceil((roots / difference) ** 2), 1)
    while _power(enough, difference, discordant, alpha) < power:
        enough *= 2
    return bisect_left(range(enough), power, key=lambda tasks: _power(tasks, difference, discordant, alpha))


def minimum_detectable_difference(
    tasks: int, *, discordant: float = 0.5, power: float = 0.8, alpha: float = 0.05
) -> float:
    """Compute the smallest difference of success rates that `compare` detects with `tasks` tasks.

    This is the inverse of `required_sample_size`; see there for the other parameters.

    Raises:
        ValueError: If there are too few tasks for any difference.
    """
    from scipy.optimize import brentq  # noqa: PLC0415

    _check_design(0.0, discordant, power, alpha)
    if tasks < 1 or _power(tasks, discordant, discordant, alpha) < power:
        raise ValueError(
            f"tasks={tasks} is too few: if exactly one of two settings solves {discordant:.0%} of the tasks, "
            f"no difference can be found with a power of {power:g}."
        )
    return float(
        brentq(lambda difference: _power(tasks, difference, discordant, alpha) - power, 0.0, discordant)
    )


def _keys(by: str | Sequence[str]) -> list[str]:
    return [by] if isinstance(by, str) else list(by)


def _runs(df: Any, keys: list[str]) -> pandas.DataFrame:
    """Validate the table, and return one row per run: the columns `keys`, task, failed, ungraded, solved,
    any_of_kept and answer_state.
    """
    if not keys:
        raise ValueError("by must name at least one column.")
    given = table(df, [*keys, "task", "correct"])
    expect_runs_once(given, keys)
    if taken := sorted({*keys} & _OWN):
        raise ValueError(f"by={taken[0]!r} is also the name of a column of the result. Rename your column.")
    runs, known = given[[*dict.fromkeys([*keys, "task"])]].copy(), solved(given)
    runs["failed"], runs["ungraded"] = failed(given), known.isna()
    runs["solved"] = known.fillna(False).astype(bool)
    kept = given["any_of_kept"].astype("boolean") if "any_of_kept" in given else known
    runs["any_of_kept"] = kept.fillna(known).fillna(False).astype(bool)
    runs["answer_state"] = (
        given["answer_state"].astype("string").fillna("") if "answer_state" in given else ""
    )
    return runs


_OWN = {
    *("runs", "tasks", "solved", "failed", "errors", "ungraded", "first_answer", "any_of_kept"),
    *("rate", "low", "high", "lost", "answer_state", *ANSWER_STATES),
}


class _Shares(NamedTuple):
    """Shares of solved runs.

    Attributes:
        of: By setting and task, the share of runs that solved it (`mean`) and their number (`size`).
        ungraded: By setting, the number of runs without a grade, failed ones included. They are left out.
        losses: The lost calls, by setting.
    """

    of: dict[Any, pandas.DataFrame]
    ungraded: dict[Any, int]
    losses: dict[Any, ByRole | None]


def _shares(df: Any, by: str) -> _Shares:
    if not isinstance(by, str):
        raise TypeError(f"by must be one column: got {by!r}.")
    of, ungraded, given = {}, {}, table(df)
    for (name,), group in _runs(given, [by]).groupby([by], sort=False, observed=True, dropna=False):
        graded = group[~group["ungraded"]]
        of[name] = graded.groupby("task", observed=True)["solved"].agg(["mean", "size"])
        ungraded[name] = len(group) - len(graded)
    losses = losses_by(given, [by]).values()
    return _Shares(of, ungraded, dict(zip(of, losses, strict=True)))


# One setting.


Numbers: TypeAlias = "numpy.ndarray[Any, Any]"


def wilson(shares: Numbers, sizes: Numbers, weights: Numbers, confidence: float) -> tuple[float, float]:
    """Return Wilson's interval of the weighted mean of shares, one per task. `sizes` are the numbers of runs
    of the tasks; `weights` add up to 1."""
    from statsmodels.stats.proportion import proportion_confint  # noqa: PLC0415

    size = _effective(shares, sizes, weights, confidence)
    rate = min(float(weights @ shares), 1.0)
    low, high = proportion_confint(rate * size, size, alpha=1 - confidence, method="wilson")
    return float(low), float(high)


def _effective(shares: Numbers, sizes: Numbers, weights: Numbers, confidence: float) -> float:
    """Return the effective number of runs: how many independent runs would carry the same information."""
    from scipy.stats import t  # noqa: PLC0415

    tasks = float(1 / (weights**2).sum())  # if all repeats of a task had the same outcome (Kish 1965)
    runs = float(1 / (weights**2 / sizes).sum())  # if the repeats were independent
    if len(shares) == 1 or shares.max() == 0 or shares.min() == 1:
        return tasks  # without any difference, the correlation of repeats cannot be estimated
    rate, count = float(weights @ shares), len(shares)
    spread = float((weights**2 * (shares - rate) ** 2).sum()) * count / (count - 1)
    if spread < 1e-12:
        return runs
    side = (1 + confidence) / 2
    few = (t.ppf(side, runs - 1) / t.ppf(side, count - 1)) ** 2
    return float(min(max(rate * (1 - rate) / spread * few, tasks), runs))


# Two settings.


def _compared(shares: _Shares, a: Any, b: Any, by: str, confidence: float) -> Comparison:
    import numpy  # noqa: PLC0415

    check_share(confidence, "confidence")
    for name in (a, b):
        if name not in shares.of:
            raise ValueError(f"The table has no {by} {name!r}. It has {', '.join(map(repr, shares.of))}.")
    if a == b:
        raise ValueError(f"{by} {a!r} cannot be compared with itself. Pass two different values.")
    one, other = shares.of[a], shares.of[b]
    common = one.index[one.index.isin(other.index)]
    unpaired = len(one) + len(other) - 2 * len(common)
    if not len(common):
        raise ValueError(
            f"{a!r} ({len(one)} graded tasks) and {b!r} ({len(other)}) have no graded task in common."
        )
    first, second = (side.loc[common, "mean"].to_numpy(float) for side in (one, other))
    runs, others = (side.loc[common, "size"].to_numpy(int) for side in (one, other))
    difference = numpy.sort(first - second)  # the resamples must not depend on the order of the tasks
    low, high = _interval(difference, confidence)
    p, swaps = _p(first, second, runs, others)
    by_a, by_b = first > 0.5, second > 0.5
    return Comparison(
        a,
        b,
        len(common),
        int((by_a & by_b).sum()),
        int((by_a & ~by_b).sum()),
        int((~by_a & by_b).sum()),
        int((~by_a & ~by_b).sum()),
        float(first.mean()),
        float(second.mean()),
        float(difference.mean()),
        low,
        high,
        p,
        unpaired,
        shares.ungraded[a] + shares.ungraded[b],
        describe(shares.losses[a]),
        describe(shares.losses[b]),
        swaps,
    )


def _interval(difference: numpy.ndarray[Any, Any], confidence: float) -> tuple[float, float]:
    import numpy  # noqa: PLC0415
    from scipy.stats import bootstrap  # noqa: PLC0415

    drawn = bootstrap(
        (numpy.append(difference, [1.0, -1.0]),),
        numpy.mean,
        confidence_level=confidence,
        method="percentile",
        batch=_at_once(len(difference)),
        rng=numpy.random.default_rng(SEED),
    )
    return float(drawn.confidence_interval.low), float(drawn.confidence_interval.high)


def _p(first: Any, second: Any, runs: Any, others: Any) -> tuple[float, int]:
    """Return the p-value for two settings, and the number of random swaps behind it, 0 if it is exact.

    Args:
        first: By task, the share of runs of the first setting that solved it.
        second: The same for the second setting.
        runs: By task, the number of runs of the first setting.
        others: The same for the second setting.
    """
    swapped = _p_of_swaps(first - second)
    if (runs == others).all():
        return swapped
    return max(swapped, (_p_of_deals(first, second, runs, others), _SWAPS))


def _p_of_swaps(difference: Any) -> tuple[float, int]:
    """Return the p-value of the sign-flip test, in which the results of the two settings on a task are
    exchangeable, and the number of random swaps, 0 if it is exact.
    """
    import numpy  # noqa: PLC0415
    from scipy.stats import permutation_test  # noqa: PLC0415
    from statsmodels.stats.contingency_tables import mcnemar  # noqa: PLC0415

    differ = numpy.sort(difference[difference != 0])  # tasks without a difference do not matter
    if (numpy.abs(differ) == 1).all():
        return float(mcnemar([[0, (differ > 0).sum()], [(differ < 0).sum(), 0]], exact=True).pvalue), 0
    if len(differ) == 1:
        return 1.0, 0  # the difference has the same size, swapped or not
    swapped = permutation_test(
        (differ, numpy.zeros(len(differ))),
        lambda one, other, axis: (one - other).mean(axis=axis).round(9),  # rounding errors must not decide
        permutation_type="samples",
        n_resamples=_SWAPS,
        vectorized=True,
        batch=_at_once(len(differ)),
        rng=numpy.random.default_rng(SEED),
    )
    return float(swapped.pvalue), 0 if 2 ** len(differ) <= _SWAPS else _SWAPS


def _p_of_deals(first: Any, second: Any, runs: Any, others: Any) -> float:
    """Return the p-value of a permutation test in which single runs of a task are exchangeable."""
    import numpy  # noqa: PLC0415

    order = numpy.lexsort((first, second, runs, others))
    first, second, runs, others = first[order], second[order], runs[order], others[order]
    solved = (first * runs + second * others).round().astype(int)
    random, batch = numpy.random.default_rng(SEED), _at_once(len(runs))
    parts = []
    for made in range(0, _SWAPS, batch):
        size = min(batch, _SWAPS - made), len(runs)
        dealt = random.hypergeometric(solved, runs + others - solved, runs, size=size)
        parts.append((dealt / runs - (solved - dealt) / others).mean(axis=1))
    drawn = numpy.concatenate(parts)
    as_large = numpy.abs(drawn) >= abs((first - second).mean()) - 1e-9
    return float((as_large.sum() + 1) / (len(drawn) + 1))


def _at_once(tasks: int) -> int:
    """Return how many resamples of this number of tasks fit into the memory limit."""
    return max(1, min(1000, 4_000_000 // max(tasks, 1)))


# Power.


def _power(tasks: int, difference: float, discordant: float, alpha: float) -> float:
    """Return the probability that McNemar's exact test gives p ≤ alpha."""
    import numpy  # noqa: PLC0415
    from scipy.stats import binom  # noqa: PLC0415

    fewest, many = (binom.ppf(beyond, tasks, discordant) for beyond in (1e-10, 1 - 1e-10))
    differ = numpy.arange(fewest, many + 1)  # how many tasks exactly one of the two solves
    most: Any = binom.ppf(alpha / 2, differ, 0.5)
    most -= binom.cdf(most, differ, 0.5) > alpha / 2  # the largest number of wins that is significantly small
    won = (discordant + difference) / (2 * discordant)
    found = binom.cdf(most, differ, won) + binom.sf(differ - most - 1, differ, won)
    return float((binom.pmf(differ, tasks, discordant) * found).sum())


def _check_design(difference: float, discordant: float, power: float, alpha: float) -> None:
    if not 0 < alpha < power < 1:
        raise ValueError(f"alpha and power must satisfy 0 < alpha < power < 1: got {alpha!r} and {power!r}.")
    if not max(difference, 1e-9) <= discordant <= 1:
        raise ValueError(
            f"discordant must be between the difference ({difference:g}) and 1: got {discordant!r}."
        )


def check_share(value: float, name: str) -> None:
    if not 0 < value < 1:
        raise ValueError(f"{name} must be between 0 and 1: got {value!r}.")
