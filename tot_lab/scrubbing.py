"""What nobody may see in a text, and what no file can hold.

Rule: a text from outside that may hold a key passes through here before it is recorded or shown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
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
        text = text.replace(secret, "•••")
        begun = (secret[:most] for most in range(len(secret) - 1, SHORTEST - 1, -1))
        if (end := next(filter(text.endswith, begun), None)) is not None:
            text = text[: -len(end)] + "•••"
    return clean(_ENDS_OF_A_KEY.sub("•••", text))


def clean(text: str) -> str:
    """`text` without lone surrogates, which no file can hold."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)
