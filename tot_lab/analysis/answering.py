"""The answer that another answer rule would have chosen in a recorded tree. No model is called."""

from __future__ import annotations

import hashlib

import msgspec

from tot_lab.core.parts import needs_functions
from tot_lab.core.records import Decided, Ended, Line, Note
from tot_lab.record.journal import encoder
from tot_lab.record.run import Run
from tot_lab.strategies.search import AnswerRule, TreeOfThoughts
from tot_lab.strategies.search.answers import candidates


def with_answer(run: Run, rule: AnswerRule) -> Run:
    """Return the run with the answer that `rule` chooses.

        voted = run.with_answer(tl.answers.MajorityVote())

    The new run has the records of `run`, with the new answer in place of the recorded one. `run` may be an
    imported run. The rule sees all thoughts that neither failed nor are duplicates. If the task is solved in
    free text and the search marked paths as finished, the rule sees only the last thoughts of these paths.

    Raises:
        LookupError: For a run without a task, or whose task needs a function that files do not contain.
    """
    if not isinstance(rule, AnswerRule):
        raise TypeError(f"rule must be an answer rule such as tl.answers.BestLeaf(): got {rule!r}.")
    task = run.task
    if task is None or needs_functions(task.domain):
        raise LookupError(
            f"Run {run.id} cannot get another answer: it has no task, or its task needs functions that files "
            f"do not hold. Pass task= to the importer, or the original run instead of a loaded one."
        )
    tree = run.tree
    sound = [node for node in list(tree)[1:] if node.state not in ("failed", "duplicate")]
    ends = [e.id for e in run.events if isinstance(e, Decided) and e.what == "complete"]
    nodes, leaves = candidates(sound, ends if task.domain.is_text else ())
    text, winner = rule.choose(task, tree, nodes, leaves)
    cut = [e.at for e in run.events if isinstance(e, Note) and e.name == "step.cut"]
    lines = [line for line in run.lines if not (isinstance(line.e, Ended) or _is_answer(line))]
    place, time = max((line.p[0] for line in lines if line.p), default=0) + 1, run.lines[-1].t
    id, score = (winner.id, winner.score) if winner is not None else (None, None)
    if id is not None:
        if run.answer_state in ("unfinished", "cut"):
            lines.append(Line((place,), time, Note("answer.unfinished", id, {"cut": id in cut})))
            place += 1
        lines.append(Line((place,), time, Decided(id, "answer", rule.kind)))
    ranked = tuple(leaf.id for leaf in leaves[: rule.top_k])
    lines.append(Line((place + 1,), time, Ended("answered", text, id, score, ranked)))
    settings = dict(run.header.strategy)
    if settings.get("kind") == TreeOfThoughts.kind:
        settings["answer"] = rule.settings()
    else:
        settings["name"] = f"{run.name}, {rule.kind}"
    header = msgspec.structs.replace(
        run.header,
        id=hashlib.sha256(encoder.encode((run.id, rule.settings()))).hexdigest()[:8],
        strategy=settings,
        counterfactual=(run.id,),
    )
    return Run(header, lines, loaded=run.loaded, task=task)


def _is_answer(line: Line) -> bool:
    event = line.e
    if isinstance(event, Note):
        return event.name == "answer.unfinished"
    return isinstance(event, Decided) and event.what == "answer"
