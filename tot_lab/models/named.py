"""Models by name, as `tl.Lab("…")` and the `model` setting of a strategy accept them.

A name is that of a registered component of the group `models`, such as `sim/game24`, or begins with the
prefix of one, such as `local/` in `local/smollm2-135m`. All other names belong to `LiteLLM`, whose prefix is
empty.
"""

from __future__ import annotations

from typing import Any

from tot_lab.core.calls import Model
from tot_lab.core.parts import Part, UserFunction, class_of, known_names
from tot_lab.core.registry import BUILT_IN, find, names
from tot_lab.models.stack import Endpoint, is_model


def simulated_models() -> list[type[Part]]:
    """Return the classes of the simulated models of tot_lab, without those of other installed packages."""
    return [class_of(name, Part) for name in BUILT_IN["models"] if name.startswith("sim/")]


def model_named(name: str) -> Model | Endpoint:
    """Return the model named `name` with its default settings.

    A name that is passed to litellm is checked only at the first call.

    Raises:
        ValueError: If the name is empty, a prefix alone, a URL, an unknown simulated model, or the name of a
            domain or a strategy.
    """
    if not name.strip():
        raise ValueError(f"The name of the model must not be empty: got {name!r}.")
    known = names("models")
    if name in known and name[-1] not in "/:":
        return _checked(name, class_of(name, Part)())
    if f"{name}/" in known:
        raise ValueError(f"{name!r} is only the prefix of model names. Pass '{name}/NAME'.")
    if name == "sim" or name.startswith("sim/"):
        simulated = [one for one in known if one.startswith("sim/")]
        raise ValueError(f"unknown simulated model {name!r}; {known_names(name, simulated)}")
    if name.startswith(("http://", "https://")):
        raise ValueError(
            "model must be the name of a model: got an address. Pass "
            "tl.OpenAICompatible(model=…, base_url=…)."
        )
    for group, what in (("domains", "a domain"), ("strategies", "a strategy")):
        if name in names(group):
            hint = f" Its simulated model is 'sim/{name}'." if f"sim/{name}" in known else ""
            raise ValueError(f"model must be the name of a model: got {name!r}, which is {what}.{hint}")
    prefixes = [one for one in known if not one or (one[-1] in "/:" and name.startswith(one))]
    prefix = max(prefixes, key=len)
    component = find(prefix, "models")
    assert component is not None
    return _checked(name, component.value.named(name[len(prefix) :]))


def resolve_model(given: str | Model | Endpoint) -> Model | Endpoint:
    """Return `given`, or the model of that name if `given` is a string.

    Raises:
        ValueError: If the name is unknown.
        TypeError: If `given` is neither a name nor a model, or is a function that does not take one call.
    """
    if isinstance(given, str):
        return model_named(given)
    if not is_model(given):
        shown = f"the class {given.__name__}" if isinstance(given, type) else repr(given)
        raise TypeError(f"model must be a name, a model part or an async callable: got {shown}.")
    if not isinstance(given, Part):
        UserFunction.of(given).expect_arguments("model", ["call"], "async (call) -> str or tl.Reply")
    return given


def _checked(name: str, model: Any) -> Model | Endpoint:
    if is_model(model):
        named: Model | Endpoint = model
        return named
    raise ValueError(f"{name!r} must name a model: got {type(model).__name__}.")
