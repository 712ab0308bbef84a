"""Plotly figures of one run and of many runs.

Each figure has two functions: `NAME_info` computes a NamedTuple from the data, and `plot_NAME` draws it.
Tests check the NamedTuple. A `plot_*` function takes a run (`FIGURES`), a table with one row per run
(`TABLE_FIGURES`), several runs (`plot_calibration`), or a run of Deep Think (`plot_confidence`). It returns a
Plotly figure in the template of `theme.py`, light or dark. A figure that cannot show all data reduces it and
states so in its heading.

A new figure takes one file, one line here and one line in `tot_lab.core.registry`. Plotly and networkx are
imported inside functions, so that the repr of a run, which uses the same NamedTuples, needs neither.
"""

from typing import Any

from tot_lab.core.parts import known_names
from tot_lab.core.registry import find, names
from tot_lab.record.run import Run
from tot_lab.views.figures.calibration import plot_calibration
from tot_lab.views.figures.confidence import plot_confidence
from tot_lab.views.figures.cost import plot_cost
from tot_lab.views.figures.frontier import plot_pareto
from tot_lab.views.figures.graph import graph_of
from tot_lab.views.figures.heatmap import plot_heatmap
from tot_lab.views.figures.icicle import plot_icicle
from tot_lab.views.figures.importance import plot_importance
from tot_lab.views.figures.parallel import plot_parallel
from tot_lab.views.figures.scores import plot_scores
from tot_lab.views.figures.sweep import plot_sweep
from tot_lab.views.figures.timeline import plot_timeline
from tot_lab.views.figures.tree import plot_tree


def plot(run: Run, figure: str = "tree", **options: Any) -> Any:
    """Draw a figure of a run by its name, for example `run.plot("timeline")`.

    Args:
        run: The run.
        figure: Name of a figure in the registry, such as `tree`. Installed packages can add figures.
        options: Options of the figure, such as `dark` of `plot_tree`.

    Returns:
        A Plotly figure.

    Raises:
        ValueError: If no figure has this name.
    """
    found = find(figure, "figures")
    if found is None:
        raise ValueError(f"unknown figure {figure!r}; {known_names(figure, names('figures'))}")
    return found.value(run, **options)


FIGURES = (plot_tree, plot_icicle, plot_scores, plot_timeline, plot_cost)
TABLE_FIGURES = (plot_sweep, plot_pareto, plot_parallel, plot_heatmap, plot_importance)

__all__ = [
    "FIGURES",
    "TABLE_FIGURES",
    "graph_of",
    "plot",
    "plot_calibration",
    "plot_confidence",
    "plot_cost",
    "plot_heatmap",
    "plot_icicle",
    "plot_importance",
    "plot_parallel",
    "plot_pareto",
    "plot_scores",
    "plot_sweep",
    "plot_timeline",
    "plot_tree",
]
