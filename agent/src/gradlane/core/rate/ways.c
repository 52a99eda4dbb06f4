/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Slices that were marked or lost leave no credit, so what goes by a busy, slow or dead path goes elsewhere within a round
 * trip. Where nothing is marked every way has about as much as any other.
 */
#include "rate/ways.h"

enum { PASSED_MOST = (1 << GL_PASSED_BITS) - 1 };

unsigned ways_take(ways *w) {
    if (w->credits) {
        while (!w->credit[w->turn % GL_WAYS]) w->turn++;
        w->credit[w->turn % GL_WAYS]--, w->credits--;
    }
    return w->turn++ % GL_WAYS + 1;
}

uint64_t ways_passed(const uint16_t passed[GL_WAYS]) {
    uint32_t most = PASSED_MOST;
    uint64_t told = 0;
    for (unsigned i = 0; i < GL_WAYS; i++)
        if (passed[i] > most) most = passed[i];
    for (unsigned i = 0; i < GL_WAYS; i++)
        told |= (uint64_t)((passed[i] * PASSED_MOST + most - 1) / most) << i * GL_PASSED_BITS;
    return told;
}

void ways_report(ways *w, uint64_t passed, uint32_t unmarked) {
    uint32_t told = 0;
    for (unsigned i = 0; i < GL_WAYS; i++) told += passed >> i * GL_PASSED_BITS & PASSED_MOST;
    w->credits = 0;
    for (unsigned i = 0; i < GL_WAYS; i++) {
        /* One is kept of what was there before: old credits know nothing of a path that has just become busy. */
        const uint64_t part = (passed >> i * GL_PASSED_BITS & PASSED_MOST) * unmarked;
        const uint64_t credit = (part ? (part + told - 1) / told : 0) + (w->credit[i] > 0);
        w->credit[i] = (uint8_t)(credit < UINT8_MAX ? credit : UINT8_MAX);
        w->credits += w->credit[i];
    }
}
