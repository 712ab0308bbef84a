"""An exact calculator.

An expression is parsed and never executed as code. Every number is a `Fraction`, and its size is checked
before it is computed, so that no expression can hang or exhaust the memory.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from fractions import Fraction
from typing import Annotated, Any, ClassVar

from pydantic import Field

from tot_lab.core.arithmetic import plain
from tot_lab.core.tool import Arguments, Name, Tool, fitting, schema_of

LONGEST = 1_000  # maximum characters of an expression
LARGEST = 10_000  # maximum bits of a numerator or denominator
DIGITS = 3_000  # about the decimal digits of a number of LARGEST bits
EXACT = 50  # maximum significant digits of a decimal that is shown in full; whole numbers always are

KNOWN = "numbers, + - * / // % ^ and parentheses"

_KNOWN = re.compile(r"[\d.eE+\-*/%^() ]*", re.ASCII)
_JOINED: dict[type[ast.operator], Callable[[Fraction, Fraction], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


class _Expression(Arguments):
    expression: Annotated[str, Field(description=f"{KNOWN}, such as (3 + 1/2) * 4^2")]


class Calculator(Tool):
    """Evaluates an expression exactly: `1/3 + 0.1` is 13/30.

    It supports + - * / // % ^ (or **) with integer exponents, parentheses and decimal numbers, and × ÷ −.
    """

    kind: ClassVar[str] = "calculator"
    name: Name = "calculator"
    description: str = "Works out an arithmetic expression exactly."
    parameters: dict[str, Any] = schema_of(_Expression)
    pure: bool = True
    retries: int = 0
    digits: Annotated[int, Field(ge=1, le=1_000)] = 12
    """Significant digits of a result that is rounded because it has no decimal of at most 50 significant
    digits. Its exact fraction is shown too if it is short.
    """

    def carry_out(self, arguments: dict[str, Any], context: Mapping[str, Any]) -> str:
        return shown(value_of(fitting(arguments, _Expression).expression), self.digits)


def value_of(expression: str) -> Fraction:
    """Return the value of an expression.

    Raises:
        ValueError: If the expression is invalid, too long, or has a number that is too large.
        ZeroDivisionError: If it divides by zero.
    """
    text = " ".join(plain(expression).split())
    if len(text) > LONGEST:
        raise ValueError(f"the expression has {len(text):,} characters; {LONGEST:,} are the most")
    known = _KNOWN.match(text)
    if known is None or known.end() < len(text):
        raise ValueError(f"only {KNOWN} are known, not {text[known.end() if known else 0 :][:40]!r}")
    text = text.replace("^", "**")
    try:
        return _value(ast.parse(text, mode="eval").body, text)
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"this is no arithmetic expression: {text[:100]}") from None


def shown(value: Fraction, digits: int) -> str:
    """Return a whole number, or an exact decimal of at most `EXACT` significant digits, in full. For another
    number, return its fraction, if that is short, and a decimal that is rounded to `digits` digits.
    """
    above, below = Decimal(value.numerator), Decimal(value.denominator)
    exact = above if below == 1 else Context(prec=EXACT).divide(above, below)
    if Fraction(exact) == value:
        return f"{exact:f}"
    near = Context(prec=digits).divide(above, below)
    return f"{above}/{below} ≈ {near}" if len(f"{above}{below}") <= EXACT else f"≈ {near}"


def _value(node: ast.expr, text: str) -> Fraction:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return _number(ast.get_source_segment(text, node) or "")
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub):
        value = _value(node.operand, text)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp):
        a, b = _value(node.left, text), _value(node.right, text)
        if isinstance(node.op, ast.Pow):
            return _power(a, b)
        if b == 0 and not isinstance(node.op, ast.Add | ast.Sub | ast.Mult):
            raise ZeroDivisionError("division by zero")
        return _sized(Fraction(_JOINED[type(node.op)](a, b)))
    raise ValueError(f"only {KNOWN} are known, not {ast.unparse(node)[:40]!r}")


def _number(text: str) -> Fraction:
    """Return a number exactly as written, since the parser's float is not exact."""
    exponent = text.lower().partition("e")[2] or "0"
    if abs(int(exponent)) > DIGITS:
        raise ValueError(f"the number {text[:40]} has more than about {DIGITS:,} digits")
    return _sized(Fraction(text))


def _power(a: Fraction, b: Fraction) -> Fraction:
    if b.denominator != 1:
        raise ValueError(f"an exponent must be a whole number, not {b}: a root is seldom exact")
    if a == 0 and b < 0:
        raise ZeroDivisionError("0 to a negative power")
    # Each factor adds at least this many bits to the power.
    bits = max(a.numerator.bit_length(), a.denominator.bit_length()) - 1
    if bits * abs(b) > LARGEST:
        raise ValueError(f"the power has more than about {DIGITS:,} digits")
    return _sized(a ** int(b))


def _sized(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > LARGEST:
        raise ValueError(f"a number here has more than about {DIGITS:,} digits")
    return value
