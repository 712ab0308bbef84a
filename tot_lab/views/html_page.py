"""The beginning and the end of every HTML page of tot_lab."""

from __future__ import annotations

import os
from html import escape
from pathlib import Path

from tot_lab.views.figures.theme import printable

END = "</body></html>\n"
"""The end of every page."""


def html_head(title: str, style: str, policy: str) -> str:
    """Return an HTML page up to its body.

    Args:
        title: Title, as text.
        style: Style sheet.
        policy: Content security policy. The page contains it, because a file has no HTTP headers.
    """
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(printable(title))}</title><style>{style}</style></head><body>"
    )


def html_file(path: str | os.PathLike[str]) -> Path:
    """Return the path of a page. Raises `ValueError` if it does not end in `.html` or `.htm`."""
    if Path(path).suffix.lower() not in (".html", ".htm"):
        raise ValueError(
            f"path of a page must end in .html or .htm: got {os.fspath(path)!r}. run.save writes .jsonl, "
            "run.save_figure .svg, .pdf and .png, sweep.save .parquet, .csv and .tex."
        )
    return Path(path)
