"""Success at matched cost: the answer of each run with a smaller budget, without a new call.

A point of a run at B calls is what the same run under `Budget(calls=B)` gives. Its strategy is run again with
the first B recorded replies in canonical order, and every later call is refused, as the budget would refuse
it. All records before the first refusal must equal the recorded ones, so a strategy that has changed since
raises an error. The cost of a point is the cost of its first B calls.

The functions take a sweep (anything with `.df()` and `.run(run_id)`), one run, or an iterable of runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import ceil, isfinite, log2
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from tot_lab.analysis.counterfactuals import result_of
from tot_lab.analysis.frames import each, typed_frame
from tot_lab.analysis.statistics import success_rates
from tot_lab.analysis.sweep_summary import PRICED_LATER
from tot_lab.analysis.tables import Placed, is_sweep, placed, table
from tot_lab.core.calls import REFUSED, Call, Reply, believed, format_error, is_admitted, refused
from tot_lab.core.protocol import Budget
from tot_lab.core.records import Line
from tot_lab.record.compute import Flops, flops_by_call
from tot_lab.record.edits import Edits
from tot_lab.record.losses import ByRole, columns_of, losses_of
from tot_lab.record.run import SIMULATED, Run, Usage, model_note, replies_of
from tot_lab.record.waiting import with_progress
from tot_lab.runtime.budget import used_by
from tot_lab.runtime.driver import Driver
from tot_lab.runtime.recorder import Divergence, Recorder
from tot_lab.runtime.replay import runnable
from tot_lab.runtime.roles import roles_from, thinking_of

if TYPE_CHECKING:
    import pandas

Unit = Literal["calls", "tokens", "cost", "flops", "flops_prefix_once"]

FRACTIONS: tuple[Unit, ...] = ("cost", "flops", "flops_prefix_once")
"""Units with fractional amounts. Amounts of `calls` and `tokens` are whole numbers."""

HALVINGS = 8
"""Default amounts of tokens, USD or FLOPs begin at 2⁻⁸ of the largest use of a run, those of calls at 1."""


class Point(NamedTuple):
    """The outcome of a run with a smaller budget. A field is `None` if its value is unknown or missing.

    `used` and `flops` are the use of the admitted calls. `error` says what the strategy raised, or why the
    answer cannot be graded.
    """

    used: Usage | None
    answer: str | None = None
    score: float | None = None
    stop_reason: str | None = None
    error: str | None = None
    losses: ByRole | None = None
    flops: Flops | None = None


def anytime_performance(
    runs: Any, at: Sequence[float] | None = None, *, unit: Unit = "calls"
) -> pandas.DataFrame:
    """Compute what each run would have answered with smaller budgets. No call is made.

    `tl.stats.success_rates` with `by=["setting", "at"]` makes curves of the result, and `tl.stats.compare`
    works on the rows of one amount. Limits of the run's own budget and strategy still apply. For
    amounts beyond the end of an incomplete record (the run was killed, cancelled, stopped by `spend`, or is
    counterfactual), the outcome is NA. If a bug ended a run, every amount that includes all of its calls has
    that error.

    Args:
        runs: A sweep, a run, or an iterable of runs.
        at: Amounts. `None` means 1, 2, 3, 4, 6, 8, 12, … up to the first that is at least the largest use of
            a run. In units other than calls, such a series begins at about 1/256 of the largest use.
        unit: Unit of the amounts: `calls`, `tokens` (input and output, estimated for models that do not count
            them), `cost` (USD if every call were paid), `flops` or `flops_prefix_once` (see
            `tot_lab.record.compute`). An amount in a unit other than calls admits as many calls, in canonical
            order, as fit into it. A `Budget` stops a live run sooner, since it reserves before each call, and
            cannot limit FLOPs.

    Returns:
        One row per run and amount: setting, task (category); repeat (Int64); run_id (string); at (Int64, or
        Float64 for USD and FLOPs); unit (category); calls, input_tokens, output_tokens (Int64), cost, flops
        and flops_prefix_once (Float64), the use of the admitted calls; ROLE_calls, ROLE_failed,
        ROLE_unreadable, ROLE_truncated (Int64) as in `sweep.df()`; answer (string); score (Float64); correct
        (boolean, NA without a grade); stop_reason (string); error (string, what the strategy raised, or why
        the answer cannot be graded); changed (boolean, whether the answer differs from that at the next
        smaller amount or, at the smallest one, is not empty); simulated (boolean). For runs outside a sweep,
        `setting` lists the settings that differ, and `task` is the question.

    Raises:
        LookupError: For a run that was loaded from a file and needs a user's functions, and for a record that
            no strategy made, such as a published log. For the latter, use `counterfactual`.
    """
    if unit not in get_args(Unit):
        raise ValueError(f"unit must be one of {', '.join(get_args(Unit))}: got {unit!r}.")
    places: Iterable[Placed] = placed(runs, "anytime_performance")
    if not is_sweep(runs):
        places = list(places)
        if not places:
            raise ValueError("runs must not be empty: anytime_performance needs at least one run.")
        for place in places:
            _expect_strategy(place.run)
    amounts = _grid(runs if is_sweep(runs) else places, unit) if at is None else _amounts(at, unit)
    rows = [
        (*place[:4], place.run.model_note if place.run else "", amount, point)
        for place in places
        for amount, point in zip(amounts, result_of(_points(place, amounts, unit)), strict=True)
    ]
    return _frame_of(rows, unit, len(amounts))


def _frame_of(rows: Sequence[tuple[Any, ...]], unit: Unit, amounts: int) -> pandas.DataFrame:
    """Return the table of `anytime_performance`. `amounts` is the number of rows per run."""
    setting, task, repeat, run_id, notes, at, points = (list(column) for column in zip(*rows, strict=True))
    answers = [point.answer for point in points]
    before = ["" if k % amounts == 0 else answers[k - 1] or "" for k in range(len(answers))]
    pairs = zip(answers, before, strict=True)
    used = [point.used for point in points]
    frame = typed_frame(
        {
            "setting": (tuple(dict.fromkeys(setting)), setting),
            "task": (tuple(dict.fromkeys(task)), task),
            "repeat": ("Int64", repeat),
            "run_id": ("string", run_id),
            "at": ("Float64" if unit in FRACTIONS else "Int64", at),
            "unit": ("category", [unit] * len(at)),
            **each(used, calls="Int64", input_tokens="Int64", output_tokens="Int64", cost="Float64"),
            **each([point.flops for point in points], **dict.fromkeys(Flops._fields, "Float64")),
            **columns_of([point.losses for point in points]),
            "answer": ("string", answers),
            "score": ("Float64", [point.score for point in points]),
            "correct": ("boolean", [None if point.score is None else point.score == 1.0 for point in points]),
            **each(points, stop_reason="string", error="string"),
            "changed": ("boolean", [None if now is None else now != then for now, then in pairs]),
            "simulated": ("boolean", [note == SIMULATED for note in notes]),
        }
    )
    frame.attrs["model_note"] = model_note(notes)
    return frame


def at_matched_cost(
    runs: Any, budget: float, *, unit: Unit = "calls", confidence: float = 0.95
) -> pandas.DataFrame:
    """Compute the success rate of each setting if every run may use at most `budget`, an amount of `unit`.

    See `anytime_performance` for how a run is cut off, and `success_rates` for the columns.
    """
    return success_rates(anytime_performance(runs, [budget], unit=unit), confidence=confidence)


def pareto_frontier(
    df: Any, by: str | Sequence[str] = "setting", *, unit: str = "calls", confidence: float = 0.95
) -> pandas.DataFrame:
    """Compute success rate against cost, and which settings are Pareto-optimal.

    A setting is on the frontier unless another setting has at least its success rate for at most its cost,
    and is better in one of the two. The measured rates are compared without a test; for that, use
    `tl.stats.compare`.

    Args:
        df: A table with one row per run, as for `success_rates`.
        by: Column, or columns, that identify a setting; `["setting", "at"]` for points of
            `anytime_performance`.
        unit: The cost: `calls`, `tokens`, `cost`, or a column such as `flops` or `seconds_alone`. Runs whose
            cost is not known are left out of the mean.
        confidence: Confidence level of the intervals, between 0 and 1.

    Returns:
        The columns of `success_rates`, the mean of `unit` over the tasks (Float64), and `frontier`
        (bool).

    Warns:
        UserWarning: If more than 5 % of the calls of a role were lost.
    """
    import pandas  # noqa: PLC0415

    needs = ["input_tokens", "output_tokens"] if unit == "tokens" else [unit]
    given = table(df, needs)
    if not all(pandas.api.types.is_numeric_dtype(given[name]) for name in needs):
        raise ValueError(f"unit must be a numeric column of the table: got {unit!r}.")
    shown = success_rates(given, by, confidence=confidence)
    keys = [by] if isinstance(by, str) else list(by)
    amounts = given.assign(**{unit: given[needs].sum(axis=1, skipna=False)})
    groups: Any = amounts.groupby(keys, sort=False, observed=True, dropna=False)
    means = [group.groupby("task", observed=True)[unit].mean().mean() for _, group in groups]
    shown[unit] = pandas.array(means, dtype="Float64")
    rates, costs = (shown[name].to_numpy("float64", na_value=float("nan")) for name in ("rate", unit))
    if not (rates == rates).any() or not (costs == costs).any():
        is_log = unit not in ("cost", "paid") or not ("calls" in given and given["calls"].notna().any())
        why = (
            "A published log has neither calls nor cost"
            if is_log
            else f"Set price= of the model. {PRICED_LATER}"
        )
        graded, priced = int(given["correct"].notna().sum()), int(amounts[unit].notna().sum())
        raise ValueError(
            f"No setting has both a grade and a known {unit!r}: got {len(given):,} rows, {graded:,} with a "
            f"grade and {priced:,} with {unit!r}. {why}."
        )
    shown["frontier"] = [
        bool(rate == rate and cost == cost)
        and not ((rates >= rate) & (costs <= cost) & ((rates > rate) | (costs < cost))).any()
        for rate, cost in zip(rates, costs, strict=True)
    ]
    return shown


def _expect_strategy(run: Run | None) -> None:
    """Raise `LookupError` if no strategy made the record of `run`."""
    if run is not None and run.header.strategy.get("kind") in (None, "recorded"):
        unknown = ", ".join(run.header.unknown)
        raise LookupError(
            f"Run {run.id} ({run.name}) cannot be run with a smaller budget: its record was not made by a "
            f"strategy." + (f" Its {unknown} are unknown too." if unknown else "") + " Use tl.counterfactual."
        )


# The amounts.


def _grid(runs: Any, unit: Unit) -> list[float]:
    """Return the amounts 2ᵏ and 1.5·2ᵏ, up to the first that is at least the largest use of a run. Amounts of
    different sweeps are thus comparable. `runs` is a sweep or a list of `Placed`."""
    if isinstance(runs, list):
        most = max(sum(_spent(place.run, unit)) for place in runs)
    else:
        needs = ["input_tokens", "output_tokens"] if unit == "tokens" else [unit]
        most = table(runs, needs)[needs].astype("float64").sum(axis=1, skipna=False).max()
        if most != most:
            raise ValueError(f"The {unit} that the runs used are unknown. Pass the amounts as at=.")
    if most == 0:
        return [0]
    last = ceil(log2(most))
    first = 0 if unit == "calls" else last - HALVINGS
    steps = [2.0**k * half for k in range(first, last + 1) for half in (1.0, 1.5)]
    steps = [step for step in steps if unit in FRACTIONS or (step >= 1 and step == int(step))]
    held = next(k for k, step in enumerate(steps) if step >= most)
    return [step if unit in FRACTIONS else int(step) for step in steps[: held + 1]]


def _amounts(at: Sequence[float], unit: Unit) -> list[float]:
    if not isinstance(at, Iterable):
        raise TypeError(f"at must be a list of amounts, such as [1, 2, 4]: got {at!r}.")
    amounts = list(at)
    for amount in amounts:
        if (
            not isinstance(amount, Real)
            or not isfinite(amount)
            or amount < 0
            or (unit not in FRACTIONS and amount != int(amount))
        ):
            whole = "a number" if unit in FRACTIONS else "a whole number"
            raise ValueError(f"at must contain {whole} of {unit}, at least 0: got {amount!r}.")
    if not amounts:
        raise ValueError("at must not be empty.")
    return sorted(set(amounts))


def _spent(run: Run, unit: Unit) -> list[float]:
    """Return how much of `unit` each call used, in canonical order. Raises `ValueError` if the FLOPs or the
    cost of a call are unknown."""
    lines = run.lines
    calls = {line.p: line.e for line in lines if isinstance(line.e, Call)}
    made = [(line.p, line.e) for line in lines if isinstance(line.e, Reply) and is_admitted(line.e)]
    made.sort(key=lambda pair: pair[0])
    if unit in Flops._fields:
        by_call = flops_by_call(lines, run.params, run.header.unknown)
        amounts = [getattr(by_call[place], unit) if place in by_call else 0.0 for place, _ in made]
        if None in amounts:
            raise ValueError(
                "The FLOPs of some calls are unknown: their roles need params, as in "
                'Lab(roles={"propose": {"params": 1.5e9}}), and their models must report token counts.'
            )
        return amounts
    if unit == "calls":
        return [1.0] * len(made)
    if unit == "cost" and any(reply.cost is None and reply.error is None for _, reply in made):
        raise ValueError("The cost of some calls is unknown. Use unit='tokens' or 'calls'.")
    amount = "usd" if unit == "cost" else unit
    return [used_by(calls[position], believed(reply))[amount] for position, reply in made]


# One run.


async def _points(place: Placed, amounts: Sequence[float], unit: Unit) -> list[Point]:
    """Return the outcome of a run for each amount."""
    if place.run is None:
        return [Point(None, error=place.error)] * len(amounts)
    cut = _Cut(place.run)
    sums = list(accumulate(_spent(place.run, unit)))
    if not cut.known:
        # The outcome is known only for amounts that do not reach the first call without a reply.
        sums = sums[: len(cut.ends) - 1]
        sums.append(sum(sums[-1:]) + (unit not in FRACTIONS))
    # A tolerance, because a sum of cents may differ from the written amount in its last digits.
    fits = [int(sum(spent <= amount * (1 + 1e-9) for spent in sums)) for amount in amounts]
    distinct = list(dict.fromkeys(fits))
    shown = with_progress(distinct, "anytime_performance, one run", len(distinct), "amount")
    at = {calls: await cut.point(calls) for calls in shown}
    return [at[calls] for calls in fits]


class _Cut:
    """A run that can be cut off after any of its calls."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.strategy, self.task = runnable(run.header, run.strategy, run.task)
        self.lines = sorted((line for line in run.lines if line.p), key=lambda line: line.p)
        replies = replies_of(self.lines)
        self.known = run.stop_reason is not None and not any(map(self._lacks, replies.values()))
        """Whether the record contains all replies that the strategy requested."""
        self.ends = [0]
        """`ends[n]` is the number of lines up to the n-th reply of a model, and up to the results of tools
        after it. The list ends before the first call without a reply."""
        for number, line in enumerate(self.lines, 1):
            if isinstance(line.e, Call) and self._lacks(replies.get(line.p)):
                break
            if isinstance(line.e, Reply) and is_admitted(line.e):
                self.ends.append(number)
            elif isinstance(line.e, Reply) and line.e.tool is not None:
                self.ends[-1] = number  # a point includes the results of tools before its next call
        self.grades: dict[str, tuple[float | None, str | None]] = {}

    def _lacks(self, reply: Reply | None) -> bool:
        """Return whether a call has no reply of its model, because the run was interrupted or is
        counterfactual."""
        if reply is None or reply.error in ("cancelled", REFUSED):
            return True
        return bool(self.run.header.counterfactual and reply.error and not refused(reply.error))

    async def point(self, calls: int) -> Point:
        """Return the outcome if only the first `calls` calls are admitted. If it is unknown, all fields are
        `None`.
        """
        run = self.run
        if self.known and calls >= run.usage.calls:
            return self._graded(run)
        if calls >= len(self.ends):
            return Point(None)
        return self._graded(await self._cut_off(self.lines[: self.ends[calls]], calls))

    async def _cut_off(self, prefix: list[Line], calls: int) -> Run:
        """Return the run in which every call after those in `prefix` is refused."""
        header = self.run.header
        recorder = Recorder(header=header)
        recorder.expect(prefix)
        driver = Driver(
            _no_model,
            recorder,
            budget=Budget(calls=calls),
            repeat=header.repeat,
            replies=replies_of(prefix),
        )
        edits = Edits.of(header.branched)
        thinking = thinking_of(self.strategy, self.task, roles_from(header.roles), edits)
        try:
            await driver.drive(thinking)
            if (missing := recorder.missing()) is not None:
                raise Divergence(f"the record continues with {missing!r}")
        except Divergence as error:
            raise Divergence(f"run {self.run.id} cannot be repeated: {error}") from None
        except Exception:
            pass  # the strategy's own error, which is recorded
        made = Run(header, recorder.lines)
        made.params = self.run.params
        return made

    def _graded(self, made: Run) -> Point:
        used = losses_of(made), Flops(*made.compute[:2])
        if made.failure is not None:
            return Point(made.usage, made.answer, None, made.stop_reason, made.failure, *used)
        if made.answer not in self.grades:
            try:
                self.grades[made.answer] = self.run.grades([made.answer])[0], None
            except Exception as error:
                why = f"the answer cannot be graded: {format_error(error)}"
                self.grades[made.answer] = None, why
        score, ungraded = self.grades[made.answer]
        return Point(made.usage, made.answer, score, made.stop_reason, made.error or ungraded, *used)


def _no_model(*_: object) -> Any:
    raise Divergence("a call without a recorded reply")
