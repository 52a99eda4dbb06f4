// SPDX-License-Identifier: Apache-2.0
/** The links and the hosts of a fabric on a canvas: as wide as they are loaded, a strip for each queue class. */

import { keyOf, type LiveHost, type LiveJob, type LiveLink, type LiveSwitch, type Load, loadsOf, total } from "../model/contract.ts";
import { type Edge, type Graph, HOST_DEPTH, type Node } from "../model/graph.ts";

export interface Transform {
  zoom: number;
  /** What is in the middle, in pixels of the graph. */
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface Scene {
  graph: Graph;
  links: Map<string, LiveLink>;
  switches: Map<string, LiveSwitch>;
  hosts: Map<string, LiveHost>;
  job: LiveJob | null;
  /** Of the job: by link, how many buckets its trees lead over it. */
  buckets: Map<string, number>;
  path: Set<string>;
  members: Set<string>;
  selectedLink: string;
  selectedHost: string;
  matches: ((name: string) => boolean) | null;
}

export type Colours = Record<
  "surface" | "ink" | "muted" | "line" | "accent" | "soft" | "bad" | "track" | "accentInk",
  string
> & { classes: string[]; heat: string[] };

export function place(at: Transform, x: number, y: number): [number, number] {
  return [(x - at.x) * at.zoom + at.width / 2, (y - at.y) * at.zoom + at.height / 2];
}

/** Where an edge begins and ends, beside its siblings. */
export function segment(at: Transform, edge: Edge): [number, number, number, number] {
  const [ax, ay] = place(at, edge.a.x, edge.a.y);
  const [bx, by] = place(at, edge.b.x, edge.b.y);
  const length = Math.hypot(bx - ax, by - ay) || 1;
  const shift = edge.beside * 16;
  const [nx, ny] = [(-(by - ay) / length) * shift, ((bx - ax) / length) * shift];
  return [ax + nx, ay + ny, bx + nx, by + ny];
}

export function use(load: Load, rate: number): number {
  const bits = total(load);
  return bits === null || !rate ? 0 : Math.min(1, bits / rate);
}

/** The full width of a direction: as much as the density of the picture allows. */
function fullWidth(graph: Graph, zoom: number): number {
  return Math.max(2, Math.min(15, (graph.spacing * zoom) / 20 + 1));
}

export function draw(context: CanvasRenderingContext2D, at: Transform, scene: Scene, colours: Colours): void {
  const { graph, job } = scene;
  context.clearRect(0, 0, at.width, at.height);
  context.lineCap = "butt";
  drawLayers(context, at, graph, colours);
  const full = fullWidth(graph, at.zoom);
  const later: Edge[] = [];
  for (const edge of graph.edges.values()) {
    const involved = scene.path.has(edge.key) || scene.buckets.has(edge.key);
    if (involved || edge.key === scene.selectedLink) {
      later.push(edge);
      continue;
    }
    const other = scene.matches && !scene.matches(edge.a.name) && !scene.matches(edge.b.name);
    context.globalAlpha = isDown(scene, edge) ? 1 : job ? 0.22 : other ? 0.2 : 1;
    drawEdge(context, at, scene, colours, edge, full);
  }
  context.globalAlpha = 1;
  for (const edge of later) drawEdge(context, at, scene, colours, edge, full);
  for (const node of graph.nodes.values()) drawHosts(context, at, scene, colours, node);
  for (const edge of later) drawBuckets(context, at, scene, colours, edge);
  for (const edge of graph.edges.values()) drawDown(context, at, scene, colours, edge);
}

function drawLayers(context: CanvasRenderingContext2D, at: Transform, graph: Graph, colours: Colours): void {
  context.font = "600 11px system-ui, sans-serif";
  context.textBaseline = "middle";
  context.textAlign = "left";
  context.fillStyle = colours.muted;
  for (const { layer, y, count } of graph.layers) {
    const [, middle] = place(at, 0, y);
    if (graph.left) context.fillText(`${layer.toUpperCase()} · ${count}`, 4, middle);
    else context.fillText(layer.toUpperCase(), 4, middle - 24);
  }
}

function line(context: CanvasRenderingContext2D, points: number[], shift = 0): void {
  const [ax = 0, ay = 0, bx = 0, by = 0] = points;
  const length = Math.hypot(bx - ax, by - ay) || 1;
  const [nx, ny] = [(-(by - ay) / length) * shift, ((bx - ax) / length) * shift];
  context.beginPath();
  context.moveTo(ax + nx, ay + ny);
  context.lineTo(bx + nx, by + ny);
  context.stroke();
}

function isDown(scene: Scene, edge: Edge): boolean {
  return scene.links.get(edge.key)?.up === false;
}

function drawEdge(
  context: CanvasRenderingContext2D,
  at: Transform,
  scene: Scene,
  colours: Colours,
  edge: Edge,
  full: number,
): void {
  const points = segment(at, edge);
  const loads = loadsOf(scene.links.get(edge.key), edge.ends[0]);
  const crowded = full < 5; // then a frame around each path is all that is seen
  const tree = scene.buckets.has(edge.key);
  const halo = tree ? colours.accent : scene.path.has(edge.key) && !crowded ? colours.soft : "";
  const widest = Math.max(use(loads[0], edge.rates[0]), use(loads[1], edge.rates[1])) * full;
  if (halo || edge.key === scene.selectedLink) {
    context.strokeStyle = edge.key === scene.selectedLink ? colours.ink : halo;
    context.lineWidth = 2 * widest + (crowded ? 3 : 6);
    line(context, points);
    context.strokeStyle = colours.surface;
    context.lineWidth = 2 * widest + (crowded ? 1 : 3);
    line(context, points);
  }
  if (isDown(scene, edge)) {
    context.setLineDash([7, 5]);
    context.strokeStyle = colours.bad;
    context.lineWidth = 2.5;
    line(context, points);
    context.setLineDash([]);
    return;
  }
  context.strokeStyle = colours.track;
  context.lineWidth = 1.5;
  line(context, points);
  strips(context, points, loads[0], edge.rates[0], full, 1, colours);
  strips(context, points, loads[1], edge.rates[1], full, -1, colours);
}

/** The classes of one direction beside each other, the one that is served first in the middle. */
function strips(
  context: CanvasRenderingContext2D,
  points: number[],
  load: Load,
  rate: number,
  full: number,
  side: 1 | -1,
  colours: Colours,
  from = 0.5,
): void {
  if (!load || !rate) return;
  for (let number = load.length - 1; number >= 0; number--) {
    const width = ((load[number] ?? 0) / rate) * full;
    if (width < 0.15) continue;
    context.strokeStyle = (load.length === 1 ? colours.classes[0] : colours.classes[number]) ?? colours.track;
    context.lineWidth = width + 0.2;
    line(context, points, side * (from + width / 2));
    from += width;
  }
}

function drawDown(context: CanvasRenderingContext2D, at: Transform, scene: Scene, colours: Colours, edge: Edge): void {
  if (!isDown(scene, edge)) return;
  const [ax, ay, bx, by] = segment(at, edge);
  const [x, y] = [(ax + bx) / 2, (ay + by) / 2];
  context.fillStyle = colours.bad;
  context.beginPath();
  context.arc(x, y, 8, 0, 7);
  context.fill();
  context.strokeStyle = colours.surface;
  context.lineWidth = 2;
  line(context, [x - 3, y - 3, x + 3, y + 3]);
  line(context, [x + 3, y - 3, x - 3, y + 3]);
}

function drawBuckets(context: CanvasRenderingContext2D, at: Transform, scene: Scene, colours: Colours, edge: Edge): void {
  const count = scene.buckets.get(edge.key);
  if (!count || scene.graph.spacing * at.zoom < 90) return;
  const [ax, ay, bx, by] = segment(at, edge);
  chip(context, ax + (bx - ax) * 0.32, ay + (by - ay) * 0.32, `${count}/16`, colours.accent, colours.accentInk);
}

function chip(context: CanvasRenderingContext2D, x: number, y: number, text: string, ground: string, ink: string): void {
  context.font = "600 11px system-ui, sans-serif";
  context.textAlign = "center";
  context.textBaseline = "middle";
  const width = context.measureText(text).width + 12;
  context.fillStyle = ground;
  context.beginPath();
  context.roundRect(x - width / 2, y - 9, width, 18, 9);
  context.fill();
  context.fillStyle = ink;
  context.fillText(text, x, y + 0.5);
}

/** Where the hosts of a leaf stand: name and middle. */
export function hostPlaces(at: Transform, graph: Graph, node: Node): { name: string; x: number; y: number; size: number }[] {
  const [x, y] = place(at, node.x, node.y);
  if (graph.apart) {
    const step = Math.min(130, (graph.width / Math.max(1, graph.layers.at(-1)?.count ?? 1) / node.hosts.length) * at.zoom);
    return node.hosts.map((name, i) => ({
      name,
      x: x + (i - (node.hosts.length - 1) / 2) * step,
      y: y + HOST_DEPTH * at.zoom,
      size: 10,
    }));
  }
  const { top, columns } = graph.groups;
  const cell = graph.groups.cell * at.zoom;
  const wide = Math.min(columns, node.hosts.length);
  const [, begin] = place(at, node.x, top);
  return node.hosts.map((name, i) => ({
    name,
    x: x + ((i % columns) - (wide - 1) / 2) * cell,
    y: begin + (Math.floor(i / columns) + 0.5) * cell,
    size: cell * 0.82,
  }));
}

function drawHosts(context: CanvasRenderingContext2D, at: Transform, scene: Scene, colours: Colours, node: Node): void {
  if (!node.hosts.length) return;
  const [x, y] = place(at, node.x, node.y);
  if (y < -60 - 400 * at.zoom || y > at.height + 60 || x < -400 || x > at.width + 400) return;
  for (const host of hostPlaces(at, scene.graph, node)) {
    const rate = scene.graph.hosts.get(host.name)?.rate ?? 0;
    const load = scene.hosts.get(host.name)?.load;
    const faded = scene.job ? !scene.members.has(host.name) : scene.matches !== null && !scene.matches(host.name) && !scene.matches(node.name);
    context.globalAlpha = faded ? 0.25 : 1;
    if (scene.graph.apart) {
      const points = [x, y + 13, host.x, host.y - 11];
      context.strokeStyle = scene.members.has(host.name) ? colours.accent : colours.track;
      context.lineWidth = scene.members.has(host.name) ? 3 : 1.5;
      line(context, points);
      const full = fullWidth(scene.graph, at.zoom);
      strips(context, points, load, rate, full, 1, colours, (-use(load, rate) * full) / 2);
      continue;
    }
    const level = Math.min(colours.heat.length - 1, Math.floor(use(load, rate) * colours.heat.length));
    context.fillStyle = colours.heat[level] ?? colours.track;
    const left = host.x - host.size / 2;
    context.fillRect(left, host.y - host.size / 2, host.size, host.size);
    if (scene.members.has(host.name) || host.name === scene.selectedHost) {
      context.strokeStyle = host.name === scene.selectedHost ? colours.ink : colours.accent;
      context.lineWidth = 2;
      context.strokeRect(left, host.y - host.size / 2, host.size, host.size);
    }
  }
  context.globalAlpha = 1;
}

/** The link or host at a point, within a few pixels. */
export function hit(at: Transform, graph: Graph, x: number, y: number): { link?: string; host?: string } {
  if (!graph.apart)
    for (const node of graph.nodes.values())
      for (const host of hostPlaces(at, graph, node))
        if (Math.abs(host.x - x) <= host.size / 2 + 1 && Math.abs(host.y - y) <= host.size / 2 + 1) return { host: host.name };
  let best = "";
  let nearest = 9;
  for (const edge of graph.edges.values()) {
    const [ax, ay, bx, by] = segment(at, edge);
    const [dx, dy] = [bx - ax, by - ay];
    const along = Math.max(0, Math.min(1, ((x - ax) * dx + (y - ay) * dy) / (dx * dx + dy * dy || 1)));
    const distance = Math.hypot(x - ax - along * dx, y - ay - along * dy);
    if (distance < nearest) [best, nearest] = [edge.key, distance];
  }
  return best ? { link: best } : {};
}

export function bucketsOf(job: LiveJob | null): Map<string, number> {
  const found = new Map<string, number>();
  for (const tree of job?.trees ?? [])
    for (const ends of tree.links) found.set(keyOf(ends), (found.get(keyOf(ends)) ?? 0) + tree.buckets);
  return found;
}
