"""Completion of words after Tab, in bash, zsh and fish.

The shell starts `tot-lab` with the line typed so far, and argcomplete prints the words that may follow.
Arguments without a list of names are completed with files.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

from tot_lab.apps.cli.help import PRESETS, part_names, settings_of
from tot_lab.core.parts import Part, class_of
from tot_lab.core.protocol import Budget


def complete(parser: argparse.ArgumentParser) -> None:
    """Print the completions and exit if the shell requests completions. Otherwise do nothing."""
    if "_ARGCOMPLETE" not in os.environ:
        return
    import argcomplete  # noqa: PLC0415

    words: Any = _Words()  # no subclass of argcomplete's completer, so that argcomplete is imported only here
    argcomplete.autocomplete(parser, default_completer=words, always_complete_options="long")


class _Words:
    """Completes the names of components and their settings, and files everywhere else."""

    def __call__(self, prefix: str, action: argparse.Action, parsed_args: Any, **_: Any) -> list[str]:
        known = part_names()
        strategies = [*known["strategies"], *known["presets"]]
        given = [word for word in getattr(parsed_args, action.dest, None) or () if "=" not in word]
        match action.dest:
            case "strategy":
                found = [*strategies, *(_settings(given[-1]) if given else ())]
            case "model":
                found = _settings(given[0]) if given else known["models"][:-1]
            case "task" | "tasks" if not given:
                found = known["domains"]
            case "tools":
                found = [*known["tools"], *(_settings(given[-1]) if given else ())]
            case "budget":
                found = [f"{name}=" for name in Budget.model_fields]
            case "help":
                found = [name for names in known.values() for name in names]
            case _:
                from argcomplete.completers import FilesCompleter  # noqa: PLC0415

                return list(FilesCompleter()(prefix))
        return [word for word in found if word.startswith(prefix)]


def _settings(name: str) -> list[str]:
    """Return a component's settings as words: `search.width=`, or `search=mcts` for each possible value."""
    try:
        kind = type(PRESETS[name]()) if name in PRESETS else class_of(name, Part)
    except ValueError:
        return []
    return [
        word
        for path, values, _ in settings_of(kind)
        for word in ([f"{path}={value}" for value in values] if len(values) > 1 else [f"{path}="])
    ]
