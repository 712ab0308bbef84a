import assert from "node:assert/strict";
import { test } from "node:test";
import { Recording } from "../recording.js";
import { inWords, plan, tableOf } from "../timeline.js";

/** Units of time of a chunk per millisecond. */
const tick = (() => {
  const recording = new Recording();
  recording.append({ first: 0, firstNode: 0, firstCall: 0, kinds: "0", times: [1], parents: [-1], ordinals: [0] });
  return 0.001 / recording.time[0];
})();

/** Builds a recording from lines [kind, call, milliseconds, error or note]. */
function recorded(rows, unknown = []) {
  const of = (kind) => rows.filter((row) => row[0] === kind);
  const deltas = (column) => column.map((value, place) => value - (place ? column[place - 1] : 0));
  const recording = new Recording({ unknown });
  recording.append({
    ...{ first: 0, firstNode: 0, firstCall: 0 },
    kinds: "0" + rows.map(([kind]) => ({ call: 3, reply: 4, note: 5 })[kind]).join(""),
    times: deltas([0, ...rows.map(([, , time]) => Math.round(time * tick))]),
    ...{ parents: [-1], ordinals: [0] },
    ...{ asked: of("call").map(() => 0), questions: of("call").map(([, call]) => call % 2) },
    questionTable: [["propose", 0], ["value", 0]],
    ...{ answered: deltas(of("reply").map(([, call]) => call)), answers: of("reply").map((_, row) => row) },
    ...{ input: of("reply").map(() => 3), output: of("reply").map(() => 2) },
    answerTable: of("reply").map(([, , , error]) => [null, null, error ?? null]),
    ...{ noted: deltas(of("note").map(([, call]) => call)), notes: of("note").map((_, row) => row) },
    noteTable: of("note").map(([, , , name, data]) => [name, true, data ?? { tries: 1 }]),
  });
  return recording;
}

/** Returns random calls: rows for `recorded`, the lines of calls and replies, and the refused calls. Some stay open. */
function random(count, seed) {
  let state = seed;
  const roll = () => (state = (state * 1103515245 + 12345) % 2147483648) / 2147483648;
  const [rows, asked, answered, refused, open] = [[["none"]], [], [], [], []];
  while (asked.length < count || open.length) {
    if (asked.length < count && (roll() < 0.5 || !open.length)) {
      open.push(asked.length);
      rows.push(["call", asked.length, 20 * rows.length]);
      asked.push(rows.length - 1);
      answered.push(-1);
      refused.push(false);
    } else {
      const [call] = open.splice(Math.floor(roll() * open.length), 1);
      if (roll() > 0.9) continue;
      refused[call] = roll() < 0.2;
      answered[call] = rows.length;
      rows.push(["reply", call, 20 * rows.length, refused[call] ? "budget:calls" : null]);
    }
  }
  return { rows: rows.slice(1), asked, answered, refused };
}

test("no two calls of a lane overlap, and no more lanes are used than calls were under way", () => {
  for (let seed = 1; seed < 30; seed++) {
    const { rows, asked, answered } = random(60, seed);
    const { lane, lanes } = plan(recorded(rows));
    const end = (call) => (answered[call] < 0 ? Infinity : answered[call]);
    let most = 0;
    for (let one = 0; one < asked.length; one++) {
      let under = 0;
      for (let other = 0; other < asked.length; other++) {
        const overlap = asked[other] <= asked[one] && end(other) > asked[one];
        under += Number(overlap);
        if (other < one && overlap) assert.notEqual(lane[one], lane[other]);
      }
      most = Math.max(most, under);
    }
    assert.equal(lanes, most);
    assert.equal(Math.max(...lane) + 1, lanes);
  }
});

test("the critical path is what its definition says, and what was refused is not under way", () => {
  for (let seed = 1; seed < 30; seed++) {
    const { rows, asked, answered, refused } = random(60, seed);
    const { critical, level, most } = plan(recorded(rows));
    const lastBefore = (line) => {
      let best = -1;
      for (let call = 0; call < asked.length; call++) {
        if (refused[call] || answered[call] < 0 || answered[call] > line) continue;
        if (best < 0 || answered[call] > answered[best]) best = call;
      }
      return best;
    };
    const expected = [];
    for (let call = lastBefore(Infinity); call >= 0; call = lastBefore(asked[call])) expected.unshift(call);
    assert.deepEqual(critical, expected);
    assert.ok(expected.length > 1);
    assert.equal(most, Math.max(...level));
    const open = asked.filter((_, call) => answered[call] < 0).length;
    assert.equal(level.at(-1), open);
    assert.equal(level.length, 2 * (asked.length - refused.filter(Boolean).length) - open);
  }
  assert.deepEqual(plan(recorded([["call", 0, 0]])).critical, []);
});

test("a plan says what is drawn", () => {
  const held = plan(recorded([
    ["call", 0, 1000], ["note", 0, 1500, "call.sent"], ["call", 1, 2000], ["note", 1, 2000, "call.cached"],
    ["reply", 1, 2001], ["call", 2, 3000], ["reply", 0, 4000], ["call", 3, 5000], ["reply", 3, 6000, "down: no"],
    ["call", 4, 7000], ["reply", 4, 8000, "budget:calls"],
  ]));
  assert.equal(held.byOrder, false);
  assert.deepEqual([...held.from], [1, 2, 3, 5, 7]);
  assert.deepEqual([...held.to], [4, 2.001, 8, 6, 8]); // an open call lasts until the last line
  assert.deepEqual([held.failed, [...held.state], held.critical], [[3], [0, 1, 3, 0, 4], [0, 3]]);
  assert.deepEqual(held.kinds, ["propose", "value"]);
  assert.deepEqual([held.changes, held.level], [[1, 2, 2.001, 3, 4, 5, 6], [1, 2, 1, 2, 1, 2, 1]]);
  assert.deepEqual([held.most, held.lanes], [2, 2]);
  const words = inWords(held);
  const parts = ["4 calls", "at most 2 at once", "1 from the cache", "1 failed", "1 refused", "path: 2 calls, 4.0 s"];
  for (const part of parts) assert.ok(words.includes(part), `${part} in ${words}`);
});

test("a limit holds from its change on, and before it the one that was changed, for each model", () => {
  const change = (model, before, limit) => ({ model, before, limit });
  const held = plan(recorded([
    ["call", 0, 1000], ["note", 0, 2000, "call.limit", change("m", 16, 32)], ["reply", 0, 3000],
    ["call", 1, 4000], ["note", 1, 5000, "call.limit", change("other", 8, 4)],
    ["note", 1, 6000, "call.limit", change("m", 32, 24)], ["reply", 1, 7000],
  ]));
  assert.deepEqual(held.limits, [[[1, 16], [2, 32], [6, 24]], [[1, 8], [5, 4]]]);
  assert.ok(inWords(held).includes("limit 16 → 32 → 24; 8 → 4"));
  assert.deepEqual(plan(recorded([["call", 0, 0], ["reply", 0, 1000]])).limits, []);
});

test("where no call takes time, the order is shown and said", () => {
  const held = plan(recorded([["call", 0, 0], ["call", 1, 0], ["reply", 0, 3], ["reply", 1, 4]]));
  assert.ok(held.byOrder);
  assert.deepEqual([[...held.from], [...held.to], held.end], [[1, 2], [3, 4], 5]);
  assert.match(inWords(held), /order, not time/);
  const untimed = recorded([["call", 0, 0], ["reply", 0, 0]], ["times"]);
  assert.match(inWords(plan(untimed)), /the log has no durations/);
  assert.deepEqual(tableOf(untimed, 9).map((row) => row.slice(2, 4)), [["unknown", "unknown time"]]);
  assert.ok(!plan(recorded([["call", 0, 0]])).byOrder);
  assert.equal(plan(new Recording()).lanes, 0);
  assert.match(inWords(plan(new Recording())), /^0 calls/);
});

test("100,000 calls are planned at once", () => {
  const { rows } = random(100_000, 7);
  const recording = recorded(rows);
  const start = process.cpuUsage();
  assert.equal(plan(recording).lane.length, 100_000);
  const took = process.cpuUsage(start).user / 1000;
  assert.ok(took < 10_000, `${took} ms`);
  console.log(`plan of 100,000 calls: ${took.toFixed(0)} ms`);
});
