/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * An absence is an ordinary operation of this host, with zeros of its own. Nobody else knows of it, and none of the transport: it
 * may be summed by a switch, by hosts, or by hosts again. As none but this host decides it, nobody need agree; its budget is
 * counted where the operation is submitted (operation/leaving.h).
 */
#include "exchange/absence.h"

#include <stdlib.h>
#include <string.h>

#include "arithmetic/fixed_point.h"
#include "arithmetic/types.h"
#include "exchange/ownership.h"

struct absence {
    absence *next;
    uint32_t step;
    unsigned open;   /* partitions that are not complete */
    uint8_t *memory; /* zeros, as large as the tensor; behind them the results */
};

static uint64_t bytes_of(const tensor *t) { return t->elements * gl_element_bytes(t->element_type); }
static uint64_t memory_of(const tensor *t) { return 2 * bytes_of(t); }

static absence **end_of(tensor *t) {
    absence **at = &t->absences;
    while (*at) at = &(*at)->next;
    return at;
}

static void drop(absence **at) {
    absence *a = *at;
    *at = a->next;
    free(a->memory), free(a);
}

void absences_free(tensor *t) {
    while (t->absences) drop(&t->absences);
}

/* The step that has not begun, if all before it is complete here; else 0. */
static uint32_t next_step(const tensor *t) {
    const absence *last = t->absences;
    while (last && last->next) last = last->next;
    if (t->open || (last && last->open)) return 0;
    return (last && last->step > t->step ? last->step : t->step) + 1;
}

/* Returns whether it has begun. */
static bool begin(gl_exchange *x, tensor *t, uint32_t step, uint64_t now) {
    absence *a = calloc(1, sizeof *a);
    if (a) a->memory = calloc(1, memory_of(t));
    if (!a || !a->memory) return free(a), false;
    a->step = step, a->open = t->count;
    absence **at = end_of(t);
    *at = a;
    for (unsigned k = 0; k < t->count; k++) {
        const partition *p = &t->partitions[k];
        const uint64_t offset = p->is.first * gl_element_bytes(t->element_type);
        gl_submission s = of_partition(x, t, p, step);
        s.in = a->memory + offset, s.out = a->memory + bytes_of(t) + offset;
        s.residual = NULL, s.absent = true;
        if (!gl_submit(x->engine, &s, now)) continue;
        if (k) fail(x, GL_FAILURE_MEMORY, 0, s.tensor, step, "memory is out");
        else drop(at);
        return false;
    }
    return true;
}

void absences_look(gl_exchange *x, tensor *t, uint64_t now) {
    if (!t->partitions[0].summed || !t->partitions[0].is.late) return;
    const uint32_t step = next_step(t);
    if (!step || step > t->asked) return;
    if (gl_engine_take_memory(x->engine, memory_of(t))) {
        if (step > x->late_no_memory) x->late_no_memory = step, x->statistics.late_no_memory++;
        return;
    }
    if (!begin(x, t, step, now)) {
        gl_engine_give_memory(x->engine, memory_of(t));
        return;
    }
    step_has_begun(x, step);
    if (step > x->left_out) x->left_out = step, x->statistics.left_out++;
}

void absence_asked(gl_exchange *x, tensor *t, uint32_t step, uint64_t now) {
    /* They can have gone on without this host for `late_steps` steps; nobody waits for a later one. */
    if (step - t->step > x->config.late_steps) return; /* modulo 2^32 a past one is far later */
    if (step > t->asked) t->asked = step;
    absences_look(x, t, now);
}

bool absence_over(gl_exchange *x, tensor *t) {
    const absence *a = t->absences;
    if (!a || a->open || t->begun < t->count) return false;
    memcpy(t->result, a->memory + bytes_of(t), bytes_of(t));
    drop(&t->absences);
    gl_engine_give_memory(x->engine, memory_of(t));
    return true;
}

bool absence_took(gl_exchange *x, tensor *t, unsigned index) {
    partition *p = &t->partitions[index];
    if (!t->absences) return false;
    if (p->residual.slices) {
        const uint8_t *contribution = t->gathered + p->is.first * gl_element_bytes(t->element_type);
        gl_owe(p->residual.values, contribution, t->element_type, p->is.elements);
        gl_residual_owe_all(&p->residual);
        x->statistics.kept_slices += p->slices;
    }
    return true;
}

bool absence_event(gl_exchange *x, tensor *t, const gl_event *event, uint64_t now) {
    absence *a = t->absences;
    while (a && a->step != event->step) a = a->next;
    if (!a) return false;
    if (event->kind == GL_EVENT_COMPLETED && !--a->open) absences_look(x, t, now);
    return true;
}
