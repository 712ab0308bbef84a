"""Makes tasks from the name of a domain and a problem, for the command line and the panel.

Domains of installed packages are included. A domain is imported at its first use.
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
    """Return the names of the domains whose tasks can be made from a problem that a user enters. Left out
    are `gym`, because `tl.tasks` makes its tasks, and the domains of published logs. Imports no domain.
    """
    return [name for name in names("domains") if not name.startswith("published/") and name != "gym"]


def factory_of(domain: str) -> Callable[..., Task]:
    """Return the function that makes tasks of a domain: that of `Domain.task_factory`, or else a function
    `(question, answer=None, **settings)`.

    Raises:
        ValueError: If there is no such domain, or its package cannot be imported.
    """
    kind = class_of(domain, Domain)

    def make(question: str, answer: Any = None, **settings: Any) -> Task:
        """Make a task from a question."""
        return Task(domain=kind(**settings), question=question, reference=answer)

    return kind.task_factory() or make


def problem_in(text: str, make: Callable[..., Task]) -> Any:
    """Convert what a user entered to the first argument of the task factory `make`.

    The text is parsed as JSON, unless `make` accepts a string. Text that is not JSON is returned unchanged.
    """
    takes = next(iter(get_type_hints(make).values()), str)
    if str not in (takes, *get_args(takes)):
        with suppress(ValueError, RecursionError):
            return json.loads(text)
    return text


def examples_of(domain: str, most: int) -> list[Task]:
    """Return up to `most` example tasks of a domain. The list is empty if the domain has no example tasks.

    Raises:
        ValueError: If there is no such domain, or its package cannot be imported.
    """
    make = class_of(domain, Domain).example_tasks()
    if make is not None:
        for count in range(most, 0, -1):
            with suppress(ValueError):  # the domain has fewer than `count` tasks
                return make(count)
    return []
