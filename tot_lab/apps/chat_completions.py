"""The format of OpenAI's chat completions: parses requests, and builds replies from runs.

A request field that a search cannot honour raises an `ApiError` that names the field. A run without an answer
also raises an `ApiError`, so no reply is empty.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec

from tot_lab.apps.served_searches import Search
from tot_lab.core.calls import REFUSED, format_error
from tot_lab.core.records import Record, Scored, Thought, describe_stop
from tot_lab.core.scrubbing import scrubbed
from tot_lab.core.task import Task
from tot_lab.record.run import Run


class ApiError(Exception):
    """An error that the client receives in OpenAI's JSON format.

    Args:
        status: The HTTP status, by which OpenAI's SDK chooses the exception class.
        message: What is wrong.
        param: The field of the request that is wrong.
        code: Machine-readable code of the error, such as `model_not_found`.
        headers: Headers of the response. `_` in a name stands for `-`.
    """

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None, **headers: str
    ) -> None:
        super().__init__(message)
        self.status = status
        kind = _KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")
        self.body = {"error": {"message": scrubbed(message), "type": kind, "param": param, "code": code}}
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


_KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}

IGNORED = {
    *("max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "min_p", "verbosity"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty", "reasoning_effort"),
    *("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"),
}
"""Request fields that have no effect on a search. The run records them, and the reply lists their names."""

_EMPTY: dict[str, Any] = {
    "n": 1,
    "response_format": {"type": "text"},
    "tools": [],
    "functions": [],
    "logprobs": False,
    "logit_bias": {},
    "modalities": ["text"],
}
"""Request fields that are accepted only with the value given here, which is the same as leaving them out."""


class _TextPart(msgspec.Struct, tag_field="type", tag="text"):
    text: str


class _Message(msgspec.Struct):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[_TextPart] | None = None
    tool_calls: list[Any] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content or ())


class _StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class _Own(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    budget: Any = None
    settings: Any = None


_Stop = Annotated[str, msgspec.Meta(min_length=1)]


class Request(msgspec.Struct):
    """A request for a chat completion."""

    messages: list[_Message]
    model: str | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    stop: _Stop | list[_Stop] | None = None
    seed: Annotated[int, msgspec.Meta(ge=0)] | None = None
    tot_lab: _Own = _Own()
    ignored: dict[str, Any] = {}
    """The fields in `IGNORED` that the request contains, with their values."""

    @classmethod
    def read(cls, body: bytes) -> Request:
        """Parse the body of a request.

        Raises:
            ApiError: If the body is invalid, or has a field that a search cannot honour.
        """
        try:
            given = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ApiError(400, f"The body must be JSON: {error}.") from None
        if not isinstance(given, dict):
            raise ApiError(400, f"The body must be a JSON object: got {given!r:.60}.")
        given = {name: value for name, value in given.items() if value is not None}
        ignored = {name: given.pop(name) for name in sorted(IGNORED.intersection(given))}
        for name, value in given.items():
            if name not in _FIELDS and _EMPTY.get(name, _EMPTY) != value:
                message = f"{name} is not supported. Leave it out."
                raise ApiError(400, message, param=name, code="unsupported_parameter")
        try:
            return msgspec.convert({**given, "ignored": ignored}, cls)
        except msgspec.ValidationError as error:
            found = re.search(r"`\$\.([^`]+)`|required field `([^`]+)`", str(error))
            raise ApiError(400, f"{error}.", param=found and (found[1] or found[2])) from None

    @property
    def record(self) -> dict[str, Any]:
        """The ignored fields of the request, and `seed` and `stop` if given. The run records them."""
        own = {"seed": self.seed, "stop": self.stop}
        return {**self.ignored, **{name: value for name, value in own.items() if value is not None}}

    @property
    def counts(self) -> bool:
        """Whether a streamed reply must end with the token usage."""
        return bool(self.stream_options and self.stream_options.include_usage)

    def task(self, make_task: Callable[[str], Task], name: str) -> Task:
        """Return the messages as a task. `name`, the requested strategy, is recorded in the task's data.

        The last user message is the question, the earlier turns are the context, and the system messages
        are the system prompt.

        Raises:
            ValueError: If a message has tool calls, or the last turn is not a user message with text.
        """
        if any(message.tool_calls for message in self.messages):
            raise ValueError("tool_calls are not supported. Send only texts.")
        system = [message.text for message in self.messages if message.role in ("system", "developer")]
        turns = [message for message in self.messages if message.role in ("user", "assistant")]
        if not turns or turns[-1].role != "user" or not turns[-1].text.strip():
            raise ValueError("the last message must have the role 'user' and a text.")
        task = make_task(turns[-1].text)
        earlier = [f"{turn.role.capitalize()}: {turn.text}" for turn in turns[:-1]]
        if earlier:
            task = task.with_context("The conversation so far:", *earlier)
        data = {**task.data, "request": {"model": name, **self.record}}
        prompt = "\n\n".join(filter(None, system))
        return task.model_copy(update={"system_prompt": prompt, "data": data})

    def shortened(self, answer: str) -> str:
        """Return `answer` up to the first occurrence of a string in the request's `stop`."""
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return answer[: min((place for text in stops if (place := answer.find(text)) >= 0), default=None)]


_FIELDS = {*Request.__struct_fields__} - {"ignored"}


def outcome(search: Search) -> Run:
    """Return the run of `search`, which has ended.

    Raises:
        ApiError: If the search was cancelled, failed, found no answer, or was stopped by the spending limit.
    """
    if search.task.cancelled():
        raise stopping()
    error = search.task.exception()
    if error is not None:
        raise ApiError(500, format_error(error), code="error", x_should_retry="false")
    run = search.task.result()
    link = {"x_tot_lab_run": run.id}
    if run.stop_reason == "error" or (run.failure is not None and run.stop_reason != REFUSED):
        raise ApiError(502, f"The search failed: {run.failure}", code="error", **link)
    if run.answer and run.stop_reason != REFUSED:
        return run
    search.is_answered = True  # a retry would end in the same way
    if run.stop_reason == REFUSED:
        message = "The spending limit of the server is reached."
        raise ApiError(429, message, code="insufficient_quota", x_should_retry="false", **link)
    message = f"The search {describe_stop(str(run.stop_reason))} and found no answer."
    status = 400 if run.interrupted else 502
    raise ApiError(status, message, code=run.stop_reason, x_should_retry="false", **link)


def stopping() -> ApiError:
    """Return the error for a request that a server does not answer because it is shutting down."""
    return ApiError(503, "The server is shutting down. Try again later.", retry_after="2")


def head(run_id: str, name: str, kind: str) -> dict[str, Any]:
    """Return the first fields of every reply, and of every chunk of a streamed reply."""
    return {"id": f"chatcmpl-{run_id}", "object": kind, "created": int(time.time()), "model": name}


def reasoning(record: Record) -> str | None:
    """Return a thought or a score as a line of the reply's reasoning.

    Returns `None` for the root thought and its score, an unreadable score, and a record of another type.
    """
    if isinstance(record, Thought) and record.parent is not None:
        return f"[{record.id}] {record.text}\n"
    if isinstance(record, Scored) and record.score is not None and "." in record.id:
        return f"[{record.id}] score {record.score:.2g}\n"
    return None


def finish_reason(run: Run) -> str:
    """Return `length` if a budget or a cancellation ended the run, otherwise `stop`."""
    return "length" if run.interrupted else "stop"


def usage(run: Run) -> dict[str, int] | None:
    """Return the tokens of all calls in OpenAI's format, or `None` if a token count is unknown."""
    read, written = run.usage.input_tokens, run.usage.output_tokens
    if read is None or written is None:
        return None
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
