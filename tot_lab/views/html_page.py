"""The beginning and the end of every HTML page of tot_lab, and a whole page without scripts."""

from __future__ import annotations

import os
from html import escape
from pathlib import Path

from tot_lab.views.figures.theme import printable, themed

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


def document(title: str, body: str) -> str:
    """Return a page without scripts, light or dark like the reader's system, and light in print."""
    return f"{html_head(title, _STYLE, _POLICY)}{body}{END}"


def html_file(path: str | os.PathLike[str]) -> Path:
    """Return the path of a page. Raises `ValueError` if it does not end in `.html` or `.htm`."""
    if Path(path).suffix.lower() not in (".html", ".htm"):
        raise ValueError(
            f"path of a page must end in .html or .htm: got {os.fspath(path)!r}. run.save writes .jsonl, "
            "run.save_figure .svg, .pdf and .png, sweep.save .parquet, .csv and .tex."
        )
    return Path(path)


# A page is dark only on a screen: paper is white.
_STYLE = themed("""
:root { color-scheme: light }
@media screen { :root { color-scheme: light dark } }
body { font: var(--text-page)/1.5 var(--font); max-width: 1180px;
  margin: var(--space-8) auto; padding: 0 var(--space-7);
  color: light-dark(var(--light-ink), var(--dark-ink));
  background: light-dark(var(--light-paper), var(--dark-paper)) }
h1 { font-size: var(--text-head); font-weight: 600 }
h2 { font-size: var(--text-title); font-weight: 600; margin-top: var(--space-7) }
h3 { font-size: var(--text-page); margin: var(--space-7) 0 var(--space-3) }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-size: var(--text-body) }
th, td { border-bottom: 1px solid var(--either-border); text-align: left; vertical-align: top;
  padding: var(--space-3) var(--space-5) var(--space-3) 0 }
a { color: light-dark(var(--light-chosen), var(--dark-chosen)) }
.text { overflow-wrap: anywhere }
.text p { margin: var(--space-2) 0 }
.text :is(pre, code) { white-space: pre-wrap }
math { font-size: 120%; math-style: normal }
menclose { border: 1px solid; padding: var(--space-1) var(--space-2) }
mtd[columnalign=right] { text-align: right }
mtd[columnalign=left] { text-align: left }
th, section > p, li > span { color: light-dark(var(--light-faint), var(--dark-faint)) }
.warning, .outside { color: light-dark(var(--light-warning), var(--dark-warning)) }
@page { margin: 14mm }
@media print {
  body { max-width: none; margin: 0; padding: 0 }
  .wide { overflow: visible }
  .wide table { font-size: var(--text-print) }
  .wide :is(th, td) { padding-right: var(--space-3); overflow-wrap: anywhere }
  a { color: inherit; text-decoration: none }
  li, tr { break-inside: avoid }
  h2, h3, section > p { break-after: avoid }
}
""")

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
