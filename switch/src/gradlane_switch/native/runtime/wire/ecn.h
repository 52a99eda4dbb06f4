/* SPDX-License-Identifier: Apache-2.0
 * Explicit congestion notification (RFC 3168) in whole Ethernet frames. */
#ifndef GL_ECN_H
#define GL_ECN_H

#include <stdint.h>

/* Sets CE (RFC 3168) in an ECN-capable IPv4 or IPv6 frame; 0 if it is not one, or has it already. */
int gl_mark_ce(uint8_t *frame, uint32_t length);

#endif
