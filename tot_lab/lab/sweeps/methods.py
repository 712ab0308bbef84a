"""The methods of a sweep that other rooms implement and attach (`tot_lab.core.attach`).

`methods.pyi` says what they take and give; a test holds it to what is attached.
"""


class SweepMethods:
    """Base of `Sweep`: its tables, its files, and how it is shown."""
