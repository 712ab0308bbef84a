"""Runs as training data: where labels come from, what is unknown, and the layouts as others read them."""

import random
import re

import pandas as pd
import pytest
from support import wait

import tot_lab as tl
from tot_lab.record.nodes import LoggedEnd, LoggedNode, run_of_nodes

QUESTION = "How many legs have two dogs\n\nand a bird?"
DOGS, BIRD, FOUR = "Two dogs have 8 legs.", "A bird has 3 legs.", "A dog has 2 legs."
TASK = tl.general(QUESTION, answer=10, grade="number")
NODES = [
    LoggedNode("0", None, QUESTION),
    LoggedNode("0.0", "0", DOGS, 0.9, "kept"),
    LoggedNode("0.1", "0", FOUR, 0.1, "pruned"),
    LoggedNode("0.0.0", "0.0", "Answer: 10", 0.8),
    LoggedNode("0.0.1", "0.0", "Answer: 12", 0.3, "pruned"),
    LoggedNode("0.0.2", "0.0", BIRD, 0.2, "pruned"),
    LoggedNode("0.0.3", "0.0", "Answer: 12", 0.3, "duplicate"),
]


def run_of(nodes=NODES, best=("0.0.0",), task=TASK):
    return run_of_nodes(nodes, name="test", task=task, end=LoggedEnd(nodes=best))


def rows(frame):
    return frame.astype(object).where(frame.notna(), None).to_dict("records")


def labelled(run):
    """Each step of each row with its label, soft label and source."""
    return [
        list(zip(row["completions"], row["labels"], row["values"], row["sources"], strict=True))
        for row in rows(tl.training.stepwise(run))
    ]


LAYOUTS = tl.training.stepwise, tl.training.preference, tl.training.unpaired, tl.training.math_shepherd
RIGHT, WRONG = ("Answer: 10", True, 1.0, "leaves"), ("Answer: 12", False, 0.0, "leaves")


def test_labels_are_estimated_from_the_answers_below_and_a_path_without_an_answer_is_unknown():
    run = run_of()
    half = (DOGS, True, 0.5, "leaves")
    assert labelled(run) == [[half, RIGHT], [half, WRONG]]
    first = rows(tl.training.stepwise(run))[0]
    assert first["prompt"] == QUESTION
    assert (first["run_id"], first["node"], first["scores"]) == (run.id, "0.0.0", [0.9, 0.8])


def test_a_persons_mark_comes_first_and_a_marked_end_counts_as_an_answer():
    run = run_of()
    run.mark("0.0.2", "wrong")
    run.mark("0.1", "wrong")
    third = (DOGS, True, pytest.approx(1 / 3), "leaves")
    marked = (BIRD, False, 0.0, "person"), (FOUR, False, 0.0, "person")
    assert labelled(run) == [[marked[1]], [third, RIGHT], [third, WRONG], [third, marked[0]]]
    run.mark("0.0", "wrong", "it should be argued")
    assert {row[0][1:] for row in labelled(run)} == {(False, 0.0, "person")}
    run.mark("0.0.0", "wrong")
    assert not tl.training.unpaired(run).label.any()


def test_the_domain_comes_before_the_leaves():
    player = tl.sim.SimGame24(skill=0.5, noise=0.3, seed=3)
    search = tl.TreeOfThoughts(search=tl.BeamSearch(width=2), stop=tl.Stop(solved=None))
    task = tl.game24("4 8 8 11")
    run = wait(tl.Lab(player, runs=None).run(search, task))
    frame = tl.training.stepwise(run)
    assert len(frame) > 5
    for row in rows(frame):
        path = row["completions"]
        known = [task.domain.solvable(task, path[: k + 1]) for k in range(len(path))]
        assert row["labels"] == known
        assert set(row["sources"][:-1]) <= {"domain"}
        assert run.steps(row["node"]) == path
    assert {True, False} <= {label for labels in frame["labels"] for label in labels}


def test_partial_grades_stay_soft_and_are_not_right():
    def grade(answer, reference):
        return {"10": 0.7, "12": 0.2}.get(answer, 0.0)

    run = run_of(task=tl.general(QUESTION, answer=10, grade=grade))
    ends = ("Answer: 10", False, 0.7, "leaves"), ("Answer: 12", False, 0.2, "leaves")
    above = (DOGS, False, pytest.approx(0.45), "leaves")
    assert labelled(run) == [[above, ends[0]], [above, ends[1]]]
    assert tl.training.unpaired(run).value.tolist() == [0.7, 0.2]
    (pair,) = rows(tl.training.preference(run))
    assert pair["values"] == [0.7, 0.2]


def test_pairs_are_siblings_with_different_labels():
    run = run_of()
    (row,) = rows(tl.training.preference(run))
    assert row["prompt"] == f"{QUESTION}\n\n{DOGS}\n\n"
    assert (row["chosen"], row["rejected"], row["values"]) == ("Answer: 10", "Answer: 12", [1.0, 0.0])
    assert (row["node"], row["rejected_node"], row["scores"]) == ("0.0.0", "0.0.1", [0.8, 0.3])
    run.mark("0.1", "wrong")
    first = rows(tl.training.preference(run))[0]
    assert (first["prompt"], first["chosen"], first["rejected"]) == (f"{QUESTION}\n\n", DOGS, FOUR)
    assert first["sources"] == ["leaves", "person"]
    assert len(tl.training.preference(run, margin=0.5)) == 1


def test_whole_solutions_are_right_or_wrong():
    frame = tl.training.unpaired(run_of())
    assert list(frame.prompt.unique()) == [f"{QUESTION}\n\n"]
    assert list(zip(frame.completion, frame.label, frame.value, strict=True)) == [
        (f"{DOGS}\n\nAnswer: 10", True, 1.0),
        (f"{DOGS}\n\nAnswer: 12", False, 0.0),
    ]


def test_the_rows_of_math_shepherd():
    row = rows(tl.training.math_shepherd(run_of(), task="GSM8K"))[1]
    assert row["input"] == f"{QUESTION} Step 1: {DOGS} ки\nStep 2: Answer: 12 ки"
    assert row["label"] == f"{QUESTION} Step 1: {DOGS} +\nStep 2: Answer: 12 -"
    assert row["task"] == "GSM8K"
    russian = run_of([NODES[0], LoggedNode("0.0", "0", "Answer: руки", state="answer")], ("0.0",))
    with pytest.raises(ValueError, match=r"thought 0\.0 of run \w+ contains .*Use stepwise"):
        tl.training.math_shepherd(russian)


def test_the_rows_of_prm800k():
    (row,) = rows(tl.training.prm800k(run_of()))
    assert row["question"]["problem"] == QUESTION
    assert row["question"]["ground_truth_answer"] == "10"
    assert row["question"]["pre_generated_steps"] == [DOGS, "Answer: 10"]
    assert row["label"]["finish_reason"] == "solution"
    assert row["label"]["steps"] == [
        {
            "completions": [{"text": DOGS, "rating": 1, "flagged": None}],
            "human_completion": None,
            "chosen_completion": 0,
        },
        {
            "completions": [
                {"text": "Answer: 10", "rating": 1, "flagged": None},
                {"text": "Answer: 12", "rating": -1, "flagged": None},
            ],
            "human_completion": None,
            "chosen_completion": 0,
        },
    ]
    assert row["scores"] == [[0.9], [0.8, 0.3]]
    (wrong,) = rows(tl.training.prm800k(run_of(best=("0.0.1",))))
    assert wrong["label"]["finish_reason"] == "found_error"
    assert len(tl.training.prm800k(run_of(best=()))) == 0


def test_an_open_thought_is_one_step_with_the_next_one():
    nodes = [
        LoggedNode("0", None, QUESTION),
        LoggedNode("0.0", "0", "Two dogs ha", open=True),
        LoggedNode("0.0.0", "0.0", "ve 8 legs.\nAnswer: 10"),
        LoggedNode("0.0.1", "0.0", "ve 9 legs.\nAnswer: 11"),
    ]
    run = run_of(nodes)
    frame = tl.training.stepwise(run)
    assert frame.completions.tolist() == [
        ["Two dogs have 8 legs.\nAnswer: 10"],
        ["Two dogs have 9 legs.\nAnswer: 11"],
    ]
    assert frame["labels"].tolist() == [[True], [False]]
    (pair,) = rows(tl.training.preference(run))
    assert (pair["prompt"], pair["chosen"]) == (f"{QUESTION}\n\nTwo dogs ha", "ve 8 legs.\nAnswer: 10")
    assert rows(tl.training.prm800k(run))[0]["label"]["steps"][0]["completions"][1] == {
        "text": "Two dogs have 9 legs.\nAnswer: 11",
        "rating": -1,
        "flagged": None,
    }


def test_repeated_rows_are_left_out():
    run = run_of()
    for made in (
        tl.training.stepwise,
        tl.training.preference,
        tl.training.unpaired,
        tl.training.math_shepherd,
    ):
        pd.testing.assert_frame_equal(made([run, run_of()]), made(run))


def test_without_labels_there_are_no_rows_and_all_columns():
    run = run_of(task=tl.general(QUESTION))
    for made in (
        tl.training.stepwise,
        tl.training.preference,
        tl.training.unpaired,
        tl.training.math_shepherd,
    ):
        assert made(run).empty
        assert list(made(run).columns) == list(made(run_of()).columns)
    with pytest.raises(TypeError, match="stepwise expects a sweep, a run or several runs"):
        tl.training.stepwise("runs")


# Second implementations, written from the sources.


def random_run(seed):
    """A tree whose leaves hold right, wrong or no answers."""
    dice = random.Random(seed)
    nodes = [LoggedNode("0", None, QUESTION)]
    waiting = ["0"]
    for id in waiting:
        for k in range(dice.randrange(1, 4) if id == "0" else dice.randrange(4)):
            child = f"{id}.{k}"
            is_end = dice.random() < 0.4 or child.count(".") == 4
            answer = dice.choice(["Answer: 10", "Answer: 11", f"Step {child} leads nowhere."])
            nodes.append(LoggedNode(child, id, answer if is_end else f"Step {child} of it.", dice.random()))
            if not is_end:
                waiting.append(child)
    ends = [node.id for node in nodes if node.text.startswith("Answer")]
    return run_of(nodes, best=tuple(dice.sample(ends, min(len(ends), 1))))


def answers_below(run, id):
    """Math-Shepherd, section 3.2: the outcomes of the completions of a step."""
    texts = [run.tree[each].text for each in run.tree.below(id) if not run.tree[each].children]
    return [text == "Answer: 10" for text in texts if text.startswith("Answer")]


def test_labels_are_the_hard_and_soft_estimation_of_math_shepherd():
    covered = 0
    for seed in range(15):
        run = random_run(seed)
        for row in rows(tl.training.stepwise(run)):
            path = [node.id for node in run.tree.path(row["node"])][1:]
            outcomes = [answers_below(run, id) for id in path]
            assert row["labels"] == [any(found) for found in outcomes]
            assert row["values"] == pytest.approx([sum(found) / len(found) for found in outcomes])
            covered += len(path)
        known = {id for id in run.tree.nodes if answers_below(run, id)} - {"0"}
        shown = {id for row in rows(tl.training.stepwise(run)) for id in path_of(run, row["node"])}
        texts = {tuple(run.steps(id)) for id in shown}
        assert {tuple(run.steps(id)) for id in known} == texts
    assert covered > 60


def path_of(run, id):
    return [node.id for node in run.tree.path(id)][1:]


def read_math_shepherd(row):
    """A row as TRL's script for this data set reads it: the marks are at the same places in both texts."""
    marked = row["input"].replace("ки", "\0")
    places = [found.start() for found in re.finditer("\0", marked)]
    assert {row["label"][place] for place in places} <= {"+", "-"}
    pieces = [piece.strip() for piece in marked.split("\0")][:-1]
    prompt, _, first = pieces[0].partition("Step 1:")
    steps = [f"Step 1:{first}", *pieces[1:]]
    texts = [re.sub(r"^Step \d+: ", "", step) for step in steps]
    return prompt.strip(), texts, [row["label"][place] == "+" for place in places]


def read_prm800k(row):
    """The solutions of a row as TRL's script reads them: one per candidate left out, and the path."""
    found, above = [], []
    for step in row["label"]["steps"]:
        for k, candidate in enumerate(step["completions"]):
            if k != step["chosen_completion"]:
                found.append([*above, (candidate["text"], candidate["rating"] == 1)])
        chosen = step["completions"][step["chosen_completion"]]
        above.append((chosen["text"], chosen["rating"] == 1))
    return [*found, above]


def test_others_read_from_both_data_sets_what_stepwise_holds():
    for seed in range(15):
        run = random_run(seed)
        steps = [
            (row["prompt"], row["completions"], row["labels"]) for row in rows(tl.training.stepwise(run))
        ]
        texts = [[re.sub(r"^Step \d+: ", "", text) for text in texts] for _, texts, _ in steps]
        shepherd = [read_math_shepherd(row) for row in rows(tl.training.math_shepherd(run))]
        assert [(prompt, labels) for prompt, _, labels in shepherd] == [(p, labels) for p, _, labels in steps]
        assert [each for _, each, _ in shepherd] == texts
        labels = {tuple(t[: k + 1]): tuple(ls[: k + 1]) for _, t, ls in steps for k in range(len(t))}
        for row in rows(tl.training.prm800k(run)):
            for solution in read_prm800k(row):
                path, ratings = zip(*solution, strict=True)
                assert labels[path] == ratings


def test_parquet_of_pandas_holds_all(tmp_path):
    from pyarrow import parquet

    run = random_run(5)
    for made in (
        tl.training.stepwise,
        tl.training.preference,
        tl.training.unpaired,
        tl.training.math_shepherd,
    ):
        frame = made(run)
        frame.to_parquet(tmp_path / "a.parquet", index=False)
        assert parquet.read_table(tmp_path / "a.parquet").to_pylist() == rows(frame)
