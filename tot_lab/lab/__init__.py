"""Lab, sweeps, settings, sessions and stores: the interface that a notebook uses."""

from tot_lab.core.attach import attach
from tot_lab.core.strategy_methods import StrategyMethods
from tot_lab.record.run_methods import RunMethods

attach(RunMethods, "tot_lab.lab.plan_store", properties=("plans",))
attach(StrategyMethods, "tot_lab.lab.preview", "preview")
