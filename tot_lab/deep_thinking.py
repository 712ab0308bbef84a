"""One question thought through: gather what can be known, then branch, develop and converge over it.

Rule: it is an ordinary run of a lab, made in one line: the model and the caps come from the session's
settings where none are given, and what is known beforehand stands in the task. Where there is no model to
ask, that is said at once, and nothing is begun.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tot_lab import presets
from tot_lab.context import SessionMemory, joined
from tot_lab.core.parts import known_names
from tot_lab.core.records import Line
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Task
from tot_lab.core.thinking import Budget
from tot_lab.domains import open_ended
from tot_lab.lab import Lab
from tot_lab.models.reachable import NoModel, why_not
from tot_lab.run import Run
from tot_lab.settings import ResearchSettings, Settings
from tot_lab.strategies import DeepThink, GatherThenThink, ResearchDelegate

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
    research: ResearchSettings | None = None,
    memory: SessionMemory | None = None,
    watch: Callable[[Sequence[Line]], None] | None = None,
) -> Run:
    """Think a question through: what can be known is gathered with the lab's tools, then `tl.DeepThink`
    thinks about it. 5 to 15 calls with its defaults, and those of the gathering.

    question: in words, or a task. lab: None = that of `tl.Settings.read()`, which also says the budget and
        the research.
    branches, iterations, beam: `num_branches`, `max_iterations` and `beam_width` of `tl.DeepThink`, on top of
        `preset`: quick, balanced (the default), thorough or maximum.
    context: what is known beforehand. gather: False = nothing is gathered.
    memory: earlier thoughts of the session, which are told, and to which this one is added.
    budget, watch: as for `lab.run`.

    Raises `tl.NoModel` at once where there is no model to ask, and the cache does not know all answers; a
    ValueError for bad settings; and what `lab.run` raises."""
    if lab is None:
        settings = Settings.read()
        lab, research = settings.lab(), research or settings.research
        budget = budget or settings.budget
    task = _task(question, joined("" if memory is None else memory.context(), context))
    thinking = _sized(preset, branches, iterations, beam)
    strategy = GatherThenThink(strategy=thinking, gather=gather, research=_delegate(research, lab))
    await _expect_model(lab, strategy, task)
    run = await lab.run(strategy, task, budget=budget, watch=watch)
    if memory is not None:
        memory.take_in(run)
    return run


def _delegate(research: ResearchSettings | None, lab: Lab) -> ResearchDelegate:
    """The research delegate, with the context window of the lab's model where that is known."""
    told = (research or ResearchSettings()).model_dump()
    window = getattr(lab.model, "context_window", None)
    return ResearchDelegate(**told if window is None else {**told, "context_window": window})


def _task(question: str | Task, context: str) -> Task:
    if isinstance(question, Task):
        return question.model_copy(update={"context": joined(context, question.context)})
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
