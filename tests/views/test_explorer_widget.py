"""The explorer's Python half, with what it sends kept; a browser is in test_explorer_lab.py."""

import asyncio
import gc
import json
import subprocess
import sys
import threading
import time

import comm
import pytest
from comm.base_comm import BaseComm
from support import Scripted, run, shuffled, wait

import tot_lab as tl
from tot_lab.record.marks import _watchers
from tot_lab.views.explorer import widget
from tot_lab.views.explorer.widget import RATE

SEARCH = tl.TreeOfThoughts(propose=tl.Sample(count=3))
TASK = tl.general("How many legs?")


class Kept(BaseComm):
    """A way to a browser that keeps what goes by it."""

    def publish_msg(self, msg_type, data=None, metadata=None, buffers=None, **keys):
        self.__dict__.setdefault("sent", []).append((time.monotonic(), msg_type, data, buffers))

    def said(self, **content):
        """What a browser would say."""
        self.handle_msg({"content": {"data": {"method": "custom", "content": content}}, "buffers": []})

    def messages(self, kind):
        """What was sent of one kind: when, and what."""
        return [
            (moment, data["content"], buffers and json.loads(buffers[0]))
            for moment, name, data, buffers in list(self.sent)
            if name == "comm_msg" and data["method"] == "custom" and data["content"]["kind"] == kind
        ]


@pytest.fixture(autouse=True)
def kept(monkeypatch):
    monkeypatch.setattr(comm, "create_comm", Kept)
    yield
    for thread in threading.enumerate():
        if thread.name == "explorer":
            thread.join(30)


def soon(look):
    end = time.monotonic() + 120
    while not look():
        assert time.monotonic() < end
        time.sleep(0.01)


def lines_of(explorer):
    """How far a browser that heard everything knows the run; a gap is an error."""
    known = 0
    for _, _, chunk in explorer.comm.messages("lines"):
        assert chunk["first"] <= known
        known = max(known, chunk["first"] + len(chunk["kinds"]))
    return known


@pytest.mark.slow
def test_what_a_browser_asks_for_is_told_from_where_it_stands():
    made = run(SEARCH)
    explorer = tl.Explorer(made)
    explorer.comm.said(kind="have", runs=[])
    soon(lambda: lines_of(explorer) == len(made.lines) and explorer.comm.messages("facts"))
    before = len(explorer.comm.messages("lines"))
    explorer.comm.said(kind="have", runs=[[made.id, 7, 0]])
    soon(lambda: len(explorer.comm.messages("lines")) > before)
    assert explorer.comm.messages("lines")[-1][2]["first"] == 7
    explorer.close()


@pytest.mark.slow
def test_a_browser_that_says_nothing_is_told_all_the_same():
    made = run(SEARCH)
    explorer = tl.Explorer(made)
    soon(lambda: explorer.comm.sent[1:] and lines_of(explorer) == len(made.lines))
    explorer.close()


@pytest.mark.slow
def test_a_burst_is_told_whole_in_few_batches():
    recorder = tl.Recorder("mine")
    explorer = tl.Explorer(recorder)
    explorer.comm.said(kind="have", runs=[])
    root = recorder.thought("root")
    began = time.monotonic()
    for k in range(5_000):
        recorder.thought(f"step {k}", parent=root)
    recorder.end("done", node=root)
    soon(lambda: explorer.comm.messages("lines") and lines_of(explorer) == len(recorder.lines))
    batches = explorer.comm.messages("lines")
    assert len(batches) <= (batches[-1][0] - began) * RATE + 2
    explorer.close()


def test_a_live_run_is_finished_and_told_to_its_last_line():
    async def watched():
        lab = tl.Lab(Scripted(latency=shuffled(1)), runs=None)
        explorer = tl.Explorer(lab.stream(SEARCH, TASK))
        explorer.comm.said(kind="have", runs=[])
        made = await explorer.finished()
        assert made is explorer.run is lab.last
        while lines_of(explorer) < len(made.lines):
            await asyncio.sleep(0.01)
        assert not explorer.comm.messages("state")[-1][2]["live"][0]
        explorer.close()

    wait(watched())


class Broken(tl.Strategy):
    kind = "broken_for_the_explorer"

    def think(self, task, at="0"):
        yield tl.Thought(at, None, task.question)
        raise ZeroDivisionError("no such luck")


def test_a_bug_is_raised_and_told():
    async def watched():
        explorer = tl.Explorer(tl.Lab(Scripted(), runs=None).stream(Broken(), TASK))
        with pytest.raises(ZeroDivisionError, match="no such luck"):
            await explorer.finished()
        assert explorer.run.stop_reason == "error"
        assert "no such luck" in explorer._error
        explorer.close()

    wait(watched())


def test_closing_stops_a_live_run_and_a_closed_one_opens_anew():
    async def watched():
        lab = tl.Lab(Scripted(latency=lambda call: 30), runs=None)
        explorer = tl.Explorer(lab.stream(SEARCH, TASK))
        await asyncio.sleep(0.05)
        explorer.close()
        with pytest.raises(asyncio.CancelledError):
            await explorer.finished()
        assert explorer.run.stop_reason == "cancelled"
        assert explorer.comm is None
        bundle, _ = explorer._repr_mimebundle_()
        assert bundle["text/plain"].startswith("Explorer of tree_of_thoughts")
        assert explorer.comm is not None
        explorer.close()

    wait(watched())


@pytest.mark.slow
def test_selecting():
    made = run(SEARCH)
    explorer = tl.Explorer(made)
    explorer.selected = made.nodes_df().query("depth == 1")
    assert list(explorer.selected.frame.id) == explorer.selected.ids == ["0.0", "0.1", "0.2"]
    explorer.selected = made.nodes_df().id[2:4]
    assert explorer.ids == list(made.tree.nodes)[2:4]
    explorer.selected = "0.1"
    assert explorer.ids == ["0.1"]
    with pytest.raises(ValueError, match=r"no thought '7', '8'"):
        explorer.selected = ["0.1", "7", "8"]
    with pytest.raises(ValueError, match="got -1"):
        explorer.step = -1
    explorer.close()
    both = tl.CompareExplorer(made, made)
    both.selected = ["b:0.1", "0.0"]
    assert list(both.selected.frame.id) == ["b:0.1", "0.0"]
    both.close()


def test_mistakes_are_named():
    with pytest.raises(TypeError, match="a run, a stream or a recorder: got int"):
        tl.Explorer(3)
    with pytest.raises(RuntimeError, match="needs a running event loop"):
        tl.Explorer(tl.Lab(Scripted(), runs=None).stream(SEARCH, TASK))
    explorer = tl.Explorer(run(SEARCH))
    with pytest.raises(ValueError, match=r"tl.Explorer\(run, lab=lab\)"):
        wait(explorer.branch("0.0", score=0.5))
    explorer.close()


def recorded(recorder):
    """A small search by hand; its second thought."""
    return recorder.thought("a step", recorder.thought("the problem"))


def test_marks_of_a_search_by_hand_are_kept():
    recorder = tl.Recorder("by hand")
    explorer = tl.Explorer(recorder)
    step = recorded(recorder)
    with pytest.raises(ValueError, match="cannot be marked"):
        explorer.mark(step, "right")
    recorder.end("done", node=step)
    explorer.mark(step, "right", "a note")
    assert explorer.run.marks[step].note == explorer.marks[step].note == "a note"
    with pytest.raises(ValueError, match="shows only one run"):
        explorer.mark(f"b:{step}", "wrong")
    explorer.close()
    late = tl.Explorer(recorder)
    late.mark(step, "wrong")
    assert late.marks[step].verdict == "wrong"
    late.close()


@pytest.mark.slow
def test_a_mark_given_to_the_run_is_told(tmp_path):
    made = run(SEARCH)
    path = made.save(tmp_path / "a.jsonl")
    other = tl.load(path)
    for shown, marked in ((made, made), (other, tl.load(path))):
        explorer = tl.CompareExplorer(run(SEARCH), shown)
        explorer.comm.said(kind="have", runs=[])
        soon(lambda explorer=explorer: explorer.comm.messages("facts") and not explorer._sending)
        marked.mark("0.1", "wrong", "no")
        soon(lambda explorer=explorer: len(explorer.comm.messages("facts")) == 2)
        said = {"verdict": "wrong", "note": "no"}
        assert explorer.comm.messages("facts")[-1][2][0]["marks"] == {}
        assert explorer.comm.messages("facts")[-1][2][1]["marks"] == {"0.1": said}
        run(SEARCH).mark("0.1", "right")
        assert not explorer._pending
        explorer.close()


@pytest.mark.nightly
def test_watching_for_marks_keeps_no_explorer_alive():
    gc.collect()
    before = list(_watchers)
    explorer = tl.Explorer(run(SEARCH))
    assert len(_watchers) == len(before) + 1
    explorer.close()
    soon(lambda: all(thread.name != "explorer" for thread in threading.enumerate()))
    del explorer
    gc.collect()
    assert _watchers == before


def test_shown_again_it_knows_what_came_while_it_was_closed():
    recorder = tl.Recorder("by hand")
    explorer = tl.Explorer(recorder)
    step = recorded(recorder)
    explorer.close()
    recorder.thought("unseen", step)
    explorer._repr_mimebundle_()
    recorder.thought("seen", step)
    assert len(explorer.run.tree) == 4
    explorer.comm.said(kind="have", runs=[])
    soon(lambda: lines_of(explorer) == len(recorder.lines))
    explorer.close()


@pytest.mark.slow
def test_cancelling_the_wait_stops_the_search_and_shielding_it_does_not():
    async def impatient():
        async def slow(call):
            await asyncio.sleep(0.05)
            return "a step" if call.purpose == "sample" else "score: 0.5"

        lab = tl.Lab(slow, runs=None)
        explorer = tl.Explorer(lab.stream(tl.TreeOfThoughts(stop=tl.Stop(depth=2)), tl.general("How long?")))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(explorer.finished()), 0.01)
        with pytest.raises(ValueError, match="has not ended"):
            await explorer.branch("0", score=1.0)
        run = await explorer.finished()
        explorer.close()
        return run.stop_reason

    assert asyncio.run(impatient()) == "limit:depth"

    async def interrupted():
        calls = []

        async def slow(call):
            calls.append(call)
            await asyncio.sleep(0.05)
            return "a step" if call.purpose == "sample" else "score: 0.5"

        lab = tl.Lab(slow, runs=None)
        explorer = tl.Explorer(lab.stream(tl.TreeOfThoughts(stop=tl.Stop(depth=9)), tl.general("How long?")))
        waiting = asyncio.create_task(explorer.finished())
        while not calls:
            await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        paid = len(calls)
        await asyncio.sleep(0.2)  # the next calls would be made long before
        explorer.close()
        return explorer.run.stop_reason, len(calls) - paid

    assert asyncio.run(interrupted()) == ("cancelled", 0)


def test_a_thought_of_a_run_that_is_shown_no_more_is_not_selected():
    async def twice():
        lab = tl.Lab("sim/game24", runs=None)
        explorer = tl.Explorer(await lab.run(SEARCH, tl.game24("4 5 6 10")), lab=lab)
        first = await explorer.branch("0.1", score=1.0)
        explorer.selected = ["0.1", *(f"b:{node.id}" for node in first.tree)]
        await explorer.branch("0.0", score=0.0)
        ids = explorer.selected.ids, explorer.selected.frame.id.tolist()
        explorer.selected = first.tree["0.1"]
        explorer.close()
        return ids

    assert asyncio.run(twice()) == (["0.1"], ["0.1"])


@pytest.mark.slow
def test_m15_the_text_so_far_of_what_is_selected_is_told_until_its_reply_is_there():
    go_on = asyncio.Event()

    async def speaker(call):
        yield f"I begin {call.node} "
        if call.purpose == "value":
            await go_on.wait()
        yield "score: 0.5"

    async def main():
        explorer = tl.Explorer(tl.Lab(speaker, runs=None).stream(SEARCH, TASK))
        explorer.comm.said(kind="have", runs=[])
        while "0.1" not in explorer._known():
            await asyncio.sleep(0.01)
        explorer.comm.said(kind="views", count=1)
        explorer.ids = ["0.1"]
        while not explorer.comm.messages("spoken"):
            await asyncio.sleep(0.01)
        (*_, shown) = explorer.comm.messages("spoken")[-1]
        go_on.set()
        await explorer.finished()
        while explorer.comm.messages("spoken")[-1][2]:
            await asyncio.sleep(0.01)
        return shown

    assert wait(asyncio.wait_for(main(), 120)) == {"0.1": "I begin 0.1 "}


def test_a_large_run_is_saved_once_after_the_page_has_received_it(monkeypatch):
    saved = []
    monkeypatch.setattr(widget, "MOST_LINES", 2)
    monkeypatch.setattr(tl.Explorer, "_save_now", lambda _: saved.append(time.monotonic()))
    explorer = tl.Explorer(run(SEARCH, TASK))
    explorer.comm.said(kind="have", runs=[])
    assert explorer._save_later()
    soon(lambda: saved)
    moment, *_ = explorer.comm.messages("texts")[-1]
    explorer.close()
    assert saved[0] >= moment
    assert len(saved) == 1


@pytest.mark.slow
def test_a_kernel_imports_what_draws_a_run_and_nothing_that_made_it():
    code = """if True:
    import sys, time, tot_lab as tl
    recorder = tl.Recorder("q")
    recorder.thought("q")
    explorer = tl.Explorer(recorder)
    with explorer._lock:
        list(explorer._messages())
    rooms = ("tot_lab.lab.lab", "tot_lab.models", "tot_lab.tools", "tot_lab.runtime.driver")
    print([name for name in (*rooms, "tot_lab.views.report") if name in sys.modules])
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
