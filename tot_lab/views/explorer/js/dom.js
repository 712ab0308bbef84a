/**
 * Helpers that create DOM elements and format amounts.
 *
 * A string only becomes a text node or the value of a harmless attribute, so that model output is never interpreted
 * as markup.
 */

import { floor, round } from "./numbers.js";

/**
 * @typedef {Node | string | null | undefined | false | readonly any[]} Child
 * @typedef {Record<string, unknown>} Attributes functions such as `onclick` become listeners; true sets an attribute, false and null omit it
 */

/**
 * Creates an element: `h("p.quiet", {title: "…"}, "text")` is a paragraph of class tl-quiet.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T | `${T}.${string}`} what
 * @param {...(Attributes | Child)} given
 * @returns {HTMLElementTagNameMap[T]}
 */
export function h(what, ...given) {
  const [tag, name] = what.split(".");
  const element = /** @type {HTMLElementTagNameMap[T]} */ (document.createElement(tag));
  if (name) element.className = `tl-${name}`;
  return put(element, ...given);
}

/**
 * Adds attributes and children to `element`. Empty values are ignored.
 * @template {Element} T
 * @param {T} element
 * @param {...(Attributes | Child)} given
 */
export function put(element, ...given) {
  for (const one of /** @type {any[]} */ (given).flat(9)) {
    if (typeof one === "string" || one instanceof Node) element.append(one);
    else
      for (const [name, value] of Object.entries(one || {})) {
        if (typeof value === "function") element.addEventListener(name.slice(2), value);
        else if (value != null && value !== false) element.setAttribute(name, value === true ? "" : value);
      }
  }
  return element;
}

/** The inputs from which each element was last built. @type {WeakMap<Element, string>} */
const known = new WeakMap();

/**
 * Replaces the content of `element` by the result of `build` if `given` has changed. Open sections and the focus are
 * preserved.
 * @param {Element} element
 * @param {unknown[]} given
 * @param {() => Child} build
 */
export function renew(element, given, build) {
  const now = JSON.stringify(given);
  if (known.get(element) === now) return;
  known.set(element, now);
  const inside = () => {
    /** Elements by their name, and the number of those before them with the same name. @type {Map<string, HTMLElement>} */
    const all = new Map();
    for (const one of /** @type {NodeListOf<HTMLElement>} */ (element.querySelectorAll("button, summary, textarea, details"))) {
      const name = one.tagName + (one.querySelector("b") ?? one).textContent;
      let place = 0;
      while (all.has(name + place)) place++;
      all.set(name + place, one);
    }
    return all;
  };
  const before = inside();
  const focused = document.activeElement;
  element.replaceChildren();
  put(element, build());
  for (const [name, one] of inside()) {
    const old = before.get(name);
    if (old?.matches("details[open]")) put(one, { open: true });
    if (old && old === focused) one.focus();
  }
}

/** Sets a text. The DOM is changed only if the text differs. @param {Element} element @param {string} text */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * Creates a button. If its content is a single character, the title is its accessible name.
 * @param {Child} face
 * @param {() => void} onclick
 * @param {string} [title]
 * @param {"plain" | "flat" | "link" | "item" | "finding" | "step" | "card"} [kind]
 */
export const button = (face, onclick, title, kind = "plain") =>
  h(`button.${kind}`, { type: "button", title, "aria-label": String(face).length < 2 && title, onclick }, face);

/**
 * Creates an input field with its label as the placeholder.
 * @template {"input" | "textarea"} T
 * @param {T} tag
 * @param {string} label
 * @param {...(Attributes | Child)} given
 */
export const field = (tag, label, ...given) => h(tag, { "aria-label": label, placeholder: label }, ...given);

/** @param {Element} element @param {boolean} on */
export const press = (element, on) => put(element, { "aria-pressed": `${on}` });

/** Formats a count with thousands separators. (The first call of `toLocaleString` takes 20 ms.) NaN is "unknown".
 * @param {number} amount */
export const number = (amount) => (isNaN(amount) ? "unknown" : `${amount}`.replace(/\B(?=(\d{3})+$)/g, ","));

/** Formats a number with its noun. @param {number} amount @param {string} one @param {string} [many] */
export const count = (amount, one, many = `${one}s`) => `${number(amount)} ${amount === 1 ? one : many}`;

/** Formats a score with few digits. @param {number} score */
export const brief = (score) => (isNaN(score) ? "none" : `${+score.toPrecision(3)}`);

/** Formats a score for a label, where small ones have no room. @param {number} score */
export const tiny = (score) => (score > 0 && score < 0.001 ? "<0.001" : brief(score));

/** Formats an amount of USD as `money` in run.py does. @param {number} amount */
export const money = (amount) =>
  isNaN(amount)
    ? "unknown"
    : `$${amount < 0.01 ? +amount.toPrecision(2) : amount.toFixed(amount < 1 ? 4 : 2)}`;

/** Formats a duration. NaN is "unknown time". @param {number} amount in seconds */
export const seconds = (amount) =>
  isNaN(amount)
    ? "unknown time"
    : amount < 1
      ? `${round(amount * 1000)} ms`
      : amount < 60
        ? `${amount.toFixed(1)} s`
        : `${floor(amount / 60)} min ${round(amount % 60)} s`;

/** Returns `text` on one line of at most `most` characters. @param {string} text @param {number} most */
export function short(text, most) {
  const line = text
    .slice(0, most * 4)
    .replace(/\s+/g, " ")
    .trim();
  return line.length > most ? `${line.slice(0, most - 1)}…` : line;
}

/** Joins the non-empty parts of `parts` on one line. @param {...(string | false | null | undefined | 0)} parts */
export const dotted = (...parts) => parts.filter(Boolean).join(" · ");
