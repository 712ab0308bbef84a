import assert from "node:assert/strict";
import { test } from "node:test";
import { PARTS, cellsOf, levelsOf } from "../overview.js";
import { quantityOf } from "../quantities.js";
import { Scene, fitted } from "../scene.js";
import { svgOf } from "../svg.js";
import { LIGHT, STEPS } from "../theme.js";
import { recorded } from "./growing.js";

const SIZE = [1000, 560];

/** A tree of random scores of which about 35 % are pruned. @param {number} count @param {number} fan */
function random(count, fan) {
  let seed = 7;
  const dice = () => (seed = (seed * 48271) % 2147483647) / 2147483647;
  const rows = [["0"]];
  const children = [0];
  for (let at = 1; at < count; at++) {
    const parent = Math.floor(at / fan);
    children[at] = 0;
    rows.push([`${rows[parent][0]}.${children[parent]++}`, dice(), dice() < 0.35 ? "pruned" : "kept"]);
  }
  return rows;
}

/** The truth about some rows. */
const truth = (rows) => ({
  count: rows.length,
  mean: rows.reduce((sum, [, score]) => sum + score, 0) / rows.length,
  pruned: rows.filter(([, , state]) => state === "pruned").length / rows.length,
});

const near = (one, other, within, what) => assert.ok(Math.abs(one - other) <= within, `${what}: ${one}, not ${other}`);

test("20,000 random scores from afar: counts, means and shares of the cells are the true ones", () => {
  const rows = random(20_000, 4);
  const recording = recorded(rows);
  const scene = new Scene(recording, recording.at(recording.lines), {});
  const cells = cellsOf(scene, fitted(scene, ...SIZE), ...SIZE);
  assert.ok(cells.length < 3000, String(cells.length));
  const parts = cells.flatMap(({ parts }) => parts).filter(({ mean }) => !Number.isNaN(mean));
  const [all, kept, pruned] = [parts, ...["kept", "pruned"].map((kind) => parts.filter((one) => PARTS[one.kind] === kind))];
  const count = (some) => some.reduce((sum, one) => sum + one.count, 0);
  const mean = (some) => some.reduce((sum, one) => sum + one.mean * one.count, 0) / count(some);
  const whole = truth(rows.slice(1));
  assert.equal(count(all), whole.count);
  near(mean(all), whole.mean, 1e-9, "mean");
  assert.equal(count(pruned) / count(all), whole.pruned);
  near(mean(kept), truth(rows.slice(1).filter(([, , state]) => state === "kept")).mean, 1e-9, "mean of the kept");
  for (const { count, parts } of cells) near(parts.reduce((sum, { share }) => sum + share * count, 0), count, 1e-9, "shares");
});

test("each level has its own count, mean, share and histogram", () => {
  const rows = random(5_000, 5);
  const recording = recorded(rows);
  const scene = new Scene(recording, recording.at(recording.lines), {});
  const levels = levelsOf(scene);
  const depth = ([id]) => id.split(".").length - 1;
  assert.deepEqual(levels.map(({ level }) => level), [...new Set(rows.slice(1).map(depth))].sort((a, b) => a - b));
  for (const { level, count, mean, pruned, bins } of levels) {
    const mine = rows.filter((row) => depth(row) === level);
    const its = truth(mine);
    assert.equal(count, its.count);
    near(mean, its.mean, 1e-9, "mean");
    near(pruned, its.pruned, 1e-12, "share");
    bins.forEach((some, bin) => assert.equal(some, mine.filter(([, score]) => Math.min(Math.floor(score * 10), 9) === bin).length));
  }
});

test("coloured by another quantity, bars and histograms have its means", () => {
  const recording = recorded(random(5_000, 4));
  const frame = recording.at(recording.lines);
  const quantity = quantityOf("depth", frame, "");
  const scene = new Scene(recording, frame, { quantity });
  const deepest = recording.depth.slice(0, recording.nodes).reduce((a, b) => Math.max(a, b), 0);
  const parts = cellsOf(scene, fitted(scene, ...SIZE), ...SIZE).flatMap(({ parts }) => parts);
  assert.deepEqual(
    [...new Set(parts.map(({ mean }) => Math.round(mean * deepest)))].sort((a, b) => a - b),
    Array.from({ length: deepest + 1 }, (_, depth) => depth),
  );
  for (const { level, mean } of levelsOf(scene)) near(mean, level / deepest, 1e-9, "mean depth");
});

test("what is painted is what was counted", () => {
  const rows = random(20_000, 4);
  const recording = recorded(rows);
  const frame = recording.at(recording.lines);
  // Leave out the path to the best thought, which is drawn above the bars.
  const scene = new Scene(recording, frame, {});
  const svg = svgOf(scene, LIGHT, { width: SIZE[0], height: SIZE[1] });
  const cells = cellsOf(scene, fitted(scene, ...SIZE), ...SIZE);
  let [area, pruned, sum] = [0, 0, 0];
  for (const [, path, colour, , opacity] of svg.matchAll(/<path d="([^"]+)" fill="(rgb\([^)]+\))"( opacity="([\d.]+)")?\/>/g)) {
    if (opacity !== undefined && opacity !== "0.4") continue; // strips of levels
    for (const [, wide, high] of path.matchAll(/M[-\d. ]+h([\d.]+)v([\d.]+)h-[\d.]+Z/g)) {
      if (+wide !== 3) continue;
      const its = wide * high;
      area += its;
      if (opacity === "0.4") pruned += its;
      sum += (its * LIGHT.scale.indexOf(colour)) / (STEPS - 1);
    }
  }
  assert.ok(area > 0);
  // A bar has the same height however many thoughts are in it, so the truth is the mean over the cells.
  const bars = cells.map(({ parts }) => parts.filter(({ mean }) => !Number.isNaN(mean))).filter((parts) => parts.length);
  const over = (value) => bars.reduce((total, parts) => total + parts.reduce((a, one) => a + one.share * value(one), 0), 0) / bars.length;
  near(pruned / area, over(({ kind }) => Number(PARTS[kind] === "pruned")), 0.01, "share painted as pruned");
  near(sum / area, over(({ mean }) => mean), 0.02, "painted mean");
  near(sum / area, 0.5, 0.05, "painted mean");
  near(pruned / area, 0.35, 0.05, "share painted as pruned");
});

test("a big tree opens where it is of value: high scores that were pruned, and failures, wherever they were born", () => {
  const rows = [["0"]];
  for (let a = 0; a < 20; a++) {
    rows.push([`0.${a}`, 0.1, "kept"]);
    for (let b = 0; b < 20; b++) rows.push([`0.${a}.${b}`, 0.1, "kept"]);
  }
  for (let a = 0; a < 20; a++)
    for (let b = 0; b < 20; b++)
      for (let c = 0; c < 10; c++) {
        const good = a === 19 && b === 18 && c === 3;
        const broken = a === 17 && b === 19 && c === 9;
        rows.push([`0.${a}.${b}.${c}`, good ? 0.95 : 0.05, broken ? "failed" : "pruned"]);
      }
  const recording = recorded(rows);
  const frame = recording.at(recording.lines);
  const scene = new Scene(recording, frame, { collapsed: Scene.opening(recording, frame, 200) });
  assert.ok(scene.count <= 200);
  for (const id of ["0.19.18.3", "0.17.19.9"]) assert.ok(scene.slot[recording.indexOf(id)] >= 0, id);
});
