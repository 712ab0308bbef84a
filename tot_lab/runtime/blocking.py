"""Blocking forms of async functions, for scripts and threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def blocking(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Return a blocking form of the async `function`, such as `run_sync` for `run`.

    Each call runs in a new event loop, so that several threads may call the blocking form at once.
    """
    name = f"{function.__name__}_sync"
    called = function.__qualname__.replace("Lab.", "lab.")

    @wraps(function)
    def finished(*args: P.args, **kwargs: P.kwargs) -> T:
        if _is_in_loop():
            raise RuntimeError(
                f"{called}_sync cannot wait here: an event loop is running, as in a notebook. Write "
                f"`await {called}(…)`."
            )
        try:
            return asyncio.run(function(*args, **kwargs))
        except KeyboardInterrupt as stopped:  # raised again without the frames of the event loop
            explained = stopped.__context__
            raise KeyboardInterrupt(*(explained.args if explained else ())) from None

    finished.__name__, finished.__qualname__ = name, f"{function.__qualname__}_sync"
    finished.__doc__ = f"""Like `{function.__name__}`, for scripts and threads: blocks until the result is
    available.

    Raises:
        RuntimeError: If an event loop is running, as in a notebook or an async function.
    """
    return finished


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
