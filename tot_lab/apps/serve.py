"""`tot-lab serve`: a server with OpenAI's chat completions API, whose models are strategies.

Each request is answered by a search. The thoughts are the `reasoning_content` of the reply, the answer is its
content, and the tokens of all calls are its usage. A request field that cannot be honoured leads to an error
that names the field, and a failed search leads to an error. The HTML pages escape text of models, and error
messages contain no API keys.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import re
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

from tot_lab.apps.catalogue import Catalogue, NotAllowed, NotOffered, changeable
from tot_lab.apps.chat_completions import (
    ApiError,
    Request,
    finish_reason,
    head,
    outcome,
    reasoning,
    stopping,
    usage,
)
from tot_lab.apps.served_searches import Full, Search, Searches, Stopping
from tot_lab.core.calls import format_error, readable
from tot_lab.core.records import describe_stop
from tot_lab.core.task import Task
from tot_lab.record.importers import load
from tot_lab.record.journal import outline
from tot_lab.record.run import SIMULATED, SMALL, Run
from tot_lab.views.explorer.page import page
from tot_lab.views.html_page import document

LARGEST = 8 * 2**20
"""Maximum size of a request in bytes."""

PAUSE = 10.0
"""Seconds without a record after which a streamed reply sends a comment, which keeps the connection open."""

GRACE = 8.0
"""Seconds that the server waits for running searches when it shuts down."""

LISTED = 100
"""Maximum number of runs on the page that lists runs."""

_COOKIE = "tot_lab"


class Server:
    """The HTTP server for the searches of a lab.

    Args:
        searches: The searches of the lab.
        catalogue: The strategies that clients can request.
        make_task: Makes a task from the text of a question.
        model: The name of the lab's model. A request to `/v1/NAME/chat/completions` may give either NAME or
            this name as its `model`, or leave `model` out.
        token: The token that clients must send. `None` requires no token, but a `Host` header that names
            this machine.
    """

    def __init__(
        self,
        searches: Searches,
        catalogue: Catalogue,
        make_task: Callable[[str], Task],
        *,
        model: str = "",
        token: str | None = None,
    ) -> None:
        self.searches = searches
        self.catalogue = catalogue
        self.make_task = make_task
        self.model = model
        self.token = token
        self.started = int(time.time())
        self._one_page = asyncio.Lock()  # one page is built at a time, because it takes much memory

    def application(self) -> web.Application:
        """Return the application for aiohttp."""
        app = web.Application(client_max_size=LARGEST, middlewares=[self._errors, self._access])
        for prefix in ("/v1", "/v1/{name}"):
            app.router.add_post(f"{prefix}/chat/completions", self.chat)
            app.router.add_get(f"{prefix}/models", self.models)
        app.router.add_get("/v1/models/{name}", self.model_named)
        app.router.add_get("/", self.run_list)
        app.router.add_get("/runs/{id:[0-9a-f]{8}}", self.run_page)
        return app

    # Access.

    @web.middleware
    async def _errors(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Convert every error to a response in OpenAI's JSON format."""
        try:
            response = await handler(request)
        except ApiError as error:
            response = _error(error)
        except web.HTTPRedirection:
            raise
        except web.HTTPException as error:
            what = f"{request.method} {request.path}: {error.reason}."
            response = _error(ApiError(error.status, what))
        except Exception as error:
            response = _error(_unexpected(request, error))
        if not response.prepared:
            response.headers.update(_HEADERS)
        return response

    @web.middleware
    async def _access(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Admit a request with the right token or, if the server has none, with a `Host` of this machine.

        The checks of `Host` and `Origin` keep pages of other sites from using the server through the browser
        of a user: under a host name that resolves to this machine (DNS rebinding), or by cross-site requests.
        """
        is_page = re.fullmatch(r"/(runs/\w+)?", request.path) is not None
        if self.token is None:
            if not is_loopback(_hostname(request.host)):
                raise ApiError(
                    403,
                    f"Host must be localhost or a loopback address: got {request.host!r}. "
                    "To use other hosts, set TOT_LAB_TOKEN for the server.",
                )
        elif is_page and _same(request.query.get("token", ""), self.token):
            response = web.HTTPFound(request.path)
            response.set_cookie(_COOKIE, self._cookie, httponly=True, samesite="Strict")
            raise response
        elif not self._is_let_in(request, is_page):
            hint = "Open the page with ?token=TOKEN." if is_page else "Send it as the API key."
            raise ApiError(401, f"The token is missing or wrong. {hint}", code="invalid_api_key")
        origin = request.headers.get("Origin")
        if origin is not None and origin.partition("://")[2] != request.host:
            raise ApiError(403, f"Origin must be this server, {request.host!r}: got {origin!r}.")
        return await handler(request)

    @property
    def _cookie(self) -> str:
        """The value of the cookie for pages: a hash, since a browser sends it to all ports of the host."""
        return hashlib.sha256(f"pages {self.token}".encode()).hexdigest()

    def _is_let_in(self, request: web.Request, is_page: bool) -> bool:
        assert self.token is not None
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _same(given.strip(), self.token):
            return True
        return is_page and _same(request.cookies.get(_COOKIE, ""), self._cookie)

    # The catalogue.

    def _described(self, name: str) -> dict[str, Any]:
        settings = dict(changeable(self.catalogue.strategy(name)))
        own = {"strategy": self.catalogue.strategy(name).kind, "settings": settings}
        return {"id": name, "object": "model", "created": self.started, "owned_by": "tot_lab", "tot_lab": own}

    async def models(self, request: web.Request) -> web.Response:
        """Describe all strategies of the catalogue, or only the strategy that the path names."""
        if "name" in request.match_info:
            return _json({"object": "list", "data": [self._described(self._offered(request))]})
        return _json({"object": "list", "data": [*map(self._described, self.catalogue.offers)]})

    async def model_named(self, request: web.Request) -> web.Response:
        """Describe the strategy that the path names."""
        return _json(self._described(self._offered(request)))

    def _offered(self, request: web.Request, name: str | None = None) -> str:
        name = request.match_info.get("name", name)
        try:
            self.catalogue.strategy(name)
        except NotOffered as error:
            raise ApiError(404, f"model: {error}", param="model", code="model_not_found") from None
        return str(name)

    # Searches.

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """Answer a request with a search."""
        if request.content_type != "application/json":  # pages of any site can send other types
            message = f"Content-Type must be application/json: got {request.content_type!r}."
            raise ApiError(415, message)
        asked = Request.read(await request.read())
        search = self._open(request, asked)
        with self.searches.following(search) as follower:
            if asked.stream:
                return await self._stream(request, asked, search, follower)
            await asyncio.wait([search.task])
            run = outcome(search)
            thoughts = "".join(filter(None, map(reasoning, run.events)))
            content = asked.shortened(run.answer)
            reply = {"role": "assistant", "content": content, "reasoning_content": thoughts}
            choice = {"index": 0, "message": reply, "logprobs": None, "finish_reason": finish_reason(run)}
            body = {
                **head(run.id, self._offered(request, asked.model), "chat.completion"),
                "choices": [choice],
                "usage": usage(run),
                "tot_lab": about(request, run, asked),
            }
            response = _json(body, headers={"x-tot-lab-run": run.id, **_HEADERS})
            with suppress(ConnectionError):  # the client disconnected
                await response.prepare(request)
                await response.write_eof()
                search.is_answered = True
            return response

    async def _stream(
        self, request: web.Request, asked: Request, search: Search, follower: asyncio.Event
    ) -> web.StreamResponse:
        """Send thoughts as they are recorded, then the answer.

        Nothing is sent until the first thought is recorded or `PAUSE` seconds pass without a record. Until
        then, an error still determines the HTTP status.
        """
        out = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no", **_HEADERS}
        )
        first: dict[str, Any] = {}

        async def send(choices: list[Any], **more: Any) -> None:
            await out.write(b"data: " + msgspec.json.encode({**first, "choices": choices, **more}) + b"\n\n")

        async def delta(finish_reason: str | None, /, more: dict[str, str], **beside: Any) -> None:
            choice = {"index": 0, "delta": more, "logprobs": None, "finish_reason": finish_reason}
            await send([choice], **beside)

        async def begin() -> None:
            if first or search.execution is None:
                return
            run = search.execution.run
            first.update(head(run.id, self._offered(request, asked.model), "chat.completion.chunk"))
            out.headers["x-tot-lab-run"] = run.id
            await out.prepare(request)
            await delta(None, {"role": "assistant", "content": ""})

        try:
            async for records in search.records(follower, PAUSE):
                pieces = [*filter(None, map(reasoning, records))]
                if pieces or not records:
                    await begin()
                for piece in pieces:
                    await delta(None, {"reasoning_content": piece})
                if not records and first:
                    await out.write(b": thinking\n\n")
            run = outcome(search)
            await begin()
            await delta(None, {"content": asked.shortened(run.answer)})
            await delta(finish_reason(run), {}, tot_lab=about(request, run, asked))
            if asked.counts:
                await send([], usage=usage(run))
            await out.write(b"data: [DONE]\n\n")
            await out.write_eof()
            search.is_answered = True
        except ConnectionError:  # the client disconnected
            pass
        except Exception as error:
            if not first:
                raise
            failure = error if isinstance(error, ApiError) else _unexpected(request, error)
            with suppress(ConnectionError):
                await out.write(b"event: error\ndata: " + msgspec.json.encode(failure.body) + b"\n\n")
        return out

    def _open(self, request: web.Request, asked: Request) -> Search:
        """Open the search that answers a request."""
        name = self._offered(request, asked.model)
        if asked.model not in (None, name, self.model):
            message = f"model must be {name!r} or left out at this address: got {asked.model!r}."
            raise ApiError(404, message, param="model", code="model_not_found")
        try:
            task = asked.task(self.make_task, name)
            strategy = self.catalogue.changed(name, task, asked.tot_lab.settings)
            budget = self.catalogue.lowered(asked.tot_lab.budget)
        except NotAllowed as error:
            raise ApiError(400, f"tot_lab.{error}", param=f"tot_lab.{error.field}") from None
        except (ValueError, TypeError, NotImplementedError) as error:
            raise ApiError(400, f"messages: {error}", param="messages") from None
        is_retry = request.headers.get("x-stainless-retry-count", "0") not in ("", "0")
        try:
            return self.searches.open(strategy, task, budget, asked.seed, is_retry=is_retry)
        except Full:
            message = f"At most {self.searches.at_once:,} searches run at the same time. Try again later."
            raise ApiError(429, message, code="rate_limit_exceeded", retry_after="1") from None
        except Stopping:
            raise stopping() from None

    # Pages.

    async def run_page(self, request: web.Request) -> web.Response:
        """Show a run in the explorer."""
        id = request.match_info["id"]
        found = sorted(self.searches.folder.glob(f"*-{id}.jsonl"))
        if not found:
            raise ApiError(404, f"No such run: got {id!r}.")
        async with self._one_page:
            text = await asyncio.to_thread(lambda: page(load(found[-1])))
        return web.Response(body=text, content_type="text/html", charset="utf-8")

    async def run_list(self, _: web.Request) -> web.Response:
        """List the latest runs."""
        async with self._one_page:
            text = await asyncio.to_thread(self._list)
        return web.Response(text=text, content_type="text/html")

    def _list(self) -> str:
        newest = sorted(self.searches.folder.glob("*.jsonl"), reverse=True)
        rows = "".join(map(_row, newest[:LISTED]))
        names = ", ".join(self.catalogue.offers)
        return document(
            "Runs",
            f"<h1>{len(newest):,} runs</h1>"
            f"<p>Models of this server: {escape(names)}</p><table>"
            "<tr><th>started<th>model<th>question<th>answer<th>outcome</tr>"
            f"{rows}</table>",
        )


_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}


def _row(path: Path) -> str:
    try:
        header, ended = outline(path)
    except (OSError, ValueError) as error:
        return f"<tr><td><td><td>{_short(str(error))}<td><td>damaged</tr>"
    asked = header.task.get("data", {}).get("request", {})
    name = asked.get("model", header.strategy.get("kind", ""))
    kinds = [model.get("kind", "") for model in (header.model, *header.roles.values())]
    simulated = any(kind.startswith("sim/") for kind in kinds)
    note = SIMULATED if simulated else SMALL if "tiny" in kinds else ""
    model = f"{name} ({note})" if note else str(name)
    link = f'<a href="/runs/{escape(header.id)}">{_short(str(header.task.get("question", "")))}</a>'
    answer, ending = (
        ("", "not finished") if ended is None else (ended.answer, describe_stop(ended.stop_reason))
    )
    started = header.started[:19].replace("T", " ")
    cells = (_short(started), _short(model), link, _short(answer), _short(ending))
    return f"<tr>{''.join(f'<td>{cell}' for cell in cells)}</tr>"


def _short(text: str) -> str:
    return escape(readable(text if len(text) <= 200 else f"{text[:199]}…"))


# Responses.


def _error(error: ApiError) -> web.Response:
    return _json(error.body, status=error.status, headers=error.headers)


def _json(body: Any, **options: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), content_type="application/json", **options)


def about(request: web.Request, run: Run, asked: Request) -> dict[str, Any]:
    """Return the field `tot_lab` of a reply: facts about the run that answered the request."""
    return {
        "run": run.id,
        "url": f"{request.scheme}://{request.host}/runs/{run.id}",
        "status": run.status,
        "stop_reason": run.stop_reason,
        "score": run.score,
        "repeat": run.header.repeat,
        "calls": run.usage.calls,
        "cost": run.usage.cost,
        "paid": run.usage.paid,
        "simulated": run.simulated,
        "ignored": [*asked.ignored],
    }


def _unexpected(request: web.Request, error: Exception) -> ApiError:
    print(f"tot-lab: {request.method} {request.path}: {format_error(error)}", file=sys.stderr, flush=True)
    return ApiError(500, format_error(error), x_should_retry="false")


# Checks of access, and the server's loop.


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(errors="surrogateescape"), expected.encode())


def _hostname(host: str) -> str:
    with suppress(ValueError):
        return urlsplit(f"//{host}").hostname or ""
    return ""


def is_loopback(host: str) -> bool:
    """Whether `host` is `localhost` or a loopback address."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


async def serve(
    server: Server, host: str, port: int, announce: Callable[[str], None], grace: float = GRACE
) -> None:
    """Serve until the process receives SIGINT or SIGTERM, then finish or cancel the searches under way.

    Args:
        server: The server.
        host: The address to listen at.
        port: The port. 0 chooses a free one.
        announce: Called with the URL once the server accepts requests.
        grace: Seconds to wait for running searches before they are cancelled.
    """
    end = asyncio.Event()
    loop = asyncio.get_running_loop()
    for one in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # on Windows, Ctrl-C raises KeyboardInterrupt
            loop.add_signal_handler(one, end.set)
    await server.searches.start()
    # Without `handler_cancellation`, a search would continue after its client disconnects.
    app = server.application()
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=5.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        bound = runner.addresses[0]
        name = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
        announce(f"http://{name}:{bound[1]}")
        await end.wait()
        await site.stop()
    finally:
        await server.searches.stop(grace)
        await runner.cleanup()
