"""Tools that read and write files below one folder, the root.

No path can reach a file outside the root. To read a file, its path is resolved first and then opened folder
by folder without following symbolic links, so that a link that is created in between has no effect. Only
regular files are read. Writing follows no symbolic links, and a file is written completely or not at all.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from io import StringIO
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator

from tot_lab.core.tool import Arguments, Effects, Name, Tool, fitting, schema_of

MAX_LISTED = 1_000  # maximum files of a listing


class _Lines(Arguments):
    path: Annotated[str, Field(description="of a file, below the root")]
    first_line: Annotated[int, Field(ge=1, description="counted from 1")] = 1
    last_line: Annotated[int | None, Field(ge=1, description="null = the last of the file")] = None


class _Content(Arguments):
    path: Annotated[str, Field(description="of the file, below the root")]
    content: Annotated[str, Field(description="the whole text of the file")]


class _Pattern(Arguments):
    pattern: Annotated[str, Field(description="of paths below the root, such as *.md or src/*")] = "*"


class _UnderRoot(Tool):
    """Base of tools that see only the files of one folder."""

    effects: Effects = ("files",)
    retries: int = 0
    root: str
    """Folder that contains the files. Paths in tool calls are relative to it."""

    @field_validator("root", mode="before")
    @classmethod
    def _as_text(cls, root: Any) -> Any:
        return os.fspath(root) if isinstance(root, os.PathLike) else root

    @field_validator("root")
    @classmethod
    def _is_folder(cls, root: str) -> str:
        if not Path(root).is_dir():
            raise ValueError(f"root must be a folder: got {root!r}.")
        return root


class ReadFile(_UnderRoot):
    """Reads a text file below `root`, whole or a range of its lines. A symbolic link that leads out of `root`
    is an error.
    """

    kind: ClassVar[str] = "read_file"
    name: Name = "read-file"
    description: str = "Reads a text file, whole or from one line to another."
    parameters: dict[str, Any] = schema_of(_Lines)
    max_bytes: Annotated[int, Field(ge=1)] = 10_000_000
    """Maximum size of a file in bytes."""

    def carry_out(self, arguments: dict[str, Any], context: Mapping[str, Any]) -> str:
        given = fitting(arguments, _Lines)
        with opened(self.root, given.path) as file:
            size = os.fstat(file).st_size
            if size > self.max_bytes:
                raise ValueError(f"{given.path} has {size:,} bytes; {self.max_bytes:,} are the most")
            with os.fdopen(os.dup(file), "rb") as reader:
                data = reader.read(self.max_bytes)
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = "\0"
        if "\0" in text:
            raise ValueError(f"{given.path} is no text: a binary file of {size:,} bytes")
        if given.first_line == 1 and given.last_line is None:
            return text
        lines = list(StringIO(text))  # unlike `splitlines`, this does not end a line at a form feed
        chosen = lines[given.first_line - 1 : given.last_line]
        if not chosen:
            raise ValueError(f"{given.path} has {len(lines):,} lines")
        return "".join(chosen)


class WriteFile(_UnderRoot):
    """Writes text files below `root`. Missing folders are created.

    Its effect is `file-write`, which is denied unless an effect policy allows it: `tl.Lab(…,
    tools=[tl.tools.WriteFile(root="out")], effect_policy=tl.EffectPolicy(allow={"file-write"}))`. Symbolic
    links are not followed, and no part of a path may begin with a dot. A file appears completely or not at
    all, even if the process is killed.
    """

    kind: ClassVar[str] = "write_file"
    aliases: ClassVar[tuple[str, ...]] = ("file-write",)
    needs_permission: ClassVar[bool] = True
    name: Name = "write-file"
    description: str = "Writes a text to a file."
    parameters: dict[str, Any] = schema_of(_Content)
    effects: Effects = ("file-write",)
    output: bool = True
    max_bytes: Annotated[int, Field(ge=1)] = 1_000_000
    """Maximum size of a file in bytes of UTF-8."""

    overwrite: bool = False
    """Whether existing files are replaced. Otherwise writing to one is an error that the model reads."""

    def carry_out(self, arguments: dict[str, Any], context: Mapping[str, Any]) -> str:
        given = fitting(arguments, _Content)
        *folders, name = _parts(given.path)
        data = given.content.encode()
        if len(data) > self.max_bytes:
            raise ValueError(
                f"{given.path[:80]}: got {len(data):,} bytes. At most {self.max_bytes:,} can be written."
            )
        try:
            place = _folder_below(self.root, folders, make=True)
            try:
                self._put(name, data, place)
            finally:
                os.close(place)
        except OSError as error:
            raise type(error)(f"{given.path[:80]}: {os.strerror(error.errno or 0)}") from None
        return f"wrote {given.path} ({len(data):,} bytes)"

    def _put(self, name: str, data: bytes, place: int) -> None:
        """Write `data` to the file `name` of the open folder `place`, atomically."""
        if self.overwrite:
            with suppress(FileNotFoundError):
                if not stat.S_ISREG(os.lstat(name, dir_fd=place).st_mode):
                    raise ValueError(f"{name[:80]} is no plain file")
        draft = f".{secrets.token_hex(8)}.tmp"
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666, dir_fd=place)
        try:
            with os.fdopen(file, "wb") as writer:
                writer.write(data)
                writer.flush()
                os.fsync(writer.fileno())
            if self.overwrite:
                os.replace(draft, name, src_dir_fd=place, dst_dir_fd=place)
            else:  # atomic: creating the link fails if the name exists
                os.link(draft, name, src_dir_fd=place, dst_dir_fd=place, follow_symlinks=False)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=place)


def _parts(path: str) -> tuple[str, ...]:
    """Return the folder names and the file name of a path below the root. Raises ValueError if the path is
    absolute, or contains `..`, a backslash or a name that begins with a dot.
    """
    plain = PurePosixPath(path)
    if "\0" in path or "\\" in path or plain.is_absolute() or ".." in plain.parts or not plain.parts:
        raise ValueError(f"{path[:80]!r} must be a path below the root, such as notes/today.md")
    if any(name.startswith(".") for name in plain.parts):
        raise ValueError(f"{path[:80]!r}: no part of it may begin with a dot. Choose another name.")
    return plain.parts


def _folder_below(root: str, names: Sequence[str], *, make: bool = False) -> int:
    """Open the folder `root/names[0]/names[1]/…` without following links below `root`, and return its file
    descriptor. With `make`, missing folders are created. Raises OSError.
    """
    place = os.open(Path(root).resolve(), os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in names:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=place)
            below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place)
            os.close(place)
            place = below
    except OSError:
        os.close(place)
        raise
    return place


class ListFiles(_UnderRoot):
    """Lists the files below `root`, one per line with its size. Symbolic links are listed, not followed."""

    kind: ClassVar[str] = "list_files"
    name: Name = "list-files"
    description: str = "Lists the files there are, each with its size."
    parameters: dict[str, Any] = schema_of(_Pattern)

    def carry_out(self, arguments: dict[str, Any], context: Mapping[str, Any]) -> str:
        pattern = fitting(arguments, _Pattern).pattern
        found = []
        for path, about in files_under(self.root):
            if fnmatch(path, pattern):
                found.append(f"{path} ({_describe(about)})")
            if len(found) > MAX_LISTED:
                return "\n".join([*found[:-1], f"… (more than {MAX_LISTED:,}; give a narrower pattern)"])
        return "\n".join(found) or f"no file matches {pattern!r}"


def files_under(root: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the path relative to `root` and the `lstat` of each file below `root`, in order of folder and
    name.
    """
    for folder, folders, names, place in os.fwalk(root):
        folders.sort()
        for name in sorted([*names, *folders]):
            with suppress(FileNotFoundError):  # deleted in the meantime
                about = os.lstat(name, dir_fd=place)
                if not stat.S_ISDIR(about.st_mode):
                    yield Path(folder, name).relative_to(root).as_posix(), about


def _describe(about: os.stat_result) -> str:
    if stat.S_ISREG(about.st_mode):
        return f"{about.st_size:,} bytes"
    return "a link" if stat.S_ISLNK(about.st_mode) else "no plain file"


@contextmanager
def opened(root: str, path: str) -> Iterator[int]:
    """Open the file `path` below `root` for reading, and yield its descriptor.

    Raises:
        ValueError: If the path leads out of `root`, or the file is not a regular file.
        FileNotFoundError: If the file cannot be opened.
    """
    if "\0" in path or "\\" in path or PurePosixPath(path).is_absolute():
        raise ValueError(f"{path[:80]!r} must be a path below the root, such as notes/today.md")
    home = Path(root).resolve()
    try:
        real = (home / path).resolve()
    except (OSError, RuntimeError):  # a cycle of links
        raise ValueError(f"{path[:80]} leads nowhere") from None
    if not real.is_relative_to(home):
        raise ValueError(f"{path[:80]} lies outside the files that may be read")
    *folders, last = real.relative_to(home).parts or (".",)
    try:
        place = _folder_below(root, folders)
        try:
            if not stat.S_ISREG(os.stat(last, dir_fd=place, follow_symlinks=False).st_mode):
                raise ValueError(f"{path[:80]} is no plain file")
            file = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place)
        finally:
            os.close(place)
    except OSError as error:
        raise FileNotFoundError(f"{path[:80]}: {os.strerror(error.errno or 0)}") from None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):  # it was replaced in the meantime
            raise ValueError(f"{path[:80]} is no plain file")
        yield file
    finally:
        os.close(file)
