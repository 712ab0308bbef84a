"""Bridges to Inspect, OpenTelemetry, and the experiment trackers MLflow and Weights & Biases.

Each bridge needs an optional package, which it imports at its first use. Nothing here is needed to run a
strategy. Only the package root imports this package; `tot_lab.core.registry` names its parts.
"""

from tot_lab.core.attach import attach
from tot_lab.lab.sweeps.sweep_methods import SweepMethods

attach(SweepMethods, "tot_lab.interop.inspect_logs", "save_inspect")
