"""Models by name: what `tl.Lab("…")` and a strategy's `model="…"` may say.

A name is that of a component of the group `models`, such as `sim/game24`, or it begins with the prefix of
one, such as `local/`. Any other name is litellm's to know.
"""

from __future__ import annotations

from typing import Any

from tot_lab.core.calls import Model
from tot_lab.core.parts import Part, class_of, known_names
from tot_lab.core.registry import find, names
from tot_lab.models.stack import Endpoint


def simulated_models() -> list[type[Part]]:
    """The simulated models that tot_lab brings."""
    return [class_of(name, Part) for name in names("models") if name.startswith("sim/")]


def model_named(name: str) -> Model | Endpoint:
    """The model of that name, with its default settings. An unknown name is a ValueError, but
    that only litellm, at the first call, can tell whether it knows one of its own."""
    if not name.strip():
        raise ValueError("the model's name is empty")
    known = names("models")
    if name in known and name[-1] not in "/:":
        return _checked(name, class_of(name, Part)())
    if name.startswith("sim/"):
        simulated = [one for one in known if one.startswith("sim/")]
        raise ValueError(f"unknown simulated model {name!r}; {known_names(name, simulated)}")
    prefixes = [one for one in known if not one or (one[-1] in "/:" and name.startswith(one))]
    prefix = max(prefixes, key=len)
    component = find(prefix, "models")
    assert component is not None
    return _checked(name, component.value.named(name[len(prefix) :]))


def _checked(name: str, model: Any) -> Model | Endpoint:
    if isinstance(model, Endpoint) or callable(model):
        named: Model | Endpoint = model
        return named
    raise ValueError(f"{name!r} is a {type(model).__name__}, which is no model")
