"""The replies of the shared folder beside the project, with what a careful reader takes from them."""

import json
from pathlib import Path

import pytest

REPLIES = Path(__file__).parents[3] / "shared" / "cases" / "replies.jsonl"


def shared_cases():
    """The cases as parameters of a test, which is skipped without them."""
    if not REPLIES.exists():
        return [pytest.param(None, marks=pytest.mark.skip(f"needs {REPLIES}"), id="absent")]
    cases = map(json.loads, REPLIES.read_text(encoding="utf-8").splitlines())
    return [pytest.param(case, id=f"{case['kind']}-{case['reply']}"[:40]) for case in cases]
