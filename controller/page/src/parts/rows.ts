// SPDX-License-Identifier: Apache-2.0
/** How many rows a table shows: each is looked at every second. */
export const MOST_ROWS = 100;
