/**
 * Parsing of a query in the search box into a test of thoughts.
 *
 * A thought matches if it contains all words and satisfies all conditions (`score>0.7`). An invalid condition is an error
 * with a message and is never searched as text.
 *
 * @typedef {import("./recording.js").Recording} Recording
 * @typedef {import("./recording.js").Frame} Frame
 * @typedef {(recording: Recording, frame: Frame, node: number) => boolean} Test
 */

import { QUESTION, STATES } from "./recording.js";

/** The syntax of queries, for the help. */
export const SYNTAX =
  "Search for words, score>0.7 (or < <= >= =, or score=none), depth=2, state:kept,pruned, id:0.1 (and all below); " +
  "what is quoted is words.";

/** @type {Record<string, (a: number, b: number) => boolean>} */
const COMPARE = {
  "<": (a, b) => a < b,
  ">": (a, b) => a > b,
  "<=": (a, b) => a <= b,
  ">=": (a, b) => a >= b,
  "=": (a, b) => Math.abs(a - b) < 1e-9,
};

/**
 * Parses a query. An empty or invalid query matches nothing.
 * @param {string} query
 */
export function searchOf(query) {
  /** @type {Test[]} */
  const tests = [];
  let [error, note] = ["", ""];
  // Quoted text is parsed first, because it is never a condition.
  const words = query
    .replace(
      /"([^"]*)"|(?<!\S)(?:(score|depth|state|id)\s*|([a-z_]+))([<>]=?|[=:])(\s*)(\S*)/gi,
      (all, quoted, field, other, sign, space, value) => {
        if (other) {
          if (value && !space) note = `${other} is no filter, so this is searched as words; filters are score, depth, state, id`;
          return all;
        }
        const test = field && condition(field.toLowerCase(), sign.replace(":", "="), value.toLowerCase());
        if (test?.call) tests.push(test);
        else error = test ?? error;
        return quoted ?? "";
      },
    )
    .trim()
    .toLowerCase();
  if (words) tests.push((recording, _, node) => recording.text(node).toLowerCase().includes(words));
  return {
    error,
    /** Restriction of the matches that the reader must know, "" if there is none. */
    note,
    empty: !tests.length || !!error,
    /** Returns one byte per thought of `frame`, 1 for a match. @param {Recording} recording @param {Frame} frame */
    matches: (recording, frame) =>
      new Uint8Array(frame.nodes).map((_, node) => +tests.every((test) => test(recording, frame, node))),
  };
}

/**
 * Returns the test of a condition, or an error message.
 * @param {string} field
 * @param {string} sign
 * @param {string} value
 * @returns {Test | string}
 */
function condition(field, sign, value) {
  if (field === "id")
    return /^=\d+(\.\d+)*$/.test(sign + value)
      ? (recording, _, node) => `${recording.id(node)}.`.startsWith(`${value}.`)
      : "id needs an id, such as id:0.1";
  if (field === "state") {
    const [wanted, words] = [value.split(","), [QUESTION, ...STATES]];
    return sign === "=" && wanted.every((name) => words.includes(name))
      ? (_, frame, node) => wanted.includes(frame.word(node))
      : `state needs one of ${words.join(", ")}`;
  }
  const score = field === "score";
  if (score && sign + value === "=none") return (_, frame, node) => isNaN(frame.score[node]);
  if (!value || isNaN(+value))
    return `${field} needs a number, such as ${score ? "score>0.7" : "depth=2"}`;
  return (recording, frame, node) =>
    COMPARE[sign]((score ? frame.score : recording.depth)[node], +value);
}
