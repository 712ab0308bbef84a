"""In a real Jupyter kernel: an interrupted cell leaves a valid run behind."""

import os
import time
from pathlib import Path

import pytest
from jupyter_client import manager

ROOT = Path(__file__).parent.parent

SLOW = """
import asyncio
import tot_lab as tl

async def slow(call):
    await asyncio.sleep(0.02 if call.kind == "sample" else 30)
    return "a step"

lab = tl.Lab(slow, runs=None)
print("ready", flush=True)
await lab.run(tl.TreeOfThoughts(), tl.general("How long?"))
"""
AFTER = """
run = lab.last
print(run.stopped, len(run.tree), (await run.replay()).identical, len(asyncio.all_tasks()) < 20)
"""


@pytest.mark.filterwarnings("ignore")  # jupyter_client's own
def test_an_interrupted_cell_leaves_a_valid_run():
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

        reply = client.execute_interactive(SLOW, output_hook=heard, timeout=60)
        assert reply["content"]["status"] == "error"
        assert time.monotonic() - started < 25
        said.clear()
        reply = client.execute_interactive(AFTER, output_hook=heard, timeout=60)
        assert "".join(said).split() == ["cancelled", "4", "True", "True"]
    finally:
        client.stop_channels()
        kernels.shutdown_kernel(now=True)
