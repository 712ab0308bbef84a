"""Requests in OpenAI's chat format, which litellm and compatible servers share."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from tot_lab.core.calls import Call, Message
from tot_lab.models.stack import provider_seed

SettingArguments = dict[str, dict[str, Any]]
"""By setting of the call: the fields of the request that represent it."""

# Keywords of OpenAI's strict mode. A schema with any other keyword is sent as not strict.
_STRICT = {"type", "title", "description", "properties", "required", "additionalProperties", "items"}
_STRICT |= {"anyOf", "enum", "const", "$defs", "$ref", "pattern", "minItems", "maxItems", "minimum"}
_STRICT |= {"maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
_LONGEST_DESCRIPTION = 1024  # characters of a tool description for OpenAI and Azure


def messages_of(call: Call) -> list[dict[str, Any]]:
    """Return the messages of the call as dicts. A tool call that repeats an earlier id gets a new id, since
    otherwise litellm drops it in requests to Anthropic.
    """
    turns, seen, now = [], set[str](), dict[str, str]()
    for place, message in enumerate(call.messages):
        if message.tool_calls:
            now = {
                tool.id: f"call_{place}_{k}" if tool.id in seen else tool.id
                for k, tool in enumerate(message.tool_calls)
            }
            seen.update(now.values())
        turns.append(_turn(message, now))
    return turns


def _turn(message: Message, ids: Mapping[str, str]) -> dict[str, Any]:
    turn: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        turn["content"] = message.content or None
        turn["tool_calls"] = [
            {
                "id": ids[tool.id],
                "type": "function",
                "function": {"name": tool.name, "arguments": tool.arguments},
            }
            for tool in message.tool_calls
        ]
    if message.provider_state:
        turn |= json.loads(message.provider_state)
    if message.tool_call_id is not None:
        turn["tool_call_id"] = ids.get(message.tool_call_id, message.tool_call_id)
    return turn


def last_paragraph_of(call: Call) -> int | None:
    """Return the index in the last message at which its last paragraph begins. `None` if the message has only
    one paragraph, or is not the user's.

    The prompts of a search begin with text that its calls share. The last paragraph distinguishes them.
    """
    last = call.messages[-1]
    blanks = blank_lines_in(last.content) if last.role == "user" else []
    return blanks[-1][1] if blanks else None


def blank_lines_in(text: str) -> list[tuple[int, int]]:
    """Return the start and end index of each run of line breaks between two paragraphs."""
    first = len(text) - len(text.lstrip())
    return [gap.span() for gap in re.finditer(r"\n\n+(?=\S)", text) if gap.start() > first]


def tools_of(call: Call, provider: str = "") -> list[dict[str, Any]]:
    """Return the tools of the call in OpenAI's format, as far as `provider` accepts it."""
    return [{"type": "function", "function": _function(tool, provider)} for tool in call.tools]


def _function(tool: dict[str, Any], provider: str) -> dict[str, Any]:
    if not tool["parameters"].get("properties") and provider.startswith(("gemini", "vertex_ai")):
        # Gemini does not accept parameters without properties.
        return {name: part for name, part in tool.items() if name != "parameters"}
    if is_too_long(tool, provider):
        return {**tool, "description": tool["description"][:_LONGEST_DESCRIPTION]}
    return tool


def is_too_long(tool: dict[str, Any], provider: str) -> bool:
    """Whether the description of the tool is longer than `provider` accepts."""
    return provider in ("openai", "azure") and len(tool["description"]) > _LONGEST_DESCRIPTION


def setting_arguments(call: Call, provider: str = "") -> SettingArguments:
    """Return the fields of the request for each setting that the call has."""
    settings: SettingArguments = {}
    for field in ("temperature", "max_tokens"):
        value = getattr(call, field)
        if value is not None:
            settings[field] = {field: value}
    if call.stop:
        settings["stop"] = {"stop": list(call.stop)}
    if call.seed is not None:
        settings["seed"] = {"seed": provider_seed(call)}
    if call.response_format is not None:
        schema = call.response_format
        name = re.sub(r"[^\w-]", "_", str(schema.get("title") or "reply"))[:64]
        form = {"name": name, "schema": schema, "strict": _is_strict(schema)}
        settings["response_format"] = {"response_format": {"type": "json_schema", "json_schema": form}}
    if call.logprobs:
        settings["logprobs"] = {"logprobs": True, "top_logprobs": call.logprobs}
    if call.tools:
        settings["tools"] = {"tools": tools_of(call, provider)}
    if call.tool_choice is not None:
        choice: Any = call.tool_choice
        if choice not in ("auto", "none", "required"):
            choice = {"type": "function", "function": {"name": choice}}
        settings["tool_choice"] = {"tool_choice": choice}
    if call.effort is not None:
        settings["effort"] = {"reasoning_effort": call.effort}
    return settings | {name: {name: value} for name, value in call.options.items()}


def _is_strict(schema: Any) -> bool:
    """Whether OpenAI's strict mode accepts the schema: objects list all properties, require them and allow no
    others, and every part has a type.
    """
    if not isinstance(schema, dict) or not schema.keys() <= _STRICT:
        return False
    if "$ref" in schema:
        return len(schema) == 1
    properties, kind = schema.get("properties", {}), schema.get("type")
    if "object" in (kind if isinstance(kind, list) else [kind]) and not (
        schema.get("additionalProperties") is False and set(schema.get("required", ())) == set(properties)
    ):
        return False
    parts = [*properties.values(), *schema.get("$defs", {}).values(), *schema.get("anyOf", ())]
    parts += [schema["items"]] if "items" in schema else []
    says = schema.keys() & {"type", "anyOf", "enum", "const"}
    return bool(says) and all(map(_is_strict, parts))
