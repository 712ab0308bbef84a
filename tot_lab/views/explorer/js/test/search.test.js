import assert from "node:assert/strict";
import { test } from "node:test";
import { searchOf } from "../search.js";
import { tree } from "./chunks.js";

const recording = tree([-1, 0, 0, 1, 1], {
  scores: [0.9, 0.2, null, 0.7],
  decided: [
    [1, "kept"],
    [2, "pruned"],
    [4, "answer"],
  ],
  texts: ["The question", "left: 6 4", "LEFT: 6", "score>0.7 is text here", 'say "no"'],
});

/** @param {string} query @returns {number[]} */
const found = (query) => {
  const search = searchOf(query);
  assert.equal(search.error, "");
  const mask = search.matches(recording, recording.at(recording.lines));
  return [...mask.keys()].filter((node) => mask[node]);
};

test("words are found in any case, as they stand", () => {
  assert.deepEqual(found("left: 6"), [1, 2]);
  assert.deepEqual(found("LEFT: 6 4"), [1]);
  assert.deepEqual(found("left:  6"), []);
});

test("conditions are plain", () => {
  assert.deepEqual(found("score>0.7"), [1]);
  assert.deepEqual(found("score >= 0.7"), [1, 4]);
  assert.deepEqual(found("score=0.2"), [2]);
  assert.deepEqual(found("score<0.3"), [2]);
  assert.deepEqual(found("score=none"), [0, 3]);
  assert.deepEqual(found("depth=2"), [3, 4]);
  assert.deepEqual(found("depth<=1"), [0, 1, 2]);
  assert.deepEqual(found("state:pruned"), [2]);
  assert.deepEqual(found("State:kept,answer"), [1, 4]);
  assert.deepEqual(found("state:question"), [0]);
  assert.deepEqual(found("state:unreadable,question"), [0, 3]);
  assert.deepEqual(found("id:0.0"), [1, 3, 4]);
});

test("all must hold, and words stand beside conditions", () => {
  assert.deepEqual(found("score>0.1 depth=1"), [1, 2]);
  assert.deepEqual(found("score>0.5 left"), [1]);
  assert.deepEqual(found("left depth=1 score<0.5"), [2]);
});

test("what is quoted is no condition", () => {
  assert.deepEqual(found('"score>0.7"'), [3]);
  assert.deepEqual(found('"score>0.7" depth=2'), [3]);
});

test("a word that only holds a field's name is a word", () => {
  assert.deepEqual(found("underscore>3"), []);
  assert.deepEqual(found("ascore>0.7"), []);
});

test("what cannot be read is an error in words", () => {
  assert.match(searchOf("score>much").error, /score needs a number, such as score>0\.7/);
  assert.match(searchOf("depth=").error, /depth needs a number/);
  assert.match(searchOf("state:good").error, /state needs one of question, proposed, unreadable, kept/);
  assert.match(searchOf("state>kept").error, /state needs one of/);
  assert.match(searchOf("id:x").error, /such as id:0\.1/);
});

test("nothing typed is no search", () => {
  assert.equal(searchOf("  ").empty, true);
  assert.equal(searchOf("a").empty, false);
  assert.equal(searchOf("depth=1").empty, false);
  assert.equal(searchOf("left depth=?").empty, true);
});

test("at an earlier step only what was there is found, as it was", () => {
  const search = searchOf("score>0.5");
  assert.deepEqual([...search.matches(recording, recording.at(5))], [0, 0, 0, 0, 0]);
  assert.deepEqual([...search.matches(recording, recording.at(6))], [0, 1, 0, 0, 0]);
  assert.equal(search.matches(recording, recording.at(2)).length, 2);
});

test("an unknown filter is named, and its words are searched", () => {
  assert.deepEqual(found("sc>0.7"), []);
  assert.match(searchOf("visits>3").note, /visits is no filter.*score, depth, state, id/);
  for (const query of ["left: 6", "score>0.7", '"visits>3"', "3 + 4 = 7"]) assert.equal(searchOf(query).note, "");
});
