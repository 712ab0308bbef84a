"""The places of settings: an option, the environment, and files.

A project file may come from a stranger's repository. Files of other users are ignored.
"""

from __future__ import annotations

import os
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tot_lab.core.files import config_folder, read_regular

FILE = "tot_lab.toml"
"""Name of a settings file."""

PREFIX = "TOT_LAB_"
"""Prefix of the environment variables."""


class SettingsError(ValueError):
    """A setting that cannot be used. The message names its place and the setting."""


class SettingsSource(NamedTuple):
    """The settings of one place. `is_project` is true for a file that is not the user's own."""

    name: str
    values: dict[str, Any]
    is_project: bool = False


DEFAULT = SettingsSource("default", {})
"""The place of settings that nobody gave."""


def settings_files(folder: Path) -> Iterator[Path]:
    """Yield the nearest settings file in `folder` or above it, then the user's own."""
    above = (place / FILE for place in (folder, *folder.parents))
    nearest = next((path for path in above if path.is_file() and is_trusted_owner(path)), None)
    own = config_folder() / FILE
    if nearest is not None:
        yield nearest
    if own.is_file() and own != nearest:
        yield own


def is_trusted_owner(path: Path) -> bool:
    """Whether a file belongs to this user or to the system.

    In a shared folder anybody could add a file that sends prompts and a key to another server.
    """
    if not hasattr(os, "getuid") or path.stat().st_uid in (os.getuid(), 0):
        return True
    warnings.warn(f"{path}: ignored, since it belongs to another user.", RuntimeWarning, stacklevel=5)
    return False


def in_file(path: Path) -> SettingsSource:
    """Return the settings in a file."""
    try:
        values = tomllib.loads(read_regular(path).decode())
    except ValueError as error:  # invalid TOML or UTF-8
        hint = '. A text needs quotes, as in model = "ollama"' if "Invalid value" in str(error) else ""
        raise SettingsError(f"{path}: {error}{hint}") from None
    except RecursionError:
        raise SettingsError(f"{path}: the file is nested too deeply.") from None
    if isinstance(values.get("cache"), str):
        values["cache"] = path.parent / Path(values["cache"]).expanduser()
    for tool in values["tools"] if isinstance(values.get("tools"), list) else ():
        if isinstance(tool, dict) and isinstance(tool.get("root"), str):
            tool["root"] = str(path.parent / Path(tool["root"]).expanduser())
    return SettingsSource(str(path), values, is_project=path != config_folder() / FILE)
