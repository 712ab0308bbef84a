"""Execution of runs: driver, budget, recorder, replay, branches, and the gateway to models and tools."""

from tot_lab.core.attach import attach
from tot_lab.record.methods import RunMethods

attach(RunMethods, "tot_lab.runtime.replay", "replay")
