"""The table of models that is installed with litellm: context windows and prices.

It is read without importing litellm. Unknown values are not guessed: a price that is missing for this
provider is `None`.
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
"""Assumed tokens of the longest reply of an unknown model."""


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
