"""Estimates for k samples per task from N recorded samples: pass@k, majority@k, best of k. No model is
called.

A sample is one independent try at a task: an attempt of `SelfConsistency`, `BestOf` or `WeightedBestOf`, a
continuation of a tree search of depth 1 with `Continue`, a completion of an imported run whose thoughts are
all children of the question. For any other strategy a whole run is one sample, and repeats
are further samples. A table, as `samples` returns it, has one row per sample and the columns `setting`,
`task` and `correct`, for votes also `answer`, and for scores `score`.

Each estimate is the mean over all ways to draw k of a task's samples without replacement. Its interval
treats tasks as the unit of sampling, as in `tl.stats.success_rates`. Samples without a grade are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import combinations
from math import comb
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from warnings import warn

from tot_lab.analysis.frames import calls_of, rows_frame
from tot_lab.analysis.statistics import SEED, Numbers, check_share, wilson
from tot_lab.analysis.tables import failed, placed, solved, table
from tot_lab.core.purposes import role_of
from tot_lab.core.records import Decided, Scored
from tot_lab.core.task import Task
from tot_lab.record.losses import LARGE
from tot_lab.record.run import Run, model_note
from tot_lab.strategies.baselines import JudgedAttempts, SelfConsistency
from tot_lab.strategies.search import TreeOfThoughts
from tot_lab.strategies.search.continuation import Continue

if TYPE_CHECKING:
    import pandas
    from numpy.random import Generator

DRAWS = 1_000
"""Random draws per task if an exact value takes too long."""

ENUMERATED = 5_000
"""A weighted vote is exact if a task has at most this many subsets of k samples."""

EXACT = 1_000
"""A vote is exact if a task has at most this many samples. With more, numbers of subsets overflow a float."""


def samples(runs: Any) -> pandas.DataFrame:
    """Return the samples of a sweep, of several runs or of one run, one row each.

    Args:
        runs: A sweep, a run, or an iterable of runs.

    Returns:
        setting, task: category. run_id: string. sample: Int64, from 0 in each setting and task. answer:
        string, NA if the sample has none. same: Int64, equal for answers of the task that a vote counts as
        the same answer. correct: boolean, NA without a reference or a reply. score: Float64, 0 to 1, given by
        the judge or the reward model, NA if missing. output_tokens: Int64, tokens of the sample without
        those of its judge, NA if unknown. error: string, why the sample failed, NA if it did not. simulated:
        boolean.

    Raises:
        ValueError: If the module of a run's strategy class is not imported.
    """
    rows: list[tuple[Any, ...]] = []
    known_keys: dict[tuple[str, str], dict[Hashable, int]] = {}
    same: dict[tuple[tuple[str, str], str], int] = {}
    numbers: dict[tuple[str, str], int] = {}
    notes: set[str] = set()
    for place in placed(runs, "samples"):
        if (run := place.run) is None:
            continue
        group = place.setting, place.task
        keys = known_keys.setdefault((place.task, repr(run.header.task)), {})
        found = _attempts(run)
        answers = list(dict.fromkeys(one.answer for one in found if one.error is None))
        grades = dict(zip(answers, run.grades(answers), strict=True))
        for answer in filter(None, answers):
            key = answer if run.task is None else run.task.domain.same(run.task, answer)
            same[group, answer] = keys.setdefault(key, len(keys))
        for number, one in enumerate(found, numbers.get(group, 0)):
            grade = None if one.error is not None else grades[one.answer]
            correct = None if grade is None else grade == 1.0
            known = one.answer or None, same.get((group, one.answer)), correct, one.score, one.output_tokens
            rows.append((*group, run.id, number, *known, one.error, run.simulated))
        notes.add(run.model_note)
        numbers[group] = numbers.get(group, 0) + len(found)
    frame = rows_frame(
        rows,
        setting=tuple(dict.fromkeys(row[0] for row in rows)),
        task=tuple(dict.fromkeys(row[1] for row in rows)),
        run_id="string",
        sample="Int64",
        answer="string",
        same="Int64",
        correct="boolean",
        score="Float64",
        output_tokens="Int64",
        error="string",
        simulated="boolean",
    )
    frame.attrs["model_note"] = model_note(notes)
    return frame


class _Attempt(NamedTuple):
    answer: str
    score: float | None
    output_tokens: int | None
    error: str | None


def _attempts(run: Run) -> list[_Attempt]:
    """Return the samples of a run, without attempts that the end of the run cut off. If the whole run is one
    sample, the list is empty unless the run has ended and was not cancelled."""
    strategy, task = run.strategy, run.task  # `run.strategy` raises if its class is not imported
    propose = strategy.propose if isinstance(strategy, TreeOfThoughts) and strategy.stop.depth == 1 else None
    if task is not None and isinstance(propose, Continue):
        return _continuations(run, task, propose.count)
    if task is not None and strategy is None and _holds_completions(run):
        return _recorded(run, task)
    if task is None or not isinstance(strategy, SelfConsistency | JudgedAttempts):
        if run.stop_reason in (None, "cancelled"):
            return []
        return [_Attempt(run.answer, run.score, run.usage.output_tokens, run.failure)]
    answered = (event for event in run.events if isinstance(event, Decided) and event.what == "answer")
    ends = {_attempt(event.id): event.id for event in answered}
    scores = _first_scores(run) if isinstance(strategy, JudgedAttempts) else {}
    attempts = run.tree.root.children
    tokens: dict[str, int | None] = dict.fromkeys(attempts, 0)
    errors: dict[str, str] = {}
    for row in calls_of(run):
        attempt = _attempt(row.call.node)
        if row.reply is not None and row.reply.error is not None:
            errors[attempt] = row.reply.error
        elif row.reply is not None and attempt in tokens and role_of(row.call.purpose) != "evaluate":
            so_far, more = tokens[attempt], row.reply.output_tokens
            tokens[attempt] = None if so_far is None or more is None else so_far + more
    found = []
    for attempt in attempts:
        end = ends.get(attempt)
        if end is not None:
            answer = task.domain.answer(task, run.steps(end)) or ""
            found.append(_Attempt(answer, scores.get(end), tokens[attempt], None))
        elif attempt in errors or not run.interrupted:
            found.append(_Attempt("", None, tokens[attempt], errors.get(attempt)))
    return found


def _holds_completions(run: Run) -> bool:
    """Whether an imported run consists of several completions of the question, each from a separate call."""
    nodes, calls = run.tree.root.children, calls_of(run)
    is_flat = 1 < len(nodes) == len(run.tree) - 1 == len(calls)
    return is_flat and all(row.call.purpose == "sample" for row in calls)


def _recorded(run: Run, task: Task) -> list[_Attempt]:
    """Return the completions of an imported run."""
    found = []
    for id, row in zip(run.tree.root.children, calls_of(run), strict=True):
        answer = task.domain.answer(task, run.steps(id)) or ""
        tokens, error = (row.reply.output_tokens, row.reply.error) if row.reply else (None, None)
        found.append(_Attempt(answer, run.tree[id].score, tokens, error))
    return found


def _continuations(run: Run, task: Task, count: int) -> list[_Attempt]:
    """Return the samples of a tree of depth 1, at most `count`. The reply for sample k becomes thought k, if
    it is readable.
    """
    root, first = run.tree.root.id, _first_scores(run)
    calls = [row for row in calls_of(run) if row.call.node == root and row.reply is not None]
    calls = [row for row in calls if role_of(row.call.purpose) == "propose"]
    found = []
    for number in range(min(count, len(calls))):
        id = f"{root}.{number}"
        reply = calls[number].reply if len(calls) == count else None  # with retries, its call is unknown
        answer = task.domain.answer(task, run.steps(id)) or "" if id in run.tree else ""
        tokens, error = (None, None) if reply is None else (reply.output_tokens, reply.error)
        found.append(_Attempt(answer, first.get(id), tokens, error))
    return found


def _first_scores(run: Run) -> dict[str, float | None]:
    """Return the first score of each thought. Later scores come from votes, which score the winner again."""
    first: dict[str, float | None] = {}
    for event in run.events:
        if isinstance(event, Scored):
            first.setdefault(event.id, event.score)
    return first


def _attempt(id: str) -> str:
    """Return the id of the thought at which an attempt begins, from the id of any thought of the attempt."""
    return ".".join(id.split(".")[:2])


def pass_at_k(df: Any, k: int | Iterable[int] | None = None, *, confidence: float = 0.95) -> pandas.DataFrame:
    """Estimate the probability that at least one of k samples is correct.

    With n samples of a task, c of them correct, the estimate is 1 - C(n-c, k) / C(n, k), which is unbiased
    (Chen et al. 2021, Evaluating Large Language Models Trained on Code, arXiv:2107.03374, section 2.1).

    Args:
        df: A table of samples (see the module), a sweep, a run or several runs.
        k: The number of samples, or several numbers. `None` means 1, 2, 4, … up to the number of samples of
            the task that has the fewest.
        confidence: Confidence level of the interval, between 0 and 1.

    Returns:
        One row per setting and k. setting: category. estimate: string (`pass@k`). k; tasks; errors (failed
        samples of the setting, which are left out): Int64. rate (mean over the tasks), low and high (its
        interval), error (standard error of the random draws, 0 if `rate` is exact), output_tokens (mean
        tokens of k samples, NA if unknown): Float64. simulated: boolean. A task with fewer than k samples
        does not count for that k.

    Raises:
        ValueError: If no task of a setting has k samples.

    Warns:
        UserWarning: If some tasks have fewer than k samples, or more than 5 % of the samples failed.
    """
    return _estimated("pass@k", df, k, confidence, _any_correct)


def majority_at_k(
    df: Any, k: int | Iterable[int] | None = None, *, weighted: bool = False, confidence: float = 0.95
) -> pandas.DataFrame:
    """Estimate how often the most frequent answer of k samples is correct.

    This is the success rate of `SelfConsistency` with k attempts. With `weighted=True`, votes are weighted by
    the scores of the samples, and it is the success rate of `WeightedBestOf`. Of equally frequent answers,
    the answer drawn first wins. Samples without an answer have no vote.

    Without weights, the estimate is exact for tasks with at most 1,000 samples. With weights, it is exact for
    tasks with at most 5,000 subsets of k samples. Otherwise it is the mean over 1,000 random draws with a
    fixed seed.

    Args:
        df: As for `pass_at_k`, with the column `same` (equal for equal answers of a task) or `answer`.
        k: As for `pass_at_k`.
        weighted: Whether the votes of an answer are the sum of the column `score`. A missing score
            counts 0. If no sample has a score above 0, every sample has one vote.
        confidence: As for `pass_at_k`.

    Returns:
        As `pass_at_k`; estimate is `majority@k` or `weighted majority@k`.
    """
    if weighted:
        return _estimated("weighted majority@k", df, k, confidence, _weighted_vote, ["answer", "score"])
    return _estimated("majority@k", df, k, confidence, _vote, ["answer"])


def best_of_k(df: Any, k: int | Iterable[int] | None = None, *, confidence: float = 0.95) -> pandas.DataFrame:
    """Estimate how often the sample with the highest score of k samples is correct.

    This is the success rate of `BestOf` with k attempts. Of equal scores, the sample drawn first wins.
    Samples without a score rank below all scores, and samples without an answer last. The estimate is exact.

    Args:
        df: As for `pass_at_k`, with the columns `answer` and `score`.
        k: As for `pass_at_k`.
        confidence: As for `pass_at_k`.

    Returns:
        As `pass_at_k`; estimate is `best of k`.
    """
    return _estimated("best of k", df, k, confidence, _best, ["answer", "score"])


class _Task(NamedTuple):
    """The graded samples of a task, as arrays of equal length.

    Attributes:
        correct: 1 or 0.
        same: Equal numbers for equal answers, -1 without an answer.
        score: NaN without a score.
        output_tokens: Mean tokens of a sample, NaN if unknown.
    """

    correct: Numbers
    same: Numbers
    score: Numbers
    output_tokens: float


class _Setting(NamedTuple):
    """The graded samples of a setting by task, and the numbers of its failed samples and of all its
    samples.
    """

    tasks: list[_Task]
    errors: int
    samples: int
    simulated: bool


Estimates: TypeAlias = tuple[list[float], list[float]]
"""The estimate for each k, in ascending order, and the variance from random draws, 0 if it is exact."""


def _estimated(
    name: str,
    df: Any,
    k: int | Iterable[int] | None,
    confidence: float,
    estimate: Callable[[_Task, list[int], Generator], Estimates],
    needs: Sequence[str] = (),
) -> pandas.DataFrame:
    import numpy  # noqa: PLC0415
    import pandas  # noqa: PLC0415

    check_share(confidence, "confidence")
    rng = numpy.random.default_rng(SEED)
    rows: list[tuple[Any, ...]] = []
    drawn = df if isinstance(df, pandas.DataFrame) else samples(df)
    for setting, given in _settings(drawn, needs).items():
        if given.errors > LARGE * given.samples:
            _warn(f"{given.errors:,} of {given.samples:,} samples of {setting!r} failed and are left out")
        sizes = [len(task.correct) for task in given.tasks]
        numbers = _numbers(k, min(sizes))
        found = [estimate(task, [n for n in numbers if n <= len(task.correct)], rng) for task in given.tasks]
        for place, n in enumerate(numbers):
            has = [number for number, size in enumerate(sizes) if size >= n]
            if not has:
                raise ValueError(
                    f"k={n} is too large: no task of {setting!r} has more than {max(sizes):,} graded samples."
                )
            if few := len(sizes) - len(has):
                _warn(
                    f"{few:,} of {len(sizes):,} tasks of {setting!r} have fewer than {n:,} samples and do "
                    f"not count for k={n}"
                )
            shares = numpy.array([found[number][0][place] for number in has])
            independent = numpy.array([sizes[number] // n for number in has], float)
            low, high = wilson(shares, independent, numpy.full(len(has), 1 / len(has)), confidence)
            error = sum(found[number][1][place] for number in has) ** 0.5 / len(has)
            tokens = n * float(numpy.mean([given.tasks[number].output_tokens for number in has]))
            numbers_of = setting, name, n, len(has), given.errors
            rows.append((*numbers_of, float(shares.mean()), low, high, error, tokens, given.simulated))
    frame = rows_frame(
        rows,
        setting=tuple(dict.fromkeys(row[0] for row in rows)),
        estimate="string",
        **dict.fromkeys(("k", "tasks", "errors"), "Int64"),
        **dict.fromkeys(("rate", "low", "high", "error", "output_tokens"), "Float64"),
        simulated="boolean",
    )
    frame.attrs["model_note"] = drawn.attrs.get("model_note", "")
    return frame


def _warn(text: str) -> None:
    warn(text, UserWarning, stacklevel=4)


def _numbers(k: int | Iterable[int] | None, most: int) -> list[int]:
    """Return the values of k, ascending. `None` means the powers of 2 up to `most`."""
    if k is None:
        return [1 << power for power in range(most.bit_length())]
    try:
        numbers = sorted({index(n) for n in (k if isinstance(k, Iterable) else [k])})
    except TypeError:
        numbers = []
    if not numbers or numbers[0] < 1:
        raise ValueError(f"k must be a positive whole number, or several: got {k!r}.")
    return numbers


def _settings(frame: pandas.DataFrame, needs: Sequence[str]) -> dict[str, _Setting]:
    """Return the samples of each setting. Raises `ValueError` if a setting has no graded sample."""
    import numpy  # noqa: PLC0415
    import pandas  # noqa: PLC0415

    answers = "same" if "same" in frame else "answer"
    frame = table(frame, ["setting", "task", "correct", *(answers if n == "answer" else n for n in needs)])
    nothing = pandas.Series(numpy.nan, frame.index)
    graded, broken = solved(frame), failed(frame).to_numpy()
    correct = graded.astype("Float64").to_numpy(float, na_value=numpy.nan)
    same = pandas.factorize(frame.get(answers, nothing))[0]
    score, tokens = (
        frame.get(name, nothing).astype("Float64").to_numpy(float, na_value=numpy.nan)
        for name in ("score", "output_tokens")
    )
    simulated = frame.get("simulated", nothing).astype("boolean").fillna(False).to_numpy(bool)
    tasks: dict[str, list[_Task]] = {}
    groups: Any = frame.groupby(["setting", "task"], sort=False, observed=True)
    for (setting, _), places in groups.indices.items():
        rows = places[~numpy.isnan(correct[places])]
        if len(rows):
            known, place = numpy.unique(same[rows], return_inverse=True)
            mean = float(tokens[rows].mean())
            task = _Task(correct[rows], place - (known[0] < 0), score[rows], mean)
            tasks.setdefault(str(setting), []).append(task)
    found: dict[str, _Setting] = {}
    for setting, rows in frame.groupby("setting", sort=False, observed=True).indices.items():
        if str(setting) not in tasks:
            raise ValueError(f"No sample of the setting {str(setting)!r} has a grade.")
        errors, is_simulated = int(broken[rows].sum()), bool(simulated[rows].any())
        found[str(setting)] = _Setting(tasks[str(setting)], errors, len(rows), is_simulated)
    return found


def _any_correct(task: _Task, numbers: list[int], rng: Generator) -> Estimates:
    n, wrong = len(task.correct), int(len(task.correct) - task.correct.sum())
    return [1 - comb(wrong, k) / comb(n, k) for k in numbers], [0.0] * len(numbers)


def _best(task: _Task, numbers: list[int], rng: Generator) -> Estimates:
    """Return the exact probability that the best of k samples is correct. The samples are grouped by score.
    The best of k is in a group if none of the k has a higher score and not all of them have a lower one."""
    import numpy  # noqa: PLC0415

    worth = numpy.where(task.same < 0, -2.0, numpy.nan_to_num(task.score, nan=-1.0))
    levels = numpy.unique(worth)[::-1]
    sizes = [int((worth == level).sum()) for level in levels]
    right = [float(task.correct[worth == level].mean()) for level in levels]
    rates = []
    for k in numbers:
        left, rate = len(worth), 0.0
        for size, share in zip(sizes, right, strict=True):
            rate += share * ((comb(left, k) - comb(left - size, k)) / comb(len(worth), k))
            left -= size
        rates.append(rate)
    return rates, [0.0] * len(numbers)


def _vote(task: _Task, numbers: list[int], rng: Generator) -> Estimates:
    """Return the exact share of the subsets of k samples in which a correct answer has most votes.

    For each number of votes of a correct answer, the ways to draw the other samples are the coefficients of a
    polynomial, and the exponent is the number of other samples (`_below`). Row t of the coefficients has the
    ways in which t other answers have as many votes.
    """
    import numpy  # noqa: PLC0415

    n = len(task.correct)
    if n > EXACT:
        return _by_draws(task, numbers, numpy.ones(n), rng)
    counts, right = _counts(task)
    most = max(numbers, default=0)
    ways = numpy.zeros(most + 1)
    for count in numpy.unique(counts[right > 0]).tolist():
        alike = numpy.flatnonzero(counts == count)
        others = numpy.delete(counts, alike[0])
        for votes in range(1, min(count, most) + 1):
            drawn = comb(count, votes) * _below(others, n - int(counts.sum()), votes, most - votes)
            ways[votes:] += right[alike].sum() * drawn
    return [float(ways[k] / comb(n, k)) for k in numbers], [0.0] * len(numbers)


def _below(others: Numbers, without_answer: int, votes: int, most: int) -> Numbers:
    """Return the numbers of ways to draw 0 to `most` other samples such that no other answer has more than
    `votes` votes. A way in which t other answers have exactly `votes` counts as 1 / (1 + t). `others` is the
    number of samples of each other answer, `without_answer` the number of samples without one."""
    import numpy  # noqa: PLC0415

    rivals = [int(count) for count in others if count >= votes]
    free = without_answer + int(sum(count for count in others if count < votes))
    ways = numpy.array([[float(comb(free, drawn)) for drawn in range(min(free, most) + 1)]])
    for count in rivals:
        fewer = numpy.array([float(comb(count, drawn)) for drawn in range(votes)])
        rows, length = ways.shape
        longer = numpy.zeros((min(rows, most // votes) + 1, min(length + votes, most + 1)))
        if rows < votes:
            product = numpy.array([numpy.convolve(row, fewer)[: most + 1] for row in ways])
            longer[:rows, : product.shape[1]] = product
        else:
            for drawn, number in enumerate(fewer):
                part = longer[:rows, drawn : drawn + length]
                part += number * ways[:, : part.shape[1]]
        part = longer[1:, votes:]
        part += comb(count, votes) * ways[: part.shape[0], : part.shape[1]]
        ways = longer
    total = numpy.zeros(most + 1)
    total[: ways.shape[1]] = (ways / numpy.arange(1, len(ways) + 1)[:, None]).sum(axis=0)
    return total


def _weighted_vote(task: _Task, numbers: list[int], rng: Generator) -> Estimates:
    import numpy  # noqa: PLC0415

    return _by_draws(task, numbers, numpy.nan_to_num(task.score), rng)


def _by_draws(task: _Task, numbers: list[int], weights: Numbers, rng: Generator) -> Estimates:
    """Return the estimates of a vote with `weights`: means over all subsets of k samples, or over random
    subsets if there are too many. The random subsets for all k are prefixes of the same
    permutations, so that each sample is counted only once."""
    import numpy  # noqa: PLC0415

    n = len(weights)
    orders, counted, done = None, None, 0
    rates, variances = [], []
    for k in numbers:
        exact = comb(n, k) <= ENUMERATED
        if exact:
            won = _won(task, _tally(task, numpy.array(list(combinations(range(n), k))), weights))
        else:
            if orders is None:
                orders = rng.permuted(numpy.tile(numpy.arange(n), (DRAWS, 1)), axis=1)
            more = _tally(task, orders[:, done:k], weights)
            counted, done = more if counted is None else counted + more, k
            won = _won(task, counted)
        rates.append(float(won.mean()))
        variances.append(0.0 if exact else float(won.var(ddof=1)) / DRAWS)
    return rates, variances


def _tally(task: _Task, draws: Numbers, weights: Numbers) -> Numbers:
    """Return two tables with one row per row of `draws`, which holds indices of samples: the summed weight of
    each answer, and its number of samples.
    """
    import numpy  # noqa: PLC0415

    rows, columns = len(draws), len(_counts(task)[0]) + 1  # the last one is for samples without an answer
    place = (numpy.arange(rows)[:, None] * columns + (task.same % columns)[draws]).ravel()
    tables = [numpy.bincount(place, w, rows * columns) for w in (weights[draws].ravel(), None)]
    return numpy.stack([table.reshape(rows, columns)[:, :-1] for table in tables])


def _won(task: _Task, counted: Numbers) -> Numbers:
    """Return, for each row of a tally, the share of correct samples among the answers with most votes. If no
    answer has a weight above 0, each sample is one vote. 0 for a row without an answer."""
    import numpy  # noqa: PLC0415

    votes, drawn = counted
    votes = numpy.where(votes.max(axis=1, initial=0.0, keepdims=True) > 0, votes, drawn)
    tied = drawn * (votes >= votes.max(axis=1, initial=0.0, keepdims=True) * (1 - 1e-9))
    _, right = _counts(task)
    found: Numbers = (tied * right).sum(axis=1) / numpy.maximum(tied.sum(axis=1), 1)
    return found


def _counts(task: _Task) -> tuple[Numbers, Numbers]:
    """Return, for each answer, its number of samples, and the share of them that is correct: 0 or 1 unless
    equal answers have different grades."""
    import numpy  # noqa: PLC0415

    voting = task.same >= 0
    counts = numpy.bincount(task.same[voting])
    return counts, numpy.bincount(task.same[voting], task.correct[voting]) / counts
