"""A plan as data: its types, what makes it sound, and references from one step to another's result.

Rule: a model writes content only, under the names of the design (`toolName`, `dependsOn`, …); ids,
statuses, times and totals are added. A plan that could not be carried out is refused before any
step of it is, in words that name the step. (Reactive Agents, "Plan types"; R4, R6 and R8 of its list.)
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, Literal

import msgspec
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from tot_lab.core.reading import json_of
from tot_lab.core.tools import ToolSpec

SUMMARY = 500
"""Characters of a result that `{{from_step:s1:summary}}` stands for."""

DROPPED = "dropped by a patch"
"""The error of a step in whose place others were put."""

Kind = Literal["tool_call", "analysis", "composite"]
Status = Literal["pending", "in_progress", "completed", "failed", "skipped"]
Mode = Literal["linear", "dag"]
OPEN = ("pending", "failed", "skipped")
"""Statuses of a step that a patch may rewrite."""

_REFERENCE = re.compile(r"\{\{\s*from_step\s*:([^{}]*)\}\}")
_CALL_BEGINS = re.compile(r"(?<![a-z0-9-])[0-9-]*+([a-z][a-z0-9-]*+)\(\{")


def _or_empty(value: Any) -> Any:
    """A model that has nothing to say here may write null."""
    return () if value is None else value


Names = Annotated[tuple[str, ...], BeforeValidator(_or_empty)]


_EXAMPLE: dict[str, Any] = {
    "steps": [
        {
            "id": "s1",
            "title": "a few words",
            "instruction": "what to do",
            "type": "analysis",
            "toolName": None,
            "toolArgs": {},
            "toolHints": [],
            "dependsOn": [],
        },
        {
            "id": "s2",
            "title": "a few words",
            "instruction": "",
            "type": "tool_call",
            "toolName": "a-tool",
            "toolArgs": {"argument": "{{from_step:s1}}"},
            "toolHints": [],
            "dependsOn": ["s1"],
        },
    ]
}


class StepDraft(BaseModel):
    """A step: its id (s1, s2, … by its place), title, instruction and type, the tool and the arguments of a
    tool_call, the tools that a composite step may use, and the steps whose results it needs."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)
    id: str = ""
    title: str = ""
    instruction: str = ""
    type: Kind
    tool_name: str | None = None
    tool_args: Annotated[dict[str, Any], BeforeValidator(lambda value: value or {})] = {}
    tool_hints: Names = ()
    depends_on: Names = ()


class PlanDraft(BaseModel):
    """Steps of a plan."""

    model_config = ConfigDict(frozen=True, json_schema_extra={"examples": [_EXAMPLE]})
    steps: tuple[StepDraft, ...]

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        """A bare list will do. What is wrong with a step is said by its place."""
        steps = value.get("steps") if isinstance(value, dict) else value
        if not isinstance(steps, list):
            return value
        for place, step in enumerate(steps, 1):
            try:
                StepDraft.model_validate(step)
            except ValidationError as error:
                wrong = (f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:3])
                raise ValueError(f"step {place}: {'; '.join(wrong)}") from None
        return {"steps": steps}


class Step(StepDraft):
    """A step of a plan.

    id: s1, s2, …; seq: its place from 1. status: pending, in_progress, completed, failed or skipped (a step
    that it needs was not completed, or a patch dropped it). result: its text, None before it is completed.
    error: why it failed. retries: tries after the first. tokens_used: of its model calls, None when the model
    does not count them. started_at, completed_at: seconds since the run began. node: its thought.
    """

    id: str
    seq: int
    status: Status = "pending"
    result: str | None = None
    error: str | None = None
    retries: int = 0
    tokens_used: int | None = 0
    started_at: float | None = None
    completed_at: float | None = None
    node: str = ""

    @property
    def label(self) -> str:
        """Id and title."""
        return f"{self.id} {self.title}".strip()

    def content(self) -> dict[str, Any]:
        """What is known of it before it starts, as JSON-ready data under the design's names."""
        return self.model_dump(
            by_alias=True,
            mode="json",
            exclude={"status", "result", "error", "retries", "tokens_used", "started_at", "completed_at"},
        )

    def changed(self, **fields: Any) -> Step:
        """The step with other values."""
        return self.model_copy(update=fields)


class Plan(BaseModel):
    """A plan, as the record of a run tells of it.

    id: the run's id and the thought that the plan belongs to. task_id: the task's own id. agent_id: the
    strategy and the model. status: active, completed (its goal was reached), failed, or abandoned (cut off
    by a budget or a cancel). version: 1, and one more for each patch and each augmentation. created_at,
    updated_at, completed_at: seconds since `started` (ISO 8601, UTC), when the run began. tokens, cost (USD):
    of all its model calls, None when the model does not say. journal: the run's file, "" for one in memory.
    """

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)
    id: str
    task_id: str
    agent_id: str
    goal: str
    mode: Mode
    steps: tuple[Step, ...]
    status: Literal["active", "completed", "failed", "abandoned"] = "active"
    version: int = 1
    started: str = ""
    created_at: float = 0.0
    updated_at: float = 0.0
    completed_at: float | None = None
    tokens: int | None = 0
    cost: float | None = 0.0
    journal: str = ""

    def __getitem__(self, id: str) -> Step:
        """The step of that id. Raises KeyError."""
        return {step.id: step for step in self.steps}[id]


# From what a model wrote to steps.


def planned(
    draft: PlanDraft, before: Sequence[Step], tools: Collection[str], mode: Mode, most: int
) -> list[Step]:
    """All steps once those of `draft` follow `before`. most: how many a model may write.

    Raises ValueError, by the step's name, for steps that could not be carried out."""
    _check_count(draft, most)
    first = len(before) + 1
    fresh = [_step(step, number, tools) for number, step in enumerate(draft.steps, first)]
    for written, step in zip(draft.steps, fresh, strict=True):
        if written.id and written.id != step.id:
            twice = written.id in {other.id for other in fresh}
            raise ValueError(
                f"{step.id}: it calls itself {written.id!r}"
                + (", as another step does" if twice else "")
                + f"; steps are named by their place, from s{first} on"
            )
    steps = [*before, *fresh]
    _check(steps, tools, mode)
    return steps


def rewritten(
    draft: PlanDraft, steps: Sequence[Step], tools: Collection[str], mode: Mode, most: int
) -> list[Step]:
    """`steps` with those of `draft` in place of the open ones of the same id. Each that failed must be among
    them, none that is completed may be; one that was skipped is open again. Raises ValueError, by the
    step's name."""
    _check_count(draft, most)
    known = {step.id: step for step in steps}
    fresh: dict[str, Step] = {}
    for written in draft.steps:
        if written.id not in known:
            raise ValueError(f"{written.id or 'a step without an id'}: the plan has no such step")
        if known[written.id].status not in OPEN:
            raise ValueError(f"{written.id}: it is {known[written.id].status} and cannot be rewritten")
        if written.id in fresh:
            raise ValueError(f"{written.id}: it is rewritten twice")
        fresh[written.id] = _step(written, known[written.id].seq, tools)
    for step in steps:
        if step.status == "failed" and step.id not in fresh:
            raise ValueError(f"{step.id}: it is failed and must be rewritten")
    made = [fresh.get(step.id, reopened(step)) for step in steps]
    _check(made, tools, mode)
    return made


def reopened(step: Step) -> Step:
    """The step, to be carried out after all if it was skipped and not dropped."""
    open_again = step.status == "skipped" and step.error != DROPPED
    return step.changed(status="pending", error=None) if open_again else step


def with_required(
    steps: Sequence[Step], quantities: Mapping[str, int], tools: Sequence[ToolSpec], goal: str
) -> list[Step]:
    """`steps`, followed by what they lack of `quantities`: so many calls of each tool.

    An added call asks for the goal in each text that the tool must have. A tool that must have something
    else is left to a composite step, which finds its arguments."""
    made = list(steps)
    schemas = {spec.name: spec.parameters for spec in tools}
    for name, count in quantities.items():
        there = sum(step.type == "tool_call" and step.tool_name == name for step in steps)
        for number in range(there + 1, count + 1):
            seq = len(made) + 1
            asked = f"{goal} (part {number} of {count})" if count > 1 else goal
            needed = schemas.get(name, {}).get("required", [])
            properties = schemas.get(name, {}).get("properties", {})
            texts = all(properties.get(field, {}).get("type") == "string" for field in needed)
            common = {"id": f"s{seq}", "seq": seq, "title": f"{name}, {number} of {count}"}
            made.append(
                Step(**common, type="tool_call", tool_name=name, tool_args=dict.fromkeys(needed, asked))
                if texts
                else Step(
                    **common,
                    type="composite",
                    instruction=f"Call the tool {name}, for something that no other step asks it.",
                    tool_hints=(name,),
                )
            )
    return made


def _check_count(draft: PlanDraft, most: int) -> None:
    if not 1 <= len(draft.steps) <= most:
        raise ValueError(f"there are {len(draft.steps)} steps; there must be 1 to {most}")


def _step(draft: StepDraft, seq: int, tools: Collection[str]) -> Step:
    """The step, with tool names as the tools have them, and what it refers to among what it depends on."""
    fields = draft.model_dump()
    try:
        data = msgspec.json.decode(msgspec.json.encode(fields))
    except (ValueError, TypeError, RecursionError, msgspec.MsgspecError) as error:
        raise ValueError(f"s{seq}: it cannot be written as JSON: {error}") from None
    if data["tool_args"] != fields["tool_args"]:
        raise ValueError(f"s{seq}: toolArgs holds a number that JSON has not")
    name = draft.tool_name and _known_name(draft.tool_name, tools)
    hints = tuple(_known_name(hint, tools) for hint in draft.tool_hints)
    needs = dict.fromkeys([*draft.depends_on, *(id for id, _ in references(draft, f"s{seq}"))])
    more = {"id": f"s{seq}", "tool_name": name or None, "tool_hints": hints, "depends_on": tuple(needs)}
    return Step(**{**fields, **more}, seq=seq)


def _known_name(name: str, tools: Collection[str]) -> str:
    usual = name.strip().replace("_", "-").lower()
    return usual if name not in tools and usual in tools else name


def _check(steps: Sequence[Step], tools: Collection[str], mode: Mode) -> None:
    known = {step.id: step for step in steps}
    offered = ", ".join(sorted(tools)) or "none"
    for step in steps:
        if step.status != "pending":
            continue
        if step.type == "tool_call" and not step.tool_name:
            raise ValueError(f"{step.id}: a tool_call needs a toolName; there are {offered}")
        if step.type != "tool_call" and not (step.instruction.strip() or step.title.strip()):
            raise ValueError(f"{step.id}: it has no instruction")
        for name in (step.tool_name if step.type == "tool_call" else None, *step.tool_hints):
            if name is not None and name not in tools:
                raise ValueError(f"{step.id}: there is no tool {name!r}; there are {offered}")
        for id in step.depends_on:
            if id == step.id:
                raise ValueError(f"{step.id}: it depends on itself")
            if id not in known:
                raise ValueError(f"{step.id}: it depends on {id!r}, and the plan has no such step")
            if known[id].status in ("failed", "skipped"):
                raise ValueError(f"{step.id}: it depends on {id}, which is {known[id].status}")
    try:
        TopologicalSorter({step.id: step.depends_on for step in steps}).prepare()
    except CycleError as error:
        circle = " → ".join(reversed(error.args[1]))
        raise ValueError(f"{error.args[1][0]}: it depends on itself, by {circle}") from None
    if mode == "linear":
        for step in steps:
            for id in step.depends_on:
                if step.status == "pending" and known[id].seq > step.seq:
                    raise ValueError(f"{step.id}: it depends on {id}, which comes after it")


# References.


def references(step: StepDraft, name: str) -> Iterator[tuple[str, bool]]:
    """The ids that the instruction and the arguments of a step refer to, whatever its type, and whether by a
    summary. Raises ValueError, under `name`, for one that cannot be read."""
    for text in _texts([step.instruction, step.tool_args]):
        for match in _REFERENCE.finditer(text):
            yield _reference(match, name)


def _reference(match: re.Match[str], name: str) -> tuple[str, bool]:
    id, colon, form = (part.strip() for part in match[1].partition(":"))
    if not id or (colon and form != "summary"):
        raise ValueError(f"{name}: {match[0]} is no reference; write {{{{from_step:s1}}}} or …:summary}}}}")
    return id, bool(colon)


def _texts(value: Any) -> Iterator[str]:
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list | tuple):
            waiting.extend(value)


def filled_in(value: Any, step: Step, steps: Mapping[str, Step]) -> Any:
    """`value`, a text or nested arguments of `step`, with each reference replaced by the result it names.

    Raises ValueError for one that names the step itself, no step, or one that is not completed."""

    def result(match: re.Match[str]) -> str:
        id, summary = _reference(match, step.id)
        if id == step.id:
            raise ValueError(f"{step.id}: {match[0]} names the step itself")
        if id not in steps:
            raise ValueError(f"{step.id}: {match[0]} names a step that the plan does not have")
        known = steps[id]
        if known.status != "completed" or known.result is None:
            raise ValueError(
                f"{step.id}: {match[0]} names a step that is not completed (it is {known.status})"
            )
        return known.result[:SUMMARY] if summary else known.result

    if isinstance(value, str):
        return _REFERENCE.sub(result, value)
    if isinstance(value, dict):
        return {key: filled_in(item, step, steps) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [filled_in(item, step, steps) for item in value]
    return value


# As a thought shows them, and as a model is shown them.


def text_of(step: Step) -> str:
    """A step as its thought shows it."""
    what = written(step) if step.type == "tool_call" else step.instruction
    return "\n".join(filter(None, [step.title, what]))


def as_said(step: Step, text: str) -> Step:
    """`step` after a person gave its thought another text: a call of a tool, or else its instruction."""
    match, end = _CALL_BEGINS.search(text), text.rfind("})") + 1
    try:
        arguments = json_of(text[match.end() - 1 : end]) if match else None
    except ValueError:
        arguments = None
    if match is not None and isinstance(arguments, dict):
        return step.changed(type="tool_call", title="", tool_name=match[1], tool_args=arguments)
    kind = "analysis" if step.type == "tool_call" else step.type
    return step.changed(type=kind, title="", instruction=text)


def shown(steps: Iterable[Step], most: int) -> str:
    """Steps with their statuses and what came of them, each result up to `most` characters."""
    return "\n".join(_shown(step, most) for step in steps)


def _shown(step: Step, most: int) -> str:
    text = f"{step.label} [{step.status}]"
    if step.depends_on:
        text += f", after {', '.join(step.depends_on)}"
    if step.type == "tool_call":
        text += f"\n   calls {written(step)}"
    elif step.instruction:
        text += f"\n   {step.instruction}"
    if step.result is not None:
        more = len(step.result) - most
        text += f"\n   result: {step.result[:most]}" + (f" … ({more:,} more characters)" if more > 0 else "")
    return text if step.error is None else f"{text}\n   error: {step.error[:most]}"


def written(step: Step) -> str:
    """The call of a tool_call step, as its thought has it."""
    return f"{step.tool_name}({json.dumps(step.tool_args, ensure_ascii=False)})"
