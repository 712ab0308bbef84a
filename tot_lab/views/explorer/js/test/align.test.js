import assert from "node:assert/strict";
import { test } from "node:test";
import { align } from "../align.js";
import { Recording } from "../recording.js";

const NONE = NaN;

/** Builds a recording and a frame from rows [id, text, score, state] in the order of the record, of all or the first. */
function made(rows, nodes = rows.length) {
  const places = new Map(rows.map(([id], node) => [id, node]));
  const parents = rows.map(([id]) => places.get(id.slice(0, Math.max(id.lastIndexOf("."), 0))) ?? -1);
  const scored = rows.flatMap((row, node) => (row.length > 2 ? [node] : []));
  const decided = rows.flatMap((row, node) => (row[3] ? [node] : []));
  const deltas = (column) => column.map((value, place) => value - (place ? column[place - 1] : 0));
  const recording = new Recording();
  recording.append({
    ...{ first: 0, firstNode: 0, firstCall: 0 },
    kinds: "0".repeat(rows.length) + "1".repeat(scored.length) + "2".repeat(decided.length),
    times: new Array(rows.length + scored.length + decided.length).fill(0),
    ...{ parents: deltas(parents), ordinals: rows.map(([id]) => Number(id.split(".").at(-1))) },
    ...{ scored: deltas(scored), scores: scored.map((_, row) => row) },
    scoreTable: scored.map((node) => [Number.isNaN(rows[node][2]) ? null : rows[node][2], "value", null, []]),
    ...{ decided: deltas(decided), decisions: decided.map((_, row) => row) },
    decisionTable: decided.map((node) => [rows[node][3], ""]),
  });
  recording.setTexts(0, rows.map(([, text]) => text));
  return [recording, recording.at(nodes === rows.length ? recording.lines : nodes)];
}

const said = ({ differences }) => differences.map(({ kind, a, b, size }) => [kind, a, b, size]);

test("a run is equal to itself, unreadable scores too", () => {
  const run = made([["0", "q"], ["0.0", "x", 0.5], ["0.1", "y", NONE, "pruned"], ["0.0.0", "z", 1, "kept"]]);
  const result = align(...run, ...run);
  assert.deepEqual([...result.pairOfA], [0, 1, 2, 3]);
  assert.deepEqual([...result.pairOfB], [0, 1, 2, 3]);
  assert.deepEqual(result.differences, []);
  assert.deepEqual([result.counts.matched, result.counts.same], [4, 4]);
});

test("other text, other score and other state are three differences, in tree order", () => {
  const a = made([["0", "q"], ["0.1", "y", 0.5, "kept"], ["0.0", "x", 0.5, "kept"], ["0.0.0", "below", 0.1]]);
  const b = made([["0", "q"], ["0.0", "X", 0.6, "pruned"], ["0.1", "y", NONE, "kept"], ["0.0.0", "below", 0.2]]);
  const result = align(...a, ...b);
  assert.deepEqual([...result.pairOfA], [0, 2, 1, 3]);
  assert.deepEqual(said(result), [
    ["text", 2, 1, 1],
    ["score", 2, 1, 1],
    ["state", 2, 1, 1],
    ["score", 3, 3, 1],
    ["score", 1, 2, 1],
  ]);
  assert.equal(result.counts.same, 1);
});

test("equal text comes before equal number, and equal number and text before both", () => {
  const a = made([["0", "q"], ["0.0", "x"], ["0.1", "y"], ["0.2", "x"], ["0.3", "only here"]]);
  const b = made([["0", "q"], ["0.0", "y"], ["0.1", "new"], ["0.2", "x"], ["0.3", "x"]]);
  const result = align(...a, ...b);
  assert.deepEqual([...result.pairOfA], [0, 4, 1, 3, -1]);
  assert.deepEqual([...result.pairOfB], [0, 2, -1, 3, 1]);
  assert.deepEqual(said(result), [["only-b", -1, 2, 1], ["only-a", 4, -1, 1]]);
});

test("texts that have not come match by number", () => {
  const a = made([["0", ""], ["0.0", ""], ["0.2", ""]]);
  const b = made([["0", ""], ["0.1", ""], ["0.2", ""]]);
  const result = align(...a, ...b);
  assert.deepEqual([...result.pairOfA], [0, -1, 2]);
  assert.deepEqual(said(result), [["only-a", 1, -1, 1], ["only-b", -1, 1, 1]]);
});

test("a branch that only one run has is reported once, by its top thought, with its size", () => {
  const a = made([["0", "q"], ["0.0", "x"], ["0.0.0", "y"], ["0.0.1", "z"]]);
  const b = made([["0", "q"]]);
  const result = align(...a, ...b);
  assert.deepEqual(said(result), [["only-a", 1, -1, 3]]);
  assert.deepEqual(result.counts, { matched: 1, same: 1 });
  assert.deepEqual([...result.pairOfA], [0, -1, -1, -1]);
  assert.deepEqual(said(align(...b, ...a)), [["only-b", -1, 1, 3]]);
});

test("what is not born at the frame is not there", () => {
  const rows = [["0", "q"], ["0.0", "x"], ["0.1", "y"]];
  const result = align(...made(rows, 2), ...made(rows, 3));
  assert.deepEqual([...result.pairOfA], [0, 1]);
  assert.deepEqual(said(result), [["only-b", -1, 2, 1]]);
  assert.deepEqual(align(...made(rows, 0), ...made(rows, 0)).differences, []);
});

test("a chain of 20,000 and a star of 100,000 align, in linear time and without recursion", () => {
  for (const [count, above] of [[20_000, (node) => node - 1], [100_000, (node) => Math.min(node - 1, 0)]]) {
    const recording = new Recording();
    const parents = Array.from({ length: count }, (_, node) => above(node));
    recording.append({
      ...{ first: 0, firstNode: 0, firstCall: 0, kinds: "0".repeat(count), times: new Array(count).fill(0) },
      parents: parents.map((parent, node) => parent - (node ? parents[node - 1] : 0)),
      ordinals: parents.map((parent, node) => node - parent - 1),
    });
    recording.setTexts(0, parents.map((_, node) => `thought ${node}`));
    const frame = recording.at(count);
    const start = process.cpuUsage();
    assert.equal(align(recording, frame, recording, frame).counts.same, count);
    assert.ok(process.cpuUsage(start).user < 10e6);
  }
});
