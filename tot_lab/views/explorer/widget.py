"""The explorer in a notebook: a widget that shows one or two runs, live or recorded.

The browser has a copy of the record, and Python sends the lines that the copy lacks. Lines are sent in
numbered batches, at most `RATE` per second, because Jupyter silently drops faster messages. A page that was
reloaded, was opened twice or missed a batch reports the number of lines it has, and sending continues with
the next line. Before the first report, every batch starts at the first line, because a kernel cannot receive
messages while it runs a cell.

Messages from the browser can arrive in any thread, because JupyterLab sends them over subshells so that a
widget responds while a cell runs. Therefore only one thread at a time sends the data of the runs, a lock
guards shared state, and the event loop is only used through its thread-safe methods.

A widget that no page shows is only weakly referenced, so that running its cell again frees it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import inspect
import json
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anywidget
import msgspec
import traitlets
from ipywidgets.widgets.widget import _instances

from tot_lab.analysis.tables import is_sweep
from tot_lab.analysis.why import diagnose
from tot_lab.core.calls import Reply, format_error, html_text
from tot_lab.core.parameters import with_example
from tot_lab.core.records import Ended, Line, Note, Position, Thought
from tot_lab.record.marks import Mark, Verdict, watch
from tot_lab.record.run import Run, expect_run, no_run
from tot_lab.runtime.recorder import Recorder
from tot_lab.views.explorer.recording import GROWTH, PREFIXES, Recording, about_of
from tot_lab.views.explorer.saved import MOST_LINES, Saved, SavedPage, saved_html

if TYPE_CHECKING:
    import pandas

    from tot_lab.analysis.diagnosis import Diagnosis
    from tot_lab.lab.lab import Lab, Stream
    from tot_lab.runtime.steering import Steering


RATE = 30
"""Maximum number of batches per second."""

LINES = 100_000
"""Maximum number of lines in the first batch. Later ones are up to `GROWTH` times as large."""

FIRST, LAST = 0.1, 5.0
"""Initial and maximum number of seconds between attempts to reach a page that has not reported."""

PARTIAL = 4_000
"""Maximum number of characters shown of the partial text of a streaming call. The end is shown."""

STEERED = ("pause", "resume", "prune", "rescore", "graft", "raise_budget")
"""Methods of `Steering` that the page may call."""

IDLE = 20
"""Length of the pause after a batch while no page has reported, as a multiple of the duration of the
batch."""


# A page never unloads a module, and anywidget creates a module per widget. Therefore the module of a widget
# is only this loader, and the bundle is loaded once. Without a kernel, the loader shows the saved page.
_LOADER = """
export default () => {
  let made;
  return {
    async initialize(given) {
      if (given.model.get("_page")) return;
      const source = given.model.get("_bundle");
      const known = (globalThis[Symbol.for("tot_lab.explorer")] ??= new Map());
      if (!known.has(source)) {
        const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
        known.set(source, import(url).finally(() => URL.revokeObjectURL(url)));
      }
      made = (await known.get(source)).default();
      return made.initialize(given);
    },
    render(given) {
      const srcdoc = given.model.get("_page");
      if (!srcdoc) return made.render(given);
      const frame = Object.assign(document.createElement("iframe"), { srcdoc, title: "search" });
      frame.sandbox = "allow-scripts allow-downloads"; // an origin of its own: it cannot act in the page
      frame.style.cssText = "width: 100%; height: 640px; border: 0";
      given.el.append(frame);
    },
  };
};
"""


class Selection:
    """The thoughts selected in an explorer. `ids` are in the order of selection."""

    def __init__(self, ids: list[str], runs: Sequence[Run]) -> None:
        self.ids = ids
        self._runs = runs

    @property
    def frame(self) -> pandas.DataFrame:
        """The rows of `run.nodes_df()` for the selection. Ids of a second run begin with `b:`."""
        import pandas  # noqa: PLC0415

        named = []
        for name, run in zip(PREFIXES, self._runs, strict=False):
            rows = run.nodes_df()
            rows["id"] = name + rows["id"]
            named.append(rows)
        rows = pandas.concat(named) if len(named) > 1 else named[0]
        return rows.set_index("id").loc[self.ids].reset_index()

    def __repr__(self) -> str:
        return f"<{len(self.ids)} selected: {', '.join(self.ids)}>"


class _DisplayedRun:
    """A displayed run, and the number of its lines and texts that were sent."""

    def __init__(self, source: Run | Recorder) -> None:
        self._source = source.run if isinstance(source, Recorder) and source._ended else source
        self.partial: dict[Position, tuple[str, str]] = {}
        """The thought and the partial text of each streaming call."""
        self.known = len(source.lines) if isinstance(source, Run) else source._written
        """Number of recorded lines."""
        self.live = isinstance(self._source, Recorder)
        self.forget()

    def forget(self) -> None:
        """Free the serialised data."""
        self.recording = Recording()
        self.lines = self.texts = 0
        self._chunk: tuple[tuple[int, int], bytes] | None = None

    @property
    def id(self) -> str:
        """The id of the run."""
        return self._source.header.id

    @property
    def run(self) -> Run:
        """The run so far."""
        source = self._source
        return (
            source if isinstance(source, Run) else Run(source.header, source.lines[: self.known], source.path)
        )

    def ended(self, run: Run) -> None:
        """Replace the live source by the completed run."""
        self._source, self.known, self.live = run, len(run.lines), False

    def update(self, until: int | None = None) -> Recording:
        """Return the recording, extended to the line `until`, exclusive. `None` means all new lines."""
        read, until = len(self.recording.lines), self.known if until is None else until
        if read < until:
            self.recording.extend(self._source.lines[read:until])
        return self.recording

    def next_batch(self) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Yield the next unsent batch, if there is one."""
        if self.lines < self.known:
            until, chunk = self.chunk()
            yield {"kind": "lines", "count": self.known}, chunk
            self.lines = until
        elif self.texts < len(self.update().nodes):
            texts = next(self.recording.texts(self.texts))
            yield {"kind": "texts"}, texts
            self.texts += len(msgspec.json.decode(texts)["texts"])

    def chunk(self) -> tuple[int, bytes]:
        """Serialise the next lines. Returns the number of the line after them, and the data.

        The last result is cached.
        """
        size = max(LINES, min(self.lines, GROWTH * LINES))
        part = (self.lines, min(self.lines + size, self.known))  # read once: another thread may add lines
        if self._chunk is None or self._chunk[0] != part:
            self._chunk = (part, self.update(part[1]).chunk(*part))
        return part[1], self._chunk[1]

    @property
    def complete(self) -> bool:
        """Whether all lines and texts were sent."""
        return self.lines >= self.known and self.texts >= len(self.recording.nodes)


class Explorer(Saved, anywidget.AnyWidget):
    """An interactive view of a run: its tree, steps, timeline, prompts, replies and costs.

    A saved notebook keeps a card of the run with a picture of its tree. It also keeps the page of the run if
    the run has at most 5,000 journal lines and the cell then has at most 300 kB.

    Args:
        run: A run, a stream (`lab.stream(strategy, task)`), which the explorer starts, or the `Recorder` of a
            search that you run yourself. A sweep or a list of runs is shown as a `SweepExplorer`.
        lab: The lab that runs new branches. `None` uses the lab of a stream. Without a stream, no branch can
            be run then.

    Example:
        explorer = tl.Explorer(lab.stream(tl.TreeOfThoughts(), task))
        explorer                            # displays the growing tree
        run = await explorer.finished()
        explorer.selected.frame             # the selected thoughts
        explorer.selected = ["0.1.0"]       # moves the view
    """

    # The source instead of the path: anywidget watches the file of a path, which keeps each widget alive.
    _esm = _LOADER
    _bundle = traitlets.Unicode((Path(__file__).parent / "static" / "explorer.js").read_text("utf-8")).tag(
        sync=True
    )
    _page = traitlets.Unicode().tag(sync=True)
    _style = traitlets.Unicode().tag(sync=True)

    ids = traitlets.List(traitlets.Unicode(), help="ids of the selected thoughts").tag(sync=True)
    step = traitlets.Int(
        None, allow_none=True, help="number of lines of the record that are shown; None follows its end"
    ).tag(sync=True)

    def __new__(cls, run: Any = None, *args: Any, **settings: Any) -> Any:
        """Return a `SweepExplorer` for a sweep or a list of runs, else a new `Explorer`."""
        if isinstance(run, list | tuple) and not run:
            raise ValueError(f"run must contain at least one run: got {run!r}.")
        if is_sweep(run) or isinstance(run, list | tuple):
            from tot_lab.views.explorer.sweep_page import SweepExplorer  # noqa: PLC0415  it is seldom needed

            return SweepExplorer(run)
        return super().__new__(cls, *args, **settings)

    @with_example("tl.Explorer(run) or tl.Explorer(lab.stream(strategy, task))")
    def __init__(self, run: Run | Stream | Recorder, *, lab: Lab | None = None) -> None:
        self._lock = threading.RLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        with suppress(RuntimeError):
            self._loop = asyncio.get_running_loop()
        self._connected = threading.Event()
        self._context: contextvars.Context | None = None
        if lab is not None and not hasattr(lab, "stream"):  # no isinstance: `Lab` takes long to import
            raise TypeError(f"lab must be a Lab: got {lab!r}.")
        self._lab = lab
        self._task: asyncio.Task[Run] | None = None
        self._steer: Steering | None = None
        self._sending = self._pending = self._unsaved = False
        self._state_stale = self._facts_stale = True  # whether `_state` and `_facts` must be sent again
        self._error = ""
        self._last_partial: dict[str, str] = {}
        self.branches: list[Run] = []
        """The branches that were run from thoughts of this run."""
        self._displayed: list[_DisplayedRun] = []
        self._show(run)
        super().__init__()
        watch(self._marked)
        self._send_soon()

    def _show(self, source: Run | Stream | Recorder) -> None:
        """Add a run to the display."""
        if isinstance(source, Run):
            self._displayed.append(_DisplayedRun(source))
            return
        stream = None if isinstance(source, Recorder) else source
        recorder = source if isinstance(source, Recorder) else self._start(source)
        shown = _DisplayedRun(recorder)
        self._displayed.append(shown)
        here = weakref.ref(self)

        def on_lines(batch: Sequence[Line]) -> None:
            if (explorer := here()) is None:
                recorder.watchers.remove(on_lines)
                return
            end = isinstance(batch[-1].e, Ended)
            explorer._state_stale |= shown.known == 0 or end
            for line in batch:
                if isinstance(line.e, Reply):
                    shown.partial.pop(line.p, None)
            shown.known += len(batch)
            if end and stream is None:  # a stream's run is set when its task ends
                shown.ended(recorder.run)
                explorer._save()
            explorer._send_soon()

        def on_end(task: asyncio.Task[Run]) -> None:
            failed = (
                None if task.cancelled() else task.exception()
            )  # marks the exception as retrieved; `finished` raises it
            if (explorer := here()) is not None and stream is not None and stream.run is not None:
                shown.ended(stream.run)
                explorer._error = format_error(failed) if failed else ""
                explorer._state_stale = explorer._facts_stale = True
                explorer._save()
                explorer._send_soon()

        def on_text(note: Note) -> None:
            if (explorer := here()) is None:
                recorder.text_watchers.remove(on_text)
                return
            shown.partial[tuple(note.data["call"])] = note.at, note.data["text"]
            explorer._send_soon()

        if shown.live:
            recorder.watchers.append(on_lines)
            recorder.text_watchers.append(on_text)
        if self._task is not None and stream is not None:
            self._task.add_done_callback(on_end)

    def _start(self, stream: Stream) -> Recorder:
        """Start a stream, and return its recorder."""
        if not hasattr(stream, "steer"):  # no isinstance: `Stream` takes long to import
            is_near = isinstance(stream, str | os.PathLike) or inspect.isawaitable(stream)
            hint = no_run(stream, "tl.Explorer") if is_near else "A sweep is accepted too."
            kind = type(stream).__name__
            raise TypeError(f"run must be a run, a stream or a recorder: got {kind}. {hint}")
        if self._loop is None:
            raise RuntimeError("A stream needs a running event loop. Use a notebook, or await lab.run(…).")
        self._lab = self._lab or stream.lab
        self._steer = stream.steer
        stream.steer.watchers.append(_refresher(self))
        recorder, self._task = stream.start()
        return recorder

    @property
    def run(self) -> Run:
        """The run so far."""
        return self._displayed[0].run

    async def finished(self) -> Run:
        """Wait for the end of a live run, and return the run.

        If the strategy raised an exception, it is raised again. Cancelling the wait, for example with the
        stop button of a notebook, also cancels the search. `asyncio.shield(explorer.finished())` prevents
        this.
        """
        if self._task is None:
            return self.run
        try:
            return await self._task
        finally:
            # again, from the waiting cell: nbclient drops the messages of cells that have ended
            self._save_now()

    @property
    def steer(self) -> Steering:
        """The object that pauses a live run and changes its search (`stream.steer`).

        Raises:
            ValueError: If the explorer was not made from a stream.
        """
        if self._steer is None:
            raise ValueError("Only a stream can be steered. Use tl.Explorer(lab.stream(…)).")
        return self._steer

    def stop(self) -> None:
        """Cancel a live run. The lines recorded so far are kept."""
        if self._task is not None and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._task.cancel)

    @property
    def selected(self) -> Selection:
        """The selected thoughts: `ids`, and `frame` with the rows of these ids in `run.nodes_df()`.

        Assign ids, or a frame with a column `id`, to select thoughts and move the view.
        """
        with self._lock:
            known = self._known()
        return Selection([id for id in self.ids if id in known], self._runs)

    @selected.setter
    def selected(self, chosen: Iterable[str] | pandas.DataFrame) -> None:
        chosen = getattr(chosen, "id", chosen)  # the column of a frame, or the id of a thought
        ids = [chosen] if isinstance(chosen, str) else list(chosen)
        with self._lock:
            known = self._known()
        if unknown := [str(id) for id in ids if id not in known]:
            raise ValueError(f"no thought {', '.join(map(repr, unknown))} in this run")
        self.ids = ids

    def _known(self) -> set[str]:
        """Return the ids of all displayed thoughts. Those of a second run begin with `b:`."""
        return {
            name + id
            for name, shown in zip(PREFIXES, self._displayed, strict=False)
            for id in shown.update().nodes
        }

    @traitlets.observe("ids")
    def _ids_changed(self, change: Any) -> None:
        if any(shown.partial for shown in self._displayed):
            self._send_soon()

    @traitlets.validate("step")
    def _valid_step(self, proposal: Any) -> int | None:
        step: int | None = proposal["value"]
        known = max(shown.known for shown in self._displayed)
        if step is not None and not 0 <= step <= known:
            raise ValueError(f"step must be from 0 to {known}, or None for the end of the run: got {step}.")
        return step

    @property
    def findings(self) -> Diagnosis:
        """The findings of `tl.diagnose` for the run."""
        return diagnose(self.run)

    @property
    def marks(self) -> dict[str, Mark]:
        """The marks of the run's thoughts, by id."""
        return self.run.marks

    def mark(self, id: str, verdict: Verdict | None, note: str = "") -> None:
        """Mark a thought as `right` or `wrong`, or add a note. See `run.mark`.

        Ids of the second run begin with `b:`.

        Raises:
            ValueError: No thought has this id, or the run has not ended.
        """
        second = id.startswith(PREFIXES[1])
        if second and len(self._displayed) == 1:
            raise ValueError(f"No thought {id!r}: the explorer shows only one run.")
        shown = self._displayed[second]
        if shown.live:
            raise ValueError("A run in progress cannot be marked. Wait for its end.")
        shown.run.mark(id.removeprefix(PREFIXES[1]), verdict, note)

    def _marked(self, run: str) -> None:
        if any(shown.id == run for shown in self._displayed):
            self._facts_stale = True
            self._send_soon()

    async def branch(self, node: str, **changed: Any) -> Run:
        """Run a branch from the thought `node`, and show it beside this run.

        The branch is added to `branches`. See `lab.branch` for the arguments.

        Raises:
            ValueError: The explorer has no lab, or a displayed run has not ended.
        """
        if self._lab is None:
            raise ValueError("A branch needs a lab. Use tl.Explorer(run, lab=lab).")
        if any(shown.live for shown in self._displayed):
            raise ValueError("A displayed run has not ended. Wait for its end, or stop() it first.")
        run = await self._lab.branch(self.run, node, **changed)
        with self._lock:
            self.branches.append(run)
            self.ids = [id for id in self.ids if not id.startswith(PREFIXES[1])]
            self._displayed[1:] = [_DisplayedRun(run)]
            self._state_stale = self._facts_stale = True
        self._save()
        self._send_soon()
        return run

    def save_html(self, path: str | os.PathLike[str]) -> Path:
        """Write the displayed runs as one HTML file. See `run.save_html`."""
        from tot_lab.views.explorer.page import save_html  # noqa: PLC0415

        first, *others = self._runs
        return save_html(first, path, *others)

    def static(self) -> SavedPage:
        """Return the displayed runs as a page that needs no kernel, to be displayed in a notebook cell.

        A saved notebook keeps it, whatever its size.
        """
        return SavedPage(self._runs)

    def _bring(self, style: str) -> None:
        self._style = style

    def _save_later(self) -> bool:
        self._unsaved = sum(shown.known for shown in self._displayed) > MOST_LINES
        if self._unsaved:
            self._send_soon()
        return self._unsaved

    @property
    def _runs(self) -> list[Run]:
        return [shown.run for shown in self._displayed]

    def _saved_form(self) -> dict[str, str]:
        from tot_lab.views.report import run_text  # noqa: PLC0415

        try:
            runs = self._runs
            html, texts = saved_html(runs), [*map(run_text, runs)]
        except Exception as error:  # the record is not a tree
            html, texts = html_text(format_error(error)), [format_error(error)]
        return {"text/html": html, "text/plain": "\n".join([repr(self), *texts])}

    def _get_embed_state(self, drop_defaults: bool = False) -> Any:
        """Return the state for a page without a kernel, such as one of `ipywidgets.embed`: the page of the
        runs.
        """
        from tot_lab.views.explorer.page import page  # noqa: PLC0415

        embedded = super()._get_embed_state()  # with its defaults: the module of a widget is one of them
        shown = page(*self._runs).decode()
        embedded["state"] |= {"_page": shown, "_bundle": ""}
        return embedded

    def close(self) -> None:
        """Stop a live run, and free the memory of the widget in the kernel and the browser.

        Displaying the explorer again reopens it.
        """
        if self.comm is not None:
            self.stop()
            super().close()
            self.layout.close()
            with self._lock:
                for shown in self._displayed:
                    shown.forget()
            del self.__dict__["_repr_mimebundle_"]  # ipywidgets sets it to hide a closed widget

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ending():  # at exit, the registry of ipywidgets may no longer exist
            super().__del__()

    def __repr__(self) -> str:
        names = " and ".join(f"{shown.run.name} {shown.run.id}" for shown in self._displayed)
        count = sum(isinstance(line.e, Thought) for line in self.run.lines)  # avoids building the tree
        paused = self._steer is not None and self._steer.paused and self._displayed[0].live
        return f"Explorer of {names}, {count:,} thoughts{', paused' if paused else ''}"

    # Messages to the browser

    def _send_soon(self) -> None:
        """Start a thread that sends the new data, unless one is running."""
        with self._lock:
            self._pending = True
            if self._sending or self.comm is None:
                return
            self._sending = True
        threading.Thread(target=self._send_batches, name="explorer", daemon=True).start()

    def _send_batches(self) -> None:
        """Send batches until all data is sent. Repeat for a limited time until a page reports."""
        pause = FIRST
        with self._lock, suppress(KeyError, ValueError):  # the loop below reports errors of the record
            for shown in self._displayed:
                shown.chunk()  # serialise while the page is being built
        while True:
            self._connected.wait(pause)  # a new page may report meanwhile
            began = time.perf_counter()
            with self._lock:
                if self.comm is None or not (
                    self._pending or (not self._connected.is_set() and pause < LAST)
                ):
                    self._sending = False
                    return
                pause = FIRST if self._pending else 2 * pause
                self._pending = False
                try:
                    messages = list(self._messages())
                except Exception as error:  # the record is not a tree: send only the error
                    self._error = format_error(error)
                    messages = [self._state()]
            for content, buffer in messages:
                self.send(content, [buffer])
            took = time.perf_counter() - began
            time.sleep(1 / RATE)
            self._connected.wait(IDLE * took)
            if self._unsaved and not (self._pending and self._connected.is_set()):
                self._unsaved = False
                threading.Thread(target=self._save_now, name="explorer-saved", daemon=True).start()

    def _messages(self) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Yield the next messages, at most one batch per run."""
        if self._state_stale or not self._connected.is_set():
            self._state_stale = False
            yield self._state()
        for which, shown in enumerate(self._displayed):
            if not self._connected.is_set():
                shown.lines = shown.texts = 0
            for content, buffer in shown.next_batch():
                yield {**content, "which": which, "run": shown.id}, buffer
            self._pending |= self._connected.is_set() and not shown.complete
        if (partial := self._partial_texts()) != self._last_partial:
            self._last_partial = partial
            yield {"kind": "spoken"}, json.dumps(partial).encode()
        if (
            self._connected.is_set()
            and self._facts_stale
            and not self._pending
            and not any(shown.live for shown in self._displayed)
        ):
            self._facts_stale = False
            yield self._facts()

    def _partial_texts(self) -> dict[str, str]:
        """Return the partial texts of streaming calls, for selected thoughts."""
        return {
            name + id: text[-PARTIAL:]
            for name, shown in zip(PREFIXES, self._displayed, strict=False)
            for id, text in list(shown.partial.values())
            if name + id in self.ids
        }

    def _state(self) -> tuple[dict[str, Any], bytes]:
        state = {
            "runs": [about_of(shown.run) for shown in self._displayed],
            "counts": [shown.known for shown in self._displayed],
            "live": [shown.live for shown in self._displayed],
            "failed": self._error,
            "can": {
                "branch": self._lab is not None and self._loop is not None,
                "mark": not any(shown.live for shown in self._displayed),
                "stop": self._task is not None and not self._task.done(),
                "steer": self._steer is not None and self._task is not None and not self._task.done(),
            },
            "paused": self._steer is not None and self._steer.paused,
            "searches": self._steer is not None and self._steer.searches,
            "waiting": [] if self._steer is None else msgspec.to_builtins(self._steer.waiting),
        }
        return {"kind": "state"}, json.dumps(state).encode()

    def _facts(self) -> tuple[dict[str, Any], bytes]:
        from tot_lab.views.explorer.facts import facts_of  # noqa: PLC0415

        facts = [facts_of(run) for run in self._runs]
        return {"kind": "facts"}, json.dumps(facts).encode()

    # Messages from the browser

    def _handle_custom_msg(self, content: dict[str, Any], buffers: Any) -> None:
        kind = content["kind"]
        if kind == "views":
            self._set_strong_reference(strongly=content["count"] > 0)
        elif kind == "have":
            with self._lock:
                self._state_stale = self._facts_stale = True
                known = {run: (lines, texts) for run, lines, texts in content["runs"]}
                for shown in self._displayed:
                    lines, texts = known.get(shown.id, (0, 0))
                    shown.lines, shown.texts = min(shown.lines, lines), min(shown.texts, texts)
            self._connected.set()
            self._send_soon()
        elif kind == "stop":
            self.stop()
        else:
            self._reply(content)

    def _send(self, msg: Any, buffers: Any = None) -> None:
        """Send a message as a reply to the last message from the browser.

        ipykernel delivers the next message in the thread of the message that was replied to. If a message
        were sent as a reply to a cell, later messages from the browser would wait until running cells end.
        """
        if self._context is None:
            super()._send(msg, buffers)
        else:
            self._context.copy().run(super()._send, msg, buffers)

    def _reply(self, request: dict[str, Any]) -> None:
        """Reply to a request, with the error message if it fails."""
        to = {"kind": "answer", "to": request["to"]}

        def failed(error: BaseException) -> None:
            self.send({**to, "error": str(error.args[0] if error.args else error) or type(error).__name__})

        try:
            if request["kind"] == "details":
                with self._lock:
                    details = self._displayed[request["which"]].update().details(request["id"])
                self.send(to, [json.dumps(details).encode()])
            elif request["kind"] == "html":
                from tot_lab.views.explorer.page import page  # noqa: PLC0415

                self.send(to, [page(*self._runs)])
            elif request["kind"] == "mark":
                self.mark(request["id"], **request["mark"])
                self.send(to)
            elif request["kind"] == "steer" and request["act"] in STEERED:
                getattr(self.steer, request["act"])(**request["given"])
                self.send(to)
            elif request["kind"] == "branch":
                assert self._loop is not None
                changed = {
                    name: request[name] for name in ("content", "score") if request.get(name) is not None
                }
                done = asyncio.run_coroutine_threadsafe(self.branch(request["id"], **changed), self._loop)

                def answer(done: concurrent.futures.Future[Run]) -> None:
                    error = asyncio.CancelledError() if done.cancelled() else done.exception()
                    failed(error) if error else self.send(to)

                done.add_done_callback(answer)
        except Exception as error:
            failed(error)

    # Lifetime

    @traitlets.observe("comm")
    def _comm_changed(self, change: Any) -> None:
        super()._comm_changed(change)
        if self.comm is not None:
            self._connected.clear()
            self._state_stale = True
            self.comm.on_msg(_weak_handler(self))

    def _set_strong_reference(self, *, strongly: bool) -> None:
        """Set whether the registry of ipywidgets keeps the widget alive."""
        if self.comm is not None:
            _instances[self.model_id] = self if strongly else weakref.proxy(self)

    def _live_form(self) -> tuple[dict[str, Any], dict[str, Any]]:
        if self.comm is None:  # the explorer was closed: reopen it
            self.layout.open()
            self.open()
            self._send_soon()
        return super()._live_form()


def _refresher(explorer: Explorer) -> Callable[[], None]:
    """Return a function that sends the state again, with only a weak reference to `explorer`."""
    here = weakref.ref(explorer)

    def refresh() -> None:
        if (explorer := here()) is not None:
            explorer._state_stale = True
            explorer._send_soon()

    return refresh


def _weak_handler(explorer: Explorer) -> Callable[[Any], None]:
    """Return a message handler with only a weak reference to `explorer`."""
    here = weakref.ref(explorer)

    def handle(message: Any) -> None:
        if (explorer := here()) is not None:
            explorer._context = contextvars.copy_context()
            explorer._handle_msg(message)

    return handle


class CompareExplorer(Explorer):
    """An explorer of two runs side by side, with their differences marked.

    A thought is compared with the child of the corresponding parent that has the same text or, if none has,
    the same number (`tot_lab.views.explorer.comparing`). Ids of the second run begin with `b:`.

    Args:
        a: A run.
        b: A second run, or a stream or recorder as in `Explorer`.
        lab: The lab that runs new branches.
    """

    def __init__(self, a: Run, b: Run | Stream | Recorder, *, lab: Lab | None = None) -> None:
        expect_run(a, "CompareExplorer")
        self._second = b
        super().__init__(a, lab=lab)

    def _show(self, source: Run | Stream | Recorder) -> None:
        super()._show(source)
        super()._show(self._second)

    @property
    def differences(self) -> pandas.DataFrame:
        """One row per difference. `tot_lab.views.explorer.comparing.differences` describes the columns."""
        from tot_lab.views.explorer.comparing import differences  # noqa: PLC0415

        return differences(*self._runs)
