"""`tl.OpenTelemetry` against receivers on loopback that read the real protobuf: live and from journals, and
with receivers that are slow, broken or absent.
"""

import base64
import json
import socket
import subprocess
import sys
import time
import warnings

import pytest
from support import ROOT, TASK, Scripted, run, wait
from support.otlp import install, receiver, spans_of
from support.pages import blocks, execute

import tot_lab as tl
from tot_lab.core.calls import Reply
from tot_lab.interop import opentelemetry

SEARCH = tl.TreeOfThoughts(merge=True, search=tl.BeamSearch(width=3))
GAME = tl.game24("4 9 10 13")


@pytest.fixture(autouse=True, scope="module")
def package():
    install()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(opentelemetry, "PAUSES", (0.01, 0.01))
    monkeypatch.setattr(opentelemetry, "TIMEOUT", 2.0)


@pytest.fixture
def server():
    with receiver() as got:
        yield got


def live(trace, strategy=SEARCH, task=GAME, model="sim/game24", **settings):
    return wait(tl.Lab(model, trace=trace, **{"runs": None, **settings}).run(strategy, task))


def as_bytes(spans):
    return sorted(span.SerializeToString(deterministic=True) for span in spans)


def test_a_live_run_and_a_loaded_run_are_the_same_spans(server, tmp_path):
    trace = tl.OpenTelemetry(server.url)
    made = live(trace, runs=tmp_path)
    assert trace.flush(20)
    sent = as_bytes(server.spans)
    assert len(sent) == len(spans_of(made)) == len(made.tree) + made.usage.calls + 1
    for again in (made, tl.load(made.path)):
        server.requests.clear()
        tl.OpenTelemetry(f"{server.url}/v1/traces").send(again)
        assert as_bytes(server.spans) == sent
    assert trace.lost == {}


def test_what_arrives_is_what_the_spans_say(server):
    made = run(SEARCH, GAME, "sim/game24")
    tl.OpenTelemetry(server.url).send(made)
    plain = {span.id: span for span in spans_of(made)}
    (request,) = server.requests
    (group,) = request.resource_spans
    names = {pair.key: pair.value.string_value for pair in group.resource.attributes}
    assert names["service.name"] == "tot_lab"
    for span in server.spans:
        known = plain.pop(span.span_id)
        assert (span.name, span.parent_span_id) == (known.name, known.parent or b"")
        assert len(span.trace_id) == 16
        held = {pair.key: pair.value for pair in span.attributes}
        wanted = {name: value for name, value in known.attributes.items() if value is not None}
        assert held.keys() == wanted.keys()
        kinds = {str: "string_value", int: "int_value", float: "double_value"}
        for name, value in wanted.items():
            if isinstance(value, list):
                held[name] = [each.WhichOneof("value") for each in held[name].array_value.values]
                assert held[name] == [kinds[type(each)] for each in value]
            else:
                assert getattr(held[name], kinds[type(value)]) == value
        assert [(event.name, event.time_unix_nano) for event in span.events] == [e[:2] for e in known.events]
        assert [link.span_id for link in span.links] == [id for id, _ in known.links]
        assert {link.trace_id for link in span.links} <= {span.trace_id}
        assert span.kind == (3 if known.is_request else 1)
    assert not plain


def test_errors_are_the_status_of_their_spans(server):
    made = run(tl.OneAnswer(), model=Scripted(lambda call: Reply(error="RateLimit: too many")))
    tl.OpenTelemetry(server.url).send(made)
    assert {span.name.split()[0]: (span.status.code, span.status.message) for span in server.spans} == {
        "chat": (2, "RateLimit: too many"),
        "invoke_agent": (2, "a model call failed"),
        **({"thought": (0, "")} if len(made.tree) else {}),
    }


def test_many_spans_are_sent_in_batches(server, monkeypatch):
    made = run(SEARCH, GAME, "sim/game24")
    monkeypatch.setattr(opentelemetry, "SPANS", 10)
    trace = tl.OpenTelemetry(server.url)
    trace.send(made)
    sizes = [len(r.resource_spans[0].scope_spans[0].spans) for r in server.requests]
    assert sizes[:-1] == [10] * (len(sizes) - 1)
    assert sum(sizes) == len(spans_of(made))
    server.requests.clear()
    monkeypatch.setattr(opentelemetry, "BYTES", 20_000)
    trace.send(made)
    assert all(request.ByteSize() < 21_000 for request in server.requests)
    assert len(server.spans) == sum(sizes)


def test_a_sweep_is_a_trace_per_run_and_a_resumed_run_one(server, tmp_path):
    trace = tl.OpenTelemetry(server.url)
    lab = tl.Lab("sim/game24", runs=tmp_path, trace=trace)
    sweep = wait(lab.sweep({"a": SEARCH, "b": tl.OneAnswer()}, tl.game24_tasks(3), repeats=2))
    assert trace.flush(20)
    assert as_bytes(server.spans) == as_bytes(
        span for made in sweep.runs() for span in sent_alone(server.url, made)
    )
    assert len({span.trace_id for span in server.spans}) == 12
    made = next(sweep.runs())
    lines = made.path.read_bytes().splitlines(keepends=True)
    made.path.write_bytes(b"".join(lines[: len(lines) // 2]))
    server.requests.clear()
    again = wait(lab.resume(made.path))
    assert trace.flush(20)
    found = {span.span_id for span in server.spans}
    assert found == {span.id for span in spans_of(again)}
    assert len(server.spans) == len(found)


def sent_alone(url, made):
    with receiver() as other:
        tl.OpenTelemetry(other.url).send(made)
        return other.spans


def test_calls_arrive_while_the_run_is_under_way(server, monkeypatch):
    monkeypatch.setattr(opentelemetry, "DELAY", 0.05)
    seen = []

    def reply(call):
        if call.purpose == "answer" or len(seen) > 200:
            return "Answer: 26"
        time.sleep(0.02)
        seen.append(len(server.spans))
        return "a step" if call.purpose != "value" else "score: 5"

    trace = tl.OpenTelemetry(server.url)
    made = live(trace, tl.TreeOfThoughts(stop=tl.Stop(depth=3)), TASK, Scripted(reply))
    assert max(seen) > 0
    assert trace.flush(20)
    assert len(server.spans) == len(spans_of(made))


def test_a_cancelled_run_is_sent(server):
    import asyncio

    trace = tl.OpenTelemetry(server.url)
    lab = tl.Lab(Scripted(latency=lambda call: 30.0), runs=None, trace=trace)

    async def cancelled():
        task = asyncio.create_task(lab.run(SEARCH, TASK))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    wait(cancelled())
    assert trace.flush(20)
    assert len(server.spans) == len(spans_of(lab.last))
    (top,) = [span for span in server.spans if not span.parent_span_id]
    assert {pair.value.string_value for pair in top.attributes if pair.key == "tot_lab.stop_reason"} == {
        "cancelled"
    }


# Receivers that fail.


def absent():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def test_a_dead_collector_neither_fails_nor_holds_a_run_and_warns_once():
    trace = tl.OpenTelemetry(absent())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lab = tl.Lab("sim/game24", runs=None, trace=trace)
        runs = [wait(lab.run(SEARCH, GAME, repeat=k)) for k in range(3)]
        assert trace.flush(20)
        runs.append(wait(lab.run(SEARCH, GAME, repeat=3)))
        assert trace.flush(20)
    assert all(made.grade is not None for made in runs)
    (told,) = [one for one in caught if "trace" in str(one.message)]
    assert told.category is RuntimeWarning
    assert f"The trace of run {runs[0].id} is incomplete" in str(told.message)
    assert trace.lost.keys() == {made.id for made in runs}
    assert "Connection refused" in trace.lost[runs[0].id]


def timed(trace):
    start = time.perf_counter()
    live(trace)
    return time.perf_counter() - start


def test_a_collector_that_does_not_reply_does_not_hold_a_run(server):
    server.hold.clear()
    trace = tl.OpenTelemetry(server.url)
    assert timed(trace) < 1.5  # one request alone takes 2 s until it fails
    assert not trace.flush(0.05)
    with pytest.warns(RuntimeWarning, match="is incomplete: .*timed out"):
        trace.flush(30)


def test_a_warning_that_is_an_error_does_not_stop_the_thread(server):
    server.replies[:] = [(400, "text/plain", b"no")]
    trace = tl.OpenTelemetry(server.url)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = live(trace)
        assert trace.flush(20)
        second = live(trace)
        assert trace.flush(20)
    assert trace.lost.keys() == {first.id}
    assert len(server.spans) == len(spans_of(second))


def test_a_queue_that_is_full_costs_traces_and_nothing_else(server, monkeypatch):
    monkeypatch.setattr(opentelemetry, "QUEUE", 50)
    monkeypatch.setattr(opentelemetry, "DELAY", 0.0)  # the first span is sent at once, and waits
    monkeypatch.setattr(opentelemetry, "TIMEOUT", 20.0)
    server.hold.clear()
    trace = tl.OpenTelemetry(server.url)
    with pytest.warns(RuntimeWarning, match="too slow: 50 records wait"):
        runs = [live(trace) for _ in range(3)]
    assert trace._queue.qsize() <= 50
    server.hold.set()
    assert trace.flush(30)
    assert {*trace.lost} <= {made.id for made in runs}
    for made in runs:
        trace.send(made)
    assert {span.span_id for span in server.spans} == {span.id for made in runs for span in spans_of(made)}


def test_a_busy_collector_is_asked_again(server):
    server.replies[:] = [(503, "text/plain", b""), (429, "text/plain", b"")]
    trace = tl.OpenTelemetry(server.url)
    made = run(SEARCH, GAME, "sim/game24")
    trace.send(made)
    assert len(server.spans) == len(spans_of(made))
    assert len([one for one in server.headers if one["Content-Type"] == "application/x-protobuf"]) == 3


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ((401, "text/plain", b"who are you?"), "HTTP 401 Unauthorized: who are you?"),
        ((413, "text/plain", b""), "HTTP 413"),
        ((302, "text/plain", b""), "HTTP 302"),
        ((200, "text/html", b"<h1>Welcome</h1>"), "must be a receiver of OTLP: got an HTML page"),
        ((200, "application/x-protobuf", b"\xff\xff"), "the trace was not accepted: DecodeError"),
        ("rejected", "7 spans were rejected: too old"),
    ],
)
def test_send_reports_what_was_not_accepted(server, reply, reason):
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service

    if reply == "rejected":
        partial = service.ExportTracePartialSuccess(rejected_spans=7, error_message="too old")
        answer = service.ExportTraceServiceResponse(partial_success=partial)
        reply = (200, "application/x-protobuf", answer.SerializeToString())
    server.replies[:] = [reply] * 3
    trace = tl.OpenTelemetry(server.url)
    with pytest.raises(ConnectionError, match=reason) as caught:
        trace.send(run(tl.OneAnswer()))
    assert server.url in str(caught.value)
    made = live(trace)
    with pytest.warns(RuntimeWarning, match=reason):
        trace.flush(20)
    assert trace.lost.keys() == {made.id}


def test_send_reports_an_absent_collector():
    with pytest.raises(ConnectionError, match="Connection refused"):
        tl.OpenTelemetry(absent()).send(run(tl.OneAnswer()))


# Scores.


def test_scores_are_annotations_of_phoenix_once_for_each(server):
    server.is_phoenix = True
    trace = tl.OpenTelemetry(server.url)
    made = live(trace)
    assert trace.flush(20)
    (body,) = server.annotations
    data = json.loads(body)["data"]
    scored = [e for e in made.events if isinstance(e, tl.records.Scored) and e.by != "root"]
    assert len(data) == len(scored) + 1  # and the grade
    assert len({(one["span_id"], one["name"], one["identifier"]) for one in data}) == len(data)
    assert {one["span_id"] for one in data} <= {span.span_id.hex() for span in server.spans}
    (grade,) = [one for one in data if one["name"] == "correctness"]
    assert grade["result"]["score"] == made.grade
    trace.send(made)
    assert json.loads(server.annotations[1]) == json.loads(body)


def test_other_receivers_get_no_annotations(server):
    tl.OpenTelemetry(server.url).send(run(SEARCH, GAME, "sim/game24"))
    assert {one["Content-Type"] for one in server.headers} == {"application/x-protobuf"}


def test_annotations_that_are_not_accepted_are_reported(server):
    server.is_phoenix = True
    server.refuses_annotations = True
    with pytest.raises(ConnectionError, match="HTTP 400"):
        tl.OpenTelemetry(server.url).send(run(SEARCH, GAME, "sim/game24"))


# Credentials.


def test_credentials_reach_the_receiver_and_nothing_else(server, tmp_path, monkeypatch):
    monkeypatch.setenv("OTHER_SERVICE_TOKEN", "tok-9f8e7d6c5b4a")
    url = server.url.replace("//", "//me:p%40ss-word-1@")
    trace = tl.OpenTelemetry(url, headers={"X-Key": "Bearer sk-0123456789abcdef"})
    told = "p@ss-word-1 sk-0123456789abcdef tok-9f8e7d6c5b4a"
    model = Scripted(lambda call: f"{told} Answer: 26")
    made = live(trace, tl.ChainOfThought(), TASK, model, runs=tmp_path)
    assert trace.flush(20)
    pair = base64.b64encode(b"me:p@ss-word-1").decode()
    assert {one["Authorization"] for one in server.headers} == {f"Basic {pair}"}
    assert {one["X-Key"] for one in server.headers} == {"Bearer sk-0123456789abcdef"}
    sent = str(server.requests)
    shown = repr(trace) + repr(tl.Lab(Scripted(), trace=trace)) + made.path.read_text().split("\n")[0]
    for secret in ("ss-word-1", "0123456789abcdef", "9f8e7d6c5b4a"):
        assert secret not in sent
        assert secret not in shown
    server.replies[:] = [(403, "text/plain", f"{told} {pair}".encode())]
    with pytest.raises(ConnectionError, match="403") as caught:
        trace.send(made)
    assert not any(part in str(caught.value) for part in ("ss-word-1", "0123456789abcdef", "9f8e7d6c5b4a"))


def test_the_end_of_a_script_sends_what_is_left(server):
    code = f"""
import asyncio, tot_lab as tl
lab = tl.Lab("sim/game24", runs=None, trace=tl.OpenTelemetry({server.url!r}))
made = asyncio.run(lab.run(tl.TreeOfThoughts(), tl.game24("4 9 10 13")))
print(len(made.tree) + made.usage.calls + 1)
"""
    import opentelemetry.proto

    packages = next(iter(opentelemetry.proto.__path__)).partition("/opentelemetry")[0]
    ways = {"PYTHONPATH": f"{ROOT}:{packages}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=ways, check=True)
    assert len(server.spans) == int(done.stdout)
    assert done.stderr == ""


def test_the_code_of_the_guide_sends_its_run(server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    live, loaded = (
        code.replace("http://localhost:6006", server.url) for code in blocks("docs/how-to/traces.md")
    )
    execute(live, names)
    sent = {span.span_id for span in server.spans}
    assert sent == {span.id for span in spans_of(names["run"])}
    execute(loaded, names)
    assert {span.span_id for span in server.spans} == sent
    assert len(server.spans) == 2 * len(sent)
