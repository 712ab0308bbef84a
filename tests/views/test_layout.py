"""The drawings have the properties that their file promises, on any tree."""

import itertools
import json
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import GOLDEN
from support.layered import SPREAD, layered

from tot_lab.views.figures.layout import tidy

ALMOST = 1e-9
LAYOUTS = json.loads((GOLDEN / "layouts.json").read_text())
both = pytest.mark.parametrize("draw", [tidy, layered])


@st.composite
def forests(draw):
    """Parent arrays in which a parent may stand before or behind its child."""
    count = draw(st.integers(1, 40))
    bushy = draw(st.integers(1, 40))
    parents = [draw(st.integers(max(-1, node - bushy), node - 1)) for node in range(count)]
    places = draw(st.permutations(range(count)))
    shuffled = [0] * count
    for node, parent in enumerate(parents):
        shuffled[places[node]] = -1 if parent == -1 else places[parent]
    return shuffled


def children_of(parents):
    below = {node: [] for node in range(-1, len(parents))}
    for node, parent in enumerate(parents):
        below[parent].append(node)
    return below


def subtree(below, node):
    return tuple(subtree(below, child) for child in below[node])


def places_in(below, node):
    return [node, *itertools.chain.from_iterable(places_in(below, child) for child in below[node])]


@pytest.mark.slow
@both
@given(parents=forests())
def test_levels_are_apart_and_in_order(draw, parents):
    x, y = draw(parents)
    below = children_of(parents)
    assert x.min() == 0
    assert all(y[node] == (0 if parent == -1 else y[parent] + 1) for node, parent in enumerate(parents))
    for level in set(y):
        assert (np.diff(np.sort(x[y == level])) >= 1 - ALMOST).all()
    level = below[-1]
    while level:  # left to right as a walk through the tree meets them, so lines never cross
        assert (np.diff(x[level]) >= 1 - ALMOST).all()
        level = [child for node in level for child in below[node]]


@pytest.mark.slow
@given(forests())
def test_parents_are_centred(parents):
    x, _ = tidy(parents)
    for node, siblings in children_of(parents).items():
        if node != -1 and siblings:
            assert x[node] == pytest.approx((x[siblings[0]] + x[siblings[-1]]) / 2, abs=ALMOST)


@pytest.mark.slow
@both
@given(parents=forests())
def test_mirror_image(draw, parents):
    x, y = draw(parents)
    last = len(parents) - 1
    mirrored = [-1 if parent == -1 else last - parent for parent in reversed(parents)]
    other_x, other_y = draw(mirrored)
    assert np.allclose(other_x[::-1], x.max() - x, atol=ALMOST)
    assert (other_y[::-1] == y).all()


@pytest.mark.slow
@given(forests())
def test_equal_subtrees_are_drawn_equal(parents):
    x, _ = tidy(parents)
    below = children_of(parents)
    seen = {}
    for node in range(len(parents)):
        drawn = x[places_in(below, node)] - x[node]
        known = seen.setdefault(subtree(below, node), drawn)
        assert np.allclose(drawn, known, atol=1e-7)


@pytest.mark.slow
@given(forests())
def test_layered_is_narrow(parents):
    x, y = layered(parents)
    assert x.max() + 1 <= SPREAD * max(Counter(y).values()) + ALMOST


def test_layered_draws_a_beam_narrow_and_its_lines_short():
    parents = np.array(LAYOUTS["beam"]["parents"])
    lengths = {}
    for draw in (tidy, layered):
        x, _ = draw(parents)
        lengths[draw] = np.abs(x[1:] - x[parents[1:]])
    assert layered(parents)[0].max() < tidy(parents)[0].max() / 2
    assert lengths[layered].mean() < lengths[tidy].mean()
    assert lengths[layered].max() < lengths[tidy].max()


@pytest.mark.parametrize("name", LAYOUTS)
def test_golden(name):
    golden = LAYOUTS[name]
    for draw in (tidy, layered):
        x, y = draw(golden["parents"])
        assert np.allclose(x, golden[draw.__name__], rtol=0, atol=ALMOST)
        assert list(y) == golden["y"]


@both
def test_small_trees(draw):
    assert [list(row) for row in draw([])] == [[], []]
    assert [list(row) for row in draw([-1])] == [[0], [0]]
    assert list(draw([-1, 0, 0, 0])[0]) == pytest.approx([1, 0, 1, 2])
    assert list(draw([-1, -1])[0]) == pytest.approx([0, 1])


@both
@pytest.mark.parametrize("parents", [[0], [1, 0], [-1, 2, 1], [-1, 2], [-2]])
def test_what_is_no_tree_is_refused(draw, parents):
    with pytest.raises(ValueError, match=r"contain a cycle|Invalid parent"):
        draw(parents)


@pytest.mark.slow
@both
def test_a_long_chain(draw):
    x, y = draw(list(range(-1, 24_999)))
    assert x.max() == 0
    assert y[-1] == 24_999


@pytest.mark.nightly
@both
def test_hundred_thousand_nodes_stay_apart(draw):
    start = time.perf_counter()
    x, y = draw([-1, *((node - 1) // 3 for node in range(1, 100_000))])
    assert time.perf_counter() - start < 300  # quadratic would take hours
    for level in range(1, int(y.max()) + 1):
        assert (np.diff(x[y == level]) >= 1 - 1e-6).all()
