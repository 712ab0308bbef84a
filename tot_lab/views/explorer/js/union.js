/**
 * One layout for two trees that are compared: matching thoughts have the same position.
 *
 * @typedef {{x: Float64Array, y: Float64Array, width: number, height: number}} Union  places of the thoughts of one run,
 *   and the extent of the drawing of both
 */

import { greatest, layered, tidy, wasteful } from "./layout.js";
import { floats, integers } from "./numbers.js";
import { hiddenNodes, layoutParents } from "./scene.js";

/**
 * Returns the places of the shown thoughts of both runs. Thoughts that only the second run has follow their siblings.
 * @param {import("./recording.js").Frame[]} frames
 * @param {Pick<import("./scene.js").View, "collapsed" | "only">[]} views
 * @param {Int32Array} pairOfB the matching thought of the first run for each thought of the second, -1 for none
 * @returns {Union[]}
 */
export function unionOf(frames, views, pairOfB) {
  /** The parents in the union, and the place of each thought in it. @type {number[]} */
  const parents = [];
  const spots = frames.map(({ nodes }) => integers(nodes).fill(-1));
  frames.forEach((frame, which) => {
    const above = layoutParents(frame.run, frame);
    const gone = hiddenNodes(above, views[which]);
    const spot = spots[which];
    for (const node of frame.run.order()) {
      if (node >= frame.nodes || gone[node]) continue;
      const twin = which ? pairOfB[node] : -1;
      spot[node] = twin >= 0 ? spots[0][twin] : -1;
      if (spot[node] < 0) spot[node] = parents.push(above[node] < 0 ? -1 : spot[above[node]]) - 1;
    }
  });
  const tidied = tidy(parents);
  const { x, y } = wasteful(tidied) ? layered(parents) : tidied;
  const extent = { width: greatest(x), height: greatest(y) };
  return spots.map((spot) => ({
    x: floats(spot.length).map((_, node) => x[spot[node]] ?? 0),
    y: floats(spot.length).map((_, node) => y[spot[node]] ?? 0),
    ...extent,
  }));
}
