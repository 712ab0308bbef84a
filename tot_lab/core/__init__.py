"""Calls, records, the tree, the strategy protocol, tasks and components.

Only `files`, `parquet`, `processes` and `keeper` read data files, start processes or read a clock. No module
draws random numbers that affect a search.
"""
