"""Runs a program, and ends it with everything that it started. `processes` starts this script.

The keeper ends the program when the process that asked for it is gone, at a limit of wall time, and on
SIGTERM. It runs no untrusted code itself, so that it can also end a program that is busy in C or ignores
signals. It imports little, because each call of a tool waits for it.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # importing `signal` takes longer than the rest of this script
import os
import sys
import time

INTERVAL = 1.0
"""Seconds between two checks whether the process that asked for the program is still alive."""

DEVICES = ("null", "zero", "full", "random", "urandom")
_NEW_MOUNTS, _NEW_SPACES = 0x20000, 0x7C000000  # the latter: UTS, IPC, user, process and network
_NO_SUID, _NO_DEVICES, _NO_PROGRAMS, _READ_ONLY = 2, 4, 8, 1  # flags of mount and of mount_setattr
_BIND, _PRIVATE, _RECURSIVE = 1 << 12, 1 << 18, 0x8000


def main(
    asker: str, wall: str, cpu: str, memory: str, written: str, processes: str, folder: str, *command: str
) -> None:
    """Run `command` and exit with its status.

    Args:
        asker: Id of the process that asked for the program.
        wall: Limit of wall time in seconds.
        cpu: Limit of CPU time in seconds. This limit and the following ones may be empty, for no limit.
        memory: Limit of memory in bytes.
        written: Limit of the size of each file in bytes.
        processes: Maximum number of processes.
        folder: `no` to run without isolation, otherwise the only folder on disk in which the program may
            write. Empty if it may write nowhere.
        command: The program and its arguments.
    """
    end = time.monotonic() + float(wall)
    if isolated := folder != "no":
        isolate()
    elif sys.platform == "linux":
        _libc("prctl", 36, 1, 0, 0, 0)  # orphans become children of the keeper

    def finish(number: int, frame: object) -> None:
        if number == _signal.SIGALRM and os.getppid() == int(asker) and time.monotonic() < end:
            return
        end_children(program)
        os._exit(1)

    _signal.pthread_sigmask(_signal.SIG_BLOCK, (_signal.SIGTERM, _signal.SIGALRM))
    for number in (_signal.SIGTERM, _signal.SIGALRM):
        _signal.signal(number, finish)
    if isolated:
        start_first()
    program = os.fork()
    if program == 0:
        try:
            os.setsid()  # so that a signal to its own process group does not reach the keeper
            if sys.platform == "linux":
                _libc("prctl", 1, int(_signal.SIGKILL), 0, 0, 0)  # the program dies if the keeper is killed
            if isolated:
                hide(folder)
            limit(CPU=cpu, AS=memory, FSIZE=written, NPROC=processes, CORE="0")
            _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
            os.execv(command[0], command)
        except BaseException as error:
            os.write(2, f"the program cannot start: {error}\n".encode())
        os._exit(127)
    _signal.setitimer(_signal.ITIMER_REAL, INTERVAL, INTERVAL)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    _, status = os.waitpid(program, 0)
    end_children(program)
    if os.WIFSIGNALED(status):
        _signal.signal(os.WTERMSIG(status), _signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status))


def end_children(program: int) -> None:
    """Kill the descendants of this process. On macOS: the process group of `program`."""
    while True:
        try:
            with open(f"/proc/self/task/{os.getpid()}/children") as file:  # noqa: PTH123
                children = [int(number) for number in file.read().split()]
        except OSError:  # macOS has no such file
            children = []
            try:
                os.killpg(program, _signal.SIGKILL)
            except OSError:
                return
        for child in children:
            os.kill(child, _signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def limit(**limits: str) -> None:
    """Set resource limits (`RLIMIT_NAME`) that the program cannot raise. An empty text sets no limit."""
    import resource  # noqa: PLC0415

    for name, text in limits.items():
        if text:
            kind = getattr(resource, f"RLIMIT_{name}")
            hard = resource.getrlimit(kind)[1]
            most = int(text) if hard == resource.RLIM_INFINITY else min(int(text), hard)
            try:
                resource.setrlimit(kind, (most, most))
            except (OSError, ValueError):
                if name != "AS":  # macOS does not limit memory
                    raise


def isolate() -> None:
    """Move this process into new user, network, IPC and UTS namespaces, and start its children in a new PID
    namespace.

    The user namespace maps only the user of this process, and never to root, so that programs that start
    there have no capabilities.
    """
    user, group = os.getuid(), os.getgid()
    _libc("unshare", _NEW_SPACES)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user or 65534} {user} 1"),
        ("gid_map", f"{group or 65534} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123
            file.write(text)


def start_first() -> None:
    """Start PID 1 of the namespace. It exits when this process dies, and the kernel then kills all other
    processes of the namespace.
    """
    ending, held = os.pipe()
    if os.fork() == 0:
        _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)
        os.close(held)
        os.read(ending, 1)
        os._exit(0)
    os.close(ending)


def hide(folder: str) -> None:
    """Make all files read-only except in `folder` and in a new `/dev` in memory, which has no devices but
    `DEVICES`. Hide other processes.
    """
    _libc("unshare", _NEW_MOUNTS)
    _change("/", propagation=_PRIVATE)
    opened = {name: os.open(f"/dev/{name}", os.O_PATH) for name in DEVICES}
    _mount("tmpfs", "/dev", "tmpfs", _NO_SUID, "size=16m,mode=755")
    for name, number in opened.items():
        os.close(os.open(f"/dev/{name}", os.O_CREAT))
        _mount(f"/proc/self/fd/{number}", f"/dev/{name}", "", _BIND)
    os.mkdir("/dev/shm")  # noqa: PTH102
    os.symlink("/proc/self/fd", "/dev/fd")  # noqa: PTH211
    _mount("proc", "/proc", "proc", _NO_SUID | _NO_DEVICES | _NO_PROGRAMS)
    if folder:
        _mount(folder, folder, "", _BIND)
    _change("/", on=_READ_ONLY | _NO_SUID | _NO_DEVICES)
    _change("/dev", off=_READ_ONLY | _NO_DEVICES)
    if folder:
        _change(folder, off=_READ_ONLY)
    os.chdir(folder or "/")


def _mount(source: str, place: str, kind: str, flags: int, data: str = "") -> None:
    _libc("mount", *(text.encode() for text in (source, place, kind)), flags, data.encode())


def _change(place: str, on: int = 0, off: int = 0, propagation: int = 0) -> None:
    """Set the flags `on`, and clear the flags `off`, of all mounts at `place` and below."""
    import ctypes  # noqa: PLC0415

    attributes = (ctypes.c_uint64 * 4)(on, off, propagation, 0)
    mount_setattr = 442  # number of the system call on all architectures
    _libc("syscall", mount_setattr, -100, place.encode(), _RECURSIVE, attributes, ctypes.sizeof(attributes))


def _libc(function: str, *arguments: object) -> None:
    import ctypes  # noqa: PLC0415

    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, function)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
