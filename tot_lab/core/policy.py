"""Which effects tools may have.

Rule: what a policy denies is not carried out, whoever asks. A lab has one and a strategy may have one;
a tool must pass both, which is the stricter mode, the union of what they deny and the intersection of
what they allow.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, field_serializer

from tot_lab.core.tools import ToolSpec


class EffectPolicy(BaseModel):
    """mode: `deny_all` (only tools without an effect), `allow_list` (only effects in `allow`) or
    `allow_all`. allow, deny: names of effects (`network`, `process`, …) or of tools; what is denied is
    denied in every mode.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    mode: Literal["deny_all", "allow_list", "allow_all"] = "allow_list"
    allow: frozenset[str] = frozenset()
    deny: frozenset[str] = frozenset()

    @field_serializer("allow", "deny")
    def _in_order(self, names: frozenset[str]) -> list[str]:
        return sorted(names)  # the same record in every process

    def refusal(self, tool: ToolSpec) -> str | None:
        """Why `tool` may not be called, None when it may."""
        denied = sorted(self.deny & {tool.name, *tool.effects})
        if denied:
            return f"the effect policy denies {', '.join(denied)}"
        if not tool.effects or self.mode == "allow_all":
            return None
        if self.mode == "deny_all":
            return f"the effect policy denies all effects; {tool.name} has {', '.join(tool.effects)}"
        lacking = [] if tool.name in self.allow else sorted({*tool.effects} - self.allow)
        return f"the effect policy does not allow {', '.join(lacking)}" if lacking else None
