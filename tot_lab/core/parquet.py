"""Reading tables in Parquet, which requires pyarrow (extra `parquet`)."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tot_lab.core.extras import requires

MAGIC = b"PAR1"
"""The first and the last bytes of a Parquet file."""


def parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file.

    Raises:
        ImportError: If pyarrow is not installed.
        OSError: If the file cannot be opened.
        ValueError: If it is damaged. The message names the file.
    """
    if find_spec("pyarrow") is None:
        raise ImportError(f"{requires(str(path), 'pyarrow', 'parquet')}.")
    from pyarrow import ArrowException, parquet  # noqa: PLC0415

    with path.open("rb") as file:
        try:
            for batch in parquet.ParquetFile(file).iter_batches():
                yield from batch.to_pylist()
        except (ArrowException, OSError, ValueError) as error:
            raise ValueError(f"{path}: not a readable Parquet file: {error}") from None


def parquet_footer(path: Path, size: int) -> bytes:
    """Return the beginning of the footer of a Parquet file, where the columns are named.

    Args:
        path: A file that begins with `MAGIC`.
        size: The most bytes to return.
    """
    with path.open("rb") as file:
        end = max(path.stat().st_size - 8, 0)  # the length of the footer and the magic bytes follow it
        file.seek(end)
        start = max(end - int.from_bytes(file.read(4), "little"), 0)
        file.seek(start)
        return file.read(min(size, end - start))
