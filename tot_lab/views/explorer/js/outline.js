/**
 * An accessible outline: an ARIA tree over the canvas with one tab stop and the keys of the ARIA tree pattern.
 *
 * The outline contains the visible thoughts of the scene, depth first. Only rows near the active one exist in the DOM,
 * so that the cost does not depend on the number of thoughts.
 */

import { grouped, max, min } from "./numbers.js";
import { brief, h, put, renew, short } from "./dom.js";

/** @typedef {import("./scene.js").Scene} Scene */

/** Number of rows in the DOM on either side of the active one. */
const NEAR = 10;

/**
 * Returns the rows of a scene: the slot of each row, the row and level of each slot, children, and targets of keys.
 * @param {Scene} scene
 */
export function rowsOf({ count, parents, hidden }) {
  const { starts, members } = grouped(
    parents.map((parent) => parent + 1),
    count + 1,
  );
  /** @param {number} slot -1 for the roots */
  const childrenOf = (slot) => members.subarray(starts[slot + 1], starts[slot + 2]);
  const [slots, rows, levels] = [0, 0, 0].map(() => new Int32Array(count));
  const waiting = [...childrenOf(-1)].reverse();
  for (let row = 0; row < count; row++) {
    const slot = /** @type {number} */ (waiting.pop());
    levels[slot] = (levels[parents[slot]] ?? 0) + 1;
    rows[slot] = row;
    slots[row] = slot;
    for (const child of childrenOf(slot).slice().reverse()) waiting.push(child);
  }

  /**
   * Returns the slot to which a key moves from `slot`, -1 if the key opens or closes it, undefined for other keys.
   * @param {string} key
   * @param {number} slot
   * @returns {number | undefined}
   */
  function move(key, slot) {
    const row = rows[slot];
    const parent = parents[slot] < 0 ? slot : parents[slot];
    const siblings = childrenOf(parents[slot]);
    const place = siblings.indexOf(slot);
    const [child] = childrenOf(slot);
    return {
      ArrowDown: slots[row + 1] ?? slot,
      ArrowUp: slots[row - 1] ?? slot,
      ArrowRight: hidden[slot] ? -1 : (child ?? slot),
      ArrowLeft: child === undefined ? parent : -1,
      u: parent,
      Home: slots[0],
      End: slots[count - 1],
      n: siblings[place + 1] ?? slot,
      p: siblings[place - 1] ?? slot,
      Enter: slot,
    }[key];
  }
  return { slots, rows, levels, childrenOf, move };
}

let made = 0;

/**
 * @param {string} label
 * @param {(node: number) => void} select
 * @param {(node: number) => void} toggle
 */
export function outlineOf(label, select, toggle) {
  const prefix = `tl-${made++}-`;
  /** @type {Scene | undefined} */
  let scene;
  /** @type {ReturnType<typeof rowsOf>} */
  let tree;
  let active = 0;
  const list = h("div.unseen", { role: "presentation" });
  /** @param {KeyboardEvent} event */
  const onkeydown = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !scene?.count) return;
    const to = tree.move(event.key, active);
    if (to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    // If no thought is selected, the first key selects the active row.
    if (!scene.selected.length) select(scene.nodes[active]);
    else if (to < 0) toggle(scene.nodes[active]);
    else select(scene.nodes[to]);
  };
  const element = h("div.tree", { role: "tree", tabindex: 0, "aria-label": label, onkeydown }, list);

  /** @param {Scene} now @param {number} node the selected thought, -1 if there is none */
  const show = (now, node) => {
    if (now !== scene) tree = rowsOf(now);
    scene = now;
    const { slots, rows, levels, childrenOf } = tree;
    const slot = now.slot[node] ?? -1;
    active = slot < 0 ? max(min(active, now.count - 1), 0) : slot;
    const at = rows[active];
    const near = [...slots.subarray(max(at - NEAR, 0), at + NEAR + 1)].map((one) => {
      const siblings = childrenOf(now.parents[one]);
      return {
        id: prefix + one,
        role: "treeitem",
        "aria-level": levels[one],
        "aria-setsize": siblings.length,
        "aria-posinset": siblings.indexOf(one) + 1,
        "aria-expanded": now.children[one] > 0 && `${!now.hidden[one]}`,
        "aria-selected": `${one === slot}`,
        "aria-label":
          `thought ${now.recording.id(now.nodes[one])}, ${now.what(one)}` +
          `${isNaN(now.scores[one]) ? "" : `, score ${brief(now.scores[one])}`}: ${short(now.text(one), 140)}`,
      };
    });
    renew(list, near, () => near.map((row) => h("div", row)));
    put(element, { "aria-busy": `${!now.count}`, "aria-activedescendant": prefix + active });
  };
  return { element, show };
}
