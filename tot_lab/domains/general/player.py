"""A simulated model that replies to any prompt in the requested form, at random.

It reads the requested form of a reply and ignores the meaning of a prompt. A JSON schema is filled in at
random. Without a schema, the last paragraph determines the form. The replies state that they are simulated,
so that they are not mistaken for results.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from random import Random
from typing import Any

from tot_lab.core.arithmetic import OPERATORS, joined, number
from tot_lab.core.calls import Call, TokenLogprob
from tot_lab.domains.game24 import step_line
from tot_lab.domains.player import form_in
from tot_lab.models.simulated import Simulated

_FORMS = (  # requested forms, with the words of a prompt that request them
    ("critique", re.compile(r"`SATISFIED: ?`")),
    ("none", re.compile(r"reply with the word none", re.I)),
    ("vote", re.compile(r"best: ?N\b")),
    ("numbers", re.compile(r"JSON (?:array|list) of (?:the )?(\d{1,4}) (?:numbers|scores)", re.I)),
    (
        "labels",
        re.compile(
            r"\A(?>.*?\bsure\b).*\bimpossible\b|\byes\b(?:[\W_]++(?:or|and)[\W_]++|[\W_]{2,}+)no\b",
            re.I | re.S,
        ),
    ),
    ("score", re.compile(r"\bscore\b|\brate\b|\brating\b", re.I)),
    ("strings", re.compile(r"JSON (?:array|list) of (\d{1,4}) strings", re.I)),
    ("steps", re.compile(r"(\d{1,4}) different next steps", re.I)),
    ("step", re.compile(r"\bnext step\b", re.I)),
    ("answer", re.compile(r"^Answer:", re.M)),
)
_LABELS = (re.compile(r"\b(?:sure|likely|impossible)\b", re.I), re.compile(r"\b(?:yes|no)\b", re.I))
_CANDIDATE = re.compile(r"^(?:Candidate (\d{1,4})\b|(\d{1,4})\.)", re.M)
_LEFT = re.compile(r"^Numbers(?: left)?:([-\d/ ]+)$", re.M)
_IDEAS = (
    "Write down what is known.",
    "Break the problem into two smaller ones.",
    "Work out the quantity that is asked for.",
    "Try the simplest case first.",
    "Check the last step for mistakes.",
    "Look at it from the end backwards.",
    "Compare the two ways that are left.",
    "State a partial answer.",
)
_DEEPEST = 6  # from this depth of a schema on, optional fields and items are left out


class SimGeneral(Simulated):
    """A simulated model for any strategy and any task. It replies at random.

    A call with a schema returns a random instance of the schema. `pattern`, `format` and conditions are
    ignored. If a call requests log-probabilities, the reply is one token, with the log-probabilities of the
    labels that the prompt offers (yes and no, or sure, likely and impossible).
    """

    kind = "sim/general"

    def written(self, call: Call, random: Random) -> str | Sequence[TokenLogprob]:
        if call.response_format is not None:
            return json.dumps(instance(call.response_format, random))
        prompt = call.prompt
        form, count, text = form_in(prompt, _FORMS)
        if form == "labels":
            labels = max((list(dict.fromkeys(words.findall(text))) for words in _LABELS), key=len)
            if call.logprobs:
                return [_label_reply(labels, call, random)]
            return f"A simulated judgement.\n{random.choice(labels)}"
        return _reply(form, count, prompt, random)


def _reply(form: str, count: int, prompt: str, random: Random) -> str:
    left = _numbers_left(prompt)
    if form == "none":
        text = "none"
    elif form == "critique":
        content = random.random() < 0.5
        text = "SATISFIED: a simulated judgement." if content else f"UNSATISFIED: {_thought(random)}"
    elif form == "vote":
        listed = [int(a or b) for a, b in _CANDIDATE.findall(prompt)]
        text = f"A simulated choice.\nbest: {random.randint(1, max(listed, default=1))}"
    elif form == "numbers":
        text = json.dumps([round(random.random(), 2) for _ in range(count)])
    elif form == "score":
        text = f"score: {random.random():.2f}\nA simulated score; nobody has looked at the candidate."
    elif form in ("steps", "step") and len(left) > 1:
        text = "\n".join(_random_step(left, random) for _ in range(count))
    elif form == "strings":
        text = json.dumps([_thought(random) for _ in range(count)])
    elif form == "steps":
        text = "\n".join(f"{k}. {_thought(random)}" for k in range(1, count + 1))
    elif form == "answer":
        made = f" {random.choice('+-*')} ".join(map(str, left)) if left else random.randint(1, 9)
        text = f"A simulated answer.\nAnswer: {made}"
    else:
        text = _thought(random)
    return text


def _thought(random: Random) -> str:
    return f"(simulated, {random.randrange(1000):03}) {random.choice(_IDEAS)}"


def _numbers_left(prompt: str) -> list[Any]:
    """Return the numbers left in a Game of 24."""
    stated = _LEFT.findall(prompt)
    values = [number(word) for word in stated[-1].split()] if stated else []
    return [] if None in values else values


def _random_step(left: Sequence[Any], random: Random) -> str:
    """Return a random step of a Game of 24."""
    a, b, *rest = random.sample(left, len(left))
    op = random.choice(list(OPERATORS))
    value = joined(a, op, b)
    if value is None:  # a division by zero
        op, value = "+", a + b
    return step_line(a, op, b, value, rest)


def _label_reply(labels: Sequence[str], call: Call, random: Random) -> TokenLogprob:
    """Return one of `labels` as a token, with the log-probabilities of all labels."""
    weights = [random.expovariate(1) + 0.01 for _ in labels]
    whole = sum(weights) / 0.95  # A real model gives some probability to other words.
    top = {label: math.log(weight / whole) for label, weight in zip(labels, weights, strict=True)}
    ranked = sorted(top, key=lambda label: -top[label])
    chosen = ranked[0] if call.temperature == 0 else random.choices(labels, weights)[0]
    return TokenLogprob(chosen, top[chosen], {label: top[label] for label in ranked[: call.logprobs]})


# Random instances of a JSON schema.


def instance(schema: Any, random: Random, root: Any = None, depth: int = 0) -> Any:
    """Return a random value that fits `schema`, which is nested `depth` levels inside `root`."""
    root = schema if root is None else root
    schema = _resolve(schema, random, root, depth)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return random.choice(schema["enum"])
    kind = schema.get("type") or _implied_type(schema)
    if isinstance(kind, list):
        kind = _choose(kind, random, depth)
    if kind == "object":
        return _object(schema, random, root, depth)
    if kind == "array":
        return _array(schema, random, root, depth)
    if kind in ("integer", "number"):
        return _number(schema, random, whole=kind == "integer")
    if kind == "boolean":
        return random.random() < 0.5
    return None if kind == "null" else _string(schema, random)


def _resolve(schema: Any, random: Random, root: Any, depth: int) -> dict[str, Any]:
    """Follow the references of `schema`, and choose one of its alternatives."""
    while isinstance(schema, dict) and (words := {"$ref", "allOf", "anyOf", "oneOf"} & schema.keys()):
        word = min(words)
        rest = {key: value for key, value in schema.items() if key != word}
        if word == "$ref":
            chosen = [_resolve_pointer(schema["$ref"], root)]
        elif word == "allOf":
            chosen = schema["allOf"]
        else:
            chosen = [_choose(schema[word], random, depth)]
        for part in chosen:
            rest = _merge(rest, part if isinstance(part, dict) else {})
        schema = rest
    return schema if isinstance(schema, dict) else {}


def _choose(choices: Sequence[Any], random: Random, depth: int) -> Any:
    """Choose at random or, from depth `_DEEPEST` on, the first alternative that is not nested."""
    if depth < _DEEPEST:
        return random.choice(choices)
    flat = [part for part in choices if not re.search(r'"\$ref"|"?(?:object|array)"', json.dumps(part))]
    return (flat or choices)[0]


def _merge(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Merge two schemas: all properties and required names of both, and the tighter of two bounds. Of other
    words that both have, the value in `other` is kept.
    """
    joint = {**one, **other}
    if "properties" in one and "properties" in other:
        joint["properties"] = {**one["properties"], **other["properties"]}
    if "required" in one and "required" in other:
        joint["required"] = list(dict.fromkeys([*one["required"], *other["required"]]))
    for word, tighter in (("minimum", max), ("maximum", min), ("minItems", max), ("maxItems", min)):
        if word in one and word in other:
            joint[word] = tighter(one[word], other[word])
    return joint


def _resolve_pointer(reference: str, root: Any) -> Any:
    """Return the part of `root` that a reference such as `#/$defs/step` points to."""
    part = root
    for name in reference.lstrip("#").split("/")[1:]:
        name = name.replace("~1", "/").replace("~0", "~")
        part = part[int(name)] if isinstance(part, list) else part[name]
    return part


def _implied_type(schema: dict[str, Any]) -> str:
    """Return the type of a schema without `type`."""
    if schema.keys() & {"properties", "required"}:
        return "object"
    if schema.keys() & {"items", "prefixItems", "minItems"}:
        return "array"
    return "number" if schema.keys() & {"minimum", "maximum", "multipleOf"} else "string"


def _object(schema: dict[str, Any], random: Random, root: Any, depth: int) -> dict[str, Any]:
    required = schema.get("required", [])
    properties = schema.get("properties", {})
    names = [name for name in properties if name in required or (depth < _DEEPEST and random.random() < 0.5)]
    names += [name for name in required if name not in properties]
    return {name: instance(properties.get(name, {}), random, root, depth + 1) for name in names}


def _array(schema: dict[str, Any], random: Random, root: Any, depth: int) -> list[Any]:
    least = schema.get("minItems", 0)
    most = schema.get("maxItems", least + 3)
    count = least if depth >= _DEEPEST else random.randint(min(max(least, 1), most), min(most, least + 3))
    first = schema.get("prefixItems", [])
    if schema.get("items") is False:
        count = min(count, len(first))
    items: list[Any] = []
    for _ in range(20 * count):  # `uniqueItems` rejects repeated items.
        if len(items) == count:
            break
        place = len(items)
        part = first[place] if place < len(first) else schema.get("items", {})
        item = instance(part, random, root, depth + 1)
        if not schema.get("uniqueItems") or item not in items:
            items.append(item)
    return items


def _number(schema: dict[str, Any], random: Random, *, whole: bool) -> float | int:
    step = schema.get("multipleOf", 1 if whole else None)
    low = max(schema.get("minimum", -math.inf), schema.get("exclusiveMinimum", -math.inf))
    high = min(schema.get("maximum", math.inf), schema.get("exclusiveMaximum", math.inf))
    if low == -math.inf:
        low = 0 if high >= 0 else high - 100
    if high == math.inf:
        high = low + 100 * (step or 1)
    if step is not None:
        first, last = math.ceil(low / step), math.floor(high / step)
        first += first * step == schema.get("exclusiveMinimum")
        last -= last * step == schema.get("exclusiveMaximum")
        value: float = random.randint(first, max(first, last)) * step
        return int(value) if whole else value
    value = float(low + (high - low) * random.uniform(0.01, 0.99))
    return round(value, 2) if low < round(value, 2) < high else value


def _string(schema: dict[str, Any], random: Random) -> str:
    text = _thought(random)
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    while len(text) < least:
        text += f" {_thought(random)}"
    return text if most is None else text[:most]
