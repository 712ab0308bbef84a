"""The methods of a run that other rooms implement and attach (`tot_lab.core.attach`).

`methods.pyi` says what they take and give; a test holds it to what is attached.
"""

from tot_lab.core.attach import NamesNearest


class RunMethods(NamesNearest):
    """Base of `Run`: frames, figures, pages, plans and replay, each from its own room."""
