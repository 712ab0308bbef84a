"""The explorer: a search in the browser, live or recorded.

What draws lives in one JavaScript file (`static/explorer.js`, made from `js/`); what is here tells
it of runs. Nothing is imported before it is used: a run can be saved as a page without a notebook.
"""
