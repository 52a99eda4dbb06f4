// SPDX-License-Identifier: Apache-2.0
/** Series over the last hour, in memory that does not grow. */

import type { Snapshot } from "./contract.ts";
import { total } from "./contract.ts";

export const FIELDS = ["step", "used", "allowed", "repaired", "taken"] as const;
export type Field = (typeof FIELDS)[number];

/** The latest `capacity` rows in the order of their times, at least `apart` ms from one another. */
export class Ring {
  readonly capacity: number;
  readonly apart: number;
  readonly #times: Float64Array;
  readonly #values: Float64Array[];
  #next = 0;
  #length = 0;

  constructor(width: number, capacity = 900, apart = 1900) {
    this.capacity = capacity;
    this.apart = apart;
    this.#times = new Float64Array(capacity);
    this.#values = Array.from({ length: width }, () => new Float64Array(capacity));
  }

  get length(): number {
    return this.#length;
  }

  get last(): number {
    return this.#length ? (this.#times[(this.#next + this.capacity - 1) % this.capacity] ?? 0) : -Infinity;
  }

  /** Times in ms; NaN: not known. What is not later than the last row is left out. */
  push(time: number, row: number[]): void {
    if (time < this.last + this.apart) return;
    this.#times[this.#next] = time;
    this.#values.forEach((column, i) => (column[this.#next] = row[i] ?? NaN));
    this.#next = (this.#next + 1) % this.capacity;
    this.#length = Math.min(this.capacity, this.#length + 1);
  }

  /** Puts earlier rows in front, which came from the history. */
  prepend(rows: [number, number[]][]): void {
    const own = this.rows();
    const first = own[0]?.[0] ?? Infinity;
    const all = [...rows.filter(([time]) => time < first - this.apart), ...own].sort((a, b) => a[0] - b[0]);
    this.#next = 0;
    this.#length = 0;
    for (const [time, row] of all) this.push(time, row);
  }

  rows(): [number, number[]][] {
    const found: [number, number[]][] = [];
    this.#each((at) => found.push([this.#times[at] ?? 0, this.#values.map((column) => column[at] ?? NaN)]));
    return found;
  }

  /** Times in s and one column, as uPlot wants them; null: not known. */
  column(field: number): [number[], (number | null)[]] {
    const times: number[] = [];
    const values: (number | null)[] = [];
    const column = this.#values[field];
    this.#each((at) => {
      const value = column?.[at] ?? NaN;
      times.push((this.#times[at] ?? 0) / 1000);
      values.push(Number.isNaN(value) ? null : value);
    });
    return [times, values];
  }

  #each(visit: (at: number) => void): void {
    const first = (this.#next - this.#length + this.capacity) % this.capacity;
    for (let i = 0; i < this.#length; i++) visit((first + i) % this.capacity);
  }
}

/** By job, FIELDS of each snapshot; jobs that are gone are forgotten. Memory: 43 kB a job. */
export class JobSeries {
  readonly #rings = new Map<string, Ring>();

  ring(job: string): Ring {
    let ring = this.#rings.get(job);
    if (!ring) this.#rings.set(job, (ring = new Ring(FIELDS.length)));
    return ring;
  }

  add(snapshot: Snapshot): void {
    const time = new Date(snapshot.at).getTime();
    for (const job of snapshot.jobs) this.ring(job.name).push(time, rowOf(job));
    if (this.#rings.size > snapshot.jobs.length) {
      const names = new Set(snapshot.jobs.map((job) => job.name));
      for (const name of this.#rings.keys()) if (!names.has(name)) this.#rings.delete(name);
    }
  }

  prepend(job: string, snapshots: Snapshot[]): void {
    const rows: [number, number[]][] = [];
    for (const snapshot of snapshots) {
      const found = snapshot.jobs.find((it) => it.name === job);
      if (found) rows.push([new Date(snapshot.at).getTime(), rowOf(found)]);
    }
    this.ring(job).prepend(rows);
  }
}

function rowOf(job: Snapshot["jobs"][number]): number[] {
  const taken = job.drop_map ? total(job.drop_map.map((cell) => cell[2])) : null;
  return [job.step?.seconds ?? NaN, job.budget?.used ?? NaN, job.budget?.allowed ?? NaN, job.repaired ?? NaN, taken ?? NaN];
}
