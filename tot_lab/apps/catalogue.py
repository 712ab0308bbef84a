"""The strategies that `tot-lab serve` and `tot-lab mcp` offer, and the settings that a request may change.

A request comes from outside. It can lower the budget, and change numbers, switches and choices of a search
within their bounds. It cannot name a model, tool, function, file or address.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from tot_lab.core.parts import InvalidSettings, Part, known_names
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Task
from tot_lab.core.thinking import Budget
from tot_lab.strategies.search import AnswerRule, Evaluator, Proposer, Search, Stop

MAX_CALLS = 10_000
"""The most calls that a search with changed settings may make, unless it could make more without them."""


_LONGEST = 100  # characters of a requested name that an error message quotes


class NotOffered(LookupError):
    """Raised for a name that the catalogue does not offer."""


class NotAllowed(ValueError):
    """Raised for a change that a request may not make. `field` is its path: `settings.search.width`."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class Catalogue:
    """Strategies that are offered under names.

    Args:
        offers: The strategies by name.
        budget: The limits of each run. A request can lower them.
    """

    def __init__(self, offers: Mapping[str, Strategy], budget: Budget | None = None) -> None:
        self.offers = dict(offers)
        self.budget = budget

    def strategy(self, name: object) -> Strategy:
        """Return the strategy with that name.

        Raises:
            NotOffered: If the catalogue has no such name.
        """
        if not isinstance(name, str) or name not in self.offers:
            given = str(name)[:_LONGEST]
            raise NotOffered(f"Unknown name: got {given!r}; {known_names(given, self.offers)}.")
        return self.offers[name]

    def changed(self, name: object, task: Task, settings: Any = None) -> Strategy:
        """Return the strategy with that name, with `settings`, which maps paths to values.

        `task` determines how many calls the search can make.

        Raises:
            NotOffered: If the catalogue has no such name.
            NotAllowed: If a setting is not one of `changeable`, a value is invalid, or the search could make
                too many calls.
            NotImplementedError: If the domain of the task lacks what the strategy needs.
        """
        strategy = self.strategy(name)
        known = dict(changeable(strategy))
        for path in (given := _object("settings", settings)):
            if path not in known:
                path = path[:_LONGEST]
                raise NotAllowed(
                    f"settings.{path}", f"not a setting that can be changed; {known_names(path, known)}."
                )
        most = strategy.max_calls(task)
        if not given:
            return strategy
        try:
            changed = strategy.with_(given)
        except InvalidSettings as error:
            raise _not_allowed("settings", error) from None
        calls = changed.max_calls(task)
        if most is not None and (calls is None or calls > max(most, MAX_CALLS)):
            raise NotAllowed("settings", f"the search could make more than {MAX_CALLS:,} calls. Lower them.")
        return changed

    def lowered(self, budget: Any = None) -> Budget | None:
        """Return the budget of a run for which a request gives the limits `budget`.

        Raises:
            NotAllowed: If a limit is unknown, invalid, or above that of the catalogue.
        """
        try:
            asked = Budget(**_object("budget", budget)).model_dump(exclude_none=True)
        except InvalidSettings as error:
            raise _not_allowed("budget", error) from None
        own = self.budget.model_dump(exclude_none=True) if self.budget else {}
        for name, limit in asked.items():
            if limit > own.get(name, limit):
                raise NotAllowed(f"budget.{name}", f"must be at most {own[name]}: got {limit}.")
        return Budget(**{**own, **asked}) if own or asked else None


_OF_A_SEARCH = (Strategy, Proposer, Evaluator, Search, AnswerRule, Stop)


def changeable(part: Part) -> Iterator[tuple[str, Any]]:
    """Yield the path and the value of each setting that a request may change.

    These are numbers, switches and choices between words, in a strategy and the parts of its search. Settings
    of models and tools are not among them.
    """
    for name, field in type(part).model_fields.items():
        value = getattr(part, name)
        if isinstance(value, _OF_A_SEARCH):
            yield from ((f"{name}.{path}", inner) for path, inner in changeable(value))
        elif _is_plain(field.annotation) and not field.exclude and "tool" not in name:
            yield name, value


def _is_plain(annotation: Any) -> bool:
    """Whether all values of a field with this annotation are numbers, booleans, `None` or given words."""
    if get_origin(annotation) is Annotated:
        return _is_plain(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return all(map(_is_plain, get_args(annotation)))
    return get_origin(annotation) is Literal or annotation in (int, float, bool, NoneType)


def _object(field: str, given: Any) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise NotAllowed(field, f"must be an object: got {given!r}.")
    return dict(given)


def _not_allowed(field: str, error: InvalidSettings) -> NotAllowed:
    problem = error.problems[0]
    path = ".".join([field, *map(str, problem["loc"])])
    return NotAllowed(path, f"{problem['msg'].removeprefix('Value error, ')}: got {problem['input']!r}.")
