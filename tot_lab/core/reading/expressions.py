r"""Keys that are equal for equal mathematical expressions, such as `x^2+1` and `1+x^2`.

An expression is parsed and evaluated with 400 digits, its symbols at three fixed points, and the key is made
of 300 digits of the values. Work is limited by counts and never by time, so that a text has the same key on
every machine. The module runs in a separate process (`tot_lab.core.processes.Worker`) and needs mpmath.
"""

from __future__ import annotations

import hashlib
import operator
import re
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

_PRECISION, _KEPT, _NOTHING = (
    1400,
    1000,
    1300,
)  # bits: of the computation, of the key, and by which a sum is smaller than its terms if it counts as 0
_TOKENS, _DEPTH = 400, 40
_POINTS = 3

_TOKEN = re.compile(
    r"(?P<base>\d[\dA-Z]{0,40}+(?:\.[\dA-Z]{1,40}+)?_(?:\{\d{1,2}\}|\d))|\\(?:text|begin|end)\{[^{}]*\}|\\[A-Za-z]+|\\."
    r"|\d+(?:\.\d+)?|\.\d+|<=|>=|!=|[A-Za-z]+|\S",
    re.ASCII | re.DOTALL,
)
_LETTERS = """
alpha beta gamma delta epsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau upsilon phi
chi psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega ell hbar
"""
_CALLED = "sin cos tan cot sec csc sinh cosh tanh arcsin arccos arctan asin acos atan ln log lg exp"
_GREEK, _FUNCTIONS = set(_LETTERS.split()), set(_CALLED.split())
_WORDS = {*_GREEK, *_FUNCTIONS, "sqrt", "pi", "infty", "cup", "in", "infinity", "oo", "inf"}
_SHORT_WORDS = {"yes", "no", "odd", "all", "any", "not", "one", "two", "six", "ten"}
_SPELLINGS = {
    "*": r"\times \cdot", "/": r"\div", "<": r"\lt", ">": r"\gt", r"\le": r"\leq <=", r"\ge": r"\geq >=",
    r"\ne": r"\neq !=", "%": r"\%", ",": ";", "|": r"\lvert \rvert \vert", ":": r"\colon", r"\{": r"\lbrace",
    r"\}": r"\rbrace", r"\infty": r"\infinity \oo \inf", r"\emptyset": r"\varnothing", r"\phi": r"\varphi",
    r"\epsilon": r"\varepsilon", r"\arcsin": r"\asin", r"\arccos": r"\acos", r"\arctan": r"\atan",
}  # fmt: skip
_USUAL = {spelling: usual for usual, spellings in _SPELLINGS.items() for spelling in spellings.split()}
_NAME = re.compile(r"(?:[A-Za-z]|\\[A-Za-z]+)(?:_(?:\w|\{\w+\}))?'?(?:\((?:[a-z],?)+\))?", re.ASCII)
_RELATIONS = {"=", "<", ">", r"\le", r"\ge", r"\ne", r"\approx", r"\in"}
_MIRRORED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}
_MARKS = r", ) ] } \} \cup % : + - \pm \mp * / | & \\ ^ ! _"
_ENDS = {None, *_RELATIONS, *_MARKS.split()}
"""Tokens that begin no factor."""

Number = tuple[Any, ...]  # a value for each point, or one value if no symbol occurs
mp: Any = import_module("mpmath").MPContext() if find_spec("mpmath") else None
if mp is not None:
    mp.prec = _PRECISION


class Unreadable(Exception):
    """Raised for a text that is no expression, has two readings, or is too large."""


class Shape(NamedTuple):
    """A value that is not a number: a set, a tuple, an interval, a relation."""

    kind: str
    parts: tuple[Any, ...]


class Named(NamedTuple):
    """A value that is assigned to a name: `x = 5`."""

    name: str
    value: Any


def answer(text: str) -> list[Any] | None:
    """Return the key of an expression, and its kind: `number`, `numbers`, `range` or another.

    `None` if it cannot be read.
    """
    try:
        reader = _Reader(text)
        value = reader.whole()
        key = _canonical(value)
    except (Unreadable, ArithmeticError, ValueError, TypeError, RecursionError):
        return None
    digest = hashlib.sha256(repr(key).encode()).hexdigest()[:32]
    return [f"math:{digest}", "range" if _MIRRORED.keys() & set(reader.tokens) else _kind(value)]


def _kind(value: Any) -> str:
    if isinstance(value, Shape):
        is_list = value.kind == "set" and all(_kind(part) == "number" for part in value.parts)
        return "numbers" if is_list else value.kind
    return "number" if len(value) == 1 else ""


# Numbers.


def _each(function: Callable[..., Any], *values: Any) -> Number:
    """Apply a function at every point."""
    if any(isinstance(value, Shape | Named) for value in values):
        raise Unreadable
    size = max(map(len, values))
    points = zip(*(value if len(value) == size else value * size for value in values), strict=True)
    return tuple(_tidy(function(*point)) for point in points)


def _tidy(value: Any) -> Any:
    """Drop a real or an imaginary part that is only rounding error."""
    if isinstance(value, mp.mpc):
        if not value.imag or mp.mag(value.imag) < mp.mag(value.real) - _NOTHING:
            return value.real
        if value.real and mp.mag(value.real) < mp.mag(value.imag) - _NOTHING:
            return mp.mpc(0, value.imag)
    return value


def _add(one: Any, other: Any) -> Any:
    total = one + other
    if mp.mag(total) < max(mp.mag(one), mp.mag(other)) - _NOTHING:
        return mp.mpf(0)
    return total


def _power(base: Any, exponent: Any) -> Any:
    if not base:
        if mp.im(exponent) or exponent <= 0:
            raise Unreadable
        return base
    if mp.isint(2 * exponent) and abs(exponent) < 10**6:
        return base ** int(exponent) if mp.isint(exponent) else mp.sqrt(base) ** int(2 * exponent)
    if not mp.im(exponent) and not mp.im(base) and base < 0:
        for odd in (3, 5, 7):  # the real root of a negative base
            times = mp.nint(_limited(exponent * odd))
            if mp.mag(exponent * odd - times) < -_NOTHING:
                return _exp(mp.log(-base) * exponent) * (-1) ** int(times)
    return _exp(exponent * mp.log(base))


def _exp(value: Any) -> Any:
    return mp.exp(_limited(value, 24))


def _limited(value: Any, bits: int = 64) -> Any:
    if mp.mag(value) > bits:
        raise Unreadable
    return value


def _factorial(value: Any) -> Any:
    return mp.factorial(_limited(value, 16))


def _binomial(above: Any, below: Any) -> Any:
    return mp.binomial(_limited(above, 16), _limited(below, 16))


def _symbol(name: str) -> Number:
    """Return fixed values for a name: a positive one, a negative one, and one with either sign."""
    values = []
    for point in range(_POINTS):
        digest = hashlib.sha256(f"{name} {point}".encode()).digest()
        value = mp.mpf(int.from_bytes(digest[1:9], "big")) / 2**63 + mp.mpf(1) / 3
        values.append(-value if point == 1 or (point == 2 and digest[0] % 2) else value)
    return tuple(values)


def _canonical(value: Any) -> Any:
    """Return a canonical form, of strings and tuples, that is equal for equal values."""
    if isinstance(value, str):
        return value
    if not value or any(isinstance(part, str | tuple) for part in value):
        return tuple(map(_canonical, value))
    points = [(_digits(mp.re(point)), _digits(mp.im(point))) for point in value]
    return ("number", *(points[:1] if len(set(points)) == 1 else points))


def _digits(value: Any) -> str:
    if not mp.isfinite(value):
        raise Unreadable
    sign, digits, exponent, _ = import_module("mpmath").libmp.mpf_pos(value._mpf_, _KEPT, "n")
    return f"{'-' if sign else ''}{int(digits):x}p{exponent}"


def _sorted(items: list[Any]) -> tuple[Any, ...]:
    return tuple(sorted(items, key=lambda item: repr(_canonical(item))))


def _collection(items: list[Any]) -> Any:
    """Return a list or a set of answers, whose order does not matter."""
    names = {item.name.partition("_")[0] for item in items if isinstance(item, Named)}
    if len(names) <= 1:
        items = [item.value if isinstance(item, Named) else item for item in items]
    flat: list[Any] = []
    for item in items:
        flat += item.parts if isinstance(item, Shape) and item.kind == "set" else [item]
    return flat[0] if len(flat) == 1 else Shape("set", _sorted(flat))


# The parser.


class _Reader:
    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        for match in _TOKEN.finditer(text):
            self.tokens += [match[0]] if match["base"] else _split(match[0])
            if len(self.tokens) > _TOKENS:
                raise Unreadable
        self.at = 0
        self.depth = 0
        self.sign = 1
        self.has_sign = False  # whether the element contains `\pm` or `\mp`
        self.in_function = 0

    def peek(self) -> str | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def take(self) -> str:
        token = self.peek()
        if token is None:
            raise Unreadable
        self.at += 1
        return token

    def accept(self, *tokens: str) -> str | None:
        token = self.peek()
        if token in tokens:
            self.at += 1
            return token
        return None

    def whole(self) -> Any:
        items = self.items(self.element)
        if self.peek() is not None:
            raise Unreadable
        return _collection(items)

    def items(self, read: Callable[[], Any]) -> list[Any]:
        self.depth += 1
        if self.depth > _DEPTH:
            raise Unreadable
        items = [read()]
        while self.accept(","):
            items.append(read())
        self.depth -= 1
        return items

    def element(self) -> Any:
        """Read one element of a list; `1 \\pm 2` states two."""
        start, before = self.at, (self.sign, self.has_sign)
        self.sign, self.has_sign = 1, False
        values = [self.relation()]
        if self.has_sign:
            self.at, self.sign = start, -1
            values.append(self.relation())
        self.sign, self.has_sign = before
        return _collection(values) if len(values) > 1 else values[0]

    def relation(self) -> Any:
        sides: list[Any] = [self.name() or self.side()]  # a lone name stays a text
        signs: list[str] = []
        while sign := self.accept(*_RELATIONS):
            signs.append(sign)
            start = self.at
            value = self.side()
            text = "".join(self.tokens[start : self.at])
            sides.append(text if _is_name(text) else value)
        if "\\approx" in signs:  # `x = 1/3 \\approx 0.333` states 1/3
            exact = signs.index("\\approx")
            if exact > 0 or not isinstance(sides[0], str):
                signs, sides = signs[:exact], sides[: exact + 1]
            signs = ["=" if sign == "\\approx" else sign for sign in signs]
        values = [_symbol(side) if isinstance(side, str) else side for side in sides]
        if not signs:
            return values[0]
        if isinstance(sides[0], str) and (signs == ["\\in"] or set(signs) == {"="}):
            return Named(sides[0], values[-1])
        if signs in (["="], ["\\ne"]):
            return Shape(signs[0], _ratios(_each(_add, values[0], _negative(values[1]))))
        if signs[0] in (">", "\\ge"):
            signs = [_MIRRORED.get(sign, sign) for sign in reversed(signs)]
            sides, values = sides[::-1], values[::-1]
        return self.inequality(signs, values, [isinstance(side, str) for side in sides])

    def name(self) -> str | None:
        """Read a lone name, or a tuple of names, before a relation."""
        end = self.at
        while end < len(self.tokens) and end - self.at < 16 and self.tokens[end] not in _RELATIONS:
            end += 1
        if end == len(self.tokens) or self.tokens[end] not in _RELATIONS:
            return None
        text = "".join(self.tokens[self.at : end])
        names = text[1:-1].split(",") if text[:1] == "(" and text[-1:] == ")" else [text]
        if not all(map(_is_name, names)):
            return None
        self.at = end
        return text

    def inequality(self, signs: list[str], values: list[Any], are_names: list[bool]) -> Any:
        endless = _symbol("\\infty")
        if not set(signs) <= {"<", "\\le"}:
            raise Unreadable
        if are_names == [True, False]:
            signs, values = ["<", *signs], [_negative(endless), *values]
        elif are_names == [False, True]:
            signs, values = [*signs, "<"], [*values, endless]
        elif len(signs) == 1:
            difference = _each(_add, values[1], _negative(values[0]))
            if mp.im(difference[0]):
                raise Unreadable
            return Shape(signs[0], (str(mp.sign(difference[0])), *_ratios(difference)))
        elif len(signs) > 2 or not are_names[1]:
            raise Unreadable
        ends = ("(" if signs[0] == "<" else "[", ")" if signs[1] == "<" else "]")
        return Shape(ends[0], (values[0], values[2], ends[1]))

    def side(self) -> Any:
        parts = [self.sum()]
        while self.accept("\\cup"):
            parts.append(self.sum())
        if len(parts) > 1:
            return _collection(parts)  # `x < 1 or x > 2` is the list of its parts
        while self.accept(":"):
            parts.append(self.sum())
        if len(parts) > 1:
            return Shape("ratio", tuple(parts))
        if self.accept("%"):
            return Shape("%", (parts[0],))
        return parts[0]

    def sum(self) -> Any:
        if self.depth > _DEPTH:
            raise Unreadable
        self.depth += 1
        sign = self.accept("+", "-", "\\pm", "\\mp")
        value = self.signed(sign, self.term())
        while sign := self.accept("+", "-", "\\pm", "\\mp"):
            value = _each(_add, value, self.signed(sign, self.term()))
        self.depth -= 1
        return value

    def sum_before(self, closing: str) -> Any:
        value = self.sum()
        if self.take() != closing:
            raise Unreadable
        return value

    def signed(self, sign: str | None, value: Any) -> Any:
        if sign in ("\\pm", "\\mp"):
            self.has_sign = True
            sign = "-" if (self.sign < 0) == (sign == "\\pm") else "+"
        return _negative(value) if sign == "-" else value

    def term(self) -> Any:
        value = self.factor()
        while True:
            if self.accept("*"):
                value = _each(operator.mul, value, self.factor())
            elif self.accept("/"):
                value = _each(operator.truediv, value, self.factor())
            elif self.begins_factor():
                if _is_number(self.peek()) and self.tokens[self.at - 1] not in (")", "}"):
                    raise Unreadable  # such as `2 3`
                value = _each(operator.mul, value, self.factor())
            else:
                return value

    def begins_factor(self) -> bool:
        token = self.peek()
        return token not in _ENDS and not str(token).startswith(("\\text{", "\\end"))

    def factor(self) -> Any:
        self.depth += 1
        if self.depth > _DEPTH:
            raise Unreadable
        if sign := self.accept("-", "+"):
            value = self.factor()
            value = _negative(value) if sign == "-" else value
        else:
            value = self.base()
            while mark := self.accept("^", "!"):
                value = _each(_factorial, value) if mark == "!" else self.raised(value)
        self.depth -= 1
        return value

    def raised(self, value: Any) -> Any:
        rest = self.tokens[self.at : self.at + 3]
        size = 1 if rest[:1] == ["\\circ"] else 3 if rest == ["{", "\\circ", "}"] else 0
        if size:
            self.at += size
            return _each(operator.mul, value, (mp.pi / 180,)) if self.in_function else value
        return _each(_power, value, self.factor())

    def base(self) -> Any:
        token = self.take()
        if token in ("(", "[", "{", "\\{"):
            return self.bracket(token)
        if token == "|":
            return _each(abs, self.sum_before("|"))
        if _is_number(token):
            return (mp.mpf(token),)
        if "_" in token and token[0].isdigit():
            digits, base = token.replace("{", "").replace("}", "").split("_")
            return _symbol(f"{digits.strip('0') if '.' in digits else digits.lstrip('0')}_{base}")
        if token == "\\frac":
            return _each(operator.truediv, self.argument(), self.argument())
        if token == "\\binom":
            return _each(_binomial, self.argument(), self.argument())
        if token == "\\sqrt":
            return self.root()
        if token.startswith("\\begin{"):
            return self.matrix(token)
        if token[1:] in _FUNCTIONS and token[0] == "\\":
            return self.function(token)
        constant = {"e": lambda: +mp.e, "i": lambda: mp.mpc(0, 1), "\\pi": lambda: +mp.pi}.get(token)
        if constant is not None:
            return (constant(),)
        if token == "\\infty" or token.isalpha() or token[1:] in _GREEK:
            name = token
            if self.accept("_"):
                name += "_" + "".join(self.group())
            while self.accept("'"):
                name += "'"
            if token in ("f", "g", "h") and self.peek() == "(":
                raise Unreadable  # could be a function or a product
            return _symbol(name)
        raise Unreadable

    def group(self) -> list[str]:
        """Return the tokens of a subscript."""
        if not self.accept("{"):
            return [self.take()]
        found = []
        while (token := self.take()) != "}":
            found.append(token)
        return found

    def argument(self) -> Any:
        """Read `{…}`, or one digit or letter."""
        token = self.peek()
        if token is not None and _is_number(token) and len(token) > 1:
            self.tokens[self.at : self.at + 1] = [token[0], token[1:]]
        return self.bracket("{") if self.accept("{") else self.base()

    def bracket(self, opening: str) -> Any:
        items = self.items(self.element if opening == "\\{" else self.relation)
        closing = self.take()
        if opening == "\\{" and closing == "\\}":
            return _collection(items) if len(items) > 1 else Shape("set", tuple(items))
        if opening == "{" and closing == "}":
            return items[0] if len(items) == 1 else _collection(items)
        if opening not in ("(", "[") or closing not in (")", "]"):
            raise Unreadable
        if len(items) == 1:
            if (opening, closing) in (("(", "]"), ("[", ")")) or isinstance(items[0], Named):
                raise Unreadable
            return items[0]
        if opening == "[" and all(isinstance(item, Shape) and item.kind == "[" for item in items):
            return Shape("matrix", tuple(Shape("row", item.parts[:-1]) for item in items))
        return Shape(opening, (*items, closing))

    def matrix(self, begin: str) -> Any:
        if begin.endswith("array}") and self.accept("{"):
            while self.take() != "}":
                pass
        rows: list[list[Any]] = [[]]
        end = "\\end" + begin[6:]
        while not self.accept(end):
            if self.accept("\\\\"):
                rows.append([])
            elif not self.accept("&"):
                rows[-1].append(self.sum())
        return Shape("matrix", tuple(Shape("row", tuple(row)) for row in rows if row))

    def root(self) -> Any:
        degree: Any = (mp.mpf(2),)
        if self.accept("["):
            degree = self.sum_before("]")
        value = self.bracket("(") if self.accept("(") else self.argument()
        return _each(_power, value, _each(operator.truediv, (mp.mpf(1),), degree))

    def function(self, token: str) -> Any:
        name, power, base = token[1:], None, None
        while mark := self.accept("^", "_"):
            if mark == "^":
                power = self.argument()
                if any(mp.im(value) or value < 0 for value in power):
                    raise Unreadable  # could be an inverse function or a reciprocal
            else:
                base = self.argument()
        self.in_function += 1
        value = self.function_argument()
        self.in_function -= 1
        found = self.applied(name, value, base)
        return found if power is None else _each(_power, found, power)

    def function_argument(self) -> Any:
        for opening in ("(", "{"):
            if self.accept(opening):
                return self.bracket(opening)
        value = self.factor()
        while self.begins_factor() and self.peek() not in ("(", *(f"\\{name}" for name in _FUNCTIONS)):
            value = _each(operator.mul, value, self.factor())
        if self.peek() == "/":
            raise Unreadable  # such as `\sin x/2`, which has two readings
        return value

    def applied(self, name: str, value: Any, base: Any) -> Any:
        if name in ("ln", "log", "lg"):
            found = _each(mp.log, value)
            if name == "log" and base is None:
                return _each(operator.mul, found, _symbol("\\log"))  # base 10 or e, hence an unknown factor
            base = (mp.mpf(10),) if name == "lg" else base
            return found if base is None else _each(operator.truediv, found, _each(mp.log, base))
        own = {"arcsin": "asin", "arccos": "acos", "arctan": "atan"}.get(name, name)
        bits = 20 if own.endswith(("h", "exp")) else 64
        return _each(lambda point: getattr(mp, own)(_limited(point, bits)), value)


def _split(token: str) -> list[str]:
    """Split a run of letters into tokens. Any other token is returned in its usual spelling."""
    if not token.isalpha():
        return [_USUAL.get(token, token)]
    if token in _WORDS:
        return [_USUAL.get(f"\\{token}", f"\\{token}")]
    if len(token) > 1 and (len(token) > 3 or not token.islower() or token in _SHORT_WORDS):
        raise Unreadable
    return list(token)


def _is_number(token: str | None) -> bool:
    return token is not None and token.isascii() and token.replace(".", "", 1).isdigit()


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None and text not in ("e", "i", "\\pi", "\\infty")


def _negative(value: Any) -> Number:
    return _each(operator.neg, value)


def _ratios(difference: Number) -> tuple[Any, ...]:
    """Return the ratio of each later value to the first one. Multiplying both sides of an equation by
    a number does not change the ratios.
    """
    if len(difference) == 1:
        raise Unreadable
    return tuple((_tidy(value / difference[0]),) for value in difference[1:])
