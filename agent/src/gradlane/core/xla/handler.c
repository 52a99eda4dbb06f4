/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Between XLA's interface and a function that knows arrays and a name.
 */
#include "xla/handler.h"

#include <stddef.h>

#include "xla/abi.h"

static gl_xla_function *served;

void gl_xla_serve(gl_xla_function *function) { served = function; }

/* The version for which this is to be used: XLA's own, if it is known here; else one that XLA knows, or refuses. XLA 0.1
 * does not say which it is. */
static void describe(const xla_functions *functions, xla_metadata *metadata) {
    int minor = XLA_OLDEST_MINOR;
    if (functions && functions->version.major == XLA_MAJOR && functions->version.minor > minor)
        minor = functions->version.minor < XLA_NEWEST_MINOR ? functions->version.minor : XLA_NEWEST_MINOR;
    metadata->version.major = XLA_MAJOR, metadata->version.minor = minor;
    metadata->traits = 0;
}

static void *fail(const xla_call *call, const char *why) {
    xla_error_content content = {.size = sizeof content, .message = why, .code = XLA_INTERNAL};
    return call->functions->create_error(&content);
}

static int are_buffers(const xla_values *values) {
    for (int64_t i = 0; i < values->count; i++)
        if (values->types[i] != XLA_BUFFER) return 0;
    return 1;
}

void *gl_xla_handle(void *given) {
    const xla_call *call = given;
    for (xla_extension *it = call->extensions; it; it = it->next)
        if (it->type == XLA_EXTENSION_METADATA)
            return describe(call->functions, ((xla_metadata_extension *)it)->metadata), NULL;
    const xla_attributes *attributes = &call->attributes;
    if (call->size < sizeof *call || call->stage != XLA_EXECUTE || attributes->count != 1 ||
        attributes->types[0] != XLA_STRING || !are_buffers(&call->operands) || !are_buffers(&call->results))
        return fail(call, "this is no call of gradlane's");
    const xla_text *name = attributes->values[0];
    char why[GL_XLA_WHY];
    if (served(name->text, name->length, (const gl_xla_array *const *)call->operands.values, call->operands.count,
               (const gl_xla_array *const *)call->results.values, call->results.count, why))
        return fail(call, why);
    return NULL;
}
