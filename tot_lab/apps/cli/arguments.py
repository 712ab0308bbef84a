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
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ConfigDict, ValidationError, validate_call

from tot_lab.apps.cli.help import PRESETS, Formatter
from tot_lab.core.parts import REGISTRY, Part, class_of, known_names
from tot_lab.core.policy import written
from tot_lab.core.protocol import Budget
from tot_lab.core.registry import built_in, offered
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Domain, Task
from tot_lab.domains import tasks
from tot_lab.domains.named import domain_names, factory_of, problem_in
from tot_lab.lab.lab import Lab
from tot_lab.lab.settings import allowed_by_user
from tot_lab.lab.sweeps.axes import grid
from tot_lab.models import Cache, model_named
from tot_lab.models.cache import default_folder
from tot_lab.models.stack import Endpoint
from tot_lab.strategies.baselines import baselines
from tot_lab.tools import EffectPolicy, Tool, tools_named

T = TypeVar("T")


class InvalidArgument(ValueError):
    """Raised for an invalid argument of the command line."""


@contextmanager
def argument_errors(what: str = "") -> Iterator[None]:
    """Convert a `ValueError`, `TypeError` or `NotImplementedError` of the block into an `InvalidArgument`.
    Its message is one line and begins with `what`. An `InvalidArgument` of the block is not changed.
    """
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
                f"{word!r}: expected FIELD=VALUE, without spaces around =. Quote values that contain spaces "
                f"or shell characters."
            )
        if field in found:
            raise InvalidArgument(f"{field} is given twice. Give each field once.")
        found[field] = _values(text)
    return found


def parse_settings(words: Sequence[str]) -> dict[str, Any]:
    """Parse `FIELD=VALUE …`, one value per field."""
    found = parse_fields(words)
    for field, values in found.items():
        if len(values) > 1:
            raise InvalidArgument(
                f"{field} takes one value: got {len(values)}. Write a text with commas as JSON: "
                f"{field}='\"a, b\"'."
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
    """Call `make` with parsed arguments, after validating them against the annotations of `make`."""
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

_STRATEGIES: dict[str, type[Strategy]] = built_in("strategies")


def parse_strategies(words: Sequence[str]) -> dict[str, list[Strategy]]:
    """Parse `NAME FIELD=VALUE,VALUE … NAME …` into strategies by name.

    Every combination of the values of the fields becomes a strategy.
    """
    found: dict[str, list[Strategy]] = {}
    parse_fields([word for word in words if word.startswith("=")])  # a word that begins with "=" is an error
    groups = _group_by_name(words)
    if not groups:
        raise InvalidArgument(f"No strategy given. Begin with one of {', '.join(_strategies())}.")
    if "=" in words[0]:
        raise InvalidArgument(f"Name a strategy before {words[0]}.")
    for name, rest in groups:
        with argument_errors(name):
            if name == "baselines":
                made = {
                    label: [one] for label, one in _call_validated(baselines, **parse_settings(rest)).items()
                }
            elif name in PRESETS:
                made = {name: grid(PRESETS[name](), **parse_fields(rest))}
            elif name in REGISTRY or name in offered():
                made = {name: grid(class_of(name, Strategy), **parse_fields(rest))}
            else:
                raise InvalidArgument(f"Unknown strategy {name!r}; {known_names(name, _strategies())}.")
        for label, settings in made.items():
            found.setdefault(label, []).extend(settings)
    return found


OFFERED = ("one_answer", "chain_of_thought", "self_consistency", "tree_of_thoughts")
"""The strategies that are offered without `--as`."""


def parse_offers(words: Sequence[str] | None) -> dict[str, Strategy]:
    """Parse texts `NAME=STRATEGY FIELD=VALUE …` into strategies by name. `None` means `OFFERED`."""
    found: dict[str, Strategy] = {}
    for word in words if words is not None else [f"{name}={name}" for name in OFFERED]:
        name, _, rest = word.partition("=")
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name) or name in found or not rest.strip():
            expected = 'NAME="STRATEGY FIELD=VALUE ...", with a new NAME of letters, digits, -, _ and .'
            raise InvalidArgument(f"--as {word!r}: expected {expected}")
        with argument_errors(f"--as {name}"):
            made = [one for strategies in parse_strategies(shlex.split(rest)).values() for one in strategies]
        if len(made) != 1:
            raise InvalidArgument(
                f"--as {name}: must be one strategy: got {len(made)}. Give one value per field."
            )
        found[name] = made[0]
    return found


def add_offers(parser: Any) -> None:
    """Add the option `--as`. `parse_offers` parses its values, which are in `args.offers`."""
    parser.add_argument(
        "--as",
        dest="offers",
        action="append",
        metavar="NAME=STRATEGY",
        help='offer a strategy under a name: fast="tree_of_thoughts search.width=2"; may be repeated '
        f"(default: {', '.join(OFFERED)}, under their own names)",
    )


def _group_by_name(words: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Group the words, of which the first is a name: each name with the settings after it."""
    groups: list[tuple[str, list[str]]] = []
    for word in words:
        if "=" not in word:
            groups.append((word, []))
        elif groups:
            groups[-1][1].append(word)
    return groups


def _strategies() -> list[str]:
    return [*_STRATEGIES, *PRESETS, "baselines"]


def parse_model(words: Sequence[str]) -> Any:
    """Parse `NAME FIELD=VALUE …` into a model."""
    name, *rest = words
    with argument_errors(f"model {name}"):
        model = model_named(name)
        assert isinstance(model, Part)  # for the type checker: `model_named` returns only parts
        fields = parse_fields(rest)
        given = {field: values if len(values) > 1 else values[0] for field, values in fields.items()}
        for field in given:
            if field in type(model).model_fields and type(model).model_fields[field].exclude:
                raise InvalidArgument(
                    f"{field} must not be given on the command line. Set it in the environment."
                )
            if "." in field and field.partition(".")[0] not in type(model).model_fields:
                raise InvalidArgument(
                    f"model {name} has no setting {field!r}. Settings of the strategy come before --model."
                )
        if isinstance(model, Endpoint):
            return model.configured(**given)
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
        if not name.startswith("gym:") and not Path(name).exists():
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
    """Return the policy that allows `tools` the effects in `words`. Returns `None` if there are no tools.

    `words` are `NAME,NAME …`. If they are `None`, the user's settings file determines the effects.

    Raises:
        InvalidArgument: The policy would refuse every call of some tool, or an effect belongs to no tool.
    """
    allowed = parse_effects(words) or []
    if not tools and allowed:
        raise InvalidArgument("--allow needs --tools: no tools are given.")
    effects = sorted({effect for tool in tools for effect in tool.effects or ()})
    if words is None and any(tool.effects != () for tool in tools):
        known = {*effects, *(tool.name for tool in tools)}
        allowed = sorted(known & allowed_by_user())
    for name in allowed:
        if name not in effects and all(name != tool.name for tool in tools):
            raise InvalidArgument(f"--allow {name}: no tool has this effect; {known_names(name, effects)}.")
    policy = EffectPolicy(allow=frozenset(allowed))
    refused = [tool for tool in tools if policy.refusal(tool.spec)]
    if refused:
        reach = "; ".join(f"{tool.name}: {written(tool.effects)}" for tool in refused)
        needed = {name for tool in refused for name in tool.effects or (tool.name,)}
        lacking = ",".join(sorted(needed | {*allowed}))
        raise InvalidArgument(f"The effects of these tools are not allowed: {reach}; add --allow {lacking}")
    return policy if tools else None


def parse_budget(words: Sequence[str] | None) -> Budget | None:
    """Parse `FIELD=VALUE …` into a budget. Returns `None` if `words` is empty."""
    if words and "=" not in words[0]:
        raise InvalidArgument(f"--budget must be FIELD=VALUE, such as calls=60: got {words[0]!r}.")
    with argument_errors("budget"):
        given = parse_settings(words or [])
        _expect_known(given, Budget.model_fields)
        return Budget(**given) if given else None


def parse_lab(args: argparse.Namespace, runs: Path | str) -> Lab:
    """Return the lab that the options of `args` describe. It keeps its journals in `runs`."""
    with argument_errors():
        model, tools = parse_model(args.model), parse_tools(args.tools)
        settings = {"cache": args.cache, "mode": args.mode, "spend": args.spend}
        policy = effect_policy_for(args.allow, tools)
        return Lab(model, runs=runs, tools=tools, effect_policy=policy, **settings)


# Parsers.


def command(
    commands: Any,
    name: str,
    what: str,
    handler: Callable[[argparse.Namespace], int | None] | None = None,
    add_help: bool = True,
) -> argparse.ArgumentParser:
    """Add the command `name`, described by `what`. Without `handler`, that of the parent command is used."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=what,
        description=f"{what[0].upper()}{what[1:]}.",
        formatter_class=Formatter,
        add_help=add_help,
    )
    if handler is not None:
        parser.set_defaults(handler=handler)
    return parser


def add_runs(parser: Any) -> None:
    """Add the positional argument `RUN`."""
    parser.add_argument(
        "runs",
        nargs="+",
        type=Path,
        metavar="RUN",
        help="a run's journal, or a folder of runs and sweeps",
    )


def add_cache(parser: Any, what: str = "folder of the cache (default: your own)") -> None:
    """Add the option `--cache`."""
    parser.add_argument("--cache", type=Path, metavar="DIR", help=what)


TOOL_OPTIONS: dict[str, dict[str, Any]] = {
    "--tools": {
        "nargs": "+",
        "metavar": ("NAME,NAME", "FIELD=VALUE"),
        "help": "tools for the strategy: calculator,python or read_file root=notes; multi_hop: the "
        "documents of that domain",
    },
    "--allow": {
        "nargs": "+",
        "metavar": "EFFECT",
        "help": "effects these tools may have: network,files,process (default: those in your settings file)",
    },
}


def add_tools(parser: Any) -> None:
    """Add the options `--tools` and `--allow`."""
    for option, settings in TOOL_OPTIONS.items():
        parser.add_argument(option, **settings)


def existing_cache(path: Path | None) -> Cache:
    """Open the cache at `path`. `None` means the default cache of the user.

    Raises:
        FileNotFoundError: The cache does not exist or has no stores. No cache is created.
    """
    path = path or default_folder()
    cache = Cache(path, create=False) if path.exists() else None
    if cache is None or not cache.stores:
        raise FileNotFoundError(
            f"{path}: no cache found. Expected a folder, or a file of `tot-lab cache export`."
        )
    return cache


def integer_from(least: int) -> Any:
    """Return the type of an option that takes an integer of at least `least`."""

    def number(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected an integer of at least {least}: got {text!r}")
        return int(text)

    return number
