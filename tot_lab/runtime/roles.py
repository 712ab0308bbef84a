"""Roles, system prompts and the edits of a person, which a run adds to the steps of its strategy.

They are added before a step is recorded, so that the record shows the complete prompt and model. A role only
fills in settings that the strategy does not set. A call has the role that its `model` names, else the role of
its purpose.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from difflib import get_close_matches
from functools import partial
from typing import Annotated, Any

import msgspec
from pydantic import ConfigDict, Field, field_validator

from tot_lab.core.calls import Call, Message
from tot_lab.core.model_setting import ModelSetting
from tot_lab.core.parts import Part, PydanticModel, known_names, part_of
from tot_lab.core.protocol import Procedure, Samples, map_steps
from tot_lab.core.purposes import ROLES, UNINSTRUCTED, role_of
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Answer, Task
from tot_lab.core.tools import TOOL
from tot_lab.models.stack import is_model
from tot_lab.record.edits import EDITED, Edits


class Role(PydanticModel):
    """Model and sampling settings of a role. `None` leaves a setting to the strategy."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    model: ModelSetting = None
    """Name of a model, a model part or a function. `None` means the lab's own model."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """Sampling temperature, 0 to 2."""

    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """Upper bound of the tokens of a reply."""

    seed: int | None = None
    """Seed, for providers that accept one."""

    effort: str | None = None
    """Reasoning effort, as in `Call`."""

    options: dict[str, Any] | None = None
    """Further options of the provider, as in `Call`."""

    params: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Number of parameters of the model, for `Run.compute`: those that a token passes through, so the active
    ones of a mixture of experts. It changes no call. Without `model`, the number is that of the model
    which answers the calls of the role.
    """

    @field_validator("model")
    @classmethod
    def _answers(cls, model: str | Part | None) -> str | Part | None:
        if isinstance(model, Part) and not is_model(model):
            raise ValueError(f"expected a model: got {type(model).__name__}")
        return model

    def settings(self) -> dict[str, Any]:
        """Return the settings that are set, as JSON-compatible data."""
        set_here = {name: getattr(self, name) for name in type(self).model_fields}
        set_here["model"] = self.model.settings() if isinstance(self.model, Part) else self.model
        return {name: value for name, value in set_here.items() if value is not None}


def calling_roles(roles: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the settings of roles without `params`, which changes no call. A standard role that sets only
    `params` is left out.
    """
    calling = {name: {key: given[key] for key in given if key != "params"} for name, given in roles.items()}
    return {
        name: given
        for name, given in calling.items()
        if given or not roles[name] or not (name in ROLES or role_of(name))
    }


def roles_of(roles: Mapping[str, Any] | None) -> dict[str, Role]:
    """Return the roles of a lab from a dict of models, dicts of settings and `Role`s.

    The name of a role is a standard role, a call purpose, or any other name that a strategy's `model` refers
    to.

    Raises:
        ValueError: If a setting is unknown or invalid, or a name is nearly that of a standard role.
    """
    made: dict[str, Role] = {}
    if roles is not None and not isinstance(roles, Mapping):
        raise TypeError(f'roles must be a dict such as {{"evaluate": "gpt-4.1-mini"}}: got {roles!r}.')
    for name, given in (roles or {}).items():
        is_known = name in ROLES or role_of(name) is not None
        if not is_known and get_close_matches(name, ROLES, n=1, cutoff=0.8):
            raise ValueError(f"unknown role {name!r}; {known_names(name, ROLES)}")
        try:
            if isinstance(given, dict):
                given = Role(**given)
            made[name] = given if isinstance(given, Role) else Role(model=given)
        except ValueError as error:
            raise ValueError(f"role {name!r}: {error}") from None
    return made


def roles_from(settings: Mapping[str, dict[str, Any]]) -> dict[str, Role]:
    """Return the roles from their settings in the header of a run."""
    made = {}
    for name, given in settings.items():
        model = given.get("model")
        made[name] = Role(**{**given, "model": part_of(model) if isinstance(model, dict) else model})
    return made


def thinking_of(
    strategy: Strategy,
    task: Task,
    roles: Mapping[str, Role],
    edits: Edits | None = None,
) -> Procedure[Answer]:
    """Return the generator of `strategy`, which receives `task` without the reference answer.

    Args:
        strategy: The strategy.
        task: The task. Its system prompt is added to each model call, except calls of `UNINSTRUCTED`
            purposes.
        roles: The settings of model calls, by role.
        edits: Thoughts and scores that a person changed for a branch of a run.
    """
    thinking = strategy.think(task.hidden())
    if not isinstance(thinking, Generator):  # the stepper raises the error
        return thinking
    if task.system_prompt:
        thinking = map_steps(partial(_instructed, task.system_prompt), thinking)
    if roles:
        thinking = _assigned(roles, thinking)
    return thinking if edits is None else map_steps(edits.applied, thinking, EDITED)


def _instructed(system_prompt: str, call: Call) -> Call:
    """Return `call` with the system prompt first. Providers accept one system message, so an existing one is
    appended to it.
    """
    if call.purpose == TOOL or call.purpose in UNINSTRUCTED:
        return call
    first, *rest = call.messages or (Message("system", ""),)
    if first.role == "system":
        words = "\n\n".join(filter(None, [system_prompt, first.content]))
        messages = (msgspec.structs.replace(first, content=words), *rest)
    else:
        messages = (Message("system", system_prompt), first, *rest)
    return msgspec.structs.replace(call, messages=messages)


def _assigned(roles: Mapping[str, Role], thinking: Procedure[Answer]) -> Procedure[Answer]:
    """Return `thinking` with the settings of `roles` in the model calls that do not set them."""
    settings = {
        role: {
            "model": f"@{role}" if isinstance(given.model, Part) else given.model,
            **{name: getattr(given, name) for name in ("temperature", "max_tokens", "seed", "effort")},
        }
        for role, given in roles.items()
    }

    def fill(call: Call) -> Call:
        names = (call.model, call.purpose, role_of(call.purpose))
        role = next((name for name in names if name in settings), None)
        if role is None or call.purpose == TOOL:
            return call
        if role == call.model:
            call = msgspec.structs.replace(call, model=None)
        missing = {
            name: value
            for name, value in settings[role].items()
            if value is not None and getattr(call, name) is None
        }
        options = {**(roles[role].options or {}), **call.options}
        return msgspec.structs.replace(call, **missing, options=options)

    def assign(step: Call | Samples) -> Call | Samples:
        return msgspec.structs.replace(step, made=fill) if isinstance(step, Samples) else fill(step)

    return map_steps(assign, thinking, (Call, Samples))
