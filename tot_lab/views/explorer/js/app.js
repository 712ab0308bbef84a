/**
 * The explorer in one DOM element.
 *
 * The display is a function of the runs and a small state. Every event changes the state and requests a render, at
 * most one per animation frame. At step k the interface shows only the first k lines of the record.
 */

import { align } from "./align.js";
import { leading, opened, revealed } from "./branches.js";
import { legendOf, timeBar } from "./controls.js";
import { fateOf, panelOf } from "./details.js";
import { dotted, h, say, short } from "./dom.js";
import { faceOf } from "./face.js";
import { floor, max, min, round } from "./numbers.js";
import { quantityOf } from "./quantities.js";
import { paneOf } from "./pane.js";
import { sheetOf } from "./print.js";
import { Scene, layoutParents } from "./scene.js";
import { searchOf } from "./search.js";
import { isChain } from "./steps.js";
import css from "./style.css";
import { DIFFERENCES, LIGHT, setColours, themeOf } from "./theme.js";
import { unionOf } from "./union.js";

/**
 * @typedef {import("./recording.js").Recording} Recording
 * @typedef {import("./recording.js").Frame} Frame
 * @typedef {{kind: string, draw: number, prompt: {role: string, content: string}[], reply: string | null, thinking: string | null,
 *   error: string | null, finish: string | null, model: string | null, temperature: number | null}} CallDetails
 * @typedef {{text: string, calls: CallDetails[], formulas?: import("./rich.js").Formulas}} Details
 * @typedef {{verdict: "right" | "wrong" | null, note: string}} Mark
 * @typedef {{kind: string, text: string, nodes: string[]}} Finding
 */

/**
 * What is known about a run in addition to its record (`facts_of` in facts.py). `solvable` has one sign per
 * thought, "1", "0" or "?", or is empty. `right` are thoughts with a right answer that was not chosen. `outside` names the
 * tool that brought a thought from outside.
 * @typedef {{findings: Finding[], marks: Record<string, Mark>, solvable: string, right: string[],
 *   outside: Record<string, string>, plans: import("./plans.js").PlanVersion[]}} Facts
 */

/** @type {Facts} */
export const NO_FACTS = { findings: [], marks: {}, solvable: "", right: [], outside: {}, plans: [] };

/**
 * The interface to the host, which is a notebook's kernel or a file. Ids of the second recording begin with "b:".
 * Functions that add a listener may return a function that removes it.
 * @typedef {object} Source
 * @property {Recording[]} runs one, or two to compare
 * @property {boolean} live whether lines may still be added
 * @property {Record<string, string>} [spoken] the partial text of open calls, by thought
 * @property {(which: number, node: number) => Promise<Details>} details
 * @property {(callback: () => void) => (() => void) | void} onChange called after new data
 * @property {(ids: string[]) => void} select
 * @property {(callback: (ids: string[]) => void) => (() => void) | void} onSelect
 * @property {(which: number) => Facts} facts
 * @property {(step: number | null) => void} [stepped] called after each drawing; null means the last step
 * @property {() => string} [address] the address of what is shown
 * @property {(id: string, mark: Mark) => void} [mark]
 * @property {(change: {id: string, content?: string, score?: number}) => Promise<unknown>} [branch]
 * @property {() => void} [stop]
 * @property {(act: string, given?: Record<string, any>) => Promise<unknown>} [steer] pauses a live run or changes its search
 * @property {boolean} [paused]
 * @property {boolean} [searches] whether a search takes changes
 * @property {any[]} [waiting] the changes that wait for the search's next pick
 * @property {() => Promise<Blob | string>} [exportHtml]
 */

/**
 * The state and the actions of the explorer, for its parts and for tests.
 * @typedef {object} App
 * @property {Source} source
 * @property {typeof import("./face.js").VIEWS[number]} view
 * @property {boolean} viewed whether a person chose the view
 * @property {number} step number of lines of the first recording that are shown; Infinity means all
 * @property {boolean} following whether the step follows a live run
 * @property {{now: number, step: number, picks?: boolean} | null} playing time and step at which playing began, and whether
 *   the picks of the search are played
 * @property {typeof import("./quantities.js").QUANTITIES[number]} colour what the colours of thoughts mean
 * @property {boolean} coloured whether a person chose the colours
 * @property {boolean} reading whether the side panel takes the whole width
 * @property {boolean} only whether only matches and their ancestors are shown
 * @property {number[][]} selected thoughts of each recording, the current one last
 * @property {ReturnType<typeof searchOf>} search
 * @property {import("./pane.js").Pane[]} panes
 * @property {boolean} drawn whether anything has been drawn
 * @property {number} asked the id of the requested animation frame, 0 if there is none
 * @property {(change: Partial<App>) => void} set
 * @property {() => void} came called after new lines, texts or marks
 * @property {() => void} changed requests a render in the next animation frame
 * @property {(which: number) => import("./quantities.js").Quantity} colours the quantity by which thoughts are coloured
 * @property {(which: number) => Set<number>} collapsedOf the collapsed thoughts of a recording
 * @property {(which: number) => Frame} frameOf the tree of a recording at its step
 * @property {(step: number) => void} setStep
 * @property {(on: boolean) => void} follow sets whether the step follows a live run
 * @property {(picks?: boolean) => void} play plays or pauses; at the end it restarts
 * @property {(way: 1 | -1) => void} pick goes to the next or the previous pick of the search
 * @property {(which: number, nodes: number[], outside?: boolean) => void} select
 * @property {(ids: string[], outside?: boolean) => void} show selects; outside: the host made the selection
 * @property {() => string[]} ids the ids of the selected thoughts
 * @property {(text: string, what: string) => void} copy copies a text to the clipboard
 * @property {string} note what `best` did, if that is not the answer
 * @property {() => void} best selects the thought with the answer, or else the best of the kept ones, and says which
 * @property {(which: number, node: number) => void} toggle opens or closes a thought
 * @property {(all: boolean) => void} open expands every thought, or the most relevant ones
 * @property {(query?: string) => void} find searches for `query`, or the text in the box
 * @property {() => void} jump selects the next match, in the order of the tree
 * @property {() => void} fit
 * @property {(factor: number) => void} zoom
 * @property {(kind: "png" | "svg" | "html") => Promise<void>} save saves the current view, or the whole run
 * @property {() => void} destroy
 */

/** Duration of playing a whole run in seconds, the minimum number of lines per second, and milliseconds for each pick. */
const [PLAY_SECONDS, PLAY_LINES, PLAY_PICK] = [20, 4, 1500];

/**
 * Builds the explorer inside `element`.
 * @param {HTMLElement} element
 * @param {Source} source
 * @param {{height?: number}} [options] height in pixels
 */
export function mount(element, source, { height = 620 } = {}) {
  /** The recording of the current thought. */
  let which = 0;
  /** Collapsed thoughts of each recording. null means the default. @type {(Set<number> | null)[]} */
  let chosen = [null, null];
  /** The default collapsed thoughts of each recording, and the number of lines of which they were computed. @type {{lines: number, set: Set<number>}[]} */
  const opening = [];
  /** Version of the data and marks. A new version invalidates pictures. */
  let version = 0;
  /** @type {{at: string, mask: Uint8Array, dim: Uint8Array, only: Uint8Array, hits: number}[]} */
  let found = [];
  /** @type {({at: string} & import("./quantities.js").Quantity)[]} */
  const coloured = [];
  /** The alignment of two runs, and the code of DIFFERENCES of each node.
   * @type {ReturnType<typeof align> & {at: string, pairs: Int32Array[], marked: Uint8Array[]} | null} */
  let aligned = null;
  /** The layout of two compared runs, and what it was computed from.
   * @type {{from: any[], union: import("./union.js").Union[]}} */
  let united = { from: [], union: [] };
  /** @type {import("./theme.js").Theme | null} */
  let theme = null;
  let printing = false;
  let paired = false; // whether there were two runs

  /** @type {App} */
  const app = {
    source,
    view: "tree",
    viewed: false,
    step: Infinity,
    following: true,
    playing: null,
    colour: "score",
    coloured: false,
    reading: false,
    only: false,
    selected: [[], []],
    note: "",
    search: searchOf(""),
    panes: [],
    drawn: false,
    asked: 0,

    set(change) {
      Object.assign(app, change);
      if ("only" in change) refit();
      changed();
    },
    came() {
      version++;
      changed();
    },
    changed,
    colours,
    collapsedOf,
    frameOf,
    setStep(step) {
      const { lines } = source.runs[0];
      go(max(0, min(step, lines)), source.live && step >= lines && app.following);
    },
    follow: (on) => go(frameOf(0).step, on),
    play(picks = false) {
      const now = frameOf(0).step;
      const step = app.playing || now < source.runs[0].lines ? now : 0;
      go(step, false, app.playing ? null : { now: 0, step, picks });
    },
    pick(way) {
      const { picks } = source.runs[0];
      const now = frameOf(0).step;
      const line = way > 0 ? picks.find((one) => one >= now) : picks.findLast((one) => one < now - 1);
      if (line !== undefined) showPick(line);
    },
    select,
    show(ids, outside) {
      if (ids.join() === idsOf().join()) return;
      const { runs } = source;
      const first = ids.filter((id) => !id.startsWith("b:"));
      const one = +(!first.length && ids.length > 0 && runs.length > 1);
      const nodes = (one ? ids.map((id) => id.slice(2)) : first).map((id) => runs[one].indexOf(id));
      select(one, nodes.filter(there), outside);
    },
    ids: idsOf,
    copy(text, what) {
      navigator.clipboard.writeText(text).then(
        () => announce(`${what} copied`),
        (error) => announce(`${what} could not be copied: ${error.message}`),
      );
    },
    best() {
      const { best, leader } = frameOf(which);
      const node = there(best) ? best : leader;
      const recording = source.runs[which];
      select(which, [node].filter(there));
      const rest = there(node) ? `the best of the kept ones is thought ${recording.id(node)}` : "no thought has a score";
      if (!there(best)) app.note = `${recording.ended?.answer ? "no thought is the answer" : "no answer"}; ${rest}`;
    },
    toggle(which, node) {
      const now = collapsedOf(which);
      if (now.has(node)) chosen[which] = opened(aboveOf(which), now, node);
      else if (frameOf(which).children[node]) chosen[which] = new Set(now).add(node);
      changed();
    },
    open(all) {
      chosen = all ? [new Set(), new Set()] : [null, null];
      refit();
      changed();
    },
    find(query) {
      if (query) face.query.value = query;
      app.search = searchOf(face.query.value);
      found = [];
      changed();
    },
    jump() {
      const matches = matchesOf(which);
      if (!matches?.hits) return;
      const order = source.runs[which].order().filter((node) => matches.mask[node]);
      const at = order.indexOf(lookedAt(which));
      select(which, [order[(at + 1) % matches.hits]]);
    },
    fit() {
      for (const { lens } of app.panes) lens.fit(true);
    },
    zoom(factor) {
      for (const { lens } of app.panes) lens.zoom(factor);
    },
    async save(kind) {
      const { about } = source.runs[0];
      try {
        const made = await (kind === "html" ? source.exportHtml?.() : app.panes[which].save(kind));
        const file = made instanceof Blob ? made : new Blob([made ?? ""], { type: "text/html" });
        const href = URL.createObjectURL(file);
        h("a", { href, download: `${about.name ?? "run"}-${about.id}.${kind}` }).click();
        setTimeout(() => URL.revokeObjectURL(href), 9999);
      } catch (error) {
        announce(`could not be saved: ${error}`);
      }
    },
    destroy() {
      cancelAnimationFrame(app.asked);
      app.asked = -1; // prevents further requests
      for (const end of ends) end?.();
      for (const pane of app.panes) pane.destroy();
      root.remove();
    },
  };

  app.panes = [0, 1].map((which) => paneOf(app, which));
  const [panel, time, legend] = [panelOf(app), timeBar(app), legendOf(app)];
  const sheet = sheetOf(app);
  const face = faceOf(app, panel.element, time.element, legend.element);
  face.root.append(sheet.element);
  const { root } = face;
  root.style.setProperty("--height", `${height}px`);
  element.append(root);
  const style = new CSSStyleSheet(); // a strict content security policy allows it
  style.replaceSync(css);
  /** @type {Document | ShadowRoot} */
  let styled = document;
  /** Styles the page, or the shadow root of an output, as in marimo. @param {Document | ShadowRoot} home */
  const adopt = (home) => {
    styled.adoptedStyleSheets = styled.adoptedStyleSheets.filter((one) => one !== style);
    styled = home;
    styled.adoptedStyleSheets.push(style);
  };
  adopt(document);
  const look = () => {
    theme = null;
    changed();
  };
  const narrow = matchMedia("(max-width: 520px)");
  const looks = [matchMedia("(prefers-color-scheme: dark)"), matchMedia("(forced-colors: active)"), narrow];
  const watch = new MutationObserver(look);
  for (const place of [document.body, document.documentElement]) watch.observe(place, { attributes: true });
  for (const one of looks) one.addEventListener("change", look);
  /** Prints in the colours of the light theme, with pictures that fit the paper. @param {boolean} on */
  const print = (on) => {
    printing = on; // a drawing that is under way keeps the colours
    theme = paint();
    for (const pane of app.panes) pane.print(on);
    sheet.print(on);
    changed();
  };
  const [before, after] = [() => print(true), () => print(false)];
  addEventListener("beforeprint", before);
  addEventListener("afterprint", after);
  const ends = [
    () => removeEventListener("beforeprint", before),
    () => removeEventListener("afterprint", after),
    source.onChange(app.came),
    source.onSelect((ids) => app.show(ids, true)),
    () => watch.disconnect(),
    () => looks.forEach((one) => one.removeEventListener("change", look)),
    () => (styled.adoptedStyleSheets = styled.adoptedStyleSheets.filter((one) => one !== style)),
  ];

  /** Keys of the whole explorer. The outline has further keys. @type {Record<string, () => void>} */
  const keys = {
    b: app.best,
    f: app.fit,
    "+": () => app.zoom(1.4),
    "-": () => app.zoom(1 / 1.4),
    "/": () => face.query.focus(),
    " ": app.play,
    ",": () => app.setStep(frameOf(0).step - 1),
    ".": () => app.setStep(frameOf(0).step + 1),
    r() {
      app.set({ reading: !app.reading });
      face.wider.focus(); // what had the focus may be hidden now
    },
    "?": () => face.help.showModal(),
    "]": () => app.pick(1),
    "[": () => app.pick(-1),
    Escape() {
      root.click(); // closes menus
      if (app.reading) app.set({ reading: false });
      else select(which, []); // back to the findings about the whole run
    },
  };
  root.addEventListener("keydown", current, true);
  root.addEventListener("keydown", (event) => {
    event.stopPropagation(); // prevents the notebook's shortcuts
    const { key, ctrlKey, metaKey, altKey } = event;
    const taken = `input, textarea, dialog${key === " " ? ", button, summary" : ""}`;
    if (ctrlKey || metaKey || altKey || !keys[key] || /** @type {Element} */ (event.target).closest(taken)) return;
    event.preventDefault();
    keys[key]();
  });
  if (element.isConnected) show(0); // draws without waiting for a frame
  else changed();
  return app;

  /** @param {number} now in milliseconds */
  function show(now) {
    app.asked = 0;
    render(now);
    app.drawn = true;
    if (app.playing) changed();
  }

  function changed() {
    app.asked ||= requestAnimationFrame(show);
  }

  /** Draws what is due, so that a key acts on the present selection and not on the one last drawn. */
  function current() {
    if (!(app.asked > 0)) return;
    cancelAnimationFrame(app.asked);
    show(performance.now());
  }

  /** Returns the tree of a recording. The second one is shown at the same share of its lines as the first.
   * @param {number} which */
  function frameOf(which) {
    const [{ lines }] = source.runs;
    const recording = source.runs[which];
    const step = min(app.step, lines);
    return recording.at(which && lines ? round((step / lines) * recording.lines) : step);
  }

  /** @param {number} step @param {boolean} [following] @param {App["playing"]} [playing] */
  function go(step, following = false, playing = null) {
    app.set({ step, following, playing });
  }

  /** Announces a status message without moving the focus. @param {string} text */
  function announce(text) {
    say(face.status, text);
  }

  /** Goes to a pick of the search, and selects what it picked. @param {number} line */
  function showPick(line) {
    const [recording] = source.runs;
    app.setStep(line + 1);
    select(0, (recording.note(line)?.data?.parents ?? []).map((/** @type {string} */ id) => recording.indexOf(id)).filter(there));
  }

  // Selection, expansion and search

  /** Selects thoughts of one recording. If two are compared, it also selects the matching thoughts of the other.
   * @param {number} one @param {number[]} nodes @param {boolean} [outside] */
  function select(one, nodes, outside) {
    which = one;
    app.note = "";
    const recording = source.runs[which];
    const pairs = app.view === "compare" && aligned?.pairs[which];
    const twins = pairs ? nodes.map((node) => pairs[node] ?? -1).filter(there) : [];
    app.selected = which ? [twins, nodes] : [nodes, twins];
    const node = lookedAt(which);
    // Go to the step at which the thought exists, and expand its ancestors.
    const born = recording.born[node];
    if (born >= frameOf(which).step) app.setStep(which ? Infinity : born + 1);
    app.selected.forEach((some, one) => {
      if (!some.length) return;
      const above = aboveOf(one);
      const now = collapsedOf(one);
      const then = some.reduce((set, node) => revealed(above, set, node), now);
      if (then !== now) chosen[one] = then;
      app.panes[one].next = (picture) => picture.reveal(some[some.length - 1], true);
    });
    if (!outside) source.select(idsOf());
    announce(
      node < 0
        ? "nothing is selected"
        : `thought ${recording.id(node)}, ${fateOf(frameOf(which), node, source.facts(which))}: ${short(recording.text(node), 140)}`,
    );
    changed();
  }

  /** @param {number} which */
  function lookedAt(which) {
    return app.selected[which].at(-1) ?? -1;
  }

  function idsOf() {
    return app.selected.flatMap((some, which) =>
      some.map((node) => (which ? "b:" : "") + source.runs[which].id(node)),
    );
  }

  /** @param {number} which */
  function aboveOf(which) {
    return layoutParents(source.runs[which], frameOf(which));
  }

  /** The collapsed thoughts. The default depends on the whole run so far, not on the current step.
   * @param {number} which */
  function collapsedOf(which) {
    const recording = source.runs[which];
    const { lines } = recording;
    const frame = frameOf(which);
    if (opening[which]?.lines !== lines && (frame.step === lines || !opening[which]))
      opening[which] = { lines, set: Scene.opening(recording, frame) };
    return chosen[which] ?? opening[which].set;
  }

  /** Matches of the search at the current step. null if there is no search. @param {number} which */
  function matchesOf(which) {
    if (app.search.empty) return null;
    const frame = frameOf(which);
    const at = `${frame.step} ${version}`;
    if (found[which]?.at !== at) {
      const mask = app.search.matches(source.runs[which], frame);
      const hits = mask.reduce((sum, match) => sum + match, 0);
      found[which] = { at, mask, dim: mask.map((match) => 1 - match), only: leading(aboveOf(which), mask), hits };
    }
    return found[which];
  }

  /** @param {number} which */
  function colours(which) {
    const frame = frameOf(which);
    const at = [app.colour, frame.step, version].join();
    if (coloured[which]?.at !== at) {
      coloured[which] = { at, ...quantityOf(app.colour, frame, source.facts(which).solvable) };
    }
    return coloured[which];
  }

  /** Fits the next picture into the view. */
  function refit() {
    for (const pane of app.panes) pane.next = (picture) => picture.fit(true);
  }

  /** @param {number} now in milliseconds */
  function render(now) {
    const { panes, selected } = app;
    const { runs } = source;
    const [first, second] = runs;
    if (!first) return;
    if (second && !paired) app.view = "compare";
    else if (!second && !app.viewed && !source.live) app.view = source.facts(0).plans.length || isChain(first.at(first.lines)) ? "steps" : "tree";
    paired = !!second;
    if (first.hasVisits && !app.coloured) app.colour = "visits";
    const compared = app.view === "compare";
    const both = compared || (app.view === "timeline" && !!second);
    if (app.playing) advance(app.playing, now, first.lines);
    if (app.following) app.step = Infinity;
    theme ??= paint();
    const home = element.getRootNode();
    if (home instanceof ShadowRoot && home !== styled) adopt(home);
    const frames = runs.map((_, which) => frameOf(which));
    if (compared) compare(runs, frames);
    if (!both) panes[1].element.remove();
    else if (!panes[1].element.parentNode) face.pictures.append(panes[1].element);
    const filters = (both ? [0, 1] : [0]).map((which) => {
      const only = app.only ? matchesOf(which)?.only : null;
      return { only, collapsed: only ? undefined : collapsedOf(which) };
    });
    const unions = compared ? unionAt(frames, filters) : null;
    for (const which of both ? [0, 1] : [0]) {
      const { about: { name, model_note, verdict }, ended } = runs[which];
      panes[which].show(
        frames[which],
        /** @type {import("./theme.js").Theme} */ (theme),
        ["timeline", "steps", "plan"].includes(app.view)
          ? null
          : {
              ...filters[which],
              dim: matchesOf(which)?.dim,
              selected: selected[which],
              facts: source.facts(which),
              quantity: app.colour === "score" ? null : colours(which),
              waiting: which ? undefined : source.waiting,
              difference: compared ? aligned?.marked[which] : null,
              union: unions?.[which],
              narrow: narrow.matches,
            },
        version,
        lookedAt(which),
        !compared ? (both ? dotted("AB"[which], name) : "") : dotted("AB"[which], model_note, name, `answer: ${ended?.answer || "none"}`, ended && verdict?.grade),
      );
    }
    if (!app.drawn) return void requestAnimationFrame(changed); // shows the picture one frame sooner
    face.show(frames[0], matchesOf(which)?.hits, compared ? aligned : null, theme);
    legend.show(frames[0]);
    time.show(frames[0]);
    panel.show(which, lookedAt(which), frames[which]);
    sheet.fetch();
    source.stepped?.(app.following ? null : frames[0].step);
  }

  /** The layout of two compared runs. It is kept while nothing changes. @param {Frame[]} frames
   * @param {Pick<import("./scene.js").View, "collapsed" | "only">[]} filters */
  function unionAt(frames, filters) {
    const now = [aligned, ...filters.flatMap(({ only, collapsed }) => [only, collapsed])];
    if (now.some((one, place) => one !== united.from[place])) {
      united = { from: now, union: unionOf(frames, filters, /** @type {Int32Array} */ (aligned?.pairOfB)) };
    }
    return united.union;
  }

  function paint() {
    const now = printing ? LIGHT : themeOf(element);
    setColours(root, now);
    return now;
  }

  /** @param {NonNullable<App["playing"]>} from @param {number} now in milliseconds @param {number} lines */
  function advance(from, now, lines) {
    from.now ||= now;
    if (from.picks) {
      const picks = source.runs[0].picks.filter((line) => line >= from.step);
      const place = floor((now - from.now) / PLAY_PICK);
      if (place < picks.length) {
        if (app.step !== picks[place] + 1) showPick(picks[place]);
        app.playing = from;
        return;
      }
      from = { ...from, now: -Infinity }; // on to the end
    }
    const pace = max(lines / PLAY_SECONDS, PLAY_LINES);
    app.step = min(lines, from.step + floor(((now - from.now) / 1000) * pace));
    if (app.step < lines) return;
    app.playing = null;
    app.following = source.live;
  }

  /** @param {Recording[]} runs @param {Frame[]} frames */
  function compare([a, b], frames) {
    const at = `${frames.map(({ step }) => step)} ${version}`;
    if (aligned?.at === at) return;
    const alignment = align(a, frames[0], b, frames[1]);
    /** The line of the record at which a difference first shows. @param {import("./align.js").Difference} difference */
    const lineOf = (difference) => min(...[difference.a, difference.b].map((node, which) => {
      const { scoredLine, decidedLine, run } = frames[which];
      const line = { score: scoredLine, state: decidedLine }[String(difference.kind)] ?? run.born;
      return node >= 0 && line[node] >= 0 ? line[node] : Infinity;
    }));
    alignment.differences.sort((x, y) => lineOf(x) - lineOf(y));
    const pairs = [alignment.pairOfA, alignment.pairOfB];
    const marked = pairs.map((its) => Uint8Array.from(its, (other) => +(other < 0)));
    for (const { kind, ...nodes } of alignment.differences) {
      const code = DIFFERENCES.indexOf(`other ${kind}`);
      if (code > marked[0][nodes.a]) marked[0][nodes.a] = marked[1][nodes.b] = code;
    }
    aligned = { ...alignment, at, pairs, marked };
  }
}

/** Returns whether the number identifies a thought. @param {number} node */
const there = (node) => node >= 0;
