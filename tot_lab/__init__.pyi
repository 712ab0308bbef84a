"""The names of `tl`; `python tests/contract/test_names.py` writes this file."""

from typing import Any, TypeAlias

from tot_lab import domains as domains
from tot_lab import tools as tools
from tot_lab._version import __version__ as __version__
from tot_lab.analysis.counterfactuals import Counterfactual as _Counterfactual
from tot_lab.analysis.counterfactuals import counterfactual as counterfactual
from tot_lab.analysis.deep_thought import DeepThought as _DeepThought
from tot_lab.analysis.deep_thought import deep_thought as deep_thought
from tot_lab.analysis.diagnosis import Diagnosis as _Diagnosis
from tot_lab.analysis.diagnosis import Finding as _Finding
from tot_lab.analysis.difficulty import compute_optimal as _compute_optimal
from tot_lab.analysis.difficulty import difficulty_bins as _difficulty_bins
from tot_lab.analysis.estimators import best_of_k as _best_of_k
from tot_lab.analysis.estimators import majority_at_k as _majority_at_k
from tot_lab.analysis.estimators import pass_at_k as _pass_at_k
from tot_lab.analysis.estimators import samples as _samples
from tot_lab.analysis.judging import EvaluatorDiagnosis as _EvaluatorDiagnosis
from tot_lab.analysis.judging import judge_evaluator as _judge_evaluator
from tot_lab.analysis.matched_cost import anytime_performance as _anytime_performance
from tot_lab.analysis.matched_cost import at_matched_cost as _at_matched_cost
from tot_lab.analysis.matched_cost import pareto_frontier as _pareto_frontier
from tot_lab.analysis.matching import match as match
from tot_lab.analysis.routing import Calibrated as _Calibrated
from tot_lab.analysis.routing import calibrate_router as _calibrate_router
from tot_lab.analysis.routing import regret as _regret
from tot_lab.analysis.routing import routed as _routed
from tot_lab.analysis.statistics import Comparison as _Comparison
from tot_lab.analysis.statistics import compare as _compare
from tot_lab.analysis.statistics import compare_all as _compare_all
from tot_lab.analysis.statistics import lost_calls as _lost_calls
from tot_lab.analysis.statistics import minimum_detectable_difference as _minimum_detectable_difference
from tot_lab.analysis.statistics import required_sample_size as _required_sample_size
from tot_lab.analysis.statistics import success_rates as _success_rates
from tot_lab.analysis.training import math_shepherd as _math_shepherd
from tot_lab.analysis.training import preference as _preference
from tot_lab.analysis.training import prm800k as _prm800k
from tot_lab.analysis.training import stepwise as _stepwise
from tot_lab.analysis.training import unpaired as _unpaired
from tot_lab.analysis.why import diagnose as diagnose
from tot_lab.apps.deep_thinking import NoModel as _NoModel
from tot_lab.apps.deep_thinking import think as think
from tot_lab.apps.deep_thinking import think_sync as think_sync
from tot_lab.core.calls import Call as Call
from tot_lab.core.calls import Message as _Message
from tot_lab.core.calls import Reply as Reply
from tot_lab.core.calls import TokenLogprob as _TokenLogprob
from tot_lab.core.calls import ToolCall as _ToolCall
from tot_lab.core.calls import halts as _halts
from tot_lab.core.calls import stop_of as _stop_of
from tot_lab.core.parts import Part as Part
from tot_lab.core.parts import part_of as part_of
from tot_lab.core.policy import EffectPolicy as EffectPolicy
from tot_lab.core.protocol import Budget as Budget
from tot_lab.core.protocol import BudgetLeft as _BudgetLeft
from tot_lab.core.protocol import Procedure as Procedure
from tot_lab.core.protocol import ask as ask
from tot_lab.core.protocol import emit as emit
from tot_lab.core.protocol import gather as gather
from tot_lab.core.protocol import resample as resample
from tot_lab.core.protocol import with_budget as with_budget
from tot_lab.core.protocol import with_timeout as with_timeout
from tot_lab.core.records import Decided as _Decided
from tot_lab.core.records import Ended as _Ended
from tot_lab.core.records import Note as Note
from tot_lab.core.records import Scored as _Scored
from tot_lab.core.records import Thought as Thought
from tot_lab.core.records import parent_of as _parent_of
from tot_lab.core.strategy import Prompting as Prompting
from tot_lab.core.strategy import Strategy as Strategy
from tot_lab.core.task import Answer as Answer
from tot_lab.core.task import Domain as Domain
from tot_lab.core.task import Task as Task
from tot_lab.core.tool import Tool as Tool
from tot_lab.core.tool import tool as tool
from tot_lab.core.tree import Node as Node
from tot_lab.core.tree import Tree as Tree
from tot_lab.domains import game24 as game24
from tot_lab.domains import game24_tasks as game24_tasks
from tot_lab.domains import general as general
from tot_lab.domains import open_ended as open_ended
from tot_lab.domains import tasks as tasks
from tot_lab.domains.agent_player import SimAgent as _SimAgent
from tot_lab.domains.constrained.player import SimConstrained as _SimConstrained
from tot_lab.domains.creative_writing.player import SimCreativeWriting as _SimCreativeWriting
from tot_lab.domains.game24.player import SimGame24 as _SimGame24
from tot_lab.domains.general.player import SimGeneral as _SimGeneral
from tot_lab.domains.mini_crossword.player import SimMiniCrossword as _SimMiniCrossword
from tot_lab.domains.puzzles.player import SimPuzzle as _SimPuzzle
from tot_lab.interop.inspect_solver import think as _think
from tot_lab.interop.opentelemetry import OpenTelemetry as OpenTelemetry
from tot_lab.interop.trackers import mlflow as _mlflow
from tot_lab.interop.trackers import wandb as _wandb
from tot_lab.lab.context import SessionMemory as SessionMemory
from tot_lab.lab.lab import Lab as Lab
from tot_lab.lab.lab import Stream as _Stream
from tot_lab.lab.lessons import Lessons as Lessons
from tot_lab.lab.lessons import LessonsError as _LessonsError
from tot_lab.lab.model_settings import SettingsError as _SettingsError
from tot_lab.lab.plan_store import PlanStore as PlanStore
from tot_lab.lab.session import Busy as _Busy
from tot_lab.lab.session import Session as Session
from tot_lab.lab.settings import Settings as Settings
from tot_lab.lab.sweeps.axes import grid as grid
from tot_lab.lab.sweeps.sweep import Sweep as Sweep
from tot_lab.models import Cache as Cache
from tot_lab.models import CacheError as _CacheError
from tot_lab.models import CacheMiss as _CacheMiss
from tot_lab.models import LiteLLM as LiteLLM
from tot_lab.models import Local as Local
from tot_lab.models import OpenAICompatible as OpenAICompatible
from tot_lab.record.importers import load as load
from tot_lab.record.journal import JournalError as _JournalError
from tot_lab.record.logs.completions import from_completions as _from_completions
from tot_lab.record.logs.objects import from_its_hub as _from_its_hub
from tot_lab.record.logs.objects import from_treequest as _from_treequest
from tot_lab.record.marks import Mark as _Mark
from tot_lab.record.node_tables import read_nodes as read_nodes
from tot_lab.record.routed import Routed as _Routed
from tot_lab.record.run import Run as Run
from tot_lab.record.run import Usage as _Usage
from tot_lab.runtime.recorder import Divergence as _Divergence
from tot_lab.runtime.recorder import Recorder as Recorder
from tot_lab.runtime.replay import Replay as _Replay
from tot_lab.runtime.roles import Role as Role
from tot_lab.strategies import presets as presets
from tot_lab.strategies.adaptive import Adaptive as Adaptive
from tot_lab.strategies.adaptive import Adaptive as _Adaptive
from tot_lab.strategies.baselines import BestOf as BestOf
from tot_lab.strategies.baselines import BestOf as _BestOf
from tot_lab.strategies.baselines import ChainOfThought as ChainOfThought
from tot_lab.strategies.baselines import ChainOfThought as _ChainOfThought
from tot_lab.strategies.baselines import OneAnswer as OneAnswer
from tot_lab.strategies.baselines import OneAnswer as _OneAnswer
from tot_lab.strategies.baselines import SelfConsistency as SelfConsistency
from tot_lab.strategies.baselines import SelfConsistency as _SelfConsistency
from tot_lab.strategies.baselines import baselines as baselines
from tot_lab.strategies.budget_forcing import BudgetForcing as _BudgetForcing
from tot_lab.strategies.debate import Debate as _Debate
from tot_lab.strategies.deep_conf import DeepConf as _DeepConf
from tot_lab.strategies.deep_conf import DeepConfOnline as _DeepConfOnline
from tot_lab.strategies.deep_think import DeepThink as DeepThink
from tot_lab.strategies.deep_think import DeepThink as _DeepThink
from tot_lab.strategies.deep_think_replies import IterationResult as _IterationResult
from tot_lab.strategies.deep_think_replies import ThoughtBranch as _ThoughtBranch
from tot_lab.strategies.early_stopping import EarlyStopping as _EarlyStopping
from tot_lab.strategies.forest_of_thoughts import ForestOfThoughts as _ForestOfThoughts
from tot_lab.strategies.gather_then_think import GatherThenThink as GatherThenThink
from tot_lab.strategies.gather_then_think import GatherThenThink as _GatherThenThink
from tot_lab.strategies.mixture_of_agents import MixtureOfAgents as _MixtureOfAgents
from tot_lab.strategies.plan_execute import PlanExecute as PlanExecute
from tot_lab.strategies.plan_execute import PlanExecute as _PlanExecute
from tot_lab.strategies.plans import Plan as _Plan
from tot_lab.strategies.plans import PlanStep as _PlanStep
from tot_lab.strategies.react import ReAct as ReAct
from tot_lab.strategies.react import ReAct as _ReAct
from tot_lab.strategies.reflexion import Reflexion as Reflexion
from tot_lab.strategies.reflexion import Reflexion as _Reflexion
from tot_lab.strategies.research import ResearchDelegate as _ResearchDelegate
from tot_lab.strategies.search import MCTS as MCTS
from tot_lab.strategies.search import MCTS as _MCTS
from tot_lab.strategies.search import AnswerRule as _AnswerRule
from tot_lab.strategies.search import BatchEvaluator as _BatchEvaluator
from tot_lab.strategies.search import BeamSearch as BeamSearch
from tot_lab.strategies.search import BeamSearch as _BeamSearch
from tot_lab.strategies.search import Best as _Best
from tot_lab.strategies.search import BestFirst as BestFirst
from tot_lab.strategies.search import BestFirst as _BestFirst
from tot_lab.strategies.search import BestLeaf as _BestLeaf
from tot_lab.strategies.search import BestPath as _BestPath
from tot_lab.strategies.search import Deepest as _Deepest
from tot_lab.strategies.search import DepthFirst as DepthFirst
from tot_lab.strategies.search import DepthFirst as _DepthFirst
from tot_lab.strategies.search import Evaluator as _Evaluator
from tot_lab.strategies.search import FunctionEvaluator as _FunctionEvaluator
from tot_lab.strategies.search import FunctionSearch as _FunctionSearch
from tot_lab.strategies.search import Joint as _Joint
from tot_lab.strategies.search import Logprob as _Logprob
from tot_lab.strategies.search import Parts as _Parts
from tot_lab.strategies.search import Pick as Pick
from tot_lab.strategies.search import Propose as Propose
from tot_lab.strategies.search import Propose as _Propose
from tot_lab.strategies.search import Proposer as _Proposer
from tot_lab.strategies.search import Sample as Sample
from tot_lab.strategies.search import Sample as _Sample
from tot_lab.strategies.search import Search as _Search
from tot_lab.strategies.search import SearchState as _SearchState
from tot_lab.strategies.search import Stop as Stop
from tot_lab.strategies.search import TreeOfThoughts as TreeOfThoughts
from tot_lab.strategies.search import TreeOfThoughts as _TreeOfThoughts
from tot_lab.strategies.search import Value as Value
from tot_lab.strategies.search import Value as _Value
from tot_lab.strategies.search import Vote as Vote
from tot_lab.strategies.search import Vote as _Vote
from tot_lab.strategies.search import WithTools as WithTools
from tot_lab.strategies.search import WithTools as _WithTools
from tot_lab.strategies.search.a_star import AStar as _AStar
from tot_lab.strategies.search.ab_mcts_a import ABMCTSA as _ABMCTSA
from tot_lab.strategies.search.ab_mcts_m import ABMCTSM as _ABMCTSM
from tot_lab.strategies.search.agreement import Agreement as _Agreement
from tot_lab.strategies.search.bg_mcts import BGMCTS as _BGMCTS
from tot_lab.strategies.search.breadth_first import BreadthFirst as _BreadthFirst
from tot_lab.strategies.search.continuation import Continue as _Continue
from tot_lab.strategies.search.dvts import DVTS as _DVTS
from tot_lab.strategies.search.first_complete import FirstComplete as _FirstComplete
from tot_lab.strategies.search.graph_of_thoughts import GraphOfThoughts as _GraphOfThoughts
from tot_lab.strategies.search.lats import LATS as _LATS
from tot_lab.strategies.search.levin import Levin as _Levin
from tot_lab.strategies.search.likelihood import Likelihood as _Likelihood
from tot_lab.strategies.search.majority_vote import MajorityVote as _MajorityVote
from tot_lab.strategies.search.mixture import Mixture as _Mixture
from tot_lab.strategies.search.mur import MUR as _MUR
from tot_lab.strategies.search.particle_filter import ParticleFilter as _ParticleFilter
from tot_lab.strategies.search.particle_gibbs import ParticleGibbs as _ParticleGibbs
from tot_lab.strategies.search.phi_decoding import PhiDecoding as _PhiDecoding
from tot_lab.strategies.search.prm_beam import PRMBeam as _PRMBeam
from tot_lab.strategies.search.rebase import REBASE as _REBASE
from tot_lab.strategies.search.refine import Refine as _Refine
from tot_lab.strategies.search.reward_model import RewardModel as _RewardModel
from tot_lab.strategies.search.rollout import Rollout as _Rollout
from tot_lab.strategies.search.sampled_beam import SampledBeam as _SampledBeam
from tot_lab.strategies.search.self_certainty import SelfCertainty as _SelfCertainty
from tot_lab.strategies.search.tournament import Tournament as _Tournament
from tot_lab.strategies.search.uncertainty_branching import UncertaintyBranching as _UncertaintyBranching
from tot_lab.strategies.self_refine import SelfRefine as _SelfRefine
from tot_lab.strategies.structured import ask_json as ask_json
from tot_lab.strategies.synthesis import WithSynthesis as WithSynthesis
from tot_lab.strategies.synthesis import WithSynthesis as _WithSynthesis
from tot_lab.strategies.thinking_level import ThinkingLevel as _ThinkingLevel
from tot_lab.strategies.thinking_level import ThinkingManager as _ThinkingManager
from tot_lab.strategies.thinking_level import WithThinking as WithThinking
from tot_lab.strategies.thinking_level import WithThinking as _WithThinking
from tot_lab.strategies.tool_loop import ToolLoop as ToolLoop
from tot_lab.strategies.tool_loop import ToolLoop as _ToolLoop
from tot_lab.strategies.tree_then_act import TreeThenAct as TreeThenAct
from tot_lab.strategies.tree_then_act import TreeThenAct as _TreeThenAct
from tot_lab.strategies.verified import Verified as _Verified
from tot_lab.strategies.weighted_best_of import WeightedBestOf as _WeightedBestOf
from tot_lab.views.explorer.panel import panel as panel
from tot_lab.views.explorer.widget import CompareExplorer as CompareExplorer
from tot_lab.views.explorer.widget import Explorer as Explorer
from tot_lab.views.figures import graph_of as _graph_of
from tot_lab.views.figures.calibration import plot_calibration as _plot_calibration
from tot_lab.views.figures.confidence import plot_confidence as _plot_confidence
from tot_lab.views.figures.cost import plot_cost as _plot_cost
from tot_lab.views.figures.frontier import plot_pareto as _plot_pareto
from tot_lab.views.figures.heatmap import plot_heatmap as _plot_heatmap
from tot_lab.views.figures.importance import plot_importance as _plot_importance
from tot_lab.views.figures.saving import save as _save
from tot_lab.views.figures.scaling import plot_scaling as _plot_scaling
from tot_lab.views.figures.scores import plot_scores as _plot_scores
from tot_lab.views.figures.sweep import plot_sweep as _plot_sweep
from tot_lab.views.figures.timeline import plot_timeline as _plot_timeline
from tot_lab.views.figures.tree import plot_tree as _plot_tree
from tot_lab.views.report import report_html as _report_html

class methods:
    """All strategies, including those that are not directly in `tl`."""

    Adaptive: TypeAlias = _Adaptive
    BestOf: TypeAlias = _BestOf
    BudgetForcing: TypeAlias = _BudgetForcing
    ChainOfThought: TypeAlias = _ChainOfThought
    Debate: TypeAlias = _Debate
    DeepConf: TypeAlias = _DeepConf
    DeepConfOnline: TypeAlias = _DeepConfOnline
    DeepThink: TypeAlias = _DeepThink
    EarlyStopping: TypeAlias = _EarlyStopping
    ForestOfThoughts: TypeAlias = _ForestOfThoughts
    GatherThenThink: TypeAlias = _GatherThenThink
    MixtureOfAgents: TypeAlias = _MixtureOfAgents
    OneAnswer: TypeAlias = _OneAnswer
    PlanExecute: TypeAlias = _PlanExecute
    ReAct: TypeAlias = _ReAct
    Reflexion: TypeAlias = _Reflexion
    SelfConsistency: TypeAlias = _SelfConsistency
    SelfRefine: TypeAlias = _SelfRefine
    ToolLoop: TypeAlias = _ToolLoop
    TreeOfThoughts: TypeAlias = _TreeOfThoughts
    TreeThenAct: TypeAlias = _TreeThenAct
    Verified: TypeAlias = _Verified
    WeightedBestOf: TypeAlias = _WeightedBestOf
    WithSynthesis: TypeAlias = _WithSynthesis
    WithThinking: TypeAlias = _WithThinking

class proposers:
    """Proposers of a tree search: they generate the child thoughts."""

    Continue: TypeAlias = _Continue
    Mixture: TypeAlias = _Mixture
    Propose: TypeAlias = _Propose
    Proposer: TypeAlias = _Proposer
    Refine: TypeAlias = _Refine
    Sample: TypeAlias = _Sample
    WithTools: TypeAlias = _WithTools

class evaluators:
    """Evaluators of a tree search: they score the thoughts."""

    Agreement: TypeAlias = _Agreement
    BatchEvaluator: TypeAlias = _BatchEvaluator
    Evaluator: TypeAlias = _Evaluator
    FunctionEvaluator: TypeAlias = _FunctionEvaluator
    Joint: TypeAlias = _Joint
    Likelihood: TypeAlias = _Likelihood
    Logprob: TypeAlias = _Logprob
    Parts: TypeAlias = _Parts
    RewardModel: TypeAlias = _RewardModel
    Rollout: TypeAlias = _Rollout
    SelfCertainty: TypeAlias = _SelfCertainty
    Tournament: TypeAlias = _Tournament
    Value: TypeAlias = _Value
    Vote: TypeAlias = _Vote

class searches:
    """Search algorithms: they select which thoughts are expanded next."""

    ABMCTSA: TypeAlias = _ABMCTSA
    ABMCTSM: TypeAlias = _ABMCTSM
    AStar: TypeAlias = _AStar
    BGMCTS: TypeAlias = _BGMCTS
    BeamSearch: TypeAlias = _BeamSearch
    BestFirst: TypeAlias = _BestFirst
    BreadthFirst: TypeAlias = _BreadthFirst
    BudgetLeft: TypeAlias = _BudgetLeft
    DVTS: TypeAlias = _DVTS
    DepthFirst: TypeAlias = _DepthFirst
    FunctionSearch: TypeAlias = _FunctionSearch
    GraphOfThoughts: TypeAlias = _GraphOfThoughts
    LATS: TypeAlias = _LATS
    Levin: TypeAlias = _Levin
    MCTS: TypeAlias = _MCTS
    MUR: TypeAlias = _MUR
    PRMBeam: TypeAlias = _PRMBeam
    ParticleFilter: TypeAlias = _ParticleFilter
    ParticleGibbs: TypeAlias = _ParticleGibbs
    PhiDecoding: TypeAlias = _PhiDecoding
    REBASE: TypeAlias = _REBASE
    SampledBeam: TypeAlias = _SampledBeam
    Search: TypeAlias = _Search
    SearchState: TypeAlias = _SearchState
    UncertaintyBranching: TypeAlias = _UncertaintyBranching

class answers:
    """Answer rules of a tree search: they choose its answer from the thoughts."""

    AnswerRule: TypeAlias = _AnswerRule
    Best: TypeAlias = _Best
    BestLeaf: TypeAlias = _BestLeaf
    BestPath: TypeAlias = _BestPath
    Deepest: TypeAlias = _Deepest
    FirstComplete: TypeAlias = _FirstComplete
    MajorityVote: TypeAlias = _MajorityVote

class sim:
    """Simulated models, one for each domain."""

    SimAgent: TypeAlias = _SimAgent
    SimConstrained: TypeAlias = _SimConstrained
    SimCreativeWriting: TypeAlias = _SimCreativeWriting
    SimGame24: TypeAlias = _SimGame24
    SimGeneral: TypeAlias = _SimGeneral
    SimMiniCrossword: TypeAlias = _SimMiniCrossword
    SimPuzzle: TypeAlias = _SimPuzzle

class figures:
    """Figures of runs and sweeps."""

    graph_of = _graph_of
    plot_calibration = _plot_calibration
    plot_confidence = _plot_confidence
    plot_cost = _plot_cost
    plot_heatmap = _plot_heatmap
    plot_importance = _plot_importance
    plot_pareto = _plot_pareto
    plot_scaling = _plot_scaling
    plot_scores = _plot_scores
    plot_sweep = _plot_sweep
    plot_timeline = _plot_timeline
    plot_tree = _plot_tree
    report_html = _report_html
    save = _save

class stats:
    """Statistics of sweeps, routers and evaluators."""

    Calibrated: TypeAlias = _Calibrated
    Comparison: TypeAlias = _Comparison
    Counterfactual: TypeAlias = _Counterfactual
    DeepThought: TypeAlias = _DeepThought
    Diagnosis: TypeAlias = _Diagnosis
    EvaluatorDiagnosis: TypeAlias = _EvaluatorDiagnosis
    Finding: TypeAlias = _Finding
    anytime_performance = _anytime_performance
    at_matched_cost = _at_matched_cost
    best_of_k = _best_of_k
    calibrate_router = _calibrate_router
    compare = _compare
    compare_all = _compare_all
    compute_optimal = _compute_optimal
    difficulty_bins = _difficulty_bins
    judge_evaluator = _judge_evaluator
    lost_calls = _lost_calls
    majority_at_k = _majority_at_k
    minimum_detectable_difference = _minimum_detectable_difference
    pareto_frontier = _pareto_frontier
    pass_at_k = _pass_at_k
    regret = _regret
    required_sample_size = _required_sample_size
    routed = _routed
    samples = _samples
    success_rates = _success_rates

class training:
    """Convert runs to training data for reward models and policies."""

    math_shepherd = _math_shepherd
    preference = _preference
    prm800k = _prm800k
    stepwise = _stepwise
    unpaired = _unpaired

class track:
    """Log sweeps to experiment trackers."""

    mlflow = _mlflow
    wandb = _wandb

class records:
    """Types of the data in runs (calls, plans, notes), and importers of the results of other packages."""

    Decided: TypeAlias = _Decided
    Ended: TypeAlias = _Ended
    IterationResult: TypeAlias = _IterationResult
    Mark: TypeAlias = _Mark
    Message: TypeAlias = _Message
    Plan: TypeAlias = _Plan
    PlanStep: TypeAlias = _PlanStep
    Replay: TypeAlias = _Replay
    ResearchDelegate: TypeAlias = _ResearchDelegate
    Routed: TypeAlias = _Routed
    Scored: TypeAlias = _Scored
    Stream: TypeAlias = _Stream
    ThinkingLevel: TypeAlias = _ThinkingLevel
    ThinkingManager: TypeAlias = _ThinkingManager
    ThoughtBranch: TypeAlias = _ThoughtBranch
    TokenLogprob: TypeAlias = _TokenLogprob
    ToolCall: TypeAlias = _ToolCall
    Usage: TypeAlias = _Usage
    from_completions = _from_completions
    from_its_hub = _from_its_hub
    from_treequest = _from_treequest
    halts = _halts
    parent_of = _parent_of
    stop_of = _stop_of

class inspect:
    """Strategies as solvers of the evaluation framework Inspect."""

    think = _think

class errors:
    """Exceptions."""

    Busy: TypeAlias = _Busy
    CacheError: TypeAlias = _CacheError
    CacheMiss: TypeAlias = _CacheMiss
    Divergence: TypeAlias = _Divergence
    JournalError: TypeAlias = _JournalError
    LessonsError: TypeAlias = _LessonsError
    NoModel: TypeAlias = _NoModel
    SettingsError: TypeAlias = _SettingsError

__all__: list[str]

def path_of(name: str, value: object = None) -> str | None: ...
def load_ipython_extension(shell: Any) -> None: ...
