"""Views of runs: the explorer, figures and reports."""

from tot_lab.analysis.deep_thought_methods import DeepThoughtMethods
from tot_lab.core.attach import attach
from tot_lab.lab.sweeps.sweep_methods import SweepMethods
from tot_lab.record.run_methods import RunMethods

attach(RunMethods, "tot_lab.views.report", __repr__="run_text", _repr_html_="run_html")
attach(RunMethods, "tot_lab.views.figures", "plot")
attach(RunMethods, "tot_lab.views.figures.graph", graph="graph_of")
attach(RunMethods, "tot_lab.views.explorer.page", "save_html")
attach(RunMethods, "tot_lab.views.tree_svg", "save_figure")
attach(SweepMethods, "tot_lab.views.explorer.sweep_page", "save_html")
attach(RunMethods, "tot_lab.views.deep_report", "deep_report")
attach(
    DeepThoughtMethods,
    "tot_lab.views.deep_report",
    report="markdown_of",
    report_html="html_of",
    _repr_html_="html_of",
    __repr__="text_of",
)
