"""The disk cache: what is paid for once stays, and only what was written is served."""

import asyncio
import functools
import gzip
import json
import os
import pickle
import random
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import groupby, product
from pathlib import Path

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from support import ROOT, TASK, answer_to, wait
from support.cached import SEARCH, calls_in, entry, searched
from support.endpoint import scripted
from support.shell import tot_lab

import tot_lab as tl
from tot_lab.core.calls import Call, Message, Reply, ToolCall
from tot_lab.core.records import Note
from tot_lab.lab.sharing import export_calls, import_calls, prune, replies_by_key, verify
from tot_lab.models.entries import Entry, export, packed, unpacked
from tot_lab.models.keys import SCHEMA, Request, Requests, in_order, request_of
from tot_lab.models.store import CacheError, Store

# Once.


def test_a_rerun_asks_nothing_and_gives_the_same_record(tmp_path):
    first, second = scripted(), scripted()
    made = searched(first, tmp_path)
    again = searched(second, tmp_path)
    assert calls_in(first) > 0
    assert calls_in(second) == 0
    assert again.events == made.events
    assert again.usage.cost == made.usage.cost
    assert again.usage.paid == 0.0


def test_a_repeat_is_asked_anew_and_is_cached_too(tmp_path):
    end = scripted()
    lab = tl.Lab(end, runs=None, cache=tmp_path)
    runs = [wait(lab.run(SEARCH, TASK, repeat=k)) for k in (0, 1, 1)]
    assert runs[0].events != runs[1].events == runs[2].events
    assert runs[2].usage.paid == 0.0


ASKED = []


async def counted(call):
    ASKED.append(call)
    return answer_to(call)


def test_a_simulated_model_and_a_function_are_cached_only_where_asked(tmp_path, monkeypatch):
    monkeypatch.setenv("TOT_LAB_CACHE", str(tmp_path / "own"))
    ASKED.clear()
    for model in ("sim/game24", counted):
        lab = tl.Lab(model, runs=None)
        wait(lab.estimate(tl.OneAnswer(), TASK))
        assert wait(wait(lab.run(tl.OneAnswer(), TASK)).replay()).identical
    assert not (tmp_path / "own").exists()
    for _ in range(2):
        wait(tl.Lab(counted, runs=None, cache=tmp_path / "named").run(tl.OneAnswer(), TASK))
    assert len(ASKED) == 2
    wait(tl.Lab(scripted(), runs=None).run(tl.OneAnswer(), TASK))
    assert len(list(tl.Cache().entries())) == 1
    assert tl.Cache().path == tmp_path / "own"


def test_functions_that_cannot_be_told_apart_are_not_cached(tmp_path):
    def says(word):
        async def ask(call):
            return word

        return ask

    class Object:
        async def __call__(self, call):
            return "?"

    for model in (says("a"), Object(), functools.partial(counted)):
        with pytest.raises(ValueError, match=r"cannot be cached, since .* make it a tl.Part"):
            tl.Lab(model, cache=tmp_path)
        tl.Lab(model, cache=tmp_path, mode="off")


# The key.

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
objects = st.dictionaries(st.sampled_from("abc"), json_values, max_size=2)
messages = st.builds(
    Message,
    st.sampled_from(["user", "assistant"]),
    st.sampled_from(["why?", "why ?", ""]),
    st.lists(st.builds(ToolCall, st.just("1"), st.sampled_from("fg"), st.just("{}")), max_size=1).map(tuple),
)
calls = st.builds(
    Call,
    st.just("0"),
    st.sampled_from(["value", "sample"]),
    st.lists(messages, min_size=1, max_size=2).map(tuple),
    sample_index=st.integers(0, 2),
    attempt=st.lists(st.integers(0, 1), max_size=2).map(tuple),
    repeat=st.integers(0, 1),
    temperature=st.sampled_from([None, 0, 0.0, 1.0]),
    max_tokens=st.sampled_from([None, 1, 2]),
    stop=st.sampled_from([(), ("\n",)]),
    seed=st.sampled_from([None, 0, 1]),
    response_format=st.none() | objects,
    logprobs=st.integers(0, 1),
    tools=st.lists(objects, max_size=2).map(tuple),
    tool_choice=st.sampled_from([None, "auto"]),
    effort=st.sampled_from([None, "low"]),
    options=objects,
)
endpoints = st.fixed_dictionaries({"model": st.sampled_from("mn"), "api_base": st.sampled_from(["a", "b"])})


@given(calls, calls, endpoints, endpoints)
def test_two_calls_share_an_entry_exactly_when_they_are_the_same_question(one, other, here, there):
    def asked(call, endpoint):
        unordered = ("options",)  # in a schema and a tool the order says in which to write
        skipped = ("node", "purpose", "model", *unordered)
        named = [getattr(call, name) for name in call.__struct_fields__ if name not in skipped]
        text = json.dumps(named, default=repr).replace("0.0", "0")
        return text, json.dumps([call.options, endpoint], sort_keys=True)

    keys = request_of(one, in_order(here)).key, request_of(other, in_order(there)).key
    assert (keys[0] == keys[1]) == (asked(one, here) == asked(other, there))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"top_p": 1}, {"top_p": 1.0}, True),
        ({"top_p": 0.5}, {"top_p": numpy.float64(0.5)}, True),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"top_p": 1}, {"top_p": 0.5}, False),
    ],
)
def test_a_setting_is_one_in_every_form(one, other, same):
    keys = {request_of(Call("0", "ask", (), options=options), {}).key for options in (one, other)}
    assert len(keys) == (1 if same else 2)
    with pytest.raises(ValueError, match="The option 'top_p' must be finite: got nan"):
        request_of(Call("0", "ask", (), options={"top_p": float("nan")}), {})


@given(calls, endpoints)
def test_a_request_comes_back_under_its_key(call, endpoint):
    request = request_of(call, endpoint)
    key = request.key
    kept = Entry(SCHEMA, request, Reply("fine"), 0.0, "", {})
    assert unpacked(key, packed(kept)).request.key == key


def test_the_samples_of_a_request_have_different_keys_and_are_neighbours():
    attempts = [(), (0,), (1,), (2,), (12,), (1, 2), (2, 1), (1, 2, 0)]
    samples = list(product(("why?", "why not?", "when?"), (0, 1, 2, 12, 31), attempts, (0, 1, 2, 12)))
    keys = {}
    for text, draw, attempt, again in samples:
        call = Call("0", "ask", (Message("user", text),), draw, attempt, again)
        keys[request_of(call, {"model": "m"}).key] = text
    assert len(keys) == len(samples)
    assert len([*groupby(sorted(keys), keys.__getitem__)]) == 3
    assert max(map(len, keys)) < 64


@given(calls, endpoints)
def test_samples_that_are_requested_together_have_the_keys_that_they_have_alone(call, endpoint):
    changes = [{}, {"sample_index": 7}, {"attempt": (3, 1)}, {"repeat": 2}, {"node": "0.4"}]
    group = [structs.replace(call, **change) for change in changes]
    requests = Requests(endpoint)
    with requests.remembered(group):
        together = [(requests(one), requests(one).key) for one in group]
    assert together == [(request_of(one, endpoint), request_of(one, endpoint).key) for one in group]
    assert [requests(one) for one in group] == [request for request, _ in together]


def test_no_field_of_a_call_is_forgotten():
    kept = set(Request.__struct_fields__)
    assert set(Call.__struct_fields__) - kept == {"node", "purpose"}  # neither changes an answer


def test_keys_stay_what_they_are_from_version_to_version():
    # A changed key loses every answer that was paid for: only with a new SCHEMA.
    call = Call("0.1", "value", (Message("user", "Wie gut? ∑"),), 2, temperature=0.5, stop=("\n",))
    key = request_of(call, {"model": "gpt-4.1-mini", "base_url": "https://api.openai.com/v1"}).key
    assert key == "3d7e0d0801eca992d5556663df4d6d9abbdfd80f:0::2"
    assert SCHEMA == 1


# Durable.


@pytest.mark.nightly
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("rounds", [5, pytest.param(25, marks=pytest.mark.nightly)])
def test_what_was_acknowledged_survives_kill_nine(tmp_path, rounds):
    folder = tmp_path / "calls"
    code = f"import sys; sys.path[:0] = {[str(ROOT), str(ROOT / 'tests')]!r}; from support import cached; "
    code += f"cached.kill_rounds({str(folder)!r}, {rounds})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    acknowledged = set(done.stdout.split())
    store = Store(folder)
    kept = {key: store.get(key) for key in acknowledged}
    assert len(kept) > 40 * rounds
    assert all(data is not None and unpacked(key, data) for key, data in kept.items())
    store.close()
    con = sqlite3.connect(folder / "cache.db")
    assert con.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    con.close()


def test_the_first_writer_wins_over_threads_and_processes(tmp_path):
    key, _ = entry()
    stores = [Store(tmp_path / "calls") for _ in range(2)]
    with ThreadPoolExecutor(8) as pool:
        values = [packed(entry(f"answer {k}")[1]) for k in range(40)]
        took = list(pool.map(lambda k: stores[k % 2].put(key, values[k]).result(), range(40)))
    assert took.count(True) == 1
    assert stores[0].get(key) == stores[1].get(key) == values[took.index(True)]
    if hasattr(os, "fork"):
        child = os.fork()
        if child == 0:  # the writer's thread stayed behind
            other, made = entry("of the child", 1)
            os._exit(0 if stores[0].put(other, packed(made)).result(timeout=20) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert stores[1].get(entry(draw=1)[0]) is not None
    for store in stores:
        store.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_no_write_of_a_childs_first_threads_is_lost(tmp_path):
    """Whichever of them is first, the others must not write to what belongs to the parent."""
    stores = [Store(tmp_path / f"{k}") for k in range(20)]
    for store in stores:
        store.put("of the parent", b"x").result()

    def written_in_child() -> bool:
        sys.setswitchinterval(1e-6)
        for store in stores:
            barrier = threading.Barrier(4)

            def put(k, store=store, barrier=barrier):
                barrier.wait()
                return store.put(f"{os.getpid()} {k}", b"x")

            with ThreadPoolExecutor(4) as pool:
                for done in list(pool.map(put, range(4))):
                    if not done.result(timeout=20):
                        return False
        return True

    for _ in range(4):
        child = os.fork()
        if child == 0:
            try:
                os._exit(0 if written_in_child() else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert {len(store) for store in stores} == {1 + 4 * 4}
    for store in stores:
        store.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_during_a_write_leaves_the_child_a_store_that_works(tmp_path):
    """The lock may be held by a thread that the child does not have, and what waits belongs to the parent."""
    store = Store(tmp_path)
    store.put("warm", b"x").result()
    gate = threading.Event()
    store._writer.submit(gate.wait)
    waiting = store.put("of the parent", b"x")
    with store._lock:
        child = os.fork()
        if child == 0:
            try:
                store.put("of the child", b"x").result(timeout=20)
                os._exit(0 if list(store) == ["of the child", "warm"] else 1)
            finally:
                os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    gate.set()
    assert waiting.result(timeout=20)
    assert list(store) == ["of the child", "of the parent", "warm"]
    store.close()


def test_many_writers_share_a_commit(tmp_path):
    store = Store(tmp_path)
    committed = []
    plain = store._disk.transact
    store._disk.transact = lambda: committed.append(1) or plain()
    gate = threading.Event()
    store.put("slow", b"x").result()
    store._writer.submit(gate.wait)
    waiting = [store.put(f"{k}", b"x") for k in range(64)]
    gate.set()
    assert all(done.result() for done in waiting)
    assert len(committed) == 2
    store.close()


def test_a_commit_stores_what_one_put_after_another_would(tmp_path):
    store, roll, expected = Store(tmp_path), random.Random(5), dict[str, bytes]()
    for size in (1, 2, 50, 400, 1_000):
        gate = threading.Event()
        store.put("warm", b"x").result()
        store._writer.submit(gate.wait)  # so that all of them are one commit
        puts = []
        for number in range(size):
            key, value, replace = f"{roll.randrange(size)}", f"{size} {number}".encode(), roll.random() < 0.1
            puts.append((store.put(key, value, replace=replace), replace or key not in expected))
            if replace or key not in expected:
                expected[key] = value
        gate.set()
        assert [done.result(timeout=20) for done, _ in puts] == [taken for _, taken in puts]
    assert {key: store.get(key) for key in store if key != "warm"} == expected
    store.close()


def test_what_a_loop_keeps_in_one_turn_is_one_commit_and_the_first_value_stays(tmp_path):
    store = Store(tmp_path)
    store.put("warm", b"x").result()
    committed = []
    plain = store._disk.transact
    store._disk.transact = lambda: committed.append(1) or plain()

    async def go():
        taken = await asyncio.gather(
            *(store.keep([(f"{k}", b"x"), (f"{k + 1}", b"z")]) for k in range(0, 64, 2))
        )
        assert taken == [[True, True]] * 32
        assert len(committed) == 1
        assert await store.keep([("3", b"y"), ("new", b"y"), ("new", b"z")]) == [False, True, False]
        # A thread that waits in the same turn must not wait for the loop, which it blocks.
        late = store.keep([("late", b"x")])
        assert store.put("at once", b"x").result(timeout=20)
        assert await late == [True]

    wait(go())
    assert [store.get(key) for key in ("2", "3", "new", "late", "at once")] == [b"x", b"z", b"y", b"x", b"x"]
    store.close()


def test_a_loop_that_ends_before_the_commit_loses_nothing_and_holds_up_no_other(tmp_path):
    store = Store(tmp_path)

    async def leave(key):
        store.keep([(key, b"x")])

    async def stay(key):
        async with asyncio.timeout(20):
            return await store.keep([(key, b"x")])

    asyncio.run(leave("one"))
    stopped = asyncio.new_event_loop()
    stopped.call_soon(lambda: stopped.create_task(leave("two")).add_done_callback(lambda _: stopped.stop()))
    stopped.run_forever()  # it stops in the turn in which it would let the writer begin
    assert asyncio.run(stay("three"))
    stopped.close()
    assert [store.get(key) for key in ("one", "two", "three")] == [b"x"] * 3
    store.close()


def test_a_full_disk_costs_the_entry_not_the_run(small_disk):
    tiny = small_disk(256)
    end = scripted(lambda call: answer_to(call) + "\n" + "because " * 2000)
    free = searched(scripted(end._reply), None, mode="off")
    lab = tl.Lab(end, runs=None, cache=tiny / "calls")
    with pytest.warns(RuntimeWarning, match=r"could not be cached \(.*full.*The run continues"):
        made = wait(lab.run(SEARCH, TASK))
    assert made.events == free.events
    lost = [line.e for line in made.lines if isinstance(line.e, Note) and line.e.name == "call.unstored"]
    cache = lab.gateway.cache
    kept = dict(cache.entries())
    assert lost
    assert kept
    assert all(isinstance(found, Entry) for found in kept.values())
    cache.close()


def test_nobody_else_may_read_it(tmp_path):
    Store(tmp_path / "calls").close()
    assert (tmp_path / "calls").stat().st_mode & 0o777 == 0o700


def test_a_cancelled_write_is_written_and_holds_nobody_up(tmp_path):
    store = Store(tmp_path)
    store.put("first", b"x").result()
    gate = threading.Event()
    store._writer.submit(gate.wait)

    async def go():
        writing = [asyncio.ensure_future(asyncio.wrap_future(store.put(f"{k}", b"v"))) for k in range(5)]
        await asyncio.sleep(0)
        writing[1].cancel()
        gate.set()
        _, pending = await asyncio.wait(writing, timeout=10)
        assert not pending

    wait(go())
    assert all(store.get(f"{k}") == b"v" for k in range(5))
    store.close()


def slow_to_write(cache, seconds):
    """Every write of `cache` takes so long."""
    cache.put(*("warm", b"x")).result()
    plain = cache.newest._disk.transact
    cache.newest._disk.transact = lambda: time.sleep(seconds) or plain()


def test_an_equal_call_during_the_write_is_the_same_call(tmp_path):
    numbers = iter(range(9))
    end = scripted(lambda call: f"Answer: {next(numbers)}")
    cache = tl.Cache(tmp_path)
    slow_to_write(cache, 0.2)
    lab = tl.Lab(end, runs=None, cache=cache)

    async def both():
        first = asyncio.ensure_future(lab.run(tl.OneAnswer(), TASK))
        await asyncio.sleep(0.1)  # answered, and not yet on the disk
        return await lab.run(tl.OneAnswer(), TASK), await first

    second, first = wait(both())
    assert calls_in(end) == 1
    assert first.answer == second.answer
    assert all(wait(run.replay()).identical for run in (first, second))


def test_what_two_labs_ask_at_once_is_one_answer_in_the_end(tmp_path):
    runs = []

    async def both():
        ends = [scripted(lambda call, k=k: f"Answer: {k}", seconds=0.01) for k in range(2)]
        return await asyncio.gather(
            *(tl.Lab(end, runs=None, cache=tmp_path).run(tl.OneAnswer(), TASK) for end in ends)
        )

    runs = wait(both())
    assert runs[0].answer == runs[1].answer
    assert all(wait(run.replay(cache=tl.Cache(tmp_path))).identical for run in runs)


@pytest.mark.parametrize("moment", [0.0, 0.02, 0.05])
def test_what_was_answered_is_kept_though_nobody_waits(tmp_path, moment):
    end = scripted(samples=True, seconds=0.02)
    cache = tl.Cache(tmp_path)
    slow_to_write(cache, 0.05)
    lab = tl.Lab(end, runs=None, cache=cache)

    async def cut():
        running = asyncio.ensure_future(lab.run(tl.SelfConsistency(attempts=3), TASK))
        while not end.requests:
            await asyncio.sleep(0.001)
        while end._under_way[0] and moment:
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running])
        await asyncio.sleep(0.3)

    wait(cut())
    kept = [entry for _, entry in tl.Cache(tmp_path).entries() if isinstance(entry, Entry)]
    assert len(kept) == (lab.spent if moment else 0)


def test_the_time_of_a_call_ends_when_it_is_answered(tmp_path):
    cache = tl.Cache(tmp_path)
    slow_to_write(cache, 1.2)
    lab = tl.Lab(scripted(), runs=None, cache=cache, timeout=0.8)
    assert wait(lab.run(tl.OneAnswer(), TASK)).usage.errors == 0


# Served only as written.


def row(folder, statement, *values):
    con = sqlite3.connect(next(Path(folder).rglob("cache.db")))
    with con:
        con.execute(statement, values)
    con.close()


class Trap:
    """What a pickle may do."""

    def __reduce__(self):
        return (Path.touch, (Path(self.where),))


@pytest.mark.parametrize(
    "planted", ["pickled value", "pickled key", "file", "schema", "bits", "other", "cut"]
)
def test_a_spoilt_entry_is_named_never_run_never_served(tmp_path, planted):
    folder = tmp_path / "calls"
    end = scripted()
    searched(end, folder, tl.OneAnswer()).answer  # noqa: B018
    trap = Trap()
    trap.where = str(tmp_path / "sprung")
    (key,) = tl.Cache(folder).newest
    data = tl.Cache(folder).newest.get(key)
    if planted == "pickled value":
        row(folder, "UPDATE Cache SET mode = 4, value = ?", pickle.dumps(trap))
    elif planted == "pickled key":
        row(folder, "UPDATE Cache SET raw = 0, key = ?", pickle.dumps(trap))
    elif planted == "file":
        (tmp_path / "secret").write_bytes(b"elsewhere")
        row(folder, "UPDATE Cache SET mode = 2, filename = ?, value = NULL", "../../secret")
    elif planted == "schema":
        newer = unpacked(key, data)
        import msgspec

        row(folder, "UPDATE Cache SET value = ?", packed(msgspec.structs.replace(newer, schema=SCHEMA + 1)))
    elif planted == "bits":
        row(folder, "UPDATE Cache SET value = ?", data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    elif planted == "cut":
        row(folder, "UPDATE Cache SET value = ?", data[:40])
    else:
        row(folder, "UPDATE Cache SET value = ?", packed(entry("another's answer")[1]))
    done = tot_lab("cache", "verify", "--cache", str(folder), folder=tmp_path)
    assert done.returncode == 1, done.stdout
    assert "Traceback" not in done.stderr
    assert not Path(trap.where).exists()
    if planted == "other":
        return  # what stands under a wrong key is for `verify` to find
    lab = tl.Lab(scripted(), runs=None, cache=folder)
    with pytest.raises(CacheError):
        wait(lab.replaying().run(tl.OneAnswer(), TASK))
    if planted in ("schema", "bits", "cut"):
        again = scripted()
        with pytest.warns(RuntimeWarning, match="The model is called again"):
            searched(again, folder, tl.OneAnswer())
        assert calls_in(again) == 1
        third = scripted()
        searched(third, folder, tl.OneAnswer())
        assert calls_in(third) == 0  # it was put right
    assert not Path(trap.where).exists()


def read_all(folder):
    cache = tl.Cache(folder)
    return [cache.reply(entry(draw=draw)[0]) for draw in range(300)]


@pytest.mark.parametrize("damage", ["truncated", "garbage", "directory"])
def test_a_damaged_database_is_named_and_nothing_is_paid(tmp_path, damage):
    folder = tmp_path / "calls"
    cache = tl.Cache(folder)
    for draw in range(300):
        key, made = entry("x" * 300, draw)
        cache.newest.put(key, packed(made))
    cache.close()
    (path,) = folder.rglob("cache.db")
    whole = path.read_bytes()
    if damage == "truncated":
        path.write_bytes(whole[: len(whole) // 3])
    elif damage == "garbage":
        path.write_bytes(b"no database" * 1000)
    else:
        path.unlink()
        path.mkdir()
    for extra in ("cache.db-wal", "cache.db-shm"):
        (path.parent / extra).unlink(missing_ok=True)
    end = scripted()
    with pytest.raises(CacheError, match=str(folder)):
        read_all(folder)
    if damage != "truncated":  # of which a part may still be read
        with pytest.raises(CacheError, match=str(folder)):
            searched(end, folder, tl.OneAnswer())
        assert calls_in(end) == 0


# Modes.


def test_refresh_asks_anew_once_and_keeps_the_old(tmp_path):
    old = searched(scripted(lambda call: "old " + answer_to(call)), tmp_path, tl.OneAnswer())
    end = scripted(lambda call: "new " + answer_to(call))
    lab = tl.Lab(end, runs=None, cache=tmp_path, mode="refresh")
    fresh = [wait(lab.run(tl.OneAnswer(), TASK)) for _ in range(2)]
    assert calls_in(end) == 1
    assert fresh[0].events == fresh[1].events != old.events
    auto = searched(scripted(), tmp_path, tl.OneAnswer())
    assert auto.events == fresh[0].events
    assert wait(lab.replaying().run(tl.OneAnswer(), TASK)).events == fresh[0].events
    export_calls(tmp_path / "old.jsonl.gz", [old], tl.Cache(tmp_path))
    assert wait(old.replay(cache=tl.Cache(tmp_path / "old.jsonl.gz"))).identical  # its own answers travel
    assert prune(tl.Cache(tmp_path), replies_by_key([old]), really=True) == 1
    assert wait(old.replay(cache=tl.Cache(tmp_path))).identical
    (tmp_path / "old.jsonl.gz").unlink()
    assert wait(old.replay(cache=tl.Cache(tmp_path))).identical  # the old answers are still there
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]


def test_a_miss_in_replay_says_what_is_nearest(tmp_path):
    searched(scripted(), tmp_path, tl.OneAnswer(temperature=0.5))
    end = scripted()
    lab = tl.Lab(end, runs=tmp_path / "runs", cache=tmp_path, mode="replay")
    with pytest.raises(tl.errors.CacheMiss) as caught:
        wait(lab.run(tl.OneAnswer(temperature=0.7, max_tokens=9), TASK))
    said = str(caught.value)
    assert "answer call at node 0, sample 0" in said
    assert "temperature: 0.7 here, 0.5 there" in said
    assert "max_tokens: 9 here, None there" in said
    assert 'tl.Lab("sim/general")' in said
    assert len(said.splitlines()) == 3
    assert lab.last.stop_reason == "error"
    with pytest.raises(tl.errors.CacheMiss, match=r"prompt: from character \d+: .*horse.* here, .*spider"):
        wait(lab.run(tl.OneAnswer(temperature=0.5), tl.general("How many legs have three horses?")))
    with pytest.raises(tl.errors.CacheMiss, match="The cache is empty"):
        wait(tl.Lab(end, runs=None, cache=tmp_path / "empty", mode="replay").run(tl.OneAnswer(), TASK))
    assert calls_in(end) == 0


def test_replay_never_imports_litellm(tmp_path):
    code = (
        "import asyncio, sys, tot_lab as tl\n"
        f"lab = tl.Lab('gpt-4.1-mini', runs=None, cache={str(tmp_path)!r}, mode='replay')\n"
        "try:\n    asyncio.run(lab.run(tl.OneAnswer(), tl.general('?')))\n"
        "except tl.errors.CacheMiss:\n    print('missed', 'litellm' in sys.modules)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        env=env,
        timeout=60,
        check=False,
    )
    assert done.stdout == "missed False\n", done.stderr


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="mode must be one of auto, off, refresh, replay: got 'record'"):
        tl.Lab("sim/game24", mode="record")
    with pytest.raises(ValueError, match="spend"):
        tl.Lab("sim/game24", spend=-1)


def test_an_exported_file_is_not_written_to(tmp_path):
    from tot_lab.models.entries import export

    path = export(tmp_path / "one.jsonl.gz", [entry()], [])
    with pytest.raises(ValueError, match=r"a folder: got the file .*one.jsonl.gz. Exported .* mode='replay'"):
        tl.Lab(scripted(), cache=path)
    with pytest.raises(CacheError, match=r"gone.jsonl.gz cannot be opened: No such file"):
        wait(tl.Lab(scripted(), runs=None, cache=tmp_path / "gone.jsonl.gz", mode="replay").run(SEARCH, TASK))
    assert [found.name for found in tmp_path.iterdir()] == ["one.jsonl.gz"]


def test_an_estimate_says_what_the_cache_holds(tmp_path):
    end = scripted()
    lab = tl.Lab(end, runs=None, cache=tmp_path)
    assert wait(lab.estimate(SEARCH, TASK))[:3] == (SEARCH.max_calls(TASK), 0, False)
    made = wait(lab.run(SEARCH, TASK))
    assert wait(lab.estimate(SEARCH, TASK))[:3] == (SEARCH.max_calls(TASK), made.usage.calls, True)
    assert calls_in(end) == made.usage.calls - sum(
        line.e.name == "call.joined" or line.e.name == "call.cached"
        for line in made.lines
        if isinstance(line.e, Note)
    )


# Replay of a run.


def test_a_run_is_proved_from_the_cache_or_shows_where_it_parts(tmp_path):
    folder = tmp_path / "calls"
    lab = tl.Lab(scripted(), runs=tmp_path / "runs", cache=folder)
    made = wait(lab.run(SEARCH, TASK))
    loaded = tl.load(made.path)
    assert wait(made.replay()).identical
    assert wait(loaded.replay(cache=tl.Cache(folder))).identical
    lacking = wait(loaded.replay(cache=tl.Cache(tmp_path / "empty")))
    assert not lacking.identical
    assert "the call is not in the cache" in lacking.divergence
    cache = tl.Cache(folder)
    for key, found in list(cache.entries()):
        if found.request.sample_index == 1:
            other = Entry(SCHEMA, found.request, Reply("something else"), 0.0, "", {})
            cache.newest.put(key, packed(other), replace=True).result()
    parted = wait(loaded.replay(cache=cache))
    assert not parted.identical
    assert "text was" in parted.divergence
    assert "something else" in parted.divergence


# Sharing.


def test_an_experiment_travels_as_one_file(tmp_path):
    lab = tl.Lab(scripted(), runs=tmp_path / "runs", cache=tmp_path / "mine")
    made = wait(lab.run(SEARCH, TASK))
    wait(tl.Lab(scripted(), runs=None, cache=tmp_path / "mine").run(tl.OneAnswer(), TASK))  # not of this run

    def shell(*words):
        done = tot_lab("cache", *words, folder=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    export_calls(tmp_path / "one.jsonl.gz", [made], tl.Cache(tmp_path / "mine"))
    first = (tmp_path / "one.jsonl.gz").read_bytes()
    export_calls(tmp_path / "one.jsonl.gz", [made], tl.Cache(tmp_path / "mine"))
    assert (tmp_path / "one.jsonl.gz").read_bytes() == first
    entries = len(list(tl.Cache(tmp_path / "one.jsonl.gz").entries()))
    assert entries == len(list(tl.Cache(tmp_path / "mine").entries())) - 1
    other = scripted()
    again = tl.Lab(other, runs=None, cache=tmp_path / "one.jsonl.gz", mode="replay")
    assert wait(again.run(SEARCH, TASK)).events == made.events
    assert f"{entries} new calls, 0 already present" in shell("import", "one.jsonl.gz", "--cache", "theirs")
    assert f"0 new calls, {entries} already present" in shell("merge", "one.jsonl.gz", "--cache", "theirs")
    assert "all entries are intact" in shell("verify", "--cache", "theirs")
    assert f"{entries} calls in 1 stores" in shell("stats", "--cache", "theirs")
    assert calls_in(other) == 0


@pytest.mark.parametrize("harm", ["flip", "cut", "forge", "text"])
def test_a_file_that_is_not_what_was_exported_changes_nothing(tmp_path, harm):
    from tot_lab.models.entries import export

    key, made = entry()
    path = export(tmp_path / "one.jsonl.gz", [(key, made)], ["run"])
    plain = gzip.decompress(path.read_bytes())
    if harm == "flip":
        path.write_bytes(gzip.compress(plain.replace(b'"fine"', b'"evil"')))
    elif harm == "cut":
        path.write_bytes(path.read_bytes()[:-20])
    elif harm == "forge":  # a right checksum, but another request than the key's
        export(path, [("0" * 64, made)], [])
    else:
        path.write_text("hello")
    done = tot_lab("cache", "import", str(path), "--cache", "theirs", folder=tmp_path)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert list(tl.Cache(tmp_path / "theirs").entries()) == []


def test_a_failed_run_beside_them_does_not_stop_an_export(tmp_path):
    lab = tl.Lab("sim/game24", runs=tmp_path / "runs", cache=tmp_path / "calls")
    wait(lab.run(SEARCH, tl.game24("4 5 6 10")))
    wait(tl.Lab("local:/nope/x.gguf", runs=tmp_path / "runs", mode="off").run(tl.OneAnswer(), TASK))
    for words in (("export", "one.jsonl.gz", "runs"), ("prune", "runs")):
        done = tot_lab("cache", *words, "--cache", "calls", folder=tmp_path)
        assert done.returncode == 0, done.stderr


def test_an_unpacked_export_is_read_too(tmp_path):
    searched(scripted(), tmp_path / "calls")
    export(tmp_path / "calls.jsonl.gz", tl.Cache(tmp_path / "calls").entries(), [])
    (tmp_path / "calls.jsonl").write_bytes(gzip.decompress((tmp_path / "calls.jsonl.gz").read_bytes()))
    packed_one, plain = (
        dict(tl.Cache(tmp_path / name).entries()) for name in ("calls.jsonl.gz", "calls.jsonl")
    )
    assert packed_one == plain != {}


def test_a_bomb_is_not_read(tmp_path):
    (tmp_path / "big.jsonl.gz").write_bytes(gzip.compress(b"{}\n" + b" " * (80 * 2**20)))
    with pytest.raises(CacheError, match="would unpack to more than"):
        tl.Cache(tmp_path / "big.jsonl.gz")


def test_a_folder_of_something_else_is_no_cache(tmp_path):
    (tmp_path / "2024").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    assert tot_lab("cache", "stats", "--cache", str(tmp_path), folder=tmp_path).returncode == 1
    with pytest.raises(tl.errors.CacheMiss, match="The cache is empty"):
        wait(tl.Lab(scripted(), runs=None, cache=tmp_path, mode="replay").run(tl.OneAnswer(), TASK))
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["2024", "notes.txt"]


def test_one_damaged_entry_stops_neither_the_rest_nor_an_import(tmp_path):
    folder = tmp_path / "calls"
    searched(scripted(), folder)
    keys = list(tl.Cache(folder).newest)
    row(folder, "UPDATE Cache SET value = ? WHERE key = ?", b"x" * 99, keys[0])
    row(folder, "UPDATE Cache SET raw = 0 WHERE key = ?", keys[1])
    assert len(verify(tl.Cache(folder))) == 2
    other = tmp_path / "other"
    searched(scripted(), other)
    assert import_calls(tl.Cache(folder), tl.Cache(other)) == (2, len(keys) - 2)
    again = scripted()
    assert searched(again, folder).usage.paid == 0.0
    assert calls_in(again) == 0


def test_the_nearest_of_many_is_found_at_once(tmp_path):
    cache = tl.Cache(tmp_path)
    prompts = [f"{'the same beginning ' * 100} and number {k}" for k in range(2000)]
    for text in prompts:
        request = request_of(Call("0", "ask", (Message("user", text),)), {"model": "m"})
        cache.put(request.key, packed(Entry(SCHEMA, request, Reply("x"), 0.0, "", {})))
    cache.close()
    call = Call("0", "ask", (Message("user", prompts[1234] + "!"),))
    _, found = tl.Cache(tmp_path).nearest(request_of(call, {"model": "m"}))  # it took minutes once
    assert found.request.messages[0].content == prompts[1234]


def test_replay_goes_on_after_a_run_that_cannot_be_made_again(tmp_path):
    with tl.Recorder("mine", path=tmp_path / "runs" / "a.jsonl") as recorder:
        recorder.thought("by hand")
    wait(tl.Lab("sim/game24", runs=tmp_path / "runs").run(tl.OneAnswer(), TASK))
    done = tot_lab("replay", "runs", folder=tmp_path)
    assert done.returncode == 1
    assert "a.jsonl: This run cannot be repeated, since it was not made by a strategy" in done.stdout
    assert "identical" in done.stdout
    assert done.stderr == ""


def test_a_run_is_resumed_by_a_lab_that_asks_the_same(tmp_path):
    lab = tl.Lab(scripted(), runs=tmp_path / "runs", cache=tmp_path / "calls")
    path = wait(lab.run(SEARCH, TASK)).path
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:9]))
    with pytest.raises(ValueError, match="must have the model of the run"):
        wait(tl.Lab(scripted(label="another"), runs=None).resume(path))
    assert wait(lab.resume(path)).stop_reason


def test_prune_forgets_what_no_run_used(tmp_path):
    lab = tl.Lab("sim/game24", runs=tmp_path / "runs", cache=tmp_path / "calls")
    wait(lab.run(SEARCH, tl.game24("4 5 6 10")))
    wait(tl.Lab("sim/game24", runs=None, cache=tmp_path / "calls").run(SEARCH, tl.game24("1 2 3 4")))
    before = len(list(tl.Cache(tmp_path / "calls").entries()))
    words = ["cache", "prune", "runs", "--cache", "calls"]
    assert "would be deleted" in tot_lab(*words, folder=tmp_path).stdout
    assert len(list(tl.Cache(tmp_path / "calls").entries())) == before
    assert "calls deleted" in tot_lab(*words, "--yes", folder=tmp_path).stdout
    assert 0 < len(list(tl.Cache(tmp_path / "calls").entries())) < before
    done = tot_lab("replay", "runs", "--cache", "calls", folder=tmp_path)
    assert "identical" in done.stdout, done.stderr
    assert tot_lab("cache", "stats", "--cache", "nowhere", folder=tmp_path).returncode == 1
    assert not (tmp_path / "nowhere").exists()


def test_one_cache_serves_many_event_loops_and_threads(tmp_path):
    end = scripted()
    lab = tl.Lab(end, runs=None, cache=tmp_path)

    def one(k):
        return asyncio.run(lab.run(tl.OneAnswer(seed=k % 3), TASK)).answer

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(one, range(30)))
    assert len(set(answers)) <= 3
    assert len(list(tl.Cache(tmp_path).entries())) == 3


def test_what_is_kept_before_a_store_closes_is_on_disk(tmp_path):
    async def keep_and_close():
        store = Store(tmp_path)
        done = store.keep([("key", b"value")])
        store.close()
        assert Store(tmp_path).get("key") == b"value"
        assert await done == [True]

    wait(keep_and_close())


def test_a_store_that_could_not_start_its_thread_writes_later(tmp_path, monkeypatch):
    store = Store(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            store.put("first", b"1").result(10)
    assert store.put("second", b"2").result(10)


def no_thread(thread):
    raise RuntimeError("can't start new thread")


# A database that was emptied, cut, replaced or mixed up.


def filled(folder):
    """The database of a cache with 200 entries."""
    cache = tl.Cache(folder)
    made = [entry(f"text {k} " * 40, k) for k in range(200)]
    for done in [cache.put(key, packed(one)) for key, one in made]:
        done.result()
    cache.close()
    return folder / "1" / "cache.db", dict(made)


@pytest.mark.parametrize("size", [0, 10, 100, 4095, 4096, 8192, 20_000, 60_000])
def test_a_database_that_was_emptied_or_cut_is_reported_and_stays(tmp_path, size):
    path, _ = filled(tmp_path)
    assert path.stat().st_size > size
    os.truncate(path, size)
    message = "was emptied: got 0 bytes.*Restore a copy" if size == 0 else "cannot be read.*restore a copy"
    with pytest.raises(CacheError, match=message) as caught:
        tl.Cache(tmp_path)
    assert str(path.parent) in str(caught.value)
    assert path.stat().st_size == size
    lab = tl.Lab(scripted(), runs=tmp_path / "runs", cache=tmp_path)
    with pytest.raises(CacheError, match=message):
        wait(lab.run(SEARCH, TASK))
    assert not list((tmp_path / "runs").glob("*.jsonl"))


@pytest.mark.parametrize("kind", ["folder", "fifo", "device"])
def test_a_database_that_is_no_file_is_reported_at_once(tmp_path, kind):
    path, _ = filled(tmp_path)
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/null")
    with pytest.raises(CacheError, match=r"cache\.db: the database of the cache must be a regular file"):
        tl.Cache(tmp_path)


def test_the_journal_of_another_database_is_never_played_back_in_silence(tmp_path):
    """SQLite plays back a journal beside a file, whatever it belongs to."""
    path, _ = filled(tmp_path / "cache")
    other = sqlite3.connect(tmp_path / "other.db", isolation_level=None)
    other.execute("CREATE TABLE t (a)")
    other.executemany("INSERT INTO t VALUES (?)", [("z" * 500,)] * 2000)
    other.execute("PRAGMA cache_size = 1")
    other.execute("BEGIN")
    other.execute("UPDATE t SET a = 'y' || a")
    path.with_name("cache.db-journal").write_bytes((tmp_path / "other.db-journal").read_bytes())
    other.close()
    with pytest.raises(CacheError, match="cannot be read"):
        tl.Cache(tmp_path / "cache")


def test_a_new_cache_is_never_an_empty_file(tmp_path):
    """Otherwise a process that is killed while it creates a cache would leave one that was emptied."""
    stop = threading.Event()
    sizes = set()

    def watch():
        while not stop.is_set():
            with suppress(OSError):
                sizes.update(path.stat().st_size for path in tmp_path.glob("*/1/cache.db"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    with ThreadPoolExecutor(8) as pool:
        caches = list(pool.map(lambda k: tl.Cache(tmp_path / f"{k % 10}"), range(80)))
    stop.set()
    watcher.join()
    assert 0 not in sizes
    for cache in caches:
        cache.close()
    assert not list(tmp_path.glob("*/1/*.part"))
