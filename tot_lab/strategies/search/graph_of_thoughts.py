"""Graph of Thoughts: a list of operations that generate, aggregate, refine and select thoughts."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from tot_lab.core.protocol import ProcedureStep
from tot_lab.strategies.search.proposers import Proposer
from tot_lab.strategies.search.refine import Refine
from tot_lab.strategies.search.sampling import Count
from tot_lab.strategies.search.searches import Pick, Search, Searching, SearchState

Groups: TypeAlias = list[list[str]]
"""The thoughts that the next operation receives. Thoughts that an operation made together are a group, such
as the children of one thought."""


class Operation(BaseModel):
    """One operation of a graph of thoughts.

    - `generate`: `count` children of each thought. The children of one thought are a group.
    - `aggregate`: `count` thoughts made from all thoughts, or from each `size` of them in turn. They are
      children of the first of these and record the others as sources. If the first cannot be expanded, they
      are its siblings.
    - `refine`: `count` rewritten versions of each thought, as siblings. A thought and its versions are a
      group.
    - `keep`: all but the `count` best thoughts are pruned, or with `each` all but the `count` best of each
      group. Of equal scores, the first stays.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    do: Literal["generate", "aggregate", "refine", "keep"]
    """The kind of operation, as listed above."""

    count: Count = 1
    """Thoughts made, or kept."""

    size: Annotated[int, Field(ge=2)] | None = None
    """Thoughts in each aggregate. `None` means all."""

    each: bool = False
    """Whether `keep` chooses within each group instead of among all thoughts."""


GENERATE, KEEP = Operation(do="generate", count=3), Operation(do="keep", count=3)
AGGREGATE, REFINE = Operation(do="aggregate", count=3), Operation(do="refine")
BEST = Operation(do="keep")


class GraphOfThoughts(Search):
    """Carries out `operations` one after the other. Each receives the thoughts of the previous operation.

    `generate` passes on thoughts that cannot be expanded. Every thought is scored when it is made. The answer
    rule may also choose a thought that was not kept (in a domain of text, only if no kept path is finished).

    The operations correspond to Generate, Aggregate, Improve and KeepBestN of the published package; its
    Score follows each of the first three. Improve drops the thought that it improves, and `refine` keeps it
    as a candidate.

    References:
        Besta et al. 2024, Graph of Thoughts, arXiv:2308.09687, section 3.2 (transformations) and section 4
        (graph of operations).
    """

    operations: Annotated[tuple[Operation, ...], Field(strict=False, min_length=1)] = (
        GENERATE,
        KEEP,
        AGGREGATE,
        BEST,
        REFINE,
        BEST,
    )
    """The operations, in order. Dicts such as `{"do": "keep", "count": 2}` are accepted."""

    def run(self, state: SearchState) -> Searching:
        groups: Groups = [[state.root]]
        for operation in self.operations:
            groups = yield from OPERATIONS[operation.do](state, operation, groups)

    def max_picks(self, branch: int, depth: int) -> int:
        return sum(self._expansions_of_each())

    def max_expansions_by_count(self, branch: int, depth: int) -> Sequence[tuple[int, int]]:
        counts = [operation.count for operation in self.operations]
        return list(zip(counts, self._expansions_of_each(), strict=True))

    def _expansions_of_each(self) -> list[int]:
        """The most expansions of each operation."""
        thoughts, groups, most = 1, 1, []
        for operation in self.operations:
            count, expansions = operation.count, thoughts
            if operation.do == "generate":
                groups, thoughts = thoughts, thoughts * count
            elif operation.do == "refine":
                groups, thoughts = thoughts, thoughts * (1 + count)
            elif operation.do == "aggregate":
                expansions = groups = -(-thoughts // (operation.size or thoughts))
                thoughts = groups * count
            else:
                expansions = 0
                thoughts = min(thoughts, count * (groups if operation.each else 1))
                groups = groups if operation.each else 1
            most.append(expansions)
        return most


Operating: TypeAlias = Generator[Pick | ProcedureStep, Any, Groups]


def generate(state: SearchState, operation: Operation, groups: Groups) -> Operating:
    """Give each thought children. Thoughts that cannot be expanded stay in the result."""
    thoughts = flat(groups)
    unchanged = [[id] for id in thoughts if id in state.closed]
    return unchanged + (yield from grow(state, operation, [(id,) for id in state.open(thoughts)]))


def aggregate(state: SearchState, operation: Operation, groups: Groups) -> Operating:
    """Combine the thoughts of each slice of `size` into new ones."""
    thoughts = flat(groups)
    size = operation.size or max(len(thoughts), 1)
    parts = [thoughts[start : start + size] for start in range(0, len(thoughts), size)]
    parts = [[parent_of(state, part[0]), *part] if part[0] in state.closed else part for part in parts]
    return (yield from grow(state, operation, [tuple(part) for part in parts]))


def refine(state: SearchState, operation: Operation, groups: Groups) -> Operating:
    """Rewrite each thought, and keep it as a candidate."""
    thoughts = flat(groups)
    if state.root in thoughts:
        raise ValueError("operations must not rewrite the question: put `generate` before `refine`.")
    proposer = Refine(proposer=state.strategy.propose)
    parts = [(parent_of(state, id), id) for id in thoughts]
    versions = {id: [id] for id in thoughts}
    for child in flat((yield from grow(state, operation, parts, proposer))):
        (*_, original) = state.tree[child].source or (child,)
        versions.setdefault(original, []).append(child)
    return list(versions.values())


def keep(state: SearchState, operation: Operation, groups: Groups) -> Operating:
    """Prune all but the `count` best thoughts of each group, or of all groups together."""
    kept: Groups = []
    for group in groups if operation.each else [flat(groups)]:
        kept.append((yield from state.keep_best(group, operation.count)))
    return kept


OPERATIONS = {"generate": generate, "aggregate": aggregate, "refine": refine, "keep": keep}


def grow(
    state: SearchState,
    operation: Operation,
    parts: Sequence[tuple[str, ...]],
    proposer: Proposer | None = None,
) -> Operating:
    """Expand `parts` in order. A part is the id of a parent, followed by the ids of further sources.

    Consecutive parts with different parents are expanded concurrently. Returns the children of each part.
    """
    made: Groups = []
    waiting = deque(parts)
    while waiting:
        batch: dict[str, tuple[str, ...]] = {}
        while waiting and waiting[0][0] not in batch:
            part = waiting.popleft()
            batch[part[0]] = part
        why = {parent: {"operation": operation.do} for parent in batch}
        groups: dict[str, list[str]] = {parent: [] for parent in batch}
        for child in (yield Pick(list(batch.values()), operation.count, proposer, why)):
            groups.setdefault(parent_of(state, child), []).append(child)
        made += groups.values()
    return made


def parent_of(state: SearchState, id: str) -> str:
    """The parent of a thought that is not the root."""
    return state.tree[id].parent or state.root


def flat(groups: Groups) -> list[str]:
    """The thoughts of all groups."""
    return [id for group in groups for id in group]
