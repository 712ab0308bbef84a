"""Tools by name, as `tools=["calculator"]` and the command line's `--tools` accept them.

A name stands for a built-in tool by its kind, for all tools of a domain by the domain's name, or for what an
installed package offers: a tool class, a tool, a typed function, or several of these. A tool that needs
settings names them in its error.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from tot_lab.core.parts import REGISTRY, class_of, known_names
from tot_lab.core.registry import built_in, import_parts, load_installed, names, offered
from tot_lab.core.task import Domain
from tot_lab.core.tool import Tool, tool
from tot_lab.core.tools import tool_name


def domain_tools() -> dict[str, tuple[Tool, ...]]:
    """Return the tools of domains by the domain's name, without those of packages that are not imported."""
    import_parts()
    domains = {part.kind: part for part in REGISTRY.values() if issubclass(part, Domain)}
    return {kind: tools for kind, domain in domains.items() if (tools := domain.tools())}


def tools_named(name: str, settings: Mapping[str, Any] | None = None) -> tuple[Tool, ...]:
    """Return the tools of that name; `web-fetch` and `web_fetch` are the same.

    Args:
        name: The name.
        settings: Settings of the tool to make.

    Raises:
        ValueError: If the name is unknown, or settings are missing or not accepted.
    """
    given = dict(settings or {})
    wanted = tool_name(name)
    for known, kind in built_in("tools").items():
        if wanted in map(tool_name, (known, *kind.aliases)):
            return (_made(kind, given),)
    if name in offered("domains") and (tools := class_of(name, Domain).tools()):
        return _as_they_are(name, tools, given)
    for domain, tools in domain_tools().items():
        if wanted == tool_name(domain):
            return _as_they_are(name, tools, given)
    found = load_installed(name)
    if found is None:
        raise ValueError(_unknown(name))
    value = found.value
    if isinstance(value, type) and issubclass(value, Tool):
        return (_made(value, given),)
    several = value if isinstance(value, list | tuple) else (value,)
    if not all(isinstance(one, Tool) or inspect.isfunction(one) for one in several):
        raise ValueError(f"{name!r} must be a tool: got {found.source}.")
    return _as_they_are(name, tuple(one if isinstance(one, Tool) else tool(one) for one in several), given)


def needed(kind: type[Tool]) -> list[str]:
    """Return the settings that a tool requires."""
    return [name for name, field in kind.model_fields.items() if field.is_required()]


def _made(kind: type[Tool], given: dict[str, Any]) -> Tool:
    missing = [name for name in needed(kind) if name not in given]
    if missing:
        more = " and ".join(f"{name}=…" for name in missing)
        raise ValueError(f"The tool {kind.kind!r} requires settings: {more} ({kind.__name__}).")
    return kind(**given)


def _as_they_are(name: str, tools: tuple[Tool, ...], given: dict[str, Any]) -> tuple[Tool, ...]:
    if given:
        raise ValueError(f"{name!r} names finished tools, which accept no settings: got {', '.join(given)}.")
    return tools


def _unknown(name: str) -> str:
    known = [*names("tools"), *domain_tools()]
    return f"unknown tool {name!r}; {known_names(name, known)}"
