"""What the browser makes of a run is what Python makes of it, at every step."""

import gzip
import json
import math
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest
from support import Scripted, answer_to, run, shuffled, wait

import tot_lab as tl
from tot_lab.analysis.frames import calls_df, judgement_of
from tot_lab.core.calls import Call, Message, Reply
from tot_lab.core.records import Decided, Ended, Line, Note, Scored, Thought
from tot_lab.core.tree import Tree
from tot_lab.record.journal import Header
from tot_lab.record.run import usage_of
from tot_lab.views.explorer.recording import LONGEST, NOTE, Recording, about_of
from tot_lab.views.figures.timeline import timeline_info

JS = Path(tl.__file__).parent / "views" / "explorer" / "js"
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="needs node on the PATH")

SCRIPT = """
import { readFileSync } from "node:fs";
import { Recording, STATES } from %s;
import { plan } from %s;

const told = (recording, frame) => {
  const nodes = [];
  const merged = {};
  for (const { from, to, kind, line } of recording.links) {
    if (kind === "merged" && line < frame.step) merged[from] = to;
  }
  for (let node = 0; node < frame.nodes; node++) {
    nodes.push([
      recording.id(node), recording.parent[node], recording.depth[node], frame.score[node],
      STATES[frame.state[node]], frame.reason(node), merged[node] ?? -1, frame.children[node],
      recording.indexOf(recording.id(node)), frame.evaluation(node)?.draws ?? [],
    ]);
  }
  const { step, time, usage, open, frontier, best, stop } = frame;
  return { step, time, nodes, usage, open, frontier, best, stop };
};

const cases = JSON.parse(readFileSync(0, "utf8"));
const answers = cases.map(({ chunks, steps }) => {
  const recording = new Recording();
  const taken = chunks.map((chunk) => [recording.append(chunk), recording.lines]);
  const calls = Array.from({ length: recording.calls }, (_, call) => recording.call(call));
  const { lane, groups, critical, level, byOrder } = plan(recording);
  return {
    timeline: { lane: [...lane], groups, critical, level, byOrder },
    taken, calls, lines: recording.lines, ended: recording.ended, links: recording.links,
    order: [...recording.order()], node: [...recording.node.subarray(0, recording.lines)],
    callsOf: Array.from({ length: recording.nodes }, (_, node) => recording.callsOf(node)),
    notes: Array.from({ length: recording.lines }, (_, line) => recording.note(line)),
    frames: steps.map((step) => told(recording, recording.at(step))),
  };
});
process.stdout.write(JSON.stringify(answers));
"""


def in_node(cases):
    """What recording.js makes of chunks, and of the steps that are looked at in turn."""
    script = SCRIPT % tuple(json.dumps((JS / name).as_uri()) for name in ("recording.js", "timeline.js"))
    given = json.dumps(cases).encode()
    done = subprocess.run(
        [NODE, "--input-type=module", "-e", script],
        input=given,
        capture_output=True,
        check=False,
        timeout=100,
    )
    assert not done.stderr, done.stderr.decode()
    return json.loads(done.stdout)


def chunks_of(lines, size):
    """Told as a live run is: so many lines at a time."""
    recording = Recording()
    for first in range(0, len(lines), size):
        recording.extend(lines[first : first + size])
        yield json.loads(recording.chunk(first))


def plan():
    recorder = tl.Recorder("plan")
    root = recorder.thought("Plan a <b>trip</b>")
    first = recorder.thought("book", parent=root)
    second = recorder.thought("pack", parent=root, depends=[first])
    third = recorder.thought("both", parent=second, source=[first, second], depends=[second])
    recorder.score(first, 0.1 + 0.2, samples=(0.3, None))
    recorder.score(second, None, samples=(None,))
    recorder.note("my.note", at=second, mood="good", size=3)
    recorder.note("my.note", at=second, mood="x" * NOTE)
    recorder.decide(second, "kept", "only one")
    recorder.decide(third, "merged", "same state", other=second)
    recorder.call(third, "a prompt", Reply("yes", input_tokens=3, output_tokens=1, cost=0.25))
    recorder.call(third, "a prompt", Reply(error="timeout after 3 s"), sample_index=1)
    recorder.call(third, "a prompt", Reply(error="limit:at_most"), sample_index=2)
    recorder.score(second, 1)
    recorder.end("done", node=third)
    return recorder.run.lines


def odd():
    """Ids that follow no rule, siblings born out of order, references to what comes later."""
    return [
        Line((0,), 0.0, Thought("start", None, "?")),
        Line((1,), 0.1, Call("later.7", "value", (Message("user", "p"),), 3)),
        Line((2,), 0.2, Thought("start.2", "start", "a", depends=("later.7",))),
        Line((3,), 0.3, Thought("start.1", "start", "b")),
        Line((4,), 0.3, Thought("later", "start.1", "c")),
        Line((5,), 0.4, Note("mine", "later.7", {"call": "me"})),
        Line((6,), 0.5, Thought("later.7", "later", "d", source=("nobody",))),
        Line((7,), 0.5, Thought("later.07", "later", "d")),
        Line((1,), 0.7, Reply("r", input_tokens=None), None),
        Line((8,), 0.8, Decided("start.1", "merged", "m", "later.7")),
        Line((9,), 0.8, Ended("exhausted", ranked=("later", "start.2"))),
    ]


def game(strategy, **options):
    return wait(tl.Lab("sim/game24", runs=None, **options).run(strategy, tl.game24("4 5 6 10"))).lines


def acting():
    """A loop with tools, of which one fails."""
    said = iter(["search({})", 'calculator({"expression": "1/0"})', 'calculator({"expression": "20+6"})'])

    async def model(call):
        name, _, rest = next(said, 'final-answer({"answer": "26"})').partition("(")
        asked = (tl.records.ToolCall("1", name, rest.removesuffix(")")),)
        return Reply(tool_calls=asked, input_tokens=7, output_tokens=2, cost=0.5)

    lab = tl.Lab(model, runs=None, tools=["calculator", "multi_hop"])
    made = wait(lab.run(tl.ReAct(), tl.general("How many?", answer=26, grade="number")))
    assert made.correct
    return made.lines


def failing(call):
    if call.purpose == "value" and "7" in call.prompt:
        return Reply(error="rate limit: slow down")
    return answer_to(call)


def on_its_way():
    """A run as a real model's looks, where a call was sent twice, one was known and one joined."""
    lines = game(tl.TreeOfThoughts(propose=tl.Sample(count=2), stop=tl.Stop(depth=2)))
    told = []
    for line in lines:
        told.append(line)
        if isinstance(line.e, Call):
            about = {"call": list(line.p), "kind": line.e.purpose, "draw": line.e.sample_index}
            told.append(Line((), line.t, Note("call.queued", line.e.node, about)))
            way = {0: "sent", 1: "cached", 2: "joined"}[len(told) % 3]
            for tries in (1, 2) if way == "sent" else (0,):
                more = {"tries": tries, "n": 1} if tries else {}
                told.append(Line((), line.t, Note(f"call.{way}", line.e.node, {**about, **more})))
    return told


@pytest.fixture(scope="module")
def runs():
    """Journals of many kinds, by name."""
    capped = run(tl.TreeOfThoughts(), budget=tl.Budget(calls=7)).lines
    whole = run(
        tl.TreeOfThoughts(propose=tl.Sample(count=4)), model=Scripted(failing, latency=shuffled(4))
    ).lines
    return {
        "nothing": [],
        "beam": game(tl.TreeOfThoughts(propose=tl.Sample(count=3))),
        "propose, merged": game(
            tl.TreeOfThoughts(
                propose=tl.Propose(count=6),
                evaluate=tl.Value(samples=2),
                search=tl.BeamSearch(width=5),
                merge=True,
            )
        ),
        "mcts": game(tl.TreeOfThoughts(search=tl.MCTS(iterations=4))),
        "best of": game(tl.BestOf(strategy=tl.TreeOfThoughts(), attempts=3)),
        "vote": game(tl.TreeOfThoughts(evaluate=tl.Vote(samples=3))),
        "failed calls": whole,
        "killed": whole[: len(whole) * 2 // 3],
        "refused calls": capped,
        "on its way": on_its_way(),
        "plan": plan(),
        "odd": odd(),
        "tools": acting(),
    }


def resumed(folder):
    """A run that was killed, and finished later."""
    lab = tl.Lab(Scripted(), runs=folder)
    path = wait(lab.run(tl.TreeOfThoughts(), tl.general("How many?", answer=26, grade="number"))).path
    kept = path.read_bytes().split(b"\n")[:40]
    path.write_bytes(b"\n".join(kept) + b"\n")
    return wait(lab.resume(path)).lines


def same(told, known):
    """JSON has no NaN: what is not known comes as null."""
    if isinstance(known, float | int) and not isinstance(known, bool):
        return told is not None and math.isclose(told, known, rel_tol=1e-12)
    return told == known


def check_frame(frame, lines):
    tree = Tree.of([line.e for line in lines])
    number = {id: node for node, id in enumerate(tree.nodes)}
    assert len(frame["nodes"]) == len(tree)
    for told, node in zip(frame["nodes"], tree, strict=True):
        id, parent, depth, score, state, reason, merged, children, at, draws = told
        assert (id, depth, state, reason) == (node.id, node.depth, node.state, node.reason)
        assert parent == number.get(node.parent, -1)
        assert score == judgement_of(node).score  # that of a root is no evaluation
        assert merged == number.get(node.merged, -1)
        assert children == len(node.children)
        assert at == number[node.id]
        assert draws == list(node.samples)
    assert frame["time"] == pytest.approx(lines[-1].t if lines else 0, abs=0.000051)
    known = usage_of(lines)._asdict()
    known["input"], known["output"] = known.pop("input_tokens"), known.pop("output_tokens")
    del known["errors"]
    assert all(same(frame["usage"][name], value) for name, value in known.items())
    asked = [line.p for line in lines if isinstance(line.e, Call)]
    answered = {line.p for line in lines if isinstance(line.e, Reply)}
    assert frame["open"] == [call for call, position in enumerate(asked) if position not in answered]
    end = next((line.e for line in lines if isinstance(line.e, Ended)), None)
    searched = {id for id in tree.nodes if any(above.by for above in tree.path(id))}
    over = end is not None and end.stop_reason not in (
        "budget:calls",
        "budget:tokens",
        "limit:nodes",
        "cancelled",
    )
    waiting = [
        number[node.id]
        for node in tree
        if not node.children and node.parent is not None
        if node.state == "kept"
        or (not over and node.state in ("proposed", "unreadable") and node.id in searched)
    ]
    assert frame["frontier"] == waiting
    assert frame["stop"] == (end and end.stop_reason)
    if end:
        best = number.get(end.node, -1)
    else:
        good = [
            n for n in tree if n.parent and n.state in ("kept", "complete", "answer") and n.score is not None
        ]
        best = number[max(good, key=lambda n: n.score).id] if good else -1
    assert frame["best"] == best


@pytest.mark.nightly
@needs_node
def test_any_step_is_the_tree_of_the_lines_before_it(runs, tmp_path):
    runs = {**runs, "resumed": resumed(tmp_path)}
    cases = []
    for lines in runs.values():
        few = sorted({0, 1, 2, len(lines) - 1, len(lines), *range(0, len(lines), max(1, len(lines) // 25))})
        steps = [step for step in few if step >= 0]
        # Forward, then back and forth as a slider is moved.
        steps += steps[::-3] + steps[::7]
        cases.append({"chunks": [json.loads(Recording(lines).chunk())], "steps": steps})
        cases.append({"chunks": list(chunks_of(lines, 7)), "steps": steps})
    told = in_node(cases)
    for lines, whole, pieces in zip(runs.values(), told[::2], told[1::2], strict=True):
        assert whole["lines"] == len(lines)
        assert all(ok for ok, _ in pieces["taken"])
        assert {k: v for k, v in pieces.items() if k != "taken"} == {
            k: v for k, v in whole.items() if k != "taken"
        }
        for frame in whole["frames"]:
            check_frame(frame, lines[: frame["step"]])


@pytest.mark.slow
@needs_node
def test_lost_repeated_and_overlapping_chunks(runs):
    lines = runs["propose, merged"]
    recording = Recording(lines)

    def chunk(first, until=None):
        return json.loads(recording.chunk(first, until))

    every = len(lines)
    chunks = [chunk(0, 50), chunk(60, 90), chunk(0, 50), chunk(30, 61), chunk(55, 90), chunk(400), chunk(88)]
    steps = [10, every, 55, every - 1]
    whole, torn = in_node([{"chunks": [chunk(0)], "steps": steps}, {"chunks": chunks, "steps": steps}])
    assert torn.pop("taken") == [
        [True, 50],
        [False, 50],
        [True, 50],
        [True, 61],
        [True, 90],
        [False, 90],
        [True, every],
    ]
    assert whole.pop("taken") == [[True, every]]
    assert torn == whole


@pytest.mark.slow
@needs_node
def test_calls_are_those_of_the_frame(runs):
    held = {
        name: tl.Run(about(), runs[name]) for name in ("failed calls", "on its way", "refused calls", "plan")
    }
    cases = [{"chunks": list(chunks_of(one.lines, 40)), "steps": []} for one in held.values()]
    for one, told in zip(held.values(), in_node(cases), strict=True):
        ids = [line.e.id for line in one.lines if isinstance(line.e, Thought)]
        frame = calls_df(one)
        assert len(told["calls"]) == len(frame)
        for call, row in zip(told["calls"], frame.to_dict("records"), strict=True):
            assert (ids[call["node"]], call["kind"], call["draw"]) == (
                row["node"],
                row["purpose"],
                row["sample_index"],
            )
            assert call["asked"] == pytest.approx(row["asked"], abs=0.000051)
            names = {"input": "input_tokens", "output": "output_tokens", "cost": "cost", "paid": "paid"}
            for mine, theirs in {**names, "error": "error"}.items():
                assert call[mine] == plain(row[theirs])
            assert call["tries"] == (plain(row["tries"]) or 0)
            assert (call["sent"] is None) == (plain(row["sent"]) is None)
            if isinstance(row["source"], str):
                assert call["source"] == row["source"]
        for node, calls in enumerate(told["callsOf"]):
            assert [told["calls"][call]["node"] for call in calls] == [node] * len(calls)
        assert sum(map(len, told["callsOf"])) == len(frame)
        sources = {call["source"] for call in told["calls"]}
        assert sources == ({"model", "cache", "joined"} if one is held["on its way"] else {"model"})


@pytest.mark.slow
@needs_node
def test_lanes_and_the_critical_path_are_those_of_the_figure(runs):
    cases = [{"chunks": [json.loads(Recording(lines).chunk())], "steps": []} for lines in runs.values()]
    for lines, known in zip(runs.values(), in_node(cases), strict=True):
        info = timeline_info(tl.Run(about(), lines))
        assert known["timeline"] == {
            "lane": info.lane.tolist(),
            "groups": [list(group) for group in info.groups],
            "critical": info.critical,
            "level": info.under_way.tolist(),
            "byOrder": info.by_order,
        }


def plain(value):
    """What a frame holds, None for NA."""
    return None if value is None or value is pd.NA or value != value else value


def about():
    return Header.now(strategy={"kind": "recorded", "name": "made by hand"})


@pytest.mark.slow
@needs_node
def test_links_order_notes_and_what_comes_later(runs):
    cases = [{"chunks": list(chunks_of(runs[name], 1)), "steps": []} for name in ("plan", "odd")]
    planned, strange = in_node(cases)
    kinds = [(link["kind"], link["from"], link["to"]) for link in planned["links"]]
    assert kinds == [
        ("depends", 2, 1),
        ("source", 3, 1),
        ("source", 3, 2),
        ("depends", 3, 2),
        ("merged", 3, 2),
    ]
    assert [note for note in planned["notes"] if note] == [
        {"name": "my.note", "data": {"mood": "good", "size": 3}},
        {"name": "my.note", "data": None},
    ]
    assert planned["ended"]["answer"] == "done"
    links = [(link["kind"], link["from"], link["to"]) for link in strange["links"]]
    assert links == [("depends", 1, 4), ("source", 4, -1), ("merged", 2, 4)]
    assert strange["order"] == [0, 2, 3, 4, 5, 1]
    assert strange["node"] == [0, 4, 1, 2, 3, 4, 4, 5, 4, 2, -1]
    assert strange["callsOf"][4] == [0]
    assert strange["ended"]["ranked"] == [3, 1]


HOSTILE = [
    "<script>alert(1)</script>",
    "</script>",
    "a\"b'c\\",
    "\u202ertl שלום",
    "nul\0",
    "🦉",
    " ",
    "\ud800",
]


@pytest.mark.slow
@needs_node
def test_any_text_survives():
    lines = [Line((0,), 0.0, Thought("0", None, "?"))]
    for number, text in enumerate(HOSTILE):
        id = f"0.{number}"
        lines += [
            Line((number, 1), 1.0, Thought(id, "0", text * 2)),
            Line((number, 2), 1.0, Scored(id, 0.5, by=text)),
            Line((number, 3), 1.0, Decided(id, "kept", text)),
            Line((number, 4), 1.0, Note(text, id, {text: text})),
            Line((number, 5), 1.0, Call(id, text, (Message("user", text),))),
            Line((number, 5), 1.0, Reply(error=text)),
        ]
    lines += [Line((99,), 2.0, Ended("answered", "x" * 1_000_000))]
    recording = Recording(lines)
    chunk = recording.chunk()
    assert chunk.isascii()
    assert len(chunk) < 20_000
    texts = [json.loads(batch) for batch in recording.texts()]
    assert texts == [{"first": 0, "texts": ["?", *(readable(text) * 2 for text in HOSTILE)]}]
    (told,) = in_node([{"chunks": [json.loads(chunk)], "steps": [len(lines)]}])
    nodes = told["frames"][0]["nodes"]
    assert [node[5] for node in nodes[1:]] == [readable(text) for text in HOSTILE]
    assert [call["error"] for call in told["calls"]] == [readable(text) for text in HOSTILE]
    for number, text in enumerate(HOSTILE):
        details = recording.details(f"0.{number}")
        told = readable(text)
        assert (details["text"], details["by"], details["reason"]) == (told * 2, told, told)
        assert details["notes"] == [{"name": told, "data": {told: told}, "seconds": 1.0}]
        assert details["calls"][0]["prompt"] == [{"role": "user", "content": told}]
        assert details["calls"][0]["error"] == told


def readable(text):
    return text.encode("utf-8", "replace").decode()


@pytest.mark.slow
def test_details_hold_the_whole(runs):
    for name in ("propose, merged", "failed calls", "on its way", "plan"):
        one = tl.Run(about(), runs[name])
        calls = calls_df(one)
        recording = Recording()
        for first in range(0, len(one.lines), 50):
            recording.extend(one.lines[first : first + 50])
            recording.details("0")  # what was asked for before does not stay as it was
        for node in one.tree:
            told = json.loads(json.dumps(recording.details(node.id)))
            for field in ("id", "text", "score", "raw", "by", "state", "reason", "merged"):
                assert told[field] == getattr(node, field)
            assert told["draws"] == list(node.samples)
            assert (told["source"], told["depends"]) == (list(node.source), list(node.depends))
            rows = calls[calls.node == node.id].to_dict("records")
            assert len(told["calls"]) == len(rows)
            for call, row in zip(told["calls"], rows, strict=True):
                assert "\n\n".join(message["content"] for message in call["prompt"]) == row["prompt"]
                for field in ("position", "reply", "error", "cost", "paid", "sent"):
                    assert call[field] == plain(row[field])
                for field, column in (
                    ("kind", "purpose"),
                    ("draw", "sample_index"),
                    ("finish", "finish_reason"),
                ):
                    assert call[field] == plain(row[column])
    with pytest.raises(KeyError, match=r"no thought '0\.99' in this run"):
        recording.details("0.99")


@pytest.mark.slow
def test_a_tools_call_is_told_apart_from_a_models(runs):
    recording = Recording(runs["tools"])
    calls = [call for id in recording.nodes for call in recording.details(id)["calls"]]
    told = [(c["kind"], c["prompt"][0]["role"], c["reply"], c["error"]) for c in calls]
    assert [row for row in told if row[0] != "act"] == [
        ("tool:search", "arguments", None, "the arguments do not fit: query: Field required"),
        ("tool:calculator", "arguments", None, "ZeroDivisionError: division by zero"),
        ("tool:calculator", "arguments", "26", None),
    ]
    assert {role for kind, role, *_ in told if kind == "act"} == {"user"}
    assert json.loads(calls[-2]["prompt"][0]["content"]) == {"expression": "20+6"}
    assert usage_of(runs["tools"]).calls == 4


def test_thinking_is_told_apart_from_the_reply():
    made = run(tl.OneAnswer(), model=Scripted(lambda call: "<think>8 * 3 + 2</think>Answer: 26"))
    (call,) = Recording(made.lines).details("0")["calls"]
    assert (call["thinking"], call["reply"]) == ("8 * 3 + 2", "Answer: 26")


def test_texts_come_in_batches():
    lines = [Line((0,), 0.0, Thought("0", None, "x" * 1_000_000))]
    lines += [Line((number,), 0.0, Thought(f"0.{number}", "0", "y" * LONGEST)) for number in range(500)]
    batches = [json.loads(batch) for batch in Recording(lines).texts(0)]
    assert len(batches) == 3
    texts = [text for batch in batches for text in batch["texts"]]
    assert [batch["first"] for batch in batches] == [
        0,
        len(batches[0]["texts"]),
        501 - len(batches[2]["texts"]),
    ]
    assert texts == ["x" * LONGEST + "…", *["y" * LONGEST] * 500]
    assert json.loads(next(Recording(lines).texts(500))) == {"first": 500, "texts": ["y" * LONGEST]}


@pytest.mark.slow
@needs_node
def test_numbers_of_any_size_survive():
    times = [0.0, 1e7, 3.0001, 0.0075, 0.0076, 0.0077, 0.0, 9e5, 9e5]
    tokens = [0, 75, 76, 77, 76 * 13 - 1, 76 * 13, 76 * 13 + 1, 2**40, 1]
    lines = [Line((0,), 0.0, Thought("0", None, "?"))]
    for number, (time, amount) in enumerate(zip(times, tokens, strict=True)):
        lines += [
            Line((1, number), time, Call("0", "propose", (), sample_index=number)),
            Line((1, number), time, Reply("", input_tokens=amount, output_tokens=amount)),
        ]
    unknown = [*lines, Line((2,), 0.0, Call("0", "propose", ())), Line((2,), 0.0, Reply(""))]
    chunk = Recording(lines).chunk()
    assert not {*"<&"} & {*chunk.decode()}
    read = in_node(
        [{"chunks": [json.loads(Recording(one).chunk())], "steps": []} for one in (lines, unknown)]
    )
    for calls in (read[0]["calls"], read[1]["calls"][:-1]):
        assert [call["asked"] for call in calls] == times
        assert [call["input"] for call in calls] == [call["output"] for call in calls] == tokens
    assert read[1]["calls"][-1]["input"] is None


@pytest.mark.slow
def test_a_big_run_is_told_in_little():
    """The figure for 10,000 thoughts is printed by benchmarks/explorer.py; it is linear."""
    search = tl.TreeOfThoughts(
        propose=tl.Propose(count=21), search=tl.BeamSearch(width=None), stop=tl.Stop(depth=2, solved=None)
    )
    lines = game(search)
    thoughts = sum(isinstance(line.e, Thought) for line in lines)
    assert thoughts > 100
    assert len(gzip.compress(Recording(lines).chunk())) < 15 * thoughts + 1000


def test_what_is_said_of_a_run():
    one = run(
        tl.TreeOfThoughts(propose=tl.Sample(count=2), stop=tl.Stop(depth=1)), budget=tl.Budget(calls=50)
    )
    read = json.loads(json.dumps(about_of(one)))
    assert read["question"].startswith("How many legs")
    assert (read["id"], read["budget"]["calls"]) == (one.id, 50)
    assert read["strategy"]["propose"]["count"] == 2


def test_a_repeated_id_and_an_unknown_parent_are_errors():
    root = Line((0,), 0.0, Thought("0", None, "?"))
    with pytest.raises(ValueError, match="'0' is recorded twice"):
        Recording([root, root])
    with pytest.raises(KeyError, match="9"):
        Recording([root, Line((1,), 0.0, Thought("9.0", "9", "!"))]).chunk()
