// SPDX-License-Identifier: Apache-2.0
/** What is seen is in the address: #/VIEW/NAME?filters. So it can be sent to somebody, and Back works. */

import { session } from "./session.svelte.ts";

export const VIEWS = {
  overview: "Overview",
  jobs: "Jobs",
  timeline: "Timeline",
  alarms: "Alarms",
  whatif: "What if",
  plan: "Plan",
} as const;

export type View = keyof typeof VIEWS;
export type Query = Record<string, string | null | undefined>;

export interface Address {
  view: View;
  name: string;
  query: URLSearchParams;
}

export function parseAddress(hash: string): Address {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const [view = "", name = ""] = path.split("/");
  let decoded = "";
  try {
    decoded = decodeURIComponent(name);
  } catch {
    // a broken address names nothing
  }
  return { view: view in VIEWS ? (view as View) : "overview", name: decoded, query: new URLSearchParams(query) };
}

export function formatAddress(view: View, name = "", query: Query = {}): string {
  const pairs = Object.entries(query).filter((it): it is [string, string] => it[1] != null && it[1] !== "");
  const text = new URLSearchParams(pairs).toString();
  return `#/${view}${name ? `/${encodeURIComponent(name)}` : ""}${text ? `?${text}` : ""}`;
}

class Route {
  #hash = $state("");
  readonly address = $derived(parseAddress(this.#hash));

  constructor() {
    const read = (): void => {
      session.takeFromAddress();
      this.#hash = location.hash;
    };
    read();
    addEventListener("hashchange", read);
    addEventListener("popstate", read);
  }

  get view(): View {
    return this.address.view;
  }

  get name(): string {
    return this.address.name;
  }

  get(key: string): string {
    return this.address.query.get(key) ?? "";
  }

  /** The address of another view, at the same time. */
  to(view: View, name = "", query: Query = {}): string {
    return formatAddress(view, name, { ...query, at: this.get("at") });
  }

  go(address: string): void {
    if (address === location.hash) return;
    history.pushState(null, "", address);
    this.#hash = location.hash;
  }

  /** Changes a part of what is seen. `quiet`: Back does not undo it, e.g. each letter of a filter. */
  set(changes: Query, { quiet = false } = {}): void {
    const query: Query = { ...Object.fromEntries(this.address.query), ...changes };
    const address = formatAddress(this.view, this.name, query);
    if (address === location.hash) return;
    history[quiet ? "replaceState" : "pushState"](null, "", address);
    this.#hash = location.hash;
  }
}

export const route = new Route();
