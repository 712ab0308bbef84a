"""The cell that makes a run: settings written as the Python that makes them again.

What is written is complete and runs as it stands, and holds only what differs from a default.
A function of a person's own has no such Python: there the cell keeps the name that the notebook has
for what holds it, and says so. No secret is written.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

import tot_lab
from tot_lab.core.parts import Part, UserFunction
from tot_lab.core.registry import built_in
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Task
from tot_lab.core.thinking import Budget
from tot_lab.domains import Game24, General, OpenEnded, game24
from tot_lab.domains.multi_hop.documents import OpenDocument, SearchDocuments
from tot_lab.lab.lab import Lab
from tot_lab.models import Cache, model_named
from tot_lab.runtime.roles import Role
from tot_lab.tools import Tool, tools_named
from tot_lab.tools.named import domain_tools, needed

_WIDTH = 88


class _NoPython(LookupError):
    """A value that only the notebook has."""


def cell(lab: Lab, strategy: Strategy, task: Task, budget: Budget | None, place: str = "task") -> str:
    """A whole cell that runs `strategy` on `task` as `lab` would. `place`: where the notebook has the
    task, for one that cannot be written."""
    imports = {"import tot_lab as tl"}
    lines = []
    try:
        lines.append(f"lab = {_lab(lab, imports)}")
        if any(_secrets(model) for model in _models(lab)):
            lines.insert(0, "# A key that the panel's lab has is not written here.")
    except _NoPython as why:
        lines.append(f"# `lab` is the one that the panel was given: it holds {why}.")
    try:
        shown = _task(task, imports)
    except _NoPython as why:
        shown = place
        lines.append(f"# `{place}` is of those that the panel was given: it holds {why}.")
    arguments = [_written(strategy, imports), shown]
    if budget is not None:
        arguments.append(f"budget={_written(budget, imports)}")
    lines.append(_call("run = await lab.run", arguments))
    return "\n".join([*sorted(imports, reverse=True), "", *lines])


def _call(name: str, arguments: Iterable[str]) -> str:
    """A call on one line, or one line an argument where that is too long."""
    arguments = list(arguments)
    line = f"{name}({', '.join(arguments)})"
    if len(line) <= _WIDTH and "\n" not in line:
        return line
    inside = textwrap.indent(",\n".join(arguments), "    ")
    return f"{name}(\n{inside},\n)"


def _lab(lab: Lab, imports: set[str]) -> str:
    gateway = lab.gateway
    if not isinstance(lab.model, Part):
        raise _NoPython("a function of your own")
    if gateway.toolbox.context:
        raise _NoPython("a tool_context")  # it may hold keys
    cache = gateway.given_cache
    if isinstance(cache, Cache) and cache.shared is not None:
        raise _NoPython("a shared cache")  # its address may hold a password
    settings = {
        "roles": gateway.roles or None,
        "runs": None if lab.runs is None else str(lab.runs),
        "cache": cache and str(cache.path if isinstance(cache, Cache) else cache),
        "mode": gateway.mode,
        "draws": gateway.draws,
        "spend": gateway.purse.cap,
        "timeout": lab.timeout,
        "tools": _by_name(list(gateway.toolbox.tools.values())) or None,
        "effect_policy": gateway.toolbox.policy,
        "plans": lab.plans and str(lab.plans.path),
    }
    usual = {"runs": "runs", "mode": "auto", "draws": "state", "timeout": 120.0}
    differing = [
        f"{name}={_written(value, imports)}" for name, value in settings.items() if value != usual.get(name)
    ]
    return _call("tl.Lab", [_model(lab.model, imports), *differing])


def _by_name(tools: list[Tool]) -> list[Tool | str]:
    """Those that are what their name stands for, as the name."""
    named = {
        name: list(tools_named(name))
        for name in (*(name for name, kind in built_in("tools").items() if not needed(kind)), *domain_tools())
    }
    shown: list[Tool | str] = []
    while tools:
        name = next((name for name, its in named.items() if tools[: len(its)] == its), None)
        if name is None and isinstance(tools[0], SearchDocuments | OpenDocument):
            raise _NoPython("documents of your own")
        shown.append(tools[0] if name is None else name)
        tools = tools[1 if name is None else len(named[name]) :]
    return shown


def _models(lab: Lab) -> list[Part]:
    models = [lab.model, *(role.model for role in lab.gateway.roles.values())]
    return [model for model in models if isinstance(model, Part)]


def _secrets(part: Part) -> list[str]:
    fields = type(part).model_fields.items()
    return [name for name, field in fields if field.exclude and getattr(part, name) is not None]


def _model(model: Part, imports: set[str]) -> str:
    """By its name, if that is all there is to it."""
    name = getattr(model, "name", model.kind)
    try:
        return _text(name) if model_named(name) == model else _written(model, imports)
    except ValueError:
        return _written(model, imports)


def _task(task: Task, imports: set[str]) -> str:
    """As a person would write it, where that makes the same task; else field by field."""
    domain = task.domain
    if isinstance(domain, Game24):
        short = [_text(task.question), *(["structured=True"] if domain.structured else [])]
        if game24(task.question, structured=domain.structured) == task:
            return _call("tl.game24", short)
    if isinstance(domain, General) and type(domain) in (General, OpenEnded) and not (task.data or task.id):
        given = {
            "answer": task.reference,
            "grade": domain.grading,
            "context": task.context or None,
            "system_prompt": task.system_prompt or None,
        }
        named = [f"{name}={_written(value, imports)}" for name, value in given.items() if value is not None]
        return _call(f"tl.{domain.kind}", [_text(task.question), *named])
    return _written(task, imports)


def _written(value: Any, imports: set[str]) -> str:
    if isinstance(value, UserFunction):
        raise _NoPython(f"the function {value.name}")
    if isinstance(value, Role):
        given = {name: getattr(value, name) for name in value.model_fields_set}
        return _call(
            "tl.Role",
            [
                f"{name}={_model(one, imports) if isinstance(one, Part) else _written(one, imports)}"
                for name, one in given.items()
            ],
        )
    if isinstance(value, BaseModel):
        return _call(_name(type(value), imports), _settings(value, imports))
    if isinstance(value, str):
        return _text(value)
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return repr(value)
    if isinstance(value, list | tuple):
        inside = ", ".join(_written(item, imports) for item in value)
        comma = "," if isinstance(value, tuple) and len(value) == 1 else ""
        return f"[{inside}]" if isinstance(value, list) else f"({inside}{comma})"
    if isinstance(value, frozenset):
        return f"{{{', '.join(map(_text, sorted(value)))}}}"  # of names, which its default has none of
    if isinstance(value, dict):
        pairs = (f"{_written(key, imports)}: {_written(item, imports)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    raise _NoPython(f"a {type(value).__name__}")


def _settings(value: BaseModel, imports: set[str]) -> list[str]:
    """The fields that differ from their defaults."""
    shown = []
    for name, field in type(value).model_fields.items():
        held = getattr(value, name)
        if not field.exclude and (
            field.is_required() or held != field.get_default(call_default_factory=True)
        ):
            shown.append(f"{name}={_written(held, imports)}")
    return shown


def _name(kind: type, imports: set[str]) -> str:
    """What a class is called in the cell, which imports it if need be."""
    if path := tot_lab.path_of(kind.__name__, kind):
        return path
    if kind.__module__ != "__main__":
        imports.add(f"from {kind.__module__} import {kind.__name__}")
    return kind.__name__


def _text(text: str) -> str:
    """`text` between double quotes, as the rest of the project writes it, where it holds none."""
    written = repr(text)
    return f'"{written[1:-1]}"' if written[0] == "'" and '"' not in text else written
