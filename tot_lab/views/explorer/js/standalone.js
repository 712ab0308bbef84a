/**
 * The explorer inside one HTML file (page.py): no kernel, no network.
 *
 * The data of the tree precedes this script. The compressed texts follow it and are decompressed after the first
 * drawing. Prompts and replies of a thought are decompressed when it is selected.
 */

import { mount } from "./app.js";
import { addressOf, keepAddress } from "./links.js";
import { Recording } from "./recording.js";
import { showSweep } from "./sweep.js";

/** @param {string} id */
const textOf = (id) => document.getElementById(id)?.textContent ?? "";

/** Decodes data from Python: base64, gzip, JSON. @param {string} id @returns {Promise<any>} */
async function unpacked(id) {
  const bytes = Uint8Array.from(atob(textOf(id)), (sign) => sign.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

/** Resolves after the whole file is parsed. */
const whole = () =>
  new Promise((done) => {
    if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", done, { once: true });
    else done(undefined);
  });

/** Shows the runs of this page, if it is one of page.py. */
export function boot() {
  const place = document.getElementById("tot-lab-explorer");
  if (!place) return;
  if (document.getElementById("sweep")) return showSweep(place, JSON.parse(textOf("sweep")), (id) => whole().then(() => unpacked(id)));
  if (!document.getElementById("run-0")) return;
  /** @type {any[]} */
  const structures = [0, 1].map((which) => textOf(`run-${which}`)).filter(Boolean).map((text) => JSON.parse(text));
  const runs = structures.map(({ about, chunk }) => {
    const recording = new Recording(about);
    recording.append(chunk);
    return recording;
  });
  /** @type {Map<string, Promise<any>>} the details of a block of thoughts */
  const blocks = new Map();
  /** @type {Set<(what?: "texts") => void>} */
  const changed = new Set();
  /** @type {(() => void) | undefined} */
  let keep;
  const app = mount(
    place,
    {
      runs,
      live: false,
      facts: (which) => structures[which],
      async details(which, node) {
        await whole();
        const block = `details-${which}-${Math.floor(node / structures[which].block)}`;
        if (!blocks.has(block)) blocks.set(block, unpacked(block));
        return (await blocks.get(block))[node % structures[which].block];
      },
      onChange(callback) {
        changed.add(callback);
      },
      select() {},
      onSelect() {},
      stepped: () => keep?.(),
      address: () => location.href.replace(/#.*|$/, "") + addressOf(app),
    },
    { height: Math.max(480, innerHeight - 24) },
  );
  Object.assign(place, { explorer: app }); // for tests and benchmarks
  keep = keepAddress(app).shown;
  requestAnimationFrame(() =>
    setTimeout(async () => {
      await whole();
      for (const [which, recording] of runs.entries()) recording.setTexts(0, await unpacked(`texts-${which}`));
      for (const callback of changed) callback("texts");
    }),
  );
}
