/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The clock that engines are told.
 */
#ifndef GRADLANE_CLOCK_H
#define GRADLANE_CLOCK_H

#include <stdint.h>

/* us, monotonic. */
uint64_t gl_now(void);

#endif
