// SPDX-License-Identifier: Apache-2.0
/** The snapshot that is shown: the live one, or that of the time in the address (`at`): paused, or replayed. */

import type { LiveHost, LiveJob, LiveLink, LiveSwitch, Snapshot } from "../model/contract.ts";
import { keyOf } from "../model/contract.ts";
import { getJson, messageOf } from "../net/api.ts";
import { live } from "./live.svelte.ts";
import { route } from "./route.svelte.ts";

export const SPAN = 3600_000; // ms that can be replayed
const AHEAD = 8; // steps that one request of a replay brings

class Shown {
  /** ms; null: live. */
  readonly at = $derived.by(() => {
    const time = Date.parse(route.get("at"));
    return Number.isNaN(time) ? null : time;
  });
  speed = $state(0); // s of history in a second; 0: paused
  problem = $state("");
  loading = $state(false);
  #kept = $state.raw<Snapshot[]>([]); // the oldest first,
  #from = 0; // of this time (ms),
  #until = 0; // until that
  #timer = 0;

  readonly snapshot = $derived.by<Snapshot | null>(() => {
    if (this.at === null) return live.snapshot;
    const at = this.at;
    return this.#kept.findLast((it) => Date.parse(it.at) <= at) ?? this.#kept[0] ?? null;
  });
  readonly stale = $derived(this.at === null && live.connection === "lost");
  readonly switches = $derived(new Map<string, LiveSwitch>(this.snapshot?.switches.map((it) => [it.name, it])));
  readonly links = $derived(new Map<string, LiveLink>(this.snapshot?.links.map((it) => [keyOf(it.ends), it])));
  readonly hosts = $derived(new Map<string, LiveHost>(this.snapshot?.hosts.map((it) => [it.name, it])));
  readonly jobs = $derived(new Map<string, LiveJob>(this.snapshot?.jobs.map((it) => [it.name, it])));

  /** Stops at what is shown. */
  pause(): void {
    this.speed = 0;
    const snapshot = this.snapshot;
    if (this.at !== null || !snapshot) return;
    this.#keep([snapshot], Date.parse(snapshot.at));
    route.set({ at: snapshot.at });
  }

  toLive(): void {
    this.speed = 0;
    this.problem = "";
    route.set({ at: null });
  }

  seek(time: number): void {
    const newest = live.snapshot ? Date.parse(live.snapshot.at) : Date.now();
    const within = Math.min(newest, Math.max(newest - SPAN, time));
    route.set({ at: new Date(within).toISOString() }, { quiet: this.at !== null });
  }

  /** Brings the snapshot of `at`, a moment after the last change: a slider passes many times. */
  load(): void {
    clearTimeout(this.#timer);
    const at = this.at;
    if (at === null || (this.#from <= at && at <= this.#until)) return;
    this.#timer = window.setTimeout(() => void this.#fetch(at), 120);
  }

  tick(): void {
    if (this.at === null || this.speed === 0 || this.loading) return;
    const newest = live.snapshot ? Date.parse(live.snapshot.at) : Date.now();
    const next = this.at + this.speed * 1000;
    if (next >= newest) this.toLive();
    else this.seek(next);
  }

  async #fetch(at: number): Promise<void> {
    this.loading = true;
    try {
      const items = await history(at, at + AHEAD * this.speed * 1000, Math.max(1, this.speed));
      this.problem = items.length ? "" : "the controller has kept nothing of that time";
      this.#keep(items, at);
    } catch (problem) {
      this.problem = messageOf(problem);
      this.#keep([], at);
    } finally {
      this.loading = false;
    }
    if (this.at !== null && this.at !== at) this.load();
  }

  /** The first one is that of `at`; what came after the last one may not be kept yet. */
  #keep(items: Snapshot[], at: number): void {
    this.#kept = items;
    this.#from = at;
    this.#until = Math.max(at, Date.parse(items.at(-1)?.at ?? "") || 0);
  }
}

function iso(time: number): string {
  return new Date(time).toISOString();
}

export const shown = new Shown();

/** Snapshots of the last `minutes`, as many as are `budget` bytes in all. */
export async function recent(minutes: number, budget = 2_000_000): Promise<Snapshot[]> {
  const newest = live.snapshot ? Date.parse(live.snapshot.at) : Date.now();
  const most = Math.min(60, Math.floor(budget / Math.max(1, live.size)));
  if (most < 2) return [];
  const step = Math.max(1, Math.ceil((minutes * 60) / most));
  return history(newest - minutes * 60_000, newest, step);
}

/** Begins with the snapshot of `from`: the latest one until then. */
async function history(from: number, to: number, step: number): Promise<Snapshot[]> {
  const query = new URLSearchParams({ from: iso(from), to: iso(to), step: String(step) });
  return (await getJson<{ items: Snapshot[] }>(`history?${query.toString()}`)).items;
}
