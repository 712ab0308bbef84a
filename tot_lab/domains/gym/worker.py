"""Makes and grades tasks of reasoning-gym, in a separate process (`tot_lab.core.processes.Worker`).

Answers come from models, and tasks may come from untrusted files. Where graders of reasoning-gym evaluate
such text as Python, it is parsed here instead: only literals and arithmetic of limited size are accepted.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import math
import re
import sys
import warnings
from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from typing import Any

LONGEST = 10_000
"""Maximum number of characters of an expression that is parsed."""

OWN_FIELDS = ("seed", "size")
"""Fields of a configuration that do not set the difficulty."""


EVALUATING = ("binary_matrix", "n_queens", "spiral_matrix", "string_insertion")
"""Modules of reasoning-gym whose graders call `eval` with the answer."""


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Carry out a request. Returns `{"value": …}`, or `{"error": …}` with a text."""
    do = request.pop("do")
    try:
        reply: dict[str, Any] = {"value": REQUESTS[do](**request)}
    except Exception as error:
        reply = {"error": f"{type(error).__name__}: {error}"[:500]}
    plainly: dict[str, Any] = json.loads(json.dumps(reply, default=plain))
    return plainly


def plain(value: Any) -> Any:
    """Convert a value that JSON does not have: a number of numpy, an enumeration, a set."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Enum):
        return value.value
    return sorted(value, key=str) if isinstance(value, set | frozenset) else str(value)


def import_safely() -> None:
    """Import reasoning-gym with safe parsers in place of `eval` and sympy's `parse_expr`, which run code."""
    warnings.simplefilter("ignore")
    import reasoning_gym  # noqa: F401, PLC0415
    import sympy  # noqa: PLC0415
    from reasoning_gym.factory import DATASETS  # noqa: PLC0415

    sympy.parse_expr = parse
    for kind, _ in DATASETS.values():
        if kind.__module__.rpartition(".")[2] in EVALUATING:
            vars(sys.modules[kind.__module__])["eval"] = literal


# Making tasks.


def describe(family: str) -> dict[str, Any]:
    """Return the names of all families, and the difficulty fields of `family` with their defaults. `fields`
    is `None` for an unknown family.
    """
    from reasoning_gym.factory import DATASETS  # noqa: PLC0415

    fields = None
    if family in DATASETS:
        config = DATASETS[family][1]()
        fields = {one.name: getattr(config, one.name) for one in dataclasses.fields(config)}
        fields = {name: value for name, value in fields.items() if name not in OWN_FIELDS}
    return {"families": sorted(DATASETS), "fields": fields}


def make(family: str, count: int, seed: int, difficulty: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the first `count` items of a family. Items of `word_ladder` get the vocabulary as `words`."""
    # 500 is the default size. In some families, the items depend on the size of the data set.
    items = dataset(family, seed, max(count, 500), json.dumps(difficulty))
    made = [items[k] for k in range(count)]
    if family == "word_ladder":
        for data in (item["metadata"] for item in made):
            data["words"] = " ".join(sorted(items.word_sets[data["word_length"]]))
    return made


@lru_cache(maxsize=16)
def dataset(family: str, seed: int, size: int, difficulty: str) -> Any:
    from reasoning_gym.composite import DatasetSpec  # noqa: PLC0415
    from reasoning_gym.factory import create_dataset  # noqa: PLC0415

    fields = json.loads(difficulty)
    if family == "composite" and isinstance(fields.get("datasets"), list):
        fields["datasets"] = [DatasetSpec(**one) for one in fields["datasets"]]
    return create_dataset(family, seed=seed, size=size, **fields)


# Grading.


def score(family: str, difficulty: dict[str, Any], entry: dict[str, Any], answer: str) -> float:
    """Return the score that the family gives an answer, 0–1. 0 if its grader fails."""
    items = dataset(family, 0, 1, json.dumps(difficulty))
    if family in ("arc_agi", "rearc"):  # their graders compare tuples
        entry["metadata"]["output"] = tuple(tuple(row) for row in entry["metadata"]["output"])
    try:
        given = float(items.score_answer(answer, entry))
    except (Exception, RecursionError, MemoryError):
        return 0.0
    return min(1.0, max(0.0, given)) if math.isfinite(given) else 0.0


def literal(text: str) -> Any:
    """Parse a Python literal. This function replaces `eval` in graders."""
    if len(text) > LONGEST:
        raise ValueError("too long")
    return ast.literal_eval(text)


FUNCTION = re.compile("a?(sin|cos|tan)|(sin|cos|tan)h|exp|log|ln|sqrt|Abs")
OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
}


def parse(text: str, local_dict: dict[str, Any] | None = None) -> Any:
    """Parse a formula of numbers, names, + - * / ** and known functions. It replaces `sympy.parse_expr`.

    Raises:
        ValueError: For anything else, and for large powers of numbers.
    """
    if len(text) > LONGEST:
        raise ValueError("too long")
    return convert(ast.parse(text.strip(), mode="eval").body, local_dict or {})


def convert(node: ast.AST, names: dict[str, Any]) -> Any:
    import sympy  # noqa: PLC0415

    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return sympy.Integer(value) if isinstance(value, int) else sympy.Float(value)
        case ast.Name(id=name):
            known = {"pi": sympy.pi, "E": sympy.E}
            return names[name] if name in names else known.get(name, sympy.Symbol(name))
        case ast.UnaryOp(op=ast.USub(), operand=one):
            return -convert(one, names)
        case ast.UnaryOp(op=ast.UAdd(), operand=one):
            return convert(one, names)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return power(convert(left, names), convert(right, names))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return OPERATORS[type(op)](convert(left, names), convert(right, names))
        case ast.Call(func=ast.Name(id=name), args=[one], keywords=[]) if FUNCTION.fullmatch(name):
            return getattr(sympy, name)(convert(one, names))
    raise ValueError(f"{ast.unparse(node)[:40]!r} is not allowed")


def power(base: Any, exponent: Any) -> Any:
    if exponent.is_number and not (exponent.is_Rational and abs(exponent) <= 100):
        raise ValueError("an exponent must be at most 100")
    if base.is_number and base.is_Rational and max(abs(base.p), base.q).bit_length() > 1_000:
        raise ValueError("a base must be smaller")
    return base**exponent


REQUESTS: dict[str, Callable[..., Any]] = {"describe": describe, "make": make, "score": score}

if __name__ == "__main__":
    import_safely()
