"""Small language models that run within this process; see `tot_lab.models.tiny`."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import field_validator

from tot_lab.core.attach import nearest
from tot_lab.core.calls import Call, CallObserver, Need, Reply
from tot_lab.models.stack import Endpoint, Failure, ServerFacts, provider_seed
from tot_lab.models.tiny.engine import Engine, Wanted, Written
from tot_lab.models.tiny.language import encode_prompt, encode_reply
from tot_lab.models.tiny.network import Network
from tot_lab.models.tiny.requests import ANSWERS, read_prompt

_SHIPPED = Path(__file__).with_name("numbers")
_UNUSED = ("tools", "tool_choice", "response_format", "effort")


class Tiny(Endpoint):
    """A language model of about a million parameters, which answers prompts of the Game of 24 and Countdown
    at no cost.

    It was trained on generated problems with exact answers, and knows only a small formal language of steps
    and judgements. `tot_lab.models.tiny.requests` translates the prompts of the two domains. Any other prompt
    is an error. A reply depends only on the prompt, the settings, and the seed, sample index, attempt and
    repeat of its call.
    """

    kind = "tiny"
    weights: str
    """One of the checkpoints `numbers@1` to `numbers@5` of one training, or `numbers`, which means the last
    one; or the path of an .npz file that `tot_lab.models.tiny.train` wrote.
    """

    concurrency: int | None = 256
    """Maximum number of concurrent requests. Up to 64 replies are computed at the same time."""

    @field_validator("weights")
    @classmethod
    def _are_known_or_a_file(cls, weights: str) -> str:
        if not weights.endswith(".npz") and not _file_of(weights).exists():
            known = ["numbers", *(f"numbers@{path.stem}" for path in sorted(_SHIPPED.glob("*.npz")))]
            near = nearest(weights, known)
            raise ValueError(
                f"weights must be one of {', '.join(known)}, or the path of an .npz file: got {weights!r}."
                + (f" Did you mean {near!r}?" if near else "")
            )
        return weights

    @classmethod
    def named(cls, rest: str) -> Tiny:
        """Return the model with the name `tiny/REST`."""
        return cls(weights=rest)

    @property
    def name(self) -> str:
        return f"tiny/{Path(self.weights).stem if self.weights.endswith('.npz') else self.weights}"

    def identity(self) -> dict[str, Any]:
        return {"kind": self.kind, "name": self.name, "sha256": _sha256(_file_of(self.weights))}

    @property
    def address(self) -> str:
        return "this process"

    def window(self) -> int | None:
        """Return `None`: the model counts tokens of its own language, not those of the prompt's text."""
        return None

    async def problem(self) -> str | None:
        path = _file_of(self.weights)
        return None if path.exists() else f"There is no file of weights {path}"

    async def about(self) -> dict[str, str]:
        facts = (await self._engine()).network.facts
        return {"weights": f"{self.name}, step {facts['step']} of its training"}

    async def server_facts(self) -> ServerFacts:
        return ServerFacts(models=(self.name,))

    def need(self, calls: Sequence[Call]) -> Need:
        return Need(128 * len(calls), 0.0)

    async def answer(self, calls: Sequence[Call], observer: CallObserver) -> Sequence[Reply]:
        engine = await self._engine()
        for call in calls:
            dropped = [name for name in _UNUSED if getattr(call, name)]
            dropped += [name for name in call.options if name != "top_p"]
            if dropped:
                observer.note("call.dropped", settings=dropped)
        loop = asyncio.get_running_loop()

        def partial(text: str) -> None:
            loop.call_soon_threadsafe(observer.partial, text)

        wanted = [self._wanted(call, engine.network, partial if observer.watched else None) for call in calls]
        futures = [asyncio.wrap_future(engine.write(one)) for one in wanted]
        try:
            written = await asyncio.gather(*futures)
        finally:
            for future in futures:
                future.cancel()
        return [self._reply(call, one, got) for call, one, got in zip(calls, wanted, written, strict=True)]

    async def _engine(self) -> Engine:
        try:
            return await asyncio.to_thread(_engine_for, _file_of(self.weights).resolve())
        except (OSError, ValueError, KeyError) as error:
            raise Failure(f"The weights of {self.name} cannot be read: {error}") from None

    def _wanted(self, call: Call, network: Network, partial: Any) -> Wanted:
        roles = [message.role for message in call.messages]
        if roles not in (["user"], ["user", "assistant"]):
            raise Failure(f"{self.name} reads one user message: got {', '.join(roles)}. {ANSWERS}.")
        try:
            tokens = encode_prompt(read_prompt(call.messages[0].content))
            tokens += encode_reply("".join(message.content for message in call.messages[1:]))
        except ValueError as error:
            raise Failure(str(error)) from None
        room = network.context - len(tokens)
        if room < 1:
            raise Failure(
                f"The prompt is longer than the context window of {self.name}: got {len(tokens)} tokens. "
                f"At most {network.context - 1} are accepted."
            )
        return Wanted(
            tokens=tuple(tokens),
            most=min(room, call.max_tokens or room),
            temperature=1.0 if call.temperature is None else call.temperature,
            top_p=float(call.options.get("top_p", 1.0)),
            stop=call.stop,
            seed=_seed(call),
            alternatives=call.logprobs,
            partial=partial,
        )

    def _reply(self, call: Call, wanted: Wanted, written: Written) -> Reply:
        return Reply(
            written.text,
            model=self.name,
            input_tokens=len(wanted.tokens),
            output_tokens=written.tokens,
            cost=0.0,
            finish_reason=written.finish,
            logprobs=written.logprobs,
            ended=written.ended,
        )


def _file_of(weights: str) -> Path:
    if weights.endswith(".npz"):
        return Path(weights)
    name, _, number = weights.partition("@")
    return Path(__file__).with_name(name) / f"{number or 5}.npz"


def _seed(call: Call) -> bytes:
    """Return the seed of the reply: a hash of the prompt and of `provider_seed` or, if the call has no seed,
    of its sample index, repeat and attempt.
    """
    key = provider_seed(call)
    settings = [call.sample_index, call.repeat, call.attempt] if key is None else [key]
    return hashlib.sha256(json.dumps([call.prompt, settings]).encode()).digest()


def _sha256(path: Path) -> str:
    facts = path.stat()
    return _digest(path, facts.st_mtime_ns, facts.st_size)


@lru_cache(maxsize=64)
def _digest(path: Path, *_: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


_LOCK = threading.Lock()
_ENGINES: dict[tuple[Path, str], Engine] = {}


def _engine_for(path: Path) -> Engine:
    with _LOCK:
        key = path, _sha256(path)
        if key not in _ENGINES:
            _ENGINES[key] = Engine(Network(path))
        return _ENGINES[key]
