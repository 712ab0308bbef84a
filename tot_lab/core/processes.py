"""Processes for code, patterns and expressions from a model or an untrusted file. Each can be killed.

A keeper (`keeper.py`) starts each of them and ends it, at the latest about a second after this Python process
has died. The kernel sets the limits before any untrusted code runs, so that the code cannot lift them. Where
isolation is possible (`can_isolate`), a process has no network, sees no other process, writes only to its
folder and to a `/dev/shm` of its own, and nothing that it starts outlives it.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import math
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from tot_lab.core.task import Ungraded

WALL = 3
"""Limit of the wall time of a process, as a multiple of its limit of CPU time. It is reached first if the
process waits, or if the machine is busy with other work."""

_KEEPER = Path(__file__).with_name("keeper.py")

GRACE = 2.0
"""Seconds that a keeper has to end its program, before the keeper itself is killed."""

NOT_ISOLATED = (
    "this machine cannot isolate programs, which needs Linux 5.12 or later and user namespaces. Without "
    "isolation, a program can use the network, write your files and read the memory and environment of your "
    "processes"
)


class Killed(Exception):
    """Raised if a process ended before it answered: it exceeded its limit of CPU time, or crashed."""


class Failed(Exception):
    """Raised if a process could not start or exceeded its limit of wall time, or if its function raised an
    error. The message gives the reason.
    """


class Worker:
    """A process that calls one function on requests, one at a time.

    It starts with the first request, and again after a request that ended it. Threads may share a worker.
    """

    def __init__(self, source: str) -> None:
        """Define the function; nothing is started.

        Args:
            source: Python that defines `answer(request)`. Request and result are JSON values.
        """
        self._source = source
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._owner = 0
        atexit.register(self._end)

    def request(self, request: Any, seconds: float) -> Any:
        """Return `answer(request)`.

        Args:
            request: A JSON value.
            seconds: Maximum CPU time. The maximum wall time is `WALL` times as much. The time to start the
                process does not count.

        Raises:
            Killed: If the limit of CPU time is exceeded, or the process crashes.
            Failed: If the limit of wall time is exceeded, the process cannot start, or `answer` raises an
                error.
        """
        with self._lock:
            if self._process is None or self._owner != os.getpid() or self._process.poll() is not None:
                self._start()
            return self._exchange([request, seconds], WALL * seconds)

    def _start(self) -> None:
        self._end()
        command = [sys.executable, "-P", "-s", "-S", "-X", "utf8", "-c", _SERVE]
        isolates = can_isolate()
        # Matplotlib, which reasoning-gym imports, needs a writable folder. An isolated process has its own
        # `/dev/shm`.
        temporary = {"TMPDIR": "/dev/shm"} if isolates else {}
        try:
            self._process = subprocess.Popen(
                kept(command, folder="" if isolates else None),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                encoding="utf-8",
                cwd=tempfile.gettempdir(),
                env={**({} if os.name == "posix" else os.environ), **temporary, "PYTHONHASHSEED": "0"},
                start_new_session=True,
            )
        except OSError as error:
            raise Failed(f"the process cannot start: {error}") from None
        self._owner = os.getpid()
        try:
            self._exchange([self._source, [place for place in sys.path if place]], 120)
        except (Killed, Failed) as error:
            self._end()
            raise Failed(str(error) or "the process cannot start") from None

    def _exchange(self, request: list[Any], seconds: float) -> Any:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        is_late = threading.Event()

        def stop() -> None:
            is_late.set()
            end(process)

        timer = threading.Timer(seconds, stop)
        timer.start()
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            line = ""
        except BaseException:  # after an interrupt, the next request would read this reply
            self._end()
            raise
        finally:
            timer.cancel()
        if is_late.is_set() or not line.endswith("\n"):
            self._end()
            raise Failed(f"no result within {seconds:g} s") if is_late.is_set() else Killed
        value, error = json.loads(line)
        if error is not None:
            raise Failed(error)
        return value

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None and self._owner == os.getpid():  # not after a fork
            end(process)
            with suppress(OSError):
                process.communicate()


_SERVE = f"""
import json, os, signal, sys

def limited(seconds):
    if hasattr(signal, "setitimer"):  # the kernel ends the process
        signal.setitimer(signal.ITIMER_PROF, seconds)  # CPU time
        signal.setitimer(signal.ITIMER_REAL, seconds and {WALL} * seconds + 5)  # if nobody else ends it

requests, replies = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
nothing = os.open(os.devnull, os.O_RDWR)
for stream in range(3):
    os.dup2(nothing, stream)
source, sys.path[:] = json.loads(requests.readline())
answer = None

def reply(function, *given):
    try:
        result = [function(*given), None]
    except Exception as error:
        result = [None, f"{{type(error).__name__}}: {{str(error)[:200]}}"]
    replies.write(json.dumps(result) + "\\n")
    replies.flush()

reply(exec, source, globals())
try:
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
except (ImportError, OSError, ValueError):
    pass  # Windows and macOS
for line in requests:
    request, seconds = json.loads(line)
    limited(seconds)
    reply(answer, request)
    limited(0)
"""


_MATCHING = Worker("""
import re

def answer(request):
    pattern, texts = request
    search = re.compile(pattern).search
    return [search(text) is not None for text in texts]
""")


def found_in(pattern: str, texts: Sequence[str], seconds: float) -> list[bool]:
    """Return for each of `texts` whether it holds a match of `pattern`.

    A separate process does the matching: a pattern of ten characters can keep Python's `re` busy for years,
    and a thread cannot be stopped.

    Raises:
        Ungraded: If the search takes longer than `seconds` of CPU time or `WALL` times as much wall time, or
            `pattern` is not valid.
    """
    if not texts:
        return []
    try:
        found: list[bool] = _MATCHING.request([pattern, list(texts)], seconds)
        return found
    except Killed:
        why = f"took longer than {seconds:g} s and was stopped"
    except Failed as error:
        why = f"cannot be matched: {error}"
    raise Ungraded(f"the pattern {pattern[:60]!r} {why}")


def passes_tests(programs: Sequence[str], tests: str, seconds: int) -> bool:
    """Run the first of `programs` that is valid Python, and then `tests`, in a new process.

    Returns:
        Whether both ended without an exception, `SystemExit` included, within `seconds` of CPU time, `WALL`
        times as much wall time, and 1 GB of memory.

    Raises:
        Failed: If the process cannot start, as on Windows.

    Warns:
        RuntimeWarning: If this machine cannot isolate the process.
    """
    if os.name != "posix":
        raise Failed("grading with Python tests requires Linux or macOS")
    if not can_isolate():
        warnings.warn(f"grading with Python tests: {NOT_ISOLATED}", RuntimeWarning, stacklevel=2)
    folder = Path(tempfile.mkdtemp(prefix="tot_lab-"))
    proof = secrets.token_hex(16)
    try:
        work, script = folder / "work", folder / "tests.py"
        work.mkdir()
        script.write_text(_TESTING, encoding="utf-8")
        command = kept(
            python(script),
            wall=WALL * seconds,
            limits=(seconds, 1 << 30, 10 << 20, 32),
            folder=work if can_isolate() else None,
        )
        with tempfile.TemporaryFile("w+") as given, tempfile.TemporaryFile("w+") as written:
            json.dump([list(programs), tests, proof], given)
            given.seek(0)
            process = subprocess.Popen(
                command,
                stdin=given,
                stdout=written,
                stderr=subprocess.DEVNULL,
                cwd=work,
                env={},
                start_new_session=True,
            )
            try:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(WALL * seconds)
            finally:
                end(process)
            written.seek(0)
            return written.read(len(proof) + 1) == proof
    except OSError as error:
        raise Failed(f"the process cannot start: {error}") from None
    finally:
        delete_folder(folder)


_TESTING = """
import json, os, sys, types

def main():
    programs, tests, proof = json.load(sys.stdin)
    result = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    for program in programs:
        try:
            code = compile(program, "answer.py", "exec")
            break
        except Exception:
            pass
    else:
        sys.exit("not Python")
    module = types.ModuleType("answer")
    sys.modules["answer"] = module
    exec(code, module.__dict__)
    exec(compile(tests, "tests.py", "exec"), module.__dict__)  # apart, so that the answer cannot swallow them
    os.write(result, proof.encode())
    os._exit(0)

main()
"""


def python(script: Path) -> list[str]:
    """Return the command that runs a script in Python's isolated mode (`-I`)."""
    return [sys.executable, "-I", "-X", "utf8", str(script)]


def kept(
    command: list[str],
    *,
    wall: float = math.inf,
    limits: Sequence[int] = (),
    folder: Path | str | None = None,
) -> list[str]:
    """Return the command that runs `command` under the keeper. Start it in a new session, and end it with
    `end`. On Windows, `command` is returned unchanged.

    Args:
        command: A program and its arguments.
        wall: Limit of wall time in seconds.
        limits: Maximum CPU seconds, bytes of memory, bytes of each file, and processes. Empty sets no limits.
        folder: The only folder in which an isolated program may write. `""` allows no writing, and `None`
            runs the program without isolation.
    """
    if os.name != "posix":
        return command
    known = [str(limit) for limit in limits] or [""] * 4
    place = "no" if folder is None else str(folder)
    return [sys.executable, "-I", "-S", str(_KEEPER), str(os.getpid()), str(wall), *known, place, *command]


def end(process: subprocess.Popen[Any]) -> None:
    """End a process that runs under the keeper, with everything that it started, and wait for it."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
    kill_group(process.pid)
    process.wait()


async def end_async(process: asyncio.subprocess.Process) -> None:
    """Like `end`, for an asyncio process. It is ended even if the calling task is cancelled."""
    with suppress(ProcessLookupError):
        process.terminate()
    await asyncio.shield(_until_ended(process))


async def _until_ended(process: asyncio.subprocess.Process) -> None:
    try:
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), GRACE)
    finally:
        kill_group(process.pid)
    await process.wait()


def kill_group(group: int) -> None:
    """Kill the process group of a keeper. Unlike `end`, it does not let the keeper end its program first."""
    with suppress(ProcessLookupError, PermissionError):  # all have ended; macOS raises the latter for zombies
        if os.name == "posix":
            os.killpg(group, signal.SIGKILL)
        else:
            os.kill(group, signal.SIGTERM)


def delete_folder(folder: Path) -> None:
    """Delete a folder with `rm`, since Python's own functions fail on deeply nested folders."""
    remove = ["rm", "-rf", "--", str(folder)]
    if subprocess.run(remove, stderr=subprocess.DEVNULL, check=False).returncode != 0:
        made_readable = ["chmod", "-R", "u+rwx", "--", str(folder)]
        subprocess.run(made_readable, stderr=subprocess.DEVNULL, check=False)
        subprocess.run(remove, stderr=subprocess.DEVNULL, check=False)


@lru_cache
def can_isolate() -> bool:
    """Whether the keeper can isolate programs on this machine. The result is cached."""
    if sys.platform != "linux":
        return False
    command = kept([sys.executable, "-I", "-S", "-c", ""], folder="")
    made = subprocess.run(command, capture_output=True, check=False, start_new_session=True)
    return made.returncode == 0
