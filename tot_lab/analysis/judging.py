"""Measures of evaluators, and the causes of failed searches.

A label says whether a right answer can be reached from a thought (see `blame.py`). Thoughts without a label
are counted, but not used in measures that need labels. A measure that cannot be computed from the labels is
NaN, never 0.

Tasks are the unit of sampling, because thoughts of one run and runs of one task are alike. Intervals
therefore come from a cluster bootstrap over tasks (Davison & Hinkley 1997, section 3.8).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from tot_lab.analysis.blame import BLAMES, Blamed, Labels
from tot_lab.analysis.known import judged, wins
from tot_lab.analysis.statistics import SEED, wilson
from tot_lab.analysis.tables import placed
from tot_lab.analysis.why import blame_and_reason
from tot_lab.core.bulk import gc_paused
from tot_lab.core.calls import html_text
from tot_lab.core.parts import needs_functions
from tot_lab.core.tree import Node
from tot_lab.record.losses import ByRole, columns_of, losses_of
from tot_lab.record.run import model_note

if TYPE_CHECKING:
    import numpy
    import pandas

BINS = 10
"""Number of bins of a calibration curve (Guo et al. 2017, section 2, use 15 for far more data)."""

RESAMPLES = 1999
"""Bootstrap samples of the tasks for a confidence interval."""

MIN_TASKS = 5
"""Minimum number of tasks for a confidence interval.

In simulations, intervals from fewer tasks contained the true value too rarely.
"""


@dataclass(frozen=True, eq=False, repr=False)
class EvaluatorDiagnosis:
    """The result of `tl.stats.judge_evaluator`.

    Attributes:
        thoughts: One row per judged thought: run_id, setting, task; node (id); depth (steps); by (the
            evaluator); score (0–1, NA if unreadable); solvable (boolean label, NA if unknown); known_by
            (domain, grade of the answer that the thought states, or mark); state (the last decision);
            samples, unreadable_samples (samples of its evaluation, and those that could not be read).
        siblings: One row per thought with at least two children: run_id, setting, task; node (the parent's
            id); depth and by (of the children); siblings (their number); distinct_texts; with_state (siblings
            whose state the domain can tell) and distinct_states among them; pairs (of siblings with scores)
            and equal_pairs (pairs with the same score).
        runs: One row per run: run_id, setting, task; correct; failed (boolean, NA if unknown); blame (the
            component to blame, or NA), depth (at which the run was lost) and nodes (ids of the thoughts
            there); and the lost calls by role, in the columns of `sweep.df()`.
        model_note: A note that a model of the runs is simulated or small, or ""; see `Run.model_note`.
        why_unlabelled: Why no thought has both a score and a label, and how to get labels. "" if some thought
            has both.
    """

    thoughts: pandas.DataFrame
    siblings: pandas.DataFrame
    runs: pandas.DataFrame
    model_note: str
    why_unlabelled: str = ""

    @cached_property
    def measures(self) -> pandas.Series[float]:
        """The measures over all thoughts.

        - thoughts: judged thoughts; read: those with a score; labelled: those with a score and a label;
          solvable: share of the labelled thoughts that could lead to a right answer.
        - auc: probability that a solvable thought scores above one that is not solvable, equal scores counted
          half (Hanley & McNeil 1982); 0.5 is chance. auc_within: the same among thoughts of one run and
          depth, which are the thoughts that a search compares. Pooling tasks of different difficulty can
          make `auc` larger.
        - spearman: rank correlation of score and label, -1 to 1.
        - brier: mean squared difference of score and label (Brier 1950); 0 is best.
        - calibration_error: expected absolute difference of mean score and share of solvable thoughts, over
          10 bins (Naeini et al. 2015); 0 is best.
        - unreadable, unreadable_samples: share of thoughts without a readable score, and share of samples
          that could not be read.
        - collapse: share of pairs of siblings with the same score.
        - distinct_texts, distinct_states: share of siblings that do not repeat an earlier sibling's text or
          state.
        """
        return _Sums.of(self.thoughts, self.siblings).measures()

    @cached_property
    def intervals(self) -> pandas.DataFrame:
        """The 95 % intervals of the measures that are not counts: one row per measure, with low and high.

        The ends are percentiles of 1,999 resamples of whole tasks, widened for few tasks (Hesterberg 2015,
        section 3.3.2). `calibration_error` is biased upwards in a sample, and more so in a resample, so its
        percentiles are mirrored at the measure (the basic interval). Its low is 0 if an error as large is
        common by chance: if it occurs in more than 1 of 40 trials in which the sign of each task's
        differences between score and label is drawn at random. In simulations with 5 to
        50 tasks the intervals covered the truth in 91–98 % of the cases.

        An interval is NaN if fewer than 5 tasks contribute, if the measure is undefined in more than 1 % of
        the resamples, or if all resamples give the same value.
        """
        return _Sums.of(self.thoughts, self.siblings).intervals()

    def by(self, column: str) -> pandas.DataFrame:
        """The measures for each value of a column, with their intervals as `auc_low`, `auc_high`, ….

        Args:
            column: A column that thoughts and siblings share: `setting`, `task`, `run_id`, `by` or `depth`.
        """
        import pandas as pd  # noqa: PLC0415

        shared = [name for name in self.thoughts.columns if name in self.siblings.columns and name != "node"]
        if column not in shared:
            raise ValueError(f"by must be one of {', '.join(shared)}: got {column!r}.")
        values = sorted(self.thoughts[column].dropna().unique())
        rows = []
        for value in values:
            sums = _Sums.of(*(some[some[column] == value] for some in (self.thoughts, self.siblings)))
            ends = sums.intervals().iterrows()
            rows.append(
                {**sums.measures(), **{f"{name}_{end}": x for name, row in ends for end, x in row.items()}}
            )
        columns = [*_MEASURES, *(f"{name}_{end}" for name in _SHARES for end in ("low", "high"))]
        counts: Any = dict.fromkeys(_COUNTS, "Int64")
        return pd.DataFrame(rows, index=pd.Index(values, name=column), columns=columns).astype(counts)

    def calibration(self, bins: int = BINS) -> pandas.DataFrame:
        """The calibration curve: one row per bin of the score.

        Args:
            bins: Number of bins, of equal width.

        Returns:
            Columns: low and high (ends of the bin); thoughts (number of thoughts with a score and a label in
            the bin); score (their mean score); solvable (how many of them are solvable); share (solvable /
            thoughts) with its 95 % interval lower and upper, Wilson's for the effective number of independent
            thoughts (see `tl.stats.success_rates`). NA in an empty bin.
        """
        import numpy as np  # noqa: PLC0415
        import pandas as pd  # noqa: PLC0415

        known = _known(self.thoughts)
        score, good = _labelled(known)
        task = known["task"].cat.codes.to_numpy()
        place = bins_of(score, bins)
        rows = []
        for k in range(bins):
            here = place == k
            count, solvable = int(here.sum()), int(good[here].sum())
            row = {"low": k / bins, "high": (k + 1) / bins, "thoughts": count, "solvable": solvable}
            if count:
                _, of, thoughts = np.unique(task[here], return_inverse=True, return_counts=True)
                shares = np.bincount(of, good[here]) / thoughts
                lower, upper = wilson(shares, thoughts, thoughts / count, 0.95)
                row |= {"score": score[here].mean(), "share": solvable / count}
                row |= {"lower": lower, "upper": upper}
            rows.append(row)
        columns = ["low", "high", "thoughts", "score", "solvable", "share", "lower", "upper"]
        frame = pd.DataFrame(rows, columns=columns)
        whole = ["thoughts", "solvable"]
        return frame.astype({name: "Int64" if name in whole else "Float64" for name in columns})

    @cached_property
    def blame(self) -> pandas.DataFrame:
        """Failures by the component to blame: one row per setting and one for `all`.

        Columns: runs, failed, one count for each blame, and `not known` (runs for which it is unknown whether
        they failed).
        """
        import pandas as pd  # noqa: PLC0415

        settings = list(self.runs["setting"].cat.categories)
        rows = [self.runs[self.runs["setting"] == name] for name in settings]
        return pd.DataFrame(
            [
                {
                    "runs": len(some),
                    "failed": int(some["failed"].sum()),
                    **{blame: int((some["blame"] == blame).sum()) for blame in BLAMES},
                    "not known": int(some["failed"].isna().sum()),
                }
                for some in [*rows, self.runs]
            ],
            index=pd.Index([*settings, "all"], name="setting"),
        )

    @property
    def _lines(self) -> list[tuple[str, str]]:
        m, total = self.measures, dict(self.blame.iloc[-1])
        ends = self.intervals
        shown = {name: with_interval(m[name], *ends.loc[name]) for name in ends.index}
        evaluators = Counter(self.thoughts["by"])
        sources = Counter(_known(self.thoughts)["known_by"])
        return [
            ("runs", f"{len(self.runs):,}" + (f", {self.model_note}" if self.model_note else "")),
            ("thoughts judged", f"{int(m['thoughts']):,}" + _tally(evaluators)),
            (
                "labelled",
                f"{int(m['labelled']):,} of {int(m['read']):,} with a score"
                + (f": {self.why_unlabelled}" if self.why_unlabelled else "")
                + (f"{_tally(sources)}, {_percent(m['solvable'])} of them solvable" if sources else ""),
            ),
            ("AUC", f"{shown['auc']}; chance 0.50"),
            ("within run, depth", shown["auc_within"]),
            ("rank correlation", f"{shown['spearman']}, Spearman"),
            ("calibration error", shown["calibration_error"]),
            ("Brier score", shown["brier"]),
            (
                "intervals",
                f"95%, from whole tasks drawn anew; {len(self.runs['task'].unique()):,} tasks"
                + (
                    ""
                    if ends["low"].notna().any()
                    else f" are too few (a measure needs at least {MIN_TASKS})"
                ),
            ),
            (
                "unreadable",
                f"{_percent(m['unreadable'])} of thoughts, {_percent(m['unreadable_samples'])} of samples",
            ),
            ("score collapse", f"{_percent(m['collapse'])} of pairs of siblings have the same score"),
            (
                "distinct siblings",
                f"{_percent(m['distinct_texts'])} by text, {_percent(m['distinct_states'])} by state",
            ),
            (
                "wrong runs",
                f"{total['failed']:,}"
                + _tally({blame: total[blame] for blame in BLAMES if total[blame]})
                + (f"; {total['not known']:,} more are unknown" if total["not known"] else ""),
            ),
        ]

    def __repr__(self) -> str:
        return "\n".join(f"{name:<18}{text}" for name, text in self._lines)

    def _repr_html_(self) -> str:
        rows = (
            f"<tr><th>{html_text(name)}</th><td>{html_text(text)}</td></tr>" for name, text in self._lines
        )
        return f"<table>{''.join(rows)}</table>"


@gc_paused()
def judge_evaluator(runs: Any) -> EvaluatorDiagnosis:
    """Measure the quality of the evaluator of some runs, and find the component to blame for each failure.

    The measures are calibration, AUC, rank correlation, unreadable and collapsed scores, and diversity of
    siblings. A thought has a label if the domain knows whether it can lead to a right answer (puzzles), if it
    states an answer that is graded (tasks with `answer=` and `grade=`), or if a person marked it. Scores from
    votes are shares of votes, which other scores cannot be compared with: read the measures of each evaluator
    (`by("by")`) and depth (`by("depth")`). A state that several thoughts reach counts for each of them.

    A failed run has one blame, which the finding `why_it_failed` of `tl.diagnose` explains. It is the first
    in this list that applies, unless scores, results of tools or changes of a person show another cause.

    - answerer: a leaf that no evaluator pruned contains a correct answer, and it was not chosen
    - unsolvable: no answer to the question can be correct
    - cut short: a budget, the cap on thoughts or a person ended the run, and a good thought (a correct
    answer, or a thought that could lead to one) was neither pruned nor expanded
    - search: all good thoughts on the deepest level that has any were pruned, although one of them scored at
    least as high as every kept thought of the level, for example because the scores were equal
    - evaluator: all good thoughts on that level were pruned, and a kept thought scored higher than each of
    them; or a wrong thought was accepted as the answer before a good one was expanded
    - cut short: the search ended for another reason, or a call failed, before a good thought was expanded
    - proposer: good thoughts were expanded, and none of their children could lead to a correct answer
    - unknown: too few thoughts have labels to decide

    The blame is `person` instead if only the changes of a person explain it: a score, a text, a thought that
    the person pruned.

    Args:
        runs: A run, several runs, or a sweep (anything with `.df()` and `.run(run_id)`).

    Raises:
        TypeError: If `runs` is neither a run, several runs nor a sweep.
    """
    import pandas as pd  # noqa: PLC0415

    thoughts: list[dict[str, Any]] = []
    siblings: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    losses: list[ByRole | None] = []
    notes: list[str] = []
    why = ""
    for place in placed(runs, "judge_evaluator"):
        if (run := place.run) is None:
            continue  # the run could not start
        head = {"run_id": place.run_id, "setting": place.setting, "task": place.task}
        facts = _Facts(run)
        notes.append(run.model_note)
        losses.append(losses_of(run))
        thoughts += [{**head, **row} for row in facts.judged_thoughts()]
        siblings += [{**head, **row} for row in facts.siblings()]
        rows.append({**head, **facts.row()})
        if thoughts and not why:
            why = facts.why_unlabelled()
    settings = pd.CategoricalDtype(list(dict.fromkeys(row["setting"] for row in rows)))
    tasks = pd.CategoricalDtype(list(dict.fromkeys(row["task"] for row in rows)))

    def frame(held: list[dict[str, Any]], columns: Mapping[str, Any]) -> pandas.DataFrame:
        kinds: dict[Any, Any] = {"run_id": "string", "setting": settings, "task": tasks, **columns}
        return pd.DataFrame(held, columns=list(kinds)).astype(kinds)

    lost = {name: pd.Series(counts, dtype=dtype) for name, (dtype, counts) in columns_of(losses).items()}
    return EvaluatorDiagnosis(
        frame(thoughts, _THOUGHTS),
        frame(siblings, _SIBLINGS),
        frame(rows, {**_RUNS, "blame": pd.CategoricalDtype(list(BLAMES))}).assign(**lost),
        model_note(notes),
        _unlabelled(thoughts, why),
    )


def _unlabelled(thoughts: list[dict[str, Any]], why: str) -> str:
    """Return why no thought has both a score and a label: `why` if labels are missing, "" if some thought has
    both.
    """
    scored = [row["solvable"] for row in thoughts if row["score"] is not None]
    if not scored:
        return "no score could be read." if thoughts else "no evaluator judged a thought."
    return why if all(solvable is None for solvable in scored) else ""


_THOUGHTS = {
    "node": "string",
    "depth": "Int64",
    "by": "category",
    "score": "Float64",
    "solvable": "boolean",
    "known_by": "category",
    "state": "category",
    "samples": "Int64",
    "unreadable_samples": "Int64",
}
_SIBLINGS = {
    "node": "string",
    "depth": "Int64",
    "by": "category",
    "siblings": "Int64",
    "distinct_texts": "Int64",
    "with_state": "Int64",
    "distinct_states": "Int64",
    "pairs": "Int64",
    "equal_pairs": "Int64",
}
_RUNS = {"correct": "boolean", "failed": "boolean", "blame": "category", "depth": "Int64", "nodes": "string"}


class _Facts(Labels):
    """The rows of one run in the tables of a diagnosis."""

    def judged_thoughts(self) -> Iterator[dict[str, Any]]:
        for node in self.thoughts:
            if judged(node):
                solvable, known_by = self.labels.get(node.id, (None, None))
                yield {
                    **{"node": node.id, "depth": node.depth, "by": node.by, "score": node.score},
                    **{"solvable": solvable, "known_by": known_by, "state": node.state},
                    **{"samples": len(node.samples), "unreadable_samples": node.samples.count(None)},
                }

    def why_unlabelled(self) -> str:
        """Return why no judged thought has a label. Call it only if none has one."""
        run, task = self.run, self.run.task
        by_hand = "or mark thoughts: run.mark(id, 'right')."
        if task is None:
            return f"the run has no task. Pass task= to the importer, {by_hand}"
        if missing := needs_functions(task.domain):
            return f"a file does not contain {', '.join(missing)}. Pass the result of lab.sweep, {by_hand}"
        if run.ungraded:
            return f"answers are not graded: {run.ungraded}"
        if run.grade is None and run.answer:
            return f"answers are not graded. Pass answer= and grade= to tl.tasks, {by_hand}"
        return (
            "no judged thought states an answer in its last line (`Answer: 24`), and the domain cannot tell "
            f"what an unfinished path leads to. Search deeper, {by_hand}"
        )

    def siblings(self) -> Iterator[dict[str, Any]]:
        families: dict[str, list[Node]] = defaultdict(list)
        for node in self.thoughts:
            families[node.parent or ""].append(node)
        for parent, nodes in families.items():
            if len(nodes) < 2:
                continue
            states = [state for node in nodes if (state := self.state(node)) is not None]
            evaluated = [node for node in nodes if judged(node)]
            equal = Counter(node.score for node in evaluated if node.score is not None)
            yield {
                **{"node": parent, "depth": nodes[0].depth, "by": evaluated[0].by if evaluated else None},
                "siblings": len(nodes),
                "distinct_texts": len({" ".join(node.text.split()) for node in nodes}),
                **{"with_state": len(states), "distinct_states": len(set(states))},
                "pairs": math.comb(equal.total(), 2),
                "equal_pairs": sum(math.comb(count, 2) for count in equal.values()),
            }

    def row(self) -> dict[str, Any]:
        """The row of the run in the table of runs."""
        blame = blame_and_reason(self)[0] if self.failed else Blamed(None)
        return {
            "correct": self.run.correct,
            "failed": self.failed,
            "blame": blame.on,
            "depth": blame.depth,
            "nodes": ", ".join(blame.nodes) or None,
        }


# Computation of the measures.


def _known(thoughts: pandas.DataFrame) -> pandas.DataFrame:
    """Return the thoughts with a score and a label."""
    return thoughts[thoughts["score"].notna() & thoughts["solvable"].notna()]


def _labelled(known: pandas.DataFrame) -> tuple[Any, Any]:
    """Return the scores and the labels (1.0 or 0.0) of thoughts that have both."""
    return known["score"].to_numpy(dtype=float), known["solvable"].to_numpy(dtype=float)


_COUNTS = ("thoughts", "read", "labelled")
_RATIOS = {
    "solvable": ("good", "labelled"),
    "auc_within": ("won", "pairs"),
    "brier": ("squares", "labelled"),
    "unreadable": ("unreadable", "thoughts"),
    "unreadable_samples": ("unreadable_samples", "samples"),
    "collapse": ("equal_pairs", "sibling_pairs"),
    "distinct_texts": ("distinct_texts", "siblings"),
    "distinct_states": ("distinct_states", "with_state"),
}
"""Measures that are the quotient of two columns of `_Sums.by_task`, each summed over the tasks."""

_SHARES = (
    *("solvable", "auc", "auc_within", "spearman", "brier", "calibration_error"),
    *("unreadable", "unreadable_samples", "collapse", "distinct_texts", "distinct_states"),
)
_MEASURES = (*_COUNTS, *_SHARES)

_CELLS = 2_000_000
"""Maximum number of array elements of bootstrap samples in memory at the same time."""


class _Sums(NamedTuple):
    """Sums per task from which the measures are computed. A resample of tasks weights these sums.

    Attributes:
        by_task: One row per task and one column per sum.
        good, other: Number of thoughts per task and score, by ascending score: `good` counts those that could
            lead to a correct answer, `other` the rest.
        gaps: Per task and bin, the sum of (score - label).
        is_share: Whether all scores are between 0 and 1.
    """

    by_task: pandas.DataFrame
    good: Any
    other: Any
    gaps: numpy.ndarray[Any, Any]
    is_share: bool

    @staticmethod
    def of(thoughts: pandas.DataFrame, siblings: pandas.DataFrame) -> _Sums:
        import numpy as np  # noqa: PLC0415
        import pandas as pd  # noqa: PLC0415
        from scipy.sparse import csr_array  # noqa: PLC0415

        known = _known(thoughts)
        score, label = _labelled(known)
        judged_one = thoughts[["task", "samples", "unreadable_samples"]].assign(
            thoughts=1, read=thoughts["score"].notna(), unreadable=thoughts["score"].isna()
        )
        labelled = known[["task"]].assign(labelled=1, good=label, squares=(score - label) ** 2)
        within = pd.DataFrame(
            [
                (some["task"].iloc[0], *_pairs(*_labelled(some)))
                for _, some in known.groupby(["run_id", "depth"], observed=True)
            ],
            columns=["task", "won", "pairs"],
        ).astype({"won": float, "pairs": float})
        families = siblings.drop(columns=["node", "depth", "by", "run_id", "setting"])
        tables = [judged_one, labelled, within, families.rename(columns={"pairs": "sibling_pairs"})]
        sums = [
            table.astype({"task": "str"}).groupby("task").sum(numeric_only=True).astype(float)
            for table in tables
        ]
        by_task = pd.concat(sums, axis=1).fillna(0.0).sort_index()  # independent of the order of the runs
        row = by_task.index.get_indexer(pd.Index(known["task"].astype("str")))
        levels, level = np.unique(score, return_inverse=True)
        shape = len(by_task), len(levels)
        gaps = np.zeros((len(by_task), BINS))
        np.add.at(gaps, (row, bins_of(score, BINS)), score - label)
        return _Sums(
            by_task,
            csr_array((label, (row, level)), shape=shape),
            csr_array((1 - label, (row, level)), shape=shape),
            gaps,
            bool(((score >= 0) & (score <= 1)).all()),
        )

    def measures(self) -> pandas.Series[float]:
        import numpy as np  # noqa: PLC0415
        import pandas as pd  # noqa: PLC0415

        counts = self.by_task[list(_COUNTS)].sum()
        found = self._found(np.ones((1, len(self.by_task))))
        return pd.Series({**counts, **{name: float(found[name][0]) for name in _SHARES}}, dtype=float)

    def intervals(self) -> pandas.DataFrame:
        import numpy as np  # noqa: PLC0415
        import pandas as pd  # noqa: PLC0415
        from scipy.stats import norm, t  # noqa: PLC0415

        ends = pd.DataFrame(math.nan, index=pd.Index(_SHARES, name="measure"), columns=["low", "high"])
        tasks = len(self.by_task)
        if tasks < MIN_TASKS:
            return ends
        random = np.random.default_rng(SEED)
        batch = max(_CELLS // max(tasks, self.good.shape[1]), 1)
        parts = [
            self._found(random.multinomial(tasks, np.full(tasks, 1 / tasks), min(batch, RESAMPLES - first)))
            for first in range(0, RESAMPLES, batch)
        ]
        for name in _SHARES:
            drawn = np.concatenate([part[name] for part in parts])
            informative = int((self.by_task[_RATIOS[name][1] if name in _RATIOS else "labelled"] > 0).sum())
            if informative < MIN_TASKS or np.isnan(drawn).mean() > 0.01 or np.nanstd(drawn) < 1e-12:
                continue
            outside = norm.cdf(t.ppf(0.025, informative - 1) * math.sqrt(informative / (informative - 1)))
            low, high = np.nanquantile(drawn, [outside, 1 - outside])
            if name == "calibration_error":
                low, high = self._mirrored(low, high)
            ends.loc[name] = low, high
        return ends

    def _mirrored(self, low: float, high: float) -> tuple[float, float]:
        """Return the interval of the calibration error, given its percentiles; see
        `EvaluatorDiagnosis.intervals`.
        """
        import numpy as np  # noqa: PLC0415

        error = self.measures()["calibration_error"]
        flips = np.random.default_rng(SEED).choice([-1.0, 1.0], (RESAMPLES, len(self.gaps)))
        by_chance = abs(flips @ self.gaps).sum(axis=1) / self.by_task["labelled"].sum()
        clear = (by_chance >= error - 1e-9).mean() <= 0.025
        return max(2 * error - high, 0.0) if clear else 0.0, 2 * error - low

    def _found(self, weights: numpy.ndarray[Any, Any]) -> dict[str, numpy.ndarray[Any, Any]]:
        """Return each measure for each row of `weights`. A row says how often each task counts. NaN if
        undefined.
        """
        import numpy as np  # noqa: PLC0415

        drawn = dict(zip(self.by_task, (weights @ self.by_task.to_numpy()).T, strict=True))
        good, other = weights @ self.good, weights @ self.other
        ones, others, every = drawn["good"], drawn["labelled"] - drawn["good"], drawn["labelled"]
        at, middle = good + other, every / 2
        with np.errstate(divide="ignore", invalid="ignore"):
            found = {name: drawn[part] / drawn[whole] for name, (part, whole) in _RATIOS.items()}
            won = (good * (np.cumsum(other, axis=1) - other / 2)).sum(axis=1)
            found["auc"] = won / (ones * others)
            rank = np.cumsum(at, axis=1) - at / 2 - middle[:, None]  # rank of a score from the middle
            spread = (at * rank**2).sum(axis=1) * ones * others / every
            found["spearman"] = (good * rank).sum(axis=1) / np.sqrt(spread)
            found["calibration_error"] = abs(weights @ self.gaps).sum(axis=1) / every
        found["spearman"][~(spread > 1e-9)] = math.nan
        if not self.is_share:
            for name in ("brier", "calibration_error"):
                found[name][:] = math.nan
        return found


def _pairs(score: Any, good: Any) -> tuple[float, int]:
    """Return the number of pairs (solvable thought, other thought) in which the solvable one scores higher,
    with ties counted one half, and the number of all such pairs."""
    ones, others = score[good == 1].tolist(), score[good == 0].tolist()
    return wins(ones, others), len(ones) * len(others)


def bins_of(score: Any, bins: int) -> Any:
    """Return the bin of each score. A score on a boundary belongs to the upper bin, 1 to the last."""
    import numpy as np  # noqa: PLC0415

    return np.searchsorted(np.arange(1, bins) / bins, score, side="right")


def shown(value: float) -> str:
    """Return a measure as text."""
    return "unknown" if math.isnan(value) else f"{value:.2f}"


def with_interval(value: float, low: float, high: float) -> str:
    """Return a measure as text, with its interval if it has one."""
    return shown(value) if math.isnan(low) else f"{shown(value)} ({low:.2f} to {high:.2f})"


def _percent(value: float) -> str:
    return "unknown" if math.isnan(value) else f"{value:.0%}"


def _tally(counts: Mapping[str, int]) -> str:
    words = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    return f" ({words})" if words else ""
