"""Puzzles with legal moves, such as those of reasoning-gym, as domains of search.

Each file contains a family, and `base.py` all that families have in common. A domain reads its puzzle from
the question, so it needs neither reasoning-gym nor the metadata of a task, except for the vocabulary of word
ladders. The rules are those of reasoning-gym's generators (https://github.com/open-thought/reasoning-gym).
"""
