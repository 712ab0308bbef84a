"""Estimates for the rest of a sweep: bounds before any run, and expected values after a few tasks."""

from __future__ import annotations

import hashlib
import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from tot_lab.core.calls import Call, Halt, Reply, is_made
from tot_lab.lab.sweeps.progress import progress
from tot_lab.lab.sweeps.sweep import Cell, Sweep
from tot_lab.record.compute import flops_by_call
from tot_lab.record.journal import JournalError
from tot_lab.record.run import Run, money, text_table
from tot_lab.runtime.estimates import Amounts, total

SPREAD = 0.7
"""Coefficient of variation between tasks that is assumed before any task is finished."""

WEIGHT = 2
"""Number of finished tasks that weigh as much as the assumed `SPREAD`."""


class Forecast(NamedTuple):
    """The forecast of one amount, such as calls, for the unfinished runs of a sweep. `None` means unknown.

    Attributes:
        bound: Upper bound.
        expected: The mean of the finished tasks, scaled to the unfinished runs.
        low: Lower end of the 90 % interval.
        high: Upper end of that interval.
    """

    bound: float | None = None
    expected: float | None = None
    low: float | None = None
    high: float | None = None


class SweepEstimate(NamedTuple):
    """The predicted usage of the unfinished runs of a sweep. Only calls that are sent count: equal calls of
    several runs count once, and calls that the cache is known to answer do not count.

    The expectation treats the finished tasks as a random sample of all tasks. Two tasks say little about how
    much tasks differ: their difference alone gives an interval that is either useless or, if the two happen
    to be alike, far too short. The coefficient of variation between tasks is therefore pooled with an assumed
    value of 0.7 that weighs as much as two tasks. With `n` finished tasks, and unfinished runs on `m` tasks,
    the interval is the expectation divided and multiplied by `exp(t * cv * sqrt(1/n + 1/m))`, where `t` is
    the 95 % quantile of Student's distribution with `n + 1` degrees of freedom. Settings and repeats do not
    count as further observations, since a long task is long for all of them. If one task in ten costs a
    hundred times as much as the others, two tasks cannot show it: use a larger pilot.

    Attributes:
        runs: Number of runs.
        finished: Number of runs that need no further calls.
        cached: Number of calls of the other runs that the cache answers, as far as the searches can be
            followed.
        sample: Number of tasks on which the expectation is based: those with a repeat that is finished in all
            settings.
        unbounded: Settings whose number of calls has no bound.
        unpriced: Models of unknown price, if the lab has a limit on spending. No call to them will be sent.
        calls: Model calls.
        input_tokens: Tokens of prompts.
        output_tokens: Tokens of replies, thinking included.
        cost: USD. Charges for failed tries are not included.
        flops: FLOPs, as in `Run.compute`, if the roles have `params`.
    """

    runs: int
    finished: int
    cached: int
    sample: int
    unbounded: tuple[str, ...]
    unpriced: tuple[str, ...]
    calls: Forecast
    input_tokens: Forecast
    output_tokens: Forecast
    cost: Forecast
    flops: Forecast

    def __repr__(self) -> str:
        rows = [["", "at most", "expected", "90 % interval"]]
        for name in Amounts._fields:
            forecast: Forecast = getattr(self, name)
            if name != "flops" or forecast != Forecast():
                label = _LABELS.get(name, name.replace("_", " "))
                bound, expected, low, high = (_shown(name, amount) for amount in forecast)
                rows.append([label, bound, expected, f"{low} – {high}"])
        table = text_table(rows if self.sample else [row[:2] for row in rows])
        based = f"expected from {self.sample:,} finished task{'' if self.sample == 1 else 's'}"
        return "\n".join(
            [
                f"left: {self.runs - self.finished:,} of {self.runs:,} runs",
                *table,
                *([based] if self.sample else []),
                *self._unknown(),
                *([f"the cache answers at least {self.cached:,} other calls"] if self.cached else []),
            ]
        )

    def _unknown(self) -> Iterator[str]:
        """Yield texts about the unknown bounds: why they are unknown, and which setting would make them
        known.
        """
        if self.unpriced:
            names = ", ".join(self.unpriced)
            yield f"no call to {names} will be sent: spend= needs a price. Set price= of the model"
        if self.unbounded:
            or_pilot = "" if self.sample else ", or pilot=2 for an expectation"
            yield (
                f"no bound on the calls of {', '.join(self.unbounded)}: max_calls is None. Pass "
                f"budget=tl.Budget(calls=…){or_pilot}"
            )
        elif None in (self.input_tokens.bound, self.output_tokens.bound):
            yield (
                "no bound on the tokens: the model's context window or its longest reply is unknown. Set "
                "context_window= of the model and max_tokens= of the strategies"
            )
        elif self.cost.bound is None and not self.unpriced:
            yield "no bound on the cost: the price of the model is unknown. Set price= of the model"


_LABELS = {"cost": "USD", "flops": "FLOPs"}


def _shown(name: str, amount: float | None) -> str:
    if amount is None:
        return "unknown"
    return money(amount) if name == "cost" else f"{amount:.3g}" if name == "flops" else f"{amount:,.0f}"


async def estimate_sweep(sweep: Sweep, pilot: int = 0) -> SweepEstimate:
    """Predict the usage of the unfinished runs, after running the first repeat of `pilot` tasks.

    Without a pilot nothing is sent or recorded.

    Raises:
        ValueError: If there are fewer tasks than `pilot`.
    """
    if pilot:
        await sweep.carry_out(None, progress, cells=_pilot_cells(sweep, pilot))
    left: list[Cell] = []
    costs: dict[int, list[dict[int, Amounts]]] = {}  # by task, for each finished repeat, by setting
    for block in _blocks(sweep):
        seen: set[bytes] = set()
        used: dict[int, Amounts] = {}
        for cell in block:
            with suppress(JournalError, OSError):  # its row will show the error, and no call is made
                if (run := sweep.finished(cell)) is None:
                    left.append(cell)
                else:
                    used[cell.setting] = _sent(sweep, run, seen)
        if len(used) == len(block):
            costs.setdefault(block[0].task, []).append(used)
    cached, bounds, unbounded, unpriced = 0, [], set[int](), set[str]()
    for cell in left:
        try:
            found = await sweep.runner.estimate(*sweep.part(cell), repeat=cell.repeat, budget=sweep.budget)
        except Halt:  # the cache cannot be read
            raise
        except Exception:  # the run will report a bug in the strategy
            bounds.append(Amounts(None if sweep.budget is None else sweep.budget.calls))
        else:
            cached += found.cached
            bounds.append(found.sent)
            unpriced.update(found.unpriced)
        if bounds[-1].calls is None:
            unbounded.add(cell.setting)
    bound = sweep.runner.within_spend(total(bounds), unpriced)
    settings = Counter(cell.setting for cell in left)
    tasks = Counter(cell.task for cell in left)
    samples = [_if_all_were(blocks, settings) for blocks in costs.values()]
    forecasts = [
        _forecast(most, [sample[place] for sample in samples], list(tasks.values()))
        for place, most in enumerate(bound)
    ]
    labels = tuple(label for k, label in enumerate(sweep.settings) if k in unbounded)
    finished = len(sweep.cells) - len(left)
    refused = tuple(sorted(unpriced))
    return SweepEstimate(len(sweep.cells), finished, cached, len(costs), labels, refused, *forecasts)


def _pilot_cells(sweep: Sweep, tasks: int) -> list[Cell]:
    """Return the cells of the first repeat of `tasks` tasks. A hash of the labels chooses the tasks, so that
    the choice stays the same. It ignores the order of the tasks, which may be sorted by difficulty.

    Raises:
        ValueError: If there are fewer tasks.
    """
    if isinstance(tasks, bool) or not isinstance(tasks, int) or not 1 <= tasks <= len(sweep.tasks):
        raise ValueError(f"pilot must be 1 to {len(sweep.tasks)}, the number of tasks: got {tasks!r}.")
    labels = [hashlib.sha256(label.encode("utf-8", "replace")).digest() for label in sweep.tasks]
    chosen = {*sorted(range(len(labels)), key=labels.__getitem__)[:tasks]}
    return [cell for cell in sweep.cells if cell.task in chosen and not cell.repeat]


def _blocks(sweep: Sweep) -> Iterator[list[Cell]]:
    """Yield, for each task and repeat, the list of its cells in the order in which a sweep makes them."""
    blocks: dict[tuple[int, int], list[Cell]] = {}
    for cell in sweep.cells:
        blocks.setdefault((cell.task, cell.repeat), []).append(cell)
    for block in blocks.values():
        yield sorted(block, key=sweep.turn)


def _sent(sweep: Sweep, run: Run, seen: set[bytes]) -> Amounts:
    """Return the usage of a run, without calls that share the reply of an equal call in `seen`. Adds its own
    calls to `seen`.
    """
    lines = run.lines
    replies = {line.p: line.e for line in lines if isinstance(line.e, Reply) and is_made(line.e)}
    flops = flops_by_call(lines, run.params, run.header.unknown)
    used = []
    for line in lines:
        call, reply = line.e, replies.get(line.p)
        if not isinstance(call, Call) or reply is None:
            continue
        if _is_shared(sweep, call):
            key = sweep.key_of(call)
            if key in seen:
                continue
            seen.add(key)
        failed = reply.error is not None and reply.input_tokens is None
        amounts = (reply.input_tokens, reply.output_tokens, reply.cost, flops[line.p].flops)
        used.append(Amounts(1, *(0 if failed else amount for amount in amounts)))
    return total(used)


def _is_shared(sweep: Sweep, call: Call) -> bool:
    """Whether the reply to a call is cached, so that later equal calls get the same reply."""
    gateway = sweep.runner.gateway
    with suppress(Exception):  # such as an unknown model, which the call itself has reported
        return gateway.is_cached(gateway.model_of(call.model))
    return False


def _if_all_were(blocks: Sequence[Mapping[int, Amounts]], settings: Mapping[int, int]) -> Amounts:
    """Return the usage of all unfinished runs if every task cost as much as one finished task.

    Args:
        blocks: For each finished repeat of that task, its usage by setting.
        settings: Number of unfinished runs by setting.
    """
    whole = total(_times(block[setting], count) for block in blocks for setting, count in settings.items())
    return _times(whole, 1 / len(blocks))


def _times(amounts: Amounts, factor: float) -> Amounts:
    return Amounts(*(None if amount is None else factor * amount for amount in amounts))


def _forecast(bound: float | None, samples: Sequence[float | None], left: Sequence[int]) -> Forecast:
    """Return the forecast of one amount.

    Args:
        bound: Upper bound.
        samples: For each finished task, the result of `_if_all_were`.
        left: The number of unfinished runs of each task with unfinished runs.
    """
    if not left:
        return Forecast(0.0, 0.0, 0.0, 0.0)
    known: list[Any] = [sample for sample in samples if sample is not None]
    if not known or len(known) < len(samples):
        return Forecast(bound)
    most = math.inf if bound is None else bound
    expected = min(statistics.fmean(known), most)
    count = len(known)
    if count == 1 or not expected:
        return Forecast(bound, expected, *((0.0, 0.0) if count > 1 else ()))
    from scipy.special import stdtrit  # noqa: PLC0415

    freedom = WEIGHT + count - 1
    variation = WEIGHT * SPREAD**2 + (count - 1) * statistics.variance(known) / expected**2
    tasks = sum(left) ** 2 / sum(one**2 for one in left)  # effective number, as runs per task differ
    factor = math.exp(
        float(stdtrit(freedom, 0.95)) * math.sqrt(variation / freedom * (1 / count + 1 / tasks))
    )
    return Forecast(bound, expected, expected / factor, min(expected * factor, most))
