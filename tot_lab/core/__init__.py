"""The pure heart: calls, records, the tree, thinking, reading and parts. No clock, no I/O, no randomness."""
