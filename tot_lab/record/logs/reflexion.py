"""Importer of the programming logs of Reflexion and LATS: JSON Lines, one task per line.

A node is an implementation, and its score the fraction of the tests that it passes according to
`test_feedback`. In logs of Reflexion each implementation follows from the one before it and a reflection.
Logs of LATS hold only the first and the best implementation. Their last test results are those of the last
implementation that was tried, so the best one has no score. `is_solved` grades the run. The logs have no
prompts, times or tokens, and lack some calls. A log of LATS does not say how a task ended if the first
implementation solved it: the run then has no end.

References:
    Shinn et al. 2023, github.com/noahshinn/reflexion; Zhou et al. 2023,
    github.com/lapisrocks/LanguageAgentTreeSearch.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec

from tot_lab.core.bulk import gc_paused
from tot_lab.core.calls import Reply
from tot_lab.record.journal import JournalError
from tot_lab.record.logs.common import ROOT, decoded, imported_run, lines
from tot_lab.record.nodes import LoggedCall, LoggedEnd, LoggedNode
from tot_lab.record.run import Run

_SEARCHED = "MCTS reflections"
"""The text that LATS writes after its reflections."""


class _Item(msgspec.Struct, omit_defaults=True):
    prompt: str
    name: str = ""
    task_id: str | int = ""
    entry_point: str = ""
    test: str | list[Any] = ""
    language: str = ""
    solution: str | None = None
    is_solved: bool | None = None
    reflections: list[str] | None = None
    implementations: list[str] | None = None
    test_feedback: list[str] | None = None
    acc: float | None = None


class ReflexionLog:
    """Importer of the programming logs of Reflexion and LATS."""

    expects = "a first line with prompt, and with entry_point, implementations, test_feedback or is_solved"

    @staticmethod
    def recognises(head: bytes) -> bool:
        """Whether a file that begins with `head` is such a log."""
        names = (b'"implementations"', b'"test_feedback"', b'"is_solved"', b'"entry_point"')
        return head.startswith(b"{") and b'"prompt"' in head and any(name in head for name in names)

    @staticmethod
    @gc_paused()
    def read(path: str | os.PathLike[str]) -> list[Run]:
        """Return the run of each line."""
        return [_run(decoded(line, _Item, place), place) for place, line in lines(path)]


def _run(item: _Item, place: str) -> Run:
    implementations, feedback = item.implementations or [], item.test_feedback or []
    if item.solution is None and item.is_solved is None and not implementations and item.acc is None:
        raise JournalError(f"{place}: a task without a result: field 'is_solved' is missing.")
    if feedback and len(feedback) != len(implementations):
        raise JournalError(
            f"{place}: field 'test_feedback' must have an entry for each implementation: got {len(feedback)} "
            f"for {len(implementations)}."
        )
    reflections = item.reflections or []
    searched = reflections[-1:] == [_SEARCHED]
    chained = searched or len(reflections) == len(implementations) - 1
    nodes = [LoggedNode(ROOT, None, item.prompt)]
    for k, text in enumerate(implementations):
        tested = k < len(feedback) and not (searched and k == len(implementations) - 1)
        calls = [LoggedCall((), Reply(text), "answer")]
        if chained and not searched and k < len(reflections):
            calls.append(LoggedCall((), Reply(reflections[k]), "reflect"))
        parent = str(k - 1) if chained and k else ROOT
        score = _share(feedback[k]) if tested else None
        nodes.append(LoggedNode(str(k), parent, text, score, calls=calls))
    solution = item.solution
    if solution is not None and solution not in implementations:
        nodes.append(
            LoggedNode("solution", ROOT, solution, calls=[LoggedCall((), Reply(solution), "answer")])
        )
    held = [node.id for node in nodes[1:] if node.text == solution]
    own = item.name or str(item.task_id)
    about: Mapping[str, Any] = {
        "entry_point": item.entry_point,
        "language": item.language,
        "test": item.test,
        "test_feedback": feedback,
        "reflections": reflections if searched or not chained else [],
    }
    return imported_run(
        nodes,
        name="LATS" if searched or item.acc is not None else "Reflexion",
        question=item.prompt,
        place=place,
        end=LoggedEnd(solution, held[-1:], complete=False),
        grade=None if item.is_solved is None else float(item.is_solved),
        id=own,
        data={name: value for name, value in about.items() if value},
    )


def _share(feedback: str) -> float | None:
    """Return the fraction of tests that passed. `None` if the feedback does not list them."""
    head, starts, listed = feedback.partition("Tested passed:")
    passed, goes_on, failed = listed.partition("Tests failed:")
    if head.strip() or not starts or not goes_on:
        return None
    right, wrong = _tests(passed), _tests(failed)
    return right / (right + wrong) if right + wrong else None


def _tests(listed: str) -> int:
    if listed.isspace():
        return 0
    return listed.count("\nassert") or len(list(filter(str.strip, listed.splitlines())))
