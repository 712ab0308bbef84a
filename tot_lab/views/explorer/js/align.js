/**
 * Alignment of two runs: pairs of corresponding thoughts, and their differences.
 *
 * comparing.py implements and describes the same algorithm. Both implementations are linear and not recursive.
 *
 * @typedef {"only-a" | "only-b" | "text" | "score" | "state"} Kind
 * @typedef {{kind: Kind, a: number, b: number, size: number}} Difference  a, b: nodes, -1 if missing; size: number of
 *   thoughts in a branch that only one run has, else 1
 * @typedef {import("./recording.js").Recording} Recording
 */

/**
 * @param {Recording} a
 * @param {import("./recording.js").Frame} frameA
 * @param {Recording} b
 * @param {import("./recording.js").Frame} frameB
 * @returns for each run the matching node of each node, -1 if there is none; differences in tree order (depth first);
 *   the number of matching thoughts, and the number of identical thoughts
 */
export function align(a, frameA, b, frameB) {
  const pairOfA = new Int32Array(frameA.nodes).fill(-1);
  const pairOfB = new Int32Array(frameB.nodes).fill(-1);
  const [sizeA, sizeB] = [sizes(a, frameA.nodes), sizes(b, frameB.nodes)];
  const counts = { matched: 0, same: 0 };
  /** @type {Difference[]} */
  const differences = [];
  const waiting = together(-1, -1);
  while (waiting.length) {
    const [one, other] = /** @type {[number, number]} */ (waiting.pop());
    const before = differences.length;
    /** @type {(kind: Kind, differs: boolean, size?: number) => void} */
    const add = (kind, differs, size = 1) => {
      if (differs) differences.push({ kind, a: one, b: other, size });
    };
    add("only-a", other < 0, sizeA[one]);
    add("only-b", one < 0, sizeB[other]);
    if (one < 0 || other < 0) continue;
    add("text", a.text(one) !== b.text(other));
    add("score", !Object.is(frameA.score[one] + 0, frameB.score[other] + 0)); // NaN equals NaN, -0 equals 0
    add("state", frameA.state[one] !== frameB.state[other]);
    counts.matched++;
    if (differences.length === before) counts.same++;
    for (const pair of together(one, other)) waiting.push(pair);
  }
  return { pairOfA, pairOfB, differences, counts };

  /**
   * Pairs the children of two matched thoughts, in descending order of their numbers. -1 means no match.
   * @param {number} one
   * @param {number} other
   */
  function together(one, other) {
    const ofA = a.childrenOf(one).filter((node) => node < frameA.nodes);
    const ofB = b.childrenOf(other).filter((node) => node < frameB.nodes);
    /** @type {(key: (recording: Recording, node: number) => string | number) => void} */
    const pair = (key) => {
      /** @type {Map<string | number, number[]>} */
      const known = new Map();
      for (const node of ofB.slice().reverse()) {
        const its = key(b, node);
        if (pairOfB[node] < 0 && its !== "") known.get(its)?.push(node) ?? known.set(its, [node]);
      }
      for (const node of ofA) {
        const found = pairOfA[node] < 0 && known.get(key(a, node))?.pop();
        if (typeof found === "number") [pairOfA[node], pairOfB[found]] = [found, node];
      }
    };
    pair((recording, node) => recording.text(node) && `${recording.ordinal[node]} ${recording.text(node)}`);
    pair((recording, node) => recording.text(node));
    pair(({ ordinal }, node) => ordinal[node]);
    /** @type {[number, number][]} */
    const pairs = Array.from(ofA, (node) => [node, pairOfA[node]]);
    for (const node of ofB) if (pairOfB[node] < 0) pairs.push([-1, node]);
    /** @type {(pair: [number, number]) => number} */
    const number = ([x, y]) => a.ordinal[x] ?? b.ordinal[y];
    return pairs.sort((x, y) => number(y) - number(x) || x[0] - y[0]);
  }
}

/**
 * Returns the number of thoughts in the branch of each of the first `nodes` thoughts.
 * @param {Recording} recording
 * @param {number} nodes
 */
function sizes(recording, nodes) {
  const size = new Int32Array(nodes).fill(1);
  for (let node = nodes - 1; node >= 0; node--) {
    const above = recording.parent[node]; // a parent has a smaller number than its children
    if (above >= 0) size[above] += size[node];
  }
  return size;
}
