"""Sweeps: many runs over settings, tasks and repeats.

`axes` builds grids and labels, `sweep` makes the runs, and `distributed` makes them on a dask cluster.
"""
