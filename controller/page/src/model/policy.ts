// SPDX-License-Identifier: Apache-2.0
/** `[policy]` of a job file, as far as it says what is dropped: read from the file, and written back into it. */

import { parse, stringify } from "smol-toml";

/** The switches count by 16 ranges of 16 magnitudes each. */
export const RANGES = 16;

export interface DropPolicy {
  /** Drop precedence (0: protected, to 7) by range of magnitudes. */
  precedences: number[];
  /** The lowest precedence that is dropped at the first threshold, and at the second. */
  yellow: number;
  red: number;
  /** Why `precedences` say less than the file does, or nothing. */
  simplified: string;
}

type Table = Record<string, unknown>;

/** Raises Error where the text is no TOML. */
export function readPolicy(text: string): DropPolicy {
  const policy = tableOf(parse(text), "policy");
  const rows = Array.isArray(policy.drop_precedences) ? (policy.drop_precedences as Table[]) : [];
  const precedences = new Array<number>(RANGES).fill(0);
  let simplified = "";
  for (const row of rows) {
    const [first, last] = pair(row.magnitudes, [0, 255]);
    const [lowest, highest] = pair(row.layers, [0, 65535]);
    if (lowest > 0 || highest < 65535) simplified = "the file has other drop precedences for some layers";
    if (first % 16 || (last + 1) % 16) simplified = "the file has ranges that begin within 16 magnitudes";
    for (let range = Math.floor(first / 16); range <= Math.floor(last / 16) && range < RANGES; range++)
      precedences[range] = Number(row.drop_precedence);
  }
  return { precedences, yellow: Number(policy.yellow ?? 2), red: Number(policy.red ?? 1), simplified };
}

/** The file with another policy; comments are lost. Raises Error where the text is no TOML. */
export function writePolicy(text: string, policy: DropPolicy): string {
  const file = parse(text, { integersAsBigInt: true });
  const rows: Table[] = [];
  for (let from = 0; from < RANGES; ) {
    const precedence = policy.precedences[from] ?? 0;
    let to = from;
    while (to + 1 < RANGES && policy.precedences[to + 1] === precedence) to++;
    if (precedence)
      rows.push({
        magnitudes: [BigInt(from * 16), BigInt(to * 16 + 15)],
        drop_precedence: BigInt(precedence),
      });
    from = to + 1;
  }
  file.policy = {
    ...tableOf(file, "policy"),
    drop_precedences: rows,
    yellow: BigInt(policy.yellow),
    red: BigInt(policy.red),
  } as never;
  return stringify(file, { numbersAsFloat: true });
}

/** The name of the job that a file is of, or nothing. */
export function nameIn(text: string): string {
  try {
    const { name } = tableOf(parse(text), "job");
    return typeof name === "string" ? name : "";
  } catch {
    return "";
  }
}

function tableOf(file: object, name: string): Table {
  const found = (file as Table)[name];
  return typeof found === "object" && found !== null ? (found as Table) : {};
}

function pair(value: unknown, otherwise: [number, number]): [number, number] {
  return Array.isArray(value) && value.length === 2 ? [Number(value[0]), Number(value[1])] : otherwise;
}
