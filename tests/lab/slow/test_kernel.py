"""In a real Jupyter kernel: an interrupted cell leaves a valid run, and a sweep that goes on, behind."""

import os
import time

import pytest
from jupyter_client import manager
from support import ROOT

SLOW = """
import asyncio
import tot_lab as tl

async def slow(call):
    await asyncio.sleep(0.02 if call.purpose == "sample" else 30)
    return "a step"

lab = tl.Lab(slow, runs=None)
print("ready", flush=True)
await lab.run(tl.TreeOfThoughts(), tl.general("How long?"))
"""
AFTER = """
run = lab.last
print(run.stop_reason, len(run.tree), (await run.replay()).identical, len(asyncio.all_tasks()) < 20)
"""
WATCHED = """
import asyncio
import tot_lab as tl

calls = []

async def slow(call):
    calls.append(call)
    await asyncio.sleep(0.05)
    return "a step" if call.purpose == "sample" else "score: 0.5"

lab = tl.Lab(slow, runs=None)
search = tl.TreeOfThoughts(stop=tl.Stop(depth=900), parallel=False)
explorer = tl.Explorer(lab.stream(search, tl.general("How long?")))
print("ready", flush=True)
run = await explorer.finished()
"""
UNPAID = """
paid = len(calls)
await asyncio.sleep(0.3)
print(explorer.run.stop_reason, 0 < paid == len(calls))
"""
SWEEP = """
import asyncio, tempfile
import tot_lab as tl

asked = []

async def slow(call):
    asked.append(call)
    if len(asked) == 10:
        print("ready", flush=True)
    await asyncio.sleep(0.05)
    return "Answer: 7"

lab = tl.Lab(slow, runs=tempfile.mkdtemp())
tasks = [tl.general(f"What is {n} + 1?") for n in range(80)]
await lab.sweep(tl.OneAnswer(), tasks, at_once=1)
"""
SWEPT = """
part = lab.last_sweep
whole = await lab.sweep(tl.OneAnswer(), tasks)
print(0 < len(part.df()) < 80, f"{len(part.rows)} of 80 runs" in part._repr_html_())
# The run that ended at the very moment of the interrupt is on disk, and may have no row yet.
print(0 <= whole.found - len(part.rows) <= 1, len(whole.df()) == 80)
"""


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")  # jupyter_client's own
@pytest.mark.parametrize(
    ("cell", "after", "told"),
    [
        (SLOW, AFTER, ["cancelled", "4", "True", "True"]),
        (WATCHED, UNPAID, ["cancelled", "True"]),
        (SWEEP, SWEPT, ["True"] * 4),
    ],
    ids=["run", "explorer", "sweep"],
)
def test_an_interrupted_cell_leaves_what_is_valid(cell, after, told):
    kernels, client = manager.start_new_kernel(
        kernel_name="python3", env={**os.environ, "PYTHONPATH": str(ROOT)}, extra_arguments=["--log-level=40"]
    )
    try:
        said = []
        started = time.monotonic()

        def heard(message):
            content = message["content"]
            said.append(content.get("text") or " ".join(content.get("traceback", [])))
            if "ready" in said[-1]:
                time.sleep(1)
                kernels.interrupt_kernel()

        reply = client.execute_interactive(cell, output_hook=heard, timeout=180)
        assert reply["content"]["status"] == "error"
        assert time.monotonic() - started < 120
        said.clear()
        reply = client.execute_interactive(after, output_hook=heard, timeout=180)
        assert "".join(said).split() == told
    finally:
        client.stop_channels()
        kernels.shutdown_kernel(now=True)
