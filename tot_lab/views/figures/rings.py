"""Rings around thoughts of a tree: what the search could still expand, and where a failed run was lost.

Rings differ in their number, width and colour. They are those of the explorer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tot_lab.analysis.blame import labels_of
from tot_lab.analysis.known import Known, can_be_asked
from tot_lab.analysis.why import why_it_failed
from tot_lab.record.run import Run
from tot_lab.views.figures.theme import DARK, THEME, Palette

if TYPE_CHECKING:
    import plotly.graph_objects as go


class Ring(NamedTuple):
    """How a kind of rings is drawn.

    Attributes:
        gaps: Distance of each ring from the marker, in pixels.
        width: Width of its line.
        legend: Marker of the legend.
        shades: Its colour on a light and on a dark background.
    """

    gaps: tuple[float, ...]
    width: float
    legend: str
    shades: tuple[str, ...]


_SCHEMES = THEME["light"], THEME["dark"]
_AMBER, _GREEN = (
    tuple(its["open"] for its in _SCHEMES),
    tuple(its["verdicts"]["right"] for its in _SCHEMES),
)

UNDECIDED = ("proposed", "unreadable")

RINGS = {
    "open frontier": Ring((3,), 1.5, "circle-open", _AMBER),
    "last solvable": Ring((6, 9.5), 1.6, "circle-open-dot", _GREEN),
    "right, not chosen": Ring((6,), 3.5, "circle-open", _GREEN),
}
"""Rings by their names in the legend, in its order."""


def rings_of(run: Run) -> dict[str, list[str]]:
    """Return the ids of the thoughts with a ring, by its name.

    - open frontier: thoughts that a search kept and did not expand. If it has not ended, or was
      interrupted, also those without a decision. Steps of an agent are no thoughts of a search: neither
      they nor a thought above them has a score
    - last solvable: the last thoughts of a failed run that could still lead to a right answer
    - right, not chosen: right answers of a failed run
    """
    stop = run.stop_reason
    interrupted = stop is None or stop.startswith("budget:") or stop in ("limit:nodes", "cancelled")
    searched: set[str | None] = set()
    for node in run.tree:  # parents come first
        if node.score is not None or node.unreadable or node.parent in searched:
            searched.add(node.id)
    found = {
        "open frontier": [
            node.id
            for node in run.tree.leaves()
            if node.parent is not None
            if node.state == "kept" or (interrupted and node.state in UNDECIDED and node.id in searched)
        ]
    }
    try:
        why = why_it_failed(run)
        right = Known(run, asking=can_be_asked(run)).right_leaves if why else []
        labels = labels_of(run) if why else {}
    except Exception:  # the task of a file, or a user's function
        return found
    found["last solvable"] = [id for id in (why.nodes if why else ()) if labels.get(id) and id not in right]
    return {**found, "right, not chosen": right}


def reach_of(rings: dict[str, list[str]], ids: Sequence[Any]) -> list[float]:
    """Return how far the rings of each thought reach beyond its marker, in pixels."""
    reach: dict[Any, float] = {}
    for name, marked in rings.items():
        for id in marked:
            reach[id] = max(reach.get(id, 0.0), max(RINGS[name].gaps) + RINGS[name].width)
    return [reach.get(id, 0.0) for id in ids]


def ring_traces(
    rings: dict[str, list[str]], markers: dict[Any, tuple[float, float, float]], shades: Palette
) -> list[go.Scatter]:
    """Return the traces of the rings, and their entries in the legend.

    A thought with another ring has none of the open frontier. `markers` has the position (x, y) and the size
    in pixels of the marker of each drawn thought.
    """
    import plotly.graph_objects as go  # noqa: PLC0415  the repr of a run must not import it

    traces = []
    others = {id for name in [*RINGS][1:] for id in rings.get(name, ())}
    rings = {**rings, "open frontier": [id for id in rings.get("open frontier", ()) if id not in others]}
    for name, (gaps, width, symbol, shades_of) in RINGS.items():
        ringed = [markers[id] for id in rings.get(name, ()) if id in markers]
        if not ringed:
            continue
        x, y, sizes = map(np.array, zip(*ringed, strict=True))
        shade = shades_of[shades is DARK]
        line = {"color": shade, "width": width}
        for gap in gaps:
            ring = {"symbol": "circle-open", "size": sizes + 2 * gap + width, "opacity": 1.0}
            ring |= {"color": shade, "line": line}
            shown = {"showlegend": False, "legendgroup": name, "hoverinfo": "skip"}
            traces.append(go.Scatter(x=x, y=y, mode="markers", name=name, marker=ring, **shown))
        mark = {"symbol": symbol, "size": 12, "color": shade, "line": line}
        entry = {"name": name, "legendgroup": name, "legendrank": 2000}  # after the states
        traces.append(go.Scatter(x=[None], y=[None], mode="markers", marker=mark, **entry))
    return traces
