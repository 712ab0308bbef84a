import assert from "node:assert/strict";
import { test } from "node:test";
import { leading, opened, revealed } from "../branches.js";
import { rowsOf } from "../outline.js";
import { Scene, layoutParents } from "../scene.js";
import { tree } from "./chunks.js";

// 0 ─ 1 ─ 3, 4     2 ─ 5 ─ 6
const PARENTS = [-1, 0, 0, 1, 1, 2, 5];

/** @param {number[]} parents @param {number[]} [collapsed] */
const seen = (parents, collapsed = []) => {
  const recording = tree(parents);
  const scene = new Scene(recording, recording.at(recording.lines), { collapsed: new Set(collapsed) });
  return { scene, ...rowsOf(scene) };
};

/** @param {number[]} parents */
const aboveOf = (parents) => {
  const recording = tree(parents);
  return layoutParents(recording, recording.at(recording.lines));
};

test("rows are read depth first, each with its level", () => {
  const { slots, levels, scene } = seen(PARENTS);
  assert.deepEqual(
    [...slots].map((slot) => scene.nodes[slot]),
    [0, 1, 3, 4, 2, 5, 6],
  );
  assert.deepEqual(
    [...slots].map((slot) => levels[slot]),
    [1, 2, 3, 3, 2, 3, 4],
  );
});

/** Returns the target of each key. @param {ReturnType<typeof seen>} rows @param {number} node @param {string} keys */
const moves = (rows, node, keys) =>
  keys.split(" ").map((key) => {
    const to = /** @type {number} */ (rows.move(key, rows.scene.slot[node]));
    return to < 0 ? "toggle" : rows.scene.nodes[to];
  });

test("keys move as in the ARIA tree pattern", () => {
  const rows = seen(PARENTS);
  assert.deepEqual(moves(rows, 1, "ArrowDown ArrowUp ArrowRight ArrowLeft Home End n p u Enter"), [
    3,
    0,
    3,
    "toggle",
    0,
    6,
    2,
    1,
    0,
    1,
  ]);
  assert.deepEqual(moves(rows, 3, "ArrowDown ArrowUp ArrowRight ArrowLeft n p u"), [4, 1, 3, 1, 4, 3, 1]);
  assert.deepEqual(moves(rows, 6, "ArrowDown ArrowRight n"), [6, 6, 6]);
  assert.deepEqual(moves(rows, 0, "ArrowUp u p"), [0, 0, 0]);
  assert.equal(rows.move("x", 0), undefined);
});

test("a closed thought opens to the right, and to the left is left", () => {
  const rows = seen(PARENTS, [1]);
  assert.deepEqual(moves(rows, 1, "ArrowRight ArrowLeft ArrowDown"), ["toggle", 0, 2]);
});

test("a chain and a broad level are no trouble", () => {
  const chain = seen(Array.from({ length: 25_000 }, (_, node) => node - 1));
  assert.equal(chain.levels[chain.slots[24_999]], 25_000);
  const broad = seen(Array.from({ length: 200_001 }, (_, node) => (node ? 0 : -1)));
  assert.equal(broad.slots[200_000], 200_000);
});

test("opening a small branch opens it whole, a big one by a level", () => {
  assert.deepEqual([...opened(aboveOf(PARENTS), new Set([0, 2]), 0)], [2]);
  const big = aboveOf([-1, 0, ...Array(400).fill(1), 0, 402]);
  assert.deepEqual([...opened(big, new Set([0]), 0)].sort(), [1, 402]);
  assert.deepEqual([...opened(big, new Set([0, 402]), 1)], [0, 402]);
});

test("what is revealed has nothing closed above it", () => {
  assert.deepEqual([...revealed(aboveOf(PARENTS), new Set([0, 1, 2, 5]), 6)], [1]);
  const none = new Set([1]);
  assert.equal(revealed(aboveOf(PARENTS), none, 6), none);
});

test("matches are shown with what leads to them", () => {
  assert.deepEqual([...leading(aboveOf(PARENTS), Uint8Array.of(0, 0, 0, 0, 1, 0, 0))], [1, 1, 0, 0, 1, 0, 0]);
});
