/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * A handler for custom calls of programs that XLA has compiled for a CPU: it hands their arrays over where they lie.
 */
#ifndef GRADLANE_XLA_HANDLER_H
#define GRADLANE_XLA_HANDLER_H

#include <stddef.h>
#include <stdint.h>

enum { GL_XLA_WHY = 4096 };

/* As XLA itself hands it over. `type`: XLA's number of its elements' type. A token has data that nobody may look at. */
typedef struct {
    size_t size;
    void *extensions;
    int type;
    void *data;
    int64_t rank;
    const int64_t *dimensions;
} gl_xla_array;

/* What a program calls, by the `name` that it was compiled with. Returns 0, or why it failed in `why`, of GL_XLA_WHY bytes
 * and ended by a NUL. */
typedef int gl_xla_function(const char *name, size_t length, const gl_xla_array *const *operands, int64_t operand_count,
                            const gl_xla_array *const *results, int64_t result_count, char *why);

/* Fills `to` with all values of these arrays, one array after the other. Their elements are of `type`, XLA's number of
 * `from_type`, and become `elements` of `to_type`: the same one, or see gl_convert. Returns 0; -1, and does nothing, if they
 * are of another type or not as many. Tokens don't count. */
int gl_xla_gather(const gl_xla_array *const *arrays, int64_t count, int type, uint8_t *to, unsigned to_type,
                  unsigned from_type, uint64_t elements);
/* The reverse. */
int gl_xla_scatter(const gl_xla_array *const *arrays, int64_t count, int type, const uint8_t *from, unsigned from_type,
                   unsigned to_type, uint64_t elements);

/* All programs call that function, on threads of XLA's. */
void gl_xla_serve(gl_xla_function *function);
/* What is to be registered with XLA: takes its call, and returns its error or NULL. The call has one attribute, the name. */
void *gl_xla_handle(void *call);

#endif
