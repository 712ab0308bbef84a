"""Connections to MCP servers, which may be hostile.

A server is reached at a URL, or started as a process by a command. Every message of a server is limited in
size, and every wait in time. If a server dies, its calls fail. A command is not run in a shell, and gets only
the environment variables that it needs. Secrets in the URL, headers or `env` of a server are removed from its
results and errors.
"""

from __future__ import annotations

import asyncio
import json
import math
import shlex
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from tot_lab._version import __version__
from tot_lab.core.calls import format_error
from tot_lab.core.processes import GRACE, end_async
from tot_lab.core.scrubbing import LONG, SHORTEST, scrubbed, secrets_in, without_keys
from tot_lab.core.tool import Unfit

MAX_BYTES = 10_000_000
"""Maximum bytes of a message. A larger one fails the call, and ends the connection if the server is a
command.
"""

MAX_TOOLS = 1_000
"""Maximum number of tools. A server that lists more cannot be used."""

_SHOWN = 500  # maximum characters of an error, and of the tail of a command's standard error


def connection_to(
    server: str | Sequence[str], env: Mapping[str, str] | None, headers: Mapping[str, str] | None
) -> Connection:
    """Return a connection that is not open yet.

    Raises:
        ValueError: If `server` is neither a URL nor a command, a URL has `env`, or a command has `headers`.
    """
    if isinstance(server, str) and server.startswith(("http://", "https://")):
        if env is not None:
            raise ValueError(
                f"env requires a command: got the URL {_origin(server)}. Pass headers, or a command."
            )
        return _ToUrl(server, headers or {})
    command = shlex.split(server) if isinstance(server, str) else [*server]
    if not command or "://" in command[0]:
        raise ValueError(
            f"server must be a command, or a URL that begins with http:// or https://: got {server!r}."
        )
    if headers is not None:
        raise ValueError(f"headers require a URL: got the command {command[0]!r}. Pass env, or a URL.")
    return _ToCommand(command, env or {})


class Connection:
    """A connection to an MCP server.

    It runs in a separate asyncio task. A failure therefore ends no other task, and a notebook may open the
    connection in one cell and close it in another.
    """

    effects: tuple[str, ...] = ()
    """Effects that every tool has because of this type of connection."""

    def __init__(self, label: str, secrets: Sequence[str]) -> None:
        """Store the server's name, and secrets to be removed from its results. Nothing is started."""
        self.label = label
        self._secrets = secrets
        self._client: Any = None
        self._task: asyncio.Task[None] | None = None
        self._broken = ""  # why the connection ended, if that is known

    def _transport(self) -> AbstractAsyncContextManager[Any]:
        raise NotImplementedError

    async def open(self, timeout: float) -> list[Any]:
        """Connect, and return the tools that the server lists. Raises ConnectionError, also after `timeout`
        seconds.
        """
        from anyio import CancelScope  # noqa: PLC0415

        self._loop, self._closing, self._scope = asyncio.get_running_loop(), asyncio.Event(), CancelScope()
        opened: asyncio.Future[list[Any]] = self._loop.create_future()
        self._task = self._loop.create_task(self._keep(opened))
        either: list[asyncio.Future[Any]] = [self._task, opened]
        await asyncio.wait(either, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if opened.done():
            return opened.result()
        if not self._task.done():
            self._broken = f"no answer within {timeout:g} s"
        await self._ended()
        raise ConnectionError(f"The MCP server {self.label} cannot be used: {self._explain(None)}")

    async def close(self) -> None:
        """Disconnect, and end the command."""
        if self._client is not None:
            self._client = None
            self._closing.set()
        await self._ended()

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return the result of a tool as text.

        Raises:
            Unfit: If the tool reports an error, or the connection is closed. The call is not retried.
            RuntimeError: If the server gives no valid answer.
        """
        if self._client is None:
            raise Unfit(f"the connection to {self.label} is closed")
        # The lab may run in another loop than the connection. A cancellation is passed on.
        made = asyncio.run_coroutine_threadsafe(self._result_of(name, arguments), self._loop)
        try:
            result = await asyncio.wrap_future(made)
        except Exception as error:
            raise RuntimeError(self._explain(error)) from None
        # The toolbox removes the lab's own secrets.
        text = without_keys("\n".join(_parts_of(result)), self._secrets)
        if result.is_error:
            raise Unfit(text or "the tool failed and gave no reason")
        return text

    async def _result_of(self, name: str, arguments: Mapping[str, Any]) -> Any:
        from mcp_types import CallToolRequest, CallToolRequestParams, CallToolResult  # noqa: PLC0415

        request = CallToolRequest(params=CallToolRequestParams(name=name, arguments=dict(arguments)))
        # `client.call_tool` would match results with regular expressions of the server, which can take
        # forever.
        return await self._client.session.send_request(request, CallToolResult)

    async def _keep(self, opened: asyncio.Future[list[Any]]) -> None:
        from mcp import Client  # noqa: PLC0415
        from mcp_types import Implementation  # noqa: PLC0415

        info = Implementation(name="tot_lab", version=__version__)
        with self._scope:
            async with Client(self._transport(), client_info=info, cache=None) as client:
                listed = await _tools_of(client)
                if (known := client.server_info) is not None:
                    self.label += f" ({' '.join(f'{known.name} {known.version}'.split())[:80]})"
                self._client = client
                opened.set_result(listed)
                await self._closing.wait()

    async def _ended(self) -> None:
        """Wait until the task of the connection ends. Cancel the task unless it is already closing."""
        if self._task is not None:
            if not self._closing.is_set():
                self._scope.cancel()  # cancelling the task could interrupt the shutdown of a server process
            await asyncio.wait([self._task])
            self._task.cancelled() or self._task.exception()  # marks the exception as retrieved

    def _explain(self, error: BaseException | None) -> str:
        if self._task is not None and self._task.done() and not self._task.cancelled():
            error = self._task.exception() or error
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, ValidationError):
            wrong = error.errors()[0]
            reason = f"{'.'.join(map(str, wrong['loc']))}: {wrong['msg']}, against the protocol"
        elif isinstance(error, Exception):
            reason = getattr(error, "message", "") or format_error(error)
        else:
            reason = "it has ended"
        return scrubbed(" ".join((self._broken or reason).split())[:_SHOWN], *self._secrets)


class _ToUrl(Connection):
    effects = ("network",)

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url, self._headers = url, headers
        parts = urlsplit(url)
        words = [word for value in headers.values() for word in (value, value.rpartition(" ")[2])]
        places = [part for part in (*parts.path.split("/"), parts.query) if len(part) >= LONG]
        secrets = [word for word in (*words, *places, parts.password or "") if len(word) >= SHORTEST]
        super().__init__(_origin(url), sorted(secrets, key=len, reverse=True))

    @asynccontextmanager
    async def _transport(self) -> AsyncIterator[Any]:
        import httpx2  # noqa: PLC0415
        from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415

        class Limited(httpx2.AsyncByteStream):
            def __init__(self, response: Any) -> None:
                self.stream = response.stream
                is_endless = response.headers.get("content-type", "").lower().startswith("text/event-stream")
                self.most = math.inf if is_endless else MAX_BYTES  # the size of each event is limited below
                self.is_packed = response.headers.get("content-encoding", "identity") != "identity"

            async def __aiter__(self) -> AsyncIterator[bytes]:
                if self.is_packed:  # a few bytes may expand to gigabytes
                    raise httpx2.StreamError("the server sent a compressed message, which is not accepted")
                size = 0
                async for part in self.stream:
                    size += len(part)
                    if size > self.most:
                        raise httpx2.StreamError(_too_large())
                    yield part

            async def aclose(self) -> None:
                await self.stream.aclose()

        async def limit(response: Any) -> None:
            response.stream = Limited(response)

        async with (
            httpx2.AsyncClient(
                headers={"accept-encoding": "identity", **self._headers},
                timeout=httpx2.Timeout(30, read=None),
                event_hooks={"response": [limit]},
            ) as client,
            streamable_http_client(self._url, http_client=client, max_sse_event_size=MAX_BYTES) as streams,
        ):
            yield streams


class _ToCommand(Connection):
    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        self._command, self._env = command, env
        self._errors = b""
        super().__init__(Path(command[0]).name, secrets_in(env))

    def _explain(self, error: BaseException | None) -> str:
        wrote = scrubbed(self._errors.decode("utf-8", "replace").strip(), *self._secrets)[-_SHOWN:]
        return f"{super()._explain(error)}{f'. It wrote: {wrote}' if wrote and self._client is None else ''}"

    @asynccontextmanager
    async def _transport(self) -> AsyncIterator[Any]:
        import anyio  # noqa: PLC0415
        from mcp.client.stdio import get_default_environment  # noqa: PLC0415

        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env={**get_default_environment(), **self._env},
            start_new_session=True,
            limit=MAX_BYTES,
        )
        to_session, received = anyio.create_memory_object_stream[Any](0)
        sent, to_process = anyio.create_memory_object_stream[Any](0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._receive, process, to_session)
            tasks.start_soon(self._send, process, to_process, to_session)
            tasks.start_soon(self._read_errors, process)
            try:
                yield received, sent
            finally:
                received.close()  # `_receive` then discards the remaining output, so that the process can end
                with anyio.CancelScope(shield=True):
                    assert process.stdin is not None
                    process.stdin.close()
                    with suppress(TimeoutError):  # a child process in another session may keep the pipes open
                        await asyncio.wait_for(process.wait(), GRACE)
                    with suppress(TimeoutError):
                        await asyncio.wait_for(end_async(process), 2 * GRACE)
                sent.close()
                tasks.cancel_scope.cancel()

    async def _receive(self, process: Process, to_session: Any) -> None:
        import anyio  # noqa: PLC0415
        from mcp.shared.message import SessionMessage  # noqa: PLC0415
        from mcp_types import jsonrpc_message_adapter  # noqa: PLC0415

        assert process.stdout is not None
        async with to_session:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the session has ended
                while line := await self._line(process.stdout):
                    with suppress(ValueError):  # some programs also print lines that are no messages
                        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                        await to_session.send(SessionMessage(message))
        while await process.stdout.read(1 << 16):
            pass

    async def _line(self, output: asyncio.StreamReader) -> bytes:
        try:
            return await output.readline()
        except ValueError:
            self._broken = _too_large()
            return b""

    async def _send(self, process: Process, to_process: Any, to_session: Any) -> None:
        assert process.stdin is not None
        with suppress(ConnectionError):
            async with to_process:
                async for message in to_process:
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    process.stdin.write(f"{text}\n".encode())
                    await process.stdin.drain()
        to_session.close()  # makes calls that wait for an answer fail

    async def _read_errors(self, process: Process) -> None:
        assert process.stderr is not None
        while part := await process.stderr.read(1 << 16):
            self._errors = (self._errors + part)[-4 * _SHOWN :]


async def _tools_of(client: Any) -> list[Any]:
    page = await client.list_tools()
    listed = [*page.tools]
    while page.next_cursor is not None:
        page = await client.list_tools(cursor=page.next_cursor)
        listed += page.tools
        if len(listed) > MAX_TOOLS:
            raise ValueError(f"it lists more than {MAX_TOOLS:,} tools")
    return listed


def _too_large() -> str:
    return f"the server sent a message of more than {MAX_BYTES:,} bytes"


def _origin(url: str) -> str:
    """Return the scheme, host and port of a URL, which contain no secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _parts_of(result: Any) -> Iterator[str]:
    """Yield the parts of a tool result as text. Of binary data, only the type and the size are given."""
    for part in result.content:
        if part.type == "text":
            yield part.text
        elif part.type == "resource_link":
            yield f"[resource {part.name!r} at {part.uri}]"
        elif part.type != "resource":
            yield _left_out(part.type, part.mime_type, part.data)
        elif hasattr(part.resource, "text"):
            yield f"[resource {part.resource.uri}]\n{part.resource.text}"
        else:
            yield _left_out(f"resource {part.resource.uri}", part.resource.mime_type, part.resource.blob)
    structured = result.structured_content
    if structured is not None and not _hold(
        [part.text for part in result.content if part.type == "text"], structured
    ):
        yield json.dumps(structured, ensure_ascii=False)


def _left_out(what: str, mime_type: str | None, data: str) -> str:
    return f"[{what}: {mime_type or 'of an unknown type'}, {3 * len(data) // 4:,} bytes, not shown]"


def _hold(texts: Sequence[str], value: Any) -> bool:
    """Whether `texts` already contain the structured content `value`, which servers may also send as text."""
    read = [_json_or_text(text) for text in texts]
    wrapped = [value["result"]] if isinstance(value, dict) and [*value] == ["result"] else []
    return any(form in (texts, read) for one in (value, *wrapped) for form in (one, [one]))


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
