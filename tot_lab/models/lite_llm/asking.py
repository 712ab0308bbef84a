"""From a call to litellm's arguments, and what would be dropped on the way.

Nothing is dropped silently. litellm omits settings that it believes a provider does not support, without
notice. It therefore translates the settings beforehand, with and without each of them, and a setting that
makes no difference is reported as dropped. Sending a call does not change it.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

from tot_lab.core.calls import Call, CallObserver, Message
from tot_lab.models.stack import Failure, provider_seed

SettingArguments = dict[str, dict[str, Any]]
"""litellm's arguments by the setting of the call that they represent."""

_UNLISTED = {"gemini": ["seed", "top_logprobs"]}  # supported by the provider, but missing from litellm's list
_OURS = ("model", "messages", "n", "stream", "timeout")
_CALL_FIELDS = {"temperature", "max_tokens", "stop", "seed", "response_format", "logprobs", "tools"}
_CALL_FIELDS |= {"tool_choice", "effort", "n"}
_CONSTRAINTS = {"minLength", "maxLength", "pattern", "format", "enum", "const", "minimum", "maximum"}
_CONSTRAINTS |= {"exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems", "uniqueItems"}
_CONSTRAINTS |= {"contains", "prefixItems", "minProperties", "maxProperties", "patternProperties", "not"}
_CONSTRAINTS |= {"anyOf", "allOf", "if", "then", "else", "additionalProperties", "required"}


# Keywords of OpenAI's strict mode. A schema with any other keyword is sent as not strict.
_STRICT = {"type", "title", "description", "properties", "required", "additionalProperties", "items"}
_STRICT |= {"anyOf", "enum", "const", "$defs", "$ref", "pattern", "minItems", "maxItems", "minimum"}
_STRICT |= {"maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
_LONGEST_DESCRIPTION = 1024  # characters of a tool description for OpenAI and Azure


def messages_of(call: Call) -> list[dict[str, Any]]:
    """Return the messages of the call. Repeated ids of tool calls are replaced, since litellm drops a call
    whose id Anthropic has seen.
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


def tools_of(call: Call, provider: str = "") -> list[dict[str, Any]]:
    """Return the tools of the call as `provider` accepts them."""
    return [{"type": "function", "function": _function(tool, provider)} for tool in call.tools]


def _function(tool: dict[str, Any], provider: str) -> dict[str, Any]:
    if not tool["parameters"].get("properties") and provider.startswith(("gemini", "vertex_ai")):
        # An empty object is not accepted.
        return {name: part for name, part in tool.items() if name != "parameters"}
    if _is_too_long(tool, provider):
        return {**tool, "description": tool["description"][:_LONGEST_DESCRIPTION]}
    return tool


def _is_too_long(tool: dict[str, Any], provider: str) -> bool:
    return provider in ("openai", "azure") and len(tool["description"]) > _LONGEST_DESCRIPTION


def settings_of(
    litellm: ModuleType, model: str, provider: str, calls: Sequence[Call], observer: CallObserver
) -> dict[str, Any]:
    """Return all arguments except the messages, and note what would not reach the model. Raises `Failure`."""
    call = calls[0]
    settings = _setting_arguments(litellm, call, provider)
    if len(calls) > 1:
        settings["n"] = {"n": len(calls)}
    dropped = list(_dropped(litellm, model, provider, settings))
    if call.tool_choice == "none" and "tool_choice" in dropped:
        dropped.remove("tool_choice")
        del settings["tool_choice"], settings["tools"]  # without tools the model cannot call any
    if any(_is_too_long(tool, provider) for tool in call.tools):
        dropped.append("tools.description")
    if dropped:
        observer.note("call.dropped", settings=list(dropped))
    return _arguments(provider, {name: values for name, values in settings.items() if name not in dropped})


def _setting_arguments(litellm: ModuleType, call: Call, provider: str) -> SettingArguments:
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
    for name, value in call.options.items():
        if name in _OURS or name in litellm.types.utils.all_litellm_params:
            raise Failure(f"options must hold sampling settings: got {name!r}")
        settings[name] = {name: value}
    return settings


def _is_strict(schema: Any) -> bool:
    """Whether OpenAI's strict mode accepts the schema: objects list and require all properties, and every
    part has a type.
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


def _open_objects(value: Any) -> int:
    """Return the number of objects in a schema that accept properties that it does not list."""
    if isinstance(value, list):
        return sum(map(_open_objects, value))
    if not isinstance(value, dict):
        return 0
    more = value.get("additionalProperties", "properties" not in value)
    is_open = value.get("type") == "object" and more is not False
    return is_open + sum(map(_open_objects, value.values()))


def _arguments(provider: str, settings: SettingArguments) -> dict[str, Any]:
    """Return all arguments as one copy, since litellm modifies its input."""
    arguments = {name: value for values in settings.values() for name, value in values.items()}
    if provider in _UNLISTED:
        arguments["allowed_openai_params"] = _UNLISTED[provider]
    return copy.deepcopy(arguments)


# Dropped settings.

_known_drops: dict[str, tuple[str, ...]] = {}


def _dropped(litellm: ModuleType, model: str, provider: str, settings: SettingArguments) -> tuple[str, ...]:
    """Return the names of the settings that litellm would not send to the model.

    The result is cached, since seeds, tools and other values that change with every call have no influence on
    it.
    """
    schema_words = [
        *sorted(_keys(settings.get("response_format"))),
        _open_objects(settings.get("response_format")),
    ]
    deciding = {
        field: None if field in ("seed", "tools", "response_format", "n") else values
        for field, values in settings.items()
    }
    key = json.dumps([model, provider, deciding, schema_words], sort_keys=True, default=str)
    known = _known_drops.get(key)
    if known is None:
        known = _known_drops[key] = tuple(_find_dropped(litellm, model, provider, settings))
    return known


def _find_dropped(litellm: ModuleType, model: str, provider: str, settings: SettingArguments) -> list[str]:
    """Return the settings without which litellm makes the same request. Dropped schema keywords are named
    like `response_format.minItems`.
    """

    def made(settings: SettingArguments) -> Any:
        return litellm.utils.get_optional_params(
            model=model, custom_llm_provider=provider, drop_params=True, **_arguments(provider, settings)
        )

    whole = made(settings)
    dropped = [
        field
        for field in settings
        if made({name: values for name, values in settings.items() if name != field}) == whole
    ]
    if "effort" in settings and "effort" not in dropped:
        other = "low" if settings["effort"]["reasoning_effort"] != "low" else "high"
        if made({**settings, "effort": {"reasoning_effort": other}}) == whole:
            dropped.append("effort.level")  # only on or off can be set
    if "response_format" in settings and "response_format" not in dropped:
        sent = made({"response_format": settings["response_format"]})
        if _open_objects(sent) < _open_objects(settings["response_format"]):
            # litellm turns an open object into an empty one for Anthropic, which is worse than no schema.
            return [*dropped, "response_format"]
        words = _keys(settings["response_format"]["response_format"]["json_schema"]["schema"])
        dropped += sorted(f"response_format.{word}" for word in (words & _CONSTRAINTS) - _keys(whole))
    if provider == "gemini":  # litellm only forwards known fields
        taken = import_module("litellm.types.llms.vertex_ai").GenerationConfig.__annotations__
        passed = {*taken, *litellm.get_supported_openai_params(model, provider)}
        fields = {*_CALL_FIELDS, *passed, *map(_camel, passed)}
        dropped += [field for field in settings if field not in fields and field not in dropped]
    return dropped


def _keys(value: Any) -> set[str]:
    """Return every key of every object inside `value`."""
    if isinstance(value, Mapping):
        return set(value).union(*map(_keys, value.values()))
    return set().union(*map(_keys, value)) if isinstance(value, list | tuple) else set()


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))
