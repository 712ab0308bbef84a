"""Beginnings of prompts that the calls of a search share, each processed once by a llama.cpp server.

llama.cpp reuses what a slot holds of a new prompt, and picks the free slot that holds most of it. Calls that
come one at a time therefore lose nothing. Two kinds of calls do: those that are made at the same time, since
each slot processes the shared beginning for itself, and those with a seed, since what came before would
change the rounding of their replies. For both, the paragraphs before the last one are processed first, the
state of the slot is saved to a file, and it is restored in the slots of all calls that begin in the same way.

The states of calls with a seed depend on the prompt alone: each is computed from the state of the boundary
before it, in the same steps. So such a call starts from the same bits whatever came before.

References:
    llama.cpp, tools/server/README.md: `id_slot`, `cache_prompt`, and `POST /slots/{id_slot}` with `save` and
    `restore`. Zheng et al. 2024, SGLang: reuse of the shared prefixes of many calls.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from tot_lab.core.calls import Call, CallObserver, Message, Reply
from tot_lab.core.reading import common_length
from tot_lab.models.chat.requests import blank_lines_in
from tot_lab.models.connections import body_of
from tot_lab.models.openai_compatible import LlamaCpp
from tot_lab.models.stack import Failure, Listening

SHORTEST = 64
"""Characters that a saved beginning adds to the one before it, at least."""

GROWTH = 1.5
"""Factor between the lengths of saved beginnings, so that a long prompt has few of them."""

GATHERING = 0.002
"""Seconds that a call waits for others. Those of one turn of a search arrive together."""

REFUSALS = 2
"""Refused restores in a row after which no state is used any more. A single one may be a removed file."""

LARGEST = 2**30
"""Bytes of all saved states. The least recently used ones are removed."""


_Key = tuple[str, bool]
"""The text of a beginning, and whether its state is exact, for calls with a seed."""


class Beginning(NamedTuple):
    """The beginning of a prompt as a call of its own, and its text including the tools."""

    call: Call
    text: str


def text_of(call: Call) -> str:
    """Return all that a chat template makes the prompt of."""
    parts = [str(part) for part in (*call.tools, call.response_format, call.options) if part]
    turns = (f"{message.role}: {message.tool_calls or ''}{message.content}" for message in call.messages)
    return "\n".join([*parts, *turns])


def beginnings_of(call: Call) -> list[Beginning]:
    """Return the beginnings of the prompt of `call` that other calls may share, the shortest one first.

    Each ends before an empty line of the last message. The last one leaves out the last paragraph only.
    """
    *before, last = call.messages
    if last.role != "user":
        return []
    ends = [end for end, _ in blank_lines_in(last.content)]
    beginnings = list[Beginning]()
    length = 0
    for end in ends:
        messages = (*before, Message("user", last.content[:end]))
        whole = sum(len(message.content) for message in messages)
        if whole >= length + SHORTEST and (whole >= GROWTH * length or end == ends[-1]):
            length = whole
            beginnings.append(_beginning(msgspec.structs.replace(call, messages=messages)))
    return beginnings


def _beginning(call: Call) -> Beginning:
    """Return the prompt of `call` as a beginning."""
    part = msgspec.structs.replace(call, max_tokens=1, stop=(), logprobs=0, seed=None)
    return Beginning(part, text_of(part))


def _forget(under_way: dict[_Key, asyncio.Task[int]], key: _Key, task: asyncio.Task[int]) -> None:
    """Remove a task that is done."""
    del under_way[key]
    if not task.cancelled():
        task.exception()  # marks it as retrieved, even if no call waits for it any more


class _State(NamedTuple):
    """A saved state of a slot."""

    name: str
    size: int


class _Counting:
    """A call observer that counts the cached tokens of a request."""

    paid: float | None = None
    watched = False
    cached = 0

    def note(self, name: str, **data: Any) -> None:
        self.cached += data.get("cached_tokens", 0)

    def partial(self, text: str) -> None:
        pass


class _WithBeginning(Listening):
    """A call observer that does not count tokens as cached that were processed for this call beforehand."""

    def __init__(self, observer: CallObserver, processed: int) -> None:
        super().__init__(observer, lambda name: None)
        self.processed = processed
        self.cached: int | None = None

    def note(self, name: str, **data: Any) -> None:
        """Correct the cached tokens, and forward the note."""
        if "cached_tokens" in data:
            self.cached = data["cached_tokens"]
            data["cached_tokens"] = max(data["cached_tokens"] - self.processed, 0)
        super().note(name, **data)


class Slots:
    """The slots of a server. A call has its slot to itself; calls of all threads share the slots."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.held = [""] * number
        """The text of the prompt that each slot holds."""
        self._free = list(range(number))
        self._waiting: deque[asyncio.Future[int]] = deque()
        self._lock = threading.Lock()

    async def take(self, text: str) -> int:
        """Wait for a free slot and return it: the one that holds most of `text`, or else the one that has
        been free for longest.
        """
        with self._lock:
            if self._free:
                slot = max(self._free, key=lambda slot: self.common(slot, text))
                self._free.remove(slot)
                return slot
            turn: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give(turn.result())
            raise

    def common(self, slot: int, text: str) -> int:
        """Return the number of characters at the beginning of `text` that `slot` holds."""
        return common_length(self.held[slot], text)

    def give(self, slot: int) -> None:
        """Give `slot` to the next call."""
        with self._lock:
            while self._waiting:
                turn = self._waiting.popleft()
                if not turn.get_loop().is_closed():
                    turn.get_loop().call_soon_threadsafe(self._hand_over, turn, slot)
                    return
            self._free.append(slot)

    def _hand_over(self, turn: asyncio.Future[int], slot: int) -> None:
        if turn.done():
            self.give(slot)
        else:
            turn.set_result(slot)


class Prefixes:
    """Answers calls on a server, and processes what their prompts share once.

    Args:
        endpoint: The server.
        slots: Its number of slots.
        folder: Where it saves states.
    """

    def __init__(self, endpoint: LlamaCpp, slots: int, folder: Path) -> None:
        self.endpoint = endpoint
        self.slots = Slots(slots)
        self.folder = folder
        self.states: OrderedDict[_Key, _State] = OrderedDict()
        self.works = True
        """Whether states can be saved, and a prompt begin with one. Some architectures cannot go back to the
        end of a beginning.
        """
        self._saved = 0
        self._refused = 0  # restores in a row
        self._names = count()
        self._lock = threading.Lock()
        self._pending: Counter[str] = Counter()
        self._under_way: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[_Key, asyncio.Task[int]]]
        self._under_way = WeakKeyDictionary()

    async def answer(self, call: Call, observer: CallObserver) -> Sequence[Reply]:
        """Return the reply to `call`. Raises `Failure`."""
        text, exact = text_of(call), call.seed is not None
        with self._lock:
            self._pending[text] += 1
        try:
            return await self._answer(call, text, observer, exact=exact)
        finally:
            with self._lock:
                self._pending[text] -= 1
                if not self._pending[text]:
                    del self._pending[text]

    async def _answer(self, call: Call, text: str, observer: CallObserver, *, exact: bool) -> Sequence[Reply]:
        beginnings: list[Beginning] = []
        is_own = bool(call.options.keys() & {"cache_prompt", "id_slot"})
        if self.works and not is_own and (exact or self.slots.number > 1):
            beginnings = beginnings_of(call)
            if not exact:
                await asyncio.sleep(GATHERING)
                whole = [_beginning(call)] if self._pending[text] > 1 else []
                beginnings = [*beginnings[-1:], *whole]
        processed = await self._process(beginnings, exact=exact)
        beginning = beginnings[-1].text if beginnings and self.works else ""
        slot = await self.slots.take(text)
        try:
            if beginning and (exact or self.slots.common(slot, text) < len(beginning)):
                await self._restore(slot, (beginning, exact))
            options = {"id_slot": slot, "cache_prompt": not exact or bool(beginning), **call.options}
            call = msgspec.structs.replace(call, options=options)
            noting = _WithBeginning(observer, processed)
            if is_own:  # the call may have another slot
                self.slots.held[:] = [""] * self.slots.number
                text = ""
            replies = await self._processed(slot, text, call, noting)
            self.works = self.works and not (beginning and noting.cached == 0)
            return replies
        finally:
            self.slots.give(slot)

    async def _processed(self, slot: int, text: str, call: Call, observer: CallObserver) -> Sequence[Reply]:
        """Answer `call` in `slot`. If that fails, nothing is known about what the slot holds."""
        self.slots.held[slot] = ""
        replies = await self.endpoint.answer([call], observer)
        self.slots.held[slot] = text
        return replies

    async def _process(self, beginnings: list[Beginning], *, exact: bool) -> int:
        """Save the states of `beginnings`.

        Calls that need the same state wait for the first of them. Returns the tokens that were processed.
        """
        processed, before = 0, ""
        under_way = self._under_way.setdefault(asyncio.get_running_loop(), {})
        for beginning in beginnings:
            key = beginning.text, exact
            if key in under_way:
                await asyncio.shield(under_way[key])
            elif key not in self.states and self.works:
                task = asyncio.ensure_future(self._save(beginning, before, exact=exact))
                under_way[key] = task
                task.add_done_callback(partial(_forget, under_way, key))
                processed += await asyncio.shield(task)  # others wait for it even if this call is cancelled
            before = beginning.text
        return processed

    async def _save(self, beginning: Beginning, before: str, *, exact: bool) -> int:
        """Process `beginning` in a slot and save its state. Returns the processed tokens.

        An exact state is computed from the exact state of `before`, or else from nothing. Others are computed
        from what the slot holds, or from the state of `before` if that is more.
        """
        text = beginning.text
        slot = await self.slots.take(text)
        try:
            processed = 0
            if exact or self.slots.common(slot, text) < len(text):
                if before and (exact or self.slots.common(slot, text) < len(before)):
                    await self._restore(slot, (before, exact))
                options = {
                    **beginning.call.options,
                    "id_slot": slot,
                    "cache_prompt": not exact or bool(before),
                }
                part = msgspec.structs.replace(beginning.call, options=options)
                counting = _Counting()
                (reply,) = await self._processed(slot, text, part, counting)
                processed = (reply.input_tokens or 0) - counting.cached
            name = str(next(self._names))
            try:
                page = await self._act(slot, "save", name)
            except Failure as failure:
                self._remove(name)
                if failure.connection_failed:
                    raise
                self.works = False  # such as a full disk
            except asyncio.CancelledError:
                self._remove(name)
                raise
            else:
                self._keep((text, exact), _State(name, int(page["n_written"])))
            return processed
        finally:
            self.slots.give(slot)

    def _keep(self, key: _Key, state: _State) -> None:
        with self._lock:
            replaced = [self.states.pop(key)] if key in self.states else []
            self.states[key] = state
            self._saved += state.size
            while self._saved - sum(old.size for old in replaced) > LARGEST and len(self.states) > 1:
                replaced.append(self.states.popitem(last=False)[1])
            self._saved -= sum(old.size for old in replaced)
        for old in replaced:
            self._remove(old.name)

    def _remove(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)

    async def _restore(self, slot: int, key: _Key) -> None:
        """Restore a saved state in `slot`. A `Failure` can be repeated, which processes it again."""
        with self._lock:
            state = self.states.get(key)
            if state is None:
                raise Failure("the saved state of the prompt's beginning was removed", retry=True)
            self.states.move_to_end(key)
        self.slots.held[slot] = ""
        try:
            await self._act(slot, "restore", state.name)
        except Failure as failure:
            failure.retry = True
            with self._lock:
                if self.states.get(key) is state:
                    del self.states[key]
                    self._saved -= state.size
                    self._remove(state.name)
            if not failure.connection_failed:
                self._refused += 1
                self.works = self.works and self._refused < REFUSALS
            raise
        self._refused = 0
        self.slots.held[slot] = key[0]

    async def _act(self, slot: int, action: str, name: str) -> Any:
        """Save or restore the state of `slot`. It waits for a request that was just cancelled there."""
        page = f"/slots/{slot}?action={action}"
        async with self.endpoint._posted(page, {"filename": name}) as response:
            return msgspec.json.decode(await body_of(response))
