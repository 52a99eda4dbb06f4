/* SPDX-License-Identifier: Apache-2.0
 *
 * Slices that were marked or lost leave no credit, so what goes by a busy, slow or dead path goes elsewhere within a round
 * trip. Where nothing is marked every way has about as much as any other.
 */
#include "rate/ways.h"

#include <string.h>

unsigned ways_take(ways *w) {
    if (w->credits) {
        while (!w->credit[w->turn % GL_WAYS]) w->turn++;
        w->credit[w->turn % GL_WAYS]--, w->credits--;
    }
    return w->turn++ % GL_WAYS + 1;
}

void ways_report(ways *w, const uint8_t passed[GL_WAYS]) {
    w->credits = 0;
    for (unsigned i = 0; i < GL_WAYS; i++) {
        /* One is kept of what was there before: old credits know nothing of a path that has just become busy. */
        const uint8_t news = (uint8_t)(passed[i] - w->passed[i]);
        const unsigned credit = news + (w->credit[i] > 0);
        w->credit[i] = (uint8_t)(credit < UINT8_MAX ? credit : UINT8_MAX);
        w->credits += w->credit[i];
    }
    memcpy(w->passed, passed, GL_WAYS);
}
