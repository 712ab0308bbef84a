"""Methods of `Sweep` that other rooms implement and attach (`tot_lab.core.attach`).

`methods.pyi` declares their signatures, and a test compares it with what is attached.
"""

from tot_lab.core.attach import NamesNearest


class SweepMethods(NamesNearest):
    """Base of `Sweep` with its attached methods: frames, files and figures."""
