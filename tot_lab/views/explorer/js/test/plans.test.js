import assert from "node:assert/strict";
import { test } from "node:test";
import { placed, plansAt, stepAt } from "../plans.js";

const step = (id, ...depends) => ({ id, depends });
const levels = (steps) => placed(steps).boxes.map(({ level }) => level);

/** The points of a path of horizontal and vertical lines. */
function points(path) {
  let [x, y] = [0, 0];
  return [...path.matchAll(/([MHV])([-\d.]+)(?: ([-\d.]+))?/g)].map(([, sign, a, b]) => {
    if (sign !== "V") x = +a;
    if (sign === "V") y = +a;
    if (sign === "M") y = +b;
    return [x, y];
  });
}

test("a step is below all steps that it needs", () => {
  assert.deepEqual(levels([step("s1"), step("s2", "s1"), step("s3", "s1"), step("s4", "s2", "s3"), step("s5", "s1", "s4")]), [0, 1, 1, 2, 3]);
  assert.deepEqual(levels([step("s2", "s1"), step("s1")]), [1, 0]);
  assert.deepEqual(levels([]), []);
});

test("no edge crosses a step, wherever it goes", () => {
  const steps = [step("a"), step("b"), step("c", "a", "b"), step("d", "a"), step("e", "c"), step("f", "e", "a", "b"), step("g", "d", "b")];
  const { boxes, edges, width, height } = placed(steps);
  assert.equal(edges.length, 9);
  for (const { from, to, path } of edges) {
    const line = points(path);
    assert.ok(line[0][1] >= boxes[from].y && line.at(-1)[1] <= boxes[to].y + 1);
    for (let at = 1; at < line.length; at++) {
      const [[x1, y1], [x2, y2]] = [line[at - 1], line[at]];
      const [left, right] = [Math.min(x1, x2), Math.max(x1, x2)];
      const [top, low] = [Math.min(y1, y2), Math.max(y1, y2)];
      for (const { x, y } of boxes) {
        const inside = right > x && left < x + 220 && low > y && top < y + 130;
        assert.ok(!inside, `${path} through a step at ${x}, ${y}`);
      }
    }
  }
  for (const { x, y } of boxes) assert.ok(x >= 0 && x + 220 <= width && y + 130 <= height);
});

test("no two steps are in one place", () => {
  const { boxes } = placed(Array.from({ length: 30 }, (_, at) => step(`s${at}`, ...(at > 3 ? [`s${at - 3}`] : []))));
  assert.equal(new Set(boxes.map(({ x, y }) => `${x} ${y}`)).size, 30);
});

test("a circle and an unknown step in a file do no harm", () => {
  const { boxes, edges } = placed([step("a", "b"), step("b", "a"), step("c", "c", "nowhere")]);
  assert.equal(boxes.length, 3);
  for (const { x, y } of boxes) assert.ok(Number.isFinite(x) && Number.isFinite(y));
  assert.ok(edges.length <= 2);
});

test("at an earlier step of the record a plan is as it was", () => {
  const one = (id, ...changes) => ({ id, status: changes.at(-1)[1], error: null, result: "r", retries: 1, seconds: 2, changes });
  const first = { node: "0", goal: "g", version: 1, status: "replaced", reviews: [["0.9", 7]], steps: [one("s1", [3, "pending"], [5, "failed"])] };
  const second = { ...first, version: 2, status: "completed", steps: [one("s1", [8, "pending"], [9, "completed"])] };
  const at = (step) => plansAt([first, second], step, 12).map(({ version, status, steps: [{ status: its, result }] }) => [version, status, its, result]);
  assert.deepEqual(at(3), []);
  assert.deepEqual(at(4), [[1, "active", "pending", null]]);
  assert.deepEqual(at(6), [[1, "active", "failed", "r"]]);
  assert.deepEqual(at(9), [[1, "replaced", "failed", "r"], [2, "active", "pending", null]]);
  assert.deepEqual(at(10), [[1, "replaced", "failed", "r"], [2, "active", "completed", "r"]]);
  assert.deepEqual([7, 8].map((step) => plansAt([first], step, 12)[0].reviews), [[], [["0.9", 7]]]);
  assert.deepEqual(at(12), [[1, "replaced", "failed", "r"], [2, "completed", "completed", "r"]]);
});

test("what a version that has ended left pending was not run", () => {
  const one = (id, node, status) => ({ id, node, status, changes: [[0, status]] });
  const plan = { node: "0", goal: "g", version: 1, status: "replaced", reviews: [], steps: [one("s1", "0.0", "completed"), one("s2", "0.1", "pending")] };
  const words = (plans) => ["0.0", "0.1"].map((id) => stepAt(plans, id).word);
  assert.deepEqual(words([plan]), ["completed", "not run"]);
  assert.deepEqual(words([{ ...plan, status: "active" }]), ["completed", "pending"]);
  assert.deepEqual(words([plan, { ...plan, status: "active", steps: [one("s2", "0.1", "in_progress")] }]), ["completed", "in progress"]);
  assert.equal(stepAt([plan], "0.2"), undefined);
});
