// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";
import { type Fabric, keyOf, type LiveLink, loadsOf, type Snapshot, switchOf, total } from "../src/model/contract.ts";
import { ago, bytes, count, percent, rate, seconds } from "../src/model/format.ts";
import { layersOf, layOut } from "../src/model/graph.ts";
import { JobSeries, Ring } from "../src/model/series.ts";
import { sorted } from "../src/model/sorting.ts";
import { SseParser } from "../src/net/sse.ts";

function fabric(links: [string, string][], hosts: [string, string][], names: string[]): Fabric {
  return {
    switches: names.map((name) => ({ name, target: "bmv2", aggregation: false, address: "" })),
    hosts: hosts.map(([name, at], i) => ({ name, switch: at, port: i + 1, rate: 1e9, addresses: [] })),
    links: links.map((ends) => ({ ends, rate: [1e9, 1e9] as [number, number] })),
  };
}

test("a link that is down carries nothing, whatever was counted last", () => {
  const link: LiveLink = { ends: ["a:1", "b:1"], up: true, load: [[1, 2], [3, 4]] };
  assert.deepEqual(loadsOf(link, "a:1"), [[1, 2], [3, 4]]);
  assert.deepEqual(loadsOf(link, "b:1"), [[3, 4], [1, 2]]);
  assert.deepEqual(loadsOf({ ...link, up: null }, "a:1"), [[1, 2], [3, 4]]);
  assert.deepEqual(loadsOf({ ...link, up: false }, "a:1"), [[0], [0]]);
  assert.deepEqual(loadsOf({ ends: link.ends, up: true }, "a:1"), [null, null]);
  assert.deepEqual(loadsOf(undefined, "a:1"), [null, null]);
});

test("layers come from the graph alone", () => {
  const it = fabric(
    [["a:1", "b:1"], ["b:2", "c:1"], ["d:1", "b:3"]],
    [["h1", "a"], ["h2", "d"]],
    ["a", "b", "c", "d", "lonely"],
  );
  assert.deepEqual([...layersOf(it).values()], ["leaf", "spine", "core", "leaf", "spine"]);
});

test("no two switches of a layer are at the same place, whatever the width", () => {
  const names = [...Array(40).keys()].map((i) => `leaf${i}`);
  const it = fabric(names.map((name, i) => [`${name}:9`, `spine:${i}`]), names.map((name) => [`h-${name}`, name]), [...names, "spine"]);
  for (const width of [330, 1300]) {
    const graph = layOut(it, width);
    assert.equal(new Set([...graph.nodes.values()].map((node) => `${node.x} ${node.y}`)).size, 41);
    assert.ok([...graph.nodes.values()].every((node) => node.x > 0 && node.x < width && node.y < graph.height));
    assert.equal(graph.edges.size, 40);
  }
});

test("parallel links lie beside one another", () => {
  const graph = layOut(fabric([["a:1", "b:1"], ["a:2", "b:2"], ["b:3", "a:3"]], [["h", "a"]], ["a", "b"]), 800);
  assert.deepEqual([...graph.edges.values()].map((edge) => edge.beside), [-1, 0, 1]);
});

test("a link has one key, and ends have switches", () => {
  assert.equal(keyOf(["b:1", "a:1"]), keyOf(["a:1", "b:1"]));
  assert.equal(switchOf("leaf:x:12"), "leaf:x");
  assert.deepEqual([total([1, 2]), total(null), total([])], [3, null, 0]);
});

test("numbers are written with three digits, and what is not known as a dash", () => {
  assert.deepEqual([rate(0), rate(999), rate(1234), rate(123_456_789), rate(null)], ["0 bit/s", "999 bit/s", "1.23 kbit/s", "123 Mbit/s", "–"]);
  assert.deepEqual([bytes(1e9), percent(0.0312, 1), percent(null), seconds(0.21), seconds(1.5), seconds(0)], ["1.00 GB", "3.1 %", "–", "210 ms", "1.50 s", "0 s"]);
  assert.equal(count(1234567), "1\u202f234\u202f567");
  assert.deepEqual([ago("2026-01-01T00:00:00Z", Date.UTC(2026, 0, 1, 0, 5)), ago(null, 0)], ["5 min", "–"]);
});

test("rows are sorted by name as people count, unknown ones last", () => {
  const rows = [{ n: "leaf10", v: 1 }, { n: "leaf2", v: null }, { n: "leaf1", v: 5 }];
  const columns = { n: (row: (typeof rows)[0]) => row.n, v: (row: (typeof rows)[0]) => row.v };
  assert.deepEqual(sorted(rows, "n", columns).map((row) => row.n), ["leaf1", "leaf2", "leaf10"]);
  assert.deepEqual(sorted(rows, "-v", columns).map((row) => row.v), [5, 1, null]);
  assert.deepEqual(sorted(rows, "v", columns).map((row) => row.v), [1, 5, null]);
  assert.equal(sorted(rows, "other", columns), rows);
});

test("a ring keeps the latest rows in order, and never more", () => {
  const ring = new Ring(2, 3, 10);
  for (const time of [0, 5, 10, 20, 30, 40]) ring.push(time, [time, NaN]);
  assert.deepEqual(ring.rows().map((row) => row[0]), [20, 30, 40]);
  assert.deepEqual(ring.column(0), [[0.02, 0.03, 0.04], [20, 30, 40]]);
  assert.deepEqual(ring.column(1)[1], [null, null, null]);
  ring.push(41, [1, 1]);
  assert.equal(ring.last, 40, "too soon");
});

test("earlier rows come in front, once", () => {
  const ring = new Ring(1, 10, 10);
  ring.push(100, [1]);
  ring.prepend([[80, [0]], [95, [9]], [60, [0]]]);
  assert.deepEqual(ring.rows().map((row) => row[0]), [60, 80, 100]);
  ring.prepend([[80, [0]]]);
  assert.equal(ring.length, 3);
});

test("jobs that are gone are forgotten", () => {
  const series = new JobSeries();
  const at = (second: number, names: string[]): Snapshot => ({
    at: new Date(second * 1000).toISOString(), controller: { name: "", leader: true, number: 1 }, switches: [], links: [], hosts: [], alarms: [],
    jobs: names.map((name) => ({ name, id: 1, workers: [], servers: [] })),
  });
  series.add(at(10, ["a", "b"]));
  series.add(at(20, ["b"]));
  assert.deepEqual([series.ring("b").length, series.ring("a").length], [2, 0]);
});

test("a stream is the same however it is cut", () => {
  const text = ': hello\r\n\r\nevent: state\ndata: {"a":\ndata:  1}\n\nid: 7\ndata:x\n\nevent: empty\n\ndata: y\n\n';
  const wanted = [
    { event: "state", id: null, data: '{"a":\n 1}' },
    { event: "message", id: "7", data: "x" },
    { event: "message", id: "7", data: "y" },
  ];
  for (const size of [1, 2, 3, 7, 1000]) {
    const parser = new SseParser();
    const found = [];
    for (let at = 0; at < text.length; at += size) found.push(...parser.feed(text.slice(at, at + size)));
    assert.deepEqual(found, wanted, `in pieces of ${size}`);
  }
});

test("an endless line is refused", () => {
  const parser = new SseParser();
  const piece = "x".repeat(16 * 1024 * 1024);
  assert.throws(() => {
    for (let i = 0; i < 6; i++) parser.feed(piece);
  }, /64 MiB/);
});
