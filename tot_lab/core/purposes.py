"""The purposes of model calls, and the role of a lab that each belongs to."""

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
"""The standard roles, and the call purposes that belong to each. Other purposes, such as those of a custom
strategy, have no role."""

ROLE_OF = {purpose: role for role, purposes in ROLES.items() for purpose in purposes}
"""The role of each purpose."""
