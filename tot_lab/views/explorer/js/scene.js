/**
 * What is drawn of a recording at one moment, and where.
 *
 * Rule: a scene is a value made from (recording, frame, view): the canvas, the SVG and the outline
 * read it and decide nothing about it. The thoughts that are seen have slots 0…count-1, siblings in
 * order; all arrays run over slots, units are the layout's (siblings 1 apart, levels 1 apart). All
 * work is linear in the thoughts and nothing recurses.
 */

import { between, bytes, ceil, floats, floor, grouped, integers, max, min, round } from "./numbers.js";
import { layered, tidy } from "./layout.js";
import { STATES } from "./recording.js";
import { SHAPES, STEPS } from "./theme.js";

/** @typedef {import("./recording.js").Recording} Recording */
/** @typedef {import("./recording.js").Frame} Frame */

/**
 * What a person chose to see. Every part may be left out.
 * @typedef {object} View
 * @property {Set<number>} [collapsed] nodes whose descendants are not shown
 * @property {Uint8Array | null} [dim] by node, 1 = recedes (it does not pass the filter)
 * @property {Uint8Array | null} [only] by node, 1 = shown, with all that it hangs on; the rest is left out
 * @property {"auto" | "tidy" | "layered"} [layout]
 * @property {Iterable<number>} [selected] nodes
 * @property {Record<string, {verdict?: string | null, note?: string}>} [marks] by id
 * @property {Uint8Array | null} [difference] by node, a code of DIFFERENCES
 */

/** Bits of `flags`. PATH leads to the best thought, CHOSEN to a selected one; FRONTIER may still be
 * expanded, WAITING has an open call; RECEDES is pruned, failed or a repetition. */
export const PATH = 1;
export const CHOSEN = 2;
export const DIM = 4;
export const RECEDES = 8;
export const FRONTIER = 16;
export const WAITING = 32;

/** Fills beyond the steps of the score scale. */
export const UNSCORED = STEPS;
export const BLANK = STEPS + 1;

/** The place in SHAPES of each of STATES; a root of which nothing is decided is the question. */
export const SHAPE_OF_STATE = [8, 5, 3, 4, 2, 7, 7, 6, 1];

/** @param {number} state */
const receding = (state) => [3, 5, 6, 7].includes(state);

/** A tidy drawing so many times wider than its widest level wastes its room: the layered one stands in. */
const WASTEFUL = 2.5;

/** Thoughts on one level of which shapes can still be told apart in a window. */
const WIDEST = 60;

/** @param {Iterable<number>} values of 0 and more */
function greatest(values) {
  let most = 0;
  for (const value of values) if (value > most) most = value;
  return most;
}

export class Scene {
  /**
   * @param {Recording} recording
   * @param {Frame} frame
   * @param {View} [view]
   * @param {Scene | null} [previous] the scene that this one follows: an automatic choice of the layout
   *   is kept while the same run grows, since a change moves everything
   */
  constructor(recording, frame, view = {}, previous = null) {
    const { collapsed = new Set(), dim, only, layout = "auto", selected = [], marks = {}, difference } = view;
    const { nodes: total, score, state } = frame;
    const above = layoutParents(recording, frame);
    const family = familiesOf(above);

    // A thought is born after what it hangs on, so the order of birth serves every pass from the top
    // down and, reversed, every pass from the bottom up.
    const gone = bytes(total);
    const sizes = integers(total).fill(1);
    for (let node = 0; node < total; node++) {
      gone[node] = Number((only && !only[node]) || gone[above[node]] || collapsed.has(above[node]));
    }
    for (let node = total - 1; node >= 0; node--) if (above[node] >= 0) sizes[above[node]] += sizes[node];

    this.recording = recording;
    /** Node of each slot. @type {Int32Array} */
    const nodes = (this.nodes = recording.order().filter((node) => node < total && !gone[node]));
    this.count = nodes.length;
    /** Slot of each node, -1 where it is not seen. @type {Int32Array} */
    const slots = (this.slot = integers(total).fill(-1));
    nodes.forEach((node, slot) => (slots[node] = slot));
    /** @param {number} node that may be none, or be born later */
    const slotOf = (node) => slots[node] ?? -1;
    /** Slot that each hangs on, -1 for a root. */
    const parents = (this.parents = nodes.map((node) => slotOf(above[node])));
    /** Children there are, seen or not. */
    this.children = nodes.map((node) => family[node]);
    /** Thoughts that a collapsed one hides, else 0. */
    this.hidden = nodes.map((node) => (collapsed.has(node) ? sizes[node] - 1 : 0));

    this.layout = layout;
    const goesOn = previous?.recording === recording && previous.layout === layout && previous.packed;
    const places = layout === "layered" || (layout === "auto" && goesOn) ? null : tidy(parents);
    /** Whether the layered layout was used. */
    this.packed = !places || (layout === "auto" && wasteful(places));
    const { x, y } = places && !this.packed ? places : layered(parents);
    this.x = x;
    this.y = y;
    this.width = greatest(x);
    this.height = greatest(y);

    /** Scores, NaN where there is none. */
    const scores = (this.scores = floats(nodes.length));
    nodes.forEach((node, slot) => (scores[slot] = score[node]));
    // The recording reuses one frame object, so that the values needed later are copied.
    this.states = nodes.map((node) => state[node]);
    /** Index into SHAPES. */
    const shape = (this.shape = this.states.map((what, slot) =>
      what || parents[slot] >= 0 ? SHAPE_OF_STATE[what] : 0));
    /** Step of the score scale, or UNSCORED, or BLANK. */
    this.fill = shape.map((its, slot) => {
      if (!its) return BLANK;
      return Number.isNaN(scores[slot]) ? UNSCORED : round(between(scores[slot], 0, 1) * (STEPS - 1));
    });
    const flags = (this.flags = nodes.map((node) => (dim?.[node] ? DIM : 0) | (receding(state[node]) ? RECEDES : 0)));

    // A link to a hidden thought is drawn to the collapsed thought that hides it.
    /** @param {number} node */
    const seen = (node) => {
      while (gone[node]) node = above[node];
      return slotOf(node);
    };
    /** @param {number} slot @param {number} flag */
    const lead = (slot, flag) => {
      for (; slot >= 0 && !(flags[slot] & flag); slot = parents[slot]) flags[slot] |= flag;
    };
    lead(seen(frame.best), PATH);
    for (const node of selected) lead(seen(node), CHOSEN);
    // Writing to index -1 of a typed array has no effect.
    for (const node of frame.frontier) flags[slotOf(node)] |= FRONTIER;
    for (const call of frame.open) flags[seen(recording.call(call).node)] |= WAITING;

    /** Slots of what is selected and seen. */
    this.selected = [...selected].map(slotOf).filter((slot) => slot >= 0);
    /** Which of several thoughts in one place is drawn there, seen from afar: the higher. */
    this.weight = flags.map((has, slot) =>
      (has & (PATH | CHOSEN) ? 300 : has & DIM ? 0 : has & RECEDES ? 100 : 200) + (99 * scores[slot] || 0));
    /** By node, a code of DIFFERENCES. */
    this.difference = difference;
    /** A person's verdicts, "note" where there is only one of those. @type {Map<number, string>} */
    this.marks = new Map();
    for (const [id, { verdict, note }] of Object.entries(marks)) {
      const slot = slotOf(recording.indexOf(id));
      if (slot >= 0 && (verdict || note)) this.marks.set(slot, verdict || "note");
    }
    /** The links that are not already an edge, both ends seen. */
    this.links = recording.links.filter(({ line }) => line < frame.step)
      .map(({ from, to, kind }) => ({ from: slotOf(from), to: slotOf(to), kind }))
      .filter(({ from, to }) => from >= 0 && to >= 0 && from !== to && parents[from] !== to && parents[to] !== from);
  }

  /** The text of the thought in a slot. @param {number} slot */
  text(slot) {
    return this.recording.text(this.nodes[slot]);
  }

  /** What it is, in a word or two. @param {number} slot */
  what(slot) {
    const state = this.states[slot];
    return state ? STATES[state] : SHAPES[this.shape[slot]][0];
  }

  /**
   * The nodes to collapse when a run is opened, so that at most about `most` thoughts are seen and no level is
   * wider than shapes can be told apart in: the best path and its siblings always, then what is below thoughts
   * that were not given up, from the root down.
   * @param {Recording} recording
   * @param {Frame} frame
   * @param {number} [most]
   * @returns {Set<number>}
   */
  static opening(recording, frame, most = 1500) {
    const { nodes: total, state } = frame;
    /** @type {Set<number>} */
    const collapsed = new Set();
    if (total <= most) return collapsed;
    const above = layoutParents(recording, frame);
    const family = familiesOf(above);
    const depth = integers(total);
    above.forEach((parent, node) => (depth[node] = parent < 0 ? 0 : depth[parent] + 1));
    const open = bytes(total);
    const widths = integers(total);
    let seen = 1;
    /** @param {number} node */
    const expand = (node) => {
      open[node] = 1;
      seen += family[node];
      widths[depth[node]] += family[node];
    };
    for (let node = frame.best; node >= 0; node = above[node]) expand(node);
    for (const node of grouped(depth, total).members) {
      const reachable = above[node] < 0 || (open[above[node]] && !receding(state[node]));
      const fits = seen + family[node] <= most && widths[depth[node]] + family[node] <= WIDEST;
      if (reachable && fits && !open[node]) expand(node);
    }
    for (let node = 0; node < total; node++) {
      if (family[node] && !open[node] && (above[node] < 0 || open[above[node]])) collapsed.add(node);
    }
    return collapsed;
  }
}

/**
 * What each thought hangs on in the drawing, -1 for a root: its parent, or of a thought that was made
 * from others or depends on others the deepest of all these, so that a plan stands in levels by its
 * longest path. Always born before it.
 * @param {Recording} recording
 * @param {Frame} frame
 * @returns {Int32Array}
 */
export function layoutParents(recording, frame) {
  const parents = recording.parent.subarray(0, frame.nodes);
  // Links come in the order of lines, and these with the thought that they are from.
  const links = recording.links.filter(({ kind, from, to }) => kind !== "merged" && to >= 0 && to < from);
  if (!links.length) return parents;
  const above = parents.slice();
  const depth = integers(above.length);
  let next = 0;
  for (let node = 0; node < above.length; node++) {
    for (; links[next]?.from === node; next++) {
      const { to } = links[next];
      if (above[node] < 0 || depth[to] > depth[above[node]]) above[node] = to;
    }
    depth[node] = above[node] < 0 ? 0 : depth[above[node]] + 1;
  }
  return above;
}

/** How many children each has. @param {Int32Array} above */
function familiesOf(above) {
  const family = integers(above.length);
  for (const parent of above) if (parent >= 0) family[parent]++;
  return family;
}

/** @param {{x: Float64Array, y: Float64Array}} places */
function wasteful({ x, y }) {
  /** @type {number[]} */
  const widths = [];
  for (const level of y) widths[level] = (widths[level] ?? 0) + 1;
  const width = greatest(x) + 1;
  return width > 30 && width > WASTEFUL * greatest(widths);
}

/** Characters of a text that are looked at to write some lines of it. */
const LOOKED_AT = 1200;

/**
 * `text` in at most `most` rows of at most `letters` letters; what is cut off ends in an ellipsis.
 * @param {string} text @param {number} letters @param {number} most
 */
export function wrapped(text, letters, most) {
  // What would turn the direction of the letters after it is no letter.
  const told = text.slice(0, LOOKED_AT).replace(/[\0-\x20\x7f\u2028-\u202e\u2066-\u2069]+/g, " ").trim();
  const rows = told.match(RegExp(`.{1,${letters}}( |$)|.{${letters}}`, "gu")) ?? [];
  if (rows.length > most) {
    const rest = [...rows.slice(most - 1).join("")];
    rows[most - 1] = `${rest.slice(0, letters - 1).join("").trim()}…`;
  }
  return rows.slice(0, most).map((row) => row.trim());
}

/** Pixels of the text, from line to line, those of an average letter, and those that the question may take up. */
export const SIZE = 11;
export const LEADING = 12;
const LETTER = 0.5 * SIZE;
const QUESTION = 360;

/** Scripts whose letters stand in squares. */
const WIDE = /[\u2e80-\uffdc]/;

/**
 * The text below a thought, in the rows and the pixels that it has.
 * @param {Scene} scene @param {number} slot @param {ReturnType<typeof detailAt>} detail
 */
export function textBelow(scene, slot, { rows, across }) {
  const room = scene.fill[slot] === BLANK ? QUESTION : across;
  if (!rows) return { room, lines: [] };
  const text = scene.text(slot);
  return { room, lines: wrapped(text, floor(room / (WIDE.test(text) ? SIZE : LETTER)), rows) };
}

/** The pixels that a thought takes up under its place.
 * @param {Scene} scene @param {number} slot @param {ReturnType<typeof detailAt>} detail */
export function footOf(scene, slot, detail) {
  if (!detail.scores) return detail.radius;
  const lines = textBelow(scene, slot, detail).lines.length + Number(scene.fill[slot] !== BLANK);
  return detail.radius + 5 + LEADING * lines;
}

/**
 * Where one looks at a scene from: its point (x, y) in the middle of the view, `kx` and `ky` pixels
 * between two siblings and two levels.
 * @typedef {{x: number, y: number, kx: number, ky: number}} Camera
 */

/** Pixels between siblings and levels from the nearest. */
const NEAREST = { kx: 240, ky: 150 };

/**
 * The camera that sees a whole scene. The two axes are scaled apart: 10,000 thoughts on five levels would
 * else be a line.
 * @param {Scene} scene @param {number} width @param {number} height in pixels
 * @returns {Camera}
 */
export function fitted(scene, width, height) {
  const kx = between((width - 40) / (scene.width + 0.94), 1e-6, 165);
  const ky = between((height - 44) / (scene.height + 0.75), 1e-6, 118);
  return { x: scene.width / 2, y: scene.height / 2 + 9 / max(ky, 1), kx, ky };
}

/**
 * `camera` zoomed by `factor` about the point (x, y), in pixels from the middle of the view. On the way in the axis
 * that lags behind catches up first; on the way out neither is made smaller than the whole scene needs.
 * @param {Camera} camera @param {number} factor @param {Camera} whole `fitted` @param {number} x @param {number} y
 * @returns {Camera}
 */
export function zoomed(camera, factor, whole, x, y) {
  const near = min(factor * min(camera.kx / NEAREST.kx, camera.ky / NEAREST.ky), 1);
  /** @param {"kx" | "ky"} axis */
  const scale = (axis) =>
    factor > 1 ? max(camera[axis], near * NEAREST[axis]) : max(camera[axis] * factor, whole[axis]);
  const [kx, ky] = [scale("kx"), scale("ky")];
  return { x: camera.x + x / camera.kx - x / kx, y: camera.y + y / camera.ky - y / ky, kx, ky };
}

/**
 * How much is told at a scale: `far` dots alone; from there shapes of `radius` pixels; then scores; nearest `rows`
 * lines of the text, `across` pixels wide. No thought takes up more than `below` pixels under its place.
 * @param {Camera} camera
 */
export function detailAt({ kx, ky }) {
  const far = kx < 4.5 || ky < 7;
  const radius = far ? between(max(kx * 0.45, ky * 0.2), 1, 2) : min(0.34 * kx, 0.34 * ky, 7.5);
  const scores = kx >= 30 && ky >= 36;
  const rows = kx >= 58 && ky >= 62 ? min(floor((ky - 50) / LEADING), 8) : 0;
  return { far, radius, scores, rows, across: kx * 0.93, below: radius + (scores ? 5 + LEADING * (1 + rows) : 0) };
}

/**
 * The slots that are drawn in a view of `width` × `height` pixels, in their order. Of those that would lie on each
 * other, the weightiest of each cell of a fine grid: more could not be seen, and the work stays that of the pixels
 * there are.
 * @param {Scene} scene
 * @param {Camera} camera @param {number} width @param {number} height
 * @returns {Int32Array}
 */
export function drawn({ count, x, y, weight }, camera, width, height) {
  const { kx, ky } = camera;
  const { radius, across, below } = detailAt(camera);
  const side = across / 2 + radius;
  const top = below + 20;
  const cell = max(radius * 1.6, 2.5);
  const columns = ceil((width + 2 * side) / cell) + 1;
  const cells = integers(columns * (ceil((height + 2 * top) / cell) + 1)).fill(-1);
  for (let slot = 0; slot < count; slot++) {
    const px = (x[slot] - camera.x) * kx + width / 2 + side;
    const py = (y[slot] - camera.y) * ky + height / 2 + top;
    if (px < 0 || px > width + 2 * side || py < 0 || py > height + 2 * top) continue;
    const at = floor(px / cell) + columns * floor(py / cell);
    if (cells[at] < 0 || weight[slot] > weight[cells[at]]) cells[at] = slot;
  }
  return cells.filter((slot) => slot >= 0).sort();
}
