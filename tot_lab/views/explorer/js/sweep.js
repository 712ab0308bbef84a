/**
 * The page of a sweep (sweep_page.py): a matrix of tasks and settings, a table of the runs, and the explorer of the run
 * that is open.
 *
 * Runs are decompressed when they are opened.
 *
 * @typedef {import("./table.js").Sweep} Sweep
 */

import { mount } from "./app.js";
import { brief, button, count, dotted, field, h, number, press, put, renew, say, short } from "./dom.js";
import { addressOf, addressed, keepAddress, runsOf } from "./links.js";
import { Recording } from "./recording.js";
import css from "./style.css";
import { BLAMES, columnsOf, correctOf, nextWrong, rowsMatching, sorted, valueOf } from "./table.js";
import { setColours, themeOf } from "./theme.js";

/** Number of rows of the matrix and of the table that are shown at first, and of runs in a row of the matrix above which
 * the row counts as several. More follow when the list is scrolled. */
const [ROWS, RUNS] = [60, 8];

/** Maximum number of characters of a value in a table. */
const LONGEST = 80;

/**
 * @param {HTMLElement} place
 * @param {Sweep} sweep
 * @param {(id: string) => Promise<any>} unpacked decodes a compressed element of the page
 */
export function showSweep(place, sweep, unpacked) {
  const rows = [...sweep.rows.keys()];
  /** @param {number} row @param {string} column */
  const value = (row, column) => valueOf(sweep, row, column);
  const [tasks, settings] = ["task", "setting"].map((name) => [...new Set(rows.map((row) => `${value(row, name)}`))]);
  /** The rows of each cell of the matrix. @type {Map<string, number[]>} */
  const cells = new Map();
  for (const row of rows) {
    const cell = `${value(row, "task")}\n${value(row, "setting")}`;
    cells.set(cell, [...(cells.get(cell) ?? []), row]);
  }
  let view = "matrix";
  /** @type {number[]} */
  let found = rows;
  let [by, way, most, comparing] = ["", 1, ROWS, false];
  /** The open runs: one, or two to compare. @type {number[]} */
  let open = [];
  /** @type {ReturnType<typeof mount> | undefined} */
  let app;
  let opened = 0; // changes with each opening
  let address = { shown: () => {}, end: () => {} };
  /** @type {Map<number, Promise<any>>} */
  const packs = new Map();

  const tally = h("span.quiet");
  const error = h("span.quiet", { role: "status" });
  const query = field("input", "filter: words, correct:false, calls>50, blame:evaluator", { type: "search", oninput: filter });
  const views = ["matrix", "table"].map((name) => button(name, () => {
    view = name;
    show();
  }));
  const compare = button("compare", () => {
    comparing = !comparing;
    show();
  }, "the next run that is chosen is compared with the open one; or hold Shift");
  const note = sweep.model_note && h("b.badge", sweep.model_note);
  const legend = h("div.row", { role: "group", "aria-label": "legend" });
  const list = h("div.runs", { role: "region", "aria-label": "runs", tabindex: 0 });
  list.onscroll = () => {
    if (list.scrollTop + 2 * list.clientHeight < list.scrollHeight || !list.querySelector(".tl-more")) return;
    most *= 2;
    show();
  };
  // The runs are one tab stop. The arrow keys move within them.
  list.onkeydown = (event) => {
    const its = /** @type {Element} */ (event.target).closest("button.tl-run");
    const [across, down] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key] ?? [0, 0];
    if (!its || (!across && !down)) return;
    event.preventDefault();
    const cell = /** @type {HTMLTableCellElement} */ (its.closest("td"));
    const all = [...list.querySelectorAll("button.tl-run")];
    let to = across ? all[all.indexOf(its) + across] : null;
    for (let row = cell.parentElement; down && row && !to;) {
      row = /** @type {HTMLElement | null} */ (down > 0 ? row.nextElementSibling : row.previousElementSibling);
      to = row?.children[cell.cellIndex].querySelector("button.tl-run") ?? null;
    }
    if (!to) return;
    put(its, { tabindex: "-1" });
    put(to, { tabindex: "0" });
    /** @type {HTMLElement} */ (to).focus();
  };
  const title = h("b");
  const status = h("p.quiet", { role: "status" });
  const host = h("div");
  const root = h(
    "div.root",
    { role: "region", "aria-label": "sweep" },
    h(
      "div.frame",
      h("div.row", h("div.title", h("h2", sweep.name), note, tally), h("span", { role: "group", "aria-label": "view" }, views)),
      h(
        "div.row",
        query,
        error,
        button("‹ wrong", () => step(-1), "previous wrong run ([)"),
        button("wrong ›", () => step(1), "next wrong run (])"),
        compare,
      ),
      list,
      legend,
      h("div.row", title, status),
    ),
  );
  root.style.setProperty("--height", "auto");
  place.append(root, host);
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(css);
  document.adoptedStyleSheets.push(sheet);
  const paint = () => setColours(root, themeOf(place));
  paint();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  addEventListener("keydown", (event) => {
    const to = { "[": -1, "]": 1 }[event.key];
    if (to && !(/** @type {Element} */ (event.target).matches("input, textarea"))) step(to);
  });
  addEventListener("popstate", follow);
  show();
  follow();

  function filter() {
    const matching = rowsMatching(sweep, query.value);
    const failed = typeof matching === "string";
    if (!failed) found = matching;
    put(query, { "aria-invalid": `${failed}` });
    say(error, failed ? matching : query.value ? count(found.length, "run") : "");
    most = ROWS;
    show();
  }

  /** The shown rows in their order. */
  function inOrder() {
    return by ? sorted(sweep, found, by, way) : found;
  }

  /** Opens the next wrong run of the list. @param {number} to 1, or -1 for the previous one */
  function step(to) {
    const row = nextWrong(sweep, inOrder(), open[0] ?? (to > 0 ? -1 : Infinity), to);
    if (row >= 0) openRun(row);
    else say(status, "no wrong run in the list");
  }

  /** Opens the run, or the two, that the address names. */
  function follow() {
    const [first, ...others] = runsOf(location.hash).flatMap((id) => rows.filter((row) => value(row, "run_id") === id));
    if (first === undefined || [first, ...others].join() === open.join()) return;
    openRun(first, false, true);
    for (const other of others) openRun(other, true, true);
  }

  /** Opens a run, or two. @param {number} row @param {boolean} [beside] compares it with the open one
   * @param {boolean} [named] whether the address names it */
  async function openRun(row, beside = false, named = false) {
    const now = ++opened;
    open = beside && open.length && open[0] !== row ? [open[0], row] : [row];
    comparing = false;
    show();
    const missing = open.find((one) => !sweep.facts[one].pack);
    if (missing !== undefined) {
      app?.destroy();
      app = undefined;
      return void say(status, `this run could not start: ${sweep.facts[missing].why}`);
    }
    say(status, "loading …");
    try {
      const runs = await Promise.all(open.map(unpack));
      if (now !== opened) return;
      address.end();
      app?.destroy();
      const recordings = runs.map(({ structure, texts }) => {
        const recording = new Recording(structure.about);
        recording.append(structure.chunk);
        recording.setTexts(0, texts);
        return recording;
      });
      if (!named && addressed()) {
        const [run, second] = open.map((one) => `${value(one, "run_id")}`);
        history.pushState(null, "", `#${new URLSearchParams({ run, ...(second && { with: second }) })}`);
      }
      app = mount(
        host,
        {
          runs: recordings,
          live: false,
          facts: (which) => runs[which].structure,
          details: async (which, node) => runs[which].details[node],
          onChange() {},
          select() {},
          onSelect() {},
          stepped: () => address.shown(),
          address: addressed() ? () => location.href.replace(/#.*|$/, "") + (app ? addressOf(app) : "") : undefined,
        },
        { height: Math.max(480, Math.min(innerHeight - 24, 700)) },
      );
      Object.assign(place, { explorer: app }); // for tests
      address = keepAddress(app);
      say(status, "");
      host.scrollIntoView({ block: "nearest" });
    } catch (failed) {
      say(status, `the run could not be opened: ${failed}`);
    }
  }

  /** @param {number} row */
  async function unpack(row) {
    const [pack, place] = /** @type {[number, number]} */ (sweep.facts[row].pack);
    if (!packs.has(pack)) packs.set(pack, unpacked(`pack-${pack}`));
    return (await packs.get(pack))[place];
  }

  /** Builds the button of a run. @param {number} row */
  function runButton(row) {
    const correct = correctOf(sweep, row);
    const { blame, why, pack } = sweep.facts[row];
    const error = value(row, "error");
    const sign = !pack || error ? "!" : correct ? "✓" : correct === false ? `✗${BLAMES[/** @type {keyof typeof BLAMES} */ (blame)] ?? ""}` : "–";
    const words = !pack ? "did not start" : error ? `failed: ${short(`${error}`, LONGEST)}` : correct ? "right" : correct === false ? "wrong" : "not graded";
    const its = h("button", {
      type: "button",
      tabindex: "-1",
      class: `tl-run tl-${correct ? "right" : (blame ?? "ungraded").replace(" ", "-")}`,
      "data-row": `${row}`,
      "aria-label": dotted(sign, words, why, `${value(row, "task")}`, `${value(row, "setting")}`, `repeat ${value(row, "repeat")}`),
      title: dotted(words, why, `answer: ${short(`${value(row, "answer") ?? "none"}`, LONGEST)}`),
    }, sign);
    if (open.includes(row)) put(its, { "aria-current": "true" });
    return its;
  }

  /** Builds the last line of a list of which only some rows are shown. @param {number} hidden */
  function more(hidden) {
    const further = () => {
      most *= 5;
      show();
    };
    return hidden > 0 && h("p.more", button(`${number(hidden)} more`, further));
  }

  function matrix() {
    const shown = new Set(found);
    const some = tasks.filter((task) => settings.some((setting) => cells.get(`${task}\n${setting}`)?.some((row) => shown.has(row))));
    const first = Math.ceil(most / Math.max(1, found.length / some.length / RUNS));
    return [
      h(
        "table.matrix",
        h("thead", h("tr", h("th", { scope: "col" }, "task"), settings.map((setting) => h("th", { scope: "col" }, setting)))),
        h("tbody", some.slice(0, first).map((task) =>
          h("tr", h("th", { scope: "row", title: task }, short(task, LONGEST)), settings.map((setting) =>
            h("td", (cells.get(`${task}\n${setting}`) ?? []).filter((row) => shown.has(row)).map(runButton)))))),
      ),
      more(some.length - first),
    ];
  }

  function table() {
    const columns = columnsOf(sweep);
    const some = inOrder();
    return [
      h(
        "table.table",
        h("thead", h("tr", h("th", { scope: "col" }, "run"), columns.map((column) =>
          h("th", { scope: "col", "aria-sort": by === column ? (way > 0 ? "ascending" : "descending") : null },
            button(`${column}${by === column ? (way > 0 ? " ↑" : " ↓") : ""}`, () => {
              way = by === column ? -way : 1;
              by = column;
              show();
            }, undefined, "flat"))))),
        h("tbody", some.slice(0, most).map((row) =>
          h("tr", h("td", runButton(row)), columns.map((column) => {
            const its = value(row, column);
            return h("td", its === null ? "" : typeof its === "number" ? (Number.isInteger(its) ? number(its) : brief(its)) : short(`${its}`, LONGEST));
          })))),
      ),
      more(some.length - most),
    ];
  }

  function show() {
    const right = found.filter((row) => correctOf(sweep, row)).length;
    const wrong = found.filter((row) => correctOf(sweep, row) === false);
    const failed = found.filter((row) => value(row, "error")).length;
    const parts = [`${number(right)} right`, `${number(wrong.length)} wrong`, failed && `${number(failed)} failed`];
    say(tally, dotted(count(found.length, "run"), ...parts));
    views.forEach((one) => press(one, one.textContent === view));
    press(compare, comparing);
    renew(list, [view, found, by, way, most, open], () => (view === "matrix" ? matrix() : table()));
    const stop = list.querySelector("button.tl-run[tabindex='0']") ?? list.querySelector("button.tl-run[aria-current]");
    const first = stop ?? list.querySelector("button.tl-run");
    if (first) put(first, { tabindex: "0" });
    renew(legend, [wrong], () => Object.entries(BLAMES).map(([blame, sign]) => {
      const its = wrong.filter((row) => sweep.facts[row].blame === blame).length;
      return its > 0 && button(`✗${sign} ${blame} ${number(its)}`, () => {
        query.value = `blame:"${blame}"`;
        filter();
      }, "find these", "flat");
    }));
    say(title, open.map((row) => dotted(`${value(row, "setting")}`, short(`${value(row, "task")}`, LONGEST))).join("  –  "));
    list.onclick = (event) => {
      const row = /** @type {Element} */ (event.target).closest("[data-row]")?.getAttribute("data-row");
      if (row != null) openRun(+row, comparing || event.shiftKey);
    };
  }
}
