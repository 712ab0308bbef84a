/** The words in which two texts differ. */

import { h } from "./dom.js";
import { integers, max } from "./numbers.js";

/** Maximum number of words and spaces of each text that are compared. The time is quadratic in it. */
const WORDS = 1000;

/**
 * Returns the parts of two texts in order: 0 for words in both, -1 for words only in `one`, 1 for words only in `other`.
 * @param {string} one @param {string} other @returns {{side: number, text: string}[]}
 */
export function wordsOf(one, other) {
  const [a, b] = [one, other].map((text) => text.split(/(\s+)/).filter(Boolean).slice(0, WORDS));
  const wide = b.length + 1;
  const longest = integers((a.length + 1) * wide); // common words from (i, j) on
  for (let i = a.length; i--; )
    for (let j = b.length; j--; )
      longest[i * wide + j] =
        a[i] === b[j]
          ? longest[(i + 1) * wide + j + 1] + 1
          : max(longest[(i + 1) * wide + j], longest[i * wide + j + 1]);
  /** @type {{side: number, text: string}[]} */
  const parts = [];
  /** @param {number} side @param {string} text */
  const add = (side, text) => {
    const last = parts[parts.length - 1];
    if (last?.side === side) last.text += text;
    else parts.push({ side, text });
  };
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      add(0, a[i++]);
      j++;
    } else if (j >= b.length || (i < a.length && longest[(i + 1) * wide + j] >= longest[i * wide + j + 1])) add(-1, a[i++]);
    else add(1, b[j++]);
  }
  return parts;
}

/** Builds the differences of two texts. @param {string} one @param {string} other */
export const diffOf = (one, other) =>
  h("pre", { dir: "auto" }, wordsOf(one, other).map(({ side, text }) => (side ? h(side < 0 ? "del" : "ins", text) : text)));
