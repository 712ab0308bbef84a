"""What the readers take from replies of `support.reply_grammar`, and a report of what they misread."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from support.reply_grammar import Case
from tot_lab.core.reading.choices import stated_choice
from tot_lab.core.reading.scores import read_score, read_scores
from tot_lab.core.reading.votes import read_choice

__all__ = ["assert_read_as_meant"]


def choice(case: Case) -> str | None:
    return stated_choice(case.reply, case.setting)


def vote(case: Case) -> int | None:
    best = read_choice(case.reply, case.setting)
    return None if best is None else best + 1


def joint(case: Case) -> dict[str, float | None] | None:
    scores = read_scores(case.reply, case.setting)
    return None if all(score is None for score in scores) else dict(zip(case.setting, scores, strict=True))


def score(case: Case) -> float | None:
    return read_score(case.reply)


READERS: dict[str, Callable[[Case], Any]] = {"choice": choice, "vote": vote, "joint": joint, "score": score}


def rounded(reading: Any) -> Any:
    """The reading with numbers that do not differ by a rounding error."""
    if isinstance(reading, dict):
        return {name: rounded(value) for name, value in reading.items()}
    return round(reading, 9) if isinstance(reading, float) else reading


def assert_read_as_meant(cases: Iterable[Case]) -> None:
    """Read every reply and compare with what it means.

    Raises:
        AssertionError: If a reply is misread. The message counts misreadings and all replies for each
            production, those that fail most often first, and shows ten misreadings.
    """
    seen: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    misread = []
    for case in cases:
        seen.update(set(case.productions))
        reading = rounded(READERS[case.kind](case))
        if reading != rounded(case.expected):
            failed.update(set(case.productions))
            misread.append((case, reading))
    shares = sorted(failed, key=lambda name: (-failed[name] / seen[name], -failed[name]))
    assert not misread, "\n".join(
        [
            f"{len(misread)} replies are misread, "
            f"{sum(reading is not None for _, reading in misread)} of them as something else.",
            *(f"{failed[name]:6} of {seen[name]:6}  {name}" for name in shares[:40]),
            *(
                f"\n{case.kind} {case.setting!r}\n{case.reply}\n"
                f"means {case.expected!r}, is read as {reading!r}  [{'; '.join(case.productions)}]"
                for case, reading in misread[:10]
            ),
        ]
    )
