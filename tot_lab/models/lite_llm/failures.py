"""Conversion of the exceptions that litellm raises to `Failure`.

The HTTP status and the provider's message are extracted from the exception and those that it wraps, and
determine whether a retry may help. `ChatEndpoint` removes keys from the message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

from tot_lab.models.chat.failures import TOO_LONG, failure_in, refusal, shortened
from tot_lab.models.stack import Failure

_NOISE = re.compile(r"^(?:litellm\.)?[A-Za-z_]*(?:Error|Exception|Timeout)(?: Error)?(?::| -) ?")
_ASIDE = re.compile(r"Traceback \(| Handle with `litellm| Original exception:")
# litellm's messages for responses that it cannot parse, with a made-up status
_UNREADABLE = re.compile("converting to valid response|unexpected response from Ollama")

# litellm's Anthropic adapter converts counts to integers itself
_NO_COUNT = re.compile(r"cannot convert float (?:NaN|infinity) to integer")


def failure_of(litellm: ModuleType, error: Exception, address: str) -> Failure:
    """Return the failure for an exception of litellm. The caller must scrub keys from its message."""
    httpx, aiohttp = import_module("httpx"), import_module("aiohttp")
    chain = list(_chain(error))
    words = _words(str(error))
    response = next((link.response for link in chain if isinstance(link, httpx.HTTPStatusError)), None)
    if response is not None:
        failure = refusal(int(response.status_code), response.headers, _body(response), words)
        failure.retry &= not isinstance(error, litellm.ContextWindowExceededError)
        return failure
    if (inside := next(filter(None, map(_error_inside, chain)), None)) is not None:
        return inside
    if any(isinstance(link, (httpx.TransportError, aiohttp.ClientError, OSError)) for link in chain):
        never = httpx.ConnectError, httpx.ConnectTimeout, aiohttp.ClientConnectorError, ConnectionRefusedError
        is_refused = any(isinstance(link, never) for link in chain)
        message = f"no answer from {address}: {words}"
        return Failure(message, retry=True, connection_failed=True, refused=is_refused)
    if isinstance(error, litellm.exceptions.MidStreamFallbackError):
        return Failure(words, retry=not TOO_LONG.search(words))
    refused = litellm.BadRequestError, litellm.AuthenticationError, litellm.NotFoundError
    if (
        (isinstance(error, refused) and not _UNREADABLE.search(str(error)))
        or "API key" in words
        or "api_key" in words
        or any(isinstance(link, UnicodeError) for link in chain)
    ):
        return Failure(words)
    unreadable = f"the provider's answer cannot be read: {words}"
    if (counts := _NO_COUNT.search(words)) is not None:  # a complete reply, which was paid for
        return Failure(unreadable, unreadable=True, reported_usage=counts[0])
    return Failure(unreadable, retry=True, unreadable=True)


def _error_inside(link: BaseException) -> Failure | None:
    """Return the failure that a response with the status 200 describes, or `None`. litellm raises the error
    of such a response as a plain exception, with the status 422 if the error has no code.
    """
    if type(link) is not Exception or not hasattr(link, "status_code"):
        return None
    code, message = link.status_code, getattr(link, "message", "")
    return failure_in({"message": message, "code": None if code == 422 else code})


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__


def _words(text: str) -> str:
    """Return litellm's message without its prefixes and tracebacks."""
    text = _ASIDE.split(text, maxsplit=1)[0].strip()
    while (match := _NOISE.match(text)) is not None and match.end() < len(text):
        text = text[match.end() :]
    return shortened(text)


def _body(response: object) -> str:
    try:
        return str(response.text)  # type: ignore[attr-defined]
    except Exception:  # the body of an unreadable stream
        return ""
