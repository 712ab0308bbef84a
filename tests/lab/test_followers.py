"""What follows the runs of a lab: any number of followers, each with all records of each run."""

import asyncio

import pytest
from support import TASK, Scripted, wait
from support.followers import Follower

import tot_lab as tl
from tot_lab.runtime.runner import Runner
from tot_lab.runtime.settings import RunnerSettings

SEARCH = tl.TreeOfThoughts()
GAME = tl.game24("4 9 10 13")


def test_a_lab_has_a_trace_beside_its_plans(tmp_path):
    trace = Follower()
    lab = tl.Lab("sim/game24", runs=tmp_path, plans=tmp_path / "plans.db", trace=trace)
    run = wait(lab.run(SEARCH, GAME))
    assert trace.lines == {run.id: run.lines}
    planning = tl.Lab(Scripted(), runs=None, plans=tmp_path / "plans.db", trace=trace)
    planned = wait(planning.run(tl.PlanExecute(), TASK))
    assert trace.lines[planned.id] == planned.lines
    assert [plan.id for plan in lab.plans.all()] == [plan.id for plan in planned.plans]


def test_all_followers_of_a_runner_see_all():
    followers = [Follower() for _ in range(3)]
    runner = Runner(RunnerSettings("sim/game24"), followers)

    async def carried_out():
        await runner.gateway.open()
        header = runner.header(SEARCH, GAME)
        return await runner.start(SEARCH, GAME, header=header, path=None).carry_out()

    run = wait(carried_out())
    assert [follower.lines for follower in followers] == [{run.id: run.lines}] * 3
    assert [*Runner(RunnerSettings("sim/game24")).followers] == []


def test_streams_sweeps_branches_and_resumed_runs_are_followed(tmp_path):
    trace = Follower()
    lab = tl.Lab("sim/game24", runs=tmp_path, trace=trace)
    stream = lab.stream(SEARCH, GAME)

    async def streamed():
        return [event async for event in stream]

    wait(streamed())
    assert trace.lines[stream.run.id] == stream.run.lines
    sweep = wait(lab.sweep({"a": SEARCH, "b": tl.OneAnswer()}, tl.game24_tasks(2)))
    for run in sweep.runs():
        assert [line.e for line in trace.lines[run.id]] == [line.e for line in run.lines]
    branch = wait(lab.branch(stream.run, "0.0", score=0.1))
    assert trace.lines[branch.id] == branch.lines
    lines = stream.run.path.read_bytes().splitlines(keepends=True)
    stream.run.path.write_bytes(b"".join(lines[:20]))
    again = wait(lab.resume(stream.run.path))
    assert trace.lines[again.id] == again.lines
    known = len(trace.lines)
    assert wait(lab.resume(again.path)).lines == again.lines  # it is over: nothing to follow
    assert len(trace.lines) == known


def test_a_trace_is_part_of_no_record_and_of_no_replay(tmp_path):
    trace = Follower()
    lab = tl.Lab("sim/game24", runs=tmp_path, trace=trace)
    run = wait(lab.run(SEARCH, GAME))
    plain = wait(tl.Lab("sim/game24", runs=None).run(SEARCH, GAME))
    assert run.events == plain.events
    changing = ("id", "started")
    assert [getattr(run.header, name) for name in run.header.__struct_fields__ if name not in changing] == [
        getattr(plain.header, name) for name in plain.header.__struct_fields__ if name not in changing
    ]
    assert lab.runner.settings.trace is None  # workers receive these
    assert [*lab.replaying().runner.followers] == []
    asyncio.run(run.replay())
    asyncio.run(lab.estimate(SEARCH, GAME))
    assert trace.lines.keys() == {run.id}


@pytest.mark.parametrize("trace", ["http://localhost:6006", 3, object(), print])
def test_what_does_not_follow_is_no_trace(trace):
    with pytest.raises(
        TypeError, match=r"trace must be tl\.OpenTelemetry\(url\) or an object with `following`: got "
    ):
        tl.Lab("sim/game24", trace=trace)
