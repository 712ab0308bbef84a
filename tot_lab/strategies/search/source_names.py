"""The names that the published designs give to settings of a tree search.

Each preset has one table, which its docstring shows. `TreeOfThoughts` accepts the names of all tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tot_lab.core.parts import Alias


def _patience(window: Any) -> int | None:
    """The patience for a window of `window` scores. `None` (off) for a window of one score."""
    if type(window) is not int or window < 1:
        raise ValueError(f"must be an integer of at least 1: got {window!r}.")
    return window - 1 or None


def _seconds(milliseconds: Any) -> float | None:
    if milliseconds is None:
        return None
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float) or milliseconds < 0:
        raise ValueError(f"must be a number of milliseconds: got {milliseconds!r}.")
    return milliseconds / 1000


def _duration(milliseconds: Any) -> float | None:
    seconds = _seconds(milliseconds)
    if seconds == 0:
        raise ValueError("must be positive, or None for no limit: got 0.")
    return seconds


BEAM_SEARCH: Mapping[str, str | Alias] = {
    "branch_factor": "propose.count",
    "max_depth": "stop.depth",
    "beam_width": "search.width",
    "solved_threshold": "stop.solved",
    "min_score": "stop.min_score",
    "parallel": "parallel",
    "proposer_prompt": "propose.prompt",
    "evaluator_prompt": "evaluate.prompt",
}
"""Names of `tl.presets.beam_search` (JeevesAgent)."""

STATE_MACHINE: Mapping[str, str | Alias] = {
    "model": "model",
    "branching_factor": "propose.count",
    "max_depth": "stop.depth",
    "traversal_strategy": Alias(("search",), note="best_first, bfs or dfs"),
    "beam_width": "search.width",
    "generation_prompt": "propose.prompt",
    "evaluation_prompt": "evaluate.prompt",
    "max_parse_retries": Alias(("propose.max_parse_retries", "evaluate.max_parse_retries")),
    "top_k": "answer.top_k",
    "min_depth": "stop.min_depth",
    "max_nodes": "stop.nodes",
    "max_duration_ms": Alias(("budget.seconds",), _duration, "in seconds"),
    "early_success_threshold": "stop.solved",
    "convergence_window": Alias(("stop.patience",), _patience, "one less; 1 is None, which is off"),
    "min_score_improvement": "stop.min_improvement",
    "tools": "propose.tools",
    "tool_timeout_ms": Alias(("propose.tool_timeout",), _seconds, "in seconds"),
    "tool_max_retries": "propose.tool_retries",
    "tool_retry_backoff_ms": Alias(("propose.tool_backoff",), _seconds, "in seconds"),
    "max_tool_round_trips": "propose.max_round_trips",
    "effect_policy": "propose.effect_policy",
    "strategy_effect_policy": "propose.effect_policy",
    "agent_effect_policy": "tl.Lab(effect_policy=…)",
    "tool_context": "tl.Lab(tool_context=…)",
}
"""Names of `tl.presets.state_machine` (Jido AI)."""

OTHERS: Mapping[str, str | Alias] = {
    "breadth": "search=tl.BeamSearch(width=…), or as propose=tl.Sample(count=…)",  # it has both meanings
    "depth": "stop.depth",
    "pruning_threshold": "stop.min_score",
    "num_branches": "propose.count",
}
"""Names that the other published designs give to the same settings."""
