"""The attributes of spans are those that the packages of the conventions define today, with their types."""

import json
import subprocess

from support import TASK, Scripted, run, wait
from support.otlp import spans_of
from support.venvs import python_with

import tot_lab as tl
from tot_lab.core.calls import Reply, ToolCall
from tot_lab.testing import legs

NAMES = """
import json
from openinference.semconv import resource, trace as openinference
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes, error_attributes

held = {}
for owner in (gen_ai_attributes, error_attributes):
    held |= {name: value for name, value in vars(owner).items() if isinstance(value, str)}
for kind in vars(openinference).values():
    if isinstance(kind, type):
        values = [getattr(one, "value", one) for one in vars(kind).values()]
        held |= {f"{kind.__name__}.{value}": value for value in values if isinstance(value, str)}
providers = [one.value for one in gen_ai_attributes.GenAiProviderNameValues]
operations = [one.value for one in gen_ai_attributes.GenAiOperationNameValues]
kinds = [one.value for one in openinference.OpenInferenceSpanKindValues]
project = resource.ResourceAttributes.PROJECT_NAME
print(json.dumps([sorted(set(held.values())), providers, operations, kinds, project]))
"""


def test_each_name_is_defined_by_the_packages():
    python = python_with(
        "openinference-semantic-conventions>=0.1.30,<1", "opentelemetry-semantic-conventions>=0.60b0,<1"
    )
    out = subprocess.run([python, "-c", NAMES], capture_output=True, text=True, check=True).stdout
    names, providers, operations, kinds, project = json.loads(out)
    calls = (ToolCall("1", "legs", '{"animal": "duck"}'),)
    reply = Reply("Answer: 26", thinking="hm", tool_calls=calls, finish_reason="stop", cost=0.1)
    spans = [
        *spans_of(wait(tl.Lab(Scripted(), runs=None, tools=[legs]).run(tl.ReAct(), TASK))),
        *spans_of(run(tl.OneAnswer(), model=Scripted(lambda call: reply))),
        *spans_of(run(tl.TreeOfThoughts(), tl.game24("4 9 10 13"), "sim/game24")),
    ]
    assert {span.attributes["openinference.span.kind"] for span in spans} <= {*kinds}
    assert {span.attributes.get("gen_ai.operation.name") for span in spans} - {None} <= {*operations}
    assert project == "openinference.project.name"
    for span in spans:
        for name in [*span.attributes, *(name for event in span.events for name in event.attributes)]:
            parts = name.split(".")
            if parts[0] == "tot_lab":
                continue
            while parts:  # a name, or names of a list, its items and their fields, one after the other
                if parts[0].isdigit():
                    parts = parts[1:]
                    continue
                known = [n for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in names]
                assert known, (name, parts)
                parts = parts[known[0] :]
    from tot_lab.interop.spans import _PROVIDERS

    assert {*_PROVIDERS.values()} <= {*providers}
