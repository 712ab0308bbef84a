/**
 * The time bar, the legend, and the description of a step.
 *
 * Every control is a button or an input with a label.
 *
 * @typedef {import("./recording.js").Recording} Recording
 * @typedef {import("./recording.js").Frame} Frame
 * @typedef {import("./app.js").App} App
 */

import { actOf, callOf, pickOf } from "./details.js";
import { brief, button, count, dotted, h, money, number, press, put, renew, say, seconds } from "./dom.js";
import { KINDS, kindsOf } from "./origins.js";
import { KIND, STATES } from "./recording.js";
import { PERSON } from "./draw.js";
import { LOST, SHAPE_OF_STATE, changedAt, shapeOfAnswer } from "./scene.js";
import { QUANTITIES } from "./quantities.js";
import { ANSWER, CORNERS, DIFFERENCES, LIGHT, LINK_WORDS, MISSED, SHAPES, STEP_SHAPES, WRONG } from "./theme.js";

/** Describes what a person changed in the search, "" for other lines. @param {Recording} recording @param {number} line */
function actsOf(recording, line) {
  const { name, data } = recording.note(line) ?? {};
  if (name !== "person.acts" || !Array.isArray(data?.acts)) return "";
  return `a person's changes: ${data.acts.map(actOf).join("; ")}`;
}

/**
 * Describes the last line before the step of `frame`.
 * @param {Recording} recording
 * @param {Frame} frame
 */
export function happened(recording, frame) {
  const line = frame.step - 1;
  if (line < 0) return "nothing has happened yet";
  const node = recording.node[line];
  const kind = recording.kind[line];
  const id = node < 0 ? "" : recording.id(node);
  const at = id && ` at thought ${id}`;
  const score = frame.score[node];
  if (kind === KIND.thought) return recording.parent[node] < 0 ? "question" : `thought ${id} proposed`;
  if (kind === KIND.scored && recording.data[line].by === "root") return `a search begins${at}`;
  if (kind === KIND.scored) return `thought ${id} ${isNaN(score) ? "unreadable" : `scored ${brief(score)}`}`;
  if (kind === KIND.decided)
    return [`thought ${id} ${STATES[frame.state[node]]}`, frame.reason(node)].filter(Boolean).join(": ");
  if (kind === KIND.ended) return `ended: ${recording.about.verdict?.stopped ?? frame.stop}`;
  if (kind === KIND.note) return pickOf(recording, line, undefined, frame.score) || actsOf(recording, line) || `note ${recording.note(line)?.name}${at}`;
  const call = recording.call(recording.row[line]);
  const what = callOf(call, at);
  if (kind === KIND.call) return `asked: ${what}`;
  return call.error
    ? `failed: ${what}: ${call.error}`
    : `answered: ${what}, after ${seconds(call.took)}`;
}

/**
 * Describes the usage up to the step of `frame`, with the limits of the budget. What is unknown is named once, at the end.
 * @param {Record<string, number | null>} budget
 * @param {Frame} frame
 */
export function usedOf(budget, { run, usage: { calls, input, output, cost }, time }) {
  const some = run.lacks("calls");
  const nothing = isNaN(input) && isNaN(output);
  const amounts = /** @type {[string, string, number, (amount: number) => string, string, string?][]} */ ([
    ["calls", "calls", some && !calls ? NaN : calls, number, calls === 1 ? " call" : " calls", some ? "at least " : ""],
    ["tokens", "tokens", input + output, number, " tokens"],
    ...(nothing ? [] : [["input_tokens", "tokens in", input, number, " in"], ["output_tokens", "tokens out", output, number, " out"]]),
    ["usd", "cost", cost, money, " cost"],
    ["seconds", "time", run.lacks("times") ? NaN : time, seconds, ""],
  ]);
  const unknown = amounts.filter(([, , amount]) => isNaN(amount)).map(([, name]) => name);
  return [
    ...amounts.filter(([, , amount]) => !isNaN(amount)).map(([cap, , amount, word, unit, before = ""]) =>
      `${before}${word(amount)}${budget[cap] == null ? "" : ` of ${word(budget[cap])}`}${unit}`),
    ...(unknown.length ? [`${unknown.join(", ")} unknown`] : []),
  ];
}

/** Builds the time bar. @param {App} app */
export function timeBar(app) {
  const oninput = () => app.setStep(slider.valueAsNumber);
  const slider = h("input", { type: "range", min: 0, "aria-label": "step of the search", oninput });
  const play = button("play", () => app.play(), "space");
  const picks = [
    button("‹ pick", () => app.pick(-1), "the previous pick of the search ([)"),
    button("pick by pick", () => app.play(true), "one pick after the other, with its reason"),
    button("pick ›", () => app.pick(1), "the next pick of the search (])"),
  ];
  const follow = button("follow", () => app.follow(!app.following));
  const stop = button("stop", () => app.source.stop?.());
  const hold = button("pause run", () => void app.source.steer?.(app.source.paused ? "resume" : "pause"));
  const what = h("span.what");
  const now = h("span.quiet");
  const element = h(
    "div",
    { role: "group", "aria-label": "time" },
    h(
      "div.row",
      button("‹", () => app.setStep(slider.valueAsNumber - 1), "one step back (,)"),
      play,
      button("›", () => app.setStep(slider.valueAsNumber + 1), "one step forward (.)"),
      slider,
      picks,
      follow,
      hold,
      stop,
    ),
    h("div.row", what, now),
  );

  /** @param {Frame} frame */
  const show = (frame) => {
    const { run: recording, step, nodes, frontier, open } = frame;
    const { lines, about, ended } = recording;
    const { live, paused, waiting = [] } = app.source;
    slider.max = `${lines}`;
    slider.value = `${step}`;
    const steered = live && dotted(
      paused && "paused",
      waiting.length > 0 && `${count(waiting.length, "change")} until the next pick: ${waiting.map(actOf).join("; ")}`,
    );
    say(what, dotted(happened(recording, frame), steered));
    what.classList.toggle("tl-whole", !!waiting.length || !!actsOf(recording, step - 1)); // the changes are shown in full
    put(what, { title: what.textContent });
    put(slider, { "aria-valuetext": `step ${step}: ${what.textContent}` });
    say(
      now,
      dotted(
        app.source.runs.length > 1 && "A",
        `step ${number(step)} of ${number(lines)}`,
        recording.picks.length > 1 && `pick ${number(recording.picks.filter((line) => line < step).length)} of ${number(recording.picks.length)}`,
        `${number(nodes)} thoughts`,
        `frontier ${number(frontier.length)}`,
        count(open.length, "open call"),
        ...usedOf(about.budget ?? {}, frame),
      ),
    );
    say(play, app.playing && !app.playing.picks ? "pause" : "play");
    say(picks[1], app.playing?.picks ? "pause" : "pick by pick");
    for (const one of picks) one.hidden = recording.picks.length < 2;
    press(follow, app.following);
    follow.hidden = !live;
    stop.hidden = !live || !app.source.stop || !!ended;
    hold.hidden = !live || !app.source.steer || !!ended;
    say(hold, paused ? "continue run" : "pause run");
  };
  return { element, show };
}

/** The states in the order of the legend. */
const LEGEND = ["answer", "complete", "kept", "pruned", "unreadable", "failed", "duplicate", "merged", "proposed"];

/** What the colours mean, where their name does not say it. @type {Record<string, string | undefined>} */
const MEANINGS = {
  solvable: "could still lead to a right answer",
  visits: "scores of a thought and all below it; labels: visits · their mean",
  value: "mean of the scores of a thought and all below it",
};

/** Returns a picture of a shape. @param {number} place */
function shapeOf(place) {
  const [svg, shape] = ["svg", "path"].map((name) => document.createElementNS("http://www.w3.org/2000/svg", name));
  const corners = CORNERS[place];
  const cross = place === WRONG ? "M-2-2L2 2M-2 2L2-2" : "";
  put(shape, { d: (corners.length ? `M${corners.join("L")}z` : "M-1 0a1 1 0 1 0 2 0a1 1 0 1 0-2 0") + cross });
  const hollow = (place === ANSWER || place === WRONG) && "tl-hollow";
  return put(svg, { viewBox: "-2 -2 4 4", "aria-hidden": "true", class: hollow }, shape);
}

/** Returns a patch of a colour. @param {string} colour */
function swatchOf(colour) {
  const patch = h("i.none");
  patch.style.background = colour;
  return patch;
}

/** Returns a picture of a link. @param {string} kind */
const lineOf = (kind) => h("i", { class: `tl-link-${kind}` });

/** Builds the legend: shapes and colours with the number of thoughts of each. A click searches for them. @param {App} app */
export function legendOf(app) {
  const states = h("span.states");
  const colour = h(
    "select",
    { "aria-label": "colour by", onchange: () => app.set({ colour: QUANTITIES[colour.selectedIndex], coloured: true }) },
    QUANTITIES.map((name) => h("option", name)),
  );
  const ends = h("span.scale");
  const element = h("div.row", { role: "group", "aria-label": "legend" }, states, h("span.scale", "colour", colour), ends);
  const scale = h("i");
  scale.style.background = "linear-gradient(90deg,var(--scores))";
  /** @param {Frame} frame */
  const show = (frame) => {
    const { run: recording, nodes, state } = frame;
    const counts = STATES.map(() => 0);
    for (let node = 0; node < nodes; node++) if (state[node] || recording.parent[node] >= 0) counts[state[node]]++;
    const answer = shapeOfAnswer(frame);
    const { scene } = app.panes[0];
    /** @param {number[]} [slots] */
    const idsOf = (slots = []) => slots.map((slot) => recording.id(scene?.nodes[slot] ?? -1));
    const [solvable, missed] = [idsOf(scene?.lastSolvable), idsOf(scene?.missed)];
    const changed = [...new Set(changedAt(frame).map(([id]) => id).filter(Boolean))];
    const open = frame.frontier.length;
    const steps = KINDS.slice(1).map(() => 0);
    if (recording.hasSteps) kindsOf(frame).forEach((kind, node) => (kind && !state[node] ? steps[kind - 1]++ : 0));
    const links = [...new Set(scene?.links.map(({ kind }) => kind))];
    const lost = scene?.flags.some((has) => has & LOST);
    const compared = app.view === "compare";
    const two = app.source.runs.length > 1;
    renew(states, [counts, answer, solvable, missed, changed, open, steps, links, lost, compared, two], () => [
      two && h("span.quiet", "A:"), // the counts are those of the first run
      LEGEND.map((name) => {
        const state = STATES.indexOf(name);
        const count = counts[state] - (state ? 0 : steps.reduce((a, b) => a + b, 0));
        const judged = name === "answer" && count === 1;
        const place = judged ? answer : SHAPE_OF_STATE[state];
        const face = [shapeOf(place), `${judged ? SHAPES[place][0] : name} ${number(count)}`];
        return count > 0 && button(face, () => app.find(`state:${name}`), "find these", "flat");
      }),
      steps.map((count, place) => count > 0 && h("span.quiet", shapeOf(STEP_SHAPES + place), `${SHAPES[STEP_SHAPES + place][0]} ${number(count)}`)),
      lost && h("span.quiet", "✕ lost here"),
      compared && DIFFERENCES.slice(1).map((name, place) =>
        h("span.quiet", swatchOf(LIGHT.differences[place + 1]), name)),
      links.map((kind) => h("span.quiet", lineOf(kind), LINK_WORDS[kind])),
      open > 0 && h("span.quiet", h("i.open"), `open frontier ${number(open)}`),
      missed.length > 0 && button([h("i.missed"), `${SHAPES[MISSED][0]} ${number(missed.length)}`], () => app.show(missed), "right answers that were found, and not given", "flat"),
      solvable.length > 0 &&
        button([h("i.solvable"), `last solvable ${number(solvable.length)}`], () => app.show(solvable), "the last thoughts that could lead to a right answer", "flat"),
      changed.length > 0 && button([h("b.person", PERSON), ` changed by a person ${number(changed.length)}`], () => app.show(changed), "select these", "flat"),
    ]);
    const [low, high] = app.colours(0).ends;
    renew(ends, [low, high, app.colour], () => [low, scale, high, h("i.none"), "none", MEANINGS[app.colour] && ` · ${MEANINGS[app.colour]}`]);
    for (const name of /** @type {const} */ (["visits", "value"])) colour.options[QUANTITIES.indexOf(name)].hidden = !recording.hasVisits;
    if (colour.value !== app.colour) colour.value = app.colour;
  };
  return { element, show };
}
