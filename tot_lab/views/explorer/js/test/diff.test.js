import assert from "node:assert/strict";
import { test } from "node:test";
import { wordsOf } from "../diff.js";

const shown = (one, other) => wordsOf(one, other).map(({ side, text }) => [side, text.trim()]);

test("the words of both, of the first and of the second text", () => {
  assert.deepEqual(shown("take 4 from 9", "take 5 from 9"), [[0, "take"], [-1, "4"], [1, "5"], [0, "from 9"]]);
  assert.deepEqual(shown("", "all new"), [[1, "all new"]]);
  assert.deepEqual(shown("all gone", ""), [[-1, "all gone"]]);
  assert.deepEqual(shown("the same", "the same"), [[0, "the same"]]);
});

test("both texts can be read from their parts", () => {
  const one = "a b c d\n e f  g";
  const other = "b c x d\n f  g h";
  const side = (which) => wordsOf(one, other).filter((part) => part.side !== -which).map(({ text }) => text).join("");
  assert.deepEqual([side(-1), side(1)], [one, other]);
});

test("long texts are compared up to a limit", () => {
  const begun = Date.now();
  wordsOf("a ".repeat(1e5), "b ".repeat(1e5));
  assert.ok(Date.now() - begun < 2000);
});
