"""The methods of a Deep Think's result that `views` implements and attaches (`tot_lab.core.attach`)."""


class DeepThoughtMethods:
    """Base of `DeepThought` with its report and its display."""
