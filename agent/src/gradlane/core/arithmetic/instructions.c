/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * What the compiler was told, and what the loader has chosen.
 */
#include "arithmetic/instructions.h"

const char *gl_built_for(void) {
#if defined __AVX512F__
    return "x86-64 with AVX-512";
#elif defined __AVX__
    return "x86-64 with AVX";
#elif defined __x86_64__
    return "x86-64";
#elif defined __aarch64__
    return "aarch64";
#else
    return "this architecture";
#endif
}

const char *gl_computes_with(void) {
#if GL_LEVELS
    if (__builtin_cpu_supports("x86-64-v4")) return "x86-64-v4";
    if (__builtin_cpu_supports("x86-64-v3")) return "x86-64-v3";
#endif
    return gl_built_for();
}
