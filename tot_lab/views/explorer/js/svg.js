/**
 * A scene as one SVG file.
 *
 * draw.js draws it with a pen that writes SVG elements. The file loads nothing. Texts are escaped, and characters
 * that XML does not allow are removed.
 */

import { number } from "./dom.js";
import { draw } from "./draw.js";
import { round } from "./numbers.js";
import { SIZE, fitted } from "./scene.js";

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
  /** @param {string} text @param {number} x @param {number} y */
  fillText(text, x, y) {
    const pen = `font-weight="${parseInt(this.font)}" fill="${this.fillStyle}"`;
    this.#add(`text x="${px(x)}" y="${px(y)}" ${pen}`, `${escaped(text)}</text>`);
  }
  /** @param {string} element @param {string} [inside] */
  #add(element, inside) {
    const opacity = this.globalAlpha < 1 ? ` opacity="${round(this.globalAlpha * 100) / 100}"` : "";
    this.svg += `<${element}${opacity}${inside ? `>${inside}` : "/>"}`;
  }
}

/**
 * @param {import("./scene.js").Scene} scene
 * @param {import("./theme.js").Theme} theme
 * @param {{width?: number, height?: number, title?: string, camera?: import("./scene.js").Camera}} [options]
 *   width, height: in pixels. camera: the visible part, by default everything.
 * @returns {string}
 */
export function svgOf(scene, theme, options = {}) {
  const { width = 1200, height = 800, title = "search tree", camera = fitted(scene, width, height) } = options;
  const pen = new Pen();
  const seen = draw(pen, scene, theme, camera, width, height);
  if (seen < scene.count) {
    pen.globalAlpha = 1;
    pen.fillStyle = theme.faint;
    pen.fillText(`${number(seen)} of ${number(scene.count)} thoughts drawn`, width / 2, height - 6);
  }
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" \
role="img" stroke-linejoin="round" font-family="${escaped(theme.font)}" font-size="${SIZE}" text-anchor="middle">\
<title>${escaped(title)}</title>${pen.svg}</svg>\n`;
}
