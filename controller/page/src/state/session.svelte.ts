// SPDX-License-Identifier: Apache-2.0
/** Who the user is to the controller: a token of this browser tab, and what it was found to be refused. */

const KEY = "gradlane.token";

class Session {
  token = $state<string | null>(sessionStorage.getItem(KEY));
  /** Why there is no token any more. */
  problem = $state("");
  /** By scope, what the controller said when it refused something. */
  refused = $state<Record<string, string>>({});

  /** Takes `#token=...` out of the address, so that it is in no history, bookmark or screenshot. */
  takeFromAddress(): void {
    const found = /^#(?:(.*)&)?token=([^&]+)(?:&(.*))?$/.exec(location.hash);
    if (!found?.[2]) return;
    const rest = [found[1], found[3]].filter(Boolean).join("&");
    history.replaceState(null, "", `${location.pathname}${location.search}${rest ? `#${rest}` : ""}`);
    this.begin(decodeURIComponent(found[2]));
  }

  begin(token: string): void {
    this.token = token.trim();
    this.problem = "";
    this.refused = {};
    sessionStorage.setItem(KEY, this.token);
  }

  end(problem = ""): void {
    this.token = null;
    this.problem = problem;
    sessionStorage.removeItem(KEY);
  }

  refuse(scope: string, message: string): void {
    this.refused = { ...this.refused, [scope]: message };
  }
}

export const session = new Session();
