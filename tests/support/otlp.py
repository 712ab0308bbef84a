"""Traces of OpenTelemetry: as JSON without any package, and a receiver on loopback that reads protobuf."""

import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from support.venvs import python_with
from tot_lab.interop.spans import RunSpans

PACKAGES = ("opentelemetry-proto>=1.27,<2",)


def spans_of(run, secrets=()):
    """The spans of a run, as `RunSpans` makes them line by line."""
    fold = RunSpans(run.header, secrets, run)
    made = [span for line in run.lines for span in fold.take(line)]
    return [*made, *fold.finish()]


def otlp_of(*runs):
    """The spans of runs as the JSON of OTLP."""
    spans = [_span(RunSpans(run.header, ()).trace, span) for run in runs for span in spans_of(run)]
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": spans}]}]}


def _span(trace, span):
    return {
        "traceId": trace.hex(),
        "spanId": span.id.hex(),
        "parentSpanId": "" if span.parent is None else span.parent.hex(),
        "name": span.name,
        "startTimeUnixNano": str(span.start),
        "endTimeUnixNano": str(span.end),
        "attributes": _pairs(span.attributes),
        "events": [
            {"name": event.name, "timeUnixNano": str(event.time), "attributes": _pairs(event.attributes)}
            for event in span.events
        ],
        "status": {} if span.error is None else {"code": 2, "message": span.error},
    }


def _pairs(attributes):
    return [{"key": name, "value": _value(value)} for name, value in attributes.items() if value is not None]


def _value(value):
    if isinstance(value, list | tuple):
        return {"arrayValue": {"values": [_value(each) for each in value]}}
    kind = {bool: "boolValue", int: "intValue", float: "doubleValue", str: "stringValue"}[type(value)]
    return {kind: str(value) if kind == "intValue" else value}


def install():
    """Make the package of the extra `otel` importable in this process."""
    root = python_with(*PACKAGES).parents[1]
    (packages,) = root.glob("lib/python3*/site-packages")
    if str(packages) not in sys.path:
        sys.path.append(str(packages))


class Received:
    """What a receiver got.

    Attributes:
        replies: What it answers next: a status, or a status, a kind and a body. Empty means consent.
        hold: Set by default; a request waits for it.
    """

    def __init__(self):
        self.url = ""
        self.requests = []
        self.headers = []
        self.annotations = []
        self.replies = []
        self.is_phoenix = False
        self.refuses_annotations = False
        self.hold = threading.Event()
        self.hold.set()

    @property
    def spans(self):
        """The spans in the order in which they arrived."""
        return [
            span
            for request in self.requests
            for group in request.resource_spans
            for scope in group.scope_spans
            for span in scope.spans
        ]


@contextmanager
def receiver():
    """A receiver of OTLP over HTTP. `install` must have been called."""
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
        ExportTraceServiceRequest,
        ExportTraceServiceResponse,
    )

    got = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.hold.wait()
            got.headers.append(dict(self.headers))
            if self.path.endswith("/v1/span_annotations") and got.is_phoenix:
                if got.refuses_annotations:
                    return self.reply(400, "text/plain", b"")
                got.annotations.append(body)
                return self.reply(200, "application/json", b'{"data":[]}')
            if not self.path.endswith("/v1/traces"):
                return self.reply(404, "text/plain", b"")
            if got.replies:
                status, kind, data = got.replies.pop(0)
                return self.reply(status, kind, data)
            try:
                got.requests.append(ExportTraceServiceRequest.FromString(body))
            except DecodeError as error:
                return self.reply(400, "text/plain", str(error).encode())
            return self.reply(200, "application/x-protobuf", ExportTraceServiceResponse().SerializeToString())

        def reply(self, status, kind, data):
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            if got.is_phoenix:
                self.send_header("x-phoenix-server-version", "20.26.0")
            if status == 302:
                self.send_header("Location", "/login")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    got.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield got
    finally:
        got.hold.set()
        server.shutdown()
        thread.join()
        server.server_close()
