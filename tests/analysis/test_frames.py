"""The frames say what the record says: same counts, nothing made up, unknown is NA."""

import pandas as pd
import pytest
from support import TASK, Scripted, answer_to, run, wait
from support.endpoint import scripted

import tot_lab as tl
from tot_lab.core.calls import Reply
from tot_lab.core.records import STATES, Line, Thought
from tot_lab.record.journal import Header

NODES = {
    "id": "string", "parent": "string", "depth": "Int64", "text": "string", "thinking": "string",
    "score": "Float64", "raw": "Float64", "unreadable": "boolean", "samples": "Int64",
    "unreadable_samples": "Int64", "by": "string", "state": "category",
    "reason": "string", "merged": "string", "open": "boolean", "children": "Int64",
    "on_solution_path": "boolean",
    "calls": "Int64", "input_tokens": "Int64", "output_tokens": "Int64", "cost": "Float64",
    "paid": "Float64", "mark": "category", "note": "string", "strategy": "string",
    "selected_strategy": "string", "simulated": "boolean",
}  # fmt: skip
CALLS = {
    "position": "string", "node": "string", "purpose": "string", "sample_index": "Int64", "attempt": "string",
    "repeat": "Int64", "prompt": "string", "reply": "string", "thinking": "string", "error": "string",
    "finish_reason": "string",
    "made": "boolean", "model": "string", "temperature": "Float64", "input_tokens": "Int64",
    "output_tokens": "Int64", "cost": "Float64", "paid": "Float64", "flops": "Float64",
    "flops_prefix_once": "Float64", "shared_tokens": "boolean",
    "asked": "float64", "seconds": "Float64", "source": "category",
    "sent": "Float64", "tries": "Int64", "cached_tokens": "Int64", "prefill_tokens_per_second": "Float64",
    "decode_tokens_per_second": "Float64", "mean_logprob": "Float64", "min_logprob": "Float64",
    "simulated": "boolean",
}  # fmt: skip
EVENTS = {
    "position": "string", "seconds": "float64", "name": "string", "node": "string", "data": "object",
    "simulated": "boolean",
}  # fmt: skip


def counted(call):
    return Reply(answer_to(call), input_tokens=10, output_tokens=3, cost=0.25, model="m")


def flaky(call):
    return (
        Reply(error="overloaded: no")
        if call.sample_index == 1 and call.purpose == "sample"
        else counted(call)
    )


def dtypes(frame):
    return {name: str(dtype) for name, dtype in frame.dtypes.items()}


SEARCH = tl.TreeOfThoughts(evaluate=tl.Value(samples=2))
RUNS = {
    "search": lambda: run(SEARCH, model=Scripted(counted)),
    "uncounted": lambda: run(SEARCH),
    "flaky": lambda: run(SEARCH, model=Scripted(flaky)),
    "capped": lambda: run(SEARCH, model=Scripted(counted), budget=tl.Budget(calls=7)),
    "nested": lambda: run(tl.BestOf(strategy=SEARCH, attempts=2), model=Scripted(counted)),
    "merged": lambda: run(tl.TreeOfThoughts(propose=tl.Propose(count=4), merge=True)),
    "empty": lambda: tl.Recorder().run,
}


@pytest.fixture(params=RUNS)
def made(request):
    return RUNS[request.param]()


@pytest.mark.slow
def test_columns_have_their_types(made):
    assert dtypes(made.nodes_df()) == NODES
    assert dtypes(made.calls_df()) == CALLS
    assert dtypes(made.events_df()) == EVENTS
    for frame, columns in ((made.nodes_df, NODES), (made.calls_df, CALLS), (made.events_df, EVENTS)):
        for name in columns:
            assert name in getattr(tl.analysis.frames, frame.__name__).__doc__


@pytest.mark.slow
def test_nodes_are_the_trees(made):
    frame = made.nodes_df()
    assert frame.id.tolist() == list(made.tree.nodes)
    for row, node in zip(frame.itertuples(), made.tree, strict=True):
        assert row.text == node.text
        assert row.state == ("question" if node.parent is None else node.state)
        assert pd.isna(row.score) if node.score is None or node.by == "root" else row.score == node.score
        assert row.samples == len(node.samples)
        assert row.unreadable_samples == sum(draw is None for draw in node.samples)
        assert row.children == len(node.children)
    assert frame.id[frame.on_solution_path].tolist() == made.solution_path
    assert list(frame.state.cat.categories) == list(STATES)


@pytest.mark.slow
def test_sums_are_the_runs(made):
    nodes, calls, usage = made.nodes_df(), made.calls_df(), made.usage
    assert nodes.calls.sum() == calls.made.sum() == usage.calls
    for name in ("input_tokens", "output_tokens", "cost", "paid"):
        total = nodes[name].sum(skipna=False)
        assert pd.isna(total) if getattr(usage, name) is None else total == getattr(usage, name)
    assert calls.error[calls.made.fillna(False)].notna().sum() == usage.errors


def test_unknown_is_never_zero():
    made = RUNS["uncounted"]()
    nodes = made.nodes_df()
    assert nodes.cost[nodes.calls > 0].isna().all()
    assert nodes.input_tokens[nodes.calls > 0].isna().all()
    assert made.calls_df().cost.isna().all()


def test_refused_and_open_calls():
    made = RUNS["capped"]()
    calls = made.calls_df()
    assert made.usage.calls == calls.made.sum() == 7
    refused = calls[~calls.made]
    assert len(refused)
    assert refused.error.str.startswith("budget:").all()
    asked = next(k for k, line in enumerate(made.lines) if isinstance(line.e, tl.Call))
    killed = tl.Run(made.header, made.lines[: asked + 1])
    row = killed.calls_df().iloc[0]
    assert pd.isna(row.made)
    assert pd.isna(row.seconds)
    assert pd.isna(row.reply)
    assert killed.nodes_df().calls.sum() == killed.usage.calls == 0


@pytest.mark.slow
def test_any_beginning_of_a_run_has_frames():
    made = run(tl.TreeOfThoughts(stop=tl.Stop(depth=2)), model=Scripted(counted))
    for length in range(0, len(made.lines), 7):
        part = tl.Run(made.header, made.lines[:length])
        events = part.events_df()
        recorded = events[events.position.notna() | ~events.name.str.startswith("tot.")]
        assert len(recorded) == length
        assert part.nodes_df().calls.sum() == part.usage.calls


def test_events_have_the_fields_of_the_architecture():
    made = RUNS["search"]()
    events = made.events_df()
    assert {"tot.started", "tot.level_started", "tot.proposed", "tot.evaluated", "tot.decided", "tot.pruned",
            "tot.completed", "call", "reply", "ended"} <= set(events.name)  # fmt: skip
    assert events.name[events.node == "0"][:2].tolist() == ["thought", "scored"]
    assert not {"thought", "scored", "decided"} & set(events.name[events.node != "0"])
    proposed = pd.json_normalize(events.data[events.name == "tot.proposed"].tolist())
    assert list(proposed.columns) == ["depth", "node_id", "parent_id", "content"]
    texts = dict(zip(proposed.node_id, proposed.content, strict=True))
    assert texts == {node.id: node.text for node in made.tree if node.id != "0"}
    evaluated = events[events.name == "tot.evaluated"]
    assert evaluated.data.str["score"].tolist() == [made.tree[id].score for id in evaluated.node]
    assert {"depth", "node_id", "score"} <= set(evaluated.data.iloc[0])
    replies = events[events.name == "reply"]
    assert sorted(replies.node) == sorted(events[events.name == "call"].node)


@pytest.mark.slow
def test_events_are_named_after_the_innermost_strategy():
    events = RUNS["nested"]().events_df()
    thoughts = events[events.name.isin(["thought", "tot.proposed"])]
    roots = {"0", *events.node[events.name == "tot.started"]}
    assert len(roots) > 1
    assert (thoughts.name[thoughts.node.isin(roots)] == "thought").all()
    assert (thoughts.name[~thoughts.node.isin(roots)] == "tot.proposed").all()
    assert RUNS["nested"]().calls_df().attempt.dropna().unique().tolist() == ["0", "1"]


def test_notes_beside_the_canonical_list():
    events = RUNS["capped"]().events_df()
    beside = events[events.position.isna()]
    assert set(beside.name) == {"budget.warning", "budget.exceeded", "tot.level_started", "tot.pruned"}


def test_own_search():
    recorder = tl.Recorder("mine")
    root = recorder.thought("q")
    step = recorder.thought("a step", root)
    recorder.score(step, 0.5, samples=(0.5, None))
    recorder.call(step, "how good?", Reply("0.5", input_tokens=4, output_tokens=1, cost=0.0))
    recorder.note("mine.looked", step, far=3)
    nodes, events = recorder.run.nodes_df(), recorder.run.events_df()
    assert nodes.calls.tolist() == [0, 1]
    assert nodes.unreadable_samples.tolist() == [0, 1]
    assert nodes.cost.tolist() == [0, 0]
    assert events.name.tolist() == ["thought", "thought", "scored", "call", "reply", "mine.looked"]
    assert events.data.iloc[-1] == {"far": 3}


def test_simulated_is_said():
    made = run(tl.TreeOfThoughts(), tl.game24("4 5 6 10"), model="sim/game24")
    assert made.nodes_df().simulated.all()
    assert made.calls_df().simulated.all()
    assert made.events_df().simulated.all()
    assert not RUNS["search"]().nodes_df().simulated.any()


@pytest.mark.slow
def test_a_large_run():
    lines = [Line((0,), 0.0, Thought("0", None, "q"))]
    lines += [Line((k,), 0.0, Thought(f"0.{k}", "0", "t")) for k in range(1, 30_000)]
    assert len(tl.Run(Header.now(), lines).nodes_df()) == 30_000


def test_the_way_of_a_call_stands_beside_it(tmp_path):
    end = scripted()
    lab = tl.Lab(end, runs=tmp_path / "runs", cache=tmp_path / "calls")
    first = wait(lab.run(tl.OneAnswer(), TASK)).calls_df().iloc[0]
    again = tl.load(wait(lab.run(tl.OneAnswer(), TASK)).path).calls_df().iloc[0]
    assert (first.source, first.tries, first.cost, first.paid) == ("model", 1, 1.0, 1.0)
    assert first.asked <= first.sent <= first.asked + first.seconds
    assert (again.source, again.cost, again.paid) == ("cache", 1.0, 0.0)
    assert pd.isna(again.sent)
    assert pd.isna(again.tries)
    plain = run(tl.OneAnswer()).calls_df().iloc[0]
    assert plain.source == "model"
    assert pd.isna(plain.sent)


def test_thoughts_whose_score_could_not_be_read_stay_known_once_they_are_decided():
    def reply(call):
        if call.purpose != "value":
            return f"step {call.sample_index}"
        return "no idea" if "step 1" in call.prompt else "score: 0.5"

    search = tl.TreeOfThoughts(
        propose=tl.Sample(count=3, max_parse_retries=0),
        evaluate=tl.Value(max_parse_retries=0),
        stop=tl.Stop(depth=1),
    )
    nodes = run(search, model=Scripted(reply)).nodes_df()
    assert nodes[nodes.unreadable].text.tolist() == ["step 1"]
    assert nodes[nodes.unreadable].state.tolist() == ["pruned"]
    assert not nodes.unreadable[0]  # the root was not evaluated
    undecided = [Line((k,), 0.0, event) for k, event in enumerate([Thought("0", None, "q")])]
    assert not tl.Run(Header.now(), undecided).nodes_df().unreadable.any()


def test_thinking_stands_beside_what_it_led_to():
    """In calls, thoughts and scores, wherever the model wrote it; the text and the score are without it."""

    def reply(call):
        if call.purpose == "propose":
            return f"<THINK>three ways from {call.node}</THINK>\n1. add\n2. double\n3. halve"
        return f"score: 0.5 <think>of {call.node}</think>"

    search = tl.TreeOfThoughts(
        propose=tl.Propose(count=3), search=tl.BeamSearch(width=1), stop=tl.Stop(depth=2)
    )
    made = run(search, model=Scripted(reply))
    nodes = made.nodes_df().set_index("id")
    assert nodes.thinking["0.1"] == "three ways from 0"
    assert nodes.thinking["0.0.2"] == "three ways from 0.0"
    assert pd.isna(nodes.thinking["0"])
    assert (nodes.text["0.1"], nodes.score["0.1"]) == ("double", 0.5)
    calls = made.calls_df()
    assert calls.thinking.tolist() == [
        ("three ways from " if kind == "propose" else "of ") + node
        for kind, node in zip(calls.purpose, calls.node, strict=True)
    ]
    assert not calls.reply.str.contains("think").any()
    late = next(e for e in made.events if isinstance(e, Reply) and e.text.startswith("score"))
    assert late.raw_text == "score: 0.5 <think>of 0.0</think>"


def test_each_sample_has_its_own_thinking_and_pooled_draws_have_all():
    def reply(call):
        if call.purpose == "value":
            return "score: 0.5"
        thought = f"<think>draw {call.sample_index}</think>" if call.sample_index != 1 else ""
        return thought + (
            f"step {call.sample_index}"
            if call.purpose == "sample"
            else f"1. a{call.sample_index}\n2. b{call.sample_index}"
        )

    nodes = run(
        tl.TreeOfThoughts(propose=tl.Sample(count=3), stop=tl.Stop(depth=1)), model=Scripted(reply)
    ).nodes_df()
    assert [None if pd.isna(cell) else cell for cell in nodes.thinking] == [None, "draw 0", None, "draw 2"]
    pooled = tl.TreeOfThoughts(propose=tl.Propose(count=4, samples=3), stop=tl.Stop(depth=1))
    nodes = run(pooled, model=Scripted(reply)).nodes_df()
    assert nodes.thinking.dropna().unique().tolist() == ["draw 0\n\ndraw 2"]
    assert len(nodes.thinking.dropna()) == len(nodes) - 1
