"""Python source of a notebook cell that repeats a run.

The source is complete and contains only settings that differ from their defaults. If the lab or the task
contains a value that cannot be written as source, such as a user's function, the source has a variable in its
place, and a comment that explains the variable. Secrets are never written.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from pydantic import BaseModel

import tot_lab
from tot_lab.core.parts import Part, UserFunction
from tot_lab.core.protocol import Budget
from tot_lab.core.registry import built_in
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Task
from tot_lab.domains import Game24, General, OpenEnded, game24
from tot_lab.domains.multi_hop.documents import OpenDocument, SearchDocuments
from tot_lab.lab.lab import Lab, LabSettings
from tot_lab.models import Cache, model_named
from tot_lab.runtime.roles import Role
from tot_lab.tools import Tool, tools_named
from tot_lab.tools.toolbox import domain_tools, needed

_WIDTH = 88
_DEFAULTS = ("strategy", "system_prompt", "thinking_level", "profile", "agent_id", "session_id")


class _NoSource(LookupError):
    """Raised for a value that cannot be written as Python source."""


def cell(lab: Lab, strategy: Strategy, task: Task, budget: Budget | None, task_name: str = "task") -> str:
    """Return the source of a cell that runs `strategy` on `task` in `lab`.

    Args:
        lab: The lab of the run.
        strategy: The strategy.
        task: The task.
        budget: The budget of the run. `None` leaves it out.
        task_name: The expression for the task in the notebook, used if the task has no source.
    """
    imports = {"import tot_lab as tl"}
    lines = []
    try:
        lines.append(f"lab = {_lab(lab, imports)}")
        if any(_secrets(model) for model in _models(lab)):
            lines.insert(0, "# The panel's lab has an API key, which is not included here.")
    except _NoSource as why:
        lines.append(f"# `lab` is the lab that was passed to the panel, since it contains {why}.")
    try:
        task_source = _task(task, imports)
    except _NoSource as why:
        task_source = task_name
        lines.append(f"# `{task_name}` is a task that was passed to the panel, since it contains {why}.")
    arguments = [_source(strategy, imports), task_source]
    if budget is not None:
        arguments.append(f"budget={_source(budget, imports)}")
    lines.append(_call("run = await lab.run", arguments))
    return "\n".join([*sorted(imports, reverse=True), "", *lines])


def _call(name: str, arguments: Iterable[str]) -> str:
    """Return a call on one line, or with one argument per line if it is longer than `_WIDTH`."""
    arguments = list(arguments)
    line = f"{name}({', '.join(arguments)})"
    if len(line) <= _WIDTH and "\n" not in line:
        return line
    inside = textwrap.indent(",\n".join(arguments), "    ")
    return f"{name}(\n{inside},\n)"


def _lab(lab: Lab, imports: set[str]) -> str:
    gateway = lab.gateway
    if not isinstance(lab.model, Part):
        raise _NoSource("a function of your own")
    if gateway.toolbox.context:
        raise _NoSource("a tool_context")  # it may contain API keys
    cache = gateway.given_cache
    settings = {
        "roles": gateway.roles or None,
        "runs": None if lab.runs is None else str(lab.runs),
        "cache": cache and str(cache.path if isinstance(cache, Cache) else cache),
        "mode": gateway.mode,
        "spend": gateway.spend_limiter.cap,
        "timeout": lab.timeout,
        "tools": _replace_by_names(list(gateway.toolbox.tools.values())) or (),
        "effect_policy": gateway.toolbox.policy,
        "plans": lab.plans and str(lab.plans.path),
        **{name: getattr(lab.runner.settings, name) for name in _DEFAULTS},
    }
    defaults = {field.name: field.default for field in fields(LabSettings)}
    changed = [
        f"{name}={_source(value, imports)}" for name, value in settings.items() if value != defaults[name]
    ]
    return _call("tl.Lab", [_model(lab.model, imports), *changed])


def _replace_by_names(tools: list[Tool]) -> list[Tool | str]:
    """Replace each tool or group of tools by its registered name, if the tools of that name are equal."""
    by_name = {
        name: list(tools_named(name))
        for name in (*(name for name, kind in built_in("tools").items() if not needed(kind)), *domain_tools())
    }
    shown: list[Tool | str] = []
    while tools:
        name = next((name for name, group in by_name.items() if tools[: len(group)] == group), None)
        if name is None and isinstance(tools[0], SearchDocuments | OpenDocument):
            raise _NoSource("documents of your own")
        shown.append(tools[0] if name is None else name)
        tools = tools[1 if name is None else len(by_name[name]) :]
    return shown


def _models(lab: Lab) -> list[Part]:
    models = [lab.model, *(role.model for role in lab.gateway.roles.values())]
    return [model for model in models if isinstance(model, Part)]


def _secrets(part: Part) -> list[str]:
    fields = type(part).model_fields.items()
    return [name for name, field in fields if field.exclude and getattr(part, name) is not None]


def _model(model: Part, imports: set[str]) -> str:
    """Return the source of a model: its name if that gives an equal model, else a constructor call."""
    name = getattr(model, "name", model.kind)
    try:
        return _text(name) if model_named(name) == model else _source(model, imports)
    except ValueError:
        return _source(model, imports)


def _task(task: Task, imports: set[str]) -> str:
    """Return the source of a task: a call of its factory if that gives an equal task, else of its class."""
    domain = task.domain
    if isinstance(domain, Game24):
        short = [_text(task.question), *(["structured=True"] if domain.structured else [])]
        if game24(task.question, structured=domain.structured) == task:
            return _call("tl.game24", short)
    further = task.data or task.id or task.steps  # only the constructor takes these
    if isinstance(domain, General) and type(domain) in (General, OpenEnded) and not further:
        arguments = {
            "answer": task.reference,
            "grade": domain.grading,
            "context": task.context or None,
            "system_prompt": task.system_prompt or None,
        }
        named = [
            f"{name}={_source(value, imports)}" for name, value in arguments.items() if value is not None
        ]
        return _call(f"tl.{domain.kind}", [_text(task.question), *named])
    return _source(task, imports)


def _source(value: Any, imports: set[str]) -> str:
    if isinstance(value, UserFunction):
        raise _NoSource(f"the function {value.name}")
    if isinstance(value, Role):
        fields = {name: getattr(value, name) for name in value.model_fields_set}
        return _call(
            "tl.Role",
            [
                f"{name}={_model(field, imports) if isinstance(field, Part) else _source(field, imports)}"
                for name, field in fields.items()
            ],
        )
    if isinstance(value, BaseModel):
        return _call(_name(type(value), imports), _settings(value, imports))
    if isinstance(value, str):
        return _text(value)
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return repr(value)
    if isinstance(value, list | tuple):
        inside = ", ".join(_source(item, imports) for item in value)
        comma = "," if isinstance(value, tuple) and len(value) == 1 else ""
        return f"[{inside}]" if isinstance(value, list) else f"({inside}{comma})"
    if isinstance(value, frozenset):
        return f"{{{', '.join(map(_text, sorted(value)))}}}"  # sets contain only names
    if isinstance(value, dict):
        pairs = (f"{_source(key, imports)}: {_source(item, imports)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    raise _NoSource(f"a {type(value).__name__}")


def _settings(value: BaseModel, imports: set[str]) -> list[str]:
    """Return the fields that differ from their defaults, as keyword arguments."""
    shown = []
    for name, field in type(value).model_fields.items():
        setting = getattr(value, name)
        if not field.exclude and (
            field.is_required() or setting != field.get_default(call_default_factory=True)
        ):
            shown.append(f"{name}={_source(setting, imports)}")
    return shown


def _name(kind: type, imports: set[str]) -> str:
    """Return the expression for a class in the cell, and add the import that it needs."""
    if path := tot_lab.path_of(kind.__name__, kind):
        return path
    if kind.__module__ != "__main__":
        imports.add(f"from {kind.__module__} import {kind.__name__}")
    return kind.__name__


def _text(text: str) -> str:
    """Return a string literal, in double quotes unless `text` contains a double quote."""
    written = repr(text)
    return f'"{written[1:-1]}"' if written[0] == "'" and '"' not in text else written
