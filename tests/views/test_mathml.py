"""Formulas in texts: what is one, what it becomes, and that hostile ones are inert."""

from __future__ import annotations

import time

import pytest

from tot_lab.views.markdown import text_to_html
from tot_lab.views.mathml import formulas_of, to_mathml


@pytest.mark.parametrize(
    ("text", "formulas"),
    [
        (r"so $\frac{a}{b}$ and \(x^2\)", [r"$\frac{a}{b}$", r"\(x^2\)"]),
        ("\\[\na\n+ b\n\\]", ["\\[\na\n+ b\n\\]"]),
        (r"\begin{align}a&=b\end{align}", [r"\begin{align}a&=b\end{align}"]),
        ("It costs $5 and $10, or $3-$4.", []),
        (r"\$x\$ and $ y $", []),
        (r"$\unknown{3}$ and $\frac{1}$ and $a & b$", []),
        ("$" + "x" * 3000 + "$", []),
        ("$a\n\nb$ $$a\n\nb$$", []),
    ],
)
def test_formulas_are_found_and_money_is_not_one(text, formulas):
    assert list(formulas_of([text])) == formulas


def test_a_formula_keeps_its_structure():
    made = to_mathml(formulas_of([r"$\frac{a}{b^2} < \boxed{\sqrt[3]{\alpha_i}}$"]).popitem()[1])
    for part in ("<mfrac>", "<msup><mi>b</mi><mn>2</mn></msup>", "&lt;", 'notation="box"', "<mroot>", "α"):
        assert part in made
    rows = to_mathml(formulas_of([r"\[\begin{aligned}a&=1\\b&=2\end{aligned}\]"]).popitem()[1])
    assert rows.count("<mtr>") == 2
    assert "&amp;</mi>" not in rows


@pytest.mark.parametrize("mathml", [True, False])
@pytest.mark.parametrize(
    "hostile",
    [
        r"$\href{javascript:alert(1)}{x}$",
        r"$\text{<script>alert(1)</script>}$",
        r"$\color{red;background:url(http://x)}x$",
        r"$\text{<img src=x onerror=alert(1)>}$",
        r"\[\class{x}{y}\require{html}\]",
        r"$\def\frac{x}$",
    ],
)
def test_hostile_formulas_are_inert(hostile, mathml):
    made = text_to_html(hostile, mathml=mathml)
    assert not any(sign in made for sign in ("<script", "<img", "href=", "style="))
    if not mathml:  # the notebook's renderer gets no link, class or definition
        assert "<code>" in made or "\\text" in hostile or "\\color" in hostile


@pytest.mark.parametrize("sign", ["$", "$$", r"\(", r"\[", "$a", r"\begin{align}", r"$\frac{", "$x^"])
def test_searching_takes_linear_time(sign):
    start = time.perf_counter()
    formulas_of([(sign * 200_000)[:200_000]])
    assert time.perf_counter() - start < 2


def test_what_models_write_is_kept():
    assert "2*3*4 = 24" in text_to_html("2*3*4 = 24")
    assert '<li value="9">' in text_to_html("4. six\n9. seven")
    assert "<em>very</em>" in text_to_html("*very* good")
    assert "<table>" in text_to_html("|a|b|\n|-|-|\n|1|2|")
    assert "<span>$</span>5" in text_to_html("costs $5")
