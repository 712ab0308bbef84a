"""Deep Think as a tool for agents.

The tool's description and the agent's system prompt say when a call is worth its price. An agent must call
the tool if its task names it. Each call is a run of the lab with which the tool was made, and its usage
counts in that lab.

References:
    Cogtrix, an assistant (github.com/NorthlandPositronics/Cogtrix), tool `deep_think`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Field, PrivateAttr
from pydantic.json_schema import SkipJsonSchema

from tot_lab.core.tool import Arguments, Effects, Name, Tool, fitting, schema_of
from tot_lab.core.tools import MODEL, ToolSpec
from tot_lab.domains.open_ended import open_ended
from tot_lab.lab.lab import Lab, expect_lab
from tot_lab.runtime.roles import calling_roles
from tot_lab.strategies.deep_think import DeepThink

MemoryMode = Literal["conversation", "reasoning"]

GUIDANCE: dict[MemoryMode, str] = {
    "conversation": (
        "You have the tool deep-think. Before you settle a question that has several valid approaches, "
        "trade-offs, an unclear cause or a plan to make, call it once, with all that you know. Answer simple "
        "questions yourself."
    ),
    "reasoning": (
        "You have the tool deep-think. Reason with it first: call it for every question that is more than a "
        "simple fact, with all that you know, and build your answer on what it gives."
    ),
}
"""Addition to the agent's system prompt, by memory mode."""

_DESCRIPTION = (
    "Thinks one question through: works out several approaches, compares them, and makes one solution of "
    "the best. Use it when there are several valid approaches, trade-offs to weigh, an unclear root cause, "
    "or something to plan, and when you are asked to think step by step or to consider all angles. Do not "
    "use it for simple facts, quick calculations, where one approach is obvious, or for what needs live "
    "tools: it has none, and knows only what `task` and `context` say."
)


def _without_default(schema: dict[str, Any]) -> None:
    """Remove the default from the schema, so that a model omits the argument instead of passing `None`."""
    schema.pop("default", None)


Size: TypeAlias = Annotated[int | SkipJsonSchema[None], Field(json_schema_extra=_without_default)]


class _Question(Arguments):
    task: Annotated[str, Field(min_length=1, description="the question, with all that it asks for")]
    context: Annotated[str, Field(description="what is known and bears on it")] = ""
    max_iterations: Annotated[Size, Field(description="rounds of thinking at most, 1 to 5")] = None
    num_branches: Annotated[Size, Field(description="approaches in each round, 2 to 5")] = None
    beam_width: Annotated[Size, Field(description="solutions that the next round builds on, 1 to 3")] = None


class DeepThinkTool(Tool):
    """A tool that runs Deep Think on one question. `tl.tools.deep_think(lab)` makes it.

    A result is the whole report with the final solution first. The agent's `max_result_characters` limits
    how much of it the agent is shown.
    """

    kind: ClassVar[str] = "deep_think_tool"
    name: Name = "deep-think"
    description: str = _DESCRIPTION
    parameters: dict[str, Any] = schema_of(_Question)
    pure: bool = True
    """A finished result is cached like a model's reply, so that a rerun works offline."""

    effects: Effects = (MODEL,)
    # The tool sets no limit: only the agent's `max_result_characters` applies.
    max_characters: Annotated[int, Field(ge=100)] = 100_000_000
    timeout: Annotated[float, Field(gt=0)] = 3600.0
    retries: Annotated[int, Field(ge=0)] = 0
    strategy: DeepThink = DeepThink()
    """The strategy that the tool runs. A call may change `max_iterations`, `num_branches` and `beam_width`,
    within the limits of `DeepThink`.
    """

    model: dict[str, Any]
    """Settings of the lab's model and roles, as a header stores them."""

    memory_mode: MemoryMode = "conversation"
    """Which guidance the agent gets. `reasoning` asks it to call the tool for all but simple facts."""

    _lab: Lab | None = PrivateAttr(default=None)

    @property
    def spec(self) -> ToolSpec:
        """The specification, with the guidance for the agent."""
        more = {"guidance": GUIDANCE[self.memory_mode], "used_when_named": True}
        return super().spec.model_copy(update=more)

    def identity(self) -> dict[str, Any]:
        """Return everything that can change a result. `memory_mode` cannot, since it only guides the
        agent."""
        return {name: value for name, value in super().identity().items() if name != "memory_mode"}

    def __getstate__(self) -> dict[Any, Any]:
        """Raise TypeError: the tool holds a lab of this process."""
        raise TypeError(f"The tool {self.name!r} holds a lab of this process and cannot be sent to a worker.")

    def carry_out(self, arguments: dict[str, Any], context: Mapping[str, Any]) -> Awaitable[str]:
        return self._run(fitting(arguments, _Question))

    async def _run(self, question: _Question) -> str:
        if self._lab is None:
            raise RuntimeError("it came from a file: make it anew, with tl.tools.deep_think(lab)")
        sizes = question.model_dump(exclude={"task", "context"}, exclude_none=True)
        strategy = self.strategy.model_copy(update=sizes)
        run = await self._lab.run(strategy, open_ended(question.task, context=question.context))
        if not run.answer:
            raise RuntimeError(f"it came to nothing ({run.stop_reason})")
        stop = str(run.stop_reason)
        if stop in ("error", "limit:errors", "limit:timeout") or stop.startswith("budget:"):
            # Raise an error, because a result would be cached.
            raise RuntimeError(f"it was not finished ({run.stop_reason}); so far: {run.answer}")
        return run.deep_report(answer_first=True)


def deep_think(
    lab: Lab, strategy: DeepThink | None = None, *, memory_mode: MemoryMode = "conversation"
) -> DeepThinkTool:
    """Return Deep Think as a tool for any agent: `tl.Lab(model, tools=[tl.tools.deep_think(lab)])`.

    Args:
        lab: The lab that carries out the calls. It records, caches and counts them, and the agent's budget
            does not limit them.
        strategy: The strategy that the tool runs. `None` means `DeepThink()`.
        memory_mode: When the agent is asked to call the tool; see `DeepThinkTool`.

    Raises:
        TypeError: If `lab` is not a `Lab`.
    """
    expect_lab(lab)
    roles = calling_roles(lab.gateway.role_settings)
    model = {**lab.gateway.settings, **({"roles": roles} if roles else {})}
    made = DeepThinkTool(strategy=strategy or DeepThink(), model=model, memory_mode=memory_mode)
    made._lab = lab
    return made
