"""Which model takes which part of a search.

Rule: a role fills in what a call leaves open, before the call is recorded; what a strategy says
itself stands. So the record shows what was asked, and of whom.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, TypeVar

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from tot_lab.core.calls import Call
from tot_lab.core.parts import Part, part_of
from tot_lab.core.thinking import Thinking, editing
from tot_lab.models.stack import Endpoint

T = TypeVar("T")

ROLES = {
    "propose": ("propose", "sample"),
    "evaluate": ("value", "part", "vote", "joint", "logprob", "judge"),
    "answer": ("answer",),
    "act": ("act", "analysis"),
    "plan": ("plan", "patch", "augment"),
    "critique": ("critique", "review", "reflect"),
    "synthesize": ("synthesize",),
    "route": ("route",),
}
"""The roles, and the kinds of call that belong to each. A call of any other kind, as a strategy of one's own
makes them, belongs to none."""

_ROLE_OF = {kind: role for role, kinds in ROLES.items() for kind in kinds}


class Role(BaseModel):
    """Who takes a role, and how it samples there.

    model: a name or a model part, None = the lab's own. temperature (0–2), max_tokens, seed,
    effort, options: as in `Call`; None = as the strategy says.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    model: str | Part | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    seed: int | None = None
    effort: str | None = None
    options: dict[str, Any] | None = None

    @field_validator("model")
    @classmethod
    def _answers(cls, model: str | Part | None) -> str | Part | None:
        if isinstance(model, Part) and not (callable(model) or isinstance(model, Endpoint)):
            raise ValueError(f"{type(model).__name__} is no model")
        return model

    def settings(self) -> dict[str, Any]:
        """What is set, as JSON-ready data."""
        set_here = {name: getattr(self, name) for name in type(self).model_fields}
        set_here["model"] = self.model.settings() if isinstance(self.model, Part) else self.model
        return {name: value for name, value in set_here.items() if value is not None}


def roles_of(roles: Mapping[str, Any] | None) -> dict[str, Role]:
    """`roles` as a lab is given them: by role, a model, a dict of settings, or a `Role`. An
    unknown role or a bad setting is a ValueError that names it."""
    made: dict[str, Role] = {}
    for name, given in (roles or {}).items():
        if name not in ROLES:
            near = get_close_matches(name, ROLES, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ValueError(f"unknown role {name!r}; {hint}known are {', '.join(ROLES)}")
        try:
            if isinstance(given, dict):
                given = Role(**given)
            made[name] = given if isinstance(given, Role) else Role(model=given)
        except ValidationError as error:
            raise ValueError(f"role {name!r}: {error}") from None
    return made


def roles_from(settings: Mapping[str, dict[str, Any]]) -> dict[str, Role]:
    """The roles that a header tells of."""
    made = {}
    for name, given in settings.items():
        model = given.get("model")
        made[name] = Role(**{**given, "model": part_of(model) if isinstance(model, dict) else model})
    return made


def assigned(roles: Mapping[str, Role], thinking: Thinking[T]) -> Thinking[T]:
    """`thinking`, with what `roles` say filled in in every call that it makes."""
    if not roles or not hasattr(thinking, "send"):  # the latter is for the driver to refuse
        return thinking
    settings = {
        role: {
            "model": f"@{role}" if isinstance(given.model, Part) else given.model,
            **{name: getattr(given, name) for name in ("temperature", "max_tokens", "seed", "effort")},
        }
        for role, given in roles.items()
    }

    def fill(call: Call) -> Call:
        role = _ROLE_OF.get(call.kind)
        if role not in settings:
            return call
        missing = {
            name: value
            for name, value in settings[role].items()
            if value is not None and getattr(call, name) is None
        }
        options = {**(roles[role].options or {}), **call.options}
        return msgspec.structs.replace(call, **missing, options=options)

    return editing(fill, thinking)
