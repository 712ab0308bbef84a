"""What nobody may see in a text, and what no file can hold.

Rule: a text from outside that may hold a key passes through here before it is recorded or shown. An error or
a tool's result loses all that looks like a secret (`scrubbed`); a good reply loses long keys and nothing else
(`without_keys`), since it is data.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, SecretStr

_SECRET = re.compile(
    r"(?:(?:^|[_\W]|(?-i:(?<=[a-z\d])(?=[A-Z])))(?:api)?(?:key|token|secret|pass|credential)s?|passw(?:or)?ds?)$",
    re.IGNORECASE,
)
_ENDS_OF_A_KEY = re.compile(r"(?<![\w-])[\w-]+\*{3,}[\w-]*")  # as OpenAI shows them
_SURROGATE = re.compile("[\ud800-\udfff]")

SHORTEST = 8
"""Characters of what can be known as a secret by its name alone; also of the beginning of one."""

LONG = 16
"""Characters of a key that is taken out of good replies too: a shorter one may be a word, such as `EMPTY`."""

HIDDEN = "•••"
"""What stands in the place of a secret."""


def secrets_in(values: Mapping[str, Any]) -> list[str]:
    """The texts in `values`, at any depth, that are secret by their type, or by their names."""
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


def scrubbed(text: str, *keys: str) -> str:
    """`text` without `keys`, and without any that the environment holds; nor the beginning of one, where
    the text was cut off inside it."""
    secrets = [key for key in keys if len(key) > 3] + secrets_in(os.environ)
    for secret in sorted(secrets, key=len, reverse=True):
        text = without_beginning(text.replace(secret, HIDDEN), secret)
    return clean(_ENDS_OF_A_KEY.sub(HIDDEN, text))


def long_keys(*keys: str) -> list[str]:
    """Those of `keys`, and of the secrets that the environment holds, which a good reply may not repeat,
    also as JSON writes them; the longest first. A path is the place of a secret, and none itself."""
    in_environment = (secret for secret in secrets_in(os.environ) if not secret.startswith(("/", "~", "./")))
    long = {key for key in (*keys, *in_environment) if len(key) >= LONG}
    return sorted(long | {json.dumps(key)[1:-1] for key in long}, key=len, reverse=True)


def without_keys(text: str, keys: Sequence[str]) -> str:
    """`text` without `keys`, otherwise unchanged."""
    for key in keys:
        text = text.replace(key, HIDDEN)
    return text


def without_beginning(text: str, key: str) -> str:
    """`text` without the beginning of `key` at its end, where it was cut off inside the key."""
    begun = (key[:most] for most in range(len(key) - 1, SHORTEST - 1, -1))
    end = next(filter(text.endswith, begun), None)
    return text if end is None else text[: -len(end)] + HIDDEN


def clean(text: str) -> str:
    """`text` without lone surrogates, which no file can hold."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)
