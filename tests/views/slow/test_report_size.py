"""To show a run again costs as much as what is shown of it, however many thoughts there are. The first time
its records are counted."""

import sys
import time

import pytest

import tot_lab as tl
from tot_lab.core.calls import Call, Reply
from tot_lab.core.records import Ended, Line, Scored, Thought
from tot_lab.record.journal import Header
from tot_lab.record.run import Run
from tot_lab.views.report import tree_rows

SHAPES = {
    "wide": lambda k: "0",
    "deep": lambda k: f"0.{k - 1}" if k else "0",
    "bushy": lambda k: f"0.{k // 3 - 1}" if k >= 3 else "0",
}


def made(count, shape, folder):
    """A finished run of so many thoughts, each scored by a call, as it is loaded from its file."""
    lines = [Line((0,), 0.0, Thought("0", None, "the problem"))]
    for k in range(count):
        place, id = (k + 1,), f"0.{k}"
        lines.append(Line(place, k * 1e-3, Thought(id, SHAPES[shape](k), f"step {k}")))
        lines.append(Line(place, k * 1e-3, Call(id, "value", ())))
        failed = "timeout" if k % 7 == 0 else None
        lines.append(Line(place, k * 1e-3, Reply("0.5", failed, input_tokens=3, output_tokens=1, cost=0.1)))
        lines.append(Line(place, k * 1e-3, Scored(id, 0.5)))
    lines.append(Line((count + 1,), count * 1e-3, Ended("answered", "so", f"0.{count - 1}", 0.5)))
    header = Header.now(strategy={"kind": "recorded", "name": "large"})
    return tl.load(Run(header, lines).save(folder / f"{shape}-{count}.jsonl"))


def work(show, run):
    """How many lines of Python are gone through."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        show(run)
    finally:
        sys.settrace(before)
    return count


def seconds(show, run):
    """CPU, the best of seven times."""
    took = []
    for _ in range(7):
        began = time.process_time()
        show(run)
        took.append(time.process_time() - began)
    return min(took)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("shape", "count"),
    [
        pytest.param("wide", 200_000, marks=pytest.mark.nightly),
        ("wide", 20_000),
        ("deep", 20_000),
        ("bushy", 20_000),
    ],
)
def test_many_times_the_thoughts_take_no_more_work(tmp_path, shape, count):
    few, many = made(2_000, shape, tmp_path), made(count, shape, tmp_path)
    for show in (repr, lambda run: run._repr_html_()):
        first = work(show, few), work(show, many)
        assert first[1] <= 1.2 * count / 2_000 * first[0], first
        lines = work(show, few), work(show, many)
        assert lines[1] <= 1.2 * lines[0], lines
        took = seconds(show, few), seconds(show, many)
        assert took[1] <= 2 * took[0], took


def test_of_a_large_run_the_same_rows_are_shown_as_by_looking_at_every_thought(tmp_path):
    for shape in SHAPES:
        tree = made(300, shape, tmp_path).tree
        for answer in ("0.299", "0.40", "0.0", None):
            path = [node.id for node in tree.path(answer)] if answer else []
            rows = tree_rows(tree, path)
            assert len(rows) <= 12
            if len(path) > 8:
                continue
            shown = {*(path or ["0"])}
            for node in sorted(tree, key=lambda node: node.depth):
                if len(shown) < 11 and node.parent in shown:
                    shown.add(node.id)
            texts = [node.text for node in tree if node.id in shown]
            assert all(any(row.endswith(text) for row in rows) for text in texts)
            assert rows[-1] == f"… {301 - len(shown)} more thoughts"


def test_a_run_of_ones_own_recording_is_made_once():
    recorder = tl.Recorder("mine")
    top = recorder.thought("top")
    assert recorder.run is recorder.run
    before = recorder.run
    recorder.thought("next", top)
    assert recorder.run is not before
    assert (len(before.tree), len(recorder.run.tree)) == (1, 2)
    recorder.run.mark("0.0", "right")
    assert recorder.run.marks["0.0"].verdict == "right"
