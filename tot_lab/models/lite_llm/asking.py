"""From a call to litellm's arguments, and what would be lost on the way.

Rule: nothing is left out in silence. litellm drops what it thinks a provider does not take, and says
so nowhere. So it is made to translate the settings beforehand, with each and without it: one that
makes no difference is named as dropped. A call is not changed by being sent.
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

Asked = dict[str, dict[str, Any]]
"""litellm's arguments, by the setting of a call that they stand for."""

_UNLISTED = {"gemini": ["seed", "top_logprobs"]}  # taken by the provider, and missing in litellm's list
_OURS = ("model", "messages", "n", "stream", "timeout")
_CALL_FIELDS = {"temperature", "max_tokens", "stop", "seed", "response_format", "logprobs", "tools"}
_CALL_FIELDS |= {"tool_choice", "effort", "n"}
_CONSTRAINTS = {"minLength", "maxLength", "pattern", "format", "enum", "const", "minimum", "maximum"}
_CONSTRAINTS |= {"exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems", "uniqueItems"}
_CONSTRAINTS |= {"contains", "prefixItems", "minProperties", "maxProperties", "patternProperties", "not"}
_CONSTRAINTS |= {"anyOf", "allOf", "if", "then", "else", "additionalProperties", "required"}


# What OpenAI's strict mode takes; a schema with any other word is sent as one that is not strict.
_STRICT = {"type", "title", "description", "properties", "required", "additionalProperties", "items"}
_STRICT |= {"anyOf", "enum", "const", "$defs", "$ref", "pattern", "minItems", "maxItems", "minimum"}
_STRICT |= {"maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
_LONGEST_DESCRIPTION = 1024  # characters of a tool's, for OpenAI and Azure


def messages_of(call: Call) -> list[dict[str, Any]]:
    """The turns of the call. Ids of tool calls that came before are made new, since litellm leaves a call
    of an id out that Anthropic has seen."""
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
    """The tools of the call, as `provider` takes them; one that it takes as it is, is not changed."""
    return [{"type": "function", "function": _function(tool, provider)} for tool in call.tools]


def _function(tool: dict[str, Any], provider: str) -> dict[str, Any]:
    if not tool["parameters"].get("properties") and provider.startswith(("gemini", "vertex_ai")):
        return {name: part for name, part in tool.items() if name != "parameters"}  # it takes no empty object
    if _is_too_long(tool, provider):
        return {**tool, "description": tool["description"][:_LONGEST_DESCRIPTION]}
    return tool


def _is_too_long(tool: dict[str, Any], provider: str) -> bool:
    return provider in ("openai", "azure") and len(tool["description"]) > _LONGEST_DESCRIPTION


def settings_of(
    litellm: ModuleType, model: str, provider: str, calls: Sequence[Call], wire: CallObserver
) -> dict[str, Any]:
    """The arguments for all but the turns; what would not reach the model is noted on the wire.
    Raises `Failure`."""
    call = calls[0]
    asked = _asked(litellm, call, provider)
    if len(calls) > 1:
        asked["n"] = {"n": len(calls)}
    dropped = list(_dropped(litellm, model, provider, asked))
    if call.tool_choice == "none" and "tool_choice" in dropped:
        dropped.remove("tool_choice")
        del asked["tool_choice"], asked["tools"]  # what it is not shown, it does not ask for
    if any(_is_too_long(tool, provider) for tool in call.tools):
        dropped.append("tools.description")
    if dropped:
        wire.note("call.dropped", settings=list(dropped))
    return _arguments(provider, {name: values for name, values in asked.items() if name not in dropped})


def _asked(litellm: ModuleType, call: Call, provider: str) -> Asked:
    asked: Asked = {}
    for field in ("temperature", "max_tokens"):
        value = getattr(call, field)
        if value is not None:
            asked[field] = {field: value}
    if call.stop:
        asked["stop"] = {"stop": list(call.stop)}
    if call.seed is not None:
        asked["seed"] = {"seed": provider_seed(call)}
    if call.response_format is not None:
        schema = call.response_format
        name = re.sub(r"[^\w-]", "_", str(schema.get("title") or "reply"))[:64]
        form = {"name": name, "schema": schema, "strict": _is_strict(schema)}
        asked["response_format"] = {"response_format": {"type": "json_schema", "json_schema": form}}
    if call.logprobs:
        asked["logprobs"] = {"logprobs": True, "top_logprobs": call.logprobs}
    if call.tools:
        asked["tools"] = {"tools": tools_of(call, provider)}
    if call.tool_choice is not None:
        choice: Any = call.tool_choice
        if choice not in ("auto", "none", "required"):
            choice = {"type": "function", "function": {"name": choice}}
        asked["tool_choice"] = {"tool_choice": choice}
    if call.effort is not None:
        asked["effort"] = {"reasoning_effort": call.effort}
    for name, value in call.options.items():
        if name in _OURS or name in litellm.types.utils.all_litellm_params:
            raise Failure(f"options hold {name!r}, which is no sampling setting")
        asked[name] = {name: value}
    return asked


def _is_strict(schema: Any) -> bool:
    """Whether OpenAI's strict mode takes the schema: its objects say all and require all, and each part
    says what it is, in words that the mode knows."""
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
    """How many objects inside `value`, a schema, may have names that it does not list."""
    if isinstance(value, list):
        return sum(map(_open_objects, value))
    if not isinstance(value, dict):
        return 0
    more = value.get("additionalProperties", "properties" not in value)
    is_open = value.get("type") == "object" and more is not False
    return is_open + sum(map(_open_objects, value.values()))


def _arguments(provider: str, asked: Asked) -> dict[str, Any]:
    """All as one, and litellm's to keep: it rewrites what it is given."""
    arguments = {name: value for values in asked.values() for name, value in values.items()}
    if provider in _UNLISTED:
        arguments["allowed_openai_params"] = _UNLISTED[provider]
    return copy.deepcopy(arguments)


# What would be lost.

_known_drops: dict[str, tuple[str, ...]] = {}


def _dropped(litellm: ModuleType, model: str, provider: str, asked: Asked) -> tuple[str, ...]:
    """Names of the settings that would not reach the model, as far as litellm decides it. Seeds,
    tools and the like differ from call to call and decide nothing, so it is remembered."""
    schema_words = [*sorted(_keys(asked.get("response_format"))), _open_objects(asked.get("response_format"))]
    deciding = {
        field: None if field in ("seed", "tools", "response_format", "n") else values
        for field, values in asked.items()
    }
    key = json.dumps([model, provider, deciding, schema_words], sort_keys=True, default=str)
    known = _known_drops.get(key)
    if known is None:
        known = _known_drops[key] = tuple(_find_dropped(litellm, model, provider, asked))
    return known


def _find_dropped(litellm: ModuleType, model: str, provider: str, asked: Asked) -> list[str]:
    """The settings without which litellm makes the very same request. Of a schema that arrives, the
    words that are left out: `response_format.minItems`."""

    def made(asked: Asked) -> Any:
        return litellm.utils.get_optional_params(
            model=model, custom_llm_provider=provider, drop_params=True, **_arguments(provider, asked)
        )

    whole = made(asked)
    dropped = [
        field
        for field in asked
        if made({name: values for name, values in asked.items() if name != field}) == whole
    ]
    if "effort" in asked and "effort" not in dropped:
        other = "low" if asked["effort"]["reasoning_effort"] != "low" else "high"
        if made({**asked, "effort": {"reasoning_effort": other}}) == whole:
            dropped.append("effort.level")  # it is only on or off
    if "response_format" in asked and "response_format" not in dropped:
        sent = made({"response_format": asked["response_format"]})
        if _open_objects(sent) < _open_objects(asked["response_format"]):
            # Anthropic takes no free object, and litellm makes an empty one of it: the prompt alone is better
            return [*dropped, "response_format"]
        words = _keys(asked["response_format"]["response_format"]["json_schema"]["schema"])
        dropped += sorted(f"response_format.{word}" for word in (words & _CONSTRAINTS) - _keys(whole))
    if provider == "gemini":  # which sends on only what it knows
        taken = import_module("litellm.types.llms.vertex_ai").GenerationConfig.__annotations__
        passed = {*taken, *litellm.get_supported_openai_params(model, provider)}
        fields = {*_CALL_FIELDS, *passed, *map(_camel, passed)}
        dropped += [field for field in asked if field not in fields and field not in dropped]
    return dropped


def _keys(value: Any) -> set[str]:
    """Every key of every object inside `value`."""
    if isinstance(value, Mapping):
        return set(value).union(*map(_keys, value.values()))
    return set().union(*map(_keys, value)) if isinstance(value, list | tuple) else set()


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))
