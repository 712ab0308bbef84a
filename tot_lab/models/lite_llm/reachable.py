"""Problems that can be found before the first call to a model.

Only certain problems are reported: a missing key, an unknown provider, or a custom server that does not
answer. The service of a provider is not contacted.
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Any

from tot_lab.models.chat.about import count_in
from tot_lab.models.lite_llm.loading import litellm_ready
from tot_lab.models.providers import HOMES, key_in_environment
from tot_lab.models.stack import NO_SERVER


async def problem_of_service(name: str, provider: str, *, has_key: bool) -> str | None:
    """Return why the service of a provider cannot be called; see `Endpoint.problem`."""
    if provider not in HOMES:
        return await _no_provider(name)
    if has_key or key_in_environment(provider):
        return None
    hint = ". The file .env is not read" if Path(".env").exists() else ""
    return f"No API key for {name}. Set the environment variable {provider.upper()}_API_KEY{hint}"


def problem_of_server(name: str, provider: str, base_url: str | None) -> str:
    """Return the message about a custom server that refuses connections."""
    if provider != "ollama_chat":
        return NO_SERVER.format(base_url, name, "api_base")
    where, wanted = base_url or HOMES[provider], name.partition("/")[2]
    return f"No Ollama server answers at {where} for {wanted}. Start it with `ollama serve`"


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
        known = ["ollama", *HOMES]
        near = get_close_matches(provider, known, n=1) or get_close_matches(name, litellm.model_cost, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "prefix the name with one, as in ollama/qwen3:8b"
        return f"Unknown provider of {name} ({hint})"
    return None


def not_pulled(name: str, page: Any) -> str | None:
    """Return a message if Ollama's list of models lacks the model `name`."""
    name = name.partition("/")[2]
    names = _names_in(page)
    whole = name if ":" in name else f"{name}:latest"
    if names is None or whole in names:
        return None
    others = ", ".join(names) or "no models"
    return f"Ollama does not have the model {name}: got {others}. Get it with `ollama pull {name}`"


def pulled_in(page: Any) -> tuple[str, ...]:
    """Return the names in Ollama's list of models."""
    return tuple(_names_in(page) or ())


def window_shown_in(page: Any) -> int | None:
    """Return the context window in Ollama's page about a model, or `None`."""
    info = page.get("model_info") if isinstance(page, dict) else None
    names = [name for name in info if name.endswith(".context_length")] if isinstance(info, dict) else []
    return count_in(info, names[0]) if names else None


def _names_in(page: Any) -> list[str] | None:
    """Return the names in Ollama's list of models, or `None` if the page is no such list."""
    listed = page.get("models") if isinstance(page, dict) else None
    if not isinstance(listed, list):
        return None
    return [str(model["name"]) for model in listed if isinstance(model, dict) and model.get("name")]
