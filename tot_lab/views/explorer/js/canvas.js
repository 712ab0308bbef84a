/**
 * A scene on a canvas: camera, pointer and animation.
 *
 * No code runs without a change, and a change takes one animation frame. The picture is drawn into a bitmap slightly
 * larger than the view. Panning and zooming move the bitmap. It is redrawn when the view leaves it or stops moving, so
 * the cost of a movement does not depend on the number of thoughts.
 */

import { abs, between, exp, hypot, max, min, round, sqrt } from "./numbers.js";
import { draw } from "./draw.js";
import { detailAt, fitted, footOf, zoomed } from "./scene.js";

/** @typedef {import("./scene.js").Scene} Scene */
/** @typedef {import("./scene.js").Camera} Camera */
/** @typedef {import("./theme.js").Theme} Theme */
/** @typedef {{x: number, y: number}} Point of the canvas, in pixels */

/**
 * @typedef {object} Callbacks
 * @property {(node: number, event: PointerEvent) => void} pick called after a click on a thought; -1 means the
 *   background. The callback moves the focus to the outline
 * @property {(node: number) => void} toggle called to hide or show the descendants of a thought
 * @property {(node: number, x: number, y: number) => void} hover called when the pointer moves; -1 means no thought.
 *   x and y are pixels of the canvas
 */

/** Duration of a movement of the camera, in ms. */
const MOVE = 180;

/** Size of the bitmap relative to the view, and its maximum number of pixels. */
const MARGIN = 1.5;
const MAX_PIXELS = 8e6;

/** Milliseconds without movement after which the view counts as still, and maximum duration of a drawing during a
 * movement. */
const REST = 90;
const QUICK = 20;

/** In pixels: minimum movement of a drag, distance within which a click hits a thought, and height of a "+N". */
const DRAG = 4;
const REACH = 8;
const BADGE = 18;

/** Width in pixels of the border of the view in which a thought is hard to see. */
const EDGE = 60;

export class Picture {
  #bitmap = document.createElement("canvas");
  /** The camera of the bitmap. null if the bitmap is out of date. @type {Camera | null} */
  #held = null;
  /** @type {{start: number, from: Camera, to: Camera} | null} */
  #motion = null;
  /** Whether the view always shows the whole tree, which is so until a user moves it. */
  #whole = true;
  #ratio = 1;
  #frame = 0;
  #rest = 0;
  #cost = 0;
  #hovered = -1;
  #observer = new ResizeObserver(() => this.#paint());

  /** @param {HTMLCanvasElement} canvas @param {Callbacks} callbacks */
  constructor(canvas, callbacks) {
    this.canvas = canvas;
    this.width = this.height = 0;
    /** @type {Camera} */
    this.camera = { x: 0, y: 0, kx: 30, ky: 60 };
    /** @type {Scene | null} */
    this.scene = null;
    /** @type {Theme | null} */
    this.theme = null;
    this.#observer.observe(canvas);
    this.#listen(callbacks);
  }

  /** Draws `scene` from now on. The point under the pointer, or else in the middle, does not move.
   * @param {Scene} scene @param {Theme} theme */
  show(scene, theme) {
    const { scene: old, width, height } = this;
    const { x, y, kx, ky } = this.#motion?.to ?? this.camera;
    const was = old ? (old.slot[this.#hovered] ?? this.#at({ x: width / 2, y: height / 2 }, Infinity).slot) : -1;
    const now = scene.slot[old?.nodes[was] ?? -1] ?? -1;
    this.scene = scene;
    this.theme = theme;
    this.#held = null;
    if (this.#whole || !old || now < 0 || old.recording !== scene.recording) this.fit();
    else this.#look({ x: x + scene.x[now] - old.x[was], y: y + scene.y[now] - old.y[was], kx, ky });
    this.#paint(); // in this animation frame, so that new data is visible earlier
  }

  /** Shows the whole scene until the view is moved. @param {boolean} [animated] */
  fit(animated) {
    if (!this.scene) return;
    this.#look(fitted(this.scene, this.width, this.height), animated);
    this.#whole = true;
  }

  /** Moves the view as little as necessary to show a node. @param {number} node @param {boolean} [animated] */
  reveal(node, animated) {
    const { scene, width, height, camera: { x, y, kx, ky } } = this;
    const slot = scene?.slot[node] ?? -1;
    if (!scene || slot < 0) return;
    const [right, low] = [max(width / 2 - EDGE, 0) / kx, max(height / 2 - EDGE, 0) / ky];
    const nearX = between(x, scene.x[slot] - right, scene.x[slot] + right);
    const nearY = between(y, scene.y[slot] - low, scene.y[slot] + low);
    if (nearX !== x || nearY !== y) this.#look({ x: nearX, y: nearY, kx, ky }, animated);
  }

  /** @param {number} factor above 1 enlarges @param {Point} [at] the point that does not move, by default the middle */
  zoom(factor, at) {
    const { scene, camera, width, height } = this;
    if (!scene) return;
    const [x, y] = at ? [at.x - width / 2, at.y - height / 2] : [0, 0];
    this.#look(zoomed(camera, factor, fitted(scene, width, height), x, y));
  }

  /** @param {number} right in pixels @param {number} down */
  pan(right, down) {
    const { scene, camera: { x, y, kx, ky } } = this;
    if (!scene) return;
    this.#look({ x: between(x - right / kx, 0, scene.width), y: between(y - down / ky, 0, scene.height), kx, ky });
  }

  /** Returns the view as a PNG. @param {number} [scale] pixels of the image per pixel of the page @returns {Promise<Blob>} */
  png(scale = 2) {
    const sheet = document.createElement("canvas");
    this.#draw(sheet, scale, this.width, this.height);
    return new Promise((done) => sheet.toBlob((blob) => done(/** @type {Blob} */ (blob))));
  }

  /** Stops the animation and frees the memory. */
  destroy() {
    this.#observer.disconnect();
    cancelAnimationFrame(this.#frame);
    clearTimeout(this.#rest);
    this.scene = this.#held = this.#motion = null;
    for (const one of [this.canvas, this.#bitmap]) one.width = one.height = 0;
  }

  /** @param {Camera} camera @param {boolean} [animated] */
  #look(camera, animated) {
    // The view cannot move before the element has a size.
    if (!this.width) return;
    const calm = !animated || matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.#whole = false;
    this.#motion = calm ? null : { start: performance.now(), from: this.camera, to: camera };
    if (calm) this.camera = camera;
    this.#move();
  }

  /** Requests a frame and, if no movement follows, another one in full resolution. */
  #move() {
    clearTimeout(this.#rest);
    this.#rest = window.setTimeout(() => {
      this.#rest = 0;
      this.#request();
    }, REST);
    this.#request();
  }

  #request() {
    this.#frame ||= requestAnimationFrame(() => this.#paint());
  }

  #measure() {
    const { canvas, canvas: { clientWidth, clientHeight } } = this;
    const same = clientWidth === this.width && clientHeight === this.height && devicePixelRatio === this.#ratio;
    if (same || !clientWidth || !clientHeight) return;
    this.width = clientWidth;
    this.height = clientHeight;
    this.#ratio = devicePixelRatio;
    canvas.width = round(clientWidth * this.#ratio);
    canvas.height = round(clientHeight * this.#ratio);
    this.#held = null;
    if (this.#whole) this.fit();
  }

  #paint() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    // Moving to a screen with another pixel ratio also changes the size, but causes no event.
    this.#measure();
    const { canvas, scene, theme, width, height } = this;
    if (!scene || !theme || !width) return;
    const start = performance.now();
    if (this.#motion) {
      const { start: begun, from, to } = this.#motion;
      const left = max(1 - (start - begun) / MOVE, 0) ** 3;
      /** @param {keyof Camera} axis */
      const on = (axis) => to[axis] + (from[axis] - to[axis]) * left;
      this.camera = { x: on("x"), y: on("y"), kx: on("kx"), ky: on("ky") };
      if (!left) this.#motion = null;
      this.#move();
    }
    const { x, y, kx, ky } = this.camera;
    const bitmap = this.#bitmap;
    const ratio = this.#ratio;
    /** @param {Camera} held */
    const stale = (held) => {
      const scale = max(kx / held.kx, held.kx / kx, ky / held.ky, held.ky / ky);
      // During a zoom, the borders of the view may be empty for a moment.
      if (scale > 1) return scale > 2 || !this.#rest || this.#cost < QUICK;
      return abs(held.x - x) * kx * ratio * 2 > bitmap.width - canvas.width + 2
        || abs(held.y - y) * ky * ratio * 2 > bitmap.height - canvas.height + 2;
    };
    if (!this.#held || stale(this.#held)) {
      const most = sqrt(MAX_PIXELS / canvas.width / canvas.height);
      const margin = this.#whole ? 1 : between(most, 1, MARGIN);
      this.#draw(bitmap, ratio, width * margin, height * margin);
      this.#held = this.camera;
      this.#cost = performance.now() - start;
    }
    const held = /** @type {Camera} */ (this.#held);
    const [wide, high] = [bitmap.width * (kx / held.kx), bitmap.height * (ky / held.ky)];
    const brush = brushOf(canvas);
    brush.fillStyle = theme.paper;
    brush.fillRect(0, 0, canvas.width, canvas.height);
    brush.drawImage(
      bitmap,
      round((canvas.width - wide) / 2 + (held.x - x) * kx * ratio),
      round((canvas.height - high) / 2 + (held.y - y) * ky * ratio),
      wide,
      high,
    );
  }

  /** @param {HTMLCanvasElement} sheet @param {number} scale @param {number} width @param {number} height */
  #draw(sheet, scale, width, height) {
    // Setting a width clears the canvas and takes as long as a drawing.
    const [wide, high] = [round(width * scale), round(height * scale)];
    if (sheet.width !== wide) sheet.width = wide;
    if (sheet.height !== high) sheet.height = high;
    const { scene, theme, camera } = this;
    const brush = brushOf(sheet);
    brush.setTransform(scale, 0, 0, scale, 0, 0);
    if (scene && theme) draw(brush, scene, theme, camera, width, height);
  }

  /** Returns the thought at a point or within `reach` pixels of it, -1 if there is none, and whether the point is on
   * its "+N" (`badge`).
   * @param {Point} point @param {number} [reach] */
  #at({ x, y }, reach = REACH) {
    const { scene, camera, width, height } = this;
    const detail = detailAt(camera, scene?.sideways);
    const side = max(detail.scores ? min(detail.across, camera.kx) / 2 : 0, reach);
    let [slot, badge, nearest] = [-1, false, Infinity];
    for (let one = 0; scene && one < scene.count; one++) {
      const dx = x - (scene.x[one] - camera.x) * camera.kx - width / 2;
      const dy = y - (scene.y[one] - camera.y) * camera.ky - height / 2;
      if (abs(dx) > side || dy < -reach || dy > reach + detail.below + BADGE) continue;
      const foot = reach < detail.below ? max(footOf(scene, one, detail), reach) : reach;
      const under = dy > foot;
      if (under && (dy > foot + BADGE || !scene.hidden[one] || !detail.scores)) continue;
      // A "+N" covers everything else. Of several dots in one place, the visible one is hit.
      const away = under ? -Infinity : dx * dx + dy * dy - scene.weight[one] / 100;
      if (away > nearest) continue;
      nearest = away;
      slot = one;
      badge = under;
    }
    return { slot, badge, node: scene?.nodes[slot] ?? -1 };
  }

  /** @param {Callbacks} callbacks */
  #listen({ pick, toggle, hover: report }) {
    const { canvas } = this;
    /** Position of each pressed pointer. @type {Map<number, Point>} */
    const pointers = new Map();
    /** @type {Point | null} */
    let press = null;
    let dragged = false;
    /** @param {MouseEvent} event @returns {Point} */
    const place = ({ offsetX, offsetY }) => ({ x: offsetX, y: offsetY });
    /** @param {number} node @param {Point} at */
    const hover = (node, { x, y }) => {
      canvas.style.cursor = node < 0 ? "grab" : "pointer";
      if (node >= 0 || this.#hovered >= 0) report(node, x, y);
      if (node !== this.#hovered && this.scene?.links.length) {
        this.scene.hovered = this.scene.slot[node] ?? -1;
        this.#held = null; // links of the thought are drawn stronger
        this.#request();
      }
      this.#hovered = node;
    };
    // A vertical movement of one finger scrolls the page.
    canvas.style.touchAction = "pan-y";

    canvas.onpointerdown = (event) => {
      if (event.button) return;
      press = place(event);
      dragged = pointers.size > 0;
      pointers.set(event.pointerId, press);
      canvas.setPointerCapture(event.pointerId);
    };
    canvas.onpointermove = (event) => {
      const at = place(event);
      const was = pointers.get(event.pointerId);
      if (!was || !press) return hover(this.#at(at).node, at);
      dragged ||= hypot(at.x - press.x, at.y - press.y) > DRAG;
      if (!dragged) return;
      hover(-1, at);
      pointers.set(event.pointerId, at);
      const other = [...pointers.values()].find((one) => one !== at);
      this.pan((at.x - was.x) / pointers.size, (at.y - was.y) / pointers.size);
      if (!other) return;
      /** @param {Point} one */
      const apart = (one) => hypot(one.x - other.x, one.y - other.y) + 1;
      this.zoom(apart(at) / apart(was), { x: (at.x + other.x) / 2, y: (at.y + other.y) / 2 });
    };
    canvas.onpointerup = (event) => {
      const { node, badge } = this.#at(place(event));
      if (!pointers.delete(event.pointerId) || dragged) return;
      if (badge) toggle(node);
      else pick(node, event);
    };
    canvas.onpointercancel = ({ pointerId }) => pointers.delete(pointerId);
    canvas.onpointerleave = (event) => hover(-1, place(event));
    canvas.ondblclick = (event) => {
      const { node, badge } = this.#at(place(event));
      if (node >= 0 && !badge) toggle(node);
    };
    canvas.onwheel = (event) => {
      // Until a click into the picture, the wheel scrolls the page.
      if (!event.ctrlKey && !event.metaKey && !canvas.parentElement?.matches(":focus-within")) return;
      event.preventDefault();
      // A wheel reports lines or pixels. A pinch on a touchpad is reported as small turns of the wheel with Ctrl.
      const turned = between(event.deltaY * (event.deltaMode ? 18 : 1), -240, 240);
      this.zoom(exp(-turned * (event.ctrlKey && abs(turned) < 40 ? 0.012 : 0.0025)), place(event));
    };
  }
}

/** @param {HTMLCanvasElement} canvas @returns {CanvasRenderingContext2D} */
function brushOf(canvas) {
  return /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { alpha: false }));
}
