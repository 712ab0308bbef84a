/**
 * Colours and shapes of the pictures.
 *
 * The colours are in tot_lab/views/theme.json, which Python reads too. Scores use viridis, which suits all colour
 * vision and contains no grey; thoughts without a score are grey. States, such as pruned, have no colour: only the
 * shape shows them. The dark theme changes only surfaces, text, and colours with too little contrast on a dark
 * background: its scores have the hues of viridis in colours that are light enough.
 */

import theme from "../../theme.json" with { type: "json" };
import { PI, cos, floor, min, round, sin } from "./numbers.js";

/** Viridis from score 0 to score 1, equally spaced, and the same hues on a dark background. */
export const { scores: SCORES, dark_scores: DARK_SCORES } = theme;

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
export const LIGHT = { ...theme.light, dark: false, scores: SCORES, scale: scaleOf(SCORES), font: theme.font };

/** @type {Theme} */
export const DARK = { ...LIGHT, ...theme.dark, dark: true, scores: DARK_SCORES, scale: scaleOf(DARK_SCORES) };

/** Colours of the purposes of calls, in order of first occurrence: those of the figures. */
export const KINDS = theme.kinds;

/** Sets the colours as variables of the style sheet. @param {HTMLElement} root @param {Theme} theme */
export function setColours(root, theme) {
  for (const [name, value] of Object.entries({ ...theme, ...theme.links, ...theme.verdicts })) {
    root.style.setProperty(`--${name}`, String(value));
  }
  root.style.colorScheme = theme.dark ? "dark" : "light";
}

/** Sizes of text in pixels. */
export const TEXT = theme.text;

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
