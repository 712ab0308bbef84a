"""tot_lab: a research toolkit for people who study how language models reason by search.

One run, start to end:

    lab.run(strategy, task)                                                lab.py
      └ strategy.think(task)            a generator: pure, no I/O          core/, strategies/, domains/
          yields  Call             ───▶ the driver asks the model stack    driver.py, budget.py
                                        cache ▸ … ▸ litellm, local, sim    models/
          yields  Every([...])     ───▶ branches at once, each at its own pace
          yields  an event         ───▶ Recorder: journal, live watchers   recorder.py, journal.py
          receives Reply           ◀───
          returns Answer
      └ Run = its records                                                  run.py
           ├ Tree.of(events)  → networkx graph → layout → Plotly figure    figures/
           ├ DataFrames: nodes, calls, events                              frames.py
           ├ repr, HTML report, diagnosis                                  report.py, diagnosis.py
           └ Explorer: the widget, and the same in one HTML file           explorer/

Rule: a run is its records. Tree, frames, figures and reports are folds over the same list, and
nothing else stores state. Imports point down this picture; pandas, plotly and networkx are
imported when something is shown, not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tot_lab import presets
from tot_lab.core.calls import Call, Message, Reply, TokenLogprob
from tot_lab.core.parts import Part, part_of
from tot_lab.core.records import Decided, Ended, Note, Scored, Thought
from tot_lab.core.strategy import Prompting, Strategy
from tot_lab.core.task import Answer, Domain, Task
from tot_lab.core.thinking import Budget, Thinking, ask, attempt, every, happen, within
from tot_lab.core.tree import Node, Tree
from tot_lab.domains import Game24, General, game24, game24_tasks, general, hands, oracle, tasks
from tot_lab.journal import JournalError
from tot_lab.lab import Lab, Stream
from tot_lab.marks import Mark
from tot_lab.models import Cache, CacheError, CacheMiss, LiteLLM, Local, Role, SimGame24, SimGeneral
from tot_lab.recorder import Divergence, Recorder
from tot_lab.run import Replay, Run, Usage, load
from tot_lab.strategies import (
    Beam,
    BestFirst,
    BestOf,
    ChainOfThought,
    DepthFirst,
    MonteCarloTreeSearch,
    OneAnswer,
    SelfConsistency,
    Traversal,
    TreeOfThoughts,
    traversal,
)
from tot_lab.version import __version__

if TYPE_CHECKING:
    from tot_lab.diagnosis import Diagnosis, Finding, diagnose
    from tot_lab.explorer.panel import panel
    from tot_lab.explorer.widget import Compare, Explorer
    from tot_lab.figures import graph_of, plot_cost, plot_icicle, plot_scores, plot_timeline, plot_tree
    from tot_lab.report import report_html

_SHOWN = {
    "Compare": "tot_lab.explorer.widget",
    "Diagnosis": "tot_lab.diagnosis",
    "Explorer": "tot_lab.explorer.widget",
    "Finding": "tot_lab.diagnosis",
    "diagnose": "tot_lab.diagnosis",
    "graph_of": "tot_lab.figures",
    "panel": "tot_lab.explorer.panel",
    "plot_cost": "tot_lab.figures",
    "plot_icicle": "tot_lab.figures",
    "plot_scores": "tot_lab.figures",
    "plot_timeline": "tot_lab.figures",
    "plot_tree": "tot_lab.figures",
    "report_html": "tot_lab.report",
}


def __getattr__(name: str) -> Any:
    """What shows runs is imported at its first use: `import tot_lab` stays fast."""
    if name not in _SHOWN:
        raise AttributeError(f"module 'tot_lab' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    value = globals()[name] = getattr(import_module(_SHOWN[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__


__all__ = [
    "Answer",
    "Beam",
    "BestFirst",
    "BestOf",
    "Budget",
    "Cache",
    "CacheError",
    "CacheMiss",
    "Call",
    "ChainOfThought",
    "Compare",
    "Decided",
    "DepthFirst",
    "Diagnosis",
    "Divergence",
    "Domain",
    "Ended",
    "Explorer",
    "Finding",
    "Game24",
    "General",
    "JournalError",
    "Lab",
    "LiteLLM",
    "Local",
    "Mark",
    "Message",
    "MonteCarloTreeSearch",
    "Node",
    "Note",
    "OneAnswer",
    "Part",
    "Prompting",
    "Recorder",
    "Replay",
    "Reply",
    "Role",
    "Run",
    "Scored",
    "SelfConsistency",
    "SimGame24",
    "SimGeneral",
    "Strategy",
    "Stream",
    "Task",
    "Thinking",
    "Thought",
    "TokenLogprob",
    "Traversal",
    "Tree",
    "TreeOfThoughts",
    "Usage",
    "__version__",
    "ask",
    "attempt",
    "diagnose",
    "every",
    "game24",
    "game24_tasks",
    "general",
    "graph_of",
    "hands",
    "happen",
    "load",
    "oracle",
    "panel",
    "part_of",
    "plot_cost",
    "plot_icicle",
    "plot_scores",
    "plot_timeline",
    "plot_tree",
    "presets",
    "report_html",
    "tasks",
    "traversal",
    "within",
]
