"""The gateway: from a call to the stack of the model that answers it.

Rule: stacks are put together here and nowhere else. A real model has the whole of it; a function
and a simulated model have the cache alone, and only where one is asked for; what replies cost is counted.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from tot_lab.core.calls import Call, CallObserver, Model, Need, Reply
from tot_lab.core.parts import Part, UserFunction
from tot_lab.core.scrubbing import secrets_in
from tot_lab.core.tools import TOOL, tool_of
from tot_lab.models import ready
from tot_lab.models.cache import MODES, Cache, Cached, Kept, Mode
from tot_lab.models.entries import DamagedEntry
from tot_lab.models.flight import Flight, SingleFlight
from tot_lab.models.function import Function
from tot_lab.models.keys import DrawScope, Request, in_order, key_of, request_of
from tot_lab.models.limits import BY_KIND, Limited, RateLimiter, shared_gate
from tot_lab.models.lite_llm import LiteLLM
from tot_lab.models.named import model_named
from tot_lab.models.ready import Ready
from tot_lab.models.retries import Retried
from tot_lab.models.samples import Samples
from tot_lab.models.spending import Costed, Spending, SpendLimiter
from tot_lab.models.stack import Backend, Endpoint
from tot_lab.runtime.roles import Role
from tot_lab.tools import Carrying, Tool, Toolbox


class Gateway:
    """All models of a lab. For the settings see `tot_lab.Lab`."""

    def __init__(
        self,
        model: Model | Endpoint,
        *,
        roles: Mapping[str, Role],
        cache: Cache | str | os.PathLike[str] | None,
        mode: Mode,
        draws: DrawScope,
        spend: float | None,
        toolbox: Toolbox | None = None,
    ) -> None:
        if mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
        if draws not in ("state", "path"):
            raise ValueError(f"draws must be 'state' or 'path', not {draws!r}")
        if spend is not None and not (isinstance(spend, int | float) and spend >= 0):
            raise ValueError(f"spend must be 0 or more USD, or None, not {spend!r}")
        if mode == "off":
            cache = None
        exported = cache.path if isinstance(cache, Cache) else Path(cache) if cache is not None else None
        if exported is not None and exported.is_file() and mode in ("auto", "refresh"):
            raise ValueError(
                f"{exported} is an exported file, which is only read: mode='replay', or take it into a "
                f"folder with `tot-lab cache import`"
            )
        self.roles = roles
        self.toolbox = toolbox or Toolbox()
        self.mode = mode
        self.draws = draws
        self.purse = SpendLimiter(spend)
        self.given_cache = cache
        self.opened: Cache | None = None
        """The cache, once it was used."""
        self.checked_window: int | None = None
        """The context window that the server told of, once it was asked (`Lab.check`)."""
        self._flights: dict[str, Flight] = {}
        self._asking: dict[str | None, Callable[[Call, CallObserver], Awaitable[Reply]]] = {}
        self.use(model)

    def open(self) -> None:
        """Open the cache if the lab's own model is to be cached, so that one that cannot be used
        stops a run before it begins. Raises `CacheError`."""
        if self.is_cached(self.model):
            self.cache  # noqa: B018

    def use(self, model: Model | Endpoint) -> None:
        """From now on this is the lab's own model."""
        if self.is_cached(model) and not isinstance(model, Part):
            _check_function(model)
        self.model = model
        self.checked_window = None
        self.settings = settings_of(model)
        self._asking.pop(None, None)

    @property
    def window(self) -> int | None:
        """Tokens that the lab's own model takes at once, None when they are not known. What is set goes
        before what the server told, and that before a table; Ollama keeps what is set, and no more."""
        own = getattr(self.model, "context_window", None)
        if own is None and isinstance(self.model, Endpoint):
            is_ollama = isinstance(self.model, LiteLLM) and self.model.provider == "ollama_chat"
            return (None if is_ollama else self.checked_window) or self.model.window()
        return own if isinstance(own, int) and own > 0 else None

    def ask(self, call: Call, wire: CallObserver) -> Awaitable[Reply]:
        """The reply to `call`."""
        asking = self._asking.get(call.model)
        if asking is None:
            asking = self._asking[call.model] = self._way_to(self.model_of(call.model))
        together = BY_KIND.get(call.purpose)
        if together is None:
            return asking(call, wire)
        silent = not isinstance(self.model_of(call.model), Endpoint)
        return _in_turn(shared_gate(together), asking, call, wire, silent)

    def known(self, call: Call) -> Reply | None:
        """The reply that the cache holds for `call`, None when it does not."""
        model = self.model_of(call.model)
        if not self.is_cached(model) or (self.mode == "refresh" and self.opened is None):
            return None
        try:
            return self.cache.reply(key_of(request_of(call, identity_of(model), self.draws)))
        except DamagedEntry:
            return None

    async def ready(self, name: str | None) -> None:
        """Load what `need` requires for calls to the model `name`; in a replay prices alone, so that a cap
        refuses the same calls."""
        model = self.model_of(name)
        if isinstance(model, Endpoint) and (self.mode != "replay" or isinstance(model, LiteLLM)):
            async with asyncio.timeout(ready.LOADING):
                await model.ready()

    def need(self, call: Call) -> Need | None:
        """The most that `call` can use; `None` for a function, and where the endpoint cannot tell."""
        try:
            model = self.model_of(call.model)
            return model.need((call,)) if isinstance(model, Endpoint) else None
        except Exception:  # such as a model that litellm does not know: asking it tells why
            return None

    def computing(self, call: Call) -> Carrying | None:
        """What carries `call` out, where it goes to a tool that only computes; else None."""
        name = tool_of(call)
        tool = None if name is None else self.toolbox.tools.get(name)
        return self.toolbox.carrying(tool) if tool is not None and _computes(tool) else None

    def model_of(self, name: str | None) -> Model | Endpoint | Tool:
        """What a call names: None = the lab's own model, `@ROLE` = that of a role, `tool:NAME` = a tool."""
        if name is None:
            return self.model
        if name.startswith(f"{TOOL}:"):
            return self.toolbox.named(name.removeprefix(f"{TOOL}:"))
        if name.startswith("@") and name[1:] in self.roles:
            return self.roles[name[1:]].model  # type: ignore[return-value]  # `assigning` wrote the name
        return model_named(name)

    @property
    def cache(self) -> Cache:
        """The cache, opened at its first use."""
        if self.opened is None:
            cache = self.given_cache
            if not isinstance(cache, Cache):
                cache = Cache(cache, create=self.mode != "replay")
            self.opened = cache.renewed() if self.mode == "refresh" else cache
        return self.opened

    def _way_to(self, model: Model | Endpoint | Tool) -> Callable[[Call, CallObserver], Awaitable[Reply]]:
        """How one call gets to `model`."""
        if not isinstance(model, Endpoint) and not self.is_cached(model):
            return self._end(model).reply
        stack = self._stack(model)

        async def asking(call: Call, wire: CallObserver) -> Reply:
            return (await stack.answer((call,), wire))[0]

        return asking

    def is_cached(self, model: Model | Endpoint | Tool) -> bool:
        """Real models are, unless it is off; a tool that is pure beside them; a simulated model or a
        function where that was asked for."""
        if self.mode == "off":
            return False
        if isinstance(model, Endpoint):
            return True
        if isinstance(model, Tool):
            kept = self.given_cache is not None or isinstance(self.model, Endpoint)
            return kept and model.pure and self.toolbox.refusal(model) is None
        return self.given_cache is not None or (self.mode == "replay" and not isinstance(model, Part))

    def _stack(self, model: Model | Endpoint | Tool) -> Backend:
        who = identity_of(model)

        def request(call: Call) -> Request:
            return request_of(call, who, self.draws)

        def key(call: Call) -> str:
            return key_of(request(call))

        def but_for_its_draw(call: Call) -> str:
            return key(msgspec.structs.replace(call, sample_index=0))

        stack: Backend = Retried(model, model) if isinstance(model, Endpoint) else self._end(model)
        if isinstance(model, Endpoint):
            stack = Ready(Spending(Limited(stack, model), model, self.purse), model)
        if self.is_cached(model) and self.mode != "replay":
            stack = Kept(stack, self.cache, request)
        if isinstance(model, Endpoint):
            stack = Samples(stack, model.takes_n, but_for_its_draw)
        stack = SingleFlight(stack, key, self._flights)
        if self.is_cached(model):
            # What failed was not kept: a tool that only computes fails again in the same way.
            again = self.mode == "replay" and _computes(model)
            stack = Cached(stack, self.cache, request, "auto" if again else self.mode)
        return stack

    def _end(self, model: Model | Tool) -> Costed | Carrying:
        if not isinstance(model, Tool):
            return Costed(Function(model), self.purse)
        models = [self.model, *(role.model for role in self.roles.values())]
        keys = [key for one in models if isinstance(one, Part) for key in secrets_in(dict(one))]
        return self.toolbox.carrying(model, replaying=self.mode == "replay", keys=keys)


def _computes(model: Model | Endpoint | Tool) -> bool:
    """Whether it is a tool that only computes."""
    return isinstance(model, Tool) and model.pure and not model.effects


async def _in_turn(
    gate: RateLimiter,
    asking: Callable[[Call, CallObserver], Awaitable[Reply]],
    call: Call,
    wire: CallObserver,
    silent: bool,
) -> Reply:
    """The reply, once the gate lets the call in. silent: its model does not say when it sends it."""
    if await gate.enter(0, wire, strategy=True) and silent:
        wire.note("call.sent", tries=1, n=1)  # its time begins
    try:
        return await asking(call, wire)
    finally:
        gate.leave()


def _check_function(model: Any) -> None:
    """A ValueError for a function that cannot be told from others: its answers would be taken for
    theirs."""
    if not UserFunction.of(model).told_by_source:
        raise ValueError(
            f"{model!r} cannot be cached: what it answers may depend on more than its source. Leave out "
            f"cache=, or make it a tl.Part whose fields say what it depends on"
        )


def identity_of(model: Any) -> dict[str, Any]:
    """Which model this is, for the key of a call."""
    identity: dict[str, Any] = in_order(
        model.identity() if isinstance(model, Endpoint | Tool) else settings_of(model)
    )
    return identity


def settings_of(model: Any) -> dict[str, Any]:
    """How a header tells of a model: a part's settings, or a function by name and source hash."""
    return model.settings() if isinstance(model, Part) else UserFunction.of(model).settings()
