"""Namespaces of the package: names that are imported at their first use.

A namespace of a registry group lists the components of the group, including those of installed packages, so
that no second list has to be kept. A package such as `tl.tools` is a namespace too, and other subpackages add
names to it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from tot_lab.core import registry
from tot_lab.core.attach import imported, no_name


def places(modules: Mapping[str, str]) -> dict[str, str]:
    """Map each name to its import path, `MODULE:NAME`.

    Args:
        modules: Maps each module to its names, separated by spaces.
    """
    return {name: f"{module}:{name}" for module, names in modules.items() for name in names.split()}


_ADDED: dict[str, dict[str, str]] = {}


def add_names(package: str, modules: Mapping[str, str]) -> None:
    """Add to `package` names from modules that it must not import. They are imported at their first use.

    Args:
        package: Full name of the package, whose `__getattr__` calls `added_name`.
        modules: Maps each module to its names, separated by spaces.
    """
    _ADDED[package] = places(modules)


def names_added(package: str) -> dict[str, str]:
    """Map each name that was added to `package` to its import path, `MODULE:NAME`."""
    return _ADDED.get(package, {})


def added_name(package: str, name: str) -> Any:
    """Import a name that was added to `package`.

    Raises:
        AttributeError: If there is no such name.
    """
    place = names_added(package).get(name)
    if place is None:
        raise no_name(package.replace("tot_lab", "tl", 1), name, sys.modules[package].__all__)
    value = imported(place)
    setattr(sys.modules[package], name, value)
    return value


class Namespace:
    """A module-like object whose attributes are imported at their first use, such as `tl.searches`."""

    def __init__(
        self, name: str, doc: str, modules: Mapping[str, str], group: str | None = None, prefix: str = ""
    ) -> None:
        # No docstring, because help on a namespace would show it below `doc`. `modules` maps each module to
        # its names, separated by spaces. The components of the registry's `group` whose name begins with
        # `prefix` are listed by the names of their classes or functions. Nothing is imported.
        self.__name__ = name
        self.__doc__ = doc
        self._group = group
        self._prefix = prefix
        self._modules = modules

    def places(self) -> dict[str, str]:
        """Map each name that tot_lab itself provides to its import path, `MODULE:NAME`."""
        built_in = registry.BUILT_IN.get(self._group or "", {})
        own = {place.partition(":")[2]: place for name, place in built_in.items() if self._holds(name)}
        return {**own, **places(self._modules)}

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            return dir(self)
        if name.startswith("_"):  # such as `__file__`, which tools read of every entry of `sys.modules`
            raise AttributeError(f"tl.{self.__name__} has no {name!r}")
        known = self.places()
        if name in known:
            value = imported(known[name])
        elif component := registry.load_installed(self._brought().get(name, ""), self._group):
            value = component.value
        else:
            raise no_name(f"tl.{self.__name__}", name, dir(self))
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return sorted({*self.places(), *self._brought()})

    def __repr__(self) -> str:
        return f"tl.{self.__name__}: {', '.join(dir(self))}"

    def _holds(self, name: str) -> bool:
        return name.startswith(self._prefix)

    def _brought(self) -> dict[str, str]:
        """Map the class names of components from installed packages to their component names."""
        if self._group is None:
            return {}
        return {
            entry.attr: name
            for name, entries in registry.offered(self._group).items()
            for entry in entries
            if entry.attr and self._holds(name)
        }
