"""How things are named in a shell: `NAME FIELD=VALUE …`, for strategies, models, tasks, tools and budgets.

There is one grammar, and it is the notebook's: the fields are those of the Python values, and
what a field may hold is the field's to say. A value is JSON where it reads as JSON, `none`, `true` or
`false` in any case, and text else. What is wrong is named in one line, without what might be a secret.
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
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, ValidationError, validate_call

from tot_lab.core.parts import REGISTRY, Part, class_of, known_names
from tot_lab.core.registry import axes, built_in, names, offered
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Domain, Task
from tot_lab.core.thinking import Budget
from tot_lab.domains import tasks
from tot_lab.lab.settings import allowed_by_user
from tot_lab.lab.sweeps.axes import grid
from tot_lab.models import Cache, model_named, simulated_models
from tot_lab.models.cache import default_folder
from tot_lab.strategies import Stop, baselines, presets
from tot_lab.tools import EffectPolicy, Tool, WebSearch, tools_named
from tot_lab.tools.named import domain_tools, needed

T = TypeVar("T")


class Unusable(ValueError):
    """What was named is not what the command takes."""


@contextmanager
def naming(what: str = "") -> Iterator[None]:
    """What is wrong with what is made inside is `Unusable`, and told in one line that begins with `what`."""
    try:
        yield
    except Unusable:
        raise
    except (ValueError, TypeError, NotImplementedError) as error:
        said = str(error)
        if isinstance(error, ValidationError):
            problem = error.errors(include_url=False, include_input=False)[0]
            path = ".".join(name for name in map(str, problem["loc"]) if name.isidentifier())
            place = f"{path}: " if path and problem["loc"][0] != 0 else ""
            said = place + problem["msg"].removeprefix("Value error, ")
        said = re.sub(r"For further information visit \S+|\[type=[^]]*\]", "", said)
        raise Unusable(" ".join(f"{what}: {said}".removeprefix(": ").split())) from None


# Words.


def fields_in(words: Sequence[str]) -> dict[str, list[Any]]:
    """The values of each field in `FIELD=VALUE,VALUE …`."""
    found: dict[str, list[Any]] = {}
    for word in words:
        field, equals, text = word.partition("=")
        if not equals or not all(name.isidentifier() for name in field.split(".")):
            raise Unusable(
                f"{word!r}: expected FIELD=VALUE; what holds spaces or signs of the shell goes in quotes"
            )
        if field in found:
            raise Unusable(f"{field} is given twice")
        found[field] = _values(text)
    return found


def settings_in(words: Sequence[str]) -> dict[str, Any]:
    """The one value of each field in `FIELD=VALUE …`."""
    found = fields_in(words)
    for field, values in found.items():
        if len(values) > 1:
            raise Unusable(f'{field} takes one value here, not {len(values)}; a text with commas is "…"')
    return {field: value for field, (value,) in found.items()}


_DECODER = json.JSONDecoder()
_SAID = {"none": None, "true": True, "false": False}


def _values(text: str) -> list[Any]:
    """The values that stand between commas; those inside a JSON value part nothing."""
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
            value = _SAID.get(text[at:end].lower(), text[at:end])
        found.append(value)
        at = end + 1
    return found


def _called(make: Callable[..., T], *given: Any, **named: Any) -> T:
    """What a function makes of words, each held against what the function says that it takes."""
    takes = list(inspect.signature(make).parameters.values())[len(given) :]
    if not any(one.kind is one.VAR_KEYWORD for one in takes):
        _expect_known(named, [one.name for one in takes])
    checked = validate_call(config=ConfigDict(strict=True, hide_input_in_errors=True))
    return checked(make)(*given, **named)


def _expect_known(given: Iterable[str], known: Iterable[str]) -> None:
    for field in given:
        if field not in known:
            raise ValueError(f"there is no setting {field!r}; it has {', '.join(known)}")


# What they name.

_PRESETS: dict[str, Callable[[], Strategy]] = {
    f"presets.{name}": getattr(presets, name) for name in presets.__all__
}
_STRATEGIES: dict[str, type[Strategy]] = built_in("strategies")


def strategies_in(words: Sequence[str]) -> dict[str, list[Strategy]]:
    """The strategies in `NAME FIELD=VALUE,VALUE … NAME …`, by name; each field is an axis of its grid."""
    found: dict[str, list[Strategy]] = {}
    groups = _groups(words)
    if not groups:
        raise Unusable(f"name a strategy first: {', '.join(_strategies())}")
    for name, rest in groups:
        with naming(name):
            if name == "baselines":
                made = {label: [one] for label, one in _called(baselines, **settings_in(rest)).items()}
            elif name in _PRESETS:
                made = {name: grid(_PRESETS[name](), **fields_in(rest))}
            elif name in REGISTRY or name in offered():
                made = {name: grid(class_of(name, Strategy), **fields_in(rest))}
            else:
                raise Unusable(f"unknown strategy {name!r}; {known_names(name, _strategies())}")
        for label, settings in made.items():
            found.setdefault(label, []).extend(settings)
    return found


def _groups(words: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Each name with the settings behind it."""
    groups: list[tuple[str, list[str]]] = []
    for word in words:
        if "=" not in word:
            groups.append((word, []))
        elif groups:
            groups[-1][1].append(word)
    return groups


def _strategies() -> list[str]:
    return [*_STRATEGIES, *_PRESETS, "baselines"]


def model_in(words: Sequence[str]) -> Any:
    """The model in `NAME FIELD=VALUE …`."""
    name, *rest = words
    with naming(f"model {name}"):
        model = model_named(name)
        assert isinstance(model, Part)  # no name stands for a function
        given = settings_in(rest)
        for field in given:
            if field in type(model).model_fields and type(model).model_fields[field].exclude:
                raise Unusable(
                    f"{field} is no word for a shell, which keeps what is typed: put it in the environment"
                )
        kept = {field: getattr(model, field) for field in model.model_fields_set}
        return type(model)(**{**kept, **given})


def _number(text: str) -> Any:
    """A puzzle of the package's own, or, as JSON, one of your own."""
    (value,) = values if len(values := _values(text)) == 1 else [text]
    return value


def task_in(words: Sequence[str]) -> Task:
    """The task in `DOMAIN PROBLEM FIELD=VALUE …`."""
    name, *rest = words
    known = _domains()
    if name not in known:
        raise Unusable(f"unknown domain {name!r}; {known_names(name, known)}")
    if not rest:
        raise Unusable(f"--task {name} needs a problem too")
    with naming(f"task {name}"):
        make = class_of(name, Domain).task_factory() or _task_of(name)
        takes = next(iter(get_type_hints(make).values()), str)
        is_text = str in (takes, *get_args(takes))
        return _called(make, rest[0] if is_text else _number(rest[0]), **settings_in(rest[1:]))


def _domains() -> list[str]:
    return [name for name in names("domains") if not name.startswith("published/")]


def _task_of(domain: str) -> Callable[..., Task]:
    """Makes tasks of a domain that has no other way; its fields are the domain's settings."""

    def made(question: str, answer: Any = None, **settings: Any) -> Task:
        return Task(domain=class_of(domain, Domain)(**settings), question=question, reference=answer)

    return made


def tasks_in(words: Sequence[str]) -> list[Task]:
    """The tasks in `FILE FIELD=VALUE …`, or the package's own in `DOMAIN count=N`."""
    name, *rest = words
    with naming(f"tasks {name}"):
        if name in _domains() and (examples := class_of(name, Domain).example_tasks()) is not None:
            return _called(examples, **settings_in(rest))
        if not Path(name).exists():
            known = [one for one in built_in("domains") if class_of(one, Domain).example_tasks()]
            raise Unusable(f"no file {name!r}, nor is it one of {', '.join(known)}")
        return _called(tasks, name, **settings_in(rest))


def tools_in(words: Sequence[str] | None) -> list[Tool]:
    """The tools in `NAME,NAME NAME FIELD=VALUE …`; settings are those of the name before them."""
    parts = [part for word in words or [] for part in ([word] if "=" in word else word.split(",")) if part]
    if parts and "=" in parts[0]:
        raise Unusable(f"--tools: name a tool before {parts[0]}")
    with naming("--tools"):
        return [tool for name, rest in _groups(parts) for tool in tools_named(name, settings_in(rest))]


def allowed_in(words: Sequence[str] | None) -> list[str] | None:
    """The effects in `NAME,NAME …`; `None` where the option was not given."""
    return None if words is None else [name for word in words for name in word.split(",") if name]


def policy_in(words: Sequence[str] | None, tools: Sequence[Tool]) -> EffectPolicy | None:
    """What `tools` may do: the effects in `NAME,NAME …`, and none else; where the option was not given, those
    of their effects that the user's own settings file allows. A tool that could never be called is refused
    here, before any model is asked."""
    allowed = allowed_in(words) or []
    if not tools and allowed:
        raise Unusable("--allow is for the effects of --tools, and there are none")
    effects = sorted({effect for tool in tools for effect in tool.effects})
    if words is None and effects:
        known = {*effects, *(tool.name for tool in tools)}
        allowed = sorted(known & allowed_by_user())
    for name in allowed:
        if name not in effects and all(name != tool.name for tool in tools):
            raise Unusable(f"--allow {name}: no tool has this effect; {known_names(name, effects)}")
    policy = EffectPolicy(allow=frozenset(allowed))
    refused = [tool for tool in tools if policy.refusal(tool.spec)]
    if refused:
        reach = "; ".join(f"{tool.name} has {_listed(tool.effects)}" for tool in refused)
        lacking = ",".join(sorted({effect for tool in refused for effect in tool.effects} | {*allowed}))
        raise Unusable(f"tools have no effects but those that you allow: {reach}; add --allow {lacking}")
    return policy if tools else None


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def budget_in(words: Sequence[str] | None) -> Budget | None:
    """The budget in `FIELD=VALUE …`."""
    with naming("budget"):
        given = settings_in(words or [])
        _expect_known(given, Budget.model_fields)
        return Budget(**given) if given else None


def described() -> str:
    """The strategies with their settings, the models, domains and tools, as help shows them."""
    lines = ["strategies, with the settings that each has and their defaults:"]
    for name, strategy in _STRATEGIES.items():
        lines += [f"  {name}: {_first_line(strategy)}", *_wrapped(strategy)]
    lines += [f"  {name}: {_first_line(preset)}" for name, preset in _PRESETS.items()]
    lines += [
        "  baselines: what a search is to be held against; four strategies, attempts=5",
        "",
        "models:",
        *(f"  {model.kind}: {_first_line(model)}" for model in simulated_models()),
        "  local/NAME, or any litellm name such as gpt-4.1-mini (its key: OPENAI_API_KEY in the environment)",
        "",
        f"domains: {', '.join(_domains())}",
        "",
        "tools, with what they need and have to be allowed:",
        *(
            f"  {_tool_in_words(kind)}: {_first_line(kind)}"
            for kind in built_in("tools").values()
            if kind is not WebSearch
        ),
        *(f"  {domain}: {_listed(tool.name for tool in made)}" for domain, made in domain_tools().items()),
        "",
        *([f"from installed packages: {', '.join(sorted(offered()))}"] if offered() else []),
    ]
    return "\n".join(lines)


def _tool_in_words(kind: type[Tool]) -> str:
    """Its name, what it needs, and what it has to be allowed."""
    effects = kind.model_fields["effects"].default
    said = [*(f"{name}=…" for name in needed(kind)), *(f"--allow {effect}" for effect in effects)]
    return " ".join([kind.kind, *said])


def _first_line(documented: Any) -> str:
    """The first sentence of its documentation."""
    paragraph = " ".join((documented.__doc__ or "").partition("\n\n")[0].split())
    sentence = re.split(r"(?<!et al)\. ", paragraph)[0].rstrip(".")
    return textwrap.shorten(sentence, 84, placeholder=" …")


def _wrapped(part: type[Part]) -> list[str]:
    """Its settings as `FIELD=DEFAULT|OTHER …`, in lines that a terminal holds."""
    shown = []
    for name, field in part.model_fields.items():
        default = [] if field.is_required() else [_written(field.get_default(call_default_factory=True))]
        others = [choice for choice in _choices(field.annotation) if choice not in default]
        shown.append(f"{name}={'|'.join([*default, *others])}")
    return textwrap.wrap(" ".join(shown), 100, initial_indent=_INSIDE, subsequent_indent=_INSIDE)


_INSIDE = " " * 6


def _written(value: Any) -> str:
    """A value of a setting as a shell's word."""
    if isinstance(value, Part):
        return value.kind
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _choices(annotation: Any) -> list[str]:
    """The words that a field of that type may hold."""
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    if annotation is Strategy:
        return list(_STRATEGIES)
    if isinstance(annotation, type) and issubclass(annotation, Part) and not annotation.kind:
        return [part.kind for part in (*axes(), Stop) if issubclass(part, annotation)]
    return [choice for inner in get_args(annotation) for choice in _choices(inner)]


# Parsers.


def command(
    commands: Any, name: str, what: str, carry_out: Callable[[argparse.Namespace], int | None] | None = None
) -> argparse.ArgumentParser:
    """Add a command with one line of help. `carry_out=None` keeps the function of its group."""
    made: argparse.ArgumentParser = commands.add_parser(
        name,
        help=what,
        description=f"{what[0].upper()}{what[1:]}.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if carry_out is not None:
        made.set_defaults(carry_out=carry_out)
    return made


def add_runs(parser: argparse.ArgumentParser) -> None:
    """Journals, and folders of them."""
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="a run's journal, or a folder of them"
    )


def add_cache(parser: argparse.ArgumentParser, what: str = "which (default: your own)") -> None:
    """A cache by its place."""
    parser.add_argument("--cache", type=Path, metavar="DIR", help=what)


TOOL_OPTIONS: dict[str, dict[str, Any]] = {
    "--tools": {
        "nargs": "+",
        "metavar": ("NAME,NAME", "FIELD=VALUE"),
        "help": "what the strategy may call: calculator,python or read_file root=notes; multi_hop: the "
        "documents of that domain; `tot-lab run --help` lists them",
    },
    "--allow": {
        "nargs": "+",
        "metavar": "EFFECT",
        "help": "what these tools may do besides computing: network,files,process (default: what your "
        "own settings file allows)",
    },
}


def add_tools(parser: argparse.ArgumentParser) -> None:
    """Tools, and what they may do."""
    for option, settings in TOOL_OPTIONS.items():
        parser.add_argument(option, **settings)


def existing_cache(path: Path | None) -> Cache:
    """A cache that is there: a wrong name makes no empty one."""
    path = path or default_folder()
    cache = Cache(path, create=False) if path.exists() else None
    if cache is None or not cache.stores:
        raise FileNotFoundError(f"{path}: there is no cache here")
    return cache
