/**
 * The quantities by which thoughts can be coloured.
 *
 * A quantity has one number per thought at the step of a frame, NaN if it is unknown. Visits and values are those of
 * Monte Carlo tree search: every scored thought counts for itself and for all its ancestors.
 */

import { brief, count, money, number, tiny } from "./dom.js";
import { floats, log10, max } from "./numbers.js";
import { KIND } from "./recording.js";

/** @typedef {import("./recording.js").Frame} Frame */

export const QUANTITIES = /** @type {const} */ (["score", "solvable", "visits", "value", "cost", "depth"]);

/**
 * A quantity of all thoughts. `shares` are between 0 and 1. `word` describes one value, `ends` those of the scale. `beside`
 * is what a label shows of a thought in addition.
 * @typedef {{values: Float64Array, shares: Float64Array, word: (value: number) => string, ends: string[],
 *   beside?: (node: number) => string}} Quantity
 */

/**
 * @param {typeof QUANTITIES[number]} name
 * @param {Frame} frame
 * @param {string} solvable of `Facts` in app.js
 * @returns {Quantity}
 */
export function quantityOf(name, frame, solvable) {
  const { nodes, run, score } = frame;
  if (name === "visits" || name === "value") {
    const { visits, totals } = backedUp(frame);
    if (name === "value") {
      const values = totals.map((total, node) => total / visits[node]);
      return scale(values, values, brief, 0, 1);
    }
    const most = max(visits.reduce((a, b) => max(a, b), 1), 2);
    const shares = visits.map((its) => log10(its) / log10(most)); // a parent has about as many as its children together
    const beside = (/** @type {number} */ node) => visits[node] > 0 && run.parent[node] >= 0 ? tiny(totals[node] / visits[node]) : "";
    return { ...scale(visits, shares.map((its) => (its < 0 ? NaN : its)), number, 1, most), beside };
  }
  const values = floats(nodes);
  if (name === "score") {
    values.set(score.subarray(0, nodes));
    return scale(values, values, brief, 0, 1);
  }
  if (name === "solvable") {
    values.forEach((_, node) => (values[node] = parseInt(solvable[node])));
    return scale(values, values, (value) => (value ? "yes" : "no"), 0, 1);
  }
  if (name === "depth") values.set(run.depth.subarray(0, nodes));
  /** @type {(amount: number) => string} */
  let unit = number;
  if (name === "cost") {
    const tokens = floats(nodes);
    for (let line = 0; line < frame.step; line++) {
      if (run.kind[line] !== KIND.reply) continue;
      const call = run.row[line];
      values[run.node[line]] += run.data[line].cost || 0; // has no effect for a call without a thought
      tokens[run.node[line]] += run.input[call] + run.output[call] || 0;
    }
    const priced = values.some(Boolean);
    if (!priced) values.set(tokens); // the model has no prices
    unit = priced ? money : (amount) => count(amount, "token");
  }
  const most = values.reduce((a, b) => max(a, b), 0);
  return scale(values, values.map((its) => its / (most || 1)), unit, 0, most);
}

/** @param {Float64Array} values @param {Float64Array} shares @param {(value: number) => string} word @param {number} low
 * @param {number} high @returns {Quantity} */
const scale = (values, shares, word, low, high) => ({
  ...{ values, shares, ends: [word(low), word(high)] },
  word: (value) => (isNaN(value) ? "–" : word(value)),
});

/**
 * Returns how many scores were backed up through each thought, and their sum. Negative and unreadable scores count as 0.
 * @param {Frame} frame
 */
export function backedUp({ nodes, run: { parent }, score, scoredLine }) {
  const [visits, totals] = [floats(nodes), floats(nodes)];
  for (let node = nodes; node--; ) {
    const above = parent[node];
    if (above < 0) continue;
    if (scoredLine[node] >= 0) {
      visits[node]++;
      totals[node] += max(score[node], 0) || 0;
    }
    visits[above] += visits[node];
    totals[above] += totals[node];
  }
  return { visits, totals };
}
