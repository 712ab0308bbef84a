"""HTTP connections of an event loop, through aiohttp.

All endpoints of a loop share one pool, which is closed together with the loop. Redirects are not followed,
since their targets would receive the key, and no response can grow without limit.
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
"""The most bytes of a response."""

_LARGEST_ERROR = 2**20
"""The most bytes that are read of an error response, all of which are searched for its message."""

_CONNECTING = 30.0  # seconds to wait for a connection
_ENDING = 0.2  # seconds to wait for the end of a stream
_IDLE = 3.0  # seconds; servers of uvicorn close an idle connection after 5

_SESSIONS: WeakKeyDictionary[asyncio.AbstractEventLoop, ClientSession] = WeakKeyDictionary()
_UNTIL_THE_END: WeakKeyDictionary[asyncio.AbstractEventLoop, list[AsyncGenerator[None, None]]]
_UNTIL_THE_END = WeakKeyDictionary()


async def at_end_of_loop(close: Callable[[], Awaitable[None]]) -> None:
    """Call `close` when the running event loop ends.

    The last action of an event loop is to finish the async generators that were started in it.
    """

    loop = asyncio.get_running_loop()

    async def until_the_end() -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            _UNTIL_THE_END.pop(loop, None)  # which would keep the loop alive
            await close()

    waiting = until_the_end()
    await anext(waiting)
    _UNTIL_THE_END.setdefault(loop, []).append(waiting)


async def _new_session(loop: asyncio.AbstractEventLoop) -> ClientSession:
    """Open the connection pool of an event loop that has none."""
    import aiohttp  # noqa: PLC0415

    session = _SESSIONS[loop] = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECTING),  # the driver limits calls
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
    """Send a request and yield the response, of which only the head was read. Without a body it is a GET.

    Raises:
        Failure: If the connection fails, also while the response is read, and if `refusing` is true and the
            status is not 200. The message still has to be scrubbed.
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
    except ValueError as error:  # of the URL or a header
        raise Failure(f"the request cannot be sent: {shortened(str(error))}") from None
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        words = shortened(str(error)) or type(error).__name__
        refused = isinstance(error, aiohttp.ClientConnectorError)
        message = f"no answer from {address}: {words}"
        raise Failure(message, retry=True, connection_failed=True, refused=refused) from None


def _close_after_streams_of_llama_cpp(response: ClientResponse) -> None:
    """Do not reuse the connection: llama.cpp announces that it keeps it, and closes it after a stream."""
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
    """Return the text of a response with an error, or the beginning of a very long one."""
    body = b""
    while len(body) < _LARGEST_ERROR and (piece := await response.content.read(_LARGEST_ERROR - len(body))):
        body += piece
    return body.decode(errors="replace")


async def pieces_of(response: ClientResponse) -> AsyncIterator[bytes]:
    """Iterate over the body as it arrives. Raises `Failure` if it is too large."""
    size = 0
    async for piece in response.content.iter_any():
        size += len(piece)
        if size > LARGEST:
            raise Failure(f"the response has more than {LARGEST:,} bytes", unreadable=True)
        yield piece


async def events_of(response: ClientResponse) -> AsyncIterator[str]:
    """Iterate over the data of server-sent events.

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
    """Read what follows a complete reply, so that the connection can be used again. It is closed if the end
    does not come at once.
    """
    import aiohttp  # noqa: PLC0415

    with suppress(aiohttp.ClientError, OSError, TimeoutError, Failure):
        async with asyncio.timeout(_ENDING):
            async for _ in events:
                pass


async def _lines_of(response: ClientResponse) -> AsyncIterator[str]:
    """Iterate over the lines of a response, which end with CR, LF or both."""
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
