"""The built-in domains. A domain has the prompts, reply parsers, rules and grading of a family of tasks.

To add a domain, write a module with a subclass of `Domain` and add its line to `tot_lab.core.registry`.
"""

import inspect

from tot_lab.domains.constrained import Constrained as Constrained
from tot_lab.domains.constrained import constrained as constrained
from tot_lab.domains.constrained import constrained_tasks as constrained_tasks
from tot_lab.domains.constrained import rules_kept as rules_kept
from tot_lab.domains.creative_writing import CreativeWriting as CreativeWriting
from tot_lab.domains.creative_writing import creative_writing as creative_writing
from tot_lab.domains.creative_writing import creative_writing_tasks as creative_writing_tasks
from tot_lab.domains.game24 import Game24 as Game24
from tot_lab.domains.game24 import game24 as game24
from tot_lab.domains.game24 import game24_tasks as game24_tasks
from tot_lab.domains.game24 import hands as hands
from tot_lab.domains.general import General as General
from tot_lab.domains.general import general as general
from tot_lab.domains.loading import tasks as tasks
from tot_lab.domains.mini_crossword import CrosswordScores as CrosswordScores
from tot_lab.domains.mini_crossword import MiniCrossword as MiniCrossword
from tot_lab.domains.mini_crossword import mini_crossword as mini_crossword
from tot_lab.domains.mini_crossword import mini_crossword_scores as mini_crossword_scores
from tot_lab.domains.mini_crossword import mini_crossword_tasks as mini_crossword_tasks
from tot_lab.domains.multi_hop import MultiHop as MultiHop
from tot_lab.domains.multi_hop import multi_hop as multi_hop
from tot_lab.domains.multi_hop import multi_hop_documents as multi_hop_documents
from tot_lab.domains.multi_hop import multi_hop_tasks as multi_hop_tasks
from tot_lab.domains.multi_hop import multi_hop_tools as multi_hop_tools
from tot_lab.domains.open_ended import OpenEnded as OpenEnded
from tot_lab.domains.open_ended import open_ended as open_ended
from tot_lab.domains.oracle import oracle as oracle
from tot_lab.domains.published import PublishedCrossword as PublishedCrossword
from tot_lab.domains.published import PublishedGame24 as PublishedGame24
from tot_lab.domains.word_sums import WordSums as WordSums
from tot_lab.domains.word_sums import word_sums as word_sums
from tot_lab.domains.word_sums import word_sums_tasks as word_sums_tasks

__all__ = [name for name, value in list(vars().items()) if name[0] != "_" and not inspect.ismodule(value)]
