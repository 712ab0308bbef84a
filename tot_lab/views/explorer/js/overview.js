/**
 * A scene from afar: what the thoughts of each spot are together.
 *
 * Thoughts that are too many to draw are counted in the cells of a grid. A cell is a bar whose parts are the shares of
 * the states, each in the colour of its mean score (or of the quantity by which thoughts are coloured), so that the picture has the same means, shares and counts as the run.
 *
 * @typedef {import("./scene.js").Scene} Scene
 * @typedef {import("./scene.js").Camera} Camera
 */

import { between, ceil, floats, floor, integers, max, min, round } from "./numbers.js";
import { STATES } from "./recording.js";
import { DIM } from "./scene.js";

/** Kinds of parts of a bar, from top to bottom: may still lead on or is an answer; pruned, duplicate or merged; unreadable
 * or failed; does not match the search. */
export const PARTS = ["kept", "pruned", "failed", "dim"];

/** The kind of each of STATES of recording.js. */
const PART_OF_STATE = [0, 2, 0, 1, 0, 1, 1, 2, 0];

/** Width of a cell and minimum distance of two rows of cells in pixels, and number of bars in a histogram. */
const WIDE = 3;
const APART = 3;
export const BINS = 10;

/**
 * A part of a bar. `share` is its share of the thoughts of the cell. `mean` is the mean of `shares` of the scene, NaN if
 * no thought has one.
 * @typedef {{kind: number, count: number, share: number, mean: number}} Part
 */

/** Returns the height of a bar in pixels. @param {number} ky the distance of two levels */
export const heightOf = (ky) => between(max(ky, APART) * 0.7, 2, 26);

/**
 * Returns the cells of the part of a scene that a camera shows. x and y are the left and the middle of a bar in pixels.
 * @param {Scene} scene @param {Camera} camera @param {number} width @param {number} height
 * @returns {{x: number, y: number, wide: number, high: number, count: number, parts: Part[]}[]}
 */
export function cellsOf(scene, camera, width, height) {
  const { count, x, y, shares, states, flags } = scene;
  const { kx, ky } = camera;
  const row = max(ky, APART);
  const columns = ceil(width / WIDE) + 2;
  const rows = ceil(height / row) + 3;
  const top = height / 2 - camera.y * ky; // of level 0
  const first = floor(-top / row) - 1;
  const size = PARTS.length * 3;
  const places = integers(columns * rows); // of each cell among those with thoughts, from 1
  let used = 0;
  const sums = floats((min(count, columns * rows) + 1) * size); // per place and kind: thoughts, thoughts with a share, sum of shares
  for (let slot = 0; slot < count; slot++) {
    const px = (x[slot] - camera.x) * kx + width / 2;
    const column = floor(px / WIDE) + 1;
    const line = round((y[slot] * ky) / row) - first;
    if (column < 0 || column >= columns || line < 0 || line >= rows) continue;
    const kind = flags[slot] & DIM ? 3 : PART_OF_STATE[states[slot]];
    const at = (places[line * columns + column] ||= ++used) * size + kind * 3;
    sums[at]++;
    if (Number.isNaN(shares[slot])) continue;
    sums[at + 1]++;
    sums[at + 2] += shares[slot];
  }
  const cells = [];
  const high = heightOf(ky);
  for (let cell = 0; cell < places.length; cell++) {
    if (!places[cell]) continue;
    const start = places[cell] * size;
    /** @type {Part[]} */
    const parts = [];
    let all = 0;
    for (let at = start; at < start + size; at += 3) all += sums[at];
    for (let kind = 0; kind < PARTS.length; kind++) {
      const at = start + kind * 3;
      const count = sums[at];
      if (count) parts.push({ kind, count, share: count / all, mean: sums[at + 2] / sums[at + 1] });
    }
    const line = floor(cell / columns);
    cells.push({ x: ((cell % columns) - 1) * WIDE, y: top + (line + first) * row, wide: WIDE, high, count: all, parts });
  }
  return cells;
}

/**
 * Returns the number of thoughts of each level, the mean of their `shares`, the share of the pruned ones, and a
 * histogram of their `shares`. The root is left out.
 * @param {Scene} scene
 */
export function levelsOf({ count, y, shares, states }) {
  const pruned = STATES.indexOf("pruned");
  /** @type {{level: number, count: number, scored: number, mean: number, pruned: number, bins: number[]}[]} */
  const levels = [];
  for (let slot = 0; slot < count; slot++) {
    if (!y[slot]) continue;
    const its = (levels[y[slot] - 1] ??= { level: y[slot], count: 0, scored: 0, mean: 0, pruned: 0, bins: new Array(BINS).fill(0) });
    its.count++;
    if (states[slot] === pruned) its.pruned++;
    if (Number.isNaN(shares[slot])) continue;
    its.scored++;
    its.mean += shares[slot];
    its.bins[min(floor(between(shares[slot], 0, 1) * BINS), BINS - 1)]++;
  }
  return levels.map((its) => ({ ...its, mean: its.mean / its.scored, pruned: its.pruned / its.count }));
}
