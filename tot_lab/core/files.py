"""Files: bounded reading of untrusted files, atomic writing, and where tot_lab's own files are stored.

Every file that may be untrusted is opened here, so that a FIFO or a device never blocks and a
compressed file never fills the memory. An existing file is replaced completely or not at all.
"""

from __future__ import annotations

import errno
import gzip
import os
import secrets
import stat
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_FREE = 64 * 2**20
_RATIO = 200


def most_unpacked(size: int) -> int:
    """Return the most bytes that a compressed file of `size` bytes may unpack to.

    It is 200 times `size`, but at least 64 MiB. Text compresses to a tenth of its size, and calls that share
    a long prompt to a hundredth. A file that unpacks to more was made to fill the memory.
    """
    return max(_FREE, _RATIO * size)


def too_large(path: str | os.PathLike[str], most: int, instead: str) -> str:
    """Return the message about a file that would unpack to more than `most` bytes, and what to do instead."""
    return (
        f"{path}: it would unpack to more than {most:,} bytes. The limit is {_FREE >> 20} MiB, or {_RATIO} "
        f"times the size of the file if that is more. If you trust the file, {instead}."
    )


def files_below(folder: Path) -> Iterator[Path]:
    """Yield the files in `folder` and its subfolders, sorted by name. Hidden folders and links to folders
    are left out.
    """
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(place) / name for name in sorted(names))


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file, or a link to one, for reading.

    Raises:
        OSError: If it cannot be opened, or is not a regular file. A FIFO without a writer does not block.
    """
    name = os.fspath(path)
    mode = Path(path).stat().st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "Not a regular file: a FIFO, a socket or a device is not read", name)
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
    return open(path, "rb", opener=lambda name, _: os.open(name, flags))


def read_regular(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a regular file. Raises OSError like `open_regular`."""
    with open_regular(path) as file:
        return file.read()


def read_gzip(path: str | os.PathLike[str]) -> bytes:
    """Return the contents of a gzip file.

    Raises:
        OSError: If it cannot be opened.
        ValueError: If it is damaged, or unpacks to more bytes than `most_unpacked` allows. The message names
            the file.
    """
    with open_regular(path) as packed:
        most = most_unpacked(os.fstat(packed.fileno()).st_size)
        try:
            data = gzip.GzipFile(fileobj=packed).read(most + 1)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(f"{path}: not a complete gzip file: {error}.") from None
    if len(data) > most:
        raise ValueError(too_large(path, most, "unpack it with gunzip and load the result"))
    return data


def write_whole(path: str | os.PathLike[str], data: bytes) -> Path:
    """Write a file atomically, and create its folder if it is missing."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return target


def data_folder() -> Path:
    """Return the folder of tot_lab in the user's data directory."""
    return _user_folder("LOCALAPPDATA", "AppData/Local", "XDG_DATA_HOME", ".local/share")


def config_folder() -> Path:
    """Return the folder of tot_lab in the user's configuration directory."""
    return _user_folder("APPDATA", "AppData/Roaming", "XDG_CONFIG_HOME", ".config")


def _user_folder(windows: str, windows_default: str, others: str, others_default: str) -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "tot_lab"
    is_windows = sys.platform == "win32"
    variable, default = (windows, windows_default) if is_windows else (others, others_default)
    return Path(os.environ.get(variable) or Path.home() / default) / "tot_lab"
