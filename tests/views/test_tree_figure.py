"""The tree of `run.plot()`: what it marks is marked in one way each, and no line crosses a text."""

import json
import re
from itertools import pairwise

import pytest
from plotly.offline import get_plotlyjs
from support import Scripted, run

import tot_lab as tl
from tot_lab.views.figures.theme import DARK, LIGHT, short_score
from tot_lab.views.figures.tree import RINGS, rings_of, tree_info
from tot_lab.views.tree_svg import tree_svg

SEARCH = tl.TreeOfThoughts(propose=tl.Propose(count=4), search=tl.BeamSearch(width=2))


def played(numbers, strategy=SEARCH, **player):
    options = {"budget": player.pop("budget", None)}
    return run(strategy, tl.game24(numbers), tl.sim.SimGame24(**player), **options)


@pytest.fixture(scope="module")
def solved():
    return played("4 9 10 13")


@pytest.fixture(scope="module")
def failed():
    """README's second search: its evaluator prunes the only thought that leads to 24."""
    five = SEARCH.model_copy(update={"propose": tl.Propose(count=5)})
    return played("4 8 8 11", five, skill=0.6, noise=0.2, garble=0.03, seed=366)


@pytest.fixture(scope="module")
def interrupted():
    return played("4 9 10 13", budget=tl.Budget(calls=6))


def rings_drawn(figure):
    """The places of each ring, and its looks: number, widths and colour."""
    drawn = [t for t in figure.data if t.legendgroup in RINGS and t.x[0] is not None]
    return {
        name: (
            {*zip(trace.x, trace.y, strict=True)},
            (sum(t.legendgroup == name for t in drawn), trace.marker.line.width, trace.marker.color),
        )
        for trace in drawn
        for name in [trace.legendgroup]
    }


def places(made, ids):
    info = tree_info(made)
    return {(info.x[k], info.depth[k]) for k, id in enumerate(info.ids) if id in ids}


def test_the_last_solvable_thought_and_the_frontier_have_rings(failed):
    (lost,) = [node for node in failed.tree if node.depth == 1 and node.text.startswith("11 * 8")]
    assert lost.state == "pruned"
    waiting = [node.id for node in failed.tree.leaves() if node.state == "kept"]
    drawn = rings_drawn(failed.plot())
    assert {name: where for name, (where, _) in drawn.items()} == {
        "last solvable": places(failed, [lost.id]),
        "open frontier": places(failed, waiting),
    }


def test_a_solved_search_has_no_last_solvable_thought(solved):
    assert solved.correct
    assert rings_of(solved)["last solvable"] == rings_of(solved)["right, not chosen"] == []
    assert "last solvable" not in rings_drawn(solved.plot())


def test_what_waits_in_a_search_under_way_or_cut_off_is_open(interrupted):
    assert interrupted.stop_reason == "budget:calls"
    part = tl.Run(interrupted.header, interrupted.lines[:12])
    waiting = [node.id for node in part.tree.leaves() if node.state == "proposed" and node.parent]
    assert waiting
    assert rings_of(part)["open frontier"] == waiting
    kept = [node.id for node in interrupted.tree.leaves() if node.state == "kept"]
    assert set(kept) <= {*rings_of(interrupted)["open frontier"]}


def test_a_right_answer_that_was_not_chosen_has_a_ring():
    def reply(call):
        if call.purpose == "value":
            return "score: 0.9" if "Answer: 5" in call.prompt else "score: 0.2"
        return f"Answer: {4 + call.sample_index}"

    search = tl.TreeOfThoughts(propose=tl.Sample(count=2), stop=tl.Stop(depth=1))
    made = run(search, tl.general("2 + 2", answer=4, grade="number"), Scripted(reply))
    assert made.answer == "5"
    (right,) = [node.id for node in made.tree if node.text == "Answer: 4"]
    found = rings_of(made)
    assert (found["right, not chosen"], found["last solvable"]) == ([right], [])
    assert rings_drawn(made.plot())["right, not chosen"][0] == places(made, [right])


def test_the_marks_differ_in_form_colour_and_legend(failed):
    for dark in (False, True):
        looks = [(len(one.gaps), one.width, one.legend, one.shades[dark]) for one in RINGS.values()]
        assert len({(number, width > 2) for number, width, *_ in looks}) == 3
        assert len({(legend, width > 2, shade) for _, width, legend, shade in looks}) == 3
        assert not {shade for *_, shade in looks} & {(DARK if dark else LIGHT).path}
        figure = failed.plot(dark=dark)
        entries = {t.name: (t.marker.symbol, t.marker.color) for t in figure.data if t.x[0] is None}
        assert len(set(entries.values())) == len(entries)
        assert {"open frontier", "last solvable"} <= set(entries)


def test_a_domain_that_fails_leaves_the_figure():
    class Broken(tl.domains.General):
        kind = "tests/broken_solver"

        def solvable(self, task, path):
            raise RuntimeError("no")

    made = run(SEARCH, tl.Task(domain=Broken(grading="number"), question="2 + 2", reference=4), Scripted())
    assert "last solvable" not in rings_of(made)
    assert made.plot().data


@pytest.mark.parametrize(
    ("score", "text"), [(0.0, "0"), (1e-9, "<0.001"), (0.00099, "<0.001"), (0.001, "0.001"), (1.0, "1")]
)
def test_small_scores_are_short(score, text):
    assert short_score(score) == text


def test_an_id_never_looks_like_a_score(failed):
    for plot in ("tree", "scores", "timeline"):
        for trace in failed.plot(plot).data:
            for text in [] if trace.hovertext is None else trace.hovertext:
                head = text.partition("<br>")[0]
                assert not re.search(r"\d\.\d", re.sub(r"thought [\d.]+", "", head)), head


BOXES = """() => {
  const rect = (one) => {
    const { left, top, right, bottom } = one.getBoundingClientRect();
    return [left, top, right, bottom];
  };
  const lines = [...document.querySelectorAll(".scatterlayer .js-line")].flatMap((path) => {
    const at = path.getScreenCTM();
    return [...path.getAttribute("d").matchAll(/M[^M]+/g)].map(([part]) =>
      [...part.matchAll(/(-?[\\d.]+),(-?[\\d.]+)/g)].map(([, x, y]) => [+x * at.a + at.e, +y * at.d + at.f]));
  });
  return {
    labels: [...document.querySelectorAll(".annotation-text")].map(rect),
    rings: [...document.querySelectorAll(".scatterlayer .point")]
      .filter((one) => one.style.fill === "none").map(rect),
    lines,
  };
}"""
"""The boxes of the labels and of the rings, and the corners of every line in the plot."""


def crosses(line, box):
    """Whether a line of corners goes through a box. It is sampled every half pixel."""
    left, top, right, bottom = box
    for (x0, y0), (x1, y1) in pairwise(line):
        steps = int(2 * max(abs(x1 - x0), abs(y1 - y0))) + 1
        for k in range(steps + 1):
            x, y = x0 + (x1 - x0) * k / steps, y0 + (y1 - y0) * k / steps
            if left + 1 < x < right - 1 and top + 1 < y < bottom - 1:
                return True
    return False


@pytest.mark.slow
def test_no_edge_and_no_ring_crosses_a_label(chrome, solved, failed, interrupted):
    page = chrome.new_page()
    page.set_content("<body style='margin:0'><div id=figure></div>")
    page.add_script_tag(content=get_plotlyjs())
    for made in (solved, failed, interrupted):
        data = json.loads(made.plot().update_layout(width=900).to_json())
        page.evaluate("({ data, layout }) => Plotly.newPlot('figure', data, layout)", data)
        found = page.evaluate(BOXES)
        assert len(found["labels"]) == len(made.tree)
        edges = found["lines"]
        assert len(edges) >= len(made.tree) - 1
        for box in found["labels"]:
            assert not [line for line in edges if crosses(line, box)]
        rings = rings_of(made)["open frontier"] + rings_of(made)["last solvable"]
        assert len(found["rings"]) >= len(rings) > 0
        for left, top, right, bottom in found["rings"]:
            for box in found["labels"]:
                across = min(right, box[2]) - max(left, box[0])
                down = min(bottom, box[3]) - max(top, box[1])
                assert min(across, down) <= 1
    page.close()


def test_the_edges_of_a_card_bend_below_all_labels_of_their_level():
    recorder = tl.Recorder()
    root = recorder.thought("q")
    for text in ("short", "a much longer thought that fills several lines of its label"):
        above = recorder.thought(text, parent=root)
        for _ in range(3):
            recorder.thought("below", parent=above)
    svg = tree_svg(recorder.run)
    bottoms = {}
    for baseline, spans in re.findall(r'<text x="[^"]+" y="([^"]+)"[^>]*>(.*?)</text>', svg):
        lines = [float(dy) for dy in re.findall(r'dy="([^"]+)"', spans)]
        bottoms.setdefault(float(baseline), []).append(float(baseline) + sum(lines))
    assert len({len(labels) for labels in bottoms.values()}) == 3
    assert max(bottoms[sorted(bottoms)[1]]) - min(bottoms[sorted(bottoms)[1]]) > 10  # of different heights
    edges = re.findall(r"M([\d.]+) ([\d.]+)V([\d.]+)L([\d.]+) ([\d.]+)", svg)
    assert len(edges) == len(recorder.run.tree) - 1
    for _, _, bend, _, end in edges:
        level = max(baseline for baseline in bottoms if baseline < float(end))
        assert max(bottoms[level]) < float(bend) < float(end)
