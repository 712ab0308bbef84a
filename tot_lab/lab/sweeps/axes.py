"""The settings and tasks of a sweep: how they are made, and what they are called.

Rule: a label says what differs and nothing else, so a table can be read without the code that made
it. A strategy's own fields are the axes; what a field may hold is the field's to say.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from itertools import product
from typing import Any, TypeAlias

from pydantic import BaseModel

from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Task

Strategies: TypeAlias = Strategy | Iterable[Strategy] | Mapping[str, Strategy | Iterable[Strategy]]


class Grid(list[Strategy]):
    """The strategies of a grid.

    Attributes:
        skipped: By path, how many combinations were left out because a value in them has no such
            setting, and without it they equal another combination.
    """

    def __init__(self, strategies: Iterable[Strategy] = (), skipped: Mapping[str, int] | None = None) -> None:
        super().__init__(strategies)
        self.skipped: dict[str, int] = dict(skipped or {})

    def __repr__(self) -> str:
        left_out = "".join(f"; {n} skipped: no {path}" for path, n in self.skipped.items())
        return f"<Grid of {len(self)} strategies{left_out}>"


def grid(strategy: type[Strategy] | Strategy, paths: Mapping[str, Any] | None = None, /, **axes: Any) -> Grid:
    """Every combination of the values of some settings; the last one named changes fastest.

        tl.grid(tl.TreeOfThoughts, {"search.width": [1, 2, 5], "propose": ["sample", "propose"]})
        tl.grid(tl.presets.game24(), {"search.width": range(1, 6)}) + [tl.OneAnswer()]

    A path that a value lacks is skipped: with `{"search": ["beam_search", "mcts"], "search.exploration":
    [0.5, 1.0]}` there is one beam search, and `skipped` counts the other.

    Args:
        strategy: A class, or a value whose other settings stay.
        paths: By the path of a setting, its values (a list, a tuple, a range or an array), or one value.
        axes: The same by the name of a setting.

    Raises:
        pydantic.ValidationError: by setting, for values that it cannot have.
        ValueError: for a path that none of the combinations has.
    """
    if isinstance(strategy, Strategy):
        kind, fixed = type(strategy), {name: getattr(strategy, name) for name in strategy.model_fields_set}
    elif isinstance(strategy, type) and issubclass(strategy, Strategy):
        kind, fixed = strategy, {}
    else:
        raise TypeError(f"grid takes a strategy such as tl.TreeOfThoughts, not {strategy!r}")
    values = {name: _values(name, given) for name, given in {**(paths or {}), **axes}.items()}
    made: list[Strategy] = []
    skipped: Counter[str] = Counter()
    found: set[str] = set()
    incomplete: set[str] = set()
    for chosen in product(*values.values()):
        settings = dict(zip(values, chosen, strict=True))
        own = {name: value for name, value in settings.items() if "." not in name}
        one = kind(**{**fixed, **own})
        inside = {path: value for path, value in settings.items() if "." in path and _has(one, path)}
        found.update(inside)
        one = one.with_(inside)
        lacking = settings.keys() - own.keys() - inside.keys()
        if lacking and repr(one.settings()) in incomplete:
            skipped.update(sorted(lacking))
            continue
        if lacking:
            incomplete.add(repr(one.settings()))
        made.append(one)
    unknown = [path for path in values if "." in path and path not in found]
    if unknown:
        known = dict.fromkeys(path for one in made for path in flat(one))
        near = get_close_matches(unknown[0], known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"none of the strategies has a setting {unknown[0]!r}{hint}")
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
        raise ValueError(f"grid was given no values for {name!r}")
    return values


def labelled(strategies: Strategies) -> dict[str, Strategy]:
    """The strategies by their labels: a dict's keys, or else their classes; behind those that have one
    name stands what differs among them (`TreeOfThoughts propose=sample search.width=2`)."""
    if isinstance(strategies, Mapping):
        groups = [(in_a_line(str(label)), _listed(given)) for label, given in strategies.items()]
        for label, given in groups:
            if not given:
                raise ValueError(f"there is no strategy under {label!r}")
        named = [(label, strategy) for label, given in groups for strategy in given]
    else:
        named = [(type(strategy).__name__, strategy) for strategy in _listed(strategies)]
    if not named:
        raise ValueError("a sweep needs one strategy at least")
    for _, strategy in named:
        if not isinstance(strategy, Strategy):
            raise TypeError(f"strategies must be values such as tl.TreeOfThoughts(), not {strategy!r}")
    groups_of: dict[str, list[Strategy]] = {}
    for name, strategy in named:
        groups_of.setdefault(name, []).append(strategy)
    among = {name: differing(alike) for name, alike in groups_of.items()}
    labels = []
    for name, strategy in named:
        fields = flat(strategy)
        labels.append(" ".join([name, *(f"{f}={said(fields[f])}" for f in among[name] if f in fields)]))
    return dict(zip(_unique(labels), [strategy for _, strategy in named], strict=True))


def _listed(given: Any) -> list[Strategy]:
    # A strategy is iterable too, as every pydantic model is; all else is the mistake that is told of.
    several = isinstance(given, Iterable) and not isinstance(given, Strategy | Task | str | type)
    return list(given) if several else [given]


def by_question(tasks: Task | Iterable[Task], most: int = 60) -> dict[str, Task]:
    """The tasks by their questions, shortened."""
    given = [tasks] if isinstance(tasks, Task | str) else list(tasks)  # a str is the mistake that is told of
    if not given:
        raise ValueError("a sweep needs one task at least")
    lines = [in_a_line(" ".join(task.question.split())) if isinstance(task, Task) else "" for task in given]
    labels = [line if len(line) <= most else line[: most - 1].rstrip() + "…" for line in lines]
    return dict(zip(_unique(labels), given, strict=True))


_NOT_IN_A_LINE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")


def in_a_line(label: str) -> str:
    """A label that a table, a terminal and a file can hold: without line ends and control characters."""
    return _NOT_IN_A_LINE.sub(" ", label)


def _unique(labels: list[str]) -> list[str]:
    """The labels, a number behind each that was there before."""
    repeats: Counter[str] = Counter()
    made: dict[str, None] = {}
    for label in labels:
        name = label
        while name in made:
            repeats[label] += 1
            name = f"{label} #{repeats[label] + 1}"
        made[name] = None
    return list(made)


def flat(strategy: Strategy) -> dict[str, Any]:
    """The settings of a strategy as one level: `search` is the kind of that part, and
    `search.exploration` a setting of it. A function stands as its name."""
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
            found[place] = ", ".join(map(said, value)) if isinstance(value, list) else value

    add("", strategy.settings())
    return found


def differing(strategies: Iterable[Strategy]) -> list[str]:
    """The settings that have more than one value among those strategies that have them."""
    values: dict[str, set[str]] = {}
    for strategy in strategies:
        for name, value in flat(strategy).items():
            values.setdefault(name, set()).add(repr(value))
    return [name for name, different in values.items() if len(different) > 1]


def said(value: Any) -> str:
    """A value of a setting in a label."""
    return f"{value:g}" if isinstance(value, float) else str(value)
