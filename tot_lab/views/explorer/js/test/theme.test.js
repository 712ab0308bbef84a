import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { CORNERS, DARK, DARK_SCORES, KINDS, LIGHT, SCORES, SHAPES, STEPS, STEP_SHAPES } from "../theme.js";
import { QUESTION, STATES } from "../recording.js";

const python = (name) => readFile(new URL(`../../../figures/${name}.py`, import.meta.url), "utf8");

test("colours and shapes are those of the figures", async () => {
  const theme = await python("theme");
  const named = (name) => theme.match(new RegExp(`^${name} = "([^"]+)"`, "m"))[1];
  const listed = (name) => theme.match(new RegExp(`^${name} = \\(([^)]+)\\)`, "m"))[1].match(/#[0-9a-f]{6}/g);
  assert.deepEqual([SCORES, DARK_SCORES], [listed("SCORES"), listed("DARK_SCORES")]);
  assert.equal(LIGHT.ink, named("INK"));
  assert.equal(LIGHT.edge, named("EDGE"));
  assert.equal(LIGHT.path, named("PATH"));
  assert.equal(LIGHT.unscored, named("UNSCORED"));
  assert.equal(LIGHT.font, named("FONT"));
  assert.deepEqual(KINDS, theme.match(/^KINDS = \(([^)]+)\)/m)[1].match(/#[0-9a-f]{6}/g));
  const links = theme.match(/^LINKS = \{([^}]+)\}/m)[1].matchAll(/"(\w+)": "(#\w+)"/g);
  assert.deepEqual(LIGHT.links, Object.fromEntries([...links].map(([, kind, ink]) => [kind, ink])));
  const shapes = (await python("tree")).match(/^SHAPES = \{([^}]+)\}/m)[1].matchAll(/"([^"]+)": "([^"]+)"/g);
  assert.deepEqual(SHAPES.slice(0, STEP_SHAPES), [...shapes].map(([, what, shape]) => [what, shape]));
});

test("the words for the states are those of Python", async () => {
  const records = await readFile(new URL("../../../../core/records.py", import.meta.url), "utf8");
  const words = (start) => records.match(new RegExp(`^${start}([^\\])]+)`, "m"))[1].match(/\w+(?=")/g);
  assert.deepEqual([QUESTION, ...STATES], [...words("STATES = \\("), ...words("Decision: TypeAlias = Literal\\[")]);
});

test("each shape has its corners and those of equal name are equal", () => {
  assert.equal(CORNERS.length, SHAPES.length);
  const corners = Object.fromEntries(SHAPES.map(([, shape], at) => [shape, CORNERS[at].length]));
  assert.deepEqual(corners, {
    circle: 0, star: 10, diamond: 4, x: 12, square: 4, "triangle-down": 3, "triangle-up": 3, hexagon: 6,
    "triangle-right": 3, "triangle-left": 3, pentagon: 5, hourglass: 6, octagon: 8, bowtie: 6, "diamond-tall": 4,
  });
  const tip = (shape) => CORNERS[SHAPES.findIndex(([, its]) => its === shape)].map(([, y]) => y);
  assert.ok(Math.max(...tip("triangle-down")) > -Math.min(...tip("triangle-down")));
  assert.ok(-Math.min(...tip("triangle-up")) > Math.max(...tip("triangle-up")));
});

/** The contrast of two colours by WCAG 2.2. */
function contrast(one, other) {
  const [high, low] = [one, other].map((hex) => {
    const linear = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255)
      .map((share) => (share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  }).sort((a, b) => b - a);
  return (high + 0.05) / (low + 0.05);
}

test("texts have a contrast of 4.5, and outlines, lines and marks one of 3, in light and dark", async () => {
  const style = await readFile(new URL("../style.css", import.meta.url), "utf8");
  const borders = [...style.matchAll(/border-color: (#[0-9a-f]{6})/g)].map(([, colour]) => colour);
  assert.equal(borders.length, 5);
  for (const theme of [LIGHT, DARK]) {
    for (const text of [theme.ink, theme.faint]) assert.ok(contrast(text, theme.paper) >= 4.5, text);
    const { edge, line, path, chosen, waiting, links, differences, verdicts } = theme;
    const marks = [edge, line, path, chosen, waiting, ...Object.values(links), ...differences.slice(1)];
    for (const mark of [...marks, ...Object.values(verdicts), ...KINDS, ...borders]) {
      assert.ok(contrast(mark, theme.paper) >= 3, `${mark} on ${theme.paper}`);
    }
  }
  assert.ok(Math.abs(contrast("#767676", "#ffffff") - 4.54) < 0.01); // a published example
});

test("on every dark ground of a notebook, each score has a contrast of 3, also if pruned, and higher scores are lighter", () => {
  const parts = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  /** A pruned thought has an opacity of 0.7. */
  const faded = (rgb, ground) => rgb.map((part, at) => 0.7 * part + 0.3 * parts(ground)[at]);
  const hex = (rgb) => `#${rgb.map((part) => Math.round(part).toString(16).padStart(2, "0")).join("")}`;
  for (const ground of [DARK.paper, DARK.raised, "#111111", "#1e1e1e", "#212121"]) {
    const contrasts = DARK.scale.map((shade) => contrast(hex(faded(shade.match(/\d+/g).map(Number), ground)), ground));
    assert.ok(contrasts[0] >= 3, `${DARK.scale[0]} on ${ground}`);
    assert.deepEqual(contrasts, contrasts.toSorted((a, b) => a - b));
    assert.ok(contrast(hex(faded(parts(DARK.unscored), ground)), ground) >= 3, ground);
  }
});

test("the colours of scores go from one end of viridis to the other, through all between", () => {
  const rgb = (hex) => `rgb(${[1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16))})`;
  for (const { scale, scores } of [LIGHT, DARK]) {
    assert.equal(scale.length, STEPS);
    assert.deepEqual(scores.map((_, at) => scale[(at * (STEPS - 1)) / (scores.length - 1)]), scores.map(rgb));
  }
  assert.equal(LIGHT.scores, SCORES);
});

test("text and the best path can be read on either ground", () => {
  const contrast = (one, other) => {
    const linear = (ink) => {
      const [red, green, blue] = [1, 3, 5]
        .map((at) => parseInt(ink.slice(at, at + 2), 16) / 255)
        .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
      return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    };
    const [high, low] = [linear(one), linear(other)].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  };
  for (const theme of [LIGHT, DARK]) {
    assert.ok(contrast(theme.ink, theme.paper) >= 7);
    assert.ok(contrast(theme.faint, theme.paper) >= 4.5);
    assert.ok(contrast(theme.path, theme.paper) >= 3);
    assert.ok(contrast(theme.chosen, theme.paper) >= 3);
  }
});
