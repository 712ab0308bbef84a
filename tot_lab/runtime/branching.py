"""Branches that `lab.branch` makes: what may be changed, and which calls the parent's record answers.

The header of a branch names its parent and the change. A call that the parent's record answers costs nothing.
A change that cannot take effect, such as a text that is not a valid step or a new score for a thought without
a score, raises an error before any call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tot_lab.core.calls import Call, CallObserver, Reply, readable, refused
from tot_lab.core.parts import needs_functions
from tot_lab.core.records import Decided, Line, Scored, Thought
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Task
from tot_lab.record.edits import Branched
from tot_lab.record.journal import Header, encoder
from tot_lab.record.run import Run, load
from tot_lab.strategies.continued import Continued

Ask = Callable[[Call, CallObserver], Awaitable[Reply]]


def source_of(run: Run, node: str, strategy: Strategy | None) -> tuple[Strategy, Task]:
    """Return the strategy and the task of a branch of `run` at `node`.

    Args:
        run: The parent.
        node: The thought to change.
        strategy: The strategy that continues from the thought. `None` means the strategy of `run`.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If the run has not ended or has no such thought, or if `strategy` would have to continue a
            complete path.
        LookupError: If the run was not made by a strategy, or was made with functions that its file does not
            hold.
    """
    if not isinstance(run, Run):
        raise TypeError(f"run must be a Run, such as lab.last: got {run!r}.")
    if strategy is not None and not isinstance(strategy, Strategy):
        raise TypeError(f"strategy must be a Strategy such as tl.TreeOfThoughts(): got {strategy!r}.")
    if run.strategy is None or run.task is None:
        raise LookupError("This run cannot be branched, since it was not made by a strategy of tot_lab.")
    if run.stop_reason is None:
        raise ValueError("This run has not ended. Finish it with lab.resume(path) first.")
    if node not in run.tree:
        hint = "" if isinstance(node, str) else f" Ids are strings, such as {str(node)!r}."
        raise ValueError(f"node must be a thought of this run: got {node!r}.{hint}")
    missing = [
        *needs_functions(run.task.domain),
        *(needs_functions(run.strategy) if strategy is None else ()),
    ]
    if missing:
        raise LookupError(
            f"This run was made with functions that a file does not hold: {', '.join(missing)}. Branch it in "
            f"the session that made it."
        )
    if strategy is None:
        return run.strategy, run.task
    if run.task.domain.complete(run.task, run.steps(node)):
        raise ValueError(f"The path to thought {node} is complete, so no strategy can continue it.")
    return Continued(strategy=strategy, record=_path(run, node)), run.task


def describe_change(
    run: Run, node: str, content: str | None, score: float | None, strategy: Strategy | None
) -> dict[str, Any]:
    """Return the parent, the thought and the change of a branch, for its header. Raises `ValueError` if the
    change is not possible.
    """
    changed: dict[str, Any] = {}
    if strategy is not None:
        changed["strategy"] = strategy.settings()
    elif run.tree[node].text == run.question:
        raise ValueError(f"Thought {node} is the question and cannot be changed. Make another task instead.")
    elif content is not None:
        changed["content"] = _text(run, node, content)
    elif isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
        raise ValueError(f"score must be a number between 0 and 1: got {score!r}.")
    elif not any(isinstance(event, Scored) and event.id == node for event in run.events):
        raise ValueError(f"Thought {node} has no score in this run that could be replaced.")
    else:
        changed["score"] = float(score)
    if run.path is not None:
        changed["file"] = run.path.name
    if run.header.branched:
        changed["before"] = run.header.branched
    return {"run": run.id, "node": node, **changed}


def doubts_of(run: Run, made: Run) -> Iterator[str]:
    """Yield a warning for each sign that `made` is not the requested branch of `run`.

    The search may have ended before it reached the thought, or its strategy may have ignored the new value.
    """
    branched = Branched.of(made.header.branched)
    assert branched is not None
    node, old, new = branched.node, run.tree[branched.node], branched.content
    if node not in made.tree:
        yield f"The search ended ({made.stop_reason}) before it reached thought {node}: nothing was changed."
    elif new not in (None, old.text):
        before = {_which(call): call for call in run.events if isinstance(call, Call) and call.node == node}
        same = [call for call in made.events if isinstance(call, Call) and before.get(_which(call)) == call]
        if any(old.text in call.prompt and str(new) not in call.prompt for call in same):
            yield _CHANGE_IGNORED.format(node, "text")
    answered = made.score if made.best is made.tree.nodes.get(node) else None
    if branched.score is not None and answered not in (None, branched.score):
        yield _CHANGE_IGNORED.format(node, "score")


_CHANGE_IGNORED = (
    "Thought {}: the strategy continued with the old {}. It must use the event that is sent back to it, "
    "as in `thought = yield from emit(Thought(…))`."
)


def parent_of(path: Path, header: Header, given: Run | None) -> Run | None:
    """Return the parent of the branch in the journal `path`, if the parent's record may answer calls.

    Args:
        path: The journal of the branch.
        header: Its header.
        given: The parent, if it was passed. `None` loads its file, which must be next to `path`.

    Returns:
        The parent, or `None` if the run is not a branch whose calls its parent's record answers.

    Raises:
        LookupError: If the parent is needed and cannot be found.
    """
    branched = Branched.of(header.branched)
    if branched is None or branched.strategy:
        return None
    if given is None and branched.file is not None and (beside := path.with_name(branched.file)).is_file():
        given = load(beside)
    if given is None or given.id != branched.run:
        raise LookupError(
            f"{path}: this run was branched from run {branched.run}, whose record answers some of its calls "
            f"and is not in the same folder. Pass it as parent=."
        )
    return given


def answering(lines: Sequence[Line], run: str, ask: Ask) -> Ask:
    """Return a function that answers a call from `lines`, at no cost, or else with `ask`. `lines` are the
    record of the run with the id `run`.

    A recorded failure is an answer. A recorded refusal is not, since it depended on the budget of the
    recorded run.
    """
    calls = {line.p: line.e for line in lines if isinstance(line.e, Call)}
    known = {
        _which(calls[line.p]): (calls[line.p], line.e)
        for line in lines
        if isinstance(line.e, Reply) and not refused(line.e.error)
    }

    async def asked(call: Call, observer: CallObserver) -> Reply:
        recorded, reply = known.get(_which(call), (None, None))
        if reply is None or recorded != call:
            return await ask(call, observer)
        observer.paid = 0.0
        observer.note("call.cached", run=run)
        return reply

    return asked


def _which(call: Call) -> tuple[Any, ...]:
    """Return a key that distinguishes the calls of one run."""
    return call.node, call.purpose, call.sample_index, call.messages, call.attempt, call.model


def _path(run: Run, node: str) -> list[dict[str, Any]]:
    """Return the recorded thoughts, scores and `kept` decisions of the path to `node`."""
    path = {above.id for above in run.tree.path(node)}
    return [
        msgspec.json.decode(encoder.encode(event))
        for event in run.events
        if (isinstance(event, Thought | Scored) or (isinstance(event, Decided) and event.what == "kept"))
        and event.id in path
    ]


def _text(run: Run, node: str, content: str) -> str:
    """Return `content` as the text of the thought `node`, in the domain's canonical form if there is one."""
    if not isinstance(content, str):
        raise TypeError(f"content must be a string: got {content!r}.")
    content, task, old = readable(content), run.task, run.tree[node].text
    assert task is not None
    path = run.steps(node)[:-1]
    if task.domain.read_sample(task, path, old) == old:
        read = task.domain.read_sample(task, path, content)
    else:  # the old text is a complete answer; the new one is kept as written
        answers = [task.domain.read_answer(task, text) for text in (old, content)]
        read = None if answers[0] is not None and answers[1] is None else content
    if read is None:
        raise ValueError(
            f"content must be a step or an answer that the domain can read at thought {node}: got "
            f"{content[:80]!r}."
        )
    return read
