/* SPDX-License-Identifier: Apache-2.0
 * Explicit congestion notification (RFC 3168) in whole Ethernet frames. */
#include "ports/port.h"

enum { ECN = 3, CE = 3 };

static uint32_t word(const uint8_t *bytes) {
    return (uint32_t)bytes[0] << 8 | bytes[1];
}

static void mark_ipv4(uint8_t *header) {
    uint32_t before = word(header), sum = word(header + 10);
    header[1] |= CE;
    /* RFC 1624, equation 3. */
    sum = (sum ^ 0xffff) + (before ^ 0xffff) + word(header);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    sum ^= 0xffff;
    header[10] = (uint8_t)(sum >> 8);
    header[11] = (uint8_t)sum;
}

int gl_mark_ce(uint8_t *frame, uint32_t length) {
    uint32_t at = 12;
    while (at + 2 <= length && (word(frame + at) == 0x8100 || word(frame + at) == 0x88a8)) {
        at += GL_VLAN_TAG;
    }
    if (at + 2 + 20 > length) {
        return 0;
    }
    uint32_t type = word(frame + at);
    uint8_t *header = frame + at + 2;
    if (type == 0x0800 && header[0] >> 4 == 4) {
        uint32_t ecn = header[1] & ECN;
        if (ecn == 0 || ecn == CE) {
            return 0;
        }
        mark_ipv4(header);
        return 1;
    }
    if (type == 0x86dd && header[0] >> 4 == 6) {
        uint32_t ecn = header[1] >> 4 & ECN;
        if (ecn == 0 || ecn == CE) {
            return 0;
        }
        header[1] |= CE << 4;
        return 1;
    }
    return 0;
}
