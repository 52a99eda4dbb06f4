// SPDX-License-Identifier: Apache-2.0
/** Job files at the controller. */

import type { JobFile } from "../model/contract.ts";
import { ask } from "./api.ts";

export interface KeptJob {
  text: string;
  /** Why the text is not told, if it is not. */
  missing: string;
  /** An entity tag, as If-Match takes it. */
  version: string;
}

export async function readJob(name: string): Promise<KeptJob> {
  const response = await ask(`jobs/${encodeURIComponent(name)}`);
  const it = (await response.json()) as JobFile;
  const version = response.headers.get("ETag") ?? (it.version === undefined ? "" : `"${it.version}"`);
  const missing = `${it.name} comes from ${it.file}, a file of the controller that only its host can read: change it there, or apply a whole file for ${it.name} here.`;
  return { text: it.text ?? "", missing: it.text == null ? missing : "", version };
}

/** Adds or replaces it, if it is still as `version` says. Returns the new version. */
export async function putJob(name: string, text: string, version: string): Promise<string> {
  const condition: Record<string, string> = version ? { "If-Match": version } : { "If-None-Match": "*" };
  const headers = { "Content-Type": "application/toml", ...condition };
  const response = await ask(`jobs/${encodeURIComponent(name)}`, { method: "PUT", body: text, headers, scope: "jobs" });
  return response.headers.get("ETag") ?? (await readJob(name)).version;
}

export async function deleteJob(name: string, version: string): Promise<void> {
  const headers: Record<string, string> = version ? { "If-Match": version } : {};
  await ask(`jobs/${encodeURIComponent(name)}`, { method: "DELETE", headers, scope: "jobs" });
}
