"""Runs of tables with several completions per problem, such as the results of search-and-learn.

References:
    github.com/huggingface/search-and-learn: src/sal/search/best_of_n.py, src/sal/utils/score.py.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tot_lab.core.bulk import gc_paused
from tot_lab.core.calls import Reply, is_token_count
from tot_lab.core.reading.values import finite
from tot_lab.core.records import Scored
from tot_lab.core.task import Task, make_task
from tot_lab.record.journal import JournalError
from tot_lab.record.logs.common import ROOT, kind
from tot_lab.record.node_tables import rows_of
from tot_lab.record.nodes import RECORDED, LoggedCall, LoggedEnd, LoggedNode, run_of_nodes
from tot_lab.record.run import Run

_READ = (
    *("problem", "completions", "scores", "agg_scores", "pred", "completion_tokens", "answer", "unique_id"),
)


@gc_paused()
def from_completions(
    source: str | os.PathLike[str] | Iterable[Mapping[str, Any]] | Any,
    *,
    aggregate: Callable[[Sequence[float]], float] | None = None,
    score_range: tuple[float, float] = (0.0, 1.0),
    task: Task | Iterable[Task] | None = None,
    grade: Any = "math",
    name: str = "",
) -> list[Run]:
    """Make a run of each row of a table with several completions per problem.

        runs = tl.records.from_completions("best_of_n_completions.jsonl")
        tl.stats.pass_at_k(runs)

    The columns are those of search-and-learn: `problem` and `completions`, and optionally `scores` (for each
    completion a number, or a list with a number per step), `agg_scores`, `pred` (the completion that was
    chosen), `completion_tokens`, `answer` (the expected one) and `unique_id`. Each completion is a child of
    the question and one sample in `tl.stats`, which estimates the results of fewer completions. The scores of
    the steps of a completion are the samples of its evaluation.

    Args:
        source: A file (JSON Lines, JSON with a list of objects, or Parquet), a pandas DataFrame, or an
            iterable of dicts such as a `datasets.Dataset`.
        aggregate: A function, such as `min` or `math.prod`, that combines the scores of the steps. `None`
            takes `agg_scores`, or else the score of the last step.
        score_range: The lowest and the highest score.
        task: The task, or tasks from which each run gets the task with its problem. `None` makes a task from
            the columns `problem` and `answer`.
        grade: How an answer is compared with the column `answer`, as in `tl.general`.
        name: The name of the method. If empty, the name of the file.

    Raises:
        OSError: If the file cannot be read.
        JournalError: For a bad row. The message names the file, the line (or row) and the column.

    Warns:
        RuntimeWarning: If the table has columns that are not used.
    """
    rows, place = rows_of(source)
    file = Path(source).name if isinstance(source, str | os.PathLike) else "completions"
    tasks = [task] if isinstance(task, Task) else [] if task is None else list(task)
    by_question = {one.question.strip(): one for one in tasks}
    runs, unused = [], dict[str, None]()
    for k, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise JournalError(f"{place(k)}: a row must be an object with fields: got {kind(row)}.")
        unused |= dict.fromkeys(str(column) for column in row if column not in _READ)
        one = _Row(row, place(k))
        problem = one.text("problem")
        made = by_question.get(problem.strip()) if tasks else one.task(problem, grade)
        runs.append(one.run(made, name or file, aggregate, score_range))
    if unused:
        warnings.warn(f"{file}: not used: {', '.join(map(repr, unused))}.", RuntimeWarning, stacklevel=3)
    return runs


class _Row:
    """One row of the table. A bad cell is an error that names its place."""

    def __init__(self, row: Mapping[str, Any], place: str) -> None:
        self.row = {column: _plain(cell) for column, cell in row.items()}
        self.place = place

    def error(self, column: str, expected: str) -> JournalError:
        got = self.row.get(column)
        return JournalError(f"{self.place}, field {column!r}: {expected}: got {got!r:.80}.")

    def text(self, column: str) -> str:
        cell = self.row.get(column)
        if not isinstance(cell, str):
            raise self.error(column, "must contain a text")
        return cell

    def each(self, column: str, count: int) -> list[Any]:
        """The entries of the list in a column, one for each completion. All are `None` if the column is
        missing."""
        cells = self.row.get(column)
        if cells is None or (column == "completion_tokens" and isinstance(cells, int)):
            return [None] * count  # DVTS gives one number of tokens for all completions
        if not isinstance(cells, list) or len(cells) != count:
            raise self.error(column, f"must be a list with one entry for each of {count} completions")
        return cells

    def task(self, problem: str, grade: Any) -> Task:
        answer = self.row.get("answer")
        graded = {} if answer is None else {"answer": answer, "grade": grade}
        try:
            made = make_task("general", problem, **graded)
        except ValueError as error:
            raise JournalError(f"{self.place}: {error}") from None
        return made.model_copy(update={"id": str(self.row.get("unique_id") or "")})

    def run(
        self,
        task: Task | None,
        name: str,
        aggregate: Callable[[Sequence[float]], float] | None,
        score_range: tuple[float, float],
    ) -> Run:
        texts = self.row.get("completions")
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise self.error("completions", "must contain a list of texts")
        nodes = [LoggedNode(ROOT, None, self.text("problem"))]
        columns = [self.each(column, len(texts)) for column in ("scores", "agg_scores", "completion_tokens")]
        for k, (text, steps, whole, tokens) in enumerate(zip(texts, *columns, strict=True)):
            rewards = self.numbers("scores", steps)
            score = finite(whole)
            if rewards and (aggregate is not None or score is None):
                score = float((aggregate or _last)(rewards))
            count = tokens if is_token_count(tokens) else None
            call = LoggedCall((), Reply(text, output_tokens=count), "sample")
            scored = None if score is None else Scored("", None, score, tuple(rewards), RECORDED)
            nodes.append(LoggedNode(str(k), ROOT, text, score, calls=[call], scored=scored))
        chosen = self.row.get("pred")
        best = next((node.id for node in nodes[1:] if node.text == chosen), None)
        end = LoggedEnd(None if best else chosen, [] if best is None else [best])
        return run_of_nodes(
            nodes,
            name=name,
            task=task,
            end=end,
            score_range=score_range,
            where=lambda k, field: f"{self.place}, field {field!r} of completion {k - 1}",
        )

    def numbers(self, column: str, cell: Any) -> list[float]:
        cells = [] if cell is None else cell if isinstance(cell, list) else [cell]
        numbers = [number for one in cells if (number := finite(one)) is not None]
        if len(numbers) < len(cells):
            raise self.error(column, "must contain numbers")
        return numbers


def _last(scores: Sequence[float]) -> float:
    return scores[-1]


def _plain(cell: Any) -> Any:
    """A cell of a DataFrame, with lists in place of arrays. `None` for a missing value."""
    if hasattr(cell, "tolist"):
        cell = cell.tolist()
    if isinstance(cell, list | tuple):
        return [_plain(one) for one in cell]
    return None if cell != cell else cell
