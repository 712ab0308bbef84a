"""HTTP requests through aiohttp.

All requests of an event loop use one connection pool, which is closed when the loop ends. Redirects are not
followed, since their targets would receive the key. A response has at most `LARGEST` bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from tot_lab.models.chat.failures import refusal, shortened
from tot_lab.models.stack import Failure

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

LARGEST = 256 * 2**20
"""The most bytes of a response. A longer one is a `Failure`."""

_LARGEST_ERROR = 2**20
"""The most bytes that are read of a response with an error status, to find its message."""

_CONNECTING = 30.0  # seconds to wait for a connection
_ENDING = 0.2  # seconds to wait for the end of a stream after its reply is complete
_IDLE = 3.0  # seconds to keep an idle connection; uvicorn closes it after 5

_SESSIONS: WeakKeyDictionary[asyncio.AbstractEventLoop, ClientSession] = WeakKeyDictionary()
_UNTIL_THE_END: WeakKeyDictionary[asyncio.AbstractEventLoop, list[AsyncGenerator[None, None]]]
_UNTIL_THE_END = WeakKeyDictionary()


async def at_end_of_loop(close: Callable[[], Awaitable[None]]) -> None:
    """Call `close` when the running event loop ends.

    `asyncio.run` ends an event loop by finishing the async generators that were started in it, so `close`
    runs in the `finally` of one.
    """

    loop = asyncio.get_running_loop()

    async def until_the_end() -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            _UNTIL_THE_END.pop(loop, None)  # the generator would keep the loop alive
            await close()

    waiting = until_the_end()
    await anext(waiting)
    _UNTIL_THE_END.setdefault(loop, []).append(waiting)


async def _new_session(loop: asyncio.AbstractEventLoop) -> ClientSession:
    """Open the connection pool of an event loop that has none."""
    import aiohttp  # noqa: PLC0415

    session = _SESSIONS[loop] = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECTING),  # calls have their own timeout
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        headers={"Accept-Encoding": "identity"},
    )

    async def close() -> None:
        _SESSIONS.pop(loop, None)
        await session.close()

    await at_end_of_loop(close)
    return session


@asynccontextmanager
async def opened(
    url: str, body: bytes | None, headers: Mapping[str, str], address: str, *, refusing: bool = False
) -> AsyncIterator[ClientResponse]:
    """Send a request to `url`, and yield the response before its body is read.

    Args:
        url: The URL, which may hold a key.
        body: The body of a POST, as JSON. `None` makes the request a GET.
        headers: The headers, such as the one with the key.
        address: The server's address for error messages.
        refusing: Whether a status other than 200 is a `Failure`.

    Raises:
        Failure: If the connection fails, even while the body is read, or as `refusing` says. The caller must
            scrub keys from the message.
    """
    loop = asyncio.get_running_loop()
    session = _SESSIONS.get(loop) or await _new_session(loop)
    if body is not None:
        headers = {**headers, "Content-Type": "application/json"}
    import aiohttp  # noqa: PLC0415

    try:
        async with session.request(
            "GET" if body is None else "POST", url, data=body, headers=headers, allow_redirects=False
        ) as response:
            _close_after_streams_of_llama_cpp(response)
            if refusing and response.status != 200:
                text = await _error_text_of(response)
                raise refusal(response.status, response.headers, text, address=address)
            yield response
    except ValueError as error:  # the URL or a header is not valid
        raise Failure(f"the request cannot be sent: {shortened(str(error))}") from None
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        words = shortened(str(error)) or type(error).__name__
        refused = isinstance(error, aiohttp.ClientConnectorError)
        message = f"no answer from {address}: {words}"
        raise Failure(message, retry=True, connection_failed=True, refused=refused) from None


def _close_after_streams_of_llama_cpp(response: ClientResponse) -> None:
    """Do not reuse a connection after a stream of llama.cpp, which closes it without announcing that."""
    if response.headers.get("Server") != "llama.cpp" or response.content_type != "text/event-stream":
        return
    protocol = response.connection and response.connection.protocol
    if protocol is not None:
        protocol.force_close()


async def body_of(response: ClientResponse) -> bytes:
    """Return the body of a response. Raises `Failure` if it is too large."""
    if response.content_length is not None and response.content_length <= LARGEST:
        return await response.read()
    return b"".join([part async for part in pieces_of(response)])


async def _error_text_of(response: ClientResponse) -> str:
    """Return the first `_LARGEST_ERROR` bytes of a response with an error status, as text."""
    body = b""
    while len(body) < _LARGEST_ERROR and (piece := await response.content.read(_LARGEST_ERROR - len(body))):
        body += piece
    return body.decode(errors="replace")


async def pieces_of(response: ClientResponse) -> AsyncIterator[bytes]:
    """Iterate over the pieces of the body as they arrive. Raises `Failure` if it is too large."""
    size = 0
    async for piece in response.content.iter_any():
        size += len(piece)
        if size > LARGEST:
            raise Failure(f"the response must have at most {LARGEST:,} bytes: got more", unreadable=True)
        yield piece


async def events_of(response: ClientResponse) -> AsyncIterator[str]:
    """Iterate over the `data` fields of the server-sent events in a response.

    References:
        WHATWG, HTML Living Standard, section 9.2.6 (interpreting an event stream).
    """
    data: list[str] = []
    async for line in _lines_of(response):
        if not line:
            if data:
                yield "\n".join(data)
            data = []
            continue
        name, _, value = line.partition(":")
        if name == "data":
            data.append(value.removeprefix(" "))
    if data:  # some servers leave out the last empty line
        yield "\n".join(data)


async def read_to_end(events: AsyncIterator[str]) -> None:
    """Read the events that follow a complete reply, so that the connection can be reused. If the stream does
    not end within 0.2 seconds, the rest is left unread and the connection is closed.
    """
    import aiohttp  # noqa: PLC0415

    with suppress(aiohttp.ClientError, OSError, TimeoutError, Failure):
        async with asyncio.timeout(_ENDING):
            async for _ in events:
                pass


async def _lines_of(response: ClientResponse) -> AsyncIterator[str]:
    """Iterate over the lines of a response as text. A line ends with CR, LF or CRLF."""
    begun: list[bytes] = []  # pieces of an unfinished line
    after_cr = False
    async for piece in pieces_of(response):
        if after_cr and piece.startswith(b"\n"):
            piece = piece[1:]
        after_cr = piece.endswith(b"\r")
        *lines, rest = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            yield b"".join([*begun, line]).decode(errors="replace")
            begun = []
        begun.append(rest)
    if last := b"".join(begun):
        yield last.decode(errors="replace")
