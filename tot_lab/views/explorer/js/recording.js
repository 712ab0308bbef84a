/**
 * The browser's copy of a run: the lines of its journal, and the tree at any step.
 *
 * Chunks from Python (recording.py) are decoded once into arrays of numbers. The tree at a step is a fold over the
 * lines before it, as in Python. A later step continues the fold and an earlier one restarts it, which is fast enough
 * for a slider.
 *
 * Lines, thoughts ("nodes") and calls are numbered from 0 in the order of the journal. Arrays are longer than their
 * content, and `append` may replace them: read them again after it, up to the count. An unknown number is NaN, a
 * missing node or line is -1.
 */

import { between, bytes, floats, grouped, grow, integers } from "./numbers.js";

/** The states of a thought: no decision, no readable score, or a decision (core/records.py). */
export const STATES = [
  "proposed", "unreadable", "kept", "pruned", "complete", "duplicate", "merged", "failed", "answer",
];
const [PROPOSED, UNREAD, KEPT, , COMPLETE, , , , SOLUTION] = STATES.keys();
const GOOD = [KEPT, COMPLETE, SOLUTION];

/** The type of a line: its index in `KINDS` of recording.py. */
export const KIND = { thought: 0, scored: 1, decided: 2, call: 3, reply: 4, note: 5, ended: 6 };

/** Where a reply came from, and the notes that report it. */
const SOURCES = /** @type {const} */ (["model", "cache", "joined"]);
const WAYS = ["call.sent", "call.cached", "call.joined"];

const TICKS = 100_000; // of the clock in a second, as in recording.py

/**
 * @typedef {{from: number, to: number, kind: "merged" | "source" | "depends", line: number}} Link
 *   `to` is -1 while no thought has the id that was named, and may be born after `line`.
 * @typedef {{score: number, by: string, raw: number, draws: (number | null)[]}} Evaluation
 * @typedef {{line: number, stop: string, answer: string, node: number, score: number | null,
 *   ranked: number[], error: string | null}} Ended
 * @typedef {{line: number, replyLine: number, node: number, kind: string, draw: number, asked: number,
 *   sent: number, answered: number, tries: number, source: SOURCES[number],
 *   error: string | null, input: number, output: number, cost: number, paid: number}} RecordedCall
 */

/**
 * Of each kind of line the columns of a chunk: whom it is about, which row of a table it tells, the table, and what a
 * row of it says.
 * @type {[any?, any?, any?, ((row: any[]) => object)?][]}
 */
const COLUMNS = [
  ["parents"],
  ["scored", "scores", "scoreTable",
    ([score, by, raw, draws]) => ({ score: score ?? NaN, by, raw: raw ?? NaN, draws })],
  ["decided", "decisions", "decisionTable", ([state, reason]) => ({ state: STATES.indexOf(state), reason })],
  ["asked", "questions", "questionTable", ([kind, draw]) => ({ kind, draw })],
  ["answered", "answers", "answerTable", ([cost, paid, error, tool]) => ({
    ...{ cost: cost ?? NaN, paid: paid ?? NaN, error, tool },
    made: !/^(budget:|cancelled$|limit:at_most$)/.test(error ?? ""),
  })],
  ["noted", "notes", "noteTable", ([name, , data]) => ({ name, data })],
  [],
];

/** The columns that name a thought which may not be born yet: the kind of its lines, and of link if it is one. */
const NAMING = /** @type {const} */ ([
  ["askedElsewhere", KIND.call],
  ["notedElsewhere", KIND.note],
  ["merged", KIND.decided, "merged"],
  ["sources", KIND.thought, "source"],
  ["depends", KIND.thought, "depends"],
]);

export class Recording {
  // How many lines, thoughts and calls there are.
  lines = 0;
  nodes = 0;
  calls = 0;

  // Per line. `told` is what it says, shared by all lines that say the same; `row` the call that it asks or answers.
  kind = bytes();
  node = integers();
  time = floats();
  row = integers();
  /** @type {any[]} */
  told = [];

  // Per thought. `born` is a line, `ordinal` the last number of the id.
  parent = integers();
  depth = integers();
  ordinal = integers();
  born = integers();
  /** @type {string[]} */
  texts = [];
  /** @type {Link[]} */
  links = [];

  // Per call: the lines of question, last sending and reply, a place in SOURCES, tokens.
  callLine = integers();
  sentLine = integers();
  replyLine = integers();
  source = bytes();
  input = floats();
  output = floats();

  /** @type {Ended | null} */
  ended = null;
  frame = new Frame(this);

  /** The ids of roots and all others that are not the parent's, a dot and the ordinal; -1 is above all roots. */
  #names = new Map([[-1, ""]]);
  /** @type {Map<string, number>} */
  #named = new Map();
  /** What is to be done when a thought of that id is born. @type {Map<string, ((node: number) => void)[]>} */
  #awaited = new Map();
  #family = familyOf(this);

  /** @param {any} [about] what `about_of` in recording.py tells */
  constructor(about = {}) {
    this.about = about;
  }

  /**
   * Takes in a chunk of recording.py. False when lines before it are missing: then ask for those from
   * `lines` on. What is known already is passed over.
   * @param {any} chunk @returns {boolean}
   */
  append(chunk) {
    const { first, kinds } = chunk;
    const known = this.lines;
    const end = first + kinds.length;
    if (first > known) return false;
    if (end <= known) return true;
    const columns = COLUMNS.map(([about, tells, table, read]) => ({
      about: chunk[about] ?? [],
      tells: chunk[tells] ?? [],
      table: chunk[table]?.map(read),
      lines: /** @type {number[]} */ ([]),
      sum: 0, // a column holds differences
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
      const tells = column.tells[place];
      const told = column.table?.[tells];
      if (kind === KIND.thought) about = this.#birth(line, about, chunk.ordinals[place], chunk.names?.[place]);
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
        about = node[callLine[call]];
      } else if (kind === KIND.note && chunk.noteTable[tells][1]) {
        const call = about;
        const way = WAYS.indexOf(told.name);
        if (way === 0) sentLine[call] = line;
        if (way > 0) this.source[call] = way;
        about = node[callLine[call]];
      } else if (kind === KIND.ended) {
        this.ended = { line, ...chunk.ended };
        about = chunk.ended.node;
      }
      this.kind[line] = kind;
      node[line] = about;
      this.time[line] = ticks / TICKS;
      this.told[line] = told;
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
          this.#awaited.set(to, [...(this.#awaited.get(to) ?? []), then]);
        }
      }
    }
    this.links = this.links.concat(links.sort((a, b) => a.line - b.line));
    return true;
  }

  /** @param {number} line @param {number} parent @param {number} ordinal @param {string} [name] */
  #birth(line, parent, ordinal, name = parent < 0 ? `${ordinal}` : undefined) {
    const node = this.nodes++;
    this.parent[node] = parent;
    this.depth[node] = parent < 0 ? 0 : this.depth[parent] + 1;
    this.ordinal[node] = ordinal;
    this.born[node] = line;
    if (name !== undefined) {
      this.#names.set(node, name);
      this.#named.set(name, node);
    }
    if (this.#awaited.size) {
      const id = this.id(node);
      for (const then of this.#awaited.get(id) ?? []) then(node);
      this.#awaited.delete(id);
    }
    return node;
  }

  /** The id of a node. @param {number} node */
  id(node) {
    const ordinals = [];
    for (; !this.#names.has(node); node = this.parent[node]) ordinals.push(this.ordinal[node]);
    return [this.#names.get(node), ...ordinals.reverse()].join(".");
  }

  /** The node that has `id`, -1 for none. @param {string} id */
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
    return this.id(node) === id ? node : -1; // "01" is the number 1, and no ordinal
  }

  /** The beginning of a thought's text, "" until it has come. @param {number} node */
  text(node) {
    return this.texts[node] ?? "";
  }

  /** @param {number} first @param {string[]} texts */
  setTexts(first, texts) {
    for (const [place, text] of texts.entries()) this.texts[first + place] = text;
  }

  /** What is known of a call. @param {number} call @returns {RecordedCall} */
  call(call) {
    const { told, time } = this;
    const [line, sentLine, replyLine] = [this.callLine[call], this.sentLine[call], this.replyLine[call]];
    const { cost = NaN, paid = NaN, error = null } = told[replyLine] ?? {};
    return {
      ...told[line],
      ...{ line, replyLine, cost, paid, error },
      node: this.node[line],
      asked: time[line],
      sent: time[sentLine] ?? NaN,
      answered: time[replyLine] ?? NaN,
      tries: told[sentLine]?.data.tries ?? 0,
      source: SOURCES[this.source[call]],
      input: this.input[call],
      output: this.output[call],
    };
  }

  /** The calls asked for a node. @param {number} node */
  callsOf(node) {
    const calls = [];
    for (let call = 0; call < this.calls; call++) if (this.node[this.callLine[call]] === node) calls.push(call);
    return calls;
  }

  /** The note that a line tells, null for any other. `data` is null where it was too long to tell.
   * @param {number} line @returns {{name: string, data: any} | null} */
  note(line) {
    return this.kind[line] === KIND.note ? this.told[line] : null;
  }

  /** What `familyOf` tells of the nodes that there are now. */
  get #tree() {
    if (this.#family.nodes < this.nodes) this.#family = familyOf(this);
    return this.#family;
  }

  /** The nodes as an outline reads: each before those below it, siblings by their ordinals. */
  order() {
    return this.#tree.order;
  }

  /** The children of a node by their ordinals, -1: the roots. @param {number} node */
  childrenOf(node) {
    const { starts, members } = this.#tree;
    return members.subarray(starts[node + 1], starts[node + 2]);
  }

  /**
   * The tree after the first `step` lines. There is one frame, which moves: what was read from it
   * before tells of the step that was.
   * @param {number} step
   */
  at(step) {
    this.frame.move(between(step, 0, this.lines));
    return this.frame;
  }
}

/**
 * Who is whose child: those of `node`, by ordinals, are `members` from `starts[node + 1]` to `starts[node + 2]`, the
 * roots those of -1; and the `order` of an outline.
 * @param {Recording} recording
 */
function familyOf({ nodes, parent, ordinal }) {
  const above = parent.slice(0, nodes).map((one) => one + 1);
  const { starts, members } = grouped(above, nodes + 1);
  const unsorted = new Set(); // concurrent branches may be born in any order
  for (let place = 1; place < nodes; place++) {
    const [one, next] = [members[place - 1], members[place]];
    if (above[one] === above[next] && ordinal[one] > ordinal[next]) unsorted.add(above[one]);
  }
  for (const one of unsorted) {
    members.subarray(starts[one], starts[one + 1]).sort((a, b) => ordinal[a] - ordinal[b] || a - b);
  }
  const order = integers(nodes + 1); // -1 before all
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
  /** How many lines it tells of. */
  step = 0;
  nodes = 0;
  usage = NOTHING;

  // Per thought: of each the score, a place in STATES, the lines that told them, the number of children.
  score = floats();
  state = bytes();
  scoredLine = integers();
  decidedLine = integers();
  children = integers();

  /** What it is a moment of. */
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
    const { kind, node, told, row, parent, input, output, nodes } = this.run;
    grow(this, ["score", "state", "scoredLine", "decidedLine", "children"], nodes);
    const { score, state, scoredLine, decidedLine, children } = this;
    const usage = { ...this.usage };
    for (let line = this.step; line < step; line++) {
      const about = node[line];
      switch (kind[line]) {
        case KIND.thought:
          this.nodes++;
          score[about] = NaN;
          state[about] = PROPOSED;
          scoredLine[about] = decidedLine[about] = -1;
          children[about] = 0;
          children[parent[about]]++; // of a root this is nothing
          break;
        case KIND.scored:
          score[about] = told[line].score;
          scoredLine[about] = line;
          if (state[about] === PROPOSED && Number.isNaN(score[about])) state[about] = UNREAD;
          break;
        case KIND.decided:
          state[about] = told[line].state;
          decidedLine[about] = line;
          break;
        case KIND.reply: {
          const { made, error, cost, paid, tool } = told[line];
          if (!made || tool) break;
          usage.calls++;
          // A call that failed used nothing, unless the model says what it used.
          if (error !== null && Number.isNaN(input[row[line]])) break;
          usage.input += input[row[line]];
          usage.output += output[row[line]];
          usage.cost += cost;
          usage.paid += paid;
        }
      }
    }
    this.usage = usage;
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

  /** Why the run ended, null before. */
  get stop() {
    return this.#end?.stop ?? null;
  }

  /** The rule behind the decision about a node, "" for none. @param {number} node @returns {string} */
  reason(node) {
    return this.run.told[this.decidedLine[node]]?.reason ?? "";
  }

  /** How a node was evaluated, null when it was not. @param {number} node @returns {Evaluation | null} */
  evaluation(node) {
    return this.run.told[this.scoredLine[node]] ?? null;
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

  /** The thoughts that may still be expanded. */
  get frontier() {
    const frontier = [];
    for (let node = 0; node < this.nodes; node++) {
      if (this.state[node] <= KEPT && !this.children[node]) frontier.push(node);
    }
    return frontier;
  }

  /** The answer's thought; before the end the best of those not dropped, the root left out. -1 for none. */
  get best() {
    if (this.#end) return this.#end.node;
    let best = -1;
    for (let node = 0; node < this.nodes; node++) {
      if (!GOOD.includes(this.state[node]) || this.run.parent[node] < 0) continue;
      if (this.score[node] > (this.score[best] ?? -Infinity)) best = node; // not if it has none
    }
    return best;
  }
}
