"""Bridges to Inspect, OpenTelemetry, and the experiment trackers MLflow and Weights & Biases.

Each bridge needs an optional package, which it imports at its first use. Nothing here is needed to run a
strategy. Only the package root imports this package. The modules are imported at their first use, by their
names in `tot_lab.core.registry` and in the package root.
"""

from tot_lab.core.attach import attach
from tot_lab.lab.sweeps.sweep_methods import SweepMethods

attach(SweepMethods, "tot_lab.interop.inspect_logs", "save_inspect")
