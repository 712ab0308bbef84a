"""Reads the JSON responses of an OpenAI-compatible server.

Servers differ in which fields they leave out and in which they put reasoning. A response in any other format
is a `Failure`. Impossible usage is kept as text and not counted.

References:
    OpenAI API reference, Chat Completions and Completions; vLLM, OpenAI-Compatible Server; llama.cpp,
    tools/server/README.md; SGLang, OpenAI APIs.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from tot_lab.core.calls import CallObserver, TokenLogprob, is_token_count, usage_text
from tot_lab.core.reading.finish_reasons import read_ended, read_finish_reason
from tot_lab.core.scrubbing import clean
from tot_lab.models.chat.failures import failure_in, shortened, web_page
from tot_lab.models.chat.replies import (
    Answers,
    Choice,
    Processing,
    ToolPieces,
    add_piece,
    cached_in,
    choice_of,
    finite,
    speed_in,
    text_so_far,
    whole_calls,
)
from tot_lab.models.stack import Failure

_decode = msgspec.json.Decoder().decode


class Usage(NamedTuple):
    """The reported token counts. If they are impossible, `reported` is their text, and both counts are 0."""

    prompt: int
    output: int
    reported: str = ""


_WRONG = LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError
"""The exceptions that reading JSON of an unexpected structure can raise."""


def whole(body: bytes, n: int, *, is_list: bool = False) -> Answers:
    """Return the first `n` replies in the body of a complete response. Raises `Failure` if it cannot be read.

    `is_list` says that the request had `n` prompts. The replies must then have the indexes of the prompts.
    """
    page = page_of(body)
    if not isinstance(page, dict) or "choices" not in page:
        shown = body[:200].decode(errors="replace")
        raise _unreadable(f"expected choices: got {shown}", _usage_of(page), retry=False)
    try:
        found = page["choices"]
        if is_list:
            found = sorted(found, key=lambda choice: choice["index"])
            if (indexes := [choice["index"] for choice in found]) != list(range(n)):
                raise ValueError(
                    f"expected a reply for each of {n} prompts: got the indexes {indexes!r:.100}"
                )
        choices = [_choice_of(choice, page) for choice in found[:n]]
        model, usage = _text(page.get("model")), usage_of(page.get("usage"))
        return Answers(choices, model, usage, processing_of(page), page.get("timings"))
    except _WRONG as error:
        raise _unreadable(f"{type(error).__name__}: {error}", _usage_of(page)) from None


async def streamed(
    events: AsyncIterator[str],
    observer: CallObserver,
    keys: Sequence[str],
    read_usage: Callable[[Any], Any] | None = None,
) -> Answers:
    """Return the content of a stream, and report its text so far, without `keys`, to `observer`.

    A stream is complete if it has a finish reason or the event `[DONE]`, since some servers leave out one of
    them. `read_usage` reads the field `usage`; the default is `usage_of`.

    Raises:
        Failure: If the stream ends early, or its events are not parts of a reply.
    """
    text: str | None = None
    thinking, finish, model, usage, failed, ended = "", None, None, None, None, None
    processing, is_done, reported = Processing(), False, None
    tools: list[ToolPieces] = []
    async for event in events:
        if is_done := event.strip() == "[DONE]":
            break
        try:
            page = page_of(event.encode(), reported)
        except Failure as failure:
            failure.begun = bool(text or thinking or tools)
            raise
        reported = _usage_of(page) or reported
        try:
            usage = (read_usage or usage_of)(page.get("usage")) or usage
            model = _text(page.get("model")) or model
            if page.get("usage") or page.get("timings"):
                processing = processing.updated(processing_of(page))
            if not page.get("choices"):
                continue
            choice = page["choices"][0]
            delta = choice.get("delta") or {"content": choice.get("text")}
            if read_finish_reason(finish) != "error":  # some proxies send `stop` after an error
                finish = _text(choice.get("finish_reason")) or finish
            if choice.get("finish_reason") is not None:
                ended = _ended(choice, page)
            failed = choice.get("error") or failed
            thinking += _reasoning_in(delta) or ""
            for tool in delta.get("tool_calls") or ():
                its = tool.get("function") or {}
                add_piece(
                    tools,
                    tool.get("index") or 0,
                    _text(tool.get("id")) or "",
                    _text(its.get("name")) or "",
                    _arguments_in(its),
                )
            if (piece := _text(delta.get("content"))) is not None:
                text = (text or "") + clean(piece)
                if piece:
                    observer.partial(text_so_far(text, keys))
        except _WRONG as error:
            raise _unreadable(f"{type(error).__name__}: {error}", reported) from None
    if finish is None and failed is None and not is_done:
        raise Failure("the stream ended before the reply was complete", retry=True, usage=reported)
    choice = choice_of(text, thinking, finish, whole_calls(tools), error=failed, ended=ended)
    return Answers([choice], model, usage, processing)


def _choice_of(choice: dict[str, Any], page: dict[str, Any]) -> Choice:
    message = choice["message"] if "message" in choice else {"content": choice["text"]}
    tools = [
        (tool.get("id"), tool["function"].get("name"), _arguments_in(tool["function"]))
        for tool in message.get("tool_calls") or ()
    ]
    return choice_of(
        _text(message.get("content")),
        _reasoning_in(message),
        _text(choice.get("finish_reason")),
        tools,
        error=choice.get("error"),
        refusal=_text(message.get("refusal")),
        logprobs=_logprobs_of(choice.get("logprobs")),
        ended=_ended(choice, page),
        token_count=None if choice.get("token_ids") is None else len(choice["token_ids"]),
    )


def _ended(choice: dict[str, Any], page: dict[str, Any]) -> bool | None:
    """Return `Reply.ended` for a choice. llama.cpp reports it in the page and not in the choice."""
    verbose = page.get("__verbose")
    fields = {**page, **verbose} if isinstance(verbose, dict) else page
    return read_ended({"stop_type": fields.get("stop_type"), **choice})


def _text(value: Any) -> str | None:
    """Return a text, a list of text parts joined, or `None`. Raises `TypeError` for anything else."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list):  # parts, as in Mistral's API
        return "".join(part["text"] for part in value if part.get("type") == "text")
    raise TypeError(f"expected a text: got {type(value).__name__}")


def _reasoning_in(message: dict[str, Any]) -> str | None:
    return _text(message.get("reasoning_content") or message.get("reasoning"))


def _arguments_in(function: dict[str, Any]) -> str:
    arguments = function.get("arguments") or ""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _logprobs_of(reported: Any) -> tuple[TokenLogprob, ...]:
    if not reported:
        return ()
    if "tokens" in reported:  # the format of /completions
        tops = reported.get("top_logprobs") or [None] * len(reported["tokens"])
        return tuple(
            TokenLogprob(clean(token), finite(logprob), _cleaned(top or {}))
            for token, logprob, top in zip(reported["tokens"], reported["token_logprobs"], tops, strict=True)
        )
    tokens = []
    for token in reported.get("content") or ():
        top: dict[str, float] = {}
        for other in token.get("top_logprobs") or ():
            top.setdefault(clean(other["token"]), finite(other.get("logprob")))
        tokens.append(TokenLogprob(clean(token["token"]), finite(token.get("logprob")), top))
    return tuple(tokens)


def _cleaned(top: dict[str, float]) -> dict[str, float]:
    return {clean(token): finite(logprob) for token, logprob in top.items()}


def usage_of(usage: Any) -> Usage | None:
    """Return the usage, or `None` if it is missing or only zeros, which means that the server did
    not count.
    """
    if not isinstance(usage, dict):
        return None
    prompt, output = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
    if not (is_token_count(prompt) and is_token_count(output)):
        counts = {"input_tokens": prompt, "output_tokens": output}
        wrong = {name: count for name, count in counts.items() if not is_token_count(count)}
        return Usage(0, 0, usage_text(wrong))
    return Usage(prompt, output) if prompt or output else None


def processing_of(page: dict[str, Any]) -> Processing:
    """Return the cached tokens in OpenAI's usage, and the speeds in llama.cpp's timings, of a response or of
    the end of a stream.
    """
    usage, timings = page.get("usage"), page.get("timings")
    details = usage.get("prompt_tokens_details") if isinstance(usage, dict) else None
    if not (details or timings):
        return Processing()
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    prompt = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    timings = timings if isinstance(timings, dict) else {}
    return Processing(
        cached_in(cached, prompt),
        speed_in(timings.get("prompt_per_second")),
        speed_in(timings.get("predicted_per_second")),
    )


# Responses that are not replies.


def page_of(body: bytes, reported: Any = None) -> Any:
    """Return the JSON of a response. Raises `Failure` if it is not JSON or contains an error.

    `reported` is the usage in an earlier event of a stream. The failure has it if the response has no usage.
    """
    page = _json_of(body, reported)
    if isinstance(page, dict):
        bare = page if "message" in page and "choices" not in page else None
        if (failure := failure_in(page.get("error") or bare)) is not None:
            failure.usage = _usage_of(page) or reported
            raise failure
    return page


def _usage_of(page: Any) -> Any:
    return page.get("usage") if isinstance(page, dict) else None


def _json_of(body: bytes, reported: Any) -> Any:
    try:
        return _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        text = body.decode(errors="replace")
        return json.loads(text)  # accepts NaN, huge numbers and lone surrogates
    except (ValueError, RecursionError) as error:
        page = web_page(text)
        raise _unreadable(page or str(error), reported, retry=not page) from None


def _unreadable(why: str, usage: Any, *, retry: bool = True) -> Failure:
    """Return the failure for an unreadable response. `retry` is false if it is not from a model server."""
    message = f"the provider's answer cannot be read: {shortened(why)}"
    return Failure(message, retry=retry, unreadable=True, usage=usage)
