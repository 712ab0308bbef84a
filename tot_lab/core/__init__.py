"""Calls, records, the tree, the strategy protocol, tasks and components. Nothing here reads a clock, does I/O
or draws random numbers.
"""
