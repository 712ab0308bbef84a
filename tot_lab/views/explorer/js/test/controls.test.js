import assert from "node:assert/strict";
import { test } from "node:test";
import { happened, usedOf } from "../controls.js";
import { stateOf, usageOf } from "../details.js";
import { brief, dotted, money, number, seconds, short } from "../dom.js";
import { Recording } from "../recording.js";
import { tree } from "./chunks.js";

test("every step says what happened at it", () => {
  const recording = tree([-1, 0, 0], {
    scores: [0.25, null],
    decided: [
      [1, "kept"],
      [2, "pruned"],
    ],
  });
  assert.deepEqual(
    Array.from({ length: 8 }, (_, step) => happened(recording, recording.at(step))),
    [
      "nothing has happened yet",
      "question",
      "thought 0.0 proposed",
      "thought 0.1 proposed",
      "thought 0.0 scored 0.25",
      "thought 0.1 unreadable",
      "thought 0.0 kept: rule",
      "thought 0.1 pruned: rule",
    ],
  );
});

test("a person's changes of the search are named", () => {
  const recording = new Recording({});
  const acts = [{ act: "graft", node: "0.1", text: "6 * 4", score: 0.5 }, { act: "raise_budget", limits: { calls: 9 } }];
  recording.append({
    ...{ first: 0, kinds: "0555", times: [0, 0, 0, 0], parents: [-1], ordinals: [0] },
    ...{ noted: [0, 0, 0], notes: [0, 1, 2] },
    noteTable: [["person.acts", false, { acts }], ["person.acts", false, { acts: 7 }], ["person.acts", false, { acts: [null] }]],
  });
  const [first, ...strange] = [2, 3, 4].map((step) => happened(recording, recording.at(step)));
  assert.equal(first, "a person's changes: a thought below thought 0.1 with score 0.5: 6 * 4; budget: calls 9");
  assert.ok(strange.every((words) => words.includes("person")));
});

test("calls are told of when they are asked and when they are answered", () => {
  const recording = new Recording({});
  recording.append({
    first: 0,
    firstNode: 0,
    firstCall: 0,
    kinds: "0333446",
    times: [0, 0, 0, 0, 15_000, 5_000, 0],
    parents: [-1],
    ordinals: [0],
    asked: [0, 0, 0],
    questions: [0, 1, 0],
    questionTable: [
      ["propose", 0],
      ["value", 2],
    ],
    answered: [0, 1],
    input: [10, null],
    output: [5, null],
    answers: [0, 1],
    answerTable: [
      [0.5, 0, null],
      [null, null, "timeout 30 s"],
    ],
    ended: { stop: "solved", answer: "24", node: 0, score: 1, ranked: [0], error: null },
  });
  assert.deepEqual(
    [2, 3, 5, 6, 7].map((step) => happened(recording, recording.at(step))),
    [
      "asked: propose at thought 0",
      "asked: value at thought 0, sample 3",
      "answered: propose at thought 0, after 1.5 s",
      "failed: value at thought 0, sample 3: timeout 30 s",
      "ended: solved",
    ],
  );
  const used = usageOf(recording, recording.at(5), 0);
  assert.deepEqual(
    [used.calls.length, used.open, used.input, used.output, used.cost, used.paid, used.words],
    [3, 2, 10, 5, 0.5, 0, "model · 10 → 5 tokens · 1.5 s · cost $0.5000, paid $0 · 2 open"],
  );
  const later = usageOf(recording, recording.at(7), 0);
  assert.deepEqual([later.open, later.input, later.cost], [1, 10, 0.5]);
  assert.equal(usageOf(recording, recording.at(2), 0).calls.length, 1);
});

test("a thought's state has a name", () => {
  const recording = tree([-1, 0, 0], { decided: [[1, "answer"]] });
  assert.deepEqual(
    [0, 1, 2].map((node) => stateOf(recording.at(4), node, [])),
    ["question", "answer", "proposed"],
  );
});

test("what is used is told beside its cap", () => {
  const used = { usage: { calls: 5, input: 100, output: 50, cost: 0.02 }, time: 30 };
  const frame = /** @type {any} */ ({ run: new Recording(), ...used });
  assert.deepEqual(usedOf({ calls: 10, tokens: 100, usd: null, seconds: 60 }, frame), [
    "5 of 10 calls",
    "150 of 100 tokens",
    "100 in",
    "50 out",
    "$0.0200 cost",
    "30.0 s of 1 min 0 s",
  ]);
});

test("what the log of an imported run lacks is unknown, and never 0", () => {
  const used = { usage: { calls: 1, input: NaN, output: NaN, cost: NaN }, time: 0 };
  const wordsOf = (/** @type {string[]} */ ...unknown) =>
    usedOf({}, /** @type {any} */ ({ run: new Recording({ unknown }), ...used }));
  assert.deepEqual(wordsOf("times", "calls"), ["at least 1 call", "tokens, cost, time unknown"]);
  assert.deepEqual(wordsOf("durations"), ["1 call", "0 ms", "tokens, cost unknown"]);
  const half = { usage: { calls: 2, input: 5, output: NaN, cost: 0 }, time: 0 };
  assert.deepEqual(usedOf({ calls: 4 }, /** @type {any} */ ({ run: new Recording(), ...half })), ["2 of 4 calls", "5 in", "$0 cost", "0 ms", "tokens, tokens out unknown"]);
  const none = new Recording({ unknown: ["times", "calls"] });
  none.append({ first: 0, firstNode: 0, firstCall: 0, kinds: "0", times: [0], parents: [-1], ordinals: [0] });
  assert.deepEqual(usedOf({}, none.at(1)), ["calls, tokens, cost, time unknown"]);
});

test("amounts are worded, and what is not known is said", () => {
  assert.deepEqual([number(12345), number(NaN)], ["12,345", "unknown"]);
  assert.deepEqual(
    [money(0), money(0.000123), money(0.1234), money(12.345), money(NaN)],
    ["$0", "$0.00012", "$0.1234", "$12.35", "unknown"],
  );
  assert.deepEqual([0.0042, 3.21, 75, NaN].map(seconds), ["4 ms", "3.2 s", "1 min 15 s", "unknown time"]);
  assert.deepEqual([brief(0.123456), brief(1), brief(NaN)], ["0.123", "1", "none"]);
  assert.equal(dotted("a", false, null, "b"), "a · b");
  assert.equal(short("  a \n b  ", 10), "a b");
  assert.equal(short("abcdefgh", 5), "abcd…");
});
