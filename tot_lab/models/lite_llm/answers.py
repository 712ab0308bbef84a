"""Replies of a provider, complete or streamed, in one form.

Values that litellm makes up are not used: the finish reason of an interrupted stream, zeros for missing
usage, and its own handling of thinking tags. A reply holds what the provider sent, in a form that a file can
hold.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from tot_lab.core.calls import CallObserver, Reply, TokenLogprob, ToolCall
from tot_lab.core.reading import json_of
from tot_lab.core.scrubbing import HIDDEN, clean, without_beginning, without_keys
from tot_lab.models.stack import Failure

_MASKED = "think\u2060>"  # hides thinking tags from litellm


class Choice(NamedTuple):
    """One reply of the provider. `text` is `None` if it has none, and `state` may have to be sent back
    (`wanted_back`).
    """

    text: str | None
    thinking: str | None
    finish: str | None
    tool_calls: tuple[ToolCall, ...]
    logprobs: tuple[TokenLogprob, ...] = ()
    refusal: str | None = None
    state: dict[str, Any] = {}

    @property
    def problem(self) -> str | None:
        """Why this is not a reply, or `None`."""
        if self.refusal:
            return f"the model refused: {self.refusal}"
        if self.text is None and not self.tool_calls and not self.thinking and self.finish != "length":
            return f"the provider's response has no content (finish: {self.finish})"
        return None

    @property
    def size(self) -> int:
        """Bytes, which approximate its share of the tokens."""
        parts = (self.text, self.thinking, *(tool.arguments for tool in self.tool_calls))
        return sum(len(part.encode()) for part in parts if part)


class Answers(NamedTuple):
    """The content of a response. `usage` is litellm's, or `None` if the provider reported none."""

    choices: list[Choice]
    model: str | None
    usage: Any


def whole(response: Any) -> Answers:
    """Return the content of a complete response."""
    return Answers(list(map(_choice, response.choices or ())), response.model, _usage_of([response]))


def _choice(choice: Any) -> Choice:
    message = choice.message
    text, thinking = _split(message.content, getattr(message, "reasoning_content", None))
    tools = [(tool.id, tool.function.name, tool.function.arguments) for tool in message.tool_calls or ()]
    extra = getattr(message, "provider_specific_fields", None) or {}
    logprobs = _logprobs(getattr(choice, "logprobs", None))
    blocks, reasoning = getattr(message, "thinking_blocks", None), getattr(message, "reasoning_content", None)
    return Choice(
        text,
        thinking,
        choice.finish_reason,
        _tool_calls(tools),
        logprobs,
        extra.get("refusal"),
        _state(blocks or (), reasoning),
    )


async def streamed(stream: Any, observer: CallObserver, keys: Sequence[str]) -> Answers:
    """Return the content of a stream, and report the text so far without `keys`.

    Raises:
        Failure: If the stream ends early, which litellm treats as a normal end.
    """
    text: str | None = None
    thinking, finish, usage = "", None, None
    tools: list[_Parts] = []
    blocks: list[dict[str, Any]] = []
    ended = await _end_of(stream)
    async for chunk in stream:
        usage = getattr(chunk, "usage", None) or usage
        if not chunk.choices:
            continue
        delta = chunk.choices[0].delta
        finish = chunk.choices[0].finish_reason or finish
        thinking += getattr(delta, "reasoning_content", None) or ""
        blocks += getattr(delta, "thinking_blocks", None) or ()
        for tool in delta.tool_calls or ():
            _add(tools, tool)
        if delta.content is not None:
            text = (text or "") + delta.content.replace(_MASKED, "think>")
            if delta.content:
                observer.partial(_so_far(clean(text), keys))
    if not ended():
        raise Failure("the stream ended before the reply was complete", retry=True)
    if tools:
        text = text or None
    finish = "tool_calls" if tools and finish == "stop" else finish  # as litellm does for a complete response
    called = _tool_calls((tool.id, tool.name, tool.arguments) for tool in tools)
    choice = Choice(*_split(text, thinking), finish, called, state=_state(_whole_blocks(blocks), thinking))
    model = stream._provider_response_model or stream.model
    report = _usage_of(stream.chunks)
    # litellm replaces implausible counts by its own. The report is kept then, so that it is detected.
    return Answers([choice], model, report if getattr(report, "reported", "") else usage if report else None)


def _so_far(text: str, keys: Sequence[str]) -> str:
    """Return the text of a stream without `keys`, of which the last may be incomplete."""
    text = without_keys(text, keys)
    for key in keys:
        text = without_beginning(text, key)
    return text


class _Parts:
    """A partially received tool call."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.id = self.name = self.arguments = ""


def _add(tools: list[_Parts], delta: Any) -> None:
    """Add a piece of a tool call to `tools`.

    OpenAI-compatible servers of Ollama and Gemini give all calls of a reply the index 0, and some give no id.
    A piece starts a new call if it has another id, or a name after complete arguments.
    """
    id, name, arguments = delta.id or "", delta.function.name or "", delta.function.arguments or ""
    known = next((tool for tool in reversed(tools) if tool.index == delta.index), None)
    if known is None or (known.id and id not in ("", known.id)) or (name and not id and _is_json(known)):
        known = _Parts(delta.index)
        tools.append(known)
    known.id = known.id or id
    known.name = known.name or name
    known.arguments += arguments


def _is_json(tool: _Parts) -> bool:
    try:
        return json_of(tool.arguments) is not None
    except ValueError:
        return False


async def _end_of(stream: Any) -> Callable[[], bool]:
    """Return a function that tells whether the provider has ended the stream.

    Chunks of Gemini and Ollama are inspected before litellm reads them: it treats every chunk of Gemini as
    the last one, and removes Ollama's thinking tags but not the thinking.
    """
    if stream.custom_llm_provider not in ("gemini", "vertex_ai", "vertex_ai_beta", "ollama_chat"):
        return lambda: stream.received_finish_reason is not None
    chunks = await stream.fetch_stream()
    parse = chunks.chunk_parser
    reasons: list[str | None] = []

    def see_to(chunk: dict[str, Any]) -> Any:
        reasons.extend(candidate.get("finishReason") for candidate in chunk.get("candidates") or ())
        message = chunk.get("message")
        if isinstance(message, dict) and message.get("content"):
            message["content"] = message["content"].replace("think>", _MASKED)
        return parse(chunk)

    chunks.chunk_parser = see_to
    return lambda: any(reasons) or stream.received_finish_reason is not None


# State to send back.


def wanted_back(choice: Choice, provider: str, model: str) -> str:
    """Return what must be sent back with a turn that calls tools, as JSON of litellm's message fields.

    This is the signed thinking, which Anthropic verifies, or the reasoning for providers that continue from
    it. Gemini's signatures are part of the ids of its calls.
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


def _state(blocks: Iterable[Any], reasoning: str | None) -> dict[str, Any]:
    signed = [_cleaned(dict(block)) for block in blocks if block.get("signature") or block.get("data")]
    state = {"thinking_blocks": signed, "reasoning_content": clean(reasoning or "")}
    return {name: value for name, value in state.items() if value}


def _whole_blocks(pieces: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the thinking blocks of a stream. A signature ends a block, and litellm repeats the text
    with it.
    """
    blocks: list[dict[str, Any]] = []
    text = ""
    for piece in pieces:
        part = piece.get("thinking") or ""
        if piece.get("signature"):
            blocks.append({**piece, "thinking": text or part})
            text = ""
        elif piece.get("type") == "redacted_thinking":
            blocks.append(dict(piece))
        else:
            text += part
    return blocks


def _cleaned(block: dict[str, Any]) -> dict[str, Any]:
    return {name: clean(value) if isinstance(value, str) else value for name, value in block.items()}


# Text, calls and numbers.


def _split(content: str | None, reasoning: str | None) -> tuple[str | None, str | None]:
    """Return the text and the thinking without the white space between them."""
    thinking = clean(reasoning or "").strip() or None
    if content is None:
        return None, thinking
    return clean(content).lstrip("\n") if thinking else clean(content), thinking


def _tool_calls(tools: Iterable[Sequence[str | None]]) -> tuple[ToolCall, ...]:
    """Return tool calls from (id, name, arguments)."""
    return tuple(
        ToolCall(clean(id or f"call_{k}"), clean(name or ""), clean(arguments or ""))
        for k, (id, name, arguments) in enumerate(tools)
    )


def _usage_of(responses: Sequence[Any]) -> Any:
    """Return the last usage with any tokens. litellm reports zeros if a provider sends none."""
    reported = [getattr(response, "usage", None) for response in responses]
    counted = [usage for usage in reported if usage and (usage.prompt_tokens or usage.completion_tokens)]
    return counted[-1] if counted else None


def _logprobs(reported: Any) -> tuple[TokenLogprob, ...]:
    tokens = []
    for token in getattr(reported, "content", None) or ():
        top: dict[str, float] = {}
        for other in token.top_logprobs or ():
            top.setdefault(clean(other.token), _finite(other.logprob))
        tokens.append(TokenLogprob(clean(token.token), _finite(token.logprob), top))
    return tuple(tokens)


# Keys.


def scrubbed_reply(reply: Reply, keys: Sequence[str]) -> Reply:
    """Return `reply` without `keys`, which a proxy may repeat in any text or spell out in tokens."""
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
    """Return `tokens` without the text and alternatives of those that spell out a key."""
    text = "".join(token.token for token in tokens)
    hidden = [match.span() for key in keys for match in re.finditer(re.escape(key), text)]
    scrubbed, end = list[TokenLogprob](), 0
    for token in tokens:
        begin, end = end, end + len(token.token)
        if any(begin < last and first < end for first, last in hidden):
            scrubbed.append(TokenLogprob(HIDDEN, token.logprob))
        else:
            top = {without_keys(other, keys): logprob for other, logprob in token.top.items()}
            scrubbed.append(TokenLogprob(token.token, token.logprob, top))
    return tuple(scrubbed)


def _finite(logprob: float | None) -> float:
    """Return a log-probability, with OpenAI's substitute for impossible ones."""
    return max(float(logprob), -9999.0) if logprob is not None else -9999.0
