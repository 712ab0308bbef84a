"""Domains. A domain contains the prompts, readers, rules and grading of a family of tasks.

To add one, write a package or file with a `Domain` and add its line to `tot_lab.core.registry`.
"""

from tot_lab.domains.constrained import Constrained, constrained, constrained_tasks, rules_kept
from tot_lab.domains.creative_writing import CreativeWriting, creative_writing, creative_writing_tasks
from tot_lab.domains.game24 import Game24, game24, game24_tasks, hands
from tot_lab.domains.general import General, general
from tot_lab.domains.loading import tasks
from tot_lab.domains.mini_crossword import (
    CrosswordScores,
    MiniCrossword,
    mini_crossword,
    mini_crossword_scores,
    mini_crossword_tasks,
)
from tot_lab.domains.multi_hop import (
    MultiHop,
    multi_hop,
    multi_hop_documents,
    multi_hop_tasks,
    multi_hop_tools,
)
from tot_lab.domains.open_ended import OpenEnded, open_ended
from tot_lab.domains.oracle import oracle
from tot_lab.domains.published import PublishedCrossword, PublishedGame24
from tot_lab.domains.word_sums import WordSums, word_sums, word_sums_tasks

__all__ = [
    "Constrained",
    "CreativeWriting",
    "CrosswordScores",
    "Game24",
    "General",
    "MiniCrossword",
    "MultiHop",
    "OpenEnded",
    "PublishedCrossword",
    "PublishedGame24",
    "WordSums",
    "constrained",
    "constrained_tasks",
    "creative_writing",
    "creative_writing_tasks",
    "game24",
    "game24_tasks",
    "general",
    "hands",
    "mini_crossword",
    "mini_crossword_scores",
    "mini_crossword_tasks",
    "multi_hop",
    "multi_hop_documents",
    "multi_hop_tasks",
    "multi_hop_tools",
    "open_ended",
    "oracle",
    "rules_kept",
    "tasks",
    "word_sums",
    "word_sums_tasks",
]
