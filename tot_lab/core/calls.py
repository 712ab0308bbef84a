"""What is asked of a model and what comes back.

Rule: a `Call` holds everything that can change its answer and nothing else, so that equal calls
are the same question; a `Reply` holds the whole answer, or the reason why there is none.
A failure is therefore a value: it costs the branch that asked, never the run.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec


class ToolCall(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A model's wish to have a tool called. `arguments` is JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str


class Message(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One turn of a conversation. `role` is system, user, assistant or tool.

    tool_calls: those of an assistant's turn. tool_call_id: which of them a tool's turn answers.
    provider_state: that of the reply which the turn was; it goes back as it came.
    """

    role: str
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    provider_state: str = ""


class Call(
    msgspec.Struct,
    frozen=True,
    gc=False,
    omit_defaults=True,
    tag="call",
    rename={"node": "at", "purpose": "kind", "sample_index": "draw"},  # the names in files and cache keys
):
    """One question to a model.

    node: id of the thought it is asked for (the parent when proposing, the thought when scoring).
    purpose: its role in the strategy: propose, sample, value, vote, joint, answer, act (a turn that may ask
        for tools), plan, critique, route, …; `tot_lab.core.purposes.ROLES` has them all. `tool` is the call
        of a tool, which is no model call (`tot_lab.core.tools`).
    sample_index: which of several samples of one prompt this is (0, 1, …). The k-th sample of a prompt is
        a call of its own; a parse retry takes a new index.
    attempt: which attempt of the strategies around it (best-of-N, …) this belongs to, outermost
        first; attempts sample independently.
    repeat: which independent repeat of the whole run (`lab.run(..., repeat=r)`).
    model: name of the model, or None for the lab's own.
    temperature, max_tokens, stop, seed: sampling settings, None for the model's defaults. The
        provider is sent `seed + sample_index`.
    response_format: a JSON schema that the reply should fit, or None.
    logprobs: how many alternatives per token to report log-probabilities for (0 = none).
    tools: tools the model may ask for, each a JSON-ready dict with name, description and
        parameters (a JSON schema). tool_choice: auto, none, required, or a tool's name.
    effort: reasoning effort (low, medium, high), where the model has such a setting.
    options: further sampling settings by the provider's own names (`top_p`, …).
    """

    node: str
    purpose: str
    messages: tuple[Message, ...]
    sample_index: int = 0
    attempt: tuple[int, ...] = ()
    repeat: int = 0
    model: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    response_format: dict[str, Any] | None = None
    logprobs: int = 0
    tools: tuple[dict[str, Any], ...] = ()
    tool_choice: str | None = None
    effort: str | None = None
    options: dict[str, Any] = {}

    @property
    def prompt(self) -> str:
        """The messages as one text, for showing and for models that read plain text."""
        return "\n\n".join(message.content for message in self.messages)


class TokenLogprob(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One generated token, its natural-log probability, and the alternatives reported for it."""

    token: str
    logprob: float
    top: dict[str, float] = {}


class Reply(
    msgspec.Struct,
    frozen=True,
    gc=False,
    omit_defaults=True,
    tag="reply",
    rename={"finish_reason": "finish"},  # the name in files
):
    """The answer to one `Call`.

    text: what the model wrote; "" when it failed.
    error: None, or why there is no answer: `budget:CAP`, `cancelled`, `timeout …`, `KIND: message`.
    thinking: reasoning that is no part of the answer, reported by the provider or written in `<think>` tags;
        None without any.
    input_tokens, output_tokens: as the model counts them, None when it does not say.
    cost: USD that this reply costs when it is paid, None when the price is not known.
    finish_reason: why the model stopped (stop, length, …), None when it does not say.
    logprobs: per generated token, when asked for and supported.
    tool_calls: the tools that the model asks for.
    simulated: True when no language model wrote this.
    tool: the tool whose result this is, None for a model's.
    provider_state: what the provider wants back with the turn of a tool call, signed thinking say: JSON
        that nobody else reads, "" for nothing.
    reported_usage: usage that the model reported and that cannot be true (`output_tokens=-5`), "" for
        none. The fields that it concerns are None; every cap counts the call's whole reservation.
    raw_text: the text with its thinking, as it was written, where thinking stood within or after the answer;
        "" otherwise.
    """

    text: str = ""
    error: str | None = None
    thinking: str | None = None
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: float | None = None
    finish_reason: str | None = None
    logprobs: tuple[TokenLogprob, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    simulated: bool = False
    tool: str | None = None
    provider_state: str = ""
    reported_usage: str = ""
    raw_text: str = ""


Model: TypeAlias = Callable[[Call], Awaitable[Reply | str] | AsyncGenerator[Reply | str, None]]
"""Whatever answers a call: any async callable, or an async generator of the pieces of its text. A generator
may end with a `Reply`, which then is the answer."""


class CallObserver(Protocol):
    """How what stands between a strategy and its model tells of a call's way there: the driver
    writes it beside the canonical record, and counts the call's time from its sending.

    paid: USD really paid for the reply where that is not its cost, e.g. 0.0 for one from a cache.
    """

    paid: float | None

    @property
    def watched(self) -> bool:
        """Whether anybody wants the text so far."""
        ...

    def note(self, name: str, **data: Any) -> None:
        """Something happened to the call: `call.queued`, `call.sent`, `call.retried`, …"""

    def partial(self, text: str) -> None:
        """The reply's text so far."""


class Need(NamedTuple):
    """The most that a request can use.

    tokens: prompt and replies. usd: `None` = the price is not known. prompt: tokens of the prompt, `None` =
    not counted. bounded: `False` if a reply may be longer, because the length of the longest is a guess.
    """

    tokens: int
    usd: float | None
    prompt: int | None = None
    bounded: bool = True


class Bounds(Protocol):
    """Tells the most that a call can use, before it is made."""

    async def ready(self, name: str | None) -> None:
        """Load what `need` requires for calls to the model `name`."""

    def need(self, call: Call) -> Need | None:
        """The most that `call` can use; `None` if nothing is known."""
        ...


class Halt(Exception):
    """Raised by a model to end the run: for what no strategy should go on from."""


def is_made(reply: Reply) -> bool:
    """Whether `reply` answers a model call: not one that was refused, and no tool's."""
    return reply.tool is None and not refused(reply.error)


def refused(error: str | None) -> bool:
    """Whether `error` says that the call was refused, and so never made."""
    return error is not None and (halts(error) or error == "limit:at_most")


def halts(error: str) -> bool:
    """Whether `error` is a refusal after which no further call will be made."""
    return error == "cancelled" or error.startswith("budget:")


def stop_of(error: str) -> str:
    """The stop word after a call that failed so."""
    return error if halts(error) else "error"


def estimated_tokens(text: str) -> int:
    """A stand-in where nobody counted: one token per four UTF-8 bytes, rounded up."""
    return (len(text.encode("utf-8", "replace")) + 3) // 4


MOST_TOKENS = 1_000_000_000
"""Tokens of one call above which a report is not believed."""

MOST_USD = 1_000_000.0
"""USD of one call above which a report is not believed."""


def is_token_count(value: object) -> bool:
    """Whether `value` can be the number of tokens that one call used."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS


def is_cost(value: object) -> bool:
    """Whether `value` can be the USD that one call cost."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MOST_USD


def believed(reply: Reply) -> Reply:
    """`reply` with `None` for each usage that cannot be true; `reported_usage` holds what was reported."""
    reported: tuple[tuple[str, Any, Callable[[object], bool]], ...] = (
        ("input_tokens", reply.input_tokens, is_token_count),
        ("output_tokens", reply.output_tokens, is_token_count),
        ("cost", reply.cost, is_cost),
    )
    wrong = {name: value for name, value, possible in reported if not (value is None or possible(value))}
    if not wrong:
        return reply
    told = ", ".join(filter(None, [reply.reported_usage, usage_text(wrong)]))
    return msgspec.structs.replace(reply, **dict.fromkeys(wrong), reported_usage=told)


def usage_text(usage: dict[str, Any]) -> str:
    """Reported usage as text, such as `output_tokens=-5, cost=nan`; each value is cut at 40 characters."""
    return ", ".join(f"{name}={_shown(value)}" for name, value in usage.items())


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python writes no integer of more than 4,300 digits
        return "an integer of more than 4,300 digits"
    return readable(text if len(text) <= 40 else f"{text[:39]}…")


def told(error: BaseException) -> str:
    """`error` as a reply tells of it, by its type and message; also one that cannot say what it is."""
    try:
        message = str(error)
    except Exception:
        message = ""
    return readable(f"{type(error).__name__}: {message}")


def readable(text: str) -> str:
    """`text`, with a question mark for each lone surrogate, which no file could hold."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
