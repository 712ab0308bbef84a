"""A cache that several machines share: the first answer stays for all, and no password is seen."""

import json
import multiprocessing
import pickle
import traceback
import warnings
from typing import Any

import msgspec
import pytest
from support import TASK, wait
from support.cached import SEARCH, calls_in, entry, searched
from support.endpoint import scripted
from support.redis_server import RedisServer, free_port

import tot_lab as tl
from tot_lab.core.calls import Call, Message, Reply
from tot_lab.core.records import Note
from tot_lab.lab.sharing import export_calls
from tot_lab.models.entries import DamagedEntry, packed, unpacked
from tot_lab.models.keys import request_of
from tot_lab.models.redis_store import PREFIX, RedisStore, RedisUnavailable

CALL = Call("0", "ask", (Message("user", "why?"),))
KEY = request_of(CALL, {"model": "m"}).key


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    running = RedisServer(tmp_path_factory.mktemp("redis"), requirepass="s3cr%t/7")
    running.password = "s3cr%25t%2F7"
    yield running
    running.stop()


@pytest.fixture
def url(server):
    """A Redis with nothing in it."""
    connection(server.url).flushall()
    return server.url


@pytest.fixture
def own(tmp_path):
    """Makes a server of the test's own."""
    running = []

    def made(**options):
        running.append(RedisServer(tmp_path, **options))
        return running[-1]

    yield made
    for server in running:
        server.stop()


def connection(url):
    import redis

    return redis.Redis.from_url(url)


def bytes_of(text):
    key, made = entry(text)
    assert key == KEY
    return packed(made)


# Two hosts: two folders, one Redis.


def test_what_one_host_was_answered_another_is_not_asked(tmp_path, url):
    first, second = scripted(), scripted()
    made = searched(first, tl.Cache(tmp_path / "a", shared=url))
    again = searched(second, tl.Cache(tmp_path / "b", shared=url))
    assert (calls_in(first) > 0, calls_in(second)) == (True, 0)
    assert again.events == made.events
    assert again.usage.paid == 0.0
    assert wait(again.replay()).identical


def test_what_came_from_there_is_kept_here_and_read_here_first(tmp_path, url):
    searched(scripted(), tl.Cache(tmp_path / "a", shared=url))
    searched(scripted(), tl.Cache(tmp_path / "b", shared=url))
    connection(url).flushall()
    for folder in ("a", "b"):
        end = scripted()
        searched(end, tmp_path / folder)
        assert calls_in(end) == 0


def test_a_replay_and_an_export_find_what_only_the_others_have(tmp_path, url):
    run = searched(scripted(), tl.Cache(tmp_path / "a", shared=url))
    other = tl.Cache(tmp_path / "b", shared=url)
    assert wait(run.replay(cache=other)).identical
    assert export_calls(tmp_path / "x.jsonl.gz", [run], other).calls > 0
    replayed = searched(scripted(), tl.Cache(tmp_path / "c", shared=url), mode="replay")
    assert replayed.events == run.events


def test_who_comes_second_goes_on_with_the_first_answer(tmp_path, url):
    one, two = (tl.Cache(tmp_path / name, shared=url) for name in "ab")
    assert one.put(KEY, bytes_of("first")).result()
    assert not two.put(KEY, bytes_of("second")).result()
    assert [cache.reply(KEY).text for cache in (one, two)] == ["first", "first"]
    assert two.stores[0].get(KEY) == bytes_of("first")


def writing(url, folder, name, ready, answers):
    cache = tl.Cache(folder, shared=url)
    keys = [entry(draw=draw)[0] for draw in range(300)]
    ready.wait()
    for done in [cache.put(key, packed(entry(name, draw)[1])) for draw, key in enumerate(keys)]:
        done.result()
    answers.put({key: cache.reply(key).text for key in keys})
    cache.close()


@pytest.mark.nightly
def test_processes_that_write_the_same_keys_at_once_hold_the_same_answers(tmp_path, url):
    start = multiprocessing.get_context("spawn")
    ready, answers = start.Barrier(2), start.Queue()
    writers = [
        start.Process(target=writing, args=(url, tmp_path / name, name, ready, answers)) for name in "ab"
    ]
    for writer in writers:
        writer.start()
    one, two = answers.get(timeout=60), answers.get(timeout=60)
    for writer in writers:
        writer.join()
    assert one == two
    assert set(one.values()) <= {"a", "b"}


def test_an_entry_that_is_not_what_was_written_is_not_served_and_is_replaced(tmp_path, url):
    planted = {
        "damaged": bytes_of("right")[:-3] + b"xyz",
        "a pickle": pickle.dumps("boo"),
        "of another request": packed(entry("other", draw=1)[1]),
    }
    for name, data in planted.items():
        connection(url).set(PREFIX + KEY, data)
        cache = tl.Cache(tmp_path / name, shared=url)
        with pytest.raises(DamagedEntry, match=KEY[:12]):
            wait(cache.find(KEY))
        assert cache.put(KEY, bytes_of("asked anew")).result()
        assert unpacked(KEY, connection(url).get(PREFIX + KEY)).reply == Reply("asked anew")


# What could go wrong.


def test_a_redis_that_goes_away_stops_no_search(tmp_path, own):
    server = own()
    cache = tl.Cache(tmp_path / "a", shared=server.url)
    searched(scripted(), cache, tl.OneAnswer())
    server.stop()
    end = scripted()
    with pytest.warns(RuntimeWarning, match=r"redis://127.0.0.1:\d+/0: the shared cache cannot be reached"):
        made = searched(end, cache)
    assert (made.stop_reason, calls_in(end) > 0) == ("limit:depth", True)
    notes = [line.e for line in made.lines if isinstance(line.e, Note) and line.e.name == "call.unshared"]
    assert any("cannot be reached" in note.data["error"] for note in notes)
    alone = scripted()
    assert searched(alone, tmp_path / "a").events == made.events
    assert calls_in(alone) == 0, "it was kept on the disk"


def test_a_redis_that_comes_back_is_used_again(tmp_path, own, monkeypatch):
    monkeypatch.setattr("tot_lab.models.redis_store.PAUSE", 0.0)
    server = own()
    cache = tl.Cache(tmp_path / "a", shared=server.url)
    server.stop()
    with pytest.raises(RedisUnavailable):
        cache.put(KEY, bytes_of("one")).result()
    server.start()
    assert cache.put(entry(draw=1)[0], packed(entry("two", draw=1)[1])).result()
    assert tl.Cache(tmp_path / "b", shared=server.url).reply(entry(draw=1)[0]) == Reply("two")


@pytest.mark.parametrize("by", ["the same cache", "closing it", "another process that opens the folder"])
def test_what_was_answered_while_it_was_away_is_sent_later(tmp_path, own, monkeypatch, by):
    monkeypatch.setattr("tot_lab.models.redis_store.PAUSE", 0.0)
    server = own()
    cache = tl.Cache(tmp_path / "a", shared=server.url)
    server.stop()
    keys = [entry(draw=draw)[0] for draw in range(20)]
    for draw, key in enumerate(keys):
        with pytest.raises(RedisUnavailable):
            cache.put(key, packed(entry(f"answer {draw}", draw)[1])).result()
    if by.startswith("another"):
        cache.close()
        cache = None
    server.start()
    connection(server.url).set(PREFIX + keys[0], packed(entry("of another host", 0)[1]))
    cache = cache or tl.Cache(tmp_path / "a", shared=server.url)
    if by != "closing it":
        wait(cache.find(entry(draw=99)[0]))  # any command
    cache.close()
    other = tl.Cache(tmp_path / "b", shared=server.url)
    first, *rest = (other.reply(key) for key in keys)
    assert first == Reply("of another host"), "the first answer stays"
    assert rest == [Reply(f"answer {draw}") for draw in range(1, 20)]
    assert not list(tl.models.store.Store(tmp_path / "a" / "outbox")), "once is enough"


def test_a_full_redis_stops_no_search(tmp_path, own):
    cache = tl.Cache(tmp_path / "a", shared=own(maxmemory="1mb").url)
    with pytest.warns(RuntimeWarning, match="maxmemory"):
        assert searched(scripted(), cache).stop_reason == "limit:depth"


def test_a_full_redis_goes_on_answering(tmp_path, own):
    """Known calls are not asked again between two writes that it refuses."""
    url = own().url
    known = searched(scripted(), tl.Cache(tmp_path / "a", shared=url))
    connection(url).config_set("maxmemory", "1mb")
    cache = tl.Cache(tmp_path / "b", shared=url)
    with pytest.raises(RedisUnavailable, match="refused"):
        cache.put(entry(draw=7)[0], packed(entry("new", 7)[1])).result()
    asked = scripted()
    assert searched(asked, cache).events == known.events
    assert calls_in(asked) == 0
    connection(url).config_set("maxmemory", "0")
    cache.close()
    assert tl.Cache(tmp_path / "c", shared=url).reply(entry(draw=7)[0]) == Reply("new"), "sent when it fitted"


def test_a_key_of_another_type_is_named_and_healed_and_the_others_are_read(tmp_path, url):
    known = searched(scripted(), tl.Cache(tmp_path / "a", shared=url))
    keys = sorted(connection(url).keys(PREFIX + "*"))
    connection(url).delete(keys[0])
    connection(url).rpush(keys[0], "a", "list")
    name = keys[0].decode().removeprefix(PREFIX)[:12]
    asked = scripted()
    with pytest.warns(RuntimeWarning, match=rf"cache entry {name}… in redis://.*another Redis type"):
        again = searched(asked, tl.Cache(tmp_path / "b", shared=url))
    assert (calls_in(asked), again.events) == (1, known.events)
    later = scripted()
    searched(later, tl.Cache(tmp_path / "c", shared=url))
    assert calls_in(later) == 0


BAD = {
    "an error": {"error": "no such model"},
    "negative tokens": {"input_tokens": -5_000_000},
    "tokens beyond 64 bits": {"output_tokens": 2**70},
    "a negative cost": {"cost": -100.0},
}


@pytest.mark.parametrize("what", BAD)
def test_an_entry_that_nothing_here_would_write_is_damaged(tmp_path, url, what):
    made = entry("26")[1]
    made = msgspec.structs.replace(made, reply=Reply("26", **BAD[what]))
    connection(url).set(PREFIX + KEY, packed(made))
    cache = tl.Cache(tmp_path / "a", shared=url)
    with pytest.raises(DamagedEntry, match=KEY[:12]):
        wait(cache.find(KEY))
    tl.models.store.Store(tmp_path / "b" / "1").put(KEY, packed(made)).result()
    with pytest.raises(DamagedEntry, match=KEY[:12]):
        tl.Cache(tmp_path / "b").reply(KEY)


class Reporting(tl.Part):
    """A model that reports usage."""

    kind = "test/reporting"
    usage: dict[str, Any]

    async def __call__(self, call):
        return Reply("26", **({"input_tokens": 1, "output_tokens": 1, "cost": 0.0} | self.usage))


@pytest.mark.parametrize("what", [what for what in BAD if what != "an error"])
def test_usage_that_cannot_be_counted_is_kept_as_unknown(tmp_path, what):
    runs = []
    for mode in ("auto", "replay"):
        lab = tl.Lab(Reporting(usage=BAD[what]), runs=None, cache=tmp_path, mode=mode)
        runs.append(wait(lab.run(tl.OneAnswer(), TASK)))
    assert [run.stop_reason for run in runs] == ["answered"] * 2
    assert runs[0].events == runs[1].events
    (name,) = BAD[what]
    assert getattr(runs[0].usage, name) is None


def test_in_replay_a_redis_that_is_away_is_an_error(tmp_path, own):
    server = own()
    cache = tl.Cache(tmp_path / "a", shared=server.url)
    server.stop()
    with pytest.raises(RedisUnavailable, match="cannot be reached"):
        searched(scripted(), cache, mode="replay")


def test_a_redis_that_forgets_is_warned_of(tmp_path, own):
    url = own(maxmemory_policy="allkeys-lru", appendonly="no", save="").url
    with pytest.warns(RuntimeWarning) as caught:
        RedisStore(url).close()
    said = [str(warning.message) for warning in caught]
    assert len(said) == 2
    assert "maxmemory-policy allkeys-lru" in said[0]
    assert "no appendonly, no save" in said[1]


def test_one_that_keeps_is_not(own):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RedisStore(own(appendonly="no", save="60 1").url).close()


@pytest.mark.parametrize(
    "url",
    [
        "redis:/:s3cret@host",
        "http://:s3cret@host",
        "redis://:s3/cret@host:6379/0",
        "redis://:s3#cret@host",
        "redis://:s3?cret@host",
        "redis://:s3cret@host:65537",
        "redis://:s3cret@host/0?nonsense=1",
    ],
)
def test_a_bad_address_is_told_of_without_its_password(url):
    with pytest.raises(ValueError, match="shared") as caught:
        RedisStore(url)
    assert not {"s3", "cret"} & set("".join(traceback.format_exception(caught.value)[-1:]).split("/"))
    assert "cret" not in str(caught.value)


def test_one_that_cannot_be_reached_or_refuses_is_an_error_at_once(tmp_path, server):
    with pytest.raises(tl.errors.CacheError, match="cannot be used"):
        tl.Cache(tmp_path, shared=f"redis://127.0.0.1:{free_port()}/0")
    with pytest.raises(tl.errors.CacheError, match="cannot be used") as caught:
        tl.Cache(tmp_path, shared=f"redis://:wr0ng@127.0.0.1:{server.port}/0")
    assert "wr0ng" not in str(caught.value)


def test_the_password_is_in_nothing_that_is_shown_or_recorded(tmp_path, url, own):
    cache = tl.Cache(tmp_path / "calls", shared=url)
    lab = tl.Lab(scripted(), runs=tmp_path / "runs", cache=cache)
    run = wait(lab.run(SEARCH, TASK))
    shown = [repr(cache), repr(cache.shared), repr(lab), repr(run), json.dumps(lab.gateway.settings)]
    shown += [path.read_bytes().decode(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    shown.append(run.save_html(tmp_path / "run.html").read_text())
    assert f"redis://127.0.0.1:{url.rpartition(':')[2]}" in shown[0]
    assert not [text for text in shown if "s3cr" in text]


def test_only_a_folder_stands_before_it_and_answers_stay(tmp_path, url):
    with pytest.raises(ValueError, match=r"tl\.Cache\(folder, shared="):
        wait(tl.Lab(scripted(), cache="redis://:s3cret@host:6379/0", runs=None).gateway.open())
    cache = tl.Cache(tmp_path / "a", shared=url)
    with pytest.raises(tl.errors.CacheError, match="keeps the first replies"):
        searched(scripted(), cache, mode="refresh")
    run = searched(scripted(), cache)
    export_calls(tmp_path / "x.jsonl.gz", [run], cache)
    with pytest.raises(ValueError, match="cannot be written"):
        tl.Cache(tmp_path / "x.jsonl.gz", shared=url)


def test_it_needs_no_thread_of_the_parent_after_a_fork(tmp_path, url):
    store = RedisStore(url)
    store.offer(KEY, bytes_of("here")).result()
    start = multiprocessing.get_context("fork")
    child = start.Process(target=lambda: store.get(KEY) == bytes_of("here") or exit(3))
    child.start()
    child.join(20)
    assert child.exitcode == 0
