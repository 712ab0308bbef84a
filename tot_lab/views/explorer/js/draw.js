/**
 * Draws a scene on a canvas context, or on the `Pen` of svg.js, which has the same methods.
 *
 * The level of detail depends only on the scale (semantic zoom): dots, then shapes with edges, then scores, then
 * text. Pruned thoughts are faint, the path to the best thought is highlighted, and the shape shows the state.
 */

import { brief, number } from "./dom.js";
import { between, floats, max, min, round } from "./numbers.js";
import { PARTS, cellsOf, heightOf, levelsOf } from "./overview.js";
import {
  CHOSEN, DIM, FRONTIER, GAP, LEADING, LOST, PATH, QUESTION, RECEDES, SIZE, UNSCORED, WAITING, detailAt, drawn, footOf,
  linesBelow, wrapped,
} from "./scene.js";
import { CORNERS, STEPS, WRONG } from "./theme.js";

/** @typedef {Pick<CanvasRenderingContext2D, "fillStyle" | "strokeStyle" | "lineWidth" | "globalAlpha" | "font"
 *   | "textAlign" | "beginPath" | "closePath" | "moveTo" | "lineTo" | "bezierCurveTo" | "rect" | "roundRect"
 *   | "fill" | "stroke" | "fillText" | "setLineDash">} Brush */

/** Maximum number of shapes or edges in one path. Browsers paint a path of thousands ten times slower than many
 * short paths. */
const BATCH = 48;

/** Opacity of a link until a thought at one of its ends is hovered or selected. */
const FAINT = 0.5;

/** What a bar means. */
const KEY = "bar: thoughts that are pruned, duplicate or merged (pale), failed or unreadable (grey), or none of these (full); colour: their mean";

/** Opacity of the parts of a bar (PARTS in overview.js), and minimum distance of levels with a histogram in pixels. */
const OPACITY = [1, 0.4, 1, 0.1];
const STRIP = 64;

/** The fill of the part of a bar that has no score because something failed. */
const FAILED = STEPS + 3;

/** Characters for a user's marks. @type {Record<string, string>} */
const SIGNS = { right: "✓", wrong: "×", note: "…" };

/** The character for what a person changed. */
export const PERSON = "✎";

/**
 * Paints the part of a scene that a camera shows in a view of `width` × `height` pixels.
 * @param {Brush} brush
 * @param {import("./scene.js").Scene} scene
 * @param {import("./theme.js").Theme} theme
 * @param {import("./scene.js").Camera} camera
 * @param {number} width
 * @param {number} height
 * @returns {number} the number of painted thoughts, those in bars included
 */
export function draw(brush, scene, theme, camera, width, height) {
  const { kx, ky } = camera;
  const detail = detailAt(camera, scene.sideways);
  const { far, radius, scores } = detail;
  const { x, y, flags, parents, fill } = scene;
  const { edge, path, chosen, line, faint, ink } = theme;
  const fills = [...theme.scale, theme.unscored, theme.raised, theme.raised, faint];
  const seen = drawn(scene, camera, width, height);
  const dots = radius < 2.6;

  /** The looks of a thought and the edge to it: opacity, outline, and the strokes of the edge. Where the path to a
   * selected thought and the path to the best one coincide, the former is visible on both sides of the latter.
   * @type {[number, string, ...[string, number][]][]} */
  const looks = [
    [0.14, line, [edge, 1]],
    [0.7, line, [edge, 1]],
    [1, line, [edge, dots ? 0.6 : 1.2]],
    [1, chosen, [chosen, 2]],
    [1, path, [path, dots ? 2 : 3]],
    [1, path, [chosen, dots ? 4 : 6], [path, dots ? 2 : 3]],
  ];
  /** Returns the index in `looks`. Paths have the highest index and cover everything else. @param {number} slot */
  const look = (slot) => {
    const has = flags[slot];
    const leads = has & (PATH | CHOSEN);
    return leads ? [0, 4, 3, 5][leads] : has & DIM ? 0 : has & RECEDES ? 1 : 2;
  };

  /** @param {number} slot */
  const px = (slot) => (x[slot] - camera.x) * kx + width / 2;
  /** @param {number} slot */
  const py = (slot) => (y[slot] - camera.y) * ky + height / 2;

  const feet = floats(scene.count);
  /** Returns the height that a thought needs below its position. @param {number} slot */
  const footAt = (slot) => (feet[slot] ||= footOf(scene, slot, detail));

  /** Returns the ends of the edge to a thought: x and y of the parent's end, x and y of its own. @param {number} slot */
  const edgeOf = (slot) => {
    const parent = parents[slot];
    const [one, other] = [px(parent), px(slot)];
    return scene.sideways
      ? [one + radius, py(parent), other - radius, py(slot)]
      : [one, py(parent) + footAt(parent), other, py(slot) - radius];
  };

  /** @param {string} colour @param {number} [share] */
  const paint = (colour, share = 1) => {
    brush.globalAlpha = share;
    brush.fillStyle = colour;
    brush.fill();
  };
  /** @param {string} colour @param {number} thick @param {number} [share] */
  const stroke = (colour, thick, share = 1) => {
    brush.globalAlpha = share;
    brush.strokeStyle = colour;
    brush.lineWidth = thick;
    brush.stroke();
  };
  /** Writes text centred at (at, baseline). @param {string} text @param {number} at @param {number} baseline
   * @param {string} colour @param {number} share @param {number} [weight]
   * @param {number} [room] maximum width; longer text is compressed, so that it never covers a neighbour's */
  const write = (text, at, baseline, colour, share, weight = 600, room) => {
    brush.globalAlpha = share;
    brush.font = `${weight} ${SIZE}px ${theme.font}`;
    brush.fillStyle = colour;
    brush.fillText(text, at, baseline, room);
  };
  /** @param {number} at @param {number} down @param {number} size */
  const circle = (at, down, size) => brush.roundRect(at - size, down - size, 2 * size, 2 * size, size);
  /** @param {number} slot @param {number} gap distance from the shape in pixels */
  const ring = (slot, gap) => {
    brush.beginPath();
    circle(px(slot), py(slot), max(radius, 2) + gap);
  };

  /** Paints all items of one kind in few paths. @param {Iterable<number>} slots
   * @param {(slot: number) => number} kind lower kinds are painted earlier, negative ones are not painted
   * @param {(slot: number) => void} trace @param {(kind: number) => void} finish */
  const together = (slots, kind, trace, finish) => {
    /** @type {number[][]} */
    const groups = [];
    for (const slot of slots) {
      const its = kind(slot);
      if (its >= 0) (groups[its] ??= []).push(slot);
    }
    groups.forEach((group, its) => {
      for (let first = 0; first < group.length; first += BATCH) {
        brush.beginPath();
        group.slice(first, first + BATCH).forEach(trace);
        finish(its);
      }
    });
  };

  brush.textAlign = "center";
  brush.beginPath();
  brush.rect(0, 0, width, height);
  paint(theme.paper);

  // In an overview, edges of thoughts that are not drawn are left out. In a close view, an edge may cross the view
  // although both of its thoughts are outside.
  together(far ? seen : parents.keys(), (slot) => {
    const parent = parents[slot];
    if (parent < 0) return -1;
    const [one, other] = [px(parent), px(slot)];
    if (max(one, other) < 0 || min(one, other) > width) return -1;
    if (max(py(parent), py(slot)) < 0 || min(py(parent), py(slot)) > height) return -1;
    const its = look(slot);
    // Where levels touch, only the edges of paths are visible.
    return ky < 5 && its < 3 ? -1 : its + (flags[slot] & LOST ? looks.length : 0);
  }, (slot) => {
    const [fromX, fromY, toX, toY] = edgeOf(slot);
    const half = (fromY + toY) / 2;
    brush.moveTo(fromX, fromY);
    if (scene.sideways) brush.bezierCurveTo((fromX + toX) / 2, fromY, (fromX + toX) / 2, toY, toX, toY);
    else if (kx > 11 && ky > 24) brush.bezierCurveTo(fromX, half, toX, half, toX, toY);
    else brush.lineTo(toX, toY);
  }, (its) => {
    const [share, , ...strokes] = looks[its % looks.length];
    if (its >= looks.length) brush.setLineDash([2, 6]);
    for (const [colour, thick] of strokes) stroke(colour, thick, share);
    brush.setLineDash([]);
  });
  /** Crosses out a point. @param {number} at @param {number} down @param {number} arm @param {string} colour */
  const cross = (at, down, arm, colour) => {
    brush.beginPath();
    for (const way of [-1, 1]) {
      brush.moveTo(at - arm, down - way * arm);
      brush.lineTo(at + arm, down + way * arm);
    }
    stroke(colour, 2);
  };
  // The path of a wrong answer breaks after the last thought that could still lead to a right one.
  for (const slot of seen) {
    const parent = parents[slot];
    if (!(flags[slot] & LOST) || flags[parent] & LOST) continue;
    const [fromX, fromY, toX, toY] = edgeOf(slot);
    cross((fromX + toX) / 2, (fromY + toY) / 2, 6, ink);
  }

  // Links are curved, so that a link along an edge is visible beside it.
  brush.setLineDash([5, 4]);
  for (const { from, to, kind } of scene.links) {
    const middle = (px(from) + px(to)) / 2 + (x[from] === x[to] ? min(kx, 60) : 0);
    const up = (py(from) + py(to)) / 2 - min(ky, 60) / 2;
    brush.beginPath();
    brush.moveTo(px(from), py(from));
    brush.bezierCurveTo(middle, up, middle, up, px(to), py(to));
    const near = from === scene.hovered || to === scene.hovered || scene.selected.includes(from) || scene.selected.includes(to);
    stroke(theme.links[kind], 1.5, near ? 1 : FAINT);
  }
  brush.setLineDash([]);

  for (const slot of seen) {
    const differs = scene.difference?.[scene.nodes[slot]];
    if (differs) {
      ring(slot, min(radius, 4));
      paint(theme.differences[differs], 0.55);
    }
    if (flags[slot] & WAITING) {
      brush.setLineDash([3, 3]);
      ring(slot, 4);
      stroke(theme.waiting, 2);
      brush.setLineDash([]);
    } else if (flags[slot] & FRONTIER && !dots) {
      brush.setLineDash([1.5, 2.5]);
      ring(slot, 3);
      stroke(theme.open, 1.5);
      brush.setLineDash([]);
    }
  }

  const big = max(radius, ky < 5 ? 2 : 3);
  let painted = seen.length;
  if (far) {
    const cells = cellsOf(scene, camera, width, height);
    painted = cells.reduce((all, { count }) => all + count, 0);
    // Pale colours need the paper below them, not an edge.
    together(cells.keys(), () => 0, (cell) => {
      const { x, y, wide, high } = cells[cell];
      brush.rect(x, y - high / 2, wide, high);
    }, () => paint(theme.paper));
    const bars = cells.flatMap(({ x, y, wide, high, parts }) => {
      let from = y - high / 2;
      return parts.map(({ kind, share, mean }) => {
        const part = { x, y: from, wide, high: share * high };
        from += part.high;
        const scored = Number.isNaN(mean) ? UNSCORED : round(between(mean, 0, 1) * (STEPS - 1));
        const step = PARTS[kind] === "failed" ? FAILED : scored;
        return { part, its: kind * 64 + step };
      });
    });
    together(bars.keys(), (bar) => bars[bar].its, (bar) => {
      const { x, y, wide, high } = bars[bar].part;
      brush.rect(x, y, wide, high);
    }, (its) => paint(fills[its % 64], OPACITY[its >> 6]));
  }
  together(seen, (slot) => (far && look(slot) < 3 ? -1 : look(slot) * 64 + fill[slot]), (slot) => {
    const corners = CORNERS[scene.shape[slot]];
    const [at, down, leads] = [px(slot), py(slot), look(slot) > 2];
    const size = leads ? big : radius;
    if (dots && !leads) brush.rect(at - size, down - size, 2 * size, 2 * size);
    else if (!corners.length) circle(at, down, size);
    else {
      brush.moveTo(at + corners[0][0] * size, down + corners[0][1] * size);
      for (const [right, low] of corners) brush.lineTo(at + right * size, down + low * size);
      brush.closePath();
    }
  }, (kind) => {
    const its = kind >> 6;
    const [share, outline] = looks[its];
    paint(fills[kind % 64], share);
    if (its > 2) stroke(outline, dots ? 1.5 : 2.2);
    else if (radius > 4) stroke(outline, 0.8, share * 0.8);
  });

  for (const slot of seen) {
    if (scene.shape[slot] === WRONG) cross(px(slot), py(slot), max(big, 5) * 1.2, ink);
  }
  for (const slot of scene.missed) {
    ring(slot, 3);
    stroke(theme.verdicts.right, 3);
  }
  for (const slot of scene.lastSolvable) {
    for (const gap of [1.5, 4.5]) {
      ring(slot, gap);
      stroke(theme.verdicts.right, 1.6);
    }
  }
  /** Writes lines of text on a background of the colour of the paper, so that edges do not cross them.
   * @param {string[]} lines @param {number} at @param {number} baseline of the first line @param {number} share
   * @param {number} room maximum width */
  const label = (lines, at, baseline, share, room) => {
    const wide = min(room, max(...lines.map((line) => line.length)) * SIZE * 0.5);
    brush.beginPath();
    brush.rect(at - wide / 2, baseline - SIZE + 1, wide, LEADING * lines.length);
    paint(theme.paper, 0.75);
    for (const row of lines) {
      write(row, at, baseline, ink, 0.8 * share, 400, room);
      baseline += LEADING;
    }
  };
  if (!detail.rows) {
    // No level has room for texts, but the answer and the selected thoughts always have one.
    const answer = scene.slot[scene.best] ?? -1;
    for (const slot of new Set([answer, ...scene.selected])) {
      if (slot < 0) continue;
      const [line] = wrapped(scene.text(slot), 40, 1);
      const [half, gap] = [line?.length * SIZE * 0.25, max(radius, 3) + 6];
      const side = px(slot) + gap + 2 * half > width ? -1 : 1; // on the left where the right has no room
      if (line) label([line], px(slot) + side * (gap + half), py(slot) + 4, 1, QUESTION);
    }
  }
  if (!far || detail.rows) {
    for (const slot of seen) {
      const [at, down, share] = [px(slot), py(slot), min(2 * looks[look(slot)][0], 1)];
      const baseline = down + (far ? heightOf(ky) / 2 : radius) + GAP + SIZE - 3;
      const { room, lines, number: digits, first } = linesBelow(scene, slot, detail);
      digits.forEach((line, row) => write(line, at, baseline + LEADING * row, ink, share));
      if (lines.length) label(lines, at, baseline + LEADING * first, share, room);
      const hidden = scene.hidden[slot];
      if (hidden && !far) {
        // The number of thoughts hidden by a collapsed one, or a short line if a number would be unreadable.
        const count = `+${hidden < 1e4 ? hidden : `${round(hidden / 1000)}k`}`;
        const readable = scores || (ky >= 24 && scene.badged(kx)[slot] > 0);
        const wide = readable ? 7 * count.length + 6 : 2;
        const foot = down + footAt(slot) + 2;
        brush.beginPath();
        brush.roundRect(at - wide / 2, foot, wide, readable ? 14 : 4, readable ? 7 : 0);
        paint(readable ? edge : faint);
        if (readable) write(count, at, foot + 11, ink, 1);
      }
    }
  }
  if (far) label([KEY], width / 2, height - 6, 1, width);
  if (far && ky >= STRIP) {
    for (const { level, count, mean, pruned, bins } of levelsOf(scene)) {
      const down = (level - camera.y) * ky + height / 2 - heightOf(ky) / 2 - 16;
      if (down < 0 || down > height) continue;
      const most = max(...bins, 1);
      brush.beginPath();
      brush.rect(0, down - 14, 158, 28);
      paint(theme.paper, 0.85);
      bins.forEach((its, bin) => {
        brush.beginPath();
        brush.rect(6 + bin * 4, down + 10 - (its / most) * 20, 3.5, (its / most) * 20);
        paint(fills[round(((bin + 0.5) / bins.length) * (STEPS - 1))]);
      });
      const score = scene.quantity ? "" : Number.isNaN(mean) ? "no score, " : `mean ${brief(mean)}, `;
      write(number(count), 102, down - 2, ink, 1);
      write(`${score}${round(pruned * 100)} % pruned`, 102, down + 10, ink, 0.8, 400, 106);
    }
  }
  for (const [slot, mark] of scene.marks) {
    const [at, down] = [px(slot) + big, py(slot) - big];
    brush.beginPath();
    circle(at, down, 6);
    paint(theme.verdicts[mark] ?? faint);
    write(SIGNS[mark], at, down + 4, theme.paper, 1);
  }
  for (const slot of scene.changed) {
    const [at, down] = [px(slot) - big - 1, py(slot) - big];
    brush.beginPath();
    brush.rect(at - 6, down - 6, 12, 12);
    paint(theme.person);
    write(PERSON, at, down + 4, theme.paper, 1);
  }
  for (const slot of scene.selected) {
    ring(slot, 3.5);
    stroke(chosen, 2.5);
  }
  return painted;
}
