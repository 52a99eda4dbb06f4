// SPDX-License-Identifier: Apache-2.0
/** Asks before something changes the network. */

export interface Question {
  title: string;
  text: string;
  action: string;
  danger?: boolean;
}

class Confirm {
  question = $state.raw<Question | null>(null);
  #answer: ((yes: boolean) => void) | null = null;

  ask(question: Question): Promise<boolean> {
    this.answer(false);
    this.question = question;
    return new Promise((resolve) => (this.#answer = resolve));
  }

  answer(yes: boolean): void {
    this.question = null;
    this.#answer?.(yes);
    this.#answer = null;
  }
}

export const confirm = new Confirm();
