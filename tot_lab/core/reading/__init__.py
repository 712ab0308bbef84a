"""Readers of model output: what a reply states, or `None`.

Readers accept many forms, but never guess. A statement takes precedence over a mention, the last unhedged
statement over earlier ones, and a name over a position. A text with two readings is unreadable. No text makes
readers raise, and their time is linear in the length of the text.
"""
