/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that is out on demand: the linker puts these in the place of the C library's (--wrap).
 */
#ifndef GRADLANE_EXHAUSTION_H
#define GRADLANE_EXHAUSTION_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* Within `scarce` the allocation number `failing` fails, and those after it if it `lasts`. */
extern bool scarce, lasts;
extern unsigned long failing, allocations;
void out_of_memory_at(unsigned long n, bool lasts);

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: %s (allocation %lu fails)\n", __FILE__, __LINE__, #condition, failing); \
            abort(); \
        } \
    } while (0)

#endif
