"""Thinking levels: how much a model reasons before each reply, over any strategy (design "Reactive Agents").

    instruct    a section of the system prompt asks for reasoning inside <think>…</think>
    watch       turns, results and errors of tools, replies that report little confidence
    reflect     when that is due: one more call, whose text the next call is shown

Rule: calls are edited and replies read; nothing else of the wrapped strategy changes, and the level `off`
changes nothing at all. A reply's thinking is split off where it comes in, so the strategy is shown the
answer alone. Branches at once each count for themselves, so that the record does not depend on their pace.
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
from tot_lab.core.reading import read_confidence
from tot_lab.core.records import Note, Thought
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Answer, Task
from tot_lab.core.thinking import Step, Thinking, ask, intercept
from tot_lab.core.tools import tool_of

Level = Literal["off", "low", "medium", "high"]

THINKING_TOKENS = {"low": 500, "medium": 2000, "high": 5000}
"""About how many tokens a model may think before a reply, by level."""


class ThinkingLevel(StrEnum):
    """How much a model reasons before each reply.

    A name is read in any case: `ThinkingLevel("High")`. An unknown name warns and is `off`.
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
        warnings.warn(f"unknown thinking level {value!r}: it is off; known are {known}", stacklevel=3)
        return cls.OFF

    @property
    def token_budget(self) -> int:
        """About how many tokens a model may think before a reply; 0 for `off`."""
        return THINKING_TOKENS.get(self.value, 0)

    @property
    def prompt_prefix(self) -> str:
        """The section of the system prompt that asks for the reasoning; "" for `off`."""
        if self is ThinkingLevel.OFF:
            return ""
        return (
            f"## Thinking\n\n{_ASKED[self.value]} before you reply, in about {self.token_budget:,} tokens at "
            "most. Begin your reply with <think>, write your reasoning there, and close it with </think>. "
            "Write the reply itself after that, exactly in the form that is asked for."
        )


_SET_ASIDE = {"low": 1024, "medium": 2048, "high": 4096}
"""Tokens of a reply that providers set aside for such an effort (Anthropic's and Gemini's, as litellm has
them); with a cap that leaves no more than these, Anthropic refuses the call."""

UNSURE = 0.5
"""A reply that reports less confidence than this calls for a reflection."""

CONFIDENCE = 0.7
"""That of every reflection: the design's constant, which measures nothing."""

_RESULTS = 3
_RESULT_CHARACTERS = 1_000
_NEXT = re.compile(r"^[ \t*_`#>-]*+next[ \t*_`]*+:[\s*_`]*+(\S.*)", re.IGNORECASE | re.MULTILINE)

_ASKED = {
    "low": "Think briefly",
    "medium": "Think step by step",
    "high": "Think thoroughly: weigh other ways, and check your result,",
}


class WithThinking(Strategy):
    """Make the model reason before each reply, and reflect on its progress now and then.

    Best for models that answer too fast, and loops that lose their way. Trade-off: reasoning is paid for as
    output. Calls: those of the strategy, and one more for each reflection, which is at most one per call.

    A call without an `effort` of its own gets the level, for models that have such a setting; its
    `max_tokens`, if set, grow by what the reasoning may take. Calls whose first token counts
    (`evaluate="logprob"`) are not asked to reason in writing. A provider that forces a reply into a schema
    leaves no room for written reasoning; there the effort alone applies.
    """

    strategy: Strategy
    """The strategy that is wrapped."""

    level: Level = "off"
    """`off`, `low` (about 500 tokens of reasoning a reply), `medium` (2,000) or `high` (5,000), in any case.
    Another name warns and means `off`."""

    reflect_every: Annotated[int, Field(ge=0)] = 0
    """Model calls after which to reflect. 0 means never."""

    reflect_on_tool_error: bool = True
    """Whether to reflect before the turn after a failed tool call."""

    reflect_on_uncertainty: bool = True
    """Whether to reflect before the turn after a reply that reports a confidence below 0.5."""

    @field_validator("level", mode="before")
    @classmethod
    def _is_known(cls, level: Any) -> Any:
        return ThinkingLevel(level).value if isinstance(level, str) else level

    def think(self, task: Task, at: str = "0") -> Thinking[Answer]:
        if self.level == "off":
            return (yield from self.strategy.think(task, at))
        return (yield from intercept(self.manager(), self.strategy.think(task, at), calls=self._calls_each))

    def manager(self) -> ThinkingManager:
        """What decides on reflections under these settings, before the first turn."""
        return ThinkingManager(self, _State())

    def max_calls(self, task: Task) -> int | None:
        inner = self.strategy.max_calls(task)
        return None if inner is None else inner * self._calls_each

    @property
    def _calls_each(self) -> int:
        """Calls that one call of the strategy can come to."""
        reflects = self.reflect_every > 0 or self.reflect_on_tool_error or self.reflect_on_uncertainty
        return 2 if reflects and self.level != "off" else 1


class _State(NamedTuple):
    """What a reflection depends on. turns, tool_calls, reflections: so far. results: the last three of
    tools. errors: of tools, unsure: a reply reported little confidence; both since the last reflection."""

    turns: int = 0
    tool_calls: int = 0
    results: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    unsure: bool = False
    reflections: int = 0


class Reflection(NamedTuple):
    """A reflection on the work so far.

    because: `tool error`, `interval` or `uncertainty`. turn: turns before it. should_continue: always true, a
    reflection never stops a loop. suggested_action: its line `Next: …`, None without one. confidence: the
    design's constant, which measures nothing.
    """

    because: str
    turn: int
    text: str
    should_continue: bool = True
    suggested_action: str | None = None
    confidence: float = CONFIDENCE

    def to_dict(self) -> dict[str, Any]:
        """Its fields by name, as the note `thinking.reflected` has them."""
        return self._asdict()


class ThinkingManager:
    """Decides for one branch of a strategy when a reflection is due.

    `WithThinking` keeps one of its own. A loop of your own asks one for itself: `start_turn` before each call
    to the model, `saw_reply` and `saw_tool` after, `should_reflect` and `why_reflect` whenever it likes.

    last_reflection: the last that was recorded here, None before the first.
    """

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
        """Why a reflection is due: `tool error`, `interval` or `uncertainty`. None when it is not."""
        settings, state = self.settings, self.state
        if settings.level == "off":
            return None
        if settings.reflect_on_tool_error and state.errors:
            return "tool error"
        if settings.reflect_every and state.turns and state.turns % settings.reflect_every == 0:
            return "interval"
        return "uncertainty" if settings.reflect_on_uncertainty and state.unsure else None

    def start_turn(self) -> None:
        """Count a call to the model."""
        self.state = self.state._replace(turns=self.state.turns + 1)

    def saw_reply(self, text: str) -> None:
        """Take in what the model replied, and the confidence that it reports."""
        confidence = read_confidence(text)
        if confidence is not None and confidence < UNSURE:
            self.state = self.state._replace(unsure=True)

    def saw_tool(self, name: str, reply: Reply) -> None:
        """Take in what a tool gave, or why it failed."""
        result = _cut(f"{name} → {reply.text}" if reply.error is None else f"{name} failed: {reply.error}")
        errors = self.state.errors if reply.error is None else (*self.state.errors, result)
        self.state = self.state._replace(
            tool_calls=self.state.tool_calls + 1,
            results=(*self.state.results, result)[-_RESULTS:],
            errors=errors,
        )

    def record_reflection(self, text: str, because: str) -> Reflection:
        """Keep a reflection; what called for it is settled then."""
        self.last_reflection = Reflection(because, self.state.turns, text, suggested_action=next_action(text))
        self.state = self.state._replace(errors=(), unsure=False, reflections=self.state.reflections + 1)
        return self.last_reflection

    def carry_out(self, step: Step) -> Thinking[Any]:
        """Have `step` done, with the instruction and, where one is due, after a reflection."""
        if not isinstance(step, Call):
            recorded = yield step
            if isinstance(step, Thought) and recorded is not None:
                self._saw_changed(step.text, recorded.text)
            return recorded
        name = tool_of(step)
        if name is not None:
            reply = yield from ask(step)
            self.saw_tool(name, reply)
            return reply
        call = self._instructed(step)
        why = self.why_reflect()
        if why is not None:
            text = yield from self._reflected(step, why)
            if text:
                call = _told(call, f"## Reflection on the work so far\n\n{text}")
        self.start_turn()
        reply = yield from ask(call)
        self.saw_reply(reply.text)
        return reply

    def _instructed(self, call: Call) -> Call:
        """`call`, asking for the reasoning."""
        level = ThinkingLevel(self.settings.level)
        if call.effort is None:
            call = msgspec.structs.replace(call, effort=level.value)
        if call.logprobs:
            return call
        if call.max_tokens is not None:
            room = max(level.token_budget, _SET_ASIDE[level.value])
            call = msgspec.structs.replace(call, max_tokens=call.max_tokens + room)
        return _told(call, level.prompt_prefix)

    def _reflected(self, call: Call, why: str) -> Thinking[str]:
        """Reflect before `call`; the text, "" when there is none."""
        asked = msgspec.structs.replace(
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
        reply = yield from ask(asked)
        if reply.error is not None:
            yield Note("call.failed", call.node, {"kind": "reflect", "error": reply.error})
            return ""
        yield Note("thinking.reflected", call.node, self.record_reflection(reply.text, why).to_dict())
        return reply.text

    def _question(self, call: Call) -> str:
        """The prompt of a reflection. It names the kind of `call`, so that no two calls at a thought ask
        the same."""
        results = "\n".join(f"- {result}" for result in self.state.results) or "(none yet)"
        error = f"\n\nA tool failed lately:\n{self.state.errors[-1]}" if self.state.errors else ""
        return (
            f"You are in the midst of a piece of work, and about to take the next turn ({call.purpose}). "
            f"This is what you will be shown:\n<turn>\n{call.prompt}\n</turn>\n\n"
            f"The last results of tools:\n{results}{error}\n\n"
            "Pause, and do not take the turn yet. What is done? Is the course right? What is missing? Answer "
            "in a few sentences, and end with a line `Next: ` and what to do next."
        )

    def _saw_changed(self, text: str, said: str) -> None:
        """A person may have changed the thought that a result was recorded as."""
        if text != said:
            results, errors = (
                tuple(_cut(said) if known == _cut(text) else known for known in all_known)
                for all_known in (self.state.results, self.state.errors)
            )
            self.state = self.state._replace(results=results, errors=errors)

    def fork(self) -> Self:
        """One for a branch: it knows what this one knows, and shares nothing mutable with it."""
        return type(self)(self.settings, self.state, self.last_reflection)

    def join(self, branches: Sequence[Self]) -> None:
        """Take in what those of all branches saw, in the order of the branches."""
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
        if self.state.reflections > before.reflections:  # which saw what had failed before
            errors = self.state.errors[len(before.errors) :]
            unsure = any(branch.state.unsure for branch in branches)
            self.state = self.state._replace(errors=errors, unsure=unsure)


def next_action(reflection: str) -> str | None:
    """What a reflection says to do next: the rest of its line `Next: …`. None without such a line."""
    action = _NEXT.search(reflection)
    return action[1].strip() if action else None


def _cut(result: str) -> str:
    return result if len(result) <= _RESULT_CHARACTERS else f"{result[:_RESULT_CHARACTERS]}… (cut)"


def _told(call: Call, section: str) -> Call:
    """`call` with `section` at the end of its system prompt."""
    first, *rest = call.messages
    if first.role == "system":
        told = msgspec.structs.replace(first, content=f"{first.content}\n\n{section}")
    else:
        told, rest = Message("system", section), list(call.messages)
    return msgspec.structs.replace(call, messages=(told, *rest))
