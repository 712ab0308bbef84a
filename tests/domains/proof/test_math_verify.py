"""The grader `math` on the cases of math-verify's own tests: where math-verify alone is right, so is it.

The cases are read from a clone of github.com/huggingface/Math-Verify, whose folder `MATH_VERIFY` names.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import tot_lab as tl

SET_HERE = {"strict", "allow_set_relation_comp", "precision"}
"""Settings of math-verify that tot_lab does not offer."""

WRONG = {(r"$1 - \frac{1}{\mathrm{e}}$", r"$1 + \frac{1}{\mathrm{e}}$")}
"""Cases whose published verdict is wrong."""


def cases(folder: Path) -> Iterator[tuple[str, str, bool]]:
    """The cases with math-verify's settings as they are: reference, answer, and whether it is right."""
    for path in sorted(folder.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and ast.unparse(node.func).endswith("parametrize")):
                continue
            names = [name.strip() for name in ast.literal_eval(node.args[0]).split(",")]
            if names[:2] != ["gold", "pred"] or SET_HERE & set(names):
                continue
            for row in node.args[1].elts if isinstance(node.args[1], ast.List) else ():
                try:
                    reference, answer, right, *_ = ast.literal_eval(row)
                except ValueError:  # it is computed
                    continue
                yield reference, answer, bool(right)


@pytest.mark.skipif("MATH_VERIFY" not in os.environ, reason="needs: a clone of Math-Verify")
def test_it_is_never_weaker_than_math_verify_on_its_published_cases():
    from math_verify import parse, verify

    weaker, seen = [], 0
    for reference, answer, right in cases(Path(os.environ["MATH_VERIFY"]) / "tests"):
        seen += 1
        grade = tl.general("q", answer=reference, grade="math").grade(answer)
        if grade != float(right) and verify(parse(reference), parse(answer)) == right:
            weaker.append((reference, answer))
    assert seen > 200
    assert set(weaker) <= WRONG
