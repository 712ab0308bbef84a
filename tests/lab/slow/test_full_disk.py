"""A disk that fills at any moment of a run and has room again later.

`lab.resume`, and a second sweep, give what an undisturbed disk gives.
"""

import re
import warnings
from contextlib import contextmanager

import pytest
from support import TASK, answer_to, mostly_nightly, wait
from support.cached import SEARCH
from support.endpoint import scripted

import tot_lab as tl
from tot_lab.core.records import Note

TASKS = [tl.general(f"What is {k} + 1?", answer=k + 1) for k in range(12)]


class Disk:
    """A small disk with journals and a cache, which another file fills. Replies have so many `words`."""

    def __init__(self, folder, at=None, words=200):
        self.folder = folder
        self.at = at
        self.words = words
        self.calls = 0
        self.filler = folder / "filler"

    def fill(self):
        with self.filler.open("ab", buffering=0) as file:
            for size in (4096, 1):
                try:
                    while file.write(b"x" * size):
                        pass
                except OSError:
                    pass

    def make_room(self):
        self.filler.unlink(missing_ok=True)

    def reply(self, call):
        """The reply to a call. The disk is full before the call number `at`."""
        if self.calls == self.at:
            self.fill()
        self.calls += 1
        return f"{answer_to(call)}\n{'because ' * self.words}"

    def lab(self, **options):
        return tl.Lab(scripted(self.reply), runs=self.folder / "runs", **options)


@contextmanager
def warned(message):
    """Expect a warning among those of a full disk."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    assert any(re.search(message, str(one.message)) for one in caught)


def reference(tmp_path):
    return wait(Disk(tmp_path).lab(mode="off").run(SEARCH, TASK))


def run(lab):
    return wait(lab.run(SEARCH, TASK))


def stream(lab):
    async def read():
        stream = lab.stream(SEARCH, TASK)
        async for _ in stream:
            pass
        return stream.run

    return wait(read())


@pytest.mark.parametrize("way", [run, stream])
@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("at", mostly_nightly(range(13), [0, 1, 5, 12]))
def test_a_run_on_a_disk_that_fills_is_resumed_to_the_reference(tmp_path, small_disk, way, cached, at):
    undisturbed = reference(tmp_path / "whole")
    disk = Disk(small_disk(2048), at)
    options = {"cache": disk.folder / "calls"} if cached else {"mode": "off"}
    lab = disk.lab(**options)
    with warned(r"No space left on device\. The run continues in memory only"):
        made = way(lab)
    assert disk.calls > at
    assert made.path is None
    assert made.events == undisturbed.events
    (path,) = (disk.folder / "runs").glob("*.jsonl")
    assert tl.load(path).lines == made.lines[: len(tl.load(path).lines)]
    disk.make_room()
    resumed = wait(lab.resume(path))
    assert resumed.events == undisturbed.events
    assert tl.load(path).events == undisturbed.events
    assert wait(tl.load(path).replay()).identical
    if cached:
        lab.gateway.cache.close()
        again = tl.Lab(scripted(), runs=None, cache=disk.folder / "calls")
        assert wait(again.run(SEARCH, TASK)).events == undisturbed.events


@pytest.mark.parametrize("way", [run, stream])
def test_a_disk_that_is_full_before_the_header_leaves_nothing(tmp_path, small_disk, way):
    undisturbed = reference(tmp_path / "whole")
    disk = Disk(small_disk(2048))
    (disk.folder / "runs").mkdir()
    disk.fill()
    with warned("No space left on device"):
        made = way(disk.lab(mode="off"))
    assert made.events == undisturbed.events
    assert list((disk.folder / "runs").iterdir()) == []
    disk.make_room()
    assert made.save(disk.folder / "runs" / "saved.jsonl")
    assert tl.load(disk.folder / "runs" / "saved.jsonl").events == undisturbed.events


def test_a_disk_that_fills_again_while_a_run_is_resumed(tmp_path, small_disk):
    undisturbed = reference(tmp_path / "whole")
    disk = Disk(small_disk(2048), at=3)
    lab = disk.lab(mode="off")
    with warned("No space left"):
        run(lab)
    (path,) = (disk.folder / "runs").glob("*.jsonl")
    for _ in range(3):
        disk.make_room()
        disk.at = disk.calls + 1
        before = len(tl.load(path).lines)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            assert wait(lab.resume(path)).events == undisturbed.events
        assert len(tl.load(path).lines) >= before
    disk.make_room()
    assert wait(lab.resume(path)).events == undisturbed.events
    assert tl.load(path).events == undisturbed.events


def test_a_cache_that_cannot_be_made_stops_the_run_and_is_made_later(small_disk):
    disk = Disk(small_disk(2048))
    (disk.folder / "runs").mkdir()
    disk.fill()
    lab = disk.lab(cache=disk.folder / "calls")
    with pytest.raises(tl.errors.CacheError, match="full"):
        run(lab)
    assert disk.calls == 0
    disk.make_room()
    made = run(lab)
    assert made.stop_reason != "error"
    assert len(lab.gateway.cache.newest) > 0


def test_a_cache_stores_again_when_there_is_room(tmp_path, small_disk):
    undisturbed = reference(tmp_path / "whole")
    disk = Disk(small_disk(2048), at=2)
    lab = disk.lab(cache=disk.folder / "calls")
    with warned("could not be cached"):
        made = run(lab)
    lost = [line.e for line in made.lines if isinstance(line.e, Note) and line.e.name == "call.unstored"]
    assert lost
    disk.make_room()
    assert run(lab).events == undisturbed.events
    lab.gateway.cache.close()
    replay = tl.Lab(scripted(), runs=None, cache=disk.folder / "calls", mode="replay")
    assert wait(replay.run(SEARCH, TASK)).events == undisturbed.events


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("at", mostly_nightly([0, 1, 5, 11], [0, 5]))
def test_a_sweep_on_a_disk_that_fills_is_completed_by_the_next(tmp_path, small_disk, cached, at):
    undisturbed = Disk(tmp_path / "whole", words=600).lab(mode="off")
    whole = wait(undisturbed.sweep(tl.OneAnswer(), TASKS, name="s", at_once=3))
    disk = Disk(small_disk(2048), at, words=600)  # more than a page of the disk
    options = {"cache": disk.folder / "calls"} if cached else {"mode": "off"}
    lab = disk.lab(**options)
    with warned("in memory only"):
        made = wait(lab.sweep(tl.OneAnswer(), TASKS, name="s", at_once=3))
    assert made.df().error.isna().all()
    assert [one.events for one in made.runs()] == [one.events for one in whole.runs()]
    assert made.in_memory
    disk.make_room()
    again = wait(lab.sweep(tl.OneAnswer(), TASKS, name="s", at_once=3))
    assert not again.in_memory
    assert [one.events for one in again.runs()] == [one.events for one in whole.runs()]
    loaded = {one.id: one.events for one in tl.load(disk.folder / "runs" / "s")}
    assert loaded == {one.id: one.events for one in whole.runs()}
