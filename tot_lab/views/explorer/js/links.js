/**
 * Addresses of what the explorer of a page shows: `#run=…&node=0.1.0&step=60&view=timeline`.
 *
 * A selection or another view is a step of the browser's history. A movement in time only changes the address.
 */

import { VIEWS } from "./face.js";

/** @typedef {import("./app.js").App} App */

/** Milliseconds after which a movement in time is written. Browsers ignore faster changes. */
const PAUSE = 250;

/** Returns the address of what `app` shows. Parts that have their default value are omitted. @param {App} app */
export function addressOf(app) {
  const [{ about, lines }] = app.source.runs;
  const { step } = app.frameOf(0);
  const parts = new URLSearchParams({ run: about.id });
  const [node] = app.ids().slice(-1);
  if (node) parts.set("node", node);
  if (step < lines) parts.set("step", `${step}`);
  parts.set("view", app.view);
  return `#${parts}`;
}

/** Shows what an address names. Unknown parts are ignored. @param {App} app @param {string} address */
export function goTo(app, address) {
  const parts = new URLSearchParams(address.slice(1));
  const view = VIEWS.find((one) => one === parts.get("view"));
  if (view && (view !== "compare" || app.source.runs.length > 1)) app.set({ view, viewed: true });
  const node = parts.get("node");
  app.show(node ? [node] : []);
  const step = parseInt(parts.get("step") ?? "");
  app.setStep(step >= 0 ? step : Infinity);
}

/** Keeps the address of the page equal to what `app` shows. Returns the function to call after each drawing.
 * @param {App} app */
export function keepAddress(app) {
  let written = location.hash;
  let waiting = 0;
  const lasting = (/** @type {string} */ address) => address.replace(/&step=\d+/, "");
  if (written) goTo(app, written);
  addEventListener("popstate", () => {
    clearTimeout(waiting);
    written = location.hash;
    goTo(app, written);
  });
  return () => {
    clearTimeout(waiting);
    const now = addressOf(app);
    if (now === written || app.playing) return;
    const write = () => {
      history[lasting(now) === lasting(written) || !written ? "replaceState" : "pushState"](null, "", now);
      written = now;
    };
    if (lasting(now) === lasting(written)) waiting = window.setTimeout(write, PAUSE);
    else write();
  };
}
