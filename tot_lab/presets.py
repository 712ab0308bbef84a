"""Published settings, each as a plain `TreeOfThoughts(...)` value.

Rule: a preset holds its source's own defaults; a test holds it against them and their call counts.
"""

from __future__ import annotations

from tot_lab.strategies.traversals import BestFirst
from tot_lab.strategies.tree_of_thoughts import TreeOfThoughts

__all__ = ["beam_search", "game24", "state_machine"]


def beam_search() -> TreeOfThoughts:
    """Tree of Thoughts by beam search, the JeevesAgent design: 30 calls at most."""
    return TreeOfThoughts(
        branch_factor=3,
        beam_width=2,
        max_depth=3,
        solved_threshold=1.0,
        min_score=0.0,
        parallel=True,
        answer="best",
    )


def state_machine() -> TreeOfThoughts:
    """Tree of Thoughts as a state machine, the Jido AI design: best-first, proposals and scores of
    siblings in one call each, 100 nodes at most. Its `early_success_threshold` is
    `solved_threshold` here, its `branching_factor` is `branch_factor`."""
    return TreeOfThoughts(
        branch_factor=3,
        beam_width=None,
        max_depth=3,
        max_nodes=100,
        generate="propose",
        evaluate="joint",
        traversal=BestFirst(),
        answer="leaf",
        solved_threshold=1.0,
        min_depth=2,
        convergence_window=2,
        min_score_improvement=0.02,
        top_k=3,
        max_parse_retries=1,
    )


def game24() -> TreeOfThoughts:
    """Game of 24 as in Yao et al. 2023, section 4.1: five thoughts kept a level, each valued three
    times and the values summed, all four levels searched. The paper uses every proposal of a
    reply; here 50 are the most (its recorded replies have up to 46)."""
    return TreeOfThoughts(
        branch_factor=50,
        beam_width=5,
        max_depth=4,
        generate="propose",
        evaluate="value",
        evaluation_draws=3,
        combine="sum",
        solved_threshold=None,
        temperature=0.7,
        max_tokens=1000,
    )
