/**
 * The browser's copy of a run: the lines of its journal, and the tree at any step.
 *
 * Chunks from Python (recording.py) are decoded once into arrays of numbers. The tree at a step is a fold over the
 * lines before it, as in Python. A later step continues the fold and an earlier one restarts it, which is fast enough
 * for a slider.
 *
 * Lines, thoughts ("nodes") and calls are numbered from 0 in the order of the journal. Arrays are longer than their
 * content, and `append` may replace them. After a call of `append`, read the arrays again, up to the count. An unknown
 * number is NaN, and a missing node or line is -1.
 */

import { between, bytes, floats, grouped, grow, integers } from "./numbers.js";

/** The state of a root without a decision, and the other states of a thought: `STATES` of core/records.py. */
export const QUESTION = "question";
export const STATES = [
  "proposed", "unreadable", "kept", "pruned", "complete", "duplicate", "merged", "failed", "answer",
];
const [PROPOSED, UNREAD, KEPT, , COMPLETE, , , , SOLUTION] = STATES.keys();
const GOOD = [KEPT, COMPLETE, SOLUTION];

/** Types of lines: indices into `KINDS` of recording.py. */
export const KIND = { thought: 0, scored: 1, decided: 2, call: 3, reply: 4, note: 5, ended: 6 };

/** Sources of replies, and the notes that report them. */
const SOURCES = /** @type {const} */ (["model", "cache", "joined"]);
const WAYS = ["call.sent", "call.cached", "call.joined"];

/** Notes that begin a part of a run at their thought: a step of a plan, or a strategy. */
export const PART = /^(?:(plan)\.step_started|(\w+)\.started)$/;

const TICKS = 10_000; // units of time per second, as in recording.py

/** The value of each digit of a column, by its code. The first `LAST` digits end a number (recording.py). */
const DIGITS = bytes(128);
const LAST = 76;
let count = 0;
for (let code = 35; code < 127; code++) if (!"&<\\".includes(String.fromCharCode(code))) DIGITS[code] = count++;
const BASE = count - LAST;

/** Returns the integers of a column. @param {string} column */
function unpacked(column) {
  const numbers = floats(column.length);
  let [known, value, scale, sign] = [0, 0, 1, 1];
  for (let at = 0; at < column.length; at++) {
    const code = column.charCodeAt(at);
    const digit = DIGITS[code];
    if (code === 33) sign = -1;
    else if (digit < LAST) {
      numbers[known++] = sign * (value + scale * digit);
      value = 0;
      scale = sign = 1;
    } else {
      value += scale * (digit - LAST);
      scale *= BASE;
    }
  }
  return numbers.subarray(0, known);
}

/**
 * @typedef {{from: number, to: number, kind: "merged" | "source" | "depends", line: number}} Link
 *   `to` is -1 until a thought with the given id is recorded, which may be after `line`.
 * @typedef {{score: number, by: string, raw: number, draws: (number | null)[]}} Evaluation
 * @typedef {{line: number, stop: string, answer: string, node: number, score: number | null,
 *   ranked: number[], error: string | null}} Ended
 * @typedef {{line: number, replyLine: number, node: number, kind: string, draw: number, asked: number,
 *   sent: number, answered: number, took: number, tries: number, source: SOURCES[number],
 *   error: string | null, input: number, output: number, cost: number, paid: number}} RecordedCall
 */

/**
 * The columns of a chunk for each kind of line: the number of its thought or call, an index into a table, the table,
 * and a function that converts a row of the table.
 * @type {[any?, any?, any?, ((row: any[]) => object)?][]}
 */
const COLUMNS = [
  ["parents"],
  ["scored", "scores", "scoreTable",
    ([score, by, raw, draws]) => ({ score: score ?? NaN, by, raw: raw ?? NaN, draws })],
  ["decided", "decisions", "decisionTable", ([state, reason]) => ({ state: STATES.indexOf(state), reason })],
  ["asked", "questions", "questionTable", ([kind, draw]) => ({ kind, draw })],
  ["answered", "answers", "answerTable", ([cost, paid, error, tool, sent = true]) => ({
    ...{ cost: cost ?? NaN, paid: paid ?? NaN, error, tool },
    made: sent && !/^(budget:|cancelled$|limit:at_most$)/.test(error ?? ""),
  })],
  ["noted", "notes", "noteTable", ([name, , data]) => ({ name, data })],
  [],
];

/** The columns that name thoughts which may not be recorded yet, with the kind of the line and the kind of link. */
const NAMING = /** @type {const} */ ([
  ["askedElsewhere", KIND.call],
  ["notedElsewhere", KIND.note],
  ["merged", KIND.decided, "merged"],
  ["sources", KIND.thought, "source"],
  ["depends", KIND.thought, "depends"],
]);

export class Recording {
  // Number of lines, thoughts and calls.
  lines = 0;
  nodes = 0;
  calls = 0;

  // Per line. Lines with equal content share an object in `data`. `row` is the call of a call or reply.
  kind = bytes();
  node = integers();
  time = floats();
  row = integers();
  /** @type {any[]} */
  data = [];

  // Per thought. `born` is the line that adds it, and `ordinal` is the last number of the id.
  parent = integers();
  depth = integers();
  ordinal = integers();
  born = integers();
  /** @type {string[]} */
  texts = [];
  /** @type {Link[]} */
  links = [];

  // Per call: the lines of the call, of the last sending and of the reply, an index into SOURCES, and tokens.
  callLine = integers();
  sentLine = integers();
  replyLine = integers();
  source = bytes();
  input = floats();
  output = floats();

  /** Whether a tool was called or a strategy ran inside another, so that thoughts are steps of different kinds. */
  hasSteps = false;
  /** Whether the search counted visits. */
  hasVisits = false;
  /** The lines at which the search picked thoughts. @type {number[]} */
  picks = [];
  /** @type {Ended | null} */
  ended = null;
  frame = new Frame(this);

  /** Ids that do not consist of the id of the parent, a dot and the ordinal, such as those of roots. Node -1 is the
   * parent of all roots. */
  #names = new Map([[-1, ""]]);
  /** @type {Map<string, number>} */
  #named = new Map();
  /** Functions to call when a thought with an id is recorded. @type {Map<string, ((node: number) => void)[]>} */
  #onRecorded = new Map();
  #family = familyOf(this);

  /** @param {any} [about] the result of `about_of` in recording.py */
  constructor(about = {}) {
    this.about = about;
  }

  /**
   * Adds a chunk of recording.py. Returns false if lines before the chunk are missing; then request the lines from
   * `lines` on. Lines that were added before are ignored.
   * @param {any} chunk @returns {boolean}
   */
  append(chunk) {
    const { first, kinds } = chunk;
    const known = this.lines;
    const end = first + kinds.length;
    if (first > known) return false;
    if (end <= known) return true;
    const summed = typeof chunk.input === "string"; // siblings have the same prompt, so the differences are mostly 0
    chunk = Object.fromEntries(Object.entries(chunk).map(([name, column]) =>
      [name, typeof column === "string" && name !== "kinds" ? unpacked(column) : column]));
    if (summed) for (let place = 1; place < chunk.input.length; place++) chunk.input[place] += chunk.input[place - 1];
    const columns = COLUMNS.map(([about, rows, table, read]) => ({
      about: chunk[about] ?? [],
      rows: chunk[rows] ?? [],
      table: chunk[table]?.map(read),
      lines: /** @type {number[]} */ ([]),
      sum: 0, // a column contains differences between successive values
    }));
    grow(this, ["kind", "node", "time", "row"], end);
    grow(this, ["parent", "depth", "ordinal", "born"], this.nodes + (chunk.parents?.length ?? 0));
    const calls = this.calls + (chunk.asked?.length ?? 0);
    grow(this, ["callLine", "sentLine", "replyLine", "source", "input", "output"], calls);
    const { node, row, callLine, sentLine, replyLine, input, output } = this;
    let ticks = 0;
    for (let line = first; line < end; line++) {
      const kind = +kinds[line - first];
      const column = columns[kind];
      const place = column.lines.push(line) - 1;
      ticks += chunk.times[line - first];
      let about = (column.sum += column.about[place]);
      if (line < known) continue;
      const index = column.rows[place];
      const data = column.table?.[index];
      if (kind === KIND.thought) about = this.#addThought(line, about, chunk.ordinals[place], chunk.names?.[place]);
      else if (kind === KIND.call) {
        const call = (row[line] = this.calls++);
        callLine[call] = line;
        sentLine[call] = replyLine[call] = -1;
        input[call] = output[call] = NaN;
      } else if (kind === KIND.reply) {
        const call = (row[line] = about);
        replyLine[call] = line;
        input[call] = chunk.input[place] ?? NaN;
        output[call] = chunk.output[place] ?? NaN;
        this.hasSteps ||= !!data.tool;
        about = node[callLine[call]];
      } else if (kind === KIND.note && chunk.noteTable[index][1]) {
        const call = about;
        const way = WAYS.indexOf(data.name);
        if (way === 0) sentLine[call] = line;
        if (way > 0) this.source[call] = way;
        about = node[callLine[call]];
      } else if (kind === KIND.ended) {
        this.ended = { line, ...chunk.ended };
        about = chunk.ended.node;
      }
      if (kind === KIND.note && data.name === "tot.picked") {
        this.picks.push(line);
        this.hasVisits ||= Object.values(data.data?.why ?? {}).some((its) => its?.visits >= 0);
      }
      if (kind === KIND.note && PART.test(data.name) && this.parent[about] >= 0) this.hasSteps = true;
      this.kind[line] = kind;
      node[line] = about;
      this.time[line] = ticks / TICKS;
      this.data[line] = data;
    }
    this.lines = end;
    /** @type {Link[]} */
    const links = [];
    for (const [name, among, kind] of NAMING) {
      for (const [place, to] of chunk[name] ?? []) {
        const line = columns[among].lines[place];
        if (line < known) continue;
        const link = /** @type {Link} */ ({ from: node[line], to: -1, kind, line });
        if (kind) links.push(link);
        if (typeof to === "number") link.to = to;
        else {
          const then = (/** @type {number} */ born) => (kind ? (link.to = born) : (this.node[line] = born));
          this.#onRecorded.set(to, [...(this.#onRecorded.get(to) ?? []), then]);
        }
      }
    }
    this.links = this.links.concat(links.sort((a, b) => a.line - b.line));
    return true;
  }

  /** @param {number} line @param {number} parent @param {number} ordinal @param {string} [name] */
  #addThought(line, parent, ordinal, name = parent < 0 ? `${ordinal}` : undefined) {
    const node = this.nodes++;
    this.parent[node] = parent;
    this.depth[node] = parent < 0 ? 0 : this.depth[parent] + 1;
    this.ordinal[node] = ordinal;
    this.born[node] = line;
    if (name !== undefined) {
      this.#names.set(node, name);
      this.#named.set(name, node);
    }
    if (this.#onRecorded.size) {
      const id = this.id(node);
      for (const then of this.#onRecorded.get(id) ?? []) then(node);
      this.#onRecorded.delete(id);
    }
    return node;
  }

  /** Returns the id of a node. @param {number} node */
  id(node) {
    const ordinals = [];
    for (; !this.#names.has(node); node = this.parent[node]) ordinals.push(this.ordinal[node]);
    return [this.#names.get(node), ...ordinals.reverse()].join(".");
  }

  /** Returns the node with `id`, -1 if there is none. @param {string} id */
  indexOf(id) {
    const ordinals = [];
    let name = id;
    for (; name && !this.#named.has(name); name = name.slice(0, -1 - ordinals[0].length)) {
      ordinals.unshift(name.slice(name.lastIndexOf(".") + 1));
    }
    let node = this.#named.get(name) ?? -1;
    for (const ordinal of ordinals.map(Number)) {
      node = this.childrenOf(node).find((one) => this.ordinal[one] === ordinal && !this.#names.has(one)) ?? -1;
    }
    return this.id(node) === id ? node : -1; // "01" converts to the number 1 but is not an ordinal
  }

  /** Returns the beginning of a thought's text, "" until it is received. @param {number} node */
  text(node) {
    return this.texts[node] ?? "";
  }

  /** @param {number} first @param {string[]} texts */
  setTexts(first, texts) {
    for (const [place, text] of texts.entries()) this.texts[first + place] = text;
  }

  /** Returns the data of a call. @param {number} call @returns {RecordedCall} */
  call(call) {
    const { data, time } = this;
    const [line, sentLine, replyLine] = [this.callLine[call], this.sentLine[call], this.replyLine[call]];
    const { cost = NaN, paid = NaN, error = null } = data[replyLine] ?? {};
    return {
      ...data[line],
      ...{ line, replyLine, cost, paid, error },
      node: this.node[line],
      asked: time[line],
      sent: time[sentLine] ?? NaN,
      answered: time[replyLine] ?? NaN,
      took: this.lacks("times") || this.lacks("durations") ? NaN : time[replyLine] - time[line],
      tries: data[sentLine]?.data.tries ?? 0,
      source: SOURCES[this.source[call]],
      input: this.input[call],
      output: this.output[call],
    };
  }

  /** Returns whether the log that the run was imported from lacks something, such as the times. @param {string} what */
  lacks(what) {
    return (this.about.unknown ?? []).includes(what);
  }

  /** Returns the calls of a node. @param {number} node */
  callsOf(node) {
    const calls = [];
    for (let call = 0; call < this.calls; call++) if (this.node[this.callLine[call]] === node) calls.push(call);
    return calls;
  }

  /** Returns the note of a line, null for lines of other kinds. `data` is null if it was too long to be sent.
   * @param {number} line @returns {{name: string, data: any} | null} */
  note(line) {
    return this.kind[line] === KIND.note ? this.data[line] : null;
  }

  /** The result of `familyOf` for the current nodes. */
  get #tree() {
    if (this.#family.nodes < this.nodes) this.#family = familyOf(this);
    return this.#family;
  }

  /** Returns the nodes depth first, siblings by their ordinals. */
  order() {
    return this.#tree.order;
  }

  /** Returns the children of a node by their ordinals, or the roots for -1. @param {number} node */
  childrenOf(node) {
    const { starts, members } = this.#tree;
    return members.subarray(starts[node + 1], starts[node + 2]);
  }

  /**
   * Returns the tree after the first `step` lines. All calls return the same object, so values that were read from it
   * earlier belong to the earlier step.
   * @param {number} step
   */
  at(step) {
    this.frame.move(between(step, 0, this.lines));
    return this.frame;
  }
}

/**
 * Returns the children of each node, and the nodes depth first (`order`). The children of `node`, by ordinals, are
 * the elements of `members` from `starts[node + 1]` to `starts[node + 2]`. The roots are the children of -1.
 * @param {Recording} recording
 */
function familyOf({ nodes, parent, ordinal }) {
  const above = parent.slice(0, nodes).map((one) => one + 1);
  const { starts, members } = grouped(above, nodes + 1);
  const unsorted = new Set(); // concurrent branches may be recorded in any order
  for (let place = 1; place < nodes; place++) {
    const [one, next] = [members[place - 1], members[place]];
    if (above[one] === above[next] && ordinal[one] > ordinal[next]) unsorted.add(above[one]);
  }
  for (const one of unsorted) {
    members.subarray(starts[one], starts[one + 1]).sort((a, b) => ordinal[a] - ordinal[b] || a - b);
  }
  const order = integers(nodes + 1); // -1 is first
  const waiting = [-1];
  for (let count = 0; waiting.length; count++) {
    const node = (order[count] = /** @type {number} */ (waiting.pop()));
    for (let place = starts[node + 2]; place > starts[node + 1]; place--) waiting.push(members[place - 1]);
  }
  return { nodes, starts, members, order: order.subarray(1) };
}

const NOTHING = { calls: 0, input: 0, output: 0, cost: 0, paid: 0 };

/** The tree at one step. Arrays are valid up to `nodes`. */
export class Frame {
  /** Number of lines that are included. */
  step = 0;
  nodes = 0;
  usage = NOTHING;

  // Per thought: the score, an index into STATES, the lines of both, the number of children, and whether there is a
  // score, that of a search for its root included.
  score = floats();
  state = bytes();
  scoredLine = integers();
  decidedLine = integers();
  children = integers();
  judged = bytes();

  /** The recording. */
  run;

  /** @param {Recording} recording */
  constructor(recording) {
    this.run = recording;
  }

  /** @param {number} step */
  move(step) {
    if (step < this.step) {
      this.step = this.nodes = 0;
      this.usage = NOTHING;
    }
    const { kind, node, data, row, parent, input, output, nodes } = this.run;
    grow(this, ["score", "state", "scoredLine", "decidedLine", "children", "judged"], nodes);
    const { score, state, scoredLine, decidedLine, children, judged } = this;
    const usage = { ...(this.usage.calls ? this.usage : NOTHING) };
    for (let line = this.step; line < step; line++) {
      const about = node[line];
      switch (kind[line]) {
        case KIND.thought:
          this.nodes++;
          score[about] = NaN;
          state[about] = PROPOSED;
          scoredLine[about] = decidedLine[about] = -1;
          children[about] = 0;
          children[parent[about]]++; // has no effect for a root
          judged[about] = 0;
          break;
        case KIND.scored:
          judged[about] = 1;
          if (data[line].by === "root") break; // no evaluation: the score with which a search begins
          score[about] = data[line].score;
          scoredLine[about] = line;
          if (state[about] === PROPOSED && Number.isNaN(score[about])) state[about] = UNREAD;
          break;
        case KIND.decided:
          state[about] = data[line].state;
          decidedLine[about] = line;
          break;
        case KIND.reply: {
          const { made, error, cost, paid, tool } = data[line];
          if (!made || tool) break;
          usage.calls++;
          // A failed call counts as unused unless the model reports its usage.
          if (error !== null && Number.isNaN(input[row[line]])) break;
          usage.input += input[row[line]];
          usage.output += output[row[line]];
          usage.cost += cost;
          usage.paid += paid;
        }
      }
    }
    // Without the calls of the log, what they used is unknown.
    this.usage = usage.calls || !this.run.lacks("calls") ? usage : { calls: 0, input: NaN, output: NaN, cost: NaN, paid: NaN };
    this.step = step;
  }

  /** Seconds since the start of the run. */
  get time() {
    return this.run.time[this.step - 1] ?? 0;
  }

  get #end() {
    const { ended } = this.run;
    return ended && ended.line < this.step ? ended : null;
  }

  /** The end of the run, null while it is running. */
  get stop() {
    return this.#end?.stop ?? null;
  }

  /** Returns the state of a node in a word, as `nodes_df.state` does. @param {number} node */
  word(node) {
    return this.state[node] || this.run.parent[node] >= 0 ? STATES[this.state[node]] : QUESTION;
  }

  /** Returns the reason of the decision about a node, "" if there is none. @param {number} node @returns {string} */
  reason(node) {
    return this.run.data[this.decidedLine[node]]?.reason ?? "";
  }

  /** Returns the evaluation of a node, null if there is none. @param {number} node @returns {Evaluation | null} */
  evaluation(node) {
    return this.run.data[this.scoredLine[node]] ?? null;
  }

  /** The calls that have no reply yet. */
  get open() {
    const { calls, callLine, replyLine } = this.run;
    const open = [];
    for (let call = 0; call < calls && callLine[call] < this.step; call++) {
      if (replyLine[call] < 0 || replyLine[call] >= this.step) open.push(call);
    }
    return open;
  }

  /** The thoughts that a search may still expand, or at its end could have expanded, as in tree.py. */
  get frontier() {
    const frontier = [];
    const over = !/^(budget:.*|limit:nodes|cancelled)$/.test(this.stop ?? "cancelled");
    const searched = bytes(this.nodes); // it or a thought above it has a score; steps of an agent have none
    for (let node = 0; node < this.nodes; node++) {
      const above = this.run.parent[node];
      searched[node] = this.judged[node] | searched[above]; // 0 for a root
      if (this.children[node] || this.state[node] > KEPT || above < 0) continue;
      if (this.state[node] === KEPT || (!over && searched[node])) frontier.push(node);
    }
    return frontier;
  }

  /** The thought with the answer. Before the end, the best thought below the root that was not dropped. -1 if there is
   * none. */
  get best() {
    return this.#end ? this.#end.node : this.leader;
  }

  /** The best thought below the root that was not dropped. -1 if none has a score. */
  get leader() {
    let best = -1;
    for (let node = 0; node < this.nodes; node++) {
      if (!GOOD.includes(this.state[node]) || this.run.parent[node] < 0) continue;
      if (this.score[node] > (this.score[best] ?? -Infinity)) best = node; // false without a score
    }
    return best;
  }
}
