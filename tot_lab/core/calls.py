"""Model calls and their replies.

A `Call` holds everything that can change its answer, so equal calls ask the same question. A `Reply` holds
the whole answer, or the error. A failed call does not raise: its reply holds the error, and only the branch
that made the call is affected.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import FrozenInstanceError
from html import escape
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec

from tot_lab.core.scrubbing import scrubbed


class ToolCall(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A model's request to call a tool. `arguments` is JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str


class Message(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One message of a conversation.

    Attributes:
        role: `system`, `user`, `assistant` or `tool`.
        content: The text.
        tool_calls: The tool calls of an assistant message.
        tool_call_id: The tool call that a tool message answers.
        provider_state: `Reply.provider_state` of the reply that became this message, for the provider.
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
    """One model call. A role of the lab (`tl.Role`) fills in settings that are `None`.

    Attributes:
        node: Id of the thought it is made for: the parent when proposing, the thought itself when scoring.
        purpose: What the strategy makes it for: propose, sample, value, vote, joint, answer, act (a turn that
            may call tools), plan, critique, route and others; `tot_lab.core.purposes.ROLES` lists them. A
            purpose of your own may name its role before a colon: `evaluate:rubric`. `tool` marks a tool call,
            which is not a model call (`tot_lab.core.tools`).
        messages: The conversation.
        sample_index: Which sample of the prompt this is (0, 1, …). Each sample is a separate call. A retry
            after an unreadable reply takes a new index.
        attempt: Index of the attempt in each enclosing strategy that makes several (best-of-N and others),
            outermost first. Attempts get independent samples.
        repeat: Which independent repeat of the whole run it belongs to (`lab.run(..., repeat=r)`).
        model: Name of a model or of a role. `None` means the model of the call's role, else the lab's model.
        temperature: Sampling temperature. `None` means the model's default.
        max_tokens: The most tokens of the reply. `None` means the model's default.
        stop: Texts at which the model ends the reply.
        seed: Sampling seed. The provider receives `seed + sample_index`. `None` sends no seed.
        response_format: A JSON schema for the reply, or `None`.
        logprobs: Number of alternatives per token whose log-probabilities are requested. 0 requests none.
        alternatives: How many of the requested alternatives are kept per token of the reply, with their
            texts. 0 keeps only the token's log-probability and the mean of its alternatives. `None` means
            all for a reply of one token (`max_tokens=1`), and 0 for others.
        tools: Tools the model may call, each a JSON-ready dict with name, description and parameters (a JSON
            schema).
        tool_choice: `auto`, `none`, `required`, or the name of a tool.
        effort: Reasoning effort (low, medium, high), for models that support it.
        options: Further sampling settings under the provider's own names (`top_p`, …). For a tool call,
            `timeout`, `retries` and `backoff` that replace those of the tool.
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
    alternatives: int | None = None

    @property
    def prompt(self) -> str:
        """The contents of the messages as one text, for display and for plain-text models."""
        return "\n\n".join(message.content for message in self.messages)


shared_fields = attrgetter(
    *(
        name
        for name in Call.__struct_fields__
        if name not in ("node", "purpose", "sample_index", "attempt", "repeat")
    )
)
"""Returns the values of a call that all samples of its request have in common: all but its node, purpose,
sample, attempt and repeat.
"""


class TokenLogprob(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A generated token and its log-probability. `top` maps each alternative to its log-probability."""

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

    Attributes:
        text: The text of the answer. Empty if the call failed.
        error: Why there is no answer: `budget:NAME`, `limit:at_most`, `cancelled`, `timeout …` or
            `TYPE: message`. `None` if the call succeeded.
        thinking: Reasoning outside the answer, reported by the provider or written in `<think>` tags.
        model: The model that answered.
        input_tokens: Number of tokens of the prompt that the model reports. `None` if it reports none.
        output_tokens: Number of tokens of the reply that the model reports. `None` if it reports none.
        cost: Price of this reply in USD. `None` if the price is not known.
        finish_reason: Why the model stopped (stop, length, …). `None` if it does not say.
        logprobs: Log-probabilities of the generated tokens, if the model reports them and the call keeps
            alternatives (`Call.alternatives`).
        tool_calls: The tools that the model wants to call.
        simulated: Whether the reply came from something other than a language model.
        tool: Name of the tool whose result this is. `None` for a model's reply.
        provider_state: State that the provider expects back with this reply in later turns, such as signed
            thinking. Opaque JSON.
        reported_usage: Usage that the model reported but that is impossible, such as `output_tokens=-5`. The
            field for it is `None`, and limits count the whole amount that was reserved for the call.
        may_be_charged: Whether the request failed without a report of its usage after the provider may have
            processed it. Limits then also count the whole amount that was reserved for the call.
        raw_text: The original text including the thinking, if not all of the thinking precedes the answer.
        ended: Whether the model ended the reply itself, and not at one of the call's stop texts. `None` if
            the server does not report it.
        shared_tokens: Whether the model reports one token count for several replies together. The counts of
            this reply are then its part of that total.
        surprisals: -1000 × the log-probability of each generated token, rounded. Stored in place of
            `logprobs`.
        confidences: -100 × the mean log-probability of the alternatives of each token, rounded. Stored in
            place of the alternatives.
        sent: Whether the call was sent. `False` if it failed at once for lack of a key, of a server, or of a
            price under a limit on spending.
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
    may_be_charged: bool = False
    raw_text: str = ""
    ended: bool | None = None
    shared_tokens: bool = False
    surprisals: tuple[int, ...] = ()
    confidences: tuple[int, ...] = ()
    sent: bool = True


Model: TypeAlias = Callable[[Call], Awaitable[Reply | str] | AsyncGenerator[Reply | str, None]]
"""An async callable that answers a call, or an async generator that yields pieces of the text. A generator
may end with a `Reply`, which is then the answer."""


TIMED_OUT = "timeout"
"""Message of the `CancelledError` that is raised in a request when its time limit expires."""


class CallObserver(Protocol):
    """Receives reports about one call while it is in flight.

    The driver records each `note` without a position (`Line.p`), and times the call from its `call.sent` on.

    Attributes:
        paid: USD actually paid for the reply, such as 0.0 for a cached reply. `None` means `Reply.cost`.
    """

    paid: float | None

    @property
    def watched(self) -> bool:
        """Whether a watcher wants the text while it is generated (`partial`)."""
        ...

    def note(self, name: str, **data: Any) -> None:
        """Report what happened to the call: `call.queued`, `call.sent`, `call.retried`, …"""

    def partial(self, text: str) -> None:
        """Report the text received so far."""


class Need(NamedTuple):
    """Upper bounds on what a request can use.

    Attributes:
        tokens: Tokens of the prompt and of the replies.
        usd: Cost in USD. `None` if the price is not known.
        prompt: Tokens of the prompt. `None` if they were not counted.
        bounded: `False` if the length of the longest reply is only a guess.
        price: USD per million tokens of (prompt, reply). `None` if it is not known.
    """

    tokens: int
    usd: float | None
    prompt: int | None = None
    bounded: bool = True
    price: tuple[float, float] | None = None


class Bounds(Protocol):
    """Computes, before a call is made, the most tokens and USD that it can use."""

    async def ready(self, name: str | None) -> None:
        """Load what `need` requires for calls to the model `name`. `None` means the lab's model."""

    def need(self, call: Call) -> Need | None:
        """Return the most tokens and USD that `call` can use. `None` if no bound is known."""
        ...


class Halt(Exception):
    """Raised by a model to end the run, for errors that no strategy should continue after."""


def is_made(reply: Reply) -> bool:
    """Whether `reply` belongs to a model call that was sent to a model or answered by a cache."""
    return is_admitted(reply) and reply.sent


def is_admitted(reply: Reply) -> bool:
    """Whether `reply` answers a model call that was not refused. A budget counts such a call, sent or not."""
    return reply.tool is None and (reply.error is None or not refused(reply.error))


REFUSED = "budget:spend"
"""The error of a call that the spending limit of a lab refused."""


def refused(error: str | None) -> bool:
    """Whether `error` says that the call was refused, and so never made."""
    return error is not None and (halts(error) or error == "limit:at_most")


def halts(error: str) -> bool:
    """Whether `error` is a refusal after which no further call will be made."""
    return error == "cancelled" or error.startswith("budget:")


def stop_of(error: str) -> str:
    """Return the stop code of a run that ends because a call failed with `error`."""
    return error if halts(error) else "error"


def estimated_tokens(text: str) -> int:
    """Estimate the tokens of `text` if no count was reported: one per four UTF-8 bytes, rounded up."""
    return (len(text.encode("utf-8", "replace")) + 3) // 4


MAX_TOKENS = 1_000_000_000
"""Maximum number of tokens of one call that is accepted from a usage report."""

MAX_USD = 1_000_000.0
"""Maximum cost of one call, in USD, that is accepted from a usage report."""


def is_token_count(value: object) -> bool:
    """Whether `value` can be the number of tokens that one call used."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKENS


def is_cost(value: object) -> bool:
    """Whether `value` can be the USD that one call cost."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_USD


def believed(reply: Reply) -> Reply:
    """Replace impossible token counts and costs by `None`, and store them as text in `reported_usage`."""
    reported: tuple[tuple[str, Any, Callable[[object], bool]], ...] = (
        ("input_tokens", reply.input_tokens, is_token_count),
        ("output_tokens", reply.output_tokens, is_token_count),
        ("cost", reply.cost, is_cost),
    )
    wrong = {name: value for name, value, possible in reported if not (value is None or possible(value))}
    if not wrong:
        return reply
    rejected = ", ".join(filter(None, [reply.reported_usage, usage_text(wrong)]))
    return msgspec.structs.replace(reply, **dict.fromkeys(wrong), reported_usage=rejected)


def is_same_reply(one: Reply, other: Reply) -> bool:
    """Whether two replies are equal. A cost that is unknown in one of them equals any cost, because a reply
    that was cached before its model had a price gets a cost when it is read from the cache.
    """
    if one.cost is None or other.cost is None:
        one = msgspec.structs.replace(one, cost=other.cost)
    return one == other


def usage_text(usage: dict[str, Any]) -> str:
    """Reported usage as text, such as `output_tokens=-5, cost=nan`. Each value is cut at 40 characters."""
    return ", ".join(f"{name}={_shown(value)}" for name, value in usage.items())


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python refuses to format integers of more than 4,300 digits
        return "an integer of more than 4,300 digits"
    return readable(text if len(text) <= 40 else f"{text[:39]}…")


STATE = "Keep what changes during a run in local variables: settings are shared by all runs."


def format_error(error: BaseException) -> str:
    """Format `error` as `TYPE: message` without secrets. The message is empty if `str(error)` raises."""
    try:
        message = str(error)
    except Exception:
        message = ""
    if isinstance(error, FrozenInstanceError):
        message += f". {STATE}"
    return scrubbed(readable(f"{type(error).__name__}: {message}"))


def readable(text: str) -> str:
    """Return `text` with each lone surrogate replaced by `?`, so that it can be encoded."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def html_text(text: str) -> str:
    """Return `text` escaped for HTML. Its dollar signs are written so that notebooks read no formula."""
    return escape(text).replace("$", "<span>$</span>")


# Log-probabilities of a reply, reduced to what is needed. With 20 alternatives per token, 400 tokens take 80
# to 120 kB in the journal, and as much in the cache. Unless a call asks for the alternatives
# (`Call.alternatives`), only two whole numbers are kept per token: minus its log-probability in thousandths,
# and minus the mean log-probability of its alternatives in hundredths. (Fu et al. 2025, Deep Think with
# Confidence, arXiv:2508.15260, section 3.1: token confidence.)


LOWEST = -100.0
"""Lower log-probabilities count as this value. Servers report -9999 for tokens of unknown probability."""

_DIGITS = 6
"""Decimals of the log-probabilities of alternatives."""


def condensed(call: Call, reply: Reply) -> Reply:
    """Return `reply` with only the log-probabilities that `Call.alternatives` keeps, rounded."""
    tokens = reply.logprobs
    if not tokens:
        return reply
    count = call.alternatives
    if count is None:  # a reply of one token is a verdict, which is read from the alternatives
        count = call.logprobs if call.max_tokens == 1 else 0
    if count:
        kept = tuple([_rounded(token, count) for token in tokens])
        return msgspec.structs.replace(reply, logprobs=kept)
    means = token_confidences(tokens) if any(len(token.top) > 1 for token in tokens) else []
    return msgspec.structs.replace(
        reply,
        logprobs=(),
        surprisals=tuple([round(-1000 * token.logprob) for token in tokens]),
        confidences=tuple([round(100 * mean) for mean in means]),
    )


def _rounded(token: TokenLogprob, count: int) -> TokenLogprob:
    ranked = sorted(token.top.items(), key=lambda pair: -pair[1])[:count]
    top = {text: round(value, _DIGITS) for text, value in ranked}
    return TokenLogprob(token.token, round(token.logprob, _DIGITS), top)


def token_confidences(tokens: Sequence[TokenLogprob]) -> list[float]:
    """Minus the mean log-probability of the alternatives of each token, from 0 to `-LOWEST`. For a token
    without alternatives, its own log-probability is taken.
    """
    reported = [[*token.top.values()] or [token.logprob] for token in tokens]
    return [-sum(max(LOWEST, value) for value in values) / len(values) for values in reported]


def logprobs_of(reply: Reply) -> list[float]:
    """Return the log-probability of each token of a reply. Empty if the model reported none."""
    return [-value / 1000 for value in reply.surprisals] or [token.logprob for token in reply.logprobs]


def confidences_of(reply: Reply) -> list[float]:
    """Return the confidence of each token of a reply. Empty if the model reported no log-probabilities."""
    if reply.confidences:
        return [value / 100 for value in reply.confidences]
    return token_confidences(reply.logprobs) or [min(-value, -LOWEST) for value in logprobs_of(reply)]
