"""The grammar `NAME FIELD=VALUE …` for strategies, models, tasks, tools and budgets.

Field names and their validation are those of the Python classes. A value is JSON if it parses as JSON;
`none`, `true` and `false` are recognised in upper and lower case. Anything else is text. Errors are one line
and never quote a value that might be a secret.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import ConfigDict, ValidationError, validate_call

from tot_lab.core.domain import Domain
from tot_lab.core.parts import REGISTRY, Part, class_of, known_names
from tot_lab.core.registry import axes, built_in, offered
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Task
from tot_lab.core.thinking import Budget
from tot_lab.domains import tasks
from tot_lab.domains.named import domain_names, factory_of, problem_in
from tot_lab.lab.settings import allowed_by_user
from tot_lab.lab.sweeps.axes import grid
from tot_lab.models import Cache, model_named, simulated_models
from tot_lab.models.cache import default_folder
from tot_lab.strategies import Stop, baselines, presets
from tot_lab.tools import EffectPolicy, Tool, WebSearch, tools_named
from tot_lab.tools.named import domain_tools, needed

T = TypeVar("T")


class InvalidArgument(ValueError):
    """Raised for an invalid argument of the command line."""


@contextmanager
def argument_errors(what: str = "") -> Iterator[None]:
    """Convert errors raised in the block into a one-line `InvalidArgument` that begins with `what`."""
    try:
        yield
    except InvalidArgument:
        raise
    except (ValueError, TypeError, NotImplementedError) as error:
        message = str(error)
        if isinstance(error, ValidationError):
            problem = error.errors(include_url=False, include_input=False)[0]
            path = ".".join(name for name in map(str, problem["loc"]) if name.isidentifier())
            place = f"{path}: " if path and problem["loc"][0] != 0 else ""
            message = place + problem["msg"].removeprefix("Value error, ")
        message = re.sub(r"For further information visit \S+|\[type=[^]]*\]", "", message)
        raise InvalidArgument(" ".join(f"{what}: {message}".removeprefix(": ").split())) from None


# Fields and values.


def parse_fields(words: Sequence[str]) -> dict[str, list[Any]]:
    """Parse `FIELD=VALUE,VALUE …` into the values of each field."""
    found: dict[str, list[Any]] = {}
    for word in words:
        field, equals, text = word.partition("=")
        if not equals or not all(name.isidentifier() for name in field.split(".")):
            raise InvalidArgument(
                f"{word!r}: expected FIELD=VALUE. Quote values that contain spaces or shell characters."
            )
        if field in found:
            raise InvalidArgument(f"{field} is given twice.")
        found[field] = _values(text)
    return found


def parse_settings(words: Sequence[str]) -> dict[str, Any]:
    """Parse `FIELD=VALUE …`, one value per field."""
    found = parse_fields(words)
    for field, values in found.items():
        if len(values) > 1:
            raise InvalidArgument(
                f"{field} takes one value: got {len(values)}. Put a text with commas in double quotes."
            )
    return {field: value for field, (value,) in found.items()}


_DECODER = json.JSONDecoder()
_LITERALS = {"none": None, "true": True, "false": False}


def _values(text: str) -> list[Any]:
    """Split `text` at the commas outside JSON values, and parse each part."""
    found: list[Any] = []
    at = 0
    while at <= len(text):
        try:
            value, end = _DECODER.raw_decode(text, at)
            is_whole = end == len(text) or text[end] == ","
        except (ValueError, RecursionError):
            is_whole = False
        if not is_whole:
            end = (text + ",").index(",", at)
            value = _LITERALS.get(text[at:end].lower(), text[at:end])
        found.append(value)
        at = end + 1
    return found


def _call_validated(make: Callable[..., T], *given: Any, **named: Any) -> T:
    """Call `make` with parsed arguments, validated against its annotations."""
    takes = list(inspect.signature(make).parameters.values())[len(given) :]
    if not any(one.kind is one.VAR_KEYWORD for one in takes):
        _expect_known(named, [one.name for one in takes])
    checked = validate_call(config=ConfigDict(strict=True, hide_input_in_errors=True))
    return checked(make)(*given, **named)


def _expect_known(given: Iterable[str], known: Iterable[str]) -> None:
    for field in given:
        if field not in known:
            raise ValueError(f"Unknown setting: got {field!r}. Known are {', '.join(known)}.")


# Strategies, models, tasks, tools and budgets.

_PRESETS: dict[str, Callable[[], Strategy]] = {
    f"presets.{name}": getattr(presets, name) for name in presets.__all__
}
_STRATEGIES: dict[str, type[Strategy]] = built_in("strategies")


def parse_strategies(words: Sequence[str]) -> dict[str, list[Strategy]]:
    """Parse `NAME FIELD=VALUE,VALUE … NAME …` into strategies by name.

    Every combination of the values of the fields becomes a strategy.
    """
    found: dict[str, list[Strategy]] = {}
    groups = _group_by_name(words)
    if not groups:
        raise InvalidArgument(f"No strategy given. Begin with one of {', '.join(_strategies())}.")
    for name, rest in groups:
        with argument_errors(name):
            if name == "baselines":
                make_task = {
                    label: [one] for label, one in _call_validated(baselines, **parse_settings(rest)).items()
                }
            elif name in _PRESETS:
                make_task = {name: grid(_PRESETS[name](), **parse_fields(rest))}
            elif name in REGISTRY or name in offered():
                make_task = {name: grid(class_of(name, Strategy), **parse_fields(rest))}
            else:
                raise InvalidArgument(f"Unknown strategy {name!r}; {known_names(name, _strategies())}.")
        for label, settings in make_task.items():
            found.setdefault(label, []).extend(settings)
    return found


def _group_by_name(words: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Group the words: each name with the settings that follow it."""
    groups: list[tuple[str, list[str]]] = []
    for word in words:
        if "=" not in word:
            groups.append((word, []))
        elif groups:
            groups[-1][1].append(word)
    return groups


def _strategies() -> list[str]:
    return [*_STRATEGIES, *_PRESETS, "baselines"]


def parse_model(words: Sequence[str]) -> Any:
    """Parse `NAME FIELD=VALUE …` into a model."""
    name, *rest = words
    with argument_errors(f"model {name}"):
        model = model_named(name)
        assert isinstance(model, Part)  # every model that has a name is a part
        given = parse_settings(rest)
        for field in given:
            if field in type(model).model_fields and type(model).model_fields[field].exclude:
                raise InvalidArgument(
                    f"{field} must not be given on the command line. Set it in the environment."
                )
        kept = {field: getattr(model, field) for field in model.model_fields_set}
        return type(model)(**{**kept, **given})


def parse_task(words: Sequence[str]) -> Task:
    """Parse `DOMAIN PROBLEM FIELD=VALUE …` into a task."""
    name, *rest = words
    known = domain_names()
    if name not in known:
        raise InvalidArgument(f"Unknown domain {name!r}; {known_names(name, known)}.")
    if not rest:
        raise InvalidArgument(f"--task {name} needs a problem after the domain.")
    with argument_errors(f"task {name}"):
        make = factory_of(name)
        return _call_validated(make, problem_in(rest[0], make), **parse_settings(rest[1:]))


def parse_tasks(words: Sequence[str]) -> list[Task]:
    """Parse `FILE FIELD=VALUE …`, or `DOMAIN count=N` for bundled tasks."""
    name, *rest = words
    with argument_errors(f"tasks {name}"):
        if name in domain_names() and (examples := class_of(name, Domain).example_tasks()) is not None:
            return _call_validated(examples, **parse_settings(rest))
        if not Path(name).exists():
            known = [one for one in built_in("domains") if class_of(one, Domain).example_tasks()]
            raise InvalidArgument(
                f"{name!r} is neither a file nor a domain with bundled tasks ({', '.join(known)})."
            )
        return _call_validated(tasks, name, **parse_settings(rest))


def parse_tools(words: Sequence[str] | None) -> list[Tool]:
    """Parse `NAME,NAME NAME FIELD=VALUE …` into tools. Settings apply to the name before them."""
    parts = [part for word in words or [] for part in ([word] if "=" in word else word.split(",")) if part]
    if parts and "=" in parts[0]:
        raise InvalidArgument(f"--tools: name a tool before {parts[0]}.")
    with argument_errors("--tools"):
        return [
            tool for name, rest in _group_by_name(parts) for tool in tools_named(name, parse_settings(rest))
        ]


def parse_effects(words: Sequence[str] | None) -> list[str] | None:
    """Parse `NAME,NAME …` into effects. Returns `None` if the option is missing."""
    return None if words is None else [name for word in words for name in word.split(",") if name]


def effect_policy_for(words: Sequence[str] | None, tools: Sequence[Tool]) -> EffectPolicy | None:
    """Return the policy that allows `tools` the effects in `NAME,NAME …`.

    If the option is missing, the user's settings file determines the effects.

    Raises:
        InvalidArgument: The policy never allows a call of some tool, or no tool has one of the effects.
    """
    allowed = parse_effects(words) or []
    if not tools and allowed:
        raise InvalidArgument("--allow needs --tools: no tools are given.")
    effects = sorted({effect for tool in tools for effect in tool.effects})
    if words is None and effects:
        known = {*effects, *(tool.name for tool in tools)}
        allowed = sorted(known & allowed_by_user())
    for name in allowed:
        if name not in effects and all(name != tool.name for tool in tools):
            raise InvalidArgument(f"--allow {name}: no tool has this effect; {known_names(name, effects)}.")
    policy = EffectPolicy(allow=frozenset(allowed))
    refused = [tool for tool in tools if policy.refusal(tool.spec)]
    if refused:
        reach = "; ".join(f"{tool.name} has {_join(tool.effects)}" for tool in refused)
        lacking = ",".join(sorted({effect for tool in refused for effect in tool.effects} | {*allowed}))
        raise InvalidArgument(f"The effects of these tools are not allowed: {reach}; add --allow {lacking}")
    return policy if tools else None


def _join(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def parse_budget(words: Sequence[str] | None) -> Budget | None:
    """Parse `FIELD=VALUE …` into a budget. Returns `None` if `words` is empty."""
    with argument_errors("budget"):
        given = parse_settings(words or [])
        _expect_known(given, Budget.model_fields)
        return Budget(**given) if given else None


def describe_parts() -> str:
    """Return the list of strategies, models, domains and tools for the help text."""
    lines = ["strategies, with their settings and defaults:"]
    for name, strategy in _STRATEGIES.items():
        lines += [f"  {name}: {_first_sentence(strategy)}", *_format_settings(strategy)]
    lines += [f"  {name}: {_first_sentence(preset)}" for name, preset in _PRESETS.items()]
    lines += [
        "  baselines: four strategies to compare a search with, attempts=5",
        "",
        "models:",
        *(f"  {model.kind}: {_first_sentence(model)}" for model in simulated_models()),
        "  local/NAME, or any litellm name such as gpt-4.1-mini (its key: OPENAI_API_KEY in the environment)",
        "",
        f"domains: {', '.join(domain_names())}",
        "",
        "tools, with their required settings and effects:",
        *(
            f"  {_describe_tool(kind)}: {_first_sentence(kind)}"
            for kind in built_in("tools").values()
            if kind is not WebSearch
        ),
        *(
            f"  {domain}: {_join(tool.name for tool in make_task)}"
            for domain, make_task in domain_tools().items()
        ),
        "",
        *([f"from installed packages: {', '.join(sorted(offered()))}"] if offered() else []),
    ]
    return "\n".join(lines)


def _describe_tool(kind: type[Tool]) -> str:
    """Return the name of a tool with its required settings and effects."""
    effects = kind.model_fields["effects"].default
    requirements = [*(f"{name}=…" for name in needed(kind)), *(f"--allow {effect}" for effect in effects)]
    return " ".join([kind.kind, *requirements])


def _first_sentence(part: Any) -> str:
    """Return the first sentence of a docstring."""
    paragraph = " ".join((part.__doc__ or "").partition("\n\n")[0].split())
    sentence = re.split(r"(?<!et al)\. ", paragraph)[0].rstrip(".")
    return textwrap.shorten(sentence, 84, placeholder=" …")


def _format_settings(part: type[Part]) -> list[str]:
    """Return the settings of `part` as `FIELD=DEFAULT|OTHER …`, wrapped for a terminal."""
    shown = []
    for name, field in part.model_fields.items():
        default = [] if field.is_required() else [_format_value(field.get_default(call_default_factory=True))]
        others = [choice for choice in _choices(field.annotation) if choice not in default]
        shown.append(f"{name}={'|'.join([*default, *others])}")
    return textwrap.wrap(" ".join(shown), 100, initial_indent=_INSIDE, subsequent_indent=_INSIDE)


_INSIDE = " " * 6


def _format_value(value: Any) -> str:
    """Return the value of a setting as it is written on the command line."""
    if isinstance(value, Part):
        return value.kind
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _choices(annotation: Any) -> list[str]:
    """Return the names that are accepted by a field with this annotation."""
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    if annotation is Strategy:
        return list(_STRATEGIES)
    if isinstance(annotation, type) and issubclass(annotation, Part) and not annotation.kind:
        return [part.kind for part in (*axes(), Stop) if issubclass(part, annotation)]
    return [choice for inner in get_args(annotation) for choice in _choices(inner)]


# Parsers.


def command(
    commands: Any, name: str, what: str, handler: Callable[[argparse.Namespace], int | None] | None = None
) -> argparse.ArgumentParser:
    """Add a command with one line of help. If `handler` is `None`, the handler of the group is used."""
    make_task: argparse.ArgumentParser = commands.add_parser(
        name,
        help=what,
        description=f"{what[0].upper()}{what[1:]}.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if handler is not None:
        make_task.set_defaults(handler=handler)
    return make_task


def add_runs(parser: argparse.ArgumentParser) -> None:
    """Add the positional argument `RUN`."""
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="a run's journal, or a folder of journals"
    )


def add_cache(parser: argparse.ArgumentParser, what: str = "folder of the cache (default: your own)") -> None:
    """Add the option `--cache`."""
    parser.add_argument("--cache", type=Path, metavar="DIR", help=what)


TOOL_OPTIONS: dict[str, dict[str, Any]] = {
    "--tools": {
        "nargs": "+",
        "metavar": ("NAME,NAME", "FIELD=VALUE"),
        "help": "tools for the strategy: calculator,python or read_file root=notes; multi_hop: the "
        "documents of that domain; `tot-lab run --help` lists all",
    },
    "--allow": {
        "nargs": "+",
        "metavar": "EFFECT",
        "help": "effects these tools may have: network,files,process (default: those in your settings file)",
    },
}


def add_tools(parser: argparse.ArgumentParser) -> None:
    """Add the options `--tools` and `--allow`."""
    for option, settings in TOOL_OPTIONS.items():
        parser.add_argument(option, **settings)


def existing_cache(path: Path | None) -> Cache:
    """Open the cache at `path` (default: your own).

    Raises:
        FileNotFoundError: The cache does not exist. It is not created.
    """
    path = path or default_folder()
    cache = Cache(path, create=False) if path.exists() else None
    if cache is None or not cache.stores:
        raise FileNotFoundError(f"{path}: no cache found.")
    return cache
