// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";
import { nameIn, readPolicy, writePolicy } from "../src/model/policy.ts";

const FILE = `
[job]
name = "train" # a comment
id = 7
[loss]
push = 0.03
whole = 1.0
[policy]
weight = 2
drop_precedences = [{ magnitudes = [0, 31], drop_precedence = 3 }, { magnitudes = [32, 47], drop_precedence = 2 }]
yellow = 3
`;

test("a policy is read with its defaults", () => {
  const policy = readPolicy(FILE);
  assert.deepEqual(policy.precedences.slice(0, 4), [3, 3, 2, 0]);
  assert.deepEqual([policy.yellow, policy.red, policy.simplified], [3, 1, ""]);
  const none = readPolicy('[job]\nname = "x"');
  assert.deepEqual([none.precedences, none.yellow, none.red], [new Array(16).fill(0), 2, 1]);
});

test("it says where it knows less than the file", () => {
  assert.match(readPolicy("[policy]\ndrop_precedences = [{ layers = [0, 3], magnitudes = [0, 15], drop_precedence = 1 }]").simplified, /layers/);
  assert.match(readPolicy("[policy]\ndrop_precedences = [{ magnitudes = [0, 7], drop_precedence = 1 }]").simplified, /within 16/);
});

test("what is written is read again, and all else stays", () => {
  const wanted = { precedences: [...new Array(6).fill(4), 0, 1, ...new Array(8).fill(0)], yellow: 5, red: 4, simplified: "" };
  const text = writePolicy(FILE, wanted);
  assert.deepEqual(readPolicy(text), wanted);
  assert.match(text, /weight = 2\n/);
  assert.match(text, /whole = 1\.0\n/, "a float stays one");
  assert.match(text, /id = 7\n/);
  assert.equal(nameIn(text), "train");
});

test("no TOML, no name", () => {
  assert.equal(nameIn("= nonsense"), "");
  assert.throws(() => readPolicy("= nonsense"));
});
