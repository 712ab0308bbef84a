"""The message about a package that is not installed, so that it has the same words everywhere."""

from __future__ import annotations


def requires(what: str, package: str, extra: str) -> str:
    """Return the message that `what` requires `package`, with the command that installs it. It has no final
    period.
    """
    return f"{what} requires {package}: pip install 'tot-lab[{extra}]'"
