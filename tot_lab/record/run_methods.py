"""The methods of a run that other subpackages implement and attach (`tot_lab.core.attach`).

`run_methods.pyi` declares their signatures; a test compares it with the attached functions.
"""

from tot_lab.core.attach import NamesNearest


class RunMethods(NamesNearest):
    """Base of `Run` with its attached methods: frames, figures, HTML pages, reports, plans and replay."""
