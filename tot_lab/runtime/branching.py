"""Making a branch of a run: what may be changed, and what need not be asked again.

Rule: a branch knows its parent by the header alone, and pays for nothing that its parent's record
answers. Whatever could not come true (a text that is no step, a score that nothing gave) is refused
before anything is asked.
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
    """The strategy and the task of a branch of `run` at `node`, which goes on by `strategy` if one is
    given. What cannot be branched there is an error that says why."""
    if not isinstance(run, Run):
        raise TypeError(f"run must be a Run, such as lab.last, not {run!r}")
    if strategy is not None and not isinstance(strategy, Strategy):
        raise TypeError(f"strategy must be a Strategy such as tl.TreeOfThoughts(), not {strategy!r}")
    if run.strategy is None or run.task is None:
        raise LookupError("this record was not made by a strategy of tot_lab; it cannot be branched")
    if run.stop_reason is None:
        raise ValueError("this run has not ended; lab.resume(path) finishes it")
    if node not in run.tree:
        raise ValueError(f"no thought {node!r} in this run")
    missing = [
        *needs_functions(run.task.domain),
        *(needs_functions(run.strategy) if strategy is None else ()),
    ]
    if missing:
        raise LookupError(
            f"this run was made with functions that files do not hold ({', '.join(missing)}): branch it "
            f"where it was made"
        )
    if strategy is None:
        return run.strategy, run.task
    if run.task.domain.complete(run.task, run.steps(node)):
        raise ValueError(f"the path to thought {node} is complete: nothing follows from it")
    return Continued(strategy=strategy, record=_path(run, node)), run.task


def told_of(
    run: Run, node: str, content: str | None, score: float | None, strategy: Strategy | None
) -> dict[str, Any]:
    """What the header of a branch tells of it. An edit that cannot be made is an error that says why."""
    changed: dict[str, Any] = {}
    if strategy is not None:
        changed["strategy"] = strategy.settings()
    elif run.tree[node].text == run.question:
        raise ValueError(f"thought {node} is the question itself; for another question make another task")
    elif content is not None:
        changed["content"] = _text(run, node, content)
    elif isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
        raise ValueError(f"score must be a number from 0 to 1, not {score!r}")
    elif not any(isinstance(event, Scored) and event.id == node for event in run.events):
        raise ValueError(f"thought {node} got no score in this run; there is none to replace")
    else:
        changed["score"] = float(score)
    if run.path is not None:
        changed["file"] = run.path.name
    if run.header.branched:
        changed["before"] = run.header.branched
    return {"run": run.id, "node": node, **changed}


def doubts_of(run: Run, made: Run) -> Iterator[str]:
    """What speaks against `made` being a branch of `run` as it was asked for: that the search did not
    come to the thought, or that its strategy went on with what had been there before."""
    branched = Branched.of(made.header.branched)
    assert branched is not None
    node, old, new = branched.node, run.tree[branched.node], branched.content
    if node not in made.tree:
        yield f"the search ended ({made.stop_reason}) before it came to thought {node}: nothing was changed"
    elif new not in (None, old.text):
        before = {_which(call): call for call in run.events if isinstance(call, Call) and call.node == node}
        same = [call for call in made.events if isinstance(call, Call) and before.get(_which(call)) == call]
        if any(old.text in call.prompt and str(new) not in call.prompt for call in same):
            yield _DEAF.format(node, "text")
    answered = made.score if made.best is made.tree.nodes.get(node) else None
    if branched.score is not None and answered not in (None, branched.score):
        yield _DEAF.format(node, "score")


_DEAF = (
    "thought {}: the strategy goes on with the old {}; it must take the event that was recorded, as in "
    "`thought = yield from emit(Thought(…))`"
)


def parent_of(path: Path, header: Header, given: Run | None) -> Run | None:
    """The run that the one in `path` was branched from, if its record may know a call: `given`, or
    the one beside it. None for a run that is no such branch."""
    branched = Branched.of(header.branched)
    if branched is None or branched.strategy:
        return None
    if given is None and branched.file is not None and (beside := path.with_name(branched.file)).is_file():
        given = load(beside)
    if given is None or given.id != branched.run:
        raise LookupError(
            f"{path}: this run was branched from run {branched.run}, whose record would answer a part of "
            f"its calls and does not lie beside it: pass parent="
        )
    return given


def answering(lines: Sequence[Line], run: str, ask: Ask) -> Ask:
    """Asks as `ask` does, but what the record of `run`, `lines`, answers costs nothing. A failure is
    an answer; a refusal was a matter of that run's budget, and is not."""
    calls = {line.p: line.e for line in lines if isinstance(line.e, Call)}
    known = {
        _which(calls[line.p]): (calls[line.p], line.e)
        for line in lines
        if isinstance(line.e, Reply) and not refused(line.e.error)
    }

    async def asked(call: Call, wire: CallObserver) -> Reply:
        recorded, reply = known.get(_which(call), (None, None))
        if reply is None or recorded != call:
            return await ask(call, wire)
        wire.paid = 0.0
        wire.note("call.cached", run=run)
        return reply

    return asked


def _which(call: Call) -> tuple[Any, ...]:
    """What tells the calls of one run apart."""
    return call.node, call.purpose, call.sample_index, call.messages, call.attempt, call.model


def _path(run: Run, node: str) -> list[dict[str, Any]]:
    """What was recorded of the path to `node`, but for what took a thought out of the search."""
    path = {above.id for above in run.tree.path(node)}
    return [
        msgspec.json.decode(encoder.encode(event))
        for event in run.events
        if (isinstance(event, Thought | Scored) or (isinstance(event, Decided) and event.what == "kept"))
        and event.id in path
    ]


def _text(run: Run, node: str, content: str) -> str:
    """`content` as the text of the thought `node`: where the domain has one form for what stands
    there, in this form."""
    if not isinstance(content, str):
        raise TypeError(f"content must be a text, not {content!r}")
    content, task, old = readable(content), run.task, run.tree[node].text
    assert task is not None
    path = run.steps(node)[:-1]
    if task.domain.read_sample(task, path, old) == old:
        read = task.domain.read_sample(task, path, content)
    else:  # a whole answer, which is kept as it was written
        answers = [task.domain.read_answer(task, text) for text in (old, content)]
        read = None if answers[0] is not None and answers[1] is None else content
    if read is None:
        raise ValueError(
            f"thought {node}: {content[:80]!r} cannot stand there: nothing could be read from it"
        )
    return read
