"""The explorer: a search in the browser, live or recorded.

Rule: what draws lives in one JavaScript file (`static/explorer.js`, made from `js/`); what is here tells
it of runs. Nothing is imported before it is used: a run can be saved as a page without a notebook.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tot_lab.explorer.page import save_html
    from tot_lab.explorer.widget import Compare, Explorer

_WHERE = {"Compare": "widget", "Explorer": "widget", "save_html": "page"}


def __getattr__(name: str) -> Any:
    from importlib import import_module  # noqa: PLC0415

    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)


__all__ = ["Compare", "Explorer", "save_html"]
