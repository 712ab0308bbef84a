"""Work that goes through many runs shows its progress after two seconds: a bar, or lines in a pipe."""

import subprocess
import sys
import time

import pytest

from tot_lab.record import waiting
from tot_lab.record.waiting import with_progress


def test_short_work_shows_nothing(capsys):
    assert list(with_progress(iter("abc"), "loading", 3)) == ["a", "b", "c"]
    assert capsys.readouterr().err == ""


def test_long_work_prints_lines_into_a_pipe(capsys, monkeypatch):
    monkeypatch.setattr(waiting, "QUIET", 0.02)
    monkeypatch.setattr(waiting, "_EVERY", 0.05)
    for _ in with_progress(range(1_200), "loading", 1_200):
        time.sleep(0.0005)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) >= 2
    counts = [int(line.split()[1].replace(",", "")) for line in lines]
    assert counts == sorted(set(counts))
    assert all(line == f"loading: {count:,} of 1,200 runs" for line, count in zip(lines, counts, strict=True))


@pytest.mark.slow
def test_long_work_shows_a_bar_in_a_terminal_and_takes_it_away():
    code = (
        "import fcntl, struct, sys, termios, time\n"
        "fcntl.ioctl(2, termios.TIOCSWINSZ, struct.pack('HHHH', 24, 80, 0, 0))\n"
        "from tot_lab.record.waiting import with_progress\n"
        "for _ in with_progress(range(30), 'loading', 30): time.sleep(0.1)\n"
        "print('done')"
    )
    inside = f"import pty, sys; sys.exit(pty.spawn([sys.executable, '-c', {code!r}]))"
    command = [sys.executable, "-c", inside]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "loading:" in shown
    assert "/30" in shown
    assert shown.rstrip().splitlines()[-1].split("\r")[-1].strip() == "done"
    assert "  0%" not in shown  # nothing for the first two seconds
