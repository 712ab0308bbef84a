"""Tracebacks in notebooks: an error about the user's code is shown beside that code.

Between the cell and the message are dozens of lines of this package, which say nothing about the mistake.
They are left out where IPython shows the error; `error.__traceback__` keeps all frames.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType

_OURS = str(Path(__file__).parent.parent)


def shown_traceback(error: BaseException, *, with_last: bool) -> list[str]:
    """Return the traceback of `error` as IPython shows it, without the frames of this package.

    Args:
        error: The error, raised in IPython.
        with_last: Whether to keep the frame that raised the error. It shows where a bug of this package is.
    """
    steps = []
    step = error.__traceback__
    while step is not None:
        steps.append(step)
        step = step.tb_next
    shown = None
    for step in reversed(steps):
        is_ours = step.tb_frame.f_code.co_filename.startswith(_OURS)
        if not is_ours or (with_last and step is steps[-1]):
            shown = TracebackType(shown, step.tb_frame, step.tb_lasti, step.tb_lineno)
    show = sys.modules["IPython"].get_ipython().InteractiveTB.structured_traceback
    return list(show(type(error), error, shown, tb_offset=1))
