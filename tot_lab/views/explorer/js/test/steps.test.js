import assert from "node:assert/strict";
import { test } from "node:test";
import { turnOf } from "../steps.js";

test("a turn is what the model thought and the arguments of its calls", () => {
  const both = 'I look both up,\nby search(es).\nsearch({"query": "a (b)"})\nopen({"title": "c", "page": 2})';
  assert.deepEqual(turnOf(both, ["search", "open"]), {
    thought: "I look both up,\nby search(es).",
    given: ["query: a (b)", "title: c · page: 2"],
  });
  assert.deepEqual(turnOf('open({"title": "c"})', ["open"]), { thought: "", given: ["title: c"] });
  assert.deepEqual(turnOf("search(no JSON", ["search"]), { thought: "", given: ["no JSON"] });
  assert.deepEqual(turnOf("only thinks of open(ing)", ["open"]), { thought: "only thinks of open(ing)", given: [] });
  assert.deepEqual(turnOf("no tool", []), { thought: "no tool", given: [] });
});
