/**
 * The calls of a run over time, on a canvas.
 *
 * Lanes, concurrency and the critical path follow from the order of the lines, which is exact, as in
 * figures/timeline.py. Times, which are rounded, only determine positions. Calls outside the window, and bars that would
 * cover the same pixel, are skipped, so the cost depends on the visible part.
 *
 * @typedef {import("./recording.js").Frame} Frame
 * @typedef {import("./theme.js").Theme} Theme
 * @typedef {import("./recording.js").Recording} Recording
 * @typedef {ReturnType<typeof plan>} Plan
 */

import { abs, between, bytes, ceil, exp, floats, floor, log10, max, min } from "./numbers.js";
import { dotted, number, seconds, short } from "./dom.js";
import { KIND } from "./recording.js";
import { DARK, KINDS, LIGHT, TEXT } from "./theme.js";

/** Outcomes of calls. Smaller numbers are indices into SOURCES of recording.js. */
const CACHED = 1;
const OPEN = 3;
const REFUSED = 4;
/** Opacity of the bar for each outcome. 0 means a mark instead of a bar. */
const SHADES = [1, 0, 0.45, 0.45, 0];

const READABLE = 0.01; // seconds
const NAMED = 14; // pixels: minimum height of a bar with a name
const MARKED = 12; // maximum number of levels with a name
const UNREADABLE = "no call took 10 ms: this is order, not time";
const UNTIMED = "the log has no durations: this is order, not time";

// Pixels: margins at the left and the right; heights of the legend, the curve and the axis; maximum height of a lane.
const LEFT = 64;
const RIGHT = 30;
const LEGEND = 24;
const BAND = 40;
const AXIS = 36;
const THICK = 20;
const ROW = 18; // a further row of the legend

/**
 * Computes the data of the drawing. Times are seconds, or line numbers if no call took 10 ms (`byOrder`), so that at
 * least the order is visible.
 *
 * A call is in the lowest lane that is free when the call starts, so calls of one lane do not overlap. In a run with tool
 * calls, the model and each tool have lanes of their own (`groups`: names and first lanes). A call that was
 * refused by a budget never counts as open. The critical path contains the calls for which the run waited. It ends with
 * the call that finished last. The predecessor of a call is the last call that finished before it started.
 * @param {Recording} recording
 */
export function plan(recording) {
  const { calls, lines, kind, row, time, data, callLine, replyLine, source } = recording;
  const asked = callLine.subarray(0, calls);
  const byOrder = asked.every((line, call) => time[replyLine[call]] - time[line] < READABLE); // NaN for an open call
  const when = (/** @type {number} */ line) => (byOrder ? line : time[line]);
  const end = byOrder ? lines : time[lines - 1];
  const from = Float64Array.from(asked, when);
  const to = from.map((_, call) => (replyLine[call] < 0 ? end : when(replyLine[call])));
  const state = bytes(calls);
  const [lane, before] = [0, 1].map(() => new Int32Array(calls));
  const kinds = new Set();
  /** The lanes of each group: which are busy, and the first free one. @type {Map<string, {busy: number[], free: number}>} */
  const rooms = new Map();
  /** @param {string} name of a kind of calls */
  const groupOf = (name) => (name.startsWith("tool:") ? name.slice(5) : "model");
  /** @type {number[][]} */
  const [failed, critical, changes, level] = [[], [], [], []];
  let [under, most, last] = [0, 0, -1];
  for (let line = 0; line < lines; line++) {
    const asks = kind[line] === KIND.call;
    if (!asks && kind[line] !== KIND.reply) continue;
    const call = row[line];
    const group = groupOf(data[asked[call]].kind);
    const room = rooms.get(group) ?? { busy: [], free: 0 };
    rooms.set(group, room);
    if (asks) {
      const { made, error } = data[replyLine[call]] ?? { made: true };
      kinds.add(data[line].kind);
      state[call] = replyLine[call] < 0 ? OPEN : made ? source[call] : REFUSED;
      if (made && error) failed.push(call);
      const found = room.busy.indexOf(0, room.free);
      lane[call] = found < 0 ? room.busy.length : found;
      room.free = lane[call] + 1;
      before[call] = last;
    } else {
      room.free = min(room.free, lane[call]);
      if (state[call] !== REFUSED) last = call;
    }
    room.busy[lane[call]] = +asks;
    if (state[call] === REFUSED) continue;
    under += asks ? 1 : -1;
    most = max(most, under);
    changes.push(when(line));
    level.push(under);
  }
  for (; last >= 0; last = before[last]) critical.push(last);
  critical.reverse();
  const picks = picksOf(recording);
  let lanes = 0;
  /** @type {[string, number][]} */
  const groups = [];
  for (const [name, { busy }] of rooms) {
    groups.push([name, lanes]);
    lanes += busy.length;
  }
  const firsts = Object.fromEntries(groups);
  asked.forEach((line, call) => (lane[call] += firsts[groupOf(data[line].kind)]));
  if (groups.every(([name]) => name === "model")) groups.length = 0;
  const limits = limitsOf(recording, when);
  const order = { picks, lane, lanes, groups, critical, changes, level, most, limits };
  const lacking = recording.lacks("times") || recording.lacks("durations");
  return { lines, byOrder, lacking, end, from, to, state, kinds: [...kinds], failed, ...order };
}

/** Returns the lines at which a search began to expand thoughts of another level, and the new level.
 * @param {Recording} recording */
function picksOf(recording) {
  const picks = [];
  let last = -1;
  for (let line = 0; line < recording.lines; line++) {
    const note = recording.note(line);
    if (note?.name !== "tot.picked" || !note.data) continue;
    const level = recording.depth[recording.indexOf(note.data.parents?.[0] ?? "")] + 1;
    if (level !== last && level > 0) picks.push({ line, level });
    last = level;
  }
  return picks;
}

/** Returns the adaptive limits of concurrent requests of each model: pairs of a time and the limit from then on, first
 * that before the first change. @param {Recording} recording @param {(line: number) => number} when */
function limitsOf(recording, when) {
  /** @type {Map<string, [number, number][]>} */
  const limits = new Map();
  for (let line = 0; line < recording.lines; line++) {
    const note = recording.note(line);
    if (note?.name !== "call.limit" || !note.data) continue;
    const { model, before, limit } = note.data;
    const steps = limits.get(model) ?? [[when(recording.callLine[0]), before]];
    limits.set(model, [...steps, [when(line), limit]]);
  }
  return [...limits.values()];
}

/** Returns the rows of the calls as a table: thought, call, times in seconds and outcome. @param {Recording} recording
 * @param {number} most maximum number of rows */
export const tableOf = (recording, most) =>
  Array.from({ length: min(recording.calls, most) }, (_, index) => {
    const { node, kind, asked, answered, took, error, source } = recording.call(index);
    const outcome = error ? `failed: ${short(error, 80)}` : isNaN(answered) ? "open" : source;
    return [node < 0 ? "" : recording.id(node), kind, recording.lacks("times") ? "unknown" : asked.toFixed(2), isNaN(answered) ? "" : seconds(took), outcome];
  });

/**
 * Describes the drawing in words, for screen readers.
 * @param {Plan} plan
 */
export function inWords({ byOrder, lacking, state, most, critical, failed, from, to, limits }) {
  const waited = critical.reduce((all, call) => all + to[call] - from[call], 0);
  const [cached, refused] = [CACHED, REFUSED].map((its) => state.filter((one) => one === its).length);
  return dotted(
    `${number(state.length - refused)} calls, at most ${most} at once`,
    limits.length && `limit ${limits.map((steps) => steps.map(([, limit]) => limit).join(" → ")).join("; ")}`,
    cached && `${number(cached)} from the cache`,
    failed.length && `${number(failed.length)} failed`,
    refused && `${number(refused)} refused`,
    `critical path: ${number(critical.length)} calls, ${byOrder ? (lacking ? UNTIMED : UNREADABLE) : seconds(waited)}`,
  );
}

/** Calls over time on a canvas: drag moves, the wheel with Ctrl zooms, a double click shows all. */
export class Timeline {
  #canvas;
  #resized = new ResizeObserver(() => this.#redraw());
  #pending = 0;
  /** @type {{recording: Recording, made: Plan, frame: Frame, theme: Theme, selected: number, whole: number} | null} */
  #shown = null;
  #start = 0; // start and length of the window, as shares of the run
  #span = 1;
  /** The drawn bars: left, top, right, bottom, call. @type {number[][]} */
  #bars = [];

  /**
   * @param {HTMLCanvasElement} canvas
   * @param {{hover: (call: number) => void, pick: (node: number) => void}} callbacks -1 for no call
   */
  constructor(canvas, { hover, pick }) {
    this.#canvas = canvas;
    this.#resized.observe(canvas);
    canvas.setAttribute("role", "img");
    let [held, moved] = [0, false]; // where the pointer was pressed, and whether it has moved since
    canvas.onwheel = (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // let the page scroll
      event.preventDefault();
      this.zoom(exp(-event.deltaY / 300), event.offsetX);
    };
    canvas.onpointerdown = (event) => ([held, moved] = [event.offsetX, false]);
    canvas.onpointermove = (event) => {
      if (!event.buttons) return hover(this.#at(event));
      const by = held - event.offsetX;
      moved ||= abs(by) > 3;
      if (!moved) return;
      held = event.offsetX;
      this.#see(this.#start + (by / this.#width) * this.#span, this.#span);
    };
    canvas.onpointerleave = () => hover(-1);
    canvas.onclick = (event) => {
      const call = this.#at(event);
      if (call >= 0 && !moved && this.#shown) pick(this.#shown.recording.call(call).node);
    };
    canvas.ondblclick = () => this.fit();
    canvas.tabIndex = 0;
    canvas.onkeydown = (event) => {
      const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!way || !this.#shown) return;
      event.preventDefault();
      const { recording, made, selected } = this.#shown;
      const nodes = Array.from(made.from, (_, call) => recording.call(call).node);
      const order = [...new Set(nodes)].filter((node) => node >= 0);
      const place = order.indexOf(selected);
      const node = order[place < 0 ? 0 : between(place + way, 0, order.length - 1)];
      if (node === undefined) return;
      const at = made.from[nodes.indexOf(node)] / made.end;
      if (at < this.#start || at > this.#start + this.#span) this.#see(at - this.#span / 4, this.#span);
      pick(node);
    };
  }

  /**
   * @param {Recording} recording
   * @param {Frame} frame
   * @param {Theme} theme
   * @param {number} selected  the thought whose calls are emphasised, -1 for none
   * @param {number} whole  the shortest time that the whole width shows, in seconds
   */
  show(recording, frame, theme, selected, whole = 0) {
    const last = this.#shown;
    const known = last?.recording === recording && last.made.lines === recording.lines;
    const made = known ? last.made : plan(recording);
    if (!known) this.#canvas.ariaLabel = `Calls over time. ${inWords(made)}`;
    this.#shown = { recording, made, frame, theme, selected, whole: made.byOrder ? 0 : whole };
    this.#redraw();
  }

  /** Draws at once, in the colours of `theme`, for printing. @param {Theme} theme */
  print(theme) {
    if (this.#shown) this.#shown.theme = theme;
    this.#draw();
  }

  /** Shows the whole run. */
  fit() {
    this.#see(0, 1);
  }

  /** Zooms in time at a position in pixels from the left. @param {number} factor @param {number} x */
  zoom(factor, x = this.#canvas.clientWidth / 2) {
    const span = this.#span / factor;
    this.#see(this.#start + ((x - LEFT) / this.#width) * (this.#span - span), span);
  }

  destroy() {
    this.#resized.disconnect();
    this.#shown = null;
  }

  /** @param {number} start @param {number} span */
  #see(start, span) {
    this.#span = between(span, 1e-6, 1);
    this.#start = between(start, 0, 1 - this.#span);
    this.#redraw();
  }

  get #width() {
    return max(this.#canvas.clientWidth - LEFT - RIGHT, 1);
  }

  /** Returns the call at the pointer, -1 for none. @param {MouseEvent} event */
  #at({ offsetX, offsetY }) {
    let [nearest, distance] = [-1, 4]; // pixels
    for (const [x, y, end, foot, call] of this.#bars) {
      const off = max(x - offsetX, offsetX - end, y - offsetY, offsetY - foot, 0);
      if (off < distance) [nearest, distance] = [call, off];
    }
    return nearest;
  }

  #redraw() {
    this.#pending ||= requestAnimationFrame(() => this.#draw());
  }

  #draw() {
    this.#pending = 0;
    const canvas = this.#canvas;
    const pen = canvas.getContext("2d");
    const { clientWidth: wide, clientHeight: tall } = canvas;
    if (!pen || !wide || !this.#shown) return;
    const { recording, frame, theme, selected, made, whole } = this.#shown;
    const all = max(made.end, whole);
    const { byOrder, from, to, state, failed, lane, lanes, critical, changes, level, most, limits } = made;
    const kinds = made.kinds.slice(0, KINDS.length);
    const [start, span, width] = [this.#start * all, this.#span * all, this.#width];
    const ratio = devicePixelRatio;
    canvas.width = wide * ratio; // this also clears
    canvas.height = tall * ratio;
    pen.scale(ratio, ratio);
    pen.font = `${TEXT.small}px ${theme.font}`;
    pen.textBaseline = "middle";
    const across = (/** @type {number} */ moment) => LEFT + ((moment - start) * width) / span;
    /** @type {(colour: string, x: number, y: number, w: number, h: number, alpha?: number) => void} */
    const fill = (colour, x, y, w, h, alpha = 1) => {
      pen.globalAlpha = alpha;
      pen.fillStyle = colour;
      pen.fillRect(x, y, w, h);
      pen.globalAlpha = 1;
    };
    /** @type {(words: string, x: number, y: number) => void} */
    const write = (words, x, y) => {
      pen.fillStyle = theme.faint;
      pen.fillText(words, x, y);
    };
    fill(theme.paper, 0, 0, wide, tall);

    let [right, legend] = [LEFT, LEGEND];
    for (const [words, colour, w, h, alpha] of /** @type {[string, string, number, number, number?][]} */ ([
      ...kinds.map((name, place) => [short(name, 24), KINDS[place], 10, 10]),
      ["waiting", KINDS[0], 10, 10, 0.3],
      ...(state.includes(CACHED) ? [["from the cache", KINDS[0], 2, 6]] : []),
      ...(failed.length ? [["failed", theme.ink, 10, 4]] : []),
      ["critical path", theme.path, 10, 2.5],
      ...(limits.length ? [["limit", theme.ink, 10, 1.5]] : []),
    ])) {
      const room = pen.measureText(words).width + 28;
      if (right + room > wide && right > LEFT) [right, legend] = [LEFT, legend + ROW];
      fill(colour, right, legend - LEGEND / 2 - h / 2, w, h, alpha);
      write(words, right + 14, legend - LEGEND / 2);
      right += room;
    }
    const top = legend + BAND; // of the lanes

    const bottom = tall - AXIS;
    const least = (80 * span) / width;
    const ten = 10 ** floor(log10(least));
    const tick = max(ten * ([1, 2, 5].find((times) => ten * times >= least) ?? 10), +byOrder);
    for (let place = ceil(start / tick); place * tick <= start + span; place++) {
      fill(theme.edge, across(place * tick), legend, 1, bottom - legend, 0.4);
      write(`${+(place * tick).toPrecision(9)}`, across(place * tick), bottom + 9);
    }
    for (const { line, level } of made.picks) {
      const at = across(byOrder ? line : recording.time[line]);
      if (at < LEFT || at > LEFT + width) continue;
      for (let y = legend; y < bottom; y += 8) fill(theme.faint, at, y, 1, 4);
      if (made.picks.length <= MARKED) write(`level ${level}`, at + 3, bottom - 8);
    }
    write(byOrder ? (made.lacking ? UNTIMED : UNREADABLE) : "seconds since the run began", LEFT, bottom + 25);
    write(`${most} at once`, 4, legend + 8);
    const high = min((bottom - top) / lanes, THICK);
    if (!made.groups.length) write("calls", 4, top + 8);
    for (const [name, first] of made.groups) {
      fill(theme.edge, 4, top + first * high - 1, LEFT + width - 4, 1, 0.6);
      if (high > 9) write(short(name, 9), 4, top + (first + 0.5) * high);
    }
    pen.rect(LEFT, legend, width, bottom - legend);
    pen.clip();

    const scale = (BAND - 12) / max(most, ...limits.flat().map(([, limit]) => limit));
    // The number of open calls, for each pixel the maximum. The pixel before the window covers all earlier times.
    for (let [x, change, now] = [LEFT - 1, 0, 0]; x < LEFT + width; x++) {
      let peak = now;
      for (; across(changes[change]) < x + 1; change++) peak = max(peak, (now = level[change]));
      const up = peak * scale;
      fill(theme.faint, x, top - 6 - up, 1, up, 0.45);
    }
    for (const steps of limits) {
      steps.forEach(([moment, limit], place) => {
        const [x, y] = [across(moment), floor(top - 6 - limit * scale)];
        fill(theme.ink, x, y, across(steps[place + 1]?.[0] ?? made.end) - x, 1.5);
        const rise = (limit - (steps[place - 1]?.[1] ?? limit)) * scale;
        fill(theme.ink, x, y, 1.5, rise); // from the step before
      });
    }

    // The calls in their lanes. Bars that would only cover painted pixels are skipped.
    const bar = max(high * 0.85, 1);
    /** @type {(calls: Iterable<number>, draw: (x: number, y: number, end: number, call: number) => void) => void} */
    const sweep = (calls, draw) => {
      const painted = floats(tall).fill(LEFT);
      for (const call of calls) {
        const x = across(from[call]);
        const y = top + lane[call] * high;
        const end = across(to[call]);
        const row = floor(y);
        if (x > wide || end < painted[row]) continue;
        painted[row] = max(ceil(x + 1), end);
        draw(x, y, max(end, x + 1), call);
      }
    };
    this.#bars = [];
    sweep(lane.keys(), (x, y, end, call) => {
      this.#bars.push([x, y, end, y + bar, call]);
      const { kind, sent, node } = recording.call(call);
      const colour = KINDS[kinds.indexOf(kind)] ?? theme.faint;
      const shade = SHADES[state[call]];
      if (!shade) return fill(colour, x, y + bar / 4, 2, bar / 2);
      const goes = byOrder ? x : across(sent) || x;
      if (goes > x) fill(colour, x, y, goes - x, bar, 0.3);
      fill(colour, goes, y, end - goes, bar, shade);
      if (bar < NAMED || shade < 1) return;
      const id = node < 0 ? "" : recording.id(node);
      const name = (id ? [`${kind} of thought ${id}`, `thought ${id}`] : [kind]).find((one) => pen.measureText(one).width + 8 <= end - goes);
      if (!name) return;
      pen.fillStyle = (colour === KINDS[0] ? LIGHT : DARK).paper;
      pen.fillText(name, goes + 4, y + bar / 2 - 1);
    });
    sweep(failed, (x, y, end) => fill(theme.ink, x, y, end - x, bar / 3));
    sweep(critical, (x, y, end) => {
      fill(theme.paper, x, y + bar - 3.5, end - x, 1.5); // the line has contrast with the paper, not with every bar
      fill(theme.path, x, y + bar - 2, end - x, 2.5);
    });
    pen.strokeStyle = theme.ink;
    pen.lineWidth = 2;
    if (selected >= 0) sweep(recording.callsOf(selected), (x, y, end) => pen.strokeRect(x, y, end - x, bar));
    const moment = across(byOrder ? frame.step : frame.time);
    fill(theme.paper, moment, legend, wide, tall, 0.6);
    fill(theme.ink, moment - 1, legend, 2, tall);
  }
}
