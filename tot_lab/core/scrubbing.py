"""Removal of secrets and of characters that cannot be encoded.

Text from outside that may contain a key passes through here before it is recorded or shown. Errors and tool
results lose everything that looks like a secret (`scrubbed`). Successful replies are data, and lose only long
keys (`without_keys`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, SecretStr

_SECRET = re.compile(
    r"(?:(?:^|[_\W]|(?-i:(?<=[a-z\d])(?=[A-Z])))(?:api)?(?:key|token|secret|pass|credential)s?|passw(?:or)?ds?)$",
    re.IGNORECASE,
)
_ENDS_OF_A_KEY = re.compile(r"(?<![\w-])[\w-]+\*{3,}[\w-]*")  # the format of OpenAI's error messages
_SURROGATE = re.compile("[\ud800-\udfff]")

SHORTEST = 8
"""The shortest value that counts as a secret by its name, and the shortest prefix of a secret."""

LONG = 16
"""The shortest key that is removed from successful replies. A shorter one may be a word, such as `EMPTY`."""

HIDDEN = "•••"
"""Replaces a secret."""


def secrets_in(values: Mapping[str, Any]) -> list[str]:
    """The strings in `values`, at any depth, that are secret by type or by name."""
    found = []
    for name, value in values.items():
        if isinstance(value, SecretStr):
            found.append(value.get_secret_value())
        elif isinstance(value, str) and len(value) >= SHORTEST and _SECRET.search(str(name)):
            found.append(value)
        elif isinstance(value, Mapping | BaseModel):
            found += secrets_in(dict(value))
        elif isinstance(value, list | tuple):
            found += secrets_in({f"{k}_{name}": item for k, item in enumerate(value)})
    return found


_SEARCHED: list[tuple[dict[Any, Any], list[str]]] = [({}, [])]


def secrets_in_environment() -> list[str]:
    """The secrets of the environment, which is searched again only if it has changed."""
    now = getattr(os.environ, "_data", os.environ)  # the bytes, without decoding each of them
    if now != _SEARCHED[0][0]:
        _SEARCHED[0] = dict(now), secrets_in(os.environ)
    return _SEARCHED[0][1]


def scrubbed(text: str, *keys: str) -> str:
    """Remove `keys` and all secrets of the environment from `text`, including one that is truncated at its
    end or before a final ellipsis.
    """
    end = "…" if text.endswith("…") else ""
    text = text.removesuffix(end)
    secrets = [key for key in keys if len(key) > 3] + secrets_in_environment()
    for secret in sorted(secrets, key=len, reverse=True):
        text = without_beginning(text.replace(secret, HIDDEN), secret)
    return clean(_ENDS_OF_A_KEY.sub(HIDDEN, text)) + end


def long_keys(*keys: str) -> tuple[str, ...]:
    """The secrets among `keys` and the environment that are removed from successful replies, longest first.

    Their JSON-escaped forms are included. Paths are excluded: they locate a secret and are not secret
    themselves.
    """
    return _long_keys(keys, tuple(secrets_in_environment()))


@lru_cache(16)
def _long_keys(keys: tuple[str, ...], environment: tuple[str, ...]) -> tuple[str, ...]:
    in_environment = (secret for secret in environment if not secret.startswith(("/", "~", "./")))
    long = {key for key in (*keys, *in_environment) if len(key) >= LONG}
    return tuple(sorted(long | {json.dumps(key)[1:-1] for key in long}, key=len, reverse=True))


def without_keys(text: str, keys: Sequence[str]) -> str:
    """Remove `keys` from `text`."""
    for key in keys:
        text = text.replace(key, HIDDEN)
    return text


def without_beginning(text: str, key: str) -> str:
    """Remove a truncated `key` from the end of `text`."""
    begun = (key[:most] for most in range(len(key) - 1, SHORTEST - 1, -1))
    end = next(filter(text.endswith, begun), None)
    return text if end is None else text[: -len(end)] + HIDDEN


def clean(text: str) -> str:
    """Replace lone surrogates in `text`, which cannot be encoded."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)
