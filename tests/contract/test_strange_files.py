"""Files that a stranger may put where a reader looks: what is no regular file is refused at once."""

import os
import signal
import socket
from pathlib import Path

import pytest
from support import TASK, Scripted, wait

import tot_lab as tl
from tot_lab.core.registry import built_in

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs FIFOs")


def run_in(folder):
    return wait(tl.Lab(Scripted(), runs=folder).run(tl.OneAnswer(), TASK))


READERS = {
    "load a.jsonl": tl.load,
    "load a.json": tl.load,
    "load a.eval": tl.load,
    "load a.parquet": tl.load,
    "nodes.jsonl": tl.read_nodes,
    "nodes.json": tl.read_nodes,
    "tasks.jsonl": tl.tasks,
    "tasks.json": tl.tasks,
    "tasks.csv": tl.tasks,
    "tasks.jsonl.gz": tl.tasks,
    "tasks.parquet": tl.tasks,
    "calls.jsonl.gz": tl.Cache,
    "resume a.jsonl": lambda path: wait(tl.Lab(Scripted()).resume(path)),
    **{f"importer {name}": importer.read for name, importer in built_in("importers").items()},
}


@pytest.fixture(autouse=True)
def _at_once():
    """A reader that waits for a writer is interrupted."""

    def interrupt(*_):
        raise TimeoutError("the reader waits")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(params=["fifo", "device", "socket", "link to a fifo", "link to a device"])
def strange(request):
    """Makes a file that is not a regular one."""
    sockets = []

    def made(path):
        kind = request.param
        at = path.with_name(f"{path.name}-target") if kind.startswith("link") else path
        if kind.endswith("fifo"):
            os.mkfifo(at)
        elif kind == "socket":
            sockets.append(socket.socket(socket.AF_UNIX))
            os.chdir(path.parent)  # an address has at most 107 bytes
            sockets[-1].bind(path.name)
        if kind == "device":
            try:
                os.mknod(path, 0o20666, os.makedev(1, 3))
            except OSError as error:
                pytest.skip(f"needs the right to make a device: {error}")
        elif kind.startswith("link"):
            path.symlink_to("/dev/null" if kind.endswith("device") else at)
        return path

    where = Path.cwd()
    yield made
    os.chdir(where)
    for one in sockets:
        one.close()


@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_regular_file_is_refused_by_name(tmp_path, strange, reader):
    path = strange(tmp_path / reader.split()[-1])
    with pytest.raises((OSError, tl.errors.CacheError), match=r"(?i)not a regular file") as caught:
        READERS[reader](path)
    assert path.name in str(caught.value)
    assert not isinstance(caught.value, TimeoutError)


@pytest.mark.parametrize("reader", [name for name in READERS if not name.startswith("load")])
def test_a_folder_in_place_of_a_file_is_refused(tmp_path, reader):
    path = tmp_path / reader.split()[-1]
    path.mkdir()
    with pytest.raises((OSError, tl.errors.CacheError), match=r"(?i)directory"):
        READERS[reader](path)


def test_a_folder_of_runs_is_loaded_without_what_is_no_file(tmp_path, strange):
    made = run_in(tmp_path)
    strange(tmp_path / "0.jsonl")
    strange(tmp_path / "z.json")
    assert [run.id for run in tl.load(tmp_path)] == [made.id]


def test_marks_that_are_no_file_are_refused(tmp_path, strange):
    made = run_in(tmp_path)
    strange(made.path.with_suffix(".marks.json"))
    with pytest.raises(OSError, match=r"Not a regular file.*\.marks\.json"):
        tl.load(made.path).marks  # noqa: B018


def test_a_journal_of_a_sweep_that_is_no_file_is_refused(tmp_path, strange):
    lab = tl.Lab(Scripted(), runs=tmp_path)
    sweep = wait(lab.sweep(tl.OneAnswer(), [TASK], name="s"))
    path = sweep.path(sweep.cells[0])
    path.unlink()
    strange(path)
    (error,) = wait(lab.sweep(tl.OneAnswer(), [TASK], name="s")).df().error
    assert "Not a regular file" in error
    assert path.name in error


def test_settings_that_are_no_file_are_not_read(tmp_path, strange):
    (tmp_path / "below").mkdir()
    strange(tmp_path / "below" / "tot_lab.toml")
    (tmp_path / "tot_lab.toml").write_text('model = "sim/general"\n')
    settings = tl.Settings.read(tmp_path / "below")
    assert settings.files == (tmp_path / "tot_lab.toml",)


@pytest.mark.parametrize("store", [tl.PlanStore, tl.Lessons])
def test_a_database_that_is_no_file_is_refused(tmp_path, strange, store):
    path = strange(tmp_path / "x.db")
    with pytest.raises(Exception, match=r"x\.db") as caught:
        store(path)
    assert not isinstance(caught.value, TimeoutError)
