"""Whether a model can be asked at all, told before the first call.

Rule: only what is certain is said: a key that is lacking, weights that are not there, a server of one's own
that does not answer. A provider's service is not asked, and what it refuses its first call tells.
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import Any

from tot_lab.models.lite_llm import LiteLLM
from tot_lab.models.lite_llm.loading import litellm_ready
from tot_lab.models.lite_llm.naming import HOMES, key_in_environment
from tot_lab.models.local import Local
from tot_lab.models.stack import Failure
from tot_lab.models.weights import find


class NoModel(RuntimeError):
    """There is no model to ask; the message says what to do."""


async def why_not(model: Any) -> str | None:
    """Why `model` cannot be asked, and what to do; None when nothing speaks against it."""
    if isinstance(model, Local):
        try:
            find(model.weights)
        except FileNotFoundError as error:
            return str(error)
    if not isinstance(model, LiteLLM):
        return None
    if model.is_providers_own:
        if model.provider not in HOMES:
            return await _no_provider(model.name)
        if model.api_key is not None or key_in_environment(model.provider):
            return None
        name = f"{model.provider.upper()}_API_KEY"
        return f"there is no key for {model.name}: put one into the environment as {name}"
    ollama = model.provider == "ollama_chat"
    try:
        status, told = await model.look("api/tags" if ollama else "models")
    except Failure as failure:
        if not isinstance(failure.__context__, import_module("httpx").ConnectError):  # it may be busy
            return None
        if ollama:
            where = model.base_url or HOMES[model.provider]
            wanted = model.name.partition("/")[2]
            return f"no Ollama answers at {where}, where {wanted} should be; `ollama serve` starts it"
        return f"no server answers at {model.base_url}, where {model.name} should be"
    if ollama and status == 200:
        return _not_pulled(model.name.partition("/")[2], told)
    return None


async def _no_provider(name: str) -> str | None:
    """That litellm, which would ask it, knows no provider of this name."""
    litellm: Any = await litellm_ready()
    provider = name.partition("/")[0]
    if any(provider == one["provider"] for one in litellm.custom_provider_map):  # of the user's own
        return None
    try:
        litellm.get_llm_provider(model=name)
    except litellm.BadRequestError:
        near = get_close_matches(provider, ["ollama", *map(str, HOMES)], n=1)
        hint = f"did you mean {near[0]!r}?" if near else "it stands before the name, as in ollama/qwen3:8b"
        return f"no provider of {name} is known ({hint})"
    return None


def _not_pulled(name: str, told: Any) -> str | None:
    """That an Ollama does not have the model, by its own list."""
    listed = told.get("models") if isinstance(told, dict) else None
    if not isinstance(listed, list):
        return None
    names = [str(one.get("name")) for one in listed if isinstance(one, dict)]
    whole = name if ":" in name else f"{name}:latest"
    if whole in names:
        return None
    others = ", ".join(names) or "none at all"
    return f"this Ollama has no model {name} (it has {others}); `ollama pull {name}` gets it"
