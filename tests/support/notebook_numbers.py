"""A pytest plugin: nbval compares the numbers in the figures of notebooks to ten digits.

The last digits of a sum depend on the processor.
"""

import base64
from copy import deepcopy

import numpy as np
from nbval.plugin import IPyNbCell

PLOTLY = "application/vnd.plotly.v1+json"


def rounded(value):
    """Return a value of a Plotly figure with its numbers rounded to ten significant digits."""
    if isinstance(value, dict) and {"bdata", "dtype"} <= value.keys():
        numbers = np.frombuffer(base64.b64decode(value["bdata"]), dtype=value["dtype"])
        return {**value, "bdata": rounded(numbers.tolist())}
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [rounded(inner) for inner in value]
    return f"{value:.10g}" if isinstance(value, float) else value


def _with_rounded_figures(outputs):
    outputs = deepcopy(outputs)
    for output in outputs:
        if PLOTLY in output.get("data", {}):
            output["data"][PLOTLY] = rounded(output["data"][PLOTLY])
    return outputs


def pytest_configure(config):
    exact = IPyNbCell.compare_outputs
    if exact.__module__ != __name__:

        def compare(cell, test, ref, skip_compare=None):
            return exact(cell, _with_rounded_figures(test), _with_rounded_figures(ref), skip_compare)

        compare.__module__ = __name__
        IPyNbCell.compare_outputs = compare
