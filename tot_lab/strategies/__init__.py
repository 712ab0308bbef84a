"""Strategies: ways of reasoning, each a generator that reads like its paper's pseudo-code.

To add a strategy, define a subclass of `Strategy` in a file of its own and register it in
`tot_lab.core.registry`. `tl.methods` has all strategies, and `tl` the most common ones.
"""
