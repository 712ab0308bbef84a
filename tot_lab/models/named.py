"""Models by name: what `tl.Lab("…")` and a strategy's `model="…"` may say.

Rule: `sim/…` is a simulated model, `local/…` and `local:PATH` one that runs on this machine, a kind that
an installed package offers is its model, and any other name is litellm's to know.
"""

from __future__ import annotations

from tot_lab.core.calls import Model
from tot_lab.core.parts import REGISTRY, Part, known_names, part_of
from tot_lab.core.plugins import offered
from tot_lab.models.lite_llm import LiteLLM
from tot_lab.models.local import Local
from tot_lab.models.stack import Endpoint


def simulated() -> list[type[Part]]:
    """The simulated models that there are."""
    return [part for name, part in REGISTRY.items() if name.startswith("sim/")]


def model_named(name: str) -> Model | Endpoint:
    """The model of that name, with its default settings. An unknown name is a ValueError, but
    that only litellm, at the first call, can tell whether it knows one of its own."""
    if name in offered():
        return _brought(name)
    if name.startswith("sim/"):
        known = [model.kind for model in simulated()]
        if name not in known:
            raise ValueError(f"unknown simulated model {name!r}; {known_names(name, known)}")
        return _brought(name)
    if name.startswith(("local/", "local:")):
        return Local(weights=name[len("local/") :])
    if not name.strip():
        raise ValueError("the model's name is empty")
    return LiteLLM(model=name)


def _brought(kind: str) -> Model | Endpoint:
    model = part_of({"kind": kind})
    if isinstance(model, Endpoint) or callable(model):
        return model
    raise ValueError(f"{kind!r} is a {type(model).__name__}, which is no model")
