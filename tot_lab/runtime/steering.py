"""Steering of a live run: a person pauses it, and changes its search.

A change (`tot_lab.core.acts.Act`) waits until the search picks the next thought to expand, and is recorded
there. `Steering` may be used from any thread. `Steered` makes the changes when a search requests them, so
neither the driver nor the searches know which changes exist. `Steered` also gives a search the sample indices
of an earlier record.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import Any

from tot_lab.core.acts import Act, Change, Graft, Prune, RaiseBudget, Rescore, note_of
from tot_lab.core.calls import Call, readable
from tot_lab.core.protocol import Acts, Budget, Procedure, Request, SampleCounter, Samples
from tot_lab.core.records import Decided, Event, Scored, Thought
from tot_lab.record.journal import Header
from tot_lab.record.run import Run

PRUNABLE = ("proposed", "kept", "complete", "unreadable")
"""States of thoughts that a person may prune. The others have left the search already."""


class Steering:
    """Pauses a live run, and changes its search: `stream.steer`.

        stream = lab.stream(tl.TreeOfThoughts(), task, budget=tl.Budget(calls=60))
        explorer = tl.Explorer(stream)
        stream.steer.pause()
        stream.steer.prune("0.1")                      # nothing below it is expanded
        stream.steer.rescore("0.2", 0.9)
        stream.steer.graft("0.2", "6 * 4 = 24")        # add a thought yourself
        stream.steer.raise_budget(calls=120)
        stream.steer.resume()

    Changes take effect when a tree search makes its next pick, in the order in which they were made. They are
    recorded there, so the run is replayed and resumed with them.
    """

    def __init__(self) -> None:
        self.paused = False
        """Whether the run is paused. Calls in flight are still answered. Limits on seconds still count."""
        self.waiting: list[Act] = []
        """Changes that have not taken effect yet. If the run ends first, they have no effect."""
        self.searches = False
        """Whether a search that takes changes has begun."""
        self.watchers: list[Callable[[], None]] = []
        """Called after a change was made or taken, and after the run was paused or resumed."""
        self._execution: Any = None

    def pause(self) -> None:
        """Make no further calls until `resume`."""
        self.paused = True
        self._notify()

    def resume(self) -> None:
        """Continue a paused run."""
        self.paused = False
        self._notify()

    def prune(self, node: str) -> None:
        """Remove a thought and everything below it from the search. They cannot be the answer either.

        Raises:
            ValueError: If the run is not under way, or has no such thought.
        """
        self._changeable(node)
        self._add(Prune(node))

    def rescore(self, node: str, score: float) -> None:
        """Replace the score of a thought.

        Args:
            node: Id of the thought.
            score: 0 to 1.

        Raises:
            ValueError: If the run is not under way, has no such thought, or the score is not from 0 to 1.
        """
        self._changeable(node)
        self._add(Rescore(node, _share(score)))

    def graft(self, node: str, text: str, score: float = 1.0) -> None:
        """Add a new thought below `node`, as the last of its children.

        Args:
            node: Id of the parent.
            text: The thought. The domain must be able to read it as a step.
            score: Its score, 0 to 1. It is not evaluated.

        Raises:
            ValueError: If the run is not under way, has no such thought, the path to the thought is complete,
                the domain cannot read the text, or the score is not from 0 to 1.
        """
        run = self._run()
        if node not in run.tree:
            raise ValueError(f"node must be a thought of this run: got {node!r}.")
        task, path = run.task, run.steps(node)
        assert task is not None
        read = task.domain.read_sample(task, path, readable(text)) if isinstance(text, str) else None
        if read is None:
            raise ValueError(f"text must be a step that the domain can read: got {str(text)[:80]!r}.")
        if task.domain.complete(task, path):
            raise ValueError(f"The path to thought {node} is complete: nothing can be added below it.")
        self._add(Graft(node, read, _share(score)))

    def raise_budget(self, **limits: float) -> None:
        """Raise limits of the run's budget (`calls`, `tokens`, `usd`, …).

        Raises:
            ValueError: If the run is not under way, has no such limit, or the new one is not higher.
        """
        self._run()
        try:
            given = Budget(**limits).model_dump(exclude_none=True)  # type: ignore[arg-type]
        except ValueError as error:
            raise ValueError(f"limits must be those of a budget. {error}") from None
        for name, limit in given.items():
            old = self._limits().get(name)
            if old is None:
                raise ValueError(f"The budget of this run has no limit on {name}.")
            if limit <= old:
                raise ValueError(f"{name} must be more than its limit of {old:g}: got {limit:g}.")
        if not given:
            raise ValueError("Name a limit to raise, as in raise_budget(calls=120).")
        self._add(RaiseBudget(given))

    def take(self, tree: Container[str]) -> list[Act]:
        """Remove and return, in order, the waiting changes of thoughts in `tree`, and of the budget."""
        taken = [act for act in self.waiting if isinstance(act, RaiseBudget) or act.node in tree]
        for act in taken:
            self.waiting.remove(act)
        if taken:
            self._notify()
        return taken

    def begin(self) -> None:
        """Note that a search that takes changes has begun."""
        self.searches = True
        self._notify()

    def attach(self, execution: Any) -> None:
        """Steer `execution`."""
        self._execution = execution

    def _add(self, act: Act) -> None:
        self.waiting.append(act)
        self._notify()

    def _notify(self) -> None:
        for watcher in [*self.watchers]:
            watcher()

    def _run(self) -> Run:
        execution = self._execution
        run: Run | None = None if execution is None else execution.run
        if run is None or run.stop_reason is not None:
            raise ValueError("This run is not under way. Branch a finished run with lab.branch.")
        return run

    def _changeable(self, node: str) -> None:
        run = self._run()
        if node not in run.tree:
            raise ValueError(f"node must be a thought of this run: got {node!r}.")
        if node == run.tree.root.id:
            raise ValueError(f"Thought {node} is the question and cannot be changed.")

    def _limits(self) -> dict[str, float]:
        """Return the limits of the run, including raises that have not taken effect yet."""
        limits: dict[str, float] = self._execution.limits()
        for act in self.waiting:
            if isinstance(act, RaiseBudget):
                limits |= act.limits
        return limits


class Steered:
    """Makes the changes of a person in the searches of a run.

    Args:
        recorded: The changes in a record that is repeated, by the root of the search and the number of the
            pick at which they were made.
        steering: Supplies the new changes of a person.
        raise_budget: Raises limits of the run.
        samples: Makes the sample counter of a search.
    """

    def __init__(
        self,
        recorded: Mapping[tuple[str, int], Sequence[Act]],
        steering: Steering | None,
        raise_budget: Callable[[Mapping[str, float]], None],
        samples: Callable[..., SampleCounter] = SampleCounter,
    ) -> None:
        self.recorded = recorded
        self.samples = samples
        self.steering = steering
        self.raise_budget = raise_budget

    def respond(self, request: Request) -> Any:
        """Return the answer to a request of a search: its sample counter, or a generator that makes the
        changes. `None` for other requests and if there are no changes.
        """
        if isinstance(request, Samples):
            if request.steerable and self.steering is not None and not self.steering.searches:
                self.steering.begin()
            return self.samples(made=request.made)
        if not isinstance(request, Acts):
            return None
        taken = self.recorded.get((request.at, request.pick), ())
        if not taken and self.steering is not None:
            taken = self.steering.take(request.tree)
        acts = [act for act in taken if isinstance(act, RaiseBudget) or act.node in request.tree]
        return self._changing(request, acts) if acts else None

    def _changing(self, step: Acts, acts: Sequence[Act]) -> Procedure[list[Change]]:
        yield note_of(acts, step.at, step.pick)
        changes: list[Change] = []
        for act in acts:
            changes.append((yield from self._change(step, act)))
        return changes

    def _change(self, step: Acts, act: Act) -> Procedure[Change]:
        """Record the events of one change, and add them to the tree of the search."""
        tree = step.tree
        match act:
            case Prune(node):
                for id in tree.below(node):
                    if tree[id].state in PRUNABLE:
                        yield from _added(step, Decided(id, "pruned", "person"))
                return Change(act, node)
            case Rescore(node, score):
                old = tree[node].rank
                yield from _added(step, Scored(node, score, by="person"))
                return Change(act, node, old)
            case Graft(node, text, score):
                id = step.next_child(node)
                yield from _added(step, Thought(id, node, text))
                yield from _added(step, Scored(id, score, by="person"))
                return Change(act, id)
            case RaiseBudget(limits):
                self.raise_budget(limits)
                return Change(act)


def sample_counters(header: Header, known: Run | None) -> Callable[..., SampleCounter]:
    """Return a function that makes the sample counters of the searches of a run.

    Args:
        header: The header of the run.
        known: A run whose calls keep their sample indices, such as the parent of a branch.
    """
    calls = [] if known is None else [event for event in known.events if isinstance(event, Call)]
    return partial(SampleCounter, calls, by_thought=header.counts_samples_by_thought)


def _added(step: Acts, event: Event) -> Procedure[None]:
    """Record `event`, and add it to the tree as it was recorded."""
    recorded = yield event
    step.tree.add(event if recorded is None else recorded)


def _share(score: float) -> float:
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
        raise ValueError(f"score must be a number from 0 to 1: got {score!r}.")
    return float(score)
