"""Reading tables in Parquet, which requires pyarrow (extra `parquet`).

A small file can hold billions of rows, or rows of any size, and its metadata may be false. Therefore a
process with limits on memory and time first reads the file and measures its rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tot_lab.core.extras import requires
from tot_lab.core.files import most_unpacked, open_regular, too_large
from tot_lab.core.processes import Failed, Killed, Worker

MAGIC = b"PAR1"
"""The first and the last bytes of a Parquet file."""

_SECONDS = 30
_BATCH = 256
"""Rows that are decoded at once."""

_MEASURING = Worker("""
import pyarrow
from pyarrow import parquet

def answer(request):
    path, most, batch_size = request
    size = 0
    try:
        for batch in parquet.ParquetFile(path).iter_batches(batch_size, use_threads=False):
            size += 64 * len(batch)
            for column in batch.columns:
                is_shared = any(word in str(column.type) for word in ("dictionary", "view", "run_end"))
                size += len(repr(column.to_pylist())) if is_shared else column.nbytes
            if size > most:
                return False
    except MemoryError:
        return False
    return True
""")
"""Process that returns whether the rows of a file take at most a given number of bytes."""


def parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file.

    Raises:
        ImportError: If pyarrow is not installed.
        OSError: If the file cannot be opened.
        ValueError: If it is damaged, or its rows take more bytes than `most_unpacked` allows. The message
            names the file.
    """
    if find_spec("pyarrow") is None:
        raise ImportError(f"{requires(str(path), 'pyarrow', 'parquet')}.")
    from pyarrow import ArrowException, parquet  # noqa: PLC0415

    with open_regular(path) as file:
        size = path.stat().st_size
        most = most_unpacked(size)
        try:
            fits = _MEASURING.request([str(path.absolute()), most, _BATCH], _SECONDS + size / 2**20)
        except Killed:
            fits = False
        except Failed as error:
            raise ValueError(f"{path}: not a readable Parquet file: {error}") from None
        if not fits:
            raise ValueError(too_large(path, most, "read it with pandas and save the rows as JSON Lines"))
        try:
            for batch in parquet.ParquetFile(file).iter_batches(_BATCH):
                yield from batch.to_pylist()
        except (ArrowException, OSError, ValueError) as error:
            raise ValueError(f"{path}: not a readable Parquet file: {error}") from None


def parquet_footer(path: Path, size: int) -> bytes:
    """Return the beginning of the footer of a Parquet file, which names the columns.

    Args:
        path: A file that begins with `MAGIC`.
        size: The most bytes to return.
    """
    with open_regular(path) as file:
        end = max(path.stat().st_size - 8, 0)  # the length of the footer and the magic bytes follow it
        file.seek(end)
        start = max(end - int.from_bytes(file.read(4), "little"), 0)
        file.seek(start)
        return file.read(min(size, end - start))
