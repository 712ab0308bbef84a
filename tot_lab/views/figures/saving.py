"""Figures as files for a paper: SVG, PDF and PNG.

A file is written completely or not at all. Plotly draws figures with Kaleido, which needs a browser.
No other module requires them.
"""

from __future__ import annotations

import os
import re
from html import unescape
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tot_lab.core.extras import requires
from tot_lab.core.files import write_whole
from tot_lab.views.figures.theme import plain, short, wrap

if TYPE_CHECKING:
    import plotly.graph_objects as go

FORMATS = ("svg", "pdf", "png")

PIXELS = 96
"""Pixels of a figure per inch of paper, as in CSS."""

DOTS = 300
"""Dots per inch of a PNG."""


def save(
    figure: go.Figure, path: str | os.PathLike[str], *, title: str | None = None, width: float = 7.0
) -> Path:
    """Write a Plotly figure as a file for a paper, and return its path.

    The heading is wrapped to the width, and the figure is laid out anew for it. The colours are those of the
    figure: pass `dark=False` to the function that plots it if `plotly.io.templates.default` is dark. The
    figure itself is not changed, and an existing file is replaced atomically.

    Args:
        figure: A figure, such as that of `tl.figures.plot_sweep(sweep)` or `run.plot("timeline")`. For the
            tree of a run, see also `run.save_figure`.
        path: A file with the suffix `.svg`, `.pdf` or `.png` (300 dots per inch).
        title: Title that replaces the title of the figure. `None` keeps it. The subtitle is always kept.
        width: Width in inches: 7 fits a page, 3.5 a column of a page with two columns. Text has 9 points.
            Include the file in the paper without scaling it.

    Raises:
        ValueError: If the format is unknown, or `width` is not between 2 and 50.
        TypeError: If `figure` is not a Plotly figure.
        ImportError: If Kaleido is not installed (`pip install 'tot-lab[figures]'`).
        OSError: If the figure cannot be drawn, for example because there is no Chrome or Chromium.
    """
    import plotly.graph_objects as go  # noqa: PLC0415

    format_of(path)
    check_width(width)
    if not isinstance(figure, go.Figure):
        raise TypeError(
            f"{os.fspath(path)}: expected a Plotly figure, such as tl.figures.plot_tree(run): "
            f"got {type(figure).__name__}."
        )
    return write_whole(path, rendered(_for_print(go.Figure(figure), title, round(width * PIXELS)), path))


def format_of(path: str | os.PathLike[str]) -> str:
    """Return the format of a file by its suffix.

    Raises:
        ValueError: If the suffix is unknown.
    """
    suffix = Path(path).suffix.lower().removeprefix(".")
    if suffix not in FORMATS:
        raise ValueError(
            f"{os.fspath(path)}: unknown format. Use .svg, .pdf or .png, or figure.write_html for HTML."
        )
    return suffix


def check_width(width: float) -> None:
    """Raise `ValueError` unless `width` is between 2 and 50 inches."""
    if not 2 <= width <= 50:
        raise ValueError(f"width must be between 2 and 50 inches: got {width!r}.")


_DRAWN_BY = "Kaleido, and Chrome or Chromium"


def rendered(figure: go.Figure, path: str | os.PathLike[str]) -> bytes:
    """Return the content of an image file of a Plotly figure, in the format of the path.

    Raises:
        ImportError: If Kaleido is not installed.
        OSError: If Kaleido cannot draw the figure.
    """
    format = format_of(path)
    if find_spec("kaleido") is None:
        raise ImportError(
            f"{os.fspath(path)} was not written: {requires(format.upper(), _DRAWN_BY, 'figures')}. "
            f"Install one of the browsers if there is none. run.save_figure('tree.svg') requires neither."
        )
    try:
        image: bytes = figure.to_image(format=format, scale=DOTS / PIXELS if format == "png" else 1)
    except Exception as error:  # of Kaleido, of the browser, or of the connection between them
        raise OSError(
            f"{os.fspath(path)} was not written: Kaleido could not draw it "
            f"({type(error).__name__}: {short(str(error), 200)}). It requires Chrome or Chromium: install "
            f"one, or run plotly_get_chrome. If it is installed, set BROWSER_PATH to its executable."
        ) from error
    return image


def _for_print(figure: go.Figure, title: str | None, width: int) -> go.Figure:
    """Set the title and the width of a figure, and adapt its height to the wrapped heading."""
    heading: Any = figure.layout.title
    old = [heading.text or "", heading.subtitle.text or ""]
    new = [_wrapped(old[0] if title is None else plain(title), width, 16), _wrapped(old[1], width, 13)]
    added = sum(
        (after.count("<br>") - before.count("<br>") + (bool(after) - bool(before))) * height
        for before, after, height in zip(old, new, (21, 17), strict=True)
    )
    figure.update_layout(title={"text": new[0], "subtitle": {"text": new[1]}}, width=width)
    if width < NARROW:  # Plotly leaves out a slanted label that begins outside the figure
        figure.for_each_xaxis(lambda axis: axis.update(tickangle=-90), selector={"tickangle": -40})
    if figure.layout.height is not None:
        figure.layout.height += added
    if figure.layout.margin.t is not None:
        figure.layout.margin.t += added
    return figure


NARROW = 600
"""Width in pixels below which slanted labels of an axis become vertical."""

_TAGS = re.compile(r"((?:<[^<>]+>)*)([^<>]*)((?:</[^<>]+>)*)")


def _wrapped(text: str, width: int, size: int) -> str:
    """Wrap the lines of a Plotly heading to `width` pixels, except lines with tags inside the text."""
    rows = []
    for row in text.split("<br>"):
        found = _TAGS.fullmatch(row)
        lines = wrap(unescape(found[2]), int((width - 20) / (0.58 * size)), 6) if found else []
        rows += [f"{found[1]}{plain(line)}{found[3]}" for line in lines] if found and lines else [row]
    return "<br>".join(rows)
