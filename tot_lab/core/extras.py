"""The message about a package that is not installed, so that it has the same words everywhere."""

from __future__ import annotations


def requires(what: str, package: str, extra: str) -> str:
    """Return that `what` requires `package`, and the command that installs it, without a final period."""
    return f"{what} requires {package}: pip install 'tot-lab[{extra}]'"
