"""The row of a run: what a table of runs needs of it, without its record."""

from __future__ import annotations

import msgspec

from tot_lab.core.calls import format_error
from tot_lab.record.doubts import Doubt, doubts_of
from tot_lab.record.losses import ByRole, losses_of
from tot_lab.record.run import SIMULATED, Run, Usage, usage_by_role


class Row(msgspec.Struct, frozen=True, gc=False):
    """The data of a finished run that stay in memory; see `Sweep.df` for most columns.

    Attributes:
        sent: Calls that were sent to a model.
        keys: Hashes of the cache keys of the calls that were made, 8 bytes each
            (`tot_lab.lab.sweeps.sweep.KEY`).
        version: Version of tot_lab that recorded the run.
        model_note: See `Run.model_note`.
        losses: Numbers of calls, and of failed, unreadable and truncated ones, by role. `None` if unknown.
        doubts: Reasons besides `losses` to doubt the result.
        tokens: Tokens of the prompts and tokens of the replies, by role. `None` if the record lacks calls.
    """

    stop: str | None = None
    error: str | None = None
    answer: str = ""
    correct: bool | None = None
    score: float | None = None
    calls: int | None = 0
    failed_calls: int | None = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: float | None = None
    paid: float | None = None
    seconds: float = 0.0
    sent: int = 0
    keys: bytes = b""
    model_note: str = ""
    version: str = ""
    losses: ByRole | None = {}
    selected_strategy: str | None = None
    strategy_used: str | None = None
    any_of_kept: bool | None = None
    credit: float | None = None
    answer_state: str | None = None
    tokens: dict[str, tuple[int | None, int | None]] | None = {}
    flops: float | None = None
    flops_prefix_once: float | None = None
    seconds_alone: float | None = None
    doubts: tuple[Doubt, ...] = ()

    @property
    def simulated(self) -> bool:
        """Whether a simulated model wrote any of the replies."""
        return self.model_note == SIMULATED


def row_of(run: Run, error: str | None = None, sent: int = 0, keys: bytes = b"") -> Row:
    """Return the row of a run. `error` is the exception that the run raised, if any."""
    try:
        score = None if run.grade is None else float(run.grade)  # a custom domain may return a bool
        if score is not None and not 0 <= score <= 1:
            raise ValueError(f"a grade must be between 0 and 1: got {score}")
        any_of_kept, credit = run.any_of_kept, run.credit
    except Exception as failed:
        score = any_of_kept = credit = None
        error = error or f"the answer cannot be graded: {format_error(failed)}"
    error = error or run.failure
    usage = run.usage
    if wrong := [n for n in usage if n is not None and not 0 <= n < 2**63]:
        error = error or f"the usage of a call is out of range: got {wrong[0]}"
        usage = Usage(usage.calls, usage.errors, *[None] * 4)
    by_role = usage_by_role(run)
    tokens = {role: (used.input_tokens, used.output_tokens) for role, used in by_role.items()}
    losses, is_whole = losses_of(run), "calls" not in run.header.unknown
    return Row(
        run.stop_reason,
        error,
        run.answer,
        None if score is None else score == 1.0,
        score,
        usage.calls if is_whole else None,
        usage.errors if is_whole else None,
        *usage[2:],
        run.seconds,
        sent,
        keys,
        run.model_note,
        run.header.version,
        losses,
        run.selected_strategy,
        run.strategy_used,
        any_of_kept,
        credit,
        run.answer_state,
        tokens if is_whole else None,
        *run.compute,
        doubts_of(run, losses),
    )
