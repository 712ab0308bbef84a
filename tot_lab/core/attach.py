"""Methods that other rooms add to a class, imported at first use.

A run is data and must not depend on the frames, figures and reports that show it. The room that implements a
method attaches it by module name, so `import tot_lab` loads neither the module nor its dependencies. This
module and `tot_lab.core.registry` are the only ones that import by name.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def imported(place: str) -> Any:
    """Import the object at `MODULE:NAME`, or the module at `MODULE`."""
    module, _, name = place.partition(":")
    found = import_module(module)
    return getattr(found, name) if name else found


class Attached:
    """A method or cached property whose module is imported at first use."""

    def __init__(self, module: str, function: str, is_property: bool) -> None:
        self.module = module
        self.function = function
        self.is_property = is_property
        self.name = function

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        function = imported(f"{self.module}:{self.function}")
        if instance is None:
            return function
        if not self.is_property:
            return function.__get__(instance, owner)
        value = instance.__dict__[self.name] = function(instance)
        return value


def attach(owner: type, module: str, *names: str, properties: tuple[str, ...] = (), **renamed: str) -> None:
    """Add functions of `module` to `owner` as methods.

    Args:
        owner: The class.
        module: Full name of the module, imported when one of the methods is first used.
        names: Functions that become methods of the same name.
        properties: Functions of the instance that become cached properties.
        renamed: Method names mapped to function names.
    """
    for name, function in {**dict(zip(names, names, strict=True)), **renamed}.items():
        _set(owner, name, Attached(module, function, is_property=False))
    for name in properties:
        _set(owner, name, Attached(module, name, is_property=True))


def _set(owner: type, name: str, attached: Attached) -> None:
    attached.__set_name__(owner, name)
    setattr(owner, name, attached)
