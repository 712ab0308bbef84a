"""`tl.think`: run Deep Think on one question, with defaults from the settings.

The result is an ordinary run of a lab, whose task contains the context. If the model is not reachable and the
cache lacks replies, `think` raises `NoModel` before a run begins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tot_lab.core.parts import known_names
from tot_lab.core.protocol import Budget
from tot_lab.core.records import Line
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Task
from tot_lab.domains import open_ended
from tot_lab.lab.context import SessionMemory, join_context
from tot_lab.lab.lab import Lab, expect_lab
from tot_lab.lab.settings import Settings
from tot_lab.models.stack import Endpoint
from tot_lab.record.run import Run
from tot_lab.runtime.blocking import blocking
from tot_lab.strategies import presets
from tot_lab.strategies.deep_think import DeepThink
from tot_lab.strategies.gather_then_think import GatherThenThink
from tot_lab.strategies.research import ResearchDelegate

PRESETS: dict[str, Callable[[], DeepThink]] = {
    "quick": presets.deep_think_quick,
    "balanced": presets.deep_think_balanced,
    "thorough": presets.deep_think_thorough,
    "maximum": presets.deep_think_maximum,
}
"""Maps the name of each preset to a function that returns its strategy, in ascending order of effort."""


class NoModel(RuntimeError):
    """Raised if the model cannot be called. The message says how to fix this."""


async def think(
    question: str | Task,
    lab: Lab | None = None,
    *,
    branches: int | None = None,
    iterations: int | None = None,
    beam: int | None = None,
    preset: str | None = None,
    budget: Budget | None = None,
    context: str = "",
    gather: bool = True,
    research: ResearchDelegate | Mapping[str, Any] | None = None,
    memory: SessionMemory | None = None,
    watch: Callable[[Sequence[Line]], None] | None = None,
) -> Run:
    """Gather facts with the lab's tools, then run `tl.DeepThink` on a question.

    With the default settings, Deep Think makes 5 to 15 calls, and one more if the server turns out not to
    support JSON schemas. Gathering makes additional calls.

    Args:
        question: The question as text, or a task.
        lab: The lab of the run. `None` uses the lab of `tl.Settings.read()`, and the budget and research
            settings of `tl.Settings.read()` unless they are given here.
        branches: Overrides `num_branches` of the preset.
        iterations: Overrides `max_iterations` of the preset.
        beam: Overrides `beam_width` of the preset.
        preset: quick, balanced (the default), thorough or maximum.
        budget: Limits of the run, as for `lab.run`.
        context: Text that the model receives with the question.
        gather: Whether to gather facts first.
        research: A `tl.records.ResearchDelegate`, or its settings as a dict (`{"enabled": False}`). The
            context window defaults to that of the lab's model.
        memory: Results of earlier runs of the session. The context includes them, and the result of this run
            is added to `memory`.
        watch: Called with new lines of the run, as for `lab.run`.

    Returns:
        The run. `tl.deep_thought(run)` summarises it.

    Raises:
        tl.errors.NoModel: No model is reachable, and the cache lacks some of the replies.
        tl.errors.SettingsError: tot_lab.toml is invalid.
        ValueError, TypeError: An argument is invalid. `lab.run` may raise further errors.
    """
    if memory is not None and not isinstance(memory, SessionMemory):
        raise TypeError(f"memory must be a tl.SessionMemory: got {memory!r}.")
    if lab is None:
        settings = Settings.read()
        lab = settings.lab()
        research = research or settings.research
        budget = budget or settings.budget
    expect_lab(lab)
    task = _task(question, join_context("" if memory is None else memory.context(), context))
    thinking = _deep_think(preset, branches, iterations, beam)
    strategy = GatherThenThink(strategy=thinking, gather=gather, research=_research_delegate(research))
    await _expect_model(lab, strategy, task)
    run = await lab.run(strategy, task, budget=budget, watch=watch)
    if memory is not None:
        memory.add(run)
    return run


think_sync = blocking(think)


def _research_delegate(research: ResearchDelegate | Mapping[str, Any] | None) -> ResearchDelegate:
    if isinstance(research, ResearchDelegate):
        return research
    if not isinstance(research, Mapping | None):
        raise TypeError(
            f"research must be a tl.records.ResearchDelegate or a dict of its settings: got {research!r}."
        )
    return ResearchDelegate(**(research or {}))


def _task(question: str | Task, context: str) -> Task:
    if isinstance(question, Task):
        return question.model_copy(update={"context": join_context(context, question.context)})
    if not isinstance(question, str):
        raise TypeError(f"question must be a string or a Task: got {question!r}.")
    if not question.strip():
        raise ValueError(f"question must not be empty: got {question!r}.")
    return open_ended(question.strip(), context=context)


def _deep_think(
    preset: str | None, branches: int | None, iterations: int | None, beam: int | None
) -> DeepThink:
    if preset is not None and preset not in PRESETS:
        raise ValueError(f"Unknown preset: got {preset!r}; {known_names(preset, PRESETS)}.")
    given: dict[str, Any] = {
        "num_branches": branches,
        "max_iterations": iterations,
        "beam_width": beam,
    }
    overrides = {name: value for name, value in given.items() if value is not None}
    return PRESETS[preset or "balanced"]().with_(overrides)


async def _expect_model(lab: Lab, strategy: Strategy, task: Task) -> None:
    """Raise `NoModel` if the model is not reachable and the cache lacks a reply that the run needs."""
    if lab.gateway.mode == "replay":
        return
    problem = await lab.model.problem() if isinstance(lab.model, Endpoint) else None
    if problem is not None and not (await lab.estimate(strategy, task)).whole:
        raise NoModel(f"{problem}. To use another model, name it in tot_lab.toml or in TOT_LAB_MODEL.")
