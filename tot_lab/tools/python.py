"""A tool that runs Python in a separate process.

A snippet ends with its call, even if the run is cancelled or this process is killed. The limits are set in
the kernel before the snippet starts, so that the snippet cannot lift them. Output goes to an unnamed file of
limited size rather than to a pipe that a child process could keep open.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import tempfile
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import Annotated, Any, BinaryIO, ClassVar

from pydantic import Field

from tot_lab.core.processes import NOT_ISOLATED, can_isolate, delete_folder, end_async, kept, python
from tot_lab.core.tool import Arguments, Effects, Name, Tool, fitting, schema_of


class _Snippet(Arguments):
    code: Annotated[str, Field(description="Python; what it prints is the result")]


class Python(Tool):
    """Runs a Python snippet and returns what it printed. If the snippet raises, the call fails with its
    traceback as the error.

    Each call starts in a new, empty folder that is deleted afterwards, with an empty environment and no
    input. `timeout` limits the wall time, and the CPU time of each process. The tool requires Linux or macOS.

    An `isolated` snippet has no network, sees no other process, and can write only to its folder and to a
    `/dev/shm` of its own, also if this process runs as root. It can read the files that you can, keys in them
    included, and connect to the Unix sockets that you may open, which a network namespace does not hide.
    Through the sockets of Docker, an ssh-agent, D-Bus or a database it can act as you, also over the network.
    (Abstract Unix sockets are out of reach.) Run the lab in a container for code from people or models that
    you do not trust. `max_file_mb` limits each file, but not the number of files in the folder.

    A snippet and the processes that it starts end with the call, and within about two seconds if this process
    dies or is killed. A snippet that is not isolated can avoid that: on macOS by leaving its process group,
    elsewhere by killing the process that watches it.
    """

    kind: ClassVar[str] = "python"
    setting_aliases: ClassVar[Mapping[str, str]] = {"written": "max_file_mb"}
    name: Name = "python"
    description: str = "Runs Python code in a fresh process and returns what it prints."
    parameters: dict[str, Any] = schema_of(_Snippet)
    effects: Effects = ("process",)
    retries: int = 0
    memory: Annotated[int, Field(ge=32)] = 1_024
    """Maximum memory of each process in MB."""

    max_file_mb: Annotated[int, Field(ge=1)] = 10
    """Maximum size of the output and of each file in MB."""

    processes: Annotated[int, Field(ge=0)] = 32
    """Maximum number of processes and threads. The kernel does not count processes of root. Without
    isolation it counts all processes of the user.
    """

    isolated: bool = True
    """Whether a snippet is isolated, which needs Linux 5.12 or later with user namespaces. Elsewhere every
    call fails before anything runs. With `False` a snippet can do all that you can: use the network, write
    your files, and read the memory and the environment of this process, including keys.
    """

    def carry_out(self, arguments: dict[str, Any], context: Mapping[str, Any]) -> Awaitable[str]:
        if os.name != "posix":
            raise OSError("the python tool needs Linux or macOS")
        if self.isolated and not can_isolate():
            raise OSError(f"{NOT_ISOLATED}. Use Python(isolated=False) to run it all the same.")
        return self._run(fitting(arguments, _Snippet).code)

    async def _run(self, code: str) -> str:
        folder = Path(tempfile.mkdtemp(prefix="tot_lab-"))
        try:
            work, script = folder / "work", folder / "snippet.py"
            work.mkdir()
            script.write_text(code, encoding="utf-8", errors="replace")
            computing = math.ceil(self.timeout) + 1  # the wall time ends first, unless there are many threads
            command = kept(
                python(script),
                wall=self.timeout + 5,  # in case `end_async` does not end it before
                limits=(computing, self.memory << 20, self.max_file_mb << 20, self.processes),
                folder=work if self.isolated else None,
            )
            with tempfile.TemporaryFile() as output:
                process = await asyncio.create_subprocess_exec(
                    *command,
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
                    await end_async(process)
                return self._result(status, output, folder)
        finally:
            await asyncio.to_thread(delete_folder, folder)

    def _result(self, status: int, output: BinaryIO, folder: Path) -> str:
        size = os.fstat(output.fileno()).st_size
        if size >= self.max_file_mb << 20:
            raise RuntimeError(f"it printed more than {self.max_file_mb} MB")
        output.seek(0 if status == 0 else max(0, size - 1_500))  # the error is at the end
        text = output.read(4 * self.max_characters + 1).decode("utf-8", "replace")
        text = text.replace(f"{folder}/", "")  # the name of the folder changes with every call
        if status == 0:
            return text or "(nothing was printed)"
        why = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        raise RuntimeError(f"{why}\n{text}".strip())
