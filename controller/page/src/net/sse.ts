// SPDX-License-Identifier: Apache-2.0
/** Server-sent events out of a stream of bytes: what EventSource does, which can't send an Authorization header. */

export interface Message {
  event: string;
  id: string | null;
  data: string;
}

/** Longer messages are not read: whoever sends them is no controller. */
const MOST = 64 * 1024 * 1024;

/** Takes the text as it comes, in any pieces; gives the messages that are complete. */
export class SseParser {
  #left = "";
  #event = "";
  #id: string | null = null;
  #data: string[] = [];

  feed(text: string): Message[] {
    const found: Message[] = [];
    let buffer = this.#left + text;
    let from = 0;
    for (let at = buffer.indexOf("\n", from); at >= 0; at = buffer.indexOf("\n", from)) {
      const end = at > from && buffer[at - 1] === "\r" ? at - 1 : at;
      const message = this.#line(buffer.slice(from, end));
      if (message) found.push(message);
      from = at + 1;
    }
    buffer = buffer.slice(from);
    if (buffer.length > MOST) throw new Error("a message of the stream is longer than 64 MiB");
    this.#left = buffer;
    return found;
  }

  #line(line: string): Message | null {
    if (line === "") {
      const message = { event: this.#event || "message", id: this.#id, data: this.#data.join("\n") };
      const complete = this.#data.length > 0;
      this.#event = "";
      this.#data = [];
      return complete ? message : null;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return null; // a comment, which keeps the connection alive
    const name = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? "" : line.slice(colon + 1);
    if (value.startsWith(" ")) value = value.slice(1);
    if (name === "event") this.#event = value;
    else if (name === "data") this.#data.push(value);
    else if (name === "id") this.#id = value;
    return null;
  }
}
