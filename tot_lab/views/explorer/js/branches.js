/**
 * Expanding branches of a tree, and ancestors of matches.
 *
 * `above` contains the parent of each thought in the picture, -1 for a root (`layoutParents` in scene.js). A thought
 * comes after its parent, so a single pass is enough.
 */

/** A branch with more thoughts than this expands one level at a time. */
const MANY = 300;

/**
 * Returns `collapsed` after expanding `node`. A large branch is expanded by one level only.
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
 * Returns `collapsed` after expanding all ancestors of `node`.
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
 * Returns a mask of the matches and their ancestors.
 * @param {Int32Array} above
 * @param {Uint8Array} matches
 */
export function leading(above, matches) {
  const kept = matches.slice();
  for (let node = kept.length; node--; ) if (kept[node]) kept[above[node]] = 1; // has no effect for a root
  return kept;
}
