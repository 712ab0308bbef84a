"""Colours, template and text handling of every figure.

Text written by a model or a person is escaped and never interpreted as markup. Scores use viridis, which is
perceptually uniform and safe for colour-blind readers. Viridis contains no grey, so grey marks thoughts
without a score. Other colours are from the Okabe-Ito set. A state, such as pruned, is shown by the shape of a
marker, never by its colour alone. Dark figures differ from light ones in the background, the text and the
colours that would be too faint. On its background, the contrast of text is at least 4.5:1, and that of lines,
outlines and other marks at least 3:1.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

THEME: dict[str, Any] = json.loads(Path(__file__).parents[1].joinpath("theme.json").read_bytes())
"""The colours, text sizes and distances of all figures and pages. The explorer reads the same file."""

FONT: str = THEME["font"]
TEXT: dict[str, int] = THEME["text"]
"""Sizes of text in pixels."""


class Palette(NamedTuple):
    """Colours that differ between light and dark figures.

    `paper` is the background, `ink` the text, `faint` less important text, `edge` and `grid` lines, `path`
    the path to the answer, `unscored` a thought without a score, `warning` emphasised text, and `veil` the
    background of a label that is drawn over lines.
    """

    paper: str
    ink: str
    faint: str
    edge: str
    grid: str
    path: str
    unscored: str
    warning: str
    veil: str


def _palette(its: dict[str, Any]) -> Palette:
    return Palette(*(its[name] for name in Palette._fields))


LIGHT, DARK = _palette(THEME["light"]), _palette(THEME["dark"])
INK, FAINT, EDGE, PATH, UNSCORED = LIGHT.ink, LIGHT.faint, LIGHT.edge, LIGHT.path, LIGHT.unscored
LINKS: dict[str, str] = THEME["light"]["links"]

SCORES, DARK_SCORES = THEME["scores"], THEME["dark_scores"]
"""Viridis (Smith and van der Walt 2015) from score 0 to score 1, equally spaced, and the same hues for a dark
background, on which the lightness begins at 0.66 instead of 0.28 (Oklab)."""

CORRECT: str = THEME["light"]["verdicts"]["right"]
"""Colour of the words "✓ correct"."""

PERSON: str = THEME["light"]["person"]
"""Background colour of the mark of thoughts that a person changed. The sign in it is white."""

MISSED: str = THEME["either"]["right"]
"""Colour of the mark of right answers that were not chosen, visible on light and on dark pages."""

PERSON_TEXT: str = THEME["either"]["person"]
"""Colour of words about a person's changes, visible on light and on dark pages."""

KINDS = tuple(THEME["kinds"])
"""Colours of call purposes, in order of first occurrence. Further purposes get `FAINT`. Vermilion is left out
because it marks the path. Orange and sky blue are darker than in the Okabe-Ito set, so that they are visible
on white."""

COLOURS = tuple(THEME["curves"])
"""Colours of curves, in order."""

_WORD = re.compile("[A-Za-z\u00c0-\u052f]{4}")  # four letters of the Latin, Greek or Cyrillic alphabet
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def printable(text: str) -> str:
    """Remove the characters that XML does not allow. GraphML, SVG and HTML do not allow them either."""
    return _NOT_XML.sub("", text)


def short(text: str, max_length: int) -> str:
    """Put `text` on one line, with control characters as escapes, and truncate it to `max_length`
    characters.
    """
    line = " ".join(_NOT_XML.sub(lambda found: ascii(found[0])[1:-1], text).split())
    return line if len(line) <= max_length else line[: max(max_length - 1, 0)].rstrip() + "…"


def short_id(id: Any) -> str:
    """Shorten an id to at most 60 characters. Long ids, which occur deep in a tree, keep their end."""
    text = printable(str(id))
    return text if len(text) <= 60 else "…" + text[-59:]


def wrap(text: str, width: int, lines: int) -> list[str]:
    """Wrap `text` into at most `lines` lines of at most `width` characters.

    Existing line breaks are kept. A word is broken only if it is longer than a line. Truncated text ends in
    an ellipsis.
    """
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
    """Wrap the label of a node into at most three lines of at most `width` characters.

    Words longer than a line are abbreviated. Formulas, and text without spaces (such as Chinese), are broken
    into lines instead.
    """
    return wrap(
        " ".join(short(word, width) if _WORD.search(word) else word for word in text.split()), width, 3
    )


def plain(text: str) -> str:
    """Escape `text` for Plotly, which interprets a subset of HTML, and TeX between dollar signs."""
    for sign, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("$", "&#36;")):
        text = text.replace(sign, entity)
    return text


def colour(score: float, dark: bool = False) -> str:
    """Return the colour of a score from 0 to 1, or grey if the score is nan."""
    if math.isnan(score):
        return (DARK if dark else LIGHT).unscored
    scores = DARK_SCORES if dark else SCORES
    place = min(max(score, 0.0), 1.0) * (len(scores) - 1)
    low = min(int(place), len(scores) - 2)
    share = place - low
    ends = [[int(scores[k][i : i + 2], 16) for i in (1, 3, 5)] for k in (low, low + 1)]
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in zip(*ends, strict=True))


def number(amount: float | None) -> str:
    """Format a count with thousands separators. `None` becomes "unknown"."""
    return "unknown" if amount is None else f"{amount:,}"


def short_score(score: float) -> str:
    """Format a score with at most three significant digits. Small scores are "<0.001"."""
    return "<0.001" if 0 < score < 0.001 else f"{score:.3g}"


def palette(dark: bool | None) -> Palette:
    """Return the colours of a dark or a light figure.

    `None` follows the template that the user has set as `plotly.io.templates.default`: a figure is dark if
    the text of the template is light, as in `plotly_dark`.
    """
    return DARK if (_default_is_dark() if dark is None else dark) else LIGHT


def _default_is_dark() -> bool:
    from plotly.io import templates  # noqa: PLC0415  the repr of a run must not import it

    ink = templates[templates.default].layout.font.color if templates.default else None
    if ink is None or ink == "white":
        return ink == "white"
    if ink.startswith("#"):
        digits = ink[1:] if len(ink) == 7 else "".join(2 * digit for digit in ink[1:])
        shades = [float(int(digits[i : i + 2], 16)) for i in (0, 2, 4)]
    else:
        shades = [float(shade) for shade in re.findall(r"[\d.]+", ink)]
    return sum(shades[:3]) > 384  # a colour name other than "white" counts as dark ink


def themed(css: str) -> str:
    """Replace the variables of the theme in a style sheet, such as `var(--font)`, with their values."""

    def value(found: re.Match[str]) -> str:
        value = THEME[found[1]][found[2]] if found[1] else FONT
        return f"{value}px" if isinstance(value, int) else str(value)

    return re.sub(r"var\(--(?:font|(text|space|light|dark|either)-(\w+))\)", value, css)


def translucent(colour: str, opacity: float) -> str:
    """Return a colour of the form `#rrggbb` with an opacity from 0 to 1."""
    return f"rgba({', '.join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))}, {opacity})"


def heading_layout(
    title: list[str], lines: list[str], note: str, dark: bool | None, warning: str = ""
) -> tuple[dict[str, Any], int]:
    """Build the title and subtitle of a figure. All text is escaped.

    Args:
        title: Lines of the title.
        lines: Lines of the subtitle. Empty lines are dropped.
        note: Note on the model, at the start of the subtitle. See `Run.model_note`.
        dark: See `palette`.
        warning: Emphasised line above `lines`.

    Returns:
        Plotly's `layout.title`, and the height of the heading in pixels.
    """
    first = filter(None, [note, warning])
    below = [f'<b><span style="color:{palette(dark).warning}">{plain(line)}</span></b>' for line in first]
    below += [plain(line) for line in lines if line]
    heading = {
        "text": "<br>".join(map(plain, title)),
        "subtitle": {
            "text": "<br>".join(below),
            "font": {"size": TEXT["body"], "color": palette(dark).faint},
        },
        "y": 1,
        "yref": "container",
        "yanchor": "top",
        "pad": {"t": 18},
    }
    return heading, 34 + 21 * len(title) + 17 * len(below)


def style_figure(
    figure: Any,
    title: list[str],
    lines: list[str],
    note: str,
    dark: bool | None,
    *,
    height: float,
    warning: str = "",
    **layout: Any,
) -> None:
    """Set the heading, the template and the size of a figure.

    Args:
        figure: A Plotly figure that already has its traces.
        title: See `heading_layout`.
        lines: See `heading_layout`.
        note: See `heading_layout`.
        dark: See `palette`.
        height: Height below the heading, in pixels.
        warning: See `heading_layout`.
        layout: Further layout properties. `margin` overrides only the sides that it contains; its `t` is the
            distance from the heading.
    """
    heading, top = heading_layout(title, lines, note, dark, warning)
    margin = {"t": 4, "l": 10, "r": 10, "b": 56, **layout.pop("margin", {})}
    margin["t"] += top
    figure.update_layout(template=template(dark), title=heading, height=top + height, margin=margin, **layout)


def show_message(figure: Any, message: str) -> None:
    """Write a message in the middle of a figure that has nothing to draw."""
    figure.add_scatter(x=[], y=[], showlegend=False)
    figure.add_annotation(
        x=0.5,
        y=0.5,
        xref="paper",
        yref="paper",
        showarrow=False,
        text=plain(message),
        font={"size": TEXT["page"]},
    )


def score_axis(dark: bool | None) -> dict[str, Any]:
    """Return Plotly's `coloraxis` for scores from 0 to 1, with its colour bar. `dark`: see `palette`."""
    return {
        "cmin": 0,
        "cmax": 1,
        "colorscale": scale_of(DARK_SCORES if palette(dark) is DARK else SCORES),
        "colorbar": colour_bar("score (0–1)", len=0.7, tickvals=[0, 0.25, 0.5, 0.75, 1]),
    }


def scale_of(shades: Sequence[str]) -> list[tuple[float, str]]:
    """Return a Plotly `colorscale` of equally spaced colours."""
    return [(k / (len(shades) - 1), shade) for k, shade in enumerate(shades)]


def colour_bar(title: str, **more: Any) -> dict[str, Any]:
    """Return a narrow Plotly `colorbar` without a frame."""
    return {"title": {"text": title, "side": "right"}, "thickness": 12, "outlinewidth": 0, **more}


def error_bars(above: Any, below: Any, shade: str) -> dict[str, Any]:
    """Return Plotly error bars with the given lengths above and below each point. A `None` draws no bar."""
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
    """Return a horizontal legend below the plot. `y` is its top edge, in fractions of the plot's height."""
    return {"orientation": "h", "x": 0.5, "xanchor": "center", "y": y, "yanchor": "top"}


def template(dark: bool | None = None) -> Any:
    """Return the Plotly template that every figure uses. `dark`: see `palette`."""
    import plotly.graph_objects as go  # noqa: PLC0415  the repr of a run must not import it

    paper, ink, _, edge, grid, *_ = palette(dark)
    axis = {"gridcolor": grid, "zeroline": False, "linecolor": grid, "tickcolor": grid, "automargin": True}
    return go.layout.Template(
        layout={
            "font": {"family": FONT, "size": TEXT["note"], "color": ink},
            "paper_bgcolor": paper,
            "plot_bgcolor": paper,
            "colorway": list(COLOURS),
            "title": {"x": 0.0, "xref": "paper", "xanchor": "left", "font": {"size": TEXT["lead"]}},
            "hoverlabel": {
                "bgcolor": paper,
                "bordercolor": edge,
                "align": "left",
                "font": {"family": FONT, "size": TEXT["note"], "color": ink},
            },
            "legend": {"itemsizing": "constant", "font": {"size": TEXT["note"]}},
            "xaxis": axis,
            "yaxis": axis,
        }
    )
