"""The table of `notebooks/09_other_peoples_runs.ipynb`, from the published logs of two groups.

    python benchmarks/other_peoples_runs.py DIR_XOT DIR_PRINCETON

DIR_XOT holds the logs of Everything of Thoughts (Ding et al. 2023) in folders, one for each game.
DIR_PRINCETON holds those of Tree of Thoughts (Yao et al. 2023). Writes `data/09_other_peoples_runs.csv`,
which holds counts and measures and no text of the logs. Calls no model.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pandas as pd
from published_xot import levels, verdict

import tot_lab as tl

TABLE = Path(__file__).parent.parent / "data" / "09_other_peoples_runs.csv"


def success(runs: list[tl.Run]) -> dict[str, int]:
    """Tasks that the first answer solves, and tasks that any kept answer solves."""
    rates = tl.stats.success_rates(runs).iloc[0]
    return {
        "runs": rates["runs"],
        "first answer": rates["solved"],
        "any kept answer": rates.get("any_of_kept", rates["solved"]),
    }


def losses(runs: list[tl.Run]) -> dict[str, int]:
    """Failed runs by the component to blame."""
    return dict(tl.stats.judge_evaluator(runs).blame.loc["all"].drop(["runs", "not known"]))


def evaluator(runs: list[tl.Run]) -> dict[str, Any]:
    """How well the scores of thoughts of one run and depth tell the solvable ones apart."""
    judged = tl.stats.judge_evaluator(runs)
    low, high = judged.intervals.loc["auc_within"]
    measures = judged.measures[["labelled", "solvable", "auc_within", "collapse"]]
    return {**measures, "auc_within_low": low, "auc_within_high": high}


def lacking(runs: list[tl.Run]) -> dict[str, int]:
    """Runs whose log lacks a part, by part."""
    parts = ("prompts", "replies", "calls", "times")
    return {part: sum(part in run.header.unknown for run in runs) for part in parts}


def beam(run: tl.Run, width: int, temperature: float) -> tl.TreeOfThoughts:
    """The search of a log with another width. At temperature 0, equal states share their replies."""
    task = run.task
    assert task is not None
    samples = max(len(node.samples) for node in run.tree)
    by_votes = any(node.by == "vote" for node in run.tree)
    levels = {"game24": 3, "npuzzle": 9, "cube": 4}.get(task.domain.kind.removeprefix("published/"), 2)
    return tl.TreeOfThoughts(
        propose=tl.Sample(count=5) if by_votes else tl.Propose(count=100),
        evaluate=tl.Vote(samples=samples) if by_votes else tl.Value(samples=samples, combine="sum"),
        search=tl.BeamSearch(width=width),
        stop=tl.Stop(depth=levels, solved=None),
        temperature=temperature,
    )


def searched_again(runs: list[tl.Run], width: int, temperature: float) -> dict[str, int]:
    """The results of a beam of another width on the recorded replies. No call is made."""
    answers = tl.counterfactual(runs, beam(runs[0], width, temperature))
    reached = sum(one.reached is True for one in answers)
    missed = sum(one.reached is False for one in answers)
    return {"reached": reached, "not reached": missed, "unknown": len(answers) - reached - missed}


def ties(runs: list[tl.Run]) -> dict[str, int]:
    """Levels of the trees, and those on which a kept and a pruned thought have the same score."""
    found = [verdict(*level) for run in runs for level in levels(run)]
    return {"levels": len(found), "ties": found.count("ties")}


def table(xot: Path, princeton: Path) -> pd.DataFrame:
    """The table, one value in a row. Logs without scores have no measures of the evaluator."""
    rows: list[tuple[str, str, int | None, str, Any]] = []
    files = [("Princeton", file) for file in sorted(princeton.glob("*.json"))]
    files += [("XoT", file) for file in sorted(xot.glob("*/*.json"))]
    for group, file in files:
        runs = tl.load(file)
        log = f"{group}: {runs[0].name.removeprefix('published ').partition(', gpt')[0]}"
        rows += [("success", log, None, *item) for item in success(runs).items()]
        rows += [("losses", log, None, *item) for item in losses(runs).items()]
        rows += [("lacking", log, None, *item) for item in lacking(runs).items()]
        if not any(node.samples for run in runs for node in run.tree):
            continue
        rows += [("evaluator", log, None, *item) for item in evaluator(runs).items()]
        rows += [("ties", log, None, *item) for item in ties(runs).items()]
        for width in range(1, 6):
            again = searched_again(runs, width, {"Princeton": 0.7, "XoT": 0.0}[group])
            rows += [("searched again", log, width, *item) for item in again.items()]
    frame = pd.DataFrame(rows, columns=["table", "log", "width", "measure", "value"])
    return frame.astype({"width": "Int64", "value": float}).round({"value": 4})


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    table(Path(sys.argv[1]), Path(sys.argv[2])).to_csv(TABLE, index=False)
    print(TABLE)
