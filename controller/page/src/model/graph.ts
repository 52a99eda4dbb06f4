// SPDX-License-Identifier: Apache-2.0
/** Where the switches of a fabric stand in the picture, derived from its links alone. */

import { type Fabric, keyOf, switchOf } from "./contract.ts";
import { byName } from "./format.ts";

export type Layer = "leaf" | "spine" | "core";

export interface Node {
  name: string;
  layer: Layer;
  x: number;
  y: number;
  hosts: string[];
  /** Its layer's place between neighbours is too small for labels side by side: they alternate in this many rows. */
  row: number;
}

export interface Edge {
  key: string;
  ends: [string, string];
  rates: [number, number];
  a: Node;
  b: Node;
  /** Which of several links between the same two switches, around 0. */
  beside: number;
}

export interface Graph {
  nodes: Map<string, Node>;
  edges: Map<string, Edge>;
  width: number;
  height: number;
  /** Where the layers' names end. */
  left: number;
  /** Whether there is room for each host by itself; else those of a leaf are a group. */
  apart: boolean;
  groups: { top: number; cell: number; columns: number };
  /** From one node of the fullest layer to the next. */
  spacing: number;
  layers: { layer: Layer; y: number; count: number }[];
  hosts: Map<string, Fabric["hosts"][number]>;
}

/** Pixels that a label with its state needs, that the rows of a layer are apart, and that a host by itself needs. */
const LABEL = 78;
const ROW = 30;
const MOST_ROWS = 4;
export const HOST = 58;
export const HOST_DEPTH = 84;
/** Left of the switches are the names of the layers. */
const GUTTER = 96;
const RIGHT = 24;

/** A switch with hosts is a leaf; the others are as far from these as their shortest way: 1 is a spine, more a core. */
export function layersOf(fabric: Fabric): Map<string, Layer> {
  const neighbours = new Map<string, Set<string>>(fabric.switches.map((it) => [it.name, new Set<string>()]));
  for (const { ends } of fabric.links) {
    const [a, b] = [switchOf(ends[0]), switchOf(ends[1])];
    neighbours.get(a)?.add(b);
    neighbours.get(b)?.add(a);
  }
  const distance = new Map<string, number>();
  for (const host of fabric.hosts) if (neighbours.has(host.switch)) distance.set(host.switch, 0);
  let front = [...distance.keys()];
  for (let hops = 1; front.length; hops++) {
    const next: string[] = [];
    for (const name of front)
      for (const other of neighbours.get(name) ?? [])
        if (!distance.has(other)) {
          distance.set(other, hops);
          next.push(other);
        }
    front = next;
  }
  const layer = (name: string): Layer => {
    const hops = distance.get(name);
    return hops === 0 ? "leaf" : hops === 1 || hops === undefined ? "spine" : "core";
  };
  return new Map(fabric.switches.map((it) => [it.name, layer(it.name)]));
}

/** Leaves in the order of their names; other layers above them, each switch near the mean of those below it. All in
 * pixels of a picture that is as wide. */
export function layOut(fabric: Fabric, width: number): Graph {
  const layers = layersOf(fabric);
  const hostsOf = new Map<string, string[]>();
  for (const host of fabric.hosts) {
    const list = hostsOf.get(host.switch) ?? [];
    list.push(host.name);
    hostsOf.set(host.switch, list);
  }
  const present = (["core", "spine", "leaf"] as const).filter((it) => [...layers.values()].includes(it));
  const fullest = Math.max(1, ...present.map((it) => [...layers.values()].filter((other) => other === it).length));
  const left = width > 700 ? GUTTER : 0;
  const right = width > 700 ? RIGHT : 0;
  const spacing = (width - left - right) / fullest;
  const rows = Math.min(MOST_ROWS, Math.max(1, Math.ceil(LABEL / spacing)));
  const gap = present.length > 2 ? 175 : 210;
  const nodes = new Map<string, Node>();
  const place = (names: string[], layer: Layer, y: number): void => {
    const step = (width - left - right) / names.length;
    const stagger = Math.min(MOST_ROWS, Math.max(1, Math.ceil(LABEL / step)));
    names.forEach((name, i) => {
      const hosts = (hostsOf.get(name) ?? []).sort(byName);
      nodes.set(name, { name, layer, x: left + step * (i + 0.5), y: y + (i % stagger) * ROW, hosts, row: i % stagger });
    });
  };
  const known: Graph["layers"] = [];
  for (const layer of [...present].reverse()) {
    const y = 50 + present.indexOf(layer) * (gap + (rows - 1) * ROW);
    const names = fabric.switches.map((it) => it.name).filter((name) => layers.get(name) === layer);
    names.sort(byName);
    if (layer !== "leaf") {
      const mean = new Map(names.map((name) => [name, meanBelow(name, fabric, nodes)]));
      names.sort((a, b) => (mean.get(a) ?? 0) - (mean.get(b) ?? 0) || byName(a, b));
    }
    place(names, layer, y);
    known.unshift({ layer, y, count: names.length });
  }
  const most = Math.max(0, ...[...nodes.values()].map((it) => it.hosts.length));
  const apart = spacing >= most * HOST;
  const columns = Math.max(4, Math.min(12, Math.floor((spacing - 4) / 8)));
  const cell = Math.max(2.5, Math.min(9, (spacing - 4) / columns));
  const below = apart ? HOST_DEPTH + 24 : 24 + Math.ceil(most / columns) * cell;
  const bottom = Math.max(0, ...[...nodes.values()].map((it) => it.y));
  return {
    nodes,
    edges: edgesOf(fabric, nodes),
    width,
    apart,
    height: bottom + below + 16,
    left,
    groups: { top: bottom + 24, cell, columns },
    spacing,
    layers: known,
    hosts: new Map(fabric.hosts.map((it) => [it.name, it])),
  };
}

function meanBelow(name: string, fabric: Fabric, placed: Map<string, Node>): number {
  let [sum, n] = [0, 0];
  for (const { ends } of fabric.links) {
    const [a, b] = [switchOf(ends[0]), switchOf(ends[1])];
    const other = placed.get(a === name ? b : b === name ? a : "");
    if (other) {
      sum += other.x;
      n++;
    }
  }
  return n ? Math.round(sum / n) : 0;
}

function edgesOf(fabric: Fabric, nodes: Map<string, Node>): Map<string, Edge> {
  const edges = new Map<string, Edge>();
  const between = new Map<string, Edge[]>();
  for (const { ends, rate } of fabric.links) {
    const [a, b] = [nodes.get(switchOf(ends[0])), nodes.get(switchOf(ends[1]))];
    if (!a || !b) continue;
    const edge: Edge = { key: keyOf(ends), ends, rates: rate, a, b, beside: 0 };
    edges.set(edge.key, edge);
    const pair = keyOf([a.name, b.name]);
    const list = between.get(pair) ?? [];
    list.push(edge);
    between.set(pair, list);
  }
  for (const list of between.values()) list.forEach((edge, i) => (edge.beside = i - (list.length - 1) / 2));
  return edges;
}
