/**
 * Text of a model as elements: JSON is indented, and Markdown and formulas are shown as such.
 *
 * Only text nodes and elements of a fixed list are created, so nothing in a text is interpreted by the browser. Links,
 * images and HTML stay as they were written. So do formulas that Python could not read (mathml.py).
 *
 * @typedef {Record<string, any[]>} Formulas elements `[tag, attributes, …children]` by the source of a formula
 */

import { Lexer, Tokenizer } from "marked";
import { button, h, number, put, say } from "./dom.js";

/** @typedef {import("./dom.js").Child} Child */

/** Number of characters that are shown before a click on "all". Longer texts are not rendered. */
const FOLD = 10_000;

/** Maximum number of signs of emphasis in a text. Each one can take time proportional to the text. */
const SIGNS = 2000;

const MATH = "http://www.w3.org/1998/Math/MathML";

/** The same as `FORMULA` in mathml.py. */
const FORMULA = new RegExp(
  [
    /\$\$(?:(?!\$\$|\n[ \t]*\n)[^])+\$\$/,
    /\$(?![\s$])(?:[^$\n\\]|\\[^\n])+(?<!\s)\$(?!\d)/,
    /\\\[(?:(?!\\\[|\\\]|\n[ \t]*\n)[^])+\\\]/,
    /\\\((?:(?!\\\(|\\\)|\n[ \t]*\n)[^])+\\\)/,
    /\\begin\{(?<name>(?:align|gather|equation|multline)\*?)\}(?:(?!\\begin\{\k<name>\}|\n[ \t]*\n)[^])+?\\end\{\k<name>\}/,
  ].map((one) => one.source).join("|"),
  "y",
);

/** @param {string} src */
function formulaAt(src) {
  FORMULA.lastIndex = 0;
  const raw = FORMULA.exec(src)?.[0];
  return raw && { type: "formula", raw };
}

/** @param {string} src */
function blockAt(src) {
  const found = /^(\$\$|\\\[|\\begin)/.test(src) ? formulaAt(src) : undefined;
  const end = found && /^[ \t]*(\n|$)/.exec(src.slice(found.raw.length));
  return end ? { ...found, formula: found.raw, raw: found.raw + end[0] } : undefined;
}

class Reader extends Tokenizer {
  signs = 0;
  /** Products such as 2*3*4 are not emphasis. @param {string} src @param {string} masked @param {string} [before] */
  emStrong(src, masked, before = "") {
    const raw = /^[*_]+/.exec(src)?.[0];
    if (!raw) return undefined;
    if (++this.signs > SIGNS || (/[^\W_]|[)\]]/.test(before) && /^\*+[\w([]/.test(src)))
      return /** @type {any} */ ({ type: "text", raw, text: raw });
    return super.emStrong(src, masked, before);
  }
  /** @param {string} src @param {string} masked @param {string} [before] */
  del(src, masked, before) {
    return src.startsWith("~~") ? super.del(src, masked, before) : undefined;
  }
}

/** @param {string} text */
function tokensOf(text) {
  const formulas = {
    inline: [formulaAt],
    block: [blockAt],
    startInline: [(/** @type {string} */ src) => src.search(/\$|\\[([b]/)],
    startBlock: [(/** @type {string} */ src) => src.search(/^(?:\$\$|\\\[|\\begin)/m)],
    childTokens: {},
    renderers: {},
  };
  return new Lexer({ gfm: true, tokenizer: new Reader(), extensions: /** @type {any} */ (formulas) }).lex(text);
}

/** @param {any[] | string} part @returns {Node | string} */
function mathOf(part) {
  if (typeof part === "string") return part;
  const [tag, attributes, ...children] = part;
  return put(document.createElementNS(MATH, tag), attributes, children.map(mathOf));
}

/** Returns JSON with indentation, "" if `text` is not an object or a list. @param {string} text */
function indented(text) {
  if (!/^\s*[[{]/.test(text)) return "";
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return "";
  }
}

/** @type {Record<string, "b" | "em" | "s" | "blockquote">} */
const TAGS = { strong: "b", em: "em", del: "s", blockquote: "blockquote" };

/** @param {any} token @param {Formulas} formulas @returns {Child} */
function shown(token, formulas) {
  const inside = (/** @type {any} */ { tokens, text }) => (tokens ? tokens.map((/** @type {any} */ one) => shown(one, formulas)) : text);
  const cells = (/** @type {"td" | "th"} */ tag, /** @type {any[]} */ row) =>
    h("tr", row.map((cell) => h(tag, { align: cell.align }, inside(cell))));
  switch (token.type) {
    case "space":
      return null;
    case "formula": {
      const source = token.formula ?? token.raw;
      return Object.hasOwn(formulas, source) ? mathOf(formulas[source]) : h("code", source);
    }
    case "code":
      return h("code.block", indented(token.text) || token.text);
    case "codespan":
      return h("code", token.text);
    case "heading":
      return h("p", h("b", inside(token)));
    case "paragraph":
      return h("p", inside(token));
    case "hr":
      return h("hr");
    case "list":
      return h(
        token.ordered ? "ol" : "ul",
        token.items.map((/** @type {any} */ item) => h("li", { value: /^\s*(\d+)/.exec(item.raw)?.[1] }, inside(item))),
      );
    case "table":
      return h("table.grid", h("thead", cells("th", token.header)), token.rows.map((/** @type {any[]} */ row) => cells("td", row)));
    case "text":
    case "escape":
      return inside(token);
    default:
      return TAGS[token.type] ? h(TAGS[token.type], inside(token)) : token.raw;
  }
}

/** Renders a whole text. @param {string} text @param {Formulas} [formulas] @returns {Child[]} */
export function rendered(text, formulas = {}) {
  const json = indented(text);
  if (json) return [h("code", json)];
  try {
    return tokensOf(text).map((token) => shown(token, formulas));
  } catch (error) {
    if (error instanceof RangeError) return [text]; // nested too deeply
    throw error;
  }
}

/** Builds a text. A long text is truncated, and written as it is, until a click. @param {string} words
 * @param {Formulas} [formulas] */
export function textOf(words, formulas) {
  if (words.length <= FOLD) return h("pre", { dir: "auto" }, rendered(words, formulas));
  const body = h("pre", { dir: "auto" }, words.slice(0, FOLD));
  const rest = button(`all ${number(words.length)} characters`, () => {
    say(body, words);
    rest.remove();
  });
  return [body, rest];
}
