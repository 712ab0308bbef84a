/**
 * The explorer in a notebook: the data from the kernel (widget.py), shared by all views of a widget.
 *
 * Messages can be lost. The browser reports the number of lines it has of each run when it opens, when it lacks lines
 * before a batch, and while a live run sends nothing. The kernel then sends the following lines. If no reply arrives,
 * the browser shows a message and keeps its data.
 */

import { NO_FACTS, mount } from "./app.js";
import { Recording } from "./recording.js";

/** Milliseconds of silence before a new report, at least and at most, and before a message is shown. */
const SILENCE = 1000;
const LONGEST = 30_000;
const PATIENCE = 2000;

/**
 * @typedef {object} Model the interface of a model in anywidget
 * @property {(name: string) => any} get
 * @property {(name: string, value: any) => void} set
 * @property {() => void} save_changes
 * @property {(content: any) => void} send
 * @property {(name: string, callback: (...given: any[]) => void) => void} on
 */

const decoder = new TextDecoder();
/** @param {DataView} buffer */
const parsed = (buffer) => JSON.parse(decoder.decode(buffer));

/** The data of one widget from the kernel. */
class Kernel {
  /** @type {Recording[]} */
  runs = [];
  /** @type {any} */
  state = { counts: [], live: [], can: {}, failed: "" };
  /** The facts about each run. @type {import("./app.js").Facts[]} */
  facts = [];
  /** The partial text of open calls, by thought. @type {Record<string, string>} */
  spoken = {};
  /** @type {Set<() => void>} */
  changed = new Set();
  views = 0;
  #model;
  /** @type {Map<number, [(value: any) => void, (error: Error) => void]>} */
  #questions = new Map();
  #asked = 0;
  #silent = SILENCE;
  #heard = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  #waiting = false;

  /** @param {Model} model */
  constructor(model) {
    this.#model = model;
    model.on("msg:custom", (content, buffers) => this.#receive(content, buffers));
  }

  /** @param {any} content @param {DataView[]} buffers */
  #receive(content, buffers) {
    const began = performance.now();
    // The kernel serialises a large run in batches of growing size. A report meanwhile would request the same batch again.
    this.#silent = this.whole ? SILENCE : Math.min(Math.max(4 * (began - this.#heard), SILENCE), LONGEST);
    this.#heard = began;
    this.#waiting = false;
    const { kind, which, run } = content;
    if (kind === "answer") {
      const [answered, failed] = this.#questions.get(content.to) ?? [];
      this.#questions.delete(content.to);
      if (content.error === undefined) answered?.(buffers?.[0]);
      else failed?.(new Error(content.error));
    } else if (kind === "state") {
      this.state = parsed(buffers[0]);
      this.state.runs.forEach((/** @type {any} */ about, /** @type {number} */ place) => {
        const known = this.runs[place];
        if (known?.about.id === about.id) known.about = about;
        else this.runs[place] = new Recording(about);
      });
    } else if (kind === "facts" || kind === "spoken") {
      this[/** @type {"facts"} */ (kind)] = parsed(buffers[0]);
    } else {
      const recording = this.runs[which];
      if (recording?.about.id !== run) this.ask();
      else if (kind === "lines") {
        this.state.counts[which] = content.count;
        if (!recording.append(parsed(buffers[0]))) this.ask();
      } else {
        const { first, texts } = parsed(buffers[0]);
        if (first > recording.texts.length) this.ask();
        else recording.setTexts(first, texts);
      }
    }
    this.#notify();
    this.#listen();
  }

  #notify() {
    for (const callback of this.changed) callback();
  }

  /** Repeats the report while nothing arrives, at increasing intervals. */
  #listen() {
    clearTimeout(this.#timer);
    if (!this.views || (this.whole && !this.state.live.some(Boolean))) return;
    this.#timer = setTimeout(() => {
      this.#silent = Math.min(this.#silent * 2, LONGEST);
      this.ask();
    }, this.#silent);
  }

  /** Whether all data of the kernel has arrived. */
  get whole() {
    const { runs, state } = this;
    return runs.length > 0 && runs.every(
      ({ lines, nodes, texts }, which) => lines >= state.counts[which] && texts.length >= nodes);
  }

  /** Reports the number of lines and texts of each run. */
  ask() {
    const runs = this.runs.map(({ about, lines, texts }) => [about.id, lines, texts.length]);
    this.#send({ kind: "have", runs });
    this.#listen();
  }

  /** Sends a message. Returns false if there is no kernel. @param {any} content @returns {boolean} */
  say(content) {
    try {
      this.#model.send(content);
      return true;
    } catch {
      this.#waiting = true; // the data is kept
      this.#notify();
      return false;
    }
  }

  /** Sends a message that requires an answer. @param {any} content */
  #send(content) {
    this.say(content);
    setTimeout(() => {
      if (this.views && (this.#silent > 2 * SILENCE || this.#questions.has(content.to))) this.#waiting = true;
      if (this.#waiting) this.#notify();
    }, PATIENCE);
  }

  /** @param {any} content @returns {Promise<any>} */
  question(content) {
    const to = ++this.#asked;
    return new Promise((resolve, reject) => {
      this.#questions.set(to, [resolve, reject]);
      this.#send({ ...content, to });
    });
  }

  /** Adds or removes a view. @param {number} by */
  view(by) {
    this.views += by;
    if (this.views) this.ask();
    else clearTimeout(this.#timer);
    const { views } = this;
    setTimeout(() => {
      if (views !== this.views) return;
      if (!views) this.runs = [];
      this.say({ kind: "views", count: views });
    }, views ? 0 : 500); // moving a cell removes its view and adds one immediately
  }

  /** Message about missing data, "" if there is none. */
  get trouble() {
    if (this.#waiting) return "waiting for the kernel: it is busy, or gone (then run the cell again)";
    if (this.state.failed) return `the search ended with an error: ${this.state.failed}`;
    const { counts, live } = this.state;
    const which = this.runs.findIndex(({ lines }, which) => !live[which] && lines < counts[which]);
    return which < 0 ? "" : `loading: ${Math.floor((100 * this.runs[which].lines) / counts[which])} % of the record`;
  }
}

/**
 * Returns the source of one view. Listeners of its `model` are removed with the view.
 * @param {Kernel} kernel @param {Model} model
 */
function source(kernel, model) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let later;
  /** @param {string} name @param {unknown} value */
  const save = (name, value) => {
    model.set(name, value);
    if (kernel.say({ kind: "views", count: kernel.views })) model.save_changes(); // it fails without a kernel
  };
  /** @type {any} */
  const given = {
    details: (/** @type {number} */ which, /** @type {number} */ node) =>
      kernel.question({ kind: "details", which, id: kernel.runs[which].id(node) }).then(parsed),
    onChange(/** @type {() => void} */ callback) {
      kernel.changed.add(callback);
      return () => kernel.changed.delete(callback);
    },
    select: (/** @type {string[]} */ ids) => save("ids", ids),
    onSelect(/** @type {(ids: string[]) => void} */ callback) {
      model.on("change:ids", () => callback(model.get("ids")));
      if (model.get("ids").length) queueMicrotask(() => callback(model.get("ids")));
    },
    stepped(/** @type {number | null} */ step) {
      clearTimeout(later);
      if (step === model.get("step")) return;
      later = setTimeout(() => save("step", step), 150);
    },
    facts: (/** @type {number} */ which) => kernel.facts[which] ?? NO_FACTS,
    exportHtml: () => kernel.question({ kind: "html" }).then((page) => new Blob([page], { type: "text/html" })),
  };
  // The available actions change when a run ends.
  const can = {
    mark: (/** @type {string} */ id, /** @type {any} */ mark) => kernel.question({ kind: "mark", id, mark }),
    branch: (/** @type {any} */ change) => kernel.question({ kind: "branch", ...change }),
    stop: () => kernel.say({ kind: "stop" }),
    steer: (/** @type {string} */ act, given = {}) => kernel.question({ kind: "steer", act, given }),
  };
  for (const [name, act] of Object.entries(can)) {
    Object.defineProperty(given, name, { get: () => (kernel.state.can[name] ? act : undefined) });
  }
  return Object.defineProperties(given, {
    runs: { get: () => kernel.runs },
    live: { get: () => kernel.state.live.some(Boolean) },
    spoken: { get: () => kernel.spoken },
    paused: { get: () => kernel.state.paused },
    searches: { get: () => kernel.state.searches },
    waiting: { get: () => kernel.state.waiting },
  });
}

/** The module that anywidget calls, once for each widget. */
export function widget() {
  /** @type {Kernel} */
  let kernel;
  return {
    /** @param {{model: Model}} given */
    initialize({ model }) {
      kernel = new Kernel(model);
    },
    /** @param {{model: Model, el: HTMLElement}} given */
    render({ model, el }) {
      /** @type {ReturnType<typeof mount> | undefined} */
      let app;
      const note = document.createElement("p");
      note.setAttribute("role", "status");
      const place = document.createElement("div");
      el.append(note, place);
      const look = () => {
        const [first] = kernel.runs;
        note.textContent = kernel.trouble || (app ? "" : first ? "no thought yet" : "loading");
        note.hidden = !note.textContent;
        if (app || !first?.nodes) return;
        app = mount(place, source(kernel, model));
        Object.assign(place, { explorer: app }); // for tests and benchmarks
        el.append(Object.assign(document.createElement("style"), { textContent: model.get("_style") }));
        const step = model.get("step");
        if (step !== null) app.setStep(step);
      };
      kernel.changed.add(look);
      model.on("change:step", () => {
        const step = model.get("step");
        if (step === null) app?.follow(true);
        else app?.setStep(step);
      });
      look();
      kernel.view(1);
      return () => {
        kernel.changed.delete(look);
        app?.destroy();
        app = undefined; // JupyterLab keeps the elements of a closed view, which must not keep the explorer alive
        Object.assign(place, { explorer: undefined });
        el.replaceChildren();
        kernel.view(-1);
      };
    },
  };
}
