"""Answers that satisfy some rules of a task and violate others: its reference after random edits.

An edit is kept if no fewer rules have the wanted outcome after it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import eq
from random import Random

from tot_lab.domains.constrained.constraints import Rule, check_rules

_EDITS = 600  # number of edits tried per answer
_RESTART = 100  # number of edits after which the search restarts from the reference
_BETWEEN = (" ", " ", " ", ", ", ". ", "? ", "\n")


def damaged(reference: str, rules: tuple[Rule, ...], wanted: Sequence[bool], random: Random) -> str:
    """Return an answer that satisfies the `wanted` rules and violates the others, as far as possible.

    Args:
        reference: An answer that satisfies all rules.
        rules: At least one rule, all of one family.
        wanted: Whether to satisfy each rule.
        random: The source of randomness.
    """
    given = (text for rule in rules for text in rule.given.values())
    words = re.findall(r"\w+", " ".join([reference, *given]))
    whole = re.split(r"(\W+)", reference)
    best, most, parts, here = whole, -1, whole, -1
    for k in range(_EDITS):
        other = _edited(parts, words, random) if k % _RESTART else whole
        matches = sum(map(eq, check_rules(rules, "".join(other)), wanted))
        if matches >= here or k % _RESTART == 0:
            parts, here = other, matches
        if matches > most:
            best, most = other, matches
        if most == len(rules):
            break
    return "".join(best)


def _edited(parts: Sequence[str], words: Sequence[str], random: Random) -> list[str]:
    """Return words and what is between them, in turn, after one edit."""
    new = list(parts)
    at, to = (random.randrange(0, len(new), 2) for _ in range(2))
    edit = random.randrange(7)
    if edit < 3:
        new[at], new[to] = new[to], new[at]
    elif edit == 3:
        new[at] = random.choice(words)
    elif edit == 4:
        for _ in range(random.choice((1, 1, 2, 5))):
            new[at + 1 : at + 1] = random.choice(_BETWEEN), random.choice(words)
    elif edit == 5:
        del new[at : at + 2 * random.randint(1, 4)]
    elif at + 1 < len(new):
        new[at + 1] = random.choice(_BETWEEN)
    return new or [""]
