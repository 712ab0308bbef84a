"""The help of settings classes: a signature and a section `Parameters` made from their fields.

Each setting is declared and documented once, as a field with an attribute docstring. The signature and the
section are made on demand, since reading sources takes time.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import lru_cache, update_wrapper, wraps
from itertools import pairwise
from types import MappingProxyType, UnionType
from typing import (
    Annotated,
    Any,
    Concatenate,
    Literal,
    ParamSpec,
    SupportsIndex,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from pydantic import BaseModel
from pydantic.fields import FieldInfo

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


def takes_fields_of(
    kind: Callable[P, S], elsewhere: Mapping[str, str] = MappingProxyType({})
) -> Callable[[Callable[[T, S], None]], Callable[Concatenate[T, P], None]]:
    """Let an `__init__` that receives an object of the dataclass `kind` take the fields of `kind` instead.

    The keys of `elsewhere` are arguments of other functions. The values are the words after "It belongs to"
    in the error about such an argument.
    """

    def decorate(init: Callable[[T, S], None]) -> Callable[Concatenate[T, P], None]:
        def made(self: T, /, *args: P.args, **kwargs: P.kwargs) -> None:
            try:
                signature.bind(self, *args, **kwargs)
            except TypeError as error:
                raise _wrong_arguments(init, signature, error, kwargs, elsewhere) from None
            init(self, kind(*args, **kwargs))

        first, *_ = inspect.signature(init).parameters.values()
        signature = _signature([first, *inspect.signature(kind).parameters.values()])
        shown: Any = update_wrapper(made, init)
        shown.__signature__ = signature
        shown.__doc__ = f"{init.__doc__}\n\n{_parameters(kind)}"
        return made

    return decorate


def with_example(
    example: str, elsewhere: Mapping[str, str] = MappingProxyType({})
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Improve a function's error about wrong arguments: it suggests the nearest argument, or else `example`.

    The keys of `elsewhere` are arguments of other functions. The values are the words after "It belongs to"
    in the error about such an argument.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        signature = inspect.signature(function)

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                raise _wrong_arguments(function, signature, error, kwargs, elsewhere, example) from None
            return function(*args, **kwargs)

        return checked

    return decorate


def _wrong_arguments(
    function: Callable[..., Any],
    signature: inspect.Signature,
    error: TypeError,
    named: Iterable[str],
    elsewhere: Mapping[str, str] = MappingProxyType({}),
    example: str = "",
) -> TypeError:
    unknown = next((name for name in named if name not in signature.parameters), "")
    near = get_close_matches(unknown, signature.parameters, n=1)
    hint = f". Write {example}." if example else ""
    hint = f". Did you mean {near[0]}=?" if near else hint
    hint = f". It belongs to {elsewhere[unknown]}." if unknown in elsewhere else hint
    return TypeError(f"{function.__qualname__}() {error}{hint}")


class ShownSignature:
    """Descriptor `__signature__` of a pydantic model. It shows types without constraints and validators."""

    def __get__(self, instance: object, owner: type[BaseModel]) -> inspect.Signature:
        fields = owner.model_fields.items()
        return _signature(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if field.is_required() else _default(field),
                annotation=type_text(field.annotation),
            )
            for name, field in fields
        )


class ShownDocstring(str):
    """Descriptor `__doc__` of a pydantic model: its docstring with a section `Parameters`.

    It is also a `str`, the docstring without the section, because the built-in `help` reads the descriptor
    itself, without `__get__`, and calls `expandtabs`. An empty docstring is replaced by that of the base
    class.
    """

    __slots__ = ("owner",)
    owner: type[BaseModel]

    def expandtabs(self, tabsize: SupportsIndex = 8) -> str:
        """Return the text with its section, for `help`."""
        return self.__get__(None, self.owner).expandtabs(tabsize)

    def __get__(self, instance: object, owner: type[BaseModel]) -> str:
        held = (vars(kind).get("__doc__") for kind in owner.__mro__)
        text = inspect.cleandoc(str(next(filter(None, held), "")))
        place = re.search(r"\n\n(Raises|References):|$(?!\n)", text)
        assert place is not None
        section = f"\n\n{_parameters(owner)}" if owner.model_fields else ""
        return f"{text[: place.start()]}{section}{text[place.start() :]}"


class _Text(str):
    """An annotation that a signature shows without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _signature(parameters: Iterable[inspect.Parameter]) -> inspect.Signature:
    shown = [
        one.replace(annotation=_Text(one.annotation)) if isinstance(one.annotation, str) else one
        for one in parameters
    ]
    return inspect.Signature(shown, return_annotation=None)


def _parameters(kind: Any) -> str:
    """Return the section `Parameters` of a dataclass or pydantic model."""
    docs = field_docs(kind)
    rows = ["Parameters:"]
    if issubclass(kind, BaseModel):
        for name, field in kind.model_fields.items():
            default = "required" if field.is_required() else f"default {_default(field)!r}"
            accepted = type_text(field.annotation, field.metadata, ranges=True)
            rows.append(_row(name, accepted, default, docs))
    else:
        for one in inspect.signature(kind).parameters.values():
            default = "required" if one.default is one.empty else f"default {one.default!r}"
            rows.append(_row(one.name, type_text(one.annotation), default, docs))
    return "\n".join(rows)


def _row(name: str, accepted: str, default: str, docs: dict[str, str]) -> str:
    text = f"{name} ({accepted}, {default}): {docs.get(name, '')}".rstrip(" :")
    return textwrap.fill(
        text,
        110,
        initial_indent=" " * 4,
        subsequent_indent=" " * 8,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _default(field: FieldInfo) -> Any:
    return field.get_default(call_default_factory=True)


def type_text(annotation: Any, metadata: Iterable[Any] = (), *, ranges: bool = False) -> str:
    """Return the annotation of a field as text, such as `int | None`.

    Args:
        annotation: The annotation.
        metadata: Its constraints.
        ranges: Whether the text shows the constraints, as in `int >= 1 | None`.
    """
    if isinstance(annotation, str):
        return annotation
    metadata, inner = [*metadata], get_args(annotation)
    origin = get_origin(annotation)
    if origin is Annotated:
        more = [each for one in inner[1:] for each in (one.metadata if isinstance(one, FieldInfo) else [one])]
        return type_text(inner[0], [*metadata, *more], ranges=ranges)
    if origin in (Union, UnionType):
        return " | ".join(dict.fromkeys(type_text(one, metadata, ranges=ranges) for one in inner))
    if origin is Literal:
        return " | ".join(map(repr, inner))
    text = _NAMES.get(getattr(annotation, "__name__", ""), getattr(annotation, "__name__", str(annotation)))
    if inner:
        texts = ("..." if one is ... else type_text(one, ranges=ranges) for one in inner)
        text = f"{text}[{', '.join(texts)}]"
    return _with_range(text, metadata) if ranges and annotation is not type(None) else text


_NAMES = {"NoneType": "None", "UserFunction": "Callable"}


def _with_range(text: str, metadata: Iterable[Any]) -> str:
    found = {
        name: getattr(one, name)
        for one in metadata
        for name in ("ge", "gt", "le", "lt", "min_length", "pattern")
        if getattr(one, name, None) is not None
    }
    low = f"[{found['ge']}" if "ge" in found else f"({found['gt']}" if "gt" in found else ""
    high = f"{found['le']}]" if "le" in found else f"{found['lt']})" if "lt" in found else ""
    if low and high:
        text = f"{text} in {low}, {high}"
    elif low or high:
        (sign, bound), *_ = ((_SIGNS[name], found[name]) for name in _SIGNS if name in found)
        text = f"{text} {sign} {bound}"
    if found.get("min_length"):
        text = f"non-empty {text}"
    return f"{text} matching {found['pattern']}" if "pattern" in found else text


_SIGNS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


def field_docs(kind: Any) -> dict[str, str]:
    """Return the attribute docstrings of the fields of a dataclass or pydantic model. A field of
    a subclass takes precedence over the field of a base class.

    They are read from the source on demand. Pydantic's `use_attribute_docstrings` reads them when the class
    is created, which adds 0.3 s to `import tot_lab`. Fields without a docstring or without available source
    are omitted.
    """
    docs: dict[str, str] = {}
    for owner in kind.__mro__:
        if owner in (object, BaseModel):
            continue
        try:
            lines, _ = inspect.findsource(sys.modules[owner.__module__])
            for name, doc in _docs_in("".join(lines)).get(owner.__qualname__, {}).items():
                docs.setdefault(name, doc)
        except (KeyError, OSError, TypeError, SyntaxError):
            continue
    fields = kind.model_fields if issubclass(kind, BaseModel) else kind.__dataclass_fields__
    return {name: doc for name, doc in docs.items() if name in fields}


@lru_cache(maxsize=512)
def _docs_in(source: str) -> dict[str, dict[str, str]]:
    """Return the attribute docstrings in the source of a module, by the qualified names of its classes."""
    docs = {}
    left: list[tuple[str, ast.AST]] = [("", ast.parse(source))]
    while left:
        place, node = left.pop()
        if isinstance(node, ast.ClassDef):
            docs[place.rstrip(".")] = {
                field.target.id: inspect.cleandoc(doc.value.value)
                for field, doc in pairwise(node.body)
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
                if isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant)
                if isinstance(doc.value.value, str)
            }
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, ast.ClassDef):
                left.append((f"{place}{inner.name}.", inner))
            elif isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                left.append((f"{place}{inner.name}.<locals>.", inner))
            elif isinstance(inner, ast.stmt):
                left.append((place, inner))
    return docs
