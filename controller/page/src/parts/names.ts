// SPDX-License-Identifier: Apache-2.0
/** Words and marks that several parts of the page use. */

import type { Ends, LiveLink, Severity, SwitchState } from "../model/contract.ts";
import { loadsOf, total } from "../model/contract.ts";
import { percent, rate } from "../model/format.ts";
import type { Edge } from "../model/graph.ts";

/** Each state has a mark, so that none depends on its colour. */
export const STATES: Record<SwitchState, { mark: string; label: string; tone: string }> = {
  ready: { mark: "●", label: "ready", tone: "good" },
  converging: { mark: "◐", label: "converging", tone: "info" },
  away: { mark: "✕", label: "away", tone: "critical" },
  drained: { mark: "‖", label: "drained", tone: "warning" },
  standby: { mark: "○", label: "standby", tone: "" },
};

export const SEVERITIES: Record<Severity, { mark: string; label: string }> = {
  critical: { mark: "✕", label: "critical" },
  warning: { mark: "▲", label: "warning" },
  info: { mark: "ℹ", label: "info" },
};

export const CLASSES = [
  "0 best effort",
  "1 gradients",
  "2 gradients",
  "3 gradients",
  "4 gradients",
  "5 gradients",
  "6 gradients, served first",
  "7 control",
];

export function linkTitle(ends: Ends): string {
  return `${ends[0]} – ${ends[1]}`;
}

export function useText(link: LiveLink | undefined, edge: Edge): string {
  if (link?.up === false) return "down";
  const [a, b] = loadsOf(link, edge.ends[0]);
  const part = (load: number | null, full: number): string => (load === null ? rate(null) : `${rate(load)} (${percent(load / full)})`);
  return `→ ${part(total(a), edge.rates[0])}, ← ${part(total(b), edge.rates[1])}`;
}
