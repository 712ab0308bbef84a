// Chunks written by hand. tests/views/test_explorer_recording.py uses real chunks and compares with Python.
import assert from "node:assert/strict";
import { test } from "node:test";
import { KIND, Recording, STATES } from "../recording.js";

/** A root, two thoughts, an evaluation, a decision, a call and its reply, a second call, the end. */
const chunk = {
  first: 0,
  firstNode: 0,
  firstCall: 0,
  kinds: "0301125346",
  times: [0, 50, 0, 100, 0, 0, 0, 0, 10_000, 50],
  parents: [-1, 1],
  ordinals: [0, 1],
  scored: [1, 0],
  scores: [0, 1],
  scoreTable: [[null, "value", null, [null]], [0.75, "value", 15, [15, null]]],
  decided: [1],
  decisions: [0],
  decisionTable: [["kept", "beam_width"]],
  asked: [0, 1],
  questions: [0, 1],
  questionTable: [["propose", 0], ["value", 2]],
  answered: [0],
  input: [12],
  output: [null],
  answers: [0],
  answerTable: [[0.5, 0, null]],
  noted: [0],
  notes: [0],
  noteTable: [["call.cached", true, {}]],
  ended: { stop: "solved", answer: "24", node: 1, score: 0.75, ranked: [1], error: null },
};

const made = () => {
  const recording = new Recording();
  assert.equal(recording.append(structuredClone(chunk)), true);
  return recording;
};

test("counts, lines and calls", () => {
  const recording = made();
  assert.deepEqual([recording.lines, recording.nodes, recording.calls], [10, 2, 2]);
  assert.deepEqual([...recording.node.subarray(0, 10)], [0, 0, 1, 1, 1, 1, 0, 1, 0, 1]);
  assert.deepEqual([...recording.time.subarray(0, 4)], [0, 0.005, 0.005, 0.015]);
  assert.deepEqual(recording.call(0), {
    line: 1, replyLine: 8, node: 0, kind: "propose", draw: 0, asked: 0.005, sent: NaN, answered: 1.015, took: 1.01,
    tries: 0, source: "cache", error: null, input: 12, output: NaN, cost: 0.5, paid: 0,
  });
  assert.deepEqual([recording.callsOf(1), recording.callsOf(5)], [[1], []]);
  assert.deepEqual([recording.note(6), recording.note(0)], [{ name: "call.cached", data: {} }, null]);
  assert.deepEqual([recording.row[1], recording.row[8], recording.row[7]], [0, 0, 1]);
  assert.equal(recording.kind[9], KIND.ended);
});

test("ids there and back", () => {
  const recording = made();
  assert.equal(recording.id(1), "0.1");
  for (const [id, node] of [["0", 0], ["0.1", 1], ["0.0", -1], ["0.01", -1], ["", -1], ["1", -1], ["0.1.", -1], ["x", -1]]) {
    assert.equal(recording.indexOf(id), node, id);
  }
});

test("the frame goes forward and back", () => {
  const recording = made();
  const state = (node) => STATES[recording.frame.state[node]];
  recording.at(4);
  assert.equal(state(1), "unreadable");
  assert.ok(Number.isNaN(recording.frame.score[1]));
  recording.at(5);
  assert.deepEqual([state(1), recording.frame.score[1]], ["unreadable", 0.75]);
  const end = recording.at(99);
  assert.deepEqual([end.step, state(1), end.stop, end.best, end.open], [10, "kept", "solved", 1, [1]]);
  assert.deepEqual(end.usage, { calls: 1, input: 12, output: NaN, cost: 0.5, paid: 0 });
  assert.deepEqual(end.frontier, [1]);
  assert.equal(end.reason(1), "beam_width");
  const early = recording.at(3);
  assert.deepEqual([early.nodes, state(1), early.stop, early.best, early.open], [2, "proposed", null, -1, [0]]);
  assert.deepEqual(early.usage, { calls: 0, input: 0, output: 0, cost: 0, paid: 0 });
  assert.equal(early.evaluation(1), null);
  assert.deepEqual([recording.at(-5).step, recording.at(0).nodes], [0, 0]);
});

test("a gap is refused, what is known is passed over", () => {
  const recording = made();
  assert.equal(recording.append({ ...chunk, first: 11 }), false);
  assert.equal(recording.append(chunk), true);
  assert.deepEqual([recording.lines, recording.nodes], [10, 2]);
});

test("texts come later", () => {
  const recording = made();
  assert.equal(recording.text(1), "");
  recording.setTexts(1, ["<b>x</b>"]);
  assert.deepEqual([recording.text(0), recording.text(1)], ["", "<b>x</b>"]);
});

test("siblings in the order of their numbers, whoever was born first", () => {
  const recording = new Recording();
  recording.append({
    first: 0, firstNode: 0, firstCall: 0, kinds: "00000", times: [0, 0, 0, 0, 0],
    parents: [-1, 1, 0, 1, 0], ordinals: [0, 2, 0, 10, 9],
  });
  assert.deepEqual([...recording.order()], [0, 2, 1, 4, 3]);
  assert.deepEqual([...recording.childrenOf(0)], [2, 1]);
  assert.deepEqual([...recording.childrenOf(-1)], [0]);
  assert.deepEqual([...recording.childrenOf(3)], []);
  assert.equal(recording.id(3), "0.2.10");
});

test("700,000 lines are folded while a slider moves", () => {
  const thoughts = 100_000;
  const kinds = `0${"0133442".repeat(thoughts - 1)}`.replaceAll("3344", "3434");
  const ones = (first) => [first, ...new Array(thoughts - 2).fill(1)];
  const calls = 2 * (thoughts - 1);
  const recording = new Recording();
  recording.append({
    first: 0, firstNode: 0, firstCall: 0, kinds, times: new Array(kinds.length).fill(1),
    parents: [-1, ...ones(1).map((_, node) => (node ? (node % 3 ? 0 : 1) : 1))],
    ordinals: [0, ...ones(0).map((_, node) => node % 3)],
    scored: ones(1), scores: new Array(thoughts - 1).fill(0), scoreTable: [[0.5, "value", 0.5, [0.5]]],
    decided: ones(1), decisions: new Array(thoughts - 1).fill(0), decisionTable: [["pruned", "beam_width"]],
    asked: new Array(calls).fill(0), questions: new Array(calls).fill(0), questionTable: [["value", 0]],
    answered: [0, ...new Array(calls - 1).fill(1)], input: new Array(calls).fill(7),
    output: new Array(calls).fill(1), answers: new Array(calls).fill(0), answerTable: [[0, 0, null]],
  });
  assert.equal(recording.lines, 1 + 7 * (thoughts - 1));
  const times = [];
  for (let round = 0; round < 5; round++) {
    recording.at(0);
    const start = performance.now();
    assert.equal(recording.at(recording.lines).usage.calls, calls);
    times.push(performance.now() - start);
  }
  assert.ok(Math.min(...times) < 300, `${times} ms`);
  console.log(`fold of ${recording.lines} lines: ${Math.min(...times).toFixed(1)} ms`);
});
