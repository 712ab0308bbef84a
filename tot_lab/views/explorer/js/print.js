/**
 * What only paper shows: why a run failed, and the path to its answer with full texts.
 *
 * Printing cannot wait. So texts that a recording truncates are requested when a run has ended.
 */

import { fateOf, outsideOf } from "./details.js";
import { dotted, h, put, short } from "./dom.js";
import { rendered } from "./rich.js";

/** Number of characters from which a recording truncates a text: `LONGEST` in recording.py. */
const TRUNCATED = 1000;

/** @param {import("./app.js").App} app */
export function sheetOf(app) {
  const { source } = app;
  const element = h("section.texts");
  /** Texts of thoughts that are truncated or contain formulas. @type {Map<string, {text: string, formulas?: import("./rich.js").Formulas}>} */
  const texts = new Map();

  /** Returns the thoughts from the question to the answer, or to the best thought. @param {number} which */
  const pathOf = (which) => {
    const { best, leader } = app.frameOf(which);
    const path = [];
    for (let node = best < 0 ? leader : best; node >= 0; node = source.runs[which].parent[node]) path.unshift(node);
    return path;
  };
  /** @param {number} which @param {number} node */
  const keyOf = (which, node) => `${source.runs[which].about.id} ${node}`;

  const written = (/** @type {{text: string, formulas?: import("./rich.js").Formulas}} */ { text, formulas }) => h("pre", rendered(text, formulas));

  return {
    element,
    /** Requests the truncated texts of runs that have ended. */
    fetch() {
      source.runs.forEach((recording, which) => {
        for (const node of recording.ended ? pathOf(which) : []) {
          const key = keyOf(which, node);
          const text = recording.text(node);
          if (texts.has(key) || (text.length <= TRUNCATED && !/[$\\]/.test(text))) continue;
          texts.set(key, { text });
          source.details(which, node).then((details) => texts.set(key, details), () => texts.delete(key));
        }
      });
    },
    /** @param {boolean} on */
    print(on) {
      element.replaceChildren();
      if (!on) return;
      put(element, source.runs.map((recording, which) => [
        h("h3", `${source.runs.length > 1 ? `${"AB"[which]}: ` : ""}${short(recording.about.question || "a search", 160)}`),
        app.ids().length > 0 && // else the details show them
          source.facts(which).findings.map(({ kind, text }) => h("p", h("b", `${kind.replaceAll("_", " ")}: `), text)),
        pathOf(which).map((node) => [
          h("h4", dotted(`thought ${recording.id(node)}`, fateOf(app.frameOf(which), node, source.facts(which)), outsideOf(source.facts(which), recording.id(node)))),
          written(texts.get(keyOf(which, node)) ?? { text: recording.text(node) }),
        ]),
      ]));
    },
  };
}
