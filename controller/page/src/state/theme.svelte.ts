// SPDX-License-Identifier: Apache-2.0
/** Light or dark: as the system says, or as chosen in this browser. */

export type Choice = "auto" | "light" | "dark";
const KEY = "gradlane.theme";

class Theme {
  #media = matchMedia("(prefers-color-scheme: dark)");
  #systemDark = $state(this.#media.matches);
  choice = $state<Choice>(stored());
  readonly dark = $derived(this.choice === "auto" ? this.#systemDark : this.choice === "dark");

  constructor() {
    this.#media.addEventListener("change", (event) => (this.#systemDark = event.matches));
  }

  choose(choice: Choice): void {
    this.choice = choice;
    localStorage.setItem(KEY, choice);
  }
}

function stored(): Choice {
  const found = localStorage.getItem(KEY);
  return found === "light" || found === "dark" ? found : "auto";
}

export const theme = new Theme();
export const calm = matchMedia("(prefers-reduced-motion: reduce)");
