"""Defaults that a lab sets for its strategies.

They apply to settings that were not passed explicitly, in a strategy and in the parts inside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, get_args

from tot_lab.core.parts import Part, UserFunction
from tot_lab.strategies.acting import ToolLimits
from tot_lab.strategies.deep_think import DeepThink
from tot_lab.strategies.plan_execute import PlanExecute
from tot_lab.strategies.structured import Tier
from tot_lab.strategies.synthesis import WithSynthesis
from tot_lab.strategies.thinking_level import ThinkingLevel, WithThinking


class Profile(NamedTuple):
    """How much text a model of one tier is shown.

    Attributes:
        result: Characters of a tool's result.
        history: Tokens of earlier turns above which `WithSynthesis` condenses them.
    """

    result: int
    history: int


PROFILES: Mapping[Tier, Profile] = {
    "local": Profile(2_000, 500),
    "mid": Profile(4_000, 1_000),
    "large": Profile(8_000, 4_000),
    "frontier": Profile(16_000, 16_000),
}
"""The profiles of a lab. The numbers of `mid` are the defaults of the strategies."""


def lab_defaults(
    profile: Tier | None, thinking_level: str | None, transform_result: UserFunction | None = None
) -> Callable[[Part], dict[str, Any]] | None:
    """Return a function that gives the settings that a lab adds to a part, for `core.parts.map_parts`.

    Returns `None` if the lab has no defaults.

    Raises:
        ValueError: If the profile is unknown.
    """
    if profile is not None and profile not in PROFILES:
        raise ValueError(f"profile must be one of {', '.join(get_args(Tier))}: got {profile!r}.")
    if profile is None and thinking_level is None and transform_result is None:
        return None
    level = None if thinking_level is None else ThinkingLevel(thinking_level).value
    of_kinds: list[tuple[type[Part], dict[str, Any]]] = []
    if level is not None:
        of_kinds.append((WithThinking, {"level": level}))
    if transform_result is not None:
        of_kinds.append((ToolLimits, {"transform_result": transform_result}))
    if profile is not None:
        shown = {"max_result_characters": PROFILES[profile].result}
        of_kinds += [
            (ToolLimits, shown),
            *((kind, {"tier": profile}) for kind in (PlanExecute, DeepThink)),
            (WithSynthesis, {"above": PROFILES[profile].history}),
        ]

    def missing(part: Part) -> dict[str, Any]:
        settings = {
            name: value for kind, one in of_kinds if isinstance(part, kind) for name, value in one.items()
        }
        return {name: value for name, value in settings.items() if name not in part.model_fields_set}

    return missing
