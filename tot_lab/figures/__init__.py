"""Pictures of runs. Every figure is info → NamedTuple → figure; the info is what is tested.

Rule: add a figure as one file, and a line here. A `plot_*` function takes a run and returns a
Plotly figure in the template of `theme.py`, light or dark; what is too much for it is reduced, and the
figure says so. Plotly and networkx are imported when they are used, so that a run's repr, which draws
from the same info, needs neither.
"""

from tot_lab.figures.cost import plot_cost
from tot_lab.figures.graph import graph_of
from tot_lab.figures.icicle import plot_icicle
from tot_lab.figures.scores import plot_scores
from tot_lab.figures.timeline import plot_timeline
from tot_lab.figures.tree import plot_tree

FIGURES = (plot_tree, plot_icicle, plot_scores, plot_timeline, plot_cost)

__all__ = [
    "FIGURES",
    "graph_of",
    "plot_cost",
    "plot_icicle",
    "plot_scores",
    "plot_timeline",
    "plot_tree",
]
