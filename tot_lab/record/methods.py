"""The methods of a run that other rooms implement and attach (`tot_lab.core.attach`).

`methods.pyi`, which is generated, says what they take and give.
"""


class RunMethods:
    """Base of `Run`: frames, figures, pages, plans and replay, each from its own room."""
