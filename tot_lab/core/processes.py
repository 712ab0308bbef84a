"""Processes for code, patterns and expressions that a model or a stranger wrote. Each can be killed.

The kernel sets the limits before anything foreign runs, so that it cannot lift them. On Linux with user
namespaces a process has no network, and nothing that it starts outlives it.
"""

from __future__ import annotations

import atexit
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from tot_lab.core.task import Ungraded

APART = ("unshare", "--user", "--map-current-user", "--net", "--pid", "--ipc", "--fork", "--kill-child")
"""The command that starts a process in its own namespaces."""

LIMITED = """
import os, resource, sys
cpu, memory, written, processes = map(int, sys.argv[2:6])
for name, most in (("CPU", cpu), ("AS", memory), ("FSIZE", written), ("NPROC", processes), ("CORE", 0)):
    limit = getattr(resource, "RLIMIT_" + name)
    hard = resource.getrlimit(limit)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    try:
        resource.setrlimit(limit, (most, most))
    except (OSError, ValueError):
        if name != "AS":  # macOS has none
            raise
os.execv(sys.executable, [sys.executable, "-I", "-X", "utf8", sys.argv[1]])
"""
"""Runs the script in its first argument. The limits after it are CPU seconds, bytes of memory, bytes of a
file and processes."""

WALL = 3
"""Limit of the wall time of a process, as a multiple of its limit of CPU time. It is reached first only on a
machine that is busy with other work."""


class Killed(Exception):
    """Raised if a process ended before it answered: it exceeded a limit, or crashed."""


class Failed(Exception):
    """Raised if a process could not start or got too little CPU time, or its function raised an error. The
    message gives the reason.
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
            seconds: Maximum CPU time. The wall time is limited to `WALL` times as much, without the start.

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
        apart = APART if can_be_apart() else ()
        try:
            self._process = subprocess.Popen(
                [*apart, sys.executable, "-P", "-s", "-S", "-X", "utf8", "-c", _SERVE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                encoding="utf-8",
                cwd=tempfile.gettempdir(),
                env={**({} if os.name == "posix" else os.environ), "PYTHONHASHSEED": "0"},
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

        def end() -> None:
            is_late.set()
            kill_group(process.pid)

        timer = threading.Timer(seconds, end)
        timer.start()
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            line = ""
        except BaseException:  # an interrupt; the reply would answer the next request
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
            if process.poll() is None:
                kill_group(process.pid)
            with suppress(OSError):
                process.communicate()


_SERVE = """
import json, os, signal, sys

if os.getpid() == 1:  # the first process of a namespace cannot be ended by a signal of its own
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        os._exit(0)

def limited(seconds):
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)  # CPU time; the kernel ends the process

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
        result = [None, f"{type(error).__name__}: {str(error)[:200]}"]
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
    """Return which of `texts` hold a match of `pattern`.

    A pattern of ten characters can keep Python's `re` busy for years, and a thread cannot be stopped.

    Raises:
        Ungraded: If that takes longer than `seconds` of CPU time or `WALL` times as much wall time, or
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
        Whether both ended without an exception, also `SystemExit`, within `seconds` of CPU time, `WALL` times
        as much wall time, and 1 GB of memory.

    Raises:
        Failed: If the process cannot start.
    """
    if os.name != "posix":
        raise Failed("running tests needs Linux or macOS")
    folder = Path(tempfile.mkdtemp(prefix="tot_lab-"))
    proof = secrets.token_hex(16)
    try:
        work, script = folder / "work", folder / "tests.py"
        work.mkdir()
        script.write_text(_TESTING, encoding="utf-8")
        limits = (seconds, 1 << 30, 10 << 20, 32)
        with tempfile.TemporaryFile("w+") as given, tempfile.TemporaryFile("w+") as written:
            json.dump([list(programs), tests, proof], given)
            given.seek(0)
            process = subprocess.Popen(
                limited_command(script, limits),
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
                kill_group(process.pid)
                process.wait()
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


def limited_command(script: Path, limits: Sequence[int]) -> list[str]:
    """Return the command that runs a Python script within `limits` (see `LIMITED`), apart if possible."""
    apart = APART if can_be_apart() else ()
    return [*apart, sys.executable, "-I", "-S", "-c", LIMITED, str(script), *map(str, limits)]


def kill_group(group: int) -> None:
    """Kill a process and those of its group."""
    with suppress(ProcessLookupError, PermissionError):  # all have ended; macOS raises the latter for zombies
        if os.name == "posix":
            os.killpg(group, signal.SIGKILL)
        else:
            os.kill(group, signal.SIGTERM)


def delete_folder(folder: Path) -> None:
    """Delete a folder with `rm`, since Python's own functions fail on very deep folders."""
    subprocess.run(["rm", "-rf", "--", folder], stderr=subprocess.DEVNULL, check=False)


@lru_cache
def can_be_apart() -> bool:
    """Whether namespaces can be created here; tested once."""
    if shutil.which(APART[0]) is None:
        return False
    made = subprocess.run([*APART, "true"], capture_output=True, check=False, timeout=10)
    return made.returncode == 0
