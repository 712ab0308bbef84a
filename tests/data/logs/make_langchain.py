"""Makes `langsmith.jsonl`, `langgraph.json` and `langgraph_sdk.json`.

    pip install langgraph==1.2.24 langchain-core==1.8.3 langsmith==0.15.1

A graph with a scripted chat model and a tool runs twice: once to its end, once into an error. The SDK of
LangSmith sends its runs to a server of this script, on loopback, and reads them back from there
(`client.list_runs`). The server adds only what LangSmith computes: token counts, costs and feedback.
`langgraph.json` holds the state history of a thread with a fork, as `graph.get_state_history` returns it;
`langgraph_sdk.json` holds the same in the form of the API's `/history`.
"""

import contextlib
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, TypedDict

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.load import dumpd
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langchain_core.tracers import LangChainTracer
from langchain_core.tracers.run_collector import RunCollectorCallbackHandler
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from langsmith import Client

HERE = Path(__file__).parent
RUNS = {}


class Server(BaseHTTPRequestHandler):
    def answer(self, value):
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def body(self):
        return json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")

    def do_POST(self):
        body = self.body()
        if self.path.endswith("/runs"):
            RUNS.setdefault(body["id"], {}).update(body)
            return self.answer({})
        for run in RUNS.values():
            output = (run.get("outputs") or {}).get("generations")
            if output:
                usage = output[0][0]["message"]["kwargs"]["usage_metadata"]
                run["prompt_tokens"], run["completion_tokens"] = usage["input_tokens"], usage["output_tokens"]
                run["total_tokens"], run["total_cost"] = usage["total_tokens"], 0.001
            if run.get("parent_run_id") is None and not run.get("error"):
                run["feedback_stats"] = {"correctness": {"n": 1, "avg": 1.0}}
            run.pop("attachments", None)
            run.setdefault("session_id", "00000000-0000-0000-0000-000000000000")
        self.answer({"runs": list(RUNS.values()), "cursors": {}})

    def do_PATCH(self):
        RUNS[self.path.rpartition("/")[2]].update(
            {name: value for name, value in self.body().items() if value is not None}
        )
        self.answer({})

    def do_GET(self):
        self.answer({"version": "0", "instance_flags": {}})

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
os.environ["LANGSMITH_TRACING"] = "false"
client = Client(
    api_url=f"http://127.0.0.1:{server.server_port}", api_key="none", auto_batch_tracing=False, info={}
)


@tool
def add(x: int, y: int) -> int:
    """Add two numbers."""
    if x == 13:
        raise ValueError("thirteen")
    return x + y


class State(TypedDict):
    messages: Annotated[list, add_messages]


def said(text, id, *calls):
    usage = {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18}
    return AIMessage(
        text,
        id=id,
        tool_calls=list(calls),
        usage_metadata=usage,
        response_metadata={"model_name": "scripted-1", "finish_reason": "tool_calls" if calls else "stop"},
    )


def asked(id, **arguments):
    return said(
        "I add them.", id, {"name": "add", "args": arguments, "id": f"call-{id}", "type": "tool_call"}
    )


def graph_of(*replies, checkpointer=None):
    model = GenericFakeChatModel(messages=iter(replies))

    def think(state):
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(State)
    graph.add_node("think", think)
    graph.add_node("tools", ToolNode([add], handle_tool_errors=False))
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", lambda s: "tools" if s["messages"][-1].tool_calls else END)
    graph.add_edge("tools", "think")
    return graph.compile(checkpointer=checkpointer, name="sums")


question = {"messages": [HumanMessage("What is 2 + 3?", id="question")]}
tracer = LangChainTracer(client=client, project_name="sums")
collector = RunCollectorCallbackHandler()
right = graph_of(asked("a1", x=2, y=3), said("5", "a2"))
right.invoke(question, {"callbacks": [tracer, collector]})
with contextlib.suppress(ValueError):
    graph_of(asked("b1", x=13, y=3)).invoke(question, {"callbacks": [tracer]})
tracer.wait_for_futures()
client.flush()


def small(run):
    """Without the traceback, the environment and what is empty."""
    run["extra"] = {name: (run.get("extra") or {}).get(name) for name in ("invocation_params",)}
    if run.get("error"):
        run["error"] = run["error"][:60]
    return {
        name: value
        for name, value in run.items()
        if value not in (None, [], {}, {"invocation_params": None})
        and name not in ("serialized", "events", "manifest_id", "app_path")
    }


runs = [small(json.loads(run.model_dump_json())) for run in client.list_runs(run_ids=list(RUNS))]
(HERE / "langsmith.jsonl").write_text("".join(json.dumps(run) + "\n" for run in runs))

checkpointer = InMemorySaver()
thread = {"configurable": {"thread_id": "1"}}
graph = graph_of(asked("a1", x=2, y=3), said("5", "a2"), said("It is 5.", "a3"), checkpointer=checkpointer)
graph.invoke(question, thread)
before = next(state for state in graph.get_state_history(thread) if len(state.values["messages"]) == 3)
graph.invoke(None, before.config)
history = list(graph.get_state_history(thread))
(HERE / "langgraph.json").write_text(json.dumps([dumpd(state._asdict()) for state in history], default=str))


def checkpoint(config):
    if config is None:
        return None
    held = config["configurable"]
    return {name: held[name] for name in ("thread_id", "checkpoint_ns", "checkpoint_id")}


sdk = [
    {
        "values": {"messages": [message.model_dump(mode="json") for message in state.values["messages"]]},
        "next": list(state.next),
        "tasks": [],
        "checkpoint": checkpoint(state.config),
        "metadata": state.metadata,
        "created_at": state.created_at,
        "parent_checkpoint": checkpoint(state.parent_config),
        "interrupts": [],
    }
    for state in history
    if state.values.get("messages")
]
(HERE / "langgraph_sdk.json").write_text(json.dumps(sdk, default=str))
for name in ("langsmith.jsonl", "langgraph.json", "langgraph_sdk.json"):
    print(name, (HERE / name).stat().st_size)
