/**
 * Addresses of what the explorer of a page shows: `#run=…&node=0.1.0&step=60&view=timeline`, and `with=…` for the second of
 * two runs.
 *
 * A selection or another view is a step of the browser's history. A movement in time only changes the address.
 */

import { VIEWS } from "./face.js";

/** @typedef {import("./app.js").App} App */

/** Milliseconds after which a movement in time is written. Browsers ignore faster changes. */
const PAUSE = 250;

/** Returns the address of what `app` shows. A step at the end and an empty selection are omitted. @param {App} app */
export function addressOf(app) {
  const [{ about, lines }, second] = app.source.runs;
  const { step } = app.frameOf(0);
  const parts = new URLSearchParams({ run: about.id });
  if (second) parts.set("with", second.about.id);
  const [node] = app.ids().slice(-1);
  if (node) parts.set("node", node);
  if (step < lines) parts.set("step", `${step}`);
  parts.set("view", app.view);
  return `#${parts}`;
}

/** Shows what an address names. Unknown parts, and the address of another run, are ignored. @param {App} app @param {string} address */
export function goTo(app, address) {
  const parts = new URLSearchParams(address.slice(1));
  const { about } = app.source.runs[0];
  if ((parts.get("run") ?? about.id) !== about.id) return;
  const view = VIEWS.find((one) => one === parts.get("view"));
  const there = { compare: app.source.runs.length > 1, plan: app.source.facts(0).plans.length > 0 };
  if (view && (there[/** @type {keyof typeof there} */ (view)] ?? true)) app.set({ view, viewed: true });
  const node = parts.get("node");
  app.show(node ? [node] : []);
  const step = parseInt(parts.get("step") ?? "");
  app.setStep(step >= 0 ? step : Infinity);
}

/** Keeps the address of the page equal to what `app` shows. Returns the functions to call after each drawing and at the end.
 * @param {App} app */
export function keepAddress(app) {
  if (!addressed()) return { shown() {}, end() {} };
  let written = location.hash;
  let waiting = 0;
  let first = true; // the first address only completes the one that was opened
  const lasting = (/** @type {string} */ address) => address.replace(/&step=\d+/, "");
  if (written) goTo(app, written);
  const back = () => {
    clearTimeout(waiting);
    written = location.hash;
    goTo(app, written);
  };
  addEventListener("popstate", back);
  const shown = () => {
    clearTimeout(waiting);
    const now = addressOf(app);
    if (now === written || app.playing) return;
    const write = () => {
      history[first || lasting(now) === lasting(written) ? "replaceState" : "pushState"](null, "", now);
      written = now;
      first = false;
    };
    if (lasting(now) === lasting(written)) waiting = window.setTimeout(write, PAUSE);
    else write();
  };
  const end = () => {
    clearTimeout(waiting);
    removeEventListener("popstate", back);
  };
  return { shown, end };
}

/** Whether the page has an address of its own: not inside a notebook. */
export const addressed = () => location.protocol !== "about:";

/** Returns the ids of the run and of the second run that an address names, null for those it does not name.
 * @param {string} address */
export const runsOf = (address) => ["run", "with"].map((name) => new URLSearchParams(address.slice(1)).get(name));
