"""The base class of all strategies: settings as fields, and one method, `think`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import Field

from tot_lab.core.calls import Call, Message
from tot_lab.core.model_setting import ModelSetting, model_name
from tot_lab.core.parts import Part, part_of
from tot_lab.core.protocol import Procedure
from tot_lab.core.strategy_methods import StrategyMethods
from tot_lab.core.task import Answer, Task


class Strategy(StrategyMethods, Part):
    """A way of reasoning. Its fields are its settings: validated, recorded and sweepable."""

    kind: ClassVar[str] = ""

    scale: ClassVar[str] = ""
    """The setting that scales the number of calls, such as `attempts`. "" means no such setting."""

    def scale_setting(self) -> str | None:
        """The path of the setting that scales the number of calls. `None` means no such setting."""
        return type(self).scale or None

    def at_scale(self, scale: int | None) -> Self:
        """This strategy with `scale` as the value of its `scale_setting`. Unchanged if it has none."""
        path = self.scale_setting()
        return self if path is None else self.with_({path: scale})

    def think(self, task: Task, at: str = "0") -> Procedure[Answer]:
        """Reason about `task`.

        The strategy records the thought with the id `at` first, and the ids of all others begin with `at.`,
        so that strategies nest.
        """
        raise NotImplementedError(f"the strategy {self.kind!r} has no think. Define the method `think`.")

    if not TYPE_CHECKING:  # type checkers would accept any attribute

        def __getattr__(self, name):
            if name in ("run", "invoke", "solve"):
                raise AttributeError(f"A strategy has no {name!r}. Use await lab.run(strategy, task).")
            return super().__getattr__(name)

    if TYPE_CHECKING:  # attached by `tot_lab.lab`

        def preview(self, task: Task) -> str:
            """Return the first prompt of each purpose that this strategy sends, without a model."""

    def checks_answers(self, task: Task) -> bool:
        """Whether this strategy gives only answers that the check of the domain accepts (`Domain.verify`)."""
        return False

    def max_calls(self, task: Task) -> int | None:
        """The most model calls for `task`. `None` means that there is no bound."""
        return None


def strategy_named(given: Strategy | str) -> Strategy:
    """Return the strategy with that name (kind or alias) and default settings, or `given` itself.

    Raises:
        ValueError: If the name is unknown, or the strategy requires settings.
    """
    if not isinstance(given, str):
        return given
    try:
        strategy = part_of({"kind": given}, Strategy)
    except ValueError as error:
        raise ValueError(f"strategy: {error}") from error
    assert isinstance(strategy, Strategy)
    return strategy


class Prompting(Strategy):
    """A strategy that makes model calls itself, with its sampling settings."""

    kind: ClassVar[str] = ""

    model: ModelSetting = None
    """Name of a model or of one of the lab's roles, a model part, or a function `Call -> Reply | str`. `None`
    means the model of the call's role, else the lab's model."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """Sampling temperature. `None` means the model's default."""

    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """The most tokens of a reply. `None` means the model's default."""

    seed: int | None = None
    """Sampling seed. The provider receives `seed` plus the sample index. `None` sends no seed."""

    def call(
        self,
        node: str,
        purpose: str,
        prompt: str,
        sample_index: int = 0,
        response_format: dict[str, Any] | None = None,
    ) -> Call:
        """A call with the sampling settings of this strategy."""
        if not isinstance(prompt, str):
            raise TypeError(f"the prompt of a {purpose!r} call must be a string: got {prompt!r}.")
        return Call(
            node,
            purpose,
            (Message("user", prompt),),
            sample_index,
            model=model_name(self.model),
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            seed=self.seed,
            response_format=response_format,
        )
