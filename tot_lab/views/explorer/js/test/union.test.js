import assert from "node:assert/strict";
import { test } from "node:test";
import { align } from "../align.js";
import { Scene } from "../scene.js";
import { unionOf } from "../union.js";
import { full, recorded } from "./growing.js";

/** The places of both runs by id: [x, y]. */
function united(runs, views = [{}, {}]) {
  const frames = runs.map((run) => run.at(run.lines));
  const { pairOfB } = align(runs[0], frames[0], runs[1], frames[1]);
  const unions = unionOf(frames, views, pairOfB);
  const scenes = frames.map((frame, which) => new Scene(runs[which], frame, { ...views[which], union: unions[which] }));
  const places = scenes.map((scene) =>
    Object.fromEntries([...scene.nodes].map((node, slot) => [scene.recording.id(node), [scene.x[slot], scene.y[slot]]])));
  return { places, scenes };
}

test("matching thoughts have the same position, and no two others share one", () => {
  const a = recorded([["0"], ["0.0"], ["0.1"], ["0.0.0"], ["0.0.1"], ["0.1.0"]]);
  const b = recorded([["0"], ["0.0"], ["0.1"], ["0.2"], ["0.1.0"], ["0.1.1"], ["0.2.0"]]);
  const { places: [one, other], scenes } = united([a, b]);
  for (const id of ["0", "0.0", "0.1", "0.1.0"]) assert.deepEqual(other[id], one[id], id);
  const taken = new Set([...Object.values(one), ...Object.values(other)].map(String));
  assert.equal(taken.size, 4 + 2 + 3); // in both, only in the first, only in the second
  for (const places of [one, other]) {
    for (const [id, [, y]] of Object.entries(places)) assert.equal(y, id.split(".").length - 1);
  }
  assert.ok(one["0.0.0"][0] < one["0.0.1"][0]);
  assert.deepEqual([scenes[0].width, scenes[0].height], [scenes[1].width, scenes[1].height]);
});

test("two equal runs are laid out as one", () => {
  const run = full(3, 3);
  const { places: [one, other] } = united([run, full(3, 3)]);
  const alone = new Scene(run, run.at(run.lines));
  assert.deepEqual(other, one);
  assert.deepEqual(one, Object.fromEntries([...alone.nodes].map((node, slot) => [run.id(node), [alone.x[slot], alone.y[slot]]])));
});

test("what is collapsed in one run takes its room in the other", () => {
  const [a, b] = [full(3, 2), full(3, 2)];
  const shut = { collapsed: new Set([a.indexOf("0.0")]) };
  const { places: [one, other] } = united([a, b], [shut, {}]);
  assert.equal(Object.keys(one).length, 13 - 3);
  assert.equal(Object.keys(other).length, 13);
  for (const [id, place] of Object.entries(one)) assert.deepEqual(other[id], place);
});
