// SPDX-License-Identifier: Apache-2.0
/** What the controller's HTTP API answers. What it does not know is null or absent, and shown as that. */

/** bit/s by queue class 0..7; a list of one is a total; null is not known. */
export type Load = number[] | null | undefined;
export type Ends = [string, string];

export interface Fabric {
  switches: { name: string; target: string; aggregation: boolean; address: string }[];
  hosts: { name: string; switch: string; port: number; rate: number; addresses: string[] }[];
  links: { ends: Ends; rate: [number, number] }[];
}

export type SwitchState = "ready" | "converging" | "away" | "drained" | "standby";

export interface LiveSwitch {
  name: string;
  state: SwitchState;
  problem?: string;
  entries?: number | null;
  mended?: number | null;
}

export interface LiveLink {
  ends: Ends;
  up: boolean | null;
  deaf?: string[];
  since?: string | null;
  load?: [Load, Load] | null;
}

export interface LiveHost {
  name: string;
  load?: Load;
}

export interface Tree {
  root: string;
  buckets: number;
  links: Ends[];
}

/** Layer, first of 16 magnitudes, packets, bytes. */
export type DropCell = [number, number, number, number];

export interface Counted {
  packets: number;
  bytes: number;
}

export interface Sums {
  switches: string[];
  slots: [number, number] | null;
  roots: Record<string, number>;
  reason: string;
}

/** How a job is tuned by what is seen of it: `text` says it; `undoable` changes can be taken back. */
export interface Tuning {
  text: string;
  state: "at rest" | "tried" | "held";
  undoable: number;
  reason: string;
}

export interface LiveJob {
  name: string;
  id: number;
  workers: string[];
  servers: string[];
  sums?: Sums | null;
  trees?: Tree[] | null;
  path_links?: Ends[] | null;
  step?: { number: number; seconds: number } | null;
  budget?: { used: number; allowed: number } | null;
  decisions?: Record<string, Counted> | null;
  drop_map?: DropCell[] | null;
  repaired?: number | null;
  stragglers?: { host: string; evidence: string }[] | null;
  waits?: { who: string; for: string; seconds: number }[] | null;
  tuning?: Tuning | null;
}

export type Severity = "critical" | "warning" | "info";

export interface Alarm {
  id: string;
  since?: string | null;
  severity: Severity;
  subject: string;
  text: string;
  remedy?: string;
}

export interface Snapshot {
  at: string;
  controller: { name: string; leader: boolean; number: number | null };
  switches: LiveSwitch[];
  links: LiveLink[];
  hosts: LiveHost[];
  jobs: LiveJob[];
  /** Of all jobs together: switches do not tell jobs apart there. */
  drop_map?: DropCell[] | null;
  alarms: Alarm[];
}

export interface TimelineEvent {
  id: number;
  at: string;
  kind: string;
  subject: string;
  text: string;
  data?: Record<string, unknown> | null;
}

export interface JobFile {
  name: string;
  id: number;
  file: string;
  text?: string | null;
  version?: string | number;
}

export interface PlanChange {
  change: "insert" | "modify" | "delete";
  table: string;
  key: string;
  before: string;
  after: string;
}

export interface PlanAnswer {
  live: boolean;
  switches: { name: string; changes: PlanChange[]; problem: string }[];
  not_summed?: Record<string, string>;
}

/** The same for both directions. */
export function keyOf(ends: Ends): string {
  return ends[0] < ends[1] ? `${ends[0]}-${ends[1]}` : `${ends[1]}-${ends[0]}`;
}

/** "leaf1:3" -> "leaf1". */
export function switchOf(end: string): string {
  const colon = end.lastIndexOf(":");
  return colon < 0 ? end : end.slice(0, colon);
}

/** What each end of a link sends, that of this end first. One that is down carries nothing, whatever was counted last. */
export function loadsOf(link: LiveLink | undefined, first: string): [Load, Load] {
  if (link?.up === false) return [[0], [0]];
  if (!link?.load) return [null, null];
  return link.ends[0] === first ? link.load : [link.load[1], link.load[0]];
}

/** bit/s; null: not known. */
export function total(load: Load): number | null {
  if (!load) return null;
  let sum = 0;
  for (const it of load) sum += it;
  return sum;
}
