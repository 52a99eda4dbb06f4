// SPDX-License-Identifier: Apache-2.0
/** Numbers and times for people. What is not known is a dash. */

export const UNKNOWN = "–";

const PREFIXES = ["", "k", "M", "G", "T", "P"];

function scaled(value: number, unit: string): string {
  let power = 0;
  let left = value;
  while (Math.abs(left) >= 999.5 && power < PREFIXES.length - 1) {
    left /= 1000;
    power++;
  }
  const digits = power === 0 || Math.abs(left) >= 99.5 ? 0 : Math.abs(left) >= 9.95 ? 1 : 2;
  return `${left.toFixed(digits)} ${PREFIXES[power]}${unit}`;
}

export function rate(bits: number | null | undefined): string {
  return bits == null ? UNKNOWN : scaled(bits, "bit/s");
}

export function bytes(value: number | null | undefined): string {
  return value == null ? UNKNOWN : scaled(value, "B");
}

export function count(value: number | null | undefined): string {
  return value == null ? UNKNOWN : Math.round(value).toLocaleString("en-GB").replaceAll(",", "\u202f");
}

export function percent(fraction: number | null | undefined, digits = 0): string {
  return fraction == null || !Number.isFinite(fraction) ? UNKNOWN : `${(fraction * 100).toFixed(digits)} %`;
}

export function seconds(value: number | null | undefined): string {
  if (value == null) return UNKNOWN;
  if (value === 0) return "0 s";
  if (value < 1) return `${(value * 1000).toFixed(value < 0.01 ? 1 : 0)} ms`;
  return value < 100 ? `${value.toFixed(2)} s` : `${value.toFixed(0)} s`;
}

/** How long ago, in the largest unit that fits. */
export function ago(from: string | number | null | undefined, now: number): string {
  if (from == null) return UNKNOWN;
  const passed = Math.max(0, Math.round((now - new Date(from).getTime()) / 1000));
  if (!Number.isFinite(passed)) return UNKNOWN;
  if (passed < 60) return `${passed} s`;
  if (passed < 3600) return `${Math.floor(passed / 60)} min`;
  return passed < 86400 ? `${Math.floor(passed / 3600)} h` : `${Math.floor(passed / 86400)} d`;
}

/** The browser's time of day. */
export function clock(at: string | number | null | undefined): string {
  if (at == null) return UNKNOWN;
  const time = new Date(at);
  return Number.isNaN(time.getTime()) ? UNKNOWN : time.toLocaleTimeString("en-GB");
}

/** Date and time of day, for titles and lists that span days. */
export function dateTime(at: string | number): string {
  const time = new Date(at);
  return Number.isNaN(time.getTime()) ? UNKNOWN : `${time.toLocaleDateString("en-CA")} ${time.toLocaleTimeString("en-GB")}`;
}

/** "dropped_yellow" -> "dropped yellow". */
export function words(name: string): string {
  return name.replaceAll("_", " ");
}

export function plural(n: number, one: string, more = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : more}`;
}

/** leaf2 before leaf10. */
export const byName = new Intl.Collator("en", { numeric: true }).compare;
