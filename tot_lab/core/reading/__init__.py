"""Readers of model output: what a reply states, or `None`.

Readers accept many forms, but never guess. A statement beats a mention, the last unhedged statement beats
earlier ones, a name beats a position, and two readings are no reading. No text makes them raise, and their
time is linear in the text.
"""
