"""The saved form of a widget, for readers of a notebook without its kernel.

A widget needs its kernel. After a restart, in nbconvert, on nbviewer and on code hosts it is not drawn. So a
cell has two outputs: the saved form, which is HTML and text, and the widget below it. The widget contains a
style that hides the saved form. The HTML has a card for each run with a picture of its tree, which needs no
scripts, and the page of the runs in a sandboxed frame with an origin of its own.
"""

from __future__ import annotations

import base64
import gzip
import uuid
from collections.abc import Sequence
from html import escape
from typing import Any

from tot_lab.record.run import Run

LARGEST = 300_000
"""Maximum number of bytes of the saved form in a cell."""

MOST_LINES = 5_000
"""Maximum number of journal lines, of all runs together. With more, the saved form lacks the page of the
runs, and is built only after the widget is displayed.
"""

_WIDGET = "application/vnd.jupyter.widget-view+json"

# Compression halves the size of a cell. After the page is unpacked, its own security policy applies.
_UNPACK = """<!doctype html><meta charset="utf-8"><script>
(async () => {
  const bytes = Uint8Array.from(atob("PAGE"), (sign) => sign.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const page = await new Response(stream).text();
  document.open();
  document.write(page);
  document.close();
})();
</script>"""

# Hides JupyterLab's message about a widget without a kernel. The selectors in `:has` match few levels,
# because a browser evaluates them again after each change in the elements that they cover.
_HIDE = (
    "<style>.jp-OutputArea-child:has(>*>[data-saved])+.jp-OutputArea-child>.jupyter-widgets:not(:has(>*))"
    "{display:none}</style>"
)


def frame(page: bytes, title: str, height: int) -> str:
    """Return a page in a sandboxed frame, which cannot access the notebook, as HTML for a notebook cell."""
    packed = base64.b64encode(gzip.compress(page, mtime=0)).decode()
    return (
        f'<iframe sandbox="allow-scripts allow-downloads" title="{escape(title)}" loading="lazy" '
        f'style="width:100%;height:{height}px;border:0" srcdoc="{escape(_UNPACK.replace("PAGE", packed))}">'
        "</iframe>"
    )


def saved_html(runs: Sequence[Run], *, unfolded: bool = False) -> str:
    """Return the cards of one or two runs, and their page in a frame.

    Args:
        runs: The runs.
        unfolded: Show the page at once, whatever its size. Otherwise it is folded, and left out if the runs
            have more than `MOST_LINES` lines or the HTML would exceed `LARGEST` bytes.
    """
    from tot_lab.views.explorer.page import page  # noqa: PLC0415  the widget is drawn first
    from tot_lab.views.report import run_html  # noqa: PLC0415

    cards = "".join(map(run_html, runs))
    these = "these runs" if runs[1:] else "this run"
    if unfolded or sum(len(run.lines) for run in runs) <= MOST_LINES:
        shown = (
            f"<details{' open' if unfolded else ''}><summary>explore {these} (needs no kernel)</summary>"
            f"{frame(page(*runs), 'search', 640)}</details>"
        )
        if unfolded or len((cards + shown).encode()) < LARGEST - 10_000:  # the rest is for the text form
            return cards + shown
    return (
        f"{cards}<p>The page of {these} is too large for the notebook: "
        "explorer.save_html(path) writes it as a file.</p>"
    )


class SavedPage:
    """The cards and the page of one or two runs, as `explorer.static()` shows them in a notebook cell."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs

    def __repr__(self) -> str:
        from tot_lab.views.report import run_text  # noqa: PLC0415

        return "\n".join(map(run_text, self.runs))

    def _repr_html_(self) -> str:
        return saved_html(self.runs, unfolded=True)


class Saved:
    """Mixin that leaves a saved form of a widget in the notebook. It must precede the ipywidgets class."""

    _saved_as = ""  # id of the output that contains the saved form

    def _bring(self, style: str) -> None:
        """Add `style`, which hides the saved form, to the notebook for as long as the widget is drawn.

        A permanent rule in the saved form, `:root:has(…)`, would slow down each change of a large notebook.
        """
        raise NotImplementedError

    def _saved_form(self) -> dict[str, str]:
        """Return the saved form: HTML and text."""
        raise NotImplementedError

    def _live_form(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what ipywidgets displays: data and metadata."""
        shown = super()._repr_mimebundle_()  # type: ignore[misc]
        return shown if isinstance(shown, tuple) else (shown, {})

    def _repr_mimebundle_(self, **options: Any) -> Any:
        data, metadata = self._live_form()
        return {**data, **self._saved_form()}, metadata

    def _ipython_display_(self) -> None:
        from IPython.display import display  # noqa: PLC0415  only a notebook needs it

        if not self._saved_as:
            self._saved_as = f"tot-lab-{uuid.uuid4().hex}"
            self._bring(f"[data-saved={self._saved_as}]{{display:none}}")
        data, _ = self._live_form()
        # A style sheet in a large notebook takes time, so it is left out of a form that is displayed later.
        empty = {"text/html": "", "text/plain": data["text/plain"]}
        form = empty if self._save_later() else self._labelled(self._saved_form())
        display(form, raw=True, display_id=self._saved_as)
        # Empty texts, because nbconvert warns about an output that it cannot show.
        display({_WIDGET: data[_WIDGET], "text/html": "", "text/plain": ""}, raw=True)

    def _save_later(self) -> bool:
        """Return whether the saved form takes so long that it is displayed only after the widget."""
        return False

    def _save(self) -> None:
        """Update the displayed saved form, unless `_save_later` defers this."""
        if self._saved_as and not self._save_later():
            self._save_now()

    def _save_now(self) -> None:
        """Update the displayed saved form."""
        if self._saved_as:
            from IPython.display import update_display  # noqa: PLC0415

            update_display(self._labelled(self._saved_form()), raw=True, display_id=self._saved_as)

    def _labelled(self, form: dict[str, str]) -> dict[str, str]:
        html = f'{_HIDE}<div data-saved="{self._saved_as}">{form["text/html"]}</div>'
        return {"text/html": html, "text/plain": form["text/plain"]}
