"""The explorer in a notebook: one widget over a run, live or recorded.

The browser keeps its own copy of the record and Python only tells what it lacks. Lines go out in
numbered batches, at most `RATE` a second, since Jupyter drops what comes faster without a word; a page
that was reloaded, opened twice or missed a batch says how far it knows the run, and is told from there.
Until a page has said anything, each batch begins at the first line: a kernel that runs a cell cannot
hear.

Messages of the browser arrive in any thread (JupyterLab sends them over subshells, so that a widget
answers while a cell runs). So all that is sent of a run leaves from one thread at a time, what several
threads use is behind one lock, and the event loop is only ever reached by its thread-safe door.

A widget that no page shows any more is held weakly, so that running a cell again frees what it showed.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
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

from tot_lab.analysis.diagnosis import Diagnosis, diagnose, seen_at_once
from tot_lab.core.calls import Reply
from tot_lab.core.records import Ended, Line, Note, Position, Thought
from tot_lab.lab.lab import Lab, Stream
from tot_lab.record.marks import Mark, Verdict, watch
from tot_lab.record.run import Run, expect_run
from tot_lab.runtime.recorder import Recorder
from tot_lab.views.explorer.recording import Recording, about_of

if TYPE_CHECKING:
    import pandas


RATE = 30
"""Batches a second, at most."""

LINES = 100_000
"""Lines in a batch, at most."""

FIRST, LAST = 0.1, 5.0
"""Seconds until a page that says nothing is told all the same, and after how long no more."""

SPOKEN = 4_000
"""Characters of the text so far of an open call that are shown: its end."""

IDLE = 20
"""While nobody answers, the share of time spent on telling is one in so many."""

NAMES = ("", "b:")
"""What stands before the ids of the first run's thoughts, and of the second's."""


# A page never forgets a module, and anywidget makes one of each widget: so each is only this, and what
# draws is loaded once.
_LOADER = """
export default () => {
  let made;
  return {
    async initialize(given) {
      const source = given.model.get("_bundle");
      const known = (globalThis[Symbol.for("tot_lab.explorer")] ??= new Map());
      if (!known.has(source)) {
        const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
        known.set(source, import(url).finally(() => URL.revokeObjectURL(url)));
      }
      made = (await known.get(source)).default();
      return made.initialize(given);
    },
    render: (given) => made.render(given),
  };
};
"""


class Selection:
    """What is selected in an explorer. `ids`: of thoughts, in the order in which they were chosen."""

    def __init__(self, ids: list[str], runs: Sequence[Run]) -> None:
        self.ids = ids
        self._runs = runs

    @property
    def frame(self) -> pandas.DataFrame:
        """Their rows of `run.nodes_df()`; of two runs, the second's ids begin with `b:`."""
        import pandas  # noqa: PLC0415

        named = []
        for name, run in zip(NAMES, self._runs, strict=False):
            rows = run.nodes_df()
            rows["id"] = name + rows["id"]
            named.append(rows)
        rows = pandas.concat(named) if len(named) > 1 else named[0]
        return rows.set_index("id").loc[self.ids].reset_index()

    def __repr__(self) -> str:
        return f"<{len(self.ids)} selected: {', '.join(self.ids)}>"


class _Shown:
    """One of the runs that are shown, and how far its lines and texts were told."""

    def __init__(self, source: Run | Recorder) -> None:
        self._source = source.run if isinstance(source, Recorder) and source._ended else source
        self.spoken: dict[Position, tuple[str, str]] = {}
        """Of each open call that streams: its thought, and the text so far."""
        self.known = len(source.lines) if isinstance(source, Run) else source._written
        self.live = isinstance(self._source, Recorder)
        self.forget()

    def forget(self) -> None:
        """Let go of what was made of the lines."""
        self.recording = Recording()
        self.lines = self.texts = 0
        self._chunk: tuple[tuple[int, int], bytes] | None = None

    @property
    def id(self) -> str:
        """The run's id."""
        return self._source.header.id

    @property
    def run(self) -> Run:
        """The run so far."""
        source = self._source
        return (
            source if isinstance(source, Run) else Run(source.header, source.lines[: self.known], source.path)
        )

    def ended(self, run: Run) -> None:
        """It is this run, and will be no longer."""
        self._source, self.known, self.live = run, len(run.lines), False

    def read(self) -> Recording:
        """The lines so far, as the browser numbers them."""
        read = len(self.recording.lines)
        if read < self.known:
            self.recording.take(self._source.lines[read : self.known])
        return self.recording

    def news(self) -> Iterator[tuple[dict[str, Any], bytes]]:
        """The next batch of what was not told yet."""
        recording = self.read()
        if self.lines < self.known:
            until, chunk = self.chunk()
            yield {"kind": "lines", "count": self.known}, chunk
            self.lines = until
        elif self.texts < len(recording.nodes):
            texts = next(recording.texts(self.texts))
            yield {"kind": "texts"}, texts
            self.texts += texts_in(texts)

    def chunk(self) -> tuple[int, bytes]:
        """The next lines as they are told, and the line they go up to. What was made last is kept, for it
        may be asked for again."""
        part = (self.lines, min(self.lines + LINES, self.known))  # once: a run grows in another thread
        if self._chunk is None or self._chunk[0] != part:
            self._chunk = (part, self.read().chunk(*part))
        return part[1], self._chunk[1]

    @property
    def told(self) -> bool:
        """Whether nothing is left to tell."""
        return self.lines >= self.known and self.texts >= len(self.recording.nodes)


def texts_in(batch: bytes) -> int:
    """How many texts are in a batch of them."""
    return len(msgspec.json.decode(batch)["texts"])


class Explorer(anywidget.AnyWidget):
    """A run to look into: its tree, each thought's prompt, reply and cost, and its course in time.

    run: a run, or one that is to be watched while it happens: `lab.stream(strategy, task)`, which is
        started, or a `Recorder` of your own search.
    lab: what new branches are searched with; a stream has its own.

        explorer = tl.Explorer(lab.stream(tl.TreeOfThoughts(), task))
        explorer                            # shown while it grows
        run = await explorer.finished()
        explorer.selected.frame             # what was clicked
        explorer.selected = ["0.1.0"]       # moves the view
    """

    # The text, not the path: of a path anywidget watches the file, and keeps each widget for it.
    _esm = _LOADER
    _bundle = traitlets.Unicode((Path(__file__).parent / "static" / "explorer.js").read_text("utf-8")).tag(
        sync=True
    )

    ids = traitlets.List(traitlets.Unicode(), help="ids of the selected thoughts").tag(sync=True)
    step = traitlets.Int(
        None, allow_none=True, help="how many lines of the record are shown; None follows its end"
    ).tag(sync=True)

    def __init__(self, run: Run | Stream | Recorder, *, lab: Lab | None = None) -> None:
        self._lock = threading.RLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        with suppress(RuntimeError):
            self._loop = asyncio.get_running_loop()
        self._heard = threading.Event()
        self._context: contextvars.Context | None = None
        if not isinstance(lab, Lab | None):
            raise TypeError(f"lab must be a Lab, not {lab!r}")
        self._lab = lab
        self._task: asyncio.Task[Run] | None = None
        self._telling = self._news = False
        self._stale = self._unlooked = True  # what `_state` and `_facts` tell has changed
        self._failed = ""
        self._spoken_last: dict[str, str] = {}
        self.branches: list[Run] = []
        """The runs that were searched anew from a thought of this one."""
        self._shown: list[_Shown] = []
        self._show(run)
        super().__init__()
        watch(self._marked)
        self._tell()

    def _show(self, source: Run | Stream | Recorder) -> None:
        """Show one more run."""
        if isinstance(source, Stream):
            if self._loop is None:
                raise RuntimeError(
                    "a stream needs a running event loop, as a notebook has; or await lab.run(…)"
                )
            self._lab = self._lab or source.lab
            recorder, self._task = source.start()
        elif isinstance(source, Recorder):
            recorder = source
        elif isinstance(source, Run):
            self._shown.append(_Shown(source))
            return
        else:
            raise TypeError(
                f"an explorer shows a run, a stream or a recorder, not {source!r}; was `await` forgotten?"
            )
        shown = _Shown(recorder)
        self._shown.append(shown)
        here = weakref.ref(self)

        def told(batch: Sequence[Line]) -> None:
            if (explorer := here()) is None:
                recorder.watchers.remove(told)
                return
            end = isinstance(batch[-1].e, Ended)
            explorer._stale |= shown.known == 0 or end
            for line in batch:
                if isinstance(line.e, Reply):
                    shown.spoken.pop(line.p, None)
            shown.known += len(batch)
            if end and not isinstance(source, Stream):  # whose task has the run
                shown.ended(recorder.run)
            explorer._tell()

        def ended(task: asyncio.Task[Run]) -> None:
            failed = None if task.cancelled() else task.exception()  # looked at: `finished` raises it
            if (explorer := here()) is not None and isinstance(source, Stream) and source.run is not None:
                shown.ended(source.run)
                explorer._failed = f"{type(failed).__name__}: {failed}" if failed else ""
                explorer._stale = explorer._unlooked = True
                explorer._tell()

        def spoken(note: Note) -> None:
            if (explorer := here()) is None:
                recorder.text_watchers.remove(spoken)
                return
            shown.spoken[tuple(note.data["call"])] = note.at, note.data["text"]
            explorer._tell()

        if shown.live:
            recorder.watchers.append(told)
            recorder.text_watchers.append(spoken)
        if self._task is not None and isinstance(source, Stream):
            self._task.add_done_callback(ended)

    # What a person asks it.

    @property
    def run(self) -> Run:
        """The run, as far as it has come."""
        return self._shown[0].run

    async def finished(self) -> Run:
        """The run, once a live one has ended; of two, the live one. Raises what a bug in its strategy
        raised. Cancelling the wait cancels the search, as the stop button of a notebook does, so that
        nobody pays for a search that nobody waits for; `asyncio.shield(explorer.finished())` waits
        without that."""
        return self.run if self._task is None else await self._task

    def stop(self) -> None:
        """Cancel a live run; what there is stays."""
        if self._task is not None and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._task.cancel)

    @property
    def selected(self) -> Selection:
        """What is selected: `.ids`, and `.frame`, their rows of `run.nodes_df()`. Setting it, to ids or to
        a frame with them, moves the view."""
        with self._lock:
            known = self._known()
        return Selection([id for id in self.ids if id in known], [shown.run for shown in self._shown])

    @selected.setter
    def selected(self, chosen: Iterable[str] | pandas.DataFrame) -> None:
        chosen = getattr(chosen, "id", chosen)  # of a frame, or of a thought
        ids = [chosen] if isinstance(chosen, str) else list(chosen)
        with self._lock:
            known = self._known()
        if unknown := [str(id) for id in ids if id not in known]:
            raise ValueError(f"no thought {', '.join(map(repr, unknown))} in this run")
        self.ids = ids

    def _known(self) -> set[str]:
        """The ids that can be selected."""
        return {
            name + id for name, shown in zip(NAMES, self._shown, strict=False) for id in shown.read().nodes
        }

    @traitlets.observe("ids")
    def _ids_changed(self, change: Any) -> None:
        if any(shown.spoken for shown in self._shown):
            self._tell()

    @traitlets.validate("step")
    def _valid_step(self, proposal: Any) -> int | None:
        step: int | None = proposal["value"]
        known = max(shown.known for shown in self._shown)
        if step is not None and not 0 <= step <= known:
            raise ValueError(f"step is {step}; this run has the steps 0 to {known}, and None for its end")
        return step

    @property
    def findings(self) -> Diagnosis:
        """What `tl.diagnose` finds in the run."""
        return diagnose(self.run)

    @property
    def marks(self) -> dict[str, Mark]:
        """What people said of the run's thoughts, by id."""
        return self.run.marks

    def mark(self, id: str, verdict: Verdict | None, note: str = "") -> None:
        """Say that a thought is `right` or `wrong`, or a note: see `run.mark`. One of the second run has
        an id that begins with `b:`."""
        second = id.startswith(NAMES[1])
        if second and len(self._shown) == 1:
            raise ValueError(f"no thought {id!r}: there is no second run")
        shown = self._shown[second]
        if shown.live:
            raise ValueError("marks are kept beside a run: give them when it has ended")
        shown.run.mark(id.removeprefix(NAMES[1]), verdict, note)

    def _marked(self, run: str) -> None:
        if any(shown.id == run for shown in self._shown):
            self._unlooked = True
            self._tell()

    async def branch(self, node: str, **changed: Any) -> Run:
        """A new run that is this one up to the thought `node`, and searched anew from there (see
        `lab.branch`); it is shown beside this one and kept in `branches`."""
        if self._lab is None:
            raise ValueError("a branch is searched by a lab: tl.Explorer(run, lab=lab)")
        if any(shown.live for shown in self._shown):
            raise ValueError("a run that is shown is still under way: stop() it first, or wait for its end")
        run = await self._lab.branch(self.run, node, **changed)
        with self._lock:
            self.branches.append(run)
            self.ids = [id for id in self.ids if not id.startswith(NAMES[1])]
            self._shown[1:] = [_Shown(run)]
            self._stale = self._unlooked = True
        self._tell()
        return run

    def save_html(self, path: str | os.PathLike[str]) -> Path:
        """Write what it shows, one run or two, as one HTML file: see `run.save_html`."""
        from tot_lab.views.explorer.page import save_html  # noqa: PLC0415

        first, *others = [shown.run for shown in self._shown]
        return save_html(first, path, *others)

    def close(self) -> None:
        """Free what it holds, in the browser too, and stop a live run. Shown again, it opens anew."""
        if self.comm is not None:
            self.stop()
            super().close()
            self.layout.close()
            with self._lock:
                for shown in self._shown:
                    shown.forget()
            del self.__dict__["_repr_mimebundle_"]  # ipywidgets hides it: closed things are not shown again

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ending():  # else the registry of ipywidgets may be gone
            super().__del__()

    def __repr__(self) -> str:
        names = " and ".join(f"{shown.run.name} {shown.run.id}" for shown in self._shown)
        count = sum(isinstance(line.e, Thought) for line in self.run.lines)  # no tree is made for it
        return f"Explorer of {names}, {count:,} thoughts (it is drawn where a kernel runs)"

    # What is told to the browser.

    def _tell(self) -> None:
        """Tell what is new, soon."""
        with self._lock:
            self._news = True
            if self._telling or self.comm is None:
                return
            self._telling = True
        threading.Thread(target=self._telling_on, name="explorer", daemon=True).start()

    def _telling_on(self) -> None:
        """Tell batch after batch until there is nothing new, and for a while until somebody answers."""
        pause = FIRST
        with self._lock, suppress(KeyError, ValueError):  # what is wrong with a record is said below
            for shown in self._shown:
                shown.chunk()  # made while the page is
        while True:
            self._heard.wait(pause)  # a page that is just being made will ask by itself
            began = time.perf_counter()
            with self._lock:
                if self.comm is None or not (self._news or (not self._heard.is_set() and pause < LAST)):
                    self._telling = False
                    return
                pause = FIRST if self._news else 2 * pause
                self._news = False
                try:
                    messages = list(self._messages())
                except Exception as error:  # a record that is no tree: it is said, and the rest is not told
                    self._failed = f"{type(error).__name__}: {error}"
                    messages = [self._state()]
            for content, buffer in messages:
                self.send(content, [buffer])
            took = time.perf_counter() - began
            time.sleep(1 / RATE)
            self._heard.wait(IDLE * took)

    def _messages(self) -> Iterator[tuple[dict[str, Any], bytes]]:
        """The next of what is to be told, at most one batch of each run."""
        if self._stale or not self._heard.is_set():
            self._stale = False
            yield self._state()
        for which, shown in enumerate(self._shown):
            if not self._heard.is_set():
                shown.lines = shown.texts = 0
            for content, buffer in shown.news():
                yield {**content, "which": which, "run": shown.id}, buffer
            self._news |= self._heard.is_set() and not shown.told
        if (spoken := self._spoken()) != self._spoken_last:
            self._spoken_last = spoken
            yield {"kind": "spoken"}, json.dumps(spoken).encode()
        if (
            self._heard.is_set()
            and self._unlooked
            and not self._news
            and not any(shown.live for shown in self._shown)
        ):
            self._unlooked = False
            yield self._facts()

    def _spoken(self) -> dict[str, str]:
        """The text so far of the open calls of what is selected."""
        return {
            name + id: text[-SPOKEN:]
            for name, shown in zip(NAMES, self._shown, strict=False)
            for id, text in list(shown.spoken.values())
            if name + id in self.ids
        }

    def _state(self) -> tuple[dict[str, Any], bytes]:
        state = {
            "runs": [about_of(shown.run) for shown in self._shown],
            "counts": [shown.known for shown in self._shown],
            "live": [shown.live for shown in self._shown],
            "failed": self._failed,
            "can": {
                "branch": self._lab is not None and self._loop is not None,
                "mark": not any(shown.live for shown in self._shown),
                "stop": self._task is not None and not self._task.done(),
            },
        }
        return {"kind": "state"}, json.dumps(state).encode()

    def _facts(self) -> tuple[dict[str, Any], bytes]:
        facts = {
            "findings": [finding._asdict() for finding in seen_at_once(self.run)],
            "marks": [msgspec.to_builtins(shown.run.marks) for shown in self._shown],
        }
        return {"kind": "facts"}, json.dumps(facts).encode()

    # What the browser says.

    def _handle_custom_msg(self, content: dict[str, Any], buffers: Any) -> None:
        said = content["kind"]
        if said == "views":
            self._hold(strongly=content["count"] > 0)
        elif said == "have":
            with self._lock:
                self._stale = self._unlooked = True
                known = {run: (lines, texts) for run, lines, texts in content["runs"]}
                for shown in self._shown:
                    lines, texts = known.get(shown.id, (0, 0))
                    shown.lines, shown.texts = min(shown.lines, lines), min(shown.texts, texts)
            self._heard.set()
            self._tell()
        elif said == "stop":
            self.stop()
        else:
            self._answer(content)

    def _send(self, msg: Any, buffers: Any = None) -> None:
        """Send as an answer to what the browser said last: ipykernel takes the browser's next message to
        the thread that was answered, and one sent from a cell would make them wait for cells again."""
        if self._context is None:
            super()._send(msg, buffers)
        else:
            self._context.copy().run(super()._send, msg, buffers)

    def _answer(self, asked: dict[str, Any]) -> None:
        """Answer a question, with what went wrong if something does."""
        to = {"kind": "answer", "to": asked["to"]}

        def failed(error: BaseException) -> None:
            self.send({**to, "error": str(error.args[0] if error.args else error) or type(error).__name__})

        try:
            if asked["kind"] == "details":
                with self._lock:
                    told = self._shown[asked["which"]].read().details(asked["id"])
                self.send(to, [json.dumps(told).encode()])
            elif asked["kind"] == "html":
                from tot_lab.views.explorer.page import page  # noqa: PLC0415

                self.send(to, [page(*(shown.run for shown in self._shown))])
            elif asked["kind"] == "mark":
                self.mark(asked["id"], **asked["mark"])
                self.send(to)
            elif asked["kind"] == "branch":
                assert self._loop is not None
                changed = {name: asked[name] for name in ("content", "score") if asked.get(name) is not None}
                done = asyncio.run_coroutine_threadsafe(self.branch(asked["id"], **changed), self._loop)

                def answer(done: concurrent.futures.Future[Run]) -> None:
                    error = asyncio.CancelledError() if done.cancelled() else done.exception()
                    failed(error) if error else self.send(to)

                done.add_done_callback(answer)
        except Exception as error:
            failed(error)

    # Who holds it.

    @traitlets.observe("comm")
    def _comm_changed(self, change: Any) -> None:
        super()._comm_changed(change)
        if self.comm is not None:
            self._heard.clear()
            self._stale = True
            self.comm.on_msg(_weakly(self))

    def _hold(self, *, strongly: bool) -> None:
        """Let the registry of ipywidgets keep it alive, or not."""
        if self.comm is not None:
            _instances[self.model_id] = self if strongly else weakref.proxy(self)

    def _repr_mimebundle_(self, **options: Any) -> Any:
        if self.comm is None:  # it was closed: once more
            self.layout.open()
            self.open()
            self._tell()
        return super()._repr_mimebundle_(**options)


def _weakly(explorer: Explorer) -> Callable[[Any], None]:
    """Its handler of messages, which does not keep it alive."""
    here = weakref.ref(explorer)

    def handle(message: Any) -> None:
        if (explorer := here()) is not None:
            explorer._context = contextvars.copy_context()
            explorer._handle_msg(message)

    return handle


class CompareExplorer(Explorer):
    """Two runs side by side, aligned by path, their differences marked. Ids of the second begin with `b:`.

    a: a run. b: another, or a live one, as for `Explorer`."""

    def __init__(self, a: Run, b: Run | Stream | Recorder, *, lab: Lab | None = None) -> None:
        expect_run(a, "CompareExplorer")
        self._second = b
        super().__init__(a, lab=lab)

    def _show(self, source: Run | Stream | Recorder) -> None:
        super()._show(source)
        super()._show(self._second)

    @property
    def differences(self) -> pandas.DataFrame:
        """One row per thought that differs; for the columns see `tot_lab.views.explorer.comparing`."""
        from tot_lab.views.explorer.comparing import differences  # noqa: PLC0415

        return differences(*(shown.run for shown in self._shown))
