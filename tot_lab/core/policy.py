"""Effect policies: which effects tools may have.

Both the lab and a strategy may have a policy, and a tool must pass both. A lab cannot be given a tool that
its own policy denies. A strategy does not offer the model the tools that its policy denies, and does not call
them.

The lab's policy also decides whether the arguments of a call may contain secrets: see `SECRETS`.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Literal

from pydantic import ConfigDict, field_serializer

from tot_lab.core.parts import PydanticModel
from tot_lab.core.tools import ToolSpec, tool_name

SECRETS = "secrets"
"""A tool with effects receives no secret in its arguments, such as the key of a model or a password in the
environment, unless `allow` of the lab's policy holds this name. A call with a secret fails without running
the tool.
"""


class EffectPolicy(PydanticModel):
    """The effects that tools may have."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    mode: Literal["deny_all", "allow_list", "allow_all"] = "allow_list"
    """`deny_all` permits only tools without effects, `allow_list` also the tools and the effects in `allow`,
    and `allow_all` everything. A tool whose effects are not declared counts as having effects. `allow_list`
    permits it only by its name.
    """

    allow: frozenset[str] = frozenset()
    """Names of effects (`network`, `process`, …) or of tools; `web_search` and `web-search` are the same.
    `secrets` lets tools with effects receive secrets in their arguments, which no mode does otherwise.
    """

    deny: frozenset[str] = frozenset()
    """Names of effects or of tools that are denied in every mode."""

    @field_serializer("allow", "deny")
    def _in_order(self, names: frozenset[str]) -> list[str]:
        return sorted(names)  # the order of a set differs between processes, and records must be equal

    def refusal(self, tool: ToolSpec) -> str | None:
        """Return why `tool` may not be called, or `None` if it may."""
        names, effects = {tool.name, *tool.aliases}, {*(tool.effects or ())}
        if denied := sorted(_among(names | effects, self.deny)):
            return f"the effect policy denies {', '.join(denied)}"
        if tool.effects == () or self.mode == "allow_all":
            return None
        if self.mode == "deny_all":
            return f"the effect policy denies all effects; those of {tool.name} are {written(tool.effects)}"
        if _among(names, self.allow):
            return None
        if tool.effects is None:
            return f"the effect policy does not allow {tool.name}, whose effects are {written(None)}"
        lacking = sorted(effects - _among(effects, self.allow))
        return f"the effect policy does not allow {', '.join(lacking)}" if lacking else None

    @property
    def allows_secrets(self) -> bool:
        """Whether arguments of tools with effects may hold secrets."""
        return SECRETS in self.allow - self.deny


def _among(names: Set[str], listed: Set[str]) -> set[str]:
    """Return those of `names` that are in `listed`, also in another spelling (`webSearch`, `web_search`)."""
    known = set(map(tool_name, listed))
    return {name for name in names if name in listed or tool_name(name) in known}


def written(effects: Sequence[str] | None) -> str:
    """Return the effects of a tool as text."""
    if effects is None:
        return "not declared (write @tl.tool(effects=()) if it has none)"
    return ", ".join(effects) or "none"
