/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Element types.
 */
#include "arithmetic/types.h"

#include "wire.h"

unsigned gl_element_bytes(unsigned element_type) {
    switch (element_type) {
    case GL_TYPE_UINT8:
    case GL_TYPE_INT8: return 1;
    case GL_TYPE_FLOAT16:
    case GL_TYPE_BFLOAT16: return 2;
    case GL_TYPE_FLOAT32:
    case GL_TYPE_INT32: return 4;
    case GL_TYPE_FLOAT64:
    case GL_TYPE_INT64: return 8;
    default: return 0;
    }
}

int gl_element_is_float(unsigned element_type) {
    return element_type == GL_TYPE_FLOAT32 || element_type == GL_TYPE_FLOAT16 || element_type == GL_TYPE_BFLOAT16 ||
           element_type == GL_TYPE_FLOAT64;
}
