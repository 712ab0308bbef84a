"""The tree of thoughts as an icicle: each thought a block below its parent's, as wide as what is below it.

Of the same tree, part and colours as `plot_tree`: what does not fit is left out there and here alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tot_lab.core.tree import Tree
from tot_lab.record.run import Run
from tot_lab.views.figures.theme import (
    INK,
    LIGHT,
    Palette,
    colour,
    palette,
    plain,
    score_axis,
    short,
    style_figure,
)
from tot_lab.views.figures.tree import TreeInfo, tree_heading, tree_info

if TYPE_CHECKING:
    import networkx
    import plotly.graph_objects as go

VISIBLE_LEVELS = 10
"""Depths that are seen at once; a click on a block goes deeper."""

PATTERNS = {"pruned": "/", "unread": ".", "failed": "x", "duplicate or merged": "-"}
"""How the blocks of thoughts that left the search are hatched."""


class IcicleInfo(NamedTuple):
    """tree: what `plot_tree` draws of the same run; arrays run over its thoughts. leaves: how many of
    the drawn thoughts at or below each have no child: the width of its block. pattern: of `PATTERNS`,
    "" for none."""

    tree: TreeInfo
    leaves: NDArray[np.intp]
    pattern: list[str]


def icicle_info(run: Run | Tree | networkx.DiGraph[Any]) -> IcicleInfo:
    """What `plot_icicle` draws. Raises ValueError for no thought at all, and for a graph that is no tree."""
    tree = tree_info(run)
    leaves = np.ones(len(tree.ids), dtype=np.intp)
    leaves[tree.parents[tree.parents >= 0]] = 0
    for node in np.argsort(-tree.depth, kind="stable").tolist():  # children before their parents
        if tree.parents[node] >= 0:
            leaves[tree.parents[node]] += leaves[node]
    return IcicleInfo(tree, leaves, [PATTERNS.get(shape, "") for shape in tree.shape])


def plot_icicle(run: Run | Tree | networkx.DiGraph[Any], *, dark: bool = False) -> go.Figure:
    """A tree of thoughts as blocks, the root on top: each depth is a row, each thought as wide as the
    leaves below it, its colour the score, hatched when it left the search (lines: pruned, dots: unread), and
    outlined on the way to the answer. A click on a block makes it the whole width, one on the top row
    goes back; ten rows are seen at once.

    run: what `plot_tree` takes; of more than 2,000 thoughts the same part is drawn, and it is said.
    dark: for a dark page.
    Raises ValueError when there is no thought, or a graph is no tree.
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
        [*lines, _explained(info)],
        tree.simulated,
        dark,
        height=24 + max(62 * rows, 180),
        margin={"t": 6, "b": 14},
        uniformtext={"minsize": 9, "mode": "hide"},
        coloraxis=score_axis(),
    )
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    return figure


def _blocks(info: IcicleInfo, dark: bool) -> Iterator[tuple[Any, ...]]:
    """Of each block its id, its parent's, label, hover, leaves, colour, that of its text, pattern, and the
    colour and width of its line. One stands above all roots if there are several: an icicle has one."""
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
    """Of a block and of the text on it."""
    if shape == "question":
        return shades.paper, shades.ink
    if np.isnan(score):
        return shades.unscored, INK if shades is LIGHT else "white"
    return colour(score), "white" if score < 0.6 else INK


def _explained(info: IcicleInfo) -> str:
    deepest = int(info.tree.depth.max())
    said = "one row per depth (steps), a block as wide as the leaves below it (thoughts)"
    if deepest >= VISIBLE_LEVELS:
        said += f"; {VISIBLE_LEVELS} of {deepest + 1:,} rows at a time, a click on a block goes deeper"
    hatched = [f"{sign} {what}" for what, sign in PATTERNS.items() if sign in info.pattern]
    return said + ("; hatched: " + ", ".join(hatched) if hatched else "")
