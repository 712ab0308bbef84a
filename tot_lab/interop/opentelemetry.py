"""Sends traces of runs to receivers of OpenTelemetry, such as Phoenix, Langfuse, Jaeger or a collector.

    records → `RunSpans` (`spans.py`) → `Receiver`

A live run only puts its records into a queue, and a thread sends them. If the receiver fails or is too slow,
the run continues, its trace stays incomplete, and a warning names the first such run. Afterwards `send` can
send the complete trace of the run.
"""

from __future__ import annotations

import atexit
import http.client
import json
import queue
import re
import threading
import time
import urllib.error
import urllib.request
import warnings
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tot_lab._version import __version__
from tot_lab.core.calls import format_error
from tot_lab.core.extras import requires
from tot_lab.core.records import Line
from tot_lab.core.scrubbing import scrubbed, secrets_in_environment
from tot_lab.interop.spans import RunSpans, Score, Span
from tot_lab.record.journal import Header
from tot_lab.record.run import Run, expect_run

# Spans are sent as protobuf over HTTP (OTLP), and scores as JSON if the receiver is Phoenix. A response that
# does not accept the spans is an error: a status other than 2xx, a redirect, an HTML page, rejected spans.
# No error message contains credentials.


TRACES, SCORES = "/v1/traces", "/v1/span_annotations"
"""URL paths: of spans at every receiver, and of scores at Phoenix."""

SPANS, BYTES, AT_ONCE = 512, 4_000_000, 1000
"""Maximum spans and bytes of a request with spans, and maximum scores of a request with scores."""

TIMEOUT = 10.0
"""Seconds to wait for the reply of a receiver."""

PAUSES = (0.5, 1.0, 2.0)
"""Seconds before each retry of a request. It is retried if the receiver is busy (`_BUSY`), or if the
connection is refused or breaks.
"""

_LONGEST = 100_000  # maximum bytes of a reply that are read
_BUSY = (429, 502, 503, 504)
_PHOENIX = "x-phoenix-server-version"
"""Header by which replies of Phoenix are recognized."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects. urllib would repeat a POST as a GET without a body, and send the credentials to the
    new address.
    """

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


class Receiver:
    """A client that sends spans to a receiver of OTLP over HTTP.

    Attributes:
        url: The address of the receiver, without credentials.
        secrets: Texts that no span may contain: credentials of the receiver, and secrets in environment
            variables. The longest is first.

    Raises:
        ValueError: If `url` is not an HTTP address, or has a query or a fragment.
        ImportError: If the package `opentelemetry-proto` is not installed.
    """

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
            shown = re.split("[?#]", url.rpartition("@")[2])[0]
            raise ValueError(
                f"url must be the address of a receiver such as http://localhost:6006, without a query or "
                f"fragment: got {shown!r}."
            )
        self.url = f"{parts.scheme}://{host}{parts.path.rstrip('/').removesuffix(TRACES)}"
        self._headers = {"User-Agent": f"tot_lab/{__version__}", **headers}
        credentials = [*headers.values(), *(value.split()[-1] for value in headers.values() if value.split())]
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
            credentials += [pair, unquote(parts.password or "")]
        self._credentials = [value for value in credentials if len(value) > 3]
        self._is_phoenix = False
        try:
            import opentelemetry.proto.collector.trace.v1.trace_service_pb2 as service  # noqa: PLC0415  an extra
            import opentelemetry.proto.trace.v1.trace_pb2 as trace  # noqa: PLC0415
        except ModuleNotFoundError:
            raise ImportError(f"{requires('OpenTelemetry', 'opentelemetry-proto', 'otel')}.") from None
        self._service, self._trace = service, trace

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(sorted({*self._credentials, *secrets_in_environment()}, key=len, reverse=True))

    def send(self, spans: Iterable[tuple[bytes, Span]]) -> None:
        """Send pairs of a trace id and a span, in batches.

        Raises:
            ConnectionError: If the receiver did not accept all spans. The message names the reason.
        """
        for batch in self._batches(spans):
            request = self._service.ExportTraceServiceRequest()
            group = request.resource_spans.add()
            names = {"service.name": "tot_lab", "openinference.project.name": "tot_lab"}
            _add(group.resource.attributes, names)
            group.scope_spans.add(scope={"name": "tot_lab", "version": __version__}, spans=batch)
            reply = self._post(TRACES, request.SerializeToString(), "application/x-protobuf")
            self._expect_all_taken(*reply)

    def send_scores(self, scores: Sequence[Score]) -> None:
        """Send scores as annotations of spans, if the last reply to `send` came from Phoenix. Other receivers
        get scores only as events of spans.

        Raises:
            ConnectionError: If the scores were not accepted. The message names the reason.
        """
        for start in range(0, len(scores) if self._is_phoenix else 0, AT_ONCE):
            data = [_annotation(score) for score in scores[start : start + AT_ONCE]]
            self._post(SCORES, json.dumps({"data": data}).encode(), "application/json")

    def _batches(self, spans: Iterable[tuple[bytes, Span]]) -> Iterator[list[Any]]:
        batch: list[Any] = []
        size = 0
        for trace, span in spans:
            made = self._span(trace, span)
            more = made.ByteSize()
            if batch and (len(batch) == SPANS or size + more > BYTES):
                yield batch
                batch, size = [], 0
            batch.append(made)
            size += more
        if batch:
            yield batch

    def _expect_all_taken(self, headers: Message, body: bytes) -> None:
        self._is_phoenix, kind = _PHOENIX in headers, headers.get_content_type()
        if kind == "text/html":
            raise ConnectionError(f"{self.url}{TRACES} must be a receiver of OTLP: got an HTML page.")
        if kind != "application/x-protobuf":
            return
        try:
            result = self._service.ExportTraceServiceResponse.FromString(body).partial_success
        except Exception as error:  # protobuf's `DecodeError`
            raise ConnectionError(self._failed(format_error(error))) from None
        if result.rejected_spans:
            why = f"{result.rejected_spans} spans were rejected: {result.error_message}"
            raise ConnectionError(self._failed(why))

    def _post(self, path: str, data: bytes, kind: str) -> tuple[Message, bytes]:
        """Post `data`, and return the headers and the body of the reply. Retries after `PAUSES`."""
        headers = {**self._headers, "Content-Type": kind}
        request = urllib.request.Request(f"{self.url}{path}", data, headers)
        for pause in (*PAUSES, None):
            try:
                with _OPENER.open(request, timeout=TIMEOUT) as reply:
                    return reply.headers, reply.read(_LONGEST)
            except urllib.error.HTTPError as error:
                with error:
                    body = error.read(500).decode(errors="replace")
                if pause is None or error.code not in _BUSY:
                    why = f"HTTP {error.code} {error.reason}: {body}"
                    raise ConnectionError(self._failed(why)) from None
            except (OSError, http.client.HTTPException) as error:
                reason = getattr(error, "reason", error)
                if pause is None or not isinstance(reason, ConnectionError):
                    why = format_error(reason) if isinstance(reason, Exception) else str(reason)
                    raise ConnectionError(self._failed(why)) from None
            time.sleep(pause)
        raise AssertionError

    def _failed(self, why: str) -> str:
        return f"{self.url}: the trace was not accepted: {scrubbed(why, *self._credentials)}"

    # Protobuf.

    def _span(self, trace: bytes, span: Span) -> Any:
        kind = self._trace.Span.SpanKind
        made = self._trace.Span(
            trace_id=trace,
            span_id=span.id,
            parent_span_id=span.parent or b"",
            name=span.name,
            kind=kind.SPAN_KIND_CLIENT if span.is_request else kind.SPAN_KIND_INTERNAL,
            start_time_unix_nano=span.start,
            end_time_unix_nano=max(span.start, span.end),
        )
        _add(made.attributes, span.attributes)
        for name, at, held in span.events:
            _add(made.events.add(name=name, time_unix_nano=at).attributes, held)
        for id, held in span.links:
            _add(made.links.add(trace_id=trace, span_id=id).attributes, held)
        if span.error is not None:
            made.status.code, made.status.message = self._trace.Status.STATUS_CODE_ERROR, span.error
        return made


def _add(pairs: Any, attributes: Mapping[str, Any]) -> None:
    """Add the attributes that are not `None` to a protobuf list of key-value pairs."""
    for name, value in attributes.items():
        if value is not None:
            pair = pairs.add()
            pair.key = name
            _set(pair.value, value)


def _set(place: Any, value: Any) -> None:
    if isinstance(value, bool):
        place.bool_value = value
    elif isinstance(value, int) and -(2**63) <= value < 2**63:
        place.int_value = value
    elif isinstance(value, float):
        place.double_value = value
    elif isinstance(value, list | tuple):
        place.array_value.SetInParent()
        for each in value:
            _set(place.array_value.values.add(), each)
    else:
        place.string_value = str(value)


def _annotation(score: Score) -> dict[str, Any]:
    """Return a score as an annotation of Phoenix, which replaces an earlier annotation with the same span,
    name and identifier.
    """
    return {
        "span_id": score.span.hex(),
        "name": score.name,
        "annotator_kind": "LLM" if score.by_model else "CODE",
        "result": {"score": score.score, "label": score.label},
        "identifier": f"tot_lab {score.number}",
    }


QUEUE = 100_000
"""Maximum records in the queue of the sending thread."""

DELAY = 1.0
"""Seconds after which an incomplete batch of spans is sent."""

AT_EXIT = 5.0
"""Maximum seconds that the process waits at exit for unsent spans."""


class OpenTelemetry:
    """Sends runs as traces to a receiver of OTLP over HTTP, live or after they have ended.

        lab = tl.Lab("ollama/qwen3:8b", trace=tl.OpenTelemetry("http://localhost:6006"))
        tl.OpenTelemetry("http://localhost:6006").send(tl.load("runs/a.jsonl"))

    A run is one trace. Its root span is `invoke_agent`, below which each thought is a span. Below a thought
    are the spans of its model calls (`chat`) and tool calls (`execute_tool`). Attributes follow the
    conventions of OpenTelemetry for generative AI and those of OpenInference. Phoenix shows scores as
    annotations. Span ids are derived from the run. A receiver that keeps one span per id, such as Phoenix,
    therefore shows a run once, even if the run is sent again. `tl.load` reads an exported trace as a run.

    Texts are cut after 50,000 characters, with a note. Secrets in environment variables are removed.

    Args:
        url: Address of the receiver, without `/v1/traces`. It may contain a user and a password.
        headers: Headers of each request, such as `{"Authorization": "Bearer …"}`. They are never recorded or
            shown.

    Raises:
        ValueError: If `url` is not an HTTP address, or has a query or a fragment.
        ImportError: If the package `opentelemetry-proto` is not installed.
    """

    def __init__(self, url: str, *, headers: Mapping[str, str] | None = None) -> None:
        self._receiver = Receiver(url, headers or {})
        self.lost: dict[str, str] = {}
        """Why the traces of live runs are incomplete: reasons by run id. `send` sends a complete trace."""
        self._queue: queue.Queue[tuple[RunSpans, Line] | threading.Event] = queue.Queue(QUEUE)
        self._thread: threading.Thread | None = None
        self._warned = False

    def __repr__(self) -> str:
        return f"OpenTelemetry({self._receiver.url!r})"

    def send(self, run: Run) -> None:
        """Send the complete trace of a run.

        A receiver that keeps the first of two spans with the same id ignores a trace that it already has.
        Before you send a resumed run again, delete its old trace there.

        Raises:
            ConnectionError: If the receiver did not accept all spans and scores. The message says why.
        """
        expect_run(run, "OpenTelemetry.send")
        spans = RunSpans(run.header, self._receiver.secrets, run)
        made = [span for line in run.lines for span in spans.take(line)]
        self._receiver.send((spans.trace, span) for span in [*made, *spans.finish()])
        self._receiver.send_scores(spans.scores)

    # Live.

    def following(self, header: Header, lines: Sequence[Line], path: Path | None) -> _Following:
        """Return a callback that sends the new records of a live run.

        Args:
            header: The header of the run.
            lines: The records before the run was resumed. Empty for a new run.
            path: Not used.
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
        """Wait at most `seconds` until all queued records are sent or given up. Return whether they are."""
        if self._thread is None:
            return True
        end, done = time.monotonic() + seconds, threading.Event()
        with suppress(queue.Full):
            self._queue.put(done, timeout=seconds)
        return done.wait(max(0.0, end - time.monotonic()))

    def lose(self, spans: RunSpans, why: str) -> None:
        """Stop sending the live trace of a run, because of `why`. Only the first call gives a warning."""
        spans.is_lost, run_id = True, spans.header.id
        self.lost.setdefault(run_id, why)
        if not self._warned:
            self._warned = True
            with suppress(RuntimeWarning):  # if a warning filter makes it an error, the run must not fail
                warnings.warn(
                    f"The trace of run {run_id} is incomplete: {why} To send it: {self!r}.send(run). "
                    "`OpenTelemetry.lost` lists all such runs.",
                    RuntimeWarning,
                    stacklevel=2,
                )

    def put(self, spans: RunSpans, lines: Sequence[Line]) -> None:
        """Queue records for the sending thread. If the queue is full, the trace of the run is given up."""
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
    """The callback of one live run: queues its new records for the sending thread."""

    def __init__(self, trace: OpenTelemetry, spans: RunSpans) -> None:
        self.trace = trace
        self.spans = spans

    def __call__(self, lines: Sequence[Line]) -> None:
        self.trace.put(self.spans, lines)

    def close(self) -> None:
        """Do nothing: the sending thread sends the remaining records."""
