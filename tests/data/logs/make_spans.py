"""Makes `otlp.json`, `openinference.jsonl`, `phoenix.json` and `genai.jsonl`.

    pip install opentelemetry-sdk==1.45.2 opentelemetry-exporter-otlp-proto-http==1.45.2
        openinference-instrumentation-openai==0.1.66 openai==3.57.0

The client of OpenAI talks to a server of this script, on loopback. Its calls are traced by OpenInference's
instrumentation, and exported by OpenTelemetry's own encoders: the JSON of OTLP, and `span.to_json()` of the
console exporter. `phoenix.json` holds the same spans in the form of Phoenix's API (`/v1/projects/ID/spans`).
`genai.jsonl` holds spans with the attributes of OpenTelemetry's conventions for generative AI.
"""

import base64
import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from google.protobuf.json_format import MessageToDict
from openai import OpenAI
from openinference.instrumentation.openai import OpenAIInstrumentor
from openinference.semconv.trace import SpanAttributes as A
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Status, StatusCode

HERE = Path(__file__).parent
ADD = {
    "type": "function",
    "function": {"name": "add", "description": "Add.", "parameters": {"type": "object", "properties": {}}},
}


class Server(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        last = body["messages"][-1]
        if "fail" in str(last["content"]):
            self.send_response(400)
            answer = {"error": {"message": "no such thing", "type": "invalid_request_error"}}
        else:
            message, why = {"role": "assistant", "content": "5"}, "stop"
            if last["role"] == "user" and body.get("tools"):
                call = {"id": "call_1", "type": "function"}
                call["function"] = {"name": "add", "arguments": '{"x": 2, "y": 3}'}
                message, why = {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"
            self.send_response(200)
            answer = {
                "id": "1",
                "object": "chat.completion",
                "created": 1,
                "model": "stub-1",
                "choices": [{"index": 0, "message": message, "finish_reason": why}],
                "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
            }
        data = json.dumps(answer).encode()
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
client = OpenAI(base_url=f"http://127.0.0.1:{server.server_port}/v1", api_key="none", max_retries=0)
exporter = InMemorySpanExporter()
provider = TracerProvider(resource=Resource({"service.name": "sums"}))
provider.add_span_processor(SimpleSpanProcessor(exporter))
OpenAIInstrumentor().instrument(tracer_provider=provider)
tracer = provider.get_tracer("sums")


def ask(messages, **options):
    return client.chat.completions.create(model="stub", messages=messages, temperature=0.5, **options)


def agent(question):
    with tracer.start_as_current_span("agent") as span:
        span.set_attribute(A.OPENINFERENCE_SPAN_KIND, "AGENT")
        span.set_attribute(A.INPUT_VALUE, question)
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": question}]
        wanted = ask(messages, tools=[ADD]).choices[0].message
        with tracer.start_as_current_span("add") as tool:
            tool.set_attribute(A.OPENINFERENCE_SPAN_KIND, "TOOL")
            tool.set_attribute(A.TOOL_NAME, "add")
            tool.set_attribute(A.INPUT_VALUE, '{"x": 2, "y": 3}')
            tool.set_attribute(A.OUTPUT_VALUE, "5")
            tool.set_status(Status(StatusCode.OK))
        call = wanted.tool_calls[0]
        asked = {"id": call.id, "type": "function"}
        asked["function"] = {"name": call.function.name, "arguments": call.function.arguments}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [asked]},
            {"role": "tool", "tool_call_id": call.id, "content": "5"},
        ]
        answer = ask(messages, tools=[ADD]).choices[0].message.content
        span.set_attribute(A.OUTPUT_VALUE, answer)
        span.set_status(Status(StatusCode.OK))


agent("What is 2 + 3?")
with contextlib.suppress(Exception):
    ask([{"role": "user", "content": "fail"}])
spans = exporter.get_finished_spans()

otlp = MessageToDict(encode_spans(spans))
# Protocol buffers print bytes as base64; the JSON of OTLP prints ids in hexadecimal.
for group in otlp["resourceSpans"]:
    for scope in group["scopeSpans"]:
        for span in scope["spans"]:
            for name in ("traceId", "spanId", "parentSpanId"):
                if name in span:
                    span[name] = base64.b64decode(span[name]).hex()
(HERE / "otlp.json").write_text(json.dumps(otlp, indent=1))
(HERE / "openinference.jsonl").write_text("".join(span.to_json() + "\n" for span in spans))
phoenix = []
for span in spans:
    data = json.loads(span.to_json())
    attributes = data["attributes"]
    phoenix.append(
        {
            "id": f"U3Bhbjo{len(phoenix)}",
            "name": data["name"],
            "context": {name: data["context"][name].removeprefix("0x") for name in ("trace_id", "span_id")},
            "span_kind": attributes.get(A.OPENINFERENCE_SPAN_KIND, "UNKNOWN"),
            "parent_id": data["parent_id"] and data["parent_id"].removeprefix("0x"),
            "start_time": data["start_time"],
            "end_time": data["end_time"],
            "status_code": data["status"]["status_code"],
            "status_message": data["status"].get("description", ""),
            "attributes": attributes,
            "events": data["events"],
        }
    )
(HERE / "phoenix.json").write_text(json.dumps({"data": phoenix, "next_cursor": None}))

exporter.clear()
with tracer.start_as_current_span("invoke_agent solver") as span:
    span.set_attribute("gen_ai.operation.name", "invoke_agent")
    with tracer.start_as_current_span("chat stub") as chat:
        said = [{"role": "user", "parts": [{"type": "text", "content": "What is 2 + 3?"}]}]
        reply = [{"role": "assistant", "parts": [{"type": "text", "content": "5"}], "finish_reason": "stop"}]
        for name, value in {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "stub",
            "gen_ai.response.model": "stub-1",
            "gen_ai.request.temperature": 0.5,
            "gen_ai.usage.input_tokens": 11,
            "gen_ai.usage.output_tokens": 7,
            "gen_ai.response.finish_reasons": ["stop"],
            "gen_ai.system_instructions": json.dumps([{"type": "text", "content": "Be brief."}]),
            "gen_ai.input.messages": json.dumps(said),
            "gen_ai.output.messages": json.dumps(reply),
        }.items():
            chat.set_attribute(name, value)
    with tracer.start_as_current_span("execute_tool add") as tool:
        tool.set_attribute("gen_ai.operation.name", "execute_tool")
        tool.set_attribute("gen_ai.tool.name", "add")
        tool.set_attribute("gen_ai.tool.call.arguments", '{"x": 2}')
        tool.set_attribute("gen_ai.tool.call.result", "2")
(HERE / "genai.jsonl").write_text(
    "".join(span.to_json(indent=None) + "\n" for span in exporter.get_finished_spans())
)
for name in ("otlp.json", "openinference.jsonl", "phoenix.json", "genai.jsonl"):
    print(name, (HERE / name).stat().st_size)
