"""ReAct: think, act and observe until the model gives an answer.

    turn       the model thinks and calls tools, or `final-answer`
    carry out  the tools of the turn, concurrently; each result is a thought below it
    hint       remarks for the model: a required tool, a repeated call, nothing new
    answer     the argument of `final-answer`, or the last answer given before a limit

Only the model ends the loop with success, by calling `final-answer`, which is rejected until the required
tools have given their results. Otherwise the loop ends at a limit or a failed call.

References:
    Yao et al. 2022, ReAct, arXiv:2210.03629.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from tot_lab.core.calls import Message, ToolCall, readable, stop_of
from tot_lab.core.protocol import Procedure, emit
from tot_lab.core.reading.thinking import split_thinking
from tot_lab.core.records import Decided, Note, Thought, parent_of
from tot_lab.core.task import Answer, Task
from tot_lab.core.tools import Quantities, ToolSpec
from tot_lab.strategies.acting import MORE, Acting, AvailableTools, describe_named_results, successful_results
from tot_lab.strategies.conversation import (
    Observation,
    Turn,
    arguments_of,
    exchange,
    halt_in,
    same_call,
    with_hints,
)
from tot_lab.strategies.tool_needs import ToolNeeds, classify_tools

FINAL = ToolSpec(
    name="final-answer",
    description="Gives the answer and ends the task.",
    parameters={
        "type": "object",
        "properties": {"answer": {"type": "string", "description": "the answer in the form asked for"}},
        "required": ["answer"],
    },
)

SPARE = 2
"""Calls of a required tool that are allowed beyond the required number, in parallel mode."""

ENOUGH_SEEN = 3
LEAST_NEW = 0.2
"""From `ENOUGH_SEEN` observations on, the model is asked to answer if the share of new words in the newest
observation is below `LEAST_NEW`."""

_NO_CALL = (
    f"That was no tool call. Call a tool, or give the answer: call {FINAL.name}, or write it alone as "
    f'{{"name": "{FINAL.name}", "arguments": {{"answer": "<the answer>"}}}}'
)
_WORD = re.compile(r"[^\W_]+")


class ReAct(Acting):
    """Alternate between reasoning and tool calls until the model calls `final-answer`.

    Best for tasks that tools answer step by step. Trade-off: a wrong turn is never taken back, and each turn
    is shown all earlier ones. Calls: 1 for each iteration, and 1 with `classify_tools`; tool calls are not
    counted.

    Output tools (`tl.tool(output=True)`) are never blocked; all other tools are search tools. Once the
    required search tools have given their results, the model is asked to call the output tools. A tool with
    `used_when_named` (`deep-think`) that the task names is called for the model before the last turn, if the
    model has not called it.

    Stops: `answered`, `limit:iterations`, and `limit:required_tools` if a required tool failed and can no
    longer give its result. If a limit or a budget ends the loop, the answer is the last text that the model
    meant as one (a rejected final answer, or a turn without tool calls), or else empty.

    References:
        Yao et al. 2022, ReAct, arXiv:2210.03629; reactive-agents-ts
        (github.com/tylerjrbuell/reactive-agents-ts), strategy `reactive`.
    """

    kind = "react"
    aliases: ClassVar[tuple[str, ...]] = ("reactive",)
    setting_aliases: ClassVar[Mapping[str, str]] = {"kernel_max_iterations": "max_iterations"}
    notes = "react"

    max_iterations: Annotated[int, Field(ge=1, le=400)] = 10
    """The most turns."""

    required_tools: Quantities = {}
    """Number of results that each tool must have given before an answer is accepted, as `{"search": 2}` or
    `["search×2"]`. Two further calls of each of these tools are allowed, after which it is blocked;
    `parallel=False` sets no such limit.
    """

    max_calls_per_tool: Quantities = {}
    """The most calls of each tool, by name."""

    classify_tools: bool = False
    """Whether to ask the model first which tools the task needs, and how often. The answer is added to
    `required_tools`.
    """

    @model_validator(mode="after")
    def _leaves_room(self) -> Self:
        for name, most in self.max_calls_per_tool.items():
            if most < (count := self.required_tools.get(name, 0)):
                raise ValueError(
                    f"max_calls_per_tool: {name}: got {most}. At least the {count} required calls must be "
                    f"allowed."
                )
        return self

    def think(self, task: Task, at: str = "0") -> Procedure[Answer]:
        yield Thought(at, parent_of(at), task.question)
        available = self.available_tools(task, tuple(self.required_tools))
        if FINAL.name in available.known:
            raise ValueError(f"react: the lab has a tool {FINAL.name!r}, which is reserved. Rename it.")
        yield Note(
            "react.started", at, {"tools": list(available.tools), "max_iterations": self.max_iterations}
        )
        caps = available.by_own_name(self.max_calls_per_tool)
        needs = yield from self._needs(task, available, at, caps)
        if needs.refused is not None:
            return Answer("", needs.refused)
        stated = available.by_own_name(self.required_tools)
        required = self.required(task, available, {**needs.required, **stated})
        progress = _Progress(available, required, self._limits(available, required, caps))
        talk = [Message("user", self._prompt(task, available, required))]
        place, source, known = at, list[str](), {**available.known, FINAL.name: FINAL.name}
        last, stop, found = Answer("", ""), "limit:iterations", list[str]()
        if self.max_iterations == 1 and (owed := self.named(task, available)):  # no turn is left for tools
            given = yield from self._called_for_model(task, available, progress, at, owed, found)
            if (halt := halt_in(given)) is not None:
                return Answer("", halt)
            talk = with_hints(talk, describe_named_results(owed, given))
            *source, place = [seen.id for seen in given]
        for left in reversed(range(self.max_iterations)):
            turn = yield from self.turn(
                talk, place, known=known, offered=[*progress.open(), FINAL], source=source
            )
            if turn.error is not None:
                stop = stop_of(turn.error)
                break
            text, refusal = _final(task, turn, progress.missing())
            if text is not None and refusal is None:
                return (yield from self._answered(task, available, progress, turn, text))
            answer = text or ("" if turn.calls or turn.unknown else turn.words)
            if answer and (held := task.domain.read_answer(task, answer)) is not None:
                last = Answer(held, "", turn.id)
            refused = progress.take(turn.calls, refusal)
            observations = yield from self.carry_out(available, turn, refused)
            *source, place = [seen.id for seen in observations] or [turn.id]
            halt = halt_in(observations)
            owed = self._owed(task, available, progress, turn, observations) if left == 1 and not halt else []
            found += successful_results(turn.calls, observations)
            given = yield from self._called_for_model(task, available, progress, place, owed, found)
            halt = halt or halt_in(given)
            if halt is not None:
                stop = halt
                break
            hints = yield from progress.hints(turn, observations, refused, left)
            if failed := progress.failed(left):
                yield Note("react.required_failed", turn.id, {"tools": failed})
                stop = "limit:required_tools"
                break
            talk = with_hints(
                [*talk, *exchange(turn, observations)], [*describe_named_results(owed, given), *hints]
            )
            *source, place = [seen.id for seen in given] or [*source, place]
        if last.node is not None:
            yield Decided(last.node, "answer", stop)
        return Answer(last.text, stop, last.node)

    def max_calls(self, task: Task) -> int:
        return self.max_iterations + self.classify_tools

    def _needs(
        self, task: Task, available: AvailableTools, at: str, caps: Mapping[str, int]
    ) -> Procedure[ToolNeeds]:
        """The tools that the task needs according to the model, each with at most `caps` calls."""
        if not self.classify_tools or not available.tools:
            return ToolNeeds()
        needs = yield from classify_tools(self, task, available, at)
        within = {name: min(count, caps.get(name, count)) for name, count in needs.required.items()}
        return needs._replace(required=within)

    def _limits(
        self, available: AvailableTools, required: Mapping[str, int], caps: Mapping[str, int]
    ) -> dict[str, int]:
        """The most calls by tool name: `caps` and, in parallel mode, `SPARE` more than required for tools
        that are not in `caps`. Output tools have no limit. Raises ValueError if `caps` names an output tool
        or one that cannot be called."""
        for name in caps:
            if name not in available.tools:
                there = ", ".join(available.tools) or "none"
                raise ValueError(
                    f"react: max_calls_per_tool: {name!r} cannot be called. The tools are {there}."
                )
            if available.tools[name].output:
                raise ValueError(
                    f"react: max_calls_per_tool: {name!r} is an output tool, which is never blocked."
                )
        spared = {name: count + SPARE for name, count in required.items() if not available.tools[name].output}
        return {**(spared if self.parallel else {}), **caps}

    def _owed(
        self,
        task: Task,
        available: AvailableTools,
        progress: _Progress,
        turn: Turn,
        observations: Sequence[Observation],
    ) -> list[str]:
        """Tools that the question names and that have given no result so far, not even in the turn `turn`."""
        calls = zip(turn.calls, observations, strict=True)
        used = {*progress.answered, *(call.name for call, seen in calls if not seen.error)}
        return [name for name in self.named(task, available) if name not in used]

    def _called_for_model(
        self,
        task: Task,
        available: AvailableTools,
        progress: _Progress,
        at: str,
        names: Sequence[str],
        known: Sequence[str],
    ) -> Procedure[list[Observation]]:
        """Call `names` for the model, and count them as its calls."""
        if not names:
            return []
        given = yield from self.called_for_model(task, available, at, names, known)
        progress.made.update(names)
        progress.answered.update(name for name, seen in zip(names, given, strict=True) if not seen.error)
        return given

    def _prompt(self, task: Task, available: AvailableTools, required: Mapping[str, int]) -> str:
        return "\n".join(
            [
                f"This is the task:\n<task>\n{task.answer_prompt(True)}\n</task>\n",
                "Do not solve it at once. Work in turns: in each, think in a sentence or two, call one tool, "
                "and stop there. You are then shown what it gave, and go on from that. Make no result up.",
                "The tools:" if available.tools else "There are no tools to find things out with. There is:",
                *filter(None, [available.listed()]),
                "- final-answer: Gives the answer, in the form asked for above, and ends the task. Nothing "
                'else ends it. Arguments: {"answer": "string"}',
                *([f"Needed before final-answer: {_counted(required)}."] if required else []),
                # Small models imitate the example rather than follow the description.
                "If you cannot call tools directly, end the turn with the call, as JSON. Such a turn is:\n"
                'I need this first.\n{"name": "<tool>", "arguments": {"<argument>": <value>}}',
            ]
        )

    def _answered(
        self, task: Task, available: AvailableTools, progress: _Progress, turn: Turn, text: str
    ) -> Procedure[Answer]:
        """End with `text`. Further calls of the turn are carried out too, since they may have effects."""
        turn = turn._replace(calls=tuple(call for call in turn.calls if call.name != FINAL.name))
        yield from self.carry_out(available, turn, progress.take(turn.calls, None))
        thought = yield from emit(Thought(f"{turn.id}.{len(turn.calls)}", turn.id, text))
        answer = task.domain.read_answer(task, thought.text)
        if answer is None:  # a person edited it
            yield Note("parse.unreadable", thought.id, {"kind": "act", "draw": 0})
        yield Decided(thought.id, "answer", "answered")
        return Answer(answer or "", "answered", thought.id)


class _Progress:
    """The state of a loop: the calls so far, from which the calls allowed in the next turn follow."""

    def __init__(
        self, available: AvailableTools, required: Mapping[str, int], caps: Mapping[str, int]
    ) -> None:
        self.available = available
        self.required = required
        self.caps = caps
        self.made: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.call_counts: Counter[tuple[str, str]] = Counter()
        self.words: set[str] = set()
        self.observations = 0

    def open(self) -> list[ToolSpec]:
        """The tools that may still be called."""
        return [tool for tool in self.available.tools.values() if not self._used_up(tool.name)]

    def missing(self) -> dict[str, int]:
        """The number of results still required, by tool name."""
        return {
            name: count - self.answered[name]
            for name, count in self.required.items()
            if self.answered[name] < count
        }

    def failed(self, left: int) -> list[str]:
        """The required tools that still lack results and are blocked or, with no turn `left`, had a call that
        gave none."""
        return [
            name
            for name in self.missing()
            if self._used_up(name) or (not left and self.made[name] > self.answered[name])
        ]

    def take(self, calls: Sequence[ToolCall], refusal: str | None) -> dict[int, str]:
        """Count `calls`.

        Args:
            refusal: Why a final answer is rejected, if it is.

        Returns:
            The error texts of calls that are not carried out, by position.
        """
        refused = {}
        for k, call in enumerate(calls):
            if call.name == FINAL.name:
                refused[k] = refusal or "an answer was given already"
            elif self._used_up(call.name):
                refused[k] = (
                    f"{call.name} was called {self.made[call.name]} times, which is all it may be. Write the "
                    f"answer from what is known, with {FINAL.name}"
                )
            else:
                self.made[call.name] += 1
        return refused

    def hints(
        self, turn: Turn, observations: Sequence[Observation], refused: Mapping[int, str], left: int
    ) -> Procedure[list[str]]:
        """The remarks for the model before its next turn. `left` is the number of turns that remain."""
        hints = []
        if not turn.calls:
            for name in turn.unknown:
                yield Note("react.unknown_tool", turn.id, {"tool": name[:80]})
                hints.append(f"{self.available.refusal(name)}.")
            yield Note("react.no_call", turn.id)
            hints.append(_NO_CALL)
        share = None
        for k, (call, seen) in enumerate(zip(turn.calls, observations, strict=True)):
            if k in refused:
                name = "react.refused_answer" if call.name == FINAL.name else "react.blocked"
                yield Note(name, seen.id, {"tool": call.name, "why": refused[k]})
                continue
            self.call_counts[same_call(call)] += 1
            times = self.call_counts[same_call(call)]
            if times > 1:
                yield Note("react.repeated", turn.id, {"tool": call.name, "times": times})
                hints.append(f"You have called {call.name} with these arguments before. Do something else.")
            if seen.error is None:
                self.answered[call.name] += 1
                share = self._new_words(seen.text)
        missing, pending = self.missing(), self._pending()
        unsearched = [name for name in missing if not self._is_output(name)]
        searched = not unsearched and not all(map(self._is_output, self.required))
        enough = share is not None and self.observations >= ENOUGH_SEEN and share < LEAST_NEW
        if unsearched:
            hints.append(f"Still needed before {FINAL.name}: {_counted(missing)}.")
        elif enough:
            yield Note("react.enough", turn.id, {"new_words": share})
            hints.append(
                f"Enough is known: only {share:.0%} of the words in the last result are new. Write the "
                f"answer now, with {pending or FINAL.name}."
            )
        elif pending and (searched or self._all_used_up()) and (missing or left > 1):
            yield Note("react.synthesis", turn.id)
            hints.append(
                f"Put together what is known, and deliver it with {pending}. Then call {FINAL.name}."
            )
        elif missing:
            hints.append(f"Still needed before {FINAL.name}: {_counted(missing)}.")
        elif self._all_used_up():
            yield Note("react.synthesis", turn.id)
            hints.append(f"All tools are used up. Put together what is known, and call {FINAL.name}.")
        elif left == 1:
            hints.append(f"One turn is left: call {FINAL.name} now.")
        return list(dict.fromkeys(hints))

    def _is_output(self, name: str) -> bool:
        return self.available.tools[name].output

    def _pending(self) -> str:
        """The output tools with fewer results than required (one result if `required` does not say)."""
        return ", ".join(
            tool.name
            for tool in self.available.tools.values()
            if tool.output and self.answered[tool.name] < self.required.get(tool.name, 1)
        )

    def _all_used_up(self) -> bool:
        """Whether there are search tools and none of them may be called any more."""
        search = [tool for tool in self.available.tools.values() if tool is not MORE and not tool.output]
        return bool(search) and all(self._used_up(tool.name) for tool in search)

    def _used_up(self, name: str) -> bool:
        return name in self.caps and self.made[name] >= self.caps[name]

    def _new_words(self, text: str) -> float | None:
        """The share of words in an observation that no earlier observation had. `None` without words."""
        words = set(map(str.lower, _WORD.findall(text)))
        share = len(words - self.words) / len(words) if words else None
        self.words |= words
        self.observations += 1
        return share


def _final(task: Task, turn: Turn, missing: Mapping[str, int]) -> tuple[str | None, str | None]:
    """Read the final answer of a turn.

    Args:
        missing: Results that were still required before the turn.

    Returns:
        The answer (`None` if the turn states none), and why the final answer is rejected (`None` if it is
        not).
    """
    call = next((call for call in turn.calls if call.name == FINAL.name), None)
    if call is None:
        return None, None
    given = (arguments_of(call) or {}).get("answer")
    if not isinstance(given, str | int | float) or isinstance(given, bool):
        return None, 'it takes {"answer": "<the answer>"}'
    text = split_thinking(readable(str(given)))[1]
    if missing:
        return text, f"first call {_counted(missing)}"
    if task.domain.read_answer(task, text) is None:
        return text, "that cannot be read as an answer of the form asked for"
    return text, None


def _counted(missing: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({count}×)" for name, count in missing.items())
