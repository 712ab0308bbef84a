"""Plans as data: their types, their validation, and references from a step to the result of another.

A model writes only the content of steps, under camelCase names (`toolName`, `dependsOn`, …); the program adds
ids, statuses, times and totals. A plan that cannot be carried out is rejected before any step runs, with an
error that names the step.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, Literal

import msgspec
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from tot_lab.core.reading.json_values import json_of
from tot_lab.core.tools import ToolSpec, names_of, tool_name

SUMMARY = 500
"""Length of the summary that `{{from_step:s1:summary}}` inserts, in characters."""

DROPPED = "dropped by a patch"
"""The error of a step that a patch replaced."""

StepType = Literal["tool_call", "analysis", "composite"]
Status = Literal["pending", "in_progress", "completed", "failed", "skipped"]
Mode = Literal["linear", "dag"]
OPEN = ("pending", "failed", "skipped")
"""Statuses of a step that a patch may rewrite."""

_ID = re.compile(r"\bs[0-9]+\b")
_REFERENCE = re.compile(r"\{\{\s*from_step\s*:([^{}]*)\}\}")
_CALL_BEGINS = re.compile(r"(?<![a-z0-9-])[0-9-]*+([a-z][a-z0-9-]*+)\(\{")


def _as_text(value: Any) -> Any:
    """Accept a number for an id, and null for an empty text."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return "" if value is None else str(value) if whole else value


def _as_names(value: Any) -> Any:
    """Accept a single name, numbers for ids, and null for no names."""
    if value is None:
        return ()
    return tuple(map(_as_text, value if isinstance(value, list | tuple) else [value]))


Names = Annotated[tuple[str, ...], BeforeValidator(_as_names)]
Text = Annotated[str, BeforeValidator(_as_text)]


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
    tool_call, the tools that a composite step may use (no others), and the steps whose results it needs.
    """

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)
    id: Text = ""
    title: Text = ""
    instruction: Text = ""
    type: StepType
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
        """Accept a bare list of steps, and name the place of an invalid one."""
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


class PlanStep(StepDraft):
    """A step of a plan.

    Attributes:
        id: s1, s2, …
        seq: The position of the step, counted from 1.
        status: `pending`, `in_progress`, `completed`, `failed`, or `skipped` (a step that it needs was not
            completed, or a patch dropped it).
        result: The text of the result. `None` before the step is completed.
        error: Why the step failed, was skipped or cannot be carried out. `None` otherwise.
        retries: Attempts after the first.
        tokens_used: Tokens of its model calls. `None` if the model does not report them.
        started_at: When it started, in seconds since the run began. `None` before that.
        completed_at: When it was completed, failed or was skipped, in seconds since the run began. `None`
            before that.
        node: Id of its thought.
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
        """The part of the step that is known before it starts, as JSON-ready data under camelCase names."""
        return self.model_dump(
            by_alias=True,
            mode="json",
            exclude={"status", "result", "error", "retries", "tokens_used", "started_at", "completed_at"},
        )

    def changed(self, **fields: Any) -> PlanStep:
        """A copy with other values."""
        return self.model_copy(update=fields)


class Plan(BaseModel):
    """A plan, reconstructed from the records of a run.

    Attributes:
        id: The run's id and the thought that the plan belongs to.
        task_id: The id of the task.
        agent_id: The `agent_id` of the lab, or else the strategy and the model.
        status: `active`, `completed` (its goal was reached), `failed`, or `abandoned` (ended by a budget or
            cancelled).
        version: 1, plus one for each patch and augmentation.
        started: Start of the run (ISO 8601, UTC).
        created_at: When the plan was made, in seconds since `started`.
        updated_at: When it was last changed, in seconds since `started`.
        completed_at: When it ended, in seconds since `started`. `None` if it has not.
        tokens: Tokens of all its model calls. `None` if the model does not report them.
        cost: USD of all its model calls. `None` if it is not known.
        journal: Path of the run's journal. Empty for a run in memory.
    """

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)
    id: str
    task_id: str
    agent_id: str
    goal: str
    mode: Mode
    steps: tuple[PlanStep, ...]
    status: Literal["active", "completed", "failed", "abandoned"] = "active"
    version: int = 1
    started: str = ""
    created_at: float = 0.0
    updated_at: float = 0.0
    completed_at: float | None = None
    tokens: int | None = 0
    cost: float | None = 0.0
    journal: str = ""

    def __getitem__(self, id: str) -> PlanStep:
        """The step with that id. Raises KeyError."""
        return {step.id: step for step in self.steps}[id]


# Converting drafts to steps.


def planned(
    draft: PlanDraft, before: Sequence[PlanStep], tools: Mapping[str, ToolSpec], mode: Mode, most: int
) -> list[PlanStep]:
    """Append the steps of `draft` to `before`.

    Steps are numbered by position, and references to the ids that the model wrote are renamed. A step with an
    invalid reference, or with a tool that does not exist, is not carried out: its `error` says why. A
    tool_call with a list for an argument that takes a single value becomes one call per value.

    Args:
        most: The most steps that the draft may have.

    Raises:
        ValueError: If the plan as a whole is unusable. The message names the step.
    """
    drafts = _with_own_names(draft, tools)
    calls = [_one_call_each(step, tools) for step in drafts]
    _check_count(sum(map(len, calls)), most)
    places = iter(range(len(before) + 1, len(before) + 1 + sum(map(len, calls))))
    numbers = [[next(places) for _ in several] for several in calls]
    names = _names([step.id for step in before], [step.id for step in drafts], numbers)
    fresh = [
        _step(one, number, tools, names)
        for several, numbered in zip(calls, numbers, strict=True)
        for one, number in zip(several, numbered, strict=True)
    ]
    steps = _without_knots([*before, *fresh], mode)
    _check(steps)
    return steps


def rewritten(
    draft: PlanDraft, steps: Sequence[PlanStep], tools: Mapping[str, ToolSpec], mode: Mode, most: int
) -> list[PlanStep]:
    """Replace open steps of a plan by the steps of `draft` with the same ids.

    Draft steps with unknown ids replace, in order, the failed steps that the draft does not name. A draft
    step with the id of a completed step is ignored. Failed steps that are not rewritten stay failed; skipped
    ones are reopened, unless a patch dropped them.

    Raises:
        ValueError: If no step of the draft can be used, or if a step depends on one that stays failed or
            skipped. The message names the step.
    """
    _check_count(len(draft.steps), most)
    known = {step.id: step for step in steps}
    named: dict[str, StepDraft] = {}
    others: list[StepDraft] = []
    for written in _with_own_names(draft, tools):
        if written.id in known and known[written.id].status in OPEN and written.id not in named:
            named[written.id] = written
        elif written.id not in known:
            others.append(written)
    failed = [step.id for step in steps if step.status == "failed" and step.id not in named]
    named |= dict(zip(failed, others, strict=False))
    if not named:
        why = "the plan has no such step"
        if draft.steps[0].id in known:
            why = f"it is {known[draft.steps[0].id].status} and cannot be rewritten"
        raise ValueError(f"{draft.steps[0].id or 'a step without an id'}: {why}")
    names = {step.id: (step.id,) for step in steps}
    fresh = {id: _step(written, known[id].seq, tools, names) for id, written in named.items()}
    made = _without_knots([fresh.get(step.id, reopened(step)) for step in steps], mode)
    _check(made)
    return made


def _with_own_names(draft: PlanDraft, tools: Mapping[str, ToolSpec]) -> list[StepDraft]:
    """The steps of `draft`, with the tools' registered names. Names of unknown tools stay."""
    known = names_of(tools.values())

    def own(name: str) -> str:
        return name if name in tools else known.get(tool_name(name), name)

    return [
        step.model_copy(
            update={
                "tool_name": step.tool_name and own(step.tool_name),
                "tool_hints": tuple(map(own, step.tool_hints)),
            }
        )
        for step in draft.steps
    ]


def _one_call_each(draft: StepDraft, tools: Mapping[str, ToolSpec]) -> list[StepDraft]:
    """Split a tool_call whose argument is a list instead of a single value into one call per value."""
    spec = tools.get(draft.tool_name or "")
    if draft.type != "tool_call" or spec is None:
        return [draft]
    properties = spec.parameters.get("properties", {})
    lists = [
        name
        for name, value in draft.tool_args.items()
        if isinstance(value, list) and value and properties.get(name, {}).get("type") in _SINGLE
    ]
    if len(lists) != 1:
        return [draft]
    (name,) = lists
    return [
        draft.model_copy(update={"tool_args": {**draft.tool_args, name: value}})
        for value in draft.tool_args[name]
    ]


_SINGLE = ("string", "integer", "number", "boolean")
"""JSON types of single values."""

Named = Mapping[str, tuple[str, ...]]
"""Ids of steps by name: several if a step was split, an empty tuple if the name is ambiguous."""


def _names(before: Sequence[str], written: Sequence[str], numbers: Sequence[Sequence[int]]) -> Named:
    """Map each name by which a draft may refer to a step to the ids of that step, several if it was split.

    Names are the ids of earlier steps and those written in the draft. A name of two different steps is
    ambiguous. Unless they are taken, `s4` and `4` are names too: of the fourth step, where the earlier steps
    count and a split step counts once.
    """
    made = [tuple(f"s{number}" for number in several) for several in numbers]
    names: dict[str, tuple[str, ...]] = {id: (id,) for id in before}
    for id, own in zip(written, made, strict=True):
        if id:
            names[id] = own if names.get(id, own) == own else ()
    first = len(before) + 1
    for place, own in enumerate(made, first):
        names.setdefault(f"s{place}", own)
        names.setdefault(str(place), own)
    return names


def reopened(step: PlanStep) -> PlanStep:
    """`step` as pending if it was skipped and not dropped, otherwise unchanged."""
    open_again = step.status == "skipped" and step.error != DROPPED
    return step.changed(status="pending", error=None) if open_again else step


def missing_calls(steps: Sequence[PlanStep], required: Mapping[str, int]) -> dict[str, int]:
    """The number of `required` calls that `steps` lack, by tool name."""
    there = Counter(step.tool_name for step in steps if step.type == "tool_call")
    return {name: count - there[name] for name, count in required.items() if count > there[name]}


def further_calls(
    draft: PlanDraft,
    steps: Sequence[PlanStep],
    missing: Mapping[str, int],
    tools: Mapping[str, ToolSpec],
    mode: Mode,
    most: int,
) -> list[PlanStep]:
    """The tool_call steps of `draft` that call the tools in `missing`, at most as often as they are missing.
    Other steps of `draft` are dropped.

    Raises:
        ValueError: If none is left, or if one depends on a dropped step.
    """
    left = Counter(missing)
    made = []
    for step in planned(draft, steps, tools, mode, most)[len(steps) :]:
        if step.type == "tool_call" and step.error is None and left[step.tool_name or ""] > 0:
            left[step.tool_name or ""] -= 1
            made.append(step)
    if not made:
        raise ValueError(f"no step is a tool_call of {', '.join(missing)}")
    kept = {step.id for step in (*steps, *made)}
    for step in made:
        if lacking := next((id for id in step.depends_on if id not in kept), None):
            raise ValueError(
                f"{step.id}: it depends on {lacking}, which is dropped: only the missing calls of "
                f"{', '.join(missing)} are kept"
            )
    return made


def added_calls(
    steps: Sequence[PlanStep], name: str, count: int, arguments: Mapping[str, str]
) -> list[PlanStep]:
    """`count` steps, numbered after `steps`, that each call the tool `name` with these arguments."""
    step = {"title": name, "type": "tool_call", "tool_name": name, "tool_args": dict(arguments)}
    return [PlanStep(**step, id=f"s{seq}", seq=seq) for seq in _next(steps, count)]


def _next(steps: Sequence[PlanStep], count: int) -> range:
    return range(len(steps) + 1, len(steps) + count + 1)


def calls_to_choose(steps: Sequence[PlanStep], name: str, count: int, goal: str) -> list[PlanStep]:
    """`count` composite steps, numbered after `steps`, each for one call of the tool `name`. Their model
    chooses the arguments. It sees the results of the analyses that do not depend on a call of this tool.
    """
    calls = {step.id for step in steps if _called_alone(step) == name}
    known = [step.id for step in steps if step.type == "analysis" and not calls & {*step.depends_on}]
    return [
        PlanStep(
            id=f"s{seq}",
            seq=seq,
            title=f"call {name}",
            instruction=f"Call the tool {name} for this, if it is needed, and do nothing else: {goal}",
            type="composite",
            tool_hints=(name,),
            depends_on=tuple(known),
        )
        for seq in _next(steps, count)
    ]


def inserted(steps: Sequence[PlanStep], added: Sequence[PlanStep]) -> list[PlanStep]:
    """Insert each step of `added` before the first step that uses a result of the same tool, or at the end if
    no step does. That step, and all later ones that use such a result, then depend on the inserted step as
    well. Steps are numbered anew.
    """
    made = list(steps)
    for step in added:
        same = {one.id for one in made if _called_alone(one) == _called_alone(step)}
        needed = _needed(step, made)
        first = 1 + max((place for place, one in enumerate(made) if one.id in needed), default=-1)
        users = [place for place, one in enumerate(made) if place >= first and same & {*one.depends_on}]
        for place in users:
            made[place] = made[place].changed(depends_on=(*made[place].depends_on, step.id))
        made.insert(users[0] if users else len(made), step)
    new = {step.id: f"s{seq}" for seq, step in enumerate(made, 1)}
    return [_renumbered(step, seq, new) for seq, step in enumerate(made, 1)]


def _needed(step: PlanStep, steps: Sequence[PlanStep]) -> set[str]:
    """The steps that `step` depends on, directly or not."""
    known = {one.id: one for one in steps}
    found, waiting = set[str](), [*step.depends_on]
    while waiting:
        if (id := waiting.pop()) not in found:
            found.add(id)
            waiting += known[id].depends_on
    return found


def _called_alone(step: PlanStep) -> str | None:
    """The tool that a step calls, or the only one that a composite step may call."""
    if step.type == "composite" and len(step.tool_hints) == 1:
        return step.tool_hints[0]
    return step.tool_name if step.type == "tool_call" else None


def _renumbered(step: PlanStep, seq: int, new: Mapping[str, str]) -> PlanStep:
    def renamed(match: re.Match[str]) -> str:
        id, colon, form = match[1].partition(":")
        return f"{{{{from_step:{new.get(id.strip(), id)}{colon}{form}}}}}"

    def rename(text: str) -> str:
        return _REFERENCE.sub(renamed, text)

    return step.changed(
        id=new[step.id],
        seq=seq,
        depends_on=tuple(new[id] for id in step.depends_on),
        instruction=rename(step.instruction),
        tool_args=_with_texts(step.tool_args, rename),
        error=step.error and _ID.sub(lambda match: new.get(match[0], match[0]), step.error),
    )


def _check_count(count: int, most: int) -> None:
    if not 1 <= count <= most:
        raise ValueError(f"there are {count} steps; there must be 1 to {most}")


def _step(draft: StepDraft, seq: int, tools: Collection[str], names: Named) -> PlanStep:
    """Convert a draft to a step, with normalised tool names and all references among its dependencies. An
    invalid reference or tool name becomes its `error`.
    """
    own = f"s{seq}"
    problems: list[str] = []

    def found(text: str) -> tuple[str, ...]:
        ids = names.get(text)
        if ids is not None and ids and own not in ids:
            return ids
        if ids is None:
            problems.append(f"{own}: it depends on {text!r}, and the plan has no such step")
        else:
            several = f"{text!r}, the name of several steps"
            problems.append(f"{own}: it depends on {'itself' if ids else several}")
        return ()

    def renamed(match: re.Match[str]) -> str:
        try:
            reference, form = _reference(match, own)
        except ValueError as unreadable:
            problems.append(str(unreadable))
            return match[0]
        ids = found(reference)
        needs.update(dict.fromkeys(ids))
        suffix = f":{form}" if form else ""
        return "\n".join(f"{{{{from_step:{id}{suffix}}}}}" for id in ids) if ids else match[0]

    needs = dict.fromkeys(id for reference in draft.depends_on for id in found(reference))
    fields = draft.model_dump()
    try:
        fields["instruction"] = _REFERENCE.sub(renamed, draft.instruction)
        fields["tool_args"] = _with_texts(draft.tool_args, lambda text: _REFERENCE.sub(renamed, text))
        data = msgspec.json.decode(msgspec.json.encode(fields))
    except (ValueError, TypeError, RecursionError, msgspec.MsgspecError) as error:
        raise ValueError(f"{own}: it cannot be written as JSON: {error}") from None
    if data["tool_args"] != fields["tool_args"]:
        raise ValueError(f"{own}: toolArgs holds a number that JSON has not")
    name = draft.tool_name
    named = (*([name] if name and draft.type == "tool_call" else []), *draft.tool_hints)
    problems += [_no_tool(own, one, tools) for one in named if one not in tools]
    if draft.type == "tool_call" and not name:
        problems.append(
            f"{own}: a tool_call needs a toolName; there are {', '.join(sorted(tools)) or 'none'}"
        )
    if draft.type != "tool_call" and not (draft.instruction.strip() or draft.title.strip()):
        problems.append(f"{own}: it has no instruction")
    more = {"id": own, "tool_name": name or None, "depends_on": tuple(needs)}
    return PlanStep(**{**fields, **more}, seq=seq, error=problems[0] if problems else None)


def _with_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Apply `change` to each string in nested data."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: _with_texts(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_texts(item, change) for item in value]
    return value


def _no_tool(id: str, name: str, tools: Collection[str]) -> str:
    return f"{id}: there is no tool {name!r}; there are {', '.join(sorted(tools)) or 'none'}"


def _check(steps: Sequence[PlanStep]) -> None:
    known = {step.id: step for step in steps}
    for step in steps:
        if step.status != "pending":
            continue
        for id in step.depends_on:
            if known[id].status in ("failed", "skipped"):
                raise ValueError(f"{step.id}: it depends on {id}, which is {known[id].status}")


def _without_knots(steps: Sequence[PlanStep], mode: Mode) -> list[PlanStep]:
    """Break circular dependencies and, in a linear plan, dependencies on later steps. The `error` of such a
    step says why.
    """
    known = {step.id: step for step in steps}
    if mode == "linear":
        for step in steps:
            late = next((id for id in step.depends_on if id in known and known[id].seq > step.seq), None)
            if step.status == "pending" and late is not None:
                why = step.error or f"{step.id}: it depends on {late}, which comes after it"
                known[step.id] = step.changed(depends_on=(), error=why)
    while True:
        try:
            TopologicalSorter({step.id: step.depends_on for step in known.values()}).prepare()
            return list(known.values())
        except CycleError as error:
            circle = error.args[1]
            name, way = circle[0], " → ".join(reversed(circle))
            why = f"{name}: it depends on itself, by {way}"
            known[name] = known[name].changed(depends_on=(), error=why)


# References.


def _reference(match: re.Match[str], name: str) -> tuple[str, str]:
    """The id and the form (`summary`, `item:N` or empty) of a reference. Raises ValueError if it is
    malformed.
    """
    id, colon, form = (part.strip() for part in match[1].partition(":"))
    if not id or (colon and form != "summary" and not _ITEM.fullmatch(form)):
        raise ValueError(
            f"{name}: {match[0]} is malformed; write {{{{from_step:s1}}}}, {{{{from_step:s1:summary}}}} or "
            f"{{{{from_step:s1:item:1}}}}"
        )
    return id, form


_ITEM = re.compile(r"item:[1-9][0-9]{0,3}")
_BULLET = re.compile(r"[\s>*•–-]*(?:\(?[0-9]{1,3}[.):]\s)?[\s*]*")


def items_in(result: str) -> list[str]:
    """The items that a result lists: a JSON list, or else lines, or else comma-separated parts."""
    try:
        found = json_of(result.strip())
    except ValueError:
        found = None
    if isinstance(found, list):
        return [item if isinstance(item, str) else json.dumps(item, ensure_ascii=False) for item in found]
    lines = [line.strip() for line in result.splitlines() if line.strip()]
    bare = [_BULLET.sub("", line, count=1) for line in lines]
    listed = [item for line, item in zip(lines, bare, strict=True) if item != line]
    if len(lines) > 1:
        return listed if len(listed) > 1 else lines
    _, colon, after = result.partition(":")
    items = (after if colon and "," in after else result).split(",")
    return [item.strip(" .\n") for item in items]


def filled_in(value: Any, step: PlanStep, steps: Mapping[str, PlanStep]) -> Any:
    """Replace each reference in a text or in nested arguments by the result it names.

    Raises:
        ValueError: For a malformed reference, or one to the step itself, to an unknown step, to a step that
            is not completed, or to an item that its result does not have.
    """

    def result(match: re.Match[str]) -> str:
        id, form = _reference(match, step.id)
        if id == step.id:
            raise ValueError(f"{step.id}: {match[0]} names the step itself")
        if id not in steps:
            raise ValueError(f"{step.id}: {match[0]} names a step that the plan does not have")
        known = steps[id]
        if known.status != "completed" or known.result is None:
            raise ValueError(
                f"{step.id}: {match[0]} names a step that is not completed (it is {known.status})"
            )
        if form == "summary":
            return known.result[:SUMMARY]
        if not form:
            return known.result
        number, items = int(form.partition(":")[2]), items_in(known.result)
        if number > len(items):
            raise ValueError(f"{step.id}: {match[0]} names item {number}, but there are only {len(items)}")
        return items[number - 1]

    return _with_texts(value, lambda text: _REFERENCE.sub(result, text))


# Texts for thoughts and prompts.


def text_of(step: PlanStep) -> str:
    """The text of a step's thought."""
    what = written(step) if step.type == "tool_call" else step.instruction
    return "\n".join(filter(None, [step.title, what]))


def with_edited_text(step: PlanStep, text: str) -> PlanStep:
    """`step` after a person changed its thought to `text`: a tool call if it contains one, or else an
    instruction."""
    match, end = _CALL_BEGINS.search(text), text.rfind("})") + 1
    try:
        arguments = json_of(text[match.end() - 1 : end]) if match else None
    except ValueError:
        arguments = None
    if match is not None and isinstance(arguments, dict):
        return step.changed(type="tool_call", title="", tool_name=match[1], tool_args=arguments, error=None)
    kind = "analysis" if step.type == "tool_call" else step.type
    return step.changed(type=kind, title="", instruction=text, error=None)


def shown(steps: Iterable[PlanStep], most: int) -> str:
    """Steps with statuses and results, each result up to `most` characters."""
    return "\n".join(_shown(step, most) for step in steps)


def _shown(step: PlanStep, most: int) -> str:
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


def written(step: PlanStep) -> str:
    """The call of a tool_call step as `name({…})`, the form in which its thought shows it."""
    return f"{step.tool_name}({json.dumps(step.tool_args, ensure_ascii=False)})"
