// Recordings for the tests of the interface: a tree given by its parents, followed by scores and decisions.
import { Recording } from "../recording.js";

/** Returns the difference of each number from its predecessor. @param {number[]} numbers */
const differences = (numbers) => numbers.map((one, place) => one - (numbers[place - 1] ?? 0));

/**
 * @param {number[]} parents -1 for the root; children are numbered in order
 * @param {{scores?: (number | null)[], decided?: [number, string][], texts?: string[]}} [more] scores of 1, 2, …
 */
export function tree(parents, { scores = [], decided = [], texts = [] } = {}) {
  const recording = new Recording({});
  /** @type {Map<number, number>} */
  const families = new Map();
  const ordinals = parents.map((parent) => {
    const ordinal = families.get(parent) ?? 0;
    families.set(parent, ordinal + 1);
    return ordinal;
  });
  const kinds = "0".repeat(parents.length) + "1".repeat(scores.length) + "2".repeat(decided.length);
  recording.append({
    first: 0,
    firstNode: 0,
    firstCall: 0,
    kinds,
    times: [...kinds].map(() => 250),
    parents: differences(parents),
    ordinals,
    scored: differences(scores.map((_, place) => place + 1)),
    scores: scores.map((_, place) => place),
    scoreTable: scores.map((score) => [score, "value", null, [score]]),
    decided: differences(decided.map(([node]) => node)),
    decisions: decided.map((_, place) => place),
    decisionTable: decided.map(([, state]) => [state, "rule"]),
  });
  recording.setTexts(0, texts);
  return recording;
}
