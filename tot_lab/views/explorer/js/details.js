/**
 * The details of one thought, beside the picture.
 *
 * Data of the recording is shown immediately, with its values at the current step. Texts, prompts and replies are
 * shown when they arrive. Only changed parts are rebuilt, so that a live run does not disturb reading.
 *
 * @typedef {import("./recording.js").Recording} Recording
 * @typedef {import("./recording.js").Frame} Frame
 * @typedef {import("./app.js").App} App
 * @typedef {import("./dom.js").Child} Child
 */

import { diffOf } from "./diff.js";
import { brief, button, count, dotted, field, h, money, number, press, renew, say, seconds, short } from "./dom.js";
import { KINDS, kindsOf } from "./origins.js";
import { backedUp } from "./quantities.js";
import { plansAt, stepAt } from "./plans.js";
import { changedAt } from "./scene.js";
import { textOf } from "./rich.js";

/** Number of rows of a list that are shown before a click on "more". */
const ROWS = 30;

/** Minimum number of characters of a prompt that are folded if a sibling has the same. */
const SHARED = 200;

/** Returns the length of the beginning of two prompts that is the same, up to the end of a line, 0 if it is short.
 * @param {string} one @param {string} other */
function sharedWith(one, other) {
  let same = 0;
  while (same < one.length && one[same] === other[same]) same++;
  if (same < one.length) same = one.lastIndexOf("\n", same - 1) + 1;
  return same < SHARED ? 0 : same;
}

/** Number of characters of an evaluator's reply that stand beside its score. */
const SENTENCES = 300;

/** Maximum number of thoughts in the description of a pick, and of picks of a thought. */
const [PICKED, PICKS] = [3, 5];

/** Descriptions of each kind of link, from its start and from its end. */
const LINKS = {
  merged: ["merged with", "reached again by"],
  source: ["made from", "used for"],
  depends: ["depends on", "needed by"],
};

/**
 * Returns the state of a thought. If nothing was decided about it, a step of a plan has its status, and a step of another
 * kind says what it is.
 * @param {Frame} frame
 * @param {number} node
 * @param {import("./plans.js").PlanVersion[]} plans of the run
 */
export function stateOf(frame, node, plans) {
  const { run, step, state } = frame;
  const planned = stepAt(plansAt(plans, step, run.lines), run.id(node))?.word;
  if (state[node]) return dotted(frame.word(node), planned !== frame.word(node) && planned);
  const kind = run.hasSteps ? kindsOf(frame)[node] : 0;
  return planned ?? (kind ? KINDS[kind] : frame.word(node));
}

/** Returns the score of an evaluated thought in words. @param {number} score */
export const scoreOf = (score) => (isNaN(score) ? "unreadable" : brief(score));

/**
 * Describes the state of a thought and its score in a few words.
 * @param {Frame} frame
 * @param {number} node
 * @param {import("./app.js").Facts} facts
 */
export const fateOf = (frame, node, { plans }) =>
  dotted(stateOf(frame, node, plans), frame.scoredLine[node] >= 0 && `score ${scoreOf(frame.score[node])}`);

/**
 * Returns the calls of a thought up to the step of `frame`, and the usage of those with a reply, also as text. A
 * failed call counts as unused unless the model reports its usage.
 * @param {Recording} recording
 * @param {Frame} frame
 * @param {number} node
 */
export function usageOf(recording, { step }, node) {
  const calls = recording
    .callsOf(node)
    .map((index) => recording.call(index))
    .filter(({ line }) => line < step)
    .map((call) => ({
      ...call,
      source: call.kind.startsWith("tool:") ? "tool" : call.source,
      answer: call.replyLine >= 0 && call.replyLine < step,
    }));
  const answered = calls.filter(({ answer }) => answer);
  const all = { input: 0, output: 0, cost: 0, paid: 0, took: 0 };
  for (const call of answered)
    if (!call.error || !isNaN(call.input))
      for (const name of /** @type {(keyof typeof all)[]} */ (Object.keys(all))) all[name] += call[name];
  const source = [...new Set(answered.map((call) => call.source))].join(" and ");
  const open = calls.length - answered.length;
  const words = dotted(
    source && replyOf({ ...all, source, error: null, tries: 1 }, true),
    open > 0 && `${number(open)} open`,
  );
  return { ...all, calls, open, words };
}

/**
 * Describes the purpose of a call.
 * @param {{kind: string, draw: number}} call
 * @param {string} at description of the node
 */
export const callOf = ({ kind, draw }, at = "") => `${kind}${at}${draw ? `, sample ${draw + 1}` : ""}`;

/**
 * Describes the reply of a call in one line.
 * @param {{took: number, error: string | null, input: number, output: number, source: string,
 *   cost: number, paid: number, tries: number}} call
 * @param {boolean} whole whether there is a reply
 */
export const replyOf = ({ took, error, input, output, source, cost, paid, tries }, whole) =>
  whole
    ? dotted(
        source,
        error ? "failed" : source !== "tool" && `${number(input)} → ${number(output)} tokens`,
        seconds(took),
        source !== "tool" && `cost ${money(cost)}, paid ${money(paid)}`,
        tries > 1 && `${tries} tries`,
      )
    : "open";

/**
 * Builds a section that is initially closed.
 * @param {string} title
 * @param {string} beside
 * @param {...Child} children
 */
const fold = (title, beside, ...children) =>
  h("details", h("summary", h("b", title), " ", h("span.quiet", beside)), children);

/** Marks a thought that a tool brought from outside. @param {import("./app.js").Facts} facts @param {string} id */
export const outsideOf = ({ outside }, id) => outside[id] && `from outside (${outside[id]})`;

/** Builds a row that selects a thought. @param {string[]} row id, description, text @param {() => void} go */
export const item = ([id, about, words], go) =>
  button([h("b", id), h("span.quiet", about), h("span", words)], go, undefined, "item");

/**
 * Describes why a search picked thoughts, "" if the line is not a pick. The terms are those that the search recorded. A
 * search that recorded none picked by the scores.
 * @param {Recording} recording
 * @param {number} line
 * @param {string} [only] the id of the only thought to describe
 * @param {Float64Array} [scores] at this line
 */
export function pickOf(recording, line, only, scores) {
  const note = recording.note(line);
  if (note?.name !== "tot.picked") return "";
  const { parents = [], why = {} } = note.data ?? {};
  const terms = (/** @type {string} */ id) =>
    Object.entries(why[id] ?? {}).map(([term, value]) => `${term} ${typeof value === "number" ? brief(value) : JSON.stringify(value)}`);
  if (only !== undefined) return parents.includes(only) ? dotted(`step ${number(line + 1)}`, ...terms(only)) : "";
  const some = parents.slice(0, PICKED).map((/** @type {string} */ id) => {
    const score = scores?.[recording.indexOf(id)] ?? NaN;
    return [`thought ${id}`, terms(id).join(", ") || (isNaN(score) ? "" : `score ${brief(score)}`)].filter(Boolean).join(": ");
  });
  return `picked ${some.join("; ")}${parents.length > PICKED ? ` and ${number(parents.length - PICKED)} more` : ""}`;
}

/** Returns the visits of a thought by Monte Carlo tree search, and its value. @param {Frame} frame @param {number} node */
function visitsOf(frame, node) {
  const { visits, totals } = backedUp(frame);
  return visits[node] > 0 && { visits: number(visits[node]), value: brief(totals[node] / visits[node]) };
}

/**
 * Describes when a search picked a thought, and why.
 * @param {Recording} recording @param {Frame} frame @param {string} id
 */
function picksOf(recording, { step }, id) {
  const picks = [];
  for (let line = 0; line < step; line++) if (recording.note(line)) picks.push(pickOf(recording, line, id));
  const some = picks.filter(Boolean);
  return [...some.slice(0, PICKS), some.length > PICKS && `and ${number(some.length - PICKS)} more`].filter(Boolean).join("; ");
}

/** Describes a change of a person (core/acts.py). @param {any} act */
export function actOf(act) {
  const { node, score, text, limits } = act ?? {};
  const all = {
    prune: `prune thought ${node}`,
    rescore: `score of thought ${node}: ${score}`,
    graft: `a thought below thought ${node} with score ${score}: ${text}`,
    raise_budget: `budget: ${Object.entries(limits ?? {}).map(([name, limit]) => `${name} ${limit}`).join(", ")}`,
  };
  return all[/** @type {keyof typeof all} */ (act?.act)] ?? "";
}

/** @param {App} app */
export function panelOf(app) {
  const { source } = app;
  const parts = Array.from({ length: 5 }, () => h("section"));
  const element = h("div.details", parts);
  /** @type {import("./app.js").Details | null} */
  let details = null;
  /** The details of a sibling, and its id. @type {import("./app.js").Details | null} */
  let beside = null;
  let besideId = "";
  let [shown, wanted, failed] = ["", "", ""];
  let [came, most] = [0, ROWS];

  /** @param {number} which @param {number} node */
  const link = (which, node) =>
    button(`thought ${source.runs[which].id(node)}`, () => app.select(which, [node]), undefined, "link");

  /** Builds the rows of the first `items`, and those of the others on demand. @template T @param {ArrayLike<T>} items
   * @param {(item: T, place: number) => Child} row */
  const rows = (items, row) => [
    Array.from(items).slice(0, most).map(row),
    items.length > most &&
      button(`${number(items.length - most)} more`, () => {
        most *= 10;
        app.changed();
      }),
  ];

  /** Requests the texts, and requests them again after further replies. @param {number} which @param {number} node */
  function ask(which, node) {
    const recording = source.runs[which];
    const replies = recording.callsOf(node).map((index) => recording.call(index).replyLine);
    const now = [shown, recording.ended?.line, replies].join();
    if (now === wanted) return;
    wanted = now;
    const finish = (/** @type {typeof details} */ its, /** @type {string} */ error) => {
      if (now !== wanted) return;
      [details, failed] = [its ?? details, error];
      came++;
      app.changed();
    };
    const siblings = recording.childrenOf(recording.parent[node]);
    const place = siblings.indexOf(node);
    const sibling = siblings[place - 1] ?? siblings[place + 1];
    source.details(which, node).then(
      (its) => finish(its, ""),
      (error) => finish(null, error.message ?? `${error}`),
    );
    if (sibling === undefined) return;
    source.details(which, sibling).then(
      (its) => {
        if (now !== wanted) return;
        [beside, besideId] = [its, recording.id(sibling)];
        finish(null, failed);
      },
      () => {}, // without the sibling's prompts, nothing is folded
    );
  }

  /** Builds a call: a line, and a closed section with the reply, then the prompt.
   * @param {ReturnType<typeof usageOf>["calls"][number]} call @param {number} place */
  function rowOf(call, place) {
    const texts = details?.calls[place];
    if (!texts) return fold(callOf(call), replyOf(call, call.answer), h("p.quiet", "Loading …"));
    const { prompt, thinking, error, reply } = texts;
    const { formulas } = details ?? {};
    const written = prompt.map(({ role, content }) => `${role}: ${content}`).join("\n\n");
    const other = beside?.calls.find(({ kind, draw }) => kind === call.kind && draw === call.draw);
    return fold(
      callOf(call),
      replyOf(call, call.answer),
      h(
        "p.quiet",
        dotted(
          texts.model,
          texts.temperature != null && `temperature ${texts.temperature}`,
          call.answer && texts.finish && `finished: ${texts.finish}`,
        ),
      ),
      call.answer && [
        error && [h("h4", "error"), textOf(error, formulas)],
        reply != null && [h("h4", "reply"), textOf(reply || "(empty)", formulas)],
        thinking && h("details", h("summary", h("b", "thinking")), textOf(thinking, formulas)),
      ],
      prompt.map(({ role, content }, at) => {
        const shared = sharedWith(content, other?.prompt[at]?.content ?? "");
        return [
          h("h4", role),
          shared > 0 && fold(`the first ${number(shared)} characters`, `are the same at thought ${besideId}`, textOf(content.slice(0, shared), formulas)),
          textOf(content.slice(shared), formulas),
        ];
      }),
      h(
        "div.copies",
        call.answer && reply != null && button("copy reply", () => app.copy(reply, "reply")),
        button("copy prompt", () => app.copy(written, "prompt")),
        button("copy messages as JSON", () => app.copy(JSON.stringify(prompt, null, 2), "messages")),
      ),
    );
  }

  /** Builds the samples of an evaluation side by side: scores, and what the evaluator wrote. Of a long reply, that is its
   * end, where the score is.
   * @param {ReturnType<typeof usageOf>} used @param {import("./recording.js").Evaluation | null} evaluation */
  function samplesOf({ calls }, evaluation) {
    const asked = calls.map((call, place) => ({ ...call, texts: details?.calls[place] })).filter(({ kind }) => kind === evaluation?.by);
    const rows = asked.map(({ texts, error }, sample) => {
      const words = (texts?.reply ?? "").trim().replace(/\s+/g, " ");
      const draw = evaluation?.draws[sample];
      return h(
        "tr",
        h("td", h("b", draw == null ? (asked.length > 1 ? "unreadable" : scoreOf(evaluation?.score ?? NaN)) : brief(draw))),
        h("td", error ? `failed: ${error}` : words.length > SENTENCES ? `…${words.slice(-SENTENCES)}` : words),
      );
    });
    return rows.length > 0 && h("table.samples", h("caption", `replies of the evaluator (${evaluation?.by})`), rows);
  }

  /** @param {string} id @param {import("./app.js").Mark} mark */
  function markOf(id, mark) {
    const keep = (/** @type {Partial<typeof mark>} */ change) => {
      source.mark?.(id, { ...mark, ...change });
      app.came();
    };
    const onchange = () => keep({ note: note.value });
    const note = field("textarea", "your note", { rows: 2, onchange }, mark.note);
    return [
      h("h3", "Your mark"),
      /** @type {const} */ (["right", "wrong"]).map((word) =>
        press(
          button(word, () => keep({ verdict: mark.verdict === word ? null : word })),
          mark.verdict === word,
        ),
      ),
      note,
    ];
  }

  /** @param {string} id @param {string} words */
  function branchOf(id, words) {
    const content = field("textarea", "new text of this thought", { rows: 3 }, words);
    const score = field("input", "new score, 0 to 1", { type: "number", step: "any" });
    const status = h("p.quiet", { role: "status" }, "Change the text, the score, or neither.");
    const onsubmit = (/** @type {Event} */ event) => {
      event.preventDefault();
      say(status, "searching …");
      const change = {
        ...(content.value !== words && { content: content.value }),
        ...(score.value && { score: +score.value }),
      };
      source.branch?.({ id, ...change }).then(
        () => say(status, "done"),
        (error) => say(status, `failed: ${error.message ?? error}`),
      );
    };
    return fold(
      "Branch from here",
      "",
      h("form", { onsubmit }, status, content, score, h("button", "run the branch")),
    );
  }

  /** The changes that a person can make to a search under way.
   * @param {string} id @param {boolean} root @param {import("./recording.js").Recording} recording */
  function steerOf(id, root, { about }) {
    const status = h("p.quiet", { role: "status" }, "A change takes effect when the search picks again.");
    const act = (/** @type {string} */ name, /** @type {Record<string, any>} */ given) =>
      source.steer?.(name, given).then(
        () => say(status, "taken when the search picks again"),
        (error) => say(status, `failed: ${error.message ?? error}`),
      );
    /** @param {() => void} send @param {...any} parts */
    const form = (send, ...parts) =>
      h("form", { onsubmit: (/** @type {Event} */ event) => (event.preventDefault(), send()) }, parts);
    const score = field("input", "new score, 0 to 1", { type: "number", step: "any", min: 0, max: 1, required: true });
    const text = field("textarea", "a thought of your own, below this one", { rows: 2, required: true });
    const its = field("input", "its score, 0 to 1", { type: "number", step: "any", min: 0, max: 1, value: 1 });
    const limits = Object.entries(about.budget ?? {}).filter(([, limit]) => limit !== null);
    const caps = limits.map(([name, limit]) => field("input", `${name} (now ${limit})`, { type: "number", step: "any", name }));
    return fold(
      "Change the search",
      "",
      status,
      !root && button("prune this branch", () => act("prune", { node: id })),
      !root && form(() => act("rescore", { node: id, score: +score.value }), score, h("button", "set the score")),
      form(() => act("graft", { node: id, text: text.value, score: +its.value }), text, its, h("button", "add the thought")),
      root && caps.length > 0 && form(
        () => act("raise_budget", Object.fromEntries(caps.filter(({ value }) => value).map(({ name, value }) => [name, +value]))),
        caps,
        h("button", "raise the budget"),
      ),
    );
  }

  /**
   * Shows thought `node` of recording `which`, -1 for none.
   * @param {number} which
   * @param {number} node
   * @param {Frame} frame
   */
  function show(which, node, frame) {
    const recording = source.runs[which];
    const there = node >= 0 && node < frame.nodes;
    const now = `${which} ${recording.about.id} ${node} ${there}`;
    if (now !== shown) {
      [shown, wanted, failed, details, beside, most] = [now, "", "", null, null, ROWS];
      element.scrollTop = 0;
    }
    const [thought, calls, below, mark, branch] = parts;
    const id = there ? recording.id(node) : "";
    const name = which ? `b:${id}` : id;
    const both = source.runs.length > 1;
    const findings = source.runs
      .flatMap((_, one) => source.facts(one).findings.map((its) => ({
        ...its,
        run: both ? `${"AB"[one]}: ` : "",
        nodes: its.nodes.map((id) => (one ? `b:${id}` : id)),
      })))
      .filter(({ kind, nodes }) => !["why_it_failed", "person"].includes(kind) && (node < 0 || nodes.includes(name))); // the header has the cause
    const found = () =>
      findings.map(({ run, kind, text, nodes }) =>
        button([h("b", `${run}${kind.replaceAll("_", " ")}: `), text], () => app.show(nodes), undefined, "finding"),
      );
    if (!there) {
      for (const part of [calls, below, mark, branch]) renew(part, [], () => []);
      renew(thought, [node, findings], () => [
        h("p.quiet", node < 0 ? "Select a thought." : "Not created yet at this step."),
        found(),
      ]);
      return;
    }
    ask(which, node);
    const words = details?.text ?? recording.text(node);
    const used = usageOf(recording, frame, node);
    const evaluation = frame.evaluation(node);
    const draws = evaluation?.draws ?? [];
    const colours = app.colours(which);
    const twin = app.view === "compare" ? app.selected[1 - which].at(-1) : undefined;
    const other = twin === undefined ? undefined : source.runs[1 - which].text(twin);
    const facts = {
      score: evaluation
        ? dotted(
            scoreOf(evaluation.score),
            `by ${evaluation.by || "the strategy"}`,
            draws.length > 0 && short(`samples ${draws.map((draw) => (draw == null ? "unreadable" : brief(draw))).join(", ")}`, 100),
            !isNaN(evaluation.raw) && `raw ${brief(evaluation.raw)}`,
          )
        : !recording.hasSteps && recording.parent[node] >= 0 && "not evaluated",
      state: [stateOf(frame, node, source.facts(which).plans), frame.reason(node)].filter(Boolean).join(": "),
      solvable: { 1: "yes", 0: "no" }[source.facts(which).solvable[node]],
      ...(!["score", "solvable"].includes(app.colour) && { [app.colour]: colours.word(colours.values[node]) }),
      ...(recording.hasVisits && visitsOf(frame, node)),
      picked: picksOf(recording, frame, id),
      "a person's": changedAt(frame).filter(([its]) => its === id).map(([, what]) => what).join("; "),
      waiting: !which && source.live && (source.waiting ?? []).filter((act) => act.node === id).map(actOf).join("; "),
      [`in ${"BA"[which]}`]:
        twin !== undefined && fateOf(app.frameOf(1 - which), twin, source.facts(1 - which)),
    };
    const outside = outsideOf(source.facts(which), id);
    const children = recording.childrenOf(node).filter((child) => child < frame.nodes);
    const links = recording.links.filter(
      ({ from, to, line }) =>
        (from === node || to === node) && to >= 0 && to < frame.nodes && line < frame.step,
    );
    const about = Array.from(children.subarray(0, most), (child) => [
      `thought ${recording.id(child)}`,
      fateOf(frame, child, source.facts(which)),
      short(recording.text(child), 100),
    ]);
    // A vote compares siblings, so its calls are those of the parent.
    const above = recording.parent[node];
    const asks = (/** @type {number} */ one) => recording.callsOf(one).some((call) => recording.call(call).kind === evaluation?.by);
    const judged = evaluation && above >= 0 && !asks(node) && asks(above) ? above : -1;
    renew(thought, [shown, words, outside, other, facts, findings, links.length, came, used.calls.length, judged], () => [
      h("h2", `thought ${id} `, h("span.quiet", fateOf(frame, node, source.facts(which))), outside && [" ", h("b.outside", outside)]),
      textOf(words, details?.formulas),
      h("div.facts", Object.entries(facts).map(([term, value]) => value && [h("span.quiet", term), h("span", value)])),
      other !== undefined && other !== words && [h("h3", which ? "changes from A" : "changes in B"), which ? diffOf(other, words) : diffOf(words, other)],
      samplesOf(used, evaluation),
      judged >= 0 && h("p", `The replies of the evaluator (${evaluation?.by}) are at `, link(which, judged)),
      found(),
      links.map(({ from, to, kind }) =>
        h("p", `${LINKS[kind][+(to === node)]} `, link(which, from === node ? to : from)),
      ),
    ]);
    renew(below, [shown, children.length, about], () => [
      children.length > 0 && h("h3", count(children.length, "child", "children")),
      rows(children, (child, place) => item(about[place], () => app.select(which, [child]))),
    ]);
    const spoken = used.open && source.spoken?.[name];
    renew(calls, [shown, used.calls.length, used.open, came, most, spoken], () => [
      used.calls.length > 0 && h("h3", dotted(count(used.calls.length, "call"), used.words)),
      spoken && [h("h4", "so far"), textOf(spoken)],
      failed && h("p.finding", { role: "alert" }, `Loading failed: ${failed}`),
      rows(used.calls, rowOf),
    ]);
    const its = source.facts(which).marks[id] ?? { verdict: null, note: "" };
    renew(mark, [shown, its, !source.mark], () =>
      source.mark ? markOf(name, its) : (its.verdict || its.note) && `Marked: ${dotted(its.verdict, its.note)}`);
    renew(branch, [shown, !source.live && !!details, source.live, source.searches], () =>
      which ? null : source.live ? source.searches && source.steer && steerOf(id, node === 0, recording) : source.branch && branchOf(id, words));
  }
  return { element, show };
}
