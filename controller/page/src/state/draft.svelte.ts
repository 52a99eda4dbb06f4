// SPDX-License-Identifier: Apache-2.0
/** A job file that is being edited; it has the job's key, so it is not in the address. */

class Draft {
  /** Of which job, and its version when it was read ("": there was none). */
  name = $state("");
  version = $state("");
  text = $state("");
  /** What other view has written it, e.g. "What if". */
  origin = $state("");
}

export const draft = new Draft();
