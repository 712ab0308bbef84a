"""A cache that cannot be written is read, and a damaged one is named."""

import os
import random
import shutil
import subprocess
import sys
import threading
import warnings
from functools import partial

import pytest
from support import ROOT, TASK, TESTS, mostly_nightly, wait
from support.cached import calls_in, entry, searched
from support.endpoint import scripted

import tot_lab as tl
from tot_lab.models.entries import packed
from tot_lab.models.store import CacheError, Store

ENVIRON = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(TESTS)])}
SEARCH = tl.TreeOfThoughts(evaluate=tl.Value(samples=2))

KILLED = """
import os, sys
from support.cached import SEARCH, searched
from support.endpoint import scripted
end = scripted()
searched(end, sys.argv[1], SEARCH)
os.kill(os.getpid(), 9)
"""


def filled(folder, how):
    """A cache with the answers of one search: closed, killed, or killed and copied without the index of
    its write-ahead log."""
    if how == "closed":
        lab = tl.Lab(scripted(), runs=None, cache=folder)
        made = wait(lab.run(SEARCH, TASK))
        lab.gateway.cache.close()
        assert not list(folder.rglob("*-wal"))
        return made
    subprocess.run([sys.executable, "-c", KILLED, str(folder)], env=ENVIRON, check=False)
    (log,) = folder.rglob("*-wal")
    assert log.stat().st_size > 0
    if how == "copied":
        (folder / "1" / "cache.db-shm").unlink()
    return wait(tl.Lab(scripted(), runs=None, cache=folder.parent.parent / "same").run(SEARCH, TASK))


def read_only(disk):
    done = subprocess.run(
        ["mount", "-o", "remount,ro", str(disk)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"needs a read-only mount: {done.stderr}")


def fill(disk):
    """Leave not one byte."""
    with (disk / "filler").open("wb", buffering=0) as file:
        for size in (65536, 4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                pass


HARM = {"read-only": read_only, "full": fill}


@pytest.mark.nightly
@pytest.mark.parametrize("how", mostly_nightly(["closed", "killed", "copied"], ["closed", "killed"]))
@pytest.mark.parametrize("harm", HARM)
def test_a_cache_that_cannot_be_written_is_read(small_disk, how, harm):
    disk = small_disk(4096)
    folder = disk / "calls"
    made = filled(folder, how)
    HARM[harm](disk)
    held = {path.name: path.read_bytes() for path in (folder / "1").iterdir() if path.suffix == ".db"}
    for mode in ("replay", "auto"):
        end = scripted()
        lab = tl.Lab(end, runs=None, cache=folder, mode=mode)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            again = wait(lab.run(SEARCH, TASK))
        assert again.events == made.events
        assert calls_in(end) == 0
        assert [line.paid for line in again.lines if line.paid] == []
        assert any(
            "cannot be written" in str(one.message) and str(folder) in str(one.message) for one in caught
        )
        cache = lab.gateway.cache
        assert len(list(cache.entries())) == len(cache.newest) == made.usage.paid  # $1 each
        cache.close()
    if harm == "read-only":
        assert held == {
            path.name: path.read_bytes() for path in (folder / "1").iterdir() if path.suffix == ".db"
        }


@pytest.mark.filterwarnings("ignore:.*cannot be written:RuntimeWarning")
@pytest.mark.parametrize("harm", HARM)
def test_what_it_lacks_is_asked_and_not_kept_and_that_is_said(small_disk, harm):
    disk = small_disk(4096)
    folder = disk / "calls"
    filled(folder, "closed")
    HARM[harm](disk)
    end = scripted()
    lab = tl.Lab(end, runs=None, cache=folder)
    with pytest.warns(RuntimeWarning, match="could not be cached"):
        made = wait(lab.run(tl.OneAnswer(), TASK))
    assert made.answer
    assert calls_in(end) == 1
    lab.gateway.cache.close()
    lab = tl.Lab(scripted(), runs=None, cache=folder, mode="replay")
    with pytest.raises(CacheError, match="is not in"):
        wait(lab.run(tl.OneAnswer(), TASK))
    lab.gateway.cache.close()


@pytest.mark.filterwarnings("ignore:.*cannot be written:RuntimeWarning")
@pytest.mark.parametrize("harm", HARM)
def test_a_search_that_it_does_not_know_runs_to_its_end(small_disk, harm):
    """And what it knows is read after what could not be cached."""
    disk = small_disk(4096)
    folder = disk / "calls"
    made = filled(folder, "closed")
    HARM[harm](disk)
    end = scripted()
    lab = tl.Lab(end, runs=None, cache=folder)
    new = wait(lab.run(SEARCH, tl.general("What is new?")))
    assert (new.stop_reason, new.usage.errors) == (made.stop_reason, 0)
    asked = calls_in(end)
    assert asked > 3
    assert wait(lab.run(SEARCH, TASK)).events == made.events
    assert calls_in(end) == asked


@pytest.mark.filterwarnings("ignore:.*cannot be written:RuntimeWarning")
def test_to_ask_anew_it_must_be_writable(small_disk):
    disk = small_disk(4096)
    filled(disk / "calls", "closed")
    read_only(disk)
    end = scripted()
    with pytest.raises(CacheError, match=str(disk)):
        searched(end, disk / "calls", SEARCH, mode="refresh")
    assert calls_in(end) == 0


def test_a_folder_that_is_not_there_cannot_be_made_on_a_read_only_disk(small_disk):
    disk = small_disk(256)
    read_only(disk)
    with pytest.raises(CacheError, match=f"{disk}.*Read-only"):
        tl.Cache(disk / "calls")


@pytest.mark.filterwarnings("ignore:.*cannot be written:RuntimeWarning")
def test_threads_and_children_read_it_too(small_disk):
    disk = small_disk(4096)
    filled(disk / "calls", "killed")
    read_only(disk)
    store = tl.Cache(disk / "calls").newest
    keys, found = list(store), []
    threads = [threading.Thread(target=lambda: found.extend(map(store.get, keys))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 * len(keys)
    assert None not in found
    expected = [store.get(key) for key in keys]
    child = os.fork()
    if child == 0:
        os._exit(0 if [store.get(key) for key in keys] == expected else 1)
    assert os.waitpid(child, 0)[1] == 0
    store.close()


# Damage.


def damages(data, dice):
    """Ways in which a file may be spoilt: bits, runs of bytes, text in place of them, a cut, a swap."""
    for number in range(120):
        spoilt = bytearray(data)
        how = number % 6
        at = dice.randrange(len(data))
        if how == 0:
            spoilt[at] ^= 1 << dice.randrange(8)
        elif how == 1:
            spoilt[at : at + 64] = dice.randbytes(len(spoilt[at : at + 64]))
        elif how == 2:
            for _ in range(40):
                spoilt[dice.randrange(len(data))] = dice.randrange(256)
        elif how == 3:
            del spoilt[at:]
        elif how == 4:
            page = at // 4096 * 4096
            spoilt[page : page + 4096] = dice.randbytes(4096)
        else:
            spoilt[dice.randrange(1200)] ^= 1 << dice.randrange(8)  # the header and the schema
        yield bytes(spoilt)


def errors_of(folder, keys):
    """What each use of a cache raises."""
    try:
        cache = tl.Cache(folder)
    except Exception as error:
        yield error
        return
    for use in (
        *(partial(cache.reply, key) for key in keys),
        lambda: list(cache.entries()),
        lambda: len(cache.newest),
        lambda: cache.newest.put("k", b"v").result(),
        lambda: cache.newest.delete(keys[:2]),
    ):
        try:
            use()
        except Exception as error:
            yield error
    cache.close()


@pytest.mark.filterwarnings("ignore:.*cannot be written:RuntimeWarning")
def test_a_damaged_database_is_never_another_error(tmp_path):
    folder = tmp_path / "calls"
    store = Store(folder / "1")
    keys = []
    for draw in range(12):
        key, made = entry("né" * 100, draw)
        keys.append(key)
        store.put(key, packed(made)).result()
    store.close()
    good = (folder / "1" / "cache.db").read_bytes()
    named = 0
    for number, data in enumerate(damages(good, random.Random(7))):
        shutil.rmtree(folder)
        (folder / "1").mkdir(parents=True)
        (folder / "1" / "cache.db").write_bytes(data)
        named += len(told := list(errors_of(folder, keys)))
        for error in told:
            where = str(folder) in str(error) or "cache entry" in str(error)
            if not (where and isinstance(error, CacheError | OSError)):  # an OSError costs the entry alone
                pytest.fail(f"damage {number}: {type(error).__name__}: {error}")
    assert named > 75
