"""Sends a sweep to an experiment tracker: a parent run for the sweep, and a child run for each of its runs.

The data come from the table `sweep.df()`. Columns that identify a run, and the settings of its strategy, are
parameters; numbers are metrics; other texts are tags (MLflow) or summary values (W&B). The parent run has the
success rate of each setting with its confidence interval. Journals, tables and HTML pages are artifacts.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tot_lab.analysis.statistics import success_rates
from tot_lab.core.extras import requires
from tot_lab.core.scrubbing import scrubbed
from tot_lab.lab.sweeps.sweep import Sweep

LONGEST = 500
"""Maximum characters of a parameter or text, since some servers accept no more."""


class _Tracked(NamedTuple):
    """The data of a tracker run. `texts` are results that are not numbers. `write` writes artifacts to a
    folder.
    """

    id: str
    name: str
    parameters: dict[str, str]
    metrics: dict[str, float]
    texts: dict[str, str]
    write: Callable[[Path], None]

    @property
    def digest(self) -> str:
        """A hash of the results, which shows whether the tracker already has them."""
        return _digest([self.metrics, self.texts])

    @property
    def failed(self) -> bool:
        """Whether an error ended the run."""
        return bool(self.texts.get("error"))


def mlflow(sweep: Sweep) -> str:
    """Send a sweep to MLflow: a parent run for the sweep, and a child run for each run of the sweep.

    The runs belong to MLflow's active experiment at its current tracking URI. Sending a sweep again adds only
    new runs and new results.

    Returns:
        The id of the parent run.

    Raises:
        ImportError: If MLflow is not installed.
    """
    tracked, children = _tracked(sweep, "mlflow")
    try:
        import mlflow as tracker  # noqa: PLC0415  an extra
    except ModuleNotFoundError:
        raise ImportError(f"{requires('track.mlflow', 'mlflow', 'mlflow')}.") from None
    mine = f"tags.`tot_lab.sweep` = '{tracked.id}'"
    known = {
        run.data.tags.get("tot_lab.id"): run
        for run in tracker.search_runs(filter_string=mine, output_format="list")
    }

    def is_known(one: _Tracked) -> bool:
        return one.id in known and known[one.id].data.tags.get("tot_lab.digest") == one.digest

    @contextmanager
    def opened(one: _Tracked) -> Iterator[str]:
        """Open an MLflow run, nested in the active one, and send the data that MLflow lacks."""
        made = known.get(one.id)
        run_id = None if made is None else made.info.run_id
        tags = {"tot_lab.sweep": tracked.id, "tot_lab.id": one.id, **one.texts}
        active = tracker.start_run(run_id, run_name=one.name, nested=True, tags=tags)
        status = "FAILED"
        try:
            if not is_known(one):
                names = [name for name in one.parameters if made is None or name not in made.data.params]
                for start in range(0, len(names), 100):  # MLflow's limit for one request
                    part = names[start : start + 100]
                    tracker.log_params({name: one.parameters[name] for name in part})
                tracker.log_metrics(one.metrics)
                with tempfile.TemporaryDirectory() as folder:
                    one.write(Path(folder))
                    tracker.log_artifacts(folder, "tot_lab")
                tracker.set_tag("tot_lab.digest", one.digest)  # last: an unfinished run is sent again
            yield active.info.run_id
            status = "FAILED" if one.failed else "FINISHED"
        finally:
            tracker.end_run(status)

    with opened(tracked) as parent:
        for child in children:
            if not is_known(child):
                with opened(child):
                    pass
    return parent


def wandb(sweep: Sweep) -> str:
    """Send a sweep to Weights & Biases: a group with a run for the sweep, and one for each run of the sweep.

    The environment variable `WANDB_PROJECT` names the project. The ids of the runs are derived from the
    sweep, so that sending it again updates the same runs on the server. Offline, each call writes new folders
    for the same ids.

    Returns:
        The id of the run for the sweep, which is also the name of the group.

    Raises:
        ImportError: If wandb is not installed.
    """
    tracked, children = _tracked(sweep, "wandb")
    try:
        import wandb as tracker  # noqa: PLC0415  an extra
    except ModuleNotFoundError:
        raise ImportError(f"{requires('track.wandb', 'wandb', 'wandb')}.") from None
    for one in (tracked, *children):
        is_parent = one.id == tracked.id
        run = tracker.init(
            id=one.id if is_parent else f"{tracked.id}-{one.id}",
            name=one.name,
            group=tracked.id,
            job_type="sweep" if is_parent else "run",
            config=one.parameters,
            resume="allow",
            reinit="create_new",  # does not end a run that the user has open
            settings=tracker.Settings(console="off", silent=not is_parent),
        )
        status = 1
        try:
            run.summary.update({**one.metrics, **one.texts})
            with tempfile.TemporaryDirectory() as folder:
                one.write(Path(folder))
                artifact = tracker.Artifact(f"tot_lab-{one.id}", "sweep" if is_parent else "run")
                artifact.add_dir(folder)
                run.log_artifact(artifact)
            status = int(one.failed)
        finally:
            run.finish(status)
    return tracked.id


# Parameters and metrics.


def _tracked(sweep: Sweep, name: str) -> tuple[_Tracked, Iterator[_Tracked]]:
    """Return the tracker run of the sweep, and an iterator over the tracker runs of its runs."""
    if not isinstance(sweep, Sweep):
        raise TypeError(f"track.{name} expects a Sweep: got {type(sweep).__name__}. Was `await` forgotten?")
    table = sweep.df()
    metrics: dict[str, float] = {"runs": float(len(table))}
    metrics |= {f"total/{name}": float(table[name].sum()) for name in ("calls", "failed_calls")}
    for name in ("input_tokens", "output_tokens", "cost", "paid"):
        if len(table) and not table[name].isna().any():
            metrics[f"total/{name}"] = float(table[name].sum())
    for number, row in enumerate(success_rates(table).to_dict("records") if len(table) else []):
        label = re.sub(r"[^\w\-. /:]", "_", str(row["setting"]))[:200]  # the characters that MLflow accepts
        label = f"{label} {number}" if f"runs/{label}" in metrics else label
        metrics |= {f"{name}/{label}": value for name, value in _numbers(row).items()}
    parameters = {
        "sweep": sweep.name,
        "settings": json.dumps(list(sweep.settings)),
        "tasks": json.dumps(list(sweep.tasks)),
        "runs": str(len(sweep.cells)),
        **_flat("budget", sweep.budget.model_dump(exclude_none=True) if sweep.budget else {}),
        **_flat("model", sweep.runner.gateway.settings),
    }
    id = _digest(sorted(sweep.by_id))
    parent = _Tracked(id, f"sweep {sweep.name}", _cut(parameters), metrics, {}, partial(_write_sweep, sweep))
    return parent, (_child(sweep, row) for row in table.to_dict("records"))


def _child(sweep: Sweep, row: Mapping[Any, Any]) -> _Tracked:
    run_id = row["run_id"]
    strategy, _ = sweep.part(sweep.by_id[run_id])
    identity = {name: str(row[name]) for name in _IDENTITY}
    texts = {name: row[name] or "" for name in _TEXTS}
    parameters = _cut({**identity, **_flat("strategy", strategy.settings())})
    name = f"{row['setting']} · {row['task']} · {row['repeat']}"
    write = partial(_write_run, sweep, run_id)
    return _Tracked(run_id, name[:LONGEST], parameters, _numbers(row), _cut(texts), write)


def _write_sweep(sweep: Sweep, folder: Path) -> None:
    sweep.save(folder / "sweep.csv")
    sweep.save_html(folder / "sweep.html")


def _write_run(sweep: Sweep, run_id: str, folder: Path) -> None:
    with suppress(LookupError):  # the run could not start; the row has the reason
        run = sweep.run(run_id)
        run.save(folder / "run.jsonl")
        run.save_html(folder / "run.html")


_IDENTITY = ("setting", "strategy", "domain", "task", "task_number", "repeat", "simulated")
"""Columns of `sweep.df()` that identify a run."""

_TEXTS = ("answer", "answer_state", "stop_reason", "error", "strategy_used", "run_id")
"""Other columns of `sweep.df()` with text."""


def _numbers(row: Mapping[Any, Any]) -> dict[str, float]:
    """Return the finite numbers of a row, apart from those that identify the run."""
    found = {name: float(value) for name, value in row.items() if isinstance(value, int | float)}
    return {name: number for name, number in found.items() if name not in _IDENTITY and math.isfinite(number)}


def _flat(name: str, value: Any) -> dict[str, str]:
    """Flatten settings: `{"search": {"width": 2}}` becomes the parameter `NAME.search.width`. `None` is left
    out.
    """
    if isinstance(value, dict):
        parts = [_flat(f"{name}.{part}", held) for part, held in value.items()]
        return {key: text for part in parts for key, text in part.items()}
    if value is None:
        return {}
    return {name: value if isinstance(value, str) else json.dumps(value, default=str)}


def _cut(texts: Mapping[str, str]) -> dict[str, str]:
    """Return texts without secrets, cut to `LONGEST` characters each."""
    shown = {name: scrubbed(text) for name, text in texts.items()}
    return {name: text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…" for name, text in shown.items()}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
