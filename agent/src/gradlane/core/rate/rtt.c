/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Round trips. The queue is what a sample's delay on the path there is above the least of late, in which two clocks hardly
 * drift apart; a queue on the way back is none of that path.
 */
#include "rate/rtt.h"

static const uint32_t RTT_MAX = 100000; /* us, at most; a host that slept is no queue */

void rtt_start(rtt *r) {
    r->srtt = INITIAL_RTT, r->variation = INITIAL_RTT / 8;
    r->base[0] = r->base[1] = UINT32_MAX;
}

/* As RFC 6298 has it; but a first sample that is long may be a queue. */
static void smooth(rtt *r, uint32_t sample) {
    const bool first = r->base[0] == UINT32_MAX && sample < r->srtt;
    const uint32_t off = sample > r->srtt ? sample - r->srtt : r->srtt - sample;
    r->variation = first ? sample / 2 : (3 * r->variation + off) / 4;
    r->srtt = first ? sample : (7 * r->srtt + sample) / 8;
}

uint32_t rtt_sample(rtt *r, uint32_t sample, uint32_t there, bool hidden, uint64_t now) {
    smooth(r, sample < RTT_MAX ? sample : RTT_MAX);
    if (sample > RTT_MAX) return NO_QUEUE;
    if (now >= r->base_until) {
        const bool outdated = now >= r->base_until + BASE_LIFE;
        r->base[1] = outdated ? sample : r->base[0], r->base[0] = sample;
        r->there[1] = outdated ? there : r->there[0], r->there[0] = there;
        r->base_until = now + BASE_LIFE;
    }
    if (hidden) r->base_until = now + BASE_LIFE;
    if (sample < r->base[0]) r->base[0] = sample;
    if ((int32_t)(there - r->there[0]) < 0) r->there[0] = there;
    const bool older = (int32_t)(r->there[1] - r->there[0]) < 0;
    return there - r->there[older];
}
