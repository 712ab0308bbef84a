"""A lab with foreign programs in it, for tests that end the lab. As a program it is that lab.

Its programs run in folders below the first argument (`TMPDIR`), where each leaves a file `ready`.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from support import ROOT, TESTS

READY = "import os, signal, subprocess, sys, time; open('ready', 'w')\n"
PROGRAMS = {
    "sleeps": "time.sleep(600)",
    "computes": "9 ** 9 ** 9",
    "ignores signals": "for k in (1, 2, 3, 15): signal.signal(k, signal.SIG_IGN)\ntime.sleep(600)",
    "blocks signals": "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65)); time.sleep(600)",
    "is a daemon": "os.fork() or (os.setsid(), os.fork() or time.sleep(600)); time.sleep(600)",
    "leaves a daemon": "os.fork() or (os.setsid(), os.fork() or time.sleep(600)); 9 ** 9 ** 9",
    "closes its files": "os.closerange(0, 256)\nwhile True: pass",
    "is stopped": "os.fork() or time.sleep(600); os.kill(os.getpid(), signal.SIGSTOP)",
    "has children": "[subprocess.Popen(['sleep', '600']) for _ in range(3)]; time.sleep(600)",
    "is another program": "os.execv('/bin/sh', ['sh', '-c', 'trap : 1 2 15; sleep 600 & sleep 600'])",
}
PAGE = b"<html>" + b"<div><p>" * 40_000
"""A page whose conversion takes long."""


class Dying:
    """A lab that runs in its own process until it is killed.

    kinds: `tool`, `open tool` (not isolated), `grader`, `dask` (graders on its workers), `pattern`, `math`,
    `page` or `model`; and the seconds for each program.
    """

    def __init__(self, folder: Path, *kinds: str, seconds: int = 300) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        paths = os.pathsep.join([str(ROOT), str(TESTS)])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "support.dying", str(seconds), *kinds],
            env={**os.environ, "PYTHONPATH": paths, "TMPDIR": str(folder)},
            stdin=subprocess.DEVNULL,
        )
        weakref.finalize(self, self.process.kill)  # also after a test that failed

    def ready(self, programs: int) -> None:
        """Wait until so many programs run."""
        soon(lambda: len(list(self.folder.glob("tot_lab-*/work/ready"))) == programs)

    def end(self, signal: int) -> float:
        """End the lab, and wait until all that it had started has ended. Return the seconds that took."""
        started = descendants(self.process.pid)
        self.process.send_signal(signal)
        self.process.wait(60)
        began = time.monotonic()

        def all_ended() -> bool:
            for pid, _ in list(started):
                started.update(descendants(pid))
            return not started.keys() & running().keys()

        soon(all_ended)
        return time.monotonic() - began


def soon(holds: Callable[[], bool], seconds: float = 120) -> None:
    """Wait until something holds. On a quiet machine that takes a few seconds at most."""
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it does not come about"
        time.sleep(0.05)


def running() -> dict[tuple[int, str], tuple[int, str]]:
    """Return the parent and command of each process that has not ended, by its number and time of start."""
    found = {}
    for proc in Path("/proc").glob("[0-9]*"):
        try:
            fields = (proc / "stat").read_text().rpartition(")")[2].split()
            if fields[0] not in "ZX":
                found[int(proc.name), fields[19]] = int(fields[1]), (proc / "cmdline").read_text()
        except OSError:
            continue
    return found


def descendants(pid: int) -> dict[tuple[int, str], str]:
    """Return the commands of the processes that a process has started, directly or not."""
    all_of_them, found, parents = running(), {}, {pid}
    while new := {key: one for key, one in all_of_them.items() if one[0] in parents and key not in found}:
        found.update({key: command for key, (_, command) in new.items()})
        parents = {number for number, _ in new}
    return found


def computed(pid: int) -> float:
    """Return the CPU seconds of the processes that a process has started."""
    ticks = 0
    for number, _ in descendants(pid):
        with suppress(OSError):
            fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def grade(seconds: int, program: str) -> None:
    from tot_lab.core.processes import passes_tests

    passes_tests([program], "", seconds)


def match(seconds: int) -> None:
    from tot_lab.core.processes import found_in

    found_in("a", ["a"], 60)
    worker_started()
    found_in(r"(a+)+$", ["a" * 60 + "b"], seconds)


def calculate(seconds: int) -> None:
    from tot_lab.core.processes import Worker

    worker = Worker("def answer(request): return request ** request ** request > 1")
    worker.request(2, 60)
    worker_started()
    worker.request(9, seconds)


def worker_started() -> None:
    """From now on, a worker computes only what it was asked for."""
    Path(os.environ["TMPDIR"], "worker started").touch()


async def call_tools(seconds: int, kinds: set[str]) -> None:
    import tot_lab as tl
    from support.endpoint import CallObserver
    from support.local import asked
    from tot_lab.models.local import Local
    from tot_lab.tools.web import readable

    async def hold(what: str) -> None:
        if what == "page":
            await readable(PAGE, "utf-8", html=True, seconds=seconds)
        else:
            model = Local(weights="smollm2-135m", context_window=600)
            endless = asked("Hello", max_tokens=500, options={"ignore_eos": True})
            while True:
                await model.answer([endless], CallObserver())

    calls = [hold(what) for what in ("page", "model") if what in kinds]
    for kind in ("tool", "open tool"):
        if kind in kinds:
            tool = tl.tools.Python(timeout=seconds, isolated=kind == "tool")
            calls += [tool.carry_out({"code": READY + code}, {}) for code in PROGRAMS.values()]
    await asyncio.gather(*calls, return_exceptions=True)


def on_dask(seconds: int) -> None:
    from distributed import Client, LocalCluster

    cluster = LocalCluster(n_workers=2, threads_per_worker=4, dashboard_address=":0")
    with cluster, Client(cluster) as client:
        graded = [client.submit(grade, seconds, READY + code) for code in PROGRAMS.values()]
        client.gather(graded)


def main(seconds: int, kinds: set[str]) -> None:
    calls: list[tuple[Callable[..., None], tuple[object, ...]]] = []
    if "grader" in kinds:
        calls += [(grade, (seconds, READY + code)) for code in PROGRAMS.values()]
    calls += [(on_dask, (seconds,))] * ("dask" in kinds)
    calls += [(match, (seconds,))] * ("pattern" in kinds) + [(calculate, (seconds,))] * ("math" in kinds)
    for function, given in calls:
        threading.Thread(target=function, args=given, daemon=True).start()
    asyncio.run(call_tools(seconds, kinds))
    time.sleep(600)


if __name__ == "__main__":
    main(int(sys.argv[1]), set(sys.argv[2:]))
