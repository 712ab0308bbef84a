"""The table of a sweep in LaTeX, for booktabs and `\\input`.

Names are escaped: a label of a setting is never read as a command, as an option of a line or as mathematics.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tot_lab.analysis.statistics import compare_all, rates_of
from tot_lab.analysis.sweep_summary import Summary
from tot_lab.record.losses import describe, without_losses
from tot_lab.record.run import money

if TYPE_CHECKING:
    import pandas

Column = tuple[str, list[str]]

NONE = "--"

MAX_LOSSES = 3
"""Maximum number of losses in a line of the table."""


class LatexTable(NamedTuple):
    """A table, and how its numbers were computed.

    Attributes:
        text: A `tabular` environment, and nothing else.
        methods: The statistical methods, for the provenance.
    """

    text: str
    methods: dict[str, str | None]


def latex_table(lines: Sequence[Summary], frame: pandas.DataFrame, against: str | None = None) -> LatexTable:
    """Return one line per setting, with success rate, interval, p-value and means per run.

    Rates, intervals and p-values are those of `tl.stats.success_rates` and `tl.stats.compare_all`: a run that
    failed with an error is left out. Columns that would say nothing are left out: `score` if every
    grade is 0 or 1, `errors` if there are none, and `lost calls` if none was lost.

    Args:
        lines: The settings.
        frame: One row per run.
        against: The setting with which all others are compared. `None` leaves out the p-values.

    Raises:
        ValueError: If `against` is not one of the settings, or there is nothing to compare it with.
    """
    names = [line.setting for line in lines]
    if against is not None and against not in names:
        raise ValueError(f"against={against!r} is not a setting of the sweep: {', '.join(map(repr, names))}.")
    columns: list[Column] = [
        ("setting", [escaped(name) for name in names]),
        ("runs", [line.counted_runs for line in lines]),
        *_statistics(names, without_losses(frame), against),
    ]
    if not frame["score"].dropna().isin([0, 1]).all():
        columns.append(("score", _means([line.score for line in lines], "{:.3f}".format)))
    columns += [
        ("calls/run", _means([line.calls for line in lines], "{:,.1f}".format)),
        ("tokens/run", _means([line.tokens for line in lines], "{:,.0f}".format)),
        ("cost/run", _means([line.cost for line in lines], money)),
    ]
    if any(line.errors for line in lines):
        columns.append(("errors", [f"{line.errors:,}" for line in lines]))
    lost = [describe(line.losses, MAX_LOSSES) or "" for line in lines]
    if set(lost) - {"none"}:
        columns.append(("lost calls", [escaped(text) or NONE for text in lost]))
    return LatexTable(_tabular(columns), _methods(against))


def _statistics(names: Sequence[str], frame: pandas.DataFrame, against: str | None) -> list[Column]:
    """Return the columns of the success rate and its interval, in percent, and of the p-value."""
    rates = rates_of(frame)
    cells = [[f"{100 * share:.1f}" for share in rates[name]] if name in rates else None for name in names]
    columns = [
        (r"success (\%)", [cell[0] if cell else NONE for cell in cells]),
        (r"95\% interval", [f"{cell[1]}--{cell[2]}" if cell else NONE for cell in cells]),
    ]
    if against is None:
        return columns
    if against not in rates:
        raise ValueError(f"against={against!r} has no graded run.")
    compared = compare_all(frame[frame["setting"].isin(list(rates))], against)
    p = dict(zip(compared["a"], compared["p_holm"], strict=True))
    swaps = int(compared["swaps"].max())  # Holm's correction of one p-value depends on the others
    shown = ["baseline" if name == against else _p_value(p.get(name), swaps) for name in names]
    return [*columns, (f"$p$ (Holm; {swaps:,} random swaps)" if swaps else "$p$ (Holm)", shown)]


def _p_value(p: float | None, swaps: int) -> str:
    """Return a p-value as text. One of random swaps is an upper estimate."""
    if p is None:
        return NONE
    if swaps:
        return rf"$\leq${max(p, 0.001):.3f}"
    return "$<$0.001" if p < 0.001 else f"{p:.3f}"


def _means(amounts: Sequence[float | None], form: Callable[[float], str]) -> list[str]:
    return [NONE if amount is None else escaped(form(amount)) for amount in amounts]


def _methods(against: str | None) -> dict[str, str | None]:
    return {
        "success": "mean over the tasks of the share of runs that solved the task, without runs that failed",
        "interval": "Wilson, 95 %, over tasks (tl.stats.success_rates)",
        "against": against,
        "p": None
        if against is None
        else "two-sided, paired by task: McNemar's exact test, with repeats the sign-flip test, "
        "which is exact unless the table states a number of random swaps; corrected for the number of pairs "
        "by Holm (tl.stats.compare_all)",
    }


def _tabular(columns: Sequence[Column]) -> str:
    heads, cells = zip(*columns, strict=True)
    rows = [" & ".join(row) + r" \\" for row in zip(*cells, strict=True)]
    start = rf"\begin{{tabular}}{{l{'r' * (len(columns) - 1)}}}"
    head = " & ".join(heads) + r" \\"
    return "\n".join([start, r"\toprule", head, r"\midrule", *rows, r"\bottomrule", r"\end{tabular}", ""])


_ESCAPES = {sign: f"\\{sign}" for sign in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\symbol{34}",  # babel makes it a command in some languages
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    "[": "{[}",  # as the first character of a line, LaTeX reads it as an option, like a star
    "*": "{*}",
    "–": r"\textendash{}",
    "—": r"\textemdash{}",
    "…": r"\dots{}",
    "−": "$-$",
    "×": r"$\times$",
    "÷": r"$\div$",
    "±": r"$\pm$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "≠": r"$\neq$",
    "→": r"$\rightarrow$",
}


def escaped(text: str) -> str:
    """Escape text for LaTeX. Line breaks become spaces, and characters that cannot be printed are removed.

    Letters beyond ASCII remain as they are: some of them require LuaLaTeX or XeLaTeX.
    """
    line = " ".join("".join(sign for sign in text if sign.isprintable() or sign.isspace()).split())
    whole = "".join(_ESCAPES.get(sign, sign) for sign in line)
    return re.sub("-(?=-)", "-{}", whole)  # two hyphens would become a dash
