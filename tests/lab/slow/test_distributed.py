"""A sweep on dask workers: the same frame as from one process, whoever dies on the way."""

import asyncio
import functools
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest
from support import TESTS, answer_to, shuffled
from support.followers import Follower
from support.workers import TASKS, Logged, Priced

import tot_lab as tl
from tot_lab.core.calls import Reply

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
from tot_lab.lab.sweeps.distributed import PACKAGE, Parcel, digest_of  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore:A dask worker died")]

SETTINGS = {"ToT": tl.grid(tl.TreeOfThoughts, {"search.width": [1, 2]}), "IO": tl.OneAnswer()}
HAND = tl.game24("4 5 6 10")


@pytest.fixture(scope="module")
def client():
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0")
    # Else a worker that happens to be down just then, 15 s after another had died, is not started again.
    patient = dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"})
    with patient, cluster, distributed.Client(cluster) as client:
        yield client


def wait(thing):
    async def soon():
        return await asyncio.wait_for(thing, 60)

    return asyncio.run(soon())


def table_of(sweep):
    """The frame, times aside, byte for byte."""
    frame = sweep.df() if hasattr(sweep, "df") else sweep
    return frame.drop(columns=["seconds", "seconds_alone"]).to_csv()


def left_on(client):
    """What sweeps have left on the scheduler and the workers."""

    def look(dask_scheduler):
        extensions = dask_scheduler.extensions
        names = [*extensions["queues"].queues, *extensions["events"]._events, *dask_scheduler.tasks]
        return [name for name in names if "SweepWorker" in str(name)]

    def threads(dask_worker):
        return [thread.name for thread in threading.enumerate() if "tot_lab-sweep" in thread.name]

    return client.run_on_scheduler(look) + list(itertools.chain(*client.run(threads).values()))


async def model(call):
    return answer_to(call)


def logged(path):
    """pid, sent, answered, call of every request that was answered."""
    lines = [line.split("\t") for line in Path(path).read_text().splitlines()]
    return [(int(pid), float(sent), float(answered), call) for pid, sent, answered, call in lines]


# The same.


async def second(call):
    return "Answer: the second model"


@pytest.mark.nightly
def test_models_of_strategies_and_roles_answer_on_the_workers(tmp_path, client):
    settings = {"role": tl.OneAnswer(model="other"), "own": tl.OneAnswer(model=second), "lab": tl.OneAnswer()}
    lab = tl.Lab(model, runs=tmp_path, roles={"other": second})
    sweep = wait(lab.sweep(settings, TASKS[:1], client=client))
    answers = sweep.df().set_index("setting").answer
    assert "second model" in answers["role"]
    assert answers["role"] == answers["own"] != answers["lab"]


@pytest.mark.nightly
def test_the_frame_is_that_of_one_process(tmp_path, client):
    here = tl.Lab(model, runs=tmp_path / "here", roles={"evaluate": tl.Role(temperature=0.5)})
    there = tl.Lab(model, runs=tmp_path / "there", roles={"evaluate": tl.Role(temperature=0.5)})
    one = wait(here.sweep(SETTINGS, TASKS, 2))
    two = wait(there.sweep(SETTINGS, TASKS, 2, client=client))
    assert len(two.df()) == 48
    assert table_of(two) == table_of(one)
    assert two.counts == one.counts
    assert two.nodes_df().equals(one.nodes_df())
    row = two.df().iloc[5]
    assert two.run(row).events == one.run(row.run_id).events
    assert two.run(row).path == tmp_path / "there" / "sweep" / f"{row.run_id}.jsonl"
    pytest.importorskip("pandas")
    again = wait(tl.Lab(model, runs=tmp_path / "there").sweep(SETTINGS, TASKS[:1]))
    assert again.found == 0, "another lab, without the role"
    again = wait(there.sweep(SETTINGS, TASKS, 2))
    assert (again.found, table_of(again)) == (48, table_of(one)), "either goes on with the other's journals"
    again = wait(here.sweep(SETTINGS, TASKS, 2, client=client))
    assert (again.found, table_of(again)) == (48, table_of(one))


def test_without_a_folder_the_runs_are_in_memory(client):
    one, two = (
        wait(tl.Lab("sim/game24", runs=None).sweep(tl.OneAnswer(), tl.game24_tasks(3), client=c))
        for c in (None, client)
    )
    assert table_of(one) == table_of(two)
    assert [run.events for run in one.runs()] == [run.events for run in two.runs()]
    assert [run.path for run in two.runs()] == [None] * 3


def of_a_notebook(offset):
    """A strategy, a model and a grader that no module holds."""

    class Own(tl.Prompting):
        """A search of a notebook."""

        kind = "test/own"
        more: int = 1

        def think(self, task, at="0"):
            yield tl.Thought(at, None, task.question)
            if task.question == "bug":
                raise RuntimeError("a bug of mine")
            reply = yield from tl.ask(self.call(at, "answer", task.question, 0))
            return tl.Answer(reply.text * self.more, "answered", at)

        def max_calls(self, task):
            return 1

    class Adding:
        async def __call__(self, call):
            return str(len(call.prompt) + offset)

    def right(answer, reference):
        if answer == "8":
            raise KeyError("no such word")
        return float(answer == str(reference))

    return Own, Adding(), right


def test_what_a_person_wrote_themselves_travels(tmp_path, client):
    Own, adding, right = of_a_notebook(3)
    tasks = [tl.general(word, answer=6, grade=right) for word in ("who", "bug", "where")]
    frames = []
    for k, workers in enumerate((None, client)):
        lab = tl.Lab(adding, runs=tmp_path / str(k))
        frames.append(wait(lab.sweep([Own(), Own(more=2)], tasks, client=workers)))
    assert table_of(frames[0]) == table_of(frames[1])
    table = frames[1].df().set_index(["setting", "task"])
    assert table.loc[("Own more=1", "who"), "correct"]
    assert not table.loc[("Own more=2", "who"), "correct"]
    assert "a bug of mine" in table.loc[("Own more=1", "bug"), "error"]
    assert "cannot be graded" in table.loc[("Own more=1", "where"), "error"]


SCRIPT = """
import asyncio
import tot_lab as tl
from distributed import Client, LocalCluster

class Shouting(tl.sim.SimGeneral):
    async def __call__(self, call):
        return "ANSWER: 26"

if __name__ == "__main__":
    tasks = [tl.general(f"What is {k}?", answer=26, grade="number") for k in range(4)]
    lab = tl.Lab(Shouting(), runs="runs")
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster:
        with Client(cluster) as client:
            print(asyncio.run(lab.sweep(tl.OneAnswer(), tasks, client=client)).df().correct.tolist())
"""


@pytest.mark.nightly
def test_a_script_may_hold_its_own_parts(tmp_path):
    """Its workers import it too, under another name."""
    (tmp_path / "script.py").write_text(SCRIPT)
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.strip() == "[True, True, True, True]", done.stderr


def test_a_client_of_the_users_own_loop_does_as_well(tmp_path):
    async def swept():
        cluster = distributed.LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0", asynchronous=True
        )
        async with cluster, distributed.Client(cluster, asynchronous=True) as client:
            return await tl.Lab(model, runs=tmp_path).sweep(SETTINGS, TASKS, client=client)

    assert table_of(wait(swept())) == table_of(wait(tl.Lab(model, runs=None).sweep(SETTINGS, TASKS)))


# Limits, and the cache.


@pytest.mark.nightly
def test_workers_share_the_limit_of_an_endpoint(tmp_path, client):
    end = Logged(log=str(tmp_path / "log"), concurrency=5, seconds=0.05)
    lab = tl.Lab(end, runs=tmp_path / "runs", mode="off")
    wait(lab.sweep(tl.TreeOfThoughts(stop=tl.Stop(depth=2)), TASKS, 2, client=client))
    calls = logged(end.log)
    moments = sorted([(sent, 1) for _, sent, _, _ in calls] + [(answered, -1) for _, _, answered, _ in calls])
    under_way = most = 0
    for _, change in moments:
        under_way += change
        most = max(most, under_way)
    by_task = Counter((call.split("?")[0], pid) for pid, _, _, call in calls)
    assert len(by_task) == 8, "all runs of a task are made by one worker"
    assert len({pid for pid, *_ in calls}) == 2
    assert 3 < most <= 5


def test_a_limit_below_the_workers_is_kept(tmp_path, client):
    end = Logged(log=str(tmp_path / "log"), concurrency=1)
    wait(tl.Lab(end, runs=None, mode="off").sweep(tl.OneAnswer(), TASKS, client=client))
    calls = sorted(logged(end.log), key=lambda call: call[1])
    assert all(one[2] <= two[1] for one, two in pairwise(calls))


def max_under_way(calls):
    moments = sorted([(sent, 1) for _, sent, _, _ in calls] + [(answered, -1) for _, _, answered, _ in calls])
    return max(itertools.accumulate(change for _, change in moments))


@pytest.mark.nightly
def test_requests_per_minute_hold_over_the_death_of_a_worker(tmp_path, client):
    end = Logged(log=str(tmp_path / "log"), requests_per_minute=12)
    lab = tl.Lab(end, runs=tmp_path / "runs", mode="off")

    async def for_some_seconds():
        running = asyncio.create_task(lab.sweep(tl.OneAnswer(), TASKS, 8, client=client))
        while not Path(end.log).exists() or len(logged(end.log)) < 6:
            await asyncio.sleep(0.01)
        os.kill(logged(end.log)[0][0], signal.SIGKILL)
        await asyncio.sleep(1)
        await asyncio.to_thread(client.wait_for_workers, 2)
        await asyncio.sleep(2)
        running.cancel()
        await asyncio.wait([running])

    wait(for_some_seconds())
    assert 6 <= len(logged(end.log)) <= 12


def test_settings_share_their_calls_and_what_was_paid_is_shown(tmp_path, client):
    end = Logged(log=str(tmp_path / "log"))
    lab = tl.Lab(end, runs=tmp_path / "runs", cache=tmp_path / "calls")
    sweep = wait(lab.sweep(SETTINGS, TASKS, client=client))
    asked = Counter(call for *_, call in logged(end.log))
    assert set(asked.values()) == {1}
    assert sweep.counts.distinct == sweep.counts.paid == len(asked) < sweep.counts.asked
    assert lab.spent == pytest.approx(0.25 * len(asked))
    again = wait(lab.replaying().sweep(SETTINGS, TASKS, name="again", client=client))
    assert again.counts.paid == 0
    assert (
        again.df()
        .drop(columns=["seconds", "seconds_alone", "paid"])
        .equals(sweep.df().drop(columns=["seconds", "seconds_alone", "paid"]))
    )


@pytest.mark.nightly
def test_workers_without_a_folder_of_the_client(tmp_path, tmp_path_factory, client):
    """They open nothing below the client's folder, as on another machine, and use its cache all the same."""
    log = tmp_path_factory.mktemp("log") / "log"

    def watch(dask_worker, folder=str(tmp_path)):
        dask_worker.opened = opened = []

        def look(event, args):
            if event in ("open", "sqlite3.connect", "os.listdir", "os.mkdir") and folder in str(args[0]):
                opened.append(str(args[0]))

        sys.addaudithook(look)

    client.run(watch)
    end = Logged(log=str(log), seconds=0.02)
    here = wait(tl.Lab(end, runs=None, cache=tmp_path / "one").sweep(SETTINGS, TASKS, 2))
    log.unlink()
    lab = tl.Lab(end, runs=tmp_path / "runs", cache=tmp_path / "calls")
    there = wait(lab.sweep(SETTINGS, TASKS, 2, client=client))
    paid = Counter(call for *_, call in logged(log))
    assert table_of(there.df().drop(columns="paid")) == table_of(here.df().drop(columns="paid"))
    assert set(paid.values()) == {1}
    more = wait(lab.sweep(SETTINGS, TASKS, 3, name="more", client=client))
    assert more.counts.paid == len(logged(log)) - len(paid), "only the third repeats"
    missing = wait(lab.replaying().sweep(SETTINGS, TASKS[:2], 4, name="missing", client=client)).df()
    assert missing.error.dropna().str.contains("The most similar entry").all()
    assert missing.error.notna().sum() == 6
    opened = client.run(lambda dask_worker: dask_worker.opened)
    client.restart()
    assert len(opened) == 2
    assert not any(opened.values())


@pytest.mark.nightly
def test_a_refreshed_cache_is_new_for_all_workers(tmp_path, client):
    end = Logged(log=str(tmp_path / "log"))
    for mode in ("auto", "refresh"):
        lab = tl.Lab(end, runs=tmp_path / mode, cache=tmp_path / "calls", mode=mode)
        wait(lab.sweep(SETTINGS, TASKS, client=client))
    assert set(Counter(call for *_, call in logged(end.log)).values()) == {2}


def test_workers_divide_what_may_be_spent(tmp_path, client):
    end = Priced(log=str(tmp_path / "log"))
    lab = tl.Lab(end, runs=tmp_path / "runs", cache=tmp_path / "calls", spend=3.0)
    search = tl.TreeOfThoughts(stop=tl.Stop(depth=2))
    part = wait(lab.sweep(search, TASKS[:4], client=client))
    assert lab.spent == 3.0 == 0.25 * len(logged(end.log))
    assert part.df().error.str.contains("spending limit refused").all()
    assert len({pid for pid, *_ in logged(end.log)}) == 2
    more = tl.Lab(end, runs=tmp_path / "runs", cache=tmp_path / "calls", spend=100.0)
    whole = wait(more.sweep(search, TASKS[:4], client=client))
    assert set(Counter(call for *_, call in logged(end.log)).values()) == {1}
    assert more.spent == whole.df().paid.sum() == 0.25 * len(logged(end.log)) > 3.0


@pytest.mark.nightly
def test_what_was_paid_for_a_reply_that_came_after_a_refusal_is_in_the_row(tmp_path, client):
    """The worker that resumes the run does not know of it."""
    end = Priced(log=str(tmp_path / "log"))
    for spend in (2.0, 100.0):
        lab = tl.Lab(end, runs=tmp_path / "runs", cache=tmp_path / "calls", spend=spend)
        sweep = wait(lab.sweep(tl.TreeOfThoughts(stop=tl.Stop(depth=2)), TASKS[:1], client=client))
    (run,) = sweep.runs()
    replies = sum(line.paid for line in run.lines if isinstance(line.e, Reply))
    assert replies < sweep.df().paid.sum() == lab.spent == 0.25 * len(logged(end.log))


# Faults.


def test_a_worker_that_dies_loses_nothing(tmp_path, client):
    end = Logged(log=str(tmp_path / "log"), concurrency=4)
    lab = tl.Lab(end, runs=tmp_path / "runs", cache=tmp_path / "calls")
    counted: dict[str, bytes] = {}
    folder = tmp_path / "runs" / "sweep"

    async def killing():
        running = asyncio.create_task(lab.sweep(SETTINGS, TASKS, 3, client=client))
        while not (lab.last_sweep and len(lab.last_sweep.rows) > 15):
            await asyncio.sleep(0.01)
        os.kill(logged(end.log)[-1][0], signal.SIGKILL)
        counted.update({id: (folder / f"{id}.jsonl").read_bytes() for id in lab.last_sweep.rows})
        return await running

    sweep = wait(killing())
    asked = Counter(call for *_, call in logged(end.log))
    assert sum(asked.values()) - len(asked) <= 4, "those four that were answered, and not yet kept"
    other = Logged(log=str(tmp_path / "other"), concurrency=4)
    alone = wait(tl.Lab(other, runs=None, cache=tmp_path / "others").sweep(SETTINGS, TASKS, 3))
    assert len(sweep.rows) == 72 > len(counted) > 15
    same = [s.df().drop(columns=["seconds", "seconds_alone", "paid"]) for s in (sweep, alone)]
    assert same[0].equals(same[1])
    assert len(list(folder.iterdir())) == 72
    for id, journal in counted.items():
        assert (folder / f"{id}.jsonl").read_bytes() == journal, "what was finished was not done again"
    for run in sweep.runs():
        assert run.stop_reason not in (None, "cancelled", "error")


@pytest.mark.nightly
def test_after_ten_deaths_nothing_that_was_finished_is_paid_twice(tmp_path, client):
    end = Logged(log=str(tmp_path / "log"), seconds=0.3, concurrency=8)
    lab = tl.Lab(end, runs=tmp_path / "runs", cache=tmp_path / "calls")
    strategies, folder = (
        {**SETTINGS, "wide": tl.TreeOfThoughts(search=tl.BeamSearch(width=4))},
        tmp_path / "runs" / "sweep",
    )
    killed: dict[int, float] = {}
    finished: dict[str, bytes] = {}

    async def killing():
        running = asyncio.create_task(lab.sweep(strategies, TASKS, 4, client=client))
        while len(killed) < 10 and not running.done():
            await asyncio.sleep(0.05)
            calls = Counter(pid for pid, *_ in logged(end.log)) if Path(end.log).exists() else Counter()
            busy = [pid for pid, made in calls.items() if made >= 30 and pid not in killed]
            if busy and lab.last_sweep is not None:
                done = [id for id, row in lab.last_sweep.rows.items() if row.error is None]
                finished.update({id: (folder / f"{id}.jsonl").read_bytes() for id in done})
                os.kill(busy[-1], signal.SIGKILL)
                killed[busy[-1]] = time.time()
        return await running

    asyncio.run(killing())
    assert len(killed) == 10
    ended = time.time()
    # A run whose workers died again and again has failed; the same call carries it out.
    sweep = asyncio.run(lab.sweep(strategies, TASKS, 4, client=client))
    assert len(finished) > 4
    first: dict[str, tuple[int, float]] = {}
    for pid, _, answered, call in logged(end.log):
        if call in first:
            stopped = killed.get(first[call][0], ended)
            assert first[call][1] > stopped - 1, "only what was answered just before a worker stopped"
        first[call] = pid, answered
    for id, journal in finished.items():
        assert (folder / f"{id}.jsonl").read_bytes() == journal
    alone = wait(
        tl.Lab(end.model_copy(update={"seconds": 0.0, "log": str(tmp_path / "other")}), runs=None).sweep(
            strategies, TASKS, 4
        )
    )
    same = [one.df().drop(columns=["seconds", "seconds_alone", "paid"]) for one in (sweep, alone)]
    pd.testing.assert_frame_equal(*same)


@pytest.mark.nightly
def test_what_a_dead_worker_paid_is_counted(tmp_path, client):
    end = Logged(log=str(tmp_path / "log"), concurrency=1, deadly=r"What is 3 and 4\?.*\n2\. ")
    lab = tl.Lab(end, runs=tmp_path / "runs", cache=tmp_path / "calls")
    search = tl.TreeOfThoughts(search=tl.BeamSearch(width=1), stop=tl.Stop(depth=3))
    sweep = wait(lab.sweep(search, TASKS[:4], client=client))
    assert Path(end.log + ".dead").exists()
    paid = 0.25 * len(logged(end.log))
    assert lab.spent == pytest.approx(paid)
    assert sweep.df().paid.sum() == pytest.approx(paid)
    assert sweep.counts.paid == len(logged(end.log))
    again = wait(lab.sweep(search, TASKS[:4]))
    assert table_of(again) == table_of(sweep), "it stands in the journals"


@pytest.mark.nightly
def test_two_clients_and_a_process_on_one_folder_make_each_run_once(tmp_path, client):
    end = Logged(log=str(tmp_path / "log"), seconds=0.03)

    async def at_once():
        async with distributed.Client(client.scheduler.address, asynchronous=True) as other:
            labs = [tl.Lab(end, runs=tmp_path / "runs", mode="off") for _ in range(3)]
            return await asyncio.gather(
                *(
                    lab.sweep(tl.TreeOfThoughts(stop=tl.Stop(depth=2)), TASKS, 2, client=each)
                    for lab, each in zip(labs, (client, other, None), strict=True)
                )
            )

    sweeps = wait(at_once())
    assert len(logged(end.log)) == sweeps[0].counts.asked
    assert table_of(sweeps[0]) == table_of(sweeps[1]) == table_of(sweeps[2])
    assert len(list((tmp_path / "runs" / "sweep").iterdir())) == 16


USAGE = {
    "beyond 64 bits": {"input_tokens": 2**70},
    "beyond 64 bits together": {"output_tokens": 2**63},
    "negative": {"input_tokens": -5_000_000, "cost": -100.0},
}


@pytest.mark.parametrize("what", USAGE)
def test_usage_that_cannot_be_true_is_unknown_and_ends_no_sweep(tmp_path, client, what):
    usage = {"input_tokens": 1, "output_tokens": 1, "cost": 0.1} | USAGE[what]

    async def reporting(call):
        return Reply("26", **(usage if "What is 3" in call.prompt else {}))

    one, two = (
        wait(tl.Lab(reporting, runs=tmp_path / str(c)).sweep(tl.OneAnswer(), TASKS[:4], client=c))
        for c in (None, client)
    )
    assert table_of(one) == table_of(two)
    frame = two.df()
    assert frame.error.isna().all()
    assert frame[list(USAGE[what])].iloc[3].isna().all()


def test_nothing_of_a_sweep_stays_on_the_scheduler(tmp_path, client):
    end = Logged(log=str(tmp_path / "log"), seconds=0.05, concurrency=8)
    lab = tl.Lab(end, runs=tmp_path / "runs", mode="off")

    async def cut():
        running = asyncio.create_task(lab.sweep(SETTINGS, TASKS, 40, client=client))
        while not (lab.last_sweep and lab.last_sweep.rows):
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.wait([running])

    wait(lab.sweep(tl.OneAnswer(), TASKS, client=client))
    wait(cut())
    expect_nothing_on(client)


def expect_nothing_on(client):
    """Workers that were cut off need a moment."""
    ends = time.monotonic() + 30
    while (left := left_on(client)) != [] and time.monotonic() < ends:
        time.sleep(0.2)
    assert left == []


@pytest.mark.nightly
def test_without_a_cache_the_journals_hold_what_was_answered(tmp_path, client):
    end = Logged(log=str(tmp_path / "log"), deadly=r"What is 1 and 2\?.*\n2\. ", seconds=0.5)
    search = tl.TreeOfThoughts(search=tl.BeamSearch(width=1), stop=tl.Stop(depth=3))
    sweep = wait(tl.Lab(end, runs=tmp_path / "runs", mode="off").sweep(search, TASKS, client=client))
    assert Path(end.log + ".dead").exists()
    assert len(sweep.rows) == 8
    assert sweep.df().error.isna().all()
    asked = Counter(call for *_, call in logged(end.log))
    first = {call for call in asked if "(no steps yet)" in call}
    assert len(first) >= 8
    assert {asked[call] for call in first} == {1}, "they were answered a second before"


@pytest.mark.nightly
def test_a_run_that_kills_its_worker_each_time_is_a_row(tmp_path, client):
    end = Logged(log=str(tmp_path / "log"), deadly="What is 2 and 3", again=True)
    lab = tl.Lab(end, runs=tmp_path / "runs", mode="off")
    frame = wait(lab.sweep(tl.OneAnswer(), TASKS[:4], client=client)).df()
    assert frame.error.isna().tolist() == [True, True, False, True]
    assert "3 dask workers died while making this run" in frame.error[2]
    well = end.model_copy(update={"deadly": "^$"})
    again = wait(
        tl.Lab(well, runs=tmp_path / "runs", mode="off").sweep(tl.OneAnswer(), TASKS[:4], client=client)
    )
    assert again.found == 3
    assert again.df().error.isna().all()


@pytest.mark.nightly
def test_a_sweep_that_is_cancelled_stops_the_workers_and_goes_on_later(tmp_path, client):
    end = Logged(log=str(tmp_path / "log"), seconds=0.05, concurrency=8)
    lab = tl.Lab(end, runs=tmp_path / "runs", cache=tmp_path / "calls")

    async def cut():
        running = asyncio.create_task(lab.sweep(SETTINGS, TASKS, 12, client=client))
        first = None
        while not first:
            await asyncio.sleep(0.01)
            sweep = lab.last_sweep
            first = sweep and any(sweep.by_id[run_id].repeat == 0 for run_id in sweep.rows)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    wait(cut())
    part = lab.last_sweep
    assert 0 < len(part.df()) < 24 * 12
    time.sleep(1.5)
    calls = len(logged(end.log))
    time.sleep(0.5)
    assert len(logged(end.log)) == calls, "nobody works on"
    whole = wait(lab.sweep(SETTINGS, TASKS, client=client))
    assert whole.found == len(part.rows.keys() & whole.rows.keys()) > 0
    asked = Counter(call for *_, call in logged(end.log))
    assert sum(asked.values()) - len(asked) <= 8, "those that were answered, and not yet kept"
    known = wait(tl.Lab(end, runs=None, cache=tmp_path / "calls").sweep(SETTINGS, TASKS)).df()
    assert (
        whole.df()
        .drop(columns=["seconds", "seconds_alone", "paid"])
        .equals(known.drop(columns=["seconds", "seconds_alone", "paid"]))
    )


@pytest.mark.nightly
def test_a_client_that_was_killed_leaves_no_worker_asking_and_the_sweep_goes_on_later(tmp_path, client):
    log = tmp_path / "log"
    make = f"""
import asyncio, distributed, tot_lab as tl
from support.workers import TASKS, Logged

async def main():
    lab = tl.Lab(Logged(log={str(log)!r}, seconds=0.05), runs={str(tmp_path / "runs")!r}, mode="off")
    async with distributed.Client({client.scheduler.address!r}, asynchronous=True) as client:
        await lab.sweep(tl.TreeOfThoughts(), TASKS, 6, client=client, at_once=4)

asyncio.run(main())
"""
    places = os.pathsep.join([str(Path(tl.__file__).parent.parent), str(TESTS)])
    person = subprocess.Popen([sys.executable, "-c", make], env={**os.environ, "PYTHONPATH": places})
    ends = time.monotonic() + 60
    while not log.exists() or len(logged(log)) < 150:
        assert person.poll() is None
        assert time.monotonic() < ends
        time.sleep(0.05)
    person.kill()
    person.wait()
    asked = -1
    while asked != (asked := len(logged(log))):  # the scheduler has to notice first
        assert time.monotonic() < ends
        time.sleep(2)
    assert asked < 48 * 30
    lab = tl.Lab(Logged(log=str(log), seconds=0.0), runs=tmp_path / "runs", mode="off")
    sweep = wait(lab.sweep(tl.TreeOfThoughts(), TASKS, 6, client=client))
    assert len(sweep.df()) == 48
    assert sweep.df().error.isna().all()
    assert sweep.found > 0
    expect_nothing_on(client)


def test_what_one_process_began_the_workers_go_on_with(tmp_path, client):
    end = Logged(log=str(tmp_path / "log"), seconds=0.03, concurrency=64)
    lab = tl.Lab(end, runs=tmp_path / "runs", mode="off")
    search = tl.TreeOfThoughts(stop=tl.Stop(depth=4))

    async def cut():
        running = asyncio.create_task(lab.sweep(search, TASKS))
        await asyncio.sleep(0.2)
        running.cancel()
        await asyncio.wait([running])

    wait(cut())
    before = Counter(call for *_, call in logged(end.log))
    assert before
    sweep = wait(lab.sweep(search, TASKS, client=client))
    after = Counter(call for *_, call in logged(end.log))
    assert sweep.counts.distinct == len(after) > len(before)
    # What is answered in the very turn of the loop in which the sweep is cut off is not recorded any more.
    assert sum(after.values()) - sweep.counts.paid <= end.concurrency


@pytest.mark.nightly
def test_a_client_that_was_closed_ends_the_sweep_in_words_and_the_finished_runs_are_kept(tmp_path):
    end = Logged(log=str(tmp_path / "log"), seconds=0.05, concurrency=2)
    lab = tl.Lab(end, runs=tmp_path / "runs", mode="off")

    async def closing(client):
        running = asyncio.create_task(lab.sweep(tl.OneAnswer(), TASKS, 4, client=client))
        while not (lab.last_sweep and len(lab.last_sweep.rows) > 4):
            await asyncio.sleep(0.01)
        await asyncio.to_thread(client.close)
        with pytest.raises(RuntimeError, match=r"client is closed. Call lab\.sweep again"):
            await running

    with distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster:
        wait(closing(distributed.Client(cluster)))
    whole = wait(lab.sweep(tl.OneAnswer(), TASKS, 4))
    assert whole.found > 4
    assert whole.df().error.isna().all()


@pytest.mark.nightly
def test_a_cluster_that_lost_its_workers_is_told_of_and_waited_for(tmp_path):
    end = Logged(log=str(tmp_path / "log"), seconds=0.2)
    lab = tl.Lab(end, runs=None, cache=tmp_path / "calls")

    async def warning(warned):
        while not warned.list:
            await asyncio.sleep(0.1)

    async def scaling(cluster, client):
        running = asyncio.create_task(lab.sweep(SETTINGS, TASKS, client=client))
        while not Path(end.log).exists():
            await asyncio.sleep(0.01)
        await asyncio.to_thread(cluster.scale, 0)
        with pytest.warns(RuntimeWarning, match="Workers left: 0") as warned:
            await asyncio.wait_for(warning(warned), 60)
        await asyncio.to_thread(cluster.scale, 1)
        return await running

    cluster = distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0")
    with cluster, distributed.Client(cluster) as client:
        assert len(wait(scaling(cluster, client)).df()) == 24


# Plans.

STEPS = [{"type": "tool_call", "toolName": "look", "toolArgs": {"part": k}} for k in (1, 2)]
SAID = {"plan": json.dumps({"steps": STEPS}), "review": "SATISFIED: yes\nAnswer: 26"}


async def planning(call):
    return tl.Reply(SAID[call.purpose], input_tokens=100, output_tokens=10, cost=0.5)


def plans_in(store):
    return sorted(store.all(), key=lambda plan: plan.id)


@pytest.mark.nightly
def test_a_trace_follows_the_runs_of_workers_beside_the_plans(tmp_path, client):
    @tl.tool
    def look(part: int) -> str:
        """Looks."""
        return f"part {part}"

    for runs in (tmp_path / "runs", None):
        trace, store = Follower(), tl.PlanStore(tmp_path / f"{runs is None}.db")
        lab = tl.Lab(planning, runs=runs, tools=[look], plans=store, trace=trace)
        sweep = wait(lab.sweep(tl.PlanExecute(), TASKS[:3], client=client))
        made = {run.id: run.lines for run in sweep.runs()}
        assert len(made) == len(store.all()) == 3
        assert trace.lines == made


def test_the_plans_of_workers_are_in_the_clients_database_as_they_run(tmp_path, client):
    store = tl.PlanStore(tmp_path / "plans.db")

    @tl.tool(timeout=30, retries=0)
    def look(part: int) -> str:
        """Waits until the database says that this step has begun."""
        for _ in range(1_000):
            under_way = [plan.steps[part - 1].status for plan in store.all("active") if plan.steps]
            if "in_progress" in under_way:
                return f"{os.getpid()} saw it"
            time.sleep(0.01)
        raise RuntimeError(f"nothing of step {part}")

    lab = tl.Lab(planning, runs=tmp_path / "runs", tools=[look], plans=store)
    sweep = wait(lab.sweep(tl.PlanExecute(), TASKS[:4], client=client))
    assert sweep.df().correct.all()
    plans = plans_in(store)
    runs = sorted(sweep.runs(), key=lambda run: run.id)
    assert plans == [run.plans[0] for run in runs]
    assert [plan.journal for plan in plans] == [str(run.path) for run in runs]
    assert {plan.status for plan in plans} == {"completed"}
    seen = {step.result.split()[0] for plan in plans for step in plan.steps}
    assert seen
    assert str(os.getpid()) not in seen, "the steps were done by workers"
    wait(
        tl.Lab(planning, runs=None, tools=[look], plans=store).sweep(
            tl.PlanExecute(), TASKS[:1], client=client
        )
    )
    assert [plan.journal for plan in store.all()].count("") == 1


@pytest.mark.nightly
def test_a_plan_whose_worker_died_goes_on_from_its_journal(tmp_path, client):
    store, done = tl.PlanStore(tmp_path / "plans.db"), tmp_path / "done"

    @tl.tool(retries=0)
    def look(part: int) -> str:
        """Dies in the second step, the first time, when the first is known to the client."""
        with done.open("a") as file:
            file.write(f"{part}\n")
        if part == 2 and done.read_text().count("2") == 1:
            while not any(plan.steps and plan.steps[0].status == "completed" for plan in store.all()):
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
        return "seen"

    lab = tl.Lab(planning, runs=tmp_path / "runs", tools=[look], plans=store)
    sweep = wait(lab.sweep(tl.PlanExecute(), TASKS[:1], client=client))
    (run,) = sweep.runs()
    assert store.all() == run.plans
    assert [step.status for step in run.plans[0].steps] == ["completed"] * 2
    assert done.read_text().split() == ["1", "2", "2"], "no completed step ran again"


# What it refuses, and what it says.


def test_what_is_no_client_is_refused():
    with pytest.raises(TypeError, match=r"dask\.distributed\.Client"):
        wait(tl.Lab("sim/game24", runs=None).sweep(tl.OneAnswer(), HAND, client="tcp://host:8786"))


def test_a_cluster_without_workers_is_an_error():
    cluster = distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=":0")
    with cluster, distributed.Client(cluster) as client, pytest.raises(ValueError, match="no worker"):
        wait(tl.Lab("sim/game24", runs=None).sweep(tl.OneAnswer(), HAND, client=client))


def test_what_a_worker_warns_of_is_said_here(tmp_path, client):
    async def warning(call):
        warnings.warn("the model is odd", RuntimeWarning, stacklevel=2)
        return "26"

    for _ in range(2):  # each sweep says it
        with pytest.warns(RuntimeWarning, match="from a dask worker: the model is odd"):
            wait(tl.Lab(warning, runs=None).sweep(tl.OneAnswer(), TASKS, client=client))


def test_each_sweep_of_one_process_says_what_it_is_warned_of(client):
    async def warning(call):
        warnings.warn("the model is odd", RuntimeWarning, stacklevel=2)
        return "26"

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")  # as in a notebook
        for each in (None, None, client, client):
            wait(tl.Lab(warning, runs=None).sweep(tl.OneAnswer(), TASKS, client=each))
    odd = [str(warning.message) for warning in caught if "odd" in str(warning.message)]
    assert odd == ["the model is odd"] * 2 + ["from a dask worker: the model is odd"] * 2


def test_what_cannot_be_sent_ends_the_sweep_in_words(client):
    class Held:
        async def __call__(self, call):
            return client.status

    with pytest.raises(TypeError, match="cannot be sent to the workers"):
        wait(tl.Lab(Held(), runs=None).sweep(tl.OneAnswer(), TASKS, client=client))


OTHERS = {
    "another version": ("tot_lab [^ ]+", "tot_lab 0.0.1"),
    "other code of the same version": ("code [0-9a-f]+", "code 0123456789ab"),
    "another Python": ("Python .*", "Python 3.9"),
}


@pytest.mark.parametrize("what", OTHERS)
def test_other_code_than_the_clients_ends_the_sweep_in_words(client, monkeypatch, what):
    """The digest of the package tells two states of one version apart."""
    other = re.sub(*OTHERS[what], PACKAGE)
    assert other != PACKAGE
    monkeypatch.setattr("tot_lab.lab.sweeps.distributed.Parcel", functools.partial(sent_by, other))
    with pytest.raises(
        RuntimeError, match=f"dask worker has {re.escape(PACKAGE)}, .* {re.escape(other)}.*Install"
    ):
        wait(tl.Lab(model, runs=None).sweep(tl.OneAnswer(), TASKS, client=client))


def sent_by(package, sweep):
    """The parcel of a client that has another package."""
    parcel = Parcel(sweep)
    parcel.package = package
    return parcel


def test_the_digest_follows_the_code(tmp_path):
    """Of a copy of the package in which one line of one file is another."""

    def ignored(folder, names):
        return [name for name in names if not name.endswith(".py") and not Path(folder, name).is_dir()]

    shutil.copytree(Path(tl.__file__).parent, tmp_path / "tot_lab", symlinks=True, ignore=ignored)
    assert f"(code {digest_of(tmp_path / 'tot_lab')})" in PACKAGE
    with (tmp_path / "tot_lab" / "domains" / "word_sums.py").open("a") as file:
        file.write("# a change\n")
    assert digest_of(tmp_path / "tot_lab") not in PACKAGE


def test_what_is_sent_shows_no_secret():
    lab = tl.Lab(tl.LiteLLM(model="gpt-4.1-mini", api_key="sk-s3cret"), runs=None)
    parcel = Parcel(tl.Sweep(lab.runner, tl.OneAnswer(), TASKS, 1, "sweep", None, runs=None))
    assert repr(parcel) == str(parcel) == "<a sweep>"


@pytest.mark.nightly
def test_any_order_of_replies_gives_the_same(client):
    late = shuffled(3, most=0.01)

    async def slow(call):
        await asyncio.sleep(late(call))
        return answer_to(call)

    one, two = (
        wait(tl.Lab(slow, runs=None).sweep(SETTINGS, TASKS, at_once=3, client=c)) for c in (None, client)
    )
    assert table_of(one) == table_of(two)
