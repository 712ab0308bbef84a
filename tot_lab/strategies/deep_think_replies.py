"""What Deep Think keeps of its iterations, and the JSON that its models write.

Rule: strict about what decides, lenient about the rest. A reply counts as read when it holds what the next
stage needs (an approach, a solution, a synthesis); whatever else is missing or has another form is empty,
and a number that cannot be read is none. (Cogtrix, "Deep Think"; D1, D6, D7, D8 and D12 of its list.)
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Self

import msgspec
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from tot_lab.core.calls import readable
from tot_lab.core.reading import read_out_of_ten

CRITERIA = ("correctness", "completeness", "elegance", "practicality")
"""What a solution is judged on, each from 0 to 10."""


class ThoughtBranch(msgspec.Struct, frozen=True, omit_defaults=True):
    """One approach of an iteration, and what came of it.

    id: b0, b1, … in the order of the model's reply. confidence: of whoever developed it, 0–10. score: the
    mean of what it was judged on, 0–10. Both are None where no number could be read. assumed: its solution
    is a reply that could not be read as JSON, as a whole; the confidence is a stand-in. node, solution_node:
    the thoughts that hold the approach and the solution. error: why there is no solution. The others are
    texts of the model: of BRANCH (name, strategy, rationale, risks), of CONVERGE (verdict), of DEVELOP all
    others; "" or () where it wrote none.
    """

    id: str
    name: str
    strategy: str
    rationale: str = ""
    risks: str = ""
    plan: str = ""
    execution: str = ""
    solution: str = ""
    observation: str = ""
    reflection: str = ""
    confidence: float | None = None
    strengths: tuple[str, ...] = ()
    weaknesses: tuple[str, ...] = ()
    score: float | None = None
    verdict: str = ""
    assumed: bool = False
    node: str = ""
    solution_node: str | None = None
    error: str | None = None


class Taken(msgspec.Struct, frozen=True):
    """An idea that went into a synthesis. branch: the id of the branch that it comes from."""

    branch: str
    idea: str


class IterationResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one iteration came to.

    iteration: from 1. branches: the best first. best_solution: the synthesis. confidence: in it, 0–10.
    assumed: the confidence is a stand-in, because the reply could not be read; it decides nothing.
    synthesis_reasoning, taken, insights: why it is as it is, what it took from which branch, and what was
    learnt. reflection_summary: patterns, mistakes, and what all missed, in lines. should_continue,
    next_focus: whether the model would go on, and with what. beam: the ids of the branches that the next
    iteration builds on, the best first. node: the thought that holds the synthesis.
    """

    iteration: int
    branches: tuple[ThoughtBranch, ...]
    best_solution: str
    confidence: float
    node: str
    synthesis_reasoning: str = ""
    taken: tuple[Taken, ...] = ()
    reflection_summary: str = ""
    insights: tuple[str, ...] = ()
    should_continue: bool = True
    next_focus: str = ""
    assumed: bool = False
    beam: tuple[str, ...] = ()


# What a model may write.


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return readable(value.strip())
    if isinstance(value, list):
        return "\n".join(filter(None, map(_as_text, value)))
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _as_texts(value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [text for text in map(_as_text, values) if text]


def _as_objects(value: Any) -> list[Any]:
    values = value if isinstance(value, list) else [value]
    return [one for one in values if isinstance(one, dict)]


def _as_object(value: Any) -> Any:
    return {} if value is None else value


def _as_named(value: Any) -> list[Any]:
    """Objects by their names are a list of objects with these names."""
    named = isinstance(value, dict) and value and all(isinstance(one, dict) for one in value.values())
    return _as_objects([{"name": name, **one} for name, one in value.items()] if named else value)


def _as_verdict(value: Any) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "yes": True, "false": False, "no": False}.get(value.strip().casefold())
    return value if isinstance(value, bool) else None


Text = Annotated[str, BeforeValidator(_as_text)]
Texts = Annotated[list[str], BeforeValidator(_as_texts)]
OutOfTen = Annotated[Annotated[float, Field(ge=0, le=10)] | None, BeforeValidator(read_out_of_ten)]


_SEVERAL: dict[str, Any] = {"minItems": 2}
"""What a model is told of a list, since of an example with one a small model makes one. One is taken too."""


def _without_docstring(schema: dict[str, Any]) -> None:
    """It is for us, and not for the model."""
    schema.pop("description", None)


class Written(BaseModel):
    """A reply, or a part of one. Other keys than those asked for are passed over, and a list of one object
    is that object."""

    model_config = ConfigDict(extra="ignore", json_schema_extra=_without_docstring)

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        alone = isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict)
        return cls._meant(value[0] if alone else value)

    @classmethod
    def _meant(cls, value: Any) -> Any:
        """`value` in the form that is asked for, where another says the same."""
        return value


class Approach(Written):
    """A way to go about the task."""

    name: Text = Field("", description="a few words")
    strategy: Text = Field("", description="how it goes about the task, in a sentence or two")
    rationale: Text = Field("", description="why it may work, in a sentence")
    risks: Text = Field("", description="what may go wrong, in a sentence")


class Approaches(Written):
    """The reply to BRANCH. Also taken: the list alone, one approach alone, and an object whose one list has
    another name."""

    branches: Annotated[list[Approach], BeforeValidator(_as_objects)] = Field(json_schema_extra=_SEVERAL)

    @classmethod
    def _meant(cls, value: Any) -> Any:
        if isinstance(value, dict) and "branches" not in value:
            lists = [item for item in value.values() if isinstance(item, list)]
            value = lists[0] if len(lists) == 1 else [value]
        return {"branches": value} if isinstance(value, list) else value

    @model_validator(mode="after")
    def _say_something(self) -> Self:
        said = [approach for approach in self.branches if approach.strategy or approach.name]
        if not said:
            raise ValueError("there is no approach with a name or a strategy")
        self.branches = said
        return self


class Development(Written):
    """The reply to DEVELOP."""

    plan: Text = Field("", description="the steps")
    execution: Text = Field("", description="the steps carried out")
    solution: Annotated[Text, Field(min_length=1, description="the solution itself, whole")]
    observation: Text = Field("", description="what a check of the solution against the task shows")
    reflection: Text = Field("", description="what holds, and what does not")
    confidence: OutOfTen = Field(None, description="in the solution, from 0 to 10", examples=[6.5])
    strengths: Texts = []
    weaknesses: Texts = []


class Evaluation(Written):
    """How one solution was judged."""

    name: Text = Field("", description="the name of the approach")
    correctness: OutOfTen = Field(None, description="0 to 10")
    completeness: OutOfTen = Field(None, description="0 to 10")
    elegance: OutOfTen = Field(None, description="0 to 10")
    practicality: OutOfTen = Field(None, description="0 to 10")
    verdict: Text = Field("", description="one line")

    @property
    def score(self) -> float | None:
        """The mean of the criteria that could be read."""
        read = [value for name in CRITERIA if (value := getattr(self, name)) is not None]
        return sum(read) / len(read) if read else None


class Reflection(Written):
    """What an iteration teaches."""

    patterns: Texts = Field([], description="what several solutions share")
    mistakes: Texts = Field([], description="what went wrong, and where")
    missed: Texts = Field([], description="what none of them saw")
    insights: Texts = Field([], description="what is now known of the task")

    @classmethod
    def _meant(cls, value: Any) -> Any:
        """Words alone are an insight."""
        return value if isinstance(value, dict) else {"insights": value}

    @property
    def summary(self) -> str:
        """All but the insights, in lines."""
        told = [("Pattern", self.patterns), ("Mistake", self.mistakes), ("Missed by all", self.missed)]
        return "\n".join(f"{what}: {text}" for what, texts in told for text in texts)


class Idea(Written):
    """What was taken from one of the solutions."""

    name: Text = Field("", description="the name of the approach that it comes from")
    idea: Text = Field("", description="what was taken from it")


class Synthesis(Written):
    """One solution made from all."""

    solution: Annotated[Text, Field(min_length=1, description="the solution itself, whole")]
    reasoning: Text = Field("", description="how it answers each weakness that was found")
    taken: Annotated[list[Idea], BeforeValidator(_as_objects)] = []


class Convergence(Written):
    """The reply to CONVERGE."""

    evaluations: Annotated[list[Evaluation], BeforeValidator(_as_named)] = Field(
        [], json_schema_extra=_SEVERAL
    )
    reflection: Annotated[Reflection, BeforeValidator(_as_object)] = Reflection()
    synthesis: Synthesis
    confidence: OutOfTen = Field(None, description="in the synthesis, from 0 to 10", examples=[7.5])
    should_continue: Annotated[bool | None, BeforeValidator(_as_verdict)] = Field(
        None, description="whether another iteration would make it better", examples=[True]
    )
    next_focus: Text = Field("", description="what the next iteration should look at first")

    @classmethod
    def _meant(cls, value: Any) -> Any:
        """A synthesis may be its solution alone."""
        if isinstance(value, dict) and isinstance(value.get("synthesis"), str):
            return {**value, "synthesis": {"solution": value["synthesis"]}}
        return value


def by_name(names: Sequence[str], written: Sequence[str]) -> list[int | None]:
    """Which of `names` each of the names that a model has `written` means, case and spaces apart; None for
    none of them, and for a name that two of them share."""
    known = [_same(name) for name in names]
    return [known.index(name) if known.count(name := _same(one)) == 1 else None for one in written]


def matched(names: Sequence[str], written: Sequence[str]) -> list[int | None]:
    """The same for what was written about each of them once, the first deciding. Where two names are the
    same, or no name says which is meant, their order does."""
    found = by_name(names, written)
    if len({*map(_same, names)}) < len(names) or all(place is None for place in found):
        found = [k if k < len(names) else None for k in range(len(written))]
    return [None if place in found[:k] else place for k, place in enumerate(found)]


def _same(name: str) -> str:
    return " ".join(name.casefold().split())
