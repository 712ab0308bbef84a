"""Strategies: ways of reasoning, each a generator that reads like its paper's pseudo-code.

To add one, write a file with a `Strategy` and add its line to `tot_lab.core.registry`. `tl` and `tl.methods`
offer them all.
"""
