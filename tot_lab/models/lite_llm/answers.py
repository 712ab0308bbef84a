"""What comes back, whole or in a stream: the same reply either way.

Rule: what litellm makes up is not believed. It gives a stream that broke off a finish reason, and an
answer without usage noughts; and it takes the tags of thinking apart in its own way. A reply holds
what the provider said, with the thinking split off, and nothing that a file cannot hold.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from tot_lab.core.calls import TokenLogprob, ToolCall, Wire
from tot_lab.core.reading import split_thinking
from tot_lab.models.stack import Failure
from tot_lab.scrubbing import clean

_MASKED = "think\u2060>"  # hides a tag from litellm


class Choice(NamedTuple):
    """One reply as the provider gave it. text: None when it has none at all."""

    text: str | None
    thinking: str | None
    finish: str | None
    tool_calls: tuple[ToolCall, ...]
    logprobs: tuple[TokenLogprob, ...] = ()
    refusal: str | None = None

    @property
    def problem(self) -> str | None:
        """Why it is no reply."""
        if self.refusal:
            return f"the model refused: {self.refusal}"
        if self.text is None and not self.tool_calls and not self.thinking and self.finish != "length":
            return f"the provider's answer has no content (finish: {self.finish})"
        return None

    @property
    def size(self) -> int:
        """Bytes, a stand-in for its share of the tokens."""
        parts = (self.text, self.thinking, *(tool.arguments for tool in self.tool_calls))
        return sum(len(part.encode()) for part in parts if part)


class Answers(NamedTuple):
    """All that a request brought. usage: litellm's, None when the provider did not say."""

    choices: list[Choice]
    model: str | None
    usage: Any


def whole(response: Any) -> Answers:
    """What a plain response holds."""
    return Answers(list(map(_choice, response.choices or ())), response.model, _told([response]))


def _choice(choice: Any) -> Choice:
    message = choice.message
    text, thinking = _split(message.content, getattr(message, "reasoning_content", None))
    tools = [(tool.id, tool.function.name, tool.function.arguments) for tool in message.tool_calls or ()]
    extra = getattr(message, "provider_specific_fields", None) or {}
    logprobs = _logprobs(getattr(choice, "logprobs", None))
    return Choice(text, thinking, choice.finish_reason, _tool_calls(tools), logprobs, extra.get("refusal"))


async def streamed(stream: Any, wire: Wire) -> Answers:
    """What a stream brings; its text so far is told on the wire. Raises `Failure` when it ends before
    it is complete, which litellm takes for an ordinary end."""
    # litellm reads what pydantic calls deprecated. It ignores that warning itself, once, when it is
    # imported, which those who set the filters anew take back.
    warnings.filterwarnings("ignore", "Accessing the 'model_", DeprecationWarning, r"litellm\.")
    text: str | None = None
    thinking, finish, usage = "", None, None
    tools: dict[int, list[str]] = {}
    ended = await _end_of(stream)
    async for chunk in stream:
        usage = getattr(chunk, "usage", None) or usage
        if not chunk.choices:
            continue
        delta = chunk.choices[0].delta
        finish = chunk.choices[0].finish_reason or finish
        thinking += getattr(delta, "reasoning_content", None) or ""
        for tool in delta.tool_calls or ():
            parts = tools.setdefault(tool.index, ["", "", ""])
            parts[0] = parts[0] or tool.id or ""
            parts[1] = parts[1] or tool.function.name or ""
            parts[2] += tool.function.arguments or ""
        if delta.content is not None:
            text = (text or "") + delta.content.replace(_MASKED, "think>")
            if delta.content:
                wire.partial(clean(text))
    if not ended():
        raise Failure("the provider's answer broke off half way", retry=True)
    if tools:
        text = text or None
    choice = Choice(*_split(text, thinking), finish, _tool_calls(tools.values()))
    model = stream._provider_response_model or stream.model
    return Answers([choice], model, usage if _told(stream.chunks) else None)


async def _end_of(stream: Any) -> Callable[[], bool]:
    """Whether the provider has said that it is done. Gemini's and Ollama's chunks are seen to before
    litellm reads them: of the one it takes every chunk for the last, and of the other it takes the
    tags of thinking away and leaves the thinking in the text."""
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


def _split(content: str | None, reasoning: str | None) -> tuple[str | None, str | None]:
    """Text and thinking, however the thinking came. White space between the two is of neither."""
    thinking = clean(reasoning or "").strip() or None
    if content is None:
        return None, thinking
    inside, text = split_thinking(clean(content))
    thinking = "\n\n".join(part for part in (thinking, inside) if part) or None
    return text.lstrip("\n") if thinking else text, thinking


def _tool_calls(tools: Iterable[Sequence[str | None]]) -> tuple[ToolCall, ...]:
    """Out of their (id, name, arguments)."""
    return tuple(
        ToolCall(clean(id or f"call_{k}"), clean(name or ""), clean(arguments or ""))
        for k, (id, name, arguments) in enumerate(tools)
    )


def _told(responses: Sequence[Any]) -> Any:
    """The last usage that holds any token: litellm fills in noughts where a provider says nothing."""
    reported = [getattr(response, "usage", None) for response in responses]
    told = [usage for usage in reported if usage and (usage.prompt_tokens or usage.completion_tokens)]
    return told[-1] if told else None


def _logprobs(reported: Any) -> tuple[TokenLogprob, ...]:
    tokens = []
    for token in getattr(reported, "content", None) or ():
        top: dict[str, float] = {}
        for other in token.top_logprobs or ():
            top.setdefault(clean(other.token), _finite(other.logprob))
        tokens.append(TokenLogprob(clean(token.token), _finite(token.logprob), top))
    return tuple(tokens)


def _finite(logprob: float | None) -> float:
    """A log-probability; for the impossible OpenAI's own stand-in."""
    return max(float(logprob), -9999.0) if logprob is not None else -9999.0
