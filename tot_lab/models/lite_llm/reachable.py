"""Checks before the first call whether a model can be reached.

Only certain problems are reported: a missing key, an unknown provider, or a custom server that does not
answer. The service of a provider is not contacted.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from tot_lab.models.connections import was_refused
from tot_lab.models.lite_llm.loading import litellm_ready
from tot_lab.models.lite_llm.naming import HOMES, key_in_environment
from tot_lab.models.stack import Failure

if TYPE_CHECKING:
    from tot_lab.models.lite_llm.endpoint import LiteLLM


async def problem_of(model: LiteLLM) -> str | None:
    """Return why `model` cannot be called; see `Endpoint.problem`."""
    if model.is_providers_own:
        if model.provider not in HOMES:
            return await _no_provider(model.name)
        if model.api_key is not None or key_in_environment(model.provider):
            return None
        name = f"{model.provider.upper()}_API_KEY"
        return f"No API key for {model.name}. Set the environment variable {name}"
    ollama = model.provider == "ollama_chat"
    try:
        status, page = await model.look("api/tags" if ollama else "models")
    except Failure as failure:
        if not was_refused(failure):
            return None
        if ollama:
            where = model.base_url or HOMES[model.provider]
            wanted = model.name.partition("/")[2]
            return f"No Ollama server answers at {where} for {wanted}. Start it with `ollama serve`"
        return f"No server answers at {model.base_url} for {model.name}"
    if ollama and status == 200:
        return _not_pulled(model.name.partition("/")[2], page)
    return None


async def _no_provider(name: str) -> str | None:
    """Return a message if litellm does not know the provider of this name."""
    litellm: Any = await litellm_ready()
    provider = name.partition("/")[0]
    # A custom provider of the user.
    if any(provider == one["provider"] for one in litellm.custom_provider_map):
        return None
    try:
        litellm.get_llm_provider(model=name)
    except litellm.BadRequestError:
        near = get_close_matches(provider, ["ollama", *map(str, HOMES)], n=1)
        hint = f"did you mean {near[0]!r}?" if near else "prefix the name with one, as in ollama/qwen3:8b"
        return f"Unknown provider of {name} ({hint})"
    return None


def _not_pulled(name: str, page: Any) -> str | None:
    """Return a message if Ollama does not list the model."""
    listed = page.get("models") if isinstance(page, dict) else None
    if not isinstance(listed, list):
        return None
    names = [str(one.get("name")) for one in listed if isinstance(one, dict)]
    whole = name if ":" in name else f"{name}:latest"
    if whole in names:
        return None
    others = ", ".join(names) or "no models"
    return f"Ollama does not have the model {name}: got {others}. Get it with `ollama pull {name}`"
