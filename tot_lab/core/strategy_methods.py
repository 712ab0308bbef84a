"""The methods of a strategy that other subpackages implement and attach (`tot_lab.core.attach`)."""


class StrategyMethods:
    """Base of `Strategy`, to which `tot_lab.lab` attaches `preview`."""
