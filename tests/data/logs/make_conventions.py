"""Prints `conventions.txt`: the names that the published conventions for traces of language models define.

    pip install openinference-semantic-conventions==0.1.42 opentelemetry-semantic-conventions==0.66b2
        opentelemetry-semantic-conventions-ai==0.5.1
    python tests/data/logs/make_conventions.py > tests/data/logs/conventions.txt

The constants of these packages are the authority: OpenInference's attributes, OpenTelemetry's for generative
AI and for exceptions, and those of OpenLLMetry that concern models, tools and workflows.
"""

import re

from openinference.semconv import trace
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv.attributes import error_attributes, exception_attributes
from opentelemetry.semconv_ai import SpanAttributes

OPENLLMETRY = re.compile(r"(gen_ai|llm|traceloop)\.")
SCOPES = {
    "openinference": [held for name, held in vars(trace).items() if name.endswith("Attributes")],
    "opentelemetry": [gen_ai_attributes, error_attributes, exception_attributes],
    "openllmetry": [SpanAttributes],
}

for source, scopes in SCOPES.items():
    names = {
        value
        for scope in scopes
        for name, value in vars(scope).items()
        if name.isupper() and isinstance(value, str)
    }
    for name in sorted(names):
        if source != "openllmetry" or OPENLLMETRY.match(name):
            print(source, name)
