"""The methods of a sweep that other rooms implement and attach (`tot_lab.core.attach`).

`methods.pyi`, which is generated, says what they take and give.
"""


class SweepMethods:
    """Base of `Sweep`: its tables, its files, and how it is shown."""
