"""Thinking levels: how much a model reasons before each reply, for any strategy.

    instruct    a section of the system prompt requests reasoning inside <think>…</think>
    watch       turns, tool results and errors, and replies with low confidence
    reflect     when due: one more call, whose text is added to the next call

Only calls are edited and replies read; the wrapped strategy is otherwise unchanged, and the level `off`
changes nothing. Thinking is split off when a reply arrives, so the strategy sees only the answer. Concurrent
branches count separately, so the record does not depend on which branch is faster.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple, Self

import msgspec
from pydantic import Field, field_validator

from tot_lab.core.calls import Call, Message, Reply
from tot_lab.core.protocol import Procedure, ask, intercept
from tot_lab.core.purposes import UNINSTRUCTED
from tot_lab.core.reading.scores import read_confidence
from tot_lab.core.records import Note, Thought, call_failed
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Answer, Task
from tot_lab.core.tools import tool_of

Level = Literal["off", "low", "medium", "high"]

THINKING_TOKENS = {"low": 500, "medium": 2000, "high": 5000}
"""Approximate tokens of reasoning before a reply, by level."""


class ThinkingLevel(StrEnum):
    """How much a model reasons before each reply.

    Names are case-insensitive: `ThinkingLevel("High")`. An unknown name warns and means `off`.
    """

    OFF = "off"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"

    @classmethod
    def _missing_(cls, value: object) -> ThinkingLevel:
        name = str(value).strip().casefold()
        if name in list(cls):
            return cls(name)
        known = ", ".join(cls)
        warnings.warn(
            f"unknown thinking level {value!r}, taken as 'off'. The levels are {known}.", stacklevel=3
        )
        return cls.OFF

    @property
    def token_budget(self) -> int:
        """Approximate tokens of reasoning before a reply. 0 for `off`."""
        return THINKING_TOKENS.get(self.value, 0)

    @property
    def prompt_prefix(self) -> str:
        """The section of the system prompt that requests reasoning. Empty for `off`."""
        if self is ThinkingLevel.OFF:
            return ""
        return (
            f"## Thinking\n\n{_ASKED[self.value]} before you reply, in about {self.token_budget:,} tokens at "
            "most. Begin your reply with <think>, write your reasoning there, and close it with </think>. "
            "Write the reply itself after that, exactly in the form that is asked for."
        )


_SET_ASIDE = {"low": 1024, "medium": 2048, "high": 4096}
"""Tokens of a reply that Anthropic and Gemini reserve for reasoning at each effort, according to litellm.
Anthropic rejects a call whose `max_tokens` is not larger."""

UNSURE = 0.5
"""A reply that states a lower confidence triggers a reflection."""

CONFIDENCE = 0.7
"""The confidence of every reflection. It is a constant, which no reply changes."""

_RESULTS = 3
_RESULT_CHARACTERS = 1_000
_NEXT = re.compile(r"^[ \t*_`#>-]*+next[ \t*_`]*+:[\s*_`]*+(\S.*)", re.IGNORECASE | re.MULTILINE)

_ASKED = {
    "low": "Think briefly",
    "medium": "Think step by step",
    "high": "Think thoroughly: weigh other ways, and check your result,",
}


class WithThinking(Strategy):
    """Make the model reason before each reply, and periodically reflect on its progress.

    Best for models that answer too fast, and for loops that lose track. Trade-off: reasoning is paid for as
    output. Calls: those of the strategy, and one more for each reflection, which is at most one per call.

    Calls without an `effort` of their own get the level as their `effort`, if the model supports it. Their
    `max_tokens`, if set, grow by the reasoning budget, and at least by the tokens that providers reserve for
    the effort (1,024, 2,048 and 4,096). Calls whose score is read from the first token
    (`evaluate="logprob"`) do not request written reasoning, and calls to reward models stay unchanged. If a
    provider enforces a JSON schema, the reply cannot contain written reasoning either, and only the effort
    applies.
    """

    strategy: Strategy
    """The strategy that is wrapped."""

    level: Level = "off"
    """`off`, `low` (about 500 tokens of reasoning per reply), `medium` (2,000) or `high` (5,000), in any
    case. An unknown name warns and means `off`.
    """

    reflect_every: Annotated[int, Field(ge=0)] = 0
    """Model calls from one reflection to the next. 0 means that their number triggers no reflection."""

    reflect_on_tool_error: bool = True
    """Whether to reflect before the next turn if a tool call failed."""

    reflect_on_uncertainty: bool = True
    """Whether to reflect before the next turn if a reply reports a confidence below 0.5."""

    @field_validator("level", mode="before")
    @classmethod
    def _is_known(cls, level: Any) -> Any:
        return ThinkingLevel(level).value if isinstance(level, str) else level

    def think(self, task: Task, at: str = "0") -> Procedure[Answer]:
        if self.level == "off":
            return (yield from self.strategy.think(task, at))
        return (yield from intercept(self.manager(), self.strategy.think(task, at), calls=self._calls_each))

    def manager(self) -> ThinkingManager:
        """A new `ThinkingManager` with these settings."""
        return ThinkingManager(self, _State())

    def checks_answers(self, task: Task) -> bool:
        return self.strategy.checks_answers(task)

    def max_calls(self, task: Task) -> int | None:
        inner = self.strategy.max_calls(task)
        return None if inner is None else inner * self._calls_each

    @property
    def _calls_each(self) -> int:
        """The most calls made for one call of the strategy."""
        reflects = self.reflect_every > 0 or self.reflect_on_tool_error or self.reflect_on_uncertainty
        return 2 if reflects and self.level != "off" else 1


class _State(NamedTuple):
    """The state that decides on reflections.

    Attributes:
        turns: Model calls so far.
        tool_calls: Tool calls so far.
        results: The last three tool results.
        errors: Tool errors since the last reflection.
        unsure: Whether a reply since the last reflection stated low confidence.
        reflections: Reflections so far.
    """

    turns: int = 0
    tool_calls: int = 0
    results: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    unsure: bool = False
    reflections: int = 0


class Reflection(NamedTuple):
    """A reflection on the work so far.

    Attributes:
        because: `tool error`, `interval` or `uncertainty`.
        turn: The number of model calls before it.
        should_continue: Always true: a reflection never stops a loop.
        suggested_action: What follows `Next:` in the text. `None` if it has no such line.
        confidence: Always `CONFIDENCE`, a constant.
    """

    because: str
    turn: int
    text: str
    should_continue: bool = True
    suggested_action: str | None = None
    confidence: float = CONFIDENCE

    def to_dict(self) -> dict[str, Any]:
        """Its fields, in the form of the note `thinking.reflected`."""
        return self._asdict()


class ThinkingManager:
    """Decides when a reflection is due, for one branch of a strategy.

    `WithThinking` creates its own. A custom loop calls `start_turn` before and `saw_reply` after each model
    call, `saw_tool` after each tool call, and `should_reflect` or `why_reflect` at any time.

    Attributes:
        last_reflection: The last recorded reflection, or `None`.
    """

    of = (Call, Thought)

    def __init__(
        self, settings: WithThinking, state: _State, last_reflection: Reflection | None = None
    ) -> None:
        self.settings = settings
        self.state = state
        self.last_reflection = last_reflection

    def should_reflect(self) -> bool:
        """Whether a reflection is due before the next turn."""
        return self.why_reflect() is not None

    def why_reflect(self) -> str | None:
        """Why a reflection is due: `tool error`, `interval` or `uncertainty`. `None` if none is due."""
        settings, state = self.settings, self.state
        if settings.level == "off":
            return None
        if settings.reflect_on_tool_error and state.errors:
            return "tool error"
        if settings.reflect_every and state.turns and state.turns % settings.reflect_every == 0:
            return "interval"
        return "uncertainty" if settings.reflect_on_uncertainty and state.unsure else None

    def start_turn(self) -> None:
        """Count a model call."""
        self.state = self.state._replace(turns=self.state.turns + 1)

    def saw_reply(self, text: str) -> None:
        """Remember whether a reply states a confidence below `UNSURE`."""
        confidence = read_confidence(text)
        if confidence is not None and confidence < UNSURE:
            self.state = self.state._replace(unsure=True)

    def saw_tool(self, name: str, reply: Reply) -> None:
        """Count a tool call, and keep its result or error for the next reflection."""
        result = _cut(f"{name} → {reply.text}" if reply.error is None else f"{name} failed: {reply.error}")
        errors = self.state.errors if reply.error is None else (*self.state.errors, result)
        self.state = self.state._replace(
            tool_calls=self.state.tool_calls + 1,
            results=(*self.state.results, result)[-_RESULTS:],
            errors=errors,
        )

    def record_reflection(self, text: str, because: str) -> Reflection:
        """Record a reflection, and reset its triggers."""
        self.last_reflection = Reflection(because, self.state.turns, text, suggested_action=next_action(text))
        self.state = self.state._replace(errors=(), unsure=False, reflections=self.state.reflections + 1)
        return self.last_reflection

    def carry_out(self, step: Call | Thought) -> Procedure[Any]:
        """Perform `step`. A model call gets the request for reasoning and, if a reflection is due, the text
        of the reflection."""
        if not isinstance(step, Call):
            recorded = yield step
            if recorded is not None:
                self._saw_changed(step.text, recorded.text)
            return recorded
        name = tool_of(step)
        if name is not None:
            reply = yield from ask(step)
            self.saw_tool(name, reply)
            return reply
        if step.purpose in UNINSTRUCTED:
            return (yield from ask(step))
        call = self._instructed(step)
        why = self.why_reflect()
        if why is not None:
            text = yield from self._reflected(step, why)
            if text:
                call = _with_section(call, f"## Reflection on the work so far\n\n{text}")
        self.start_turn()
        reply = yield from ask(call)
        self.saw_reply(reply.text)
        return reply

    def _instructed(self, call: Call) -> Call:
        """`call` with the request for reasoning."""
        level = ThinkingLevel(self.settings.level)
        if call.effort is None:
            call = msgspec.structs.replace(call, effort=level.value)
        if call.logprobs and call.max_tokens == 1:  # its score is read from the first token
            return call
        if call.max_tokens is not None:
            room = max(level.token_budget, _SET_ASIDE[level.value])
            call = msgspec.structs.replace(call, max_tokens=call.max_tokens + room)
        return _with_section(call, level.prompt_prefix)

    def _reflected(self, call: Call, why: str) -> Procedure[str]:
        """Reflect before `call`. Returns the text, empty if the call failed."""
        sent = msgspec.structs.replace(
            call,
            purpose="reflect",
            messages=(Message("user", self._question(call)),),
            max_tokens=None,
            stop=(),
            response_format=None,
            logprobs=0,
            tools=(),
            tool_choice=None,
        )
        reply = yield from ask(sent)
        if reply.error is not None:
            yield call_failed(call.node, "reflect", reply.error)
            return ""
        yield Note("thinking.reflected", call.node, self.record_reflection(reply.text, why).to_dict())
        return reply.text

    def _question(self, call: Call) -> str:
        """The prompt of a reflection. It names the purpose of `call`, so that all prompts at a thought
        differ.
        """
        results = "\n".join(f"- {result}" for result in self.state.results) or "(none yet)"
        error = f"\n\nA tool failed lately:\n{self.state.errors[-1]}" if self.state.errors else ""
        return (
            f"You are in the midst of a piece of work, and about to take the next turn ({call.purpose}). "
            f"This is what you will be shown:\n<turn>\n{call.prompt}\n</turn>\n\n"
            f"The last results of tools:\n{results}{error}\n\n"
            "Pause, and do not take the turn yet. What is done? Is the course right? What is missing? Answer "
            "in a few sentences, and end with a line `Next: ` and what to do next."
        )

    def _saw_changed(self, text: str, before: str) -> None:
        """Replace the tool result `text` by `before`, the text that a person wrote in its thought."""
        if text != before:
            results, errors = (
                tuple(_cut(before) if known == _cut(text) else known for known in all_known)
                for all_known in (self.state.results, self.state.errors)
            )
            self.state = self.state._replace(results=results, errors=errors)

    def fork(self) -> Self:
        """A manager for a branch, with the same state and nothing mutable shared."""
        return type(self)(self.settings, self.state, self.last_reflection)

    def join(self, branches: Sequence[Self]) -> None:
        """Merge the states of all branches, in branch order."""
        before, last = self.state, self.last_reflection
        recorded = [branch.last_reflection for branch in branches]
        self.last_reflection = next((one for one in reversed(recorded) if one is not last), last)
        for state in (branch.state for branch in branches):
            reflected = state.reflections > before.reflections
            fresh = min(state.tool_calls - before.tool_calls, _RESULTS)
            errors = state.errors if reflected else state.errors[len(before.errors) :]
            self.state = _State(
                turns=self.state.turns + state.turns - before.turns,
                tool_calls=self.state.tool_calls + state.tool_calls - before.tool_calls,
                results=(*self.state.results, *state.results[len(state.results) - fresh :])[-_RESULTS:],
                errors=(*self.state.errors, *errors),
                unsure=self.state.unsure or state.unsure,
                reflections=self.state.reflections + state.reflections - before.reflections,
            )
        if self.state.reflections > before.reflections:  # a branch has dealt with the earlier errors
            errors = self.state.errors[len(before.errors) :]
            unsure = any(branch.state.unsure for branch in branches)
            self.state = self.state._replace(errors=errors, unsure=unsure)


def next_action(reflection: str) -> str | None:
    """The rest of the line `Next: …` in a reflection. `None` without such a line."""
    action = _NEXT.search(reflection)
    return action[1].strip() if action else None


def _cut(result: str) -> str:
    return result if len(result) <= _RESULT_CHARACTERS else f"{result[:_RESULT_CHARACTERS]}… (cut)"


def _with_section(call: Call, section: str) -> Call:
    """`call` with `section` at the end of its system prompt."""
    first, *rest = call.messages
    if first.role == "system":
        message = msgspec.structs.replace(first, content=f"{first.content}\n\n{section}")
    else:
        message, rest = Message("system", section), list(call.messages)
    return msgspec.structs.replace(call, messages=(message, *rest))
