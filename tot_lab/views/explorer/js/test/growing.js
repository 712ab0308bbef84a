/**
 * Recordings for tests of the picture, built as chunks from rows [id, score, state, kind of link, linked id].
 */
import { Recording } from "../recording.js";

/** @param {any[][]} rows in the order of the record; score null means unreadable, undefined not evaluated
 * @param {string[]} [asked] ids for which a call is open at the end */
export function recorded(rows, asked = []) {
  const places = new Map(rows.map(([id], node) => [id, node]));
  const scored = rows.flatMap(([, score], node) => (score === undefined ? [] : [node]));
  const decided = rows.flatMap(([, , state], node) => (state ? [node] : []));
  const linked = (kind) => rows.flatMap(([, , , ...links], node) => {
    const found = [];
    for (let at = 0; at < links.length; at += 2) if (links[at] === kind) found.push([node, places.get(links[at + 1]) ?? links[at + 1]]);
    return found;
  });
  const deltas = (column) => column.map((value, place) => value - (place ? column[place - 1] : 0));
  const count = rows.length + scored.length + decided.length + asked.length;
  const recording = new Recording();
  recording.append({
    first: 0, firstNode: 0, firstCall: 0,
    kinds: "0".repeat(rows.length) + "1".repeat(scored.length) + "2".repeat(decided.length) + "3".repeat(asked.length),
    times: new Array(count).fill(0),
    parents: deltas(rows.map(([id]) => places.get(id.slice(0, Math.max(id.lastIndexOf("."), 0))) ?? -1)),
    ordinals: rows.map(([id]) => Number(id.split(".").at(-1))),
    scored: deltas(scored),
    scores: scored.map((_, row) => row),
    scoreTable: scored.map((node) => [rows[node][1], "value", null, []]),
    decided: deltas(decided),
    decisions: decided.map((_, row) => row),
    decisionTable: decided.map((node) => [rows[node][2], ""]),
    asked: deltas(asked.map((id) => places.get(id))),
    questions: asked.map(() => 0),
    questionTable: asked.length ? [["propose", 0]] : [],
    sources: linked("source"),
    depends: linked("depends"),
    merged: linked("merged").map(([node, to]) => [decided.indexOf(node), to]),
  });
  recording.setTexts(0, rows.map(([id]) => `thought ${id}`));
  return recording;
}

/** Builds a full tree: each thought has `branch` children down to `depth`, of which the first is kept and the rest pruned.
 * @param {number} branch @param {number} depth @param {string} [solution] id of the answer */
export function full(branch, depth, solution = "") {
  const rows = [["0"]];
  for (let at = 0; at < rows.length; at++) {
    const [id] = rows[at];
    if (id.split(".").length > depth) break;
    for (let k = 0; k < branch; k++) {
      const child = `${id}.${k}`;
      rows.push([child, (k + 1) / (branch + 1), child === solution ? "answer" : k ? "pruned" : "kept"]);
    }
  }
  return recorded(rows);
}
