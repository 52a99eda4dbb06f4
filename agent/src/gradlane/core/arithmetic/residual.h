/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Error feedback (Seide et al., "1-Bit Stochastic Gradient Descent", Interspeech 2014): what the network dropped of a
 * contribution is added to the next one, so a gradient is late, not lost. Where the mean of what arrived stood for it, only
 * the difference is owed: n means of n contributions less those that arrived, k, lack the sum of (lost - mean).
 */
#ifndef GRADLANE_RESIDUAL_H
#define GRADLANE_RESIDUAL_H

#include <stdbool.h>
#include <stdint.h>

/* What is owed of one partition of a tensor: its values lie where the slice lies in the partition. */
typedef struct {
    uint32_t slices, slice_bytes, owed; /* owed: how many slices have a residual */
    uint64_t bytes;                     /* of the partition */
    uint64_t *lost;                     /* a bit for each slice that has a residual */
    uint8_t *values;                    /* the partition's size; memory is taken where something was lost */
} gl_residual;

/* 0, or -1 if memory is out. */
int gl_residual_new(gl_residual *residual, uint64_t bytes, uint32_t slice_bytes);
void gl_residual_free(gl_residual *residual);
/* Keeps the slices of `contribution` (the partition) that have a bit set in `lost`; bit 0 is slice `first`. */
void gl_residual_keep(gl_residual *residual, const uint8_t *contribution, uint32_t first, uint32_t slices,
                      const uint8_t *lost);
/* All values are owed, as somebody has written them. */
void gl_residual_owe_all(gl_residual *residual);
/* `result`, the partition's, was applied in place of what was kept, so it is owed no longer. */
void gl_residual_subtract(gl_residual *residual, const uint8_t *result, unsigned element_type);
/* What is owed of a slice, or NULL; it is owed no longer. Valid until the next gl_residual_keep. */
const uint8_t *gl_residual_take(gl_residual *residual, uint32_t slice);
/* All of the partition, zeros where nothing is owed. */
void gl_residual_export(const gl_residual *residual, uint8_t *values);
/* Replaces what is owed. */
void gl_residual_import(gl_residual *residual, const uint8_t *values);

#endif
