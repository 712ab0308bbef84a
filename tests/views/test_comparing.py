"""Two runs are aligned in Python as they are in the browser, which is asked through node."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from support import Scripted, answer_to, run

import tot_lab as tl
from tot_lab.core.records import Line
from tot_lab.views.explorer.comparing import Alignment, Difference, align, differences
from tot_lab.views.explorer.recording import Recording

JS = Path(tl.__file__).parent / "views" / "explorer" / "js"

SCRIPT = """
import { readFileSync } from "node:fs";
const { Recording } = await import("file://FOLDER/recording.js");
const { align } = await import("file://FOLDER/align.js");
const told = JSON.parse(readFileSync(0, "utf8"));
const [a, b] = told.map(({ chunk, texts }) => {
  const recording = new Recording();
  recording.append(chunk);
  for (const { first, texts: some } of texts) recording.setTexts(first, some);
  return recording;
});
const { pairOfA, pairOfB, differences } = align(a, a.at(a.lines), b, b.at(b.lines));
const id = (recording, node) => (node < 0 ? null : recording.id(node));
const pairs = [...pairOfA].flatMap((other, node) => (other < 0 ? [] : [[a.id(node), b.id(other)]]));
const back = ([one, other]) => a.indexOf(one) === pairOfB[b.indexOf(other)];
if (!pairs.every(back)) throw new Error("not both ways");
const rows = differences.map((it) => [it.kind, id(a, it.a), id(b, it.b), it.size]);
console.log(JSON.stringify({ pairs: Object.fromEntries(pairs), differences: rows }));
"""


def in_the_browser(a, b):
    """The alignment of two runs by align.js."""
    told = []
    for made in (a, b):
        recording = Recording(made.lines)
        texts = [json.loads(batch) for batch in recording.texts()]
        told.append({"chunk": json.loads(recording.chunk()), "texts": texts})
    done = subprocess.run(
        ["node", "--input-type=module", "-e", SCRIPT.replace("FOLDER", JS.as_posix())],
        input=json.dumps(told).encode(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    said = json.loads(done.stdout)
    return Alignment(said["pairs"], [Difference(*row) for row in said["differences"]])


def recorded(*rows):
    """A search of (id, text, score or "-" for none, state or "") below the root."""
    records = [tl.Thought("0", None, "why")]
    for id, text, score, state in rows:
        records.append(tl.Thought(id, id.rpartition(".")[0], text))
        if score != "-":
            records.append(tl.records.Scored(id, score, by="value"))
        if state:
            records.append(tl.records.Decided(id, state))
    lines = [Line((place,), 0.0, record) for place, record in enumerate(records)]
    return tl.Run(tl.Recorder("own").header, lines)


def test_every_kind_of_difference():
    a = recorded(
        ("0.0", "x", 0.5, "kept"), ("0.1", "y", None, ""), ("0.0.0", "deep", 1, ""), ("0.2", "z", "-", "")
    )
    b = recorded(
        ("0.0", "x", 0.6, "pruned"),
        ("0.1", "Y", None, ""),
        ("0.0.5", "else", 1, ""),
        ("0.0.5.0", "t", "-", ""),
    )
    made = align(a, b)
    assert made.pairs == {"0": "0", "0.0": "0.0", "0.1": "0.1"}
    assert made.differences == [
        ("score", "0.0", "0.0", 1),
        ("state", "0.0", "0.0", 1),
        ("only-a", "0.0.0", None, 1),
        ("only-b", None, "0.0.5", 2),
        ("text", "0.1", "0.1", 1),
        ("only-a", "0.2", None, 1),
    ]
    frame = differences(a, b)
    assert frame.kind.tolist() == [row.kind for row in made.differences]
    assert frame.thoughts.tolist() == [1, 1, 1, 2, 1, 1]
    assert frame.score_a.tolist()[:2] == [0.5, 0.5]
    assert frame.score_b.tolist()[:2] == [0.6, 0.6]
    assert (frame.state_a[1], frame.state_b[1]) == ("kept", "pruned")
    assert (frame.text_a[4], frame.text_b[4]) == ("y", "Y")
    assert frame.b.isna().tolist() == [False, False, True, False, False, True]


def test_equal_runs_and_empty_ones():
    first, second = run(tl.TreeOfThoughts()), run(tl.TreeOfThoughts())
    assert align(first, second).differences == []
    assert len(align(first, second).pairs) == len(first.tree)
    empty = tl.Recorder().run
    assert align(empty, empty) == ({}, [])
    assert align(empty, first).differences == [("only-b", None, "0", len(first.tree))]
    assert list(differences(empty, empty).columns) == list(differences(empty, first).columns)


@pytest.mark.slow
def test_a_chain_of_any_depth():
    recorder = tl.Recorder()
    last = recorder.thought("q")
    for _ in range(3000):
        last = recorder.thought("on", last)
    assert len(align(recorder.run, recorder.run).pairs) == 3001


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
@pytest.mark.parametrize(
    "other", [tl.TreeOfThoughts(propose=tl.Sample(count=4)), tl.TreeOfThoughts(search=tl.BeamSearch(width=1))]
)
def test_the_browser_aligns_alike(other):
    def moved(call):
        """The same replies in another order, some others, and scores of its own."""
        reply = answer_to(call)
        if call.purpose == "propose":
            return "\n".join(reversed(str(reply).splitlines()))
        return (
            reply
            if call.sample_index % 2
            else answer_to(call).replace("step 9", "step 8").replace("score: 0.1", "score: 0.2")
        )

    first = run(tl.TreeOfThoughts(propose="propose"))
    second = run(other, model=Scripted(moved))
    for a, b in ((first, second), (second, first), (first, first)):
        assert in_the_browser(a, b) == align(a, b)
    half = tl.Run(first.header, first.lines[: len(first.lines) // 2])
    assert in_the_browser(first, half) == align(first, half)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_browser_aligns_hand_made_runs_alike():
    a = recorded(("0.3", "x", 0.5, ""), ("0.1", "x", 1, ""), ("0.2", "", "-", ""), ("0.10", "u", "-", ""))
    b = recorded(("0.1", "u", 0.5, ""), ("0.2", "", 1, "kept"), ("0.4", "x", "-", ""), ("0.3", "x", 0.5, ""))
    for one, other in ((a, b), (b, a)):
        assert in_the_browser(one, other) == align(one, other)
    assert align(a, b).pairs == {"0": "0", "0.3": "0.3", "0.1": "0.4", "0.2": "0.2", "0.10": "0.1"}
