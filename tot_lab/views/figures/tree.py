"""Interactive figure of a tree of thoughts.

`tree_info` computes the content and the positions. `plot_tree` and the SVG of reports draw its result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tot_lab.analysis.blame import labels_of
from tot_lab.analysis.known import Known, can_be_asked
from tot_lab.analysis.why import why_it_failed
from tot_lab.core.bulk import gc_paused
from tot_lab.core.records import describe_stop
from tot_lab.core.tree import Tree
from tot_lab.record.run import Run, money, no_run
from tot_lab.views.figures.graph import LINKS, Parts, most_relevant, parts_of, relevance
from tot_lab.views.figures.layout import tidy
from tot_lab.views.figures.theme import (
    DARK,
    FAINT,
    TEXT,
    THEME,
    Palette,
    label,
    legend_at,
    number,
    palette,
    plain,
    printable,
    score_axis,
    short_id,
    short_score,
    style_figure,
    wrap,
)
from tot_lab.views.figures.theme import LINKS as LINK_COLOURS
from tot_lab.views.figures.verdict import answer_words

if TYPE_CHECKING:
    import networkx
    import plotly.graph_objects as go


# Rings around thoughts: what the search could still expand, where a failed run was lost, and right answers
# that were not chosen. These kinds differ in the number, width and colour of their rings. The explorer draws
# the same rings.


class Ring(NamedTuple):
    """How a kind of rings is drawn.

    Attributes:
        gaps: Distance of each ring from the marker, in pixels.
        width: Width of the line of each ring.
        legend: Plotly symbol in the legend.
        shades: Colour of the rings on a light and on a dark background.
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
"""Rings by the name that the legend shows, in the order of the legend."""


def rings_of(run: Run) -> dict[str, list[str]]:
    """Return the ids of the thoughts with a ring, by the name of the ring.

    - open frontier: thoughts that a search kept and did not expand. If the run has not ended, or was
      interrupted, also undecided leaves that were evaluated or are below an evaluated thought. The steps of
      an agent get no such ring, because they are not evaluated
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
    except Exception:  # raised by a loaded task, or by a user's function
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

    A thought with another ring gets no ring of the open frontier. `markers` has the position (x, y) and the
    size in pixels of the marker of each drawn thought.
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


MAX_THOUGHTS = 2000
"""Maximum number of thoughts in one figure. Larger figures are slow in a browser and unreadable."""

MAX_LABELS = 40
"""Maximum number of thoughts in a figure with labels."""

TOP = -0.4
"""Position above the root at which the figure begins, in levels."""

MARGIN = 56
"""Height below the tree, for the legend, in pixels."""

LINE = 14.5
"""Height of a line of a label, in pixels."""

SHAPES = {
    "question": "circle",
    "right answer": "star",
    "answer": "star",
    "wrong answer": "star",
    "complete": "diamond",
    "kept": "circle",
    "pruned": "x",
    "unreadable": "square",
    "failed": "triangle-down",
    "duplicate": "triangle-up",
    "merged": "bowtie",
    "proposed": "hexagon",
}
"""Marker of each state (`STATES`) and verdict, in the order of the legend. All markers differ in shape, not
only in colour: of the stars, that of a right answer is filled with the colour of its score, and that of a
wrong one is crossed.
"""

HOLLOW = ("question", "answer", "wrong answer")
"""Keys of `SHAPES` whose markers are not filled with the colour of the score."""


LINK_NAMES = {"merged": "merged with", "source": "made from", "depends": "depends on"}
"""Names of the kinds of links in the legend."""


class TreeInfo(NamedTuple):
    """Data of `plot_tree`. Arrays and lists have one entry per drawn thought, in the order of the record.

    Attributes:
        parents: Index of the parent, or -1 for a root.
        x: Horizontal position, in distances between siblings. The leftmost thought is at 0.
        depth: Number of steps below the root.
        score: Score from 0 to 1, or nan if the thought has no score.
        shape: Key of `SHAPES`.
        on_path: Whether the thought is on the path to the answer.
        links: Edges that do not lead from a parent to its child, as tuples (from, to, kind).
        details: Lines of the hover text.
        left_out: Number of thoughts of the run that are not drawn.
        correct: Whether the answer is correct. `None` if that is not known.
        verdict: The grade of the answer in words. "" if the run has not ended, or a tree or graph has none.
    """

    ids: list[Any]
    texts: list[str]
    parents: NDArray[np.intp]
    x: NDArray[np.float64]
    depth: NDArray[np.float64]
    score: NDArray[np.float64]
    shape: list[str]
    on_path: NDArray[np.bool_]
    links: list[tuple[int, int, str]]
    details: list[list[str]]
    question: str
    strategy: str
    answer: str | None
    stopped: str | None
    model_note: str
    left_out: int
    correct: bool | None
    verdict: str


@gc_paused()
def tree_info(run: Run | Tree | networkx.DiGraph[Any], most: int = MAX_THOUGHTS) -> TreeInfo:
    """Compute the data of `plot_tree`, for at most `most` thoughts.

    Raises:
        ValueError: If there are no thoughts, or the graph is not a tree.
    """
    if not isinstance(run, Run | Tree) and not hasattr(run, "edges"):
        raise TypeError(
            f"plot_tree expects a run, a `Tree` or a networkx graph: got {type(run).__name__}. "
            f"{no_run(run, 'plot_tree')}"
        )
    parts = parts_of(run, most) if isinstance(run, Run | Tree) else _parts_of_graph(run, most)
    if not parts.nodes:
        raise ValueError("Cannot draw a tree: this run or tree has no thoughts.")
    ids = list(parts.nodes)
    ids.sort(key=lambda id: parts.nodes[id].get("order", 0))  # stable: nodes without `order` stay in place
    index = {id: place for place, id in enumerate(ids)}
    parents = np.full(len(ids), -1)
    links = []
    for start, end, kind in parts.edges:
        if kind == "child" and parents[index[end]] == -1:
            parents[index[end]] = index[start]
        else:  # a further parent is drawn as a link and does not affect the layout
            links.append((index[start], index[end], "source" if kind == "child" else kind))
    x, depth = tidy(parents.tolist())
    known = [parts.nodes[id] for id in ids]
    on_path = np.array([bool(node.get("on_solution_path", False)) for node in known])
    shape = [_shape(node, parent == -1) for node, parent in zip(known, parents, strict=True)]
    correct = parts.about.get("correct")
    end = max(np.flatnonzero(on_path), key=depth.__getitem__, default=None)
    if end is not None and shape[end] == "answer" and correct is not None:
        shape[end] = "right answer" if correct else "wrong answer"
    score = np.array([_score(node) for node in known])
    rows = 12 if len(ids) <= 500 else 3  # lines of the thought's text in the hover text
    return TreeInfo(
        ids,
        [str(node.get("text", id)) for id, node in zip(ids, known, strict=True)],
        parents,
        x,
        depth,
        score,
        shape,
        on_path,
        links,
        [_details(id, node, int(step), rows) for id, node, step in zip(ids, known, depth, strict=True)],
        str(parts.about.get("question", "")),
        str(parts.about.get("strategy", "")),
        parts.about.get("answer"),
        parts.about.get("stopped"),
        str(parts.about.get("model_note", "")),
        parts.left_out,
        correct,
        str(parts.about.get("verdict", {None: "", True: "✓ correct"}.get(correct, "✗ wrong"))),
    )


def plot_tree(run: Run | Tree | networkx.DiGraph[Any], *, dark: bool | None = None) -> go.Figure:
    """Plot a tree of thoughts with the root at the top.

    The colour of a thought is its score, and the shape its state. The thick line is the path to the answer.
    A thin ring marks the open frontier, a double ring the last thoughts of a failed run that could still lead
    to a right answer, and a thick ring a right answer that was not chosen. Dashed lines are links that do
    not lead from a parent to its child. The hover text of a thought shows the beginning of its text, its
    score, state, calls, tokens and cost.

    Args:
        run: A run, finished or not, a `Tree`, or a DiGraph with the attributes of `graph_of`, all of which
            are optional. If there are more than 2,000 thoughts, the figure draws the most relevant ones (the
            path to the answer, kept thoughts, the highest scores) and states how many are left out.
        dark: Use the colours for a dark page. `None` follows `plotly.io.templates.default`.

    Raises:
        ValueError: If there are no thoughts, or the graph is not a tree.
    """
    import plotly.graph_objects as go  # noqa: PLC0415  the repr of a run must not import it

    info = tree_info(run)
    shades = palette(dark)
    count = len(info.ids)
    figure = go.Figure()
    size = 18 if count <= MAX_LABELS else 13 if count <= 150 else 9 if count <= 500 else 6
    rings = rings_of(run) if isinstance(run, Run) else {}
    labels = label_width(info, 840)
    levels = int(info.depth.max()) + 1
    height = 90 + min(max((118 if labels else 84) * levels, 240), 1000)
    bottom = levels - 1 + (0.85 if labels else 0.5)
    sizes = [size * (1.45 if SHAPES[what] == "star" else 1.0) for what in info.shape]
    feet = [half / 2 + reach + 3 for half, reach in zip(sizes, reach_of(rings, info.ids), strict=True)]
    texts = [label(text, labels) if labels else [] for text in info.texts]
    edges = _Edges(info, feet, texts, (height - MARGIN) / (bottom - TOP))
    figure.add_trace(edges.trace(info.parents >= 0, shades.edge, 1.2 if count < 300 else 0.7))
    below_root = info.on_path & (info.parents >= 0)
    if below_root.any():
        width = 4.0 if count < 300 else 2.5
        figure.add_trace(edges.trace(below_root, shades.path, width, "path to the answer"))
    for kind in dict.fromkeys(kind for *_, kind in info.links):
        figure.add_trace(_link_trace(info, kind))
    markers = dict(zip(info.ids, zip(info.x, info.depth, sizes, strict=True), strict=True))
    figure.add_traces(ring_traces(rings, markers, shades))
    for what in SHAPES:
        figure.add_traces(_shape_traces(info, what, size, shades))
    if labels:
        _write_labels(figure, info, texts, feet, dark)
    style_figure(
        figure,
        *tree_heading(info),
        info.model_note,
        dark,
        height=height,
        margin={"t": 0, "b": MARGIN},
        coloraxis=score_axis(dark),
        legend=legend_at(0),
        hovermode="closest",
    )
    pad = max(0.75, 0.015 * float(info.x.max()))
    figure.update_xaxes(visible=False, range=[-pad, float(info.x.max()) + pad])
    figure.update_yaxes(
        title="depth (steps)",
        range=[bottom, TOP],
        tickvals=list(range(0, levels, max(1, math.ceil(levels / 12)))),
    )
    return figure


def label_width(info: TreeInfo, pixels: float) -> int:
    """Return the number of characters that fit into a label of a figure `pixels` wide, or 0 for no labels."""
    if len(info.ids) > MAX_LABELS or info.depth.max() > 7:  # labels of deeper trees reach the next level
        return 0
    room = int(pixels / (float(info.x.max()) + 1.5) / 6.4)
    return min(room, 24) if room >= 7 else 0


def arc(info: TreeInfo, start: int, end: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the points of a curved line between two thoughts, which avoids the thoughts in between."""
    share = np.linspace(0.0, 1.0, 13)
    x0, x1, y0, y1 = info.x[start], info.x[end], info.depth[start], info.depth[end]
    bow = 4 * share * (1 - share)
    sideways = 0.35 if x0 == x1 else 0.0
    return x0 + (x1 - x0) * share + sideways * bow, y0 + (y1 - y0) * share - 0.28 * bow


class _Edges:
    """The edges of a tree. They begin below the label of the parent, and bend below all labels of its level.

    Args:
        info: The tree.
        feet: Distance of the label from each thought, in pixels.
        texts: Lines of each label.
        unit: Height of a level, in pixels.
    """

    def __init__(
        self, info: TreeInfo, feet: Sequence[float], texts: Sequence[Sequence[str]], unit: float
    ) -> None:
        self.info = info
        ends = [
            (foot + LINE * len(rows)) / unit if rows else 0.0 for foot, rows in zip(feet, texts, strict=True)
        ]
        self.first = info.depth + np.array(ends)
        lowest = np.zeros(int(info.depth.max()) + 1)
        np.maximum.at(lowest, info.depth.astype(int), self.first)
        self.bend = lowest[info.depth.astype(int)]

    def trace(self, which: NDArray[np.bool_], colour: str, width: float, name: str = "") -> go.Scatter:
        """Return the trace of the edges that end at the thoughts in `which`."""
        import plotly.graph_objects as go  # noqa: PLC0415

        x, depth = self.info.x, self.info.depth
        ends = np.flatnonzero(which)
        starts = self.info.parents[ends]
        gap = np.full(len(ends), np.nan)
        return go.Scatter(
            x=np.stack([x[starts], x[starts], x[ends], gap], axis=1).ravel(),
            y=np.stack([self.first[starts], self.bend[starts], depth[ends], gap], axis=1).ravel(),
            mode="lines",
            line={"color": colour, "width": width},
            name=name or "step",
            showlegend=bool(name),
            hoverinfo="skip",
        )


def _link_trace(info: TreeInfo, kind: str) -> go.Scatter:
    import plotly.graph_objects as go  # noqa: PLC0415

    bows = [arc(info, start, end) for start, end, its_kind in info.links if its_kind == kind]
    return go.Scatter(
        x=np.concatenate([np.append(x, np.nan) for x, _ in bows]),
        y=np.concatenate([np.append(y, np.nan) for _, y in bows]),
        mode="lines",
        line={"color": LINK_COLOURS.get(kind, FAINT), "width": 1.6, "dash": "dash"},
        name=LINK_NAMES.get(kind, plain(kind)),
        hoverinfo="skip",
    )


def _shape_traces(info: TreeInfo, what: str, size: float, shades: Palette) -> list[go.Scatter]:
    """Return the traces of one shape: thoughts with a score, thoughts without one, and the legend entry."""
    import plotly.graph_objects as go  # noqa: PLC0415

    here = np.array([shape == what for shape in info.shape])
    if not here.any():
        return []
    groups = (np.flatnonzero(here & ~np.isnan(info.score)), np.flatnonzero(here & np.isnan(info.score)))
    # The legend shows each shape in one colour, because the colours of its thoughts differ by score.
    mark = {"symbol": SHAPES[what], "color": _fill(what, shades) or shades.faint, "size": 11}
    mark["line"] = {"color": shades.ink, "width": 1}
    legend = go.Scatter(x=[None], y=[None], mode="markers", name=what, legendgroup=what, marker=mark)
    drawn = [_thought_trace(info, what, some, size, shades) for some in groups if some.size]
    if what == "wrong answer":
        cross = {"symbol": "x-thin", "size": 1.7 * size, "line": {"color": shades.ink, "width": 2.2}}
        drawn.append(
            go.Scatter(
                x=info.x[here],
                y=info.depth[here],
                mode="markers",
                legendgroup=what,
                showlegend=False,
                hoverinfo="skip",
                marker=cross,
            )
        )
    return [*drawn, legend]


def _write_labels(
    figure: go.Figure,
    info: TreeInfo,
    texts: Sequence[Sequence[str]],
    feet: Sequence[float],
    dark: bool | None,
) -> None:
    """Write the lines of each label below the marker and the rings of its thought."""
    for place, rows in enumerate(texts):
        figure.add_annotation(
            x=info.x[place],
            y=info.depth[place],
            text="<br>".join(map(plain, rows)),
            showarrow=False,
            yanchor="top",
            yshift=-feet[place],
            font={"size": TEXT["small"], "color": palette(dark).ink},
            bgcolor=palette(dark).veil,
            borderpad=1,
        )


def _thought_trace(
    info: TreeInfo, what: str, places: NDArray[np.intp], size: float, shades: Palette
) -> go.Scatter:
    import plotly.graph_objects as go  # noqa: PLC0415

    scored = not np.isnan(info.score[places[0]])
    fill = _fill(what, shades) or (None if scored else shades.unscored)
    on_path = info.on_path[places]
    return go.Scatter(
        x=info.x[places],
        y=info.depth[places],
        mode="markers",
        name=what,
        legendgroup=what,
        showlegend=False,
        hoverinfo="text",
        hovertext=np.array([_hover(info.details[place]) for place in places], dtype=object),
        marker={
            "symbol": SHAPES[what],
            "size": size * (1.45 if SHAPES[what] == "star" else 1.0),
            **({"color": info.score[places], "coloraxis": "coloraxis"} if fill is None else {"color": fill}),
            "opacity": 1.0,
            "line": {
                "color": np.where(on_path, shades.path, shades.ink),
                "width": np.where(on_path, 2.2, 0.9 if size > 8 else 0.4),
            },
        },
    )


def _fill(what: str, shades: Palette) -> str | None:
    """Return the fill colour of a shape that does not show a score, or `None` for all other shapes.

    The score of the root has no meaning, and a star is filled only if the answer is right.
    """
    return shades.paper if what in HOLLOW else None


def _hover(details: list[str]) -> str:
    first, *others = details
    return "<br>".join([f"<b>{plain(first)}</b>", *map(plain, others)])


def tree_heading(info: TreeInfo) -> tuple[list[str], list[str]]:
    """Return the lines of the title and of the subtitle."""
    title = wrap(info.question, 88, 2) or [info.strategy or "Tree of thoughts"]
    facts = [info.strategy] if info.strategy and info.question else []
    if info.answer is not None:
        facts.append(answer_words(info.answer, info.verdict))
    if info.stopped is not None:
        facts.append(f"ended: {printable(describe_stop(str(info.stopped)))}")
    elif info.strategy:
        facts.append("unfinished")
    lines = wrap("  ·  ".join(facts), 120, 2)
    if info.left_out:
        lines.append(
            f"{len(info.ids):,} of {len(info.ids) + info.left_out:,} thoughts shown: the path to the answer, "
            f"kept thoughts and the highest scores; run.nodes_df() lists all"
        )
    return title, lines


def _details(id: Any, node: Any, depth: int, max_lines: int) -> list[str]:
    rows = [f"thought {short_id(id)} · depth {depth}", *wrap(str(node.get("text", "")), 70, max_lines)]
    read = ""
    if "samples" in node:
        read = f", {node['samples'] - node.get('unreadable_samples', 0)} of {node['samples']} samples read"
    by = f" by {node['by']}" if "by" in node else ""
    if "score" in node:
        rows.append(f"score {_format_score(node['score'])}{by}{read}")
    elif by:
        rows.append(f"score unreadable{by}{read}")
    elif node.get("state") != "question":
        rows.append("not evaluated")
    if "state" in node:
        reason = f": {node['reason']}" if "reason" in node else ""
        rows += wrap(f"{node['state']}{reason}", 70, 3)
    if "calls" in node:
        tokens = f"{number(node.get('input_tokens'))} tokens in, {number(node.get('output_tokens'))} out"
        cost = f"cost {money(node.get('cost'))}"
        if node.get("paid") != node.get("cost"):
            cost += f", paid {money(node.get('paid'))}"
        calls = f"{node['calls']} call" + ("s" if node["calls"] != 1 else "")
        rows.append(f"{calls}, {tokens}, {cost}" if node["calls"] else "no calls")
    return rows


def _format_score(score: Any) -> str:
    return short_score(score) if isinstance(score, int | float) else str(score)


def _score(node: Any) -> float:
    score = node.get("score")
    return float(score) if isinstance(score, int | float) and math.isfinite(score) else math.nan


def _shape(node: Any, root: bool) -> str:
    state = str(node.get("state", "proposed"))
    return "question" if root and state == "proposed" else state if state in SHAPES else "proposed"


def _parts_of_graph(graph: networkx.DiGraph[Any], most: int) -> Parts:
    edges = [(start, end, str(kind)) for start, end, kind in graph.edges(data="kind", default="child")]
    parents: dict[Any, Any] = {}
    for start, end, kind in edges:
        if kind == "child":
            parents.setdefault(end, start)

    def rank(id: Any) -> tuple[bool, bool, float]:
        node = graph.nodes[id]
        state = str(node.get("state", ""))
        return relevance(state, _score(node), on_path=bool(node.get("on_solution_path")))

    chosen = most_relevant(graph, parents.get, rank, most)
    nodes: dict[Any, Mapping[str, Any]] = {id: graph.nodes[id] for id in chosen}
    drawn = [edge for edge in edges if edge[0] in nodes and edge[1] in nodes]
    return Parts(nodes, drawn, graph.graph, len(graph) - len(nodes))


assert set(LINK_COLOURS) == set(LINKS)
