"""One question thought through: gather what can be known, then branch, develop and converge over it.

It is an ordinary run of a lab, made in one line: the model and the caps come from the session's
settings where none are given, and what is known beforehand stands in the task. Where there is no model to
ask, that is said at once, and nothing is begun.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tot_lab.core.parts import known_names
from tot_lab.core.records import Line
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Task
from tot_lab.core.thinking import Budget
from tot_lab.domains import open_ended
from tot_lab.lab.context import SessionMemory, join_context
from tot_lab.lab.lab import Lab, expect_lab
from tot_lab.lab.settings import Settings
from tot_lab.models.reachable import NoModel, why_not
from tot_lab.record.run import Run
from tot_lab.strategies import DeepThink, GatherThenThink, ResearchDelegate, presets

PRESETS: dict[str, Callable[[], DeepThink]] = {
    "quick": presets.deep_think_quick,
    "balanced": presets.deep_think_balanced,
    "thorough": presets.deep_think_thorough,
    "maximum": presets.deep_think_maximum,
}
"""How much is thought, by name."""


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
    """Think a question through: what can be known is gathered with the lab's tools, then `tl.DeepThink`
    thinks about it. 5 to 15 calls with its defaults, and those of the gathering.

    question: in words, or a task. lab: `None` means that of `tl.Settings.read()`, which also gives the
        budget and the research.
    branches, iterations, beam: `num_branches`, `max_iterations` and `beam_width` of `tl.DeepThink`, on top of
        `preset`: quick, balanced (the default), thorough or maximum.
    context: what is known beforehand. gather: False = nothing is gathered.
    research: a `tl.records.ResearchDelegate`, or its settings as a dict (`{"enabled": False}`); where they
        say no context window, it is that of the lab's model.
    memory: earlier thoughts of the session, which are told, and to which this one is added.
    budget, watch: as for `lab.run`.

    Gives the run; `tl.deep_thought(run)` tells what it came to. Raises `tl.errors.NoModel` at once where
    there is no model to ask, and the cache does not know all answers; `tl.errors.SettingsError` for what
    stands wrong in tot_lab.toml; a ValueError or TypeError for other bad input; and what `lab.run` raises."""
    if memory is not None and not isinstance(memory, SessionMemory):
        raise TypeError(f"memory must be a tl.SessionMemory(), not {memory!r}")
    if lab is None:
        settings = Settings.read()
        lab = settings.lab()
        research = research or settings.research
        budget = budget or settings.budget
    expect_lab(lab)
    task = _task(question, join_context("" if memory is None else memory.context(), context))
    thinking = _sized(preset, branches, iterations, beam)
    strategy = GatherThenThink(strategy=thinking, gather=gather, research=_delegate(research))
    await _expect_model(lab, strategy, task)
    run = await lab.run(strategy, task, budget=budget, watch=watch)
    if memory is not None:
        memory.add(run)
    return run


def _delegate(research: ResearchDelegate | Mapping[str, Any] | None) -> ResearchDelegate:
    if isinstance(research, ResearchDelegate):
        return research
    if not isinstance(research, Mapping | None):
        raise TypeError(
            f"research must be a tl.records.ResearchDelegate or a dict of its settings, not {research!r}"
        )
    return ResearchDelegate(**(research or {}))


def _task(question: str | Task, context: str) -> Task:
    if isinstance(question, Task):
        return question.model_copy(update={"context": join_context(context, question.context)})
    if not isinstance(question, str):
        raise TypeError(f"the question must be words or a Task, not {question!r}")
    if not question.strip():
        raise ValueError("there is no question to think about")
    return open_ended(question.strip(), context=context)


def _sized(preset: str | None, branches: int | None, iterations: int | None, beam: int | None) -> DeepThink:
    if preset is not None and preset not in PRESETS:
        raise ValueError(f"preset: there is no {preset!r}; {known_names(preset, PRESETS)}")
    given: dict[str, Any] = {
        "num_branches": branches,
        "max_iterations": iterations,
        "beam_width": beam,
    }
    told = {name: value for name, value in given.items() if value is not None}
    return DeepThink.model_validate({**dict(PRESETS[preset or "balanced"]()), **told})


async def _expect_model(lab: Lab, strategy: Strategy, task: Task) -> None:
    """`NoModel` unless there is a model to ask, or nothing to ask it."""
    if lab.gateway.mode == "replay":
        return
    problem = await why_not(lab.model)
    if problem is not None and not (await lab.estimate(strategy, task)).whole:
        raise NoModel(f"{problem}. Another model is named in tot_lab.toml, or by TOT_LAB_MODEL")
