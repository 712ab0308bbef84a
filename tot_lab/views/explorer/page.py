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
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from tot_lab.core.bulk import gc_paused
from tot_lab.core.files import write_whole
from tot_lab.record.run import Run
from tot_lab.views.explorer.facts import facts_of
from tot_lab.views.explorer.recording import Recording, about_of
from tot_lab.views.figures.theme import themed
from tot_lab.views.html_page import END, html_file, html_head

BUNDLE = Path(__file__).parent / "static" / "explorer.js"

BLOCK = 100
"""Number of thoughts whose prompts and replies are compressed together."""

_STYLE = themed(
    "html,body{margin:0}body{padding:var(--space-5);background:Canvas;color:CanvasText}"
    ":root{color-scheme:light dark}"
)


def save_html(run: Run, path: str | os.PathLike[str], other: Run | None = None) -> Path:
    """Write `run` as one HTML file that opens offline, and return its path.

    An existing file is replaced atomically.

    Args:
        run: The run.
        path: The file to write.
        other: A second run. The page compares it with the first.

    Raises:
        ValueError: `path` does not end in `.html` or `.htm`.
    """
    return write_whole(html_file(path), page(run, *(() if other is None else (other,))))


@gc_paused()
def page(*runs: Run) -> bytes:
    """Return the page of one run, or of two runs to compare."""
    recordings = [Recording(run.lines) for run in runs]
    title = " and ".join(f"{run.name}: {run.question}"[:80] for run in runs)
    structures = [
        json_script(f"run-{which}", structure_of(run, recording, facts_of(run)))
        for which, (run, recording) in enumerate(zip(runs, recordings, strict=True))
    ]
    return assembled(
        title, structures, chain.from_iterable(_texts(which, one) for which, one in enumerate(recordings))
    )


def assembled(title: str, first: Iterable[bytes], last: Iterable[bytes]) -> bytes:
    """Return a page: the data elements `first`, the script of the explorer, and the data elements `last`."""
    script = _classic_script(BUNDLE.read_text("utf-8"))
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(_STYLE)}'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    head = (
        f'{html_head(title, _STYLE, policy)}<main id="tot-lab-explorer"></main>'
        "<noscript>This page needs JavaScript. Allow scripts to see the search.</noscript>"
    )
    return b"".join([head.encode(), *first, f"<script>{script}</script>".encode(), *last, END.encode()])


def json_script(id: str, data: str) -> bytes:
    """Return a script element with JSON data."""
    escaped = data.replace("<", "\\u003c")
    return f'<script type="application/json" id="{id}">{escaped}</script>'.encode()


def structure_of(run: Run, recording: Recording, facts: dict[str, Any]) -> str:
    """Return the JSON from which a run is drawn: its `about_of`, its `facts`, and all lines as one chunk."""
    data = {"about": {**about_of(run), "path": None}, **facts, "block": BLOCK}
    return f'{json.dumps(data)[:-1]}, "chunk": {recording.chunk().decode()}}}'


def texts_of(recording: Recording) -> tuple[str, str]:
    """Return two JSON arrays, with the beginning of each thought's text and with each thought's details."""
    return json.dumps(_beginnings(recording)), _details(recording, recording.nodes).decode()


def _beginnings(recording: Recording) -> list[str]:
    return [text for batch in recording.texts() for text in msgspec.json.decode(batch)["texts"]]


def _texts(which: int, recording: Recording) -> Iterator[bytes]:
    yield compressed_script(f"texts-{which}", json.dumps(_beginnings(recording)).encode())
    ids = list(recording.nodes)
    for block, first in enumerate(range(0, len(ids), BLOCK)):
        data = _details(recording, ids[first : first + BLOCK])
        yield compressed_script(f"details-{which}-{block}", data)


def _details(recording: Recording, ids: Iterable[str]) -> bytes:
    return b"[%b]" % b",".join(map(recording.details_json, ids))


def compressed_script(id: str, data: bytes, level: int = 9) -> bytes:
    """Return a script element with JSON data, compressed by gzip and encoded as base64."""
    packed = base64.b64encode(gzip.compress(data, level, mtime=0))
    return b'<script type="application/gzip" id="%s">%s</script>' % (id.encode(), packed)


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
