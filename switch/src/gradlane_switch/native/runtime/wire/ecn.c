/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/ecn.h"

#include "wire/ethernet.h"

enum { ECN = 3, CE = 3, IPV4_HEADER = 20 };

static void mark_ipv4(uint8_t *header) {
    uint32_t before = gl_get16(header), sum = gl_get16(header + 10);
    header[1] |= CE;
    /* RFC 1624, equation 3. */
    sum = (sum ^ 0xffff) + (before ^ 0xffff) + gl_get16(header);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    sum ^= 0xffff;
    header[10] = (uint8_t)(sum >> 8);
    header[11] = (uint8_t)sum;
}

int gl_mark_ce(uint8_t *frame, uint32_t length) {
    uint32_t at = gl_type_at(frame, length, IPV4_HEADER);
    if (!at) {
        return 0;
    }
    uint32_t type = gl_get16(frame + at);
    uint8_t *header = frame + at + 2;
    if (type == ETH_P_IP && header[0] >> 4 == 4) {
        uint32_t ecn = header[1] & ECN;
        if (ecn == 0 || ecn == CE) {
            return 0;
        }
        mark_ipv4(header);
        return 1;
    }
    if (type == ETH_P_IPV6 && header[0] >> 4 == 6) {
        uint32_t ecn = header[1] >> 4 & ECN;
        if (ecn == 0 || ecn == CE) {
            return 0;
        }
        header[1] |= CE << 4;
        return 1;
    }
    return 0;
}
