"""Icicle figure of a tree of thoughts: each thought is a block below that of its parent.

It draws the same thoughts in the same colours as `plot_tree`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tot_lab.core.tree import Tree
from tot_lab.record.run import Run
from tot_lab.views.figures.theme import (
    DARK,
    Palette,
    colour,
    palette,
    plain,
    score_axis,
    short,
    style_figure,
    text_on,
)
from tot_lab.views.figures.tree import TreeInfo, tree_heading, tree_info

if TYPE_CHECKING:
    import networkx
    import plotly.graph_objects as go

VISIBLE_LEVELS = 10
"""Number of levels that are visible at once. A click on a block shows deeper levels."""

PATTERNS = {"pruned": "/", "unreadable": ".", "failed": "x", "duplicate": "-", "merged": "|"}
"""Hatching of thoughts that left the search, by shape of `TreeInfo`."""


class IcicleInfo(NamedTuple):
    """Data of `plot_icicle`.

    Attributes:
        tree: Data of `plot_tree` for the same run. The other fields have one entry per thought in it.
        leaves: Number of drawn leaves of the subtree. It determines the width of the block.
        pattern: Hatching from `PATTERNS`, or "".
    """

    tree: TreeInfo
    leaves: NDArray[np.intp]
    pattern: list[str]


def icicle_info(run: Run | Tree | networkx.DiGraph[Any]) -> IcicleInfo:
    """Compute the data of `plot_icicle`.

    Raises:
        ValueError: If there are no thoughts, or the graph is not a tree.
    """
    tree = tree_info(run)
    leaves = np.ones(len(tree.ids), dtype=np.intp)
    leaves[tree.parents[tree.parents >= 0]] = 0
    for node in np.argsort(-tree.depth, kind="stable").tolist():  # children before their parents
        if tree.parents[node] >= 0:
            leaves[tree.parents[node]] += leaves[node]
    return IcicleInfo(tree, leaves, [PATTERNS.get(shape, "") for shape in tree.shape])


def plot_icicle(run: Run | Tree | networkx.DiGraph[Any], *, dark: bool | None = None) -> go.Figure:
    """Plot a tree of thoughts as nested blocks with the root at the top.

    Each depth is a row, and the width of a block is the number of leaves below it. The colour is the score.
    Thoughts that left the search are hatched, and the path to the answer is outlined. Ten rows are visible at
    once. A click on a block zooms in on it, and a click on the top row zooms out.

    Args:
        run: See `plot_tree`. At most 2,000 thoughts are drawn, the same ones as by `plot_tree`.
        dark: Use the colours for a dark page. `None` follows `plotly.io.templates.default`.

    Raises:
        ValueError: If there are no thoughts, or the graph is not a tree.
    """
    import plotly.graph_objects as go  # noqa: PLC0415  the repr of a run must not import it

    info = icicle_info(run)
    tree = info.tree
    ids, above, labels, hover, leaves, fill, ink, sign, line, width = zip(*_blocks(info, dark), strict=True)
    hatching = {"shape": sign, "fgcolor": ink, "fillmode": "overlay", "size": 7, "solidity": 0.1}
    figure = go.Figure()
    figure.add_icicle(
        ids=ids,
        parents=above,
        labels=labels,
        values=leaves,
        branchvalues="total",
        sort=False,
        maxdepth=VISIBLE_LEVELS,
        tiling={"orientation": "v"},
        leaf={"opacity": 1},
        pathbar={"visible": False},
        hoverinfo="text",
        hovertext=hover,
        textinfo="label",
        textfont={"color": ink},
        marker={"colors": fill, "line": {"color": line, "width": width}, "pattern": hatching},
    )
    scale = {"color": [0], "coloraxis": "coloraxis"}
    figure.add_scatter(x=[None], y=[None], mode="markers", showlegend=False, marker=scale)
    title, lines = tree_heading(tree)
    rows = min(int(tree.depth.max()) + 1, VISIBLE_LEVELS)
    style_figure(
        figure,
        title,
        [*lines, _legend_text(info)],
        tree.model_note,
        dark,
        height=24 + max(62 * rows, 180),
        margin={"t": 6, "b": 14},
        uniformtext={"minsize": 9, "mode": "hide"},
        coloraxis=score_axis(dark),
    )
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    return figure


def _blocks(info: IcicleInfo, dark: bool | None) -> Iterator[tuple[Any, ...]]:
    """Yield a tuple per block: id, parent, label, hover text, leaves, fill colour, text colour, pattern, line
    colour and line width.

    If there are several roots, an additional block becomes their parent, because an icicle has only one root.
    """
    tree, shades = info.tree, palette(dark)
    roots = tree.parents == -1
    top = "top" if roots.sum() > 1 else ""
    lines = (shades.paper, 1.0 if len(tree.ids) < 500 else 0.4), (shades.path, 3.0)
    for k, parent in enumerate(tree.parents.tolist()):
        yield (
            str(k),
            str(parent) if parent >= 0 else top,
            plain(short(tree.texts[k], 60)),
            "<br>".join(map(plain, tree.details[k])),
            int(info.leaves[k]),
            *_colours(tree.shape[k], float(tree.score[k]), shades),
            info.pattern[k],
            *lines[int(tree.on_path[k])],
        )
    if top:
        yield top, "", "", "", int(info.leaves[roots].sum()), shades.paper, shades.ink, "", shades.paper, 0.0


def _colours(shape: str, score: float, shades: Palette) -> tuple[str, str]:
    """Return the fill colour and the text colour of a block."""
    if shape == "question":
        return shades.paper, shades.ink
    if np.isnan(score):
        return shades.unscored, text_on(shades.unscored)
    fill = colour(score, shades is DARK)
    return fill, text_on(fill)


def _legend_text(info: IcicleInfo) -> str:
    deepest = int(info.tree.depth.max())
    text = "one row per depth (steps); the width of a block is its number of leaves (thoughts)"
    if deepest >= VISIBLE_LEVELS:
        text += f"; {VISIBLE_LEVELS} of {deepest + 1:,} rows at a time, click a block to go deeper"
    hatched = [f"{sign} {what}" for what, sign in PATTERNS.items() if sign in info.pattern]
    return text + ("; hatched: " + ", ".join(hatched) if hatched else "")
