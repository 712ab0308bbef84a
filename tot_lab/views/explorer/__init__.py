"""The explorer: a search in the browser, live or recorded.

One JavaScript file (`static/explorer.js`, built from `js/`) does the drawing; the Python modules serialise
runs for it. This package imports nothing itself, so that a run can be saved as a page without a notebook.
"""
