// SPDX-License-Identifier: Apache-2.0
/** The stream of snapshots and events: the page's one source of what is now. */

import type { Fabric, Snapshot, TimelineEvent } from "../model/contract.ts";
import { JobSeries } from "../model/series.ts";
import { ApiError, ask, getJson, messageOf } from "../net/api.ts";
import { SseParser } from "../net/sse.ts";
import { session } from "./session.svelte.ts";

const SILENCE = 10_000; // ms without a byte, after which the connection counts as lost
const LONGEST_PAUSE = 15_000;
const FABRIC_PAUSE = 5_000;
const MOST_EVENTS = 1000;

type Connection = "connecting" | "live" | "lost";

class Live {
  snapshot = $state.raw<Snapshot | null>(null);
  fabric = $state.raw<Fabric | null>(null);
  /** The latest ones, the newest first. */
  events = $state.raw<TimelineEvent[]>([]);
  connection = $state<Connection>("connecting");
  problem = $state("");
  /** When the last snapshot came (ms of this browser's clock), and when the next try is. */
  heard = $state(0);
  nextTry = $state(0);
  /** What the latest snapshot was as text: history is asked for in proportion. */
  size = 0;
  readonly series = new JobSeries();

  #lastEvent: string | null = null;
  #abort: AbortController | null = null;
  #wake: (() => void) | null = null;
  #fabricAsked = 0;

  /** Runs until `stop`. */
  async start(): Promise<void> {
    this.stop();
    const abort = (this.#abort = new AbortController());
    this.connection = "connecting";
    for (let failures = 0; !abort.signal.aborted && session.token; ) {
      const before = this.heard;
      try {
        await this.#follow(abort.signal);
        this.problem = "the controller has closed the connection";
      } catch (problem) {
        if (abort.signal.aborted || !session.token) return;
        this.problem = messageOf(problem);
      }
      failures = this.heard > before ? 1 : failures + 1;
      const pause = Math.min(LONGEST_PAUSE, 500 * 2 ** failures) * (0.75 + Math.random() / 2);
      if (abort.signal.aborted) return;
      this.connection = "lost";
      this.nextTry = Date.now() + pause;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
        setTimeout(resolve, pause);
      });
    }
  }

  stop(): void {
    this.#abort?.abort();
    this.#abort = null;
    this.#wake?.();
  }

  /** Does not wait for the next try. */
  retry(): void {
    this.#wake?.();
  }

  async #follow(signal: AbortSignal): Promise<void> {
    const cut = new AbortController();
    const both = AbortSignal.any([signal, cut.signal]);
    let watch = setTimeout(() => cut.abort(), SILENCE);
    try {
      const headers: Record<string, string> = this.#lastEvent === null ? {} : { "Last-Event-ID": this.#lastEvent };
      const response = await ask("stream", { signal: both, headers });
      if (!response.body) throw new ApiError(0, "the stream has no body");
      await this.#loadEvents();
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      const parser = new SseParser();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(watch);
        watch = setTimeout(() => cut.abort(), SILENCE);
        let state = "";
        for (const message of parser.feed(value)) {
          if (message.event === "state") state = message.data; // of several at once the last one counts
          else if (message.event === "event") this.#addEvents([JSON.parse(message.data) as TimelineEvent]);
        }
        if (state) this.#take(state);
      }
    } catch (problem) {
      if (cut.signal.aborted) throw new ApiError(0, "nothing came for 10 s");
      throw problem;
    } finally {
      clearTimeout(watch);
      cut.abort();
    }
  }

  #take(text: string): void {
    const snapshot = JSON.parse(text) as Snapshot;
    this.size = text.length;
    this.heard = Date.now();
    this.connection = "live";
    this.problem = "";
    this.series.add(snapshot);
    this.snapshot = snapshot;
    const fabric = this.fabric;
    if (
      !fabric ||
      fabric.switches.length !== snapshot.switches.length ||
      fabric.links.length !== snapshot.links.length ||
      fabric.hosts.length !== snapshot.hosts.length ||
      fabric.switches.some((it, i) => it.name !== snapshot.switches[i]?.name)
    )
      void this.#loadFabric();
  }

  async #loadFabric(): Promise<void> {
    if (Date.now() < this.#fabricAsked + FABRIC_PAUSE) return;
    this.#fabricAsked = Date.now();
    try {
      this.fabric = await getJson<Fabric>("fabric");
    } catch (problem) {
      this.problem = messageOf(problem); // the next snapshot asks again
    }
  }

  async #loadEvents(): Promise<void> {
    try {
      const { items } = await getJson<{ items: TimelineEvent[] }>("events?limit=200");
      this.#addEvents(items);
    } catch (problem) {
      if (!(problem instanceof ApiError) || problem.status === 401) throw problem; // else: a controller without a timeline
    }
  }

  #addEvents(items: TimelineEvent[]): void {
    const known = new Map(this.events.map((it) => [it.id, it]));
    for (const it of items) known.set(it.id, it);
    this.events = [...known.values()].sort((a, b) => b.id - a.id).slice(0, MOST_EVENTS);
    this.#lastEvent = this.events[0] ? String(this.events[0].id) : null;
  }
}

export const live = new Live();
addEventListener("online", () => live.retry());
