"""Runs with critiques."""

import tot_lab as tl
from support import Scripted, run


def tried(question, *critiques, end="solved"):
    """A finished run whose critic spoke in this order."""
    left = iter(critiques)
    model = Scripted(lambda call: next(left) if call.purpose == "critique" else "Answer: 1")
    strategy = tl.Reflexion(strategy=tl.ChainOfThought(), max_retries=len(critiques) - 1)
    made = run(strategy, tl.general(question), model=model)
    assert made.stop_reason == end
    return made
