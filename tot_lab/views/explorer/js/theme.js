/**
 * Colours and shapes of the pictures.
 *
 * The palette equals that of tot_lab/views/figures/theme.py. Scores use viridis, which suits all colour vision and
 * contains no grey; thoughts without a score are grey. States, such as pruned, have no colour: only the shape shows
 * them. The dark theme changes only surfaces, text, and colours with too little contrast on a dark background: its
 * scores have the hues of viridis in colours that are light enough.
 */

import { PI, cos, floor, min, round, sin } from "./numbers.js";

/** Viridis (Smith and van der Walt 2015) from score 0 to score 1, equally spaced. */
export const SCORES = [
  "#440154", "#482878", "#3e4989", "#31688e", "#26828e",
  "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725",
];

/** The same hues on a dark background, from a lightness of 0.66 instead of 0.28 (Oklab). */
export const DARK_SCORES = [
  "#b970d0", "#a885ec", "#8c9ef0", "#73b5e5", "#6fc4d1",
  "#64d5be", "#68e2a2", "#8bec75", "#c3ed42", "#fde725",
];

/** Number of colours of the score scale. One step is too small to be visible. */
export const STEPS = 37;

/** The states of thoughts in the order of the legend, and their shapes. */
export const SHAPES = [
  ["question", "circle"],
  ["right answer", "star"],
  ["answer", "star"],
  ["wrong answer", "star"],
  ["complete", "diamond"],
  ["kept", "circle"],
  ["pruned", "x"],
  ["unreadable", "square"],
  ["failed", "triangle-down"],
  ["duplicate", "triangle-up"],
  ["merged", "bowtie"],
  ["proposed", "hexagon"],
  ["tool call", "triangle-right"],
  ["tool result", "triangle-left"],
  ["plan step", "pentagon"],
  ["review", "hourglass"],
  ["part", "octagon"],
  ["turn", "diamond-tall"],
  ["right, not chosen", "star"],
];

/** Returns corners at equal angles. @param {number} corners @param {number} turn @param {number} radius
 * @param {number} [inner] of a star */
const regular = (corners, turn, radius, inner = radius) =>
  Array.from({ length: corners }, (_, k) => {
    const angle = ((k + turn) * 2 * PI) / corners;
    const reach = k % 2 ? inner : radius;
    return [reach * sin(angle), -reach * cos(angle)];
  });

/** The star of an answer: filled if it is right, crossed if it is wrong, with a ground of its own if it was not chosen. */
export const [RIGHT, ANSWER, WRONG, MISSED] = ["right answer", "answer", "wrong answer", "right, not chosen"].map((its) =>
  SHAPES.findIndex(([name]) => name === its));

const STAR = regular(10, 0, 1.55, 0.68);

/** What a link of each kind means, from its end to its start. @type {Record<string, string>} */
export const LINK_WORDS = { merged: "the same state", source: "made from", depends: "depends on" };

/** The shape of the first kind of step (KINDS in origins.js) that has one. */
export const STEP_SHAPES = SHAPES.findIndex(([name]) => name === "tool call");

/** The corners of each of SHAPES for radius 1; a circle has none. */
export const CORNERS = [
  [],
  STAR,
  STAR,
  STAR,
  regular(4, 0, 1.25),
  [],
  // A cross of the size of a circle would look larger. The four arms are one arm, rotated.
  [[1, 0], [0, 1], [-1, 0], [0, -1]].flatMap(([c, s]) =>
    [[0.34, 0], [0.81, 0.47], [0.47, 0.81]].map(([x, y]) => [c * x - s * y, s * x + c * y])),
  regular(4, 0.5, 1.25),
  regular(3, 1.5, 1.3),
  regular(3, 0, 1.3),
  [[-1, -1], [0, -0.25], [1, -1], [1, 1], [0, 0.25], [-1, 1]],
  regular(6, 0.5, 1.08),
  regular(3, 0.75, 1.3),
  regular(3, 2.25, 1.3),
  regular(5, 0, 1.15),
  [[-1, -1], [1, -1], [0.25, 0], [1, 1], [-1, 1], [-0.25, 0]],
  regular(8, 0.5, 1.1),
  [[0, -1.35], [0.75, 0], [0, 1.35], [-0.75, 0]],
  STAR,
];

/** Kinds of differences between two compared runs, in the order of their codes. 0 means no difference. */
export const DIFFERENCES = ["", "only here", "other text", "other score", "other state"];

/**
 * @typedef {object} Theme
 * @property {boolean} dark
 * @property {string} paper the background
 * @property {string} raised the background of a box
 * @property {string} ink
 * @property {string} faint secondary text
 * @property {string} edge
 * @property {string} line the outline of a shape
 * @property {string} path the path to the best thought
 * @property {string} chosen selected thoughts and the paths to them
 * @property {string[]} scores the colours from score 0 to score 1, equally spaced
 * @property {string[]} scale the colours of the `STEPS` steps from score 0 to score 1
 * @property {string} unscored
 * @property {string} waiting thoughts with an open call
 * @property {string} open thoughts that may still be expanded
 * @property {string} person what a person changed
 * @property {Record<string, string>} links by kind
 * @property {string[]} differences by code (DIFFERENCES)
 * @property {Record<string, string>} verdicts by the verdict of a user's mark
 * @property {string} font
 */

const FONT = "Inter, 'Helvetica Neue', Helvetica, Arial, sans-serif";

/** Returns the colours of the steps of a scale. @param {string[]} scores */
const scaleOf = (scores) => Array.from({ length: STEPS }, (_, step) => {
  const place = (step / (STEPS - 1)) * (scores.length - 1);
  const low = min(floor(place), scores.length - 2);
  const mixed = [1, 3, 5].map((at) => {
    const [from, to] = [scores[low], scores[low + 1]].map((colour) => parseInt(colour.slice(at, at + 2), 16));
    return round(from + (to - from) * (place - low));
  });
  return `rgb(${mixed})`;
});

/** @type {Theme} */
export const LIGHT = {
  dark: false,
  paper: "#ffffff",
  raised: "#ffffff",
  ink: "#1f2933",
  faint: "#5f6b78",
  edge: "#8a94a0",
  line: "#1f2933",
  path: "#d55e00",
  chosen: "#0072b2",
  scores: SCORES,
  scale: scaleOf(SCORES),
  unscored: "#d5d9de",
  waiting: "#3399cc",
  open: "#a06a00",
  person: "#7b3fa0",
  links: { merged: "#0072b2", source: "#009e73", depends: "#cc79a7" },
  differences: ["", "#cc79a7", "#3399cc", "#c68600", "#d55e00"],
  verdicts: { right: "#009e73", wrong: "#d55e00" },
  font: FONT,
};

/** @type {Theme} */
export const DARK = {
  ...LIGHT,
  dark: true,
  paper: "#111418",
  raised: "#1b2027",
  ink: "#e6eaee",
  faint: "#9aa5b1",
  edge: "#6b7683",
  line: "#d3dae1",
  path: "#f0742a",
  chosen: "#56b4e9",
  scores: DARK_SCORES,
  scale: scaleOf(DARK_SCORES),
  unscored: "#8d97a2",
  open: "#e0a52e",
  person: "#cf9bee",
  links: { merged: "#56b4e9", source: "#2bbd92", depends: "#d993bb" },
  verdicts: { right: "#2bbd92", wrong: "#f0742a" },
};

/** Colours of the purposes of calls, in order of first occurrence: those of the figures. */
export const KINDS = ["#0072b2", "#c68600", "#009e73", "#cc79a7", "#3399cc"];

/** The surfaces and lines of a system with forced colours. */
const FORCED = {
  ...{ paper: "Canvas", raised: "Canvas", ink: "CanvasText", faint: "CanvasText" },
  ...{ edge: "CanvasText", line: "CanvasText", chosen: "Highlight" },
};

/** Returns whether a colour is light. A canvas parses every notation of a colour. @param {string} colour */
function isLight(colour) {
  const brush = /** @type {CanvasRenderingContext2D} */ (document.createElement("canvas").getContext("2d"));
  brush.fillStyle = colour;
  brush.fillRect(0, 0, 1, 1);
  const [red, green, blue] = brush.getImageData(0, 0, 1, 1).data;
  return red + green + blue >= 384;
}

/** Returns the theme of the page that contains `element`: forced colours, or that of VS Code, or Jupyter's CSS
 * variables, or else dark if the text around it is light, as in marimo.
 * @param {Element} element @returns {Theme} */
export function themeOf(element) {
  const style = getComputedStyle(element);
  /** @param {string} name */
  const variable = (name) => style.getPropertyValue(name).trim();
  const { vscodeThemeKind: kind } = document.body.dataset;
  // In VS Code, the style sheet of ipywidgets sets Jupyter's variables to those of a light page.
  const [paper, raised, ink] = kind
    ? ["editor-background", "editor-background", "editor-foreground"].map((name) => variable(`--vscode-${name}`))
    : ["layout-color0", "layout-color1", "ui-font-color0"].map((name) => variable(`--jp-${name}`));
  const base = (paper ? isLight(paper) : kind ? kind.includes("light") : !isLight(style.color)) ? LIGHT : DARK;
  if (matchMedia("(forced-colors: active)").matches) return { ...base, ...FORCED };
  return { ...base, paper: paper || base.paper, raised: raised || base.raised, ink: ink || base.ink };
}
