"""The places of settings: files, and whether the user has approved them.

A project file may come from a stranger's repository. An approval holds for its content and its path. Files of
other users are ignored.
"""

from __future__ import annotations

import hashlib
import os
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tot_lab.core.files import config_folder, data_folder

FILE = "tot_lab.toml"
"""Name of a settings file."""

PREFIX = "TOT_LAB_"
"""Prefix of the environment variables."""

ADVICE = "Read the file; if you trust it, approve it with: tot-lab trust {}"
"""The end of the message about a file that is not approved."""


class SettingsError(ValueError):
    """A setting that cannot be used. The message names its place and the setting."""


class Place(NamedTuple):
    """The settings of one place.

    `is_approved` tells whether it may combine any server with any key: true for every place but a project
    file that the user has not approved.
    """

    name: str
    values: dict[str, Any]
    is_approved: bool = True


DEFAULT = Place("default", {})
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


def project_file(folder: Path) -> Path | None:
    """Return the project file that applies in `folder`, or `None` if only the user's own file does."""
    return next((path for path in settings_files(folder) if path != config_folder() / FILE), None)


def approval_of(path: Path, content: bytes) -> Path:
    """Return the file that records the approval of this content at `path`.

    As with `direnv allow`, a file that changes or moves needs a new approval.
    """
    place = path.parent.resolve() / path.name
    digest = hashlib.sha256(os.fsencode(place) + b"\0" + content).hexdigest()
    return data_folder() / "trusted" / digest


def in_file(path: Path, content: bytes | None = None) -> Place:
    """Return the settings in a file, or in its `content` if that was read already."""
    if content is None:
        content = path.read_bytes()  # read once, so that the approved content is the content in use
    try:
        values = tomllib.loads(content.decode())
    except ValueError as error:  # invalid TOML or UTF-8
        raise SettingsError(f"{path}: {error}") from None
    except RecursionError:
        raise SettingsError(f"{path}: the file is nested too deeply.") from None
    if isinstance(values.get("cache"), str):
        values["cache"] = path.parent / Path(values["cache"]).expanduser()
    for tool in values["tools"] if isinstance(values.get("tools"), list) else ():
        if isinstance(tool, dict) and isinstance(tool.get("root"), str):
            tool["root"] = str(path.parent / Path(tool["root"]).expanduser())
    return Place(str(path), values, path == config_folder() / FILE or approval_of(path, content).is_file())
