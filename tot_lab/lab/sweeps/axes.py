"""Settings and tasks of a sweep, and their labels.

A label shows only the settings that differ, so that a table can be read without the code that made it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from itertools import product
from typing import Any, TypeAlias

from pydantic import BaseModel

from tot_lab.core.strategy import Strategy, strategy_named
from tot_lab.core.task import Task

Named: TypeAlias = Strategy | str
"""A strategy, or the name of a strategy, which then has its default settings."""

Strategies: TypeAlias = Named | Iterable[Named] | Mapping[str, Named | Iterable[Named]]


class Grid(list[Strategy]):
    """The strategies of a grid.

    Attributes:
        skipped: Number of skipped combinations by path. A combination is skipped if one of its parts has no
            setting at that path, and without this setting it equals an earlier combination.
    """

    def __init__(self, strategies: Iterable[Strategy] = (), skipped: Mapping[str, int] | None = None) -> None:
        super().__init__(strategies)
        self.skipped: dict[str, int] = dict(skipped or {})

    def __repr__(self) -> str:
        left_out = "".join(f"; {n} skipped: no {path}" for path, n in self.skipped.items())
        return f"<Grid of {len(self)} strategies{left_out}>"


def grid(strategy: type[Strategy] | Strategy, paths: Mapping[str, Any] | None = None, /, **axes: Any) -> Grid:
    """Return every combination of the values of some settings. The last setting changes fastest.

        tl.grid(tl.TreeOfThoughts, {"search.width": [1, 2, 5], "propose": ["sample", "propose"]})
        tl.grid(tl.presets.game24(), {"search.width": range(1, 6)}) + [tl.OneAnswer()]

    If a part has no setting at a path, the values for that path make no difference, and only one strategy is
    kept: `{"search": ["beam_search", "mcts"], "search.exploration": [0.5, 1.0]}` gives one beam search
    and two MCTS, and `skipped` counts the second beam search.

    Args:
        strategy: A strategy class, or a strategy whose other settings are kept.
        paths: Values by the path of a setting: a list, a tuple, a range, an array, or a single value.
        axes: Values by the name of a top-level setting.

    Raises:
        ValueError: If a setting does not accept a value, or no combination has a setting at one of the paths.
    """
    if isinstance(strategy, Strategy):
        kind, fixed = type(strategy), {name: getattr(strategy, name) for name in strategy.model_fields_set}
    elif isinstance(strategy, type) and issubclass(strategy, Strategy):
        kind, fixed = strategy, {}
    else:
        raise TypeError(f"strategy must be a strategy such as tl.TreeOfThoughts: got {strategy!r}.")
    values = {name: _values(name, given) for name, given in {**(paths or {}), **axes}.items()}
    made: list[Strategy] = []
    skipped: Counter[str] = Counter()
    found: set[str] = set()
    incomplete: set[str] = set()
    given: dict[str, Any] = {}
    for chosen in product(*values.values()):
        settings = kind.by_path(dict(zip(values, chosen, strict=True)))
        given.update(settings)
        own = {name: value for name, value in settings.items() if "." not in name}
        one = kind(**{**fixed, **own})
        inside = {path: value for path, value in settings.items() if "." in path and _has(one, path)}
        found.update(inside)
        one = one.with_(inside)
        missing = settings.keys() - own.keys() - inside.keys()
        if missing and repr(one.settings()) in incomplete:
            skipped.update(sorted(missing))
            continue
        if missing:
            incomplete.add(repr(one.settings()))
        made.append(one)
    unknown = [path for path in given if "." in path and path not in found]
    if unknown:
        known = dict.fromkeys(path for one in made for path in flat_settings(one))
        near = get_close_matches(unknown[0], known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"No strategy of the grid has a setting {unknown[0]!r}.{hint}")
    return Grid(made, skipped)


def _has(part: Any, path: str) -> bool:
    """Whether `part` has a setting at `path`."""
    head, _, rest = path.partition(".")
    if not isinstance(part, BaseModel) or head not in type(part).model_fields:
        return False
    return not rest or _has(getattr(part, head), rest)


def _values(name: str, given: Any) -> list[Any]:
    given = given.tolist() if type(given).__module__ == "numpy" else given
    values = list(given) if isinstance(given, list | tuple | range) else [given]
    if not values:
        raise ValueError(f"{name!r} must have at least one value.")
    return values


def label_strategies(strategies: Strategies) -> dict[str, Strategy]:
    """Return a dict from labels to strategies.

    A label is the key of a dict, or else the name of the class. Strategies with the same name are
    distinguished by the settings that differ between them (`TreeOfThoughts propose=sample search.width=2`).
    """
    if isinstance(strategies, Mapping):
        groups = [(single_line(str(label)), _listed(given)) for label, given in strategies.items()]
        for label, given in groups:
            if not given:
                raise ValueError(f"{label!r} must have at least one strategy.")
        named = [(label, strategy) for label, given in groups for strategy in given]
    else:
        named = [(type(strategy).__name__, strategy) for strategy in _listed(strategies)]
    if not named:
        raise ValueError("strategies must not be empty.")
    for _, strategy in named:
        if not isinstance(strategy, Strategy):
            raise TypeError(f"strategies must be instances such as tl.TreeOfThoughts(): got {strategy!r}.")
    groups_of: dict[str, list[Strategy]] = {}
    for name, strategy in named:
        groups_of.setdefault(name, []).append(strategy)
    among = {name: differing_settings(alike) for name, alike in groups_of.items()}
    labels = []
    for name, strategy in named:
        fields = flat_settings(strategy)
        labels.append(
            " ".join([name, *(f"{f}={format_value(fields[f])}" for f in among[name] if f in fields)])
        )
    return dict(zip(_unique(labels), [strategy for _, strategy in named], strict=True))


def _listed(given: Any) -> list[Strategy]:
    # A strategy is iterable, as every Pydantic model, but is no list. Values of a wrong type are returned,
    # so that the caller's error names them.
    several = isinstance(given, Iterable) and not isinstance(given, Strategy | Task | str | type)
    return [strategy_named(one) for one in (given if several else [given])]


def label_tasks(tasks: Task | Iterable[Task], most: int = 60) -> dict[str, Task]:
    """Return a dict from labels to tasks. A label is the question, shortened to `most` characters."""
    given = [tasks] if isinstance(tasks, Task | str) else list(tasks)  # the caller raises an error for a str
    if not given:
        raise ValueError("tasks must not be empty.")
    lines = [single_line(" ".join(task.question.split())) if isinstance(task, Task) else "" for task in given]
    labels = [line if len(line) <= most else line[: most - 1].rstrip() + "…" for line in lines]
    return dict(zip(_unique(labels), given, strict=True))


_NOT_IN_A_LINE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")


def single_line(label: str) -> str:
    """Replace line ends and control characters, so that tables, terminals and files can show the label."""
    return _NOT_IN_A_LINE.sub(" ", label)


def _unique(labels: list[str]) -> list[str]:
    """Add numbers to repeated labels."""
    repeats: Counter[str] = Counter()
    made: dict[str, None] = {}
    for label in labels:
        name = label
        while name in made:
            repeats[label] += 1
            name = f"{label} #{repeats[label] + 1}"
        made[name] = None
    return list(made)


def flat_settings(strategy: Strategy) -> dict[str, Any]:
    """Return the settings of a strategy, with those of its parts, as one flat dict.

    `search` is the kind of that part, and `search.exploration` one of its settings. A function is represented
    by its name.
    """
    found: dict[str, Any] = {}

    def add(place: str, value: Any) -> None:
        if isinstance(value, dict):
            kind = value.get("kind")
            if kind is not None and place:
                found[place] = value["name"] if kind == "function" else kind
            for name, inner in value.items() if kind != "function" else ():
                if name != "kind":
                    add(f"{place}.{name}" if place else name, inner)
        else:
            found[place] = ", ".join(map(format_value, value)) if isinstance(value, list) else value

    add("", strategy.settings())
    return found


def differing_settings(strategies: Iterable[Strategy]) -> list[str]:
    """Return the paths of the settings whose values differ among the strategies that have the setting."""
    values: dict[str, set[str]] = {}
    for strategy in strategies:
        for name, value in flat_settings(strategy).items():
            values.setdefault(name, set()).add(repr(value))
    return [name for name, different in values.items() if len(different) > 1]


def format_value(value: Any) -> str:
    """Format the value of a setting for a label."""
    return f"{value:g}" if isinstance(value, float) else str(value)
