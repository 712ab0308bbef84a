"""Tree search and the values of its axes: proposers, evaluators, searches, answers and stop.

To add a search, write a file with a `Search` and add its line to `tot_lab.core.registry`. The contract tests
then cover it.
"""

from tot_lab.strategies.search.answers import AnswerRule, Best, BestLeaf, BestPath, Deepest
from tot_lab.strategies.search.beam_search import BeamSearch
from tot_lab.strategies.search.best_first import BestFirst
from tot_lab.strategies.search.depth_first import DepthFirst
from tot_lab.strategies.search.evaluators import (
    BatchEvaluator,
    Evaluator,
    FunctionEvaluator,
    Joint,
    Logprob,
    Parts,
    Value,
    Vote,
)
from tot_lab.strategies.search.mcts import MCTS
from tot_lab.strategies.search.proposers import Propose, Proposer, Sample, WithTools
from tot_lab.strategies.search.searches import FunctionSearch, Pick, Search, Searching, SearchState
from tot_lab.strategies.search.stop import Stop
from tot_lab.strategies.search.tree_of_thoughts import TreeOfThoughts

__all__ = [
    "MCTS",
    "AnswerRule",
    "BatchEvaluator",
    "BeamSearch",
    "Best",
    "BestFirst",
    "BestLeaf",
    "BestPath",
    "Deepest",
    "DepthFirst",
    "Evaluator",
    "FunctionEvaluator",
    "FunctionSearch",
    "Joint",
    "Logprob",
    "Parts",
    "Pick",
    "Propose",
    "Proposer",
    "Sample",
    "Search",
    "SearchState",
    "Searching",
    "Stop",
    "TreeOfThoughts",
    "Value",
    "Vote",
    "WithTools",
]
