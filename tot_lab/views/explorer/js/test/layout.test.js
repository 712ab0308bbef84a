import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { layered, tidy } from "../layout.js";

const golden = JSON.parse(readFileSync(new URL("../../../../../tests/golden/layouts.json", import.meta.url), "utf8"));

for (const [name, { parents, y, ...places }] of Object.entries(golden)) {
  for (const draw of [tidy, layered]) {
    test(`${draw.name} draws as Python does: ${name}`, () => {
      for (const given of [parents, Int32Array.from(parents)]) {
        const drawn = draw(given);
        assert.ok(drawn.x instanceof Float64Array);
        assert.deepEqual([...drawn.y], y);
        assert.equal(drawn.x.length, places[draw.name].length);
        for (const [node, x] of drawn.x.entries()) {
          assert.ok(Math.abs(x - places[draw.name][node]) <= 1e-9, `node ${node}: ${x}, not ${places[draw.name][node]}`);
        }
      }
    });
  }
}

for (const draw of [tidy, layered]) {
  test(`${draw.name} draws a chain of 25,000 and a tree of 100,000`, () => {
    const chain = draw(Int32Array.from({ length: 25_000 }, (_, node) => node - 1));
    assert.equal(chain.y[24_999], 24_999);
    assert.ok(chain.x.every((x) => x === 0));
    const start = process.cpuUsage();
    const tree = draw(Int32Array.from({ length: 100_000 }, (_, node) => Math.floor((node + 2) / 3) - 1));
    assert.ok(process.cpuUsage(start).user < 10e6, "quadratic would take minutes");
    for (let node = 1; node < 100_000; node++) {
      if (tree.y[node] === tree.y[node - 1]) assert.ok(tree.x[node] - tree.x[node - 1] >= 1 - 1e-6);
    }
  });
}
