"""The results of Deep Think's iterations, and the JSON that its models write.

A reply is readable if it has the text that the next stage needs: an approach, a solution or a synthesis. Any
other text that is missing or malformed is empty, and an unreadable number is `None`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Self

import msgspec
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from tot_lab.core.calls import readable
from tot_lab.core.reading.judgements import is_score_key, judgements
from tot_lab.core.reading.scores import plain_number, read_out_of_ten

CRITERIA = ("correctness", "completeness", "elegance", "practicality")
"""Criteria for judging a solution, each from 0 to 10."""


class ThoughtBranch(msgspec.Struct, frozen=True, omit_defaults=True):
    """One approach of an iteration, and its outcome.

    Fields not listed are texts of the model: of BRANCH (name, strategy, rationale, risks), of CONVERGE
    (verdict), and otherwise of DEVELOP.

    Attributes:
        id: b0, b1, … in the order of the model's reply.
        confidence: The confidence stated by DEVELOP, 0 to 10. `None` if it could not be read.
        score: The mean of the criteria, or the model's single score of the solution if no criterion could be
            read, 0 to 10. `None` if there is neither.
        assumed: Whether the confidence is a default, because the reply was truncated, or could not be read
            and its whole text is taken as the solution.
        truncated: Whether the reply was truncated, so that the solution may be incomplete.
        node: Id of the thought with the approach.
        solution_node: Id of the thought with the solution. `None` if there is no solution.
        error: Why there is no solution.
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
    truncated: bool = False


class AdoptedIdea(msgspec.Struct, frozen=True):
    """An idea that a synthesis uses. `branch` is the id of the branch it comes from."""

    branch: str
    idea: str


class IterationResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one iteration.

    Attributes:
        iteration: Counted from 1.
        branches: All branches of the iteration, best first, those without a solution last.
        best_solution: The synthesis, or the solution of the branch `from_branch` if there is no synthesis.
        confidence: Confidence in `best_solution`, 0 to 10.
        node: Id of the thought with `best_solution`.
        synthesis_reasoning: The reasons for the synthesis.
        taken: The ideas of the branches that the synthesis uses.
        reflection_summary: Patterns, mistakes and omissions, one per line.
        insights: The lessons of the iteration.
        should_continue: Whether the model expects an improvement from another iteration.
        next_focus: What the model would look at first in another iteration.
        assumed: Whether the confidence is a default, because the reply or the number in it could not be read.
            No decision then depends on it.
        beam: Ids of the branches that the next iteration builds on, best first.
        truncated: Whether the reply to CONVERGE was truncated.
        from_branch: Id of the branch whose solution stands in for a synthesis. "" if there is a synthesis.
    """

    iteration: int
    branches: tuple[ThoughtBranch, ...]
    best_solution: str
    confidence: float
    node: str
    synthesis_reasoning: str = ""
    taken: tuple[AdoptedIdea, ...] = ()
    reflection_summary: str = ""
    insights: tuple[str, ...] = ()
    should_continue: bool = True
    next_focus: str = ""
    assumed: bool = False
    beam: tuple[str, ...] = ()
    truncated: bool = False
    from_branch: str = ""


# The types of replies.


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


def _as_verdict(value: Any) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "yes": True, "false": False, "no": False}.get(value.strip().casefold())
    return value if isinstance(value, bool) else None


Text = Annotated[str, BeforeValidator(_as_text)]
Texts = Annotated[list[str], BeforeValidator(_as_texts)]
OutOfTen = Annotated[Annotated[float, Field(ge=0, le=10)] | None, BeforeValidator(read_out_of_ten)]


_SEVERAL: dict[str, Any] = {"minItems": 2}
"""Part of the schema of a list. It makes the example show two items, because a small model copies the number
of items. A single item is accepted too."""


def _without_docstring(schema: dict[str, Any]) -> None:
    """Remove the description, which documents the code, from the schema that a model reads."""
    schema.pop("description", None)


class ReplyModel(BaseModel):
    """A reply, or a part of one. Unknown keys are ignored, and a list of one object is read as that
    object."""

    model_config = ConfigDict(extra="ignore", json_schema_extra=_without_docstring)

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        alone = isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict)
        return cls._meant(value[0] if alone else value)

    @classmethod
    def _meant(cls, value: Any) -> Any:
        """`value` in the requested form. Types that accept other forms override this."""
        return value


class Approach(ReplyModel):
    """A way to go about the task."""

    name: Text = Field("", description="a few words")
    strategy: Text = Field("", description="how it goes about the task, in a sentence or two")
    rationale: Text = Field("", description="why it may work, in a sentence")
    risks: Text = Field("", description="what may go wrong, in a sentence")


class Approaches(ReplyModel):
    """The reply to BRANCH. Also accepted: the list alone, one approach alone, and an object whose one list
    has another name."""

    branches: Annotated[list[Approach], BeforeValidator(_as_objects)] = Field(json_schema_extra=_SEVERAL)

    @classmethod
    def _meant(cls, value: Any) -> Any:
        if isinstance(value, dict) and "branches" not in value:
            lists = [item for item in value.values() if isinstance(item, list)]
            value = lists[0] if len(lists) == 1 else [value]
        return {"branches": value} if isinstance(value, list) else value

    @model_validator(mode="after")
    def _require_text(self) -> Self:
        described = [approach for approach in self.branches if approach.strategy or approach.name]
        if not described:
            raise ValueError("there is no approach with a name or a strategy")
        self.branches = described
        return self


class Development(ReplyModel):
    """The reply to DEVELOP."""

    plan: Text = Field("", description="the steps")
    execution: Text = Field("", description="the steps carried out")
    solution: Annotated[Text, Field(min_length=1, description="the solution itself, whole")]
    observation: Text = Field("", description="what a check of the solution against the task shows")
    reflection: Text = Field("", description="what holds, and what does not")
    confidence: OutOfTen = Field(None, description="in the solution, from 0 to 10", examples=[6.5])
    strengths: Texts = []
    weaknesses: Texts = []
    rescaled: SkipJsonSchema[str] = ""
    """How the confidence was rescaled. "" if it was not."""

    @classmethod
    def _meant(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        most = _most(_numbers([value]))
        return {**_scaled(value, most), "rescaled": _RESCALED.get(most, "")}


class Evaluation(ReplyModel):
    """How one solution was judged. Also accepted: the criteria under the key `scores`, or a single score."""

    name: Text = Field("", description="the name of the approach")
    correctness: OutOfTen = Field(None, description="0 to 10")
    completeness: OutOfTen = Field(None, description="0 to 10")
    elegance: OutOfTen = Field(None, description="0 to 10")
    practicality: OutOfTen = Field(None, description="0 to 10")
    verdict: Text = Field("", description="one line")
    overall: SkipJsonSchema[OutOfTen] = None
    """A score for the solution as a whole. It counts if no criterion could be read."""

    named: SkipJsonSchema[dict[str, Any]] = {}
    """All values that may name the solution, by key."""

    @classmethod
    def _meant(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        made = {key.lower(): one for key, one in value.items()}
        others = [key for key in made if is_score_key(key) and key not in ("confidence", *CRITERIA)]
        for key in ("scores", "score", *(others if len(others) == 1 and not {*CRITERIA} & {*made} else ())):
            inner = made.pop(key, None)
            more = inner if isinstance(inner, dict) else {"overall": inner}
            made.update({name.lower(): one for name, one in more.items() if made.get(name.lower()) is None})
        if made.get("overall") is None:  # a single score under the key `scores`
            made["overall"] = made.pop("score", None)
        return made

    @property
    def score(self) -> float | None:
        """The mean of the criteria that could be read, or else the one score that was given."""
        read = [value for name in CRITERIA if (value := getattr(self, name)) is not None]
        return sum(read) / len(read) if read else self.overall


class Reflection(ReplyModel):
    """The lessons of an iteration."""

    patterns: Texts = Field([], description="what several solutions share")
    mistakes: Texts = Field([], description="what went wrong, and where")
    missed: Texts = Field([], description="what none of them saw")
    insights: Texts = Field([], description="what is now known of the task")
    text: SkipJsonSchema[Text] = Field("", exclude=True)
    """The whole reflection, if the model wrote it without fields."""

    @classmethod
    def _meant(cls, value: Any) -> Any:
        return value if isinstance(value, dict) else {"text": value}

    @property
    def summary(self) -> str:
        """All but the insights, in lines."""
        fields = [("Pattern", self.patterns), ("Mistake", self.mistakes), ("Missed by all", self.missed)]
        lines = [f"{what}: {text}" for what, texts in fields for text in texts]
        return "\n".join(filter(None, [self.text, *lines]))


class Idea(ReplyModel):
    """An idea that was taken from one of the solutions."""

    name: Text = Field("", description="the name of the approach that it comes from")
    idea: Text = Field("", description="what was taken from it")


class Synthesis(ReplyModel):
    """One solution made from those of all branches."""

    solution: Annotated[Text, Field(min_length=1, description="the solution itself, whole")]
    reasoning: Text = Field("", description="how it answers each weakness that was found")
    taken: Annotated[list[Idea], BeforeValidator(_as_objects)] = []


class Judgement(ReplyModel):
    """The judgement of the solutions in a reply to CONVERGE, with or without a synthesis."""

    evaluations: list[Evaluation] = Field([], json_schema_extra=_SEVERAL)
    reflection: Annotated[Reflection, BeforeValidator(_as_object)] = Reflection()
    rescaled: SkipJsonSchema[str] = ""
    """How the scores were rescaled. "" if they were not."""

    scale: SkipJsonSchema[str] = ""
    """A sentence that says what is uncertain about the scale of the scores. "" if nothing is."""

    @classmethod
    def _meant(cls, value: Any) -> Any:
        return _out_of_ten(value) if isinstance(value, dict) else value


class Convergence(Judgement):
    """The reply to CONVERGE."""

    synthesis: Synthesis
    confidence: OutOfTen = Field(None, description="in the synthesis, from 0 to 10", examples=[7.5])
    should_continue: Annotated[bool | None, BeforeValidator(_as_verdict)] = Field(
        None, description="whether another iteration would make it better", examples=[True]
    )
    next_focus: Text = Field("", description="what the next iteration should look at first")

    @classmethod
    def _meant(cls, value: Any) -> Any:
        """Accept a synthesis that is only the text of its solution."""
        if isinstance(value, dict) and isinstance(value.get("synthesis"), str):
            value = {**value, "synthesis": {"solution": value["synthesis"]}}
        return super()._meant(value)


# The scale of a reply's numbers.


_NO_SCALE = "The scores are of no one scale (some are at most 10, others above): they were not used."
_UNLIKE = "The scores are at most 1, the confidence is not: they were read as scores out of 10."
_RESCALED = {
    0: "The only number is 1, which may mean 1 out of 10 or certainty: it was not used.",
    1: "No number is above 1: they were read as numbers from 0 to 1.",
    100: "The numbers are above 10: they were read as numbers from 0 to 100.",
}
_NUMBERS = (*CRITERIA, "overall", "confidence")


def _out_of_ten(reply: dict[str, Any]) -> dict[str, Any]:
    """`reply` with its evaluations in the requested form and its numbers on the scale 0 to 10. Numbers whose
    scale is not clear become `None`."""
    evaluations = []
    for named, one in judgements(reply.get("evaluations", reply.get("scores"))):
        made = Evaluation._meant(one if isinstance(one, dict) else {"score": one})
        evaluations.append(
            {**made, "confidence": None, "named": named}
        )  # only the confidence of the whole reply counts: it is about the synthesis
    scores, sure = _numbers(evaluations), _numbers([reply])
    numbers, scale = [*scores, *sure], ""
    most = _most(numbers if max(numbers, default=0) <= 1 else scores or sure)
    if most == 1 and max(numbers) > 1:
        most, scale = 10, _UNLIKE
    elif most == 0 and numbers != [1]:
        scale = _NO_SCALE
    made = {**reply, "evaluations": [_scaled(one, most) for one in evaluations], "scale": scale}
    made["rescaled"] = "" if scale else _RESCALED.get(most, "")
    return _scaled(made, most) if max(numbers, default=0) <= 1 or max(sure, default=0) > 10 else made


def _most(numbers: Sequence[float]) -> int:
    """The top of the scale that the numbers are on: 1, 10 or 100. 0 means that the numbers cannot be used.

    It is 100 if every number except 0 is above 10 and at most 100. It is 1 if no number is above 1 and one is
    a fraction. It is 0 for any other numbers of which one is above 10, and for a single 1. Otherwise it is
    10.
    """
    if any(number > 10 for number in numbers):
        return 100 if all(number == 0 or 10 < number <= 100 for number in numbers) else 0
    if any(0 < number < 1 for number in numbers) and max(numbers) <= 1:
        return 1
    return 0 if [*numbers] == [1] else 10


def _numbers(given: Sequence[dict[str, Any]]) -> list[float]:
    numbers = [plain_number(one.get(name)) for one in given for name in _NUMBERS]
    return [number for number in numbers if number is not None and number >= 0]


def _scaled(given: dict[str, Any], most: int) -> dict[str, Any]:
    """`given` with its numbers rescaled from 0–`most` to 0–10. If `most` is 0, they become `None`."""
    numbers = {name: number for name in _NUMBERS if (number := plain_number(given.get(name))) is not None}
    return {**given, **{name: round(n * 10 / most, 9) if most else None for name, n in numbers.items()}}
