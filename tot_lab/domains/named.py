"""Tasks by the name of their domain, as the command line and the panel make them.

Domains of installed packages are included, and each is imported when it is first used.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any, get_args, get_type_hints

from tot_lab.core.parts import class_of
from tot_lab.core.registry import names
from tot_lab.core.task import Domain, Task


def domain_names() -> list[str]:
    """The domains whose tasks are made from a problem. Those of published logs and `gym`, whose tasks
    `tl.tasks` makes, are left out. Imports nothing.
    """
    return [name for name in names("domains") if not name.startswith("published/") and name != "gym"]


def factory_of(domain: str) -> Callable[..., Task]:
    """The function that makes tasks of a domain: its own, or else a function of a question and settings.

    Raises:
        ValueError: If there is no such domain, or its package cannot be imported.
    """
    kind = class_of(domain, Domain)

    def make(question: str, answer: Any = None, **settings: Any) -> Task:
        """Make a task of any question."""
        return Task(domain=kind(**settings), question=question, reference=answer)

    return kind.task_factory() or make


def problem_in(text: str, make: Callable[..., Task]) -> Any:
    """Convert what a user entered to the first argument of the task factory `make`.

    It is parsed as JSON, unless the factory accepts text.
    """
    takes = next(iter(get_type_hints(make).values()), str)
    if str not in (takes, *get_args(takes)):
        with suppress(ValueError, RecursionError):
            return json.loads(text)
    return text


def examples_of(domain: str, most: int) -> list[Task]:
    """The first tasks of a domain, at most `most`. Empty if it has none.

    Raises:
        ValueError: If there is no such domain, or its package cannot be imported.
    """
    make = class_of(domain, Domain).example_tasks()
    if make is not None:
        for count in range(most, 0, -1):
            with suppress(ValueError):  # the domain has fewer
                return make(count)
    return []
