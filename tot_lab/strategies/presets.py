"""Published settings, each as a plain value of its strategy.

Rule: a preset holds its source's own defaults; a test holds it against them and their call counts. Each takes
changes, by the names of the settings or by their paths: `beam_search({"search.width": 4})`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from tot_lab.strategies.deep_think import DeepThink
from tot_lab.strategies.search import (
    BeamSearch,
    Best,
    BestFirst,
    BestLeaf,
    Deepest,
    DepthFirst,
    Joint,
    Parts,
    Propose,
    Sample,
    Stop,
    TreeOfThoughts,
    Value,
    Vote,
)

Paths: TypeAlias = Mapping[str, Any] | None

__all__ = [
    "beam_search",
    "creative_writing",
    "deep_think_balanced",
    "deep_think_maximum",
    "deep_think_quick",
    "deep_think_thorough",
    "game24",
    "mini_crossword",
    "state_machine",
]


def beam_search(paths: Paths = None, /, **changes: Any) -> TreeOfThoughts:
    """Tree of Thoughts by beam search, the JeevesAgent design: 30 calls at most."""
    return TreeOfThoughts(
        propose=Sample(count=3),
        evaluate=Value(),
        search=BeamSearch(width=2),
        answer=Best(),
        stop=Stop(solved=1.0, depth=3),
    ).with_(paths, **changes)


def state_machine(paths: Paths = None, /, **changes: Any) -> TreeOfThoughts:
    """Tree of Thoughts as a state machine, the Jido AI design: best-first, proposals and scores of
    siblings in one call each, 100 nodes at most. Its `early_success_threshold` is
    `stop.solved` here, its `branching_factor` is `propose.count`."""
    return TreeOfThoughts(
        propose=Propose(count=3, max_parse_retries=1),
        evaluate=Joint(max_parse_retries=1),
        search=BestFirst(),
        answer=BestLeaf(top_k=3),
        stop=Stop(solved=1.0, depth=3, nodes=100, patience=1, min_improvement=0.02, min_depth=2),
    ).with_(paths, **changes)


def deep_think_quick(paths: Paths = None, /, **changes: Any) -> DeepThink:
    """Deep Think, the Cogtrix design, quick: one iteration of three branches, 5 calls."""
    return DeepThink(max_iterations=1, num_branches=3).with_(paths, **changes)


def deep_think_balanced(paths: Paths = None, /, **changes: Any) -> DeepThink:
    """Deep Think, the Cogtrix design, balanced: its defaults, 15 calls at most."""
    return DeepThink(max_iterations=3, num_branches=3, beam_width=2).with_(paths, **changes)


def deep_think_thorough(paths: Paths = None, /, **changes: Any) -> DeepThink:
    """Deep Think, the Cogtrix design, thorough: 30 calls at most."""
    return DeepThink(max_iterations=5, num_branches=4, beam_width=2).with_(paths, **changes)


def deep_think_maximum(paths: Paths = None, /, **changes: Any) -> DeepThink:
    """Deep Think, the Cogtrix design, maximum: 35 calls at most."""
    return DeepThink(max_iterations=5, num_branches=5, beam_width=3).with_(paths, **changes)


def game24(paths: Paths = None, /, **changes: Any) -> TreeOfThoughts:
    """Game of 24 as in Yao et al. 2023, section 4.1: five thoughts kept a level, each valued three
    times and the values summed, all four levels searched.

    Apart from the paper's code, 50 proposals of a reply are used at most (its recorded replies have up
    to 46), and none that computes wrongly. A path that comes to 24 is its own answer; there a fourth
    step writes it down, and is valued. States with the same numbers left are each valued, there once."""
    return TreeOfThoughts(
        propose=Propose(count=50),
        evaluate=Value(samples=3, combine="sum"),
        search=BeamSearch(width=5),
        stop=Stop(solved=None, depth=4),
        temperature=0.7,
        max_tokens=1000,
    ).with_(paths, **changes)


def mini_crossword(paths: Paths = None, /, **changes: Any) -> TreeOfThoughts:
    """Mini crosswords as in Yao et al. 2023, section 4.3, and its published code: depth-first, the most
    confident words first, by their confidence in eight replies together (the section says five), three
    of a state at most; each clue with two letters judged by itself; no state entered in which one is
    impossible; 100 states in all. The answer is the deepest, of equals the first, whatever its verdict.

    Apart from the paper, the three words of a state are judged together, there each when its turn
    comes: of a search that comes to 100 states, some are judged early. That is so of seven in ten
    published searches of GPT-4, by nine states at most, and changes none of their answers. A state with
    a verdict that cannot be read is not entered; there it is, unless another clue is impossible. Nor is
    a word proposed for a clue that its crossings have filled, which there is a state once more."""
    return TreeOfThoughts(
        propose=Propose(count=3, samples=8),
        evaluate=Parts(),
        search=DepthFirst(prune_below=0.5),
        answer=Deepest(),
        stop=Stop(solved=None, depth=10, nodes=101),
        temperature=0.7,
        max_tokens=1000,
    ).with_(paths, **changes)


def creative_writing(paths: Paths = None, /, **changes: Any) -> TreeOfThoughts:
    """Creative writing as in Yao et al. 2023, section 4.2: five plans, five votes for the best; five
    passages that follow it, five votes. 20 calls, at the temperature of the published script, 1.0.

    Apart from its code, a reply in which there is no plan, or no passage, is no candidate."""
    return TreeOfThoughts(
        propose=Sample(count=5),
        evaluate=Vote(samples=5),
        search=BeamSearch(width=1),
        stop=Stop(solved=None, depth=2),
        temperature=1.0,
        max_tokens=1000,
    ).with_(paths, **changes)
