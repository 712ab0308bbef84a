"""A proposer."""

import tot_lab as tl


class Two(tl.Sample):
    """Samples two thoughts."""

    kind = "acme_two"

    count: int = 2
    """Children per thought."""
