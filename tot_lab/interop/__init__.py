"""Bridges to Inspect, OpenTelemetry, and the experiment trackers MLflow and Weights & Biases.

Each bridge needs an optional package, which it imports at its first use. Nothing here is needed to run a
strategy; only `apps` and the package root import this package.
"""

from tot_lab.core.attach import attach
from tot_lab.lab.sweeps.methods import SweepMethods

attach(SweepMethods, "tot_lab.interop.inspect_logs", "save_inspect")
