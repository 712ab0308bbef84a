"""Reads replies from litellm's responses and streams.

Values that litellm makes up are not used: the finish reason of an interrupted stream, zeros for missing
usage, and text and thinking that litellm has separated by thinking tags. Only what the provider sent is used.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import Any

from tot_lab.core.calls import CallObserver, TokenLogprob
from tot_lab.core.reading.finish_reasons import read_ended, read_finish_reason
from tot_lab.core.scrubbing import clean
from tot_lab.models.chat.failures import failure_in
from tot_lab.models.chat.replies import (
    Answers,
    Choice,
    Processing,
    ToolPieces,
    add_piece,
    cached_in,
    choice_of,
    finite,
    text_so_far,
    whole_calls,
)
from tot_lab.models.openai_compatible import answers as openai
from tot_lab.models.stack import Failure

FAILED = "finish_reason_unspecified"
"""The finish reason that `loading` gives to replies that the provider marks as failed."""

_MASKED = "think\u2060>"  # hides thinking tags from litellm


def whole(response: Any) -> Answers:
    """Return the content of a complete response."""
    usage, timings = _usage_of([response]), getattr(response, "timings", None)
    error = getattr(response, "error", None)
    beside = {"stop_type": getattr(response, "stop_type", None)}
    choices = [_choice(choice, error, beside) for choice in response.choices or ()]
    return Answers(choices, response.model, usage, _processing_of(usage), timings)


def _choice(choice: Any, error: Any, beside: dict[str, Any]) -> Choice:
    message = choice.message
    own, extra = (getattr(part, "provider_specific_fields", None) or {} for part in (choice, message))
    return choice_of(
        message.content,
        getattr(message, "reasoning_content", None),
        own.get("native_finish_reason", "error") if choice.finish_reason == FAILED else choice.finish_reason,
        [(tool.id, tool.function.name, tool.function.arguments) for tool in message.tool_calls or ()],
        error=own.get("error") or getattr(choice, "error", None) or error,
        refusal=extra.get("refusal"),
        logprobs=_logprobs(getattr(choice, "logprobs", None)),
        blocks=getattr(message, "thinking_blocks", None) or (),
        ended=read_ended({**beside, **own, "finish_reason": choice.finish_reason}),
    )


async def streamed(litellm: Any, stream: Any, observer: CallObserver, keys: Sequence[str]) -> Answers:
    """Return the content of a stream, and report its text so far, without `keys`, to `observer`.

    A stream in OpenAI's format is read as the server sent it, since litellm leaves out errors, the finish
    reasons of failed replies and the event that ends the stream. Other formats are read as litellm converts
    them.

    Raises:
        Failure: If the stream ends early, which litellm treats as a normal end.
    """
    if (found := _events_in(litellm, stream.completion_stream)) is not None:
        async with aclosing(found) as events:
            return await openai.streamed(events, observer, keys, lambda usage: usage_in(litellm, usage))
    text: str | None = None
    thinking, finish, usage = "", None, None
    tools: list[ToolPieces] = []
    blocks: list[dict[str, Any]] = []
    reasons, errors = await _watched(stream)
    async for chunk in stream:
        usage = getattr(chunk, "usage", None) or usage
        if not chunk.choices:
            continue
        delta = chunk.choices[0].delta
        finish = chunk.choices[0].finish_reason or finish
        thinking += getattr(delta, "reasoning_content", None) or ""
        blocks += getattr(delta, "thinking_blocks", None) or ()
        for tool in delta.tool_calls or ():
            its = tool.function
            add_piece(tools, tool.index, tool.id or "", its.name or "", its.arguments or "")
        if delta.content is not None:
            text = (text or "") + delta.content.replace(_MASKED, "think>")
            if delta.content:
                observer.partial(text_so_far(clean(text), keys))
    reasons.append(stream.received_finish_reason)
    if not any(reasons):
        usage = _usage_of(stream.chunks)
        raise Failure("the stream ended before the reply was complete", retry=True, usage=usage)
    finish = next((str(each) for each in reasons if read_finish_reason(str(each)) == "error"), finish)
    error = next(filter(failure_in, errors), None)
    choice = choice_of(text, thinking, finish, whole_calls(tools), error=error, blocks=_whole_blocks(blocks))
    model = stream._provider_response_model or stream.model
    report = _usage_of(stream.chunks)
    # litellm replaces impossible counts by its own. The reported counts are kept, so that they are noticed.
    usage = report if getattr(report, "reported", "") else usage if report else None
    return Answers([choice], model, usage, _processing_of(usage))


def _events_in(litellm: Any, stream: Any) -> AsyncGenerator[str, None] | None:
    """Return the data of the server's events if `stream` has OpenAI's format: that of OpenAI's client, or of
    litellm's own client for it. `None` for another format.
    """
    if hasattr(stream, "_iter_events"):
        return (event.data async for event in stream._iter_events() if event.data)
    own = litellm.llms.openai.chat.gpt_transformation.OpenAIChatCompletionStreamingHandler
    if type(stream) is not own:
        return None
    lines = stream.streaming_response
    return (line[5:] async for line in lines if isinstance(line, str) and line.startswith("data:"))


def usage_in(litellm: Any, usage: Any) -> Any:
    """Return JSON usage in OpenAI's format as an object of litellm, or `None` if it counts no tokens."""
    read = litellm.Usage(**usage) if isinstance(usage, dict) else None
    return read if read and (read.prompt_tokens or read.completion_tokens) else None


_REASONS = "finish_reason", "finishReason", "stop_reason"  # of OpenAI, Gemini and Anthropic


async def _watched(stream: Any) -> tuple[list[Any], list[Any]]:
    """Return two lists to which the finish reasons and the errors are added while `stream` is read.

    Each chunk is inspected before litellm reads it, since litellm treats every chunk of Gemini as the last
    one, removes Ollama's thinking tags but not the thinking, and leaves out errors and the finish reasons of
    failed replies.
    """
    if stream.completion_stream is None:
        await stream.fetch_stream()
    chunks, reasons, errors = stream.completion_stream, list[Any](), list[Any]()
    if (parse := getattr(chunks, "chunk_parser", None)) is None:
        return reasons, errors

    def see_to(chunk: dict[str, Any]) -> Any:
        parts = [chunk, chunk.get("delta"), *(chunk.get("choices") or chunk.get("candidates") or ())]
        for part in parts:
            if isinstance(part, dict):
                errors.append(part.get("error"))
                reasons.extend(map(part.get, _REASONS))
        if failure_in(chunk.get("error")) is None:
            chunk.pop("error", None)  # litellm's classes treat an empty error as an error
        message = chunk.get("message")
        if isinstance(message, dict) and isinstance(message.get("content"), str):
            message["content"] = message["content"].replace("think>", _MASKED)
        return parse(chunk)

    chunks.chunk_parser = see_to
    return reasons, errors


def _whole_blocks(pieces: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join the pieces of the thinking blocks of a stream. A piece with a signature ends a block. Its text is
    used only if no earlier piece has any, since litellm repeats the text of the whole block in it.
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


def _usage_of(responses: Sequence[Any]) -> Any:
    """Return the last usage that counts tokens, or `None`. litellm reports zeros if a provider sends no
    usage.
    """
    reported = [getattr(response, "usage", None) for response in responses]
    counted = [usage for usage in reported if usage and (usage.prompt_tokens or usage.completion_tokens)]
    return counted[-1] if counted else None


def _processing_of(usage: Any) -> Processing:
    """Return the number of cached tokens that the provider reports. litellm calls it `cached_tokens` for
    all providers, including Anthropic, which calls it `cache_read_input_tokens`.
    """
    cached = getattr(getattr(usage, "prompt_tokens_details", None), "cached_tokens", None)
    return Processing(cached_in(cached, getattr(usage, "prompt_tokens", None)))


def _logprobs(reported: Any) -> tuple[TokenLogprob, ...]:
    tokens = []
    for token in getattr(reported, "content", None) or ():
        top: dict[str, float] = {}
        for other in token.top_logprobs or ():
            top.setdefault(clean(other.token), finite(other.logprob))
        tokens.append(TokenLogprob(clean(token.token), finite(token.logprob), top))
    return tuple(tokens)
