"""The held-out problems of the small models as tasks."""

from __future__ import annotations

from random import Random

from tot_lab.core.parts import class_of
from tot_lab.core.task import Domain, Task
from tot_lab.models.tiny.problems import held_out, held_out_hands, reaches


def held_out_tasks(domain: str) -> list[Task]:
    """Return the solvable problems that `tiny/numbers` was not trained on, shuffled in a fixed order.

    Args:
        domain: `game24` for the 271 hands of the Game of 24, `gym/countdown` for 300 problems of Countdown.
    """
    if domain not in ("game24", "gym/countdown"):
        raise ValueError(f"domain must be 'game24' or 'gym/countdown': got {domain!r}.")
    if domain == "game24":
        hands = [" ".join(map(str, hand)) for hand in held_out_hands(True) if reaches(hand, 24)]
        problems = dict(zip(hands, hands, strict=True))
    else:
        problems = {
            f"{target} of {' '.join(map(str, numbers))}": (
                f"Using all the numbers {', '.join(map(str, numbers))}, create an expression that equals "
                f"{target}.\nYou can only use each number once."
            )
            for target, *numbers in held_out()["countdown"]
        }
    shuffled = Random(0).sample([*problems.items()], len(problems))
    return [Task(domain=class_of(domain, Domain)(), question=text, id=id) for id, text in shuffled]
