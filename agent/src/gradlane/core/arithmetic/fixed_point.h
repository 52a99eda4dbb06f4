/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Numbers that a switch can add: integers in lanes of 16 or 32 bits, unsigned, biased and big-endian, as SwitchML does it
 * (Sapio et al., "Scaling Distributed Machine Learning with In-Network Aggregation", NSDI 2021). An element x of a slice with
 * exponent e becomes the integer nearest to x / 2^e (of two the even one), within the limit of a worker; in its lane the limit
 * is added. So the lanes of all workers add up without overflow.
 */
#ifndef GRADLANE_FIXED_POINT_H
#define GRADLANE_FIXED_POINT_H

#include <stdint.h>

#include "arithmetic/types.h"

enum { GL_FIRST_EXPONENT = -24 }; /* of a slice of which nothing is known */

/* Bytes of a lane (GL_TYPE_INT16_LANES or INT32_LANES); 0: there is no such type. */
unsigned gl_lane_bytes(unsigned lanes);
/* The greatest magnitude of one worker's integer, which is the bias of its lane; a sum's is `workers` times that. */
uint32_t gl_lane_limit(unsigned lanes, unsigned workers);

/* Elements of FLOAT32, FLOAT16 or BFLOAT16 become the first of `count` lanes, the others mean 0. NaN becomes 0, infinity what
 * leaves the exponent as it is, what else is too large the limit. `owed`, unless NULL: what the integers do not say of finite
 * elements, in their type. Returns how many were too large. */
uint64_t gl_to_lanes(uint8_t *to, unsigned lanes, unsigned workers, uint32_t count, const uint8_t *from, unsigned type,
                     uint64_t elements, int exponent, uint8_t *owed);
/* The integers alone. */
uint64_t gl_to_integers(int32_t *to, unsigned lanes, unsigned workers, const uint8_t *from, unsigned type,
                        uint64_t elements, int exponent, uint8_t *owed);
/* What is owed of elements that nothing was said of: all that are finite. */
void gl_owe(uint8_t *owed, const uint8_t *from, unsigned type, uint64_t elements);
/* The integers in lanes, and the greatest magnitude among them. `zero`: what is 0 there, the limit times the number of workers
 * that are in the sum; -1: a lane is above twice that, which no sum can be. */
int64_t gl_from_lanes(int32_t *integers, const uint8_t *from, unsigned lanes, uint32_t zero, uint64_t elements);
/* What the integers are as elements: float32(sum) * (2^exponent / divisor), then rounded to the type. */
void gl_from_sums(uint8_t *to, unsigned type, const int32_t *sums, uint64_t elements, int exponent, unsigned divisor);

/* A slice's exponent after a sum whose greatest magnitude is `most`: a next one like it shall use a 32nd of what a lane
 * holds, of 32 bits a 512th. It stays while a sum uses no more than twice and no less than a fourth of that. After one of zeros,
 * which may have been too small, it falls a little. */
int gl_next_exponent(int exponent, int64_t most, unsigned lanes, unsigned workers);
/* The same after a sum in floating point, of which `values` is a `divisor`th. What is not finite says nothing, zeros change
 * nothing. */
int gl_exponent_of(int exponent, const uint8_t *values, unsigned type, uint64_t elements, unsigned divisor, unsigned lanes,
                   unsigned workers);

#endif
