"""Removal of secrets and of characters that cannot be encoded.

Text from outside that may contain a key passes through here before it is recorded or shown. Errors and tool
results lose every known secret, also a truncated one (`scrubbed`). Successful replies are data, and lose only
long keys (`without_keys`). Both find a secret as it is, and encoded for URLs, in JSON, in base64 or in
hexadecimal digits.
"""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote, unquote_plus

from pydantic import BaseModel, SecretStr

_SECRET = re.compile(
    r"(?:(?:^|[_\W]|(?-i:(?<=[a-z\d])(?=[A-Z])))(?:api)?(?:key|token|secret|pass|credential)s?|passw(?:or)?ds?)_?\d*$",
    re.IGNORECASE,
)
_ENDS_OF_A_KEY = re.compile(r"(?<![\w-])[\w-]+\*{3,}[\w-]*")  # the format of OpenAI's error messages
_SURROGATE = re.compile("[\ud800-\udfff]")

SHORTEST = 8
"""Minimum length of a value that counts as secret because of its name, such as `API_KEY`. A truncated secret
is recognised if at least as many characters are left."""

LONG = 16
"""Minimum length of a key that is removed from successful replies. A shorter one may be a word (`EMPTY`)."""

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
    """Remove `keys` and all secrets of the environment from `text`, also a secret that is truncated at the
    end of the text or before a final ellipsis. Keys of up to three characters stay.
    """
    end = "…" if text.endswith("…") else ""
    text = text.removesuffix(end)
    secrets = [key for key in keys if len(key) > 3] + secrets_in_environment()
    if secrets:
        longest_first = tuple(sorted(secrets, key=len, reverse=True))
        text = without_keys(text, longest_first)
        for secret in longest_first:
            for written in dict.fromkeys((secret, quote(secret, safe="", errors="replace"))):
                text = without_beginning(text, written)
    return clean(_ENDS_OF_A_KEY.sub(HIDDEN, text)) + end


def long_keys(*keys: str) -> tuple[str, ...]:
    """The secrets among `keys` and the environment that are removed from successful replies, longest first.

    Paths in the environment are excluded: they locate a secret and are not secret themselves.
    """
    return _long_keys(keys, tuple(secrets_in_environment()))


def _is_path(secret: str) -> bool:
    return secret.startswith(("/", "~", "./"))


@lru_cache(16)
def _long_keys(keys: tuple[str, ...], environment: tuple[str, ...]) -> tuple[str, ...]:
    in_environment = (secret for secret in environment if not _is_path(secret))
    return tuple(sorted({key for key in (*keys, *in_environment) if len(key) >= LONG}, key=len, reverse=True))


def holds_secret(text: str, *keys: str) -> bool:
    """Whether `text` holds one of `keys` or a secret of the environment, also encoded for URLs, in JSON, in
    base64 or in hexadecimal digits. A secret of at least `LONG` letters and digits is also found in other
    case and with other punctuation. So is its first or its second half, if that half alone has at least
    `LONG` letters and digits. Ciphers are not recognised. Paths, and secrets of fewer than `SHORTEST`
    characters, do not count.
    """
    secrets = [
        key for key in (*keys, *secrets_in_environment()) if len(key) >= SHORTEST and not _is_path(key)
    ]
    if not secrets:
        return False
    texts = [text]
    for _ in range(_DECODED):
        texts.append(unquote_plus(texts[-1], errors="replace"))
    bare = [_bare(part) for secret in secrets for part in _parts_that_tell(secret)]
    return any(
        without_keys(one, secrets) != one or any(map(_bare(one).__contains__, bare))
        for one in dict.fromkeys(texts)
    )


def _parts_that_tell(secret: str) -> Iterator[str]:
    """Yield the parts of a secret that reveal it, whatever their case and punctuation."""
    middle = len(secret) // 2
    halves = (secret[:middle], secret[middle:]) if middle >= LONG else ()
    return (part for part in (secret, *halves) if len(_bare(part)) >= LONG)


def _bare(text: str) -> str:
    return _SIGNS.sub("", text).casefold()


_SIGNS = re.compile(r"[\W_]+")
_DECODED = 3  # how many times a text may be encoded for a URL


def without_keys(text: str, keys: Sequence[str]) -> str:
    """Remove `keys` from `text`, also encoded for URLs, in JSON, in base64 or in hexadecimal digits."""
    for form in forms_of(tuple(keys)):
        if form.rare in text:
            text = form.pattern.sub(HIDDEN, text)
    return text


class Form(NamedTuple):
    """A way of writing a secret. Every match of `pattern` contains `rare`, a text that is faster to find."""

    rare: str
    pattern: re.Pattern[str]


@lru_cache(64)
def forms_of(keys: tuple[str, ...]) -> tuple[Form, ...]:
    """Return patterns that find each of `keys`, plain and encoded, in the order of `keys`."""
    forms = []
    for key in filter(None, keys):
        runs = _ENCODED.split(key)
        forms.append(Form(max(runs, key=len), re.compile("".join(_written(part) for part in _parts(key)))))
        forms += [Form(digits, re.compile(re.escape(digits))) for digits in _as_digits(key)]
    return tuple(forms)


_ENCODED = re.compile(r"[^A-Za-z0-9_.~-]+")  # URLs and JSON leave all other characters as they are


def _parts(key: str) -> list[str]:
    return re.findall(r"[A-Za-z0-9_.~-]+|\\+|[^\\]", key)


def _written(part: str) -> str:
    """Return a pattern that finds `part` as it is, in a URL, and in JSON that may be inside JSON."""
    if not _ENCODED.match(part):
        return re.escape(part)
    in_url = f"(?i:{quote(part, safe='', errors='replace')})"
    if part[0] == "\\":
        return rf"(?:\\++|{in_url})"
    in_json = re.escape(json.dumps(part)[1:-1].lstrip("\\"))
    more = "|[+]" if part == " " else ""
    return rf"(?:\\*+{re.escape(part)}|\\++(?i:{in_json})|{in_url}{more})"


def _as_digits(key: str) -> list[str]:
    """Return `key` in hexadecimal digits, and those characters of its base64 that do not depend on the text
    around `key`, one text for each alignment and alphabet.
    """
    if len(key) < SHORTEST:
        return []
    data = key.encode(errors="replace")
    digits = {data.hex(): None, data.hex().upper(): None}
    for before in range(3):
        whole = b64encode(bytes(before) + data).decode()[(0, 2, 3)[before] : (before + len(data)) * 8 // 6]
        digits |= {whole: None, whole.translate(str.maketrans("+/", "-_")): None}
    return list(digits)


def without_beginning(text: str, key: str) -> str:
    """Replace a truncated `key` (at least `SHORTEST` characters) at the end of `text` by `HIDDEN`."""
    begun = (key[:most] for most in range(len(key) - 1, SHORTEST - 1, -1))
    end = next(filter(text.endswith, begun), None)
    return text if end is None else text[: -len(end)] + HIDDEN


def clean(text: str) -> str:
    """Replace lone surrogates in `text`, which cannot be encoded."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)
