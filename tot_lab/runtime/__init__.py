"""Carrying a run out: driver, budget, recorder, replay, branches and the gateway to models and tools."""
