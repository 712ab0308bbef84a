"""Python in a process: it is told what it printed, and nothing gets out of its limits."""

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from support import ROOT, TESTS, wait
from support.errands import TASK, errand, lab_with, result

import tot_lab as tl
from tot_lab.core.processes import can_isolate


def python(code, **more):
    return result(tl.tools.Python(**more), {"code": code})


isolated = pytest.mark.skipif(not can_isolate(), reason="needs: namespaces for users")


def left_behind(mark):
    """Processes of this machine whose command or environment holds `mark`."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "cmdline").read_text():
                found.append(folder.name)
        except OSError:
            continue
    return found


def soon_gone(mark):
    """Whether they are gone within two seconds: a killed process takes a moment to die."""
    end = time.monotonic() + 2
    while (left := left_behind(mark)) and time.monotonic() < end:
        time.sleep(0.02)
    return not left


@pytest.mark.slow
def test_python_gives_what_is_printed_and_knows_nothing_of_us(monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "sk-environment-1234")
    assert python("print(6 * 7)") == "42\n"
    assert python("x = 1") == "(nothing was printed)"
    seen = python(
        "import os, sys; print(dict(os.environ), os.listdir('.'), sys.flags.isolated, sys.argv[1:])"
    )
    assert seen in ("{} [] 1 []\n", "{'LC_CTYPE': 'C.UTF-8'} [] 1 []\n")
    assert "EOFError" in python("input()")


@pytest.mark.slow
def test_a_snippet_that_fails_is_a_failed_call_with_its_traceback_and_the_same_again():
    told = python("print('so far')\n1/0")
    assert told == python("print('so far')\n1/0")
    assert told.startswith("✗ RuntimeError: exit status 1\n")
    assert "so far" in told
    assert 'File "snippet.py", line 2' in told
    assert python("raise SystemExit(3)").startswith("✗ RuntimeError: exit status 3")
    assert "SyntaxError" in python("def")


@pytest.mark.slow
def test_a_snippet_that_eats_is_stopped():
    assert "MemoryError" in python("x = 'a' * (3 << 30)")
    assert "File too large" in python("open('f', 'wb').write(b'a' * (3 << 20))", max_file_mb=1)
    assert (
        python("while True: print('x' * 1000)", max_file_mb=1) == "✗ RuntimeError: it printed more than 1 MB"
    )
    began = time.monotonic()
    assert python("while True: pass", timeout=1) == "✗ no result within 1 s"
    assert time.monotonic() - began < 60


@pytest.mark.slow
def test_a_snippet_cannot_hold_up_the_lab_by_what_it_leaves():
    """A pipe in place of the file that its output went to once stopped the event loop for ever, and
    folders in folders cost the result."""
    swapped = "import os\nfor name in os.listdir('..'):\n    if name != 'work': os.unlink('../' + name)\n"
    swapping = f"{swapped}os.mkfifo('../output'); print('fine')"
    assert python(swapping, timeout=10, isolated=False) == "fine\n"
    before = set(Path(tempfile.gettempdir()).glob("tot_lab-*"))
    deep = "import os\nfor _ in range(2_000):\n    os.mkdir('d'); os.chdir('d')\nprint('fine')"
    assert python(deep) == "fine\n"
    assert set(Path(tempfile.gettempdir()).glob("tot_lab-*")) <= before


@pytest.mark.slow
def test_what_a_snippet_starts_ends_with_it():
    mark = "sleep-mark-7391"
    sleeping = f"os.execv(sys.executable, [sys.executable, '-c', 'import time; time.sleep(60)', '{mark}'])"
    child = f"    if os.fork() == 0:\n        {{}}{sleeping}"
    forks = f"import os, sys, time\nfor _ in range(20):\n{child}\nprint('done')"
    began = time.monotonic()
    assert python(forks.format("")) == "done\n"
    assert time.monotonic() - began < 50
    assert soon_gone(mark)
    assert python(f"{forks.format('')}\ntime.sleep(60)", timeout=1) == "✗ no result within 1 s"
    assert soon_gone(mark)
    if sys.platform == "linux":  # one that leaves the process group does not get away either
        for isolates in {can_isolate(), False}:
            assert python(forks.format("os.setsid(); "), isolated=isolates) == "done\n"
            assert soon_gone(mark)


@pytest.mark.skipif(os.name != "posix" or os.getuid() == 0, reason="the kernel counts no processes of root")
def test_processes_are_limited():
    assert "BlockingIOError" in python(
        "import os\nfor _ in range(100):\n    if not os.fork():\n        os.pause()"
    )


def test_cancelling_ends_the_process():
    mark = "cancel-mark-5127"
    sleeping = f"[sys.executable, '-c', 'import time; time.sleep(60)', '{mark}']"
    code = f"import os, sys; os.execv(sys.executable, {sleeping})"
    lab = lab_with(tl.tools.Python())

    async def cut():
        before = len(asyncio.all_tasks())
        task = asyncio.create_task(lab.run(errand(("python", {"code": code})), TASK))
        for _ in range(200):
            await asyncio.sleep(0.02)
            if left_behind(mark):
                break
        assert left_behind(mark)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(soon_gone, mark)
        while len(asyncio.all_tasks()) > before:  # the tool's task waits for its keeper
            await asyncio.sleep(0.02)

    wait(cut())


@pytest.mark.slow
@isolated
def test_an_isolated_snippet_has_no_network_and_sees_no_other_process(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        told = python(f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)")
    assert "Network is unreachable" in told or "Connection refused" in told
    assert "No such file" in python(f"print(open('/proc/{os.getpid()}/environ').read())")
    assert "ProcessLookupError" in python(f"import os; os.kill({os.getpid()}, 0)")


@pytest.mark.slow
@isolated
def test_which_unix_sockets_an_isolated_snippet_reaches(tmp_path):
    """As its documentation says: none of the abstract ones, and those that are files."""
    connect = "import socket; s = socket.socket(socket.AF_UNIX); s.connect({}); print('reached')"
    for address, reached in ((f"\0tot_lab-{os.getpid()}", False), (str(tmp_path / "s"), True)):
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(address)
            server.listen()
            told = python(connect.format(repr(address)))
        assert told.startswith("reached") == reached, told
    said = " ".join(tl.tools.Python.__doc__.split())
    assert "connect to the Unix sockets that you may open" in said


@pytest.mark.slow
@isolated
def test_an_isolated_snippet_writes_nowhere_but_in_its_folder(tmp_path):
    for place in (tmp_path / "f", Path.home() / "f", Path("/proc/sys/kernel/hostname"), Path("../f")):
        assert "Read-only file system" in python(f"open({str(place)!r}, 'w')"), place
    (tmp_path / "mine").write_text("kept")
    assert "Read-only file system" in python(f"open({str(tmp_path / 'mine')!r}, 'a')")
    assert python("open('f', 'w').write('x'); print(open('f').read())") == "x\n"
    used = (
        "import multiprocessing as m, os, tempfile\nm.Lock(); m.Pipe()\nopen('/dev/null', 'w').write('x')\n"
    )
    assert python(f"{used}with tempfile.TemporaryFile() as f: print(f.write(os.urandom(3)))") == "3\n"
    assert python("import pydantic; print('imported')") == "imported\n"
    assert python(f"open({str(tmp_path / 'f')!r}, 'w'); print('open')", isolated=False) == "open\n"
    assert (tmp_path / "f").exists()


WITHOUT = """
import warnings
import tot_lab as tl
from support.errands import result
from tot_lab.core.processes import passes_tests

code = "open('ran', 'w'); print('ran')"
print(result(tl.tools.Python(), {"code": code}))
print(result(tl.tools.Python(isolated=False), {"code": code}), end="")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    print(passes_tests(["x = 1"], "assert x", 5), *(warning.message for warning in caught))
"""


@pytest.mark.slow
@isolated
def test_a_machine_that_cannot_isolate_says_so_before_the_first_program():
    """Here the kernel refuses user namespaces, as in most containers."""
    refuse = "echo 0 > /proc/sys/user/max_user_namespaces && exec"  # those within the namespace of this shell
    command = f'{refuse} "$0" -W error -c "$1"'
    told = subprocess.run(
        ["unshare", "--user", "--map-root-user", "sh", "-c", command, sys.executable, WITHOUT],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(TESTS)])},
        capture_output=True,
        text=True,
        check=True,
    )
    refused, ran, graded = told.stdout.splitlines()
    why = "this machine cannot isolate programs, which needs Linux 5.12 or later and user namespaces"
    assert refused.startswith(f"✗ OSError: {why}")
    assert refused.endswith("Use Python(isolated=False) to run it all the same.")
    assert ran == "ran"
    assert graded.startswith(f"True grading with Python tests: {why}")


def test_a_record_says_whether_snippets_are_isolated():
    for isolates in (True, False):
        assert tl.tools.Python(isolated=isolates).settings()["isolated"] is isolates
