// SPDX-License-Identifier: Apache-2.0
import { byName } from "./format.ts";

type Value = string | number | null | undefined;

/** By the column that `sort` names ("-load": descending); what is not known comes last. */
export function sorted<T>(rows: T[], sort: string, columns: Record<string, (row: T) => Value>): T[] {
  const falling = sort.startsWith("-");
  const column = columns[falling ? sort.slice(1) : sort];
  if (!column) return rows;
  const sign = falling ? -1 : 1;
  return rows
    .map((row) => ({ row, value: column(row) }))
    .sort((a, b) => {
      if (a.value == null || b.value == null) return Number(a.value == null) - Number(b.value == null);
      if (typeof a.value === "number" && typeof b.value === "number") return sign * (a.value - b.value);
      return sign * byName(String(a.value), String(b.value));
    })
    .map(({ row }) => row);
}
