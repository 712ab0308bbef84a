"""Strategies: ways of reasoning, each a generator that reads like its paper's pseudo-code.

Add one: a file with a `Strategy`, and its name here. The contract tests take it from this list.
"""

from tot_lab.core.strategy import Strategy
from tot_lab.strategies.baselines import BestOf, ChainOfThought, OneAnswer, SelfConsistency, baselines
from tot_lab.strategies.traversals import (
    Beam,
    BestFirst,
    DepthFirst,
    FunctionTraversal,
    MonteCarloTreeSearch,
    Traversal,
    traversal,
)
from tot_lab.strategies.tree_of_thoughts import TreeOfThoughts

STRATEGIES: tuple[type[Strategy], ...] = (TreeOfThoughts, OneAnswer, ChainOfThought, BestOf, SelfConsistency)
TRAVERSALS: tuple[type[Traversal], ...] = (Beam, DepthFirst, BestFirst, MonteCarloTreeSearch)

__all__ = [
    "STRATEGIES",
    "TRAVERSALS",
    "Beam",
    "BestFirst",
    "BestOf",
    "ChainOfThought",
    "DepthFirst",
    "FunctionTraversal",
    "MonteCarloTreeSearch",
    "OneAnswer",
    "SelfConsistency",
    "Traversal",
    "TreeOfThoughts",
    "baselines",
    "traversal",
]
