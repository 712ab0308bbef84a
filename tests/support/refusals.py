"""What the providers refuse, in their own words, as far as it concerns tools, thinking and schemas.

Rule: what a real provider answers with a 400, the server of the tests does too, so that a request that
would be refused fails a test. From the providers' documentation, and from what people report of them.
"""

import base64
import hashlib
import re
from collections.abc import Iterator
from typing import Any

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_GEMINI_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
_MAX_TOOLS, _LONGEST_DESCRIPTION = 128, 1024
_NOT_STRICT = {"default", "format", "minLength", "maxLength", "uniqueItems", "prefixItems", "oneOf", "allOf"}
_NOT_STRICT |= {
    "not",
    "if",
    "then",
    "else",
    "patternProperties",
    "propertyNames",
    "minProperties",
    "examples",
}


def signed(text: str) -> str:
    """The signature that a provider gives with what was thought."""
    return base64.b64encode(hashlib.sha256(text.encode("utf-8", "replace")).digest()).decode()


def refusal(family: str, body: dict[str, Any], path: str) -> str | None:
    """Why the provider refuses a request, None when it does not."""
    return next(_REFUSED[family](body, path), None)


def _openai(body: dict[str, Any], path: str) -> Iterator[str]:
    tools = [tool["function"] for tool in body.get("tools", ())]
    if len(tools) > _MAX_TOOLS:
        yield (
            f"Invalid 'tools': array too long. Expected an array with maximum length {_MAX_TOOLS}, but got "
            f"an array with length {len(tools)} instead."
        )
    for k, tool in enumerate(tools):
        if not _NAME.fullmatch(tool["name"]):
            yield f"Invalid 'tools[{k}].function.name': string does not match pattern."
        if len(tool.get("description", "")) > _LONGEST_DESCRIPTION:
            yield (
                f"Invalid 'tools[{k}].function.description': string too long. Expected a string with maximum "
                f"length {_LONGEST_DESCRIPTION}."
            )
        if tool.get("parameters", {}).get("type", "object" if "parameters" not in tool else None) != "object":
            yield f"Invalid schema for function '{tool['name']}': it must be of 'type: \"object\"'"
    form = (body.get("response_format") or {}).get("json_schema")
    if form and form.get("strict") and (wrong := next(_wrong_when_strict(form["schema"], ()), None)):
        yield f"Invalid schema for response_format '{form['name']}': {wrong}"
    open_ids: set[str] = set()
    for message in body["messages"]:
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_ids:
                yield "messages with role 'tool' must be a response to a message with 'tool_calls'."
            open_ids.discard(message["tool_call_id"])
        elif open_ids:
            yield "An assistant message with 'tool_calls' must be followed by tool messages"
        asked = message.get("tool_calls") or ()
        if any(not isinstance(call["function"]["arguments"], str) for call in asked):
            yield "Invalid type for 'tool_calls[0].function.arguments': expected a string"
        open_ids |= {call["id"] for call in asked}


def _wrong_when_strict(schema: Any, where: tuple[str, ...]) -> Iterator[str]:
    context = f"In context={where},"
    if "$ref" in schema:
        if len(schema) > 1:
            yield f"{context} $ref cannot have keywords {set(schema) - {'$ref'}}."
        return
    for word in schema.keys() & _NOT_STRICT:
        yield f"{context} '{word}' is not permitted."
    if not schema.keys() & {"type", "anyOf", "enum", "const"}:
        yield f"{context} schema must have a 'type' key."
    if schema.get("type") == "object":
        if schema.get("additionalProperties") is not False:
            yield f"{context} 'additionalProperties' is required to be supplied and to be false."
        if set(schema.get("required", ())) != set(schema.get("properties", ())):
            yield f"{context} 'required' is required to be supplied and to include every key in properties."
    for name, part in [*schema.get("properties", {}).items(), *schema.get("$defs", {}).items()]:
        yield from _wrong_when_strict(part, (*where, name))
    for part in [*schema.get("anyOf", ()), *([schema["items"]] if "items" in schema else [])]:
        yield from _wrong_when_strict(part, (*where, "items"))


def _anthropic(body: dict[str, Any], path: str) -> Iterator[str]:
    tools = body.get("tools", ())
    for k, tool in enumerate(tools):
        if not _NAME.fullmatch(tool["name"]):
            yield f"tools.{k}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
        if tool["input_schema"].get("type") != "object":
            yield f"tools.{k}.custom.input_schema.type: Field required"
    form = body.get("output_format") or (body.get("output_config") or {}).get("format")
    if form and not all(part.get("additionalProperties") is False for part in _objects(form["schema"])):
        yield "output_format.schema: 'additionalProperties' must be explicitly set to false"
    messages = [
        [{"type": "text"}] if isinstance(message["content"], str) else message["content"]
        for message in body["messages"]
    ]
    seen: set[str] = set()
    last_with_tools = None
    for k, blocks in enumerate(messages):
        uses = [block["id"] for block in blocks if block["type"] == "tool_use"]
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if seen & set(uses) or len(uses) != len(set(uses)):
            yield f"messages.{k}: `tool_use` ids must be unique"
        seen |= set(uses)
        if (uses or results) and not tools:
            yield "Requests which have `tool_use` or `tool_result` blocks in messages must define tools"
        after = messages[k + 1] if k + 1 < len(messages) else []
        answered = {block.get("tool_use_id") for block in after}
        if not set(uses) <= answered:
            yield f"messages.{k}: `tool_use` ids were found without `tool_result` blocks immediately after"
        if results and not set(results) <= {block.get("id") for block in messages[k - 1]}:
            yield f"messages.{k}.content.0: unexpected `tool_use_id` found in `tool_result` blocks"
        if uses:
            last_with_tools = k
        for place, block in enumerate(blocks):
            if block["type"] == "thinking" and block.get("signature") != signed(block["thinking"]):
                yield f"messages.{k}.content.{place}: Invalid `signature` in `thinking` block"
    thinks = (body.get("thinking") or {}).get("type") in ("enabled", "adaptive")
    if thinks and last_with_tools is not None:
        first = messages[last_with_tools][0]["type"]
        if first not in ("thinking", "redacted_thinking"):
            yield (
                f"messages.{last_with_tools}.content.0.type: Expected `thinking` or `redacted_thinking`, but "
                f"found `{first}`. When `thinking` is enabled, a final `assistant` message must start with a "
                f"thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks)."
            )


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every schema of an object inside `value`."""
    if isinstance(value, dict):
        if value.get("type") == "object":
            yield value
        for part in value.values():
            yield from _objects(part)
    elif isinstance(value, list):
        for part in value:
            yield from _objects(part)


def _gemini(body: dict[str, Any], path: str) -> Iterator[str]:
    declared = [one for tool in body.get("tools", ()) for one in tool.get("function_declarations", ())]
    for k, function in enumerate(declared):
        where = f"GenerateContentRequest.tools[0].function_declarations[{k}]"
        if not _GEMINI_NAME.fullmatch(function["name"]):
            yield f"* {where}.name: Invalid function name. Must start with a letter or an underscore."
        if function.get("parameters") is not None and not function["parameters"].get("properties"):
            yield f"* {where}.parameters.properties: should be non-empty for OBJECT type"
        for word in ("$ref", "$defs", "additionalProperties", "const"):
            if f'"{word}"' in repr(function).replace("'", '"'):
                yield f'Invalid JSON payload received. Unknown name "{word}" at {where!r}: Cannot find field.'
    calls: list[dict[str, Any]] = []
    for k, content in enumerate(body["contents"]):
        parts = content["parts"]
        answers = [part for part in parts if "function_response" in part or "functionResponse" in part]
        if answers and len(answers) != len(calls):
            yield (
                "Please ensure that the number of function response parts is equal to the number of function "
                "call parts of the function call turn."
            )
        calls = [part for part in parts if "function_call" in part or "functionCall" in part]
        if calls and "gemini-3" in path:
            call = calls[0].get("function_call") or calls[0]["functionCall"]
            if calls[0].get("thoughtSignature") != signed(call["name"]):
                yield (
                    f"Function call `{call['name']}` in the `{k}.` content block is missing a "
                    f"`thought_signature`."
                )


def _ollama(body: dict[str, Any], path: str) -> Iterator[str]:
    for message in body.get("messages", ()):
        for call in message.get("tool_calls") or ():
            if not isinstance(call["function"]["arguments"], dict):
                yield (
                    "json: cannot unmarshal string into Go struct field ChatRequest.messages.tool_calls."
                    "function.arguments of type api.ToolCallFunctionArguments"
                )


_REFUSED = {"openai": _openai, "anthropic": _anthropic, "gemini": _gemini, "ollama": _ollama}
