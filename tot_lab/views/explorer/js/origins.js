/**
 * What produced each thought: a call of a model, a tool, or a part of the run that begins there.
 *
 * @typedef {import("./recording.js").Frame} Frame
 */

import { integers } from "./numbers.js";
import { KIND, PART } from "./recording.js";

/**
 * Returns the call that produced each thought, -1 if unknown, the tool calls at each thought, and the parts that begin
 * at a thought. A thought was produced by the last reply of a model at its parent or at a thought it was made from, or else
 * by the last one that joined several thoughts. Several calls for the same purpose without a thought between them, such as
 * samples, produced the next thoughts together: `group` maps each of them to the last one, and any other call to itself.
 * @param {Frame} frame
 */
export function originsOf({ run, step, nodes }) {
  const { kind, node, row, data, callLine, replyLine, parent, born } = run;
  const calls = integers(nodes).fill(-1);
  const last = integers(nodes).fill(-1);
  /** @type {Map<number, number[]>} */
  const tools = new Map();
  /** @type {Map<number, string>} */
  const parts = new Map();
  /** The number of the attempt that begins below a thought. @type {Map<number, number>} */
  const attempts = new Map();
  const group = integers(run.calls).map((_, call) => call);
  /** The calls at a thought since the last thought that was made from them. @type {Map<number, number[]>} */
  const since = new Map();
  const sources = new Map(run.links.filter(({ kind }) => kind === "source").map(({ from, to }) => [from, to]));
  let joined = -1;
  for (let line = 0; line < step; line++) {
    const about = node[line];
    if (kind[line] === KIND.thought) {
      const [above, source] = [last[parent[about]] ?? -1, last[sources.get(about) ?? -1] ?? -1];
      let call = callLine[source] > (callLine[above] ?? -1) ? source : above;
      if (call < 0 && parent[about] >= 0) [call, joined] = [joined, -1];
      calls[about] = call;
      const at = (call === above ? parent[about] : sources.get(about)) ?? -1;
      for (const one of since.get(at) ?? []) if (data[callLine[one]].kind === data[callLine[call]].kind) group[one] = call;
      since.delete(at);
      const attempt = attempts.get(parent[about]);
      if (attempt !== undefined) parts.set(about, `attempt ${attempt}`);
      else if (call >= 0 && data[callLine[call]].kind === "branch") parts.set(about, "route");
      attempts.delete(parent[about]);
    } else if (kind[line] === KIND.reply && about >= 0) {
      const call = row[line];
      if (data[line].tool) tools.set(about, tools.get(about) ?? []).get(about)?.push(call);
      else if (born[about] < replyLine[call]) {
        last[about] = call;
        since.set(about, since.get(about) ?? []).get(about)?.push(call);
      }
      if (JOINS.test(data[callLine[call]].kind)) joined = call;
    } else if (kind[line] === KIND.note && about >= 0) {
      const { name, data: fields } = data[line];
      const found = PART.exec(name);
      if (found && parent[about] >= 0 && !parts.has(about)) parts.set(about, found[1] ? "plan step" : found[2]);
      if (name === "reflexion.attempt") attempts.set(about, (fields?.attempt ?? 0) + 1);
    }
  }
  return { calls, group, tools, parts };
}

/** Purposes of calls whose replies join several thoughts: the role `synthesize` in core/purposes.py. */
const JOINS = /^(synthesize|converge|extract)(:|$)/;

/** Purposes of calls whose replies judge earlier steps: the role `critique` in core/purposes.py. */
const REVIEWS = /^(critique|review|reflect)(:|$)/;

/** Purposes of calls that are turns of an agent: the role `act` in core/purposes.py. */
const TURNS = /^(act|analysis)(:|$)/;

/** The kinds of steps, in the order of their shapes in theme.js. The first has the shape of its state. */
export const KINDS = ["thought", "tool call", "tool result", "plan step", "review", "part", "turn"];

/** The kinds of the thoughts of each frame, at the step at which they were asked for last.
 * @type {WeakMap<Frame, {step: number, kinds: Int32Array}>} */
const known = new WeakMap();

/** Returns the kind of each thought, an index into `KINDS`. @param {Frame} frame */
export function kindsOf(frame) {
  const { run, nodes, step } = frame;
  const last = known.get(frame);
  if (last?.step === step) return last.kinds;
  const { calls, tools, parts } = originsOf(frame);
  const kinds = integers(nodes).map((_, node) => {
    const part = parts.get(node);
    if (part) return part === "plan step" ? 3 : 5;
    if (tools.has(node)) return 1;
    if (tools.has(run.parent[node])) return 2;
    if (calls[node] < 0) return 0;
    const { kind } = run.call(calls[node]);
    return REVIEWS.test(kind) ? 4 : TURNS.test(kind) ? 6 : 0;
  });
  known.set(frame, { step, kinds });
  return kinds;
}
