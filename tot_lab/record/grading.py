"""Grading of runs whose task came from a file.

A pattern from a file is matched in another process, which is killed after a time limit. A pattern of ten
characters can keep Python's `re` busy for years, and a thread cannot be stopped.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

from tot_lab.core.domain import Ungraded

LIMIT = 5.0
"""Seconds after which the matching is stopped."""

_MATCHING = """
import json, re, sys
pattern, texts = json.load(sys.stdin)
search = re.compile(pattern).search
json.dump([search(text) is not None for text in texts], sys.stdout)
"""


def found_in(pattern: str, texts: Sequence[str]) -> list[bool]:
    """Which of `texts` hold a match of `pattern`. Raises `Ungraded` when that takes longer than `LIMIT`, or
    when `pattern` is not valid."""
    if not texts:
        return []
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _MATCHING],
            input=json.dumps([pattern, list(texts)]),
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=True,
        )
        found: list[bool] = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        raise Ungraded(f"the pattern {pattern[:60]!r} took longer than {LIMIT:g} s and was stopped") from None
    except subprocess.CalledProcessError as error:
        why = error.stderr.strip().rpartition("\n")[2]
        raise Ungraded(f"the pattern {pattern[:60]!r} cannot be matched: {why[:200]}") from None
    return found
