"""The strategies that `tot-lab serve` and `tot-lab mcp` offer, and the settings that a request may change.

Requests are untrusted. A request can lower the budget, and change settings of a search that are numbers,
booleans or fixed choices. It cannot name a model, tool, function, file or URL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from tot_lab.core.parts import InvalidSettings, Part, known_names
from tot_lab.core.protocol import Budget
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Task
from tot_lab.strategies.search import AnswerRule, Evaluator, Proposer, Search, Stop

MAX_CALLS = 10_000
"""Limit on the model calls of a search with changed settings. If the unchanged strategy can make more calls,
its maximum is the limit. If the unchanged strategy has no maximum, there is no limit.
"""


_LONGEST = 100  # maximum number of characters of a requested name in an error message


class NotOffered(LookupError):
    """Raised if the catalogue has no strategy with the requested name."""


class NotAllowed(ValueError):
    """Raised for a change that a request may not make. `field` is a path such as `settings.search.width`."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class Catalogue:
    """The strategies that a client can request by name.

    Args:
        offers: Maps each name to a strategy.
        budget: The limits of each run. A request can lower them.
    """

    def __init__(self, offers: Mapping[str, Strategy], budget: Budget | None = None) -> None:
        self.offers = dict(offers)
        self.budget = budget

    def strategy(self, name: object) -> Strategy:
        """Return the strategy with the name `name`.

        Raises:
            NotOffered: If the catalogue has no such name.
        """
        if not isinstance(name, str) or name not in self.offers:
            given = str(name)[:_LONGEST]
            raise NotOffered(f"Unknown strategy name: got {given!r}; {known_names(given, self.offers)}.")
        return self.offers[name]

    def changed(self, name: object, task: Task, settings: Any = None) -> Strategy:
        """Return the strategy `name` with changed settings.

        Args:
            name: The name of the strategy in the catalogue.
            task: The task of the search. The maximum number of calls is computed for it.
            settings: Maps the path of each changed setting to its value. `None` means no changes.

        Raises:
            NotOffered: If the catalogue has no such name.
            NotAllowed: If a path is not that of a changeable setting, a value is invalid, or the search could
                make more calls than `MAX_CALLS` allows.
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
            raise NotAllowed(
                "settings",
                f"the search could make more than {max(most, MAX_CALLS):,} calls. Give smaller values.",
            )
        return changed

    def lowered(self, budget: Any = None) -> Budget | None:
        """Return the catalogue's budget, lowered to the limits in `budget`, or `None` if there are no limits.

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
    """Yield the path and the current value of each setting that a request may change.

    These are numbers, booleans and choices from fixed words, in a strategy and the components of its search.
    Settings of models and tools are excluded.
    """
    for name, field in type(part).model_fields.items():
        value = getattr(part, name)
        if isinstance(value, _OF_A_SEARCH):
            yield from ((f"{name}.{path}", inner) for path, inner in changeable(value))
        elif _is_plain(field.annotation) and not field.exclude and "tool" not in name:
            yield name, value


def _is_plain(annotation: Any) -> bool:
    """Whether a field with this annotation accepts only numbers, booleans, `None` and `Literal` words."""
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
