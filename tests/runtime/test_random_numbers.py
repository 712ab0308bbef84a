"""Random numbers of a search: the same in every rerun and replay, others for every repeat, task, purpose."""

import itertools
from random import Random

import pytest
from support import TASK, Scripted, run, wait

import tot_lab as tl


def draws_of(task=TASK, repeat=0, purpose="search", strategy=None):
    """The numbers that a search draws."""
    drawn = []

    def drawing(state):
        random = yield state.random_numbers(purpose)
        drawn.append(random.random())
        yield tl.Pick([state.root])
        drawn.append(random.random())

    search = tl.TreeOfThoughts(search=drawing, stop=tl.Stop(solved=None, depth=2))
    made = run(strategy(search) if strategy else search, task, repeat=repeat)
    return drawn, made


def test_a_rerun_draws_the_same_numbers_and_anything_else_others():
    first, _ = draws_of()
    assert draws_of()[0] == first
    others = [
        draws_of(repeat=1)[0],
        draws_of(task=tl.game24("1 2 3 4"))[0],
        draws_of(purpose="rollouts")[0],
    ]
    for one, other in itertools.combinations([first, *others], 2):
        assert not set(one) & set(other)


def test_attempts_of_one_search_draw_different_numbers():
    drawn, _ = draws_of(strategy=lambda search: tl.BestOf(strategy=search, attempts=3))
    assert len(set(drawn)) == 6


def test_two_requests_of_one_purpose_draw_the_same_numbers():
    def twice(state):
        first, second = (yield state.random_numbers()), (yield state.random_numbers())
        assert first.random() == second.random()
        yield tl.Pick([state.root])

    run(tl.TreeOfThoughts(search=twice))


def test_a_request_has_no_place_in_the_record():
    def silent(state):
        yield tl.Pick([state.root])

    def asking(state):
        yield state.random_numbers()
        yield tl.Pick([state.root])

    records = [run(tl.TreeOfThoughts(search=search)).events for search in (silent, asking)]
    assert records[0] == records[1]


@pytest.mark.slow
def test_the_published_selection_given_the_same_uniform_numbers():
    """`numpy.random.choice(ids, size, p)`: the first id whose cumulative probability exceeds the number."""
    import numpy as np

    for seed in range(500):
        random = Random(seed)
        scores = [round(random.random(), 2) for _ in range(6)]
        search = tl.searches.SampledBeam(width=3)
        pruned = _pruned_by(search, scores, Random(seed + 1))
        uniform = Random(seed + 1)
        cumulative = np.cumsum(np.array(scores) / sum(scores))
        drawn = {int(np.searchsorted(cumulative, uniform.random(), side="right")) for _ in range(3)}
        assert pruned == set(range(6)) - drawn


def _pruned_by(search, scores, random):
    """The numbers of the thoughts that `search` prunes on the first level."""
    from tot_lab.core.records import Decided, Scored, Thought
    from tot_lab.strategies.search.searches import SearchState

    state = SearchState(TASK, "0", tl.TreeOfThoughts())
    state.tree.add(Thought("0", None, "root"))
    steps = search.run(state)
    next(steps)
    steps.send(random)
    for k, score in enumerate(scores):
        state.tree.add(Thought(f"0.{k}", "0", str(k)))
        state.tree.add(Scored(f"0.{k}", score))
    pruned = set()
    step = steps.send([f"0.{k}" for k in range(len(scores))])
    while isinstance(step, Decided):
        pruned.add(int(step.id.split(".")[1]))
        step = next(steps)
    return pruned


def test_a_level_without_a_positive_score_keeps_the_first_thoughts():
    assert _pruned_by(tl.searches.SampledBeam(width=2), [0.0, 0.0, 0.0], Random(0)) == {2}


@pytest.mark.parametrize("repeat", [0, 1])
def test_a_search_with_random_numbers_replays(repeat):
    search = tl.TreeOfThoughts(search=tl.searches.SampledBeam(width=2), stop=tl.Stop(solved=None, depth=3))
    made = wait(tl.Lab(Scripted(), runs=None).run(search, TASK, repeat=repeat))
    assert wait(made.replay()).identical
