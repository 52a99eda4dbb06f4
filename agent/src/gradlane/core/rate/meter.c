/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * How fast bytes pass in windows without a pause.
 */
#include "rate/meter.h"

#include <string.h>

void meter_count(meter *m, double bytes, uint64_t window, uint64_t now) {
    if (now - m->latest > window / 2) {
        m->steady = false, m->begun = now, m->bytes = 0, m->latest = now; /* what begins a window is not counted in it */
        return;
    }
    m->latest = now;
    m->bytes += bytes;
    if (now - m->begun < window) return;
    if (m->steady) {
        m->rates[m->next] = m->bytes / (double)(now - m->begun);
        m->next = (m->next + 1) % GL_LINK_WINDOWS;
        m->count += m->count < GL_LINK_WINDOWS;
    }
    m->steady = true, m->begun = now, m->bytes = 0;
}

uint32_t meter_read(const meter *m, double *rates) {
    memcpy(rates, m->rates, m->count * sizeof *rates);
    return m->count;
}
