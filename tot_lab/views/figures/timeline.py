"""Figure of the model and tool calls of a run over time: concurrency, waiting times and the critical path.

Lanes, concurrency and the critical path are computed from the order of the journal's lines, which is exact
even if two times are equal. The explorer uses the same rules (`explorer/js/timeline.js`). A refused call
gets a marker and is not counted, because it was never made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tot_lab.analysis.frames import call_rows, call_status_of
from tot_lab.core.bulk import gc_paused
from tot_lab.core.calls import Call, Reply, refused
from tot_lab.core.records import Note
from tot_lab.core.tools import named
from tot_lab.record.run import Run, expect_run
from tot_lab.views.figures.theme import (
    KINDS,
    Palette,
    legend_at,
    palette,
    plain,
    short,
    short_id,
    show_message,
    translucent,
)
from tot_lab.views.figures.verdict import style_run_figure

if TYPE_CHECKING:
    import plotly.graph_objects as go

MAX_CALLS = 4000
"""Maximum number of calls that are drawn as bars. For larger runs, the number of open calls is drawn."""

READABLE = 0.01
"""Duration in seconds. If every call took less, as with a simulated model, the figure shows the order of the
calls instead of times."""

BINS = 800
"""Number of time intervals in the figure of a run with more than `MAX_CALLS` calls."""


class TimelineInfo(NamedTuple):
    """Data of `plot_timeline`, with one entry per call in the order in which they started.

    Times are seconds since the start of the run. If no call took 10 ms (`by_order`), they are line numbers of
    the journal instead.

    Attributes:
        node: Node of the call.
        kind: Purpose of the call, or `tool:NAME` for a tool call.
        sample_index: Sample index of the call.
        start: Time of the call.
        sent: Time when the call was last sent, or nan if it was not sent, or with `by_order`.
        end: Time of the reply. For an open call, the time of the last journal line.
        source: Source of the reply: `model`, `cache`, or `joined` for the reply to an identical call that was
            open. `open` if there is no reply yet, `refused` if the call was not made.
        error: Error of the reply, or "".
        tries: Number of times the call was sent. `None` if unknown.
        lane: Row of the figure. Calls of one lane do not overlap. In a run with tool calls, the model and
            each tool have lanes of their own.
        groups: Name and first lane of the model and of each tool. Empty in a run without tool calls.
        critical: Indices of the calls on the critical path, first to last. The path ends with the call that
            finished last. Each predecessor is the last call that finished before its successor started.
        changes: Times at which the number of open calls changes.
        under_way: Number of open calls after each of these changes.
        limits: Adaptive limit of concurrent requests, by model: pairs of a time and the limit from then on.
            The first pair is the limit before the first change. Concurrent runs share the limit of a model.
    """

    node: list[str]
    kind: list[str]
    sample_index: list[int]
    start: NDArray[np.float64]
    sent: NDArray[np.float64]
    end: NDArray[np.float64]
    source: list[str]
    error: list[str]
    tries: list[int | None]
    lane: NDArray[np.intp]
    groups: list[tuple[str, int]]
    critical: list[int]
    changes: NDArray[np.float64]
    under_way: NDArray[np.intp]
    by_order: bool
    limits: dict[str, list[tuple[float, int]]]

    @property
    def most(self) -> int:
        """Maximum number of calls that were open at the same time."""
        return int(self.under_way.max(initial=0))


@gc_paused()
def timeline_info(run: Run) -> TimelineInfo:
    """Compute the data of `plot_timeline`."""
    expect_run(run, "plot_timeline")
    calls = call_rows(run)
    ways = call_status_of(run)
    line_of: dict[tuple[Any, type], int] = {
        (line.p, type(line.e)): number
        for number, line in enumerate(run.lines)
        if line.p and isinstance(line.e, Call | Reply)
    }
    call_lines = [line_of[call.line.p, Call] for call in calls]
    reply_lines = [line_of[call.line.p, Reply] if call.answered else -1 for call in calls]
    source = [
        "open" if call.reply is None else "refused" if refused(call.reply.error) else ways[call.line.p].source
        for call in calls
    ]
    seconds = [call.answered.t - call.line.t if call.answered else np.inf for call in calls]
    by_order = max(seconds, default=0.0) < READABLE
    last = float(len(run.lines)) if by_order else run.seconds

    def when(line: int) -> float:
        return last if line == -1 else float(line) if by_order else run.lines[line].t

    sent = [None if by_order else ways[call.line.p].sent for call in calls]
    made = [word != "refused" for word in source]
    kinds = [named(call.call) for call in calls]
    who = [kind.removeprefix("tool:") if kind.startswith("tool:") else "model" for kind in kinds]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(who))}
    lane, firsts, critical, moments = arrange_calls(
        call_lines, reply_lines, made, [numbers[name] for name in who]
    )
    return TimelineInfo(
        [call.call.node for call in calls],
        kinds,
        [call.call.sample_index for call in calls],
        np.array([when(line) for line in call_lines], dtype=np.float64),
        np.array([np.nan if moment is None else moment for moment in sent], dtype=np.float64),
        np.array([when(line) for line in reply_lines], dtype=np.float64),
        source,
        [(call.reply and call.reply.error) or "" for call in calls],
        [ways[call.line.p].tries for call in calls],
        np.array(lane, dtype=np.intp),
        [] if {*numbers} <= {"model"} else [*zip(numbers, firsts, strict=True)],
        critical,
        np.array([when(line) for line, _ in moments], dtype=np.float64),
        np.array([level for _, level in moments], dtype=np.intp),
        by_order,
        _limits(run, when, when(call_lines[0]) if calls else 0.0),
    )


def _limits(run: Run, when: Callable[[int], float], start: float) -> dict[str, list[tuple[float, int]]]:
    """Return `TimelineInfo.limits`. `start` is the time of the first pair of each model."""
    limits: dict[str, list[tuple[float, int]]] = {}
    for number, line in enumerate(run.lines):
        if isinstance(line.e, Note) and line.e.name == "call.limit" and not line.p:
            data = line.e.data
            limits.setdefault(data["model"], [(start, data["before"])]).append((when(number), data["limit"]))
    return limits


def arrange_calls(
    call_lines: Sequence[int], reply_lines: Sequence[int], made: Sequence[bool], group: Sequence[int]
) -> tuple[list[int], list[int], list[int], list[tuple[int, int]]]:
    """Compute lanes, critical path and concurrency of calls.

    Args:
        call_lines: Journal line of each call, in ascending order.
        reply_lines: Journal line of each reply, or -1 for an open call.
        made: False for calls that were refused, True for all others.
        group: Index of the group of each call, in order of first occurrence. A lane has calls of one group.

    Returns:
        The lane of each call, the first lane of each group, the indices of the calls on the critical path,
        and the changes of the concurrency as tuples (journal line, number of open calls from that line on).
    """
    lane = [0] * len(call_lines)
    before = [-1] * len(call_lines)
    moments: list[tuple[int, int]] = []
    free: list[list[int]] = [[] for _ in {*group}]
    lanes = [0 for _ in free]
    level = 0
    last = -1
    for call, is_start in _starts_and_ends(call_lines, reply_lines):
        its = group[call]
        if not is_start:
            heappush(free[its], lane[call])
        elif free[its]:
            lane[call] = heappop(free[its])
        else:
            lane[call] = lanes[its]
            lanes[its] += 1
        if is_start:
            before[call] = last
        elif made[call]:
            last = call
        if made[call]:
            level += 1 if is_start else -1
            moments.append((call_lines[call] if is_start else reply_lines[call], level))
    critical = []
    while last != -1:
        critical.append(last)
        last = before[last]
    firsts = [0, *accumulate(lanes)][: len(lanes)]
    return [firsts[its] + row for its, row in zip(group, lane, strict=True)], firsts, critical[::-1], moments


def plot_timeline(run: Run, *, dark: bool | None = None) -> go.Figure:
    """Plot the model and tool calls of a run over time.

    Each call is a bar, pale while it waits to be sent and outlined if it failed. Replies from the cache are
    markers. The thick line is the critical path. The upper plot shows the number of open calls, and the
    limit of concurrent requests where it was adaptive and changed.

    Args:
        run: A run, finished or not. With more than 4,000 calls, the figure shows the number of open calls of
            each kind instead of bars. If no call took 10 ms, as with a simulated model without latency, it
            shows the order of the calls instead of time.
        dark: Use the colours for a dark page. `None` follows `plotly.io.templates.default`.
    """
    from plotly.subplots import make_subplots  # noqa: PLC0415  the repr of a run must not import it

    info = timeline_info(run)
    shades = palette(dark)
    binned = len(info.kind) > MAX_CALLS
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.04, row_heights=[0.22, 0.78])
    if not info.kind:
        show_message(figure, "no calls")
    colours = {
        kind: KINDS[k] if k < len(KINDS) else shades.faint for k, kind in enumerate(dict.fromkeys(info.kind))
    }
    _draw_concurrency(figure, info, shades)
    if binned:
        _draw_open_calls(figure, info, colours)
    else:
        _draw_bars(figure, info, colours, shades)
        _draw_critical_path(figure, info, shades)
    lanes = int(info.lane.max(initial=0)) + 1
    tall = 170 + (380 if binned else min(max(26 * lanes, 130), 560))
    layout = {"height": tall + 70, "barmode": "overlay", "bargap": 0.18, "legend": legend_at(-56 / tall)}
    style_run_figure(figure, run, "Calls over time", _notes(info) if info.kind else [""], dark, **layout)
    figure.update_yaxes(title="at once<br>(calls)", rangemode="tozero", row=1, col=1)
    axis = "order (line of the record)" if info.by_order else "time since the start of the run (s)"
    figure.update_xaxes(title=axis, row=2, col=1)
    if info.kind:
        end = float(info.end.max())
        figure.update_xaxes(range=[-0.01 * end, 1.01 * end])
    if binned:
        figure.update_yaxes(title="open (calls)", rangemode="tozero", row=2, col=1)
    else:
        lane: dict[str, Any] = {
            "title": "lane (one call at a time)",
            "showticklabels": False,
            "showgrid": False,
        }
        if info.groups:
            names, firsts = zip(*info.groups, strict=True)
            labels = {"tickvals": firsts, "ticktext": [plain(short(name, 24)) for name in names]}
            lane |= {"title": None, "showticklabels": True, **labels}
        figure.update_yaxes(range=[lanes - 0.4, -0.6], **lane, row=2, col=1)
    return figure


def _notes(info: TimelineInfo) -> list[str]:
    """Return the lines of the subtitle."""
    notes = [summarize(info)]
    if len(info.kind) > MAX_CALLS:
        width = (info.end.max() - info.start.min()) / BINS
        unit = "lines" if info.by_order else "s"
        notes.append(
            f"{len(info.kind):,} calls: number of open calls by kind, averaged over {width:.2g} {unit}; "
            f"run.calls_df() lists all"
        )
    if info.by_order:
        notes.append("every call took less than 10 ms: the axis shows their order, not time")
    return notes


def summarize(info: TimelineInfo) -> str:
    """Return the counts of a timeline and the length of its critical path on one line."""
    counts = {word: info.source.count(word) for word in ("refused", "cache", "joined", "open")}
    failed = sum(
        bool(error) and word != "refused" for error, word in zip(info.error, info.source, strict=True)
    )
    parts = [f"{len(info.kind) - counts['refused']:,} calls, at most {info.most:,} at once"]
    for count, what in (
        (counts["cache"], "from the cache"),
        (counts["joined"], "joined an identical call"),
        (failed, "failed"),
        (counts["open"], "open"),
        (counts["refused"], "refused"),
    ):
        if count:
            parts.append(f"{count:,} {what}")
    took = float((info.end - info.start)[info.critical].sum())
    length = "" if info.by_order else f", {float(f'{took:.3g}'):,g} s"
    parts.append(f"critical path: {len(info.critical):,} calls{length}")
    return "  ·  ".join(parts)


def _starts_and_ends(call_lines: Sequence[int], reply_lines: Sequence[int]) -> Iterator[tuple[int, bool]]:
    """Yield the index of a call with `True` at its start and with `False` at its end, in the order of the
    journal's lines."""
    moments = [(line, call, True) for call, line in enumerate(call_lines)]
    moments += [(line, call, False) for call, line in enumerate(reply_lines) if line != -1]
    for _, call, is_start in sorted(moments):
        yield call, is_start


def _draw_concurrency(figure: go.Figure, info: TimelineInfo, shades: Palette) -> None:
    x, y = info.changes, info.under_way
    if len(x) > 2 * MAX_CALLS:  # too many points: draw the maximum in each of `BINS` intervals
        edges = np.linspace(x[0], x[-1], BINS + 1)
        place = np.clip(np.searchsorted(edges, x, "right") - 1, 0, BINS - 1)
        high = np.zeros(BINS, dtype=np.intp)
        np.maximum.at(high, place, y)
        held = y[np.maximum(np.searchsorted(x, edges[:-1], "right") - 1, 0)]
        x, y = edges[:-1], np.maximum(high, held)
    figure.add_scatter(
        x=x,
        y=y,
        mode="lines",
        line={"shape": "hv", "color": shades.faint, "width": 0},
        fill="tozeroy",
        name="calls at once",
        showlegend=False,
        hovertemplate="%{y} calls at once<extra></extra>",
        row=1,
        col=1,
    )
    for model, limits in info.limits.items():
        times, values = zip(*limits, (float(info.end.max()), limits[-1][1]), strict=True)
        figure.add_scatter(
            x=times,
            y=values,
            mode="lines",
            line={"shape": "hv", "color": shades.ink, "width": 1, "dash": "dot"},
            name=f"limit of {plain(short(model, 30))}",
            hovertemplate="limit: %{y} requests at once<extra></extra>",
            row=1,
            col=1,
        )


def _draw_bars(figure: go.Figure, info: TimelineInfo, colours: dict[str, str], shades: Palette) -> None:
    """Draw a bar for each call that was made, and a marker for each cached or refused call."""
    kinds = np.array(info.kind, dtype=object)
    source = np.array(info.source, dtype=object)
    failed = np.array([bool(error) for error in info.error], dtype=bool)
    marks = (source == "cache") | (source == "refused")
    between = shades.paper if len(kinds) <= 500 else None  # an outline would cover the bars of many calls
    sent = np.where(np.isnan(info.sent), info.start, np.clip(info.sent, info.start, info.end))
    for kind, shade in colours.items():
        here = np.flatnonzero((kinds == kind) & ~marks)
        outline = np.where(failed[here], shades.ink, between or shade)
        pale = np.isin(source[here], ("open", "joined"))
        outline = np.where(pale & ~failed[here], shade, outline)
        look = {
            "color": np.where(pale, translucent(shade, 0.45), shade),
            "line": {"color": outline, "width": np.where(failed[here], 1.8, np.where(pale, 1.0, 0.5))},
        }
        if here.size:
            _draw_spans(figure, info, here, sent, info.end, marker=look, name=plain(short(kind, 30)))
        waited = here[sent[here] > info.start[here]]
        look = {"color": translucent(shade, 0.3), "line": {"color": shade, "width": 1}}
        if waited.size:
            _draw_spans(figure, info, waited, info.start, sent, marker=look, showlegend=False)
    for word, name, symbol in (("cache", "from the cache", "line-ns"), ("refused", "refused", "x-thin")):
        here = np.flatnonzero(source == word)
        inks = [colours[kind] if word == "cache" else shades.ink for kind in kinds[here]]
        marker = {"symbol": symbol, "size": 9, "line": {"width": 2, "color": inks}, "color": inks}
        if here.size:
            where = {"x": info.start[here], "y": info.lane[here], "row": 2, "col": 1}
            hover = {"hoverinfo": "text", "hovertext": _hover_texts(info, here)}
            figure.add_scatter(**where, **hover, mode="markers", name=name, marker=marker)
    if (sent > info.start).any():
        line = {"color": KINDS[0], "width": 1}
        _add_legend_entry(figure, "waiting to be sent", color=translucent(KINDS[0], 0.3), line=line)
    if (failed & ~marks).any():
        _add_legend_entry(figure, "failed", color=shades.paper, line={"color": shades.ink, "width": 1.8})


def _draw_spans(
    figure: go.Figure, info: TimelineInfo, calls: NDArray[np.intp], start: Any, end: Any, **look: Any
) -> None:
    """Draw a bar for each call in `calls`, from its entry in `start` to its entry in `end`."""
    figure.add_bar(
        orientation="h",
        base=start[calls],
        x=(end - start)[calls],
        y=info.lane[calls],
        hoverinfo="text",
        hovertext=_hover_texts(info, calls),
        row=2,
        col=1,
        **look,
    )


def _add_legend_entry(figure: go.Figure, name: str, **look: Any) -> None:
    """Add an entry with a square to the legend, which explains the look of some bars."""
    marker = {"symbol": "square", "size": 11, **look}
    figure.add_scatter(x=[None], y=[None], mode="markers", name=name, marker=marker, row=2, col=1)


def _draw_critical_path(figure: go.Figure, info: TimelineInfo, shades: Palette) -> None:
    """Draw the critical path along the lower edge of its bars."""
    path = info.critical
    figure.add_scatter(
        x=np.stack([info.start[path], info.end[path]], axis=1).ravel(),
        y=np.repeat(info.lane[path] + 0.42, 2),
        mode="lines",
        line={"color": shades.path, "width": 3, "shape": "hv"},
        name="critical path",
        showlegend=bool(path),
        hoverinfo="skip",
        row=2,
        col=1,
    )


def _draw_open_calls(figure: go.Figure, info: TimelineInfo, colours: dict[str, str]) -> None:
    """Draw the average number of open calls of each kind in each time interval."""
    edges = np.linspace(info.start.min(), max(info.end.max(), info.start.min() + 1e-9), BINS + 1)
    kinds = np.array(info.kind, dtype=object)
    made = np.array(info.source) != "refused"
    other = "other kinds"
    groups: dict[str, list[str]] = {}
    for place, kind in enumerate(colours):
        groups.setdefault(kind if place < len(KINDS) else other, []).append(kind)
    for group, its in groups.items():
        here = made & np.isin(kinds, its)
        # Total time spent in calls before each edge. Each call adds its duration up to that edge.
        spent = np.zeros(BINS + 1)
        for moments, sign in ((info.start[here], 1.0), (info.end[here], -1.0)):
            ordered = np.sort(moments)
            count = np.searchsorted(ordered, edges, "right")
            summed = np.concatenate([[0.0], np.cumsum(ordered)])
            spent += sign * (count * edges - summed[count])
        figure.add_scatter(
            x=edges[:-1],
            y=np.diff(spent) / np.diff(edges),
            mode="lines",
            stackgroup="calls",
            line={"width": 0, "shape": "hv"},
            fillcolor=colours[its[0]],
            name=plain(short(group, 30)),
            hovertemplate="%{y:.1f} calls<extra>" + plain(short(group, 30)) + "</extra>",
            row=2,
            col=1,
        )


def _hover_texts(info: TimelineInfo, calls: NDArray[np.intp]) -> list[str]:
    return [_hover_text(info, call) for call in calls.tolist()]


def _hover_text(info: TimelineInfo, call: int) -> str:
    rows = [
        f"<b>{plain(short(info.kind[call], 40))} for thought {plain(short_id(info.node[call]))}, "
        f"sample {info.sample_index[call]}</b>"
    ]
    start, sent, end = info.start[call], info.sent[call], info.end[call]
    if info.by_order:
        rows.append(f"lines {start:.0f} to {end:.0f}")
    else:
        took = "open" if info.source[call] == "open" else f"took {end - start:.3f} s"
        rows.append(f"started at {start:.3f} s, {took}")
        if sent > start:
            rows.append(f"waited {sent - start:.3f} s to be sent")
    if (info.tries[call] or 1) > 1:
        rows.append(f"sent {info.tries[call]} times")
    if info.source[call] in ("cache", "joined"):
        rows.append("from the cache" if info.source[call] == "cache" else "joined an identical call")
    if info.error[call]:
        rows.append(plain(short(info.error[call], 120)))
    return "<br>".join(rows)
