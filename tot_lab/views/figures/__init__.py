"""Pictures of runs, and of many runs. Every figure is info → NamedTuple → figure; the info is what is
tested.

Add a figure as one file, and a line here. A `plot_*` function takes a run (`FIGURES`), a table with
a row per run (`TABLE_FIGURES`), runs (`plot_calibration`), or a run of one strategy (`plot_confidence`). It
returns a Plotly figure in the template of `theme.py`, light or dark; what is too much for it is reduced, and
the figure says so. Plotly and networkx are imported when they are used, so that a run's repr, which draws
from the same info, needs neither.
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
    """A figure of a run by its name: `run.plot("timeline")`.

    Args:
        run: The run.
        figure: A component of the group `figures`, such as `tree`, or one that an installed package brings.
        options: Those of the figure, see `plot_tree` and its like.
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
