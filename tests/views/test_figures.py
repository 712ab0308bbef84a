"""What is drawn is what the run says, from a run, a tree, a graph or a person's own search."""

import asyncio
import json
import re
import shutil
import string
import subprocess
import sys
from pathlib import Path

import msgspec
import networkx as nx
import numpy as np
import plotly.graph_objects as go
import plotly.io
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import TASK, Scripted, answer_to, run, shuffled, wait
from support.contrast import contrast

import tot_lab as tl
from tot_lab.core.records import Line
from tot_lab.views.explorer.recording import Recording
from tot_lab.views.figures import figures_of
from tot_lab.views.figures.cost import cost_info, plot_cost
from tot_lab.views.figures.scores import plot_scores, scores_info
from tot_lab.views.figures.theme import (
    COLOURS,
    DARK,
    KINDS,
    LIGHT,
    LINKS,
    colour,
    label,
    palette,
    plain,
    printable,
    short_id,
    translucent,
    wrap,
)
from tot_lab.views.figures.timeline import arrange_calls, plot_timeline, timeline_info
from tot_lab.views.figures.tree import SHAPES, tree_info

HOSTILE = "</script><script>alert(1)</script> <b>&amp; $x$ %{x} \x00\x0b\ud800 \u2028"


@pytest.fixture(scope="module")
def search():
    return run(tl.TreeOfThoughts(evaluate=tl.Value(samples=2)))


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
    recorder.score(first, 0.8, samples=(0.8, None))
    recorder.score(second, 0)
    recorder.score(blank, None, samples=(None,))
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
    graph = tl.figures.graph_of(search)
    frame = search.nodes_df().set_index("id")
    assert list(graph) == list(search.tree.nodes)
    for node in search.tree:
        known = graph.nodes[node.id]
        assert (known["text"], known["depth"], known["order"]) == (node.text, node.depth, node.order)
        assert known.get("score") == (None if node.parent is None else node.score)
        assert known["state"] == ("question" if node.parent is None else node.state)
        assert known["calls"] == frame.calls[node.id]
        assert known["on_solution_path"] == (node.id in search.solution_path)
        assert "cost" not in known or known["calls"] == 0  # the scripted model names no price
    assert nx.is_arborescence(graph)
    assert graph.graph["question"] == search.question
    assert graph.graph["stopped"] == search.stop_reason
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


@pytest.mark.slow
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
        unscored = node.score is None or node.parent is None
        assert np.isnan(score) if unscored else score == node.score
        if node.parent is not None and node.state in SHAPES:
            judged = {True: "right ", False: "wrong ", None: ""}[search.correct] * (node.state == "answer")
            assert shape == judged + node.state
    assert (info.answer, info.stopped, info.model_note) == (search.answer, search.stop_reason, "")


def test_run_tree_and_graph_are_drawn_alike(search, recorded):
    for made in (search, recorded):
        of_run, of_graph, of_tree = tree_info(made), tree_info(made.graph()), tree_info(made.tree)
        for name in ("x", "depth", "score", "parents", "on_path"):
            assert np.array_equal(getattr(of_run, name), getattr(of_graph, name), equal_nan=True), name
            assert np.array_equal(getattr(of_run, name), getattr(of_tree, name), equal_nan=True), name
        assert of_run.shape == of_graph.shape
        judged = ("right answer", "wrong answer")  # a tree alone does not know whether its answer is right
        assert ["answer" if shape in judged else shape for shape in of_run.shape] == of_tree.shape
        assert of_run.details == of_graph.details
        assert sorted(of_run.links) == sorted(of_graph.links) == sorted(of_tree.links)


@pytest.mark.slow
def test_shapes(recorded):
    info = tree_info(recorded)
    what = dict(zip(info.ids, info.shape, strict=True))
    assert what["0"] == "question"
    assert what["0.1"] == "pruned"
    assert what["0.2"] == "merged"
    assert what["0.3"] == "unreadable"
    assert what["0.1.0"] == "proposed"
    assert what["0.0.0"] == "answer"
    names = [
        trace["name"] for trace in drawn(tl.figures.plot_tree(recorded))["data"] if trace.get("x") == [None]
    ]
    assert names == [shape for shape in SHAPES if shape in info.shape]


def test_hover_says_what_is_known(recorded):
    details = dict(zip(tree_info(recorded).ids, tree_info(recorded).details, strict=True))
    assert details["0.0"] == [
        "thought 0.0 · depth 1",
        "a first step",
        "score 0.8 by value, 1 of 2 samples read",
        "proposed",
        "1 call, 4 tokens in, 2 out, cost unknown",
    ]
    assert "pruned: beam_width" in details["0.1"]
    assert "score unreadable by value, 0 of 1 samples read" in details["0.3"]
    assert "not evaluated" in details["0.1.0"]


@pytest.mark.slow
def test_model_text_is_never_markup(recorded):
    figure = tl.figures.plot_tree(recorded)
    texts = [figure.layout.title.text, *(note.text for note in figure.layout.annotations)]
    texts += [text for trace in figure.data if trace.hovertext is not None for text in trace.hovertext]
    for text in texts:
        bare = text.replace("<br>", "").replace("<b>", "").replace("</b>", "")
        assert "<" not in bare
        assert "$" not in bare
    assert any("&lt;/script&gt;" in text for text in texts)


@pytest.mark.slow
def test_simulated_is_said():
    made = run(tl.TreeOfThoughts(), tl.game24("4 5 6 10"), model="sim/game24")
    assert "simulated model" in tl.figures.plot_tree(made).layout.title.subtitle.text
    assert "simulated model" in tl.figures.plot_tree(made.graph()).layout.title.subtitle.text


@pytest.mark.nightly
def test_unfinished_and_failed_runs(search):
    for length in range(1, len(search.lines), 9):
        figure = tl.figures.plot_tree(tl.Run(search.header, search.lines[:length]))
        assert "unfinished" in figure.layout.title.subtitle.text
    failed = run(tl.TreeOfThoughts(), model=Scripted(lambda call: tl.Reply(error="down: no")))
    assert len(tree_info(failed).ids) == len(failed.tree)
    tl.figures.plot_tree(failed)


@pytest.mark.slow
def test_hand_made_graphs():
    graph = nx.DiGraph([("root", "left"), ("root", "right"), ("left", "end"), ("right", "end")])
    graph.nodes["end"].update(score=2.5, state="odd")
    info = tree_info(graph)
    assert info.depth.tolist() == [0, 1, 1, 2]
    assert info.links == [(2, 3, "source")]
    tl.figures.plot_tree(graph)
    tl.figures.plot_tree(nx.DiGraph([(1, 2), (3, 4)]))
    lonely = nx.DiGraph()
    lonely.add_node(0)
    tl.figures.plot_tree(lonely)
    with pytest.raises(ValueError, match="contain a cycle"):
        tl.figures.plot_tree(nx.DiGraph([(1, 2), (2, 1)]))


@pytest.mark.parametrize("empty", [tl.Recorder().run, tl.Tree(), nx.DiGraph()])
def test_nothing_to_draw(empty):
    with pytest.raises(ValueError, match="has no thoughts"):
        tl.figures.plot_tree(empty)


@pytest.mark.slow
def test_size():
    recorder = tl.Recorder()
    root = recorder.thought("q")
    for _ in range(1999):
        recorder.thought("t", root)
    whole = tl.figures.plot_tree(recorder.run)
    assert len(whole.data) < 30
    assert not whole.layout.annotations
    assert "thoughts shown" not in whole.layout.title.subtitle.text
    recorder.score(recorder.thought("one more", root), 0.5)
    last = recorder.thought("the answer", recorder.thought("leads to it", root))
    recorder.decide(recorder.thought("stayed", root), "kept")
    recorder.end("42", node=last)
    info = tree_info(recorder.run)
    assert (len(info.ids), info.left_out) == (2000, 4)
    assert {"0", "0.1999", "0.2000", last, "0.2001"} <= set(info.ids)
    assert "0.1998" not in info.ids  # of the others the first proposed
    assert "2,000 of 2,004 thoughts shown" in tl.figures.plot_tree(recorder.run).layout.title.subtitle.text
    part = recorder.run.graph().subgraph(["0", "0.1", "0.2"])
    assert len(tree_info(part).ids) == 3


@pytest.mark.slow
def test_a_way_that_is_too_long_is_cut_off_at_its_end():
    recorder = tl.Recorder()
    last = recorder.thought("q")
    for _ in range(2500):
        last = recorder.thought("on", last)
    recorder.end("42", node=last)
    info = tree_info(recorder.run)
    assert info.depth.tolist() == list(range(2000))
    assert len(tl.figures.plot_tree(recorder.run).to_json()) < 3e6


@pytest.mark.slow
def test_labels_only_on_small_trees(recorded):
    assert len(tl.figures.plot_tree(recorded).layout.annotations) == len(recorded.tree)


@pytest.mark.slow
@pytest.mark.parametrize("plot", figures_of("run"), ids=lambda plot: plot.__name__)
def test_every_figure_takes_a_run(search, plot):
    assert plot.__name__.startswith("plot_")
    light, dark = plot(search), plot(search, dark=True)
    assert type(light).__name__ == "Figure"
    assert light.layout.template.layout.paper_bgcolor == "#ffffff"
    assert dark.layout.template.layout.paper_bgcolor == "#111418"


@pytest.mark.slow
@pytest.mark.parametrize("plot", figures_of("run"), ids=lambda plot: plot.__name__)
def test_every_axis_says_what_it_is_and_its_unit(search, plot):
    figure = plot(search)
    axes = [axis for axis in figure.select_xaxes() if axis.visible is not False]
    axes += [axis for axis in figure.select_yaxes() if axis.visible is not False]
    below = [axis for axis in axes if axis.matches is None or axis.showticklabels is not False]
    for axis in below:
        text = axis.title.text
        assert text
        assert any(unit in text for unit in ("(", "tokens", "USD", "purpose")), text


@pytest.mark.slow
@pytest.mark.parametrize("plot", figures_of("run"), ids=lambda plot: plot.__name__)
def test_every_figure_shows_runs_of_any_kind(search, recorded, plot):
    def failing(call):
        return (
            tl.Reply(error=f"down: {HOSTILE}")
            if call.sample_index or call.purpose == "value"
            else answer_to(call)
        )

    for length in range(1, len(search.lines), 17):
        drawn(plot(tl.Run(search.header, search.lines[:length])))
    hostile = tl.Recorder(HOSTILE)
    root = hostile.thought(HOSTILE)
    hostile.score(hostile.thought(HOSTILE, root), 0.75)
    hostile.call(root, "a prompt", tl.Reply(error=HOSTILE), purpose=HOSTILE)
    capped = run(tl.TreeOfThoughts(), budget=tl.Budget(calls=5))
    for made in (recorded, hostile.run, run(tl.TreeOfThoughts(), model=Scripted(failing)), capped):
        figure = drawn(plot(made))
        for text in texts_of(figure):
            assert "<script" not in text
            assert "$ " not in text.replace("%{", "")


def texts_of(value):
    """Every string of a figure that Plotly would read as markup."""
    if isinstance(value, dict):
        return [text for name, part in value.items() if name != "template" for text in texts_of(part)]
    if isinstance(value, list):
        return [text for part in value for text in texts_of(part)]
    return [value] if isinstance(value, str) else []


def many_calls(count, at_once):
    """A run of `count` calls, `at_once` of them under way, each of which takes one second."""
    lines = [Line((0,), 0.0, tl.Thought("0", None, "q"))]
    for k in range(count + at_once):
        moment = k / at_once
        if k >= at_once:
            reply = tl.Reply("ok", input_tokens=3, output_tokens=2, cost=0.01)
            lines.append(Line((1, k - at_once), moment, reply, 0.01))
        if k < count:
            call = tl.Call("0", ("propose", "value")[k % 2], (tl.records.Message("user", "x"),))
            lines.append(Line((1, k), moment, call))
    return tl.Run(tl.Recorder("many").header, lines)


@pytest.mark.nightly
@pytest.mark.parametrize("plot", figures_of("run"), ids=lambda plot: plot.__name__)
def test_large_input_is_reduced_and_it_is_said(plot):
    calls = many_calls(20_000, 8)
    text = "a long thought <b>&amp;</b> " * 40
    records = [tl.Thought("0", None, text)]
    for k in range(12_000):
        id = f"0.{k % 100}.{k // 100 - 1}" if k >= 100 else f"0.{k}"
        records += [
            tl.Thought(id, id.rpartition(".")[0], text),
            tl.records.Scored(id, k % 97 / 97, by="value"),
        ]
    lines = [Line((k,), k / 1000, record) for k, record in enumerate(records)]
    thoughts = tl.Run(tl.Recorder("many").header, lines)
    for made in (calls, thoughts):
        assert len(plot(made).to_json()) < 3e6
    larger = thoughts if plot in (tl.figures.plot_tree, plot_scores) else calls
    said = plot(larger).layout.title.subtitle.text
    assert any(word in said for word in ("12,001 thoughts", "12,000 thoughts", "20,000 calls")), said


# Scores.


@pytest.mark.slow
def test_scores_are_those_of_the_run():
    search = run(
        tl.TreeOfThoughts(propose=tl.Sample(count=5), search=tl.BeamSearch(width=4), stop=tl.Stop(depth=4))
    )
    info = scores_info(search)
    below = [node for node in search.tree if node.parent is not None]
    assert info.ids == [node.id for node in below if node.score is not None]
    assert info.score.tolist() == [search.tree[id].score for id in info.ids]
    assert info.depth.tolist() == [search.tree[id].depth for id in info.ids]
    assert info.state == [search.tree[id].state for id in info.ids]
    assert sum(info.unreadable.values()) == sum(node.unreadable for node in below) > 0
    said = plot_scores(search).layout.title.subtitle.text
    assert f"{info.state.count('pruned')} pruned" in said
    assert f"{sum(info.unreadable.values())} unreadable" in said


def test_scores_by_hand(recorded):
    info = scores_info(recorded)
    found = dict(zip(info.ids, zip(info.depth, info.score, info.state, strict=True), strict=True))
    assert found == {
        "0.0": (1, 0.8, "proposed"),
        "0.1": (1, 0.0, "pruned"),
        "0.0.0": (2, 1.0, "answer"),
    }
    assert info.unreadable == {1: 1}
    assert info.not_evaluated == {1: 1, 2: 1}
    figure = plot_scores(recorded)
    assert sum(len(trace.y) for trace in figure.data) == 3
    assert {trace.name for trace in figure.data} == {"proposed", "pruned", "answer"}
    notes = {note.x: note.text for note in figure.layout.annotations}
    assert notes == {0: "1 unreadable<br>1 not evaluated", 1: "1 not evaluated"}


# The timeline.


def a_run_of_calls():
    """Calls by hand: one waits, one is known, one is joined, one fails, one is refused, one stays open."""
    rows = [
        (0.0, (0,), tl.Thought("0", None, "q")),
        (1.0, (1,), call_of("propose")),
        (1.0, (2,), call_of("value")),
        (1.5, (), tl.Note("call.sent", "0", {"call": [1], "tries": 2})),
        (2.0, (), tl.Note("call.cached", "0", {"call": [2]})),
        (2.0, (2,), tl.Reply("ok")),
        (4.0, (1,), tl.Reply("ok")),
        (4.0, (3,), call_of("value")),
        (4.0, (4,), call_of("value")),
        (4.5, (), tl.Note("call.joined", "0", {"call": [4]})),
        (5.0, (3,), tl.Reply(error="down: no")),
        (5.0, (5,), call_of("value")),
        (5.0, (5,), tl.Reply(error="budget:calls")),
        (6.0, (4,), tl.Reply("ok")),
        (6.0, (6,), call_of("value")),
        (9.0, (), tl.Note("mine", "0")),
    ]
    return tl.Run(tl.Recorder("own").header, [Line(position, t, record) for t, position, record in rows])


def call_of(kind):
    return tl.Call("0", kind, (tl.records.Message("user", "x"),))


@pytest.mark.slow
def test_timeline_by_hand():
    info = timeline_info(a_run_of_calls())
    assert info.start.tolist() == [1, 1, 4, 4, 5, 6]
    assert info.end.tolist() == [4, 2, 5, 6, 5, 9]
    assert info.source == ["model", "cache", "model", "joined", "refused", "open"]
    assert (info.sent[0], info.tries[0]) == (1.5, 2)
    assert np.isnan(info.sent[1:]).all()
    assert info.lane.tolist() == [0, 1, 0, 1, 0, 0]
    assert info.critical == [0, 3]
    assert info.changes.tolist() == [1, 1, 2, 4, 4, 4, 5, 6, 6]
    assert info.under_way.tolist() == [1, 2, 1, 0, 1, 2, 1, 0, 1]
    assert (info.most, info.by_order) == (2, False)
    figure = plot_timeline(a_run_of_calls())
    said = figure.layout.title.subtitle.text
    assert "5 calls, at most 2 at once  ·  1 from the cache  ·  1 joined an identical call" in said
    assert "1 failed  ·  1 open  ·  1 refused  ·  critical path: 2 calls, 5 s" in said
    names = {trace.name for trace in figure.data if trace.showlegend is not False}
    assert names == {
        "propose", "value", "from the cache", "refused", "waiting to be sent", "failed", "critical path"
    }  # fmt: skip


ASKED = st.tuples(
    st.integers(0, 30), st.integers(0, 10), st.booleans(), st.booleans(), st.sampled_from("abc")
)


@pytest.mark.slow
@given(st.lists(ASKED, max_size=12))
def test_lanes_and_critical_path_are_what_they_say(rows):
    """Against the definition, over any calls: (asked, how long, answered at all, made, by whom)."""
    moments = sorted(
        [(asked, 0, k) for k, (asked, *_) in enumerate(rows)]
        + [(asked + took, 1, k) for k, (asked, took, known, *_) in enumerate(rows) if known]
    )
    line = {(k, what): number for number, (_, what, k) in enumerate(moments)}
    order = sorted(range(len(rows)), key=lambda k: line[k, 0])
    asked = [line[k, 0] for k in order]
    answered = [line.get((k, 1), -1) for k in order]
    made = [rows[k][3] for k in order]
    names = [rows[k][4] for k in order]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    lane, firsts, critical, under_way = arrange_calls(
        asked, answered, made, [numbers[name] for name in names]
    )

    def open_at(call, moment):
        return asked[call] <= moment and (answered[call] == -1 or answered[call] > moment)

    calls = range(len(rows))
    for one in calls:
        for other in range(one):
            assert lane[one] != lane[other] or not open_at(other, asked[one])
    first = 0
    for name, number in numbers.items():  # each group has as many lanes as it needs, below the one before it
        its = [call for call in calls if names[call] == name]
        most = max(sum(open_at(call, moment) for call in its) for moment in asked)
        assert {lane[call] for call in its} == {*range(first, first + most)}
        assert firsts[number] == first
        first += most
    for moment, count in under_way:
        assert count == sum(open_at(call, moment) for call in calls if made[call])

    def last_before(moment):
        before = [call for call in calls if made[call] and -1 < answered[call] <= moment]
        return max(before, key=lambda call: answered[call], default=None)

    expected = []
    call = last_before(np.inf)
    while call is not None:
        expected.insert(0, call)
        call = last_before(asked[call])
    assert critical == expected


@pytest.mark.slow
def test_a_run_without_latency_shows_its_order():
    made = run(tl.TreeOfThoughts(), tl.game24("4 5 6 10"), model="sim/game24")
    made = tl.Run(made.header, [msgspec.structs.replace(line, t=line.t / 1_000) for line in made.lines])
    info = timeline_info(made)
    assert info.by_order
    assert (info.end > info.start).all()
    assert "order, not time" in plot_timeline(made).layout.title.subtitle.text
    slow = run(tl.TreeOfThoughts(), model=Scripted(latency=lambda call: 0.02))
    assert not timeline_info(slow).by_order


def with_tools():
    """Half of the time goes into a tool."""

    @tl.tool
    async def slow(k: int) -> int:
        await asyncio.sleep(0.02)
        return k

    asked = tuple(tl.records.ToolCall(str(k), "slow", f'{{"k": {k}}}') for k in range(2))

    async def model(call):
        await asyncio.sleep(0.02)
        return "Answer: 26" if call.messages[1:] else tl.Reply(tool_calls=asked)

    return wait(tl.Lab(model, runs=None, tools=[slow]).run(tl.ToolLoop(), TASK))


@pytest.mark.slow
def test_tools_stand_in_the_timeline_by_name():
    made = with_tools()
    info = timeline_info(made)
    assert info.kind == ["act", "tool:slow", "tool:slow", "act"]
    assert len(info.critical) == 3, "the run waited for a tool too"
    assert info.most == 2
    figure = plot_timeline(made)
    bars = {trace.name: trace for trace in figure.data if trace.type == "bar" and trace.name}
    assert list(bars) == ["act", "tool:slow"]
    assert bars["tool:slow"].hovertext[0].startswith("<b>tool:slow for ")
    assert cost_info(made).groups.keys() == {"act"}, "tools cost no tokens and no money"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_browser_makes_the_same_timeline():
    script = """
    import { readFileSync } from "node:fs";
    const { Recording } = await import("file://FOLDER/recording.js");
    const { plan } = await import("file://FOLDER/timeline.js");
    const recording = new Recording();
    recording.append(JSON.parse(readFileSync(0, "utf8")));
    const { lane, groups, critical, most, kinds, from, to, byOrder, failed, level } = plan(recording);
    const told = { lane, groups, critical, most, kinds, from, to, byOrder, failed, level };
    const list = (_, value) => (ArrayBuffer.isView(value) ? [...value] : value);
    console.log(JSON.stringify(told, list));
    """.replace("FOLDER", (Path(tl.__file__).parent / "views" / "explorer" / "js").as_posix())
    slow = Scripted(latency=shuffled(3, 0.05))
    for made in (
        a_run_of_calls(),
        with_tools(),
        run(tl.TreeOfThoughts(evaluate=tl.Value(samples=2)), model=slow, budget=tl.Budget(calls=30)),
        run(tl.TreeOfThoughts(), tl.game24("4 5 6 10"), model="sim/game24"),
    ):
        done = subprocess.run(
            ["node", "--input-type=module", "-e", script],
            input=Recording(made.lines).chunk(), capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()
        told, info = json.loads(done.stdout), timeline_info(made)
        assert told["lane"] == info.lane.tolist()
        assert told["groups"] == [list(group) for group in info.groups]
        assert [name for name, _ in info.groups] == (["model", "slow"] if "tool:slow" in info.kind else [])
        assert (told["critical"], told["most"], told["byOrder"]) == (info.critical, info.most, info.by_order)
        assert told["kinds"] == list(dict.fromkeys(info.kind))
        assert told["level"] == info.under_way.tolist()
        assert np.allclose(told["from"], info.start, atol=0.001)
        assert np.allclose(told["to"], info.end, atol=0.001)
        failed = [k for k, error in enumerate(info.error) if error and info.source[k] != "refused"]
        assert told["failed"] == failed


# Cost.


@pytest.mark.parametrize("by", ["kind", "depth"])
def test_cost_sums_to_the_usage_of_the_run(search, by):
    info = cost_info(search, by)
    assert info.total == search.usage
    assert sum(usage.calls for usage in info.groups.values()) == search.usage.calls
    frame = search.calls_df()
    if by == "kind":
        assert list(info.groups) == list(frame.purpose.unique())
    else:
        depth = {node.id: str(node.depth) for node in search.tree}
        assert {name: used.calls for name, used in info.groups.items()} == dict(
            frame.node.map(depth).value_counts()
        )
        assert list(info.groups) == sorted(info.groups, key=int)


@pytest.mark.slow
def test_cost_by_hand():
    rows = [
        (tl.Thought("0", None, "q"), None),
        (tl.Thought("0.0", "0", "s"), None),
        (tl.Call("0", "propose", ()), None),
        (tl.Reply("r", input_tokens=10, output_tokens=5, cost=0.5), 0.0),
        (tl.Call("0.0", "value", (), 0), None),
        (tl.Reply("r", input_tokens=20), None),
        (tl.Call("0.0", "value", (), 1), None),
        (tl.Reply(error="down: no"), None),
        (tl.Call("0.0", "vote", ()), None),
        (tl.Reply(error="budget:calls"), None),
    ]
    lines = [Line((k // 2,), k / 10, record, paid) for k, (record, paid) in enumerate(rows)]
    made = tl.Run(tl.Recorder("own").header, lines)
    info = cost_info(made)
    assert info.input_tokens.tolist() == [10, 20]
    assert info.output_tokens[0] == 5
    assert np.isnan(info.output_tokens[1])
    assert (info.cost[0], info.paid[0]) == (0.5, 0.0)
    assert info.groups["propose"] == (1, 0, 10, 5, 0.5, 0.0)
    assert info.groups["value"] == (2, 1, 20, None, None, None)
    assert list(cost_info(made, "depth").groups) == ["0", "1"]
    figure = plot_cost(made)
    said = figure.layout.title.subtitle.text
    assert "cost unknown, paid unknown" in said
    assert "tokens out: known for 1 of 2 calls" in said
    unknown = [note.x for note in figure.layout.annotations if note.text == "unknown"]
    assert unknown == ["value", "value"]
    curve = next(trace for trace in figure.data if trace.name == "cost without cache hits" and trace.mode)
    assert list(curve.y) == [0.0, 0.5]  # only what is known
    with pytest.raises(ValueError, match="kind"):
        plot_cost(made, by="colour")


def test_the_end_of_a_long_id():
    assert short_id("0.1.2") == "0.1.2"
    assert short_id("0." * 100 + "7") == "…" + ("0." * 100 + "7")[-59:]


def test_colours():
    assert colour(0.0) == "#440154"
    assert colour(1.0) == colour(7.0) == "#fde725"
    assert colour(float("nan")) == "#d5d9de"


@pytest.mark.slow
@given(st.text(string.printable + "é…"), st.integers(8, 40), st.integers(1, 5))
def test_wrapping(text, width, lines):
    rows = wrap(text, width, lines)
    assert len(rows) <= lines
    assert all(len(row) <= width for row in rows)
    if not rows or not rows[-1].endswith("…"):
        assert "".join("".join(rows).split()) == "".join(printable(text).split())


@pytest.mark.parametrize(
    ("text", "width", "rows"),
    [
        ("5 * 4 = 20 (left: 6 10 20)", 8, ["5 * 4 =", "20", "(left:…"]),
        ("a question", 10, ["a question"]),
        ("a questionnaire", 8, ["a", "questio…"]),
        ("(simulated, 301) Check the last step", 8, ["(simula…", "301)", "Check…"]),
        (
            "How many legs do three spiders and two ducks have",
            16,
            ["How many legs do", "three spiders", "and two ducks…"],
        ),
        ("one two three extraordinarily", 8, ["one two", "three", "extraor…"]),
        ("((4+5)*6-10)=44", 7, ["((4+5)*", "6-10)=4", "4"]),
        ("三只蜘蛛和两只鸭子一共有多少条腿", 7, ["三只蜘蛛和两只", "鸭子一共有多少", "条腿"]),
    ],
)
def test_labels_are_broken_between_words(text, width, rows):
    assert label(text, width) == rows


@pytest.mark.slow
@given(st.text())
def test_plain_has_no_markup(text):
    assert not set("<>$") & set(plain(text))


# Contrast, as WCAG 2.2 measures it.


def of_every_state(more):
    """Graphs whose thoughts have every state of SHAPES, and `more` thoughts beside them."""
    for correct in (True, False, None):
        graph = nx.DiGraph(
            question="q", strategy="s", answer="a", model_note="simulated model", stopped="solved"
        )
        if correct is not None:
            graph.graph["correct"] = correct
        graph.add_node("top", on_solution_path=True, text="q")
        states = [*(state for state in SHAPES if " " not in state and state != "question"), "merged", "odd"]
        for k, state in enumerate([*states, *["kept"] * more]):
            graph.add_edge("top", f"{k} {state}")
            graph.nodes[f"{k} {state}"].update(state=state, score=1.0 if k % 2 else 0.0, text="t")
        graph.nodes[next(name for name in graph if name.endswith("answer"))]["on_solution_path"] = True
        graph.add_edge("1 kept" if "1 kept" in graph else "top", "0 unscored")
        yield graph


@pytest.mark.nightly
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("more", [0, 60, 200, 600])
def test_every_state_has_an_outline_that_can_be_seen(dark, more):
    drawn_states = set()
    for graph in of_every_state(more):
        figure = tl.figures.plot_tree(graph, dark=dark)
        paper = figure.layout.template.layout.paper_bgcolor
        for trace in figure.data:
            if trace.mode == "lines":
                assert contrast(trace.line.color, paper) >= 3, trace.name
                continue
            drawn_states.add(trace.name)
            line = trace.marker.line
            shades = {line.color} if isinstance(line.color, str) else set(line.color)
            for shade in shades:
                assert contrast(shade, paper) >= 3, (trace.name, shade)
            assert np.min(line.width) >= 0.4
    assert drawn_states >= set(SHAPES)


@pytest.mark.parametrize("shades", [LIGHT, DARK], ids=["light", "dark"])
def test_colours_can_be_seen_and_texts_be_read(shades):
    for shade in (*KINDS, *COLOURS, *LINKS.values(), shades.path, shades.edge):
        assert contrast(shade, shades.paper) >= 3, shade
    for shade in (shades.ink, shades.faint, shades.warning):
        assert contrast(shade, shades.paper) >= 4.5, shade
    assert contrast(translucent(shades.ink, 0.5), shades.paper) < contrast(shades.ink, shades.paper)


def fonts_of(value, name=""):
    """Every colour of a text of a figure."""
    if isinstance(value, dict):
        inside = [shade for key, part in value.items() for shade in fonts_of(part, key)]
        own = value.get("color") if "font" in name else None
        return [*inside, own] if isinstance(own, str) else inside
    if isinstance(value, list):
        return [shade for part in value for shade in fonts_of(part, name)]
    return re.findall(r'style="color:(#\w{6})', value) if isinstance(value, str) else []


@pytest.mark.slow
@pytest.mark.parametrize("plot", figures_of("run"), ids=lambda plot: plot.__name__)
def test_every_text_of_a_figure_can_be_read(plot):
    made = run(tl.TreeOfThoughts(), tl.game24("4 5 6 10"), model="sim/game24")
    for dark in (False, True):
        figure = drawn(plot(made, dark=dark))
        paper = figure["layout"]["template"]["layout"]["paper_bgcolor"]
        shades = fonts_of(figure)
        assert len(set(shades)) > 1
        assert min(contrast(shade, paper) for shade in shades if shade != paper) >= 4.5


@pytest.mark.nightly
def test_a_figure_follows_the_default_template_unless_told():
    papers = {"light": "#ffffff", "dark": "#111418"}
    one = tl.Recorder("one")
    one.thought("q")

    def paper(**options):
        return tl.figures.plot_tree(one.run, **options).layout.template.layout.paper_bgcolor

    assert paper() == papers["light"]
    inks = {
        "dark": ("#fff", "#eeeeee", "white", "rgb(240, 240, 240)", "rgba(255,255,255,0.9)"),
        "light": ("#111", "#123456", "rgba(0,0,0,0.9)", "navy", None),
    }
    mine = {
        f"mine {ink}": (go.layout.Template(layout={"font": {"color": ink}}), which)
        for which, some in inks.items()
        for ink in some
    }
    plotly.io.templates.update({name: template for name, (template, _) in mine.items()})
    before = plotly.io.templates.default
    try:
        for name, which in [
            *(("plotly_dark", "dark"), ("plotly_dark+presentation", "dark"), ("simple_white", "light")),
            *(("none", "light"), (None, "light"), *((name, which) for name, (_, which) in mine.items())),
        ]:
            plotly.io.templates.default = name
            assert paper() == papers[which], (name, which)
            assert (paper(dark=False), paper(dark=True)) == (papers["light"], papers["dark"])
            assert palette(None) is (DARK if which == "dark" else LIGHT)
    finally:
        plotly.io.templates.default = before
        for name in mine:
            del plotly.io.templates[name]


@pytest.mark.slow
def test_a_repr_needs_no_plotting_library():
    code = (
        "import sys, tot_lab as tl; r = tl.Recorder(); r.thought('q'); repr(r.run); r.run._repr_html_();"
        "print([name for name in ('plotly', 'pandas', 'networkx') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
