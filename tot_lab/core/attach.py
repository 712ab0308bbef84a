"""Methods that other subpackages add to a class, imported at first use.

A run is data and must not depend on the frames, figures and reports that show it. The subpackage that
implements a method attaches it by module name, so `import tot_lab` loads neither the module nor its
dependencies. Only this module and `tot_lab.core.registry` import modules of tot_lab by a string.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar


def imported(place: str) -> Any:
    """Import the object at `MODULE:NAME`, or the module at `MODULE`."""
    module, _, name = place.partition(":")
    found = import_module(module)
    return getattr(found, name) if name else found


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The name in `known` that was probably meant, or `None`. Case and underscores are ignored.

    In order of preference: an equal name, a name that begins with `name`, a name whose capital letters are
    `name` (`bs` for `BeamSearch`), the longest name with which `name` begins, and a similar name.
    """
    written, names = folded(name), {folded(each): each for each in sorted(known)}
    initials = {"".join(filter(str.isupper, each)).lower(): folded for folded, each in names.items()}
    begun = min((each for each in names if written and each.startswith(written)), key=len, default=None)
    begins = max(
        (each for each in names if len(each) > 3 and written.startswith(each)), key=len, default=None
    )
    found = (
        written
        if written in names
        else begun
        or initials.get(written)
        or begins
        or next(iter(get_close_matches(written, names, n=1, cutoff=0.7)), None)
    )
    return None if found is None else names[found]


def folded(name: str) -> str:
    """`name` without case and underscores."""
    return name.replace("_", "").lower()


def no_name(owner: str, name: str, known: Iterable[str]) -> AttributeError:
    """The error about a name that `owner`, such as `tl.presets`, does not have."""
    near, listed = nearest(name, known), f"dir({owner}) lists its names"
    hint = f"did you mean {near!r}? {listed}" if near else listed
    return AttributeError(f"{owner} has no {name!r}; {hint}")


class NamesNearest:
    """Base class whose `AttributeError`s suggest the nearest attribute.

    `_inside` maps attributes to their types, whose attributes are suggested too, as in `run.usage.cost`.
    `_meant` maps names that other libraries use to attributes. If no attribute is similar to NAME, the error
    lists those that end with `_NAME`.
    """

    _inside: ClassVar[Mapping[str, type]] = {}
    _meant: ClassVar[Mapping[str, str]] = {}

    if not TYPE_CHECKING:  # type checkers would accept any attribute

        def __getattr__(self, name):
            if hasattr(type(self), name):  # a property raised AttributeError: raise that error again
                return object.__getattribute__(self, name)
            what = type(self).__name__.lower()
            places = {each: f"{owner}.{each}" for owner, kind in self._inside.items() for each in dir(kind)}
            known = {each: place for each, place in places.items() if not each.startswith("_")}
            known |= {each: each for each in dir(self) if not each.startswith("_")}
            if name in self._meant:
                found = [self._meant[name]]
            elif near := None if name.startswith("_") else nearest(name, known):
                found = [known[near]]
            else:
                found = sorted(known[each] for each in known if each.endswith(f"_{name}"))
            meant = " or ".join(f"{what}.{each}" for each in found)
            hint = f"did you mean {meant}?" if found else f"dir({what}) lists its attributes."
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}; {hint}")


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
