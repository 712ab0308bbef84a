"""The gateway: routes each call to the stack of the model or tool that answers it.

A stack is a model with layers around it, such as the cache and retries, and is built only here. A real model
gets all layers. A function or a simulated model gets only the layers of the cache, and only if a cache was
given. The cost of every reply is counted.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Hashable, Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple, cast

from tot_lab.core.calls import Call, CallObserver, Model, Need, Reply
from tot_lab.core.parts import Part, UserFunction
from tot_lab.core.scrubbing import secrets_in
from tot_lab.core.tools import TOOL, tool_of
from tot_lab.models import ready
from tot_lab.models.batching import MOST, Batched
from tot_lab.models.cache import Cache, Cached, Mode, StoreReplies
from tot_lab.models.condensing import Condensed
from tot_lab.models.entries import DamagedEntry
from tot_lab.models.flight import Flight, SingleFlight
from tot_lab.models.function import Function
from tot_lab.models.keys import Requests, in_order, request_of
from tot_lab.models.limits import Limited, Measured
from tot_lab.models.named import model_named, resolve_model
from tot_lab.models.ready import Ready
from tot_lab.models.retries import Retried
from tot_lab.models.served_weights import UNASKED, ServedWeights
from tot_lab.models.spending import Costed, Spending, SpendLimiter
from tot_lab.models.stack import Backend, Endpoint, Give, Grouping, SampleCalls, is_model
from tot_lab.models.warming import Warmed
from tot_lab.runtime.roles import Role, roles_of
from tot_lab.runtime.settings import RunnerSettings
from tot_lab.tools import Carrying, Tool, Toolbox


class Route(NamedTuple):
    """The functions that call a model: one call at a time, or samples of one request together (`None` for a
    model without layers).
    """

    ask: Callable[[Call, CallObserver], Awaitable[Reply]]
    ask_each: Callable[[SampleCalls, Give], Awaitable[None]] | None = None


class Gateway:
    """All models and tools of a lab."""

    def __init__(self, settings: RunnerSettings) -> None:
        self._given = settings
        self._roles = roles_of(settings.roles)
        self.toolbox = Toolbox(settings.tools, settings.effect_policy, settings.tool_context)
        self.spend_limiter = SpendLimiter(settings.spend)
        self.opened: Cache | None = None
        """The open cache. `None` before its first use."""
        self._opening = threading.Lock()
        self._warned: set[str] = set()
        self.checked_window: int | None = None
        """The context window that the server reported to `Lab.check`."""
        self._flights: dict[str, Flight] = {}
        self._routes: dict[str | None, Route] = {}
        self._named: dict[str, Model | Endpoint] = {}
        models = {f"@{name}": role.model for name, role in self._roles.items()}
        self.enlist({name: model for name, model in models.items() if isinstance(model, Part)})
        self.use(resolve_model(settings.model))

    @property
    def model(self) -> Model | Endpoint:
        """The lab's own model."""
        return self._model

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the lab's own model, for a header."""
        return self._settings

    @property
    def roles(self) -> Mapping[str, Role]:
        """Models and sampling settings by role."""
        return self._roles

    @property
    def role_settings(self) -> dict[str, dict[str, Any]]:
        """The settings of the roles, for a header."""
        return {name: role.settings() for name, role in self._roles.items()}

    @property
    def endpoints(self) -> list[Endpoint]:
        """All endpoints among the lab's own model and the models of roles and strategies."""
        models = (self._model, *self._named.values())
        return [model for model in models if isinstance(model, Endpoint)]

    @property
    def mode(self) -> Mode:
        """How the cache is used; see `Mode`."""
        return self._given.mode

    @property
    def given_cache(self) -> Cache | str | os.PathLike[str] | None:
        """The `cache` argument of the lab, or `None` if the mode is `off`."""
        return None if self.mode == "off" else self._given.cache

    async def open(self, model: Model | Endpoint | Tool | None = None) -> None:
        """Open the cache if `model`, by default the lab's own, is cached, so that an unusable cache stops a
        run before it starts. A thread opens it, since another process may have locked the cache.

        Raises:
            CacheError: If the cache cannot be used.
        """
        if self.opened is None and self.is_cached(self.model if model is None else model):
            await asyncio.to_thread(lambda: self.cache)

    def use(self, model: Model | Endpoint) -> None:
        """Make `model` the lab's own model."""
        if self.is_cached(model) and not isinstance(model, Part):
            _check_function(model)
        self._model = model
        self._settings = settings_of(model)
        self.checked_window = None
        self._routes.pop(None, None)

    def enlist(self, models: Mapping[str, Part]) -> None:
        """Register `models`, so that they answer the calls that name them.

        Raises:
            LookupError: If a model is a function of a recorded run, whose file does not contain the function.
            TypeError: If an object is not a model.
            ValueError: If the replies of a function would be cached, and its source alone does not determine
                them.
        """
        for name, part in models.items():
            if not is_model(part):
                raise TypeError(f"model must be a name, a model part or an async callable: got {part!r}.")
            model: Any = part
            if isinstance(part, UserFunction):
                if not part.callable and self.mode != "replay":
                    raise LookupError(
                        f"This run was made with the model function {part.module}.{part.name}, which a file "
                        f"does not hold. Pass the strategy with this function as strategy=."
                    )
                model = part.wrapped or part
            if self.is_cached(model) and not isinstance(model, Part):
                _check_function(model)
            if self._named.get(name, model) != model:
                self._routes.pop(name, None)  # models with different API keys have the same name
            self._named[name] = model

    @property
    def window(self) -> int | None:
        """Context window of the lab's own model in tokens, or `None` if it is unknown.

        The first of these that is known: the model's `context_window` setting, the size that its server
        reported, if prompts may use all of it (`Endpoint.uses_reported_window`), and `Endpoint.window`.
        """
        own = getattr(self.model, "context_window", None)
        if own is None and isinstance(self.model, Endpoint):
            reported = self.checked_window if self.model.uses_reported_window else None
            return reported or self.model.window()
        return own if isinstance(own, int) and own > 0 else None

    def ask(self, call: Call, observer: CallObserver) -> Awaitable[Reply]:
        """Return the reply to `call`."""
        return self._route(call.model).ask(call, observer)

    def samples_at_once(self, call: Call) -> int:
        """Return how many samples of the request of `call` can be requested with `ask_each`."""
        try:
            model = self.model_of(call.model)
            takes_n = isinstance(model, Endpoint) and model.list_key(call) is None and model.takes_n(call)
            return MOST if takes_n else 1
        except Exception:  # such as an unknown model, which the call itself will report
            return 1

    def ask_each(self, asked: SampleCalls, give: Give) -> Awaitable[None]:
        """Give each observer the reply to its call, or `None` if the call must be made with `ask`. All calls
        are samples of one request; see `samples_at_once`.
        """
        route = self._route(next(iter(asked.values())).model)
        assert route.ask_each is not None
        return route.ask_each(asked, give)

    async def known(self, call: Call) -> Reply | None:
        """Return the cached reply to `call`, or `None`."""
        model = self.model_of(call.model)
        if not self.is_cached(model) or (self.mode == "refresh" and self.opened is None):
            return None
        await self.open(model)
        try:
            return self.cache.reply(request_of(call, identity_of(model)).key)
        except DamagedEntry:
            return None

    async def ready(self, name: str | None) -> None:
        """Load what `need` requires for calls to the model `name`. The mode `replay` loads only the prices,
        which a budget needs to refuse the same calls.
        """
        model = self.model_of(name)
        if isinstance(model, Endpoint):
            async with asyncio.timeout(ready.LOADING):
                await (model.load_prices() if self.mode == "replay" else model.ready())

    def need(self, call: Call) -> Need | None:
        """Return the most that `call` can use, or `None` for a function, a tool or an unknown model."""
        try:
            model = self.model_of(call.model)
            return model.need((call,)) if isinstance(model, Endpoint) else None
        except Exception:  # such as an unknown model, which the call itself will report
            return None

    def computing(self, call: Call) -> Carrying | None:
        """Return the layer that carries out `call` if it is for a pure tool without effects, else `None`."""
        name = tool_of(call)
        tool = None if name is None else self.toolbox.tools.get(name)
        return self.toolbox.carrying(tool) if tool is not None and _computes(tool) else None

    def model_of(self, name: str | None) -> Model | Endpoint | Tool:
        """Return the model or tool that a call names: `None` is the lab's own model, `@NAME` that of a role
        or of a strategy, `tool:NAME` a tool, and any other name a model, as in `tl.Lab(NAME)`.
        """
        if name is None:
            return self.model
        if name.startswith(f"{TOOL}:"):
            return self.toolbox.named(name.removeprefix(f"{TOOL}:"))
        return self._named.get(name) or model_named(name)

    @property
    def cache(self) -> Cache:
        """The cache, opened when it is first used."""
        with self._opening:
            if self.opened is None:
                cache = self.given_cache
                if not isinstance(cache, Cache):
                    cache = Cache(cache, create=self.mode != "replay")
                self.opened = cache.renewed() if self.mode == "refresh" else cache
            return self.opened

    def _route(self, name: str | None) -> Route:
        """Return the route to the model `name`."""
        route = self._routes.get(name)
        if route is None:
            model = self.model_of(name)
            if not isinstance(model, Endpoint) and not self.is_cached(model):
                route = Route(self._end(model).reply)
            else:
                request = Requests(identity_of(model))
                route = _through(self._stack(model, request), request, self.mode != "off")
            self._routes[name] = route
        return route

    def is_cached(self, model: Model | Endpoint | Tool) -> bool:
        """Whether calls to `model` are cached.

        In the mode `off`, nothing is cached. Otherwise calls to real models are cached, and calls of pure
        tools if the lab's model is real. With a cache that was given, calls to simulated models, functions
        and all pure tools are cached too. In the mode `replay`, calls to functions always are.
        """
        if self.mode == "off":
            return False
        if isinstance(model, Endpoint):
            return True
        if isinstance(model, Tool):
            kept = self.given_cache is not None or isinstance(self.model, Endpoint)
            return kept and model.pure
        return self.given_cache is not None or (self.mode == "replay" and not isinstance(model, Part))

    def _stack(self, model: Model | Endpoint | Tool, request: Requests) -> Backend:
        """Return `model` with the layers above it. The stack of an endpoint is also a `Grouping`."""
        weights = UNASKED
        if isinstance(model, Endpoint) and self.mode != "replay":
            weights = ServedWeights(model)
        if isinstance(model, Endpoint):
            end: Backend = model if model.concurrency is not None else Measured(model, model)
            stack: Backend = Retried(end, model)
            stack = Spending(Limited(stack, model), model, self.spend_limiter)
            stack = Condensed(Ready(Warmed(stack, model.cached_prefix), model, self._warned))
        else:
            stack = self._end(model)
        if self.is_cached(model) and self.mode != "replay":
            stack = StoreReplies(stack, self.cache, request, weights)
        if isinstance(model, Endpoint):
            stack = Batched(stack, lambda call: _batch_key(model, call, request))
        if self.mode != "off":  # `off` makes every call
            stack = SingleFlight(stack, lambda call: request(call).key, self._flights)
        if self.is_cached(model):
            # Failures are not cached. A replay carries out a tool without effects again, and it fails again.
            again = self.mode == "replay" and _computes(model)
            priced = model.priced if isinstance(model, Endpoint) else None
            stack = Cached(stack, self.cache, request, "auto" if again else self.mode, weights, priced)
        return stack

    def _end(self, model: Model | Tool) -> Costed | Carrying:
        if not isinstance(model, Tool):
            return Costed(Function(model), self.spend_limiter)
        models = [self.model, *self._named.values()]
        keys = [key for one in models if isinstance(one, Part) for key in secrets_in(dict(one))]
        return self.toolbox.carrying(model, replaying=self.mode == "replay", keys=keys)


def _through(stack: Backend, request: Requests, is_keyed: bool) -> Route:
    """Return the route through the layers of a stack. If `is_keyed`, they share one `Request` per call."""

    async def ask(call: Call, observer: CallObserver) -> Reply:
        with request.remembered((call,)) if is_keyed else nullcontext():
            replies = await stack.answer((call,), observer)
            return replies[0]

    async def ask_each(asked: SampleCalls, give: Give) -> None:
        with request.remembered([*asked.values()]) if is_keyed else nullcontext():
            await cast(Grouping, stack).answer_each(asked, give)

    return Route(ask, ask_each)


def _batch_key(model: Endpoint, call: Call, request: Requests) -> Hashable | None:
    """Return a key that is equal for calls that can be one request. `None` if `call` must be sent alone."""
    key = model.list_key(call)
    return request(call).of_any_sample if key is None and model.takes_n(call) else key


def _computes(model: Model | Endpoint | Tool) -> bool:
    """Whether `model` is a pure tool without effects."""
    return isinstance(model, Tool) and model.pure and not model.effects


def _check_function(model: Any) -> None:
    """Raise `ValueError` for a function that cannot be identified by its source, such as a closure: it could
    get the cached replies of another function.
    """
    if not UserFunction.of(model).identified_by_source:
        raise ValueError(
            f"{model!r} cannot be cached, since its replies may depend on more than its source. Leave out "
            f"cache=, or make it a tl.Part whose fields hold everything that it depends on."
        )


def identity_of(model: Any) -> dict[str, Any]:
    """Return the identity of a model, as part of the cache key of its calls."""
    identity: dict[str, Any] = in_order(
        model.identity() if isinstance(model, Endpoint | Tool) else settings_of(model)
    )
    return identity


def settings_of(model: Any) -> dict[str, Any]:
    """Return a model's settings for a header: those of a part, or a function's name and source hash."""
    return model.settings() if isinstance(model, Part) else UserFunction.of(model).settings()
