"""Python in a process of its own.

Rule: a snippet sees nothing of this process, and ends when its call does: its whole process group is
killed, also when the run is cancelled. The limits are the kernel's, set before the snippet begins, so
it cannot lift them. What it writes goes to a file, which a limit bounds, and not through a pipe that
a child of it could hold open; the file has no name by which it could be changed for something else.
"""

from __future__ import annotations

import asyncio
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, BinaryIO, ClassVar

from pydantic import Field

from tot_lab.core.tool import Arguments, Effects, Name, Tool, fitting, schema_of

_APART = ["unshare", "--user", "--map-current-user", "--net", "--pid", "--ipc", "--fork", "--kill-child"]

_LIMITED = """
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


class _Snippet(Arguments):
    code: Annotated[str, Field(description="Python; what it prints is the result")]


class Python(Tool):
    """Runs a snippet of Python and gives what it printed; one that raises is a failed call, with its
    traceback. Each call begins anew, in an empty folder that is deleted, with an empty environment and no
    input. Needs Linux or macOS.

    timeout: seconds of wall time, and of computing for each process. memory: MB for each process. written:
    MB that a file, and its output, may have. processes: at most, threads among them; for root the kernel
    does not count, and without namespaces it counts all that the user has.

    On Linux, where the machine lets a user make namespaces (`isolated`), it has no network, sees of other
    processes only how they were called, and none of its own outlives the call. Elsewhere it can reach the
    network and read the environment of this process, keys included, and a process that leaves the group can
    live on. Everywhere it can read every file that you can, write where you can, and connect to every Unix
    socket that is a file you may open, which a network namespace does not hide: through those of Docker, an
    ssh-agent, D-Bus or a database it can act as you, also over the network. (Abstract Unix sockets are out
    of reach where it is isolated.) For code of people or models that you do not trust, run the lab in a
    container. The folder may grow to many files of `written` MB.
    """

    kind: ClassVar[str] = "python"
    name: Name = "python"
    description: str = "Runs Python code in a fresh process and returns what it prints."
    parameters: dict[str, Any] = schema_of(_Snippet)
    effects: Effects = ("process",)
    retries: int = 0
    memory: Annotated[int, Field(ge=32)] = 1_024
    written: Annotated[int, Field(ge=1)] = 10
    processes: Annotated[int, Field(ge=0)] = 32

    @property
    def isolated(self) -> bool:
        """Whether this machine lets a snippet have namespaces of its own."""
        return can_be_apart()

    def carry_out(self, arguments: dict[str, Any], context: Mapping[str, Any]) -> Awaitable[str]:
        if os.name != "posix":
            raise OSError("the python tool needs Linux or macOS")
        apart = _APART if can_be_apart() else []
        return self._run(fitting(arguments, _Snippet).code, apart)

    async def _run(self, code: str, apart: list[str]) -> str:
        folder = Path(tempfile.mkdtemp(prefix="tot_lab-"))
        try:
            work, script = folder / "work", folder / "snippet.py"
            work.mkdir()
            script.write_text(code, encoding="utf-8", errors="replace")
            computing = math.ceil(self.timeout) + 1  # its wall time is up first, unless it has many threads
            limits = (computing, self.memory << 20, self.written << 20, self.processes)
            with tempfile.TemporaryFile() as output:
                process = await asyncio.create_subprocess_exec(
                    *apart,
                    *(sys.executable, "-I", "-S", "-c", _LIMITED, str(script), *map(str, limits)),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=work,
                    env={},
                    start_new_session=True,
                )
                try:
                    status = await process.wait()
                finally:
                    _kill(process.pid)
                    await asyncio.shield(process.wait())
                return self._told(status, output, folder)
        finally:
            await asyncio.to_thread(_delete, folder)

    def _told(self, status: int, output: BinaryIO, folder: Path) -> str:
        size = os.fstat(output.fileno()).st_size
        if size >= self.written << 20:
            raise RuntimeError(f"it printed more than {self.written} MB")
        output.seek(0 if status == 0 else max(0, size - 1_500))  # why it failed stands at the end
        text = output.read(4 * self.most_characters + 1).decode("utf-8", "replace")
        text = text.replace(f"{folder}/", "")  # its name is another each time
        if status == 0:
            return text or "(nothing was printed)"
        why = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        raise RuntimeError(f"{why}\n{text}".strip())


def _kill(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # all have gone; macOS says the latter of zombies
        os.killpg(group, signal.SIGKILL)


def _delete(folder: Path) -> None:
    """By a program: Python's own goes only so deep, and this may be a thousand folders deep."""
    subprocess.run(["rm", "-rf", "--", folder], stderr=subprocess.DEVNULL, check=False)


@lru_cache
def can_be_apart() -> bool:
    """Whether namespaces can be made here; asked of the kernel once."""
    if shutil.which(_APART[0]) is None:
        return False
    made = subprocess.run([*_APART, "true"], capture_output=True, check=False, timeout=10)
    return made.returncode == 0
