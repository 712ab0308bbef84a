"""What litellm's table says about a model: provider, context window, tokens and price.

Estimates are high rather than low, and unknown values are not guessed. Tokens of other tokenizers are
overestimated, and a price that is missing for this provider is `None`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from tot_lab.core.calls import Call
from tot_lab.models.chat.replies import Price
from tot_lab.models.chat.requests import messages_of, tools_of

OLLAMA_WINDOW = 4096
"""Tokens of a prompt that Ollama keeps by default. It truncates the rest silently."""

UNKNOWN_OUTPUT = 4096
"""Assumed tokens of the longest reply of an unknown model."""


@lru_cache
def resolved(litellm: ModuleType, name: str) -> tuple[str, str]:
    """Return the model's own name and its provider. Raises litellm's error if it does not know them."""
    model, provider, _, _ = litellm.get_llm_provider(model=name)
    return model, provider


def known_of(litellm: ModuleType, name: str) -> Mapping[str, Any]:
    """Return litellm's table entry of the model, or {}."""
    model, provider = resolved(litellm, name)
    provider = provider.removesuffix("_chat")
    for key in (name, f"{provider}/{model}", model):
        entry: Mapping[str, Any] | None = litellm.model_cost.get(key)
        if entry is not None and str(entry.get("litellm_provider", "")).startswith(provider):
            return entry
    return {}


def in_table(name: str, provider: str) -> Mapping[str, Any]:
    """Return the model's entry in litellm's table, or {}, without importing litellm."""
    provider = provider.removesuffix("_chat")
    for key in (name, f"{provider}/{name.partition('/')[2]}", name.partition("/")[2]):
        entry: Mapping[str, Any] | None = _table().get(key)
        if entry is not None and str(entry.get("litellm_provider", "")).startswith(provider):
            return entry
    return {}


def window_in_table(name: str, provider: str) -> int | None:
    """Return the tokens of a prompt in litellm's table, or `None`, without importing litellm."""
    window = in_table(name, provider).get("max_input_tokens")
    return int(window) if isinstance(window, int) else None


def is_in_table(name: str) -> bool:
    """Whether litellm's table has a model of that name, without importing litellm."""
    return name in _table()


@lru_cache
def _table() -> dict[str, Any]:
    """Return litellm's installed table, which it uses if it does not download one."""
    found = find_spec("litellm")
    path = Path(found.origin or "") if found else Path()
    table = path.with_name("model_prices_and_context_window_backup.json")
    return json.loads(table.read_bytes()) if table.is_file() else {}


def price_in(known: Mapping[str, Any]) -> Price | None:
    """Return the price in a table entry, or `None`."""
    prompt, output = known.get("input_cost_per_token"), known.get("output_cost_per_token")
    if prompt is None or output is None:
        return None
    cached = known.get("cache_read_input_token_cost")
    if cached is None or cached > prompt:
        return 1e6 * float(prompt), 1e6 * float(output)
    return 1e6 * float(prompt), 1e6 * float(output), 1e6 * float(cached)


def is_plain(usage: Any) -> bool:
    """Whether the two prices determine the cost of a request.

    This is not so with cached, thinking or audio tokens, searches, or long prompts with their own price.
    litellm computes these, which takes longer.
    """
    parts = (usage.prompt_tokens_details, usage.completion_tokens_details)
    special = [name for part in parts if part is not None for name, value in part if value]
    beside = ("cache_creation_input_tokens", "server_tool_use")
    special += [name for name in beside if getattr(usage, name, None)]
    return usage.prompt_tokens < 100_000 and set(special) <= {"text_tokens"}


def prompt_tokens(litellm: ModuleType, name: str, call: Call) -> int:
    """Return the tokens of the prompt. Counts for tokenizers other than OpenAI's are approximate, so a
    quarter is added.
    """
    model, provider = resolved(litellm, name)
    exact = provider == "openai" and bool(known_of(litellm, name))
    counted = litellm.token_counter(
        model=model if exact else "gpt-4o", messages=messages_of(call), tools=tools_of(call) or None
    )
    return int(counted) if exact else int(counted) * 5 // 4 + 8
