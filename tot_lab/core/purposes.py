"""The purposes of model calls, and the role of a lab that each belongs to.

The table is in `core`, not with the strategies, so that the calls of a loaded run can be counted by role
without importing the package that contains its strategy.
"""

from __future__ import annotations

from functools import lru_cache

ROLES = {
    "propose": ("propose", "sample", "branch", "rollout"),
    "evaluate": ("value", "part", "vote", "joint", "logprob", "judge", "reward", "compare"),
    "answer": ("answer", "develop"),
    "act": ("act", "analysis"),
    "plan": ("plan", "patch", "augment"),
    "critique": ("critique", "review", "reflect"),
    "synthesize": ("synthesize", "converge", "extract"),
    "route": ("route", "classify"),
}
"""The standard roles, and the call purposes that belong to each. A purpose of your own names its role before
a colon, such as `evaluate:rubric`."""

UNINSTRUCTED = frozenset({"reward"})
"""Purposes of calls whose messages must keep the form that a model was trained on. A run adds no instructions
to them, neither the system prompt of the task nor a thinking level."""

OTHER = "other"
"""The role of calls with any other purpose, in tables and counts by role."""

_ROLE_OF = {purpose: role for role, purposes in ROLES.items() for purpose in purposes}


@lru_cache(256)
def role_of(purpose: str) -> str | None:
    """The standard role (a key of `ROLES`) of a call's purpose. `None` if the purpose has none."""
    role, colon, _ = purpose.partition(":")
    return role if colon and role in ROLES else _ROLE_OF.get(purpose)
