"""What is drawn is what the run says, from a run, a tree, a graph or a person's own search."""

import json
import string
import subprocess
import sys

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import Scripted, run

import tot_lab as tl
from tot_lab.figures import FIGURES
from tot_lab.figures.theme import colour, plain, printable, wrapped
from tot_lab.figures.tree import SHAPES, tree_info

HOSTILE = "</script><script>alert(1)</script> <b>&amp; $x$ %{x} \x00\x0b\ud800 \u2028"


@pytest.fixture(scope="module")
def search():
    return run(tl.TreeOfThoughts(evaluation_draws=2))


@pytest.fixture
def recorded():
    recorder = tl.Recorder("my search")
    root = recorder.thought(f"why {HOSTILE}")
    first = recorder.thought("a first step", root)
    second = recorder.thought("another", root)
    again = recorder.thought("a first step, again", root)
    blank = recorder.thought("mumble", root)
    both = recorder.thought("both together", second, source=[first])
    last = recorder.thought(f"done {HOSTILE}", first, depends=[both])
    recorder.score(first, 0.8, draws=(0.8, None))
    recorder.score(second, 0)
    recorder.score(blank, None, draws=(None,))
    recorder.score(last, 1)
    recorder.decide(second, "pruned", "beam_width")
    recorder.decide(again, "merged", "same state", other=first)
    recorder.call(first, "a prompt", tl.Reply("a reply", input_tokens=4, output_tokens=2))
    recorder.end("42", node=last)
    return recorder.run


def drawn(figure):
    """Everything that a browser would be given."""
    return json.loads(figure.to_json())


def test_graph_has_what_the_tree_has(search):
    graph = tl.graph_of(search)
    frame = search.nodes_df().set_index("id")
    assert list(graph) == list(search.tree.nodes)
    for node in search.tree:
        known = graph.nodes[node.id]
        assert (known["text"], known["depth"], known["order"]) == (node.text, node.depth, node.order)
        assert known.get("score") == node.score
        assert known["state"] == node.state
        assert known["calls"] == frame.calls[node.id]
        assert known["on_solution_path"] == (node.id in search.solution_path)
        assert "cost" not in known or known["calls"] == 0  # the scripted model names no price
    assert nx.is_arborescence(graph)
    assert graph.graph["question"] == search.question
    assert graph.graph["stopped"] == search.stopped
    assert graph.graph["simulated"] is False


def test_links(recorded):
    kinds = {(start, end): kind for start, end, kind in recorded.graph().edges(data="kind")}
    assert kinds["0", "0.0"] == "child"
    assert kinds["0.2", "0.0"] == "merged"
    assert kinds["0.0", "0.1.0"] == "source"
    assert kinds["0.1.0", "0.0.0"] == "depends"


def test_a_link_never_hides_a_child():
    recorder = tl.Recorder()
    root = recorder.thought("q")
    recorder.thought("made of the same", root, source=[root], depends=[root])
    assert list(recorder.run.graph().edges(data="kind")) == [("0", "0.0", "child")]


def test_graphml_round_trip(recorded, search, tmp_path):
    for made in (recorded, search):
        graph = made.graph()
        nx.write_graphml(graph, tmp_path / "a.graphml")
        back = nx.read_graphml(tmp_path / "a.graphml")
        assert dict(back.nodes(data=True)) == dict(graph.nodes(data=True))
        assert {(a, b): d["kind"] for a, b, d in back.edges(data=True)} == {
            (a, b): d["kind"] for a, b, d in graph.edges(data=True)
        }
        assert back.graph.items() >= graph.graph.items()


@given(st.text(st.characters(exclude_characters="\r", exclude_categories=["Cs"])))
def test_graphml_holds_any_text(text):
    recorder = tl.Recorder()
    recorder.thought(text)
    graph = recorder.run.graph()
    back = nx.parse_graphml("\n".join(nx.generate_graphml(graph)))
    assert back.nodes["0"]["text"] == graph.nodes["0"]["text"] == printable(text)


def test_info_is_the_run(search):
    info = tree_info(search)
    assert info.ids == list(search.tree.nodes)
    assert info.texts == [node.text for node in search.tree]
    assert info.depth.tolist() == [node.depth for node in search.tree]
    assert [info.ids[k] for k in np.flatnonzero(info.on_path)] == search.solution_path
    for node, score, shape in zip(search.tree, info.score, info.shape, strict=True):
        assert np.isnan(score) if node.score is None else score == node.score
        if node.parent is not None and node.state in SHAPES:
            assert shape == node.state
    assert (info.answer, info.stopped, info.simulated) == (search.answer, search.stopped, False)


def test_run_tree_and_graph_are_drawn_alike(search, recorded):
    for made in (search, recorded):
        of_run, of_graph, of_tree = tree_info(made), tree_info(made.graph()), tree_info(made.tree)
        for name in ("x", "depth", "score", "parents", "on_path"):
            assert np.array_equal(getattr(of_run, name), getattr(of_graph, name), equal_nan=True), name
            assert np.array_equal(getattr(of_run, name), getattr(of_tree, name), equal_nan=True), name
        assert of_run.shape == of_graph.shape == of_tree.shape
        assert of_run.details == of_graph.details
        assert sorted(of_run.links) == sorted(of_graph.links) == sorted(of_tree.links)


def test_shapes(recorded):
    info = tree_info(recorded)
    what = dict(zip(info.ids, info.shape, strict=True))
    assert what["0"] == "question"
    assert what["0.1"] == "pruned"
    assert what["0.2"] == "duplicate or merged"
    assert what["0.3"] == "unread"
    assert what["0.1.0"] == "not decided"
    assert what["0.0.0"] == "solution"
    names = [trace["name"] for trace in drawn(tl.plot_tree(recorded))["data"] if trace.get("x") == [None]]
    assert names == [shape for shape in SHAPES if shape in info.shape]


def test_hover_says_what_is_known(recorded):
    details = dict(zip(tree_info(recorded).ids, tree_info(recorded).details, strict=True))
    assert details["0.0"] == [
        "0.0 · depth 1",
        "a first step",
        "score 0.8 by value, 1 of 2 draws read",
        "proposed",
        "1 calls, 4 tokens in, 2 out, cost unknown",
    ]
    assert "pruned: beam_width" in details["0.1"]
    assert "score unread by value, 0 of 1 draws read" in details["0.3"]
    assert "not evaluated" in details["0.1.0"]


def test_model_text_is_never_markup(recorded):
    figure = tl.plot_tree(recorded)
    texts = [figure.layout.title.text, *(note.text for note in figure.layout.annotations)]
    texts += [text for trace in figure.data if trace.hovertext is not None for text in trace.hovertext]
    for text in texts:
        bare = text.replace("<br>", "").replace("<b>", "").replace("</b>", "")
        assert "<" not in bare
        assert "$" not in bare
    assert any("&lt;/script&gt;" in text for text in texts)


def test_simulated_is_said():
    made = run(tl.TreeOfThoughts(), tl.game24("4 5 6 10"), model="sim/game24")
    assert "simulated model" in tl.plot_tree(made).layout.title.subtitle.text
    assert "simulated model" in tl.plot_tree(made.graph()).layout.title.subtitle.text


def test_unfinished_and_failed_runs(search):
    for length in range(1, len(search.lines), 9):
        figure = tl.plot_tree(tl.Run(search.header, search.lines[:length]))
        assert "unfinished" in figure.layout.title.subtitle.text
    failed = run(tl.TreeOfThoughts(), model=Scripted(lambda call: tl.Reply(error="down: no")))
    assert len(tree_info(failed).ids) == len(failed.tree)
    tl.plot_tree(failed)


def test_hand_made_graphs():
    graph = nx.DiGraph([("root", "left"), ("root", "right"), ("left", "end"), ("right", "end")])
    graph.nodes["end"].update(score=2.5, state="odd")
    info = tree_info(graph)
    assert info.depth.tolist() == [0, 1, 1, 2]
    assert info.links == [(2, 3, "source")]
    tl.plot_tree(graph)
    tl.plot_tree(nx.DiGraph([(1, 2), (3, 4)]))
    lonely = nx.DiGraph()
    lonely.add_node(0)
    tl.plot_tree(lonely)
    with pytest.raises(ValueError, match="own ancestor"):
        tl.plot_tree(nx.DiGraph([(1, 2), (2, 1)]))


@pytest.mark.parametrize("empty", [tl.Recorder().run, tl.Tree(), nx.DiGraph()])
def test_nothing_to_draw(empty):
    with pytest.raises(ValueError, match="no thought"):
        tl.plot_tree(empty)


def test_size():
    for count, fits in ((2000, True), (2001, False)):
        recorder = tl.Recorder()
        root = recorder.thought("q")
        for _ in range(count - 1):
            recorder.thought("t", root)
        if fits:
            assert len(tl.plot_tree(recorder.run).data) < 30
            assert not tl.plot_tree(recorder.run).layout.annotations
        else:
            with pytest.raises(ValueError, match=r"2,001 thoughts.*nodes_df"):
                tl.plot_tree(recorder.run)
            part = recorder.run.graph().subgraph(["0", "0.1", "0.2"])
            assert len(tree_info(part).ids) == 3


def test_labels_only_on_small_trees(recorded):
    assert len(tl.plot_tree(recorded).layout.annotations) == len(recorded.tree)


def test_every_figure_takes_a_run(search):
    for plot in FIGURES:
        assert plot.__name__.startswith("plot_")
        assert type(plot(search)).__name__ == "Figure"


def test_colours():
    assert colour(0.0) == "#440154"
    assert colour(1.0) == colour(7.0) == "#fde725"
    assert colour(float("nan")) == "#d5d9de"


@given(st.text(string.printable + "é…"), st.integers(8, 40), st.integers(1, 5))
def test_wrapping(text, width, lines):
    rows = wrapped(text, width, lines)
    assert len(rows) <= lines
    assert all(len(row) <= width for row in rows)
    if not rows or not rows[-1].endswith("…"):
        assert "".join("".join(rows).split()) == "".join(printable(text).split())


@given(st.text())
def test_plain_has_no_markup(text):
    assert not set("<>$") & set(plain(text))


def test_a_repr_needs_no_plotting_library():
    code = (
        "import sys, tot_lab as tl; r = tl.Recorder(); r.thought('q'); repr(r.run); r.run._repr_html_();"
        "print([name for name in ('plotly', 'pandas', 'networkx') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
