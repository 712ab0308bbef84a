"""Providers: the model, the server and the key that a name typed by the user stands for.

Each model has one canonical name and each server one canonical URL, since cache keys depend on them. Servers
and keys are read from the environment variables that litellm would read, without importing litellm.
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
_PROVIDERS = {"ollama": "ollama_chat", "google": "gemini"}  # to litellm's names
_BARE_NAMES = {"openai": re.compile(r"gpt-|chatgpt-|o\d"), "anthropic": re.compile(r"claude-")}

HOMES = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
    "gemini": "https://generativelanguage.googleapis.com/v1beta",
    "ollama_chat": "http://localhost:11434",
}
"""Default URL of each provider."""


_PLAIN_URL = re.compile(
    r"(https?)://(\[[0-9a-f:.]+\]|[0-9a-z.-]+)(?::[0-9]{1,5})?(?:/[0-9a-z._~/-]*)?", re.ASCII | re.IGNORECASE
)


@lru_cache
def whole_name(model: str) -> str:
    """Return the canonical name of a model: `PROVIDER/NAME` as in litellm, or a bare name unchanged. The name
    of a provider alone, such as `openai`, stands for a default model.
    """
    provider, slash, rest = _DEFAULT_MODELS.get(model, model).partition("/")
    return _PROVIDERS.get(provider, provider) + slash + rest


@lru_cache
def provider_of(name: str) -> str:
    """Return the provider of a canonical name, or "" if only litellm can determine it."""
    provider, slash, _ = name.partition("/")
    if slash:
        return provider
    return next((provider for provider, form in _BARE_NAMES.items() if form.match(name)), "")


def checked_url(text: str, field: str = "api_base") -> str:
    """Return `text`, the value of the setting `field`, if it is the base URL of a server. Otherwise raises
    `ValueError`, whose message does not repeat the URL, since a URL may hold a key.
    """
    try:
        parts = urlsplit(text)
        sound = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        sound = False
    if not sound or re.search(r"[\s\x00-\x1f\x7f]", text):
        raise ValueError(f"{field} must be a URL such as http://localhost:8000/v1.")
    if "@" in parts.netloc or parts.query:
        raise ValueError(f"{field} must not have a user name, password or query. Pass a key as api_key.")
    if parts.path.rstrip("/").endswith("/completions"):
        raise ValueError(
            f"{field} must be the URL before /chat/completions, such as http://localhost:8000/v1."
        )
    return text


def is_safe_url(url: str, provider: str) -> bool:
    """Whether a key of `provider` may be sent to `url`, which an untrusted file named.

    The server must be on this machine, or be the provider's own service over HTTPS. A URL with unusual
    syntax, which two programs could parse differently, is not safe.
    """
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


def origin(url: str) -> str:
    """Return the scheme, host and port of a server's URL, without its path."""
    return "/".join(one_url(url).split("/", 3)[:3])


def is_key_of(variable: str, provider: str) -> bool:
    """Whether the name of an environment variable, such as WORK_OPENAI_KEY, says that it is a key of
    `provider`: it contains a name from `key_variables` without the ending `_API_KEY`, such as OPENAI.
    """
    prefixes = [name.removesuffix("_API_KEY") for name in key_variables(provider)]
    return any(prefix and f"_{prefix}_" in f"_{variable.upper()}_" for prefix in prefixes)


@lru_cache
def one_url(text: str) -> str:
    """Return the canonical URL of a server: a lower-case host, no default port, no final slash."""
    parts = urlsplit(text)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    port = "" if parts.port in (None, {"http": 80, "https": 443}.get(parts.scheme)) else f":{parts.port}"
    return f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}"


def url_in_environment(provider: str) -> str | None:
    """Return the URL in PROVIDER_BASE_URL or PROVIDER_API_BASE, which litellm would use, or `None`."""
    prefix = _prefix(provider)
    return os.environ.get(f"{prefix}_BASE_URL") or os.environ.get(f"{prefix}_API_BASE") or None


def key_in_environment(provider: str) -> str:
    """Return the key in the environment that litellm would send to `provider`, or ""."""
    keys = (os.environ.get(variable) for variable in key_variables(provider))
    return next(filter(None, keys), "")


def key_variables(provider: str) -> tuple[str, ...]:
    """Return the environment variables of a provider's key; litellm uses the first that is set."""
    prefixes = ("GOOGLE", "GEMINI") if provider == "gemini" else (_prefix(provider),)
    return tuple(f"{prefix}_API_KEY" for prefix in prefixes)


def _prefix(provider: str) -> str:
    return provider.removesuffix("_chat").upper()
