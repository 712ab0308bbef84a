"""The calculator: exact, and no text makes it crash or hang."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.errands import result

import tot_lab as tl
from tot_lab.tools.calculator import shown, value_of


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("0.1 + 0.2", "0.3"),
        ("1/3 + 0.1", "13/30 ≈ 0.433333333333"),
        ("8 / (3 - 8/3)", "24"),
        ("(3 + 1/2) × 4^2", "56"),
        ("-2^2", "-4"),
        ("2^-2", "0.25"),
        ("2^3^2", "512"),
        ("7 // 2 + 7 % 4", "6"),
        ("1.5e3", "1500"),
        ("2**100", str(2**100)),
        ("10^50 / 3", "≈ 3.33333333333E+49"),
        ("0^0", "1"),
        ("1^99999999 + (-1)^20001 + 0^20000", "0"),
        ("2^9999 - 2^9999 + 2^5001 // 2^5000", "2"),
    ],
)
def test_the_calculator_is_exact(expression, value):
    assert result(tl.tools.Calculator(), {"expression": expression}) == value


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("1/0", "ZeroDivisionError: division by zero"),
        ("0^-1", "ZeroDivisionError: 0 to a negative power"),
        ("2^0.5", "ValueError: an exponent must be a whole number, not 1/2: a root is seldom exact"),
        ("9^9^9^9", "ValueError: the power has more than about 3,000 digits"),
        ("1e99999999999", "ValueError: the number 1e99999999999 has more than about 3,000 digits"),
        ("__import__('os')", 'ValueError: only numbers, + - * / // % ^ and parentheses are known, not "__'),
        ("2(3)", "ValueError: only numbers, + - * / // % ^ and parentheses are known, not '2(3)'"),
        ("(" * 999, "ValueError: this is no arithmetic expression: ((("),
        ("1" * 1001, "ValueError: the expression has 1,001 characters; 1,000 are the most"),
        ("", "ValueError: this is no arithmetic expression: "),
    ],
)
def test_the_calculator_says_what_it_cannot_do(expression, why):
    assert result(tl.tools.Calculator(), {"expression": expression}).startswith(f"✗ {why}")


@pytest.mark.slow
@settings(max_examples=300, deadline=2_000)
@given(st.text(alphabet="0123456789.eE+-*/%^() ", max_size=40) | st.text(max_size=20))
def test_no_text_makes_the_calculator_crash_or_hang(text):
    try:
        value = value_of(text)
    except (ValueError, ZeroDivisionError):
        return
    assert shown(value, 12)
