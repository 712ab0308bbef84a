"""The panel: choose a task and a strategy in a notebook, run them, and watch the run.

The panel always shows the code for the current settings, and running that code gives the same record.
Everything runs on the event loop of the kernel, because JupyterLab may deliver input in other threads.
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

from tot_lab.core.calls import Call, format_error, html_text
from tot_lab.core.protocol import Budget
from tot_lab.core.records import Thought
from tot_lab.core.strategy import Strategy
from tot_lab.core.task import Task
from tot_lab.domains.named import domain_names, examples_of, factory_of, problem_in
from tot_lab.lab.lab import Lab, expect_lab
from tot_lab.record.run import Run, Usage, money, usage_of
from tot_lab.strategies.search import TreeOfThoughts
from tot_lab.views.explorer.cell import cell
from tot_lab.views.explorer.forms import (
    BELOW,
    LABEL,
    WIDTH,
    Accepted,
    Choice,
    Form,
    Mistake,
    close_inside,
    red,
)
from tot_lab.views.explorer.saved import Saved
from tot_lab.views.explorer.widget import Explorer
from tot_lab.views.figures.theme import number, short, themed

EXAMPLES = 24
"""Maximum number of example tasks in the list of a domain."""

_ANOTHER, _TYPED = "another problem", -1  # the last option of the list, and its value, which is not an index
_INTERVAL = 0.25  # seconds between two updates of the progress

_COPY = """
const render = ({ model, el }) => {
  const area = document.createElement("textarea");
  area.readOnly = true;
  area.spellcheck = false;
  area.wrap = "off";
  area.setAttribute("aria-label", "Code for these settings");
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
_STYLE = themed("""
.tot-lab-code { display: flex; flex-direction: column; gap: var(--space-2); align-items: flex-start; }
.tot-lab-code textarea {
  box-sizing: border-box; width: 100%; resize: vertical; padding: var(--space-3) var(--space-4);
  font-family: var(--jp-code-font-family, monospace); font-size: var(--jp-code-font-size, var(--text-body));
  color: var(--jp-content-font-color1, var(--light-ink));
  background: var(--jp-cell-editor-background, var(--light-tile));
  border: 1px solid var(--jp-border-color2, var(--light-border));
}
""")


class Code(anywidget.AnyWidget):
    """Read-only code with a button that copies it."""

    _esm = _COPY
    _css = _STYLE
    code = traitlets.Unicode().tag(sync=True)


class Panel(Saved, ipywidgets.VBox):  # type: ignore[misc]  # ipywidgets has no types
    """The widget that `panel` returns: the controls, and below them the explorer of the current run."""

    run: Run | None = None
    """The last run that has ended. `None` before the first."""

    explorer: Explorer | None = None
    """The explorer of the current or last run."""

    _following: asyncio.Task[None] | None = None

    def __init__(self, lab: Lab, tasks: Sequence[Task] | None = None) -> None:
        expect_lab(lab)
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            raise RuntimeError("tl.panel needs a running event loop. Use it in a notebook.") from None
        self._thread = threading.get_ident()
        self._lab = lab
        self._tasks = _Tasks(lab, tasks, self._changed)
        self._strategy = Choice("strategy", Accepted(Strategy), "", TreeOfThoughts(), self._changed)
        self._budget = Form(Budget, self._changed, names=("calls", "seconds", "usd"))
        self._start = ipywidgets.Button(description="Run", button_style="primary")
        self._stop = ipywidgets.Button(description="Stop", disabled=True)
        self._start.on_click(lambda _: self._call_in_loop(self._begin))
        self._stop.on_click(lambda _: self._call_in_loop(self._end))
        self._bound = ipywidgets.HTML()
        self._bar = ipywidgets.IntProgress(tooltip="calls", layout={"width": "20em", "display": "none"})
        self._status = ipywidgets.HTML()
        self._code = Code()
        self._below = ipywidgets.VBox()
        self._hidden = ipywidgets.HTML(layout={"display": "none"})
        super().__init__(
            [
                _titled("Task", self._tasks.box),
                _titled("Strategy", self._strategy.cell, self._strategy.below),
                _titled("Budget of the run", self._budget.box),
                ipywidgets.HBox([self._start, self._stop, self._bar, self._bound]),
                self._status,
                _titled("Code for these settings", self._code),
                self._below,
                self._hidden,
            ]
        )
        self._refresh()

    @property
    def code(self) -> str:
        """The source of a cell that runs the current settings."""
        return self._code.code

    def _bring(self, style: str) -> None:
        self._hidden.value = f"<style>{style}</style>"

    def _saved_form(self) -> dict[str, str]:
        form = {"text/html": "", "text/plain": ""} if self.explorer is None else self.explorer._saved_form()
        head = "A panel, which needs a kernel. Its code:"
        return {
            "text/html": f"<p>{head}</p><pre>{html_text(self.code)}</pre>{form['text/html']}",
            "text/plain": f"{head}\n{self.code}\n{form['text/plain']}".rstrip(),
        }

    def close(self) -> None:
        """Stop the current run and release all widgets."""
        if self._following is not None:
            self._end()
        close_inside(self)
        super().close()

    def _call_in_loop(self, function: Callable[[], None]) -> None:
        """Call `function` in the thread of the kernel's loop: immediately if this is the thread."""
        if threading.get_ident() == self._thread:
            function()
        else:
            self._loop.call_soon_threadsafe(function)

    def _changed(self) -> None:
        self._call_in_loop(self._refresh)

    def _settings(self) -> tuple[Strategy, Task, Budget | None]:
        """Return the values of the controls, and show each error beside its control.

        Raises:
            Mistake: A value is invalid.
        """
        invalid: list[str] = []
        values: list[Any] = []
        for read in (self._strategy.value, self._tasks.value, self._budget.value):
            try:
                values.append(read())
            except Mistake as mistake:
                invalid += mistake.fields
        if invalid:
            raise Mistake(invalid)
        strategy, task, budget = values
        return strategy, task, None if budget == Budget() else budget

    def _refresh(self) -> None:
        """Update the controls, the bound on calls and the code after a change."""
        self._strategy.update()
        self._tasks.update()
        self._budget.update()
        try:
            strategy, task, budget = self._settings()
            max_calls = _max_calls(strategy, task, budget)
        except (Mistake, NotImplementedError) as error:  # NotImplementedError: the domain lacks a prompt
            self._bound.value = red(f"invalid: {error}")
            self._code.code = f"# Invalid settings: {error}"
            self._start.disabled = True
            return
        self._bound.value = (
            "calls are not bounded" if max_calls is None else f"at most {_large(max_calls)} calls"
        )
        self._code.code = cell(self._lab, strategy, task, budget, self._tasks.name)
        self._start.disabled = self._following is not None

    def _begin(self) -> None:
        if self._following is not None:
            self._status.value = "A run is in progress. Stop it first."
            return
        try:
            strategy, task, budget = self._settings()
        except Mistake:
            return  # the errors are shown beside the controls
        try:
            explorer = Explorer(self._lab.stream(strategy, task, budget=budget))
        except Exception as error:  # such as a cache or folder that cannot be opened
            self._status.value = red(_format_error(error))
            return
        if self.explorer is not None:
            self.explorer.close()
        self.explorer = explorer
        self._below.children = (explorer,)
        self._start.disabled, self._stop.disabled = True, False
        self._following = self._loop.create_task(self._follow(explorer, _max_calls(strategy, task, budget)))

    def _end(self) -> None:
        if self.explorer is not None:
            self._stop.disabled = True
            self.explorer.stop()

    async def _follow(self, explorer: Explorer, max_calls: int | None) -> None:
        """Show the progress of the run until it ends."""
        ended = asyncio.ensure_future(explorer.finished())
        progress = _Progress()
        error_text = ""
        try:
            while not ended.done():
                await asyncio.wait([ended], timeout=_INTERVAL)
                self._show(progress, explorer, max_calls)
            await ended
        except asyncio.CancelledError:
            if not ended.cancelled():
                raise  # this task was cancelled, not the run
        except Exception as error:
            error_text = _format_error(error)
        finally:
            self.run = explorer.run
            self._following = None
            self._stop.disabled = True
            self._refresh()
            self._save()
        self._show(progress, explorer, max_calls, error_text)

    def _show(
        self, progress: _Progress, explorer: Explorer, max_calls: int | None, error_text: str = ""
    ) -> None:
        run = explorer.run
        progress.update(run)
        self._bar.layout.display = None if max_calls is not None and max_calls < 2**31 else "none"
        if self._bar.layout.display is None:
            self._bar.max, self._bar.value = max(max_calls or 1, 1), progress.calls
        parts = [red(error_text)] if error_text else []
        if run.stop_reason is None and explorer.steer.paused:
            parts.append("<b>paused</b>")
        if run.stop_reason:
            parts.append(f"{escape(run.stop_reason)}: <b>{escape(short(run.answer, 200))}</b>")
        parts.append(progress.describe(max_calls))
        self._status.value = f'<span role="status">{" · ".join(parts)}</span>'


def panel(lab: Lab, tasks: Sequence[Task] | None = None) -> Panel:
    """Return controls that run a strategy on a task in `lab`. Needs a notebook.

    The panel shows the progress, the explorer of the run, and the code for the current settings. `panel.run`
    is the last run that has ended, and `panel.code` is the code.

    Args:
        lab: The lab that makes the runs.
        tasks: Tasks to choose from, in addition to those of the domains.

    Raises:
        RuntimeError: There is no running event loop.
    """
    return Panel(lab, tasks)


class _Progress:
    """Counts of calls, thoughts and usage in a live run. Each journal line is counted once."""

    def __init__(self) -> None:
        self.lines = self.calls = self.thoughts = 0
        self.usage = Usage(0, 0, 0, 0, 0.0, 0.0)
        self.seconds = 0.0

    def update(self, run: Run) -> None:
        """Count the new lines of the run."""
        lines = run.lines[self.lines :]
        self.lines += len(lines)
        self.calls += sum(isinstance(line.e, Call) for line in lines)
        self.thoughts += sum(isinstance(line.e, Thought) for line in lines)
        both = zip(self.usage, usage_of(lines), strict=True)
        total: Any = [None if a is None or b is None else a + b for a, b in both]
        self.usage = Usage(*total)
        self.seconds = run.seconds

    def describe(self, max_calls: int | None) -> str:
        """Return the counts as one line of text."""
        usage = self.usage
        of = "" if max_calls is None else f" of at most {_large(max_calls)}"
        parts = [
            f"{self.calls:,}{of} calls",
            f"{self.thoughts:,} thoughts",
            f"{number(usage.input_tokens)} tokens in, {number(usage.output_tokens)} out",
            f"cost {money(usage.cost)}, paid {money(usage.paid)}",
            f"{self.seconds:.1f} s",
        ]
        return " · ".join(parts)


class _Tasks:
    """The controls for the task: a task passed to the panel, an example of a domain, or a typed problem."""

    def __init__(self, lab: Lab, tasks: Sequence[Task] | None, changed: Callable[[], None]) -> None:
        self._own = list(tasks or ())
        for task in self._own:
            if not isinstance(task, Task):
                raise TypeError(f'tasks must contain tasks such as tl.general("…"): got {task!r}.')
        domains = domain_names()
        played = getattr(lab.model, "kind", "").removeprefix("sim/")
        first = "" if self._own else played if played in domains else domains[0]
        given = [("given task", "")] if self._own else []
        wide = {"style": LABEL, "layout": {"width": "40em", "max_width": "98%"}}
        self.kind = ipywidgets.Dropdown(
            options=[*given, *((name, name) for name in domains)],
            value=first,
            description="task",
            tooltip="A given task, or the domain of the task",
            style=LABEL,
            layout={"width": WIDTH},
        )
        self._shown: str | None = None  # the domain whose tasks are listed, "" for the given tasks
        self._listed: list[Task] = []
        self.listed = ipywidgets.Dropdown(description="problem", **wide)
        self.typed = ipywidgets.Textarea(rows=3, continuous_update=False, **wide)
        self.error = ipywidgets.HTML(layout={"margin": BELOW})
        fields = (self.kind, self.listed, self.typed)
        for field in fields:
            # A list has the value `None` while its options are replaced.
            field.observe(lambda change: None if change["new"] is None else changed(), "value")
        self.box = ipywidgets.VBox([*fields, self.error])

    @property
    def name(self) -> str:
        """The expression in the notebook for the selected one of the given tasks, such as `tasks[0]`."""
        return f"tasks[{self.listed.value}]"

    def update(self) -> None:
        """List the given tasks or the examples of the selected domain, and show the fields that apply."""
        if self._shown != self.kind.value:
            self._shown = self.kind.value
            self._list()
        self.listed.layout.display = None if self._listed else "none"
        self.typed.layout.display = None if self.listed.value == _TYPED else "none"

    def _list(self) -> None:
        domain = self.kind.value
        self._listed = self._own
        if domain:
            try:
                self._listed = examples_of(domain, EXAMPLES)
                self.typed.placeholder = _summary(factory_of(domain))
            except ValueError:  # `value` shows the error
                self._listed = []
        options = [(f"{k + 1}. {short(task.question, 70)}", k) for k, task in enumerate(self._listed)]
        self.listed.options = [*options, (_ANOTHER, _TYPED)] if domain else options
        self.listed.index = 0
        self.typed.description = _ANOTHER if options else "problem"

    def value(self) -> Task:
        """Return the task, and show the error if the input is invalid.

        Raises:
            Mistake: The input is invalid.
        """
        self.error.value = ""
        if self.listed.value != _TYPED:
            index: int = self.listed.value
            return self._listed[index]
        try:
            make = factory_of(self.kind.value)
            return make(problem_in(self.typed.value, make))
        except (ValueError, TypeError) as error:
            self.error.value = red(str(error))
            raise Mistake(["task"]) from None


def _summary(function: Callable[..., Any]) -> str:
    """Return the first paragraph of a docstring as one line."""
    return " ".join((function.__doc__ or "").partition("\n\n")[0].split())


def _titled(title: str, *parts: Any) -> Any:
    heading = ipywidgets.HTML(f"<b>{title}</b>")
    return ipywidgets.VBox([heading, *parts], layout={"margin": themed("0 0 var(--space-4) 0")})


def _format_error(error: Exception) -> str:
    return short(format_error(error), 500)


def _max_calls(strategy: Strategy, task: Task, budget: Budget | None) -> int | None:
    bounds = [strategy.max_calls(task), None if budget is None else budget.calls]
    return min((bound for bound in bounds if bound is not None), default=None)


def _large(count: int) -> str:
    return f"{count:,}" if count < 10**9 else f"10^{math.floor(math.log10(count))} or more"
