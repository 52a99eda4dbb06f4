/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Element types (GL_TYPE_FLOAT32 and so on, of wire.h), and how elements are reduced.
 */
#ifndef GRADLANE_TYPES_H
#define GRADLANE_TYPES_H

/* MEAN: the zero-filled sum over the size of the group. Means are of floating-point types only. */
enum { GL_MEAN_OF_ARRIVED = 1, GL_MEAN, GL_SUM, GL_MIN, GL_MAX, GL_PRODUCT };

/* Bytes of an element, 0 if there is no such type. */
unsigned gl_element_bytes(unsigned element_type);
/* Whether it is a floating-point type. */
int gl_element_is_float(unsigned element_type);

#endif
