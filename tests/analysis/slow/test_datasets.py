"""Tables of runs as the package `datasets` reads them from Parquet, and the way back to runs."""

import random

import pandas as pd
import pytest
from support import SETTINGS, STRATEGIES, TASK, for_each, run, wait

import tot_lab as tl
from tot_lab.core.records import END_OF_REPLY, Decided, Ended, Line, Scored, Thought
from tot_lab.record.journal import Header
from tot_lab.record.marks import Mark
from tot_lab.record.run import Run

TASKS = [tl.general(f"What is {k} + {k}?\n\nThink  twice.", answer=2 * k, grade="number") for k in range(20)]
WORDS = [
    "Answer: 4",
    "so we add",
    "2 + 2 = 5",
    "Ünïcödé “x” 数",
    "a,b;\t'c'\n\nd",
    "it doubles",
    "0",
    "None",
    "nan",
]


def text(dice):
    return " ".join(dice.choices(WORDS, k=dice.randrange(1, 4)))


def generated(seed):
    """A run whose tree has all that a tree can have: open, empty, merged, unreadable, failed and marked
    thoughts, raw values in any units, and any decisions.
    """
    dice = random.Random(seed)
    task, records = TASKS[seed % len(TASKS)], [Thought("0", None, TASKS[seed % len(TASKS)].question)]
    ids, is_open = ["0"], {"0": False}
    for number in range(dice.randrange(2, 40)):
        parent = dice.choice(ids[-12:])
        id = f"{parent}.{number}"
        is_open[id] = dice.random() < 0.2
        records.append(Thought(id, parent, text(dice), open=is_open[id]))
        ids.append(id)
        by = dice.choice(["value", "reward_model", "", None])
        if by is not None:
            score = dice.choice([None if by else 1.0, 0.0, dice.random(), 1.0])
            raw = dice.choice([None, dice.uniform(-60, 60)]) if score is not None else None
            records.append(Scored(id, score, raw, (), by))
        what = dice.choice([None, "kept", "pruned", "complete", "duplicate", "failed", "merged"])
        if what is not None:
            other = dice.choice(ids[:-1]) if what == "merged" else None
            records.append(Decided(id, what, dice.choice(["", "width", "not a number"]), other))
    best = dice.choice([None, *ids[1:]])
    if best is not None and not is_open[best] and dice.random() < 0.3:  # the model ended its reply
        records += [Thought(f"{best}.999", best, ""), Decided(f"{best}.999", "complete", END_OF_REPLY)]
        best = f"{best}.999"
        ids.append(best)
    if best is not None:
        if dice.random() < 0.7:
            records.append(Decided(best, "answer", "best_leaf"))
        records.append(Ended("answered", "?", best, None, (best,)))
    settings = {"kind": "recorded", "name": dice.choice(["beam", "mcts, c=1"])}
    header = Header.now(task=task.settings(), strategy=settings, repeat=seed % 3)
    run = Run(header, [Line((k,), 0.0, record) for k, record in enumerate(records)], task=task)
    for id in dice.sample(ids[1:], 2):
        run._marks[id] = Mark(dice.choice(["right", "wrong"]), dice.choice(["", "look here"]))
    return run


def table_of(runs):
    """The table that a sweep makes of its runs."""
    return pd.concat(
        [
            run.nodes_df().assign(
                run_id=run.id, setting=run.name, task=run.question, repeat=run.header.repeat
            )
            for run in runs
        ],
        ignore_index=True,
    )


def through_datasets(frame, folder):
    datasets = pytest.importorskip("datasets", reason="the package datasets is not installed")
    frame.to_parquet(folder / "rows.parquet", index=False)
    return datasets.Dataset.from_parquet(str(folder / "rows.parquet"), cache_dir=str(folder / "cache"))


@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.nightly)])
def test_runs_come_back_from_their_rows(tmp_path, monkeypatch, count):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    runs = [generated(seed) for seed in range(count)]
    rows = through_datasets(table_of(runs), tmp_path)
    back = tl.read_nodes(rows, task=TASKS)
    assert [one.id for one in back] == [one.id for one in runs]
    for made, again in zip(runs, back, strict=True):
        pd.testing.assert_frame_equal(again.nodes_df(), made.nodes_df())
        assert [again.steps(node.id) for node in again.tree] == [made.steps(node.id) for node in made.tree]
        assert (again.name, again.header.repeat, again.task) == (made.name, made.header.repeat, made.task)
        assert (again.best and again.best.id) == (made.best and made.best.id)
        assert again.marks == made.marks
        assert "calls" in again.header.unknown
        assert again.tree.closing == made.tree.closing
        pd.testing.assert_frame_equal(tl.training.stepwise(again), tl.training.stepwise(made))
        again.save(tmp_path / "a.jsonl")
        assert tl.load(tmp_path / "a.jsonl").tree == again.tree
    assert {"merged", "answer", "failed", "unreadable", "proposed"} <= {n.state for r in runs for n in r.tree}


@pytest.mark.parametrize(
    "layout",
    [
        *(tl.training.stepwise, tl.training.preference, tl.training.unpaired),
        *(tl.training.math_shepherd, tl.training.prm800k),
    ],
)
def test_datasets_reads_every_layout(layout, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    frame = layout([generated(seed) for seed in range(30)])
    assert len(frame) > 9
    rows = through_datasets(frame, tmp_path)
    assert rows.column_names == list(frame.columns)
    assert rows.to_list() == frame.astype(object).where(frame.notna(), None).to_dict("records")
    features = {name: str(feature) for name, feature in rows.features.items()}
    if "labels" in features:
        assert "bool" in features["labels"]
        assert "float64" in features["values"]


def test_the_way_back_of_a_sweep_needs_no_columns():
    lab = tl.Lab(tl.sim.SimGame24(skill=0.6, noise=0.2), runs=None)
    settings = {
        "width 1": tl.TreeOfThoughts(search=tl.BeamSearch(width=1)),
        "attempts": tl.SelfConsistency(attempts=3),
    }
    tasks = tl.game24_tasks(3)
    sweep = wait(lab.sweep(settings, tasks))
    back = tl.read_nodes(sweep.nodes_df(), task=tasks)
    assert {one.id for one in back} == set(sweep.df().run_id)
    for again in back:
        made = sweep.run(again.id)
        assert again.answer == made.answer
        assert again.correct == made.correct or not made.answer  # a table does not say how a run ended
        pd.testing.assert_frame_equal(again.nodes_df(), made.nodes_df())
    assert {one.name for one in back} == {"width 1", "attempts"}


@pytest.mark.nightly
def test_the_trees_of_all_strategies_come_back():
    def comes_back(kind):
        made = run(kind(**SETTINGS.get(kind, {})))
        again = tl.read_nodes(made.nodes_df(), task=TASK)
        pd.testing.assert_frame_equal(again.nodes_df(), made.nodes_df())
        assert again.answer == made.answer

    for_each(STRATEGIES, comes_back)
