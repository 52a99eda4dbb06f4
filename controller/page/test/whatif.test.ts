// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";
import type { DropCell } from "../src/model/contract.ts";
import type { DropPolicy } from "../src/model/policy.ts";
import { fateOf, sumOfDecisions, whatIf } from "../src/model/whatif.ts";

const of = (first: number[], yellow = 3, red = 2): DropPolicy => ({
  precedences: [...first, ...new Array<number>(16 - first.length).fill(0)],
  yellow,
  red,
  simplified: "",
});
const packets = (n: number) => ({ packets: n, bytes: 10 * n });

// Layer 0: ranges 0 and 1 lose at both colours (30 at yellow, 60 at red), range 2 at red only (15).
const DROPS: DropCell[] = [
  [0, 0, 60, 600],
  [0, 16, 30, 300],
  [0, 32, 15, 150],
];
const DECISIONS = { dropped_yellow: packets(30), dropped_red: packets(75), forwarded: packets(9999) };
const WAS = of([3, 3, 2]);

test("what becomes of a slice at each colour", () => {
  assert.deepEqual([0, 2, 3].map((range) => fateOf(WAS, range)), ["both", "red", "protected"]);
  assert.equal(fateOf(of([1]), 0), "protected", "a precedence below red is never dropped");
});

test("the same policy takes the same, all of it counted", () => {
  const it = whatIf(DROPS, DECISIONS, WAS, WAS);
  assert.deepEqual([it.before, it.after], [packets(105), packets(105)]);
  assert.deepEqual([it.estimated, it.unknown, it.earlier], [packets(0), 0, 0]);
});

test("the part at red is of what both colours take: (75 - 15) / (30 + 60)", () => {
  assert.equal(whatIf(DROPS, DECISIONS, WAS, WAS).redPart, 60 / 90);
  const trimmed = { trimmed_yellow: packets(30), trimmed_red: packets(75) };
  assert.equal(whatIf(DROPS, trimmed, WAS, WAS).redPart, 60 / 90, "trimmed slices are taken, too");
});

test("what is protected is not taken, and that is certain", () => {
  const it = whatIf(DROPS, DECISIONS, WAS, of([0, 3, 2]));
  assert.deepEqual([it.after, it.estimated], [packets(45), packets(0)]);
});

test("from both colours to red alone leaves the part at red", () => {
  const it = whatIf(DROPS, DECISIONS, WAS, of([2, 3, 2]));
  assert.deepEqual([it.after, it.estimated], [packets(40 + 30 + 15), packets(40)]);
});

test("from red alone to both colours takes as much more as yellow adds", () => {
  const it = whatIf(DROPS, DECISIONS, WAS, of([3, 3, 3]));
  assert.deepEqual(it.after, { packets: 60 + 30 + 23, bytes: 600 + 300 + 225 });
});

test("what was never taken is estimated from its layer", () => {
  const it = whatIf(DROPS, DECISIONS, WAS, of([3, 3, 2, 3, 2]));
  const cells = it.cells.filter((cell) => cell.basis === "estimated").map((cell) => [cell.range, cell.after.packets]);
  assert.deepEqual(cells, [
    [3, 45], // the mean of 60 and 30
    [4, 15],
  ]);
});

test("thresholds change fates as precedences do", () => {
  assert.equal(whatIf(DROPS, DECISIONS, WAS, of([3, 3, 2], 4, 3)).after.packets, 40 + 20);
  assert.equal(whatIf(DROPS, DECISIONS, WAS, of([3, 3, 2], 7, 7)).after.packets, 0);
});

test("where nothing is known it says so, and guesses nothing", () => {
  const it = whatIf([[5, 0, 10, 100]], {}, of([2]), of([3]));
  assert.equal(it.redPart, null);
  assert.deepEqual([it.unknown, it.after.packets], [1, 0]);
});

test("drops of an earlier policy are told apart", () => {
  assert.equal(whatIf(DROPS, DECISIONS, of([3, 3]), of([3, 3])).earlier, 15);
});

test("decisions of jobs add up", () => {
  const job = (n: number) => ({ name: "x", id: 1, workers: [], servers: [], decisions: { forwarded: packets(n) } });
  assert.deepEqual(sumOfDecisions([job(1), job(2)]), { forwarded: packets(3) });
});
