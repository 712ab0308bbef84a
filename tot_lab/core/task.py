"""Tasks and their answers."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SerializeAsAny

from tot_lab.core.domain import Domain, Path
from tot_lab.core.tools import ToolSpec


class Answer(msgspec.Struct, frozen=True):
    """What a strategy returns.

    Attributes:
        text: The answer. Empty if there is none.
        stop_reason: Why the strategy ended, one of `STOP_CODES`.
        node: The thought that holds the answer.
        score: The score of that thought.
        ranked: Ids of further candidates, best first.
    """

    text: str
    stop_reason: str
    node: str | None = None
    score: float | None = None
    ranked: tuple[str, ...] = ()


def _encodable(text: str) -> str:
    text.encode()  # a lone surrogate cannot be written to a file; the error names the field
    return text


_Text = Annotated[str, AfterValidator(_encodable)]


class Task(BaseModel):
    """One problem."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    domain: SerializeAsAny[Domain]
    """The family of tasks it belongs to."""

    question: _Text
    """The problem in words."""

    data: dict[str, Any] = Field(default_factory=dict)
    """Further data that the domain needs."""

    context: _Text = ""
    """Context added by research or lessons. Every prompt shows it."""

    steps: tuple[_Text, ...] = ()
    """Steps taken before the strategy's root. Every path that a domain receives begins with them."""

    system_prompt: _Text = ""
    """System text before every model call of a run on this task, whatever the strategy."""

    reference: Any = None
    """Ground truth. It is removed before a strategy receives the task."""

    id: _Text = ""
    """Name of the task in results."""

    tools: tuple[ToolSpec, ...] = ()
    """Tools that the strategy may call. The lab sets them (`tl.Lab(tools=…)`)."""

    context_window: Annotated[int, Field(ge=1)] | None = None
    """The model's context window in tokens. `None` if it is not known. A lab with tools sets it."""

    def hidden(self) -> Task:
        """The task as a strategy receives it, without the reference."""
        return self if self.reference is None else self.model_copy(update={"reference": None})

    def with_context(self, *sections: str) -> Task:
        """The task with `sections` after its context. Empty ones are left out."""
        return self.model_copy(update={"context": "\n\n".join(filter(None, [self.context, *sections]))})

    def path(self, texts: Path) -> list[str]:
        """The path of a strategy's own thoughts as domains receive it: with the earlier steps before it."""
        return [*self.steps, *texts]

    def without_steps(self) -> Task:
        """The task as a user's evaluator function receives it, whose paths are whole."""
        return self.model_copy(update={"steps": ()}) if self.steps else self

    def answer_prompt(self, reasoning: bool) -> str:
        """The domain's `answer_prompt`. It has no path, so the earlier steps are shown as context."""
        task = self
        if self.steps:
            task = self.with_context(f"The steps taken so far:\n{self.domain.steps(self.steps)}")
        return self.domain.answer_prompt(task, reasoning)

    def grade(self, answer: str) -> float | None:
        """How correct `answer` is, from 0 to 1. `None` if there is no reference."""
        return self.domain.grade(self, answer)

    def settings(self) -> dict[str, Any]:
        """The task as JSON-ready data."""
        empty = {
            name for name in ("steps", "system_prompt", "tools", "context_window") if not getattr(self, name)
        }
        return {**self.model_dump(exclude={"domain", *empty}), "domain": self.domain.settings()}
