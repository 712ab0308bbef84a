/**
 * A run as a list of its steps, for agents and chains: one row per step, folded by attempt, route or plan step.
 *
 * The rows follow from the record alone. A tool call and its result are one row. Every answered call of a model counts in
 * exactly one row: the first that it produced, or else one of its own. So the rows add up to the usage of the run.
 *
 * @typedef {import("./recording.js").Recording} Recording
 * @typedef {import("./recording.js").Frame} Frame
 * @typedef {ReturnType<typeof stepsOf>[number]} Step
 */

import { usedOf } from "./controls.js";
import { outsideOf, scoreOf, stateOf } from "./details.js";
import { button, count, dotted, h, money, number, renew, seconds, short } from "./dom.js";
import { integers, max, min } from "./numbers.js";
import { originsOf } from "./origins.js";
import { argumentsOf, plansAt, stepAt } from "./plans.js";
import { STATES } from "./recording.js";
import { reasonOf } from "./scene.js";

/** Number of characters of a row's text and result on a screen; paper shows all that the recording has. Number of rows that
 * are shown at first. */
const [TEXT, RESULT, ROWS] = [400, 300, 500];

/** Whether a tree is mostly a chain: few of its thoughts are leaves, or not many if they are steps of different kinds.
 * @param {Frame} frame */
export function isChain({ nodes, children, run }) {
  let leaves = 0;
  for (let node = 0; node < nodes; node++) leaves += Number(!children[node]);
  return nodes > 3 && leaves * (run.hasSteps ? 2 : 3) <= nodes;
}

/**
 * Returns the steps of a run in the order of the tree. `level` is the number of parts around a step. A part has the
 * number of steps in it (`inside`), other steps have 0. `usage` is what the calls of a row used; `shared` is the number of
 * rows that they produced, and `together` the number of those calls. A row of `calls` that produced no thought has no `model`.
 * @param {Frame} frame
 */
export function stepsOf(frame) {
  const { run, nodes, state } = frame;
  const { calls, group, tools, parts } = originsOf(frame);
  const levels = integers(nodes);
  /** @type {{node: number, level: number, result: number, inside: number, tools: string[], error: string | null, kind: string,
   *   seconds: number, part: boolean, model: number, calls: number[], shared: number, together: number,
   *   usage: {input: number, output: number} | null}[]} */
  let steps = [];
  /** The row of each thought, or of the thought above it that has one. */
  const rows = integers(nodes).fill(-1);
  for (const node of run.order()) {
    if (node >= nodes) continue;
    const parent = run.parent[node];
    levels[node] = parent < 0 ? 0 : levels[parent] + Number(parts.has(parent));
    const above = steps[rows[parent]];
    const its = tools.get(node) ?? [];
    if (above && tools.has(parent) && above.result < 0) {
      rows[node] = rows[parent];
      above.result = node;
      continue;
    }
    const call = its.length ? its[its.length - 1] : calls[node];
    const { asked = NaN, answered = NaN, error = null, kind = "" } = call < 0 ? {} : run.call(call);
    const names = its.map((one) => run.call(one).kind.replace(/^tool:/, ""));
    rows[node] = steps.length;
    steps.push({
      ...{ node, level: levels[node], result: -1, inside: 0, tools: [...new Set(names)], error },
      kind: parent < 0 ? "question" : (parts.get(node) ?? (its.length ? "tool" : STATES[state[node]] === "answer" ? "answer" : kind || "thought")),
      seconds: answered - asked,
      part: parts.has(node),
      model: calls[node],
      ...{ calls: [], shared: 0, together: 0, usage: null },
    });
  }
  steps = counted(frame, steps, rows, group);
  const ends = integers(steps.length); // the first later step that is not deeper
  for (let place = steps.length; place--; ) {
    let end = place + 1;
    while (steps[end]?.level > steps[place].level) end = ends[end];
    ends[place] = end;
    if (steps[place].part) steps[place].inside = end - place - 1;
  }
  return steps;
}

/**
 * Counts every answered call of a model in one of the steps, and returns these with a row for each kind of calls at a
 * thought that produced none.
 * @param {Frame} frame @param {any[]} steps @param {Int32Array} rows the row of each thought
 * @param {Int32Array} group the last of the calls that produced thoughts together, for each of them
 */
function counted({ run, step: end }, steps, rows, group) {
  /** @type {Map<number, any[]>} */
  const made = new Map();
  for (const step of steps) if (step.model >= 0) made.set(step.model, [...(made.get(step.model) ?? []), step]);
  /** The further rows after each row, by kind. @type {Map<number, Map<string, any>>} */
  const further = new Map();
  for (let index = 0; index < run.calls; index++) {
    const line = run.replyLine[index];
    if (line < 0 || line >= end || !run.data[line].made || run.data[line].tool) continue;
    const { node, kind, error, input, output } = run.call(index);
    const owners = made.get(group[index]);
    const place = rows[node] ?? 0;
    const above = steps[place];
    const own = further.get(place) ?? new Map();
    const row = owners?.[0] ?? own.get(kind) ?? { ...above, kind, level: above.level + Number(above.part),
      result: -1, inside: 0, tools: [], error: null, seconds: NaN, part: false, model: -1, calls: [], shared: 0, together: 0, usage: null };
    for (const owner of owners ?? []) [owner.shared, owner.together] = [owners?.length, owner.together + 1];
    if (!owners) further.set(place, own.set(kind, row));
    row.calls.push(index);
    row.usage ??= { input: 0, output: 0 };
    if (error && isNaN(input)) continue; // a failed call counts as unused unless the model reports its usage
    row.usage.input += input;
    row.usage.output += output;
  }
  return steps.flatMap((step, place) => [step, ...(further.get(place)?.values() ?? [])]);
}

/**
 * Splits the text of a turn into what the model thought and the arguments of its calls, which follow as
 * `name({"query": "…"})`, one per line.
 * @param {string} text @param {string[]} tools their names
 */
export function turnOf(text, tools) {
  const lines = text.split("\n");
  const nameOf = (/** @type {string} */ line) => tools.find((tool) => line.startsWith(`${tool}(`));
  const first = lines.findIndex(nameOf);
  if (first < 0) return { thought: text, given: [] };
  const given = lines.slice(first).map((line) => {
    const tool = nameOf(line);
    return tool ? argumentsOf(line.slice(tool.length + 1, line.endsWith(")") ? -1 : undefined)) : line;
  });
  return { thought: lines.slice(0, first).join("\n"), given };
}

/** @param {import("./app.js").App} app */
export function stepsView(app) {
  const list = h("ol");
  const element = h("div.steps", { role: "region", "aria-label": "steps", tabindex: -1 }, list);
  let [made, most, paper] = ["", ROWS, false];
  /** What `show` was called with last. @type {Parameters<typeof show> | undefined} */
  let last;
  /** @type {Step[]} */
  let steps = [];
  element.addEventListener("keydown", (event) => {
    const way = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const buttons = [...element.querySelectorAll("button")];
    const at = buttons.indexOf(/** @type {any} */ (element.querySelector("button:focus")));
    if (!way || at < 0) return;
    event.preventDefault();
    buttons[at + way]?.focus();
  });

  /** @param {Step} step @param {Frame} frame @param {Set<number>} closed @param {number} chosen
   * @param {import("./app.js").Facts} facts @param {string[]} blamed */
  function rowOf(step, frame, closed, chosen, facts, blamed) {
    const { run } = frame;
    const { node, tools, result, level, inside, kind, error, usage, calls } = step;
    const alone = step.model < 0 && calls.length > 0; // calls that produced no thought
    const text = alone ? `${count(calls.length, "call")} without a thought, at thought ${run.id(node)}` : run.text(node);
    const { thought, given } = turnOf(text, tools);
    const cut = (/** @type {string} */ words, /** @type {number} */ most) => (paper ? words : short(words, most));
    const planned = alone ? undefined : stepAt(plansAt(facts.plans, frame.step, run.lines), run.id(node));
    const values = planned?.given ? [argumentsOf(planned.given)] : given;
    const scored = !alone && frame.scoredLine[node] >= 0;
    const row = button(
      [
        h("span.kind", kind, !alone && kind === "answer" && run.about.verdict?.correct === false && " ✗"),
        h(
          "span.said",
          h(tools.length ? "span.thinking" : "span", cut(thought, TEXT)),
          tools.length > 0 && h("b", `${tools.join(", ")} `),
          cut(values.join("; "), TEXT),
          result >= 0 && !error && h("span.result", `→ ${cut(run.text(result).replace(`${tools} → `, ""), RESULT)}`),
          error && h("span.error", `failed: ${cut(error, RESULT)}`),
        ),
        h(
          "span.quiet",
          dotted(
            result >= 0 && outsideOf(facts, run.id(result)),
            scored && `score ${scoreOf(frame.score[node])}`,
            !alone && (planned || (frame.state[node] > 1 && kind !== "answer")) && stateOf(frame, node, facts.plans),
            step.seconds >= 0 && seconds(step.seconds),
            usage
              ? [
                  max(step.shared, step.together) > 1 &&
                    `${step.together > 1 ? count(step.together, "call") : "one call"} for ${count(step.shared, "step")}`,
                  !isNaN(usage.input + usage.output) && `${number(usage.input)} → ${number(usage.output)} tokens`,
                ].filter(Boolean).join(": ")
              : step.model >= 0 && `the same call${step.together > 1 ? "s" : ""}`,
          ),
        ),
      ],
      () => app.select(0, [node]),
      values === given ? undefined : given.join("; "), // with references to other steps
      "step",
    );
    if (!alone && chosen >= 0 && (chosen === node || chosen === result)) row.setAttribute("aria-current", "true");
    if (!alone && [node, result].some((one) => one >= 0 && blamed.includes(run.id(one)))) {
      row.classList.add("tl-blamed");
      row.title = "named in “why it failed”";
    }
    const fold =
      inside > 0 &&
      button(`${closed.has(node) ? "▸" : "▾"} ${count(inside, "step")}`, () => app.toggle(0, node), `${closed.has(node) ? "show" : "hide"} the steps`, "flat");
    const item = h("li", row, fold);
    item.style.setProperty("--level", `${min(level, 12)}`);
    return item;
  }

  /** @param {Frame} frame @param {number} version of texts @param {Set<number>} closed @param {number} chosen the selected thought
   * @param {import("./app.js").Facts} facts */
  function show(frame, version, closed, chosen, facts) {
    last = [frame, version, closed, chosen, facts];
    const blamed = reasonOf(facts);
    const { calls, input, output, cost } = frame.usage;
    const now = [frame.run.about.id, frame.step, version].join();
    if (now !== made) steps = stepsOf(frame);
    made = now;
    renew(list, [now, most, paper, chosen, [...closed], blamed, Object.keys(facts.outside).length], () => {
      const seen = [];
      let hidden = Infinity; // level above which rows are hidden
      for (const step of steps) {
        if (step.level > hidden) continue;
        hidden = step.inside && closed.has(step.node) ? step.level : Infinity;
        seen.push(step);
      }
      const rest = seen.length - most;
      return [
        seen.slice(0, most).map((step) => rowOf(step, frame, closed, chosen, facts, blamed)),
        rest > 0 && h("li", button(`${number(rest)} more`, () => {
          most *= 10;
          app.changed();
        }, undefined, "flat")),
        h("li", h("p.total", dotted("all rows", ...(isNaN(input) ? usedOf({}, frame) : [count(calls, "call"), `${number(input)} → ${number(output)} tokens`, `cost ${money(cost)}`])))),
      ];
    });
    if (chosen >= 0) list.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
  }
  return {
    element,
    show,
    /** Shows texts whole on paper. @param {boolean} on */
    print(on) {
      paper = on;
      if (last && !element.hidden) show(...last);
    },
  };
}
