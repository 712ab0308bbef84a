"""What litellm says about a model: its provider, its entry in the table, and the tokens of a prompt.

Estimates are high rather than low: tokens of other tokenizers are overestimated.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import ModuleType
from typing import Any

from tot_lab.core.calls import Call
from tot_lab.models.chat.requests import messages_of, tools_of

OLLAMA_WINDOW = 4096
"""Tokens of a prompt that Ollama keeps by default. It truncates the rest silently."""


@lru_cache
def resolved(litellm: ModuleType, name: str) -> tuple[str, str]:
    """Return the model's own name and its provider. Raises litellm's error if it does not know them."""
    model, provider, _, _ = litellm.get_llm_provider(model=name)
    return model, provider


def known_of(litellm: ModuleType, name: str) -> Mapping[str, Any]:
    """Return litellm's table entry of the model, {} for one that it does not know."""
    try:
        model, provider = resolved(litellm, name)
    except litellm.BadRequestError:
        return {}
    provider = provider.removesuffix("_chat")
    for key in (name, f"{provider}/{model}", model):
        entry: Mapping[str, Any] | None = litellm.model_cost.get(key)
        if entry is not None and str(entry.get("litellm_provider", "")).startswith(provider):
            return entry
    return {}


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
    model, provider = resolved(litellm, name) if known_of(litellm, name) else ("", "")
    exact = provider == "openai"
    counted = litellm.token_counter(
        model=model if exact else "gpt-4o", messages=messages_of(call), tools=tools_of(call) or None
    )
    return int(counted) if exact else int(counted) * 5 // 4 + 8
