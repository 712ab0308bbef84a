/**
 * Text of a model as elements: JSON is indented, and code, headings, bold and inline code of Markdown are shown as such.
 *
 * Only text nodes are created, so nothing in a text is interpreted by the browser. Everything else of Markdown stays as
 * it was written.
 */

import { button, h, number, say } from "./dom.js";

/** @typedef {import("./dom.js").Child} Child */

/** Number of characters that are shown before a click on "all". Longer texts are not rendered. */
const FOLD = 10_000;

/** Returns JSON with indentation, "" if `text` is not an object or a list. @param {string} text */
function indented(text) {
  if (!/^\s*[[{]/.test(text)) return "";
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return "";
  }
}

/** Renders bold and inline code of one line. @param {string} line @returns {Child[]} */
const inline = (line) =>
  line.split(/(`[^`\n]+`|(?<![^\s(])\*\*(?=\S)[^*\n]+\*\*(?![^\s.,;:!?)]))/).map((part, place) => {
    if (!(place % 2)) return part;
    return part[0] === "`" ? h("code", part.slice(1, -1)) : h("b", part.slice(2, -2));
  });

/** Renders the lines outside blocks of code. @param {string} text @returns {Child[]} */
const prose = (text) =>
  text.split("\n").map((line, place) => {
    const heading = /^#{1,6} +(.+)$/.exec(line);
    return [place > 0 && "\n", heading ? h("b", ...inline(heading[1])) : inline(line)];
  });

/** Renders a whole text. @param {string} text @returns {Child[]} */
export function rendered(text) {
  const json = indented(text);
  if (json) return [h("code", json)];
  // Odd parts are the contents of blocks of code.
  const parts = text.split(/^ {0,3}```[^\n`]*\n([\s\S]*?)^ {0,3}```[ \t]*$/m);
  return parts.map((part, place) => (place % 2 ? h("code.block", indented(part) || part.replace(/\n$/, "")) : prose(part)));
}

/** Builds a text. A long text is truncated, and written as it is, until a click. @param {string} words */
export function textOf(words) {
  if (words.length <= FOLD) return h("pre", { dir: "auto" }, rendered(words));
  const body = h("pre", { dir: "auto" }, words.slice(0, FOLD));
  const rest = button(`all ${number(words.length)} characters`, () => {
    say(body, words);
    rest.remove();
  });
  return [body, rest];
}
