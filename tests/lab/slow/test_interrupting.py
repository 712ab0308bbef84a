"""Ctrl-C in a notebook says in three lines what is kept and how to continue."""

import gc
import os
from threading import Timer

import pytest
from jupyter_client import manager
from support import ROOT

SLOW = """
import asyncio
import tot_lab as tl

async def slow(call):
    print("asked", flush=True)
    await asyncio.sleep(30)
    return "x"

lab = tl.Lab(slow, runs="kept")
"""


@pytest.mark.filterwarnings("ignore")  # jupyter_client's own
def test_an_interruption_is_three_lines(tmp_path):
    run, sweep = interruptions(tmp_path)
    gc.collect()  # what jupyter_client leaves open, while its warnings are ignored

    first, kept, again = run
    assert first.startswith("Interrupted after ")
    assert kept.startswith("Kept: lab.last, in kept/")
    assert again.startswith('To continue: await lab.resume("kept/')
    first, kept, again = sweep
    assert first == "Interrupted: 0 of 1 runs are finished."
    assert kept == "Kept: lab.last_sweep, with its journals in kept/sweep."
    assert again.startswith("The same call continues: finished runs are read")


def interruptions(folder):
    """What a notebook shows of a run and of a sweep that Ctrl-C interrupts."""
    kernels, client = manager.start_new_kernel(
        kernel_name="python3", env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=str(folder)
    )

    def interrupted(code):
        traceback = []

        def heard(message):
            if message["msg_type"] == "stream" and "asked" in message["content"]["text"]:
                Timer(0.1, kernels.interrupt_kernel).start()
            traceback.extend(message["content"].get("traceback", ()))

        client.execute_interactive(code, timeout=60, output_hook=heard)
        return traceback

    try:
        client.execute_interactive(SLOW, timeout=60)
        return [
            interrupted("await lab.run(tl.OneAnswer(), tl.general('q?'))"),
            interrupted("await lab.sweep(tl.OneAnswer(), tl.general('q?'))"),
        ]
    finally:
        client.stop_channels()
        kernels.shutdown_kernel(now=True)
