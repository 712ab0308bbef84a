"""Puzzles with legal moves, such as those of reasoning-gym, as domains of search.

Most modules contain one family of puzzles. `base.py` contains what all families have in common, and a few
families have a solver (`…_solver.py`). A domain reads its puzzle from the question, so it needs neither
reasoning-gym nor the metadata of a task, except for the vocabulary of word ladders. The rules are those of
reasoning-gym's generators (https://github.com/open-thought/reasoning-gym).
"""
