import assert from "node:assert/strict";
import { test } from "node:test";
import { Scene, fitted } from "../scene.js";
import { escaped, svgOf } from "../svg.js";
import { DARK, LIGHT } from "../theme.js";
import { full, recorded } from "./growing.js";

const sceneOf = (recording, view) => new Scene(recording, recording.at(recording.lines), view);
const count = (svg, part) => svg.split(part).length - 1;

/** Returns whether every tag is closed in order and every special character is escaped. */
function wellFormed(svg) {
  const open = [];
  for (const [, end, name, self] of svg.matchAll(/<(\/?)([a-z]+)(?:\s+[a-z-]+(?:[A-Z][a-z]+)?="[^"<]*")*\s*(\/?)>/g)) {
    if (end) assert.equal(open.pop(), name);
    else if (!self) open.push(name);
  }
  const rest = svg.replace(/<\/?[a-z]+(?:\s+[a-z-]+(?:[A-Z][a-z]+)?="[^"<]*")*\s*\/?>/g, "");
  assert.ok(!/[<>]|&(?!#\d+;)/.test(rest), rest.slice(0, 200));
  assert.deepEqual(open, []);
}

test("each thought that is seen has a shape, its score and its text", () => {
  const recording = recorded([["0"], ["0.0", 0.75, "kept"], ["0.1", 0.00005, "pruned"], ["0.0.0", null]]);
  const svg = svgOf(sceneOf(recording), LIGHT, { title: "a run" });
  wellFormed(svg);
  assert.equal(count(svg, "thought 0"), 4);
  assert.ok(svg.includes("<title>a run</title>"));
  for (const shown of ["0.75", "&#60;0.001", "unreadable"]) assert.ok(svg.includes(`>${shown}</text>`));
  assert.ok(svg.includes(`fill="${LIGHT.paper}"`));
  assert.ok(!svg.includes("thoughts drawn"));
  assert.ok(svgOf(sceneOf(recording), DARK).includes(`fill="${DARK.paper}"`));
});

test("hostile text is text", () => {
  const recording = recorded([["0"], ["0.0", 0.5, "kept"]]);
  const hostile = "<script>alert(1)</script>\" ' & ]]> \u0000\u0008\ud800 \ufffe \u202e rtl 😀";
  recording.setTexts(0, [hostile, hostile + "x".repeat(1e6)]);
  const svg = svgOf(sceneOf(recording), LIGHT, { title: hostile });
  wellFormed(svg);
  assert.ok(!svg.includes("<script"));
  assert.ok(svg.includes("&#60;script&#62;"));
  assert.ok(svg.includes("😀"));
  assert.ok(svg.length < 20000);
  assert.equal(escaped("a\u0000\ud800b\udc00😀\ufffe\n"), "ab😀\n");
});

test("it loads nothing and runs nothing", () => {
  const svg = svgOf(sceneOf(full(3, 2)), LIGHT);
  assert.ok(!/href|url\(|@import|<style|<script|\son\w+=/.test(svg));
});

test("collapsed thoughts, links, marks and the ways are drawn", () => {
  const recording = recorded([
    ["0"], ["0.0", 0.9, "answer"], ["0.1", 0.5, "kept"], ["0.1.0", 0.5, "pruned"],
    ["0.2", 0.5, "merged", "merged", "0.1"],
  ]);
  const view = { collapsed: new Set([2]), selected: [2], facts: { marks: { "0.0": { verdict: "right" } } } };
  const svg = svgOf(sceneOf(recording, view), LIGHT);
  wellFormed(svg);
  assert.ok(svg.includes(">+1</text>"));
  assert.ok(svg.includes(`stroke="${LIGHT.links.merged}" stroke-width="1.5" stroke-dasharray="5 4"`));
  assert.equal(count(svg, "stroke-dasharray"), 1);
  const [way] = svg.match(new RegExp(`<path d="[^"]*" fill="none" stroke="${LIGHT.path}" stroke-width="3"`));
  assert.equal(count(way, "M"), 1);
  assert.ok(svg.includes(`fill="none" stroke="${LIGHT.chosen}" stroke-width="2"`));
  assert.ok(svg.includes(`stroke="${LIGHT.chosen}" stroke-width="2.5"`));
  assert.ok(svg.includes(`fill="${LIGHT.verdicts.right}"`));
});

test("a big tree is counted whole in bars, and the picture says so", () => {
  const scene = sceneOf(full(6, 5));
  const svg = svgOf(scene, LIGHT, { width: 900, height: 500 });
  wellFormed(svg);
  assert.ok(svg.includes(">bar: thoughts that are pruned"));
  assert.ok(!svg.includes("thoughts drawn"));
  assert.ok(svg.length < 1e6);
  const camera = { ...fitted(scene, 900, 500), x: 0 };
  const [, shown] = svgOf(scene, LIGHT, { width: 900, height: 500, camera }).match(/>([\d,]+) of 9,331 thoughts drawn</);
  const half = scene.x.filter((x) => x * camera.kx < 450).length;
  assert.ok(Math.abs(Number(shown.replace(",", "")) - half) < 100, `${shown}, not ${half}`);
});

test("a camera shows what it sees", () => {
  const scene = sceneOf(full(3, 3));
  const size = { width: 600, height: 400 };
  assert.equal(svgOf(scene, LIGHT, size), svgOf(scene, LIGHT, { ...size, camera: fitted(scene, 600, 400) }));
  const near = svgOf(scene, LIGHT, { ...size, camera: { x: 0, y: scene.height, kx: 150, ky: 120 } });
  assert.ok(near.includes("thought 0.0.0.0<"));
  assert.ok(!near.includes("thought 0.2.2.2<"));
});

test("nothing is an empty picture", () => {
  const recording = recorded([["0"]]);
  wellFormed(svgOf(new Scene(recording, recording.at(0)), LIGHT));
});
