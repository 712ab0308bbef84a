"""The registry: every component by group and name, built in or provided by an installed package.

Nothing is imported until it is used. A built-in component is a line of `BUILT_IN`. A package declares its
components in its metadata, as entry points of the group `tot_lab.GROUP`:

    [project.entry-points."tot_lab.searches"]
    countdown_search = "countdown_lab:CountdownSearch"

Built-in names take precedence, so no package can replace them. A broken package affects only users of its
components, and the error names the package. A saved run that names a component may cause an installed package
to be imported, but contains no code itself.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from tot_lab.core.attach import imported

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

BUILT_IN: Mapping[str, Mapping[str, str]] = {
    "strategies": {
        "tree_of_thoughts": "tot_lab.strategies.search:TreeOfThoughts",
        "one_answer": "tot_lab.strategies.baselines:OneAnswer",
        "chain_of_thought": "tot_lab.strategies.baselines:ChainOfThought",
        "best_of": "tot_lab.strategies.baselines:BestOf",
        "self_consistency": "tot_lab.strategies.baselines:SelfConsistency",
        "weighted_best_of": "tot_lab.strategies.weighted_best_of:WeightedBestOf",
        "early_stopping": "tot_lab.strategies.early_stopping:EarlyStopping",
        "self_refine": "tot_lab.strategies.self_refine:SelfRefine",
        "debate": "tot_lab.strategies.debate:Debate",
        "deep_conf": "tot_lab.strategies.deep_conf:DeepConf",
        "deep_conf_online": "tot_lab.strategies.deep_conf:DeepConfOnline",
        "budget_forcing": "tot_lab.strategies.budget_forcing:BudgetForcing",
        "mixture_of_agents": "tot_lab.strategies.mixture_of_agents:MixtureOfAgents",
        "forest_of_thoughts": "tot_lab.strategies.forest_of_thoughts:ForestOfThoughts",
        "tool_loop": "tot_lab.strategies.tool_loop:ToolLoop",
        "react": "tot_lab.strategies.react:ReAct",
        "plan_execute": "tot_lab.strategies.plan_execute:PlanExecute",
        "tree_then_act": "tot_lab.strategies.tree_then_act:TreeThenAct",
        "adaptive": "tot_lab.strategies.adaptive:Adaptive",
        "deep_think": "tot_lab.strategies.deep_think:DeepThink",
        "gather_then_think": "tot_lab.strategies.gather_then_think:GatherThenThink",
        "reflexion": "tot_lab.strategies.reflexion:Reflexion",
        "verified": "tot_lab.strategies.verified:Verified",
        "with_thinking": "tot_lab.strategies.thinking_level:WithThinking",
        "with_synthesis": "tot_lab.strategies.synthesis:WithSynthesis",
    },
    "proposers": {
        "sample": "tot_lab.strategies.search:Sample",
        "propose": "tot_lab.strategies.search:Propose",
        "with_tools": "tot_lab.strategies.search:WithTools",
        "continue": "tot_lab.strategies.search.continuation:Continue",
        "refine": "tot_lab.strategies.search.refine:Refine",
        "mixture": "tot_lab.strategies.search.mixture:Mixture",
    },
    "evaluators": {
        "value": "tot_lab.strategies.search:Value",
        "parts": "tot_lab.strategies.search:Parts",
        "vote": "tot_lab.strategies.search:Vote",
        "joint": "tot_lab.strategies.search:Joint",
        "logprob": "tot_lab.strategies.search:Logprob",
        "reward_model": "tot_lab.strategies.search.reward_model:RewardModel",
        "rollout": "tot_lab.strategies.search.rollout:Rollout",
        "likelihood": "tot_lab.strategies.search.likelihood:Likelihood",
        "self_certainty": "tot_lab.strategies.search.self_certainty:SelfCertainty",
        "agreement": "tot_lab.strategies.search.agreement:Agreement",
        "tournament": "tot_lab.strategies.search.tournament:Tournament",
    },
    "searches": {
        "beam_search": "tot_lab.strategies.search:BeamSearch",
        "depth_first": "tot_lab.strategies.search:DepthFirst",
        "best_first": "tot_lab.strategies.search:BestFirst",
        "mcts": "tot_lab.strategies.search:MCTS",
        "breadth_first": "tot_lab.strategies.search.breadth_first:BreadthFirst",
        "sampled_beam": "tot_lab.strategies.search.sampled_beam:SampledBeam",
        "prm_beam": "tot_lab.strategies.search.prm_beam:PRMBeam",
        "dvts": "tot_lab.strategies.search.dvts:DVTS",
        "rebase": "tot_lab.strategies.search.rebase:REBASE",
        "particle_filter": "tot_lab.strategies.search.particle_filter:ParticleFilter",
        "particle_gibbs": "tot_lab.strategies.search.particle_gibbs:ParticleGibbs",
        "lats": "tot_lab.strategies.search.lats:LATS",
        "bg_mcts": "tot_lab.strategies.search.bg_mcts:BGMCTS",
        "ab_mcts_a": "tot_lab.strategies.search.ab_mcts_a:ABMCTSA",
        "ab_mcts_m": "tot_lab.strategies.search.ab_mcts_m:ABMCTSM",
        "a_star": "tot_lab.strategies.search.a_star:AStar",
        "graph_of_thoughts": "tot_lab.strategies.search.graph_of_thoughts:GraphOfThoughts",
        "levin": "tot_lab.strategies.search.levin:Levin",
        "mur": "tot_lab.strategies.search.mur:MUR",
        "phi_decoding": "tot_lab.strategies.search.phi_decoding:PhiDecoding",
        "uncertainty_branching": "tot_lab.strategies.search.uncertainty_branching:UncertaintyBranching",
    },
    "answers": {
        "best_path": "tot_lab.strategies.search:BestPath",
        "best": "tot_lab.strategies.search:Best",
        "best_leaf": "tot_lab.strategies.search:BestLeaf",
        "deepest": "tot_lab.strategies.search:Deepest",
        "majority_vote": "tot_lab.strategies.search.majority_vote:MajorityVote",
        "first_complete": "tot_lab.strategies.search.first_complete:FirstComplete",
    },
    "domains": {
        "game24": "tot_lab.domains.game24:Game24",
        "general": "tot_lab.domains.general:General",
        "open_ended": "tot_lab.domains.open_ended:OpenEnded",
        "mini_crossword": "tot_lab.domains.mini_crossword:MiniCrossword",
        "creative_writing": "tot_lab.domains.creative_writing:CreativeWriting",
        "word_sums": "tot_lab.domains.word_sums:WordSums",
        "multi_hop": "tot_lab.domains.multi_hop:MultiHop",
        "constrained": "tot_lab.domains.constrained:Constrained",
        "published/imported": "tot_lab.domains.imported:Imported",
        "gym": "tot_lab.domains.gym:Gym",
        "gym/countdown": "tot_lab.domains.puzzles.countdown:Countdown",
        "gym/puzzle24": "tot_lab.domains.puzzles.countdown:Puzzle24",
        "gym/mini_sudoku": "tot_lab.domains.puzzles.sudoku:MiniSudoku",
        "gym/sudoku": "tot_lab.domains.puzzles.sudoku:Sudoku",
        "gym/tower_of_hanoi": "tot_lab.domains.puzzles.tower_of_hanoi:TowerOfHanoi",
        "gym/knights_knaves": "tot_lab.domains.puzzles.knights_knaves:KnightsKnaves",
        "gym/zebra_puzzles": "tot_lab.domains.puzzles.zebra:Zebra",
        "gym/word_ladder": "tot_lab.domains.puzzles.word_ladder:WordLadder",
        "gym/jugs": "tot_lab.domains.puzzles.jugs:Jugs",
        "gym/n_queens": "tot_lab.domains.puzzles.n_queens:NQueens",
        "gym/rush_hour": "tot_lab.domains.puzzles.rush_hour:RushHour",
        "gym/sokoban": "tot_lab.domains.puzzles.sokoban:Sokoban",
        "published/game24": "tot_lab.domains.published:PublishedGame24",
        "published/crossword": "tot_lab.domains.published:PublishedCrossword",
        "published/npuzzle": "tot_lab.domains.published_puzzles:PublishedNPuzzle",
        "published/cube": "tot_lab.domains.published_puzzles:PublishedCube",
        "published/inspect": "tot_lab.interop.inspect_tasks:InspectTask",
    },
    "models": {
        "sim/game24": "tot_lab.domains.game24.player:SimGame24",
        "sim/mini_crossword": "tot_lab.domains.mini_crossword.player:SimMiniCrossword",
        "sim/creative_writing": "tot_lab.domains.creative_writing.player:SimCreativeWriting",
        "sim/constrained": "tot_lab.domains.constrained.player:SimConstrained",
        "sim/agent": "tot_lab.domains.agent_player:SimAgent",
        "sim/puzzle": "tot_lab.domains.puzzles.player:SimPuzzle",
        "sim/general": "tot_lab.domains.general.player:SimGeneral",
        "tiny/": "tot_lab.models.tiny.endpoint:Tiny",
        "local/": "tot_lab.models.local:Local",
        "local:": "tot_lab.models.local:Local",
        "vllm/": "tot_lab.models.openai_compatible:VLLM",
        "sglang/": "tot_lab.models.openai_compatible:SGLang",
        "llama/": "tot_lab.models.openai_compatible:LlamaCpp",
        "vllm_pooling/": "tot_lab.models.reward_servers:VLLMPooling",
        "qwen_prm/": "tot_lab.models.process_rewards:QwenPRM",
        "math_shepherd/": "tot_lab.models.process_rewards:MathShepherd",
        "rlhflow_prm/": "tot_lab.models.process_rewards:RLHFlowPRM",
        "skywork_prm/": "tot_lab.models.process_rewards:SkyworkPRM",
        "vllm_classify/": "tot_lab.models.reward_servers:VLLMClassify",
        "vllm_score/": "tot_lab.models.reward_servers:VLLMScore",
        "vllm_likelihood/": "tot_lab.models.reward_servers:VLLMLikelihood",
        "tei_rerank/": "tot_lab.models.reward_servers:TEIRerank",
        "tei_predict/": "tot_lab.models.reward_servers:TEIPredict",
        "": "tot_lab.models.lite_llm:LiteLLM",  # all other names are passed to litellm
    },
    "tools": {
        "calculator": "tot_lab.tools.calculator:Calculator",
        "python": "tot_lab.tools.python:Python",
        "web_fetch": "tot_lab.tools.web:WebFetch",
        "web_search": "tot_lab.tools.web:WebSearch",
        "read_file": "tot_lab.tools.files:ReadFile",
        "write_file": "tot_lab.tools.files:WriteFile",
        "list_files": "tot_lab.tools.files:ListFiles",
    },
    "figures": {
        "tree": "tot_lab.views.figures.tree:plot_tree",
        "scores": "tot_lab.views.figures.scores:plot_scores",
        "timeline": "tot_lab.views.figures.timeline:plot_timeline",
        "cost": "tot_lab.views.figures.cost:plot_cost",
        "confidence": "tot_lab.views.figures.confidence:plot_confidence",
        "sweep": "tot_lab.views.figures.sweep:plot_sweep",
        "heatmap": "tot_lab.views.figures.heatmap:plot_heatmap",
        "importance": "tot_lab.views.figures.importance:plot_importance",
        "calibration": "tot_lab.views.figures.calibration:plot_calibration",
        "pareto_frontier": "tot_lab.views.figures.frontier:plot_pareto",
        "scaling": "tot_lab.views.figures.scaling:plot_scaling",
    },
    "formats": {
        "gsm8k": "tot_lab.domains.formats:gsm8k",
        "math500": "tot_lab.domains.formats:math500",
        "aime": "tot_lab.domains.formats:aime",
        "humaneval": "tot_lab.domains.formats:humaneval",
        "mbpp": "tot_lab.domains.formats:mbpp",
        "arc": "tot_lab.domains.formats:arc",
        "arc_agi": "tot_lab.domains.formats:arc_agi",
        "bbh": "tot_lab.domains.formats:bbh",
        "strategyqa": "tot_lab.domains.formats:strategyqa",
    },
    "task_sources": {  # functions that make tasks of an object, by the package of its class
        "inspect_ai": "tot_lab.interop.inspect_tasks:tasks_of",
    },
    "importers": {
        "journal": "tot_lab.record.importers:Journal",
        "xot": "tot_lab.record.xot:XoTLog",
        "princeton_tot": "tot_lab.record.published:PublishedLog",
        "inspect": "tot_lab.record.logs.inspect_ai:InspectLog",
        "opentelemetry": "tot_lab.record.logs.opentelemetry:Spans",
        "langsmith": "tot_lab.record.logs.langsmith:LangSmithRuns",
        "langgraph": "tot_lab.record.logs.langgraph:LangGraphStates",
        "reflexion": "tot_lab.record.logs.reflexion:ReflexionLog",
    },
}
"""The import path of each built-in component, by group and name. The name of a model may be a prefix
(`tiny/`, `local:`): the model receives the rest of the requested name.
"""

AXES = ("proposers", "evaluators", "searches", "answers")
"""The groups of the parts that make up a tree search."""

GROUPS = tuple(BUILT_IN)
"""The groups of components."""


class Component(NamedTuple):
    """A component, and its source for error messages: the package and the import path."""

    value: Any
    source: str


def names(group: str) -> list[str]:
    """The names of the components of a group. Imports nothing."""
    return [*BUILT_IN.get(group, ()), *(name for name in sorted(offered(group)) if name not in _built_in())]


def built_in(group: str) -> dict[str, Any]:
    """The built-in components of a group by name, imported."""
    return {name: imported(place) for name, place in BUILT_IN[group].items()}


def import_parts() -> None:
    """Import the built-in components that are parts, so that their aliases are known too."""
    for group in ("strategies", *AXES, "domains", "models"):
        built_in(group)


def axes() -> list[Any]:
    """The built-in parts of a tree search: proposers, evaluators, searches and answer rules."""
    return [part for group in AXES for part in built_in(group).values()]


def find(name: str, group: str | None = None) -> Component | None:
    """Import the component named `name`. Returns `None` if it is not found.

    Args:
        name: Its name, such as the `kind` of a part.
        group: Its group. `None` searches all groups.

    Raises:
        ValueError: If it belongs to a package that cannot be imported, or to several packages.
    """
    for known in BUILT_IN.values() if group is None else [BUILT_IN.get(group, {})]:
        if name in known:
            return Component(imported(known[name]), f"tot_lab ({known[name]})")
    return load_installed(name, group)


def load_installed(name: str, group: str | None = None) -> Component | None:
    """Import the component of that name from an installed package. Returns `None` if it is not found.

    Raises:
        ValueError: If several packages offer the name, or the package cannot be imported.
    """
    entries = offered(group).get(name, ())
    if not entries:
        return None
    source = " and ".join(f"{_package(entry)} ({entry.value})" for entry in entries)
    if len(entries) > 1:
        raise ValueError(f"the kind {name!r} is offered by {source}. Uninstall one of them.")
    try:
        return Component(entries[0].load(), source)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise ValueError(f"the kind {name!r} comes from {source}, which cannot be imported: {why}") from error


def offered(group: str | None = None) -> Mapping[str, tuple[EntryPoint, ...]]:
    """The entry points of installed packages in `group`, or in all groups, by name. Imports nothing.

    The result is cached: a package installed while this process runs is found by the next process.
    """
    return _offered(tuple(sys.path), group)


@lru_cache(maxsize=32)
def _offered(path: tuple[str, ...], group: str | None) -> Mapping[str, tuple[EntryPoint, ...]]:
    from importlib.metadata import entry_points  # noqa: PLC0415  its import takes a while

    found: dict[str, tuple[EntryPoint, ...]] = {}
    for each in GROUPS if group is None else (group,):
        for entry in entry_points(group=f"tot_lab.{each}"):
            if entry.name in BUILT_IN[each]:
                taken = (
                    f"{_package(entry)} offers {entry.name!r} in {entry.group!r}, but tot_lab has that name"
                )
                warnings.warn(
                    f"{taken}. The component of the package is ignored. Rename its entry point.", stacklevel=2
                )
            others = found.get(entry.name, ())
            if entry.value not in {other.value for other in others if other.dist == entry.dist}:
                found[entry.name] = (*others, entry)
    return MappingProxyType(found)


def misplaced(name: str) -> str:
    """Return a clause about an entry point `name` in an unknown group `tot_lab.…`. "" without one."""
    from importlib.metadata import entry_points  # noqa: PLC0415  its import takes a while

    groups = [f"tot_lab.{group}" for group in GROUPS]
    for entry in entry_points(name=name):
        if entry.group.startswith("tot_lab.") and entry.group not in groups:
            return f"{_package(entry)} offers it in {entry.group!r}. Known groups are {', '.join(groups)}; "
    return ""


@lru_cache(maxsize=1)
def _built_in() -> frozenset[str]:
    return frozenset(name for known in BUILT_IN.values() for name in known)


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "a package without a name"
