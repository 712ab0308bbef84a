"""The base of strategies whose model calls tools.

A turn is one model call and one thought, and each tool result is a thought below it, so a tool loop is a path
that can be drawn, edited and continued. Model output cannot break the loop: a call of a tool that is unknown,
denied or at its call limit, or with arguments that are not JSON, gets an error text, like a failed tool call.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import msgspec
from pydantic import Field, field_validator

from tot_lab.core.calls import Call, Message, Reply, ToolCall, halts
from tot_lab.core.parts import Part, UserFunction
from tot_lab.core.policy import EffectPolicy
from tot_lab.core.protocol import Procedure, ask, ask_function, emit, gather
from tot_lab.core.records import Note, Thought, call_failed, parent_of
from tot_lab.core.strategy import Prompting
from tot_lab.core.task import Task
from tot_lab.core.tools import (
    TOOL_LIMITS,
    ToolSpec,
    function_call,
    names_of,
    stored_name,
    tool_call,
    tool_name,
)
from tot_lab.strategies.conversation import (
    MAX_CALLS,
    Observation,
    Turn,
    arguments_of,
    as_recorded,
    exchange,
    halt_in,
    shortened,
    text_of,
    turn_of,
    with_hints,
)

MORE = ToolSpec(
    name="more",
    description="Shows more of a result of which only the beginning was shown.",
    parameters={
        "type": "object",
        "properties": {
            "result": {"type": "integer", "description": "the number of the result"},
            "from": {"type": "integer", "description": "the character to begin at, the first being 0"},
        },
        "required": ["result", "from"],
    },
)
"""The tool for reading the rest of a long result. The loop itself answers its calls."""


def names_of_tools(tools: Any) -> tuple[str, ...] | None:
    """Normalise tool names. `None` stays `None`. Raises ValueError for anything but a list of names."""
    if tools is None:
        return None
    if isinstance(tools, list | tuple | set | frozenset) and all(isinstance(name, str) for name in tools):
        return tuple(map(stored_name, tools))
    raise ValueError(
        f"tools must be a list of names, such as ['calculator']: got {tools!r}. Give the tools themselves to "
        f"the lab: tl.Lab(…, tools=[…])."
    )


class AvailableTools(NamedTuple):
    """The tools that a model may call.

    Attributes:
        tools: Specifications by name.
        denied: The reason for each tool that may not be called, by name.
        known: The registered name of each tool, denied or not, by every accepted spelling; see `names_of`.
        results: The whole results so far, in order. The model refers to them by number, from 1.
    """

    tools: Mapping[str, ToolSpec]
    denied: Mapping[str, str]
    known: Mapping[str, str]
    results: list[str]

    def by_own_name(self, quantities: Mapping[str, int]) -> dict[str, int]:
        """`quantities` with the tools' registered names as keys. Raises ValueError if two keys name the same
        tool."""
        named = {self.known.get(tool_name(name), name): count for name, count in quantities.items()}
        if len(named) < len(quantities):
            raise ValueError(
                f"two names stand for the same tool: got {', '.join(quantities)}. Name each tool once."
            )
        return named

    def refusal(self, name: str) -> str | None:
        """The error text for a call of `name`. `None` if it can be carried out."""
        if name in self.tools:
            return None
        if name in self.denied:
            return self.denied[name]
        if not self.tools:
            return "no tool can be carried out here: there is none. Go on with what you know"
        return f"there is no tool {name[:80]!r}; the tools are {', '.join(self.tools)}"

    def listed(self) -> str:
        """The tools as lines of a prompt."""
        return "\n".join(map(_line, self.tools.values()))


class ToolLimits(Part):
    """Base of the parts that make tool calls. Its settings limit the time and the retries of a call, and how
    much of its result the model is shown.
    """

    kind = ""

    tool_timeout: Annotated[float, Field(gt=0)] | None = None
    """Seconds for one attempt of a tool call. `None` means the tool's own `timeout`."""

    tool_retries: Annotated[int, Field(ge=0)] | None = None
    """Further attempts after a failed tool call. `None` means the tool's own `retries`."""

    tool_backoff: Annotated[float, Field(ge=0)] | None = None
    """Seconds before the first further attempt, doubled for each later one. `None` means the tool's own
    `backoff`."""

    max_result_characters: Annotated[int, Field(ge=100)] = 4_000
    """The most characters of a tool's result that the model is shown. The record keeps the whole result."""

    overflow: Literal["cut", "more"] = "cut"
    """How a result with more than `max_result_characters` is shown. `cut` truncates it; `more` lets the model
    read the rest piece by piece with an additional tool named `more`."""

    transform_result: UserFunction | None = None
    """A function `(tool, result) -> text`. The model is shown its text, such as the first rows of a table, in
    place of a successful result. It may be async. It runs as a recorded call with the purpose `transform`. If
    it fails, the result itself is shown. The record and the tool `more` have the whole result. `None` means
    the lab's function (`tl.Lab(transform_result=…)`), if it has one."""

    def settings(self) -> dict[str, Any]:
        """The settings of the part. Those of `ToolLimits` that are `None` are omitted, so that they leave the
        records of runs as they were before these settings existed."""
        unset = {name for name in ToolLimits.model_fields if getattr(self, name) is None}
        return {name: value for name, value in super().settings().items() if name not in unset}

    def tool_call(self, node: str, name: str, arguments: Any, sample_index: int) -> Call:
        """A call of the tool `name` with these limits; see `core.tools.tool_call`."""
        limits = {limit: getattr(self, f"tool_{limit}") for limit in TOOL_LIMITS}
        return tool_call(node, name, arguments, sample_index, limits=limits)

    def transformed(self, call: Call, tool: str, reply: Reply) -> Procedure[str | None]:
        """The text that `transform_result` returns for the reply to `call`. `None` means that the result
        itself is shown."""
        if self.transform_result is None or reply.error is not None:
            return None
        name = self.transform_result.name
        made = function_call(call.node, "transform", name, json.dumps([tool, reply.text]), call.sample_index)
        shown = yield from ask_function(made, self.transform_result, (tool, reply.text), _text_of_result)
        if shown.error is None:
            return shown.text
        if not halts(shown.error):
            data = {"tool": tool, "error": shown.error}
            yield Note("tools.transform_failed", call.node, data, fallback=True)
        return None


def _text_of_result(text: Any) -> str:
    if not isinstance(text, str):
        raise TypeError(f"transform_result must return text: got {text!r}.")
    return text


class Acting(ToolLimits, Prompting):
    """Base of the strategies whose model may call tools.

    Raises:
        ValueError: At the start of a run, if `tools` names a tool that the lab does not have, if a required
            tool cannot be called, or if a tool of the lab has the reserved name `more` and `overflow` is
            `more`.
    """

    kind = ""
    notes: ClassVar[str] = "tools"
    """Prefix of the names of the notes that the strategy records, such as `react` in `react.repeated`."""
    tools: Annotated[tuple[str, ...] | None, Field(strict=False)] = None
    """Names of the lab's tools that the model may call; `web_search` and `web-search` are the same. `None`
    means all of them."""

    effect_policy: Annotated[EffectPolicy | None, Field(strict=False)] = None
    """Effects that the tools may have, within what the lab allows. `None` means all that the lab allows."""

    parallel: bool = True
    """Whether the tool calls of one turn run concurrently. If `False`, only the first call of a turn is
    carried out."""

    @field_validator("tools", mode="before")
    @classmethod
    def _are_names(cls, tools: Any) -> Any:
        return names_of_tools(tools)

    def available_tools(self, task: Task, needed: Sequence[str] = ()) -> AvailableTools:
        """The tools that may be called for `task`.

        Args:
            needed: Names from `required_tools`, each of which must be callable.
        """
        there = {tool.name: tool for tool in task.tools}
        known = names_of(task.tools)
        given = tuple(there) if self.tools is None else self.tools
        chosen = [name if name in there else known.get(tool_name(name), name) for name in given]
        for name in chosen:
            if name not in there:
                raise ValueError(
                    f"{self.kind}: tools: the lab has no tool {name!r}; it has {', '.join(there) or 'none'}."
                )
        denied = {}
        for name in chosen:
            refusal = self.effect_policy and self.effect_policy.refusal(there[name])
            if refusal:
                denied[name] = refusal
        tools = {name: there[name] for name in chosen if name not in denied}
        for name in needed:
            if known.get(tool_name(name)) not in tools:
                own = known.get(tool_name(name), name)
                why = denied.get(own, f"the tools are {', '.join(tools) or 'none'}")
                raise ValueError(f"{self.kind}: required_tools: {name!r} cannot be called: {why}")
        if self.overflow == "more" and tools:
            if MORE.name in (*tools, *denied):
                raise ValueError(
                    f"{self.kind}: overflow: the lab has a tool {MORE.name!r}, which is reserved. Rename the "
                    "tool, or set overflow='cut'."
                )
            tools[MORE.name] = MORE
        callable_here = [*tools.values(), *(there[name] for name in denied)]
        return AvailableTools(tools, denied, names_of(callable_here), [])

    def required(self, task: Task, available: AvailableTools, stated: Mapping[str, int]) -> dict[str, int]:
        """Numbers of required calls by tool name: as `stated`, else 1 for a tool that `named` returns."""
        return {**dict.fromkeys(self.named(task, available), 1), **stated}

    def named(self, task: Task, available: AvailableTools) -> list[str]:
        """The tools with `used_when_named` that the question requests by name. They must be called."""
        return [
            name
            for name, spec in available.tools.items()
            if spec.used_when_named and spec.is_requested_in(task.question)
        ]

    def called_for_model(
        self, task: Task, available: AvailableTools, at: str, names: Sequence[str], known: Sequence[str]
    ) -> Procedure[list[Observation]]:
        """Call the tools `names`, which the question requests by name and the model did not call; see
        `arguments_for_model`. The results become children of `at`.
        """
        calls = yield from self._calls_for_model(task, available, at, names, known)
        return (yield from self.carry_out(available, Turn(at, calls=tuple(calls), native=False)))

    def _calls_for_model(
        self, task: Task, available: AvailableTools, at: str, names: Sequence[str], known: Sequence[str]
    ) -> Procedure[list[ToolCall]]:
        calls = []
        for name in names:
            yield Note("tools.called_for_model", at, {"tool": name}, fallback=True)
            given = self.arguments_for_model(task, available.tools[name], known)
            calls.append(ToolCall(f"named-{name}", name, json.dumps(given)))
        return calls

    def arguments_for_model(self, task: Task, tool: ToolSpec, known: Sequence[str]) -> dict[str, str]:
        """The arguments of a tool that is called for the model. Each required argument is the question. An
        argument `context`, if the tool has one, is the context of the task followed by `known`, the results
        so far.
        """
        given = dict.fromkeys(tool.parameters.get("required", []), task.question)
        if "context" in tool.parameters.get("properties", {}):
            given["context"] = "\n\n".join(filter(None, [task.context, *known]))
        return given

    def turn(
        self,
        talk: Sequence[Message],
        at: str,
        *,
        known: Mapping[str, str],
        offered: Sequence[ToolSpec],
        source: Sequence[str] = (),
        closing: bool = False,
    ) -> Procedure[Turn]:
        """Make one turn, and record it as child 0 of `at`.

        A failed model call is recorded as a note instead. The returned turn then has an `error`.

        Args:
            known: The tools by every name, including those that are not `offered` in this turn; see
                `AvailableTools.known`.
            offered: Tools that the model may call.
            source: Thoughts besides `at` that the turn continues.
            closing: Whether tool calls are forbidden.
        """
        call = msgspec.structs.replace(
            self.call(at, "act", ""),
            messages=(*_guided(offered), *talk),
            tools=tuple(tool.offered() for tool in offered),
            tool_choice="none" if closing and offered else None,
        )
        reply = yield from ask(call)
        if reply.error is not None:
            yield call_failed(at, "act", reply.error)
            return Turn(at, error=reply.error)
        turn = yield from self._cut(turn_of(f"{at}.0", reply, known, call.tools))
        thought = yield from emit(Thought(turn.id, at, text_of(turn), tuple(source)))
        return as_recorded(turn, thought, known, call.tools)

    def carry_out(
        self, available: AvailableTools, turn: Turn, refused: Mapping[int, str] | None = None
    ) -> Procedure[list[Observation]]:
        """Carry out the calls of `turn`. Returns one observation per call, in order, each a child of the
        turn.

        Args:
            refused: Error texts by position, for calls that are not carried out.
        """
        draws: Counter[tuple[str, str]] = Counter()
        branches = []
        for k, call in enumerate(turn.calls):
            draw = draws[call.name, call.arguments]
            draws[call.name, call.arguments] += 1
            branches.append(self._observed(available, turn.id, k, call, draw, (refused or {}).get(k)))
        return (yield from self._all_of(available, branches))

    def asking_with_tools(
        self, task: Task, call: Call, max_round_trips: int, required: Sequence[str] = ()
    ) -> Procedure[Reply]:
        """The reply to `call` from a model that may call tools first.

        This method records no thoughts; the calling strategy does.

        Args:
            max_round_trips: The most turns with tool calls before the reply.
            required: Tools that are called for the model if it does not call them.
        """
        available = self.available_tools(task)
        if not available.tools:
            return (yield from ask(call))
        *before, last = call.messages
        message = Message(last.role, f"{last.content}\n\n{describe_tools(available)}")
        talk = [*_guided(available.tools.values()), *before, message]
        offered = tuple(tool.offered() for tool in available.tools.values())
        draw = call.sample_index * max_round_trips * MAX_CALLS  # distinct for all samples of a thought
        left = max_round_trips
        last_draw = draw + max_round_trips * MAX_CALLS - 1
        unused, known = list(required), list[str]()
        while True:
            reply = yield from ask(
                msgspec.structs.replace(
                    call, messages=tuple(talk), tools=offered, tool_choice=None if left else "none"
                )
            )
            turn = yield from self._cut(turn_of(call.node, reply, available.known, offered))
            if reply.error is not None or not left or not (turn.calls or unused):
                return reply
            branches = [
                self._given(available, call.node, k, request, draw + k)
                for k, request in enumerate(turn.calls)
            ]
            observations = yield from self._all_of(available, branches)
            halt = halt_in(observations)
            if halt is not None:
                return Reply(error=halt)
            talk += exchange(turn, observations)
            draw += MAX_CALLS
            left -= 1
            used = {
                request.name for request, seen in zip(turn.calls, observations, strict=True) if not seen.error
            }
            unused = [name for name in unused if name not in used]
            known += successful_results(turn.calls, observations)
            if unused and (not turn.calls or not left):
                calls = yield from self._calls_for_model(task, available, call.node, unused, known)
                branches = [
                    self._given(available, call.node, k, request, last_draw - k)
                    for k, request in enumerate(calls)
                ]
                given = yield from self._all_of(available, branches)
                if (halt := halt_in(given)) is not None:
                    return Reply(error=halt)
                talk, unused = with_hints(talk, describe_named_results(unused, given)), []

    def _observed(
        self, available: AvailableTools, turn: str, k: int, call: ToolCall, draw: int, refusal: str | None
    ) -> Procedure[Observation]:
        if refusal:
            seen = self._seen(available, turn, k, Reply(error=refusal))
        else:
            seen = yield from self._given(available, turn, k, call, draw)
        head = f"{call.name[:80]} " + ("→ " if seen.error is None else "")
        thought = yield from emit(Thought(f"{turn}.{k}", turn, head + seen.text))
        text = thought.text.removeprefix(head)
        return seen._replace(id=thought.id, text=text, whole=seen.whole if text == seen.text else text)

    def _given(
        self, available: AvailableTools, at: str, k: int, call: ToolCall, draw: int
    ) -> Procedure[Observation]:
        """Carry out call `k` of a turn."""
        refusal = available.refusal(call.name)
        if refusal is not None:
            name = "denied_tool" if call.name in available.denied else "unknown_tool"
            yield Note(f"{self.notes}.{name}", at, {"tool": call.name[:80], "why": refusal})
            reply = Reply(error=refusal)
        elif available.tools[call.name] is MORE:
            return (yield from self._more(available, at, call))
        else:
            made = self.tool_call(at, call.name, call.arguments, draw)
            reply = yield from ask(made)
            shown = yield from self.transformed(made, call.name, reply)
            return self._seen(available, at, k, reply, shown)
        return self._seen(available, at, k, reply)

    def _seen(
        self, available: AvailableTools, at: str, k: int, reply: Reply, shown: str | None = None
    ) -> Observation:
        whole = (reply.text or "(nothing)") if reply.error is None else f"failed: {reply.error}"
        number = len(available.results) + k + 1
        if shown is None:
            text = self._part(whole, number, 0)
        else:
            text = shortened(shown, self.max_result_characters)
            if self.overflow == "more" and shown != whole:
                rest = json.dumps({"result": number, "from": 0})
                text += f"\n… (to see all of its {len(whole):,} characters, call {MORE.name} with {rest})"
        return Observation(at, text, reply.error, whole)

    def _more(self, available: AvailableTools, at: str, call: ToolCall) -> Procedure[Observation]:
        """The requested part of an earlier result, or an error text."""
        part = _requested_part(available.results, arguments_of(call) or {})
        if isinstance(part, str):
            yield Note(f"{self.notes}.no_more", at, {"why": part})
            return Observation(at, f"failed: {part}", part, f"failed: {part}")
        number, start = part
        yield Note(f"{self.notes}.more", at, {"result": number, "from": start})
        text = self._part(available.results[number - 1], number, start)
        return Observation(at, text, None, text)

    def _part(self, whole: str, number: int, start: int) -> str:
        """The part of result `number` that the model is shown at once: from the character `start` on, and how
        to see the rest, if there is more."""
        end = start + self.max_result_characters
        if self.overflow == "cut":
            return shortened(whole, end)
        if end >= len(whole):
            return whole[start:]
        rest = json.dumps({"result": number, "from": end})
        return (
            f"{whole[start:end]}\n… ({len(whole) - end:,} more characters are not shown; to see them, call "
            f"{MORE.name} with {rest})"
        )

    def _cut(self, turn: Turn) -> Procedure[Turn]:
        most, at = MAX_CALLS if self.parallel else 1, parent_of(turn.id) or turn.id
        for name in turn.repaired:
            yield Note("json.repaired", at, {"kind": "act", "tool": name[:80]})
        if len(turn.calls) > most:
            data = {"calls": len(turn.calls), "carried_out": most}
            yield Note(f"{self.notes}.too_many_calls", at, data)
        return turn._replace(calls=turn.calls[:most])

    def _all_of(
        self, available: AvailableTools, branches: list[Procedure[Observation]]
    ) -> Procedure[list[Observation]]:
        """Carry out the calls of a turn, concurrently if `parallel`. Results are numbered in the order of the
        calls, not of completion.
        """
        observations = yield from gather(branches, at_most=0, at_once=None if self.parallel else 1)
        available.results.extend(seen.whole for seen in observations)
        return observations


# Prompt texts about tools and long results.


def describe_named_results(names: Sequence[str], observations: Sequence[Observation]) -> list[str]:
    """Prompt texts about tools that were called for the model."""
    if not names:
        return []
    pairs = zip(names, observations, strict=True)
    notice = f"The task asks for {', '.join(names)}, so it was called. Go on with what it gave."
    return [*(f"{name} gave:\n{seen.text}" for name, seen in pairs), notice]


def successful_results(calls: Sequence[ToolCall], observations: Sequence[Observation]) -> list[str]:
    """The whole results of successful `calls`, each with the name of its tool."""
    pairs = zip(calls, observations, strict=True)
    return [f"{call.name} gave:\n{seen.whole}" for call, seen in pairs if seen.error is None]


def describe_tools(available: AvailableTools) -> str:
    """The prompt text about tools that may be called before the reply."""
    return "\n".join(
        [
            "You may call tools first, and are then shown what they give:",
            available.listed(),
            'If you cannot call tools directly, write the call alone, as JSON: {"name": "<tool>", '
            '"arguments": {"<argument>": <value>}}',
            "When you need no further tool, reply as asked above.",
        ]
    )


def _guided(tools: Iterable[ToolSpec]) -> list[Message]:
    """The system message with the guidance of these tools. Empty if they have none."""
    guidance = "\n\n".join(tool.guidance for tool in tools if tool.guidance)
    return [Message("system", guidance)] if guidance else []


def _line(tool: ToolSpec) -> str:
    """One tool as a line of a prompt. The arguments stand apart from the name, because small models take a
    form such as `name(arguments)` for the whole name."""
    named = {
        name: schema.get("type", "any") if isinstance(schema, dict) else "any"
        for name, schema in tool.parameters.get("properties", {}).items()
    }
    about = " ".join(tool.description.strip().split("\n\n", 1)[0].split())
    return f"- {tool.name}: {about} Arguments: {json.dumps(named)}"


def _requested_part(results: Sequence[str], given: Mapping[str, Any]) -> tuple[int, int] | str:
    """The number of the result and the first character, or an error text."""
    number, start = given.get("result"), given.get("from")
    if type(number) is not int or type(start) is not int:  # `isinstance` would accept true
        return 'it takes {"result": <its number>, "from": <the character to begin at>}'
    if not 1 <= number <= len(results):
        return f"there is no such result; so far there are {len(results)}, the first being 1"
    size = len(results[number - 1])
    if not 0 <= start < size:
        return f"result {number} has no such character: it has {size:,}, the first being 0"
    return number, start
