"""Runs hostile programs in a lab that lives in namespaces of the test's own, and checks after each of them
what it has done to the lab and to the files of its user.

The outer namespaces hold what breaks out: their `/tmp`, `/dev/shm` and home are file systems of their own. As
a program it is the supervisor (`watch`) or the lab (`lab`), which runs a program for each line that it reads.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from shutil import which
from typing import Any

from support.hostile_programs import programs

HERE = Path(__file__)
TOP = "/tmp/hostile"  # in a file system of its own
OUT, HOME, PACKAGE = f"{TOP}/documents", f"{TOP}/home", f"{TOP}/package"
UNSHARE = ["unshare", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc"]
SETUP = """
set -e
ip link set lo up
mount -t tmpfs tmpfs /mnt
for kept in "$@"; do mkdir -p /mnt/kept"$kept"; mount --bind "$kept" /mnt/kept"$kept"; done
for place in /tmp /var/tmp /dev/shm /root; do mount -t tmpfs -o size=800m,mode=1777 tmpfs $place; done
for kept in "$@"; do
    mkdir -p "$kept"; mount --bind /mnt/kept"$kept" "$kept"; mount -o remount,bind,ro "$kept"
done
umount -R -l /mnt
cd /
"""
SECONDS = 3
USER = 12_345


def can_contain() -> bool:
    """Whether the test can have namespaces of its own here, and be root and another user in them."""
    return sys.platform == "linux" and os.geteuid() == 0 and bool(which("unshare") and which("setpriv"))


def outcomes(kind: str, names: list[str], *, as_user: bool) -> dict[str, list[str]]:
    """Return what each program has done that it must not do.

    Args:
        kind: `tool` or `grader`.
        names: Names of programs.
        as_user: Whether the lab runs as a user without privileges instead of as root.
    """
    kept = sorted({str(HERE.parents[2]), sys.prefix, sys.base_prefix})
    user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"] if as_user else []
    watch = [*user, sys.executable, "-m", "support.hostile", "watch", kind]
    made = subprocess.run(
        [*UNSHARE, "sh", "-c", f"{SETUP}\nexec {' '.join(watch)}", "sh", *kept],
        input=json.dumps(names),
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "HOME": HOME, "PYTHONPATH": f"{HERE.parents[2]}:{HERE.parents[1]}"},
        check=False,
    )
    found = [json.loads(line) for line in made.stdout.splitlines()]
    assert len(found) == len(names), made.stderr[-3000:]
    return dict(found)


# The supervisor.


def watch(kind: str) -> None:
    for folder in (OUT, HOME, PACKAGE + "/__pycache__", f"{TOP}/cache"):
        Path(folder).mkdir(parents=True)
    Path(OUT, "notes.txt").write_text("mine\n")
    tcp = socket.create_server(("127.0.0.1", 0))
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind("\0hostile-lab")
    abstract.listen()
    sockets = {"TCP": tcp, "UDP": udp, "abstract socket": abstract}
    ports = {"PORT": tcp.getsockname()[1], "UDP": udp.getsockname()[1], "ABSTRACT": "hostile-lab"}
    secret = "hostile-secret-" + secrets.token_hex(16)
    lab = None
    for name in json.loads(sys.stdin.read()):
        if lab is None:
            lab = started(kind, secret)
        before = state(lab.pid), files(), processes()
        code = programs({"LAB": lab.pid, "OUT": OUT, "HOME": HOME, "PACKAGE": PACKAGE, **ports})[name]
        output = output_of(lab, code)
        wrong = []
        if output is None or lab.poll() is not None:
            wrong.append("the lab is dead")
        elif secret in output:
            wrong.append("the secret was printed")
        wrong += [f"reached by {way}" for way, server in sockets.items() if is_reached(server)]
        until = time.monotonic() + 3
        while (left := processes() - before[2]) and time.monotonic() < until:
            time.sleep(0.02)
        if left:
            wrong.append(f"left processes: {[command(pid) for pid in left]}")
        if lab.poll() is None:
            after = state(lab.pid)
            wrong += [
                f"lab: {key}: {value} → {after[key]}"
                for key, value in before[0].items()
                if value != after[key]
            ]
        now = files()
        changed = [path for path in {*now, *before[1]} if now.get(path) != before[1].get(path)]
        if changed:
            wrong.append(f"files: {sorted(changed)}")
        print(json.dumps([name, wrong]), flush=True)
        if wrong:
            for pid in processes() - {1, os.getpid()}:
                os.kill(pid, 9)
            lab = None
            shutil.rmtree(OUT, ignore_errors=True)
            Path(OUT).mkdir(exist_ok=True)
            Path(OUT, "notes.txt").write_text("mine\n")


def started(kind: str, secret: str) -> subprocess.Popen[str]:
    lab = subprocess.Popen(
        [sys.executable, "-m", "support.hostile", "lab", kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "LAB_SECRET": secret, "HOME": HOME, "TOT_LAB_CACHE": f"{TOP}/cache"},
    )
    assert output_of(lab, "print('ready')") is not None, "the lab does not start"
    return lab


def output_of(lab: subprocess.Popen[str], code: str) -> str | None:
    """Run a program in the lab. Return its output, or `None` if it did not survive."""
    assert lab.stdin is not None
    assert lab.stdout is not None
    try:
        lab.stdin.write(json.dumps(code) + "\n")
        lab.stdin.flush()
        return lab.stdout.readline() or None
    except OSError:
        return None


def state(pid: int) -> dict[str, Any]:
    """Return what no program may change of a process."""
    proc = Path(f"/proc/{pid}")
    fields = (proc / "stat").read_text().rpartition(")")[2].split()
    found: dict[str, Any] = {"nice": fields[16], "policy": fields[38]}
    for name in ("limits", "environ", "comm", "oom_score_adj", "coredump_filter", "mounts"):
        found[name] = (proc / name).read_bytes().decode()
    kept = ("Cpus_allowed:", "Uid", "CapEff", "TracerPid", "Umask", "SigBlk", "SigIgn")
    found["status"] = [line for line in (proc / "status").read_text().splitlines() if line.startswith(kept)]
    found["cwd"] = (proc / "cwd").readlink()
    return found


def files() -> dict[str, Any]:
    """Return the files of the lab's user and those in the places where programs may write, with content."""
    found = {}
    for top in ("/tmp", "/var/tmp", "/dev/shm", "/root"):
        for folder, folders, names in os.walk(top):
            if folder == "/tmp":
                folders[:] = [name for name in folders if name != "cache"]
            folders[:] = [name for name in folders if not os.path.ismount(f"{folder}/{name}")]
            if folder == f"{TOP}/cache":
                folders.clear()
                continue
            for name in [*names, "."]:
                path = Path(folder, name)
                try:
                    info = path.lstat()
                    own = folder.startswith(TOP)
                    text = path.read_text() if own and stat.S_ISREG(info.st_mode) else ""
                    times = info.st_mtime if own else 0  # others come and go in the folders for all
                    found[str(path)] = (info.st_mode, info.st_nlink if own else 0, times, info.st_uid, text)
                except OSError as error:
                    found[str(path)] = error.errno
    return found


def processes() -> set[int]:
    return {number for proc in Path("/proc").glob("[0-9]*") if command(number := int(proc.name))}


def command(pid: int) -> str:
    """Return the command of a process, or nothing if it has ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return "" if state in "ZX" else Path(f"/proc/{pid}/cmdline").read_text()[-80:] or "?"
    except OSError:
        return ""


def is_reached(server: socket.socket) -> bool:
    server.setblocking(False)
    try:
        if server.type == socket.SOCK_DGRAM:
            return bool(server.recv(100))
        server.accept()[0].close()
    except BlockingIOError:
        return False
    return True


# The lab.


def lab(kind: str) -> None:
    import tot_lab as tl
    from support.errands import result
    from tot_lab.core.processes import passes_tests

    tool = tl.tools.Python(timeout=SECONDS - 2, processes=100)
    kept = os.environ["LAB_SECRET"].encode() * 3
    for line in sys.stdin:
        code = json.loads(line)
        output = result(tool, {"code": code}) if kind == "tool" else passes_tests([code], "raise", 1)
        print(json.dumps(str(output)), flush=True)
    del kept


if __name__ == "__main__":
    {"watch": watch, "lab": lab}[sys.argv[1]](sys.argv[2])
