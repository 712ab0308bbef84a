"""The searches of `tot-lab serve`: which run answers a request, who waits for it, and how retries find it.

A search runs as long as somebody waits for it. When the last client has left, it is cancelled, and its
journal stays. Equal requests since the start are repeats 0, 1, and so on, so that a client that repeats
one gets independent samples. A retry is not a new request: it continues the newest run whose answer was not
received.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from tot_lab.core.records import Line, Record
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Task
from tot_lab.core.thinking import Budget
from tot_lab.lab.lab import Lab
from tot_lab.lab.model_settings import with_named_models
from tot_lab.record.journal import outline, read_journal
from tot_lab.record.run import Run
from tot_lab.runtime.runner import Execution, resumable

REMEMBERED = 3600.0
"""Age in seconds beyond which a retry does not continue an interrupted journal of an earlier process."""

MAX_LEFT = 1_000
"""The most unanswered runs, and the most refused requests, that are remembered."""


class Full(Exception):
    """The maximum number of concurrent searches is reached."""


class Stopping(Exception):
    """The server is shutting down."""


class Search:
    """One search, and the clients that wait for it."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.origin: Path | None = None
        """The journal that the search continues, if there is one."""
        self.execution: Execution | None = None
        """The execution, once it has begun."""
        self.task: asyncio.Task[Run]
        self.is_answered = False
        """Whether a client has received its outcome, or another search continues it."""
        self.followers: set[asyncio.Event] = set()

    @property
    def path(self) -> Path | None:
        """The journal, once there is one."""
        return self.origin if self.execution is None else self.execution.run.path

    def wake(self, _: object = None) -> None:
        """Let all followers look for new records."""
        for follower in self.followers:
            follower.set()

    async def records(self, follower: asyncio.Event, pause: float) -> AsyncIterator[list[Record]]:
        """Yield the records so far and then new ones, until the search has ended.

        Args:
            follower: The event that `Searches.following` yields for a client.
            pause: Seconds without a record after which an empty list is yielded.
        """
        seen = 0
        while True:
            follower.clear()
            is_over = self.task.done()
            lines: Sequence[Line] = () if self.execution is None else self.execution.run.lines[seen:]
            seen += len(lines)
            if lines:
                yield [line.e for line in lines]
            if is_over:
                return
            try:
                await asyncio.wait_for(follower.wait(), pause)
            except TimeoutError:
                yield []


class Searches:
    """All searches of one server.

    Args:
        lab: The lab that runs them. It keeps journals.
        at_once: The most searches under way.
    """

    def __init__(self, lab: Lab, at_once: int) -> None:
        assert lab.runs is not None
        self.lab = lab
        self.folder = lab.runs
        self.at_once = at_once
        self._under_way: dict[bytes, list[Search]] = {}
        self._tasks: set[asyncio.Task[Run]] = set()
        self._repeats: Counter[bytes] = Counter()
        self._refused: Counter[bytes] = Counter()
        self._left: dict[bytes, list[Path]] = {}
        self._is_stopping = False

    async def start(self) -> None:
        """Open the lab, and find the runs that an earlier process could not finish."""
        await self.lab.gateway.open()
        self.folder.mkdir(parents=True, exist_ok=True)
        since = time.time() - REMEMBERED
        for path in sorted(self.folder.glob("*.jsonl")):
            with suppress(OSError, ValueError):  # damaged, of another model, or no journal
                if path.stat().st_mtime < since:
                    continue
                header, ended = outline(path)
                if ended is not None and ended.stop_reason not in ("cancelled", "error"):
                    continue  # without reading the rest
                self.lab.runner.check_same(path, header)
                if resumable(read_journal(path)[1], asking=True) is not None:
                    self._leave(_key(header.strategy, header.task, header.budget), path)

    async def stop(self, grace: float) -> None:
        """Let searches finish within `grace` seconds, and cancel the others. New ones are refused."""
        self._is_stopping = True
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=grace)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    def open(
        self, strategy: Strategy, task: Task, budget: Budget | None, seed: int | None, *, is_retry: bool
    ) -> Search:
        """Return the search that answers a request: a new one, or for a retry, one that it joins or resumes.

        Args:
            strategy: The strategy.
            task: The task. It holds everything that distinguishes the request from others.
            budget: Limits of the run.
            seed: The number of the repeat. `None` takes the number of equal requests so far.
            is_retry: Whether the client sent this request before and received no answer.

        Raises:
            Full: If too many searches are under way.
            Stopping: If the server is shutting down.
        """
        if self._is_stopping:
            raise Stopping
        strategy = self.lab.runner.prepared(with_named_models(strategy, self.lab.gateway.roles))
        limits = budget.model_dump(exclude_none=True) if budget else {}
        key = _key(strategy.settings(), task.settings(), limits)
        is_new = not is_retry or self._refused[key] > 0  # the search of a refused request never began
        active = self._under_way.get(key, [])
        ending = next((one for one in reversed(active) if not one.followers), None)
        if not is_new and ending is None and key not in self._left and active:
            return active[-1]
        if len(self._tasks) >= self.at_once:
            self._refused[key] += not is_retry
            if len(self._refused) > MAX_LEFT:
                self._refused.clear()
            raise Full
        if is_retry and is_new:
            self._refused[key] -= 1
        search = Search(key)
        if not is_new and ending is not None:
            ending.is_answered = True
        else:
            ending = None
            search.origin = None if is_new else self._take_left(key)
        made = self._carry_out(search, strategy, task, budget, seed, ending)
        search.task = asyncio.create_task(made)
        self._tasks.add(search.task)
        self._under_way.setdefault(key, []).append(search)
        search.task.add_done_callback(lambda _: self._ended(search))
        return search

    @contextmanager
    def following(self, search: Search) -> Iterator[asyncio.Event]:
        """Count as a client of `search` in the block. A search without clients is cancelled."""
        follower = asyncio.Event()
        search.followers.add(follower)
        try:
            yield follower
        finally:
            search.followers.discard(follower)
            if not search.followers:
                search.task.cancel()
                self._settle(search)

    async def _carry_out(
        self,
        search: Search,
        strategy: Strategy,
        task: Task,
        budget: Budget | None,
        seed: int | None,
        ending: Search | None,
    ) -> Run:
        runner = self.lab.runner
        if ending is not None:
            await asyncio.wait([ending.task])
            search.origin = ending.path
        if search.origin is not None:
            with suppress(OSError, ValueError):  # another process is continuing it, or it was removed
                search.execution = await runner.resume(search.origin, strategy, task)
        if search.execution is None:
            if (repeat := seed) is None:
                repeat = self._repeats[search.key]
                self._repeats[search.key] += 1
            header = runner.header(strategy, task, budget, repeat)
            journal = self.folder / header.filename
            search.execution = runner.start(strategy, task, header=header, path=journal, budget=budget)
        if search.execution.is_over:
            return search.execution.run
        watchers = search.execution.recorder.watchers
        watchers.append(search.wake)
        search.wake()
        try:
            return await search.execution.carry_out()
        finally:
            watchers.clear()  # breaks a reference cycle that would keep the search in memory

    def _ended(self, search: Search) -> None:
        self._tasks.discard(search.task)
        self._under_way[search.key].remove(search)
        if not self._under_way[search.key]:
            del self._under_way[search.key]
        search.wake()
        self._settle(search)

    def _settle(self, search: Search) -> None:
        """Keep a run that ended before any client received its outcome, for a retry."""
        if not search.task.done() or search.followers or search.is_answered:
            return
        failed = not search.task.cancelled() and search.task.exception() is not None
        if not failed and search.path is not None:
            search.is_answered = True
            self._leave(search.key, search.path)

    def _take_left(self, key: bytes) -> Path | None:
        left = self._left.get(key)
        path = left.pop() if left else None
        if not left:
            self._left.pop(key, None)
        return path

    def _leave(self, key: bytes, path: Path) -> None:
        self._left.setdefault(key, []).append(path)
        if sum(map(len, self._left.values())) > MAX_LEFT:
            del self._left[next(iter(self._left))]


def _key(strategy: dict[str, Any], task: dict[str, Any], budget: dict[str, Any]) -> bytes:
    """Return a key that equal requests share: a digest of a run's settings without those of the lab."""
    asked = {name: value for name, value in task.items() if name not in ("tools", "context_window", "lab")}
    data = msgspec.json.encode([strategy, asked, budget], order="deterministic")
    return hashlib.blake2b(data, digest_size=16).digest()
