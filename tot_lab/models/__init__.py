"""Models: whatever answers a `Call` with a `Reply`. A model is an async callable, nothing more.

Add one: a file with a Part that has `async def __call__(self, call)`, and a line here.
"""

from __future__ import annotations

from tot_lab.core.calls import Model
from tot_lab.core.parts import Part, part_of
from tot_lab.models.sim_game24 import SimGame24

__all__ = ["MODELS", "SimGame24", "model_named"]

MODELS: tuple[type[Part], ...] = (SimGame24,)


def model_named(name: str) -> Model:
    """The model of that name, with its default settings. An unknown name is a ValueError."""
    known = [model.kind for model in MODELS]
    if name not in known:
        raise ValueError(
            f"unknown model {name!r}; known are {', '.join(known)}. Any async callable "
            f"Call -> Reply | str is a model too: tl.Lab(your_function)"
        )
    model = part_of({"kind": name})
    assert callable(model)
    return model
