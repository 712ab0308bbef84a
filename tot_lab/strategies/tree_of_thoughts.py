"""Tree of Thoughts (Yao et al. 2023, arXiv:2305.10601), its axes kept apart.

    grow    every chosen thought gets children,   generate = sample | propose
            and each child a score:               evaluate = value | parts | vote | joint | a function
    settle  what may go on is decided:            min_score, merge
    pick    which thoughts to expand next:        traversal, beam_width
    stop    solved, a cap, converged, or nothing left
    answer  the best thought:                     answer = path | best | leaf | deepest

Rule: children of different parents never wait for each other (`expansion.py`); everything that
compares thoughts happens after the join, in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from typing import Annotated, Literal

from pydantic import Field

from tot_lab.core.calls import halts
from tot_lab.core.records import Decided, Event, Note, Scored, Thought, id_key, parent_of
from tot_lab.core.task import Answer, Task
from tot_lab.core.thinking import Budget, Thinking, every, happen, within
from tot_lab.core.tree import Node, Tree
from tot_lab.strategies.expansion import Count, Expansion, Unit, error_in
from tot_lab.strategies.traversals import Beam, Traversal, ranked


class TreeOfThoughts(Expansion):
    """Search over thoughts. The defaults are those of `tl.presets.beam_search()`, but for `answer`.

    Best for problems whose steps can be judged before the end is known. Trade-off: many calls, and a good
    thought that is scored low is lost. Calls: for a beam 2 · branch_factor for each thought that is expanded
    (a sample and a score a child), or 1 + branch_factor with `propose`, 2 with `joint` as well.

    branch_factor: children per thought; with `propose`, the most proposals used.
    beam_width: thoughts kept: of a level (beam), of the frontier (best_first), of a group of
        siblings (depth_first, mcts). None = all.
    max_depth: steps of a path, 1–1,000. max_nodes: thoughts in all, the root included.
    generate: `sample` (one step a call, `branch_factor` draws of one prompt) or `propose` (one
        call lists several).
    evaluate: `value` (each thought alone, `evaluation_draws` times), `parts` (each part of its state
        alone, for a domain that has parts), `vote` (the candidates of a round against each other),
        `joint` (all siblings in one call), `logprob` (from a single token: how probable a yes is
        against a no; for models that report log-probabilities), or a function
        `(task, path) -> score 0–1, or None`.
    combine: how draws become one number: `mean`, `sum` (Yao et al., Game of 24) or `vote` (the
        most frequent; of equals the first drawn).
    traversal: `beam`, `depth_first`, `best_first`, `mcts`, one of their values, or your own
        (`@tl.traversal`).
    answer: the best thought whose path holds an answer (`path`), the best anywhere (`best`), the
        best leaf (`leaf`), or the deepest, whatever its score (`deepest`); of equals the first proposed,
        for `leaf` the deeper. If a budget ends the search before any score arrived, the first of the
        deepest unscored thoughts answers, without a score; one whose path holds an answer comes before
        the others.
    min_score: a thought scored below is dropped. solved_threshold: the search stops when a kept
        thought reaches it at `min_depth` or deeper, unless its domain says that its path is
        incomplete; None = never.
    convergence_window, min_score_improvement: stop when the best score of the last that-many
        rounds has risen by less; a window of 1 turns it off.
    merge: thoughts that reach the same state, in the domain's words, are linked and expanded once.
    top_k: how many leaves the answer ranks. parallel: False asks one call after another.
    proposal_draws: draws of the `propose` prompt; what they propose is pooled, in the domain's way.
    max_parse_retries: new draws for replies that cannot be read, per thought.
    proposer_prompt, evaluator_prompt: templates that replace the domain's own. `{problem}`,
        `{steps}` and `{count}` are filled in, for the evaluator `{candidate}` too, and for vote
        and joint `{candidates}`.
    budget: caps for this search alone, besides the run's.

    Raises pydantic.ValidationError, by field, for bad settings.
    """

    kind = "tree_of_thoughts"
    beam_width: Count | None = 2
    max_depth: Annotated[int, Field(ge=1, le=1000)] = 3
    max_nodes: Count | None = None
    traversal: Traversal = Beam()
    answer: Literal["path", "best", "leaf", "deepest"] = "path"
    min_score: Unit = 0.0
    solved_threshold: Unit | None = 1.0
    min_depth: Annotated[int, Field(ge=0)] = 0
    convergence_window: Count = 1
    min_score_improvement: Unit = 0.02
    merge: bool = False
    top_k: Count = 3
    budget: Annotated[Budget | None, Field(strict=False)] = None

    def think(self, task: Task, at: str = "0") -> Thinking[Answer]:
        search = self._search(task, at)
        return (yield from within(self.budget, search) if self.budget else search)

    def max_calls(self, task: Task) -> int:
        """The most calls a search can make: 30 with the defaults."""
        expansions = self.traversal.most_expansions(self.branch_factor, self.beam_width, self.max_depth)
        rounds = self.traversal.most_rounds(self.branch_factor, self.beam_width, self.max_depth)
        if self.max_nodes is not None:
            expansions = min(expansions, self.max_nodes)
        voting = self.calls_per_evaluation if self.evaluate == "vote" else 0
        return expansions * self.calls_per_expansion(task) + min(rounds, expansions) * voting

    def _search(self, task: Task, at: str) -> Thinking[Answer]:
        tree = Tree()
        tree.add(Thought(at, None, task.question))
        yield Thought(at, parent_of(at), task.question)
        yield from _happen(tree, Scored(at, 1.0, by="root"))
        yield Note(
            "tot.started",
            at,
            {
                "branch_factor": self.branch_factor,
                "beam_width": self.beam_width,
                "max_depth": self.max_depth,
            },
        )
        pick = self.traversal.start(self.beam_width)
        states: dict[Hashable, str] = {}
        best: list[float] = []  # the best score after each round
        chosen, errors, stop = [at], list[str](), ""
        while chosen and not stop:
            depth = tree[chosen[0]].depth + 1
            yield Note("tot.level_started", at, {"depth": depth, "frontier_size": len(chosen)})
            failed = len(errors)
            fresh, halt = yield from self._grow(task, tree, chosen, errors)
            dead = len(errors) > failed and not any(tree[id].by for id in fresh)
            eligible = yield from self._settle(task, tree, fresh, states)
            chosen, trimmed = pick(tree, eligible)
            kept = yield from self._keep(tree, eligible, trimmed)
            yield Note(
                "tot.pruned",
                at,
                {
                    "depth": depth,
                    "kept": kept,
                    "kept_scores": [tree[id].score for id in kept],
                    "pruned_below_floor": sum(tree[id].reason == "min_score" for id in fresh),
                },
            )
            best.append(max([0.0, *best[-1:], *(tree[id].rank for id in fresh)]))
            solution = self._solution(task, tree, kept)
            if solution is not None:
                score = {"node_id": solution.id, "score": solution.score}
                yield Note("tot.solved", at, {"depth": solution.depth, **score})
                stop = "solved"
            elif halt:
                stop = halt
            elif not chosen:
                if not kept and fresh:
                    yield Note("tot.empty_beam", at, {"depth": depth})
                stop = "error" if dead else self._why_empty(tree)
            elif self._room(tree) == 0:
                stop = "limit:nodes"
            elif self._converged(best):
                stop = "converged"
        return (yield from self._answer(task, tree, at, stop))

    def _grow(
        self, task: Task, tree: Tree, chosen: Sequence[str], errors: list[str]
    ) -> Thinking[tuple[list[str], str]]:
        """Expand `chosen`. Returns the new thoughts' ids and, if a call was refused, the refusal.
        Thoughts are counted before they are asked for, so `max_nodes` is never overshot."""
        fresh: list[str] = []
        halt = ""

        def take(events: Iterable[Event]) -> None:
            nonlocal halt
            for event in events:
                tree.add(event)
                if isinstance(event, Thought):
                    fresh.append(event.id)
                elif error := error_in(event):
                    errors.append(error)
                    halt = halt or (error if halts(error) else "")

        waiting = deque(chosen)
        while waiting and not halt and self._room(tree) != 0:
            room = self._room(tree)
            branches = []
            while waiting and room != 0:
                count = self.branch_factor if room is None else min(self.branch_factor, room)
                room = None if room is None else room - count
                id = waiting.popleft()
                branches.append(self.expand(task, tree.texts(id), id, count))
            grown = yield from every(
                branches, at_most=self.calls_per_expansion(task), at_once=None if self.parallel else 1
            )
            for events in grown:
                take(events)
        unscored = [id for id in fresh if tree[id].state == "proposed" and not tree[id].by]
        if self.evaluate == "vote" and unscored and not halt:
            node = tree[unscored[0]].parent or ""
            take((yield from self.vote(task, node, [(id, tree.texts(id)) for id in unscored])))
        return fresh, halt

    def _settle(
        self, task: Task, tree: Tree, fresh: Sequence[str], states: dict[Hashable, str]
    ) -> Thinking[list[str]]:
        """Drop what is below the floor, link what reaches a known state, close what needs no
        further step; the rest may go on."""
        eligible: list[str] = []
        for id in fresh:
            node = tree[id]
            if node.state in ("failed", "duplicate"):
                continue
            if node.rank < self.min_score and self.min_score > 0:
                yield from _happen(tree, Decided(id, "pruned", "unread" if node.unread else "min_score"))
                continue
            path = tree.texts(id)
            if self.merge and (state := task.domain.state(task, path)) is not None:
                known = states.setdefault(state, id)
                if known != id:
                    yield from _happen(tree, Decided(id, "merged", "same state", known))
                    continue
            if task.domain.complete(task, path):
                yield from _happen(tree, Decided(id, "complete"))
                tree.closed.add(id)
            elif node.depth >= self.max_depth:
                tree.closed.add(id)
            eligible.append(id)
        return eligible

    def _keep(
        self, tree: Tree, eligible: Sequence[str], trimmed: Sequence[tuple[str, str]]
    ) -> Thinking[list[str]]:
        for id, rule in trimmed:
            yield from _happen(tree, Decided(id, "pruned", rule))
        gone = {id for id, _ in trimmed}
        kept = ranked(tree, (id for id in eligible if id not in gone))
        for id in kept:
            if tree[id].state != "complete":
                yield from _happen(tree, Decided(id, "kept"))
        return kept

    def _solution(self, task: Task, tree: Tree, kept: Sequence[str]) -> Node | None:
        """The best of `kept`, best first, that solves the task."""
        if self.solved_threshold is None:
            return None
        for node in (tree[id] for id in kept):
            if node.score is None or node.score < self.solved_threshold:
                return None
            if node.depth >= self.min_depth and task.domain.complete(task, tree.texts(node.id)) is not False:
                return node
        return None

    def _room(self, tree: Tree) -> int | None:
        return None if self.max_nodes is None else self.max_nodes - len(tree)

    def _converged(self, best: Sequence[float]) -> bool:
        window = best[-self.convergence_window :]
        full = 1 < self.convergence_window == len(window)
        return full and window[-1] - window[0] < self.min_score_improvement

    def _why_empty(self, tree: Tree) -> str:
        """Why nothing is left to expand."""
        if self._room(tree) == 0:
            return "limit:nodes"
        cut = any(node.state == "kept" and node.depth >= self.max_depth for node in tree)
        return "limit:depth" if cut else "exhausted"

    def _answer(self, task: Task, tree: Tree, at: str, stop: str) -> Thinking[Answer]:
        thoughts = list(tree)[1:]
        if not thoughts:
            yield Note("tot.no_thoughts", at, {"total_nodes": len(tree)})
        sound = [node for node in thoughts if node.state not in ("failed", "duplicate")]
        leaves = [node for node in sound if not node.children]
        leaves.sort(key=lambda node: (-node.rank, -node.depth, id_key(node.id)))
        deepest = self.answer == "deepest"
        in_order = sorted(sound, key=lambda node: -(node.depth if deepest else node.rank))
        candidates = leaves if self.answer == "leaf" else in_order
        text, winner = self._first_answer(task, tree, candidates, any_text=self.answer != "path")
        if winner is None and halts(stop):  # a refused evaluation says nothing against its thought
            unscored = [node for node in thoughts if node.score is None and _refused(node)]
            unscored.sort(key=lambda node: -node.depth)
            text, winner = self._first_answer(task, tree, unscored, any_text=self.answer != "path")
            if winner is None and all(node.score is None for node in thoughts):
                text, winner = self._first_answer(task, tree, [*sound, *unscored], any_text=True)
        if winner is not None:
            yield from _happen(tree, Decided(winner.id, "solution", stop))
        id, score = (winner.id, winner.score) if winner is not None else (None, None)
        yield Note("tot.completed", at, {"winner_id": id, "winner_score": score, "total_nodes": len(tree)})
        return Answer(text, stop, id, score, tuple(node.id for node in leaves[: self.top_k]))

    def _first_answer(
        self, task: Task, tree: Tree, nodes: Iterable[Node], *, any_text: bool
    ) -> tuple[str, Node | None]:
        """The answer of the first of `nodes` whose path holds one, and that thought. any_text: where none is
        held, the text of the thought is the answer."""
        for node in nodes:
            held = task.domain.answer(task, tree.texts(node.id))
            if held is not None or any_text:
                return node.text if held is None else held, node
        return "", None


def _refused(node: Node) -> bool:
    """Whether a budget refused the calls that should have scored the thought."""
    return node.state == "failed" and halts(node.reason)


def _happen(tree: Tree, event: Event) -> Thinking[None]:
    tree.add((yield from happen(event)))
