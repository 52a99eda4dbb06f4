/* SPDX-License-Identifier: Apache-2.0
 * Headers of Ethernet frames. */
#ifndef GL_ETHERNET_H
#define GL_ETHERNET_H

#include <linux/if_ether.h>

#include "base/bytes.h"

enum { GL_VLAN_TAG = 4 };

/* Where the type of what a frame carries is, behind its VLAN tags; 0 if that and `more` bytes behind it are not all in
 * its first `length` bytes. */
static inline uint32_t gl_type_at(const uint8_t *frame, uint32_t length, uint32_t more) {
    uint32_t at = 2 * ETH_ALEN;
    while (at + 2 <= length && (gl_get16(frame + at) == ETH_P_8021Q || gl_get16(frame + at) == ETH_P_8021AD)) {
        at += GL_VLAN_TAG;
    }
    return at + 2 + more <= length ? at : 0;
}

#endif
