"""Calls, replies and questions of this project in the types of Inspect, and the other way round."""

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
    """Return the package `inspect_ai`, imported at first use.

    Raises:
        ImportError: If it is not installed. The message says that `what` requires it.
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
    """Return the messages of a call as chat messages of Inspect.

    Args:
        ai: The package.
        messages: The messages of the call.
        written: Replies as Inspect returned them, by id, for messages whose `provider_state` is that id.
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
    """Return a reply as a message of Inspect. Arguments that are not a JSON object become a parse error."""
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
    """Return the arguments of a tool call, and `text` if it is not a JSON object or else `None`."""
    try:
        arguments = json.loads(text or "{}")
    except ValueError:
        return {}, text
    return (arguments, None) if isinstance(arguments, dict) else ({}, text)


def tools_offered(ai: Any, call: Call) -> list[Any]:
    """Return the tools that a call offers."""
    return [
        ai.tool.ToolInfo(
            name=tool["name"],
            description=tool["description"],
            parameters=ai.tool.ToolParams.model_validate(without_references(tool["parameters"])),
        )
        for tool in call.tools
    ]


def settings_of(ai: Any, call: Call) -> Any:
    """Return the settings of a call. Those that Inspect does not know go into the body of the request."""
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
    """Return a JSON schema with its definitions in place of references to them, which Inspect lacks.

    Raises:
        ValueError: If it refers to itself.
    """
    if depth > 50:
        raise ValueError("Inspect takes no JSON schema that refers to itself.")
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
    """Return the tool choice of a call in Inspect's form."""
    if call.tool_choice in (None, "auto", "none"):
        return call.tool_choice
    return "any" if call.tool_choice == "required" else ai.tool.ToolFunction(name=call.tool_choice)


def reply_of(output: Any) -> Reply:
    """Return the reply that a `ModelOutput` of Inspect holds."""
    if not output.choices:
        return Reply(error=output.error or "no output", model=output.model or None)
    choice, usage = output.choices[0], output.usage
    message = choice.message
    thoughts = () if isinstance(message.content, str) else message.content
    # Encrypted reasoning has a summary that can be read.
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
    """Return the task that the messages of a sample state: the last message is the question, the system
    messages are the system prompt, and the other messages are the context.

    Args:
        messages: Chat messages of Inspect.
        choices: The choices of a multiple-choice question, which are labelled A, B, …
        domain: The domain. `None` means `General`, which grades the choice if there are choices.

    Raises:
        ValueError: If the last message is not one of the user, a message holds more than text, or there are
            more choices than labels.
    """
    for message in messages:
        if not isinstance(message.content, str):
            for part in message.content:
                if part.type not in ("text", "reasoning"):
                    raise ValueError(f"a question must be text: got a message with {part.type}.")
    system = [message.text for message in messages if message.role == "system"]
    turns = [message for message in messages if message.role != "system"]
    if not turns or turns[-1].role != "user":
        got = turns[-1].role if turns else "none"
        raise ValueError(f"the last message must be the question of the user: got {got!r}.")
    if len(choices) > len(ascii_uppercase):
        raise ValueError(f"a question has at most {len(ascii_uppercase)} choices: got {len(choices)}.")
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
