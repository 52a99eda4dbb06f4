// SPDX-License-Identifier: Apache-2.0
/** What another drop policy would have taken, from what the present one has taken.
 *
 * Switches count what was taken by layer and range of magnitudes, and separately by colour, but not what they let pass.
 * So where something was taken it is known how much came; elsewhere it is estimated from the same layer. */

import type { Counted, DropCell, LiveJob } from "./contract.ts";
import { type DropPolicy, RANGES } from "./policy.ts";

export const ASSUMPTIONS = [
  "Ports would have been yellow and red at the same times: what a policy no longer drops makes queues longer, and what it drops in addition makes them shorter.",
  "Each range with the same fate had the same part of its drops at red. The counters give that part for the job as a whole.",
  "Magnitudes are quantiles of a message, so every range of a layer has about as many slices. What was never taken is estimated from the ranges of its layer that were.",
  "Budgets and shares would have bound as they did: a switch never takes more than its share of a message's budget.",
];

export type Basis = "counted" | "estimated" | "unknown";

export interface Cell {
  layer: number;
  range: number;
  before: Counted;
  after: Counted;
  basis: Basis;
}

export interface Outcome {
  cells: Cell[];
  before: Counted;
  after: Counted;
  /** Of `after`, what is estimated; cells about which nothing can be said count as nothing. */
  estimated: Counted;
  unknown: number;
  /** Taken although the present policy protects it: of an earlier policy. */
  earlier: number;
  /** Of what both colours would take, the part that was taken at red; null: no drops were counted. */
  redPart: number | null;
}

type Fate = "protected" | "red" | "both";

export function fateOf(policy: DropPolicy, range: number): Fate {
  const precedence = policy.precedences[range] ?? 0;
  if (precedence === 0) return "protected";
  return precedence >= policy.yellow ? "both" : precedence >= policy.red ? "red" : "protected";
}

const NONE: Counted = { packets: 0, bytes: 0 };

export function whatIf(
  drops: DropCell[],
  decisions: Record<string, Counted> | null | undefined,
  was: DropPolicy,
  would: DropPolicy,
): Outcome {
  const layers = [...new Set(drops.map((cell) => cell[0]))].sort((a, b) => a - b);
  const taken = new Map(drops.map(([layer, magnitude, packets, bytes]) => [
    layer * RANGES + Math.floor(magnitude / 16),
    { packets, bytes },
  ]));
  const redPart = partAtRed(drops, decisions, was);
  const cells: Cell[] = [];
  for (const layer of layers) {
    const offered = offeredTo(layer, taken, was, redPart);
    for (let range = 0; range < RANGES; range++) {
      const before = taken.get(layer * RANGES + range) ?? NONE;
      const [from, to] = [fateOf(was, range), fateOf(would, range)];
      cells.push({ layer, range, before, ...after(before, from, to, offered, redPart) });
    }
  }
  const add = (list: Counted[]): Counted =>
    list.reduce((sum, it) => ({ packets: sum.packets + it.packets, bytes: sum.bytes + it.bytes }), NONE);
  return {
    cells,
    before: add(cells.map((cell) => cell.before)),
    after: add(cells.map((cell) => cell.after)),
    estimated: add(cells.filter((cell) => cell.basis === "estimated").map((cell) => cell.after)),
    unknown: cells.filter((cell) => cell.basis === "unknown").length,
    earlier: cells.reduce((sum, it) => sum + (fateOf(was, it.range) === "protected" ? it.before.packets : 0), 0),
    redPart,
  };
}

export function sumOfDecisions(jobs: LiveJob[]): Record<string, Counted> {
  const sums: Record<string, Counted> = {};
  for (const job of jobs)
    for (const [reason, it] of Object.entries(job.decisions ?? {})) sums[reason] = plus(sums[reason] ?? NONE, it);
  return sums;
}

function partAtRed(
  drops: DropCell[],
  decisions: Record<string, Counted> | null | undefined,
  was: DropPolicy,
): number | null {
  const of = (colour: string): number =>
    (decisions?.[`dropped_${colour}`]?.packets ?? 0) + (decisions?.[`trimmed_${colour}`]?.packets ?? 0);
  const onlyAtRed = drops
    .filter((cell) => fateOf(was, Math.floor(cell[1] / 16)) === "red")
    .reduce((sum, cell) => sum + cell[2], 0);
  const [yellow, red] = [of("yellow"), Math.max(0, of("red") - onlyAtRed)];
  return yellow + red > 0 ? red / (yellow + red) : null;
}

/** What a range of this layer would have lost if droppable at both colours, and at red: the mean of those that were. */
function offeredTo(layer: number, taken: Map<number, Counted>, was: DropPolicy, redPart: number | null) {
  const mean = (fate: Fate): Counted | null => {
    const found: Counted[] = [];
    for (let range = 0; range < RANGES; range++)
      if (fateOf(was, range) === fate) found.push(taken.get(layer * RANGES + range) ?? NONE);
    if (!found.length) return null;
    const part = 1 / found.length;
    return found.reduce((sum, it) => plus(sum, scale(it, part)), NONE);
  };
  const [both, red] = [mean("both"), mean("red")];
  return {
    both: both ?? (red && redPart ? scale(red, 1 / redPart) : null),
    red: red ?? (both && redPart !== null ? scale(both, redPart) : null),
  };
}

function after(
  before: Counted,
  from: Fate,
  to: Fate,
  offered: { both: Counted | null; red: Counted | null },
  redPart: number | null,
): { after: Counted; basis: Basis } {
  if (to === "protected") return { after: NONE, basis: "counted" };
  if (from === to) return { after: before, basis: "counted" };
  if (from === "both" && redPart !== null) return { after: scale(before, redPart), basis: "estimated" };
  if (from === "red" && redPart) return { after: scale(before, 1 / redPart), basis: "estimated" };
  const guess = offered[to];
  return guess ? { after: guess, basis: "estimated" } : { after: NONE, basis: "unknown" };
}

function scale(it: Counted, by: number): Counted {
  return { packets: Math.round(it.packets * by), bytes: Math.round(it.bytes * by) };
}

function plus(a: Counted, b: Counted): Counted {
  return { packets: a.packets + b.packets, bytes: a.bytes + b.bytes };
}
