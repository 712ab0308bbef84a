"""Work that takes longer than two seconds shows its progress: a bar, or lines in a pipe."""

import asyncio
import subprocess
import sys
import time

import pytest
from support import TASK, wait
from support.providers import Providers, Said

import tot_lab as tl
from tot_lab.record import waiting
from tot_lab.record.waiting import with_progress


def test_short_work_shows_nothing(capsys):
    assert list(with_progress(iter("abc"), "loading", 3)) == ["a", "b", "c"]
    assert capsys.readouterr().err == ""


@pytest.mark.slow
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


@pytest.mark.nightly
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


# One run.


@pytest.fixture
def soon(monkeypatch):
    monkeypatch.setattr(waiting, "QUIET", 0.05)
    monkeypatch.setattr(waiting, "_EVERY", 0.05)


async def slow(call):
    await asyncio.sleep(0.2)
    return "Answer: 4"


@pytest.mark.slow
def test_a_run_that_waits_for_its_model_prints_how_many_calls_it_made(soon, capsys):
    lab = tl.Lab(slow, runs=None)
    wait(lab.run(tl.Reflexion(strategy=tl.OneAnswer(), max_retries=0), TASK))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "reflexion: 0 calls"
    assert "reflexion: 1 call" in lines
    assert len(lines) >= 3


@pytest.mark.slow
def test_a_short_run_and_one_that_somebody_watches_print_nothing(soon, capsys, monkeypatch):
    lab = tl.Lab(slow, runs=None)
    wait(lab.run(tl.OneAnswer(), TASK, watch=lambda lines: None))

    async def streamed():
        return [record async for record in lab.stream(tl.OneAnswer(), TASK)]

    wait(streamed())
    monkeypatch.undo()
    wait(lab.run(tl.OneAnswer(), TASK))
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_nothing_goes_on_after_the_end(soon, capsys):
    lab = tl.Lab(slow, runs=None)

    async def cancelled():
        running = asyncio.create_task(lab.run(tl.OneAnswer(), TASK))
        await asyncio.sleep(0.12)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        before = capsys.readouterr().err
        await asyncio.sleep(0.2)
        return before

    assert "one_answer: 0 calls" in wait(cancelled())
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_r11_the_progress_names_the_strategy_that_was_chosen(soon, capsys):
    wait(tl.Lab(slow, runs=None).run(tl.Adaptive(), tl.general("What is 2 + 2?")))
    assert any(line.startswith("adaptive: adaptive→") for line in capsys.readouterr().err.splitlines())


@pytest.mark.nightly
def test_the_first_import_of_litellm_is_named(tmp_path):
    with Providers(lambda asked: Said("Answer: 4")) as server:
        code = (
            "import asyncio\n"
            "import tot_lab as tl\n"
            "from tot_lab.record import waiting\n"
            "waiting.QUIET = waiting._EVERY = 0.05\n"
            f"model = tl.LiteLLM(model='hosted_vllm/small', api_base={server.base('openai')!r})\n"
            f"lab = tl.Lab(model, runs=None, cache={str(tmp_path)!r})\n"
            "run = asyncio.run(lab.run(tl.OneAnswer(), tl.general('2 + 2?')))\n"
            "print(run.answer)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "4"
    assert "one_answer: loading hosted_vllm/small, 0 calls" in done.stderr.splitlines()


@pytest.mark.nightly
def test_a_run_shows_a_bar_in_a_terminal_and_takes_it_away():
    code = (
        "import asyncio, fcntl, struct, termios\n"
        "fcntl.ioctl(2, termios.TIOCSWINSZ, struct.pack('HHHH', 24, 80, 0, 0))\n"
        "import tot_lab as tl\n"
        "async def slow(call):\n"
        "    await asyncio.sleep(1.6)\n"
        "    return 'Answer: 4'\n"
        "strategy = tl.Reflexion(strategy=tl.OneAnswer(), max_retries=0)\n"
        "asyncio.run(tl.Lab(slow, runs=None).run(strategy, tl.general('2 + 2?')))\n"
        "print('done')"
    )
    inside = f"import pty, sys; sys.exit(pty.spawn([sys.executable, '-c', {code!r}]))"
    command = [sys.executable, "-c", inside]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "reflexion:" in shown
    assert "1/2 " in shown
    assert shown.rstrip().splitlines()[-1].split("\r")[-1].strip() == "done"
