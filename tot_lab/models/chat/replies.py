"""Replies in OpenAI's chat format, complete or in pieces.

Texts are kept as the provider sent them, except that keys, and characters that UTF-8 cannot encode, are
replaced.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from tot_lab.core.calls import Call, Reply, TokenLogprob, ToolCall, is_token_count, usage_text
from tot_lab.core.reading.finish_reasons import read_finish_reason
from tot_lab.core.reading.json_values import json_of
from tot_lab.core.scrubbing import HIDDEN, clean, forms_of, without_beginning, without_keys
from tot_lab.models.chat.failures import failure_in
from tot_lab.models.stack import Failure

Price = tuple[float, float] | tuple[float, float, float]
"""USD per million tokens of (prompt, reply), or of (prompt, reply, cached part of the prompt)."""


class Billed(NamedTuple):
    """What a provider reports and charges for a request.

    Attributes:
        prompt: Prompt tokens. A prompt that several samples share is counted once.
        output: Tokens of all replies.
        price: The price per million tokens, or `None` if it is unknown.
        cost: The cost in USD, or `None`.
    """

    prompt: int
    output: int
    price: Price | None
    cost: float | None


class ReplyUsage(NamedTuple):
    """What one reply of a request used, as if its call had been a request of its own.

    `None` means unknown. `is_exact` says whether the tokens are those of this reply, and not estimated from
    the sum of several.
    """

    prompt: int | None = None
    output: int | None = None
    cost: float | None = None
    is_exact: bool = True


class Choice(NamedTuple):
    """One reply of the provider; see `choice_of`.

    Attributes:
        text: The text, or `None` if the provider sent none.
        finish: The finish reason as tot_lab names it, or `None`.
        failure: Why the choice is not a reply, or `None`.
        token_count: Number of its tokens, or `None` if the provider does not report it.
        state: Fields that may have to be sent back with the next call; see `wanted_back`.
        ended: As in `Reply`.
    """

    text: str | None
    thinking: str | None
    finish: str | None
    tool_calls: tuple[ToolCall, ...]
    logprobs: tuple[TokenLogprob, ...] = ()
    failure: Failure | None = None
    state: dict[str, Any] = {}
    token_count: int | None = None
    ended: bool | None = None

    @property
    def size(self) -> int:
        """Bytes of the text, the thinking and the arguments of tool calls, to estimate the number
        of tokens.
        """
        parts = (self.text or "", self.thinking or "", *[tool.arguments for tool in self.tool_calls])
        return len("".join(parts).encode())


def choice_of(
    text: str | None,
    reasoning: str | None,
    finish: str | None,
    tools: Iterable[Sequence[str | None]],
    *,
    error: Any = None,
    refusal: str | None = None,
    logprobs: tuple[TokenLogprob, ...] = (),
    blocks: Sequence[Any] = (),
    token_count: int | None = None,
    ended: bool | None = None,
) -> Choice:
    """Build a `Choice` from the fields of a reply that a provider sent.

    Args:
        text: The text, or `None` if the provider sent none.
        reasoning: The provider's reasoning field.
        finish: The provider's finish reason.
        tools: The tool calls, as (id, name, arguments).
        error: The provider's error field of this reply.
        refusal: The model's explanation if it refused to reply.
        logprobs: The tokens of the reply with their log-probabilities.
        blocks: Thinking blocks, of which the signed ones are sent back.
        token_count: The number of tokens of the reply, or `None` to count those in `logprobs`.
        ended: As in `Reply`.
    """
    tool_calls = tool_calls_of(tools)
    content, thinking = split(text, reasoning)
    known = read_finish_reason(finish)
    failure = failure_in(error)
    if failure is None and known == "error":
        failure = Failure(f"the server could not finish the reply (finish: {finish})", retry=True)
    elif failure is None and refusal:
        failure = Failure(f"the model refused: {refusal}")
    elif failure is None and content is None and not tool_calls and not thinking and known != "length":
        failure = Failure(f"the provider's response has no content (finish: {finish})")
    if tool_calls and known == "stop":
        known = "tool_calls"
    state = state_of(blocks, reasoning)
    count = len(logprobs) or None if token_count is None else token_count
    return Choice(content, thinking, known, tool_calls, logprobs, failure, state, count, ended)


class Processing(NamedTuple):
    """How a server processed a request, as far as it reports it. `None` means unknown.

    Attributes:
        cached_tokens: Prompt tokens that the server had processed before and did not process again.
        prefill_tokens_per_second: Speed of processing the rest of the prompt.
        decode_tokens_per_second: Speed of generating the reply.
    """

    cached_tokens: int | None = None
    prefill_tokens_per_second: float | None = None
    decode_tokens_per_second: float | None = None

    def updated(self, later: Processing) -> Processing:
        """Return a copy with the known values of `later`, which a later part of a stream reports."""
        pairs = zip(self, later, strict=True)
        return Processing(*(old if new is None else new for old, new in pairs))  # type: ignore[arg-type]

    def notes(self, prompts: Sequence[str]) -> list[dict[str, Any]]:
        """Return the known values for each call of the request. If the prompts differ, the cached tokens are
        divided among them in proportion to their lengths."""
        known = {name: value for name, value in self._asdict().items() if value is not None}
        if self.cached_tokens is None or len({*prompts}) == 1:
            return [known] * len(prompts)
        return [known | {"cached_tokens": part} for part in shared(self.cached_tokens, [*map(len, prompts)])]


class Answers(NamedTuple):
    """The content of a response. `usage` has the form that `_billed` of the endpoint reads, or is `None` if
    no usage was reported.

    `timings` is a field that only a complete response of llama.cpp has. The replies in such a response repeat
    the unfinished message that they continue; streamed replies, and those of other servers, do not.
    """

    choices: list[Choice]
    model: str | None
    usage: Any
    processing: Processing = Processing()
    timings: Any = None


def text_so_far(text: str, keys: Sequence[str]) -> str:
    """Return the text of a stream without `keys`, and without the beginning of a key at its end."""
    text = without_keys(text, keys)
    for key in keys:
        text = without_beginning(text, key)
    return text


class ToolPieces:
    """A tool call of which a part has arrived."""

    def __init__(self, index: int, id: str, name: str) -> None:
        self.index, self.id, self.name = index, id, name
        self._pieces: list[str] = []
        self._depth = 0
        self._begun = self._quoted = self._escaped = False

    def add(self, arguments: str) -> None:
        """Add a piece of the arguments."""
        if not arguments:
            return
        if self.is_empty:
            self._pieces.clear()
        self._pieces.append(arguments)
        for char in arguments:
            if self._escaped:
                self._escaped = False
            elif char == '"':
                self._quoted = not self._quoted
            elif self._quoted:
                self._escaped = char == "\\"
            elif char in "{[":
                self._depth, self._begun = self._depth + 1, True
            elif char in "}]":
                self._depth -= 1

    @property
    def is_empty(self) -> bool:
        """Whether no arguments have arrived, except the empty object with which proxies of
        Anthropic begin.
        """
        return self._pieces in ([], ["{}"])

    @property
    def is_whole(self) -> bool:
        """Whether all brackets of the arguments are closed."""
        return self._begun and self._depth <= 0

    @property
    def arguments(self) -> str:
        """The arguments: all pieces joined, or the last piece if it repeats the earlier ones, as some servers
        do.
        """
        first, last = self._pieces[:1], self._pieces[-1:]
        repeats = last and last[0].startswith(first[0]) and _canonical(last[0]) is not None
        return "".join(last if repeats else self._pieces)


_MOST_TOOL_CALLS = 1_000


def add_piece(tools: list[ToolPieces], index: int, id: str, name: str, arguments: str) -> None:
    """Add a piece of a tool call to `tools`.

    Ollama and Gemini give all calls of a reply the index 0. Other servers give no id, one id for all calls,
    or a new id with each piece. So a piece continues the last call with its index, or the one that also has
    its id, unless the piece names another tool or the arguments of that call are complete. A piece with a new
    index but no name continues the last call, since every call begins with a name.

    Raises:
        ValueError: If there are more than 1,000 calls. More would take too long, since each piece is compared
            with all calls.
    """
    mine = [tool for tool in reversed(tools) if tool.index == index] or ([] if name else tools[::-1])
    known = next((tool for tool in mine if id and tool.id == id), mine[0] if mine else None)
    if known is not None:
        is_other = name and known.name and name != known.name
        is_next = known.is_whole and arguments.strip() and (name or not known.is_empty)
        if not is_other and not is_next:
            known.id, known.name = known.id or id, known.name or name
            known.add(arguments)
            return
        name = name or known.name
    if len(tools) == _MOST_TOOL_CALLS:
        raise ValueError(f"expected at most {_MOST_TOOL_CALLS:,} tool calls: got more")
    tools.append(ToolPieces(index, id, name))
    tools[-1].add(arguments)


def whole_calls(tools: Iterable[ToolPieces]) -> list[tuple[str, str, str]]:
    """Return the (id, name, arguments) of each call. Equal calls with the same index are one call."""
    calls = dict[tuple[int, str, str], tuple[str, str, str]]()
    for tool in tools:
        arguments = tool.arguments
        key = tool.index, tool.name, _canonical(arguments) or arguments
        calls.setdefault(key, (tool.id, tool.name, arguments))
    return list(calls.values())


def _canonical(arguments: str) -> str | None:
    """Return JSON with sorted keys, so that equal values give equal text, or `None` if it is malformed."""
    try:
        return json.dumps(json_of(arguments), sort_keys=True)
    except ValueError:
        return None


# State to send back.


def wanted_back(choice: Choice, provider: str, model: str) -> str:
    """Return the field of an assistant message with tool calls that must be sent back to the provider, as a
    JSON object with litellm's name of the field. "" if nothing must be sent back.

    It is the signed thinking, which Anthropic verifies, or the reasoning, for providers that accept it.
    Gemini needs neither, since its signatures are part of the ids of tool calls.
    """
    if not choice.tool_calls or "gemini" in f"{provider}/{model}":
        return ""
    if "thinking_blocks" in choice.state:
        name = "thinking_blocks"
    elif "reasoning_content" in choice.state and provider in _TAKE_REASONING:
        name = "reasoning_content"
    else:
        return ""
    return json.dumps({name: choice.state[name]}, ensure_ascii=False)


_TAKE_REASONING = {"openai", "deepseek", "moonshot", "together_ai", "ollama_chat"}
"""Providers that accept reasoning in a message.

DeepSeek and Moonshot require it, Groq and Cerebras refuse it. OpenAI reports no reasoning; `openai` is here
for compatible servers such as llama.cpp.
"""


def state_of(blocks: Sequence[Any], reasoning: str | None) -> dict[str, Any]:
    if not blocks and not reasoning:
        return {}
    signed = [_cleaned(dict(block)) for block in blocks if block.get("signature") or block.get("data")]
    state = {"thinking_blocks": signed, "reasoning_content": clean(reasoning or "")}
    return {name: value for name, value in state.items() if value}


def _cleaned(block: dict[str, Any]) -> dict[str, Any]:
    return {name: clean(value) if isinstance(value, str) else value for name, value in block.items()}


# Text, calls and numbers.


def split(content: str | None, reasoning: str | None) -> tuple[str | None, str | None]:
    """Return the text, or `None` if none was sent, and the thinking, or `None` if it is empty. White space
    around the thinking is removed, and line breaks at the beginning of a text that has thinking.
    """
    thinking = clean(reasoning or "").strip() or None
    if content is None:
        return None, thinking
    return clean(content).lstrip("\n") if thinking else clean(content), thinking


def continuation_of(text: str, call: Call) -> str:
    """Return `text` without the unfinished message of the assistant at the end of `call`, if `text` begins
    with it.
    """
    begun = call.messages[-1]
    return text.removeprefix(begun.content) if begun.role == "assistant" else text


def tool_calls_of(tools: Iterable[Sequence[str | None]]) -> tuple[ToolCall, ...]:
    """Return tool calls from (id, name, arguments)."""
    return tuple(
        ToolCall(clean(id or f"call_{k}"), clean(name or ""), clean(arguments or ""))
        for k, (id, name, arguments) in enumerate(tools)
    )


# Keys.


def scrubbed_reply(reply: Reply, keys: Sequence[str]) -> Reply:
    """Return `reply` without `keys`, which a proxy may repeat in any text and in successive tokens."""
    if not keys:
        return reply
    texts = {
        name: without_keys(value, keys)
        for name in (
            *("text", "raw_text", "error", "thinking", "model", "finish_reason"),
            *("provider_state", "reported_usage"),
        )
        if (value := getattr(reply, name))
    }
    tools = tuple(
        ToolCall(*(without_keys(part, keys) for part in (tool.id, tool.name, tool.arguments)))
        for tool in reply.tool_calls
    )
    return msgspec.structs.replace(
        reply, **texts, tool_calls=tools, logprobs=_scrubbed_tokens(reply.logprobs, keys)
    )


def _scrubbed_tokens(tokens: Sequence[TokenLogprob], keys: Sequence[str]) -> tuple[TokenLogprob, ...]:
    """Return `tokens`, hiding the text and the alternatives of those that are part of a key."""
    text = "".join(token.token for token in tokens)
    hidden = [match.span() for form in forms_of(tuple(keys)) for match in form.pattern.finditer(text)]
    scrubbed, end = list[TokenLogprob](), 0
    for token in tokens:
        begin, end = end, end + len(token.token)
        if any(begin < last and first < end for first, last in hidden):
            scrubbed.append(TokenLogprob(HIDDEN, token.logprob))
        else:
            top = {without_keys(other, keys): logprob for other, logprob in token.top.items()}
            scrubbed.append(TokenLogprob(token.token, token.logprob, top))
    return tuple(scrubbed)


def finite(logprob: float | None) -> float:
    """Return `logprob`, but at least -9999. A missing, infinite or NaN one becomes -9999, as in OpenAI's
    replies.
    """
    found = -math.inf if logprob is None else float(logprob)
    return max(found, -9999.0) if found < math.inf else -9999.0  # also for NaN


# Usage.


def usd(price: Price, prompt: int, output: int, cached: int | None = None) -> float:
    """Return the cost of a request in USD. `cached` prompt tokens cost as much as the others unless `price`
    has a third number.
    """
    discount = (cached or 0) * (price[0] - price[2]) if len(price) == 3 else 0.0
    return (prompt * price[0] + output * price[1] - discount) / 1e6


def cached_in(count: Any, prompt: Any) -> int | None:
    """Return the reported number of cached tokens, or `None` if it is not an integer from 0 to `prompt`."""
    possible = is_token_count(count) and is_token_count(prompt) and count <= prompt
    return int(count) if possible else None


def speed_in(speed: Any) -> float | None:
    """Return a reported speed, or `None` if it is not a positive finite number."""
    number = isinstance(speed, int | float) and not isinstance(speed, bool)
    return float(speed) if number and 0 < speed < math.inf else None


def shared(whole: int, sizes: Sequence[int]) -> list[int]:
    """Divide `whole` into integers in proportion to `sizes`. The first part also gets the remainder."""
    total = sum(sizes)
    parts = [whole * size // total if total else 0 for size in sizes]
    return [whole - sum(parts[1:]), *parts[1:]]


def shares_of(billed: Billed, choices: Sequence[Choice], prompts: Sequence[int] | None) -> list[ReplyUsage]:
    """Return the usage of each reply of a request, given that of the whole request.

    Args:
        billed: The usage of the whole request.
        choices: The replies.
        prompts: Length of the prompt of each reply, in proportion to which the prompt tokens are divided.
            `None` means that all replies are samples of one prompt. Each then counts the whole prompt.
    """
    count = len(choices)
    counted = [choice.token_count for choice in choices if choice.token_count is not None]
    is_exact = count == 1 or (len(counted) == count and sum(counted) == billed.output)
    outputs = [billed.output] if count == 1 else counted if is_exact else shared(billed.output, [1] * count)
    parts = [billed.prompt] * count if prompts is None else shared(billed.prompt, prompts)
    is_exact = is_exact and (prompts is None or count == 1)
    return [
        ReplyUsage(part, output, _cost_of(billed, part, output), is_exact)
        for part, output in zip(parts, outputs, strict=True)
    ]


def _cost_of(billed: Billed, prompt: int, output: int) -> float | None:
    """Return the cost of one reply, or `None` if the price or the cost of the request is unknown.

    It is the cost of its tokens at `billed.price`, plus its share of the difference between `billed.cost` and
    the cost of all tokens at that price, in proportion to its prompt tokens. It is at least 0.
    """
    if billed.price is None or billed.cost is None:
        return None
    if (prompt, output) == (billed.prompt, billed.output):
        return round(billed.cost, 12)
    change = billed.cost - usd(billed.price, billed.prompt, billed.output)
    part = prompt / billed.prompt if billed.prompt else 0.0
    return round(max(usd(billed.price, prompt, output) + change * part, 0.0), 12)


_LONGEST_TOKENS = 16
"""Upper bound of the mean number of bytes per token of a reply."""


def undercounted(choices: Sequence[Choice], output: int) -> str:
    """Return the reported output tokens as text if `choices` must have more in all, else "".

    Some servers count the tokens of the first reply only (llama.cpp, pull request 27318).
    """
    if output >= sum([choice.token_count or -(-choice.size // _LONGEST_TOKENS) for choice in choices]):
        return ""
    return usage_text({"output_tokens": output}) + f" for {len(choices)} replies"
