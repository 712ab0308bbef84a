"""Traces of runs for receivers of OpenTelemetry: Phoenix, Langfuse, Jaeger, a collector.

    records → `RunSpans` (`spans.py`) → `Receiver` (`otlp.py`)

A live run only puts its records into a queue, and a thread does the rest. A receiver that fails or is too
slow costs the run its trace, with one warning, and nothing else: `send` sends the whole run from its journal.
"""

from __future__ import annotations

import atexit
import queue
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tot_lab.core.calls import format_error
from tot_lab.core.records import Line
from tot_lab.interop.otlp import SPANS, Receiver
from tot_lab.interop.spans import RunSpans, Span
from tot_lab.record.journal import Header
from tot_lab.record.run import Run, expect_run

QUEUE = 100_000
"""Records that may wait for the thread that sends them."""

DELAY = 1.0
"""Seconds after which spans are sent, if there are too few for a whole batch."""

AT_EXIT = 5.0
"""Seconds that the end of the process waits for spans that were not sent."""


class OpenTelemetry:
    """Sends runs as traces to a receiver of OTLP over HTTP, while they are made or afterwards.

        lab = tl.Lab("ollama/qwen3:8b", trace=tl.OpenTelemetry("http://localhost:6006"))
        tl.OpenTelemetry("http://localhost:6006").send(tl.load("runs/a.jsonl"))

    A run is one trace: `invoke_agent`, below it its thoughts, and below each its calls of models and tools
    (`chat`, `execute_tool`). Attributes follow the conventions of OpenTelemetry for generative AI and those
    of OpenInference. Phoenix shows scores as annotations. Ids are made of the run, so that a receiver that
    keeps each id once, such as Phoenix, keeps a trace once, however often it is sent. `tl.load` reads an
    exported trace as the run that it was.

    A text of more than 50,000 characters is cut, which its end says. Secrets of the environment are removed.

    Args:
        url: Address of the receiver, without `/v1/traces`. It may contain a user and a password.
        headers: Headers of each request, such as `{"Authorization": "Bearer …"}`. They are never recorded or
            shown.

    Raises:
        ValueError: If `url` is not such an address.
        ImportError: If the package `opentelemetry-proto` is not installed.
    """

    def __init__(self, url: str, *, headers: Mapping[str, str] | None = None) -> None:
        self._receiver = Receiver(url, headers or {})
        self.lost: dict[str, str] = {}
        """Ids of the live runs whose trace is incomplete, and the reason. `send` sends it whole."""
        self._queue: queue.Queue[tuple[RunSpans, Line] | threading.Event] = queue.Queue(QUEUE)
        self._thread: threading.Thread | None = None
        self._warned = False

    def __repr__(self) -> str:
        return f"OpenTelemetry({self._receiver.url!r})"

    def send(self, run: Run) -> None:
        """Send a run. Sending it again adds nothing.

        A receiver that keeps the first of two spans with the same id shows a run that was interrupted,
        sent and then resumed as it was when it was interrupted. Delete its trace there first.

        Raises:
            ConnectionError: If the receiver did not accept all of it. The message names the reason.
        """
        expect_run(run, "OpenTelemetry.send")
        spans = RunSpans(run.header, self._receiver.secrets, run)
        made = [span for line in run.lines for span in spans.take(line)]
        self._receiver.send((spans.trace, span) for span in [*made, *spans.finish()])
        self._receiver.send_scores(spans.scores)

    # Live.

    def following(self, header: Header, lines: Sequence[Line], path: Path | None) -> _Following:
        """Return a watcher that sends a run while it is made. `lines` are the earlier lines of a resumed
        run.
        """
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._work, name="tot_lab trace", daemon=True)
            self._thread.start()
            atexit.register(self.flush, AT_EXIT)
        self.lost.pop(header.id, None)
        follow = _Following(self, RunSpans(header, self._receiver.secrets))
        follow(lines)
        return follow

    def flush(self, seconds: float = 60.0) -> bool:
        """Wait until all that was recorded so far is sent or lost. Returns whether `seconds` sufficed."""
        if self._thread is None:
            return True
        end, done = time.monotonic() + seconds, threading.Event()
        with suppress(queue.Full):
            self._queue.put(done, timeout=seconds)
        return done.wait(max(0.0, end - time.monotonic()))

    def lose(self, spans: RunSpans, why: str) -> None:
        """Give up the live trace of a run."""
        spans.is_lost, run_id = True, spans.header.id
        self.lost.setdefault(run_id, why)
        if not self._warned:
            self._warned = True
            with suppress(RuntimeWarning):  # an error by the filters of the user, which no run may fail of
                warnings.warn(
                    f"The trace of run {run_id} is incomplete: {why} To send it: {self!r}.send(run). `lost` "
                    "lists all such runs.",
                    RuntimeWarning,
                    stacklevel=2,
                )

    def put(self, spans: RunSpans, lines: Sequence[Line]) -> None:
        """Hand records to the thread, without waiting for it."""
        try:
            for line in () if spans.is_lost else lines:
                self._queue.put_nowait((spans, line))
        except queue.Full:
            self.lose(spans, f"{self._receiver.url} is too slow: {QUEUE:,} records wait for it.")

    def _work(self) -> None:
        waiting: list[tuple[RunSpans, Span]] = []
        due = 0.0
        while True:
            item: tuple[RunSpans, Line] | threading.Event | None = None
            with suppress(queue.Empty):
                item = self._queue.get(timeout=max(0.0, due - time.monotonic()) if waiting else None)
            if isinstance(item, tuple):
                due = due if waiting else time.monotonic() + DELAY
                waiting += self._spans_of(*item)
            if not isinstance(item, tuple) or len(waiting) >= SPANS or time.monotonic() >= due:
                self._send(waiting)
                waiting = []
            if isinstance(item, threading.Event):
                item.set()

    def _spans_of(self, spans: RunSpans, line: Line) -> list[tuple[RunSpans, Span]]:
        try:
            return [] if spans.is_lost else [(spans, span) for span in spans.take(line)]
        except Exception as error:  # the thread must go on with other runs
            self.lose(spans, f"{format_error(error)}.")
            return []

    def _send(self, waiting: Sequence[tuple[RunSpans, Span]]) -> None:
        runs = {id(spans): spans for spans, _ in waiting}.values()
        try:
            self._receiver.send((spans.trace, span) for spans, span in waiting)
            for spans in runs:
                self._receiver.send_scores(spans.scores if spans.has_ended else [])
        except Exception as error:
            why = str(error) if isinstance(error, ConnectionError) else format_error(error)
            for spans in runs:
                self.lose(spans, f"{why}.")


class _Following:
    """Sends one run while it is made."""

    def __init__(self, trace: OpenTelemetry, spans: RunSpans) -> None:
        self.trace = trace
        self.spans = spans

    def __call__(self, lines: Sequence[Line]) -> None:
        self.trace.put(self.spans, lines)

    def close(self) -> None:
        """Do nothing: what was recorded so far is sent by the thread."""
