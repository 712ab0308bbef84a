"""Prefixes of prompts that the calls of a search share, each processed once by a llama.cpp server.

llama.cpp reuses the prefix of a prompt that a slot still holds, so calls made one after another process a
shared prefix once. Concurrent calls gain nothing from this, since each slot processes the prefix for itself.
Calls with a seed must not reuse what a slot holds, since earlier calls would change the rounding of their
replies. For both kinds of calls, the paragraphs before the last one are processed first, the state of the
slot is saved to a file, and the file is restored for every call with the same prefix. Each state is computed
from that of the next shorter prefix, in the same steps, so a call with a seed starts from the same bits
whatever calls came before.

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
"""The fewest characters by which a prefix must exceed the next shorter one."""

GROWTH = 1.5
"""The least ratio of the length of a prefix to that of the one before, so that the prefixes are few. The last
prefix is exempt.
"""

LARGEST = 2**30
"""The most bytes of all saved states together. The least recently used states are removed."""

WAITING = 0.01
"""Seconds between two checks of whether a slot is free, or of whether another call has saved a state."""

PATIENCE = 5.0
"""Seconds after which an unanswered request to save or restore a state is sent again."""


class PromptPrefix(NamedTuple):
    """A prefix of a prompt: the call that makes the server process it, and its text as in `text_of`."""

    call: Call
    text: str


def text_of(call: Call) -> str:
    """Return everything from which a chat template makes the prompt, as one text."""
    parts = [str(part) for part in (*call.tools, call.tool_choice, call.effort, call.options) if part]
    turns = (f"{message.role}: {message.tool_calls or ''}{message.content}" for message in call.messages)
    return "\n".join([*parts, *turns])


def prefixes_of(call: Call) -> list[PromptPrefix]:
    """Return the prefixes of the prompt of `call` that other calls may share, shortest first.

    Each ends before a blank line of the last message, so none has the last paragraph. Prefixes that are
    little longer than the one before are left out (`SHORTEST`, `GROWTH`). Empty if the last message is not
    the user's, or has no blank line.
    """
    *before, last = call.messages
    if last.role != "user":
        return []
    ends = [end for end, _ in blank_lines_in(last.content)]
    prefixes = list[PromptPrefix]()
    length = 0
    for end in ends:
        messages = (*before, Message("user", last.content[:end]))
        whole = sum(len(message.content) for message in messages)
        if whole >= length + SHORTEST and (whole >= GROWTH * length or end == ends[-1]):
            length = whole
            part = _without_reply(msgspec.structs.replace(call, messages=messages))
            prefixes.append(PromptPrefix(part, text_of(part)))
    return prefixes


def _without_reply(call: Call) -> Call:
    return msgspec.structs.replace(call, max_tokens=1, stop=(), logprobs=0, seed=None, response_format=None)


class _Cached(Listening):
    """A call observer that stores the reported number of cached tokens in `tokens`. It forwards that number
    less `beforehand`: tokens that are cached only because they were processed for this call just before.
    """

    def __init__(self, observer: CallObserver, beforehand: int = 0) -> None:
        super().__init__(observer, lambda name, data: None)
        self.beforehand = beforehand
        self.tokens: int | None = None

    def note(self, name: str, **data: Any) -> None:
        """Subtract `beforehand` from the cached tokens, and forward the note."""
        if "cached_tokens" in data:
            self.tokens = data["cached_tokens"]
            data["cached_tokens"] = max(data["cached_tokens"] - self.beforehand, 0)
        super().note(name, **data)


class _Request:
    """A call in flight, its slot, and the text of the prefix whose state it is about to save."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.loop = asyncio.get_running_loop()
        self.slot = -1  # -1: the call waits for a slot
        self.saving = ""


class Prefixes:
    """Answers calls on a llama.cpp server, and processes each shared prefix of their prompts only once.

    A slot serves one call at a time. Calls of all event loops share the slots, and wait for them by polling:
    a call whose loop was closed would never release its slot, or take one that it is given.

    Args:
        endpoint: The server.
        slots: The server's number of slots.
        folder: Where the server saves states.
    """

    def __init__(self, endpoint: LlamaCpp, slots: int, folder: Path) -> None:
        self.endpoint = endpoint
        self.held = dict.fromkeys(range(slots), "")
        """The prompt that each slot holds, "" if unknown, with the most recently taken slot last."""
        self.folder = folder
        self.works = True
        """Whether a prompt can continue from a saved state. `False` after a call with a restored prefix had 0
        cached tokens, as with some architectures.
        """
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
        prefixes: list[PromptPrefix] = []
        if self.works and (is_exact or len(self.held) > 1) and "cache_prompt" not in call.options:
            prefixes = prefixes_of(call)
            if not is_exact:
                await asyncio.sleep(WAITING)  # concurrent calls of one search step arrive together
                if sum(one.text == request.text for one in self._alive()) > 1:
                    # The state of this whole prompt is saved under a text that ends with a blank line. No
                    # prefix of `prefixes_of` does, so a call with a seed never restores this state.
                    prefixes.append(PromptPrefix(_without_reply(call), f"{request.text}\n\n"))
        while not self._took_slot(request):
            await asyncio.sleep(WAITING)
        cached = _Cached(observer, await self._begin(request, prefixes))
        replies = await self._ask(request, call, cached, reuse=not is_exact or bool(prefixes))
        self.held[request.slot] = request.text
        self.works = self.works and not (prefixes and cached.tokens == 0)
        return replies

    def _alive(self) -> list[_Request]:
        """Return the requests in order of arrival, without those whose event loop was closed."""
        return [one for one in tuple(self._requests) if not one.loop.is_closed()]

    def _took_slot(self, request: _Request) -> bool:
        """Give `request` a free slot, and return whether it got one. Only the request that has waited longest
        gets one: the slot whose last prompt has the longest beginning in common with its text, among equals
        the least recently taken slot.
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

    async def _begin(self, request: _Request, prefixes: list[PromptPrefix]) -> int:
        """Bring the slot to the state after the last of `prefixes`: restore the longest saved prefix,
        process and save the longer ones, and wait for those that other calls are processing. Returns the
        number of tokens processed.
        """
        saved = len(prefixes)
        while saved and not await self._restored(request, prefixes[saved - 1].text):
            saved -= 1
        processed = 0
        for number, (call, text) in enumerate(prefixes[saved:], saved):
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
        """Return the path of the saved state for the prefix `text`. An existing file is complete."""
        return self.folder / f"{sha256(text.encode(errors='replace')).hexdigest()}.state"

    async def _save(self, request: _Request, text: str) -> None:
        """Try to save the state of the slot, and remove the least recently used ones above `LARGEST`."""
        with suppress(Failure, OSError):  # such as a full disk: the prefix is processed again
            name, file = f"{request.slot}.new", self._file(text)
            await self._act(request, "save", name)
            (self.folder / name).replace(file)
            size = 0
            for state in sorted(self.folder.glob("*.state"), key=lambda state: -state.stat().st_mtime_ns):
                size += state.stat().st_size
                if size > LARGEST and state != file:
                    state.unlink(missing_ok=True)

    async def _restored(self, request: _Request, text: str) -> bool:
        """Restore the state for the prefix `text` if it was saved, and return whether it was. Raises
        `Failure`.
        """
        file = self._file(text)
        try:
            os.utime(file)  # marks it as recently used
            await self._act(request, "restore", file.name)
        except FileNotFoundError:
            return False
        except Failure as failure:
            if not failure.connection_failed:
                file.unlink(missing_ok=True)  # it is damaged
            failure.retry = True  # the retry processes the prefix again
            raise
        return True

    async def _act(self, request: _Request, action: str, name: str) -> None:
        """Save the slot's state to the file `name`, or restore it from there. The request is repeated until
        it is answered.
        """
        page = f"/slots/{request.slot}?action={action}"
        while True:
            with suppress(TimeoutError):  # llama.cpp may lose a request that waits for a busy slot
                async with asyncio.timeout(PATIENCE):
                    async with self.endpoint._posted(page, {"filename": name}) as response:
                        await body_of(response)
                    return
