"""Converts calls to Inspect's types, and Inspect's outputs and samples to replies and tasks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import Any

from tot_lab.core.calls import Call, Message, Reply, TokenLogprob, ToolCall, is_cost
from tot_lab.core.extras import requires
from tot_lab.core.reading.finish_reasons import read_finish_reason
from tot_lab.core.task import Task
from tot_lab.domains.general import General, task_of


def inspect_package(what: str) -> Any:
    """Import and return the package `inspect_ai`.

    Raises:
        ImportError: If it is not installed. The message names `what` as the feature that requires it.
    """
    try:
        import inspect_ai  # noqa: PLC0415
        import inspect_ai.event  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name != "inspect_ai":
            raise
        raise ImportError(requires(what, "inspect_ai", "inspect")) from None
    return inspect_ai


# Calls.


def chat_messages(ai: Any, messages: Sequence[Message], written: Mapping[str, Any] = {}) -> list[Any]:
    """Return the messages of a call as Inspect's chat messages.

    Args:
        ai: The package `inspect_ai`.
        messages: The messages of the call.
        written: Inspect's own messages of earlier replies, by id. A message whose `provider_state` is such an
            id is not converted: Inspect's message is used.
    """
    states = [json.loads(message.provider_state or "null") for message in messages]
    known = [written.get(state) if isinstance(state, str) else None for state in states]
    return [one or _chat_message(ai, message) for one, message in zip(known, messages, strict=True)]


def _chat_message(ai: Any, message: Message) -> Any:
    model = ai.model
    if message.role == "assistant":
        return assistant_message(ai, message.content, message.tool_calls)
    if message.role == "tool":
        return model.ChatMessageTool(content=message.content, tool_call_id=message.tool_call_id)
    kind = model.ChatMessageSystem if message.role == "system" else model.ChatMessageUser
    return kind(content=message.content)


def assistant_message(ai: Any, text: str, calls: Sequence[ToolCall], thinking: str | None = None) -> Any:
    """Return a reply as Inspect's assistant message. Tool arguments that are no JSON object are kept as
    `parse_error`.
    """
    wanted = []
    for call in calls:
        arguments, error = arguments_in(call.arguments)
        wanted.append(
            ai.tool.ToolCall(id=call.id, function=call.name, arguments=arguments, parse_error=error)
        )
    content: Any = text
    if thinking:
        content = [ai.model.ContentReasoning(reasoning=thinking), ai.model.ContentText(text=text)]
    return ai.model.ChatMessageAssistant(content=content, tool_calls=wanted or None)


def arguments_in(text: str) -> tuple[dict[str, Any], str | None]:
    """Parse the arguments of a tool call. Returns `(arguments, None)`, or `({}, text)` if `text` is no JSON
    object.
    """
    try:
        arguments = json.loads(text or "{}")
    except ValueError:
        return {}, text
    return (arguments, None) if isinstance(arguments, dict) else ({}, text)


def tools_offered(ai: Any, call: Call) -> list[Any]:
    """Return the tools that a call offers to the model, in Inspect's type."""
    return [
        ai.tool.ToolInfo(
            name=tool["name"],
            description=tool["description"],
            parameters=ai.tool.ToolParams.model_validate(without_references(tool["parameters"])),
        )
        for tool in call.tools
    ]


def settings_of(ai: Any, call: Call) -> Any:
    """Return the sampling settings of a call as Inspect's `GenerateConfig`. Options without a field in it
    become `extra_body`.
    """
    known = {name: value for name, value in call.options.items() if name in _config_fields(ai)}
    other = {name: value for name, value in call.options.items() if name not in known}
    schema = None
    if call.response_format is not None:
        form = ai.util.JSONSchema.model_validate(without_references(call.response_format))
        schema = ai.model.ResponseSchema(name="reply", json_schema=form)
    return ai.model.GenerateConfig(
        temperature=call.temperature,
        max_tokens=call.max_tokens,
        stop_seqs=list(call.stop) or None,
        seed=None if call.seed is None else call.seed + call.sample_index,
        response_schema=schema,
        logprobs=True if call.logprobs else None,
        top_logprobs=call.logprobs or None,
        reasoning_effort=call.effort,
        extra_body=other or None,
        **known,
    )


def _config_fields(ai: Any) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = ai.model.GenerateConfig.model_fields
    return fields


def without_references(schema: Any, known: Mapping[str, Any] | None = None, depth: int = 0) -> Any:
    """Return a JSON schema with each `$ref`, which Inspect does not support, replaced by its definition.

    Raises:
        ValueError: If a definition refers to itself.
    """
    if depth > 50:
        raise ValueError("A JSON schema for Inspect must not refer to itself: got a recursive `$ref`.")
    if isinstance(schema, list):
        return [without_references(part, known, depth + 1) for part in schema]
    if not isinstance(schema, dict):
        return schema
    known = schema.get("$defs", {}) if known is None else known
    if isinstance(reference := schema.get("$ref"), str):
        return without_references(known.get(reference.rpartition("/")[2], {}), known, depth + 1)
    return {
        name: without_references(part, known, depth + 1) for name, part in schema.items() if name != "$defs"
    }


def choice_of(call: Call, ai: Any) -> Any:
    """Return the tool choice of a call in Inspect's type."""
    if call.tool_choice in (None, "auto", "none"):
        return call.tool_choice
    return "any" if call.tool_choice == "required" else ai.tool.ToolFunction(name=call.tool_choice)


def reply_of(output: Any) -> Reply:
    """Convert Inspect's `ModelOutput` to a reply. Only its first choice is read; without one, the reply is an
    error.
    """
    if not output.choices:
        return Reply(error=output.error or "no output", model=output.model or None)
    choice, usage = output.choices[0], output.usage
    message = choice.message
    thoughts = () if isinstance(message.content, str) else message.content
    # Redacted reasoning is encrypted, but its summary is readable.
    thinking = [p.summary if p.redacted else p.reasoning for p in thoughts if p.type == "reasoning"]
    prompt = cost = None
    if usage is not None:
        cached = (usage.input_tokens_cache_read or 0) + (usage.input_tokens_cache_write or 0)
        prompt, cost = usage.input_tokens + cached, usage.total_cost
    tokens = choice.logprobs.content if choice.logprobs else ()
    return Reply(
        message.text,
        output.error,
        "\n\n".join(filter(None, thinking)) or None,
        output.model or None,
        prompt,
        None if usage is None else usage.output_tokens,
        cost if is_cost(cost) else None,
        None if choice.stop_reason == "unknown" else read_finish_reason(choice.stop_reason),
        tuple(
            TokenLogprob(one.token, one.logprob, {top.token: top.logprob for top in one.top_logprobs or ()})
            for one in tokens
        ),
        tuple(
            ToolCall(call.id, call.function, call.parse_error or json.dumps(call.arguments))
            for call in message.tool_calls or ()
        ),
    )


# Questions.


def question_of(messages: Sequence[Any], choices: Sequence[str], domain: General | None = None) -> Task:
    """Convert the messages of an Inspect sample to a task: the last message is the question, the system
    messages are the system prompt, and the other messages are the context.

    Args:
        messages: The chat messages of the sample.
        choices: The choices of a multiple-choice question. The question lists them with the labels A, B, …
        domain: Domain of the task. `None` means `General`, with the grading `choice` if there are choices.

    Raises:
        ValueError: If the last message does not have the role `user`, a message contains anything but text
            and reasoning, or there are more than 26 choices.
    """
    for message in messages:
        if not isinstance(message.content, str):
            for part in message.content:
                if part.type not in ("text", "reasoning"):
                    raise ValueError(f"a sample must contain only text: got a message with {part.type}.")
    system = [message.text for message in messages if message.role == "system"]
    turns = [message for message in messages if message.role != "system"]
    if not turns or turns[-1].role != "user":
        got = turns[-1].role if turns else "none"
        raise ValueError(f"the last message of a sample must have the role 'user': got {got!r}.")
    if len(choices) > len(ascii_uppercase):
        raise ValueError(f"a sample may have at most {len(ascii_uppercase)} choices: got {len(choices)}.")
    labels = dict(zip(ascii_uppercase, choices, strict=False))
    question = turns[-1].text
    if labels:
        listed = "\n".join(f"({label}) {text}" for label, text in labels.items())
        question = f"{question}\n\n{listed}\n\nAnswer with the label of the right choice."
    return task_of(
        domain or General(grading="choice" if labels else None),
        question,
        None,
        context="\n\n".join(f"{turn.role}: {turn.text}" for turn in turns[:-1]),
        system_prompt="\n\n".join(system),
        data={"choices": labels} if labels else {},
    )
