"""Readers of model output: what a reply states, or `None`.

Readers accept many formats, but never guess. A statement takes precedence over a mention, the last unhedged
statement over earlier ones, and a name over a position. A text with two readings is unreadable. Readers raise
no error for any text, and their time is linear in its length.
"""
