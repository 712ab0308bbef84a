"""The methods of a strategy that other subpackages implement and attach (`tot_lab.core.attach`)."""


class StrategyMethods:
    """Base of `Strategy` with its preview. It keeps `import tot_lab` from importing the strategies."""
