"""Tree search and its replaceable parts: proposers, evaluators, searches, answer rules and stop settings.

To add a search, define a subclass of `Search` in a file of its own and register it in
`tot_lab.core.registry`. The contract tests then cover it.
"""

import inspect

from tot_lab.strategies.search.answers import AnswerRule as AnswerRule
from tot_lab.strategies.search.answers import Best as Best
from tot_lab.strategies.search.answers import BestLeaf as BestLeaf
from tot_lab.strategies.search.answers import BestPath as BestPath
from tot_lab.strategies.search.answers import Deepest as Deepest
from tot_lab.strategies.search.beam_search import BeamSearch as BeamSearch
from tot_lab.strategies.search.best_first import BestFirst as BestFirst
from tot_lab.strategies.search.depth_first import DepthFirst as DepthFirst
from tot_lab.strategies.search.evaluators import BatchEvaluator as BatchEvaluator
from tot_lab.strategies.search.evaluators import Evaluator as Evaluator
from tot_lab.strategies.search.evaluators import FunctionEvaluator as FunctionEvaluator
from tot_lab.strategies.search.evaluators import Joint as Joint
from tot_lab.strategies.search.evaluators import Logprob as Logprob
from tot_lab.strategies.search.evaluators import Parts as Parts
from tot_lab.strategies.search.evaluators import Value as Value
from tot_lab.strategies.search.evaluators import Vote as Vote
from tot_lab.strategies.search.mcts import MCTS as MCTS
from tot_lab.strategies.search.proposers import Propose as Propose
from tot_lab.strategies.search.proposers import Proposer as Proposer
from tot_lab.strategies.search.proposers import Sample as Sample
from tot_lab.strategies.search.proposers import WithTools as WithTools
from tot_lab.strategies.search.searches import FunctionSearch as FunctionSearch
from tot_lab.strategies.search.searches import Pick as Pick
from tot_lab.strategies.search.searches import Search as Search
from tot_lab.strategies.search.searches import Searching as Searching
from tot_lab.strategies.search.searches import SearchState as SearchState
from tot_lab.strategies.search.searches import Stop as Stop
from tot_lab.strategies.search.tree_of_thoughts import TreeOfThoughts as TreeOfThoughts

__all__ = [name for name, value in list(vars().items()) if name[0] != "_" and not inspect.ismodule(value)]
