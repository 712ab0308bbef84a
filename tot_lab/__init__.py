"""tot_lab: a research toolkit for people who study how language models reason by search.

One run, start to end:

    lab.run(strategy, task)                                                lab/
      └ Runner                          also of streams, sweeps, workers   runtime/
          strategy.think(task)          a generator: pure, no I/O          strategies/, domains/
          yields  Call             ───▶ the model stack:                   models/
                                        cache ▸ … ▸ litellm, local, sim
                                        or a tool                          tools/
          yields  Gather([...])    ───▶ branches at once, each at its own pace
          yields  an event         ───▶ Recorder: journal, live watchers
          receives Reply           ◀───
          returns Answer
      └ Run = header and records                                           record/
           ├ Tree.of(events)                                               core/
           ├ DataFrames, statistics, diagnosis                             analysis/
           └ graph, figures, explorer, reports                             views/
    lab.sweep(strategies, tasks)                                           lab/sweeps/
      └ Sweep = runs, a file each, and one table of them                   analysis/
    tl.think(question) · %%think · tot-lab think                           apps/
      └ a run of two stages: gather, then Deep Think → report, panel

A run is its records: tree, frames, figures and reports are folds over the same list, and nothing else stores
state. Rooms import downwards only: apps, views, analysis, lab, runtime, then models, tools, record,
strategies and domains side by side, and core. Pandas, plotly and networkx are imported when something is
shown, not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tot_lab import analysis, lab, runtime, views  # noqa: F401  each attaches what it implements
from tot_lab._version import __version__
from tot_lab.apps.deep_thinking import think
from tot_lab.core.attach import lazy_names
from tot_lab.core.calls import Call, Message, Reply, TokenLogprob, ToolCall, halts, stop_of
from tot_lab.core.parts import Part, part_of
from tot_lab.core.records import Decided, Ended, Note, Scored, Thought, parent_of
from tot_lab.core.strategy import Prompting, Strategy
from tot_lab.core.task import Answer, Domain, Task
from tot_lab.core.thinking import (
    Budget,
    BudgetLeft,
    Thinking,
    ask,
    emit,
    gather,
    resample,
    with_budget,
    with_timeout,
)
from tot_lab.core.tree import Node, Tree
from tot_lab.domains import (
    Constrained,
    CreativeWriting,
    CrosswordScores,
    Game24,
    General,
    MiniCrossword,
    MultiHop,
    OpenEnded,
    SimAgent,
    SimConstrained,
    SimCreativeWriting,
    SimGame24,
    SimGeneral,
    SimMiniCrossword,
    WordSums,
    constrained,
    constrained_tasks,
    creative_writing,
    creative_writing_tasks,
    game24,
    game24_tasks,
    general,
    hands,
    mini_crossword,
    mini_crossword_scores,
    mini_crossword_tasks,
    multi_hop,
    multi_hop_documents,
    multi_hop_tasks,
    multi_hop_tools,
    open_ended,
    oracle,
    rules_kept,
    tasks,
    word_sums,
    word_sums_tasks,
)
from tot_lab.lab.context import SessionMemory
from tot_lab.lab.lab import Lab, Stream
from tot_lab.lab.lessons import Lessons, LessonsError
from tot_lab.lab.plan_store import Plans
from tot_lab.lab.session import Busy, Session
from tot_lab.lab.settings import Settings, SettingsError
from tot_lab.lab.sweeps.axes import grid
from tot_lab.lab.sweeps.sweep import Sweep
from tot_lab.models import (
    Cache,
    CacheError,
    CacheMiss,
    LiteLLM,
    Local,
)
from tot_lab.models.reachable import NoModel
from tot_lab.record.importers import load
from tot_lab.record.journal import JournalError
from tot_lab.record.marks import Mark
from tot_lab.record.routed import Routed
from tot_lab.record.run import Run, Usage
from tot_lab.runtime.recorder import Divergence, Recorder
from tot_lab.runtime.replay import Replay
from tot_lab.runtime.roles import Role
from tot_lab.strategies import (
    MCTS,
    Adaptive,
    AnswerRule,
    BatchEvaluator,
    BeamSearch,
    Best,
    BestFirst,
    BestLeaf,
    BestOf,
    BestPath,
    ChainOfThought,
    Deepest,
    DeepThink,
    DepthFirst,
    Evaluator,
    FunctionEvaluator,
    FunctionSearch,
    GatherThenThink,
    IterationResult,
    Joint,
    Logprob,
    OneAnswer,
    Parts,
    Pick,
    Plan,
    PlanExecute,
    Propose,
    Proposer,
    ReAct,
    Reflexion,
    ResearchDelegate,
    Sample,
    Search,
    SearchState,
    SelfConsistency,
    Step,
    Stop,
    ThinkingLevel,
    ThinkingManager,
    ThoughtBranch,
    ToolLoop,
    TreeOfThoughts,
    TreeThenAct,
    Value,
    Vote,
    WithSynthesis,
    WithThinking,
    WithTools,
    ask_json,
    baselines,
    presets,
)
from tot_lab.tools import EffectPolicy, Tool, tool

if TYPE_CHECKING:
    from tot_lab.analysis.counterfactuals import Counterfactual, counterfactual
    from tot_lab.analysis.deep_thought import DeepThought, deep_thought
    from tot_lab.analysis.diagnosis import Diagnosis, Finding, diagnose
    from tot_lab.analysis.judging import EvaluatorDiagnosis, judge_evaluator
    from tot_lab.analysis.matched_cost import anytime_performance, at_matched_cost, pareto_frontier
    from tot_lab.analysis.routing import Calibrated, calibrate_router, regret, routed
    from tot_lab.analysis.statistics import (
        Comparison,
        compare,
        compare_all,
        lost_calls,
        minimum_detectable_difference,
        required_sample_size,
        success_rates,
    )
    from tot_lab.views.explorer.panel import panel
    from tot_lab.views.explorer.widget import Compare, Explorer
    from tot_lab.views.figures import (
        graph_of,
        plot_calibration,
        plot_confidence,
        plot_cost,
        plot_heatmap,
        plot_icicle,
        plot_importance,
        plot_parallel,
        plot_pareto,
        plot_scores,
        plot_sweep,
        plot_timeline,
        plot_tree,
    )
    from tot_lab.views.report import report_html

_SHOWN = {
    "Calibrated": "tot_lab.analysis.routing",
    "Compare": "tot_lab.views.explorer.widget",
    "Comparison": "tot_lab.analysis.statistics",
    "Counterfactual": "tot_lab.analysis.counterfactuals",
    "DeepThought": "tot_lab.analysis.deep_thought",
    "Diagnosis": "tot_lab.analysis.diagnosis",
    "EvaluatorDiagnosis": "tot_lab.analysis.judging",
    "Explorer": "tot_lab.views.explorer.widget",
    "Finding": "tot_lab.analysis.diagnosis",
    "anytime_performance": "tot_lab.analysis.matched_cost",
    "at_matched_cost": "tot_lab.analysis.matched_cost",
    "calibrate_router": "tot_lab.analysis.routing",
    "compare": "tot_lab.analysis.statistics",
    "compare_all": "tot_lab.analysis.statistics",
    "counterfactual": "tot_lab.analysis.counterfactuals",
    "deep_thought": "tot_lab.analysis.deep_thought",
    "diagnose": "tot_lab.analysis.diagnosis",
    "minimum_detectable_difference": "tot_lab.analysis.statistics",
    "pareto_frontier": "tot_lab.analysis.matched_cost",
    "graph_of": "tot_lab.views.figures",
    "judge_evaluator": "tot_lab.analysis.judging",
    "lost_calls": "tot_lab.analysis.statistics",
    "panel": "tot_lab.views.explorer.panel",
    "plot_calibration": "tot_lab.views.figures",
    "plot_confidence": "tot_lab.views.figures",
    "plot_cost": "tot_lab.views.figures",
    "plot_pareto": "tot_lab.views.figures",
    "plot_heatmap": "tot_lab.views.figures",
    "plot_icicle": "tot_lab.views.figures",
    "plot_importance": "tot_lab.views.figures",
    "plot_parallel": "tot_lab.views.figures",
    "plot_scores": "tot_lab.views.figures",
    "plot_sweep": "tot_lab.views.figures",
    "plot_timeline": "tot_lab.views.figures",
    "plot_tree": "tot_lab.views.figures",
    "regret": "tot_lab.analysis.routing",
    "report_html": "tot_lab.views.report",
    "routed": "tot_lab.analysis.routing",
    "success_rates": "tot_lab.analysis.statistics",
    "required_sample_size": "tot_lab.analysis.statistics",
}


_find = lazy_names(__name__, {**_SHOWN, "load_magics": "tot_lab.apps.magics"})


def __getattr__(name: str) -> Any:
    """What shows runs is imported at its first use: `import tot_lab` stays fast."""
    return _find(name)


def __dir__() -> list[str]:
    return __all__


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext tot_lab`: the magics `%think` and `%%think`."""
    _find("load_magics")(shell)


__all__ = [
    "MCTS",
    "Adaptive",
    "Answer",
    "AnswerRule",
    "BatchEvaluator",
    "BeamSearch",
    "Best",
    "BestFirst",
    "BestLeaf",
    "BestOf",
    "BestPath",
    "Budget",
    "BudgetLeft",
    "Busy",
    "Cache",
    "CacheError",
    "CacheMiss",
    "Calibrated",
    "Call",
    "ChainOfThought",
    "Compare",
    "Comparison",
    "Constrained",
    "Counterfactual",
    "CreativeWriting",
    "CrosswordScores",
    "Decided",
    "DeepThink",
    "DeepThought",
    "Deepest",
    "DepthFirst",
    "Diagnosis",
    "Divergence",
    "Domain",
    "EffectPolicy",
    "Ended",
    "Evaluator",
    "EvaluatorDiagnosis",
    "Explorer",
    "Finding",
    "FunctionEvaluator",
    "FunctionSearch",
    "Game24",
    "GatherThenThink",
    "General",
    "IterationResult",
    "Joint",
    "JournalError",
    "Lab",
    "Lessons",
    "LessonsError",
    "LiteLLM",
    "Local",
    "Logprob",
    "Mark",
    "Message",
    "MiniCrossword",
    "MultiHop",
    "NoModel",
    "Node",
    "Note",
    "OneAnswer",
    "OpenEnded",
    "Part",
    "Parts",
    "Pick",
    "Plan",
    "PlanExecute",
    "Plans",
    "Prompting",
    "Propose",
    "Proposer",
    "ReAct",
    "Recorder",
    "Reflexion",
    "Replay",
    "Reply",
    "ResearchDelegate",
    "Role",
    "Routed",
    "Run",
    "Sample",
    "Scored",
    "Search",
    "SearchState",
    "SelfConsistency",
    "Session",
    "SessionMemory",
    "Settings",
    "SettingsError",
    "SimAgent",
    "SimConstrained",
    "SimCreativeWriting",
    "SimGame24",
    "SimGeneral",
    "SimMiniCrossword",
    "Step",
    "Stop",
    "Strategy",
    "Stream",
    "Sweep",
    "Task",
    "Thinking",
    "ThinkingLevel",
    "ThinkingManager",
    "Thought",
    "ThoughtBranch",
    "TokenLogprob",
    "Tool",
    "ToolCall",
    "ToolLoop",
    "Tree",
    "TreeOfThoughts",
    "TreeThenAct",
    "Usage",
    "Value",
    "Vote",
    "WithSynthesis",
    "WithThinking",
    "WithTools",
    "WordSums",
    "__version__",
    "anytime_performance",
    "ask",
    "ask_json",
    "at_matched_cost",
    "baselines",
    "calibrate_router",
    "compare",
    "compare_all",
    "constrained",
    "constrained_tasks",
    "counterfactual",
    "creative_writing",
    "creative_writing_tasks",
    "deep_thought",
    "diagnose",
    "emit",
    "game24",
    "game24_tasks",
    "gather",
    "general",
    "graph_of",
    "grid",
    "halts",
    "hands",
    "judge_evaluator",
    "load",
    "lost_calls",
    "mini_crossword",
    "mini_crossword_scores",
    "mini_crossword_tasks",
    "minimum_detectable_difference",
    "multi_hop",
    "multi_hop_documents",
    "multi_hop_tasks",
    "multi_hop_tools",
    "open_ended",
    "oracle",
    "panel",
    "parent_of",
    "pareto_frontier",
    "part_of",
    "plot_calibration",
    "plot_confidence",
    "plot_cost",
    "plot_heatmap",
    "plot_icicle",
    "plot_importance",
    "plot_parallel",
    "plot_pareto",
    "plot_scores",
    "plot_sweep",
    "plot_timeline",
    "plot_tree",
    "presets",
    "regret",
    "report_html",
    "required_sample_size",
    "resample",
    "routed",
    "rules_kept",
    "stop_of",
    "success_rates",
    "tasks",
    "think",
    "tool",
    "with_budget",
    "with_timeout",
    "word_sums",
    "word_sums_tasks",
]
