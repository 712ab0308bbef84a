"""Plotly figures of one run and of many runs.

Each figure has two functions: `NAME_info` computes a NamedTuple from the data, and `plot_NAME` draws it.
Tests check the NamedTuple. The name of the first parameter of `plot_NAME` states what it draws: `run` is any
run, `df` a table with one row per run, `runs` several runs, and `deep_think` a run of Deep Think. `plot_NAME`
returns a Plotly figure in the template of `theme.py`, light or dark. If a figure cannot show all data, its
heading states what is left out.

A new figure takes one file and one line in `tot_lab.core.registry`. Plotly and networkx are imported inside
functions, so that the repr of a run, which uses the same NamedTuples, needs neither.
"""

import inspect
from collections.abc import Callable
from typing import Any

from tot_lab.core.parts import known_names
from tot_lab.core.registry import built_in, find, names
from tot_lab.record.run import Run
from tot_lab.views.figures.graph import graph_of

__all__ = ["figures_of", "graph_of", "plot"]


def plot(run: Run, figure: str = "tree", **options: Any) -> Any:
    """Draw a figure of a run by its name, for example `run.plot("timeline")`.

    Args:
        run: The run.
        figure: Name of a figure in the registry, such as `tree`. Installed packages can add figures.
        options: Keyword arguments of the figure function, such as `dark` of `plot_tree`.

    Returns:
        A Plotly figure.

    Raises:
        ValueError: If no figure has this name.
    """
    found = find(figure, "figures")
    if found is None:
        raise ValueError(f"unknown figure {figure!r}; {known_names(figure, names('figures'))}")
    return found.value(run, **options)


def figures_of(data: str) -> list[Callable[..., Any]]:
    """Return the built-in figures whose first parameter is `data`: `run`, `df`, `runs` or `deep_think`."""
    return [
        figure
        for figure in built_in("figures").values()
        if next(iter(inspect.signature(figure).parameters)) == data
    ]
