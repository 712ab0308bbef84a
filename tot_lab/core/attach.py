"""Methods that other rooms give to a class, imported at their first use.

A run is data: it must not know the frames, figures and reports that show it. The room that implements
a method attaches it, by the name of its module, so that `import tot_lab` loads neither the module nor
what that needs. This and `tot_lab.core.registry` are the only places that import by name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def imported(place: str) -> Any:
    """What stands at `MODULE:NAME`, or the module itself at `MODULE`."""
    module, _, name = place.partition(":")
    found = import_module(module)
    return getattr(found, name) if name else found


class Attached:
    """A method (or a cached property) whose function stands in a module that is not imported yet."""

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
    """Give `owner` the functions of `module` as methods.

    Args:
        owner: The class.
        module: The module's full name, imported when one of the methods is used first.
        names: Functions that become methods of the same name.
        properties: Functions of the instance that become cached properties.
        renamed: By the method's name, the function's.
    """
    for name, function in {**dict(zip(names, names, strict=True)), **renamed}.items():
        _set(owner, name, Attached(module, function, is_property=False))
    for name in properties:
        _set(owner, name, Attached(module, name, is_property=True))


def _set(owner: type, name: str, attached: Attached) -> None:
    attached.__set_name__(owner, name)
    setattr(owner, name, attached)


def lazy_names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose names are imported at their first use.

    Args:
        package: The package's `__name__`.
        modules: By each name, the full name of the module that holds it.
    """

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = imported(f"{modules[name]}:{name}")
        setattr(sys.modules[package], name, value)
        return value

    return find
