/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The tags of a datagram where no switch writes them.
 */
#ifndef GRADLANE_TAGGING_H
#define GRADLANE_TAGGING_H

#include "job/config.h"

/* The IPv4 TOS byte for a datagram with header `h`; 0: none. */
uint8_t tos_of(const gl_config *c, const uint8_t *h);

#endif
