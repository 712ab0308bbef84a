"""From what was typed to a model, a server and a key.

Rule: one model has one name, and one server one URL, however they were written, since answers are
kept by them; and all that litellm would take from the environment is seen here first. litellm is
not needed for it.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

_DEFAULT_MODELS = {
    "openai": "openai/gpt-4.1-mini",
    "anthropic": "anthropic/claude-haiku-4-5",
    "google": "gemini/gemini-2.5-flash",
    "gemini": "gemini/gemini-2.5-flash",
    "ollama": "ollama_chat/qwen3:8b",
}
_PROVIDERS = {"ollama": "ollama_chat", "google": "gemini"}  # litellm's words for them
_BARE_NAMES = {"openai": re.compile(r"gpt-|chatgpt-|o\d"), "anthropic": re.compile(r"claude-")}

HOMES = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
    "gemini": "https://generativelanguage.googleapis.com/v1beta",
    "ollama_chat": "http://localhost:11434",
}
"""Where a provider is, when nothing else is said."""


_PLAIN_URL = re.compile(
    r"(https?)://(\[[0-9a-f:.]+\]|[0-9a-z.-]+)(?::[0-9]{1,5})?(?:/[0-9a-z._~/-]*)?", re.ASCII | re.IGNORECASE
)


@lru_cache
def whole_name(model: str) -> str:
    """A model's name with its provider, where one was named."""
    provider, slash, rest = _DEFAULT_MODELS.get(model, model).partition("/")
    return _PROVIDERS.get(provider, provider) + slash + rest


@lru_cache
def provider_of(name: str) -> str:
    """The provider that a whole name names; "" where only litellm can tell."""
    provider, slash, _ = name.partition("/")
    if slash:
        return provider
    return next((provider for provider, form in _BARE_NAMES.items() if form.match(name)), "")


def checked_url(text: str) -> str:
    """`text`, a server's URL. Raises `ValueError`, which does not hold it: there may be a key in it."""
    try:
        parts = urlsplit(text)
        sound = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        sound = False
    if not sound:
        raise ValueError("api_base must be a URL such as http://localhost:8000/v1")
    if "@" in parts.netloc or parts.query:
        raise ValueError("api_base must hold no name, password or query; give a key as api_key")
    return text


def is_safe_url(url: str, provider: str) -> bool:
    """Whether a key may be sent to `url` when a stranger named it: it is on this machine, or it is the
    provider's own service over HTTPS. A URL that two programs could read differently is not safe."""
    match = _PLAIN_URL.fullmatch(url)
    if match is None:
        return False
    scheme, host = match[1].lower(), match[2].strip("[]").lower()
    own = urlsplit(HOMES.get(provider, ""))
    if host == "localhost" or (scheme, host) == (own.scheme, own.hostname):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


@lru_cache
def one_url(text: str) -> str:
    """A server's URL in one form."""
    parts = urlsplit(text)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    port = "" if parts.port in (None, {"http": 80, "https": 443}.get(parts.scheme)) else f":{parts.port}"
    return f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}"


def url_in_environment(provider: str) -> str | None:
    """The server that litellm would ask for this provider's models."""
    prefix = _prefix(provider)
    return os.environ.get(f"{prefix}_BASE_URL") or os.environ.get(f"{prefix}_API_BASE") or None


def key_in_environment(provider: str) -> str:
    """The key that litellm would send to this provider; "" when there is none."""
    keys = (os.environ.get(variable) for variable in key_variables(provider))
    return next(filter(None, keys), "")


def key_variables(provider: str) -> tuple[str, ...]:
    """The environment variables that litellm takes this provider's key from, in its order."""
    prefixes = ("GOOGLE", "GEMINI") if provider == "gemini" else (_prefix(provider),)
    return tuple(f"{prefix}_API_KEY" for prefix in prefixes)


def _prefix(provider: str) -> str:
    return provider.removesuffix("_chat").upper()
