// SPDX-License-Identifier: Apache-2.0
/** Requests to the controller, relative to where the page came from. */

import { session } from "../state/session.svelte.ts";

export class ApiError extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

export type Scope = "jobs" | "admin";

export interface Request {
  method?: string;
  body?: string;
  headers?: Record<string, string>;
  /** What the token needs for it beyond reading: a 403 disables what needs it, too, and says why. */
  scope?: Scope;
  signal?: AbortSignal;
}

/** The response; raises ApiError with what the controller says is wrong. A 401 ends the session. */
export async function ask(path: string, request: Request = {}): Promise<Response> {
  const headers: Record<string, string> = { ...request.headers, Authorization: `Bearer ${session.token ?? ""}` };
  let response: Response;
  try {
    response = await fetch(`v1/${path}`, {
      method: request.method ?? "GET",
      headers,
      cache: "no-store",
      credentials: "omit",
      ...(request.body === undefined ? {} : { body: request.body }),
      ...(request.signal ? { signal: request.signal } : {}),
    });
  } catch (problem) {
    if (problem instanceof DOMException && problem.name === "AbortError") throw problem;
    throw new ApiError(0, "the controller can't be reached");
  }
  if (response.ok) return response;
  const message = await explanation(response);
  if (response.status === 401) session.end(message);
  if (response.status === 403 && request.scope) session.refuse(request.scope, message);
  throw new ApiError(response.status, message);
}

export async function getJson<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await (await ask(path, signal ? { signal } : {})).json()) as T;
}

/** All items of a list that comes in pages, at most `most`. */
export async function getAll<T>(path: string, most = 5000): Promise<T[]> {
  const items: T[] = [];
  let cursor: string | null = null;
  do {
    const more: string = cursor === null ? "" : `${path.includes("?") ? "&" : "?"}cursor=${encodeURIComponent(cursor)}`;
    const page: { items: T[]; next?: string | null } = await getJson(path + more);
    items.push(...page.items);
    cursor = page.next ?? null;
  } while (cursor !== null && items.length < most);
  return items;
}

async function explanation(response: Response): Promise<string> {
  try {
    const { error } = (await response.json()) as { error?: string };
    if (error) return error;
  } catch {
    // not of the controller: a proxy's page
  }
  return `the controller answers ${response.status} ${response.statusText}`.trim();
}

export function messageOf(problem: unknown): string {
  return problem instanceof Error ? problem.message : String(problem);
}
