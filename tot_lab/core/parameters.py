"""Constructors that take the fields of a settings class as keyword arguments.

Each setting is declared and documented once, as a field of the settings class. Signature, help, completion
and type checkers see the fields as parameters of the constructor.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from functools import update_wrapper
from itertools import pairwise
from typing import Any, Concatenate, ParamSpec, TypeVar

from pydantic import BaseModel

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


def takes_fields_of(
    kind: Callable[P, S],
) -> Callable[[Callable[[T, S], None]], Callable[Concatenate[T, P], None]]:
    """Let an `__init__` that receives an object of the dataclass `kind` take the fields of `kind` instead."""

    def decorate(init: Callable[[T, S], None]) -> Callable[Concatenate[T, P], None]:
        def made(self: T, /, *args: P.args, **kwargs: P.kwargs) -> None:
            try:
                signature.bind(self, *args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{init.__qualname__}() {error}") from None
            init(self, kind(*args, **kwargs))

        first, *_ = inspect.signature(init).parameters.values()
        parameters = inspect.signature(kind).parameters
        signature = inspect.Signature([first, *parameters.values()], return_annotation="None")
        docs = field_docs(kind)
        shown: Any = update_wrapper(made, init)
        shown.__signature__ = signature
        shown.__doc__ = "\n".join(
            [f"{init.__doc__}\n\nArgs:", *(_line(name, docs[name]) for name in parameters if name in docs)]
        )
        return made

    return decorate


def _line(name: str, doc: str) -> str:
    """Return the entry of a field in an `Args` section."""
    return textwrap.fill(f"{name}: {doc}", 110, initial_indent=" " * 4, subsequent_indent=" " * 8)


def field_docs(kind: Any) -> dict[str, str]:
    """Return the attribute docstrings of the fields of a dataclass or pydantic model, those of subclasses
    before those of their bases.

    They are read from the source on demand. Pydantic's `use_attribute_docstrings` reads them when the class
    is created, which adds 0.3 s to `import tot_lab`. Fields without a docstring or without available source
    are omitted.
    """
    docs: dict[str, str] = {}
    for owner in kind.__mro__:
        if owner in (object, BaseModel):
            continue
        try:
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
        except (OSError, TypeError, SyntaxError):
            continue
        assert isinstance(tree, ast.ClassDef)
        for field, doc in pairwise(tree.body):
            match field, doc:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                    docs.setdefault(name, inspect.cleandoc(text))
    fields = kind.model_fields if issubclass(kind, BaseModel) else kind.__dataclass_fields__
    return {name: doc for name, doc in docs.items() if name in fields}
