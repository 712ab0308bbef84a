"""Domains: what a task family teaches a search.

Add one: a file with a `Domain`, and its name here. The contract tests take it from this list.
"""

from tot_lab.core.task import Domain
from tot_lab.domains.game24 import Game24, game24, game24_tasks, hands
from tot_lab.domains.general import General, general
from tot_lab.domains.loading import tasks
from tot_lab.domains.oracle import oracle

DOMAINS: tuple[type[Domain], ...] = (Game24, General)

__all__ = ["DOMAINS", "Game24", "General", "game24", "game24_tasks", "general", "hands", "oracle", "tasks"]
