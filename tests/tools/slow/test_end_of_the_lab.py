"""No process outlives its lab, however the lab ends, and whatever the process is busy with."""

import os
import signal
import sys

import pytest
from support.dying import PROGRAMS, Dying, computed, descendants, running, soon

from tot_lab.core.processes import can_isolate

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs: /proc")
isolated = pytest.mark.skipif(not can_isolate(), reason="needs: namespaces for users")
TOOLS = [pytest.param("tool", marks=isolated), "open tool"]


@pytest.mark.parametrize("how", [pytest.param(signal.SIGTERM, marks=pytest.mark.nightly), signal.SIGKILL])
@pytest.mark.parametrize("kind", [*TOOLS, "grader"])
def test_programs_end_with_the_lab(kind, how, tmp_path):
    lab = Dying(tmp_path / "t", kind)
    lab.ready(len(PROGRAMS))
    assert len(descendants(lab.process.pid)) >= 2 * len(PROGRAMS)
    lab.end(how)


@pytest.mark.parametrize("how", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.nightly)])
def test_workers_and_converters_end_with_the_lab(how, tmp_path):
    lab = Dying(tmp_path / "t", "pattern", "math", "page")
    soon(lambda: len(descendants(lab.process.pid)) >= 6)
    lab.end(how)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [*TOOLS, "grader"])
def test_a_lab_that_ends_at_once_leaves_nothing(kind, tmp_path):
    """Before a program runs, its limits, namespaces and folder are made."""
    for processes in range(1, 6):
        lab = Dying(tmp_path / str(processes), kind)
        soon(lambda lab=lab, most=processes * 4: len(descendants(lab.process.pid)) >= most)
        lab.end(signal.SIGKILL)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.nightly)
        for kind in ("open tool", "grader", "math", "page", "pattern")
    ]
    + [pytest.param("tool", marks=isolated)],
)
def test_programs_end_in_time_though_nobody_watches(kind, tmp_path):
    """The lab is stopped, as by a debugger or a closed laptop."""
    lab = Dying(tmp_path / "t", kind, seconds=2)
    soon(lambda: descendants(lab.process.pid))
    if kind in ("pattern", "math"):  # a worker without a request may wait for the lab
        soon((tmp_path / "t" / "worker started").exists)
        before = computed(lab.process.pid)
        soon(lambda: computed(lab.process.pid) > before + 0.3 or not descendants(lab.process.pid))
    os.kill(lab.process.pid, signal.SIGSTOP)
    soon(lambda: not [key for key in descendants(lab.process.pid) if key in running()])
    lab.process.kill()
    lab.process.wait()


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [*TOOLS, "grader"])
def test_the_end_of_one_lab_leaves_the_programs_of_others(kind, tmp_path):
    """Labs that start processes at the same time inherit each other's files."""
    one, other = Dying(tmp_path / "1", kind), Dying(tmp_path / "2", kind)
    one.ready(len(PROGRAMS))
    other.ready(len(PROGRAMS))
    left = descendants(other.process.pid)
    one.end(signal.SIGKILL)
    assert left.keys() <= running().keys()
    other.end(signal.SIGTERM)
