"""A run as one HTML file: the explorer with its data, usable offline and without a kernel.

The file is self-contained. Its content security policy allows one script, by its hash, and no network
requests. Model output is never parsed as markup. The structure is JSON without `<`, texts are compressed and
encoded, and the script only sets text content.

The file contains the structure, then the script, then the texts. The texts are about a hundred times larger
than the structure. When they preceded the script, the first drawing took eight times as long.
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

from tot_lab.core.bulk import gc_paused
from tot_lab.core.calls import readable
from tot_lab.core.files import write_whole
from tot_lab.record.run import Run
from tot_lab.views.explorer.recording import PREFIXES, Recording, about_of, facts_of

BUNDLE = Path(__file__).parent / "static" / "explorer.js"

BLOCK = 100
"""Number of thoughts whose prompts and replies are compressed together."""

_STYLE = (
    "html,body{margin:0}body{padding:12px;background:Canvas;color:CanvasText}:root{color-scheme:light dark}"
)


def save_html(run: Run, path: str | os.PathLike[str], other: Run | None = None) -> Path:
    """Write `run` as one HTML file that opens offline, and return its path.

    An existing file is replaced atomically.

    Args:
        run: The run.
        path: The file to write.
        other: A second run. The page compares it with the first.

    Raises:
        FileExistsError: `path` is the journal of one of the runs.
    """
    for shown in filter(None, (run, other)):
        if shown.path is not None and Path(path).resolve() == shown.path.resolve():
            raise FileExistsError(f"{path} is the journal of the run. Choose another path for the page.")
    return write_whole(path, page(run, *(() if other is None else (other,))))


@gc_paused()
def page(*runs: Run) -> bytes:
    """Return the page of one run, or of two runs to compare."""
    recordings = [Recording(run.lines) for run in runs]
    script = _classic_script(BUNDLE.read_text("utf-8"))
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
        "<noscript>This page needs JavaScript. Allow scripts to see the search.</noscript>"
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
    data = {
        "about": {**about_of(run), "path": None},
        **facts_of(run, PREFIXES[which]),
        "block": BLOCK,
    }
    source = f'{json.dumps(data)[:-1]}, "chunk": {chunk}}}'.replace("<", "\\u003c")
    return f'<script type="application/json" id="run-{which}">{source}</script>'.encode()


def _texts(which: int, recording: Recording) -> Iterator[bytes]:
    beginnings: list[str] = []
    for batch in recording.texts():
        beginnings += msgspec.json.decode(batch)["texts"]
    yield _compressed_script(f"texts-{which}", beginnings)
    ids = list(recording.nodes)
    for block, first in enumerate(range(0, len(ids), BLOCK)):
        yield _compressed_script(
            f"details-{which}-{block}", [recording.details(id) for id in ids[first : first + BLOCK]]
        )


def _compressed_script(id: str, value: Sequence[Any]) -> bytes:
    data = base64.b64encode(gzip.compress(json.dumps(value).encode(), mtime=0))
    return b'<script type="application/gzip" id="%s">%s</script>' % (id.encode(), data)


def _classic_script(module: str) -> str:
    """Convert the bundle to a classic script, because a module runs only after the whole file is parsed."""
    body, exports = re.subn(r"export\s*\{[^{}]*\};?\s*$", "", module)
    if exports != 1:
        raise ValueError(
            f"{BUNDLE} is not a bundle of `npm run build`. Reinstall tot_lab, or build the bundle."
        )
    return "(()=>{" + re.sub(r"</(script)|<!--", lambda found: found[0].replace("<", "\\x3c"), body) + "})()"


def _hash(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
