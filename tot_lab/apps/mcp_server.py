"""`tot-lab mcp`: a lab as an MCP server, with searches as tools and runs as resources.

Requests come from a client's model. They choose among the strategies and settings of the catalogue, may lower
its budget, and can read only the runs in the lab's folder. If a client disconnects, its search is
cancelled, and the journal is kept.
"""

# No `from __future__ import annotations` here: the SDK evaluates annotations that hold local names.

import asyncio
import hmac
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, Field

from tot_lab._version import __version__
from tot_lab.apps.catalogue import Catalogue, changeable
from tot_lab.apps.deep_thinking import PRESETS, think
from tot_lab.core.calls import Reply, is_made, readable
from tot_lab.core.extras import requires
from tot_lab.core.records import Line, Thought, describe_stop
from tot_lab.core.scrubbing import scrubbed
from tot_lab.core.task import Task
from tot_lab.lab.lab import Lab
from tot_lab.record.importers import load
from tot_lab.record.journal import outline
from tot_lab.record.run import Run
from tot_lab.views.report import run_text

MAX_CHARACTERS = 200_000
"""Maximum number of characters of a question, and of a context."""

MAX_JOURNAL = 20_000_000
"""Maximum size in bytes of a journal that can be read as a resource."""

LISTED = 100
"""Maximum number of runs in a list."""

PAUSE = 0.2
"""Minimum number of seconds between two reports of progress."""

Report: TypeAlias = Callable[[float, float | None, str], Awaitable[None]]
"""Function that reports progress: the number of calls, its maximum (`None` if unknown), and a message."""

Watch: TypeAlias = Callable[[Sequence[Line]], None]


class Outcome(BaseModel):
    """What a search found, and what it used."""

    run: str
    answer: str
    status: str | None
    stop_reason: str | None
    score: float | None
    thoughts: int
    calls: int
    cost: float | None
    resource: str


class RunLine(BaseModel):
    """A run in a list."""

    run: str
    started: str
    strategy: str
    question: str
    answer: str
    stop_reason: str | None
    resource: str


class Runs:
    """The runs in a lab's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def newest(self, limit: int) -> list[RunLine]:
        """Return the latest runs, newest first. Files that are not readable journals are left out."""
        found: list[RunLine] = []
        for path in reversed(self._journals("*")):
            if len(found) == limit:
                break
            try:
                header, ended = outline(path)
            except (OSError, ValueError):
                continue
            line = RunLine(
                run=header.id,
                started=header.started,
                strategy=str(header.strategy.get("kind", "")),
                question=_short(str(header.task.get("question", ""))),
                answer=_short(ended.answer if ended else ""),
                stop_reason=ended.stop_reason if ended else None,
                resource=_uri(header.id),
            )
            found.append(line)
        return found

    def path(self, id: str) -> Path:
        """Return the path of a run's journal.

        Raises:
            LookupError: The folder has no run with this id.
            ValueError: The journal has more than `MAX_JOURNAL` bytes.
        """
        found = self._journals(f"*-{id}") if re.fullmatch("[0-9a-f]{8}", id) else []
        if not found:
            raise LookupError(f"No such run: got {id[:80]!r}.")
        if (size := found[-1].stat().st_size) > MAX_JOURNAL:
            raise ValueError(f"Journal of run {id} must have at most {MAX_JOURNAL:,} bytes: got {size:,}.")
        return found[-1]

    def _journals(self, names: str) -> list[Path]:
        return sorted(path for path in self.folder.glob(f"{names}.jsonl") if not path.is_symlink())

    def journal(self, id: str) -> str:
        """Return the text of a run's journal. Raises the same errors as `path`."""
        return self.path(id).read_text(encoding="utf-8")

    def report(self, id: str) -> str:
        """Return a run as text: facts, small tree, question, answer. Raises the same errors as `path`."""
        run = load(self.path(id))
        assert isinstance(run, Run)
        return readable(f"{run_text(run)}\n\nQuestion\n{run.question}\n\nAnswer\n{run.answer or 'none'}\n")


class Searches:
    """Runs the searches that clients request.

    Args:
        lab: The lab that runs the searches. Its `runs` must be set.
        catalogue: The strategies that clients can request.
        make_task: Makes a task from the text of a question.
        at_once: Maximum number of concurrent searches. Further searches are refused.
    """

    def __init__(
        self, lab: Lab, catalogue: Catalogue, make_task: Callable[[str], Task], at_once: int
    ) -> None:
        self.lab = lab
        self.catalogue = catalogue
        self.make_task = make_task
        self.at_once = at_once
        self._under_way: set[asyncio.Task[Run]] = set()

    async def search(self, report: Report, question: str, name: str, settings: Any, budget: Any) -> Outcome:
        """Answer a question with the strategy `name`.

        Raises:
            LookupError: The catalogue has no such strategy.
            ValueError: The question, a setting or a limit is invalid.
            RuntimeError: `at_once` searches are running, the run failed, or the domain lacks what the
                strategy needs.
        """
        task = self.make_task(question)
        strategy = self.catalogue.changed(name, equipped := self.lab.runner.equipped(task), settings)
        limits = self.catalogue.lowered(budget)
        most = limits.calls if limits and limits.calls else strategy.max_calls(equipped)
        return await self._carried_out(
            report, most, lambda watch: self.lab.run(strategy, task, budget=limits, watch=watch)
        )

    async def think(self, report: Report, question: str, context: str, preset: str, budget: Any) -> Outcome:
        """Run Deep Think on a question. Raises `ValueError` and `RuntimeError` as `search` does."""
        limits = self.catalogue.lowered(budget)

        async def start(watch: Watch) -> Run:
            return await think(question, self.lab, preset=preset, context=context, budget=limits, watch=watch)

        return await self._carried_out(report, limits.calls if limits else None, start)

    async def _carried_out(
        self, report: Report, most: int | None, start: Callable[[Watch], Coroutine[Any, Any, Run]]
    ) -> Outcome:
        if len(self._under_way) >= self.at_once:
            raise RuntimeError(f"At most {self.at_once:,} searches run at the same time. Try again later.")
        calls = thoughts = 0

        def watch(lines: Sequence[Line]) -> None:
            nonlocal calls, thoughts
            calls += sum(isinstance(line.e, Reply) and is_made(line.e) for line in lines)
            thoughts += sum(isinstance(line.e, Thought) for line in lines)

        # The SDK cancels a request's task repeatedly. In a separate task, the run can end properly.
        running = asyncio.create_task(start(watch))
        self._under_way.add(running)
        running.add_done_callback(self._under_way.discard)
        sent = 0
        try:
            while not running.done():
                await asyncio.wait([running], timeout=PAUSE)
                if calls > sent:
                    sent = calls
                    await report(sent, most, f"{calls:,} calls, {thoughts:,} thoughts")
        finally:
            running.cancel()
        run = running.result()
        if run.status == "failed":
            ended = f"Run {run.id} {describe_stop(str(run.stop_reason))} and has no answer"
            raise RuntimeError(f"{ended}: {run.failure}" if run.failure else f"{ended}.")
        return Outcome(
            run=run.id,
            answer=run.answer,
            status=run.status,
            stop_reason=run.stop_reason,
            score=run.score,
            thoughts=len(run.tree),
            calls=run.usage.calls,
            cost=run.usage.cost,
            resource=_uri(run.id),
        )


def server_of(searches: Searches) -> Any:
    """Return an `MCPServer` of the MCP SDK that offers `searches` and the runs of their lab."""
    try:
        from mcp.server.mcpserver import MCPServer  # noqa: PLC0415
    except ImportError:
        raise ImportError(requires("tot-lab mcp", "mcp", "mcp") + ".") from None
    server = MCPServer(
        "tot_lab",
        version=__version__,
        instructions="Answers questions by searches over thoughts of a language model. One search may take "
        "minutes and many model calls: use it for questions that one answer at once would not solve.",
        log_level="WARNING",
    )
    assert searches.lab.runs is not None
    _offer_searches(server, searches)
    _offer_runs(server, Runs(searches.lab.runs))
    return server


def _offer_searches(server: Any, searches: Searches) -> None:
    """Add the tools `search` and `think`."""
    import mcp.server.mcpserver as sdk  # noqa: PLC0415
    from mcp.server.mcpserver.exceptions import ToolError  # noqa: PLC0415
    from mcp_types import ToolAnnotations  # noqa: PLC0415

    Question = Annotated[str, Field(min_length=1, max_length=MAX_CHARACTERS)]
    Context = Annotated[str, Field(description="text to consider", max_length=MAX_CHARACTERS)]
    Limits = Annotated[
        dict[str, int | float] | None,
        Field(description="limits that lower those of the server: calls, tokens, usd, seconds"),
    ]
    names, presets = [*searches.catalogue.offers], tuple(PRESETS)

    @contextmanager
    def explained() -> Iterator[None]:
        try:
            yield
        except (LookupError, ValueError, TypeError, RuntimeError) as error:
            raise ToolError(_explain(error)) from None

    async def search(
        question: Question,
        mcp_context: sdk.Context,
        strategy: str = names[0],
        settings: dict[str, Any] | None = None,
        budget: Limits = None,
    ) -> Outcome:
        with explained():
            return await searches.search(mcp_context.report_progress, question, strategy, settings, budget)

    async def deep_think(
        question: Question,
        mcp_context: sdk.Context,
        context: Context = "",
        preset: Literal[presets] = "balanced",  # type: ignore[valid-type]
        budget: Limits = None,
    ) -> Outcome:
        with explained():
            return await searches.think(mcp_context.report_progress, question, context, preset, budget)

    spends = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=True)
    server.add_tool(
        search,
        annotations=spends,
        description="Answer a question by a search over thoughts of a language model. Strategies: "
        f"{', '.join(names)}. `settings` changes settings of the strategy by path, such as "
        f"{_example(searches.catalogue)}.",
    )
    server.add_tool(
        deep_think,
        name="think",
        annotations=spends,
        description="Think an open question through: develop several approaches, judge them, and combine "
        "the best. `preset` sets the effort.",
    )


def _offer_runs(server: Any, kept: Runs) -> None:
    """Add the tool `runs`, and the runs as resources."""
    from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError  # noqa: PLC0415
    from mcp_types import Resource, ToolAnnotations  # noqa: PLC0415

    async def runs(limit: Annotated[int, Field(ge=1, le=LISTED)] = 20) -> list[RunLine]:
        return await asyncio.to_thread(kept.newest, limit)

    async def list_resources() -> list[Any]:
        return [
            Resource(
                uri=run.resource,
                name=run.question or run.run,
                description=f"{run.strategy}, {run.started}",
                mime_type="text/plain",
            )
            for run in await runs(LISTED)
        ]

    async def read(what: Callable[[str], str], id: str) -> str:
        try:
            return await asyncio.to_thread(what, id)
        except LookupError as error:
            raise ResourceNotFoundError(_explain(error)) from None
        except ValueError as error:
            raise ResourceError(_explain(error)) from None

    async def report(id: str) -> str:
        """A run as text: its facts, its tree, the question and the answer."""
        return await read(kept.report, id)

    async def journal(id: str) -> str:
        """The journal of a run: every prompt, reply and score, one record a line."""
        return await read(kept.journal, id)

    reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    server.add_tool(runs, annotations=reads, description="The latest runs of this lab.")
    server.resource(_uri("{id}"), name="run", mime_type="text/plain")(report)
    server.resource(_uri("{id}") + "/journal", name="journal", mime_type="application/x-ndjson")(journal)
    server.list_resources = list_resources  # the SDK would list only resources that exist at the start


async def serve_http(
    server: Any, listening: socket.socket, token: str | None, announce: Callable[[str], None]
) -> None:
    """Serve over streamable HTTP until a signal ends the process.

    Args:
        server: The server.
        listening: A bound socket.
        token: What clients must send as `Authorization: Bearer TOKEN`. `None` requires no token.
        announce: Called with the URL before the server starts.
    """
    import uvicorn  # noqa: PLC0415
    from mcp.server.transport_security import TransportSecuritySettings  # noqa: PLC0415

    host, port = listening.getsockname()[:2]
    # On a loopback address, the SDK checks `Host` and `Origin`, which refuses requests of other sites' pages.
    # At any other address, clients may use any name of the server, and need the token.
    checks_names = ipaddress.ip_address(host).is_loopback
    open_to_all = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    app = server.streamable_http_app(transport_security=None if checks_names else open_to_all)
    if token is not None:
        app = _expecting(token, app)
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
    announce(f"http://{f'[{host}]' if ':' in host else host}:{port}/mcp")
    await uvicorn.Server(config).serve([listening])


def _expecting(token: str, app: Any) -> Any:
    """Wrap the ASGI app `app` so that an HTTP request without `token` gets status 401."""
    expected = f"Bearer {token}".encode()

    async def checked(scope: Any, receive: Any, send: Any) -> None:
        given = dict(scope.get("headers", ())).get(b"authorization", b"")
        if scope["type"] != "http" or hmac.compare_digest(given, expected):
            await app(scope, receive, send)
            return
        headers = [(b"www-authenticate", b"Bearer"), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    return checked


def _example(catalogue: Catalogue) -> str:
    """Return the first integer setting that a request may change, as a JSON object."""
    for strategy in catalogue.offers.values():
        for path, value in changeable(strategy):
            if type(value) is int:
                return f'{{"{path}": {value}}}'
    return "{}"


def _explain(error: Exception) -> str:
    return scrubbed(str(error))


def _short(text: str) -> str:
    return readable(text if len(text) <= 200 else f"{text[:199]}…")


def _uri(id: str) -> str:
    return f"tot-lab://runs/{id}"
