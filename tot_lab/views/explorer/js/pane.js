/**
 * One picture, of the tree or of the calls over time, with its accessible outline and its tooltip.
 *
 * A new scene is built only if its inputs have changed. Moving the view does not build a scene.
 *
 * @typedef {ReturnType<typeof paneOf>} Pane
 */

import { Picture } from "./canvas.js";
import { callOf, fateOf, replyOf, usageOf } from "./details.js";
import { dotted, h, number, renew, say, short } from "./dom.js";
import { max } from "./numbers.js";
import { outlineOf } from "./outline.js";
import { plansView } from "./plans.js";
import { Scene } from "./scene.js";
import { stepsView } from "./steps.js";
import { svgOf } from "./svg.js";
import { LIGHT } from "./theme.js";
import { Timeline, tableOf } from "./timeline.js";

/** Maximum number of calls in the table for screen readers. */
const CALLS = 500;

/** @param {Picture} picture */
const viewOf = ({ width, height, camera }) => ({ width, height, camera });

/** Returns the lines above an exported picture: the question, the run, and the verdict.
 * @param {import("./recording.js").Recording} recording */
function headingOf({ about: { question, name, model, model_note, verdict }, ended }) {
  const { grade, expected, stopped, settings } = verdict ?? {};
  return [
    question || "a search",
    dotted(name, model, model_note, settings),
    ended ? dotted(grade, `answer: ${ended.answer || "none"}`, expected && `expected: ${expected}`, `ended: ${stopped}`) : "unfinished",
  ];
}

/** @param {import("./app.js").App} app @param {number} which */
export function paneOf(app, which) {
  const toggle = (/** @type {number} */ node) => app.toggle(which, node);
  const pick = (/** @type {number} */ node) => app.select(which, [node]);
  const outline = outlineOf(`tree of thoughts${which ? ", second run" : ""}`, pick, toggle);
  const canvas = h("canvas", { "aria-hidden": "true" });
  const clock = h("canvas");
  const steps = stepsView(app);
  const plans = plansView(app);
  const paper = h("div.paper");
  const table = h("table.unseen");
  const caption = h("div.caption");
  const tip = h("div.tip", { hidden: true });
  let [x, y] = [0, 0];
  const element = h("div.stage", canvas, clock, table, paper, steps.element, plans.element, outline.element, caption, tip);
  // Captured, so that the position is known before the listener of the canvas calls `hover`.
  element.addEventListener("pointermove", (event) => ([x, y] = [event.offsetX, event.offsetY]), true);

  /** Shows a tooltip at the pointer. @param {boolean} there @param {() => string[]} words a title and lines */
  function hover(there, words) {
    tip.hidden = !there;
    if (!there) return;
    const [title, ...lines] = words();
    tip.replaceChildren(h("b", title), ...lines.map((line) => h("div", line)));
    const { clientHeight } = element;
    const left = `max(6px, min(${x + 14}px, 100% - 306px))`;
    tip.style.inset =
      y < clientHeight / 2 ? `${y + 18}px auto auto ${left}` : `auto auto ${clientHeight - y + 12}px ${left}`;
  }

  const picture = new Picture(canvas, {
    pick(node, { shiftKey }) {
      outline.element.focus({ preventScroll: true });
      tip.hidden = true;
      const others = shiftKey ? app.selected[which].filter((one) => one !== node) : [];
      app.select(which, node < 0 ? others : [...others, node]);
    },
    toggle,
    hover: (node) =>
      hover(node >= 0, () => {
        const recording = app.source.runs[which];
        const frame = app.frameOf(which);
        return [
          `thought ${recording.id(node)}`,
          short(recording.text(node), 140),
          fateOf(frame, node, app.source.facts(which)),
          usageOf(recording, frame, node).words,
        ];
      }),
  });
  const timeline = new Timeline(clock, {
    pick,
    hover: (index) =>
      hover(index >= 0, () => {
        const recording = app.source.runs[which];
        const call = recording.call(index);
        return [callOf(call, ` at thought ${recording.id(call.node)}`), replyOf(call, call.replyLine >= 0)];
      }),
  });

  /** @type {unknown[]} */
  let made = [];
  const pane = {
    element,
    outline,
    picture,
    /** @type {Scene | null} */
    scene: null,
    /** Called with the next scene. @type {((picture: Picture) => void) | null} */
    next: null,

    /**
     * @param {import("./recording.js").Frame} frame
     * @param {import("./theme.js").Theme} theme
     * @param {import("./scene.js").View | null} view null for the calls over time or the list of steps
     * @param {number} version of texts and marks
     * @param {number} node the selected thought
     * @param {string} title
     */
    show(frame, theme, view, version, node, title) {
      const { run: recording } = frame;
      const [listed, planned] = [app.view === "steps", app.view === "plan"];
      outline.element.hidden = canvas.hidden = !view;
      clock.hidden = !!view || listed || planned;
      steps.element.hidden = !listed;
      plans.element.hidden = !planned;
      if (!view) say(caption, frame.nodes ? title : "no thought yet");
      if (planned) return plans.show(app.source.facts(which).plans, frame, node < 0 ? "" : recording.id(node));
      if (listed) return steps.show(frame, version, app.collapsedOf(which), node, app.source.facts(which));
      table.hidden = clock.hidden;
      if (!view) {
        renew(table, [recording.about.id, recording.lines], () => [
          h("caption", recording.calls > CALLS ? `the first ${CALLS} of ${number(recording.calls)} calls` : "calls"),
          h("thead", h("tr", ["thought", "call", "asked at, in seconds", "took", "outcome"].map((name) => h("th", { scope: "col" }, name)))),
          tableOf(recording, CALLS).map((row) => h("tr", row.map((cell) => h("td", cell)))),
        ]);
        return timeline.show(recording, frame, theme, node, max(...app.source.runs.map(({ time, lines }) => time[lines - 1] ?? 0)));
      }
      const now = [recording, frame.step, theme, version, ...Object.values(view)];
      if (now.some((one, place) => one !== made[place])) {
        made = now;
        pane.scene = new Scene(recording, frame, view, pane.scene);
        picture.show(pane.scene, theme);
      }
      const { count } = /** @type {Scene} */ (pane.scene);
      say(caption, dotted(title, !frame.nodes && "no thought yet", count < frame.nodes && `${number(count)} of ${number(frame.nodes)} thoughts shown`));
      pane.next?.(picture);
      pane.next = null;
      outline.show(/** @type {Scene} */ (pane.scene), node);
    },

    /** The picture whose view can be moved. */
    get lens() {
      return clock.hidden ? picture : timeline;
    },

    /** Returns the view as a file. The calls over time are available only as PNG.
     * @param {"png" | "svg"} kind @returns {Promise<Blob>} */
    async save(kind) {
      const { scene } = pane;
      const heading = headingOf(app.source.runs[which]);
      if (!clock.hidden) return new Promise((done) => clock.toBlob((blob) => done(/** @type {Blob} */ (blob))));
      return kind === "svg" && scene && picture.theme
        ? new Blob([svgOf(scene, picture.theme, { ...viewOf(picture), heading })], { type: "image/svg+xml" })
        : picture.png();
    },

    /** Replaces the canvas by a drawing that fits the paper, or shows the canvas again. @param {boolean} on */
    print(on) {
      paper.replaceChildren();
      steps.print(on);
      if (on && !clock.hidden) timeline.print(LIGHT);
      if (!on || !pane.scene || canvas.hidden) return;
      const svg = svgOf(pane.scene, LIGHT, { width: 1000, height: 560 });
      paper.append(new DOMParser().parseFromString(svg, "image/svg+xml").documentElement);
    },

    destroy() {
      picture.destroy();
      timeline.destroy();
    },
  };
  return pane;
}
