"""Conversion of a call to litellm's arguments, and the settings that litellm would drop.

litellm silently omits settings that it believes a provider does not support. Here, none is dropped silently:
litellm first translates the settings with and without each of them, and a setting that makes no difference is
noted as dropped. The arguments are a copy of the call's, since litellm modifies them.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

from tot_lab.core.calls import Call, CallObserver
from tot_lab.models.chat.requests import SettingArguments, is_too_long, setting_arguments
from tot_lab.models.stack import Failure

_UNLISTED = {"gemini": ["seed", "top_logprobs"]}  # supported by the provider, but missing from litellm's list
_OURS = ("model", "messages", "n", "stream", "timeout")
_CALL_FIELDS = {"temperature", "max_tokens", "stop", "seed", "response_format", "logprobs", "tools"}
_CALL_FIELDS |= {"tool_choice", "effort", "n"}
_CONSTRAINTS = {"minLength", "maxLength", "pattern", "format", "enum", "const", "minimum", "maximum"}
_CONSTRAINTS |= {"exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems", "uniqueItems"}
_CONSTRAINTS |= {"contains", "prefixItems", "minProperties", "maxProperties", "patternProperties", "not"}
_CONSTRAINTS |= {"anyOf", "allOf", "if", "then", "else", "additionalProperties", "required"}


def settings_of(
    litellm: ModuleType, model: str, provider: str, calls: Sequence[Call], observer: CallObserver
) -> dict[str, Any]:
    """Return litellm's arguments for the settings that it does not drop, and record a note of those that it
    drops. Raises `Failure` if an option is an argument of litellm itself.
    """
    call = calls[0]
    for name in call.options:
        if name in _OURS or name in litellm.types.utils.all_litellm_params:
            raise Failure(f"options must hold sampling settings: got {name!r}, an argument of litellm")
    settings = setting_arguments(call, provider)
    if len(calls) > 1:
        settings["n"] = {"n": len(calls)}
    dropped = list(_dropped(litellm, model, provider, settings))
    if call.tool_choice == "none" and "tool_choice" in dropped:
        dropped.remove("tool_choice")
        del settings["tool_choice"], settings["tools"]  # without tools the model cannot call any
    if any(is_too_long(tool, provider) for tool in call.tools):
        dropped.append("tools.description")
    if dropped:
        observer.note("call.dropped", settings=list(dropped))
    return _arguments(provider, {name: values for name, values in settings.items() if name not in dropped})


def _open_objects(value: Any) -> int:
    """Return the number of objects in a schema that allow properties other than those that they list."""
    if isinstance(value, list):
        return sum(map(_open_objects, value))
    if not isinstance(value, dict):
        return 0
    more = value.get("additionalProperties", "properties" not in value)
    is_open = value.get("type") == "object" and more is not False
    return is_open + sum(map(_open_objects, value.values()))


def _arguments(provider: str, settings: SettingArguments) -> dict[str, Any]:
    """Return the arguments for all settings as a deep copy, since litellm modifies them."""
    arguments = {name: value for values in settings.values() for name, value in values.items()}
    if provider in _UNLISTED:
        arguments["allowed_openai_params"] = _UNLISTED[provider]
    return copy.deepcopy(arguments)


# Dropped settings.

_known_drops: dict[str, tuple[str, ...]] = {}


def _dropped(litellm: ModuleType, model: str, provider: str, settings: SettingArguments) -> tuple[str, ...]:
    """Return the names of the settings that litellm would not send to the model.

    The result is cached by the settings that it depends on. The values of seeds, tools and `n`, which may
    change with every call, are not part of the key.
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
    """Return the settings without which litellm makes the same request. Schema keywords that it drops are
    named like `response_format.minItems`.
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
            dropped.append("effort.level")  # the request only says whether to reason
    if "response_format" in settings and "response_format" not in dropped:
        sent = made({"response_format": settings["response_format"]})
        if _open_objects(sent) < _open_objects(settings["response_format"]):
            # litellm turns an open object into an empty one for Anthropic, which is worse than no schema.
            return [*dropped, "response_format"]
        words = _keys(settings["response_format"]["response_format"]["json_schema"]["schema"])
        dropped += sorted(f"response_format.{word}" for word in (words & _CONSTRAINTS) - _keys(whole))
    if provider == "gemini":  # litellm forwards only fields that it knows
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
