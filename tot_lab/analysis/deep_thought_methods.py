"""The methods of a Deep Think's result that `views` implements and attaches (`tot_lab.core.attach`)."""


class DeepThoughtMethods:
    """Base of `DeepThought`. `views` attaches `report`, `report_html` and the display in a notebook to it."""
