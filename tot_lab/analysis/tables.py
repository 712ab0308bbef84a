"""Tables with one row per run: of a sweep, of several runs, or a user's DataFrame.

Unknown values are NA, never False. Runs are labelled as in a sweep: by what differs in their strategies, and
by their questions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tot_lab.analysis.frames import each, typed_frame
from tot_lab.core.purposes import OTHER, ROLES
from tot_lab.core.strategy import Strategy
from tot_lab.lab.sweeps.axes import label_strategies
from tot_lab.record.compute import Compute
from tot_lab.record.losses import columns_of
from tot_lab.record.rows import Row, row_of
from tot_lab.record.run import Run, model_note
from tot_lab.record.waiting import with_progress

if TYPE_CHECKING:
    import pandas


class Placed(NamedTuple):
    """A run with its labels in a table. `run` is `None` if it could not start; `error` is the reason."""

    setting: str
    task: str
    repeat: int
    run_id: str
    run: Run | None
    error: str | None = None


def is_sweep(runs: Any) -> bool:
    """Return whether `runs` has a table and can return the runs of its rows."""
    return hasattr(runs, "df") and hasattr(runs, "run")


def placed(runs: Any, taker: str) -> Iterator[Placed]:
    """Yield the runs of a sweep (loaded one at a time), of an iterable, or the given run, with their labels.

    `taker` is the name of the calling function, for errors and for the progress bar shown after two seconds.

    Raises:
        TypeError: If `runs` is something else.
    """
    if is_sweep(runs):
        frame = table(runs, ["setting", "task", "repeat", "run_id", "stop_reason", "error"])
        columns = [frame[name] for name in ("setting", "task", "repeat", "run_id", "error")]
        rows = zip(*columns, frame["stop_reason"].notna(), strict=True)
        for setting, task, repeat, id, error, ran in with_progress(rows, taker, len(frame)):
            run = runs.run(id) if ran else None
            yield Placed(str(setting), str(task), int(repeat), id, run, None if ran else str(error))
        return
    listed = [runs] if isinstance(runs, Run) or not isinstance(runs, Iterable) else list(runs)
    for run in listed:
        if not isinstance(run, Run):
            given = runs if isinstance(runs, str) or hasattr(runs, "columns") else run
            raise TypeError(
                f"{taker} expects a sweep, a run or several runs: got {type(given).__name__}. Was `await` "
                f"forgotten?"
            )
    known = {repr(run.header.strategy): strategy_of(run) for run in listed}
    ours = {kind: strategy for kind, strategy in known.items() if strategy is not None}
    labels = dict(zip(ours, label_strategies(list(ours.values())), strict=True)) if ours else {}
    tasks: dict[str, dict[str, tuple[str, set[str]]]] = {}
    named: dict[tuple[str, str, str], str] = {}
    for run in with_progress(listed, taker, len(listed)):
        setting = labels.get(repr(run.header.strategy), run.name)
        identity, choices, origin = _identity(run)
        key = (run.question, identity, origin)
        if key not in named:
            named[key] = _label(run.question, choices, origin, tasks.setdefault(run.question, {}))
        yield Placed(setting, named[key], run.header.repeat, run.id, run)


def _label(question: str, choices: str, origin: str, alike: dict[str, tuple[str, set[str]]]) -> str:
    """Return the label of one more task with the text `question`, and add the task to `alike`.

    `alike` has, for each label of this question, the choices of its tasks and their origins. Different tasks
    of one origin never share a label. Among the labels that it may share, the task gets one with the same
    choices, or else the question without a number. Otherwise it gets the question with the next number.
    """
    free = {label: known for label, (known, origins) in alike.items() if origin not in origins}
    label = next((label for label, known in free.items() if known == choices), question)
    if alike and label not in free:
        label = f"{question} #{len(alike) + 1}"
    alike.setdefault(label, (choices, set()))[1].add(origin)
    return label


def _identity(run: Run) -> tuple[str, str, str]:
    """Return a key that distinguishes tasks with the same question, the choices of a multiple-choice task
    as text, and the origin of the task (`imported` or `here`).

    The task of an imported run also contains data of that run, such as the grade of its answer and the id of
    the trace, so only the choices are in its key.
    """
    task = run.header.task or {}
    choices = (task.get("data") or {}).get("choices")
    choices = repr(list(choices.values()) if isinstance(choices, dict) else choices)
    is_imported = str((task.get("domain") or {}).get("kind")).startswith("published/")
    return (choices, choices, "imported") if is_imported else (repr(task), choices, "here")


def runs_df(runs: Any, taker: str) -> pandas.DataFrame:
    """Return one row per run of an iterable, with the columns of `sweep.df()` about labels and results, but
    none for the settings of the strategies."""
    places = [(place, place.run) for place in placed(runs, taker) if place.run is not None]
    settings, tasks = [place.setting for place, _ in places], [place.task for place, _ in places]
    frame = typed_frame(
        {
            "setting": (tuple(dict.fromkeys(settings)), settings),
            "task": (tuple(dict.fromkeys(tasks)), tasks),
            "repeat": ("Int64", [place.repeat for place, _ in places]),
            **run_columns([row_of(run) for _, run in places]),
            "run_id": ("string", [run.id for _, run in places]),
        }
    )
    frame.attrs["model_note"] = model_note(run.model_note for _, run in places)
    frame.attrs["axes"] = []  # the settings are in the label alone
    return frame


def run_columns(rows: Sequence[Row]) -> dict[str, tuple[str, list[Any]]]:
    """Return the columns of `sweep.df()` about results. `any_of_kept`, `credit` and `answer_state` are left
    out if no run has a value.
    """

    def known(**dtypes: str) -> dict[str, tuple[str, list[Any]]]:
        return {name: column for name, column in each(rows, **dtypes).items() if {*column[1]} - {None, ""}}

    return {
        **each(rows, correct="boolean"),
        **known(any_of_kept="boolean"),
        **each(rows, score="Float64"),
        **known(credit="Float64", answer_state="string"),
        "answer": ("string", [row.answer or None for row in rows]),
        "stop_reason": ("string", [row.stop for row in rows]),
        **each(rows, error="string", calls="Int64", failed_calls="Int64"),
        **columns_of([row.losses for row in rows]),
        **each(rows, input_tokens="Int64", output_tokens="Int64"),
        **_tokens_by_role([row.tokens for row in rows]),
        **each(rows, cost="Float64", paid="Float64", seconds="Float64"),
        **each(rows, **dict.fromkeys(Compute._fields, "Float64")),
        **each(rows, selected_strategy="string", strategy_used="string", simulated="boolean"),
    }


def _tokens_by_role(
    tokens: Sequence[dict[str, tuple[int | None, int | None]] | None],
) -> dict[str, tuple[str, list[int | None]]]:
    """Return the token columns of each role for which any run made a call."""
    roles = [role for role in (*ROLES, OTHER) if any(role in known for known in tokens if known)]
    return {
        f"{role}_{name}": (
            "Int64",
            [None if known is None else known.get(role, (0, 0))[place] for known in tokens],
        )
        for role in roles
        for place, name in enumerate(("input_tokens", "output_tokens"))
    }


def strategy_of(run: Run) -> Strategy | None:
    """Return the strategy of a run, or `None` if it cannot be built from the record."""
    try:
        return run.strategy
    except ValueError:  # a class of the user whose module is not imported
        return None


def table(df: Any, needs: Sequence[str] = ()) -> pandas.DataFrame:
    """Return `df` itself, the result of its `.df()`, or a table with one row per run. Raises `ValueError` if
    the table is empty, lacks one of the columns `needs`, or has a row without a setting or task."""
    import pandas  # noqa: PLC0415

    if hasattr(df, "df"):
        df = df.df()
    elif isinstance(df, Iterable) and not isinstance(df, pandas.DataFrame | str):
        df = runs_df(df, "a table")
    if not isinstance(df, pandas.DataFrame):
        hint = "Pass [run] for one run." if isinstance(df, Run) else "Was `await` forgotten?"
        raise TypeError(f"Expected a sweep, a DataFrame or several runs: got {type(df).__name__}. {hint}")
    lacking = [name for name in dict.fromkeys(needs) if name not in df.columns]
    if lacking:
        raise ValueError(
            f"The table has no column {', '.join(map(repr, lacking))}. "
            f"It has {', '.join(map(str, df.columns))}."
        )
    if df.empty:
        raise ValueError("The table has no rows.")
    for name in {"setting", "task"} & set(df.columns):
        if (missing := df[name].isna()).any():
            raise ValueError(f"The column {name!r} is empty in {missing.sum():,} of {len(df):,} rows.")
    return df


def expect_runs_once(df: pandas.DataFrame, keys: Sequence[str]) -> None:
    """Raise `ValueError` if a group by `keys` has two rows of the same run, which would count as repeats."""
    if "run_id" in df:
        twice = df.duplicated([*dict.fromkeys([*keys, "run_id"])]) & df["run_id"].notna()
    elif "repeat" in df:
        twice = df.duplicated()
    else:
        return
    if twice.any():
        which = f"run {df.loc[twice, 'run_id'].iloc[0]!r}" if "run_id" in df else "one run"
        raise ValueError(
            f"The table has more than one row of {which}. Keep one row per run, or distinguish them: for "
            f"tl.stats.anytime_performance, use the rows of one amount, by=['setting', 'at'], or x='at' in "
            f"a figure."
        )


def failed(df: pandas.DataFrame) -> pandas.Series[bool]:
    """Return which runs ended with an error. An empty text means no error."""
    import pandas  # noqa: PLC0415

    if "error" not in df:
        return pandas.Series(False, df.index)
    return df["error"].notna() & (df["error"].astype("string").fillna("") != "")


def solved(df: pandas.DataFrame) -> pandas.Series[bool]:
    """Return which runs solved their task. NA without a grade, and for a run that ended with an error."""
    try:
        return df["correct"].astype("boolean").mask(failed(df))
    except (TypeError, ValueError) as error:
        raise ValueError(f"The column 'correct' must contain only True, False and NA: {error}.") from None
