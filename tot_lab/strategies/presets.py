"""Published settings, as plain values of their strategies.

A preset has the defaults of its source; a test compares them and their call counts. Each accepts changes by
setting name, by path, or by the names of its source: `beam_search({"search.width": 4})`,
`beam_search(beam_width=4)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from tot_lab.core.attach import no_name
from tot_lab.core.parts import Alias
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
    Proposer,
    Sample,
    Stop,
    TreeOfThoughts,
    Value,
    Vote,
    WithTools,
)
from tot_lab.strategies.search.source_names import BEAM_SEARCH, STATE_MACHINE

Paths: TypeAlias = Mapping[str, Any] | None


def __getattr__(name: str) -> Any:
    raise no_name("tl.presets", name, __all__)


P = TypeVar("P", bound=Callable[..., Any])

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


def _accepting(names: Mapping[str, str | Alias]) -> Callable[[P], P]:
    """Add the source's setting names to the docstring of a preset."""
    lines = ["", "", "    Names of the source, in snake_case or camelCase, and the settings they set:", ""]
    for name, alias in names.items():
        paths, _, note = Alias((alias,)) if isinstance(alias, str) else alias
        lines.append(f"        {name}: {' and '.join(paths)}{f' ({note})' if note else ''}")

    def document(preset: P) -> P:
        preset.__doc__ = f"{(preset.__doc__ or '').rstrip()}{chr(10).join(lines)}\n    "
        return preset

    return document


@_accepting(BEAM_SEARCH)
def beam_search(paths: Paths = None, /, **changes: Any) -> TreeOfThoughts:
    """Tree of Thoughts by beam search. At most 30 calls.

    References:
        JeevesAgent, a Python framework for agents; design T of docs/conformance.md, which `make conformance`
        writes.
    """
    return TreeOfThoughts(
        propose=Sample(count=3),
        evaluate=Value(),
        search=BeamSearch(width=2),
        answer=Best(),
        stop=Stop(solved=1.0, depth=3),
        ends_at_answer=False,
    ).with_(paths, **changes)


@_accepting(STATE_MACHINE)
def state_machine(paths: Paths = None, /, **changes: Any) -> TreeOfThoughts:
    """Tree of Thoughts as in Jido AI, which implements it as a state machine.

    Best-first search: one call proposes all children of a thought, and one call scores them. At most 52
    calls. The limit of 100 nodes takes effect only if `stop.depth` is raised.

    If a setting of `WithTools` is given, such as `tools`, the proposer is wrapped in `WithTools`.

    References:
        Jido AI, an Elixir framework for agents; design M of docs/conformance.md, which `make conformance`
        writes.
    """
    proposer: Proposer = Propose(count=3, max_parse_retries=1)
    given = TreeOfThoughts.by_path({**(paths or {}), **changes})
    if any(path.partition("propose.")[2] in WithTools.model_fields for path in given):
        proposer = WithTools(proposer=proposer)
    return TreeOfThoughts(
        propose=proposer,
        evaluate=Joint(max_parse_retries=1),
        search=BestFirst(),
        answer=BestLeaf(top_k=3),
        stop=Stop(solved=1.0, depth=3, nodes=100, patience=1, min_improvement=0.02, min_depth=2),
        ends_at_answer=False,
    ).with_(given)


@_accepting(DeepThink.setting_aliases)
def deep_think_quick(paths: Paths = None, /, **changes: Any) -> DeepThink:
    """Deep Think with the quick settings of Cogtrix: one iteration of three branches. Makes at most
    6 calls: 5, and one more if the server turns out not to support JSON schemas.
    """
    return DeepThink(max_iterations=1, num_branches=3).with_(paths, **changes)


@_accepting(DeepThink.setting_aliases)
def deep_think_balanced(paths: Paths = None, /, **changes: Any) -> DeepThink:
    """Deep Think with the balanced settings of Cogtrix, its defaults. Makes at most 16 calls: 15, and
    one more if the server turns out not to support JSON schemas.
    """
    return DeepThink(max_iterations=3, num_branches=3, beam_width=2).with_(paths, **changes)


@_accepting(DeepThink.setting_aliases)
def deep_think_thorough(paths: Paths = None, /, **changes: Any) -> DeepThink:
    """Deep Think with the thorough settings of Cogtrix. Makes at most 31 calls: 30, and one more if
    the server turns out not to support JSON schemas.
    """
    return DeepThink(max_iterations=5, num_branches=4, beam_width=2).with_(paths, **changes)


@_accepting(DeepThink.setting_aliases)
def deep_think_maximum(paths: Paths = None, /, **changes: Any) -> DeepThink:
    """Deep Think with the maximum settings of Cogtrix. Makes at most 36 calls: 35, and one more if
    the server turns out not to support JSON schemas.
    """
    return DeepThink(max_iterations=5, num_branches=5, beam_width=3).with_(paths, **changes)


def game24(paths: Paths = None, /, **changes: Any) -> TreeOfThoughts:
    """Game of 24: breadth-first search that keeps five thoughts per level, each valued three times and the
    values summed. At most 2,416 calls.

    Differences from the paper's code: at most 50 proposals of a reply are used (its recorded replies have up
    to 46), and none with wrong arithmetic. A path that reaches 24 is itself the answer; the original adds a
    fourth step that writes the answer down and is valued too. States with the same remaining numbers are each
    valued; the original values them once.

    References:
        Yao et al. 2023, section 4.1.
    """
    return TreeOfThoughts(
        propose=Propose(count=50),
        evaluate=Value(samples=3, combine="sum"),
        search=BeamSearch(width=5),
        stop=Stop(solved=None, depth=4),
        temperature=0.7,
        max_tokens=1000,
    ).with_(paths, **changes)


def mini_crossword(paths: Paths = None, /, **changes: Any) -> TreeOfThoughts:
    """Mini crosswords: depth-first search over 100 states, with at most three words per state. At most 3,838
    calls.

    Words are ordered by the sum of their confidences in eight replies (the paper says five). Each clue with
    at least two letters is judged by itself, and a state with an impossible clue is not entered. The answer
    is the deepest state, whatever its verdict.

    Differences from the paper: the three words of a state are judged together; in the original, each is
    judged when its turn comes. When a search ends at 100 states, it has therefore judged some that the
    original would judge later. This applies to seven in ten published GPT-4 searches, to at most nine states
    each, and changes no answer. No word is proposed for a clue that its crossings have filled; in the
    original that adds a state.

    References:
        Yao et al. 2023, section 4.3, and its published code.
    """
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
    """Creative writing: five plans and five votes for the best, then five passages that follow it and five
    votes. 20 calls.

    The temperature is that of the published script, 1.0. Unlike in the published code, a reply without a plan
    or a passage is not a candidate.

    References:
        Yao et al. 2023, section 4.2.
    """
    return TreeOfThoughts(
        propose=Sample(count=5),
        evaluate=Vote(samples=5),
        search=BeamSearch(width=1),
        stop=Stop(solved=None, depth=2),
        temperature=1.0,
        max_tokens=1000,
    ).with_(paths, **changes)
