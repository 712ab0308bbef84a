"""What litellm knows of a model beforehand: its provider, its window, its tokens, its price.

Rule: too much rather than too little, and unknown rather than guessed. Tokens that only another
tokenizer can count are counted high; a price that the table lacks for this provider is None.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from tot_lab.core.calls import Call
from tot_lab.models.lite_llm.asking import messages_of, tools_of

OLLAMA_WINDOW = 4096
"""Tokens that Ollama keeps of a prompt when nothing is said: the rest it cuts off in silence."""

UNKNOWN_OUTPUT = 4096
"""Tokens taken for the longest reply of a model of which nothing is known."""

Price = tuple[float, float]
"""USD per million tokens of (prompt, reply)."""


@lru_cache
def resolved(litellm: ModuleType, name: str) -> tuple[str, str]:
    """The model's own name and its provider. Raises what litellm raises when it knows neither."""
    model, provider, _, _ = litellm.get_llm_provider(model=name)
    return model, provider


def known_of(litellm: ModuleType, name: str) -> Mapping[str, Any]:
    """What litellm's table says of the model; {} when it is not there."""
    model, provider = resolved(litellm, name)
    provider = provider.removesuffix("_chat")
    for key in (name, f"{provider}/{model}", model):
        entry: Mapping[str, Any] | None = litellm.model_cost.get(key)
        if entry is not None and str(entry.get("litellm_provider", "")).startswith(provider):
            return entry
    return {}


def window_in_table(name: str, provider: str) -> int | None:
    """Tokens of prompt that litellm's table gives the model `name`; None when it is not there. litellm itself
    is not needed for it."""
    provider = provider.removesuffix("_chat")
    for key in (name, f"{provider}/{name.partition('/')[2]}", name.partition("/")[2]):
        entry = _table().get(key)
        if entry is not None and str(entry.get("litellm_provider", "")).startswith(provider):
            window = entry.get("max_input_tokens")
            return int(window) if isinstance(window, int) else None
    return None


@lru_cache
def _table() -> dict[str, Any]:
    """litellm's table as it is installed: the one that it reads when it fetches none."""
    found = find_spec("litellm")
    path = Path(found.origin or "") if found else Path()
    table = path.with_name("model_prices_and_context_window_backup.json")
    return json.loads(table.read_bytes()) if table.is_file() else {}


def price_in(known: Mapping[str, Any]) -> Price | None:
    """The price that the table gives."""
    prompt, output = known.get("input_cost_per_token"), known.get("output_cost_per_token")
    return None if prompt is None or output is None else (1e6 * float(prompt), 1e6 * float(output))


def usd(price: Price, prompt: int, output: int) -> float:
    """What so many tokens cost."""
    return (prompt * price[0] + output * price[1]) / 1e6


def is_plain(usage: Any) -> bool:
    """Whether the two prices are all there is to a request: nothing was cached, thought, heard or
    looked up, and no tier for long prompts begins. litellm knows the rest, and takes longer."""
    parts = (usage.prompt_tokens_details, usage.completion_tokens_details)
    special = [name for part in parts if part is not None for name, value in part if value]
    beside = ("cache_creation_input_tokens", "server_tool_use")
    special += [name for name in beside if getattr(usage, name, None)]
    return usage.prompt_tokens < 100_000 and set(special) <= {"text_tokens"}


def prompt_tokens(litellm: ModuleType, name: str, call: Call) -> int:
    """Tokens of the prompt. Other tokenizers than OpenAI's are stood in for, so a quarter is added."""
    model, provider = resolved(litellm, name)
    exact = provider == "openai" and bool(known_of(litellm, name))
    counted = litellm.token_counter(
        model=model if exact else "gpt-4o", messages=messages_of(call), tools=tools_of(call) or None
    )
    return int(counted) if exact else int(counted) * 5 // 4 + 8


def shared(whole: int, sizes: Sequence[int]) -> list[int]:
    """`whole` in parts as large as `sizes` are; the first takes what is left."""
    total = sum(sizes)
    parts = [whole * size // total if total else 0 for size in sizes]
    return [whole - sum(parts[1:]), *parts[1:]]
