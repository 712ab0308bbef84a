"""Tables of a sweep: as DataFrames, as text and HTML, and as files.

A table depends only on the finished runs, and has the order of the sweep, not of completion. Between two
executions of a sweep only times and real payments differ. The provenance of each file is in the file or in a
second file beside it.
"""

from __future__ import annotations

import io
import json
import os
import platform
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tot_lab._version import __version__
from tot_lab.analysis import frames
from tot_lab.analysis.frames import each, typed_frame
from tot_lab.analysis.statistics import compare_all, rates_of
from tot_lab.analysis.sweep_summary import PRICED_LATER, Summary, losses_in, summary
from tot_lab.analysis.tables import run_columns
from tot_lab.core.calls import halts, html_text
from tot_lab.core.extras import requires
from tot_lab.core.files import write_whole
from tot_lab.core.records import describe_stop
from tot_lab.lab.sweeps.axes import differing_settings, flat_settings, format_value
from tot_lab.lab.sweeps.sweep import Sweep
from tot_lab.models.entries import Exported
from tot_lab.record.doubts import Doubt
from tot_lab.record.journal import Header
from tot_lab.record.losses import describe, warn_of, warning_of, without_losses
from tot_lab.record.run import Run, model_note, money, text_table

if TYPE_CHECKING:
    import pandas


# The table in LaTeX, for booktabs and `\input`. Labels are escaped, so that LaTeX never reads them as a
# command, as mathematics or, if they begin with `[`, as the argument of the `\\` before them.


Column = tuple[str, list[str]]

NONE = "--"

MAX_LOSSES = 3
"""Maximum number of shares of lost calls, such as `evaluate 12.5% failed`, in a line of the table."""


class LatexTable(NamedTuple):
    """A table, and how its numbers were computed.

    Attributes:
        text: A `tabular` environment, below a comment that states the methods.
        methods: The statistical methods, for the provenance.
    """

    text: str
    methods: dict[str, str | None]


def latex_table(lines: Sequence[Summary], frame: pandas.DataFrame, against: str | None = None) -> LatexTable:
    """Return a LaTeX table with one line per setting: success rate, interval, p-value and means per run.

    Rates, intervals and p-values are those of `tl.stats.success_rates` and `tl.stats.compare_all`: a run that
    failed with an error is left out. Columns without information are left out: `score` if every
    grade is 0 or 1, `errors` if there are none, and `lost calls` if none was lost.

    Args:
        lines: The summary of each setting.
        frame: One row per run, as `df` returns it.
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
        _costs([line.cost for line in lines]),
    ]
    if any(line.errors for line in lines):
        columns.append(("errors", [f"{line.errors:,}" for line in lines]))
    lost = [describe(line.losses, MAX_LOSSES) or "" for line in lines]
    if set(lost) - {"none"}:
        columns.append(("lost calls", [escaped(text) or NONE for text in lost]))
    methods = _methods(against)
    notes = "".join(f"% {name}: {escaped(text)}\n" for name, text in methods.items() if text is not None)
    return LatexTable(notes.replace(r"\textquotesingle{}", "'") + _tabular(columns), methods)


def _costs(amounts: Sequence[float | None]) -> Column:
    """Return the column of costs: three significant digits of USD per run or, if some cost less than a cent,
    per 1,000 runs.
    """
    runs = 1000 if any(amount and amount < 0.01 for amount in amounts) else 1
    known = [None if amount is None else runs * amount for amount in amounts]
    head = rf"cost/{runs:,} runs (\$)" if runs > 1 else r"cost/run (\$)"
    return head, _means(known, _three_digits)


def _three_digits(amount: float) -> str:
    """Return a number with three significant digits, or all digits before the point if there are more."""
    places = 2 - int(f"{amount:.2e}".partition("e")[2]) if amount else 0
    return f"{amount:,.{max(places, 0)}f}"


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
    # Holm's correction depends on all p-values. If one of them is an estimate, every corrected one is.
    swaps = int(compared["swaps"].max())
    shown = ["baseline" if name == against else _p_value(p.get(name), swaps) for name in names]
    return [*columns, (f"$p$ (Holm; {swaps:,} random swaps)" if swaps else "$p$ (Holm)", shown)]


def _p_value(p: float | None, swaps: int) -> str:
    """Return a p-value in LaTeX, or `NONE`. With `swaps` it has the sign "≤", because an estimate from
    random swaps is slightly too high."""
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
    '"': r"\symbol{34}",  # babel makes this sign a command in some languages
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    "[": "{[}",  # at the start of a row, `[` and `*` would be arguments of the `\\` before them
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


def df(sweep: Sweep) -> pandas.DataFrame:
    """Return one row per finished run, ordered by setting, task and repeat as given.

    - setting: category, the setting's label; the categories are all labels of the sweep in order
    - strategy: string, the strategy's kind
    - a column for each setting that differs between the strategies, named by its path (`search.width`,
      `search.exploration`; `answer_setting` if this table has another column `answer`): Int64, Float64,
      boolean or category. NA if a strategy has no such setting or its value is `None`
    - domain: string; task: category, the question, shortened to 60 characters (`sweep.tasks[task]` is the
      task with its whole `question`); task_id: string, the ids of the tasks, NA if one has none; no column if
      none has; task_number: Int64, from 0; repeat: Int64
    - correct: boolean, NA without ground truth; score: Float64, the grade of the answer, 0 to 1
    - any_of_kept: boolean, whether any of the answers that the search kept is correct. NA for runs that kept
      only one answer; no column if every run kept only one
    - credit: Float64, partial credit of the answer, 0 to 1; no column if all are unknown
    - answer_state: string, `finished`, `unfinished` or `cut` (`Run.answer_state`); no column if never known
    - answer: string, NA if missing; stop_reason: string, NA if the run could not start
    - error: string, the error of the strategy, the model's setup or the grading, NA if missing
    - calls: Int64, calls made; failed_calls: Int64, calls without a reply
    - ROLE_calls, ROLE_failed, ROLE_unreadable, ROLE_truncated: Int64, for each role that made calls in the
      sweep (`propose`, `evaluate`, `answer`, …): calls made and lost, as defined in `tot_lab.record.losses`
    - input_tokens, output_tokens: Int64, NA if one is unknown. The prompt of several samples that were one
      request counts for each of them
    - ROLE_input_tokens, ROLE_output_tokens: Int64, tokens of each role, such as the generator and its judge
    - cost: Float64, USD without a cache; paid: Float64, USD really paid; NA if unknown. If several runs make
      equal calls, only the first one sent is paid
    - seconds: Float64, from start to end of the run, during which other runs of the sweep used the model too;
      seconds_alone: Float64, an estimate of the duration without other runs: the time of the longest chain of
      calls that wait for each other, NA if the duration of a call is unknown, as for a cached reply
    - flops, flops_prefix_once: Float64, 2 FLOPs per parameter and token, with every prompt counted in full,
      and without the prefix that it shares with earlier calls. NA without `params` of the
      roles of all calls; see `tot_lab.record.compute`
    - selected_strategy: string, the strategy that `tl.Adaptive` selected, NA if none; strategy_used: string,
      the strategy that gave the result
    - simulated: boolean, whether a simulated model took part
    - run_id: string, determined by the settings of the run

    A category has the order of the sweep, in which pandas sorts, groups and pivots: `search.width=10` after
    `search.width=2`. `df.value_counts([...])` of a category also counts combinations that do not occur, as 0;
    `df.groupby([...]).size()` counts only those that do.

    `attrs["axes"]` lists the columns of settings, `strategy` included, so that figures can tell them from
    results. A selection of rows or columns keeps `attrs`.
    """
    cells = [cell for cell in sweep.cells if cell.run_id in sweep.rows]
    rows = [sweep.rows[cell.run_id] for cell in cells]
    parts = [sweep.part(cell) for cell in cells]
    settings, tasks = list(sweep.settings), list(sweep.tasks)
    domains = [task.domain.kind for _, task in parts]
    kinds = [strategy.kind for strategy, _ in parts]
    ids = [task.id or None for _, task in parts]
    columns: dict[str, tuple[str | tuple[str, ...], list[Any]]] = {
        "setting": (tuple(settings), [settings[cell.setting] for cell in cells]),
        "strategy": ("string", kinds),
    }
    fixed: dict[str, tuple[str | tuple[str, ...], list[Any]]] = {
        "domain": ("string", domains),
        "task": (tuple(tasks), [tasks[cell.task] for cell in cells]),
        **({"task_id": ("string", ids)} if any(ids) else {}),
        "task_number": ("Int64", [cell.task for cell in cells]),
        **each(cells, repeat="Int64"),
        **run_columns(rows),
        **each(cells, run_id="string"),
    }
    levels = [flat_settings(strategy) for strategy in sweep.settings.values()]
    for name in differing_settings(sweep.settings.values()):
        column = f"{name}_setting" if name in {*columns, *fixed} else name
        columns[column] = _setting([level.get(name) for level in levels], [cell.setting for cell in cells])
    frame = typed_frame({**columns, **fixed})
    frame.attrs["model_note"] = _model_note(sweep)
    frame.attrs["axes"] = [name for name in columns if name != "setting"]
    return frame


def _setting(values: list[Any], places: list[int]) -> tuple[str | tuple[str, ...], list[Any]]:
    """Return dtype and column of a setting, from its values by strategy and the index of the strategy of each
    row.
    """
    kinds = {type(value) for value in values if value is not None}
    if any(isinstance(value, int) and not -(2**63) <= value < 2**63 for value in values):
        kinds.add(str)  # a seed may not fit into an integer column
    for dtype, only in (("boolean", {bool}), ("Int64", {int}), ("Float64", {int, float})):
        if kinds <= only:
            return dtype, [values[place] for place in places]
    words = [None if value is None else format_value(value) for value in values]
    return _once(word for word in words if word is not None), [words[place] for place in places]


def _once(words: Iterator[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words))


def joined_df(sweep: Sweep, frame: Callable[[Run], pandas.DataFrame]) -> pandas.DataFrame:
    """Concatenate a frame of each finished run, preceded by the columns run_id (string), setting and task
    (category), and repeat (Int64)."""
    import pandas as pd  # noqa: PLC0415

    settings, tasks = list(sweep.settings), list(sweep.tasks)
    frames = [(sweep.by_id[run.id], frame(run)) for run in sweep.runs()]
    whole = pd.concat([made for _, made in frames] or [frame(Run(Header.now(), []))], ignore_index=True)
    of = [cell for cell, made in frames for _ in range(len(made))]
    place = typed_frame(
        {
            **each(of, run_id="string"),
            "setting": (tuple(settings), [settings[cell.setting] for cell in of]),
            "task": (tuple(tasks), [tasks[cell.task] for cell in of]),
            **each(of, repeat="Int64"),
        }
    )
    return pd.concat([place, whole.drop(columns=["repeat"], errors="ignore")], axis=1)


# Text and HTML.

_HEADS = (
    *("setting", "runs", "success", "95 % interval", "score", "calls", "tokens", "cost", "errors"),
    "lost calls",
)

_LOSSES = 3
"""Maximum number of shares of lost calls in a line of the table as text and HTML."""


def _described(sweep: Sweep, rates: Mapping[str, tuple[float, float, float]]) -> list[tuple[str, ...]]:
    """Return the cells of the summary as text. Without `rates`, the intervals are missing."""

    def shown(amount: float | None, form: str) -> str:
        return "–" if amount is None else format(amount, form)

    return [
        (
            line.setting,
            line.counted_runs,
            shown(rates[line.setting][0] if line.setting in rates else line.success, ".1%"),
            "{1:.1%} – {2:.1%}".format(*rates[line.setting]) if line.setting in rates else "–",
            shown(line.score, ".3f"),
            shown(line.calls, ",.1f"),
            shown(line.tokens, ",.0f"),
            "–" if line.cost is None else money(line.cost),
            f"{line.errors:,}",
            describe(line.losses, _LOSSES) or "–",
        )
        for line in summary(sweep)
    ]


def warned(sweep: Sweep) -> str:
    """Return the warnings below the table, one per line: failed and ungraded runs, unknown costs, lost
    calls, other doubts, and settings whose answers the domain did not check although it checked those of
    other settings.
    """
    lost = warning_of(losses_in(sweep))
    warnings = [
        _failures(sweep),
        _ungraded(sweep),
        _unpriced(sweep),
        lost,
        *_doubts(sweep),
        _unequal_checks(sweep),
    ]
    return "\n".join(f"! {text}" for text in warnings if text)


def _doubts(sweep: Sweep) -> Iterator[str]:
    """Yield each doubt about the runs, with the number of runs that it concerns."""
    found: dict[str, list[Doubt]] = {}
    for row in (sweep.rows[cell.run_id] for cell in sweep.cells if cell.run_id in sweep.rows):
        ended = [Doubt(describe_stop(row.stop))] if row.stop and halts(row.stop) and not row.error else []
        for doubt in (*ended, *row.doubts):
            found.setdefault(doubt.text, []).append(doubt)
    for doubts in found.values():
        whole = doubts[0]._replace(number=sum(one.number for one in doubts), of=sum(one.of for one in doubts))
        yield f"{len(doubts):,} of {len(sweep.rows):,} runs: {whole}"


def _failures(sweep: Sweep) -> str:
    """Return how many runs failed, the first error, and how many errors have the same text or kind. "" if
    none failed.
    """
    rows = (sweep.rows.get(cell.run_id) for cell in sweep.cells)
    errors = [row.error for row in rows if row is not None and row.error is not None]
    if not errors:
        return ""
    alike = sum(_kind(error) == _kind(errors[0]) for error in errors)
    which = "all" if alike == len(errors) else f"{alike:,} of them"
    how = "with" if errors.count(errors[0]) == alike else "like the first"
    whose = "" if len(errors) == 1 else f", {which} {how}"
    runs = f"{len(errors):,} of {len(sweep.rows):,} runs failed, without a grade"
    return f"{runs}{whose}: {_one_line(errors[0])}"


def _kind(error: str) -> str:
    """Return the type of an exception, or what a message says before its details."""
    return re.split(r": |\. ", error, maxsplit=1)[0]


def _unequal_checks(sweep: Sweep) -> str:
    """Return which settings have their answers checked by the domain. "" if all of them have, or none."""
    tasks = sweep.tasks.values()
    checking = [
        label for label, strategy in sweep.settings.items() if any(map(strategy.checks_answers, tasks))
    ]
    others = [label for label in sweep.settings if label not in checking]
    if not checking or not others:
        return ""
    if len(checking) <= len(others):
        which = f"the domain has checked the answers of {', '.join(checking)}, and not of the other settings"
    else:
        which = f"the domain has checked all answers but those of {', '.join(others)}"
    return f"{which}; tl.methods.Verified checks them too"


def _one_line(error: str) -> str:
    """Return an error on one line of at most 300 characters, without control characters."""
    line = " ".join("".join(one if one.isprintable() else " " for one in error[:3000]).split())
    return line if len(line) <= 300 else f"{line[:299]}…"


def _graded(sweep: Sweep) -> int:
    """Return the number of graded runs."""
    return sum(row.correct is not None for row in sweep.rows.values())


def _ungraded(sweep: Sweep) -> str:
    """Return how many runs are ungraded because their task has a reference or `grade=` but not both, or a
    domain that cannot grade. If there are none, return that no run is graded, or "" if some are graded or no
    run has ended without an error.
    """
    reasons = [task.domain.why_ungraded(task) for task in sweep.tasks.values()]
    rows = ((sweep.rows.get(cell.run_id), reasons[cell.task]) for cell in sweep.cells)
    ended = [why for row, why in rows if row is not None and row.error is None]
    if found := [why for why in ended if why]:
        return f"{len(found):,} of {len(sweep.rows):,} runs are ungraded: {found[0]}"
    if not ended or _graded(sweep):
        return ""
    if any(task.reference is not None for task in sweep.tasks.values()):
        return "no run is graded"
    return "no run is graded: the tasks have no answer to compare with. Pass answer= and grade="


def _unpriced(sweep: Sweep) -> str:
    """Return how many runs have an unknown cost. "" if there are none, or if neither the cost of another run
    nor the price of the model is known.
    """
    rows = sweep.rows.values()
    unknown = sum(row.cost is None and row.error is None for row in rows)
    is_priced = getattr(sweep.runner.gateway.model, "price", None) is not None or any(
        row.cost for row in rows
    )
    if not unknown or not is_priced:
        return ""
    return (
        f"{unknown:,} of {len(sweep.rows):,} runs have an unknown cost, and so has their setting: they made "
        f"calls before price= was set, or to a model that reports no usage. {PRICED_LATER}"
    )


def _model_note(sweep: Sweep) -> str:
    return model_note(row.model_note for row in sweep.rows.values())


def headline(sweep: Sweep) -> str:
    """Return the line above the table: numbers of runs, graded runs and calls."""
    parts = [f"{len(sweep.rows):,} of {len(sweep.cells):,} runs"]
    if (graded := _graded(sweep)) < len(sweep.rows):
        parts.append(f"{graded:,} of {len(sweep.rows):,} graded")
    if sweep.found:
        new = len(sweep.rows) - sweep.found
        parts.append(
            f"{sweep.found:,} of them loaded from an earlier sweep with their calls (another name= runs them "
            f"again), and {new:,} new"
        )
    if note := _model_note(sweep):
        parts.append(f"a {note} took part")
    counts = sweep.counts
    parts.append(
        f"{counts.asked:,} calls asked, {counts.distinct:,} distinct, {counts.paid:,} sent to the model, "
        f"{counts.saved:,} saved"
    )
    return "Sweep: " + " · ".join(parts)


def text(sweep: Sweep) -> str:
    """Return the sweep as plain text."""
    table = text_table([_HEADS, *_described(sweep, rates_of(df(sweep)))])
    return "\n".join([headline(sweep), *table, *filter(None, [warned(sweep)])])


def html(sweep: Sweep, under_way: str = "") -> str:
    """Return the sweep as an HTML table. `under_way` is the progress of a running sweep as text; the table
    then has no intervals.
    """
    rates = {} if under_way else rates_of(df(sweep))
    head = "".join(f"<th>{word}</th>" for word in (*_HEADS, ""))
    rows = "".join(
        f'<tr><th style="text-align:left">{html_text(label)}</th>'
        + "".join(f"<td>{escape(word)}</td>" for word in words)
        + ("<td></td>" if line.success is None else f'<td><meter value="{line.success:.3f}"></meter></td>')
        + "</tr>"
        for line, (label, *words) in zip(summary(sweep), _described(sweep, rates), strict=True)
    )
    progress = f"<pre>{html_text(under_way)}</pre>" if under_way else ""
    below = "".join(f"<p><b>{html_text(line)}</b></p>" for line in warned(sweep).splitlines())
    return (
        f"<div>{progress}<p>{html_text(headline(sweep))}</p><table><tr>{head}</tr>{rows}</table>{below}</div>"
    )


# Files.


def provenance(sweep: Sweep) -> dict[str, Any]:
    """Return the provenance of a sweep (versions, model, settings, cache use) as JSON-ready data."""
    header = sweep.runner.header(*sweep.part(sweep.cells[0]), sweep.budget)
    gateway = sweep.runner.gateway
    cache = gateway.opened
    return {
        "tot_lab": __version__,
        "python": platform.python_version(),
        "recorded_by": sorted({row.version for row in sweep.rows.values() if row.version}),
        "sweep": sweep.name,
        "runs": {"finished": len(sweep.rows), "graded": _graded(sweep), "of": len(sweep.cells)},
        "model": header.model,
        "roles": header.roles,
        "budget": header.budget,
        "settings": {label: strategy.settings() for label, strategy in sweep.settings.items()},
        "simulated": any(row.simulated for row in sweep.rows.values()),
        "model_note": _model_note(sweep),
        "calls": sweep.counts._asdict(),
        "lost_calls": {
            setting: losses and {role: lost._asdict() for role, lost in losses.items()}
            for setting, losses in losses_in(sweep).items()
        },
        "cache": {
            "mode": gateway.mode,
            "sha256": [s.manifest.sha256 for s in cache.stores if isinstance(s, Exported)] if cache else [],
        },
    }


def nodes_df(sweep: Sweep) -> pandas.DataFrame:
    """Return one row per thought of each finished run: run_id, setting, task, repeat, and the columns of
    `run.nodes_df()`."""
    return joined_df(sweep, frames.nodes_df)


def calls_df(sweep: Sweep) -> pandas.DataFrame:
    """Return one row per model call of each finished run: run_id, setting, task, repeat, and the columns of
    `run.calls_df()`."""
    return joined_df(sweep, frames.calls_df)


def save(sweep: Sweep, path: str | os.PathLike[str], *, against: str | None = None) -> Path:
    """Write a sweep in the format of the file's suffix. An existing file is replaced.

    - `.parquet`: `df()`, with the provenance in the metadata of the schema
      (`pandas.read_parquet(path).attrs`). It requires pyarrow.
    - `.csv`: `df()`, with the provenance in a second file (`NAME.csv.json`). Text that a spreadsheet would
      execute as a formula is escaped with a leading `'`, and so is text that begins with `'` itself.
      `text.str.removeprefix("'")` restores the original.
    - `.tex`: a `tabular` for booktabs with one line per setting: success rate with its interval, p-value and
      means per run, computed by `tl.stats.success_rates` and `tl.stats.compare_all`. Columns without
      information are left out. A comment above the table states the statistical methods. A second file
      (`NAME.provenance.json`) contains these, the provenance and the date.

    Args:
        sweep: The sweep.
        path: The file.
        against: In a `.tex` table, the setting with which all others are compared.

    Returns:
        The path of the file.

    Raises:
        ImportError: If pyarrow is not installed and the format requires it.
        ValueError: If the format is unknown, if `against` is not a setting of the sweep, or if `against` is
            given for a file other than `.tex`.

    Warns:
        UserWarning: If more than 5 % of the calls of a role were lost.
    """
    saved = write(sweep, path, against=against)
    warn_of(losses_in(sweep))
    return saved


def write(sweep: Sweep, path: str | os.PathLike[str], *, against: str | None = None) -> Path:
    """Write a sweep as `save` does, without the warning."""
    target, record = Path(path), provenance(sweep)
    if against is not None and target.suffix != ".tex":
        raise ValueError(f"{target}: against= applies to .tex only. Use tl.stats.compare_all for a table.")
    if target.suffix == ".parquet":
        if find_spec("pyarrow") is None:
            raise ImportError(
                f"{requires(str(target), 'pyarrow', 'parquet')}. A .csv needs no extra package."
            )
        frame = df(sweep)
        frame.attrs.update(record)
        file = io.BytesIO()
        frame.to_parquet(file, engine="pyarrow", index=False)
        return write_whole(target, file.getvalue())
    if target.suffix == ".csv":
        write_whole(target.with_name(f"{target.name}.json"), json.dumps(record, indent=1).encode())
        return write_whole(target, csv(df(sweep)).encode())
    if target.suffix == ".tex":
        table = latex_table(summary(sweep), df(sweep), against)
        record |= {"date": datetime.now(UTC).isoformat(timespec="seconds"), "table": table.methods}
        beside = target.with_name(f"{target.stem}.provenance.json")
        write_whole(beside, json.dumps(record, indent=1).encode())
        return write_whole(target, table.text.encode())
    raise ValueError(f"{target}: unknown format. Use .parquet, .csv or .tex.")


def csv(frame: pandas.DataFrame) -> str:
    """Return a frame as CSV in which a spreadsheet executes no text, such as a reply, as a formula."""
    texts = frame.select_dtypes(["string", "category", "object"])
    safe = frame.assign(
        **{
            str(name): column.astype(object).map(_no_formula, na_action="ignore")
            for name, column in texts.items()
        }
    )
    # Lines end in CRLF, as in RFC 4180. A text that contains CR or LF is then quoted.
    return safe.to_csv(index=False, lineterminator="\r\n")


_FORMULA = re.compile(r"['\t\r\n]|\s*[=+\-@＝＋－＠]")  # the list of OWASP, and full-width forms of its signs
_NUMBER = re.compile(r"[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?", re.ASCII)


def _no_formula(value: Any) -> Any:
    """Return `value`, with a leading `'` if it is text that a spreadsheet may execute, and no number."""
    if not isinstance(value, str) or not _FORMULA.match(value) or _NUMBER.fullmatch(value):
        return value
    return f"'{value}"
