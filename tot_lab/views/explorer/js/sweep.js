/**
 * The page of a sweep (sweep_page.py): a matrix of tasks and settings, a table of the runs, and the explorer of the run
 * that is open.
 *
 * Runs are decompressed when they are opened.
 */

import { mount } from "./app.js";
import { brief, button, count, dotted, field, h, number, press, put, renew, say, short } from "./dom.js";
import { addressOf, addressed, keepAddress, runOf } from "./links.js";
import { Recording } from "./recording.js";
import css from "./style.css";
import { BLAMES, correctOf, nextFailed, rowsMatching, sorted, sweepOf, valueOf } from "./table.js";
import { themeOf } from "./theme.js";

/** Number of runs in the list at first, which fill a screen. More follow when the list is scrolled. */
const RUNS = 120;

/** Maximum number of characters of a value in a table. */
const LONGEST = 80;

/** Directions of the arrow keys: to the side and down. @type {Record<string, [number, number]>} */
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/**
 * @param {HTMLElement} place
 * @param {any} data of `sweep_page` in sweep_page.py
 * @param {(id: string) => Promise<any>} unpacked decodes a compressed element of the page
 */
export function showSweep(place, data, unpacked) {
  const sweep = sweepOf(data);
  const rows = [...sweep.packs.keys()];
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
  let [by, way, most, comparing] = ["", 1, RUNS, false];
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
  const simulated = rows.some((row) => value(row, "simulated") === true) && h("b.badge", "simulated model");
  const legend = h("div.row", { role: "group", "aria-label": "legend" });
  const list = h("div.runs", { role: "region", "aria-label": "runs, the arrow keys move between them", tabindex: 0 });
  list.onscroll = () => {
    if (list.scrollTop + 2 * list.clientHeight < list.scrollHeight || !list.querySelector(".tl-more")) return;
    most *= 2;
    show();
  };
  list.onclick = (event) => {
    const row = /** @type {Element} */ (event.target).closest("[data-row]")?.getAttribute("data-row");
    if (row != null) openRun(+row, comparing || event.shiftKey);
  };
  list.onkeydown = (event) => {
    const its = /** @type {HTMLElement} */ (event.target);
    if (!its.matches(".tl-run") || !ARROWS[event.key]) return;
    event.preventDefault();
    neighbour(its, ...ARROWS[event.key])?.focus();
  };
  // One tab stop for all runs.
  list.onfocusin = ({ target }) => {
    if (/** @type {Element} */ (target).matches(".tl-run")) stopAt(/** @type {HTMLElement} */ (target));
  };
  const title = h("b");
  const status = h("p.quiet", { role: "status" });
  const host = h("div");
  const root = h(
    "div.root",
    { role: "region", "aria-label": "sweep" },
    h(
      "div.frame",
      h("div.row", h("div.title", h("h2", sweep.name), simulated, tally), h("span", { role: "group", "aria-label": "view" }, views)),
      h(
        "div.row",
        query,
        error,
        button("‹ failed", () => step(-1), "previous failed run ([)"),
        button("failed ›", () => step(1), "next failed run (])"),
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
  const paint = () => {
    const theme = themeOf(place);
    for (const [name, value] of Object.entries(theme)) root.style.setProperty(`--${name}`, String(value));
    root.style.colorScheme = theme.dark ? "dark" : "light";
  };
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
    most = RUNS;
    show();
  }

  /** The shown rows in their order. */
  function inOrder() {
    return by ? sorted(sweep, found, by, way) : found;
  }

  /** Opens the next failed run of the list. @param {number} to 1, or -1 for the previous one */
  function step(to) {
    const row = nextFailed(sweep, inOrder(), open[0] ?? (to > 0 ? -1 : Infinity), to);
    if (row >= 0) openRun(row);
    else say(status, "no failed run in the list");
  }

  /** Opens the run that the address names. */
  function follow() {
    const id = runOf(location.hash);
    const row = rows.find((one) => id !== null && value(one, "run_id") === id);
    if (row !== undefined && row !== open[0]) openRun(row, false, true);
  }

  /** Opens a run, or two. @param {number} row @param {boolean} [beside] compares it with the open one
   * @param {boolean} [named] whether the address names it */
  async function openRun(row, beside = false, named = false) {
    const now = ++opened;
    open = beside && open.length && open[0] !== row ? [open[0], row] : [row];
    comparing = false;
    show();
    const missing = open.find((one) => !sweep.packs[one]);
    if (missing !== undefined) {
      app?.destroy();
      app = undefined;
      return void say(status, `this run could not start: ${value(missing, "why")}`);
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
      if (!named && addressed()) history.pushState(null, "", `#run=${encodeURIComponent(`${value(row, "run_id")}`)}`);
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
      address = open.length > 1 ? { shown() {}, end() {} } : keepAddress(app);
      say(status, "");
      host.scrollIntoView({ block: "nearest" });
    } catch (failed) {
      say(status, `the run could not be opened: ${failed}`);
    }
  }

  /** @param {number} row */
  async function unpack(row) {
    const [pack, place] = /** @type {[number, number]} */ (sweep.packs[row]);
    if (!packs.has(pack)) packs.set(pack, unpacked(`pack-${pack}`));
    return (await packs.get(pack))[place];
  }

  /** Returns the sign of a run and its meaning. @param {number} row */
  function signOf(row) {
    const [correct, blame] = [correctOf(sweep, row), value(row, "blame")];
    if (!sweep.packs[row]) return ["!", "did not start", "ungraded"];
    if (correct) return ["✓", "right", "right"];
    if (correct === null) return ["–", "not graded", "ungraded"];
    return [`✗${BLAMES[/** @type {keyof typeof BLAMES} */ (blame)] ?? ""}`, dotted("wrong", blame), (blame ?? "unknown").replace(" ", "-")];
  }

  /** Builds the button of a run. @param {number} row */
  function runButton(row) {
    const [sign, words, kind] = signOf(row);
    const about = dotted(words, value(row, "why") ?? value(row, "grade"), value(row, "ended"));
    const its = h("button", {
      type: "button",
      class: `tl-run tl-${kind}`,
      tabindex: -1,
      "data-row": `${row}`,
      "aria-label": dotted(sign, about, `${value(row, "task")}`, `${value(row, "setting")}`, `repeat ${value(row, "repeat")}`),
      title: dotted(about, `answer: ${short(`${value(row, "answer") ?? "none"}`, LONGEST)}`),
    }, sign);
    if (open.includes(row)) put(its, { "aria-current": "true" });
    return its;
  }

  /** Makes a run the one that the tab key reaches. @param {HTMLElement | null} its */
  function stopAt(its) {
    list.querySelector('.tl-run[tabindex="0"]')?.setAttribute("tabindex", "-1");
    its?.setAttribute("tabindex", "0");
  }

  /** Returns the nearest run in a direction. @param {HTMLElement} its @param {number} across @param {number} down
   * @returns {HTMLElement | undefined} */
  function neighbour(its, across, down) {
    const all = /** @type {HTMLElement[]} */ ([...list.querySelectorAll(".tl-run")]);
    const at = all.indexOf(its);
    if (across) return all[at + across];
    const { cellIndex, children } = /** @type {HTMLTableCellElement} */ (its.parentElement);
    const place = [...children].indexOf(its);
    for (let line = its.closest("tr"); line; ) {
      line = /** @type {HTMLTableRowElement | null} */ (down > 0 ? line.nextElementSibling : line.previousElementSibling);
      const inside = line?.cells[cellIndex].children ?? [];
      if (inside.length) return /** @type {HTMLElement} */ (inside[Math.min(place, inside.length - 1)]);
    }
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
    /** @param {string} task */
    const inRow = (task) => settings.map((setting) => (cells.get(`${task}\n${setting}`) ?? []).filter((row) => shown.has(row)));
    const some = tasks.map((task) => /** @type {const} */ ([task, inRow(task)])).filter(([, its]) => its.some(({ length }) => length));
    let room = most;
    const first = some.filter(([, its]) => room > 0 && (room -= its.flat().length, true));
    return [
      h(
        "table.matrix",
        h("thead", h("tr", h("th", { scope: "col" }, "task"), settings.map((setting) => h("th", { scope: "col" }, setting)))),
        h("tbody", first.map(([task, its]) =>
          h("tr", h("th", { scope: "row", title: task }, short(task, LONGEST)), its.map((cell) => h("td", cell.map(runButton)))))),
      ),
      more(some.length - first.length),
    ];
  }

  function table() {
    const columns = Object.keys(sweep.columns);
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
            return h("td", its === null ? "" : typeof its === "number" ? brief(its) : short(`${its}`, LONGEST));
          })))),
      ),
      more(some.length - most),
    ];
  }

  function show() {
    const right = found.filter((row) => correctOf(sweep, row)).length;
    const wrong = found.filter((row) => correctOf(sweep, row) === false).length;
    say(tally, dotted(count(found.length, "run"), `${number(right)} right`, `${number(wrong)} wrong`));
    views.forEach((one) => press(one, one.textContent === view));
    press(compare, comparing);
    renew(list, [view, found, by, way, most, open], () => (view === "matrix" ? matrix() : table()));
    if (!list.querySelector('.tl-run[tabindex="0"]')) stopAt(list.querySelector(".tl-run[aria-current], .tl-run"));
    renew(legend, [found], legendOf);
    say(title, open.map((row) => dotted(`${value(row, "setting")}`, short(`${value(row, "task")}`, LONGEST))).join("  –  "));
  }

  /** Explains the signs of the runs in the list, with the number of each. */
  function legendOf() {
    /** @type {Map<string, number[]>} */
    const signs = new Map();
    for (const row of found) signs.set(signOf(row)[0], [...(signs.get(signOf(row)[0]) ?? []), row]);
    return [...signs].sort().map(([sign, its]) => {
      const [, words, kind] = signOf(its[0]);
      const blame = value(its[0], "blame");
      const condition = blame && sign[0] === "✗" ? `blame:"${blame}"` : sweep.columns.correct && `correct:${correctOf(sweep, its[0]) ?? "none"}`;
      const key = h("span.run", { class: `tl-run tl-${kind}`, "aria-hidden": "true" }, sign);
      return button([key, `${words} ${number(its.length)}`], () => {
        if (condition) query.value = condition;
        filter();
      }, "find these", "flat");
    });
  }
}
