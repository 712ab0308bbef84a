"""Analysis of runs and sweeps: frames, statistics, diagnosis, counterfactuals and metrics of evaluators."""

from tot_lab.core.attach import attach
from tot_lab.lab.sweeps.sweep_methods import SweepMethods
from tot_lab.record.run_methods import RunMethods

attach(RunMethods, "tot_lab.analysis.frames", "nodes_df", "calls_df", "tools_df", "steps_df", "events_df")
attach(RunMethods, "tot_lab.analysis.answering", "with_answer")
attach(
    SweepMethods,
    "tot_lab.analysis.sweep_tables",
    "df",
    "nodes_df",
    "calls_df",
    "save",
    "headline",
    __repr__="text",
    _repr_html_="html",
)
