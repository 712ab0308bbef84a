"""The thread for functions of a user that would block the event loop, such as a model in this process.

There is one thread. Such functions run one at a time and always in the same thread, as model libraries
expect.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

_THREAD: list[ThreadPoolExecutor] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_THREAD.clear)  # a child process does not have the parent's thread


async def text_of(function: Callable[[], Awaitable[str] | str]) -> str:
    """Return the text that `function` returns. Only an async function runs in the event loop."""
    if inspect.iscoroutinefunction(function):
        text: str = await function()
        return text
    if not _THREAD:
        _THREAD.append(ThreadPoolExecutor(1, "tot_lab_function"))
    loop, context = asyncio.get_running_loop(), copy_context()
    made: Awaitable[str] | str = await loop.run_in_executor(_THREAD[0], context.run, function)
    return made if isinstance(made, str) else await made
