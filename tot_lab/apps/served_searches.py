"""The searches of `tot-lab serve`: starts a search for each request, and assigns retries to earlier searches.

A search runs while at least one client waits for its answer. When the last client disconnects, the search is
cancelled, and its journal is kept. Equal requests are numbered 0, 1, and so on since the server started. The
number is the repeat of the run, so that equal requests get independent samples. A request with a `seed` is
not numbered: its seed is the repeat. A request that the client's SDK marks as a retry is not numbered either:
it continues the newest equal run whose answer no client received.
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

from tot_lab.core.protocol import Budget
from tot_lab.core.records import Line, Record
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Task
from tot_lab.lab.lab import Lab
from tot_lab.lab.model_settings import with_named_models
from tot_lab.record.journal import outline, read_journal
from tot_lab.record.run import Run
from tot_lab.runtime.runner import Execution, resumable

REMEMBERED = 3600.0
"""Maximum age in seconds of a journal of an earlier server process that a retry can continue."""

MAX_LEFT = 1_000
"""Maximum number of unanswered runs, and of refused requests, that are kept in memory for retries."""


class Full(Exception):
    """Raised if the maximum number of concurrent searches is reached."""


class Stopping(Exception):
    """Raised if the server is shutting down."""


class Search:
    """One search, and the clients that wait for its answer."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.origin: Path | None = None
        """Path of the earlier journal that the search continues, or `None`."""
        self.execution: Execution | None = None
        """The execution of the run. `None` before the run begins."""
        self.task: asyncio.Task[Run]
        self.is_answered = False
        """Whether `_settle` need not remember the journal for a retry: a client received the result, a later
        search continues the journal, a retry would end in the same way, or `_settle` has remembered it.
        """
        self.followers: set[asyncio.Event] = set()

    @property
    def path(self) -> Path | None:
        """Path of the journal, or `None` before it exists."""
        return self.origin if self.execution is None else self.execution.run.path

    def wake(self, _: object = None) -> None:
        """Set the events of all clients, so that `records` yields the new records."""
        for follower in self.followers:
            follower.set()

    async def records(self, follower: asyncio.Event, pause: float) -> AsyncIterator[list[Record]]:
        """Yield lists of records until the search has ended: first those recorded so far, then new ones.

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
        lab: The lab that runs the searches. Its `runs` must be set.
        at_once: Maximum number of concurrent searches.
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
        """Open the lab, and find the runs of an earlier server process that a retry can continue."""
        await self.lab.gateway.open()
        self.folder.mkdir(parents=True, exist_ok=True)
        since = time.time() - REMEMBERED
        for path in sorted(self.folder.glob("*.jsonl")):
            with suppress(OSError, ValueError):  # damaged, of another model, or not a journal
                if path.stat().st_mtime < since:
                    continue
                header, ended = outline(path)
                if ended is not None and ended.stop_reason not in ("cancelled", "error"):
                    continue  # the run is complete: the rest of its journal is not read
                self.lab.runner.check_same(path, header)
                if resumable(read_journal(path)[1], asking=True) is not None:
                    self._leave(_key(header.strategy, header.task, header.budget), path)

    async def stop(self, grace: float) -> None:
        """Refuse new searches, wait up to `grace` seconds for the running ones, and cancel the rest."""
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
        """Return the search that answers a request.

        A retry gets a search that resumes an unanswered run or, without one, the equal search that is
        running. In all other cases, the search has a new run.

        Args:
            strategy: The strategy.
            task: The task. Its data includes the other fields of the request, such as `stop`.
            budget: Limits of the run.
            seed: The index of the repeat. `None` uses the number of equal requests so far.
            is_retry: Whether the client marks the request as a retry.

        Raises:
            Full: If `at_once` searches are running.
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
        """Register a client of `search` during the block, and yield the client's event.

        When the last client is removed, the search is cancelled.
        """
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
            with suppress(OSError, ValueError):  # another process continues the journal, or it was removed
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
        """If `search` has ended and no client received the outcome, remember the journal for a retry."""
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
    """Return a key that is equal for equal requests.

    It is a digest of strategy, task and budget, without the fields of the task that the lab sets.
    """
    asked = {name: value for name, value in task.items() if name not in ("tools", "context_window", "lab")}
    data = msgspec.json.encode([strategy, asked, budget], order="deterministic")
    return hashlib.blake2b(data, digest_size=16).digest()
