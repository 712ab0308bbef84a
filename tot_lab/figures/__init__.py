"""Pictures of runs. Every figure is info → NamedTuple → figure; the info is what is tested.

Rule: add a figure as one file, and a line here. A `plot_*` function takes a run and returns a
Plotly figure in the template of `theme.py`. Plotly and networkx are imported when they are used,
so that a run's repr, which draws from the same info, needs neither.
"""

from tot_lab.figures.graph import graph_of
from tot_lab.figures.tree import plot_tree

FIGURES = (plot_tree,)

__all__ = ["FIGURES", "graph_of", "plot_tree"]
