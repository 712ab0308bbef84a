"""Searches: which thoughts are expanded next.

A search is a generator. It yields `Pick(parents)` and receives the ids of the new children, without failed,
duplicate, merged and pruned ones. It may also yield calls of its own, events, `BudgetLeft()`, and a request
for random numbers. Its local variables are its state. It resumes when all children of the pick are scored, so
its choices cannot depend on which reply arrived first. A search whose algorithm decides which thought is the
answer returns the id of that thought.
"""

from __future__ import annotations

import inspect
import warnings
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Protocol, TypeAlias, TypeVar

from pydantic import Field, field_validator

from tot_lab.core.calls import LOWEST, Call, Reply, logprobs_of
from tot_lab.core.parts import Part, UserFunction, is_function
from tot_lab.core.protocol import ProcedureStep, RandomNumbers
from tot_lab.core.records import Decided, id_key
from tot_lab.core.task import Task
from tot_lab.core.tree import Tree
from tot_lab.strategies.search.proposers import Proposer
from tot_lab.strategies.search.sampling import Count, Expansion, Unit

# `tree_of_thoughts.py` applies these settings after every pick. A new reason to stop also needs a stop code
# and the words that users read for it (`STOP_CODES` in core/records.py).


class Stop(Part):
    """When a search ends: at a solution, at a limit, without improvement, or with nothing left to expand."""

    kind: ClassVar[str] = "stop"

    solved: Unit | None = 1.0
    """The search ends when a kept thought reaches this score at `min_depth` or deeper, unless its path is
    incomplete: the domain says so, or the path lacks the answer that it should state. `None` means never."""

    depth: Annotated[int, Field(ge=1, le=1000)] = 3
    """The most steps of a path below the root."""

    nodes: Count | None = None
    """The most thoughts of the tree, including the root. `None` means no limit."""

    patience: Count | None = None
    """The search ends when the best score has risen by less than `min_improvement` over this many picks.
    `None` means never."""

    min_improvement: Unit = 0.02
    """The least rise of the best score that counts as an improvement."""

    min_depth: Annotated[int, Field(ge=0)] = 0
    """The smallest depth at which a thought can solve the task."""

    min_score: Unit = 0.0
    """A thought with a lower score is pruned. Unless this is 0, so is one with an unreadable score."""

    def converged(self, best: Sequence[float]) -> bool:
        """Whether `best`, the best score so far after each pick, has stopped rising."""
        if self.patience is None or len(best) <= self.patience:
            return False
        return best[-1] - best[-1 - self.patience] < self.min_improvement


@dataclass(frozen=True, slots=True)
class Pick:
    """The thoughts to expand next. The search receives the ids of their new children.

    Attributes:
        parents: Ids of thoughts. A thought may be expanded again: its sample indices and the ids of its
            children continue. A tuple of ids is aggregation: the children are those of the first id, and
            record the others, which may be complete, as their sources. With the proposer `Refine`, the
            children of `(parent, id)` are rewritten versions of `id`.
        count: Children per parent: one number for all, or a list with one for each. `None` means as many as
            the proposer makes.
        proposer: Makes the children of this pick. `None` means the `propose` of the strategy.
        why: The reasons for the choice, by id (visits, value, exploration term, …). They are recorded.
        context: Sections that the prompts of this pick show after the context of the task.
    """

    parents: Sequence[str | tuple[str, ...]]
    count: int | Sequence[int] | None = None
    proposer: Proposer | None = None
    why: Mapping[str, Mapping[str, Any]] | None = None
    context: Sequence[str] = ()


Searching: TypeAlias = Generator[Pick | ProcedureStep, Any, Any]
"""A search under way. It returns `None` if nothing is left to expand, the stop code of a limit of its own
(`LIMIT_OF_ITERATIONS`), or the id of its answer, which replaces that of the answer rule."""

LIMIT_OF_ITERATIONS = "limit:iterations"


class SearchStrategy(Protocol):
    """The members of a strategy that a search may use."""

    @property
    def propose(self) -> Proposer:
        """The proposer for picks without one."""

    def call(self, node: str, purpose: str, prompt: str, sample_index: int = 0) -> Call:
        """A call with the model and sampling settings of the strategy."""


class Memory(Protocol):
    """Data that a search computes from scores and keeps besides the tree, such as backed-up values."""

    def rescored(self, id: str, old: float) -> None:
        """Take account of the new score of the thought `id`, which is already in `state.tree`. `old` is its
        `rank` before.
        """


M = TypeVar("M", bound=Memory)


class NeedsYieldFrom:
    """The events of a method of `SearchState`. Warns if they were never taken with `yield from`."""

    def __init__(self, method: str, events: Generator[ProcedureStep, Any, Any]) -> None:
        self.method = method
        self.events = events
        self.taken = False

    def __iter__(self) -> Generator[ProcedureStep, Any, Any]:
        self.taken = True
        return self.events

    def __del__(self) -> None:
        if not self.taken:
            text = f"state.{self.method}(…) did nothing. Write `yield from state.{self.method}(…)`."
            warnings.warn(text, RuntimeWarning, stacklevel=2)


class SearchState:
    """The state of one run of a search.

    Attributes:
        task: The problem.
        root: The id of the thought that the search starts from.
        strategy: The strategy that carries out the search. The search's own calls have its model and
            sampling settings.
        tree: All thoughts, with their scores and decisions.
        closed: Thoughts that cannot be expanded: their path is complete or at the depth limit.
        finished: Thoughts whose path is complete.
        by_text: Whether the text of a path decides if it is complete, because its domain does not.
        expansions: The `Expansion` of each thought that was expanded, by id.
        copies: The number of copies of each finished particle. Each copy has a vote.
        grafted: Thoughts that a person has added.
        memories: The data that the search keeps besides the tree; see `remember`.
    """

    def __init__(self, task: Task, root: str, strategy: SearchStrategy) -> None:
        self.task = task
        self.root = root
        self.strategy = strategy
        self.tree = Tree(task.steps)
        self.closed: set[str] = set()
        self.finished: set[str] = set()
        self.by_text = getattr(strategy, "ends_at_answer", True) and task.domain.is_text
        self.expansions: dict[str, Expansion] = {}
        self.copies: Counter[str] = Counter()
        self.grafted: set[str] = set()
        self.memories: list[Memory] = []

    def remember(self, memory: M) -> M:
        """Register `memory`, so that its `rescored` is called when a score changes, and return it."""
        self.memories.append(memory)
        return memory

    def call(self, at: str, purpose: str, prompt: str, sample_index: int = 0) -> Call:
        """A call of the search's own, such as `reply = yield state.call(id, "critique", prompt)`."""
        return self.strategy.call(at, purpose, prompt, sample_index)

    def random_numbers(self, purpose: str = "search") -> RandomNumbers:
        """A request for random numbers, such as `random = yield state.random_numbers()`."""
        return RandomNumbers(f"{self.task.domain.kind}: {self.task.question}", purpose)

    def ranked(self, ids: Iterable[str]) -> list[str]:
        """`ids` by score, best first. Ties keep the given order, as in Yao et al. 2023."""
        nodes = self.tree.nodes
        return sorted(ids, key=lambda id: -nodes[id].rank)

    def reply(self, id: str) -> Reply | None:
        """The reply that `id` was read from.

        `None` if the search requests no log-probabilities, other thoughts were read from the reply too, or a
        person wrote `id`.
        """
        expansion = self.expansions.get(self.tree[id].parent or "")
        return None if expansion is None else expansion.replies.get(id_key(id)[-1])

    def logprobs(self, id: str) -> list[float]:
        """The log-probabilities of the tokens of `reply(id)`, each at least `LOWEST`. Empty if unknown."""
        reply = self.reply(id)
        return [] if reply is None else [max(LOWEST, value) for value in logprobs_of(reply)]

    def complete(self, id: str) -> bool | None:
        """Whether the path of `id` is complete.

        `None` if unknown: the domain does not tell, or no answer was found and no prompt asks for one.
        """
        if not self.by_text:
            return self.task.domain.complete(self.task, self.tree.texts(id))
        return id in self.finished or (False if self.strategy.propose.asks_for_answer else None)

    def open(self, ids: Iterable[str]) -> list[str]:
        """Those of `ids` that are not in `closed`, so that a search may pick them."""
        return [id for id in ids if id not in self.closed]

    def keep_best(self, ids: Iterable[str], width: int | None) -> Generator[ProcedureStep, Any, list[str]]:
        """Prune all but the `width` best of `ids`. Returns those kept, best first."""

        def steps() -> Generator[ProcedureStep, Any, list[str]]:
            ranked = self.ranked(ids)
            if width is None:
                return ranked
            yield from self.prune(ranked[width:], "beam")
            return ranked[:width]

        return NeedsYieldFrom("keep_best", steps())  # type: ignore[return-value]

    def prune(self, ids: Iterable[str], rule: str) -> Generator[ProcedureStep, Any, None]:
        """Remove `ids` from the search. `rule` is the recorded reason."""
        events = (Decided(id, "pruned", rule) for id in ids)
        return NeedsYieldFrom("prune", events)  # type: ignore[return-value]


class Search(Part):
    """Chooses the thoughts to expand next. Subclass it, or pass a function, for a custom search."""

    kind: ClassVar[str] = ""

    logprobs: ClassVar[int] = 0
    """Alternatives per token whose log-probabilities each proposal reports, for `SearchState.logprobs`."""

    alternatives: ClassVar[int | None] = None
    """How many of these alternatives the search reads from `SearchState.reply`. `None` means that the
    log-probabilities of the tokens themselves are enough."""

    scale: ClassVar[str] = ""
    """The setting that scales the number of calls, such as `width`. "" means no such setting."""

    @classmethod
    def _short_form(cls, value: Any) -> Any:
        if is_function(value) and issubclass(FunctionSearch, cls):
            return FunctionSearch(function=value)
        return super()._short_form(value)

    def run(self, state: SearchState) -> Searching:
        """Yield picks until nothing is left to expand. Returns as `Searching` describes."""
        raise NotImplementedError(f"the search {self.kind!r} does not define `run`")

    def rescored(self, state: SearchState, id: str, old: float) -> None:
        """Take account of a new score that a person has given the thought `id`. `old` is its `rank` before.

        The default passes it to each `Memory` that the search has registered with `state.remember`. A search
        that reads scores from `state.tree` when it needs them has nothing to do.
        """
        for memory in state.memories:
            memory.rescored(id, old)

    def max_expansions(self, branch: int, depth: int) -> int | None:
        """The most expansions in a tree of `depth` levels with `branch` children per thought.

        `None` means that there is no bound, because the search may expand a thought again.
        """
        return None

    def max_expansions_by_count(self, branch: int, depth: int) -> Sequence[tuple[int, int]] | None:
        """The most expansions by their number of children: `[(5, 1), (2, 8)]` is one into 5, and 8 into 2.

        A search that sets `Pick.count` overrides this method instead of `max_expansions`.
        """
        most = self.max_expansions(branch, depth)
        return None if most is None else [(branch, most)]

    def max_shared(self) -> int:
        """The most children of one thought in a search that divides a number of children among thoughts.

        `max_expansions_by_count` of such a search (REBASE, particle filters) counts each child as an
        expansion of its own. 1 for other searches.
        """
        return 1

    def max_picks(self, branch: int, depth: int) -> int | None:
        """The most picks in a tree of `depth` levels with `branch` children per thought. `None` means no
        bound."""
        return self.max_expansions(branch, depth)

    def max_own_calls(self, branch: int, depth: int) -> int:
        """The most calls that the search itself makes, such as reflections. The arguments are those of
        `max_expansions`."""
        return 0


def expansions_of_all(branch: int, depth: int) -> int:
    """Expansions of a search that expands every thought once."""
    return sum(branch**level for level in range(depth))


def _is_generator(function: UserFunction) -> bool:
    """Whether a function, or the `__call__` of an object, is a generator function."""
    called = function.wrapped
    return any(map(inspect.isgeneratorfunction, (called, type(called).__call__)))


class FunctionSearch(Search):
    """A search defined by a function.

    The function is either a generator `(state) -> picks`, which is a whole search, or a function `(tree,
    frontier) -> ids`. After the root was expanded, such a function is called before each pick. `frontier`
    lists the thoughts that can be expanded, oldest first; those not returned stay in it. An empty list ends
    the search.

    `TreeOfThoughts(search=function)` is short for `TreeOfThoughts(search=FunctionSearch(function=…))`.
    """

    function: UserFunction
    """The function: a generator `(state) -> picks`, or a function `(tree, frontier) -> ids`."""

    @field_validator("function")
    @classmethod
    def _takes_state_or_frontier(cls, function: UserFunction) -> UserFunction:
        forms = "a generator (state) that yields tl.Pick(ids), or a function (tree, frontier) -> ids"
        names = ["state"] if _is_generator(function) else ["tree", "frontier"]
        if len(names) == 2 and len(function.parameters) == 1:
            raise ValueError(f"search {function.name!r} contains no yield.\nIt must be {forms}.")
        function.expect_arguments("search", names, forms)
        return function

    width: Count | None = None
    """Thoughts kept in the frontier after each expansion. `None` keeps all of them. It does not apply to a
    generator.
    """

    def run(self, state: SearchState) -> Searching:
        if _is_generator(self.function):
            return self.function(state)  # type: ignore[no-any-return]
        return self._by_frontier(state)

    def max_expansions(self, branch: int, depth: int) -> int | None:
        return None if _is_generator(self.function) else expansions_of_all(branch, depth)

    def _by_frontier(self, state: SearchState) -> Searching:
        frontier: dict[str, None] = {}
        chosen = [state.root]
        while chosen:
            children = yield Pick(chosen)
            frontier.update(dict.fromkeys(state.open(children)))
            chosen = self._named(state, frontier)
            if self.width is not None and len(frontier) > self.width:
                pruned = state.ranked(frontier)[self.width :]
                yield from state.prune(pruned, "beam")
                for id in pruned:
                    del frontier[id]

    def _named(self, state: SearchState, frontier: dict[str, None]) -> list[str]:
        """Call the function, and remove the ids that it returns from the frontier."""
        name = self.function.name
        named = self.function(state.tree, list(frontier)) if frontier else []
        if isinstance(named, str) or not isinstance(named, Sequence):
            raise TypeError(f"search {name!r} must return a list of ids: got {named!r}.")
        for id in named:
            if not isinstance(id, str) or id not in frontier:
                raise ValueError(f"search {name!r} must return different ids of its frontier: got {id!r}.")
            del frontier[id]
        return list(named)
