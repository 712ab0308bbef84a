"""Beginnings of prompts that the calls of a search share, each processed once by a llama.cpp server.

llama.cpp reuses the beginning of a prompt that a slot holds, so calls one at a time process it once. Two
kinds of calls do not: those made at the same time, since each slot processes it for itself, and those with a
seed, which must not reuse it, since the calls before would change the rounding of their replies. For both,
the paragraphs before the last one are processed first, the state of the slot is saved to a file, and it is
restored for all calls that begin in the same way. Each state is computed from the one of the beginning before
it, in the same steps, so a call with a seed starts from the same bits whatever came before.

References:
    llama.cpp, tools/server/README.md: `id_slot`, `cache_prompt`, and `POST /slots/{id_slot}` with `save` and
    `restore`. Zheng et al. 2024, SGLang: reuse of the shared prefixes of many calls.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tot_lab.core.calls import Call, CallObserver, Message, Reply
from tot_lab.core.reading.values import common_length
from tot_lab.models.chat.requests import blank_lines_in
from tot_lab.models.connections import body_of
from tot_lab.models.openai_compatible import LlamaCpp
from tot_lab.models.stack import Failure, Listening, NullObserver

SHORTEST = 64
"""The fewest characters that a beginning adds to the one before it."""

GROWTH = 1.5
"""Factor between the lengths of beginnings, so that a long prompt has few of them."""

LARGEST = 2**30
"""The most bytes of all saved states. The least recently used ones are removed."""

WAITING = 0.01
"""Seconds between two checks whether a slot is free, or another call has saved a state."""

PATIENCE = 5.0
"""Seconds to wait for saving or restoring a state before it is tried again."""


class Beginning(NamedTuple):
    """The beginning of a prompt as a call of its own, and its text including the tools."""

    call: Call
    text: str


def text_of(call: Call) -> str:
    """Return everything from which a chat template makes the prompt, as one text."""
    parts = [str(part) for part in (*call.tools, call.tool_choice, call.effort, call.options) if part]
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
            part = _without_reply(msgspec.structs.replace(call, messages=messages))
            beginnings.append(Beginning(part, text_of(part)))
    return beginnings


def _without_reply(call: Call) -> Call:
    return msgspec.structs.replace(call, max_tokens=1, stop=(), logprobs=0, seed=None, response_format=None)


class _Cached(Listening):
    """A call observer that reads the number of cached tokens. It forwards that number without `beforehand`,
    the tokens that were processed for this call.
    """

    def __init__(self, observer: CallObserver, beforehand: int = 0) -> None:
        super().__init__(observer, lambda name, data: None)
        self.beforehand = beforehand
        self.tokens: int | None = None

    def note(self, name: str, **data: Any) -> None:
        """Correct the cached tokens, and forward the note."""
        if "cached_tokens" in data:
            self.tokens = data["cached_tokens"]
            data["cached_tokens"] = max(data["cached_tokens"] - self.beforehand, 0)
        super().note(name, **data)


class _Request:
    """A call on its way, the slot that it has, and the text of the beginning that it saves there."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.loop = asyncio.get_running_loop()
        self.slot = -1  # it waits for a slot
        self.saving = ""


class Prefixes:
    """Answers calls on a server, and processes beginnings that their prompts share once.

    A call has its slot to itself. Calls of several event loops share the slots. They wait by polling,
    since a loop that is closed can neither give a slot back nor receive one.

    Args:
        endpoint: The server.
        slots: Its number of slots.
        folder: Where it saves states.
    """

    def __init__(self, endpoint: LlamaCpp, slots: int, folder: Path) -> None:
        self.endpoint = endpoint
        self.held = dict.fromkeys(range(slots), "")
        """The prompt that each slot holds, "" if it is unknown. The most recently taken slot is the last."""
        self.folder = folder
        self.works = True
        """Whether prompts can continue from a saved state. Some architectures cannot go back to its end."""
        self._requests: list[_Request] = []
        self._lock = threading.Lock()

    async def answer(self, call: Call, observer: CallObserver) -> Sequence[Reply]:
        """Return the reply to `call`. Raises `Failure`."""
        if "id_slot" in call.options:
            observer.note("call.dropped", settings=["id_slot"])
        request = _Request(text_of(call))
        self._requests.append(request)
        try:
            return await self._answer(request, call, observer)
        finally:
            self._requests.remove(request)

    async def _answer(self, request: _Request, call: Call, observer: CallObserver) -> Sequence[Reply]:
        is_exact = call.seed is not None
        beginnings: list[Beginning] = []
        if self.works and (is_exact or len(self.held) > 1) and "cache_prompt" not in call.options:
            beginnings = beginnings_of(call)
            if not is_exact:
                await asyncio.sleep(WAITING)  # calls of one turn of a search arrive together
                if sum(one.text == request.text for one in self._alive()) > 1:
                    # The state is saved under a text that ends with an empty line. No text of `beginnings_of`
                    # does, so a call with a seed never restores it.
                    beginnings.append(Beginning(_without_reply(call), f"{request.text}\n\n"))
        while not self._took_slot(request):
            await asyncio.sleep(WAITING)
        cached = _Cached(observer, await self._begin(request, beginnings))
        replies = await self._ask(request, call, cached, reuse=not is_exact or bool(beginnings))
        self.held[request.slot] = request.text
        self.works = self.works and not (beginnings and cached.tokens == 0)
        return replies

    def _alive(self) -> list[_Request]:
        """Return the requests in order of arrival, without those whose event loop was closed."""
        return [one for one in tuple(self._requests) if not one.loop.is_closed()]

    def _took_slot(self, request: _Request) -> bool:
        """Give a free slot to `request` if it is the first that waits: the slot that holds most of its text,
        or else the one that was taken longest ago.
        """
        with self._lock:
            alive = self._alive()
            free = [slot for slot in self.held if all(one.slot != slot for one in alive)]
            if not free or request is not next(one for one in alive if one.slot < 0):
                return False
            slot = max(free, key=lambda slot: common_length(self.held[slot], request.text))
            self.held.pop(slot)
            self.held[slot] = ""  # until the reply has arrived
            request.slot = slot
            return True

    async def _begin(self, request: _Request, beginnings: list[Beginning]) -> int:
        """Let the slot hold the state of the last of `beginnings`: restore the longest one that was saved,
        process and save those after it, and wait for those that other calls process. Returns the processed
        tokens.
        """
        saved = len(beginnings)
        while saved and not await self._restored(request, beginnings[saved - 1].text):
            saved -= 1
        processed = 0
        for number, (call, text) in enumerate(beginnings[saved:], saved):
            while any(one.saving == text for one in self._alive()):
                await asyncio.sleep(WAITING)
            if await self._restored(request, text):
                continue
            request.saving = text
            cached = _Cached(NullObserver())
            (reply,) = await self._ask(request, call, cached, reuse=number > 0)
            processed += (reply.input_tokens or 0) - (cached.tokens or 0)
            await self._save(request, text)
            request.saving = ""
        return processed

    async def _ask(
        self, request: _Request, call: Call, observer: CallObserver, *, reuse: bool
    ) -> Sequence[Reply]:
        options = {"cache_prompt": reuse, **call.options, "id_slot": request.slot}
        return await self.endpoint.answer([msgspec.structs.replace(call, options=options)], observer)

    def _file(self, text: str) -> Path:
        """Return the file for the state of a prompt that begins with `text`. It exists only when complete."""
        return self.folder / f"{sha256(text.encode(errors='replace')).hexdigest()}.state"

    async def _save(self, request: _Request, text: str) -> None:
        """Save the state of the slot if possible, and remove the least recently used ones."""
        with suppress(Failure, OSError):  # such as a full disk: the beginning is processed again
            name, file = f"{request.slot}.new", self._file(text)
            await self._act(request, "save", name)
            (self.folder / name).replace(file)
            size = 0
            for state in sorted(self.folder.glob("*.state"), key=lambda state: -state.stat().st_mtime_ns):
                size += state.stat().st_size
                if size > LARGEST and state != file:
                    state.unlink(missing_ok=True)

    async def _restored(self, request: _Request, text: str) -> bool:
        """Restore the state of a beginning, and return whether it was saved. Raises `Failure`."""
        file = self._file(text)
        try:
            os.utime(file)  # marks it as recently used
            await self._act(request, "restore", file.name)
        except FileNotFoundError:
            return False
        except Failure as failure:
            if not failure.connection_failed:
                file.unlink(missing_ok=True)  # it is damaged
            failure.retry = True  # the retry processes the beginning again
            raise
        return True

    async def _act(self, request: _Request, action: str, name: str) -> None:
        """Save or restore the state of the slot, even if a request was just cancelled there."""
        page = f"/slots/{request.slot}?action={action}"
        while True:
            with suppress(TimeoutError):  # llama.cpp may forget one of several requests that wait for a slot
                async with asyncio.timeout(PATIENCE):
                    async with self.endpoint._posted(page, {"filename": name}) as response:
                        await body_of(response)
                    return
