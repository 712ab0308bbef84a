"""Published settings, each as a plain `TreeOfThoughts(...)` value.

Rule: a preset holds its source's own defaults; a test holds it against them and their call counts.
"""

from __future__ import annotations

from tot_lab.strategies.traversals import BestFirst, DepthFirst
from tot_lab.strategies.tree_of_thoughts import TreeOfThoughts

__all__ = ["beam_search", "creative_writing", "game24", "mini_crossword", "state_machine"]


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


def mini_crossword() -> TreeOfThoughts:
    """Mini crosswords as in Yao et al. 2023, section 4.3: depth-first, the most confident words first,
    three of a state at most (the published code), none entered in which a clue is impossible, 100
    states in all; the answer is the deepest state, of equals the first.

    Apart from the paper, one call proposes words (there five are summed up, in its code eight), one
    judges all clues of a state (there each has its own), the three of a state are judged together
    (there when their turn comes), and a state that was found impossible does not answer."""
    return TreeOfThoughts(
        branch_factor=3,
        beam_width=None,
        max_depth=10,
        max_nodes=101,
        generate="propose",
        evaluate="value",
        traversal=DepthFirst(prune_below=0.5),
        answer="leaf",
        solved_threshold=None,
        temperature=0.7,
        max_tokens=1000,
    )


def creative_writing() -> TreeOfThoughts:
    """Creative writing as in Yao et al. 2023, section 4.2: five plans, five votes for the best; five
    passages that follow it, five votes. 20 calls."""
    return TreeOfThoughts(
        branch_factor=5,
        beam_width=1,
        max_depth=2,
        generate="sample",
        evaluate="vote",
        evaluation_draws=5,
        solved_threshold=None,
        temperature=1.0,
        max_tokens=1000,
    )
