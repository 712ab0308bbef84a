"""A run as one HTML file: the explorer over its record, offline, with no kernel.

The file holds all that it shows and may do nothing else. Its content-security policy names the
one script that runs, by its hash, and forbids every address. What a model wrote is never markup: the
structure is JSON without a `<`, texts are packed, and the script only ever sets text.

What is drawn first stands first: the structure, then the script, then the texts, which weigh a hundred
times more. Texts before the script were measured to delay the first drawing eightfold.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

import msgspec

from tot_lab.analysis.diagnosis import seen_at_once
from tot_lab.core.bulk import gc_paused
from tot_lab.core.calls import readable
from tot_lab.core.files import write_whole
from tot_lab.record.run import Run
from tot_lab.views.explorer.recording import Recording, about_of

BUNDLE = Path(__file__).parent / "static" / "explorer.js"

BLOCK = 100
"""Thoughts whose prompts and replies are packed together."""

_STYLE = (
    "html,body{margin:0}body{padding:12px;background:Canvas;color:CanvasText}:root{color-scheme:light dark}"
)


def save_html(run: Run, path: str | os.PathLike[str], other: Run | None = None) -> Path:
    """Write `run` to `path` as one HTML file that opens anywhere, offline; beside `other`, if one is
    given. An existing file is replaced at once or not at all; the runs' own journals are not. Returns
    the path."""
    for shown in filter(None, (run, other)):
        if shown.path is not None and Path(path).resolve() == shown.path.resolve():
            raise FileExistsError(f"{path}: this is the run itself; give the page another name")
    return write_whole(path, page(run, *(() if other is None else (other,))))


@gc_paused()
def page(*runs: Run) -> bytes:
    """The file of one run, or of two to compare."""
    recordings = [Recording(run.lines) for run in runs]
    script = _classic(BUNDLE.read_text("utf-8"))
    title = " and ".join(f"{run.name}: {run.question}"[:80] for run in runs)
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(_STYLE)}'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(readable(title))}</title><style>{_STYLE}</style></head>"
        '<body><main id="tot-lab-explorer"></main>'
        "<noscript>This file shows a search by a script of its own: allow scripts to see it.</noscript>"
    )
    parts = [head.encode()]
    for which, (run, recording) in enumerate(zip(runs, recordings, strict=True)):
        parts.append(_structure(which, run, recording))
    parts.append(f"<script>{script}</script>".encode())
    for which, recording in enumerate(recordings):
        parts.extend(_texts(which, recording))
    parts.append(b"</body></html>\n")
    return b"".join(parts)


def _structure(which: int, run: Run, recording: Recording) -> bytes:
    chunk = recording.chunk().decode()
    told = {
        "about": {**about_of(run), "path": None},
        "findings": [finding._asdict() for finding in seen_at_once(run)],
        "marks": msgspec.to_builtins(run.marks),
        "block": BLOCK,
    }
    data = f'{json.dumps(told)[:-1]}, "chunk": {chunk}}}'.replace("<", "\\u003c")
    return f'<script type="application/json" id="run-{which}">{data}</script>'.encode()


def _texts(which: int, recording: Recording) -> Iterator[bytes]:
    beginnings: list[str] = []
    for batch in recording.texts():
        beginnings += msgspec.json.decode(batch)["texts"]
    yield _packed(f"texts-{which}", beginnings)
    ids = list(recording.nodes)
    for block, first in enumerate(range(0, len(ids), BLOCK)):
        yield _packed(
            f"details-{which}-{block}", [recording.details(id) for id in ids[first : first + BLOCK]]
        )


def _packed(id: str, value: Sequence[Any]) -> bytes:
    data = base64.b64encode(gzip.compress(json.dumps(value).encode(), mtime=0))
    return b'<script type="application/gzip" id="%s">%s</script>' % (id.encode(), data)


def _classic(module: str) -> str:
    """The bundle as a script that runs where it stands: a module would wait for the whole file."""
    body, exports = re.subn(r"export\s*\{[^{}]*\};?\s*$", "", module)
    if exports != 1:
        raise ValueError(f"{BUNDLE}: no bundle that `npm run build` made")
    return "(()=>{" + re.sub(r"</(script)|<!--", lambda found: found[0].replace("<", "\\x3c"), body) + "})()"


def _hash(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
