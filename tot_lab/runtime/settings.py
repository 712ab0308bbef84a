"""The settings that all runs of a lab share: the type, the default and the meaning of each.

`Runner` and `Gateway` take them whole. `tot_lab.Lab` takes their fields as keyword arguments.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, Self

from tot_lab.core.calls import Model
from tot_lab.core.parts import Part, UserFunction
from tot_lab.core.strategy import Strategy
from tot_lab.models.cache import MODES, Cache, Mode
from tot_lab.models.stack import Endpoint
from tot_lab.runtime.roles import Role
from tot_lab.strategies.structured import Tier
from tot_lab.tools import EffectPolicy, Tool


@dataclass(frozen=True)
class RunnerSettings:
    """Settings that all runs of a lab share.

    Raises:
        ValueError: If a setting is not one of the accepted values.
        TypeError: If a setting has the wrong type.
    """

    model: str | Model | Endpoint
    """A name (`gpt-4.1-mini`, `ollama/qwen3:8b`, `local/qwen2.5-coder-1.5b`, `sim/game24`), a model part
    (`tl.LiteLLM(model="…", api_base="…")`), or any async callable `Call -> Reply | str`. An async generator
    of text pieces is a model that streams. A part also sets how it is called: `concurrency` (requests at
    once, tuned automatically if not set), `requests_per_minute`, `retries`.
    """

    _: KW_ONLY

    roles: Mapping[str, str | Model | Endpoint | Role | dict[str, Any]] | None = None
    """Models and sampling settings by role. Each is whatever `model` accepts, or a `tl.Role`. The standard
    roles are `propose`, `evaluate`, `answer`, `act`, `plan`, `critique`, `synthesize` and `route`. A call
    purpose such as `vote` is a role as well, and so is any other name that the `model` setting of a strategy
    refers to.
    """

    cache: str | os.PathLike[str] | Cache | None = None
    """Folder of cached replies, file of exported replies, or a `tl.Cache`. `None` means the user's own cache
    folder for real models, and no cache for simulated models and functions.
    """

    mode: Mode = "auto"
    """`auto`, `off`, `refresh` or `replay`; see `tot_lab.models.cache.Mode`."""

    spend: float | None = None
    """USD that this lab may really pay. `None` means no limit. The limit includes earlier payments in the
    journals of resumed runs and sweeps, and every failed try: its reported cost, or else the most that it can
    have cost, unless the request was refused. A function that reports a `cost` in its replies is no longer
    called once less is left than its most expensive call cost. To limit what a run would cost without a
    cache, use its `Budget`.
    """

    timeout: float | None = 120.0
    """Seconds that one call may take after it was sent. `None` means no limit. The limit of a strategy that
    has its own (`tl.DeepThink`) takes precedence.
    """

    tools: Iterable[Tool | str | Callable[..., Any]] = ()
    """Tools that strategies may call: functions decorated with `@tl.tool`, tools of `tl.tools`, and names
    (`calculator`, `python`, `web_fetch`, `multi_hop`, or a tool of an installed package). A strategy uses all
    of them, or those that its own `tools` setting names.
    """

    effect_policy: EffectPolicy | None = None
    """Effects that the tools may have (`tl.EffectPolicy`). `None` allows all effects of `tools`, except those
    of `tl.tools.WriteFile`. A lab with a tool whose effects are denied cannot be made (ValueError).
    """

    tool_context: Mapping[str, Any] | None = None
    """Data that is passed to tools and never shown to a model. Values whose name contains key, token, secret
    or password are also removed from the results of tools.
    """

    strategy: Strategy | str | None = None
    """The strategy of `lab.run(task)`, or its name. `None` means `tl.ReAct()` for a lab with tools."""

    system_prompt: str = ""
    """System prompt of tasks without their own."""

    thinking_level: str | None = None
    """Thinking level of each `tl.WithThinking` without a level of its own: `off`, `low`, `medium` or `high`,
    in any case.
    """

    profile: Tier | None = None
    """Tier of the model: `local`, `mid`, `large` or `frontier`. It decides how much of a tool's result the
    model is shown, how long a history `tl.WithSynthesis` leaves, and the `tier` of strategies, unless these
    are set explicitly. See `tot_lab.strategies.defaults.PROFILES`.
    """

    transform_result: Callable[[str, str], str | Awaitable[str]] | None = None
    """A function `(tool, result) -> text` that returns the text which a model is shown for a tool's result.
    It applies to strategies without a `transform_result` of their own.
    """

    agent_id: str = ""
    """Id of the agent that calls the tools. It is recorded in the header of each run."""

    session_id: str = ""
    """Id of the session in which tools are called. It is recorded in the header of each run."""

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}: got {self.mode!r}.")
        if self.spend is not None and not (isinstance(self.spend, int | float) and self.spend >= 0):
            raise ValueError(f"spend must be at least 0 USD or None: got {self.spend!r}.")
        if self.timeout is not None and (isinstance(self.timeout, str) or not self.timeout > 0):
            raise ValueError(f"timeout must be a positive number of seconds or None: got {self.timeout!r}.")
        for name in ("system_prompt", "agent_id", "session_id"):
            if not isinstance(value := getattr(self, name), str):
                raise TypeError(f"{name} must be a string: got {value!r}.")
        if not isinstance(self.strategy, Strategy | str | None):
            raise TypeError(
                f"strategy must be a Strategy such as tl.TreeOfThoughts(): got {self.strategy!r}."
            )
        cache = self.cache
        if not isinstance(cache, str | os.PathLike | Cache | None):
            raise TypeError(f"cache must be a folder, a file, a tl.Cache or None: got {cache!r}.")
        exported = cache.path if isinstance(cache, Cache) else Path(cache) if cache is not None else None
        if exported is not None and exported.is_file() and self.mode in ("auto", "refresh"):
            raise ValueError(
                f"cache must be a folder: got the file {exported}. Exported replies are read with "
                f"mode='replay', or imported into a folder with `tot-lab cache import`."
            )

    def replaying(self) -> Self:
        """Return the settings of a lab without network access that answers every call from the cache."""
        return replace(self, mode="replay", spend=None)

    def portable(self) -> Self:
        """Return the settings for another process, without `spend` and without the path of `cache`. A model
        that is a function is wrapped as a `UserFunction`.
        """
        model = self.model
        model = model if isinstance(model, str | Part) else UserFunction.of(model)
        return replace(self, model=model, cache=self.cache and Path(), spend=None)
