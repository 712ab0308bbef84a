"""tot_lab: a research toolkit for people who study how language models reason by search.

    import tot_lab as tl

    lab = tl.Lab("tiny/numbers")                # a small model in the package; "ollama/qwen3:8b", …
    run = await lab.run(tl.TreeOfThoughts(), tl.game24("4 9 10 13"))      # in a script: lab.run_sync(…)
    run                                         # answer, score, cost and tree
    tl.Explorer(run)                            # each thought with its prompts and replies
    sweep = await lab.sweep(tl.baselines(), tl.game24_tasks(5))           # several strategies and tasks
    sweep.df()

- `tl.Lab` runs a strategy on a task. Each run is a file that `tl.load` reads and `run.replay()` repeats.
- Strategies: `tl.TreeOfThoughts`, `tl.ChainOfThought`, `tl.ReAct`, `tl.DeepThink`; `tl.methods` has all.
- Parts of a tree search: `tl.proposers`, `tl.evaluators`, `tl.searches`, `tl.answers`; `tl.presets`.
- Tasks: `tl.tasks` (your own data), `tl.game24`, `tl.general`; `tl.domains` has all. Tools: `tl.tools`.
- Results: `run.nodes_df()`, `sweep.df()`, `tl.stats`, `tl.figures`.

`tl.BeamSearch?` shows settings with their defaults. Further reading: README.md, docs/README.md (guides),
and the notebooks (`tot-lab notebooks DIR` copies them).
"""

# One run, start to end:
#
#     lab.run(strategy, task)                                                lab/
#       └ Runner                          also of streams, sweeps, workers   runtime/
#           strategy.think(task)          a generator: pure, no I/O          strategies/, domains/
#           yields  Call             ───▶ the model stack:                   models/
#                                         cache ▸ … ▸ litellm, local, sim
#                                         or a tool                          tools/
#           yields  Gather([...])     ───▶ branches at once, each at its own pace
#           yields  an event         ───▶ Recorder: journal, live watchers
#           receives Reply           ◀───
#           returns Answer
#       └ Run = header and records                                           record/
#            ├ Tree.of(events)                                               core/
#            ├ DataFrames, statistics, diagnosis                             analysis/
#            └ graph, figures, explorer, reports                             views/
#     lab.sweep(strategies, tasks)                                           lab/sweeps/
#       └ Sweep = runs, a file each, and one table of them                   analysis/
#     tl.think(question) · %%think · tot-lab think                           apps/
#       └ a run of two stages: gather, then Deep Think → report, panel
#
# A run is its list of records: tree, frames, figures and reports are computed from it, and nothing else
# stores state. Subpackages import downwards only: apps, views, analysis, lab, runtime, then models, tools,
# record, strategies and domains side by side, and core. Pandas, plotly and networkx are imported when
# something is shown, and every name of `tl` when it is first used.
#
# Every name of `tl` is listed in `_NAMES` or in a namespace below. `python tests/contract/test_names.py`
# regenerates the stub `__init__.pyi` from them.

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from tot_lab import analysis, interop, lab, runtime, views  # noqa: F401  each attaches methods to core classes
from tot_lab._version import __version__ as __version__
from tot_lab.core.attach import folded, imported, nearest
from tot_lab.core.namespaces import Namespace, add_names, places

_NAMES = places(
    {
        "tot_lab.analysis.counterfactuals": "counterfactual",
        "tot_lab.analysis.deep_thought": "deep_thought",
        "tot_lab.analysis.matching": "match",
        "tot_lab.analysis.why": "diagnose",
        "tot_lab.apps.deep_thinking": "think think_sync",
        "tot_lab.core.calls": "Call Reply",
        "tot_lab.core.parts": "Part part_of",
        "tot_lab.core.policy": "EffectPolicy",
        "tot_lab.core.records": "Note Thought",
        "tot_lab.core.strategy": "Prompting Strategy",
        "tot_lab.core.task": "Answer Domain Task",
        "tot_lab.core.protocol": "Budget Procedure ask emit gather resample with_budget with_timeout",
        "tot_lab.core.tool": "Tool tool",
        "tot_lab.core.tree": "Node Tree",
        "tot_lab.domains": "game24 game24_tasks general open_ended tasks",
        "tot_lab.interop.opentelemetry": "OpenTelemetry",
        "tot_lab.lab.context": "SessionMemory",
        "tot_lab.lab.lab": "Lab",
        "tot_lab.lab.lessons": "Lessons",
        "tot_lab.lab.plan_store": "PlanStore",
        "tot_lab.lab.session": "Session",
        "tot_lab.lab.settings": "Settings",
        "tot_lab.lab.sweeps.axes": "grid",
        "tot_lab.lab.sweeps.sweep": "Sweep",
        "tot_lab.models": "Cache LiteLLM Local OpenAICompatible",
        "tot_lab.record.importers": "load",
        "tot_lab.record.node_tables": "read_nodes",
        "tot_lab.record.run": "Run",
        "tot_lab.runtime.recorder": "Recorder",
        "tot_lab.runtime.roles": "Role",
        "tot_lab.strategies.adaptive": "Adaptive",
        "tot_lab.strategies.baselines": "BestOf ChainOfThought OneAnswer SelfConsistency baselines",
        "tot_lab.strategies.deep_think": "DeepThink",
        "tot_lab.strategies.gather_then_think": "GatherThenThink",
        "tot_lab.strategies.plan_execute": "PlanExecute",
        "tot_lab.strategies.react": "ReAct",
        "tot_lab.strategies.reflexion": "Reflexion",
        "tot_lab.strategies.search": (
            "TreeOfThoughts Propose Sample WithTools Value Vote BeamSearch BestFirst DepthFirst MCTS "
            "Stop Pick"
        ),
        "tot_lab.strategies.structured": "ask_json",
        "tot_lab.strategies.synthesis": "WithSynthesis",
        "tot_lab.strategies.thinking_level": "WithThinking",
        "tot_lab.strategies.tool_loop": "ToolLoop",
        "tot_lab.strategies.tree_then_act": "TreeThenAct",
        "tot_lab.views.explorer.panel": "panel",
        "tot_lab.views.explorer.widget": "CompareExplorer Explorer",
    }
)
_NAMES |= {"domains": "tot_lab.domains", "presets": "tot_lab.strategies.presets", "tools": "tot_lab.tools"}

add_names(
    "tot_lab.tools",
    {
        "tot_lab.domains.multi_hop": "multi_hop_tools",
        "tot_lab.domains.multi_hop.documents": "document_tools",
        "tot_lab.lab.deep_think_tool": "DeepThinkTool deep_think",
    },
)

_NAMESPACES = (
    Namespace(
        "methods", "All strategies, including those that are not directly in `tl`.", {}, group="strategies"
    ),
    Namespace(
        "proposers",
        "Proposers of a tree search: they generate the child thoughts.",
        {"tot_lab.strategies.search": "Proposer"},
        group="proposers",
    ),
    Namespace(
        "evaluators",
        "Evaluators of a tree search: they score the thoughts.",
        {"tot_lab.strategies.search": "BatchEvaluator Evaluator FunctionEvaluator"},
        group="evaluators",
    ),
    Namespace(
        "searches",
        "Search algorithms: they select which thoughts are expanded next.",
        {
            "tot_lab.strategies.search": "FunctionSearch Search SearchState",
            "tot_lab.core.protocol": "BudgetLeft",
        },
        group="searches",
    ),
    Namespace(
        "answers",
        "Answer rules of a tree search: they choose its answer from the thoughts.",
        {"tot_lab.strategies.search": "AnswerRule"},
        group="answers",
    ),
    Namespace("sim", "Simulated models, one for each domain.", {}, group="models", prefix="sim/"),
    Namespace(
        "figures",
        "Figures of runs and sweeps.",
        {
            "tot_lab.views.figures": "graph_of",
            "tot_lab.views.figures.saving": "save",
            "tot_lab.views.report": "report_html",
        },
        group="figures",
    ),
    Namespace(
        "stats",
        "Statistics of sweeps, routers and evaluators.",
        {
            "tot_lab.analysis.counterfactuals": "Counterfactual",
            "tot_lab.analysis.deep_thought": "DeepThought",
            "tot_lab.analysis.diagnosis": "Diagnosis Finding",
            "tot_lab.analysis.difficulty": "compute_optimal difficulty_bins",
            "tot_lab.analysis.estimators": "best_of_k majority_at_k pass_at_k samples",
            "tot_lab.analysis.judging": "EvaluatorDiagnosis judge_evaluator",
            "tot_lab.analysis.matched_cost": "anytime_performance at_matched_cost pareto_frontier",
            "tot_lab.analysis.routing": "Calibrated calibrate_router regret routed",
            "tot_lab.analysis.statistics": (
                "Comparison compare compare_all lost_calls minimum_detectable_difference "
                "required_sample_size success_rates"
            ),
        },
    ),
    Namespace(
        "training",
        "Convert runs to training data for reward models and policies.",
        {"tot_lab.analysis.training": "math_shepherd preference prm800k stepwise unpaired"},
    ),
    Namespace("track", "Log sweeps to experiment trackers.", {"tot_lab.interop.trackers": "mlflow wandb"}),
    Namespace(
        "records",
        "Types of the data in runs (calls, plans, notes), and importers of the results of other packages.",
        {
            "tot_lab.core.calls": "Message TokenLogprob ToolCall halts stop_of",
            "tot_lab.core.records": "Decided Ended Scored parent_of",
            "tot_lab.lab.lab": "Stream",
            "tot_lab.record.logs.completions": "from_completions",
            "tot_lab.record.logs.objects": "from_its_hub from_treequest",
            "tot_lab.record.marks": "Mark",
            "tot_lab.record.routed": "Routed",
            "tot_lab.record.run": "Usage",
            "tot_lab.runtime.replay": "Replay",
            "tot_lab.strategies.deep_think_replies": "IterationResult ThoughtBranch",
            "tot_lab.strategies.plans": "Plan PlanStep",
            "tot_lab.strategies.research": "ResearchDelegate",
            "tot_lab.strategies.thinking_level": "ThinkingLevel ThinkingManager",
        },
    ),
    Namespace(
        "inspect",
        "Strategies as solvers of the evaluation framework Inspect.",
        {"tot_lab.interop.inspect_solver": "think"},
    ),
    Namespace(
        "errors",
        "Exceptions.",
        {
            "tot_lab.apps.deep_thinking": "NoModel",
            "tot_lab.lab.lessons": "LessonsError",
            "tot_lab.lab.session": "Busy",
            "tot_lab.lab.model_settings": "SettingsError",
            "tot_lab.models": "CacheError CacheMiss",
            "tot_lab.record.journal": "JournalError",
            "tot_lab.runtime.recorder": "Divergence",
        },
    ),
)
globals().update({space.__name__: space for space in _NAMESPACES})

__all__ = sorted([*_NAMES, *(namespace.__name__ for namespace in _NAMESPACES), "__version__"])  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'tot_lab' has no attribute {name!r}{_hint(name)}")
    value = imported(_NAMES[name])
    setattr(sys.modules[__name__], name, value)
    return value


def __dir__() -> list[str]:
    return __all__


def path_of(name: str, value: object = None) -> str | None:
    """Return the path of `name` in `tl`, such as `tl.sim.SimGame24`. `None` if `tl` has no such name.

    Args:
        name: The name, such as that of a class.
        value: The object that the name must refer to. `None` accepts any object.
    """
    if name in _NAMES and (value is None or __getattr__(name) is value):
        return f"tl.{name}"
    for holder in (*(namespace.__name__ for namespace in _NAMESPACES), "tools", "domains"):
        owner = getattr(sys.modules[__name__], holder)
        if name in getattr(owner, "__all__", dir(owner)) and value in (None, getattr(owner, name)):
            return f"tl.{holder}.{name}"
    return None


def _hint(name: str) -> str:
    """Return the end of an error about a name that `tl` lacks: where the nearest name is. May be empty."""
    if name.startswith("_"):
        return ""
    if name in _OTHER_NAMES:
        return f"; did you mean {_OTHER_NAMES[name]}?"
    if path := path_of(name):
        function = next((each for each in _NAMES if folded(each) == folded(name)), None)
        return f"; did you mean tl.{function}? The class is {path}" if function else f"; it is {path}"
    known = {each: f"tl.{space.__name__}.{each}" for space in reversed(_NAMESPACES) for each in dir(space)}
    known |= {each: f"tl.{each}" for each in __all__}
    near = nearest(name, known)
    return f"; did you mean {known[near]}?" if near else ""


_READERS = ("load_dataset", "read_jsonl", "read_json", "read_csv", "Dataset", "dataset", "gsm8k")
_OTHER_NAMES = {
    "BFS": "tl.searches.BreadthFirst",
    "DFS": "tl.DepthFirst",
    **dict.fromkeys(_READERS, 'tl.tasks(FILE, format="gsm8k")'),
    **{name: f'tl.Lab("{name.lower()}/MODEL")' for name in ("Anthropic", "OpenAI", "Ollama", "Gemini")},
}
"""What to write instead of names of other libraries."""


class _Room(ModuleType):
    def __call__(self, *_: Any, **__: Any) -> Any:
        name = self.__name__.partition(".")[2]
        raise TypeError(f"tl.{name} is a module and cannot be called{_hint(name)}")


lab.__class__ = _Room  # so that a call of `tl.lab` is an error that suggests `tl.Lab`


class _Presets:
    def __getattr__(self, name: str) -> Any:
        # Inspection tools read names such as `__file__` of every entry of `sys.modules`. That must not import
        # the presets.
        if name.startswith("_") and name != "__all__":
            raise AttributeError(name)
        return getattr(__getattr__("presets"), name)


# `from tot_lab.evaluators import Value` works like `tl.evaluators.Value`. Nothing is imported before that.
_importable = {f"tot_lab.{space.__name__}": space for space in _NAMESPACES}
sys.modules.update({**_importable, "tot_lab.presets": _Presets()})  # type: ignore[dict-item]


def load_ipython_extension(shell: Any) -> None:
    """Add the magics `%think` and `%%think`. IPython calls this function for `%load_ext tot_lab`."""
    imported("tot_lab.apps.magics:load_magics")(shell)
