"""What interrupted runs may have paid counts once, also if several of them waited for one request."""

import asyncio
import shutil
from pathlib import Path

import pytest
from support import TASK, wait
from support.endpoint import scripted
from support.workers import TASKS, Priced

import tot_lab as tl
from tot_lab.core.calls import Reply
from tot_lab.models.cache import StoreReplies

SETTINGS = {"votes": tl.grid(tl.SelfConsistency(strategy=tl.ChainOfThought()), attempts=[2, 3, 4])}
"""9 calls, of which 4 are different: the settings share their samples."""


async def until(is_true):
    async with asyncio.timeout(10):
        while not is_true():
            await asyncio.sleep(0.001)


async def interrupted(lab, end, runs, left):
    """Cancel a sweep while its 4 requests are in flight. `left` is what a kill would leave of `runs` then."""
    running = asyncio.ensure_future(lab.sweep(SETTINGS, [TASK]))
    await until(lambda: sum(map(len, end.requests)) == 4)
    await asyncio.sleep(0.01)  # less than the time after which notes are written in any case
    shutil.copytree(runs, left)
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.parametrize("how", ["killed", "cancelled"])
def test_a_request_that_several_interrupted_runs_waited_for_counts_once(how, tmp_path):
    end = scripted(seconds=30, samples=True)  # gathers samples, so that others join before they are sent
    lab = tl.Lab(end, runs=tmp_path / "cancelled", cache=tmp_path / "calls", spend=20.0)
    wait(interrupted(lab, end, tmp_path / "cancelled", tmp_path / "killed"))
    assert lab.spent == 4.0
    for spent in (8.0, 8.0):  # the second time nothing is left to do
        lab = tl.Lab(scripted(), runs=tmp_path / how, cache=tmp_path / "calls", spend=20.0)
        sweep = wait(lab.sweep(SETTINGS, [TASK]))
        assert (lab.spent, sweep.df().paid.sum()) == (spent, 4.0)
        assert sweep.df().error.isna().all()


@pytest.mark.parametrize("ends", [True, False])
def test_the_run_that_waits_on_does_not_state_again_what_a_run_that_was_cancelled_states(ends, tmp_path):
    """The second run joins the call of the first, which is then cancelled. The second one gets the reply, or
    is killed.
    """
    end = scripted(seconds=0.05)

    async def go():
        lab = tl.Lab(end, runs=tmp_path / "runs", cache=tmp_path / "calls", spend=20.0)
        runs = []
        for _ in range(2):
            runs.append(asyncio.ensure_future(lab.run(tl.OneAnswer(), TASK)))
            await until(lambda: end.requests)
            await asyncio.sleep(0.01)
        runs[0].cancel()
        await asyncio.wait(runs[: 2 if ends else 1])
        shutil.copytree(tmp_path / "runs", tmp_path / "left")
        await runs[1]
        assert (len(end.requests), lab.spent) == (1, 1.0)

    wait(go())
    lab = tl.Lab(end, runs=None, cache=tmp_path / "calls", spend=20.0)
    made = [wait(lab.resume(path)) for path in (tmp_path / "left").rglob("*.jsonl")]
    assert [run.stop_reason for run in made] == ["answered"] * 2
    assert (len(end.requests), lab.spent) == (1, 1.0)


@pytest.mark.parametrize("spend", [4.0, 3.0])
def test_a_refusal_says_that_nothing_is_left_and_how_to_continue(spend, tmp_path):
    end = scripted(seconds=30, samples=True)  # gathers samples, so that others join before they are sent
    lab = tl.Lab(end, runs=tmp_path / "runs", cache=tmp_path / "calls", spend=20.0)
    wait(interrupted(lab, end, tmp_path / "runs", tmp_path / "killed"))
    refused = wait(tl.Lab(scripted(), runs=tmp_path / "runs", spend=spend).sweep(SETTINGS, [TASK]))
    text = str(refused)
    assert f"Nothing was left of ${spend:.2f}: up to $4.00 may already have been paid" in text
    assert "$-" not in text
    assert "With a higher spend=, the same lab.sweep(…) continues" in text
    lab = tl.Lab(scripted(), runs=tmp_path / "runs", spend=20.0)
    assert wait(lab.sweep(SETTINGS, [TASK])).df().error.isna().all()


def test_what_was_paid_for_a_reply_that_is_recorded_after_a_refusal_is_not_lost(tmp_path, monkeypatch):
    """A resumed run drops such a reply, and makes its call again."""
    store = StoreReplies.answer

    async def slowly(self, calls, observer):
        replies = await store(self, calls, observer)
        await asyncio.sleep(0.005)  # meanwhile the next call is refused
        return replies

    monkeypatch.setattr(StoreReplies, "answer", slowly)
    end = Priced(log=str(tmp_path / "log"), seconds=0.001)
    for spend in (1.0, 1.25, 100.0):  # the limit ends the run twice
        lab = tl.Lab(end, runs=tmp_path / "runs", cache=tmp_path / "calls", spend=spend)
        sweep = wait(lab.sweep(tl.TreeOfThoughts(stop=tl.Stop(depth=1)), TASKS[:1]))
        assert lab.spent == sweep.df().paid.sum() == 0.25 * len(Path(end.log).read_text().splitlines())
    (run,) = sweep.runs()
    assert sum(line.paid for line in run.lines if isinstance(line.e, Reply)) < run.usage.paid == lab.spent
