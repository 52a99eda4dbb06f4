/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Which instructions the arithmetic uses. The library is for any CPU of its architecture; the loops over elements are
 * compiled for later ones too, and the loader of the system takes what the CPU has (an ifunc). The results are the same bit
 * for bit, as nothing is reordered or contracted.
 */
#ifndef GRADLANE_INSTRUCTIONS_H
#define GRADLANE_INSTRUCTIONS_H

/* The levels of x86-64 are those of its psABI; v3 has AVX2, v4 AVX-512. Sanitizers can't run before themselves. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define GL_LEVELS 0
#define GL_CLONES
#elif defined __x86_64__ && defined __gnu_linux__ && !defined __clang__
#define GL_LEVELS 1
#define GL_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), flatten))
#else
#define GL_LEVELS 0
#define GL_CLONES
#endif

/* The instruction set that every function of the library may use, and the one that its loops over elements use here. */
const char *gl_built_for(void);
const char *gl_computes_with(void);

#endif
