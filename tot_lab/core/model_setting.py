"""Models as settings of strategies and roles, and the names by which calls refer to them.

A call refers to its model by name. A string is itself the name; a model part or a function gets a name that
begins with `@`, under which the run finds its settings.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, TypeAlias

import msgspec
from pydantic import BeforeValidator, Field

from tot_lab.core.parts import Part, UserFunction, is_function, parts_in


def _function_as_part(value: Any) -> Any:
    is_new = is_function(value) and not isinstance(value, UserFunction | dict)
    return UserFunction.of(value) if is_new else value


ModelSetting: TypeAlias = Annotated[
    str | Part | None, Field(union_mode="left_to_right"), BeforeValidator(_function_as_part)
]
"""A model's name, a model part or a function. Functions become `UserFunction`s."""


def mark_loaded(strategy: Part) -> None:
    """Mark the endpoints in a strategy that was read from a file, which may be untrusted.

    A marked endpoint sends no key of the environment to a server that the file names.
    """
    for part in parts_in(strategy):
        if hasattr(part, "_is_loaded"):
            part._is_loaded = True


def model_name(model: str | Part | None) -> str | None:
    """Return the name by which calls refer to `model`: `None` or a string itself, else `@NAME-DIGEST`."""
    if model is None or isinstance(model, str):
        return model
    settings = msgspec.json.encode(model.settings(), order="deterministic")
    return f"@{getattr(model, 'name', model.kind)}-{hashlib.sha256(settings).hexdigest()[:8]}"


def model_names(strategy: Part) -> set[str]:
    """Return the names of models in the `model` settings of a strategy and its parts."""
    models = (getattr(part, "model", None) for part in parts_in(strategy))
    return {model for model in models if isinstance(model, str)}


def models_of(strategy: Part) -> dict[str, Part]:
    """Return the model parts and functions in the `model` settings of a strategy and its parts, by name.

    Raises:
        ValueError: If two different functions have the same module, name and source.
    """
    models: dict[str, Part] = {}
    for part in parts_in(strategy):
        model: Any = getattr(part, "model", None)
        if not isinstance(model, Part):
            continue
        name = model_name(model) or ""
        known = models.setdefault(name, model)
        if isinstance(model, UserFunction) and known.wrapped is not model.wrapped:  # type: ignore[attr-defined]
            raise ValueError(
                f"Two different functions {model.name!r} of {model.module!r} have the same source. Write "
                f"them as a tl.Part with a field for what differs, or name them with tl.Lab(roles={{…}})."
            )
    return models
