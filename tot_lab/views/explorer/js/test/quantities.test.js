import assert from "node:assert/strict";
import { test } from "node:test";
import { QUANTITIES, quantityOf } from "../quantities.js";
import { LOST, Scene } from "../scene.js";
import { recorded } from "./growing.js";

const last = (recording) => recording.at(recording.lines);
const found = (values) => [...values].map((value) => (Number.isNaN(value) ? null : +value.toFixed(6)));

test("visits and values: every scored thought counts for itself and for all above it", () => {
  const recording = recorded([["0"], ["0.0", 0.5], ["0.1", null], ["0.2"], ["0.0.0", 1], ["0.0.1", -1], ["0.1.0", 0.25]]);
  assert.deepEqual(found(quantityOf("visits", last(recording), "").values), [5, 3, 2, 0, 1, 1, 1]);
  assert.deepEqual(found(quantityOf("value", last(recording), "").values), [0.35, 0.5, 0.125, null, 1, 0, 0.25]);
  assert.deepEqual(quantityOf("visits", last(recording), "").ends, ["1", "5"]);
});

test("every quantity has one value a thought, and shares from 0 to 1", () => {
  const recording = recorded([["0"], ["0.0", 0.5], ["0.0.0", 1]]);
  for (const name of QUANTITIES) {
    const { values, shares, ends } = quantityOf(name, last(recording), "10?");
    assert.equal(values.length, 3, name);
    assert.equal(ends.length, 2, name);
    for (const share of shares) assert.ok(Number.isNaN(share) || (share >= 0 && share <= 1), `${name} ${share}`);
  }
  assert.deepEqual(found(quantityOf("depth", last(recording), "").values), [0, 1, 2]);
  assert.deepEqual(found(quantityOf("solvable", last(recording), "10?").values), [1, 0, null]);
  assert.deepEqual(found(quantityOf("solvable", last(recording), "").values), [null, null, null]);
});

test("the colour follows the quantity, and so does the number below a thought", () => {
  const recording = recorded([["0"], ["0.0", 0.9], ["0.1", 0.1]]);
  const frame = last(recording);
  const plain = new Scene(recording, frame, {});
  const scene = new Scene(recording, frame, { quantity: quantityOf("solvable", frame, "101") });
  assert.deepEqual([1, 2].map((slot) => plain.number(slot).join()), ["0.9", "0.1"]);
  assert.deepEqual([1, 2].map((slot) => scene.number(slot).join()), ["no", "yes"]);
  assert.ok(plain.fill[1] > plain.fill[2] && scene.fill[1] < scene.fill[2]);
});

/** A run whose answer 0.0.0 is wrong. */
function wrong(solvable, nodes) {
  const rows = [["0"], ["0.0", 0.9, "kept"], ["0.1", 0.1, "pruned"], ["0.0.0", 1, "answer"]];
  const recording = recorded(rows);
  recording.about = { verdict: { correct: false } };
  recording.ended = { line: recording.lines - 1, stop: "answered", answer: "", node: 3, score: 1, ranked: [], error: null };
  const facts = { solvable, findings: [{ kind: "why_it_failed", text: "", nodes }], marks: {} };
  const scene = new Scene(recording, last(recording), { facts });
  const id = (slot) => recording.id(scene.nodes[slot]);
  return { ringed: scene.lastSolvable.map(id), lost: [...scene.nodes.keys()].filter((slot) => scene.flags[slot] & LOST).map(id) };
}

test("the path of a wrong answer breaks after the last thought that could lead to a right one", () => {
  assert.deepEqual(wrong("1010", ["0.1"]), { ringed: ["0.1"], lost: ["0.0", "0.0.0"] });
  assert.deepEqual(wrong("1100", ["0.0"]), { ringed: ["0.0"], lost: ["0.0.0"] });
  // Nothing judges what an agent did below the thought that was lost.
  assert.deepEqual(wrong("101?", ["0.1"]).lost, ["0.0", "0.0.0"]);
});

test("nothing is ringed or broken where it is not known", () => {
  assert.deepEqual(wrong("", ["0.1"]), { ringed: [], lost: [] });
  assert.deepEqual(wrong("1?10", ["0.0"]).ringed, []);
  assert.deepEqual(wrong("??00", ["0.0"]).lost, []);
  assert.deepEqual(wrong("1?10", ["0.0"]).lost, []);
  assert.deepEqual(wrong("111?", ["0.0"]).lost, []);
  assert.deepEqual(wrong("0000", ["0"]), { ringed: [], lost: [] }); // no answer could be right
});
