"""HTTP errors of providers and servers."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from tot_lab.core.reading.json_values import read_json
from tot_lab.models.stack import Failure

_RETRIED = (408, 409, 429)
_UNKNOWN = 501
"""Status of a server that does not know the method of a request."""
TOO_LONG = re.compile(r"context.{0,9} (length|window|size|limit)|prompt is too long|number of tokens", re.I)


def shortened(text: str) -> str:
    """Return `text` on one line of at most 500 characters, without memory addresses of TLS objects."""
    text = re.sub(r" ssl:<[^<>]*+>", "", " ".join(text.split()))  # a memory address, which changes every time
    return text if len(text) <= 500 else f"{text[:499]}…"


def web_page(body: str) -> str:
    """Return a message with the first 200 characters of `body` if it is a web page, such as
    that of a proxy, else "".
    """
    text = " ".join(body[:2000].split())
    cut = f"{text[:200]}…" if len(text) > 200 else text
    return f"the server replied with a web page: {cut}" if text.startswith("<") else ""


def refusal(
    status: int, headers: Mapping[str, str], body: str, words: str = "", address: str = ""
) -> Failure:
    """Return the failure that a response with an error status describes. The caller must scrub keys from its
    message.

    Args:
        words: The message if `body` contains none.
        address: The URL of the server, for the message about a web page.
    """
    page = web_page(words or body)
    if page and address:
        page = f"{address} may not be a model server: {page}"
    message = message_in(body) or message_in(words) or page or words or f"HTTP {status}"
    return Failure(
        message,
        status=status,
        retry=(status in _RETRIED or status >= 500) and status != _UNKNOWN and not TOO_LONG.search(message),
        retry_after=_retry_after(headers, body),
        usage=_usage_in(body),
    )


def failure_in(error: Any) -> Failure | None:
    """Return the failure that `error`, a field of a response with the status 200, describes. `None` if the
    field is empty, as some servers send it with valid replies.
    """
    if not error or (isinstance(error, dict) and not any(error.values())):
        return None
    try:
        body = json.dumps({"error": error})
    except RecursionError:
        body = ""
    code = str(error.get("code")) if isinstance(error, dict) else ""
    if re.fullmatch("[45][0-9][0-9]", code):
        return refusal(int(code), {}, body)
    message = message_in(body) or "the server reports an error without a message"
    return Failure(message, retry=not TOO_LONG.search(message))


def message_in(body: str) -> str:
    """Return the error message in a provider's JSON, or ""."""
    value = read_json(body)
    value = value[0] if isinstance(value, list) and value else value
    if isinstance(value, dict):
        value = value.get("error") or value.get("message") or value.get("detail")
    if isinstance(value, dict):
        value = value.get("message")
    if isinstance(value, list):  # FastAPI names the fields of a request that it does not accept
        value = json.dumps(value, ensure_ascii=False)
    return shortened(value) if isinstance(value, str) else ""


def _usage_in(body: str) -> Any:
    """Return the usage in a provider's JSON error response, or `None`."""
    value = read_json(body)
    return value.get("usage") if isinstance(value, dict) else None


def _retry_after(headers: Mapping[str, str], body: str) -> float | None:
    """Return the seconds to wait by the header Retry-After, or by `retryDelay` in Google's body,
    or `None`.
    """
    value = headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d+(\.\d+)?", value):
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        delay = re.search(r'"retryDelay":\s*"(\d+(?:\.\d+)?)s"', body)
        return float(delay[1]) if delay else None
