import assert from "node:assert/strict";
import { test } from "node:test";
import {
  BLANK, CHOSEN, DIM, FRONTIER, HOLLOW, PATH, RECEDES, Scene, UNSCORED, WAITING,
  detailAt, drawn, fitted, layoutParents, linesBelow, wrapped, zoomed,
} from "../scene.js";
import { SHAPES, STEPS } from "../theme.js";
import { full, recorded } from "./growing.js";

const last = (recording) => recording.at(recording.lines);
const sceneOf = (recording, view) => new Scene(recording, last(recording), view);
const ids = (scene) => [...scene.nodes].map((node) => scene.recording.id(node));

test("all thoughts have a slot, siblings in order, children below their parents", () => {
  const recording = recorded([["0"], ["0.10"], ["0.2"], ["0.2.0"]]);
  const scene = sceneOf(recording);
  assert.equal(scene.count, 4);
  assert.deepEqual(ids(scene), ["0", "0.2", "0.2.0", "0.10"]);
  for (let slot = 0; slot < scene.count; slot++) {
    assert.equal(scene.slot[scene.nodes[slot]], slot);
    if (scene.parents[slot] >= 0) assert.equal(scene.y[slot], scene.y[scene.parents[slot]] + 1);
  }
  assert.ok(scene.x[scene.slot[recording.indexOf("0.2")]] < scene.x[scene.slot[recording.indexOf("0.10")]]);
});

test("a collapsed thought hides what is below it, and says how much", () => {
  const recording = full(3, 3);
  const node = recording.indexOf("0.1");
  const scene = sceneOf(recording, { collapsed: new Set([node]) });
  assert.equal(scene.count, 40 - 12);
  assert.equal(scene.hidden[scene.slot[node]], 12);
  assert.equal(scene.children[scene.slot[node]], 3);
  assert.equal(scene.slot[recording.indexOf("0.1.0.2")], -1);
  const leaf = recording.indexOf("0.0.0.0");
  const shut = sceneOf(recording, { collapsed: new Set([leaf]) });
  assert.equal(shut.count, 40);
  assert.equal(shut.hidden[shut.slot[leaf]], 0);
});

test("a change that waits is drawn below its thought, several one after the other", () => {
  const recording = full(2, 2);
  const waiting = [
    { act: "rescore", node: "0.1", score: 0.95 }, { act: "prune", node: "0.0" }, { act: "graft", node: "0.1", text: "t", score: 1 },
    { act: "raise_budget", limits: { calls: 9 } }, { act: "prune", node: "0.7" },
  ];
  const scene = sceneOf(recording, { waiting });
  const plain = sceneOf(recording);
  const below = (its, id) => its.number(its.slot[recording.indexOf(id)]).join(" ");
  assert.equal(below(scene, "0.1"), `${below(plain, "0.1")} → 0.95 + a thought`.trim());
  assert.equal(below(scene, "0.0"), `${below(plain, "0.0")} → pruned`.trim());
  assert.equal(below(scene, "0.1.0"), below(plain, "0.1.0"));
});

test("what is not in `only` is left out, and the rest dims", () => {
  const recording = full(2, 2);
  const keeps = ["0", "0.1", "0.1.0"];
  const only = Uint8Array.from({ length: 7 }, (_, node) => Number(keeps.includes(recording.id(node))));
  assert.deepEqual(ids(sceneOf(recording, { only })), keeps);
  const scene = sceneOf(recording, { dim: only });
  assert.deepEqual(ids(scene).filter((_, slot) => scene.flags[slot] & DIM), keeps);
});

test("each state has its shape, a score its colour", () => {
  const states = ["kept", "pruned", "complete", "duplicate", "merged", "failed", "answer"];
  const rows = states.map((state, at) => [`0.${at}`, at / 6, state]);
  const recording = recorded([["0"], ...rows, ["0.7", null], ["0.8", 0.5]]);
  const scene = sceneOf(recording);
  const shapes = [...scene.shape].map((shape) => SHAPES[shape][0]);
  assert.deepEqual(shapes, [
    "question", "kept", "pruned", "complete", "duplicate", "merged", "failed", "answer",
    "unreadable", "proposed",
  ]);
  assert.equal(scene.fill[0], BLANK);
  assert.equal(scene.fill[1], 0);
  assert.equal(scene.fill[7], HOLLOW); // nobody has judged it
  assert.equal(scene.fill[8], UNSCORED);
  assert.equal(scene.fill[9], Math.round(0.5 * (STEPS - 1)));
  assert.deepEqual([...scene.flags].map((has) => (has & RECEDES) > 0), [0, 0, 1, 0, 1, 1, 1, 0, 0, 0].map(Boolean));
  assert.deepEqual([4, 5, 6].map((slot) => scene.what(slot)), ["duplicate", "merged", "failed"]);
});

test("the star of the answer is filled if it is right, crossed if it is wrong, and empty before the end", () => {
  const rows = [["0"], ["0.0", 0.5, "answer"], ["0.1", 0.5, "answer"]];
  const filled = Math.round(0.5 * (STEPS - 1));
  for (const [correct, shape, fill] of [[true, "right answer", filled], [false, "wrong answer", HOLLOW], [null, "answer", HOLLOW]]) {
    const recording = recorded(rows);
    recording.about = { verdict: { correct } };
    const before = recording.lines;
    recording.append({ first: before, kinds: "6", times: [0], ended: { stop: "answered", answer: "", node: 2, score: 0.5, ranked: [], error: null } });
    const looks = (scene) => [1, 2].map((slot) => [SHAPES[scene.shape[slot]][0], scene.fill[slot]]);
    assert.deepEqual(looks(sceneOf(recording)), [["answer", HOLLOW], [shape, fill]]);
    assert.deepEqual(looks(new Scene(recording, recording.at(before))), [["answer", HOLLOW], ["answer", HOLLOW]]);
  }
});

test("the ways to the best and to the selected thought are told apart, also to one that is hidden", () => {
  const recording = recorded([["0"], ["0.0", 0.9, "answer"], ["0.1", 0.4, "kept"], ["0.1.0", 0.3, "pruned"]]);
  const node = recording.indexOf("0.1.0");
  const scene = sceneOf(recording, { selected: [node] });
  const has = (flag, of = scene) => ids(of).filter((_, slot) => of.flags[slot] & flag);
  assert.deepEqual(has(PATH), ["0", "0.0"]);
  assert.deepEqual(has(CHOSEN), ["0", "0.1", "0.1.0"]);
  assert.deepEqual(scene.selected, [scene.slot[node]]);
  const shut = sceneOf(recording, { selected: [node, 99], collapsed: new Set([recording.indexOf("0.1")]) });
  assert.deepEqual(has(CHOSEN, shut), ["0", "0.1"]);
  assert.deepEqual(shut.selected, []);
});

test("what may be expanded, open calls, marks and differences", () => {
  const recording = recorded([["0"], ["0.0", 0.9, "kept"], ["0.1", 0.4, "pruned"]], ["0.1"]);
  const marks = { "0.0": { verdict: "right" }, "0.1": { verdict: null, note: "odd" }, "0.7": { verdict: "wrong" } };
  const scene = sceneOf(recording, { facts: { marks }, difference: Uint8Array.of(0, 3, 1) });
  assert.deepEqual(ids(scene).filter((_, slot) => scene.flags[slot] & FRONTIER), ["0.0"]);
  assert.deepEqual([...scene.marks], [[1, "right"], [2, "note"]]);
  assert.deepEqual([...scene.difference], [0, 3, 1]);
  assert.deepEqual(ids(scene).filter((_, slot) => scene.flags[slot] & WAITING), ["0.1"]);
  const before = new Scene(recording, recording.at(recording.lines - 1));
  assert.equal([...before.flags].some((has) => has & WAITING), false);
});

test("a scene stays what it was when the frame moves on", () => {
  const recording = recorded([["0"], ["0.0", 0.9, "kept"]]);
  const scene = sceneOf(recording);
  recording.at(1);
  assert.equal(scene.scores[1], 0.9);
  assert.equal(scene.what(1), "kept");
  const first = new Scene(recording, recording.at(1));
  assert.equal(first.count, 1);
  assert.equal(new Scene(recording, recording.at(0)).count, 0);
});

test("a plan stands in levels by its longest path; its other links are arcs", () => {
  const recording = recorded([
    ["0"], ["0.0"], ["0.1"], ["0.2", undefined, "", "depends", "0.0"],
    ["0.3", undefined, "", "depends", "0.1", "depends", "0.2"], ["0.4", undefined, "", "source", "0.3"],
  ]);
  const above = [...layoutParents(recording, last(recording))].map((node) => (node < 0 ? "" : recording.id(node)));
  assert.deepEqual(above, ["", "0", "0", "0.0", "0.2", "0.3"]);
  const scene = sceneOf(recording);
  assert.deepEqual([...scene.y].map((level, slot) => [recording.id(scene.nodes[slot]), level]), [
    ["0", 0], ["0.0", 1], ["0.1", 1], ["0.2", 2], ["0.3", 3], ["0.4", 4],
  ]);
  const name = (slot) => recording.id(scene.nodes[slot]);
  assert.deepEqual(scene.links.map(({ from, to, kind }) => [name(from), name(to), kind]), [["0.3", "0.1", "depends"]]);
});

test("a merged thought is linked to the one whose state it reached, and only once it is", () => {
  const recording = recorded([["0"], ["0.0", 0.5, "kept"], ["0.1", 0.5, "merged", "merged", "0.0"]]);
  assert.deepEqual(sceneOf(recording).links, [{ from: 2, to: 1, kind: "merged" }]);
  assert.deepEqual(new Scene(recording, recording.at(recording.lines - 1)).links, []);
  assert.deepEqual(sceneOf(recording, { collapsed: new Set([0]) }).links, []);
});

test("a big tree opens with its best path and what was kept, of about as many thoughts as asked", () => {
  const recording = full(6, 5, "0.3.4.2.5.1");
  const frame = last(recording);
  assert.ok(frame.nodes > 9000);
  assert.equal(recording.id(frame.best), "0.3.4.2.5.1");
  const scene = new Scene(recording, frame, { collapsed: Scene.opening(recording, frame, 400) });
  assert.ok(scene.count <= 400 && scene.count > 60, String(scene.count));
  for (let node = frame.best; node > 0; node = recording.parent[node]) {
    for (const sibling of recording.childrenOf(recording.parent[node])) assert.ok(scene.slot[sibling] >= 0);
  }
  assert.ok(scene.slot[recording.indexOf("0.0.0.0")] >= 0);
  assert.equal(Scene.opening(recording, frame, 10000).size, 0);
});

test("no level opens wider than shapes can be told apart in", () => {
  const rows = [["0"]];
  for (let at = 0; rows.length < 3000; at++) {
    for (let k = 0; k < 5; k++) rows.push([`${rows[at][0]}.${k}`, 0.5, "kept"]);
  }
  const recording = recorded(rows);
  const frame = last(recording);
  const scene = new Scene(recording, frame, { collapsed: Scene.opening(recording, frame, 1500) });
  const widths = new Map();
  for (const level of scene.y) widths.set(level, (widths.get(level) ?? 0) + 1);
  assert.ok(Math.max(...widths.values()) <= 60 && widths.size >= 4, [...widths.values()].join());
});

test("a long chain is no matter", () => {
  let id = "0";
  const rows = [[id]];
  for (let at = 1; at < 3000; at++) rows.push([(id += ".0"), 0.5, "kept"]);
  const recording = recorded(rows);
  const scene = sceneOf(recording, { collapsed: new Set([10]) });
  assert.equal(scene.count, 11);
  assert.equal(scene.hidden[10], 2989);
  assert.equal(sceneOf(recording).height, 2999);
});

test("the automatic layout does not change its mind while a run grows", () => {
  const recording = full(2, 3);
  const packed = sceneOf(recording);
  packed.packed = true;
  const frame = last(recording);
  assert.equal(new Scene(recording, frame, {}, packed).packed, true);
  assert.equal(new Scene(recording, frame, { layout: "tidy" }, packed).packed, false);
  assert.equal(new Scene(full(2, 3), frame, {}, packed).packed, false);
  assert.equal(new Scene(recording, frame, { layout: "layered" }).packed, true);
});

test("the whole scene is in the view that fits it, and zooming out ends there", () => {
  for (const recording of [full(1, 1), full(3, 3), full(6, 5), full(1, 300)]) {
    const scene = sceneOf(recording);
    const whole = fitted(scene, 900, 500);
    for (const slot of [0, scene.count - 1]) {
      assert.ok(Math.abs(scene.x[slot] - whole.x) * whole.kx <= 450);
      assert.ok(Math.abs(scene.y[slot] - whole.y) * whole.ky <= 250);
    }
    let camera = whole;
    for (let step = 0; step < 200; step++) camera = zoomed(camera, 1.1, whole, 100, -50);
    assert.deepEqual([camera.kx, camera.ky], [240, 150]);
    for (let step = 0; step < 200; step++) camera = zoomed(camera, 1 / 1.1, whole, 100, -50);
    assert.ok(Math.abs(camera.kx / whole.kx - 1) < 0.01 && Math.abs(camera.ky / whole.ky - 1) < 0.01);
  }
});

test("zooming keeps the point under the pointer", () => {
  const camera = { x: 10, y: 3, kx: 5, ky: 40 };
  const nearer = zoomed(camera, 1.5, { x: 0, y: 0, kx: 1, ky: 1 }, 120, -60);
  assert.ok(nearer.kx > camera.kx);
  assert.ok(Math.abs(camera.x + 120 / camera.kx - nearer.x - 120 / nearer.kx) < 1e-9);
  assert.ok(Math.abs(camera.y - 60 / camera.ky - nearer.y + 60 / nearer.ky) < 1e-9);
});

test("on the way in the axis that lags catches up first", () => {
  const whole = { x: 0, y: 0, kx: 1, ky: 30 };
  const { kx, ky } = zoomed({ x: 0, y: 0, kx: 20, ky: 40 }, 1.1, whole, 0, 0);
  assert.ok(Math.abs(kx - 22) < 1e-9);
  assert.equal(ky, 40);
  const out = zoomed({ x: 0, y: 0, kx: 20, ky: 40 }, 0.5, whole, 0, 0);
  assert.deepEqual([out.kx, out.ky], [10, 30]);
});

test("the nearer, the more is told", () => {
  const told = [2, 8, 40, 70].map((kx) => detailAt({ x: 0, y: 0, kx, ky: 100 }));
  assert.deepEqual(told.map(({ far }) => far), [true, false, false, false]);
  assert.deepEqual(told.map(({ scores }) => scores), [false, false, true, true]);
  assert.deepEqual([20, 40, 50, 120].map((ky) => detailAt({ x: 0, y: 0, kx: 8, ky }).rows > 0), [false, false, true, true]);
  // The text of a thought ends above the next level.
  for (let ky = 20; ky <= 150; ky++) {
    const { radius, below } = detailAt({ x: 0, y: 0, kx: 300, ky });
    assert.ok(below + radius < ky, String(ky));
  }
});

test("from afar one thought is drawn per spot, the weightiest; near only what is in view", () => {
  const recording = full(6, 5, "0.3.4.2.5.1");
  const scene = sceneOf(recording, { layout: "tidy" });
  const whole = fitted(scene, 900, 500);
  const seen = drawn(scene, whole, 900, 500);
  assert.ok(seen.length < 3000 && seen.length > 100, String(seen.length));
  assert.deepEqual([...seen], [...seen].sort((a, b) => a - b));
  const drawnSlots = new Set(seen);
  for (let slot = 0; slot < scene.count; slot++) if (scene.flags[slot] & PATH) assert.ok(drawnSlots.has(slot));
  const near = { x: scene.x[40], y: scene.y[40], kx: 34, ky: 74 };
  for (const slot of drawn(scene, near, 900, 500)) {
    assert.ok(Math.abs(scene.x[slot] - near.x) * near.kx < 450 + 66);
  }
});

test("rows end at punctuation or before a bracket if there is room for such rows", () => {
  assert.deepEqual(wrapped("8 / 1 = 8 (left: 4 8 8)", 20, 2), ["8 / 1 = 8", "(left: 4 8 8)"]);
  assert.deepEqual(wrapped("8 / 1 = 8 (left: 4 8 8)", 20, 1), ["8 / 1 = 8 (left: 4…"]);
  assert.deepEqual(wrapped("8 / 1 = 8 (left: 4 8 8)", 30, 2), ["8 / 1 = 8 (left: 4 8 8)"]);
  assert.deepEqual(wrapped("First buy milk, then go home again.", 20, 3), ["First buy milk,", "then go home again."]);
  assert.deepEqual(wrapped("a, b, c, d, e, f, g, h", 20, 3), ["a, b, c, d, e, f, g,", "h"]);
});

test("texts that have room on a level do not overlap, and those of selected thoughts are among them", () => {
  const rows = [["0"]];
  for (let at = 0; at < 60; at++) rows.push([`0.${at}`, at / 60, at % 2 ? "pruned" : "kept"]);
  const recording = recorded(rows);
  const node = recording.indexOf("0.31");
  for (const kx of [5, 11, 30, 57]) {
    const scene = sceneOf(recording, { selected: [node] });
    const has = scene.labelled(kx);
    const places = [...scene.x].filter((_, slot) => scene.y[slot] === 1 && has[slot]).map((x) => x * kx).sort((a, b) => a - b);
    assert.ok(places.length > 2);
    places.forEach((x, at) => assert.ok(!at || x - places[at - 1] >= 112, `${kx}: ${x}`));
    assert.equal(has[scene.slot[node]], 1);
    const facts = { findings: [{ kind: "why_it_failed", text: "", nodes: ["0.31"] }] };
    assert.equal(sceneOf(recording, { facts }).labelled(kx)[scene.slot[node]], 1, "one that the reason names");
    const best = scene.slot[recording.indexOf("0.58")];
    assert.equal(has[best], 1, "the highest score of the kept thoughts");
  }
});

test("where not every thought has room for its score, those with a text have their score too", () => {
  const rows = [["0"]];
  for (let at = 0; at < 60; at++) rows.push([`0.${at}`, at / 64, at % 2 ? "pruned" : "kept"]);
  const recording = recorded(rows);
  recording.setTexts(0, rows.map(([id]) => `thought ${id}`));
  const scene = sceneOf(recording);
  const detail = detailAt({ x: 0, y: 0, kx: 11, ky: 100 });
  assert.equal(detail.scores, false);
  const shown = [...scene.y.keys()].filter((slot) => scene.y[slot] && linesBelow(scene, slot, detail).lines.length);
  assert.ok(shown.length > 2 && shown.length < 20);
  for (const slot of shown) {
    const { number, lines, first } = linesBelow(scene, slot, detail);
    assert.deepEqual([number, first, lines.length], [scene.number(slot), 1, 1]);
  }
  const bare = linesBelow(scene, [...scene.y.keys()].find((slot) => scene.y[slot] && !shown.includes(slot)), detail);
  assert.deepEqual([bare.number, bare.lines], [[], []]);
});

test("text is wrapped at words, cut with an ellipsis, and never parts a pair of surrogates", () => {
  assert.deepEqual(wrapped("one two three four", 9, 3), ["one two", "three", "four"]);
  assert.deepEqual(wrapped("one two three four", 9, 1), ["one two…"]);
  assert.deepEqual(wrapped("one two three four", 11, 1), ["one two th…"]);
  assert.deepEqual(wrapped("abcdefghijkl", 5, 2), ["abcde", "fghi…"]);
  assert.deepEqual(wrapped(" a\n\0\tb ", 9, 2), ["a b"]);
  assert.deepEqual(wrapped("a\u202eb\u2028c", 9, 2), ["a b c"]);
  assert.deepEqual(wrapped("", 9, 3), []);
  assert.deepEqual(wrapped("😀😀😀", 1, 3), ["😀", "😀", "😀"]);
  assert.deepEqual(wrapped("😀😀😀😀", 3, 1), ["😀😀…"]);
  assert.deepEqual(wrapped("a \ud800 b", 9, 1), ["a \ud800 b"]);
  const long = wrapped("x".repeat(1e6), 50, 4);
  assert.deepEqual([long.length, long[3].at(-1)], [4, "…"]);
});

test("a chain grows from left to right, and so does every small tree on a phone", () => {
  const chain = (length) => recorded(Array.from({ length }, (_, depth) => [["0", ...Array(depth).fill("0")].join(".")]));
  for (const [length, sideways] of [[4, false], [7, true], [100, true], [101, false]]) {
    assert.equal(sceneOf(chain(length)).sideways, sideways, String(length));
  }
  assert.equal(sceneOf(full(2, 3)).sideways, false);
  const scene = sceneOf(full(2, 3), { narrow: true });
  assert.ok(scene.sideways);
  for (let slot = 1; slot < scene.count; slot++) assert.equal(scene.x[slot], scene.x[scene.parents[slot]] + 1);
  assert.equal(new Set([...scene.y].filter((_, slot) => scene.x[slot] === 3)).size, 8);
  assert.equal(sceneOf(full(5, 3), { narrow: true }).sideways, false); // 156 thoughts
});

test("a long chain begins at the left, and each of its thoughts has room for a text", () => {
  const rows = Array.from({ length: 40 }, (_, depth) => [["0", ...Array(depth).fill("0")].join(".")]);
  const scene = sceneOf(recorded(rows));
  const camera = fitted(scene, 1000, 600);
  const left = (scene.x[0] - camera.x) * camera.kx + 500;
  assert.ok(left > 0 && left < 80);
  assert.ok(detailAt(camera, true).rows > 0);
  for (let slot = 0; slot < scene.count; slot++) assert.ok(scene.label(slot).length > 0);
});

test("a right answer that was not chosen, the open frontier and a person's changes are marked apart", () => {
  const recording = recorded([["0"], ["0.0", 0.9, "answer"], ["0.1", 0.2, "complete"], ["0.2", 0.4, "kept"]]);
  recording.about = { verdict: { correct: false }, changed: [["0.2", "score set to 0.4", recording.lines - 2, ""]] };
  recording.ended = { line: recording.lines - 1, stop: "answered", answer: "", node: 1, score: 0.9, ranked: [], error: null };
  const facts = { right: ["0.1"], solvable: "1010", findings: [{ kind: "why_it_failed", text: "", nodes: ["0.1"] }] };
  const scene = new Scene(recording, recording.at(recording.lines), { facts });
  assert.deepEqual([...scene.shape].map((shape) => SHAPES[shape][0]), ["question", "wrong answer", "right, not chosen", "kept"]);
  assert.deepEqual([scene.missed, scene.lastSolvable, scene.changed], [[2], [], [3]]);
  assert.deepEqual(new Scene(recording, recording.at(recording.lines - 2), { facts }).changed, []);
});

test("a label has no number that needs more room than it has, and no text begins beside a number", () => {
  const recording = recorded([["0"], ["0.0", 0.00004, "kept"], ["0.1", null, "duplicate"], ["0.2", 0.25, "kept"]]);
  recording.setTexts(0, ["Q", "one", "two", "three"]);
  const scene = new Scene(recording, recording.at(recording.lines), {});
  assert.deepEqual(scene.number(1), ["<0.001"]);
  assert.deepEqual([scene.number(1, 30), scene.number(3, 30)], [[], ["0.25"]]);
  for (const kx of [30, 40, 57]) {
    const detail = detailAt({ x: 0, y: 0, kx, ky: 100 });
    assert.deepEqual([1, 2, 3].map((slot) => linesBelow(scene, slot, detail).first), [1, 1, 1], `${kx}`);
  }
});
