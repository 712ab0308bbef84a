"""Importers of the logs of other tools: one module each. `tot_lab.record.nodes` makes the runs.

The formats are read from the files; the tools themselves are not imported. Data that a log lacks is unknown
(`Header.unknown`), never invented.
"""
