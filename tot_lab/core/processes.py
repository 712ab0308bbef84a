"""Other processes for what must not harm this one: isolation, and a worker that is kept between requests.

Files that need them import this one, so that `core` and `domains` are otherwise free of I/O.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

NO_NETWORK = ["unshare", "--user", "--map-current-user", "--net", "--ipc"]
"""Command before another one that gives it no network."""

APART = [*NO_NETWORK, "--pid", "--fork", "--kill-child"]
"""Command before another one that also ends all of its processes with it. As the first process of its
namespace, it does not receive the signals of the kernel's limits.
"""

WALL_LIMIT = 120.0
"""Seconds after which a worker is stopped, whatever its own limits are."""


@lru_cache
def can_be_apart() -> bool:
    """Whether namespaces can be created here; tested once."""
    if shutil.which(APART[0]) is None:
        return False
    made = subprocess.run([*APART, "true"], capture_output=True, check=False, timeout=10)
    return made.returncode == 0


class WorkerDied(Exception):
    """Raised if a worker ended instead of replying. The next request starts another one."""


class Worker:
    """A Python process that replies to one request at a time, and is started by the first.

    The process sees the packages of this one and none of its environment variables. On Linux with user
    namespaces it has no network. It must set its own limits. Requests and replies are lines of JSON; its
    first line states that it is ready.

    Args:
        script: The file that it runs.
    """

    def __init__(self, script: Path) -> None:
        self.script = script
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0  # A forked process may not use the pipes of its parent.
        self._lock = threading.Lock()

    def request(self, request: dict[str, Any], limit: float | None = WALL_LIMIT) -> Any:
        """Return the reply to a request.

        Args:
            request: The request.
            limit: Seconds of wall time after which the worker is stopped. `None` means no limit.

        Raises:
            WorkerDied: If it ended without a reply.
            TimeoutError: If it was stopped by `limit`.
            OSError: If it cannot be started.
        """
        with self._lock:
            if self._process is None or self._owner != os.getpid():
                self._start()
            return self._exchange(json.dumps(request), limit)

    def stop(self) -> None:
        """End the process. The next request starts another one."""
        process, self._process = self._process, None
        if process is not None and self._owner == os.getpid():
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):
                    if pipe is not None:
                        pipe.close()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [
                *(NO_NETWORK if can_be_apart() else []),
                sys.executable,
                "-P",
                "-B",
                "-X",
                "utf8",
                str(self.script),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=tempfile.gettempdir(),
            env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONHASHSEED": "0"},
            start_new_session=True,  # Ctrl-C in a terminal reaches this process only.
        )
        self._owner = os.getpid()
        atexit.register(self.stop)
        try:
            ready = self._exchange("{}", WALL_LIMIT)
        except (WorkerDied, TimeoutError):
            raise OSError("the process for it does not start") from None
        if ready != "ready":
            self.stop()
            raise OSError(str(ready))

    def _exchange(self, line: str, limit: float | None) -> Any:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        late = threading.Event()

        def end() -> None:
            late.set()
            process.kill()

        timer = None if limit is None else threading.Timer(limit, end)
        try:
            if timer is not None:
                timer.daemon = True
                timer.start()
            with suppress(BrokenPipeError):
                process.stdin.write(line.encode() + b"\n")
                process.stdin.flush()
            reply = process.stdout.readline()
        except BaseException:  # Half a reply may be left, such as after Ctrl-C.
            self.stop()
            raise
        finally:
            if timer is not None:
                timer.cancel()
        if not reply.endswith(b"\n"):
            self.stop()
            raise TimeoutError(f"no reply within {limit:g} s") if late.is_set() else WorkerDied
        return json.loads(reply)
