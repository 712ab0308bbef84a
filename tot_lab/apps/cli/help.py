"""Help texts: the list of commands by group, the names of components, and the settings of one component.

Lines fit the width of the terminal and are broken between words only. The help of a command is short:
`tot-lab run --help` lists names, and `tot-lab run react --help` describes one of them.
"""

from __future__ import annotations

import argparse
import inspect
import re
import shutil
import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, get_args, get_origin

from tot_lab.core.parameters import field_docs
from tot_lab.core.parts import Part, class_of, known_names
from tot_lab.core.registry import AXES, axes, built_in, names, offered
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Domain
from tot_lab.core.tool import Tool
from tot_lab.domains.named import domain_names, factory_of
from tot_lab.models import simulated_models
from tot_lab.strategies import presets
from tot_lab.strategies.baselines import baselines
from tot_lab.strategies.search import Stop
from tot_lab.tools import WebSearch
from tot_lab.tools.toolbox import domain_tools, needed

PRESETS: dict[str, Callable[[], Strategy]] = {
    f"presets.{name}": getattr(presets, name) for name in presets.__all__
}


_ASK = "What one of them does, and its settings: tot-lab run NAME --help"


class Formatter(argparse.HelpFormatter):
    """Wraps help between words, and leaves paragraphs with indented lines as they are."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(
            block if "\n  " in block else "\n".join(self._split_lines(block, width))
            for block in text.strip("\n").split("\n\n")
        )


class PartHelp(argparse.Action):
    """`--help [NAME ...]`: describes the components named before or after `--help`, else the command."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, _: Any = None) -> None:
        named = [word for word in [*(namespace.strategy or ()), *values] if "=" not in word]
        try:
            text = "\n\n".join(map(describe_part, named))
            text = text or f"{parser.format_help()}\n{describe_names()}\n{_ASK}"
        except ValueError as error:
            parser.error(str(error))
        print(text.rstrip())
        parser.exit()


def part_names() -> dict[str, list[str]]:
    """Map each kind of component, such as strategies or models, to the names that a command accepts."""
    tools = [name for name, kind in built_in("tools").items() if kind is not WebSearch]
    found = {
        "strategies": [*built_in("strategies"), "baselines"],
        "presets": [*PRESETS],
        **{axis: [*built_in(axis)] for axis in AXES},
        "models": [
            "tiny/numbers",
            *(model.kind for model in simulated_models()),
            "local/NAME",
            "gpt-4.1-mini",
            "…",
        ],
        "domains": [name for name in domain_names() if name not in offered()],
        "tools": [*tools, *(name for name in domain_tools() if name not in offered())],
    }
    return {**found, "from installed packages": sorted(offered())} if offered() else found


def describe_names() -> str:
    """Return the names of all components for the help text of a command."""
    rows = (_wrapped(f"{group}: {', '.join(found)}", "", "  ") for group, found in part_names().items())
    return "\n".join(rows)


def describe_part(name: str) -> str:
    """Describe the component `name`: what it does, and its settings with their defaults and meanings.

    Raises:
        ValueError: There is no such component.
    """
    if name == "baselines":
        return f"{name}\n{_paragraphs(baselines)}\n\nsettings:\n  attempts=5"
    if name in PRESETS:
        strategy = PRESETS[name]()
        same = _wrapped(f"The same as tl.{strategy!r}.")
        more = f"Every setting of {strategy.kind} can follow: tot-lab run {strategy.kind} --help"
        return f"{name}\n{_paragraphs(PRESETS[name])}\n\n{same}\n\n{_wrapped(more)}"
    known = [*names("strategies"), *PRESETS, *(n for axis in AXES for n in names(axis)), *names("tools")]
    known += [*domain_names(), *(model.kind for model in simulated_models())]
    if name not in known:
        raise ValueError(f"Unknown name: got {name!r}; {known_names(name, known)}")
    kind = class_of(name, Part)
    if issubclass(kind, Domain):
        make = factory_of(name)
        problem, *others = inspect.signature(make).parameters.values()
        given = [f"{one.name}={_format_value(one.default)}" for one in others if one.default is not one.empty]
        use = _wrapped(" ".join(["in a command: --task", name, problem.name.upper(), *given]), "", "    ")
        return f"{name}\n{_paragraphs(make)}\n\n{use}"
    rows = [name, _paragraphs(kind)]
    if issubclass(kind, Tool):
        effects = kind.model_fields["effects"].default
        need = [*(f"{setting}=…" for setting in needed(kind)), *(f"--allow {effect}" for effect in effects)]
        rows += ["", _wrapped(f"in a command: --tools {' '.join([name, *need])}")]
    settings = list(settings_of(kind))
    rows += ["", "settings, as FIELD=DEFAULT | OTHER VALUES:" if settings else "no settings"]
    for path, values, meaning in settings:
        rows.append(_wrapped(f"{path}={' | '.join(values)}", "  ", "      "))
        rows += [_wrapped(meaning, "      ", "      ")] if meaning else []
    return "\n".join(rows)


def first_sentence(part: Any) -> str:
    """Return the first sentence of the docstring of `part`, without its full stop."""
    paragraph = " ".join((part.__doc__ or "").partition("\n\n")[0].split())
    return re.split(r"(?<!et al)\. ", paragraph)[0].rstrip(".")


def _paragraphs(part: Any) -> str:
    """Return the docstring of `part` without its references and errors, wrapped and indented."""
    text = inspect.cleandoc(part.__doc__ or "").partition("\n\nReferences:")[0]
    blocks = [
        block if "\n  " in block or block.startswith(" ") else _wrapped(" ".join(block.split()))
        for block in text.split("\n\n")
        if not block.startswith("Raises:")
    ]
    return textwrap.indent("\n\n".join(blocks), "  ")


def settings_of(kind: type[Part], path: str = "") -> Iterator[tuple[str, list[str], str]]:
    """Yield each setting of `kind`: its path, its values with the default first, and what it means.

    If the default of a setting is a component, the settings of that component follow, such as `search.width`.
    """
    docs = field_docs(kind)
    for name, field in kind.model_fields.items():
        if field.exclude or name == "parameters":  # a secret, or the schema of a tool
            continue
        default = None if field.is_required() else field.get_default(call_default_factory=True)
        shown = [] if field.is_required() else [_format_value(default)]
        values = [*shown, *(choice for choice in _choices(field.annotation) if choice not in shown)]
        yield f"{path}{name}", values, " ".join(docs.get(name, "").split())
        if isinstance(default, Part) and not isinstance(default, Strategy) and not path:
            yield from settings_of(type(default), f"{name}.")


def _wrapped(text: str, first: str = "", rest: str = "") -> str:
    width = min(shutil.get_terminal_size().columns, 110) - 2
    return textwrap.fill(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _format_value(value: Any) -> str:
    """Return the value of a setting as it is written on the command line."""
    if isinstance(value, Part):
        return value.kind
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _choices(annotation: Any) -> list[str]:
    """Return the words that a field with this annotation accepts, such as the names of components."""
    if get_origin(annotation) is Literal:
        return list(map(str, get_args(annotation)))
    if annotation is Strategy:
        return ["STRATEGY"]
    if isinstance(annotation, type) and issubclass(annotation, Part) and annotation not in (Part, Strategy):
        return [part.kind for part in (*axes(), Stop) if not annotation.kind and issubclass(part, annotation)]
    return [choice for inner in get_args(annotation) for choice in _choices(inner)]


def list_commands(title: str, parsers: Mapping[str, argparse.ArgumentParser]) -> str:
    """Return one group of commands, each with its description."""
    rows = [_wrapped(f"{name:<10} {parser.description}", "  ", " " * 13) for name, parser in parsers.items()]
    return "\n".join([f"{title}:", *rows])
