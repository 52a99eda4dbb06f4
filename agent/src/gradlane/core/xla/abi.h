/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * What is used here of XLA's binary interface for handlers of custom calls (FFI), as its versions 0.1 to 0.3 have it alike.
 * XLA extends a struct at its end only, and says in its first member how large it is. It finds out by itself, when a handler
 * is registered, whether it still knows the version that this one asks for.
 */
#ifndef GRADLANE_XLA_ABI_H
#define GRADLANE_XLA_ABI_H

#include <stddef.h>
#include <stdint.h>

enum { XLA_MAJOR = 0, XLA_OLDEST_MINOR = 1, XLA_NEWEST_MINOR = 3 };

typedef struct xla_extension {
    size_t size;
    int type;
    struct xla_extension *next;
} xla_extension;

enum { XLA_EXTENSION_METADATA = 1 };

typedef struct {
    size_t size;
    xla_extension *extensions;
    int major, minor;
} xla_version;

typedef struct {
    size_t size;
    xla_version version; /* out, as is what follows */
    uint32_t traits;
} xla_metadata;

typedef struct {
    xla_extension base;
    xla_metadata *metadata;
} xla_metadata_extension;

typedef struct {
    size_t size;
    xla_extension *extensions;
    const char *message; /* XLA copies it */
    int code;
} xla_error_content;

enum { XLA_INTERNAL = 13 };

typedef struct {
    size_t size;
    xla_extension *extensions;
    xla_version version;
    const void *internal;
    void *(*create_error)(xla_error_content *content);
} xla_functions;

enum { XLA_BUFFER = 1, XLA_STRING = 4 }; /* types of an operand or a result, and of an attribute */

/* Operands or results. */
typedef struct {
    size_t size;
    xla_extension *extensions;
    int64_t count;
    const int *types;
    void *const *values;
} xla_values;

typedef struct {
    const char *text;
    size_t length;
} xla_text;

typedef struct {
    size_t size;
    xla_extension *extensions;
    int64_t count;
    const int *types;
    const xla_text *const *names;
    void *const *values;
} xla_attributes;

enum { XLA_EXECUTE = 3 };

typedef struct {
    size_t size;
    xla_extension *extensions;
    const xla_functions *functions;
    void *context;
    int stage;
    xla_values operands, results;
    xla_attributes attributes;
} xla_call;

#endif
