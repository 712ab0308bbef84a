"""Importers of the logs of other tools: one file each, whose runs are made by `tot_lab.record.nodes`.

The formats are read from the files; the tools themselves are not imported. What a log lacks is unknown
(`Header.unknown`), never invented.
"""
