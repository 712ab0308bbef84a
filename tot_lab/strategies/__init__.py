"""Strategies: ways of reasoning, each a generator that reads like its paper's pseudo-code.

To add one, write a file with a `Strategy` and add its line to `tot_lab.core.registry`.
"""

from tot_lab.strategies.acting import Acting
from tot_lab.strategies.adaptive import Adaptive
from tot_lab.strategies.baselines import BestOf, ChainOfThought, OneAnswer, SelfConsistency, baselines
from tot_lab.strategies.deep_think import DeepThink
from tot_lab.strategies.deep_think_replies import IterationResult, ThoughtBranch
from tot_lab.strategies.gather_then_think import GatherThenThink
from tot_lab.strategies.plan_execute import PlanExecute
from tot_lab.strategies.plans import Plan, PlanStep
from tot_lab.strategies.react import ReAct
from tot_lab.strategies.reflexion import Reflexion
from tot_lab.strategies.research import ResearchDelegate
from tot_lab.strategies.search import (
    MCTS,
    AnswerRule,
    BatchEvaluator,
    BeamSearch,
    Best,
    BestFirst,
    BestLeaf,
    BestPath,
    Deepest,
    DepthFirst,
    Evaluator,
    FunctionEvaluator,
    FunctionSearch,
    Joint,
    Logprob,
    Parts,
    Pick,
    Propose,
    Proposer,
    Sample,
    Search,
    SearchState,
    Stop,
    TreeOfThoughts,
    Value,
    Vote,
    WithTools,
)
from tot_lab.strategies.structured import ask_json
from tot_lab.strategies.synthesis import WithSynthesis
from tot_lab.strategies.thinking_level import ThinkingLevel, ThinkingManager, WithThinking
from tot_lab.strategies.tool_loop import ToolLoop
from tot_lab.strategies.tree_then_act import TreeThenAct

__all__ = [
    "MCTS",
    "Acting",
    "Adaptive",
    "AnswerRule",
    "BatchEvaluator",
    "BeamSearch",
    "Best",
    "BestFirst",
    "BestLeaf",
    "BestOf",
    "BestPath",
    "ChainOfThought",
    "DeepThink",
    "Deepest",
    "DepthFirst",
    "Evaluator",
    "FunctionEvaluator",
    "FunctionSearch",
    "GatherThenThink",
    "IterationResult",
    "Joint",
    "Logprob",
    "OneAnswer",
    "Parts",
    "Pick",
    "Plan",
    "PlanExecute",
    "PlanStep",
    "Propose",
    "Proposer",
    "ReAct",
    "Reflexion",
    "ResearchDelegate",
    "Sample",
    "Search",
    "SearchState",
    "SelfConsistency",
    "Stop",
    "ThinkingLevel",
    "ThinkingManager",
    "ThoughtBranch",
    "ToolLoop",
    "TreeOfThoughts",
    "TreeThenAct",
    "Value",
    "Vote",
    "WithSynthesis",
    "WithThinking",
    "WithTools",
    "ask_json",
    "baselines",
]
