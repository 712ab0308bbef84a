"""The explorer: an interactive view of a live or recorded search in the browser.

One JavaScript file (`static/explorer.js`, built from `js/`) draws the search. The Python modules serialise
runs for it. This module imports nothing, so that a run can be saved as a page without ipywidgets.
"""
