"""The panel: choose a task and a strategy, run it, watch it; the cell for what was chosen beside it.

A click leads to a script. What the panel shows is what its code says, at any moment, and a run
started here has the record of the one that the code makes. Everything happens on the kernel's own
loop: JupyterLab may bring what a person did in another thread.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import anywidget
import ipywidgets
import traitlets

from tot_lab.core.calls import Call
from tot_lab.core.records import Thought
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Task
from tot_lab.core.thinking import Budget
from tot_lab.domains import game24, game24_tasks, general, hands, open_ended
from tot_lab.domains.general.player import SimGeneral
from tot_lab.lab.lab import Lab, expect_lab
from tot_lab.record.run import Run, Usage, money, usage_of
from tot_lab.strategies import TreeOfThoughts
from tot_lab.views.explorer.cell import cell
from tot_lab.views.explorer.forms import LABEL, WIDTH, Accepted, Choice, Form, Mistake, close_inside, red
from tot_lab.views.explorer.widget import Explorer
from tot_lab.views.figures.theme import number, short

HANDS = 24
"""Hands to choose from, from easy to hard."""

_FIRST_HAND = "4 5 6 10"
_EVERY = 0.25  # seconds between two looks at the progress

_COPY = """
const render = ({ model, el }) => {
  const area = document.createElement("textarea");
  area.readOnly = true;
  area.spellcheck = false;
  area.wrap = "off";
  area.setAttribute("aria-label", "The cell for what is chosen");
  const button = document.createElement("button");
  button.className = "jupyter-button";
  const show = () => {
    area.value = model.get("code");
    area.rows = area.value.split("\\n").length + 1;
    button.textContent = "Copy the code";
  };
  button.onclick = async () => {
    try {
      await navigator.clipboard.writeText(area.value);
    } catch {
      area.select();
      document.execCommand("copy");
    }
    button.textContent = "Copied";
  };
  model.on("change:code", show);
  show();
  el.classList.add("tot-lab-code");
  el.append(area, button);
  return () => model.off("change:code", show);
};
export default { render };
"""
_STYLE = """
.tot-lab-code { display: flex; flex-direction: column; gap: 4px; align-items: flex-start; }
.tot-lab-code textarea {
  box-sizing: border-box; width: 100%; resize: vertical; padding: 6px 8px;
  font-family: var(--jp-code-font-family, monospace); font-size: var(--jp-code-font-size, 13px);
  color: var(--jp-content-font-color1, #111); background: var(--jp-cell-editor-background, #f7f7f7);
  border: 1px solid var(--jp-border-color2, #ccc);
}
"""


class Code(anywidget.AnyWidget):
    """Code to read and to copy."""

    _esm = _COPY
    _css = _STYLE
    code = traitlets.Unicode().tag(sync=True)


class Panel(ipywidgets.VBox):  # type: ignore[misc]  # ipywidgets has no types
    """The controls, and below them the explorer of the run that they started."""

    run: Run | None = None
    """The last run, None before the first has ended."""
    explorer: Explorer | None = None
    """The explorer of the run that is under way, or of the last one."""
    _following: asyncio.Task[None] | None = None

    def __init__(self, lab: Lab, tasks: Sequence[Task] | None = None) -> None:
        expect_lab(lab)
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            raise RuntimeError("tl.panel needs a running event loop: use it in a notebook") from None
        self._thread = threading.get_ident()
        self._lab = lab
        self._tasks = _Tasks(lab, tasks, self._changed)
        self._strategy = Choice("strategy", Accepted(Strategy), "", TreeOfThoughts(), self._changed)
        self._budget = Form(Budget, self._changed, names=("calls", "seconds", "usd"))
        self._start = ipywidgets.Button(description="Run", button_style="primary")
        self._stop = ipywidgets.Button(description="Stop", disabled=True)
        self._start.on_click(lambda _: self._soon(self._begin))
        self._stop.on_click(lambda _: self._soon(self._end))
        self._most = ipywidgets.HTML()
        self._bar = ipywidgets.IntProgress(tooltip="calls asked", layout={"width": "20em", "display": "none"})
        self._said = ipywidgets.HTML()
        self._code = Code()
        self._below = ipywidgets.VBox()
        super().__init__(
            [
                _titled("Task", self._tasks.box),
                _titled("Strategy", self._strategy.cell, self._strategy.below),
                _titled("Budget of the run", self._budget.box),
                ipywidgets.HBox([self._start, self._stop, self._bar, self._most]),
                self._said,
                _titled("The same as code", self._code),
                self._below,
            ]
        )
        self._refresh()

    @property
    def code(self) -> str:
        """A whole cell that does what is chosen."""
        return self._code.code

    def close(self) -> None:
        """Stop what runs, and free everything in the browser and here."""
        if self._following is not None:
            self._end()
        close_inside(self)
        super().close()

    # What is chosen.

    def _soon(self, do: Callable[[], None]) -> None:
        """`do` on the kernel's loop: at once for one who is there."""
        if threading.get_ident() == self._thread:
            do()
        else:
            self._loop.call_soon_threadsafe(do)

    def _changed(self) -> None:
        self._soon(self._refresh)

    def _chosen(self) -> tuple[Strategy, Task, Budget | None]:
        """What the controls hold; `Mistake` when that cannot be run. Every mistake is shown."""
        wrong: list[str] = []
        made: list[Any] = []
        for read in (self._strategy.value, self._tasks.made, self._budget.made):
            try:
                made.append(read())
            except Mistake as mistake:
                wrong += mistake.fields
        if wrong:
            raise Mistake(wrong)
        strategy, task, budget = made
        return strategy, task, None if budget == Budget() else budget

    def _refresh(self) -> None:
        """Make everything fit what is chosen."""
        self._strategy.settle()
        self._tasks.settle()
        self._budget.settle()
        try:
            strategy, task, budget = self._chosen()
            most = _most_calls(strategy, task, budget)
        except (Mistake, NotImplementedError) as mistake:  # the latter of a domain that lacks a prompt
            self._most.value = red(f"to correct: {mistake}")
            self._code.code = f"# To correct first: {mistake}"
            self._start.disabled = True
            return
        self._most.value = "no bound on its calls" if most is None else f"at most {_large(most)} calls"
        self._code.code = cell(self._lab, strategy, task, budget, self._tasks.place)
        self._start.disabled = self._following is not None

    # The run.

    def _begin(self) -> None:
        if self._following is not None:
            self._said.value = "A run is under way: stop it first."
            return
        try:
            strategy, task, budget = self._chosen()
        except Mistake:
            return  # it is shown, beside its control
        try:
            explorer = Explorer(self._lab.stream(strategy, task, budget=budget))
        except Exception as error:  # a cache or a folder that cannot be used
            self._said.value = red(_trouble(error))
            return
        if self.explorer is not None:
            self.explorer.close()
        self.explorer = explorer
        self._below.children = (explorer,)
        self._start.disabled, self._stop.disabled = True, False
        self._following = self._loop.create_task(self._follow(explorer, _most_calls(strategy, task, budget)))

    def _end(self) -> None:
        if self.explorer is not None:
            self._stop.disabled = True
            self.explorer.stop()

    async def _follow(self, explorer: Explorer, most: int | None) -> None:
        """Show how far the run is until it has ended."""
        ended = asyncio.ensure_future(explorer.finished())
        progress = _Progress()
        trouble = ""
        try:
            while not ended.done():
                await asyncio.wait([ended], timeout=_EVERY)
                self._show(progress, explorer, most)
            await ended
        except asyncio.CancelledError:
            if not ended.cancelled():
                raise  # of this one, not of the run
        except Exception as error:
            trouble = _trouble(error)
        finally:
            self.run = explorer.run
            self._following = None
            self._stop.disabled = True
            self._refresh()
        self._show(progress, explorer, most, trouble)

    def _show(self, progress: _Progress, explorer: Explorer, most: int | None, trouble: str = "") -> None:
        run = explorer.run
        if run is None:
            return
        progress.take(run)
        self._bar.layout.display = None if most is not None and most < 2**31 else "none"
        if self._bar.layout.display is None:
            self._bar.max, self._bar.value = max(most or 1, 1), progress.asked
        said = (
            [f"{escape(run.stop_reason)}: <b>{escape(short(run.answer, 200))}</b>"] if run.stop_reason else []
        )
        said.append(progress.text(most))
        if trouble:
            said.insert(0, red(trouble))
        self._said.value = f'<span role="status">{" · ".join(said)}</span>'


def panel(lab: Lab, tasks: Sequence[Task] | None = None) -> Panel:
    """Controls for what `lab` can run: a task, a strategy and its settings, a budget; run and stop, how
    far it is, the explorer of the run, and the code for what is chosen. Needs a notebook.

    tasks: tasks of your own to choose from, besides a hand of the Game of 24 and a question in words.

    The last run is at its `run` (and at `lab.last`), the code at `code`."""
    return Panel(lab, tasks)


class _Progress:
    """What a run has done so far, each line looked at once."""

    def __init__(self) -> None:
        self.seen = self.asked = self.thoughts = 0
        self.usage = Usage(0, 0, 0, 0, 0.0, 0.0)
        self.seconds = 0.0

    def take(self, run: Run) -> None:
        """Look at what is new."""
        lines = run.lines[self.seen :]
        self.seen += len(lines)
        self.asked += sum(isinstance(line.e, Call) for line in lines)
        self.thoughts += sum(isinstance(line.e, Thought) for line in lines)
        both = zip(self.usage, usage_of(lines), strict=True)
        total: Any = [None if a is None or b is None else a + b for a, b in both]
        self.usage = Usage(*total)
        self.seconds = run.seconds

    def text(self, most: int | None) -> str:
        """In words."""
        usage = self.usage
        of = "" if most is None else f" of at most {_large(most)}"
        parts = [
            f"{self.asked:,}{of} calls",
            f"{self.thoughts:,} thoughts",
            f"{number(usage.input_tokens)} tokens in, {number(usage.output_tokens)} out",
            f"cost {money(usage.cost)}, paid {money(usage.paid)}",
            f"{self.seconds:.1f} s",
        ]
        return " · ".join(parts)


class _Tasks:
    """Which task: one of the person's own, a hand of the Game of 24, or a question in words, with a short
    answer or a text for its answer."""

    def __init__(self, lab: Lab, tasks: Sequence[Task] | None, changed: Callable[[], None]) -> None:
        self._own = list(tasks or ())
        for task in self._own:
            if not isinstance(task, Task):
                raise TypeError(f'tasks must be Tasks such as tl.general("…"), not {task!r}')
        kinds = [("one of yours", "own")] if self._own else []
        kinds += [("Game of 24", "hand"), ("a question", "question"), ("a text to write", "text")]
        first = "own" if self._own else "question" if isinstance(lab.model, SimGeneral) else "hand"
        wide = {"style": LABEL, "layout": {"width": "40em", "max_width": "98%"}}
        self.kind = ipywidgets.Dropdown(
            options=kinds, value=first, description="task", style=LABEL, layout={"width": WIDTH}
        )
        shown = [(f"{k + 1}. {short(task.question, 70)}", k) for k, task in enumerate(self._own)]
        self.own = ipywidgets.Dropdown(options=shown, description="which", **wide)
        known = {" ".join(map(str, hand.numbers)): hand.difficulty for hand in hands()}
        spread = {_FIRST_HAND, *(task.question for task in game24_tasks(HANDS))}
        options = [
            (f"{hand}  (difficulty {known[hand]:.1f})", hand)
            for hand in sorted(spread, key=known.__getitem__)
        ]
        self.hand = ipywidgets.Dropdown(
            options=[*options, ("another hand", "")],
            value=_FIRST_HAND,
            description="hand",
            tooltip="Difficulty: one more means half the luck. All of these can make 24.",
            style=LABEL,
            layout={"width": "28em"},
        )
        self.typed = ipywidgets.Text(
            description="its numbers",
            placeholder="four integers from 1 to 13",
            continuous_update=False,
            style=LABEL,
            layout={"width": "28em"},
        )
        self.question = ipywidgets.Textarea(
            description="question",
            rows=3,
            continuous_update=False,
            placeholder="Any problem in words",
            **wide,
        )
        self.wrong = ipywidgets.HTML(layout={"margin": "0 0 4px 13em"})
        fields = (self.kind, self.own, self.hand, self.typed, self.question)
        for field in fields:
            field.observe(lambda _: changed(), "value")
        self.box = ipywidgets.VBox([*fields, self.wrong])

    @property
    def place(self) -> str:
        """Where the person's notebook has the task."""
        return f"tasks[{self.own.value}]"

    def settle(self) -> None:
        """Show the fields that belong to the kind of task."""
        kind = self.kind.value
        for field, seen in (
            (self.own, kind == "own"),
            (self.hand, kind == "hand"),
            (self.typed, kind == "hand" and not self.hand.value),
            (self.question, kind in ("question", "text")),
        ):
            field.layout.display = None if seen else "none"

    def made(self) -> Task:
        """The task; a `Mistake`, which is shown, when there is none."""
        self.wrong.value = ""
        try:
            if self.kind.value == "own":
                own: int = self.own.value
                return self._own[own]
            if self.kind.value == "question":
                return general(self.question.value)
            if self.kind.value == "text":
                return open_ended(self.question.value)
            return game24(self.hand.value or self.typed.value)
        except ValueError as error:
            self.wrong.value = red(str(error))
            raise Mistake(["task"]) from None


def _titled(title: str, *parts: Any) -> Any:
    heading = ipywidgets.HTML(f"<b>{title}</b>")
    return ipywidgets.VBox([heading, *parts], layout={"margin": "0 0 8px 0"})


def _trouble(error: Exception) -> str:
    return f"{type(error).__name__}: {short(str(error), 500)}"


def _most_calls(strategy: Strategy, task: Task, budget: Budget | None) -> int | None:
    bounds = [strategy.max_calls(task), None if budget is None else budget.calls]
    return min((bound for bound in bounds if bound is not None), default=None)


def _large(count: int) -> str:
    return f"{count:,}" if count < 10**9 else f"10^{math.floor(math.log10(count))} or more"
