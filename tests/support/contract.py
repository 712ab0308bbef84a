"""One instance of every strategy, component and domain."""

import pytest

import tot_lab as tl
from support import (
    ANSWERS,
    EVALUATORS,
    IN_PARTS,
    PROPOSERS,
    SEARCHES,
    SETTINGS,
    STRATEGIES,
    TASK,
)
from support.puzzle_tasks import MOVES, puzzle_task
from tot_lab.domains.gym import Gym
from tot_lab.testing import (
    Trial,
    bounds_its_calls,
    can_be_cancelled_at_any_time,
    records_the_same_for_any_latency,
    survives_a_model_that_fails,
)

MADE = [kind(**SETTINGS.get(kind, {})) for kind in STRATEGIES]
MADE += [tl.TreeOfThoughts(search=kind(**SETTINGS.get(kind, {}))) for kind in SEARCHES]
MADE += [tl.TreeOfThoughts(propose=kind(), stop=tl.Stop(depth=2)) for kind in PROPOSERS]
MADE += [tl.TreeOfThoughts(evaluate=kind(), stop=tl.Stop(depth=2)) for kind in EVALUATORS]
MADE += [tl.TreeOfThoughts(answer=kind(), stop=tl.Stop(depth=2)) for kind in ANSWERS]
MADE += [
    tl.TreeOfThoughts(
        propose=tl.Propose(max_parse_retries=1), evaluate=tl.evaluators.Joint(max_parse_retries=1)
    ),
    tl.TreeOfThoughts(evaluate=tl.Vote(samples=3), search=tl.DepthFirst(width=2)),
    tl.TreeOfThoughts(evaluate="logprob"),
    tl.TreeOfThoughts(
        propose=tl.Propose(count=6, samples=2, max_parse_retries=1),
        evaluate=tl.Value(max_parse_retries=1),
        stop=tl.Stop(depth=2),
    ),
    tl.TreeOfThoughts(
        evaluate=tl.Value(samples=2),
        search=tl.BestFirst(width=2),
        answer="best_leaf",
        stop=tl.Stop(nodes=9),
        merge=True,
    ),
    tl.BestOf(strategy=tl.SelfConsistency(attempts=2), attempts=2, evaluate="score"),
]
FIRST = (
    records_the_same_for_any_latency,
    bounds_its_calls,
    can_be_cancelled_at_any_time,
    survives_a_model_that_fails,
)
"""What is tried one lane before the other promises."""

LANES = ("check", "slow", "nightly")


def in_lane(number: int) -> list[pytest.MarkDecorator]:
    """The marks of a lane: 0 is that of `make check`."""
    return [getattr(pytest.mark, LANES[number])] if number else []


def every_strategy(strategies: str = "check", values: str = "slow") -> pytest.MarkDecorator:
    """Parametrizes a test by all strategies and by all values of tree search, each group in a lane."""
    first, second = in_lane(LANES.index(strategies)), in_lane(LANES.index(values))
    return pytest.mark.parametrize(
        "strategy",
        [
            pytest.param(made, id=f"{made.kind}-{k}", marks=second if k >= len(STRATEGIES) else first)
            for k, made in enumerate(MADE)
        ],
    )


def trial_of(strategy, **options):
    """The trial of a strategy. Only a domain with parts can be evaluated by parts."""
    by_parts = isinstance(getattr(strategy, "evaluate", None), tl.evaluators.Parts)
    return Trial(strategy, IN_PARTS if by_parts else TASK, **options)


HANDS = {
    "game24": tl.game24("4 5 6 10"),
    "general": TASK,
    "mini_crossword": tl.domains.mini_crossword(1),
    "creative_writing": tl.domains.creative_writing(1),
    "word_sums": tl.domains.word_sums(2),
    "multi_hop": tl.domains.multi_hop(2),
    "open_ended": tl.open_ended("Where should a small shop keep its orders?"),
    "constrained": tl.domains.constrained(2),
    "gym": tl.Task(domain=Gym(family="count_bits"), question="How many 1 bits has 9?", reference="2"),
}
HANDS |= {kind: puzzle_task(kind) for kind in MOVES}
HANDS["agent"] = HANDS["word_sums"]
HANDS["puzzle"] = HANDS["gym/jugs"]
PATHS = {
    "game24": [[], ["10 - 4 = 6 (left: 5 6 6)"]],
    "general": [[], ["a spider has 8 legs"]],
    "mini_crossword": [[], ["h2. polar (grid: _____ polar _____ _____ _____)"]],
    "creative_writing": [[], ["1. A sailor comes home. 2. He finds his street changed."]],
    "word_sums": [[], ["909 * 366 = 332694"]],
    "multi_hop": [[], ["Bastian Tarrow came into the world in Ivelstow."]],
    "open_ended": [[], ["List what an order holds."]],
    "constrained": [[], ["Pottery: Monday, Red"]],
    "gym": [[], ["9 is 1001 in binary."]],
}
PATHS |= {kind: [[], moves[:1]] for kind, moves in MOVES.items()}


class HashOrder(tl.BeamSearch):
    """Goes through a set: in one process always in the same order, in another process in another one."""

    kind = "tests/hash_order"

    def run(self, state):
        level = {state.root}
        while level:
            children = yield tl.Pick([*level])
            level = set(state.open(children))
