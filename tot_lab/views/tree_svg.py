"""The tree of a run as an SVG image: for cards and reports, and as a figure of a paper.

The figure is laid out at the size at which it is printed, so no text is smaller than `SMALL` on paper. Its
PDF and PNG files contain the same drawing as the SVG.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Iterator, Sequence
from html import escape
from math import cos, isnan, pi, sin
from pathlib import Path
from typing import Any, NamedTuple
from unicodedata import east_asian_width

import numpy as np

from tot_lab.analysis.blame import right_not_chosen
from tot_lab.analysis.by_person import changes_of
from tot_lab.core.files import write_whole
from tot_lab.record.run import Run
from tot_lab.views.figures.saving import PIXELS, check_width, format_of, rendered
from tot_lab.views.figures.theme import (
    CORRECT,
    DARK,
    EDGE,
    FAINT,
    FONT,
    INK,
    LIGHT,
    LINKS,
    MISSED,
    PATH,
    PERSON,
    SCORES,
    TEXT,
    THEME,
    UNSCORED,
    colour,
    label,
    printable,
    short,
    wrap,
)
from tot_lab.views.figures.tree import (
    HOLLOW,
    LINK_NAMES,
    MAX_THOUGHTS,
    SHAPES,
    TreeInfo,
    arc,
    label_width,
    tree_info,
)
from tot_lab.views.figures.verdict import verdict_of

Point = tuple[float, float]

SMALL = 9.5
"""Size of the small text of a figure, in pixels of 1/96 inch: 7.1 points."""

LARGE = 11.0
"""Size of the title of a figure, in pixels: 8.3 points."""

MIN_LABEL = 12
"""Minimum number of characters that must fit in a line of a label. If fewer fit, there are no labels."""

MAX_STEPS = 12
"""Maximum number of thoughts in the numbered list of the path to the answer."""


class Frame(NamedTuple):
    """Position, size and colours of a drawn tree. Lengths are in pixels.

    Attributes:
        step: Distance between siblings.
        rise: Distance between levels.
        radius: Radius of a marker.
        left: Horizontal position of the leftmost thought.
        top: Vertical position of the root.
        labels: Maximum number of characters in a line of a label, or 0 for no labels.
        size: Font size of the labels.
        ink: Colour of outlines and labels.
        line: Colour of the lines.
    """

    step: float
    rise: float
    radius: float
    left: float
    top: float
    labels: int
    size: float
    ink: str
    line: str

    @property
    def leading(self) -> float:
        """Distance between two lines of a label."""
        return self.size * 13 / 11

    def at(self, x: float, y: float) -> Point:
        """Return the pixel position of a thought, from its position in `TreeInfo` (`x` and depth)."""
        return self.left + x * self.step, self.top + y * self.rise


class Marks(NamedTuple):
    """Indices in `TreeInfo.ids` of the thoughts that are marked.

    Attributes:
        changed: Thoughts that a person changed.
        missed: Right answers that were found and not chosen.
    """

    changed: frozenset[int]
    missed: frozenset[int]

    @classmethod
    def of(cls, run: Run, info: TreeInfo) -> Marks:
        place = {id: place for place, id in enumerate(info.ids)}
        try:
            right = right_not_chosen(run)
        except Exception:  # raised by a loaded task, or by a user's function
            right = []
        changed = (change.node for change in changes_of(run))
        return cls(*(frozenset(place[id] for id in ids if id in place) for ids in (changed, right)))


def tree_svg(run: Run, most: int = MAX_THOUGHTS) -> str:
    """Return the tree of a run as a standalone SVG image, with labels if there is room.

    Its colours are light or dark, as the browser prefers. At most `most` thoughts are drawn: the most
    relevant ones, as `tree_info` selects them.

    Raises:
        ValueError: If the run has no thoughts.
    """
    info = tree_info(run, most)._replace(details=[])  # in an <img>, browsers show no hover texts
    widest, deepest = float(info.x.max()), float(info.depth.max())
    labels = label_width(info, 840)
    step = min(840 / (widest + 1), 130 if labels else 44)
    frame = Frame(
        step,
        min(96.0 if labels else 62.0, 700 / max(deepest, 1.0)),
        min(8.0, max(step / 2.6, 1.5)),
        step / 2 + 6,
        16.0,
        labels,
        TEXT["small"],
        "currentColor",
        THEME["either"]["edge"],
    )
    width = widest * step + 2 * frame.left
    height = deepest * frame.rise + frame.top + (58.0 if labels else 16.0)
    shades = {colour(score): colour(score, dark=True) for score in info.score.tolist()}
    dark = "".join(f'[fill="{light}"]{{fill:{shade}}}' for light, shade in shades.items())
    start = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img" '
        f'font-size="{frame.size}" font-family="{escape(FONT)}">'
        f"<style>svg{{color:{INK};background:{LIGHT.paper}}}@media(prefers-color-scheme:dark)"
        f'{{svg{{color:{DARK.ink};background:{DARK.paper}}}{dark}[stroke="{PATH}"]{{stroke:{DARK.path}}}}}'
        "</style>"
    )
    return "".join([start, *_tree(info, frame, Marks.of(run, info)), "</svg>"])


def svg_url(svg: str) -> str:
    """Return an SVG image as a `data:` URL."""
    return "data:image/svg+xml;base64," + b64encode(svg.encode()).decode()


def save_figure(run: Run, path: str | os.PathLike[str], *, width: float = 3.5) -> Path:
    """Write the tree of a run as a figure for a paper, and return its path.

    The figure has the question as its title, the verdict (such as `✓ correct`) with the answer, and a legend.
    It has a light background and is laid out for the width at which it is printed: no text is smaller than 7
    points. If the thoughts are too many for labels, those on the path to the answer are numbered and listed
    below the tree. A duplicate has no label if its text stands at another thought. An existing file is
    replaced atomically.

    Args:
        run: The run.
        path: A file with the suffix `.svg`, `.pdf` or `.png` (300 dots per inch). PDF and PNG require
            `pip install 'tot-lab[figures]'`, and Chrome or Chromium. SVG requires neither.
        width: Width in inches: 3.5 fits a column of a page with two columns, 7 the whole page. Include the
            file in the paper without scaling it.

    Raises:
        ValueError: If the format is unknown, the width is not between 2 and 50, or there are no thoughts.
        ImportError: If the format requires Kaleido, which is not installed.
        OSError: If the PDF or PNG cannot be drawn, for example because there is no browser.
    """
    format = format_of(path)
    check_width(width)
    svg, height = _figure(run, round(width * PIXELS))
    if format == "svg":
        return write_whole(path, svg.encode())
    return write_whole(path, rendered(_as_image(svg, round(width * PIXELS), height), path))


def _as_image(svg: str, width: int, height: int) -> Any:
    """Return a Plotly figure that contains only the image `svg`, which remains a vector graphic in a PDF."""
    import plotly.graph_objects as go  # noqa: PLC0415  an SVG does not need it

    hidden = {"visible": False}
    place = {"xref": "paper", "yref": "paper", "x": 0, "y": 1, "sizex": 1, "sizey": 1, "sizing": "stretch"}
    return go.Figure(
        layout={
            "template": "none",
            "width": width,
            "height": height,
            "margin": dict.fromkeys("lrtb", 0),
            "xaxis": hidden,
            "yaxis": hidden,
            "images": [{"source": svg_url(svg), **place}],
        }
    )


# The parts of a figure, from top to bottom: `_heading`, the tree, `_path_list` and `_legend`. Each of these
# three functions returns SVG elements and the top of the next part.


def _figure(run: Run, width: int) -> tuple[str, int]:
    """Return the SVG source of a figure `width` pixels wide, and its height in pixels."""
    info = tree_info(run)
    heading, y = _heading(run, info, width)
    frame = _frame(info, width, y)
    y = frame.at(0, float(info.depth.max()))[1] + frame.radius + (3.6 * frame.leading if frame.labels else 4)
    path = [] if frame.labels else _path_places(info)
    numbers = [_number(str(k), frame, info, place) for k, place in enumerate(path, 1)]
    listed, y = _path_list(info, path, width, y)
    marks = Marks.of(run, info)
    legend, y = _legend(info, marks, width, y + 6)
    height = round(y + 4)
    start = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width / PIXELS:g}in" height="{height / PIXELS:.4g}in" role="img" '
        f'font-family="{escape(FONT)}" font-size="{SMALL}">'
        f"<title>{escape(short(run.question, 200))}</title>"
        f'<rect width="100%" height="100%" fill="{LIGHT.paper}"/>'
    )
    parts = [start, *heading, *_tree(info, frame, marks), *numbers, *listed, *legend, "</svg>"]
    return "".join(parts), height


def _frame(info: TreeInfo, width: int, y: float) -> Frame:
    """Return the frame of a tree that begins at `y` and is centred."""
    widest, deepest = float(info.x.max()), float(info.depth.max())
    room = label_width(info, width * 11 / SMALL)
    labels = room if room >= MIN_LABEL else 0
    step = min((width - 14) / (widest + 1), 110 if labels else 34)
    radius = min(6.0, max(step / 2.6, 1.5))
    rise = min(76.0 if labels else 46.0, 480 / max(deepest, 1.0))
    left = (width - widest * step) / 2
    return Frame(step, rise, radius, left, y + radius + 6, labels, SMALL, INK, EDGE)


def _heading(run: Run, info: TreeInfo, width: int) -> tuple[list[str], float]:
    verdict = verdict_of(run)
    wrong = verdict.grade.startswith("✗") and verdict.expected
    grade = f"{verdict.grade}, expected {verdict.expected}" if wrong else verdict.grade
    ended = verdict.stopped if run.stop_reason is None else f"ended: {verdict.stopped}"
    drawn = f"{len(info.ids):,} of " if info.left_out else ""
    facts = [run.name, run.model, f"{drawn}{len(info.ids) + info.left_out:,} thoughts", ended]
    shade = {True: CORRECT, False: LIGHT.warning, None: FAINT}[verdict.correct]
    rows: list[tuple[str, float, str, int]] = [(run.question or run.name, LARGE, INK, 3)]
    if run.stop_reason is not None:
        rows.append((grade, SMALL + 0.5, shade, 3))
        rows += [(f"answer: {run.answer}", SMALL, INK, 3)] if run.answer.strip() else []
    if run.model_note:
        rows.append((run.model_note, SMALL, LIGHT.warning, 3))
    rows.append(("  ·  ".join(map(printable, facts)), SMALL, FAINT, 3))
    elements, y = [], 3.0
    for text, size, fill, lines in rows:
        bold = fill != FAINT and not text.startswith("answer: ")
        for line in _wrapped(text, width - 8, size * (1.12 if bold else 1), lines):
            y += size * 1.3
            elements.append(_text(line, 4, y, f'font-size="{size}" fill="{fill}"', bold))
    return elements, y + 4


def _wrapped(text: str, width: float, size: float, lines: int) -> list[str]:
    """Wrap text to a width in pixels, which is estimated for a wide sans-serif font."""
    line = " ".join(printable(text).split())
    return wrap(line, max(int(width / (size * _mean_width(line))), 8), lines)


def _mean_width(text: str) -> float:
    """Return the mean width of the characters, in units of the size of the font."""
    widths = [
        1.02 if east_asian_width(sign) in "WF" else 0.74 if sign.isupper() else 0.61 for sign in text or " "
    ]
    return sum(widths) / len(widths)


def _path_places(info: TreeInfo) -> list[int]:
    """Return the indices of the thoughts on the path to the answer, from the child of the root downwards."""
    places = np.flatnonzero(info.on_path & (info.parents >= 0))
    return [int(place) for place in places[np.argsort(info.depth[places], kind="stable")]]


def _number(text: str, frame: Frame, info: TreeInfo, place: int) -> str:
    """Write `text` beside the marker of a thought, with an outline that hides the lines behind it."""
    x, y = frame.at(float(info.x[place]), float(info.depth[place]))
    style = f'fill="{INK}" stroke="{LIGHT.paper}" stroke-width="2.5" paint-order="stroke"'
    return _text(text, x + 1.5 * frame.radius + 3, y + 0.36 * SMALL, style, bold=True)


def _path_list(info: TreeInfo, path: Sequence[int], width: int, y: float) -> tuple[list[str], float]:
    """Write the thoughts on the path to the answer as a numbered list."""
    elements = []
    steps = list(enumerate(path, 1))
    left_out = len(steps) - MAX_STEPS
    if left_out > 0:
        steps = [*steps[: MAX_STEPS // 2], (0, left_out), *steps[-MAX_STEPS // 2 :]]
    for k, place in steps:
        text = info.texts[place] if k else f"{place:,} more steps"
        for row, line in enumerate(_wrapped(text, width - 30, SMALL, 2) or [""]):
            y += SMALL * 1.3
            if row == 0:
                elements.append(_text(str(k) if k else "⋮", 4, y, f'fill="{INK}"', bold=True))
            elements.append(_text(line, 24, y, f'fill="{INK if k else FAINT}"'))
    return elements, y


def _legend(info: TreeInfo, marks: Marks, width: int, y: float) -> tuple[list[str], float]:
    """Draw the legend: every shape, line and colour that occurs, in rows."""
    elements: list[str] = []
    x, row = 4.0, SMALL * 1.6
    y += row
    for drawing, room, name in _legend_entries(info, marks):
        needed = room + 4 + len(name) * SMALL * _mean_width(name)
        if x > 4 and x + needed > width - 4:
            x, y = 4.0, y + row
        elements.append(f'<g transform="translate({x:.1f} {y - 0.36 * SMALL:.1f})">{drawing}</g>')
        elements.append(_text(name, x + room + 4, y, f'fill="{INK}"'))
        x += needed + 10
    return elements, y + 0.3 * SMALL


def _legend_entries(info: TreeInfo, marks: Marks) -> Iterator[tuple[str, float, str]]:
    """Yield each entry: a drawing whose middle is at height 0, its width, and its name."""
    for what in SHAPES:
        if what in info.shape:
            fill = FAINT if what == "question" or what not in HOLLOW else "none"
            yield _marker(what, fill, (6, 0), 4.2, f'stroke="{INK}" stroke-width="0.8"', INK), 12, what
    if marks.missed:
        yield _missed(FAINT, (6, 0), 3.4), 12, "right, not chosen"
    if marks.changed:
        yield _badge(5, 0), 12, "changed by a person"
    if (info.on_path & (info.parents >= 0)).any():
        yield f'<path d="M0 0h16" stroke="{PATH}" stroke-width="3.2"/>', 16, "path to the answer"
    for kind in dict.fromkeys(kind for *_, kind in info.links):
        shade = LINKS.get(kind, EDGE)
        line = f'<path d="M0 0h16" stroke="{shade}" stroke-width="1.4" stroke-dasharray="5 4"/>'
        yield line, 16, LINK_NAMES.get(kind, kind)
    filled = [score for score, what in zip(info.score, info.shape, strict=True) if what not in HOLLOW]
    if any(not isnan(score) for score in filled):
        bar = "".join(
            f'<rect x="{5 * k}" y="-4" width="5.2" height="8" fill="{c}"/>' for k, c in enumerate(SCORES)
        )
        yield bar, 50, "score 0–1"
    if any(map(isnan, filled)):
        yield f'<rect y="-4" width="8" height="8" fill="{UNSCORED}" stroke="{INK}"/>', 8, "no score"


def _text(text: str, x: float, y: float, style: str, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}{weight}>{escape(text)}</text>'


# The tree itself.


def _tree(info: TreeInfo, frame: Frame, marks: Marks) -> Iterator[str]:
    """Draw lines, links, markers and labels."""
    labels, radius = frame.labels, frame.radius
    originals = {text for text, what in zip(info.texts, info.shape, strict=True) if what != "duplicate"}
    texts = [  # the text of a duplicate stands at the thought that it repeats
        label(text, labels) if labels and not (what == "duplicate" and text in originals) else []
        for text, what in zip(info.texts, info.shape, strict=True)
    ]
    places = [frame.at(x, y) for x, y in zip(info.x.tolist(), info.depth.tolist(), strict=True)]
    joined = [(int(parent), child) for child, parent in enumerate(info.parents) if parent >= 0]
    # Edges start below the label of the parent, and bend below all labels of its level. An edge behind a
    # label would require a background in the colour of the page, which is not known.
    first = [
        y + (radius + 7 + frame.leading * len(rows) if labels else 0)
        for (_, y), rows in zip(places, texts, strict=True)
    ]
    bends: dict[float, float] = {}
    for (_, y), start in zip(places, first, strict=True):
        bends[y] = max(start, bends.get(y, start))
    for chosen, shade, thick in ((False, frame.line, 1.2), (True, PATH, 3.2)):
        lines = "".join(
            "M{:.1f} {:.1f}V{:.1f}L{:.1f} {:.1f}".format(
                places[parent][0], first[parent], bends[places[parent][1]], *places[child]
            )
            for parent, child in joined
            if bool(info.on_path[child]) is chosen
        )
        if lines:
            yield f'<path d="{lines}" fill="none" stroke="{shade}" stroke-width="{thick}"/>'
    for start, end, kind in info.links:
        points = " ".join(
            "{:.1f},{:.1f}".format(*frame.at(x, y)) for x, y in zip(*arc(info, start, end), strict=True)
        )
        yield (
            f'<polyline points="{points}" fill="none" stroke="{LINKS.get(kind, frame.line)}" '
            f'stroke-width="1.4" stroke-dasharray="5 4"/>'
        )
    for place, spot in enumerate(places):
        yield _thought(info, place, spot, frame, place in marks.missed)
        if place in marks.changed:
            yield _badge(spot[0] - radius - 1, spot[1] - radius)
        yield _label(texts[place], spot[0], spot[1] + radius + 3 + frame.size, frame)


def _badge(x: float, y: float) -> str:
    """Draw the mark of a thought that a person changed: a pencil in a square."""
    box = f'<rect x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10" fill="{PERSON}"/>'
    return box + _text("✎", x - 4, y + 3.3, f'font-size="{TEXT["print"]}" fill="{LIGHT.paper}"')


def _missed(fill: str, spot: Point, radius: float, hover: str = "") -> str:
    """Draw a right answer that was not chosen: a star in a ring."""
    x, y = spot
    star = _marker("right answer", fill, spot, radius * 0.8, f'stroke="{MISSED}" stroke-width="1"', "", hover)
    ring = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius * 1.35:.1f}" fill="none" stroke="{MISSED}" '
    return f'{star}{ring}stroke-width="2.5"/>'


def _thought(info: TreeInfo, place: int, spot: Point, frame: Frame, missed: bool) -> str:
    what = info.shape[place]
    fill = FAINT if what == "question" else "none" if what in HOLLOW else colour(float(info.score[place]))
    on_path = bool(info.on_path[place])
    pen = f'stroke="{PATH if on_path else frame.ink}" stroke-width="{2 if on_path else 0.8}"'
    hover = f"<title>{escape(chr(10).join(info.details[place]))}</title>" if info.details else ""
    if missed:
        return _missed(colour(float(info.score[place])), spot, frame.radius, hover)
    return _marker(what, fill, spot, frame.radius, pen, frame.ink, hover)


def _marker(what: str, fill: str, spot: Point, radius: float, pen: str, ink: str, hover: str = "") -> str:
    shape = SHAPES[what]
    x, y = spot
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{fill}" {pen}>{hover}</circle>'
    size = radius * (1.6 if shape == "star" else 1.15)
    points = " ".join(f"{x + size * dx:.1f},{y + size * dy:.1f}" for dx, dy in _OUTLINES[shape])
    marker = f'<polygon points="{points}" fill="{fill}" {pen}>{hover}</polygon>'
    if what != "wrong answer":
        return marker
    arm = 0.9 * size
    (left, right), (high, low) = (x - arm, x + arm), (y - arm, y + arm)
    lines = f"M{left:.1f} {high:.1f}L{right:.1f} {low:.1f}M{right:.1f} {high:.1f}L{left:.1f} {low:.1f}"
    return f'{marker}<path d="{lines}" stroke="{ink}" stroke-width="2" pointer-events="none"/>'


def _label(rows: list[str], x: float, y: float, frame: Frame) -> str:
    if not rows:
        return ""
    spans = "".join(
        f'<tspan x="{x:.1f}" dy="{f"{frame.leading:g}" if k else 0}">{escape(row)}</tspan>'
        for k, row in enumerate(rows)
    )
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" fill="{frame.ink}">{spans}</text>'


def _polygon(points: int, first: float, inner: float = 1.0) -> list[Point]:
    """Return the corners of a polygon or star, starting at the angle `first` in radians.

    The corners are at radius 1, except that every second corner is at radius `inner`.
    """
    angles = [first + 2 * pi * k / points for k in range(points)]
    return [
        (cos(angle) * (inner if k % 2 else 1), sin(angle) * (inner if k % 2 else 1))
        for k, angle in enumerate(angles)
    ]


_OUTLINES = {
    "star": _polygon(10, -pi / 2, 0.42),
    "diamond": _polygon(4, -pi / 2),
    "square": _polygon(4, -pi / 4),
    "triangle-up": _polygon(3, -pi / 2),
    "triangle-down": _polygon(3, pi / 2),
    "bowtie": [(-0.9, -0.9), (0, -0.2), (0.9, -0.9), (0.9, 0.9), (0, 0.2), (-0.9, 0.9)],
    "hexagon": _polygon(6, -pi / 2),
    "x": [
        (0, -0.35), (0.5, -0.85), (0.85, -0.5), (0.35, 0), (0.85, 0.5), (0.5, 0.85),
        (0, 0.35), (-0.5, 0.85), (-0.85, 0.5), (-0.35, 0), (-0.85, -0.5), (-0.5, -0.85),
    ],
}  # fmt: skip
