"""Tree of Thoughts: a search whose proposer, evaluator, search algorithm and answer are values.

    propose   makes the children of each chosen thought
    evaluate  scores them
    search    chooses the thoughts to expand next
    answer    chooses the answer of the finished tree
    stop      ends the search

Children of different parents never wait for each other (`expansion.py`). Thoughts of different parents are
compared when all children of a pick are known, in the order of their ids.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from tot_lab.core.acts import Change, Graft, Prune, RaiseBudget, Rescore
from tot_lab.core.calls import halts
from tot_lab.core.parts import Alias
from tot_lab.core.protocol import (
    Acts,
    Budget,
    BudgetLeft,
    Procedure,
    SampleCounter,
    Samples,
    gather,
    with_budget,
)
from tot_lab.core.records import (
    END_OF_REPLY,
    EVENTS,
    Decided,
    Event,
    Note,
    Scored,
    Thought,
    id_key,
    parent_of,
)
from tot_lab.core.strategy import Prompting
from tot_lab.core.task import Answer, Task
from tot_lab.core.tree import Node
from tot_lab.strategies.search.answers import AnswerRule, BestPath, candidates, first_answer
from tot_lab.strategies.search.beam_search import BeamSearch
from tot_lab.strategies.search.evaluators import Evaluator, Value
from tot_lab.strategies.search.expansion import expand
from tot_lab.strategies.search.proposers import Proposer, Sample
from tot_lab.strategies.search.sampling import Expansion, Sampler, error_in
from tot_lab.strategies.search.searches import FunctionSearch, Pick, Search, Searching, SearchState, Stop
from tot_lab.strategies.search.source_names import BEAM_SEARCH, OTHERS, STATE_MACHINE


class TreeOfThoughts(Prompting):
    """Search over thoughts. The defaults are those of `tl.presets.beam_search()`, except `answer` and
    `ends_at_answer`.

    Best for problems whose steps can be judged before the end is known. Trade-off: many calls, and a good
    thought that is scored low is lost. Calls: 2 · count for each thought that is expanded (a sample and a
    score per child), or 1 + count with `Propose`, or 2 with `Propose` and `Joint`.

    Settings are also accepted by the names of the published designs (`branching_factor`, `beam_width`,
    `early_success_threshold`, …), which `tl.presets.beam_search` and `tl.presets.state_machine` list.

    Invalid settings raise a ValueError that names the field.

    References:
        Yao et al. 2023, Tree of Thoughts, arXiv:2305.10601.
    """

    kind: ClassVar[str] = "tree_of_thoughts"
    aliases: ClassVar[tuple[str, ...]] = ("tree-of-thoughts",)
    setting_aliases: ClassVar[Mapping[str, str | Alias]] = {**BEAM_SEARCH, **STATE_MACHINE, **OTHERS}

    propose: Proposer = Sample()
    """How thoughts are made: `Sample`, `Propose`, `Continue`, `Refine`, `Mixture`, `WithTools`."""

    evaluate: Evaluator = Value()
    """How thoughts are scored: `Value`, `Parts`, `Vote`, `Joint`, `Tournament`, `RewardModel`, …, or a
    function `(task, path) -> score`."""

    search: Search = BeamSearch()
    """Which thoughts are expanded next: `BeamSearch`, `DepthFirst`, `BestFirst`, `MCTS`, …, or a function."""

    answer: AnswerRule = BestPath()
    """Which thought is the answer: `BestPath`, `Best`, `BestLeaf`, `Deepest`, `MajorityVote`,
    `FirstComplete`."""

    stop: Stop = Stop()
    """When the search ends."""

    merge: bool = False
    """Whether thoughts with the same `Domain.state` are linked and expanded once."""

    parallel: bool = True
    """Whether calls that do not depend on each other are made concurrently."""

    budget: Annotated[Budget | None, Field(strict=False)] = None
    """Limits for this search alone, in addition to those of the run."""

    ends_at_answer: bool = True
    """Whether a path is finished when its last line states an answer, in a domain without a `complete` of its
    own. Finished paths are not expanded, and the answer is that of a finished path if there is one. `False`
    expands every path up to the depth limit, as the presets `beam_search` and `state_machine` do.
    """

    @model_validator(mode="after")
    def _can_evaluate(self) -> Self:
        self.evaluate.for_thoughts_of(self.propose)
        return self

    def recorded_by(self, schema: int) -> dict[str, Any]:
        return {"ends_at_answer": False} if schema < 4 else {}

    def scale_setting(self) -> str:
        """The setting that scales the number of calls: `Search.scale`, or `stop.nodes` if that is "". If the
        search expands only the root at every scale, as best of N does, it is the number of children."""
        count, scale = self.propose.scale_setting(), self.search.scale
        if count is not None and self.stop.depth == 1:
            searches = [self.search.with_({scale: size}) for size in (1, 2)] if scale else [self.search]
            expansions = [search.max_expansions_by_count(2, 1) for search in searches]
            if all(one is not None and [*one] == [(2, 1)] for one in expansions):
                return f"propose.{count}"
        return f"search.{scale}" if scale else "stop.nodes"

    def at_scale(self, scale: int | None) -> Self:
        """This strategy at another scale. If the search keeps all thoughts of a level, it still does at the
        new scale."""
        width = getattr(self.search, "width", None)
        scaled = super().at_scale(scale)
        if not self.scale_setting().startswith("propose.") or width is None:
            return scaled
        return scaled.with_({"search.width": None}) if width >= self.propose.max_children() else scaled

    def checks_answers(self, task: Task) -> bool:
        return task.domain.verifies_paths and not self.answer.any_text

    def think(self, task: Task, at: str = "0") -> Procedure[Answer]:
        search = _Run(self, task, at).run()
        return (yield from with_budget(self.budget, search) if self.budget else search)

    def max_calls(self, task: Task) -> int | None:
        """The most calls a search can make: 30 with the defaults. `None` means that there is no bound."""
        branch = self.propose.max_children()
        by_count = self.search.max_expansions_by_count(branch, self.stop.depth)
        picks = self.search.max_picks(branch, self.stop.depth)
        if by_count is None or picks is None:
            return None
        expansions, calls = 0, self.search.max_own_calls(branch, self.stop.depth)
        for count, most in by_count:
            number = most if self.stop.nodes is None else min(most, self.stop.nodes)
            expansions += number
            calls += number * self._calls(task, count)
        calls += min(picks, expansions) * self.evaluate.calls_per_pick()
        finisher = self.propose.finisher() if self.ends_at_answer and task.domain.is_text else None
        if finisher is not None:
            calls += calls_per_expansion(finisher, self.evaluate, task, 1) + self.evaluate.calls_per_pick()
        return calls

    def _calls(self, task: Task, count: int) -> int:
        """The most calls of an expansion into `count` children, or of one child's share of a larger expansion
        (`Search.max_shared`)."""
        calls = calls_per_expansion(self.propose, self.evaluate, task, count)
        shared = self.search.max_shared() if count == 1 else 1
        if shared == 1:
            return calls
        return max(calls, -(-calls_per_expansion(self.propose, self.evaluate, task, shared) // shared))


def calls_per_expansion(propose: Proposer, evaluate: Evaluator, task: Task, count: int) -> int:
    """The most calls that one expansion into `count` children makes."""
    alone = count * evaluate.for_thoughts_of(propose).calls_per_thought(task)
    return propose.max_calls(count) + alone + evaluate.calls_per_siblings(count)


def closing_note(at: str, winner: str | None, score: float | None, total: int) -> Note:
    """The note at the end of the search at `at`, whose tree has `total` thoughts, the root included."""
    if total == 1:
        return Note("tot.no_thoughts", at, {"total_nodes": total})
    return Note("tot.completed", at, {"winner_id": winner, "winner_score": score, "total_nodes": total})


class _Run:
    """One run of a search, with its state between picks."""

    def __init__(self, settings: TreeOfThoughts, task: Task, at: str) -> None:
        self.settings = settings
        self.stop = settings.stop
        search = settings.search
        self.name = search.function.name if isinstance(search, FunctionSearch) else search.kind
        self.task = task
        self.at = at
        self.state = SearchState(task, at, settings)
        self.tree = self.state.tree
        self.sampler: Sampler
        self.states: dict[Hashable, str] = {}
        self.best: list[float] = []  # the best score so far, after each pick
        self.errors: list[str] = []
        self.halt = ""  # the error of a refused call, which ends the search
        self.limit = ""  # the stop code that the search has returned
        self.found: str | None = None  # the id of the answer that the search has returned
        self.budget_readings = 0
        self.barred: set[str] = set()  # thoughts that a person has pruned
        self.dead = False  # whether calls of the last pick failed and no thought got a score

    def run(self) -> Procedure[Answer]:
        root = Thought(self.at, parent_of(self.at), self.task.question)
        self.tree.add(Thought(self.at, None, self.task.question))
        yield root
        yield from self._emit(Scored(self.at, 1.0, by="root"))
        settings = self.settings
        samples: SampleCounter = yield Samples(steerable=True)
        self.sampler = Sampler(settings, self.task, samples, settings.parallel)
        yield Note(
            "tot.started",
            self.at,
            {
                "branch_factor": settings.propose.max_children(),
                "beam_width": getattr(settings.search, "width", None),
                "max_depth": self.stop.depth,
            },
        )
        stop = yield from self._search(settings.search.run(self.state))
        return (yield from self._answer(stop))

    def _search(self, searching: Searching) -> Procedure[str]:
        """Carry out the picks and other steps that the search yields. Returns why it ended."""
        pick = yield from self._next(searching, None)
        while pick is not None:
            yield Note("tot.picked", self.at, _recorded(pick))
            fresh = yield from self._expand(pick)
            fresh += yield from self._steered()
            eligible = yield from self._settle(fresh)
            pick = yield from self._next(searching, eligible)
            kept = yield from self._keep(fresh, eligible)
            stop = yield from self._stops(kept, pick)
            if stop:
                searching.close()
                return stop
        return self._why_empty()

    def _next(self, searching: Searching, children: list[str] | None) -> Procedure[Pick | None]:
        """The next pick of the search, `None` if it has ended. Calls and events that the search yields are
        passed on.

        Thoughts that a person has pruned are removed from the pick. If none remain, the search receives an
        empty list of children and picks again.
        """
        value: Any = children
        passed = 0
        while True:
            try:
                step = searching.send(value)
            except StopIteration as end:
                if isinstance(end.value, str) and end.value.startswith("limit:"):
                    self.limit = end.value
                    return None
                if end.value is not None and not (isinstance(end.value, str) and end.value in self.tree):
                    raise ValueError(
                        f"search {self.name!r} must return the id of a thought, a code that begins with "
                        f"'limit:', or None: got {end.value!r}."
                    ) from None
                self.found = None if end.value in self.barred else end.value
                return None
            if isinstance(step, Pick):
                left = self._without_barred(self._checked(step)) if step.parents else step
                if left.parents or not step.parents or passed > len(self.tree):
                    return left if left.parents else None
                passed += 1
                value = []
                continue
            if isinstance(step, str | list | tuple):
                raise TypeError(
                    f"search {self.name!r} must yield tl.Pick(ids): got {step!r}. It may also yield calls, "
                    "events, tl.searches.BudgetLeft() and state.random_numbers()."
                )
            if isinstance(step, BudgetLeft):
                step = BudgetLeft(self.at, self.budget_readings)
                self.budget_readings += 1
            value = yield step
            if isinstance(step, EVENTS):
                self.tree.add(step if value is None else value)

    def _checked(self, pick: Pick) -> Pick:
        name, nodes, closed = self.name, self.tree.nodes, self.state.closed
        if isinstance(pick.parents, str):
            raise TypeError(f"search {name!r} must pick a list of ids: got {pick.parents!r}.")
        firsts: list[str] = []
        for parent in pick.parents:
            if not isinstance(parent, str | tuple):
                raise TypeError(f"search {name!r} must pick ids of thoughts: got {parent!r}.")
            group = _group(parent)
            for id in group:
                if id not in nodes:
                    raise ValueError(f"search {name!r} must pick ids of thoughts in its tree: got {id!r}.")
            firsts.append(group[0])
        for id in firsts:
            if id in closed:
                raise ValueError(
                    f"search {name!r} picked {id!r}, which is complete or at the depth limit. Pick only from "
                    "state.open(ids)."
                )
        if len(set(firsts)) < len(firsts):
            raise ValueError(f"search {name!r} must not pick a thought twice in one pick: got {firsts}.")
        many = type(pick.count) is not int and isinstance(pick.count, Sequence)  # isinstance alone is slow
        if many and len(_counts(pick, self.settings.propose)) != len(firsts):
            raise ValueError(
                f"search {name!r}: Pick.count must be one number, or a list with one for each of the "
                f"{len(firsts)} parents: got {pick.count!r}."
            )
        return pick

    def _without_barred(self, pick: Pick) -> Pick:
        """`pick` without the thoughts that a person has pruned."""
        if not self.barred:
            return pick
        places = [k for k, parent in enumerate(pick.parents) if self.barred.isdisjoint(_group(parent))]
        count = [pick.count[k] for k in places] if isinstance(pick.count, Sequence) else pick.count
        return replace(pick, parents=[pick.parents[k] for k in places], count=count)

    # One pick.

    def _steered(self) -> Procedure[list[str]]:
        """Take account of what a person has changed since the last pick. Returns the ids of new thoughts.

        It runs between two picks, when no call of the search is pending.
        """
        state = self.state
        changing: Procedure[list[Change]] | None = yield Acts(
            self.at, len(self.best), self.tree, self._next_child
        )
        changes = [] if changing is None else (yield from changing)
        for act, node, old in changes:
            match act:
                case Prune():
                    self.barred.update(self.tree.below(node))
                case Rescore():
                    self.settings.search.rescored(state, node, old)
                case Graft():
                    state.grafted.add(node)
                case RaiseBudget() if self.halt.startswith("budget:"):
                    self.halt = ""
        return [node for act, node, _ in changes if isinstance(act, Graft)]

    def _next_child(self, parent: str) -> str:
        return f"{parent}.{self._continued(parent).next_child}"

    def _expand(self, pick: Pick) -> Procedure[list[str]]:
        """Carry out a pick. Returns the ids of the new children.

        Children are counted before they are requested, so `stop.nodes` is never exceeded.
        """
        propose, evaluate = pick.proposer or self.settings.propose, self.settings.evaluate
        counts, search = _counts(pick, propose), self.settings.search
        sampler = self.sampler
        if pick.context:
            sampler = sampler._replace(task=self.task.with_context(*pick.context))
        at_most = calls_per_expansion(propose, evaluate, self.task, max(counts))
        at_once = None if self.settings.parallel else 1
        fresh: list[str] = []
        failures = len(self.errors)
        waiting = deque(zip(pick.parents, counts, strict=True))
        while waiting and not self.halt and (room := self._room()) != 0:
            branches = []
            while waiting and room != 0:
                parent, count = waiting.popleft()
                if room is not None:
                    count = min(count, room)
                    room -= count
                expansion = self._continued(parent)
                needed = search.logprobs, search.alternatives
                branches.append(expand(sampler, propose, evaluate, expansion, count, *needed))
            grown = yield from gather(branches, at_most=at_most, at_once=at_once)
            for events in grown:
                self._take(events, fresh)
        if evaluate.compares == "pick" and not self.halt:
            unscored = [id for id in fresh if self.tree[id].state == "proposed" and not self.tree[id].by]
            if unscored:
                expansion = self._expansion(self.tree[unscored[0]].parent or self.at)
                candidates = [(id, self.tree.texts(id)) for id in unscored]
                self._take((yield from evaluate.score_pick(sampler, expansion, candidates)), fresh)
        self.dead = len(self.errors) > failures and not any(self.tree[id].by for id in fresh)
        return fresh

    def _take(self, events: Iterable[Event], fresh: list[str]) -> None:
        """Add `events` to the tree, and the ids of new thoughts to `fresh`."""
        for event in events:
            self.tree.add(event)
            if type(event) is Thought:
                fresh.append(event.id)
            elif type(event) is not Scored and (error := error_in(event)):
                self.errors.append(error)
                self.halt = self.halt or (error if halts(error) else "")

    def _expansion(self, node: str) -> Expansion:
        expansion = self.state.expansions.get(node)
        if expansion is None:
            expansion = self.state.expansions[node] = Expansion.of(self.tree, node)
        return expansion

    def _continued(self, parent: str | tuple[str, ...]) -> Expansion:
        """The `Expansion` for further children of `parent`, numbered after its existing children."""
        node, *sources = _group(parent)
        expansion = self._expansion(node)
        expansion.sources = tuple(sources)
        expansion.source_paths = tuple(map(self.tree.texts, sources))
        fresh = self.tree[node].children[expansion.counted :]
        expansion.counted += len(fresh)
        for child in fresh:
            number = int(child.rpartition(".")[2])
            expansion.next_child = max(expansion.next_child, number + 1)
            expansion.children.setdefault(self.tree[child].text, number)
        return expansion

    def _settle(self, fresh: Sequence[str]) -> Procedure[list[str]]:
        """Prune thoughts below `stop.min_score`, merge those that reach a known state, and close those that
        are finished or at the depth limit. Returns the ids of thoughts that remain:
        neither failed, duplicate, pruned nor merged."""
        eligible: list[str] = []
        nodes, domain = self.tree.nodes, self.task.domain
        for id in fresh:
            node = nodes[id]
            if node.state in ("failed", "duplicate") or id in self.barred:
                continue
            path = self._expansion(node.parent or self.at).path_to(node.text)
            if self.stop.min_score > 0 and node.rank < self.stop.min_score:
                if self.state.by_text and (reason := self._finished(path, self._end(node))) is not None:
                    yield from self._close(id, reason)
                yield from self._emit(Decided(id, "pruned", "unreadable" if node.unreadable else "min_score"))
                continue
            if self.settings.merge and (state := domain.state(self.task, path)) is not None:
                known = self.states.setdefault(state, id)
                if known != id:
                    yield from self._emit(Decided(id, "merged", "same state", known))
                    continue
            end = self._end(node)
            if end == "cut":
                yield Note("step.cut", id)
            reason = self._finished(path, end)
            if reason is not None:
                yield from self._close(id, reason)
            elif node.depth >= self.stop.depth:
                self.state.closed.add(id)
            eligible.append(id)
        return eligible

    def _close(self, id: str, reason: str) -> Procedure[None]:
        """Record that the path of a thought is finished."""
        yield from self._emit(Decided(id, "complete", reason))
        self.state.closed.add(id)
        self.state.finished.add(id)

    def _end(self, node: Node) -> str:
        """How the reply of a thought ended: its entry in `Expansion.ended`, or ""."""
        return self._expansion(node.parent or self.at).ended.get(id_key(node.id)[-1], "")

    def _finished(self, path: Sequence[str], end: str) -> str | None:
        """Why a path is finished, "" if its domain says so. `None` if it is not.

        Args:
            end: The entry of its last step in `Expansion.ended`.
        """
        domain = self.task.domain
        if not self.state.by_text:
            return "" if domain.complete(self.task, path) else None
        if end not in ("cut", "open") and domain.states_answer(self.task, path):
            return "answer stated"
        return END_OF_REPLY if end == END_OF_REPLY else None

    def _keep(self, fresh: Sequence[str], eligible: Sequence[str]) -> Procedure[list[str]]:
        """Record which new thoughts the search did not prune. Returns them, best first."""
        nodes = self.tree.nodes
        kept = self.state.ranked([id for id in eligible if nodes[id].state != "pruned"])
        for id in kept:
            if nodes[id].state != "complete":
                yield from self._emit(Decided(id, "kept"))
        self.best.append(max([0.0, *self.best[-1:], *[nodes[id].rank for id in fresh]]))
        return kept

    # The end of the search.

    def _stops(self, kept: Sequence[str], pick: Pick | None) -> Procedure[str]:
        """Why the search ends after this pick, "" if it goes on."""
        solution = self._solution(kept)
        if solution is not None:
            score = {"node_id": solution.id, "score": solution.score}
            yield Note("tot.solved", self.at, {"depth": solution.depth, **score})
            return "solved"
        if self.halt:
            return self.halt
        if pick is None and self.found is not None:
            return "answered"
        if pick is None:
            return "error" if self.dead else self._why_empty()
        if self._room() == 0:
            return "limit:nodes"
        return "converged" if self.stop.converged(self.best) else ""

    def _solution(self, kept: Sequence[str]) -> Node | None:
        """The first thought of `kept`, which is sorted best first, that solves the task."""
        if self.stop.solved is None:
            return None
        for node in (self.tree[id] for id in kept):
            if node.score is None or node.score < self.stop.solved:
                return None
            if node.depth >= self.stop.min_depth and self._may_answer(node.id):
                return node
        return None

    def _may_answer(self, id: str) -> bool:
        """Whether the path of a thought may count as the solution. If it does not state its answer yet
        (`_is_unfinished`), it counts only if no prompt asks for an answer and the evaluator judges
        answers."""
        if self._is_unfinished(id):
            return self.settings.evaluate.judges_answers and not self.settings.propose.asks_for_answer
        return self.state.complete(id) is not False

    def _is_unfinished(self, id: str) -> bool:
        """Whether a path of text lacks the answer that it could state."""
        state = self.state
        if not state.by_text or id in state.finished:
            return False
        asked = self.settings.propose.asks_for_answer
        return asked or self.task.domain.states_answer(self.task, self.tree.texts(id)) is not None

    def _room(self) -> int | None:
        """How many thoughts may still be added. `None` means no limit."""
        return None if self.stop.nodes is None else max(self.stop.nodes - len(self.tree), 0)

    def _why_empty(self) -> str:
        """The stop code of a search that picks nothing more."""
        if self._room() == 0:
            return "limit:nodes"
        if self.limit:
            return self.limit
        cut = any(node.state == "kept" and node.depth >= self.stop.depth for node in self.tree)
        return "limit:depth" if cut else "exhausted"

    def _answer(self, stop: str) -> Procedure[Answer]:
        task, tree, rule = self.task, self.tree, self.settings.answer
        thoughts = [node for node in list(tree)[1:] if node.id not in self.barred]
        sound = [node for node in thoughts if node.state not in ("failed", "duplicate")]
        finished = self.state.finished if self.state.by_text else set[str]()
        nodes, leaves = candidates(sound, finished)
        if self.state.by_text and not finished and stop not in ("solved", "answered") and not self.halt:
            open_ends = [leaf for leaf in leaves if leaf.state != "pruned"] or leaves
            ended = yield from self._completed(self._chosen(open_ends, open_ends)[1])
            nodes, leaves = candidates([*sound, *ended], finished)
        if stop == "answered" and self.found is not None:
            text, winner = first_answer(task, tree, [tree[self.found]], any_text=True)
        else:
            text, winner = self._chosen(nodes, leaves)
        if winner is None and halts(stop):  # a thought is not worse because its evaluation was refused
            unscored = [node for node in thoughts if node.score is None and _refused(node)]
            unscored.sort(key=lambda node: -node.depth)
            text, winner = first_answer(task, tree, unscored, any_text=rule.any_text)
            if winner is None and all(node.score is None for node in thoughts):
                text, winner = first_answer(task, tree, [*sound, *unscored], any_text=True)
        if winner is not None:
            if stop != "solved" and self._is_unfinished(winner.id):
                yield Note("answer.unfinished", winner.id, {"cut": self._end(winner) == "cut"})
            yield from self._emit(Decided(winner.id, "answer", stop))
        id, score = (winner.id, winner.score) if winner is not None else (None, None)
        yield closing_note(self.at, id, score, len(tree))
        return Answer(text, stop, id, score, tuple(node.id for node in leaves[: rule.top_k]))

    def _chosen(self, nodes: Sequence[Node], leaves: Sequence[Node]) -> tuple[str, Node | None]:
        """The answer among `nodes` by the rule, and its thought."""
        copies = self.state.copies
        held = [leaf for leaf in leaves for _ in range(max(copies[leaf.id], 1))]
        return self.settings.answer.choose(self.task, self.tree, nodes, held)

    def _completed(self, best: Node | None) -> Procedure[list[Node]]:
        """Have the proposer complete the best path. Returns the end of that path if it is finished."""
        finisher = self.settings.propose.finisher()
        if finisher is None or best is None:
            return []
        fresh = yield from self._expand(Pick([best.id], 1, finisher))
        yield from self._settle(fresh)
        return [self.tree[id] for id in fresh if id in self.state.finished]

    def _emit(self, event: Event) -> Procedure[None]:
        """Record `event`, and add it to the tree as it was recorded."""
        recorded = yield event
        self.tree.add(event if recorded is None else recorded)


def _group(parent: str | tuple[str, ...]) -> tuple[str, ...]:
    return (parent,) if isinstance(parent, str) else parent


def _first(parent: str | tuple[str, ...]) -> str:
    return _group(parent)[0]


def _recorded(pick: Pick) -> dict[str, Any]:
    """The data of the note `tot.picked`."""
    data: dict[str, Any] = {"parents": [_first(parent) for parent in pick.parents]}
    if pick.why:
        data["why"] = {id: dict(terms) for id, terms in pick.why.items()}
    return data


def _counts(pick: Pick, propose: Proposer) -> list[int]:
    """Children for each parent."""
    if type(pick.count) is not int and isinstance(pick.count, Sequence):
        return list(pick.count)
    count = propose.max_children() if pick.count is None else pick.count
    return [count] * len(pick.parents)


def _refused(node: Node) -> bool:
    """Whether a budget or a cancellation refused the calls that should have scored the thought."""
    return node.state == "failed" and halts(node.reason)
