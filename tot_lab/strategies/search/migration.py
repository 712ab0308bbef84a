"""Migration of tree search settings from earlier versions.

Journals of schema 1 store the settings of a tree search in one flat level (`branch_factor`, `beam_width`,
`generate`, …). They are converted to the nested values of an equal search.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FLAT = {
    "branch_factor", "generate", "proposal_draws", "evaluate", "evaluation_draws", "combine",
    "max_parse_retries", "proposer_prompt", "evaluator_prompt", "tools", "max_tool_round_trips",
    "effect_policy", "most_result_characters", "overflow", "beam_width", "max_depth", "max_nodes",
    "traversal", "answer", "min_score", "solved_threshold", "min_depth", "convergence_window",
    "min_score_improvement", "top_k",
}  # fmt: skip
"""Fields of `tree_of_thoughts` that no longer exist, and those whose values have changed."""

_NEW = {"propose", "search", "stop"}

_ANSWERS = {"path": "best_path", "best": "best", "leaf": "best_leaf", "deepest": "deepest"}

_SEARCHES = {
    "beam": "beam_search",
    "bfs": "beam_search",
    "dfs": "depth_first",
    "function_traversal": "function_search",
}

_STOP = {
    "solved_threshold": "solved",
    "max_depth": "depth",
    "max_nodes": "nodes",
    "min_score_improvement": "min_improvement",
    "min_depth": "min_depth",
    "min_score": "min_score",
}


def migrate_settings(old: dict[str, Any]) -> dict[str, Any]:
    """Convert the settings of a `tree_of_thoughts` or `tree_then_act` of any version to this version.

    Current settings are returned unchanged. Unknown fields are kept, so that validation rejects them by name.
    """
    if old.get("kind") not in _MIGRATIONS or not _is_flat(old):
        return old
    return _MIGRATIONS[old["kind"]](old)


def _is_flat(settings: Mapping[str, Any]) -> bool:
    """Whether `settings` have the flat form: none of the new fields, and one of the old."""
    if _NEW & settings.keys():
        return False
    same = {"evaluate", "answer"}  # names of old and of new fields; the values tell them apart
    return bool((_FLAT - same) & settings.keys())


def _tree_of_thoughts(old: dict[str, Any]) -> dict[str, Any]:
    stop = {new: old[name] for name, new in _STOP.items() if name in old}
    if "convergence_window" in old:
        window = old["convergence_window"]
        stop["patience"] = window - 1 if isinstance(window, int) and window > 1 else None
    answer = {"kind": _ANSWERS.get(old.get("answer", "path"), old.get("answer"))}
    return {
        **{name: value for name, value in old.items() if name not in _FLAT},
        "propose": _proposer(old, "sample"),
        "evaluate": _evaluator(old, "value"),
        "search": _search(old),
        "answer": {**answer, **_given(old, top_k="top_k")},
        "stop": {"kind": "stop", **stop},
    }


def _tree_then_act(old: dict[str, Any]) -> dict[str, Any]:
    same = {"max_depth", "min_score", "min_score_improvement"}
    return {
        **{name: value for name, value in old.items() if name not in _FLAT - same},
        "propose": _proposer({**old, "tools": []}, "propose"),
        "evaluate": _evaluator(old, "joint"),
    }


_MIGRATIONS = {
    "tree_of_thoughts": _tree_of_thoughts,
    "tree_then_act": _tree_then_act,
    "tree-of-thought": _tree_then_act,
}


def _given(old: Mapping[str, Any], **names: str) -> dict[str, Any]:
    """The settings that `old` has, under their new names."""
    return {new: old[name] for new, name in names.items() if name in old}


def _proposer(old: Mapping[str, Any], default: str) -> dict[str, Any]:
    kind = old.get("generate", default)
    fields = {"count": "branch_factor", "prompt": "proposer_prompt", "max_parse_retries": "max_parse_retries"}
    if kind == "propose":
        fields["samples"] = "proposal_draws"
    made = {"kind": kind, **_given(old, **fields)}
    tools = old.get("tools", [])
    if tools is not None and not tools:
        return made
    with_tools = _given(
        old,
        tools="tools",
        max_round_trips="max_tool_round_trips",
        effect_policy="effect_policy",
        max_result_characters="most_result_characters",
        overflow="overflow",
    )
    return {"kind": "with_tools", "proposer": made, **with_tools}


def _evaluator(old: Mapping[str, Any], default: str) -> dict[str, Any]:
    kind = old.get("evaluate", default)
    if isinstance(kind, dict):
        return {"kind": "function_evaluator", "function": kind} if kind.get("kind") == "function" else kind
    fields = {"samples": "evaluation_draws", "max_parse_retries": "max_parse_retries"}
    if kind == "logprob":
        fields = {}
    if kind in ("value", "parts", "joint"):
        fields["combine"] = "combine"
    if kind != "parts":
        fields["prompt"] = "evaluator_prompt"
    return {"kind": kind, **_given(old, **fields)}


def _search(old: Mapping[str, Any]) -> dict[str, Any]:
    given = old.get("traversal", "beam")
    made = dict(given) if isinstance(given, dict) else {"kind": given}
    made["kind"] = _SEARCHES.get(str(made.get("kind")), made.get("kind"))
    return {**made, "width": old.get("beam_width", 2)}
