/**
 * The frame around the pictures: header, toolbar, side panel and help.
 */

import { brief, button, count, dotted, field, h, money, press, put, renew, say, short } from "./dom.js";
import { item } from "./details.js";
import { PERSON } from "./draw.js";
import { max, min, round } from "./numbers.js";
import { changedAt } from "./scene.js";
import { SYNTAX } from "./search.js";
import { DIFFERENCES } from "./theme.js";

export const VIEWS = /** @type {const} */ (["tree", "steps", "plan", "timeline", "compare"]);

/** Maximum number of differences in the list. */
const LISTED = 200;

const KEYS = `↑ ↓ ← →   move, collapse, expand
n p u     next, previous sibling, parent
b         best thought
f + -     fit all, zoom
space     play, pause
, .       step back, forward
[ ]       previous, next pick of the search
r         read the details in full width
← →       over the calls: previous, next thought
/ ?       search, help
Escape    back to the whole run`;

/** Returns the settings in `text` (`verdict_of` in verdict.py) by name. @param {string} [text] */
function settingsOf(text = "") {
  /** @type {Map<string, string>} */
  const all = new Map();
  let name = "";
  for (const part of text.split(/, (?=\w+=)/)) {
    const [, its, value] = /^(\w+)=(.*)$/s.exec(part) ?? [];
    const open = (all.get(name) ?? "").split(/[([{]/).length > (all.get(name) ?? "").split(/[)\]}]/).length;
    if (open) all.set(name, `${all.get(name)}, ${part}`); // a setting of a setting
    else if (its) all.set((name = its), value);
  }
  return all;
}

/** Returns the settings that two runs do not share, each with both values. @param {(string | undefined)[]} texts */
function unlike(texts) {
  const both = texts.map(settingsOf);
  const names = new Set(both.flatMap((all) => [...all.keys()]));
  return Object.fromEntries([...names].map((name) => [name, both.map((all) => all.get(name) ?? "default")])
    .filter(([, [a, b]]) => a !== b));
}

/**
 * Returns the strip below the title: is the answer right, how did the run end, and what was set?
 * @param {string} of which of two runs, "" if there is one
 * @param {{correct: boolean | null, grade: string, expected: string, stopped: string, settings: string}} verdict
 *   `verdict_of` in verdict.py
 * @param {{answer: string, score: number | null}} ended
 * @param {import("./theme.js").Theme} theme
 * @param {Record<string, number | null>} [budget]
 */
function strip(of, { correct, grade, expected, stopped, settings }, { answer, score }, theme, budget) {
  const word = h("b", of, grade);
  word.style.borderColor = correct === null ? theme.faint : theme.verdicts[correct ? "right" : "wrong"];
  /** @param {string} name @param {string} value */
  const fact = (name, value) => value && [" · ", h("span.quiet", name), " ", h("b", value)];
  return [
    word,
    fact("answer", short(answer, 160) || "none"),
    fact("expected", short(expected, 160)),
    fact("ended:", stopped),
    fact("strategy's score", score === null ? "" : brief(score)), // not beside the grade, with which it must not be confused
    fact("settings", settings),
    fact("budget", Object.entries(budget ?? {}).filter(([, cap]) => cap !== null).map(([name, cap]) => `${name} ${cap}`).join(", ")),
  ];
}

/**
 * @param {import("./app.js").App} app
 * @param {HTMLElement} panel
 * @param {HTMLElement} time
 * @param {HTMLElement} legend
 */
export function faceOf(app, panel, time, legend) {
  const { source, panes } = app;
  const title = h("h2");
  const subtitle = h("span.quiet");
  const badge = h("b.badge");
  const verdict = h("div.verdict", { role: "group", "aria-label": "verdict" });
  const cause = h("div.cause", { role: "group", "aria-label": "cause" });
  const views = VIEWS.map((view) => button(view, () => app.set({ view, viewed: true })));
  const query = field("input", "search: words, score>0.7, depth=2, state:pruned", {
    type: "search",
    oninput: () => app.find(),
    onkeydown(/** @type {KeyboardEvent} */ { key }) {
      if (key === "Enter") app.jump();
    },
  });
  const found = h("span.quiet", { role: "status" });
  const only = button("only matches", () => app.set({ only: !app.only }));
  const matches = [button("next match", app.jump, "Enter"), only];
  const lens = h(
    "span",
    { role: "group", "aria-label": "zoom" },
    button("−", () => app.zoom(1 / 1.4), "zoom out (-)"),
    button("fit", () => app.fit(), "fit all (f)"),
    button("+", () => app.zoom(1.4), "zoom in (+)"),
  );
  const svg = button("SVG picture", () => app.save("svg"));
  const differences = h("div.differences");
  const status = h("div.unseen", { role: "status" });
  const help = h(
    "dialog",
    { "aria-label": "help" },
    h("pre", KEYS),
    h("p", "Drag to move; after a click the wheel zooms. Shift adds to the selection. A double click collapses, expands."),
    h("p", "Orange leads to the best thought, blue to the selected; a dashed ring is an open call."),
    h("p", SYNTAX),
    h("form", { method: "dialog" }, h("button", "close")),
  );
  const pictures = h("div.pictures", panes[0].element);
  const menu = h(
    "details.menu",
    h("summary", "export"),
    h(
      "div.sheet",
      button("PNG picture", () => app.save("png")),
      svg,
      source.exportHtml && button("HTML file", () => app.save("html")),
      source.address && button("copy link", () => app.copy(source.address?.() ?? "", "link")),
    ),
  );
  const wider = button("read", () => app.set({ reading: !app.reading }), "the whole width for reading (r)");
  let wide = 350;
  /** Sets the width of the side panel. @param {number} to in pixels */
  const widen = (to) => {
    wide = max(240, min(to, root.clientWidth - 200));
    root.style.setProperty("--side", `${wide}px`);
    put(bar, { "aria-valuenow": `${round(wide)}` });
  };
  const bar = h("div.bar", {
    ...{ role: "separator", tabindex: 0, "aria-orientation": "vertical", "aria-label": "width of the details", "aria-valuenow": "350" },
    onpointerdown: (/** @type {PointerEvent} */ event) => bar.setPointerCapture(event.pointerId),
    onpointermove(/** @type {PointerEvent} */ { clientX, pointerId }) {
      if (bar.hasPointerCapture(pointerId)) widen(root.getBoundingClientRect().right - clientX);
    },
    onkeydown(/** @type {KeyboardEvent} */ { key }) {
      const way = { ArrowLeft: 30, ArrowRight: -30 }[key];
      if (way) widen(wide + way);
    },
  });
  const root = h(
    "div.root",
    {
      role: "region",
      "aria-label": "search explorer",
      "data-lm-suppress-shortcuts": true, // Jupyter's
      onclick(/** @type {{target: Element}} */ { target }) {
        if (!menu.contains(target) || target.matches("button")) menu.open = false;
      },
    },
    h(
      "div.frame",
      h("div.row", h("div.title", title, badge, subtitle), h("span", { role: "group", "aria-label": "view" }, views)),
      verdict,
      cause,
      h(
        "div.row",
        query,
        found,
        matches,
        lens,
        button("best", () => app.best(), "the best thought (b)"),
        button("expand all", () => app.open(true)),
        button("collapse", () => app.open(false)),
        menu,
        button("?", () => help.showModal(), "help (?)"),
      ),
      h(
        "div.main",
        h("div.stages", pictures, legend),
        bar,
        h("aside.side", { "aria-label": "details" }, differences, panel, wider),
      ),
      time,
    ),
    status,
    help,
  );
  return { root, query, status, help, pictures, wider, show };

  /**
   * @param {import("./recording.js").Frame} frame of the first recording
   * @param {number | undefined} hits number of matches of the search, if there is one
   * @param {(ReturnType<typeof import("./align.js").align> & {at: string}) | null} aligned
   * @param {import("./theme.js").Theme} theme
   */
  function show(frame, hits, aligned, theme) {
    const { runs } = source;
    const [{ about, ended }, second] = runs;
    say(title, short(about.question || "a search", 160));
    say(
      subtitle,
      dotted(
        second ? `A: ${about.name}` : about.name,
        second && `B: ${second.about.name}`,
        about.model,
        about.unknown.length > 0 && "imported",
        about.parent && `branched from ${about.parent}`,
        !ended && (source.live ? (source.paused ? "paused" : "running") : "unfinished"),
      ),
    );
    /** Returns the prefix that names one of two runs, "" for a single run. @param {number} which */
    const named = (which) => (second ? `${"AB"[which]}: ` : "");
    const over = runs.map((_, which) => app.frameOf(which).stop !== null);
    verdict.hidden = !over.some(Boolean);
    renew(verdict, [over, runs.map(({ about }) => about.verdict), runs.map(({ ended }) => ended), theme.dark], () =>
      runs.map(({ about, ended }, which) => ended && over[which] && h("div", strip(named(which), about.verdict, ended, theme, about.budget))));
    const why = runs.flatMap((_, which) =>
      source.facts(which).findings.filter(({ kind }) => kind === "why_it_failed").map(({ text, nodes }) => ({ of: named(which), text, ids: nodes.map((id) => (which ? `b:${id}` : id)) })));
    const changes = changedAt(frame);
    const known = frame.stop === null ? [] : why;
    cause.hidden = !known.length && !changes.length;
    renew(cause, [known, changes], () => [
      known.map(({ of, text, ids }) => button([h("b", `${of}why it failed: `), text], () => app.show(ids), "select these thoughts", "finding")),
      changes.length > 0 && button(
        [h("b.person", `${PERSON} a person changed `), short(changes.map(([, , , words]) => words).join("; "), 300)],
        () => app.show([...new Set(changes.map(([id]) => id).filter(Boolean))]), "select these thoughts", "finding"),
    ]);
    // In alphabetical order, "simulated model" comes last.
    badge.textContent = runs.map(({ about }) => about.model_note).sort().at(-1);
    badge.hidden = !badge.textContent;
    views.forEach((view, place) => press(view, VIEWS[place] === app.view));
    views[VIEWS.indexOf("compare")].hidden = !second;
    views[VIEWS.indexOf("plan")].hidden = !source.facts(0).plans.length;
    const listed = app.view === "steps" || app.view === "plan";
    lens.hidden = listed;
    svg.hidden = legend.hidden = app.view === "timeline" || listed;
    for (const one of matches) one.hidden = hits === undefined;
    const { error } = app.search;
    say(found, error || dotted(hits !== undefined && count(hits, "match", "matches"), app.search.note, app.note));
    put(query, { "aria-invalid": `${!!error}` });
    press(only, app.only);
    press(wider, app.reading);
    root.classList.toggle("tl-reading", app.reading);
    differences.hidden = !aligned;
    if (!aligned) return;
    const { differences: all, counts } = aligned;
    const usages = runs.map((_, which) => app.frameOf(which).usage);
    /** @type {Record<string, (string | undefined)[]>} */
    const facts = {
      ...unlike(runs.map(({ about: { name, model, verdict } }) => `strategy=${name}, model=${model}, ${verdict?.settings}`)),
      answer: runs.map(({ ended }) => short(ended?.answer || "none", 120)),
      verdict: runs.map(({ about, ended }) => (ended ? about.verdict?.grade : "unfinished")),
      ended: runs.map(({ about }) => about.verdict?.stopped),
      usage: usages.map(({ calls, input, output, cost }) => dotted(count(calls, "call"), count(input + output, "token"), money(cost))),
    };
    renew(differences, [aligned.at, theme.dark, facts], () => [
      about.question !== second?.about.question && h("p.finding", "The runs have different questions."),
      h(
        "table.samples",
        h("thead", h("tr", h("td"), runs.map(({ about }, which) => h("th", { scope: "col" }, dotted("AB"[which], about.name))))),
        Object.entries(facts).map(([name, both]) =>
          h("tr", h("th", { scope: "row" }, name), both[0] === both[1] ? h("td", { colspan: 2 }, both[0]) : both.map((one) => h("td", h("b", one))))),
      ),
      h("h3", count(all.length, "difference")),
      h("p.quiet", `${counts.same} of ${count(counts.matched, "thought")} in both are the same`),
      all.slice(0, LISTED).map(({ kind, a, b, size }, place) => {
        const which = +(a < 0);
        const node = which ? b : a;
        const code = Math.max(DIFFERENCES.indexOf(`other ${kind}`), 1);
        const about = code > 1 ? DIFFERENCES[code] : `only in ${"AB"[which]}, ${count(size, "thought")}`;
        const recording = runs[which];
        const row = item([`thought ${recording.id(node)}`, about, short(recording.text(node), 100)], () =>
          app.select(which, [node]),
        );
        row.style.borderInlineStart = `3px solid ${theme.differences[code]}`;
        const head = ["first difference in the record", "after it"][place];
        return head ? [h("p.quiet", head), row] : row;
      }),
      all.length > LISTED && h("p.quiet", `and ${all.length - LISTED} more`),
    ]);
  }
}
