"""Progress of a sweep: one line that updates, or a few lines in a pipe, and nothing if it is turned off."""

import asyncio
import json
import os
import pty
import subprocess
import sys
import termios

import pytest
from jupyter_client.manager import start_new_kernel
from support import ROOT, wait

import tot_lab as tl
from tot_lab.lab.sweeps import progress

TASKS = [tl.open_ended(f"{k}?") for k in range(40)]
SLOWLY = """
import asyncio
import tot_lab as tl
async def slow(call):
    await asyncio.sleep(SECONDS)
    return "Answer: 4"
lab = tl.Lab(slow, runs=None)
tasks = [tl.open_ended(f"{k}?") for k in range(3)]
strategy = {"a": tl.OneAnswer()}
"""

OFTEN = "from tot_lab.lab.sweeps import progress\nprogress.REFRESH = 0.0\n"


async def answer(call):
    await asyncio.sleep(0.05)
    return "Answer: 4"


def lines_of(capsys, runs):
    wait(tl.Lab(answer, runs=None).sweep({"a": tl.OneAnswer()}, TASKS[:runs], name="s"))
    return [line.split()[1] for line in capsys.readouterr().err.splitlines()]


@pytest.mark.parametrize(("runs", "most"), [(1, 1), (3, 3), (40, 10)])
def test_a_pipe_gets_a_line_for_each_tenth_and_no_more_than_runs(runs, most, capsys):
    shown = lines_of(capsys, runs)
    assert len(shown) <= most
    assert len({*shown}) == len(shown)
    assert shown[-1] == str(runs)


@pytest.mark.parametrize("runs", [1, 2])
def test_a_line_before_the_first_result_counts_too(runs, capsys, monkeypatch):
    monkeypatch.setattr(progress, "SILENT", 0.01)
    shown = lines_of(capsys, runs)
    assert shown[0] == "0"
    assert len(shown) <= runs


def test_nothing_is_shown_if_it_is_turned_off(capsys, monkeypatch):
    monkeypatch.setattr(progress, "SILENT", 0.01)
    for value, shows in (("1", False), ("0", True)):
        monkeypatch.setenv("TQDM_DISABLE", value)
        assert bool(lines_of(capsys, 3)) == shows


@pytest.mark.nightly
def test_a_terminal_shows_one_line_that_updates(tmp_path):
    code = SLOWLY.replace("SECONDS", "0.2") + "asyncio.run(lab.sweep(strategy, tasks, name='ducks'))\n"
    main, end = pty.openpty()
    termios.tcsetwinsize(end, (24, 100))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", code], stderr=end, env=environment) as made:
        os.close(end)
        shown = b""
        try:
            while part := os.read(main, 10_000):
                shown += part
        except OSError:  # the other end was closed
            pass
        assert made.wait() == 0
    os.close(main)
    (line,) = shown.decode().replace("\r\n", "\n").rstrip("\n").split("\n")
    states = [state for state in line.split("\r") if state.strip()]
    assert "0/3" in states[0]
    assert "3/3" in states[-1]
    assert all(state.startswith("ducks:") for state in states)


@pytest.mark.filterwarnings("ignore")  # jupyter_client's own
def test_a_notebook_shows_one_output_that_updates(tmp_path):
    kernels, client = start_new_kernel(
        kernel_name="python3", env={"PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    )

    def shown(code):
        """The outputs of a cell at its end, and how often one was updated."""
        outputs, updates = {}, 0

        def take(message):
            nonlocal updates
            content = message["content"]
            if message["msg_type"] == "stream":
                outputs["stream"] = outputs.get("stream", "") + content["text"]
            elif "data" in content:
                name = content.get("transient", {}).get("display_id", "result")
                outputs[name] = json.dumps(content["data"])
                updates += message["msg_type"] == "update_display_data"

        reply = client.execute_interactive(code, timeout=60, output_hook=take)
        assert reply["content"]["status"] == "ok", reply["content"]
        return outputs, updates

    try:
        assert shown(SLOWLY.replace("SECONDS", "0.3") + OFTEN) == ({}, 0)
        outputs, updates = shown("sweep = await lab.sweep(strategy, tasks, name='one')")
        (text,) = outputs.values()
        assert text.count("3 of 3 runs") == 2  # as text and as HTML
        assert updates > 1
        outputs, _ = shown("await lab.sweep(strategy, tasks, name='two')")
        assert "3 of 3 runs" in outputs.pop("result")
        (text,) = outputs.values()
        assert "of 3 runs" not in text
        assert shown("import os; os.environ['TQDM_DISABLE'] = '1'") == ({}, 0)
        assert shown("sweep = await lab.sweep(strategy, tasks, name='three')") == ({}, 0)
    finally:
        client.stop_channels()
        kernels.shutdown_kernel(now=True)
