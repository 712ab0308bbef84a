"""Makes `search.eval`, the same as JSON, and the journal of the run, of which a budget refused some calls.

`pip install -e '.[inspect]'`, then `python make.py`.
"""

import asyncio
import os
import shutil
import tempfile
from pathlib import Path

os.environ.update(INSPECT_DISPLAY="none", INSPECT_LOG_LEVEL="error")

from inspect_ai.log import read_eval_log, write_eval_log

import tot_lab as tl

HERE = Path(__file__).parent
SEARCH = tl.TreeOfThoughts(propose=tl.Sample(count=2), search=tl.BeamSearch(width=2), stop=tl.Stop(depth=3))

with tempfile.TemporaryDirectory() as folder:
    lab = tl.Lab(tl.sim.SimGame24(skill=0.6), runs=folder)
    sweep = asyncio.run(
        lab.sweep({"tree/2": SEARCH}, tl.game24("4 9 10 13"), budget=tl.Budget(calls=9), name="games")
    )
    (log,) = sweep.save_inspect(folder)
    (run,) = sweep.runs()
    shutil.copy(log, HERE / "search.eval")
    write_eval_log(read_eval_log(str(log)), str(HERE / "search.json"))
    run.save(HERE / "search.jsonl")
    print(run.stop_reason, len(run.tree), (HERE / "search.eval").stat().st_size)
