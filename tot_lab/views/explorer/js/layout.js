/**
 * Positions of the nodes of a tree, by the same algorithms as tot_lab/views/figures/layout.py.
 *
 * The steps have the same order, so that both round equally; tests compare both with tests/golden/layouts.json.
 * Typed arrays keep the layout of 100,000 nodes within about one frame. The input must be a tree.
 */

import { between, floats, grouped, integers, max, min } from "./numbers.js";

const GOES_ON = 4; // weight of a line to a node with children
const SPREAD = 2; // room, in widths of the widest level
const ROUNDS = 4;

/** @typedef {{x: Float64Array, y: Float64Array}} Places */

/**
 * Returns the tree with an additional node, number `count`, above all roots. The children of `node` are the elements
 * of `children` from `starts[node]` to `starts[node + 1]`. `order` is breadth first. `above` contains each parent.
 * @param {ArrayLike<number>} parents
 */
const family = (parents) => {
  const count = parents.length;
  const above = integers(count);
  for (let node = 0; node < count; node++) above[node] = parents[node] < 0 ? count : parents[node];
  const { starts, members: children } = grouped(above, count + 1);
  const order = integers(count + 1);
  order[0] = count;
  let known = 1;
  for (let at = 0; at < known; at++) {
    for (let place = starts[order[at]]; place < starts[order[at] + 1]; place++) order[known++] = children[place];
  }
  return { count, above, starts, children, order };
};

/** Returns x packed to the left, with the root at 0. Names follow the paper.
 * @param {ReturnType<typeof family>} tree */
const packed = ({ count, above, starts, children, order }) => {
  const [prelim, mod, change, shift, x, sums] = Array.from({ length: 6 }, () => floats(count + 1));
  const number = integers(count + 1);
  const ancestor = number.map((_, node) => node);
  /** @param {number} node */
  const leaf = (node) => starts[node] === starts[node + 1];
  // The first and the last child. For a leaf, both return the thread.
  const nextLeft = number.map((_, node) => (leaf(node) ? -1 : children[starts[node]]));
  const nextRight = number.map((_, node) => (leaf(node) ? -1 : children[starts[node + 1] - 1]));
  /** @param {number} node */
  const middle = (node) => (leaf(node) ? 0 : (prelim[nextLeft[node]] + prelim[nextRight[node]]) / 2);

  /** @param {number} node @param {number} left @param {number} first @param {number} fallback */
  const apportion = (node, left, first, fallback) => {
    let [insideRight, outsideRight, insideLeft, outsideLeft] = [node, node, left, first];
    let [sumIR, sumOR, sumIL, sumOL] = [mod[node], mod[node], mod[left], mod[first]];
    let [belowLeft, belowRight] = [nextRight[left], nextLeft[node]];
    while (belowLeft >= 0 && belowRight >= 0) {
      insideLeft = belowLeft;
      insideRight = belowRight;
      outsideLeft = nextLeft[outsideLeft];
      outsideRight = nextRight[outsideRight];
      ancestor[outsideRight] = node;
      const push = prelim[insideLeft] + sumIL - prelim[insideRight] - sumIR + 1;
      if (push > 0) {
        let pushing = ancestor[insideLeft];
        if (above[pushing] !== above[node]) pushing = fallback;
        const share = push / (number[node] - number[pushing]);
        change[node] -= share;
        shift[node] += push;
        change[pushing] += share;
        prelim[node] += push;
        mod[node] += push;
        sumIR += push;
        sumOR += push;
      }
      sumIL += mod[insideLeft];
      sumIR += mod[insideRight];
      sumOL += mod[outsideLeft];
      sumOR += mod[outsideRight];
      belowLeft = nextRight[insideLeft];
      belowRight = nextLeft[insideRight];
    }
    if (belowLeft >= 0 && nextRight[outsideRight] < 0) {
      nextLeft[outsideRight] = nextRight[outsideRight] = belowLeft;
      mod[outsideRight] += sumIL - sumOR;
    }
    if (belowRight < 0 || nextLeft[outsideLeft] >= 0) return fallback;
    nextLeft[outsideLeft] = nextRight[outsideLeft] = belowRight;
    mod[outsideLeft] += sumIR - sumOL;
    return node;
  };

  for (let at = count; at >= 0; at--) {
    const [begin, end] = [starts[order[at]], starts[order[at] + 1]];
    let fallback = children[begin];
    for (let place = begin; place < end; place++) {
      const node = children[place];
      number[node] = place;
      prelim[node] = middle(node);
      if (place === begin) continue;
      const left = children[place - 1];
      const centre = prelim[node];
      prelim[node] = prelim[left] + 1;
      if (!leaf(node)) mod[node] = prelim[node] - centre;
      fallback = apportion(node, left, children[begin], fallback);
    }
    let [shifted, changed] = [0, 0];
    for (let place = end - 1; place >= begin; place--) {
      const node = children[place];
      prelim[node] += shifted;
      mod[node] += shifted;
      changed += change[node];
      shifted += shift[node] + changed;
    }
  }
  sums[count] = -middle(count);
  for (const node of order.subarray(1)) {
    x[node] = prelim[node] + sums[above[node]];
    sums[node] = sums[above[node]] + mod[node];
  }
  return x;
};

/** @param {Float64Array} x */
const fromZero = (x) => {
  const least = x.reduce((a, b) => min(a, b), Infinity);
  return x.map((place) => place - least);
};

/**
 * Places each parent above the middle of its children. Equal subtrees are drawn equally.
 * @param {ArrayLike<number>} parents for each node the index of its parent, -1 for a root
 * @returns {Places} x in distances between two siblings, from 0; y in steps below the root
 */
export const tidy = (parents) => {
  const tree = family(parents);
  const { count, above, order } = tree;
  const left = packed(tree);
  // The mirror image is the same tree with its nodes numbered in reverse.
  const right = packed(family(above.map((_, node) => count - 1 - above[count - 1 - node])));
  const x = left.slice(0, count).map((place, node) => (place - right[count - 1 - node]) / 2);
  const y = floats(count + 1).fill(-1);
  for (const node of order.subarray(1)) y[node] = y[above[node]] + 1;
  return { x: fromZero(x), y: y.subarray(0, count) };
};

/**
 * Places wide beams and deep paths. The drawing is at most twice as wide as the widest level.
 * @param {ArrayLike<number>} parents @param {Places} [places] what `tidy` returns for them @returns {Places}
 */
export const layered = (parents, { x: start, y } = tidy(parents)) => {
  const { count, starts, order } = family(parents);
  // From here on, nodes are identified by their index in `order`. The children of `at` are the range from
  // `below[at]` to `below[at + 1]`. A level is the range from `levels[depth]` to `levels[depth + 1]`.
  const above = integers(count + 1);
  const below = integers(count + 2);
  const weight = floats(count + 1).fill(1);
  const levels = [0, 1];
  let [widest, first] = [1, 1];
  for (let at = 0; at <= count; at++) {
    below[at] = first;
    const children = starts[order[at] + 1] - starts[order[at]];
    above.fill(at, first, first + children);
    first += children;
    if (children) weight[at] = GOES_ON;
    if (at + 1 === levels[levels.length - 1] && first > at + 1) {
      levels.push(first);
      widest = max(widest, first - at - 1);
    }
  }
  below[count + 1] = first;
  const room = SPREAD * widest;
  const width = start.reduce((a, b) => max(a, b), 0);
  const scale = min(1, room / (width + 1));
  const x = floats(count + 1);
  for (let at = 1; at <= count; at++) x[at] = (start[order[at]] - width / 2) * scale;

  const [wanted, weights, lengths] = Array.from({ length: 3 }, () => floats(widest));
  /** Places the nodes of a level according to the levels above and below. @param {number} level */
  const settle = (level) => {
    const [begin, end] = [levels[level], levels[level + 1]];
    let blocks = 0;
    for (let node = begin; node < end; node++) {
      let total = weight[node];
      let pooled = total * x[above[node]];
      for (let child = below[node]; child < below[node + 1]; child++) {
        total += weight[child];
        pooled += weight[child] * x[child];
      }
      pooled -= total * (node - begin);
      let length = 1;
      while (blocks && wanted[blocks - 1] * total > pooled * weights[blocks - 1]) {
        blocks--;
        pooled += wanted[blocks];
        total += weights[blocks];
        length += lengths[blocks];
      }
      wanted[blocks] = pooled;
      weights[blocks] = total;
      lengths[blocks++] = length;
    }
    let node = begin;
    for (let block = 0; block < blocks; block++) {
      const middle = between(wanted[block] / weights[block], (1 - room) / 2, (room + 1) / 2 - (end - begin));
      for (const stop = node + lengths[block]; node < stop; node++) x[node] = middle + (node - begin);
    }
  };
  for (let round = 0; round < ROUNDS; round++) {
    for (let level = levels.length - 2; level > 0; level--) settle(level);
    for (let level = 1; level < levels.length - 1; level++) settle(level);
  }
  const places = floats(count);
  for (let at = 1; at <= count; at++) places[order[at]] = x[at];
  return { x: fromZero(places), y };
};

/** Ratio of the width of a tidy drawing to that of its widest level above which the layered layout is used. */
const WASTEFUL = 2.5;

/** Returns whether a tidy drawing is much wider than its widest level. @param {Places} places */
export const wasteful = ({ x, y }) => {
  /** @type {number[]} */
  const widths = [];
  for (const level of y) widths[level] = (widths[level] ?? 0) + 1;
  const width = greatest(x) + 1;
  return width > 30 && width > WASTEFUL * greatest(widths);
};

/** Returns the greatest of `values`, which are at least 0. @param {Iterable<number>} values */
export const greatest = (values) => {
  let most = 0;
  for (const value of values) if (value > most) most = value;
  return most;
};
