"""Gives the API pages the signatures that pydantic and msgspec make of a class's fields."""

import runpy
from importlib import import_module
from pathlib import Path
from typing import Any

import griffe

BUILD = runpy.run_path(str(Path(__file__).parent / "build.py"))


class FieldSignatures(griffe.Extension):
    """Adds the missing `__init__` of public classes with fields, inherited fields included."""

    def on_package(self, *, pkg: griffe.Module, **others: Any) -> None:
        for path in set(BUILD["public_names"]().values()):
            module, _, name = path.rpartition(".")
            value = getattr(import_module(module), name)
            fields = getattr(value, "model_fields", None) or getattr(value, "__struct_fields__", ())
            found = pkg[path.partition(".")[2]]
            if not fields or "__init__" in found.members:
                continue
            known = [found.all_members[field] for field in fields if field in found.all_members]
            kind = griffe.ParameterKind.keyword_only
            parameters = [
                griffe.Parameter(one.name, annotation=one.annotation, kind=kind, default=one.value)
                for one in known
            ]
            itself = griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)
            made = griffe.Function(
                "__init__",
                parameters=griffe.Parameters(itself, *parameters),
                lineno=found.lineno,
                endlineno=found.endlineno,  # the source that is shown is that of the class
            )
            found.set_member("__init__", made)
