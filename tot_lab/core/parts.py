"""Components with settings, and how they are serialised.

Strategies, searches, domains and simulated models are Parts: frozen pydantic models whose fields are their
settings. A part is written as `{"kind": …, fields}`, nested parts included, and read back through the
registry. A user's function is written as module, name and source hash, and never imported on load: a loaded
run can be displayed, but the function must be passed again to repeat the run.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError, model_validator
from pydantic.fields import FieldInfo

from tot_lab.core.calls import STATE
from tot_lab.core.parameters import ShownDocstring, ShownSignature, type_text
from tot_lab.core.registry import BUILT_IN, find, import_parts, misplaced, offered
from tot_lab.core.tracebacks import shown_traceback

P = TypeVar("P", bound="Part")

REGISTRY: dict[str, type[Part]] = {}
"""The imported parts, by kind and alias."""


class Alias(NamedTuple):
    """An alternative name of one or several settings, whose value may have another type or unit.

    Attributes:
        paths: The paths of the settings, each of which is set.
        convert: Converts the value. For an invalid value it raises ValueError, with a message to which the
            name is prepended. `None` means no conversion.
        note: How the value differs from that of the settings, for the documentation.
    """

    paths: tuple[str, ...]
    convert: Callable[[Any], Any] | None = None
    note: str = ""


class InvalidSettings(ValueError):
    """Raised for invalid settings. The message is one line. `problems` is pydantic's list of errors."""

    def __init__(self, message: str, problems: Iterable[Any] = ()) -> None:
        super().__init__(message)
        self.problems = [*problems]

    @classmethod
    def of(cls, model: type[BaseModel], problems: Iterable[Any]) -> Self:
        """The error of `model` with these `problems`."""
        problems = [*problems]
        return cls(" ".join(_described(model, one) for one in _without_branches(problems)), problems)

    def _render_traceback_(self) -> list[str]:
        """The traceback that IPython shows: it ends at the user's code."""
        return shown_traceback(self, with_last=False)


class PydanticModel(BaseModel):
    """Base class of pydantic models. Completion omits pydantic's own names, and errors are one line."""

    if not TYPE_CHECKING:  # type checkers know the fields

        def __init__(self, /, *positional, **settings):
            if positional:
                raise TypeError(_by_name(type(self), positional))
            for name, value in settings.items():
                is_numpy = type(value).__module__ == "numpy"  # true of its functions too, which lack `item`
                if is_numpy and hasattr(value, "item") and not value.ndim:
                    settings[name] = value.item()
            try:
                super().__init__(**settings)
            except ValidationError as error:
                raise InvalidSettings.of(type(self), error.errors(include_url=False)) from None

        __init__.__pydantic_base_init__ = True  # so that pydantic validates nested models without calling it
        __init__.__signature__ = inspect.signature(BaseModel.__init__)
        __init__.__doc__ = object.__init__.__doc__  # the docstring of the class describes the parameters

        @classmethod
        def __pydantic_init_subclass__(cls, **kwargs):
            cls.__doc__ = ShownDocstring(vars(cls).get("__doc__") or "")
            vars(cls)["__doc__"].owner = cls
            cls.__signature__ = ShownSignature()

        def __setattr__(self, name, value):
            try:
                super().__setattr__(name, value)
            except ValidationError:
                change = "with_({}=…)" if isinstance(self, Part) else "model_copy(update={{{!r}: …}})"
                how = f"Make a copy: .{change.format(name)}." if name in type(self).model_fields else STATE
                what = type(self).__name__
                raise AttributeError(f"{what} cannot be changed: got a value for {name!r}. {how}") from None

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                if name.startswith("_") or hasattr(type(self), name) or name in type(self).model_fields:
                    raise  # raised by a property, or by a part that is still being built
            raise AttributeError(f"{_unknown_field(self, name)}.")

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

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name.startswith("_") or name not in _OF_PYDANTIC]


_OF_PYDANTIC = frozenset(dir(BaseModel))


class Part(PydanticModel):
    """Base class of everything that configures a run.

    A subclass is registered by its `kind`, by default its class name in snake_case. A subclass whose name
    begins with an underscore, or that sets `kind = ""`, is a base class and not registered. `aliases` are
    further names, such as those of the original paper. They are accepted wherever a kind is, but files hold
    the kind. `setting_aliases` maps further names of settings to the paths of the settings, or to the place
    where the value belongs instead, such as `tl.Lab(tool_context=…)`. Names of settings may be given in
    camelCase.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
    kind: ClassVar[str] = ""
    aliases: ClassVar[tuple[str, ...]] = ()
    setting_aliases: ClassVar[Mapping[str, str | Alias]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
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
        if isinstance(value, Part) and not isinstance(value, cls) and not is_function(value):
            raise ValueError(f"expected {_a(cls)}: got {value!r}, which is {_a(type(value))}")
        value = cls._short_form(value)
        if isinstance(value, dict) and "kind" in value:
            value = part_of(value, cls)
        elif isinstance(value, dict):
            given = cls.by_path(value)
            value = {name: setting for name, setting in given.items() if "." not in name}
            for name in value:
                if name not in cls.model_fields:
                    raise ValueError(_unknown_field(cls, str(name)))
            for head, changes in _by_head(given).items():
                if head not in cls.model_fields:
                    raise ValueError(_unknown_field(cls, head))
                field = cls.model_fields[head]
                kind: Any = field.annotation
                inner = value.get(head, field.get_default(call_default_factory=True))
                try:
                    is_part = isinstance(kind, type) and issubclass(kind, Part)
                    inner = kind.model_validate(inner) if is_part else inner
                    if head in value:
                        _expect_no_other(head, inner, changes)
                    value[head] = _changed(cls, head, inner, changes)
                except ValidationError as error:
                    raise InvalidSettings.of(kind, error.errors(include_url=False)) from None
        return handler(value)

    @classmethod
    def _short_form(cls, value: Any) -> Any:
        """Expand a short form of this part to settings. By default the short form is the kind, a string."""
        return {"kind": value} if isinstance(value, str) else value

    @classmethod
    def by_path(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings in `given`, which may use aliases, by their paths.

        Raises:
            ValueError: If a setting was given by two names, or belongs elsewhere.
        """
        settings: dict[str, Any] = {}
        names: dict[str, str] = {}
        for name, value in given.items():
            name = str(name)
            known = _known_name(cls, name)
            alias = known if known in cls.model_fields else cls.setting_aliases.get(known, known)
            if isinstance(alias, str) and "(" in alias:
                raise ValueError(f"{name} is not a setting of {cls.__name__}. Pass it as {alias}.")
            if isinstance(alias, str):
                alias = Alias((alias,))
            try:
                converted = alias.convert(value) if alias.convert else value
            except ValueError as error:
                raise ValueError(f"{name} {error}") from None
            for path in alias.paths:
                if path in settings:
                    first, second = sorted((name, names[path]), key=lambda one: one == path)
                    raise ValueError(f"{first} is another name of {second}: got both. Pass one of them.")
                settings[path], names[path] = converted, name
        return settings

    def recorded_by(self, schema: int) -> Mapping[str, Any]:
        """Return settings that journals of version `schema` lack, with the values that applied then.

        A replay of such a journal needs them if the defaults have changed since.
        """
        return {}

    def with_(self, paths: Mapping[str, Any] | None = None, /, **changes: Any) -> Self:
        """Return a copy with changed settings, validated as at construction.

        Args:
            paths: Settings by path, such as `{"search.width": 5}`.
            changes: Settings by name.

        Raises:
            TypeError: If `paths` is not a mapping.
            ValueError: For an unknown setting or an invalid value.
        """
        if paths is not None and not isinstance(paths, Mapping):
            raise TypeError(
                f'settings must be a dict such as {{"search.width": 5}}: got {paths!r}. A task goes to '
                "lab.run(strategy, task)."
            )
        given = self.by_path({**(paths or {}), **changes})
        inside = _by_head(given)
        for name in (*given, *inside):
            if "." not in name and name not in type(self).model_fields:
                raise ValueError(_unknown_field(self, name))
        made = self._with({name: value for name, value in given.items() if "." not in name})
        for head, changes in inside.items():
            if head in given:
                _expect_no_other(head, getattr(made, head), changes)
        return made._with(
            {head: _changed(made, head, getattr(made, head), named) for head, named in inside.items()}
        )

    def _with(self, changes: Mapping[str, Any]) -> Self:
        if not changes:
            return self
        made = type(self)(**{**dict(self), **changes})
        made.__pydantic_fields_set__.intersection_update(self.model_fields_set | changes.keys())
        if made.__pydantic_private__ is not None:
            made.__pydantic_private__.update(self.__pydantic_private__ or {})
        return made

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Like `with_`. Pydantic's own method would skip validation."""
        return self.with_(**update) if update else super().model_copy(deep=deep)

    def settings(self) -> dict[str, Any]:
        """The part as JSON-ready data: its kind and its fields, without excluded fields (secrets)."""
        kept = [name for name, field in type(self).model_fields.items() if not field.exclude]
        fields = {name: _plain(getattr(self, name)) for name in kept}
        return {"kind": self.kind, **fields}


_STORED: ContextVar[bool] = ContextVar("tot_lab_stored", default=False)


@contextmanager
def stored_settings() -> Iterator[None]:
    """A context in which parts are built from recorded settings, so that `are_stored` is true."""
    token = _STORED.set(True)
    try:
        yield
    finally:
        _STORED.reset(token)


def are_stored() -> bool:
    """Whether the settings being read come from a record. Newer validation rules do not apply to them."""
    return _STORED.get()


def part_of(settings: dict[str, Any], base: type[Part] = Part) -> Part:
    """Build the part that `settings` describe, such as `{"kind": "react", "max_iterations": 5}`.

    Raises:
        ValueError: For an unknown kind, a kind that is not a `base`, or an invalid field.
    """
    if not isinstance(settings, dict) or "kind" not in settings:
        raise ValueError(f'settings must be a dict such as {{"kind": "react"}}: got {settings!r}.')
    kind = settings["kind"]
    part = class_of(kind, base)
    return part(**{key: value for key, value in settings.items() if key != "kind"})


def class_of(kind: Any, base: type[P]) -> type[P]:
    """The subclass of `base` with that kind. An installed package may provide it.

    Raises:
        ValueError: For an unknown kind, or a package that cannot be imported.
    """
    if isinstance(kind, str) and kind and kind not in REGISTRY:
        found = find(kind)
        if found is None:
            import_parts()  # so that their aliases are known, and the error lists all names
        if found is not None and kind not in REGISTRY:
            raise ValueError(
                f"the kind {kind!r} should come from {found.source}, which has no such part: no "
                f"class there has `kind = {kind!r}`. Set it there, or rename the entry point."
            )
    part = REGISTRY.get(kind) if isinstance(kind, str) else None
    if part is None or not issubclass(part, base):
        known = {name for name, one in REGISTRY.items() if issubclass(one, base)}
        for group, names in BUILT_IN.items():
            known |= {*offered(group)} - {*REGISTRY} if known & names.keys() else set()
        raise ValueError(
            f"unknown kind {kind!r}; {known_names(kind, sorted(known))}, and those of the modules that you "
            f"import"
        )
    return part


def known_names(name: Any, known: Iterable[str]) -> str:
    """Text for the error about an unknown name: the closest match, and all known names."""
    known = list(known)
    near = get_close_matches(str(name), known, n=1)
    head = f"did you mean {near[0]!r}? Known are " if near else "known are "
    return f"{misplaced(str(name))}{head}{', '.join(known) or 'none'}"


def _home(part: type[Part]) -> str:
    """The module that defines `part`. The main script is always `__main__`, although workers started by
    multiprocessing name it `__mp_main__`.
    """
    return "__main__" if part.__module__ == "__mp_main__" else part.__module__


def _known_name(part: type[Part], name: str) -> str:
    """The setting or alias that `name` means: `name` itself, or `name` in snake_case."""
    known = {*part.model_fields, *part.setting_aliases}
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return snake if name not in known and snake in known else name


def _unknown_field(part: BaseModel | type[BaseModel], name: str) -> str:
    kind = part if isinstance(part, type) else type(part)
    paths = _setting_paths(part)
    near = next((word for word in _words_for(name, paths) if word in paths or "(" in word), "")
    meant = " or ".join(_as_passed(part, path) for path in paths.get(near, [])) or near
    hint = f"did you mean {meant}? It has " if near else "it has "
    return f"{kind.__name__} has no setting {name!r}; {hint}{', '.join(kind.model_fields) or 'none'}"


_OPTIONS = "options", 'tl.Lab(…, roles={"propose": tl.Role(options={…}), "answer": …})'

OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("max_steps", "max_turns", "max_iters", "steps"), ("max_iterations", "depth")),
    **dict.fromkeys(("max_iterations", "n_iterations", "num_iterations"), ("iterations", "depth")),
    **dict.fromkeys(("n_generate_sample", "num_thoughts", "n_thoughts", "k"), ("count",)),
    **dict.fromkeys(("n", "num_samples", "n_samples"), ("attempts", "count")),
    **dict.fromkeys(("n_select_sample", "beam_size", "num_beams", "b"), ("width",)),
    **dict.fromkeys(("top_p", "stop_sequences", "frequency_penalty", "presence_penalty"), _OPTIONS),
    **dict.fromkeys(("max_new_tokens", "max_output_tokens"), ("max_tokens",)),
    "n_evaluate_sample": ("samples",),
    "method_select": ("search",),
    "algorithm": ("search",),
}
"""Names that other libraries give to settings, and the settings that may be meant, the likeliest first. The
last may be the place where the value belongs instead.
"""


def _words_for(name: str, known: Iterable[str]) -> Iterator[str]:
    """Yield words that may name the setting meant by `name`, the likeliest first. Not all are in `known`."""
    yield name
    if name in OTHER_NAMES:
        yield from OTHER_NAMES[name]
        return
    yield name.rpartition("_")[2]
    for near in get_close_matches(name, known, n=3):
        own, other = _without_words(name, near), _without_words(near, name)
        if not own or not other or get_close_matches(own, [other]):
            yield near  # the words that differ are similar, unlike those of `max_steps` and `max_tokens`


def _without_words(name: str, other: str) -> str:
    """`name` without the words of `other`."""
    return "_".join(word for word in name.split("_") if word not in other.split("_"))


def _as_passed(part: BaseModel | type[BaseModel], path: str) -> str:
    """The path of a setting, and how it is passed if it belongs to a part inside `part`."""
    head, _, name = path.partition(".")
    kind = part if isinstance(part, type) else type(part)
    if head not in kind.model_fields:
        return repr(path)
    inner = getattr(part, head) if isinstance(part, BaseModel) else kind.model_fields[head].get_default()
    is_inside = isinstance(inner, Part) and name in type(inner).model_fields
    return f"{path!r}, as in {head}={type(inner).__name__}({name}=…)" if is_inside else repr(path)


def _setting_paths(part: BaseModel | type[BaseModel]) -> dict[str, list[str]]:
    """Map names to paths of settings: settings of `part`, its aliases, and settings of the parts in it."""
    kind = part if isinstance(part, type) else type(part)
    paths = {name: [name] for name in kind.model_fields}
    for name, alias in getattr(kind, "setting_aliases", {}).items():
        paths[name] = list(alias.paths) if isinstance(alias, Alias) else [alias]
    inner: dict[str, list[str]] = {}
    for name, field in kind.model_fields.items():
        value = getattr(part, name) if isinstance(part, BaseModel) else field.get_default()
        if isinstance(value, Part):
            for below, places in _setting_paths(value).items():
                inner.setdefault(below, []).extend(f"{name}.{place}" for place in places if "(" not in place)
    return {**{name: places for name, places in inner.items() if places}, **paths}


def _without_branches(problems: Iterable[Any]) -> list[Any]:
    """Merge the errors for a value that fits no branch of a union, one for each branch, into one error."""
    found: list[Any] = []
    for problem in problems:
        field, *branch = problem["loc"] or ("",)
        text = problem["msg"].removeprefix("Input should be ")
        if not branch or (str(branch[0]).isidentifier() and branch[0] not in _TYPES):
            found.append(problem)
        elif found and found[-1]["loc"] == (field,) and found[-1]["input"] is problem["input"]:
            found[-1]["msg"] += f" or {text}"
        else:
            found.append({**problem, "loc": (field,)})
    return found


_TYPES = ("str", "int", "float", "bool")
"""Names that pydantic gives to branches of a union and that could also be names of fields."""


def _described(model: type[BaseModel], problem: Any) -> str:
    """Return the message about one of pydantic's errors, with the path of the setting."""
    path, text = ".".join(map(str, problem["loc"])), problem["msg"]
    where = ".".join(filter(None, [model.__name__, path]))
    if problem["type"] == "extra_forbidden" and path in problem["loc"]:
        return f"{_unknown_field(model, path)}."
    if problem["type"] == "missing":
        return f"{where} must be given."
    if problem["type"] == "value_error":
        text = text.removeprefix("Value error, ")
        better = [name for name in _fields_for(model, problem["input"]) if name != path]
        hint = f". Pass it as {better[0]}=" if path and better else ""
        text = text if text.startswith(model.__name__) else f"{where}: {text}"
        return f"{text}{hint}{'' if text.endswith('.') and not hint else '.'}"
    text = text.removeprefix("Input should ").removeprefix("be ")
    if _hides_input(model):
        return f"{where} must be {text}."
    call = ""
    for kind in _kinds(model.model_fields[path]) if path in model.model_fields else ():
        if issubclass(kind, BaseModel) and getattr(kind, "kind", True):  # base classes have an empty `kind`
            call = call or _named(kind, [problem["input"]])
    hint = f" Pass {path}={call}." if call else ""
    return f"{where} must be {text}: got {problem['input']!r}.{hint}"


def _kinds(field: FieldInfo) -> list[type]:
    """The classes that the annotation of a field names."""
    return [one for one in (field.annotation, *get_args(field.annotation)) if isinstance(one, type)]


def _hides_input(model: type[BaseModel]) -> bool:
    """Whether errors must not show values, since one of them may be a secret."""
    return bool(model.model_config.get("hide_input_in_errors"))


def _by_name(model: type[BaseModel], values: Sequence[Any]) -> str:
    """Return the message about settings that were given by position."""
    if len(values) == 1 and isinstance(values[0], dict):
        given = "…" if _hides_input(model) else repr(values[0])
        return f"{model.__name__} takes its settings by name. Pass {model.__name__}(**{given})."
    if named := _named(model, values):
        return f"{model.__name__} takes its settings by name. Pass {named}."
    given = "…" if _hides_input(model) else ", ".join(map(repr, values))
    maker = vars(sys.modules[model.__module__]).get(getattr(model, "kind", ""))
    hint = f" Did you mean the function {maker.__name__}({given})?" if inspect.isfunction(maker) else ""
    return (
        f"{model.__name__} takes its settings by name: got {given}, which they do not accept. "
        f"It has {', '.join(model.model_fields) or 'none'}.{hint}"
    )


def _named(model: type[BaseModel], values: Iterable[Any]) -> str:
    """The call of `model` with `values` by name, each for the likeliest setting that accepts it. "" if no
    setting accepts one of the values.

    Required settings come first, then the one that scales the number of calls, then, for an integer, those
    that take one, then those of the class before those of its bases.
    """
    fields, shown = model.model_fields, dict[str, str]()
    owners = [inspect.get_annotations(kind) for kind in model.__mro__]
    for value in values:

        def order(name: str, value: Any = value) -> tuple[bool, ...]:
            no_integer = type(value) is int and "int" not in type_text(fields[name].annotation)
            is_scale = name == getattr(model, "scale", "")
            return (
                not fields[name].is_required(),
                not is_scale,
                no_integer,
                *(name not in own for own in owners),
            )

        names = (name for name in sorted(fields, key=order) if name not in shown)
        name = next((name for name in names if _accepts(model, name, value)), None)
        if name is None:
            return ""
        shown[name] = "…" if _hides_input(model) else repr(value)
    return f"{model.__name__}({', '.join(f'{name}={value}' for name, value in shown.items())})"


def _accepts(model: type[BaseModel], name: str, value: Any) -> bool:
    """Whether the setting `name` of `model` may have that value."""
    try:
        model.model_validate({name: value})
    except ValidationError as error:
        wrong = [problem for problem in error.errors() if problem["loc"][:1] == (name,)]
        # A text for a required setting may be a misspelt name. It is accepted here: the next error names it.
        is_text = model.model_fields[name].is_required() and isinstance(value, str)
        return all(is_text and problem["type"] == "value_error" for problem in wrong)
    except (TypeError, ValueError):
        return False
    return True


def _fields_for(model: type[BaseModel], value: Any) -> list[str]:
    """Return the settings of `model` that accept the part `value`."""
    return [
        name
        for name, field in model.model_fields.items()
        for one in _kinds(field)
        if issubclass(one, Part) and one is not Part and isinstance(value, one)
    ]


def _a(part: type[Part]) -> str:
    """The name of the base class of `part` that derives directly from `Part`, such as "a Proposer"."""
    base = next(one for one in reversed(part.__mro__) if issubclass(one, Part) and one is not Part)
    return f"{'an' if base.__name__[0] in 'AEIOU' else 'a'} {base.__name__}"


def _by_head(given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The settings of inner parts, by the first name of their paths and then by the rest of the path."""
    inside: dict[str, dict[str, Any]] = {}
    for path, value in given.items():
        head, dot, rest = path.partition(".")
        if dot:
            inside.setdefault(head, {})[rest] = value
    return inside


def _expect_no_other(head: str, inner: Any, changes: Mapping[str, Any]) -> None:
    """Raise ValueError if `inner`, the part in the setting `head`, was made with one value of a setting, and
    `changes` holds a different one.
    """
    if not isinstance(inner, Part):
        return
    for name in inner.model_fields_set.intersection(changes):
        if (own := getattr(inner, name)) != changes[name]:
            raise ValueError(
                f"{head}.{name} was given twice: got {own!r} and {changes[name]!r}. Pass one of them."
            )


def _changed(part: Part | type[Part], head: str, value: Any, changes: dict[str, Any]) -> Any:
    """Return `value`, the setting `head` of `part`, with `changes`, whose paths are relative to `value`."""
    try:
        if isinstance(value, Part):
            return value.with_(changes)
        if isinstance(value, BaseModel):
            return type(value)(**{**dict(value), **changes})
        if value is None or isinstance(value, dict):
            return {**(value or {}), **changes}
    except InvalidSettings as error:
        problems = [{**one, "loc": (head, *one["loc"])} for one in error.problems]
        raise InvalidSettings.of(part if isinstance(part, type) else type(part), problems) from None
    kind = part if isinstance(part, type) else type(part)
    path = f"{head}.{next(iter(changes))}"
    raise ValueError(f"no setting {path!r}: {head} of {kind.__name__} is {value!r}, which has no settings.")


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


def is_function(value: Any) -> bool:
    """Whether `value` is a function, or the recorded form of one."""
    if isinstance(value, dict):
        return value.get("kind") == UserFunction.kind
    return isinstance(value, UserFunction) or (callable(value) and not isinstance(value, type | Part))


class UserFunction(Part):
    """A user's function as a setting: recorded by name and source hash, and called directly."""

    kind: ClassVar[str] = "function"

    module: str
    """Name of the module that defines the function."""

    name: str
    """Qualified name of the function."""

    source_sha256: str = ""
    """SHA-256 of the source of the function and of the numbers and strings among its defaults. Empty
    if the source is not available."""

    _function: Callable[..., Any] | None = PrivateAttr(default=None)

    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return cls.of(value) if callable(value) and not isinstance(value, cls) else value

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Self:
        """Wrap `function`."""
        try:
            source = _source_of(function)
        except (OSError, TypeError, IndexError, UnicodeError):  # the last two: the file was changed
            source = ""
        made = cls(
            module=getattr(function, "__module__", None) or "",
            name=getattr(function, "__qualname__", None) or type(function).__qualname__,
            source_sha256=hashlib.sha256(source.encode()).hexdigest() if source else "",
        )
        made._function = function
        return made

    def __repr__(self) -> str:
        return self.name

    @property
    def callable(self) -> bool:
        """Whether the function itself is available. A saved run contains only its name and source hash."""
        return self._function is not None

    @property
    def wrapped(self) -> Callable[..., Any] | None:
        """The function itself. `None` if it is not available (`callable`)."""
        return self._function

    @property
    def parameters(self) -> frozenset[str]:
        """The names of its parameters. Empty if the function is not available (`callable`)."""
        return frozenset(inspect.signature(self._function).parameters) if self._function else frozenset()

    def expect_arguments(self, what: str, names: Sequence[str], forms: str) -> None:
        """Check that the function can be called with these positional arguments. A function that is not
        available (`callable`) is not checked.

        Args:
            what: What the function is, such as `evaluator`.
            names: Names of the arguments, in order. The function may rename them, but not swap them.
            forms: The accepted signatures, for the error.

        Raises:
            ValueError: If it cannot be called with them.
        """
        if self._function is None:
            return
        try:
            signature = inspect.signature(self._function)
        except ValueError:  # a built-in function without a signature
            return
        try:
            signature.bind(*names)
        except TypeError:
            wrong = "has the wrong arguments"
        else:
            pairs = list(zip(names, signature.parameters, strict=False))
            if not any(own in names and own != name for name, own in pairs):
                return
            wrong = "has its arguments in the wrong order"
        raise ValueError(f"{what} {self.name!r} {wrong}: got {signature}.\nIt must be {forms}.")

    @property
    def signature(self) -> inspect.Signature:
        """Its signature, with annotations evaluated.

        Raises:
            LookupError: If the function is not available (`callable`).
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


def _source_of(function: Callable[..., Any]) -> str:
    """Return the source of a function, with those of its default values that are strings or numbers.

    The lines of a lambda may contain other lambdas, so only the text of `function` is returned.
    """
    code: Any = getattr(function, "__code__", None)
    spans = [span for span in code.co_positions() if span[3]] if code and code.co_name == "<lambda>" else []
    if spans:
        (first, start), (last, end) = min(span[::2] for span in spans), max(span[1::2] for span in spans)
        lines = [line.encode() for line in inspect.findsource(function)[0][first - 1 : last]]
        body = b"".join([*lines[:-1], lines[-1][:end]])[start:].decode()
        source = f"lambda {', '.join(code.co_varnames[: code.co_argcount])}: {body}"
    else:
        source = inspect.getsource(function)
    defaults = getattr(function, "__defaults__", None) or ()
    plain = [value for value in defaults if isinstance(value, str | int | float)]
    return source + repr(plain) if plain else source


def needs_functions(part: Part) -> list[str]:
    """Names of the functions inside `part` that are not available (`UserFunction.callable`), so that they
    must be passed again.
    """
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
    """Return `value`, a part or a container of parts, with each part updated by the settings `change(part)`.

    `change` receives each part as it was before its inner parts were updated. If nothing changes, the same
    object is returned.
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
