"""The gateway: from a call to the stack of the model that answers it.

Rule: stacks are put together here and nowhere else. A real model has the whole of it; a function
and a simulated model, which cost nothing, have the cache alone, and only where one is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from tot_lab.core.calls import Call, Model, Reply, Wire
from tot_lab.core.parts import Part, UserFunction, part_of
from tot_lab.models.cache import MODES, Cache, Cached, Mode
from tot_lab.models.flight import SingleFlight
from tot_lab.models.function import Function
from tot_lab.models.keys import DrawScope, Request, key_of, request_of
from tot_lab.models.limits import Limited
from tot_lab.models.named import model_named
from tot_lab.models.retries import Retried
from tot_lab.models.roles import Role, assigning
from tot_lab.models.samples import Samples
from tot_lab.models.spending import Purse, Spending
from tot_lab.models.stack import Backend, Endpoint


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
    ) -> None:
        if mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
        if draws not in ("state", "path"):
            raise ValueError(f"draws must be 'state' or 'path', not {draws!r}")
        if spend is not None and not spend >= 0:
            raise ValueError(f"spend must be 0 or more USD, or None, not {spend!r}")
        exported = cache.path if isinstance(cache, Cache) else Path(cache) if cache is not None else None
        if exported is not None and exported.is_file() and mode in ("auto", "refresh"):
            raise ValueError(
                f"{exported} is an exported file, which is only read: mode='replay', or take it into a "
                f"folder with `tot-lab cache import`"
            )
        self.model = model
        self.roles = roles
        self.mode = mode
        self.draws = draws
        self.purse = Purse(spend)
        self.assigned = assigning(roles) if roles else None
        self.settings = settings_of(model)
        self.given_cache = cache
        self.opened: Cache | None = None
        """The cache, once it was used."""
        self._asking: dict[str | None, Callable[[Call, Wire], Awaitable[Reply]]] = {}

    def open(self) -> None:
        """Open the cache if the lab's own model is to be cached, so that one that cannot be used
        stops a run before it begins. Raises `CacheError`."""
        if self._is_cached(self.model):
            self.cache  # noqa: B018

    def use(self, model: Model | Endpoint) -> None:
        """Another model for what no role takes."""
        self.model = model
        self.settings = settings_of(model)
        self._asking.pop(None, None)

    def ask(self, call: Call, wire: Wire) -> Awaitable[Reply]:
        """The reply to `call`."""
        asking = self._asking.get(call.model)
        if asking is None:
            asking = self._asking[call.model] = self._way_to(self.model_of(call.model))
        return asking(call, wire)

    def known(self, call: Call) -> Reply | None:
        """The reply that the cache holds for `call`, None when it does not."""
        cache = self.cache
        request = request_of(call, identity_of(self.model_of(call.model)), self.draws)
        return None if cache is None else cache.reply(key_of(request))

    def model_of(self, name: str | None) -> Model | Endpoint:
        """The model that a call names: None = the lab's own, `@ROLE` = that of a role."""
        if name is None:
            return self.model
        if name.startswith("@") and name[1:] in self.roles:
            return self.roles[name[1:]].model  # type: ignore[return-value]  # `assigning` wrote the name
        return model_named(name)

    @property
    def cache(self) -> Cache | None:
        """The cache, opened at its first use; None when it is off."""
        if self.mode == "off":
            return None
        if self.opened is None:
            cache = self.given_cache if isinstance(self.given_cache, Cache) else Cache(self.given_cache)
            self.opened = cache.renewed() if self.mode == "refresh" else cache
        return self.opened

    def _way_to(self, model: Model | Endpoint) -> Callable[[Call, Wire], Awaitable[Reply]]:
        """How one call gets to `model`."""
        if not isinstance(model, Endpoint) and not self._is_cached(model):
            return Function(model).reply
        stack = self._stack(model)

        async def asking(call: Call, wire: Wire) -> Reply:
            return (await stack.answer((call,), wire))[0]

        return asking

    def _is_cached(self, model: Model | Endpoint) -> bool:
        """Simulated models and functions are so only where that was asked for."""
        asked = isinstance(model, Endpoint) or self.given_cache is not None or self.mode == "replay"
        return asked and self.mode != "off"

    def _stack(self, model: Model | Endpoint) -> Backend:
        who = identity_of(model)

        def request(call: Call) -> Request:
            return request_of(call, who, self.draws)

        def key(call: Call) -> str:
            return key_of(request(call))

        def but_for_its_draw(call: Call) -> str:
            return key(msgspec.structs.replace(call, draw=0))

        stack: Backend
        if isinstance(model, Endpoint):
            stack = Limited(Retried(model, model), model)
            stack = Samples(Spending(stack, model, self.purse), model.takes_n, but_for_its_draw)
        else:
            stack = Function(model)
        stack = SingleFlight(stack, key)
        return stack if self.cache is None else Cached(stack, self.cache, request, self.mode)


def identity_of(model: Any) -> dict[str, Any]:
    """Which model this is, for the key of a call."""
    return model.identity() if isinstance(model, Endpoint) else settings_of(model)


def settings_of(model: Any) -> dict[str, Any]:
    """How a header tells of a model: a part's settings, or a function by name and source hash."""
    return model.settings() if isinstance(model, Part) else UserFunction.of(model).settings()


def identity_from(settings: dict[str, Any]) -> dict[str, Any]:
    """The identity of the model that a header tells of."""
    return settings if settings.get("kind") == UserFunction.kind else identity_of(part_of(settings))
