"""`tl.read_nodes`: a table of nodes becomes a run that says what the rows say, and nothing else."""

import json
import random

import pytest
from support import ROOT, wait

import tot_lab as tl
from tot_lab.record.journal import JournalError
from tot_lab.record.nodes import MAX_DEPTH, LoggedCall, LoggedNode, run_of_nodes

ROWS = [
    {"id": "q", "parent": None, "text": "How many legs have two dogs and a bird?"},
    {"id": "x", "parent": "q", "text": "Two dogs have 8 legs.", "score": 8},
    {"id": "y", "parent": "q", "text": "A bird has 4 legs.", "score": 1},
    {"id": "z", "parent": "x", "text": "Answer: 10", "score": 10},
]


def shuffled(rows, seed=1):
    return random.Random(seed).sample(rows, len(rows))


def with_cell(number, **cells):
    rows = [dict(row) for row in ROWS]
    rows[number].update(cells)
    return rows


def shape(run):
    """The tree without the numbers of its ids."""
    return {(node.text, node.parent and run.tree[node.parent].text, node.raw) for node in run.tree}


@pytest.fixture
def file(tmp_path):
    def write(rows, name="nodes.jsonl"):
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write


@pytest.mark.parametrize("seed", range(4))
def test_rows_in_any_order_are_the_same_tree(seed):
    run = tl.read_nodes(shuffled(ROWS, seed), score="score", score_range=(0, 10))
    assert shape(run) == {
        (ROWS[0]["text"], None, None),
        (ROWS[1]["text"], ROWS[0]["text"], 8),
        (ROWS[2]["text"], ROWS[0]["text"], 1),
        (ROWS[3]["text"], ROWS[1]["text"], 10),
    }


def test_foreign_ids_are_kept_in_a_note():
    run = tl.read_nodes(ROWS, score_range=(0, 10))
    assert list(run.tree.nodes) == ["0", "0.0", "0.1", "0.0.0"]
    events = run.events_df()
    (data,) = events.data[events["name"] == "imported.ids"]
    assert data == {"0": "q", "0.0": "x", "0.1": "y", "0.0.0": "z"}


def test_ids_of_the_form_of_a_run_are_kept():
    rows = [("0.7", "0"), ("0.2", "0"), ("0", None), ("0.7.1", "0.7")]
    run = tl.read_nodes([{"id": id, "parent": parent, "text": id} for id, parent in rows])
    assert {id: node.text for id, node in run.tree.nodes.items()} == {id: id for id, _ in rows}


def test_ids_that_only_look_like_those_of_a_run_are_not():
    rows = [("0", None), ("0.7", "0"), ("0.7.1", "0")]
    run = tl.read_nodes([{"id": id, "parent": parent, "text": id} for id, parent in rows])
    assert {id: node.text for id, node in run.tree.nodes.items()} == {"0": "0", "0.0": "0.7", "0.1": "0.7.1"}


def test_scores_are_normalised_from_their_range():
    run = tl.read_nodes(with_cell(1, score=-5), score="score", score_range=(-10, 10))
    assert [(node.score, node.raw) for node in run.tree] == [(None, None), (0.25, -5), (0.55, 1), (1, 10)]
    assert run.tree["0"].by == ""


def test_a_file_a_frame_and_a_list_are_the_same_run(file, tmp_path):
    import pandas as pd

    numbered = [
        {**row, "id": k, "parent": {"q": 1, "x": 2}.get(row["parent"])} for k, row in enumerate(ROWS, 1)
    ]
    frame = pd.DataFrame(numbered)
    assert frame.parent.dtype == float  # pandas makes 1.0 of the id 1 beside an empty cell
    (tmp_path / "nodes.json").write_text(json.dumps(ROWS))
    runs = [
        tl.read_nodes(source, score="score", score_range=(0, 10))
        for source in (ROWS, iter(ROWS), file(ROWS), str(tmp_path / "nodes.json"), frame)
    ]
    assert all(run.tree == runs[0].tree for run in runs)


def test_a_run_of_nodes_is_stored_like_any_other(tmp_path):
    run = tl.read_nodes(ROWS, score="score", score_range=(0, 10))
    again = tl.load(run.save(tmp_path / "a.jsonl"))
    assert (again.header, again.lines) == (run.header, run.lines)
    assert tl.read_nodes(ROWS, score="score", score_range=(0, 10)).id == run.id
    assert tl.read_nodes(ROWS, score_range=(-10, 10)).id == run.id
    assert tl.read_nodes(ROWS[:-1], score_range=(0, 10)).id != run.id


@pytest.mark.parametrize(
    ("number", "cells", "field", "why"),
    [
        (2, {"parent": "w"}, "parent", "unknown parent: got 'w'"),
        (1, {"parent": "z"}, "parent", "form a cycle: got "),
        (1, {"parent": "x"}, "parent", "form a cycle: got x → x"),
        (3, {"id": "x"}, "id", "duplicate id: got 'x'"),
        (2, {"id": ["y"]}, "id", "an id must be a text or a whole number"),
        (2, {"id": True}, "id", "an id must be a text or a whole number"),
        (2, {"parent": 1.5}, "parent", "an id must be a text or a whole number"),
        (3, {"score": 10.5}, "score", "the score must be from 0 to 10: got 10.5"),
        (3, {"score": -1}, "score", "the score must be from 0 to 10: got -1.0"),
        (3, {"score": "high"}, "score", "a score must be a number: got 'high'"),
        (3, {"score": True}, "score", "a score must be a number: got True"),
        (3, {"text": 5}, "text", "must contain text: got a number"),
        (3, {"text": None}, "text", "is missing or empty"),
        (1, {"state": "loved"}, "state", "unknown state: got 'loved'"),
        (1, {"tokens": -1}, "tokens", "must contain a number of tokens: got -1"),
        (1, {"tokens": 2.5}, "tokens", "must contain a number of tokens: got 2.5"),
        (1, {"reply": ["yes"]}, "reply", "must contain text: got a list"),
        (1, {"prompt": 7}, "prompt", "a prompt must be a text or a list of chat messages: got a number"),
        (
            1,
            {"prompt": [{"content": "hi"}]},
            "prompt",
            "a chat message must have a role: got the fields content",
        ),
        (1, {"prompt": [{"role": "user", "content": [{"type": "image_url"}]}]}, "prompt", "must be text"),
        (1, {"time": "yesterday"}, "time", "Invalid isoformat"),
        (1, {"time": "0001-01-01T00:00:00+02:00"}, "time", "a time must be in the years 1 to 9999"),
    ],
)
def test_a_bad_row_is_named(file, number, cells, field, why):
    rows = with_cell(number, **cells)
    columns = dict.fromkeys(["score", "state", "tokens", "reply", "prompt", "time"], None)
    columns |= {name: name for name in cells if name in columns}
    with pytest.raises(tl.errors.JournalError, match=r"nodes\.jsonl, line") as raised:
        tl.read_nodes(file(rows), score_range=(0, 10), **{**columns, "score": "score"})
    assert f"line {number + 1}" in str(raised.value)
    assert f"field {field!r}" in str(raised.value)
    assert why in str(raised.value)


def test_times_over_a_century_apart_name_the_line(file):
    rows = [
        {**row, "time": f"{year}-01-01"} for row, year in zip(ROWS, (1900, 1901, 2026, 1902), strict=True)
    ]
    with pytest.raises(tl.errors.JournalError, match=r"nodes\.jsonl, line 3, field 'time': the times of"):
        tl.read_nodes(file(rows), time="time")


def test_nan_in_a_line_is_an_empty_cell(file):
    run = tl.read_nodes(file(with_cell(1, score=float("nan"))), score="score", score_range=(0, 10))
    assert [node.raw for node in run.tree] == [None, None, 1, 10]


def test_lines_are_counted_with_blank_ones(tmp_path):
    path = tmp_path / "nodes.jsonl"
    path.write_text("\n\n" + "\n\n".join(map(json.dumps, with_cell(2, parent="w"))) + "\n")
    with pytest.raises(tl.errors.JournalError, match=r"nodes\.jsonl, line 7, field 'parent'"):
        tl.read_nodes(path, score_range=(0, 10))
    path.write_text(f"{json.dumps(ROWS[0])}\n\n{{oops\n")
    with pytest.raises(tl.errors.JournalError, match=r"nodes\.jsonl, line 3: invalid JSON"):
        tl.read_nodes(path)


def test_a_misspelt_column_is_an_error():
    with pytest.raises(
        tl.errors.JournalError, match="field 'scroe' is missing: got the fields 'id', 'parent'"
    ):
        tl.read_nodes(ROWS, score="scroe")


@pytest.mark.parametrize("rows", [[], [["q", None, "text"]]])
def test_rows_are_objects(rows):
    with pytest.raises(tl.errors.JournalError, match="row 1: "):
        tl.read_nodes(rows)


def test_what_the_rows_lack_is_unknown():
    run = tl.read_nodes(ROWS, score="score", score_range=(0, 10))
    assert run.header.unknown == ("prompts", "replies", "times", "calls")
    assert run.usage.output_tokens is None
    assert run.header.started == ""
    assert run.status is None
    assert run.grade is None
    assert {node.state for node in run.tree} == {"proposed"}


CALLS = [
    ROWS[0],
    *(
        {**row, "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Go on."}]}
        | {"reply": f"I say: {row['text']}", "in": 20, "out": k, "began": f"2024-05-01T10:00:0{k}Z"}
        | {"ended": f"2024-05-01T10:00:0{k + 2}Z", "kept": k != 2}
        for k, row in enumerate(ROWS[1:], 1)
    ),
]
COLUMNS = {"prompt": "prompt", "reply": "reply", "tokens": ("in", "out"), "state": "kept"}
COLUMNS |= {"score_range": (0, 10)}


def test_calls_have_prompts_replies_tokens_and_times():
    rows = [{**row, "began": row.get("began", "2024-05-01T09:59:58Z")} for row in CALLS]
    rows = [{**row, "ended": row.get("ended", "2024-05-01T09:59:58Z")} for row in rows]
    run = tl.read_nodes(shuffled(rows), time=("began", "ended"), **COLUMNS)
    assert run.header.unknown == ()
    assert run.header.started == "2024-05-01T09:59:58+00:00"
    calls = run.calls_df()
    assert list(calls.prompt.unique()) == ["Be brief.\n\nGo on."]
    assert list(calls.reply) == [f"I say: {row['text']}" for row in ROWS[1:]]
    assert list(zip(calls.input_tokens, calls.output_tokens, strict=True)) == [(20, 1), (20, 2), (20, 3)]
    assert list(zip(calls.asked, calls.seconds, strict=True)) == [(3, 2), (4, 2), (5, 2)]
    assert list(zip(calls.node, calls.sample_index, strict=True)) == [("0", 0), ("0", 1), ("0.0", 0)]
    assert (run.usage.calls, run.usage.input_tokens, run.usage.output_tokens) == (3, 60, 6)
    assert [node.state for node in run.tree] == ["proposed", "kept", "pruned", "kept"]


def test_the_time_of_a_node_is_not_that_of_its_call():
    with pytest.warns(RuntimeWarning, match="Not used: 'began', 'ended'"):
        run = tl.read_nodes([{**row, "at": k} for k, row in enumerate(CALLS)], time="at", **COLUMNS)
    assert run.header.unknown == ("durations",)
    assert run.seconds == 3
    assert run.calls_df().seconds.isna().all()


def test_a_call_without_a_reply_is_open():
    run = tl.read_nodes(with_cell(1, prompt="Go on."), prompt="prompt", score_range=(0, 10))
    assert run.header.unknown == ("replies", "times", "calls")
    assert run.calls_df().reply.isna().all()


def test_several_roots_get_one_with_the_question_of_the_task():
    task = tl.general("How many legs?", answer=10, grade="number")
    run = tl.read_nodes(
        [{**row, "parent": None, "state": "answer" if row["id"] == "z" else ""} for row in ROWS[1:]],
        task=task,
        state="state",
        score_range=(0, 10),
    )
    assert [(node.id, node.parent) for node in run.tree] == [
        ("0", None),
        ("0.0", "0"),
        ("0.1", "0"),
        ("0.2", "0"),
    ]
    assert (run.question, run.answer, run.grade) == ("How many legs?", "10", 1.0)


def test_a_root_that_does_not_hold_the_question_is_a_step():
    task = tl.general("How many legs?")
    run = tl.read_nodes([{**ROWS[1], "parent": None}], task=task, score_range=(0, 10))
    assert run.steps("0.0") == [ROWS[1]["text"]]


def test_the_answer_is_that_of_the_best_node_in_the_state_answer():
    rows = with_cell(2, state="answer")
    rows[3]["state"] = "answer"
    run = tl.read_nodes(rows, score="score", score_range=(0, 10), state="state")
    assert (run.answer, run.best.text, run.score) == ("10", "Answer: 10", 1.0)
    assert [node.text for node in run.candidates] == ["Answer: 10", "A bird has 4 legs."]
    assert tl.read_nodes(ROWS, answer="ten", score_range=(0, 10)).answer == "ten"


def test_a_reply_has_the_position_of_its_call_and_every_other_record_its_own():
    rows = [{"id": "q", "parent": None, "text": "q"}]
    rows += [{"id": f"n{k}", "parent": "q", "text": "t", "prompt": "p", "reply": "r"} for k in range(5000)]
    lines = tl.read_nodes(rows, prompt="prompt", reply="reply").lines
    assert len(lines) > 15_000
    for number, line in enumerate(lines):
        is_reply = isinstance(line.e, tl.Reply)
        assert line.p == (number - is_reply,)
        assert not is_reply or isinstance(lines[number - 1].e, tl.Call)


def test_a_chain_as_deep_as_a_run_may_be():
    rows = [{"id": k, "parent": k - 1 if k else None, "text": f"step {k}"} for k in range(MAX_DEPTH + 2)]
    assert max(node.depth for node in tl.read_nodes(shuffled(rows[:-1])).tree) == MAX_DEPTH
    with pytest.raises(tl.errors.JournalError, match=r"row 1002, field 'parent': .* more than 1,000 steps"):
        tl.read_nodes(rows)


def test_a_long_circle_is_found_without_recursion():
    rows = [{"id": k, "parent": (k + 1) % 5000, "text": "a"} for k in range(5000)]
    with pytest.raises(tl.errors.JournalError, match="form a cycle: got 0 → 1 → 2 → 3 → …"):
        tl.read_nodes([{"id": "root", "parent": None, "text": "q"}, *rows])


@pytest.mark.parametrize("propose", [tl.Sample(count=2), tl.Propose(count=2)])
@pytest.mark.parametrize("samples", [1, 3])
def test_another_search_runs_on_the_recorded_nodes_and_scores(propose, samples):
    rows = [*ROWS, {"id": "w", "parent": "y", "text": "Answer: 12", "score": 3}]
    rows += [{"id": "v", "parent": "x", "text": "Answer: 9", "score": 2.5}]
    rows += [{"id": "u", "parent": "y", "text": "Answer: 13", "score": 0.5}]
    task = tl.general(ROWS[0]["text"], answer=10, grade="number")
    run = tl.read_nodes(rows, score="score", score_range=(0, 10), task=task)
    strategy = tl.TreeOfThoughts(
        propose=propose,
        evaluate=tl.Value(samples=samples),
        search=tl.BeamSearch(width=1),
        stop=tl.Stop(depth=2, solved=None, min_score=0.0),
    )
    would = tl.counterfactual(run, strategy)
    assert (would.whole, would.solved, would.run.answer) == (True, True, "10")
    assert [node.score for node in would.run.tree][1:] == pytest.approx([0.8, 0.1, 1.0, 0.25])
    wider = strategy.model_copy(update={"stop": tl.Stop(depth=3, solved=None)})
    assert tl.counterfactual(run, wider).whole  # a path that states its answer is not expanded
    assert not tl.counterfactual(run, wider.model_copy(update={"ends_at_answer": False})).whole


def test_recorded_scores_judge_the_evaluator_and_a_rule_answers():
    task = tl.general(ROWS[0]["text"], answer=10, grade="number")
    run = tl.read_nodes(ROWS, score="score", score_range=(0, 10), task=task, answer="8")
    assert not run.correct
    assert run.with_answer(tl.answers.BestLeaf()).correct
    assert tl.stats.judge_evaluator([run]).measures["read"] == 3


# Columns that are found.


@pytest.mark.parametrize(
    "names",
    [
        {},
        {"id": "node_id", "parent": "parent_id", "text": "thought", "score": "value"},
        {"id": "node", "text": "content", "score": "reward"},
        {"parent": "parent_node", "text": "action", "score": "rating"},
        {"text": "state", "score": "value"},
    ],
)
def test_columns_are_found_by_their_usual_names(file, names, tmp_path, monkeypatch):
    """The line in the guide."""
    renamed = [{names.get(name, name): cell for name, cell in row.items()} for row in ROWS]
    file(renamed)
    monkeypatch.chdir(tmp_path)
    lines = (ROOT / "docs/how-to/other_logs.md").read_text().splitlines()
    run = eval(next(line for line in lines if line.startswith("tl.read_nodes(")))
    assert [node.raw for node in run.tree] == [None, 8, 1, 10]
    assert [node.score for node in run.tree] == [None, 0.8, 0.1, 1.0]
    assert shape(run) == shape(tl.read_nodes(ROWS, score="score", score_range=(0, 10)))


def test_columns_that_were_not_used_are_named(file):
    rows = [{**row, "prior": 0.5, "value": 3} for row in ROWS]
    with pytest.warns(
        RuntimeWarning, match=r"^nodes\.jsonl: read id, .*score.* Not used: 'prior', 'value'\.$"
    ):
        run = tl.read_nodes(file(rows), score_range=(0, 10))
    assert [node.raw for node in run.tree] == [None, 8, 1, 10]
    with pytest.warns(RuntimeWarning, match=r"text from 'note'.* Not used: 'text', 'score'\."):
        tl.read_nodes(
            [{**row, "note": row["text"], "value": 0.5} for row in ROWS], text="note", score="value"
        )
    with pytest.warns(RuntimeWarning, match=r"no score or state was found. Not used: 'points'\."):
        tl.read_nodes([{**row, "points": 3} for row in without_scores()])


def test_a_range_without_scores_is_an_error():
    rows = [{**row, "points": 3} for row in without_scores()]
    with pytest.raises(ValueError, match=r"name it with score=.*'text', 'points'"):
        tl.read_nodes(rows, score_range=(0, 10))


def without_scores():
    return [{name: cell for name, cell in row.items() if name != "score"} for row in ROWS]


def test_a_state_that_says_what_became_of_a_node_is_no_thought():
    rows = [{"id": row["id"], "parent": row["parent"], "state": "kept"} for row in ROWS]
    with pytest.raises(JournalError, match="field 'text' is missing"):
        tl.read_nodes(rows)


def test_a_column_that_only_has_the_name_of_a_state_is_not_used():
    """In searches on puzzles, the state is often what is left of the problem."""
    rows = [{**row, "state": "4 6 8", "open": "yes"} for row in ROWS]
    with pytest.warns(RuntimeWarning, match="Not used: 'state', 'open'"):
        run = tl.read_nodes(rows, score_range=(0, 10))
    assert {node.state for node in run.tree} == {"proposed"}
    found = tl.read_nodes([{**row, "state": "kept"} for row in ROWS], score_range=(0, 10))
    assert {node.state for node in found.tree} == {"kept"}


def test_runs_of_one_question_have_names_that_tell_them_apart():
    def rows(*runs):
        return [{"run": run, "id": "q", "parent": None, "text": question} for run, question in runs]

    same = rows(("a", "What is 2 + 2?"), ("b", "What is 2 + 2?"), ("c", "What is 3 + 3?"))
    assert [run.name for run in tl.read_nodes(same)] == ["nodes a", "nodes b", "nodes"]
    named = [{**row, "strategy": "mine"} for row in same]
    assert [run.name for run in tl.read_nodes(named)] == ["mine"] * 3


def test_a_table_of_many_runs_is_a_list(file):
    task, other = (
        tl.general(ROWS[0]["text"], answer=10, grade="number"),
        tl.general("And a spider?", answer=8),
    )
    spider = [{"id": "q", "parent": None, "text": other.question}, {"id": "x", "parent": "q", "text": "8"}]
    spider[1]["state"] = "answer"
    rows = [{**row, "run_id": "one", "strategy": "beam", "repeat": 2} for row in ROWS]
    rows += [{**row, "run_id": "two/2", "strategy": "dfs"} for row in spider]
    first, second = tl.read_nodes(shuffled(rows, 3), score_range=(0, 10), task=[task, other])
    if first.question != task.question:
        first, second = second, first
    assert (first.id, first.name, first.header.repeat, len(first.tree)) == ("one", "beam", 2, 4)
    assert (second.name, second.answer, second.task.reference) == ("dfs", "8", 8)
    assert "/" not in second.id  # it becomes a part of a file name
    assert first.task.reference == 10
    rows[2]["parent"] = "nobody"
    with pytest.raises(tl.errors.JournalError, match=r"nodes\.jsonl, line 3, field 'parent': unknown parent"):
        tl.read_nodes(file(rows), score_range=(0, 10))
    rows[2] |= {"parent": "q", "merged": "nobody"}
    with pytest.raises(tl.errors.JournalError, match=r"line 3, field 'merged': unknown node: got 'nobody'"):
        tl.read_nodes(file(rows), score_range=(0, 10))


def test_open_thoughts_join_to_the_answer():
    rows = [
        {"id": "0", "parent": None, "text": "How many legs?"},
        {"id": "0.0", "parent": "0", "text": "Answer: 1", "open": True},
        {"id": "0.0.0", "parent": "0.0", "text": "0", "state": "answer"},
    ]
    run = tl.read_nodes(rows, task=tl.general("How many legs?", answer=10, grade="number"))
    assert (run.answer, run.correct, run.steps("0.0.0")) == ("10", True, ["Answer: 10"])


# Round trip.


def rows_of(run):
    """The nodes of a run as rows: each with the call that made it."""
    calls = run.calls_df()
    made = {}
    rows = []
    for node in run.tree:
        proposals = calls[(calls.node == node.parent) & calls.purpose.isin(["propose", "sample"])]
        number = made[node.parent] = made.get(node.parent, -1) + 1
        row = {
            "id": node.id,
            "parent": node.parent,
            "text": node.text,
            "score": node.score,
            "state": node.state,
        }
        if len(proposals):
            call = proposals.iloc[min(number, len(proposals) - 1)]
            row |= {"prompt": call.prompt, "reply": call.reply, "call": call.position}
            row |= {"in": int(call.input_tokens), "out": int(call.output_tokens)}
        rows.append(row)
    return rows


@pytest.mark.parametrize("propose", [tl.Sample(count=2), tl.Propose(count=3)])
def test_a_run_made_of_its_own_nodes_is_the_same(propose):
    strategy = tl.TreeOfThoughts(
        propose=propose, evaluate=lambda task, path: len(path[-1]) % 7 / 7, stop=tl.Stop(depth=2)
    )
    run = wait(tl.Lab("sim/game24").run(strategy, tl.game24("4 5 6 10")))
    rows = json.loads(json.dumps(rows_of(run)))
    again = tl.read_nodes(
        shuffled(rows),
        score="score",
        state="state",
        prompt="prompt",
        reply="reply",
        tokens=("in", "out"),
        call="call",
    )
    assert {(n.id, n.parent, n.text, n.score, n.state) for n in again.tree} == {
        (n.id, n.parent, n.text, n.score, n.state) for n in run.tree
    }
    columns = ["node", "prompt", "reply", "input_tokens", "output_tokens"]
    before = run.calls_df()
    rows_before, rows_after = (
        sorted(frame[columns].itertuples(index=False, name=None)) for frame in (before, again.calls_df())
    )
    assert rows_after == rows_before


def test_calls_that_evaluate_belong_to_the_node_and_shared_calls_are_one():
    propose = LoggedCall(reply=tl.Reply("a\nb", output_tokens=3), purpose="propose", id="p")
    value = LoggedCall(reply=tl.Reply("sure", output_tokens=1), purpose="value")
    nodes = [
        LoggedNode("r", None, "q"),
        LoggedNode("a", "r", "a", 1.0, calls=[propose, value, value]),
        LoggedNode("b", "r", "b", 0.5, calls=[propose]),
    ]
    calls = run_of_nodes(nodes, name="test").calls_df()
    assert list(zip(calls.node, calls.purpose, calls.sample_index, strict=True)) == [
        ("0", "propose", 0),
        ("0.0", "value", 0),
        ("0.0", "value", 1),
    ]
