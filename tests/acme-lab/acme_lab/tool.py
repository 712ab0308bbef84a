"""Tools: a class with settings, a typed function with and without `tl.tool`, and several under one name."""

import tot_lab as tl


class Reverse(tl.Tool):
    """Reverses a text."""

    kind = "acme_reverse"
    name: str = "reverse"

    def carry_out(self, arguments, context):
        return arguments["text"][::-1]


@tl.tool
def search_of_acme(words: str) -> str:
    """Searches for words."""
    return f"nothing about {words}"


def legs(spiders: int) -> int:
    """Counts legs."""
    return 8 * spiders


TOOLS = [Reverse(), search_of_acme]
