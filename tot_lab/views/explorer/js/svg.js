/**
 * A scene as one SVG file.
 *
 * draw.js draws it with a pen that writes SVG elements. The file loads nothing. Texts are escaped, and characters
 * that XML does not allow are removed.
 */

import { number, short } from "./dom.js";
import { PERSON, draw } from "./draw.js";
import { round } from "./numbers.js";
import { FRONTIER, SIZE, fitted } from "./scene.js";
import { CORNERS, LINK_WORDS, SHAPES, TEXT, WRONG } from "./theme.js";

/** Escapes `text` for XML text and attributes. @param {string} text */
export function escaped(text) {
  return text
    .replace(/[^\t\n\r\x20-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu, "")
    .replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);
}

/** Formats numbers of pixels with one decimal. @param {number[]} values */
const px = (...values) => values.map((value) => round(value * 10) / 10).join(" ");

/** The methods of a canvas context that draw.js uses. */
class Pen {
  svg = "";
  #path = "";
  #dash = "";
  fillStyle = "";
  strokeStyle = "";
  lineWidth = 1;
  globalAlpha = 1;
  font = "";
  /** @type {CanvasTextAlign} */
  textAlign = "center";

  beginPath() {
    this.#path = "";
  }
  closePath() {
    this.#path += "Z";
  }
  /** @param {number} x @param {number} y */
  moveTo(x, y) {
    this.#path += `M${px(x, y)}`;
  }
  /** @param {number} x @param {number} y */
  lineTo(x, y) {
    this.#path += `L${px(x, y)}`;
  }
  /** @param {...number} values */
  bezierCurveTo(...values) {
    this.#path += `C${px(...values)}`;
  }
  /** @param {number} x @param {number} y @param {number} width @param {number} height */
  rect(x, y, width, height) {
    this.#path += `M${px(x, y)}h${px(width)}v${px(height)}h${px(-width)}Z`;
  }
  /** The ends are round: the radius is half of the height. @param {number} x @param {number} y @param {number} width
   * @param {number} height @param {number} radius */
  roundRect(x, y, width, height, radius) {
    const straight = width - 2 * radius;
    const end = `a${px(radius, radius)} 0 0 1 0 `;
    this.#path += `M${px(x + radius, y)}h${px(straight)}${end}${px(height)}h${px(-straight)}${end}${px(-height)}Z`;
  }
  /** @param {number[]} lengths */
  setLineDash(lengths) {
    this.#dash = lengths.length ? ` stroke-dasharray="${px(...lengths)}"` : "";
  }
  fill() {
    this.#add(`path d="${this.#path}" fill="${this.fillStyle}"`);
  }
  stroke() {
    const pen = `stroke="${this.strokeStyle}" stroke-width="${this.lineWidth}"${this.#dash}`;
    this.#add(`path d="${this.#path}" fill="none" ${pen}`);
  }
  /** @param {string} text @param {number} x @param {number} y @param {number} [room] maximum width */
  fillText(text, x, y, room = Infinity) {
    const tight = text.length * WIDEST > room ? ` textLength="${px(room)}" lengthAdjust="spacingAndGlyphs"` : "";
    const pen = `font-weight="${parseInt(this.font)}" fill="${this.fillStyle}"${tight}`;
    this.#add(`text x="${px(x)}" y="${px(y)}" ${pen}`, `${escaped(text)}</text>`);
  }
  /** @param {string} element @param {string} [inside] */
  #add(element, inside) {
    const opacity = this.globalAlpha < 1 ? ` opacity="${round(this.globalAlpha * 100) / 100}"` : "";
    this.svg += `<${element}${opacity}${inside ? `>${inside}` : "/>"}`;
  }
}

/** Width in pixels of an average letter in a wide font. */
const WIDEST = 0.55 * SIZE;

/** In pixels: height of a line of the heading, and of the legend. */
const [LINE, FOOT] = [18, 28];

/**
 * Returns the legend of the shapes, links and colours in a scene, below a tree of `height` pixels.
 * @param {import("./scene.js").Scene} scene @param {import("./theme.js").Theme} theme @param {number} height
 */
function legendOf(scene, theme, height) {
  const pen = new Pen();
  pen.fillStyle = pen.strokeStyle = theme.ink;
  const middle = height + FOOT / 2;
  let at = 16;
  /** @param {string} words */
  const word = (words) => {
    pen.fillText(words, at + 10 + words.length * SIZE * 0.27, middle + 4);
    at += 34 + words.length * SIZE * 0.54;
  };
  for (const place of [...new Set(scene.shape)].sort((a, b) => a - b)) {
    const [name] = SHAPES[place];
    const corners = CORNERS[place];
    pen.beginPath();
    if (corners.length) corners.forEach(([x, y], corner) => pen[corner ? "lineTo" : "moveTo"](at + 5 * x, middle + 5 * y));
    else pen.roundRect(at - 5, middle - 5, 10, 10, 5);
    if (corners.length) pen.closePath();
    if (place === WRONG) {
      pen.moveTo(at - 6, middle - 6);
      pen.lineTo(at + 6, middle + 6);
      pen.moveTo(at - 6, middle + 6);
      pen.lineTo(at + 6, middle - 6);
    }
    if (["question", "answer", "wrong answer"].includes(name)) pen.stroke();
    else pen.fill();
    word(name);
  }
  /** @type {[boolean, string, string, number, number[]][]} */
  const rings = [
    [scene.flags.some((has) => has & FRONTIER), "open frontier", theme.open, 1.5, [1.5, 2.5]],
    [scene.lastSolvable.length > 0, "last solvable", theme.verdicts.right, 1.8, []],
  ];
  for (const [there, words, colour, thick, dash] of rings) {
    if (!there) continue;
    [pen.strokeStyle, pen.lineWidth] = [colour, thick];
    pen.setLineDash(dash);
    for (const radius of dash.length ? [5] : [4, 7]) {
      pen.beginPath();
      pen.roundRect(at - radius, middle - radius, 2 * radius, 2 * radius, radius);
      pen.stroke();
    }
    pen.setLineDash([]);
    word(words);
  }
  if (scene.changed.length) {
    pen.fillStyle = theme.person;
    pen.fillText(PERSON, at, middle + 4);
    word("changed by a person");
  }
  pen.fillStyle = theme.ink;
  for (const kind of new Set(scene.links.map((link) => link.kind))) {
    pen.strokeStyle = theme.links[kind];
    pen.setLineDash([5, 4]);
    pen.beginPath();
    pen.moveTo(at - 8, middle);
    pen.lineTo(at + 8, middle);
    pen.stroke();
    word(LINK_WORDS[kind]);
  }
  const [low, high] = scene.quantity?.ends ?? ["0", "1"];
  word(low);
  theme.scores.forEach((colour) => {
    pen.fillStyle = colour;
    pen.beginPath();
    pen.rect((at += 10) - 30, middle - 4, 10, 8);
    pen.fill();
  });
  pen.fillStyle = theme.ink;
  at -= 16;
  word(high);
  return pen.svg;
}

/**
 * @param {import("./scene.js").Scene} scene
 * @param {import("./theme.js").Theme} theme
 * @param {{width?: number, height?: number, title?: string, heading?: string[], camera?: import("./scene.js").Camera}} [options]
 *   width, height: of the tree in pixels. heading: lines above the tree, with a legend below it. camera: the visible part,
 *   by default everything.
 * @returns {string}
 */
export function svgOf(scene, theme, options = {}) {
  const { width = 1200, height = 800, title = "search tree", heading = [], camera = fitted(scene, width, height) } = options;
  const pen = new Pen();
  const seen = draw(pen, scene, theme, camera, width, height);
  if (seen < scene.count) {
    pen.globalAlpha = 1;
    pen.fillStyle = theme.faint;
    pen.fillText(`${number(seen)} of ${number(scene.count)} thoughts drawn`, width / 2, height - 20);
  }
  const above = heading.length && LINE * heading.length + 8;
  const tall = height + above + (above && FOOT);
  const tree = above ? `<g transform="translate(0 ${above})">${pen.svg}${legendOf(scene, theme, height)}</g>` : pen.svg;
  const lines = heading.map((line, place) =>
    `<text x="12" y="${LINE * (place + 1)}" text-anchor="start" font-size="${TEXT.body}" font-weight="${place ? 400 : 600}" \
fill="${theme.ink}">${escaped(short(line, width / 7.6))}</text>`);
  const ground = above ? `<rect width="${width}" height="${tall}" fill="${theme.paper}"/>` : "";
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${tall}" viewBox="0 0 ${width} ${tall}" \
role="img" stroke-linejoin="round" font-family="${escaped(theme.font)}" font-size="${SIZE}" text-anchor="middle">\
<title>${escaped(title)}</title>${ground}${lines.join("")}${tree}</svg>\n`;
}
