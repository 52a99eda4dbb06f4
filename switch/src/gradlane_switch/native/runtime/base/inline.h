/* SPDX-License-Identifier: Apache-2.0
 * Functions of headers that generated programs run for each packet. */
#ifndef GL_INLINE_H
#define GL_INLINE_H

#define GL_INLINE static inline __attribute__((always_inline))

#endif
