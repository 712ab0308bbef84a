"""Components with settings, and how they are serialised.

Strategies, searches, domains and simulated models are Parts: frozen pydantic models whose fields are their
settings. A part is written as `{"kind": …, fields}`, nested parts included, and read back through the
registry. A user's function is written as module, name and source hash. It is never imported on load: a loaded
run can be displayed, and needs the function again before it can be run.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError, model_validator

from tot_lab.core.registry import find, import_parts, offered

P = TypeVar("P", bound="Part")

REGISTRY: dict[str, type[Part]] = {}
"""The imported parts, by kind and alias."""


class Part(BaseModel):
    """Base class of everything that configures a run.

    A subclass is registered by its `kind`, by default its class name in snake_case. A subclass whose name
    begins with an underscore, or that sets `kind = ""`, is a base class and not registered. `aliases` are
    further names, such as those of the original paper. They are accepted wherever a kind is, and never
    written. `setting_aliases` maps such names of settings to the paths of the settings.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
    kind: ClassVar[str] = ""
    aliases: ClassVar[tuple[str, ...]] = ()
    setting_aliases: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        if "kind" not in cls.__dict__:
            cls.kind = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()
        if not cls.kind or cls.__name__.startswith("_"):
            return
        names = (cls.kind, *cls.__dict__.get("aliases", ()))
        for name in names:
            known = REGISTRY.get(name)
            if known is not None and _home(known) != _home(cls):
                raise TypeError(
                    f"the kind {name!r} of {cls.__module__}.{cls.__name__} is taken by "
                    f"{known.__module__}.{known.__name__}. Set another `kind`."
                )
        REGISTRY.update(dict.fromkeys(names, cls))

    @model_validator(mode="wrap")
    @classmethod
    def _from_settings(cls, value: Any, handler: Callable[[Any], Self]) -> Self:
        if isinstance(value, type) and issubclass(value, Part):
            raise ValueError(
                f"expected an instance: got the class {value.__name__}. Pass {value.__name__}()."
            )
        value = cls._short_form(value)
        if isinstance(value, dict) and "kind" in value:
            value = part_of(value, cls)
        elif isinstance(value, dict):
            value = cls._without_aliases(value)
            for name in value:
                if name not in cls.model_fields:
                    raise ValueError(_unknown_field(cls, str(name)))
        return handler(value)

    @classmethod
    def _short_form(cls, value: Any) -> Any:
        """Expand a short form of this part, by default the kind of a part without required settings."""
        return {"kind": value} if isinstance(value, str) else value

    @classmethod
    def _without_aliases(cls, given: dict[Any, Any]) -> dict[Any, Any]:
        """Replace aliases of settings by the settings."""
        settings = {name: value for name, value in given.items() if name not in cls.setting_aliases}
        for alias in given.keys() & cls.setting_aliases.keys():
            head, _, rest = cls.setting_aliases[alias].partition(".")
            if rest:
                field = cls.model_fields[head]
                part: Any = field.annotation
                inner = part.model_validate(settings.get(head, field.default))
                settings[head] = inner.with_({rest: given[alias]})
            elif head in settings:
                raise ValueError(f"{alias} is another name of {head}: got both. Pass one of them.")
            else:
                settings[head] = given[alias]
        return settings

    @classmethod
    def migrated(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """Convert `settings` of an earlier version to those of this version.

        The names `max_…` were `most_…` in version 0.1.0.
        """
        return {_new_name(name, cls.model_fields): value for name, value in settings.items()}

    def recorded_by(self, schema: int) -> Mapping[str, Any]:
        """Return settings that journals of `schema` do not hold, with values other than the present defaults.

        They are what this version must set so that it repeats such a journal.
        """
        return {}

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        """Show only the settings that differ from their defaults."""
        for name, field in type(self).model_fields.items():
            if not field.repr:
                continue
            value = getattr(self, name)
            if field.is_required() or value != field.get_default(call_default_factory=True):
                yield name, value

    def __str__(self) -> str:
        return repr(self)  # pydantic's `__str__` omits the class name

    def with_(self, paths: Mapping[str, Any] | None = None, /, **changes: Any) -> Self:
        """Return a copy with changed settings, validated as at construction.

        Args:
            paths: Settings by path, such as `{"search.width": 5}`.
            changes: Settings by name.

        Raises:
            ValueError: For an unknown setting or an invalid value.
        """
        aliases = type(self).setting_aliases
        given = {aliases.get(name, name): value for name, value in {**(paths or {}), **changes}.items()}
        inside: dict[str, dict[str, Any]] = {}
        for name in [name for name in given if "." in name]:
            head, _, rest = name.partition(".")
            inside.setdefault(head, {})[rest] = given.pop(name)
        made = self._with(given)
        return made._with({head: made._inside(head, named) for head, named in inside.items()})

    def _with(self, changes: Mapping[str, Any]) -> Self:
        if not changes:
            return self
        made = type(self)(**{**dict(self), **changes})
        made.__pydantic_fields_set__.intersection_update(self.model_fields_set | changes.keys())
        if made.__pydantic_private__ is not None:
            made.__pydantic_private__.update(self.__pydantic_private__ or {})
        return made

    def _inside(self, head: str, changes: dict[str, Any]) -> Any:
        """The setting `head` with `changes` applied, given by their paths below it."""
        if head not in type(self).model_fields:
            raise ValueError(_unknown_field(type(self), head))
        value = getattr(self, head)
        try:
            if isinstance(value, Part):
                return value.with_(changes)
            if isinstance(value, BaseModel):
                return type(value)(**{**dict(value), **changes})
        except ValidationError as error:
            raise _inside_of(head, error) from None
        raise ValueError(f"{head} of {type(self).__name__} has no settings of its own: got {value!r}")

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Like `with_`. Pydantic's own method would skip validation."""
        return self.with_(**update) if update else super().model_copy(deep=deep)

    def settings(self) -> dict[str, Any]:
        """The part as JSON-ready data: its kind and its fields, without excluded fields (secrets)."""
        kept = [name for name, field in type(self).model_fields.items() if not field.exclude]
        fields = {name: _plain(getattr(self, name)) for name in kept}
        return {"kind": self.kind, **fields}


def part_of(settings: dict[str, Any], base: type[Part] = Part) -> Part:
    """Build the part that `settings` describe, such as `{"kind": "react", "max_iterations": 5}`.

    Raises:
        ValueError: For an unknown kind, a kind that is not a `base`, or an invalid field.
    """
    if not isinstance(settings, dict) or "kind" not in settings:
        raise ValueError(f'settings must be a dict such as {{"kind": "react"}}: got {settings!r}.')
    kind = settings["kind"]
    part = class_of(kind, base)
    settings = part.migrated(settings)
    try:
        return part(**{key: value for key, value in settings.items() if key != "kind"})
    except ValidationError as error:
        raise ValueError(f"settings of {kind!r}: {error}") from None


def _new_name(name: str, fields: Collection[str]) -> str:
    new = name.replace("most_", "max_", 1)
    return new if name.startswith("most_") and name not in fields and new in fields else name


def class_of(kind: Any, base: type[P]) -> type[P]:
    """The subclass of `base` with that kind. An installed package may provide it.

    Raises:
        ValueError: For an unknown kind, or a package that cannot be imported.
    """
    if isinstance(kind, str) and kind and kind not in REGISTRY:
        found = find(kind)
        if found is None:
            import_parts()  # for further names
        if found is not None and kind not in REGISTRY:
            raise ValueError(
                f"the kind {kind!r} should come from {found.source}, which has no such part: no "
                f"class there has `kind = {kind!r}`"
            )
    part = REGISTRY.get(kind) if isinstance(kind, str) else None
    if part is None or not issubclass(part, base):
        known = {name for name, one in REGISTRY.items() if issubclass(one, base)} | {*offered()} - {*REGISTRY}
        raise ValueError(
            f"unknown kind {kind!r}; {known_names(kind, sorted(known))}, and those of the modules that you "
            f"import"
        )
    return part


def known_names(name: Any, known: Iterable[str]) -> str:
    """Text for the error about an unknown name: the closest match, and all known names."""
    known = list(known)
    near = get_close_matches(str(name), known, n=1)
    return (f"did you mean {near[0]!r}? Known are " if near else "known are ") + (", ".join(known) or "none")


def _home(part: type[Part]) -> str:
    """The module that defines `part`. A worker started by multiprocessing calls the main script
    `__mp_main__`.
    """
    return "__main__" if part.__module__ == "__mp_main__" else part.__module__


def _unknown_field(part: type[Part], name: str) -> str:
    near = get_close_matches(name, part.model_fields, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}? It has " if near else "it has "
    return f"{part.__name__} has no setting {name!r}; {hint}{', '.join(part.model_fields) or 'none'}"


def _plain(value: Any) -> Any:
    if isinstance(value, Part):
        return value.settings()
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_none=True)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, frozenset):
        return sorted(map(_plain, value), key=repr)  # a set's order differs between processes
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _inside_of(head: str, error: ValidationError) -> ValidationError:
    """Prefix the locations of `error` with `head`, so that they are whole paths."""
    problems: list[Any] = [
        {"type": one["type"], "loc": (head, *one["loc"]), "input": one["input"], "ctx": one.get("ctx", {})}
        for one in error.errors()
    ]
    return ValidationError.from_exception_data(error.title, problems)


def is_function(value: Any) -> bool:
    """Whether `value` is a function, or the recorded form of one."""
    if isinstance(value, dict):
        return value.get("kind") == UserFunction.kind
    return isinstance(value, UserFunction) or (callable(value) and not isinstance(value, type | Part))


class UserFunction(Part):
    """A user's function as a setting: recorded by name and source hash, and called directly."""

    kind: ClassVar[str] = "function"

    module: str
    """Module that defines it."""

    name: str
    """Its qualified name."""

    source_sha256: str = ""
    """SHA-256 of its source. Empty if the source is not available."""

    _function: Callable[..., Any] | None = PrivateAttr(default=None)

    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return cls.of(value) if callable(value) and not isinstance(value, cls) else value

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Self:
        """Wrap `function`."""
        try:
            source = inspect.getsource(function)
        except (OSError, TypeError):
            source = ""
        made = cls(
            module=getattr(function, "__module__", None) or "",
            name=getattr(function, "__qualname__", None) or type(function).__qualname__,
            source_sha256=hashlib.sha256(source.encode()).hexdigest() if source else "",
        )
        made._function = function
        return made

    @property
    def callable(self) -> bool:
        """Whether the function is available. `False` if it was loaded from a file."""
        return self._function is not None

    @property
    def wrapped(self) -> Callable[..., Any] | None:
        """The function itself. `None` if it was loaded from a file."""
        return self._function

    @property
    def parameters(self) -> frozenset[str]:
        """The names of its parameters. Empty if it was loaded from a file."""
        return frozenset(inspect.signature(self._function).parameters) if self._function else frozenset()

    @property
    def signature(self) -> inspect.Signature:
        """Its signature, with annotations evaluated.

        Raises:
            LookupError: If it was loaded from a file.
            NameError: If an annotation is not defined in its module.
        """
        return inspect.signature(self._known(), eval_str=True)

    @property
    def identified_by_source(self) -> bool:
        """Whether the source determines the behaviour: it is available, and the function is not a closure."""
        plain = inspect.isfunction(self._function) and self._function.__closure__ is None
        return plain and bool(self.source_sha256)

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self._known()(*args, **named)

    def _known(self) -> Callable[..., Any]:
        if self._function is None:
            raise LookupError(
                f"this run was made with the function {self.name!r} of {self.module!r}, which is "
                f"not stored in files; pass the function again to run it"
            )
        return self._function


def needs_functions(part: Part) -> list[str]:
    """Names of the functions inside `part` that were loaded from a file and must be passed again."""
    functions = [one for one in parts_in(part) if isinstance(one, UserFunction) and not one.callable]
    return [f"{one.module}.{one.name}" for one in functions]


def parts_in(part: Part) -> Iterator[Part]:
    """`part` and the parts in its settings, at any depth."""
    waiting: list[Any] = [part]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Part):
            yield value
            waiting.extend(getattr(value, name) for name in type(value).model_fields)
        elif isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list | tuple):
            waiting.extend(value)


def map_parts(value: Any, change: Callable[[Part], Mapping[str, Any]]) -> Any:
    """Return `value`, a part or a container of parts, with the settings `change(part)` in each part.

    Inner parts are changed first. A value in which nothing changes is returned itself.
    """
    if isinstance(value, Part):
        fields = {name: getattr(value, name) for name in type(value).model_fields}
        inside = {name: map_parts(field, change) for name, field in fields.items()}
        inside = {name: field for name, field in inside.items() if field is not fields[name]}
        return value.with_({**inside, **change(value)})
    if isinstance(value, dict):
        made: Any = {key: map_parts(item, change) for key, item in value.items()}
        return made if any(made[key] is not value[key] for key in value) else value
    if isinstance(value, list | tuple):
        items = [map_parts(item, change) for item in value]
        return type(value)(items) if any(a is not b for a, b in zip(items, value, strict=True)) else value
    return value
