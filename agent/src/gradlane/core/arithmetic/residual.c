/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Residuals of error feedback.
 */
#include "arithmetic/residual.h"

#include <stdlib.h>
#include <string.h>

#include "arithmetic/elements.h"
#include "arithmetic/instructions.h"
#include "arithmetic/types.h"

enum { BLOCK = 512 };

static uint64_t length_of(const gl_residual *r, uint32_t slice) {
    const uint64_t left = r->bytes - (uint64_t)slice * r->slice_bytes;
    return left < r->slice_bytes ? left : r->slice_bytes;
}

static bool owed(const gl_residual *r, uint32_t slice) { return r->lost[slice / 64] >> (slice % 64) & 1; }

static void owe(gl_residual *r, uint32_t slice, const uint8_t *values) {
    memcpy(r->values + (uint64_t)slice * r->slice_bytes, values, length_of(r, slice));
    r->owed += !owed(r, slice);
    r->lost[slice / 64] |= 1ull << (slice % 64);
}

int gl_residual_new(gl_residual *r, uint64_t bytes, uint32_t slice_bytes) {
    r->slices = (uint32_t)((bytes + slice_bytes - 1) / slice_bytes);
    r->slice_bytes = slice_bytes, r->bytes = bytes, r->owed = 0;
    r->lost = calloc((r->slices + 63) / 64, sizeof *r->lost);
    r->values = malloc(bytes);
    if (r->lost && r->values) return 0;
    gl_residual_free(r);
    return -1;
}

void gl_residual_free(gl_residual *r) {
    free(r->lost), free(r->values);
    r->lost = NULL, r->values = NULL, r->slices = 0;
}

void gl_residual_keep(gl_residual *r, const uint8_t *contribution, uint32_t first, uint32_t slices, const uint8_t *lost) {
    for (uint32_t i = 0; i < slices && first + i < r->slices; i++)
        if (lost[i / 8] >> (i % 8) & 1) owe(r, first + i, contribution + (uint64_t)(first + i) * r->slice_bytes);
}

void gl_residual_owe_all(gl_residual *r) {
    for (uint32_t i = 0; i < r->slices; i++) r->lost[i / 64] |= 1ull << (i % 64);
    r->owed = r->slices;
}

GL_CLONES static void subtract(uint8_t *from, const uint8_t *result, uint64_t elements, unsigned type) {
    const uint32_t item = gl_element_bytes(type);
    for (uint64_t at = 0; at < elements; at += BLOCK) {
        const size_t n = elements - at < BLOCK ? elements - at : BLOCK;
        float values[BLOCK], less[BLOCK];
        load_floats(values, from + at * item, n, type);
        load_floats(less, result + at * item, n, type);
        for (size_t i = 0; i < n; i++) values[i] -= less[i];
        store_floats(from + at * item, values, n, type);
    }
}

void gl_residual_subtract(gl_residual *r, const uint8_t *result, unsigned type) {
    for (uint32_t i = 0; r->owed && i < r->slices; i++) {
        const uint64_t at = (uint64_t)i * r->slice_bytes;
        if (owed(r, i)) subtract(r->values + at, result + at, length_of(r, i) / gl_element_bytes(type), type);
    }
}

const uint8_t *gl_residual_take(gl_residual *r, uint32_t slice) {
    if (!owed(r, slice)) return NULL;
    r->lost[slice / 64] &= ~(1ull << (slice % 64));
    r->owed--;
    return r->values + (uint64_t)slice * r->slice_bytes;
}

void gl_residual_export(const gl_residual *r, uint8_t *values) {
    memset(values, 0, r->bytes);
    for (uint32_t i = 0; i < r->slices; i++) {
        const uint64_t at = (uint64_t)i * r->slice_bytes;
        if (owed(r, i)) memcpy(values + at, r->values + at, length_of(r, i));
    }
}

static bool all_zero(const uint8_t *values, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes; i++)
        if (values[i]) return false;
    return true;
}

void gl_residual_import(gl_residual *r, const uint8_t *values) {
    memset(r->lost, 0, (r->slices + 63) / 64 * sizeof *r->lost);
    r->owed = 0;
    for (uint32_t i = 0; i < r->slices; i++) {
        const uint8_t *slice = values + (uint64_t)i * r->slice_bytes;
        if (!all_zero(slice, length_of(r, i))) owe(r, i, slice);
    }
}
