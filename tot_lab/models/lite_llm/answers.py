"""What comes back, whole or in a stream: the same reply either way.

Rule: what litellm makes up is not believed. It gives a stream that broke off a finish reason, and an
answer without usage noughts; and it takes the tags of thinking apart in its own way. A reply holds
what the provider said, and nothing that a file cannot hold.
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

_MASKED = "think\u2060>"  # hides a tag from litellm


class Choice(NamedTuple):
    """One reply as the provider gave it. text: None when it has none at all. state: what it may want back
    with the turn, by litellm's names (`wanted_back`)."""

    text: str | None
    thinking: str | None
    finish: str | None
    tool_calls: tuple[ToolCall, ...]
    logprobs: tuple[TokenLogprob, ...] = ()
    refusal: str | None = None
    state: dict[str, Any] = {}

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


async def streamed(stream: Any, wire: CallObserver, keys: Sequence[str]) -> Answers:
    """What a stream brings; its text so far is told on the wire, without `keys`. Raises `Failure` when it
    ends before it is complete, which litellm takes for an ordinary end."""
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
                wire.partial(_so_far(clean(text), keys))
    if not ended():
        raise Failure("the provider's answer broke off half way", retry=True)
    if tools:
        text = text or None
    finish = "tool_calls" if tools and finish == "stop" else finish  # as litellm has it of a whole answer
    called = _tool_calls((tool.id, tool.name, tool.arguments) for tool in tools)
    choice = Choice(*_split(text, thinking), finish, called, state=_state(_whole_blocks(blocks), thinking))
    model = stream._provider_response_model or stream.model
    told = _told(stream.chunks)
    # litellm counts anew what it does not believe; then the report itself goes on, to be found out.
    return Answers([choice], model, told if getattr(told, "reported", "") else usage if told else None)


def _so_far(text: str, keys: Sequence[str]) -> str:
    """The text of a stream without `keys`; the last may have come in part."""
    text = without_keys(text, keys)
    for key in keys:
        text = without_beginning(text, key)
    return text


class _Parts:
    """A tool call of a stream, as far as it has come."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.id = self.name = self.arguments = ""


def _add(tools: list[_Parts], delta: Any) -> None:
    """Take a piece of a tool call into `tools`. Ollama's and Gemini's OpenAI-like servers give all calls
    of a reply the number 0, and some give no id: a call is another one if it has another id, or a name
    after the arguments were complete."""
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


# What the provider wants back.


def wanted_back(choice: Choice, provider: str, model: str) -> str:
    """What goes back with the turn in which `choice` asks for tools, as JSON of litellm's fields of a
    message: the signed thinking, which Anthropic checks; else the reasoning, for those that go on from it.
    Gemini's signatures are in the ids of its calls."""
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
"""DeepSeek and Moonshot refuse a turn without; for `openai` it is a server of one's own, such as llama.cpp,
since OpenAI reports none. Groq and Cerebras refuse a turn with it."""


def _state(blocks: Iterable[Any], reasoning: str | None) -> dict[str, Any]:
    signed = [_cleaned(dict(block)) for block in blocks if block.get("signature") or block.get("data")]
    state = {"thinking_blocks": signed, "reasoning_content": clean(reasoning or "")}
    return {name: value for name, value in state.items() if value}


def _whole_blocks(pieces: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The blocks of thinking that a stream's pieces make up. A signature ends a block; litellm gives the
    text once more with it."""
    blocks: list[dict[str, Any]] = []
    text = ""
    for piece in pieces:
        said = piece.get("thinking") or ""
        if piece.get("signature"):
            blocks.append({**piece, "thinking": text or said})
            text = ""
        elif piece.get("type") == "redacted_thinking":
            blocks.append(dict(piece))
        else:
            text += said
    return blocks


def _cleaned(block: dict[str, Any]) -> dict[str, Any]:
    return {name: clean(value) if isinstance(value, str) else value for name, value in block.items()}


# Text, calls and numbers.


def _split(content: str | None, reasoning: str | None) -> tuple[str | None, str | None]:
    """The text, and the thinking that came apart from it. White space between the two is of neither."""
    thinking = clean(reasoning or "").strip() or None
    if content is None:
        return None, thinking
    return clean(content).lstrip("\n") if thinking else clean(content), thinking


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


# Keys.


def scrubbed_reply(reply: Reply, keys: Sequence[str]) -> Reply:
    """`reply` without `keys`, which a proxy may repeat: in no text of it, nor spelled out in its tokens."""
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
    """`tokens`, those that make up a key without their text and their alternatives."""
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
    """A log-probability; for the impossible OpenAI's own stand-in."""
    return max(float(logprob), -9999.0) if logprob is not None else -9999.0
