/**
 * Questions about the branches of a tree.
 *
 * Rule: `above` says what each thought hangs on in the picture, -1 for a root (`layoutParents` in scene.js). A thought
 * comes after what it hangs on, so each question is answered in one pass, and nothing recurses.
 */

/** A branch of more thoughts than this opens one level at a time. */
const MANY = 300;

/**
 * `collapsed` with `node` opened, of a big branch one level only.
 * @param {Int32Array} above
 * @param {Set<number>} collapsed
 * @param {number} node
 */
export function opened(above, collapsed, node) {
  const open = new Set(collapsed);
  const inside = new Set([node]);
  const parents = new Set();
  open.delete(node);
  above.forEach((parent, one) => {
    if (!inside.has(parent)) return;
    inside.add(one);
    if (above[parent] === node) parents.add(parent);
  });
  return inside.size > MANY ? new Set([...open, ...parents]) : open;
}

/**
 * `collapsed` with all opened that hides `node`.
 * @param {Int32Array} above
 * @param {Set<number>} collapsed
 * @param {number} node
 */
export function revealed(above, collapsed, node) {
  const path = [];
  while ((node = above[node]) >= 0) path.unshift(node);
  for (const one of path) if (collapsed.has(one)) collapsed = opened(above, collapsed, one);
  return collapsed;
}

/**
 * What matches, and all that it hangs on, 1 by thought.
 * @param {Int32Array} above
 * @param {Uint8Array} matches
 */
export function leading(above, matches) {
  const kept = matches.slice();
  for (let node = kept.length; node--; ) if (kept[node]) kept[above[node]] = 1; // of a root this is nothing
  return kept;
}
