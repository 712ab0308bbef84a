"""The table of models that is installed with litellm: context windows and prices.

It is read without importing litellm. Unknown values are not guessed: if the table has no price of a model at
the given provider, the price is `None`, and not that of another provider.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tot_lab.models.chat.replies import Price

UNKNOWN_OUTPUT = 4096
"""Tokens that the longest reply is assumed to have if the table does not say."""


def in_table(name: str, provider: str) -> Mapping[str, Any]:
    """Return the entry of the model `name` of `provider` in litellm's table, or {}."""
    provider = provider.removesuffix("_chat")
    for key in (name, f"{provider}/{name.partition('/')[2]}", name.partition("/")[2]):
        entry: Mapping[str, Any] | None = _table().get(key)
        if entry is not None and str(entry.get("litellm_provider", "")).startswith(provider):
            return entry
    return {}


def window_in_table(name: str, provider: str) -> int | None:
    """Return the most tokens of a prompt according to litellm's table. `None` if the table does not say."""
    window = in_table(name, provider).get("max_input_tokens")
    return int(window) if isinstance(window, int) else None


def is_in_table(name: str) -> bool:
    """Whether litellm's table has a model of exactly this name."""
    return name in _table()


@lru_cache
def _table() -> dict[str, Any]:
    """Return the table in litellm's package, which litellm uses if it downloads none. {} without litellm."""
    found = find_spec("litellm")
    path = Path(found.origin or "") if found else Path()
    table = path.with_name("model_prices_and_context_window_backup.json")
    return json.loads(table.read_bytes()) if table.is_file() else {}


def price_in(known: Mapping[str, Any]) -> Price | None:
    """Return the price in a table entry, in USD per million tokens, or `None` if the entry has none."""
    prompt, output = known.get("input_cost_per_token"), known.get("output_cost_per_token")
    if prompt is None or output is None:
        return None
    cached = known.get("cache_read_input_token_cost")
    if cached is None or cached > prompt:
        return 1e6 * float(prompt), 1e6 * float(output)
    return 1e6 * float(prompt), 1e6 * float(output), 1e6 * float(cached)
