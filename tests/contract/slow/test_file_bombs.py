"""Small files of a stranger that would take far more memory or time than their size: each is refused with the
limit and what to do, in a process that may take 3 GiB of memory.
"""

import gzip
import json
import os
import subprocess
import sys
import zipfile

import pytest
from support import ROOT

MIB = 2**20
ENVIRON = {**os.environ, "PYTHONPATH": str(ROOT)}


def packed(path, first, repeated, last=b""):
    """Write a file of 1 MB that unpacks to nearly 1 GB: the members of a gzip file follow one another."""
    path.write_bytes(gzip.compress(first) + 930 * gzip.compress(repeated) + gzip.compress(last))


def lines_of_nothing(path):
    packed(path, b"", b"\n" * MIB)


def one_line(path):
    packed(path, b'{"question": "', b"x" * MIB, b'"}\n')


def many_objects(path):
    packed(path, b'{"question": "x", "list": [', b"{}," * (MIB // 3), b"{}]}\n")


def one_cell(path):
    packed(path, b"question,answer\n", b"x," * (MIB // 2))


def archive(path):
    header = {"version": 2, "status": "success", "eval": {"task": "sums", "model": "m"}}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("header.json", json.dumps(header))
        with file.open("samples/1_epoch_1.json", "w") as sample:
            sample.write(b'{"id": 1, "epoch": 1, "metadata": {"a": [')
            for _ in range(300):
                sample.write(b"{}," * (MIB // 3))
            sample.write(b"{}]}}")


def parquet_of(table_of):
    def write(path):
        pa = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        schema, tables = table_of(pa)
        with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
            for table in tables:
                writer.write_table(table)
        assert path.stat().st_size < 3 * MIB

    return write


@parquet_of
def rows_of_nothing(pa):
    table = pa.table({"question": pa.nulls(10**7, pa.string())})
    return table.schema, [table] * 20


@parquet_of
def one_text_everywhere(pa):
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 10**6, pa.int32()), pa.array(["x" * MIB]))
    table = pa.table({"question": column, "run_type": column})
    return table.schema, [table]


@parquet_of
def a_text_that_repeats_itself(pa):
    table = pa.table({"question": pa.array(["x" * 2**26])})
    return table.schema, [table] * 20


@parquet_of
def one_list(pa):
    values = pa.DictionaryArray.from_arrays(pa.array([0] * 10**7, pa.int32()), pa.array(["x" * 10**5]))
    table = pa.table({"question": pa.ListArray.from_arrays(pa.array([0, 10**7], pa.int32()), values)})
    return table.schema, [table]


READING = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
import tot_lab as tl
try:
    list(map(repr, {}(sys.argv[1])))
except (ValueError, tl.errors.CacheError) as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs limits of memory")
@pytest.mark.parametrize(
    ("name", "reader", "write"),
    [
        ("a.jsonl.gz", "tl.tasks", lines_of_nothing),
        ("a.jsonl.gz", "tl.tasks", one_line),
        ("a.jsonl.gz", "tl.tasks", many_objects),
        ("a.json.gz", "tl.tasks", many_objects),
        ("a.csv.gz", "tl.tasks", one_cell),
        ("a.jsonl.gz", "tl.Cache", lines_of_nothing),
        ("a.jsonl.gz", "tl.Cache", many_objects),
        pytest.param("a.eval", "tl.load", archive, marks=pytest.mark.nightly),
        ("a.parquet", "tl.tasks", rows_of_nothing),
        *[
            pytest.param("a.parquet", "tl.tasks", write, marks=pytest.mark.nightly)
            for write in (one_text_everywhere, a_text_that_repeats_itself, one_list)
        ],
        pytest.param("a.parquet", "tl.load", one_text_everywhere, marks=pytest.mark.nightly),
    ],
)
def test_a_bomb_is_refused_with_the_limit_and_what_to_do(tmp_path, name, reader, write):
    write(tmp_path / name)
    done = subprocess.run(
        [sys.executable, "-c", READING.format(reader), name],
        cwd=tmp_path,
        env=ENVIRON,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"{name}: it would unpack to more than" in done.stdout
    assert "The limit is 64 MiB, or 200 times the size of the file" in done.stdout
    assert "If you trust the file" in done.stdout
