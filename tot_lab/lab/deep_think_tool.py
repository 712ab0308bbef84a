"""Deep Think as a tool, for agents (Cogtrix, "deep_think"; D14 of its list).

Rule: the tool says itself when it is worth its price and when it is not, in its description and in the
system prompt of the agent that has it. A request that names it is held to it. What it thinks is a run of its
own, in the lab that it was made with, and counts there.
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
"""What the agent's system prompt says, by memory mode."""

_DESCRIPTION = (
    "Thinks one question through: works out several approaches, compares them, and makes one solution of "
    "the best. Use it when there are several valid approaches, trade-offs to weigh, an unclear root cause, "
    "or something to plan, and when you are asked to think step by step or to consider all angles. Do not "
    "use it for simple facts, quick calculations, where one approach is obvious, or for what needs live "
    "tools: it has none, and knows only what `task` and `context` say."
)


def _without_default(schema: dict[str, Any]) -> None:
    """Null is for us: a model leaves out what it does not want to set."""
    schema.pop("default", None)


Size: TypeAlias = Annotated[int | SkipJsonSchema[None], Field(json_schema_extra=_without_default)]


class _Question(Arguments):
    task: Annotated[str, Field(min_length=1, description="the question, with all that it asks for")]
    context: Annotated[str, Field(description="what is known and bears on it")] = ""
    max_iterations: Annotated[Size, Field(description="rounds of thinking at most, 1 to 5")] = None
    num_branches: Annotated[Size, Field(description="approaches in each round, 2 to 5")] = None
    beam_width: Annotated[Size, Field(description="solutions that the next round builds on, 1 to 3")] = None


class DeepThinkTool(Tool):
    """Deep Think over one question; `tl.tools.deep_think(lab)` makes one. Its result is the whole report, the
    final solution first: how much of it an agent is shown says the agent (`most_result_characters`).

    strategy: how it thinks; a call may set `max_iterations`, `num_branches` and `beam_width` anew, which are
        clamped as in `DeepThink`. model: what thinks, as a record tells of it. memory_mode: with `reasoning`
        the agent is told to use it for all but simple facts. pure: its first answer is kept like a model's,
        so that a rerun is offline.
    """

    kind: ClassVar[str] = "deep_think_tool"
    name: Name = "deep-think"
    description: str = _DESCRIPTION
    parameters: dict[str, Any] = schema_of(_Question)
    pure: bool = True
    effects: Effects = (MODEL,)
    most_characters: Annotated[int, Field(ge=100)] = 100_000_000  # the caller's own limit is the only one
    timeout: Annotated[float, Field(gt=0)] = 3600.0
    retries: Annotated[int, Field(ge=0)] = 0
    strategy: DeepThink = DeepThink()
    model: dict[str, Any]
    memory_mode: MemoryMode = "conversation"
    _lab: Lab | None = PrivateAttr(default=None)

    @property
    def spec(self) -> ToolSpec:
        """With what its agent is told, and held to."""
        more = {"guidance": GUIDANCE[self.memory_mode], "used_when_named": True}
        return super().spec.model_copy(update=more)

    def identity(self) -> dict[str, Any]:
        """All that can change a result; not what its agent is told."""
        return {name: value for name, value in super().identity().items() if name != "memory_mode"}

    def __getstate__(self) -> dict[Any, Any]:
        """Raises TypeError: its lab stays where it is."""
        raise TypeError(f"the tool {self.name!r} thinks in a lab of this process, which can go to no worker")

    def carry_out(self, arguments: dict[str, Any], context: Mapping[str, Any]) -> Awaitable[str]:
        return self._thought(fitting(arguments, _Question))

    async def _thought(self, question: _Question) -> str:
        if self._lab is None:
            raise RuntimeError("it came from a file: make it anew, with tl.tools.deep_think(lab)")
        sizes = question.model_dump(exclude={"task", "context"}, exclude_none=True)
        strategy = self.strategy.model_copy(update=sizes)
        run = await self._lab.run(strategy, open_ended(question.task, context=question.context))
        if not run.answer:
            raise RuntimeError(f"it came to nothing ({run.stop_reason})")
        if run.stop_reason == "error" or str(run.stop_reason).startswith(("limit:timeout", "budget:")):
            # As an error, since a result would be kept for good.
            raise RuntimeError(f"it was not finished ({run.stop_reason}); so far: {run.answer}")
        return run.deep_report(answer_first=True)


def deep_think(
    lab: Lab, strategy: DeepThink | None = None, *, memory_mode: MemoryMode = "conversation"
) -> DeepThinkTool:
    """Deep Think as a tool for any agent: `tl.Lab(model, tools=[tl.tools.deep_think(lab)])`.

    lab: what thinks. Its runs are kept and cached there, and count there: the budget of the agent does
    not cap them. strategy: None = the defaults. memory_mode: see `DeepThinkTool`. Raises TypeError where
    `lab` is none."""
    expect_lab(lab)
    roles = {name: role.settings() for name, role in lab.gateway.roles.items()}
    model = {**lab.gateway.settings, **({"roles": roles} if roles else {})}
    made = DeepThinkTool(strategy=strategy or DeepThink(), model=model, memory_mode=memory_mode)
    made._lab = lab
    return made
