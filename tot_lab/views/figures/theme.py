"""How every picture looks: one palette, one template, one way to let text in.

What a model wrote is shown, never interpreted. Scores are viridis, which
is even to any colour vision and holds no grey, so that grey is left for what has no score; the
other colours are of the Okabe-Ito set. On a dark ground only the ground changes, ink, and what would
vanish on it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tot_lab.record.run import Run

INK = "#1f2933"
FAINT = "#8a94a0"
EDGE = "#b8c0ca"
GRID = "#edf0f3"
PATH = "#d55e00"
"""The way to the answer (Okabe-Ito vermilion): no colour of the score scale comes near it."""
UNSCORED = "#d5d9de"
LINKS = {"merged": "#0072b2", "source": "#009e73", "depends": "#cc79a7"}
FONT = "Inter, 'Helvetica Neue', Helvetica, Arial, sans-serif"

KINDS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9")
"""Of kinds of calls, in the order of their first occurrence; further ones are `FAINT`. Vermilion is the
path's, and yellow drowns in white."""


COLOURS = (*KINDS, PATH, "#f0e442")
"""Of curves, in their order."""


class Palette(NamedTuple):
    """What differs between light and dark; the names are those above. paper: the ground itself."""

    paper: str
    ink: str
    faint: str
    edge: str
    grid: str
    path: str
    unscored: str


LIGHT = Palette("white", INK, FAINT, EDGE, GRID, PATH, UNSCORED)
DARK = Palette("#111418", "#e6eaee", "#9aa5b1", "#4a5460", "#262c33", "#f0742a", "#5b6570")

SCORES = (
    "#440154", "#482878", "#3e4989", "#31688e", "#26828e",
    "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725",
)  # fmt: skip
"""Viridis (Smith and van der Walt 2015) from score 0 to score 1, equally spaced."""

_WORD = re.compile("[A-Za-z\u00c0-\u052f]{4}")  # of an alphabet: Latin, Greek or Cyrillic
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def printable(text: str) -> str:
    """`text` without the characters that XML, and so GraphML, SVG and HTML, cannot hold."""
    return _NOT_XML.sub("", text)


def short(text: str, most: int) -> str:
    """`text` on one line of at most `most` characters."""
    line = " ".join(printable(text).split())
    return line if len(line) <= most else line[: max(most - 1, 0)].rstrip() + "…"


def short_id(id: Any) -> str:
    """An id in at most 60 characters: of one deep in a tree, the end."""
    text = printable(str(id))
    return text if len(text) <= 60 else "…" + text[-59:]


def wrapped(text: str, width: int, lines: int) -> list[str]:
    """`text` in at most `lines` lines of at most `width` characters, its own line breaks kept. A line
    ends between words, unless a word is longer than it; what is cut off ends in an ellipsis."""
    rows: list[str] = []
    for line in printable(text).splitlines():
        rest = line.rstrip()
        while len(rest) > width and len(rows) <= lines:
            indent = len(rest) - len(rest.lstrip())
            cut = rest.rfind(" ", indent, width + 1)
            cut = width if cut == -1 else cut
            rows.append(rest[:cut].rstrip())
            rest = rest[cut:].lstrip()
        rows.append(rest)
        if len(rows) > lines:
            break
    if len(rows) > lines:
        rows = rows[:lines]
        last = rows[-1]
        if len(last) == width:
            last = last[: max(last.rfind(" "), 0)].rstrip() or last[:-1]
        rows[-1] = last.rstrip(" …") + "…"
    return rows


def label(text: str, width: int) -> list[str]:
    """`text` beside what it names, in at most three lines of at most `width` characters. A word that has no
    room is abbreviated; a formula, or a script without spaces, is broken."""
    return wrapped(
        " ".join(short(word, width) if _WORD.search(word) else word for word in text.split()), width, 3
    )


def plain(text: str) -> str:
    """`text` for Plotly, which reads a subset of HTML in it, and TeX between dollar signs."""
    for sign, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("$", "&#36;")):
        text = text.replace(sign, entity)
    return text


def colour(score: float) -> str:
    """The colour of a score of 0–1, of none (nan) grey."""
    if math.isnan(score):
        return UNSCORED
    place = min(max(score, 0.0), 1.0) * (len(SCORES) - 1)
    low = min(int(place), len(SCORES) - 2)
    share = place - low
    ends = [[int(SCORES[k][i : i + 2], 16) for i in (1, 3, 5)] for k in (low, low + 1)]
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in zip(*ends, strict=True))


def number(amount: float | None) -> str:
    """A count with thousands separated; unknown is said, never 0."""
    return "unknown" if amount is None else f"{amount:,}"


def palette(dark: bool) -> Palette:
    """The colours of a dark or a light figure."""
    return DARK if dark else LIGHT


def heading_layout(
    title: list[str], lines: list[str], simulated: bool, dark: bool, warning: str = ""
) -> tuple[dict[str, Any], int]:
    """The layout of a figure's title and of the lines below it, and how many pixels they take; a warning, and
    that a model was simulated, come first. All text is a person's or a model's: none of it is markup."""
    first = [*(["simulated model"] if simulated else []), *([warning] if warning else [])]
    below = [f'<b><span style="color:{palette(dark).path}">{plain(line)}</span></b>' for line in first]
    below += [plain(line) for line in lines if line]
    said = {
        "text": "<br>".join(map(plain, title)),
        "subtitle": {"text": "<br>".join(below), "font": {"size": 13, "color": palette(dark).faint}},
        "y": 1,
        "yref": "container",
        "yanchor": "top",
        "pad": {"t": 18},
    }
    return said, 34 + 21 * len(title) + 17 * len(below)


def style_figure(
    figure: Any,
    title: list[str],
    lines: list[str],
    simulated: bool,
    dark: bool,
    *,
    height: float,
    warning: str = "",
    **layout: Any,
) -> None:
    """Give a figure its heading, its template and its size.

    Args:
        figure: A Plotly figure, whose traces are drawn already.
        title: See `heading_layout`.
        lines: See `heading_layout`.
        simulated: See `heading_layout`.
        dark: Whether the page is dark.
        height: Pixels that the figure takes below its heading.
        warning: See `heading_layout`.
        layout: Further properties of the layout. `margin` needs only the sides that differ from the usual
            ones; its `t` is the distance from the heading.
    """
    heading, top = heading_layout(title, lines, simulated, dark, warning)
    margin = {"t": 4, "l": 10, "r": 10, "b": 56, **layout.pop("margin", {})}
    margin["t"] += top
    figure.update_layout(template=template(dark), title=heading, height=top + height, margin=margin, **layout)


def style_run_figure(figure: Any, run: Run, title: str, notes: list[str], dark: bool, **layout: Any) -> None:
    """`style_figure` for a figure of one run: the heading names its strategy and its question."""
    named = short(f"{run.name}  ·  {run.question}", 120)
    style_figure(figure, [title], [named, *notes], run.simulated, dark, hovermode="closest", **layout)


def empty(figure: Any, why: str) -> None:
    """Say in the middle of a figure that there is nothing to draw, and why."""
    figure.add_scatter(x=[], y=[], showlegend=False)
    figure.add_annotation(
        x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False, text=plain(why), font={"size": 14}
    )


def score_axis() -> dict[str, Any]:
    """The colours of the scores from 0 to 1, and their bar: Plotly's `coloraxis`."""
    return {
        "cmin": 0,
        "cmax": 1,
        "colorscale": scale_of(SCORES),
        "colorbar": colour_bar("score (0–1)", len=0.7, tickvals=[0, 0.25, 0.5, 0.75, 1]),
    }


def scale_of(shades: Sequence[str]) -> list[tuple[float, str]]:
    """Plotly's `colorscale` of equally spaced colours."""
    return [(k / (len(shades) - 1), shade) for k, shade in enumerate(shades)]


def colour_bar(title: str, **more: Any) -> dict[str, Any]:
    """Plotly's `colorbar`, narrow and without a frame."""
    return {"title": {"text": title, "side": "right"}, "thickness": 12, "outlinewidth": 0, **more}


def error_bars(above: Any, below: Any, shade: str) -> dict[str, Any]:
    """Plotly's error bars that reach so far to either side; `None` draws none."""
    return {
        "type": "data",
        "symmetric": False,
        "array": above,
        "arrayminus": below,
        "color": shade,
        "thickness": 1.3,
        "width": 4,
    }


def legend_at(y: float) -> dict[str, Any]:
    """A legend in one row under the plot, its top at `y` of the plot's height."""
    return {"orientation": "h", "x": 0.5, "xanchor": "center", "y": y, "yanchor": "top"}


def template(dark: bool = False) -> Any:
    """The Plotly template of every figure."""
    import plotly.graph_objects as go  # noqa: PLC0415  a run's repr uses this file without it

    paper, ink, _, edge, grid, *_ = palette(dark)
    axis = {"gridcolor": grid, "zeroline": False, "linecolor": grid, "tickcolor": grid, "automargin": True}
    return go.layout.Template(
        layout={
            "font": {"family": FONT, "size": 12, "color": ink},
            "paper_bgcolor": paper,
            "plot_bgcolor": paper,
            "colorway": list(COLOURS),
            "title": {"x": 0.0, "xref": "paper", "xanchor": "left", "font": {"size": 16}},
            "hoverlabel": {
                "bgcolor": paper,
                "bordercolor": edge,
                "align": "left",
                "font": {"family": FONT, "size": 12, "color": ink},
            },
            "legend": {"itemsizing": "constant", "font": {"size": 12}},
            "xaxis": axis,
            "yaxis": axis,
        }
    )
