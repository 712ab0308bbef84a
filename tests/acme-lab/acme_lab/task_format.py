"""A format of task files."""

import tot_lab as tl


def quiz(row):
    """Rows with `ask` and `expect`."""
    return tl.general(row.text("ask"), answer=row.text("expect"), grade="exact")
