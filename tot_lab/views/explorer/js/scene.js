/**
 * The visible thoughts of a recording at one step, and their positions.
 *
 * A scene is a value that depends only on (recording, frame, view). The canvas, the SVG and the outline only read it.
 * Visible thoughts have the slots 0…count-1, with siblings in order. All arrays are indexed by slot. Siblings and
 * levels are 1 unit apart. All operations are linear in the number of thoughts and not recursive.
 */

import { dotted, tiny } from "./dom.js";
import { between, bytes, ceil, floats, floor, grouped, integers, max, min, round } from "./numbers.js";
import { greatest, layered, tidy, wasteful } from "./layout.js";
import { kindsOf } from "./origins.js";
import { STATES } from "./recording.js";
import { ANSWER, MISSED, RIGHT, SHAPES, STEPS, STEP_SHAPES, TEXT, WRONG } from "./theme.js";

/** @typedef {import("./recording.js").Recording} Recording */
/** @typedef {import("./recording.js").Frame} Frame */

/**
 * The options of the view. All are optional.
 * @typedef {object} View
 * @property {Set<number>} [collapsed] nodes whose descendants are not shown
 * @property {Uint8Array | null} [dim] by node, 1 means drawn faintly (it does not match the search)
 * @property {Uint8Array | null} [only] by node, 1 means shown, together with its ancestors; all others are hidden
 * @property {"auto" | "tidy" | "layered"} [layout]
 * @property {Iterable<number>} [selected] nodes
 * @property {Partial<import("./app.js").Facts>} [facts]
 * @property {import("./quantities.js").Quantity | null} [quantity] what the colours and numbers mean, by default the score
 * @property {Uint8Array | null} [difference] by node, a code of DIFFERENCES
 * @property {any[]} [waiting] the changes of a person that wait for the next pick
 * @property {boolean} [narrow] whether the window is that of a phone
 * @property {import("./union.js").Union | null} [union] the places of a layout for two runs
 */

/** Bits of `flags`. PATH: on the path to the best thought. CHOSEN: on the path to a selected thought. DIM: does not match
 * the search. RECEDES: pruned, failed or a repetition. FRONTIER: may still be expanded. WAITING: has an open call. LOST: on
 * the path to a wrong answer, after the last thought that could still lead to a right one. */
export const PATH = 1;
export const CHOSEN = 2;
export const DIM = 4;
export const RECEDES = 8;
export const FRONTIER = 16;
export const WAITING = 32;
export const LOST = 64;

/** Fills that are not a step of the score scale. */
export const UNSCORED = STEPS;
export const BLANK = STEPS + 1;
export const HOLLOW = STEPS + 2;

/** The index into SHAPES for each of STATES. A root without a decision is the question. */
export const SHAPE_OF_STATE = STATES.map((state) => SHAPES.findIndex(([name]) => name === state));

/** The shape of the answer of a run that has ended. @param {Frame} frame */
export function shapeOfAnswer({ stop, run: { about } }) {
  const correct = stop === null ? null : about.verdict?.correct;
  return correct == null ? ANSWER : correct ? RIGHT : WRONG;
}

/** Maximum number of thoughts that are visible when a run is opened that is too large to show all. */
const OPENED = 600;

/** States without a usable reply: indices into STATES. */
const FAILED = [1, 7];

/** @param {number} state */
const receding = (state) => [3, 5, 6, 7].includes(state);

/** Maximum number of thoughts on one level whose shapes are distinguishable in a window. */
const WIDEST = 60;

/** A tree grows from left to right in the window of a phone if it has at most `PHONE` thoughts, so that most have a text.
 * So does one of at most `SIDEWAYS` that is mostly a chain: more than `SHORT` thoughts, and two levels for every three. */
const [SHORT, PHONE, SIDEWAYS] = [6, 45, 100];

/** Returns the ids of the thoughts that the reason of a failure names. @param {{findings?: import("./app.js").Finding[]}} facts */
export function reasonOf({ findings = [] }) {
  return findings[0]?.kind === "why_it_failed" ? findings[0].nodes : [];
}

export class Scene {
  /** The beginning that the children of a slot share. @type {Map<number, string>} */
  #shared = new Map();
  /** @type {ReturnType<typeof grouped> | undefined} */
  #families;
  /** @type {{kx: number, has: Uint8Array, badges: Uint8Array} | undefined} */
  #labels;

  /**
   * @param {Recording} recording
   * @param {Frame} frame
   * @param {View} [view]
   * @param {Scene | null} [previous] the scene before this one. An automatic choice of the layout is kept while the same
   *   run grows, because another layout would move everything
   */
  constructor(recording, frame, view = {}, previous = null) {
    const { collapsed = new Set(), dim, layout = "auto", selected = [], facts = {}, quantity, difference, union, narrow = false, waiting = [] } = view;
    const { findings = [], marks = {}, solvable = "", right = [] } = facts;
    const { nodes: total, score, state, best } = frame;
    const above = layoutParents(recording, frame);
    const family = familiesOf(above);

    // A thought is recorded after its parent in the drawing. So every pass from the top down uses the order of the
    // record, and every pass from the bottom up uses the reverse order.
    const gone = hiddenNodes(above, view);
    const sizes = integers(total).fill(1);
    for (let node = total - 1; node >= 0; node--) if (above[node] >= 0) sizes[above[node]] += sizes[node];

    this.recording = recording;
    /** Node of each slot. @type {Int32Array} */
    const nodes = (this.nodes = recording.order().filter((node) => node < total && !gone[node]));
    this.count = nodes.length;
    /** Slot of each node, -1 if it is hidden. @type {Int32Array} */
    const slots = (this.slot = integers(total).fill(-1));
    nodes.forEach((node, slot) => (slots[node] = slot));
    /** Accepts -1 and thoughts that are recorded later. @param {number} node */
    const slotOf = (node) => slots[node] ?? -1;
    /** Slot of the parent in the drawing, -1 for a root. */
    const parents = (this.parents = nodes.map((node) => slotOf(above[node])));
    /** Number of children, hidden ones included. */
    this.children = nodes.map((node) => family[node]);
    /** Number of thoughts that a collapsed thought hides, else 0. */
    this.hidden = nodes.map((node) => (collapsed.has(node) ? sizes[node] - 1 : 0));

    this.layout = layout;
    const goesOn = previous?.recording === recording && previous.layout === layout && previous.packed;
    const places = union || layout === "layered" || (layout === "auto" && goesOn) ? null : tidy(parents);
    /** Whether the layered layout was used. */
    this.packed = !union && (!places || (layout === "auto" && wasteful(places)));
    const { x, y } = union ? atNodes(union, nodes) : places && !this.packed ? places : layered(parents, places ?? undefined);
    const [width, height] = union ? [union.width, union.height] : [greatest(x), greatest(y)];
    const chain = nodes.length > SHORT && (height + 1) * 3 >= nodes.length * 2;
    /** Whether the tree grows from left to right instead of downwards. */
    this.sideways = !union && layout === "auto" && nodes.length <= (chain ? SIDEWAYS : narrow ? PHONE : 0);
    this.x = this.sideways ? y : x;
    this.y = this.sideways ? x : y;
    this.width = this.sideways ? height : width;
    this.height = this.sideways ? width : height;

    /** Scores. NaN means that there is none. */
    const scores = (this.scores = floats(nodes.length));
    nodes.forEach((node, slot) => (scores[slot] = score[node]));
    /** What the colours mean, from 0 to 1: the score or another quantity. NaN means that there is none. */
    this.shares = quantity ? scores.map((_, slot) => quantity.shares[nodes[slot]]) : scores;
    /** Whether an evaluator was asked, even if its reply could not be read. */
    this.evaluated = nodes.map((node) => Number(frame.scoredLine[node] >= 0));
    // The recording reuses one frame object, so values that are needed later are copied.
    this.states = nodes.map((node) => state[node]);
    /** Index into SHAPES. */
    const kinds = recording.hasSteps ? kindsOf(frame) : null;
    const shape = (this.shape = this.states.map((what, slot) => {
      if (!what && kinds?.[nodes[slot]]) return STEP_SHAPES + kinds[nodes[slot]] - 1;
      return what || parents[slot] >= 0 ? SHAPE_OF_STATE[what] : 0;
    }));
    /** Step of the score scale, or UNSCORED, BLANK or HOLLOW. */
    const answer = shapeOfAnswer(frame);
    if (shape[slotOf(best)] === ANSWER) shape[slotOf(best)] = answer;
    if (frame.stop !== null) for (const id of right) shape[slotOf(recording.indexOf(id))] = MISSED;
    this.fill = shape.map((its, slot) => {
      if (!its) return BLANK;
      if (its === ANSWER || its === WRONG) return HOLLOW;
      const share = this.shares[slot];
      return Number.isNaN(share) ? UNSCORED : round(between(share, 0, 1) * (STEPS - 1));
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
    lead(seen(best), PATH);
    if (answer === WRONG) {
      let turn = -1; // the last thought before the first that could not lead to a right answer
      for (let node = best; node >= 0; node = above[node]) if (solvable[node] === "0") turn = above[node];
      if (solvable[turn] === "1")
        for (let slot = seen(best); slot !== seen(turn); slot = parents[slot]) flags[slot] |= LOST;
    }
    for (const node of selected) lead(seen(node), CHOSEN);
    // Writing to index -1 of a typed array has no effect.
    for (const node of frame.frontier) flags[slotOf(node)] |= FRONTIER;
    for (const call of frame.open) flags[seen(recording.call(call).node)] |= WAITING;

    this.quantity = quantity;
    /** The slot below the pointer, -1 for no slot. */
    this.hovered = -1;
    /** The node of the answer, -1 for no answer yet. */
    this.best = best;
    /** Slots of the visible selected thoughts. */
    this.selected = [...selected].map(slotOf).filter((slot) => slot >= 0);
    /** Priority. In an overview, the thought with the highest priority is drawn of those in the same place. */
    this.weight = flags.map((has, slot) =>
      (has & (PATH | CHOSEN) ? 300 : has & DIM ? 0 : has & RECEDES ? 100 : has & FRONTIER ? 250 : 200) + (49 * scores[slot] || 0));
    const blamed = reasonOf({ findings }).map((id) => recording.indexOf(id));
    /** Slots of the thoughts that the reason of a failure names. They show their ids. */
    this.named = new Set(blamed.map(slotOf));
    /** Slots of the last thoughts that could still lead to a right answer, in a run that failed. */
    this.lastSolvable = blamed.filter((node) => solvable[node] === "1").map(slotOf)
      .filter((slot) => slot >= 0 && shape[slot] !== MISSED);
    /** Slots of right answers that were found and not chosen. */
    this.missed = right.map((id) => slotOf(recording.indexOf(id))).filter((slot) => shape[slot] === MISSED);
    /** Slots of the thoughts that a person changed. */
    this.changed = [...new Set(changedAt(frame).map(([id]) => slotOf(recording.indexOf(id))))].filter((slot) => slot >= 0);
    // These always have room for their texts.
    for (const slot of [...this.named, ...this.changed, ...this.missed, ...this.lastSolvable]) this.weight[slot] = 399;
    for (const slot of this.selected) this.weight[slot] = 400;
    /** The effect that each waiting change of a person will have, by slot. @type {Map<number, string>} */
    this.waiting = new Map();
    for (const { act, node, score } of waiting) {
      const slot = slotOf(recording.indexOf(node ?? ""));
      if (slot < 0) continue;
      const word = { prune: "→ pruned", rescore: `→ ${tiny(score)}`, graft: "+ a thought" }[/** @type {"prune"} */ (act)];
      this.waiting.set(slot, [this.waiting.get(slot), word].filter(Boolean).join(" "));
      this.weight[slot] = 400;
    }
    /** Code of DIFFERENCES of each node. */
    this.difference = difference;
    /** Verdicts of a user, "note" for a mark without a verdict. @type {Map<number, string>} */
    this.marks = new Map();
    for (const [id, { verdict, note }] of Object.entries(marks)) {
      const slot = slotOf(recording.indexOf(id));
      if (slot >= 0 && (verdict || note)) this.marks.set(slot, verdict || "note");
    }
    /** Links between visible thoughts that are not edges. */
    this.links = recording.links.filter(({ line }) => line < frame.step)
      .map(({ from, to, kind }) => ({ from: slotOf(from), to: slotOf(to), kind }))
      .filter(({ from, to }) => from >= 0 && to >= 0 && from !== to && parents[from] !== to && parents[to] !== from);
  }

  /** Returns the text of the thought in a slot. @param {number} slot */
  text(slot) {
    return this.recording.text(this.nodes[slot]);
  }

  /** Returns the text below a thought: without the beginning that it shares with its siblings. @param {number} slot */
  label(slot) {
    const text = this.text(slot);
    const parent = this.parents[slot];
    if (parent < 0) return text;
    if (!this.#shared.has(parent)) {
      this.#families ??= grouped(this.parents.map((its) => its + 1), this.count + 1);
      const { starts, members } = this.#families;
      const siblings = members.subarray(starts[parent + 1], starts[parent + 2]).subarray(0, COMPARED);
      this.#shared.set(parent, beginning(Array.from(siblings, (one) => this.text(one))));
    }
    const shared = this.#shared.get(parent) ?? "";
    return shared && text.startsWith(shared) ? `…${text.slice(shared.length)}` : text;
  }

  /**
   * Returns the slots whose texts have room if siblings are `kx` pixels apart, one byte each. On each level, thoughts of
   * high priority come first.
   * @param {number} kx
   */
  labelled(kx) {
    return this.#room(kx).has;
  }

  /** Returns the slots of collapsed thoughts whose "+N" has room, one byte each. @param {number} kx */
  badged(kx) {
    return this.#room(kx).badges;
  }

  /** @param {number} kx */
  #room(kx) {
    if (this.#labels?.kx === kx) return this.#labels;
    const { count, x, y, weight, hidden } = this;
    const [has, badges] = [bytes(count), bytes(count)];
    const columns = ceil((this.width * kx + LABEL) / CELL) + 1;
    const owners = integers(columns * (this.height + 1));
    /** Takes the cells around a thought, if they are free. @param {number} slot @param {number} wide in cells */
    const take = (slot, wide) => {
      const middle = columns * y[slot] + floor((x[slot] * kx + LABEL / 2) / CELL);
      const cells = owners.subarray(middle - (wide >> 1), middle - (wide >> 1) + wide);
      if (!cells.every((owner) => !owner || owner === slot + 1)) return 0;
      cells.fill(slot + 1);
      return 1;
    };
    for (let slot = 0; slot < count; slot++) if (hidden[slot]) badges[slot] = take(slot, 5);
    const ranks = Int32Array.from(weight, (its) => 400 - round(its));
    for (const slot of grouped(ranks, 402).members) has[slot] = take(slot, LABEL / CELL + 1);
    this.#labels = { kx, has, badges };
    return this.#labels;
  }

  /** Returns the lines of the number below a thought, without those that need more than `room` pixels, and the
   * effect of a waiting change. @param {number} slot @param {number} [room] */
  number(slot, room = Infinity) {
    const waiting = this.waiting.get(slot);
    const lines = this.#numbers(slot, room);
    return waiting ? [...lines.slice(0, -1), [lines.at(-1), waiting].filter(Boolean).join(" ")] : lines;
  }

  /** Returns the id of a thought that the reason of a failure names, as a line. @param {number} slot */
  name(slot) {
    return this.named.has(slot) && this.fill[slot] !== BLANK ? [`thought ${this.recording.id(this.nodes[slot])}`] : [];
  }

  /** @param {number} slot @param {number} room @returns {string[]} */
  #numbers(slot, room) {
    const { quantity, scores } = this;
    if (this.fill[slot] === BLANK) return [];
    const node = this.nodes[slot];
    const word = quantity ? quantity.word(quantity.values[node])
      : !Number.isNaN(scores[slot]) ? tiny(scores[slot]) : this.evaluated[slot] ? "unreadable" : "";
    const both = [...this.name(slot), word, quantity?.beside?.(node) ?? ""].filter(Boolean);
    const fits = (/** @type {string} */ line) => line.length * DIGIT <= room;
    return fits(dotted(...both)) ? [dotted(...both)].filter(Boolean) : both.filter(fits);
  }

  /** Describes the thought in a slot in a few words. @param {number} slot */
  what(slot) {
    const state = this.states[slot];
    return state ? STATES[state] : SHAPES[this.shape[slot]][0];
  }

  /**
   * Returns the nodes to collapse when a run is opened. A run of at most `most` thoughts is shown whole. Of a larger one,
   * some hundreds are shown, and the shapes on each level are distinguishable. The best path and its siblings are always visible. Then branches with a high score, pruned or
   * not, and those with a failure are expanded.
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
    const room = min(most, OPENED);
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
    // The value of a branch is the best of its scores, and 1 if a thought failed in it.
    const value = floats(total);
    for (let node = total - 1; node >= 0; node--) {
      const its = [5, 6].includes(state[node]) ? 0 : FAILED.includes(state[node]) ? 1 : between(frame.score[node], 0, 1) || 0;
      value[node] = max(value[node], its);
      if (above[node] >= 0) value[above[node]] = max(value[above[node]], value[node]);
    }
    // Parents come before their children: they have at least the same value, and a lower number.
    const ranks = Int32Array.from(value, (its) => 1000 - round(1000 * its));
    for (const node of grouped(ranks, 1002).members) {
      const reachable = above[node] < 0 || open[above[node]];
      const fits = seen + family[node] <= room && widths[depth[node]] + family[node] <= WIDEST;
      if (reachable && fits && !open[node] && family[node]) expand(node);
    }
    for (let node = 0; node < total; node++) {
      if (family[node] && !open[node] && (above[node] < 0 || open[above[node]])) collapsed.add(node);
    }
    return collapsed;
  }
}

/**
 * Returns the parent of each thought in the drawing, -1 for a root. It is the deepest of the parent and the thoughts
 * from which the thought was made or on which it depends, so that the levels of a plan show its longest path. It is
 * always recorded before the thought.
 * @param {Recording} recording
 * @param {Frame} frame
 * @returns {Int32Array}
 */
export function layoutParents(recording, frame) {
  const parents = recording.parent.subarray(0, frame.nodes);
  // Links are in the order of lines, and these links are in the line of their first thought.
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

/** Returns what a person changed before the step of a frame: the thought, "" for the whole run, and what, with the line of
 * the record and the whole sentence.
 * @param {Frame} frame @returns {[id: string, what: string, line: number, words: string][]} */
export const changedAt = ({ run: { about }, step }) => (about.changed ?? []).filter((/** @type {any} */ [, , line]) => line < step);

/**
 * Returns a mask of the thoughts that are not shown.
 * @param {Int32Array} above the parent of each thought in the drawing
 * @param {Pick<View, "collapsed" | "only">} view
 */
export function hiddenNodes(above, { collapsed = new Set(), only }) {
  const gone = bytes(above.length);
  above.forEach((parent, node) => {
    gone[node] = Number((only && !only[node]) || gone[parent] || collapsed.has(parent));
  });
  return gone;
}

/** @param {import("./union.js").Union} union @param {Int32Array} nodes */
const atNodes = ({ x, y }, nodes) => ({ x: Float64Array.from(nodes, (node) => x[node]), y: Float64Array.from(nodes, (node) => y[node]) });

/** Returns the number of children of each node. @param {Int32Array} above */
function familiesOf(above) {
  const family = integers(above.length);
  for (const parent of above) if (parent >= 0) family[parent]++;
  return family;
}

/** Number of characters of a text that are read to write some lines of it. */
const LOOKED_AT = 1200;

/**
 * Wraps `text` into at most `most` rows of at most `letters` letters. Truncated text ends in an ellipsis.
 * @param {string} text @param {number} letters @param {number} most
 */
export function wrapped(text, letters, most) {
  // Characters that change the direction of text are replaced by spaces.
  const line = text.slice(0, LOOKED_AT).replace(/[\0-\x20\x7f\u2028-\u202e\u2066-\u2069]+/g, " ").trim();
  const cut = (/** @type {string} */ pattern) => line.match(RegExp(pattern, "gu")) ?? [];
  const anywhere = `.{1,${letters}}( |$)|.{1,${max(letters - 1, 1)}}[,;:/=)\\]}-]|.{${letters}}`;
  // Rows end at punctuation, or before a bracket, if the text has room for such rows.
  const apart = cut(`.{1,${letters}}$|.{${ceil(0.4 * letters)},${letters}}((?<=[,;.]) | (?=[([{]))|${anywhere}`);
  const rows = apart.length <= most ? apart : cut(anywhere);
  if (rows.length > most) {
    const rest = [...rows.slice(most - 1).join("")];
    rows[most - 1] = `${rest.slice(0, letters - 1).join("").trim()}…`;
  }
  return rows.slice(0, most).map((row) => row.trim());
}

/** In pixels: size of the text, height of a line, width of an average letter, and maximum width of the question. */
export const SIZE = TEXT.small;
export const LEADING = 12;
const LETTER = 0.5 * SIZE;
const DIGIT = 0.6 * SIZE;
export const QUESTION = 360;

/** Pixels between a thought and the lines below it: room for its rings. */
export const GAP = 6;

/** In pixels: width of the text below a thought where not every thought has room for one, and of the cells in which free
 * room is counted. */
const LABEL = 112;
const CELL = 8;

/** Number of siblings that are compared to find a shared beginning, and least length of such a beginning. */
const COMPARED = 50;
const SHARED = 12;

/** Returns the beginning that all of several texts share, up to the end of a word. @param {string[]} texts */
function beginning(texts) {
  if (texts.length < 2) return "";
  let [shared] = texts;
  for (const text of texts) {
    let same = 0;
    while (same < shared.length && shared[same] === text[same]) same++;
    shared = shared.slice(0, same);
  }
  shared = shared.replace(/[^\s,;:()]*$/, "");
  return shared.length < SHARED || texts.some((text) => !text.slice(shared.length).trim()) ? "" : shared;
}

/** Scripts with square letters. */
const WIDE = /[\u2e80-\uffdc]/;

/**
 * Wraps the text below a thought to the available rows and pixels.
 * @param {Scene} scene @param {number} slot @param {ReturnType<typeof detailAt>} detail
 */
export function textBelow(scene, slot, { kx, rows, across }) {
  const room = !scene.sideways && (scene.fill[slot] === BLANK || !scene.width) ? QUESTION : across;
  if (!rows || (kx < ROOMY && !scene.labelled(kx)[slot])) return { room, lines: [] };
  const text = scene.label(slot);
  return { room, lines: wrapped(text, floor(room / (WIDE.test(text) ? SIZE : LETTER)), rows) };
}

/** Returns the lines below a thought: those of its number, and those of its text, which begin at line `first`. Where texts
 * are wider than the distance of siblings, they begin below the numbers of all, so that none covers a neighbour's number.
 * @param {Scene} scene @param {number} slot @param {ReturnType<typeof detailAt>} detail */
export function linesBelow(scene, slot, detail) {
  const { kx, scores, rows } = detail;
  const alone = !scores && rows > 0 && !scene.sideways && scene.labelled(kx)[slot];
  const room = scene.sideways ? detail.across : alone ? LABEL : kx;
  const number = scores || alone ? scene.number(slot, room - 4) : rows ? scene.name(slot) : [];
  const least = scores && kx < ROOMY && scene.fill[slot] !== BLANK ? (scene.quantity?.beside ? 2 : 1) : 0;
  const first = max(number.length, least);
  return { ...textBelow(scene, slot, { ...detail, rows: rows && max(rows - max(first - 1, 0), 1) }), number, first };
}

/** Returns the height in pixels that a thought needs below its position.
 * @param {Scene} scene @param {number} slot @param {ReturnType<typeof detailAt>} detail */
export function footOf(scene, slot, detail) {
  const { lines, number, first } = linesBelow(scene, slot, detail);
  const rows = lines.length ? first + lines.length : number.length;
  return detail.radius + (rows && GAP + LEADING * rows);
}

/**
 * The visible part of a scene. (x, y) is the point in the middle of the view. `kx` and `ky` are the distances of two
 * siblings and of two levels in pixels.
 * @typedef {{x: number, y: number, kx: number, ky: number}} Camera
 */

/** Distance of siblings in pixels from which every thought has room for its text. */
const ROOMY = 58;

/** Minimum distance of levels in pixels in a tree that grows from left to right, so that each thought has a text. */
const LEGIBLE = 84;

/** Minimum distance of siblings in such a tree, if at most twice the height of the view is needed for it. */
const BELOW = 30;

/** Maximum distance of siblings and of levels in pixels. */
const NEAREST = { kx: 240, ky: 150 };

/**
 * Returns the camera that shows a whole scene. The axes are scaled separately, because 10,000 thoughts on five levels
 * would otherwise be a line.
 * @param {Scene} scene @param {number} width @param {number} height in pixels
 * @returns {Camera}
 */
export function fitted(scene, width, height) {
  const { sideways, slot, best } = scene;
  const room = min((width - 72) / (scene.width + 0.94), sideways ? Infinity : max(width - LABEL, 1) / scene.width);
  const kx = between(room, sideways ? LEGIBLE : 1e-6, 165);
  const fits = (height - 44) / (scene.height + 0.75);
  const ky = between(fits, sideways && fits > BELOW / 2 ? BELOW : 1e-6, 118);
  const x = min(scene.width / 2, sideways ? (width - 72) / 2 / kx : Infinity); // a long chain begins at the left
  // If not all siblings are visible, the answer is.
  const half = min(scene.height, (height - 44) / ky - 0.75) / 2;
  const y = between(scene.y[slot[best] ?? 0] ?? 0, half, scene.height - half);
  return { x, y: y + 9 / max(ky, 1), kx, ky };
}

/**
 * Returns `camera` zoomed by `factor` at the point (x, y), in pixels from the middle of the view. Zooming in enlarges
 * the smaller axis first. Zooming out stops at the scale of the whole scene.
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
 * Returns the level of detail of a scale: dots if `far`, else shapes of `radius` pixels, with all `scores` or those of
 * thoughts with room for a text, and at most `rows` lines of text that are `across` pixels wide. A thought needs at most `below` pixels below its position. Where siblings
 * are less than `ROOMY` pixels apart, only some thoughts have a text (`labelled`).
 * @param {Camera} camera
 * @param {boolean} [sideways] whether the tree grows from left to right, so that siblings are below each other
 */
export function detailAt({ kx, ky }, sideways = false) {
  const far = kx < 4.5 || ky < 7;
  const radius = far ? between(max(kx * 0.45, ky * 0.2), 1, 2) : min(0.34 * kx, 0.34 * ky, 7.5);
  const scores = kx >= 30 && ky >= 36;
  const rows = ky >= (sideways ? BELOW : 46) ? between(floor((ky - 50) / LEADING), 1, kx < ROOMY ? 3 : 8) : 0;
  const across = kx < ROOMY ? LABEL : kx * 0.93;
  return { far, kx, radius, scores, rows, across, below: radius + GAP + LEADING * (Number(scores || rows > 0) + rows) };
}

/**
 * Returns the slots that are drawn in a view of `width` × `height` pixels, in ascending order. If thoughts overlap, only
 * the one with the highest priority in each cell of a fine grid is drawn. So the cost depends on the number of pixels.
 * @param {Scene} scene
 * @param {Camera} camera @param {number} width @param {number} height
 * @returns {Int32Array}
 */
export function drawn({ count, x, y, weight, sideways }, camera, width, height) {
  const { kx, ky } = camera;
  const { radius, across, below } = detailAt(camera, sideways);
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
