"""A sweep, or several runs, as one HTML file: a matrix of tasks and settings whose cells open the runs.

The file contains one explorer for all runs. The table of the runs precedes the script and is shown at once.
The runs are compressed in blocks of several runs. A block is unpacked when the reader opens one of its runs.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tot_lab.analysis.tables import is_sweep, placed, table
from tot_lab.core.bulk import gc_paused
from tot_lab.core.calls import readable
from tot_lab.core.files import write_whole
from tot_lab.record.run import Run
from tot_lab.views.explorer.facts import facts_of
from tot_lab.views.explorer.page import assembled, compressed_script, json_script, structure_of, texts_of
from tot_lab.views.explorer.recording import Recording
from tot_lab.views.explorer.saved import frame
from tot_lab.views.figures.points import note_model
from tot_lab.views.html_page import html_file

PACK = 2_000_000
"""Approximate number of characters in a block before compression. The prompts of a sweep are similar, so runs
take less space in one block than each by itself.
"""

LEVEL = 6
"""Compression level: the default of the program gzip."""


def save_html(runs: Any, path: str | os.PathLike[str]) -> Path:
    """Write a sweep as one HTML file that opens offline, and return its path.

    The file shows a matrix of tasks and settings and a table with the columns of `sweep.df()`, and opens
    every run in the explorer. An existing file is replaced atomically.

    Args:
        runs: A sweep, or several runs.
        path: The file to write.

    Raises:
        TypeError: `runs` is neither a sweep nor a sequence of runs.
        ValueError: `path` does not end in `.html` or `.htm`.
    """
    return write_whole(html_file(path), sweep_page(runs))


class SweepExplorer:
    """The page of a sweep in a notebook cell. `tl.Explorer(sweep)` returns it.

    Args:
        runs: A sweep, or several runs.
    """

    def __init__(self, runs: Any) -> None:
        self.runs = runs

    def save_html(self, path: str | os.PathLike[str]) -> Path:
        """Write the page as a file. See `sweep.save_html`."""
        return save_html(self.runs, path)

    def __repr__(self) -> str:
        return "Explorer of several runs (it is drawn in a notebook; save_html(path) writes it as a page)"

    def _repr_html_(self) -> str:
        return frame(sweep_page(self.runs), "sweep", 860)


@gc_paused()
def sweep_page(runs: Any) -> bytes:
    """Return the page of a sweep or of several runs."""
    runs = runs if is_sweep(runs) else list(runs)
    frame = table(runs)
    note = note_model(frame)
    packs: list[bytes] = []
    facts: list[dict[str, Any]] = []
    open_: list[str] = []
    for place in placed(runs, "save_html"):
        if place.run is None:
            facts.append({"pack": None, "blame": None, "why": readable(place.error or "")})
            continue
        known = facts_of(place.run)
        why = next((one["text"] for one in known["findings"] if one["kind"] == "why_it_failed"), None)
        facts.append({"pack": [len(packs), len(open_)], "blame": known["blame"], "why": why})
        open_.append(_packed(place.run, known))
        if sum(map(len, open_)) >= PACK:
            packs.append(_compressed(len(packs), open_))
            open_ = []
    if open_:
        packs.append(_compressed(len(packs), open_))
    frame = frame.loc[:, frame.notna().any()].astype({"setting": str, "task": str})
    data = json.loads(frame.to_json(orient="split", index=False, double_precision=12))
    name = getattr(runs, "name", "runs")
    right = int(frame["correct"].sum()) if "correct" in frame else 0
    head = {"name": readable(name), "columns": data["columns"], "rows": data["data"], "facts": facts}
    head["model_note"] = note
    title = f"{name}: {right} of {len(frame)} right"
    return assembled(title, [json_script("sweep", json.dumps(head))], packs)


def _packed(run: Run, facts: dict[str, Any]) -> str:
    """Return everything that the explorer shows of a run, as JSON."""
    recording = Recording(run.lines)
    beginnings, details = texts_of(recording)
    return (
        f'{{"structure": {structure_of(run, recording, facts)}, "texts": {beginnings}, "details": {details}}}'
    )


def _compressed(number: int, runs: list[str]) -> bytes:
    return compressed_script(f"pack-{number}", f"[{', '.join(runs)}]".encode(), LEVEL)
