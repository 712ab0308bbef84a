"""Tables with several completions per problem become runs with scores, answers and grades."""

import json
import math

import pandas as pd
import pytest

import tot_lab as tl


def completion(number):
    return f"We add.\n\nThe answer is $\\boxed{{{number}}}$."


def row(k):
    """A result of search-and-learn's best of N: the second of four completions is right."""
    numbers = [k, k + 2, k + 3, k]
    return {
        "problem": f"What is {k} + 2?",
        "answer": str(k + 2),
        "unique_id": f"test/{k}.json",
        "completions": list(map(completion, numbers)),
        "scores": [[0.9, 0.5], [0.6, 0.8], [0.2, 0.1], [0.3, 0.4]],
        "agg_scores": [0.5, 0.8, 0.1, 0.4],
        "pred": completion(k + 2),
        "completion_tokens": [10, 11, 12, 13],
    }


ROWS = [row(k) for k in range(6)]


def read(rows=ROWS, grade="number", **more):
    return tl.records.from_completions(rows, grade=grade, **more)


def test_a_row_is_a_run_with_an_answer_and_a_grade():
    run = read()[1]
    assert (run.question, run.task.id) == ("What is 1 + 2?", "test/1.json")
    assert (run.answer, run.correct, run.score) == ("3", True, 0.8)
    assert [node.text for node in run.tree][1:] == ROWS[1]["completions"]
    assert [(node.score, node.samples) for node in run.tree][1:3] == [(0.5, (0.9, 0.5)), (0.8, (0.6, 0.8))]
    assert (run.usage.calls, run.usage.output_tokens) == (4, 46)
    assert run.header.unknown == ("prompts", "times")


def test_fewer_completions_are_budget_points():
    estimates = tl.stats.pass_at_k(read())
    assert list(zip(estimates.k, estimates.rate, estimates.output_tokens, strict=True)) == [
        (1, 0.25, 11.5),
        (2, 0.5, 23.0),
        (4, 1.0, 46.0),
    ]
    best = tl.stats.best_of_k(read())
    assert best.rate.tolist() == pytest.approx([0.25, 0.5, 1.0])
    samples = tl.stats.samples(read())
    assert samples.answer[:4].tolist() == ["0", "2", "3", "0"]
    assert samples.correct[:4].tolist() == [False, True, False, False]


@pytest.mark.parametrize(
    ("more", "scores"),
    [
        ({}, [0.5, 0.8, 0.1, 0.4]),
        ({"aggregate": min}, [0.5, 0.6, 0.1, 0.3]),
        ({"aggregate": math.prod}, [0.45, 0.48, 0.02, 0.12]),
        ({"score_range": (0, 2), "aggregate": max}, [0.45, 0.4, 0.1, 0.2]),
    ],
)
def test_the_scores_of_the_steps_are_aggregated(more, scores):
    assert [node.score for node in read(**more)[0].tree][1:] == pytest.approx(scores)


def test_without_agg_scores_the_last_step_counts_and_one_number_is_enough():
    rows = [{**one, "agg_scores": None, "scores": [[0.9, 0.5], [0.6, 0.8], 0.1, []]} for one in ROWS]
    assert [node.score for node in read(rows)[0].tree][1:] == [0.5, 0.8, 0.1, None]


def test_files_and_frames_are_read_alike(tmp_path):
    frame = pd.DataFrame(ROWS)
    frame.to_parquet(tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(one) + "\n" for one in ROWS))
    lists = [read(source) for source in (frame, tmp_path / "a.parquet", tmp_path / "a.jsonl", iter(ROWS))]
    for runs in lists:
        assert [run.tree for run in runs] == [run.tree for run in lists[0]]
        assert [run.usage for run in runs] == [run.usage for run in lists[0]]
    assert {run.name for run in lists[1]} == {"a.parquet"}


def test_only_problem_and_completions_are_needed():
    (run,) = read([{"problem": "Why?", "completions": ["So.", "Because."]}])
    assert (run.answer, run.correct, run.status) == ("", None, None)
    assert run.usage.output_tokens is None
    (unlike,) = read([{"problem": "Why?", "completions": ["So."], "completion_tokens": -1, "pred": "So."}])
    assert (unlike.answer, unlike.usage.output_tokens) == ("So.", None)


def test_tasks_are_matched_by_their_problem_and_other_columns_are_named():
    tasks = [tl.general(one["problem"], answer=7, grade="number") for one in ROWS[1:3]]
    with pytest.warns(RuntimeWarning, match=r"completions: not used: 'level', 'pred_maj@4'\."):
        runs = read([{**one, "level": 1, "pred_maj@4": "2"} for one in ROWS], task=tasks)
    assert [run.task and run.task.reference for run in runs[:3]] == [None, 7, 7]


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"completions": "text"}, r"row 2, field 'completions': must contain a list of texts: got 'text'"),
        ({"problem": None}, r"row 2, field 'problem': must contain a text: got None"),
        (
            {"scores": [[0.1]]},
            r"row 2, field 'scores': must be a list with one entry for each of 4 completions",
        ),
        ({"scores": "[[0.1]]"}, r"row 2, field 'scores': must be a list with one entry for each of 4"),
        ({"completion_tokens": "12"}, r"row 2, field 'completion_tokens': must be a list"),
        ({"scores": [["high"]] * 4, "agg_scores": None}, r"row 2, field 'scores': must contain numbers"),
        (
            {"agg_scores": [2, 0, 0, 0]},
            r"row 2, field 'score' of completion 0: the score must",
        ),
        ({"answer": "many"}, r"row 2: answer"),
    ],
)
def test_a_bad_row_is_named(cells, message):
    with pytest.raises(tl.errors.JournalError, match=message):
        read([ROWS[0], {**ROWS[1], **cells}])


def test_thoughts_of_an_imported_search_of_one_level_are_no_samples():
    """Steps that one call proposed are parts of one attempt, however flat their tree is."""
    steps = [
        {"id": str(k), "parent": "", "text": f"Answer: {k}", "prompt": "Next?", "name": "one"} for k in (1, 2)
    ]
    rows = [{"id": "q", "parent": None, "text": "How many?"}, *[{**step, "parent": "q"} for step in steps]]
    run = tl.read_nodes(
        rows, answer="2", prompt="prompt", call="name", task=tl.general("How many?", answer=2, grade="number")
    )
    assert len(tl.stats.samples(run)) == 1
