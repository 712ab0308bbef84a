/**
 * The plans of a run: the steps of each version in levels by their dependencies, versions side by side with the reviews
 * between them.
 *
 * Edges run between the levels. An edge that passes a level runs beside all steps, so that no edge crosses a text.
 *
 * @typedef {{id: string, title: string, status: string, depends: string[], node: string, tool: string | null,
 *   error: string | null, result: string | null, retries: number, seconds: number | null, given: string | null,
 *   changes: [number, string][]}} PlanStep  changes: its states, and the lines of the record from which on it had them
 * @typedef {{node: string, goal: string, version: number, status: string, steps: PlanStep[], reviews: [string, number][]}}
 *   PlanVersion `_plan_versions` in facts.py. reviews: the thoughts that reviewed it, and the lines of the record
 */

import { button, count, dotted, h, put, renew, seconds, short } from "./dom.js";
import { max } from "./numbers.js";

/** The icon of each status of a step. @type {Record<string, string>} */
const ICONS = { pending: "○", in_progress: "◐", completed: "✓", failed: "✗", skipped: "↷" };

/** In pixels: size of a step, distance of steps and of levels, and distance of edges beside the steps. */
const [WIDE, HIGH, BESIDE, BELOW, LANE] = [220, 130, 16, 36, 9];

/** Maximum number of characters of a title, of a result or error, and of a review. */
const [TITLE, RESULT, TEXT] = [48, 90, 400];

/**
 * Returns the place of each step and the edges between them, in pixels. A step is one level below the lowest step that it
 * depends on. A dependency on an unknown step, or on itself by a circle, is left out.
 * @param {PlanStep[]} steps
 */
export function placed(steps) {
  const known = new Map(steps.map((step, place) => [step.id, place]));
  const needs = steps.map(({ depends }, place) => depends.map((id) => known.get(id) ?? -1).filter((one) => one >= 0 && one !== place));
  const levels = steps.map(() => 0);
  // A path has at most as many steps as the plan, so a circle ends here too.
  for (let round = 0, moved = true; moved && round < steps.length; round++) {
    moved = false;
    needs.forEach((ones, place) => {
      const level = max(-1, ...ones.map((one) => levels[one])) + 1;
      if (level > levels[place] && level < steps.length) [levels[place], moved] = [level, true];
    });
  }
  const edges = needs.flatMap((ones, to) => ones.filter((from) => levels[from] < levels[to]).map((from) => ({ from, to })));
  const long = edges.filter(({ from, to }) => levels[to] - levels[from] > 1);
  const left = long.length * LANE + (long.length && 6);
  /** @type {number[]} */
  const filled = [];
  const boxes = levels.map((level) => {
    const column = (filled[level] = (filled[level] ?? -1) + 1);
    return { x: left + column * (WIDE + BESIDE), y: level * (HIGH + BELOW), level };
  });
  const paths = edges.map((edge, place) => {
    const [a, b] = [boxes[edge.from], boxes[edge.to]];
    const [fromX, toX] = [a.x + WIDE / 2, b.x + WIDE / 2];
    const [fromY, toY] = [a.y + HIGH, b.y];
    const lane = long.indexOf(edge);
    const shift = ((place * 5) % (BELOW - 12)) + 6; // edges in one gap are apart
    if (lane < 0) return `M${fromX} ${fromY}V${fromY + shift}H${toX}V${toY}`;
    return `M${fromX} ${fromY}V${fromY + shift}H${lane * LANE + 3}V${toY - BELOW + shift}H${toX}V${toY}`;
  });
  const width = max(0, ...boxes.map(({ x }) => x + WIDE));
  const height = max(0, ...boxes.map(({ y }) => y + HIGH));
  return { boxes, edges: edges.map((edge, place) => ({ ...edge, path: paths[place] })), width, height };
}

/**
 * Returns the plans as they were after `step` of `lines` lines of the record.
 * @param {PlanVersion[]} plans @param {number} step @param {number} lines @returns {PlanVersion[]}
 */
export function plansAt(plans, step, lines) {
  if (step >= lines) return plans;
  const made = plans.filter(({ steps }) => !steps.length || steps.some(({ changes }) => changes[0][0] < step));
  return made.map((plan, place) => ({
    ...plan,
    status: made[place + 1]?.node === plan.node ? plan.status : "active",
    reviews: plan.reviews.filter(([, line]) => line < step),
    steps: plan.steps.map((one) => {
      const known = one.changes.filter(([line]) => line < step);
      if (known.length === one.changes.length) return one;
      const status = known.at(-1)?.[1] ?? "pending";
      return { ...one, status, error: null, result: null, retries: 0, seconds: null };
    }),
  }));
}

/** Returns the status of a step in words. What is pending in a version that has ended was not run.
 * @param {PlanVersion} plan @param {PlanStep} step */
const wordOf = (plan, { status }) => (status === "pending" && plan.status !== "active" ? "not run" : status.replace("_", " "));

/** Returns the step that a thought is, in the last version that has it, with its status in words.
 * @param {PlanVersion[]} plans @param {string} id of the thought */
export const stepAt = (plans, id) =>
  plans.flatMap((plan) => plan.steps.map((step) => ({ ...step, word: wordOf(plan, step) }))).findLast(({ node }) => node === id);

/** Returns the arguments of a call, `{"query": "…"}`, as words. @param {string} json */
export function argumentsOf(json) {
  try {
    const parts = Object.entries(JSON.parse(json)).map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`);
    return parts.join(" · ");
  } catch {
    return json; // truncated, or not JSON
  }
}

/** @param {import("./app.js").App} app */
export function plansView(app) {
  const element = h("div.plans", { role: "region", "aria-label": "plans", tabindex: 0 });

  /** @param {PlanVersion} plan @param {import("./recording.js").Recording} run @param {string} chosen id of the selected thought */
  function versionOf(plan, run, chosen) {
    const { version, status, steps, reviews } = plan;
    const { boxes, edges, width, height } = placed(steps);
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    put(svg, { width: `${width}`, height: `${height}`, "aria-hidden": "true" });
    const lines = edges.map(({ path, from, to }) => {
      const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
      put(line, { d: path, class: [from, to].some((one) => steps[one].node === chosen) ? "tl-near" : "" });
      svg.append(line);
      return line;
    });
    const near = (/** @type {number} */ place, /** @type {boolean} */ on) =>
      edges.forEach(({ from, to }, edge) => {
        if (from === place || to === place) lines[edge].classList.toggle("tl-near", on || [from, to].some((one) => steps[one].node === chosen));
      });
    const cards = steps.map((step, place) => {
      const { id, title, node, depends, tool, given, error, result, retries } = step;
      const words = error ?? result;
      const card = button(
        [
          h("b.what", `${ICONS[step.status] ?? ""} ${id} ${short(title, TITLE)}`),
          h("span.quiet", dotted(wordOf(plan, step), tool && `tool ${tool}`, step.seconds !== null && seconds(step.seconds), retries > 0 && count(retries, "retry", "retries"), depends.length > 0 && `needs ${depends.join(", ")}`)),
          given && h("span.what", short(argumentsOf(given), RESULT)),
          words && h("span", short(`→ ${words}`, RESULT)),
        ],
        () => app.show([node]),
        run.text(run.indexOf(node)), // with references to other steps
        "card",
      );
      card.style.cssText = `left:${boxes[place].x}px;top:${boxes[place].y}px;width:${WIDE}px;height:${HIGH}px`;
      put(card, { class: `tl-card tl-${step.status.replace("_", "-")}`, "aria-current": node === chosen && "true" });
      card.onpointerenter = card.onfocus = () => near(place, true);
      card.onpointerleave = card.onblur = () => near(place, false);
      return card;
    });
    const board = h("div.board", svg, cards);
    board.style.cssText = `width:${width}px;height:${height}px`;
    return [
      h("section", h("h3", dotted(`version ${version}`, status)), board),
      reviews.map(([node]) => {
        const card = button([h("b", "review"), h("span", short(run.text(run.indexOf(node)), TEXT))], () => app.show([node]), undefined, "card");
        put(card, { "aria-current": node === chosen && "true" });
        return h("div.review", card);
      }),
    ];
  }

  /** @param {PlanVersion[]} all @param {import("./recording.js").Frame} frame @param {string} chosen id of the selected thought */
  function show(all, { step, run }, chosen) {
    const plans = plansAt(all, step, run.lines);
    renew(element, [plans, chosen], () =>
      plans.map((plan, place) => {
        if (plans[place - 1]?.node === plan.node) return null; // beside the first version
        return [
          h("h3", short(plan.goal, 300)),
          plan.steps.some(({ depends }) => depends.length) && h("p.quiet", h("i.link-depends"), "needs the step above"),
          h("div.versions", plans.filter(({ node }) => node === plan.node).map((one) => versionOf(one, run, chosen))),
        ];
      }));
  }
  return { element, show };
}
