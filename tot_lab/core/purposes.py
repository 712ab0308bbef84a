"""What model calls are for, and which role of a lab each purpose belongs to."""

from __future__ import annotations

ROLES = {
    "propose": ("propose", "sample", "branch"),
    "evaluate": ("value", "part", "vote", "joint", "logprob", "judge"),
    "answer": ("answer", "develop"),
    "act": ("act", "analysis"),
    "plan": ("plan", "patch", "augment"),
    "critique": ("critique", "review", "reflect"),
    "synthesize": ("synthesize", "converge", "extract"),
    "route": ("route", "classify"),
}
"""The roles, and the purposes of the calls that belong to each. A call of any other purpose, as a strategy of
your own makes them, belongs to none."""

ROLE_OF = {purpose: role for role, purposes in ROLES.items() for purpose in purposes}
"""The role of each purpose."""
