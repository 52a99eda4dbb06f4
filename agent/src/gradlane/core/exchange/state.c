/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * What tensors and groups share: failing, submitting, and telling a process that its command is done.
 */
#define _GNU_SOURCE
#include "exchange/state.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/eventfd.h>

#include "arithmetic/reduce.h"
#include "arithmetic/types.h"

void fail(gl_exchange *x, unsigned kind, unsigned process, uint32_t tensor, uint32_t step, const char *format, ...) {
    if (x->failure.kind) return;
    x->failure.kind = kind, x->failure.process = process, x->failure.tensor = tensor, x->failure.step = step;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(x->failure.text, sizeof x->failure.text, format, arguments);
    va_end(arguments);
    eventfd_write(x->notify, 1);
}

bool submit(gl_exchange *x, const gl_submission *s, uint64_t now) {
    if (!gl_submit(x->engine, s, now)) return true;
    fail(x, GL_FAILURE_MEMORY, 0, s->tensor, s->step,
         "the transport can't take it: memory is out, or contributions of other hosts fill what the job may have");
    return false;
}

void completed(gl_exchange *x, unsigned process, uint16_t slot, unsigned how) {
    gl_channel_complete(x->processes[process].channel, slot, how);
}

void reduce_local(uint8_t *out, const uint8_t *const *sources, unsigned count, unsigned reduction, uint64_t elements,
                  unsigned element_type) {
    const uint64_t bytes = elements * gl_element_bytes(element_type);
    const unsigned divisor = reduction == GL_MEAN || reduction == GL_MEAN_OF_ARRIVED ? count : 1;
    for (uint64_t at = 0; at < bytes; at += PIECE) {
        const uint8_t *pieces[GL_MAX_PROCESSES];
        for (unsigned i = 0; i < count; i++) pieces[i] = sources[i] + at;
        const uint32_t length = bytes - at < PIECE ? (uint32_t)(bytes - at) : PIECE;
        reduce_slice(out + at, pieces, count, reduction, divisor, length, element_type);
    }
}
