/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls as XLA of several versions makes them, good ones and others, and what the handler makes of them.
 */
#undef NDEBUG
#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "wire.h"
#include "xla/abi.h"
#include "xla/handler.h"

static char said[GL_XLA_WHY];
static int code;
static unsigned calls;

static void *create_error(xla_error_content *content) {
    assert(content->size == 32 && !content->extensions);
    code = content->code;
    strcpy(said, content->message);
    return said;
}

static float sums[3];

static int add_one(const char *name, size_t length, const gl_xla_array *const *operands, int64_t taken,
                   const gl_xla_array *const *results, int64_t given, char *why) {
    calls++;
    assert(length == 3 && !memcmp(name, "add", 3) && taken == 1 && given == 1);
    const gl_xla_array *from = operands[0];
    assert(from->type == 11 && from->rank == 1 && from->dimensions[0] == 3 && results[0]->data == sums);
    for (int i = 0; i < 3; i++) ((float *)results[0]->data)[i] = ((const float *)from->data)[i] + 1;
    if (sums[0] < 10) return 0;
    memset(why, 'x', GL_XLA_WHY - 1), why[GL_XLA_WHY - 1] = 0; /* as long as can be */
    return 1;
}

static xla_functions functions(int major, int minor) {
    return (xla_functions){.size = sizeof(xla_functions), .version = {.size = sizeof(xla_version), .major = major,
                           .minor = minor}, .create_error = create_error};
}

/* The minor version that the handler asks for; `theirs`: XLA's. */
static int asked(const xla_functions *theirs) {
    xla_metadata metadata = {.size = sizeof metadata, .version = {.major = 77, .minor = 77}, .traits = 77};
    xla_metadata_extension extension = {{sizeof extension, XLA_EXTENSION_METADATA, NULL}, &metadata};
    xla_extension before = {sizeof before, 99, &extension.base}; /* of a kind that is not known here */
    xla_call call = {.size = sizeof call, .extensions = &before, .functions = theirs};
    assert(!gl_xla_handle(&call) && metadata.version.major == 0 && !metadata.traits);
    return metadata.version.minor;
}

static void check_versions(void) {
    const int pairs[][3] = {{0, 0, 1}, {0, 1, 1}, {0, 2, 2}, {0, 3, 3}, {0, 4, 3}, {0, 99, 3}, {1, 2, 1}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const xla_functions theirs = functions(pairs[i][0], pairs[i][1]);
        assert(asked(&theirs) == pairs[i][2]);
    }
    assert(asked(NULL) == 1); /* 0.1 hands none over */
}

static void check_calls(void) {
    const xla_functions theirs = functions(0, 3);
    float values[] = {1, 2, 3};
    int64_t dimensions[] = {3};
    gl_xla_array from = {sizeof from, NULL, 11, values, 1, dimensions};
    gl_xla_array to = {sizeof to, NULL, 11, sums, 1, dimensions};
    void *from_list[] = {&from}, *to_list[] = {&to};
    xla_text key = {"name", 4}, name = {"add", 3};
    const xla_text *names[] = {&key};
    void *attributes[] = {&name};
    int buffer = XLA_BUFFER, string = XLA_STRING, other = 9;
    const xla_call good = {.size = sizeof good, .functions = &theirs, .stage = XLA_EXECUTE,
                           .operands = {sizeof(xla_values), NULL, 1, &buffer, from_list},
                           .results = {sizeof(xla_values), NULL, 1, &buffer, to_list},
                           .attributes = {sizeof(xla_attributes), NULL, 1, &string, names, attributes}};
    xla_call call = good;
    assert(!gl_xla_handle(&call) && calls == 1 && sums[0] == 2 && sums[2] == 4);
    call.size += 8; /* of a version that has more */
    assert(!gl_xla_handle(&call) && calls == 2);
    values[0] = 9;
    assert(gl_xla_handle(&call) == said && code == 13 && strlen(said) == GL_XLA_WHY - 1 && said[0] == 'x');
    calls = 0;
    for (int wrong = 0; wrong < 6; wrong++) {
        call = good;
        if (wrong == 0) call.size -= 8;
        if (wrong == 1) call.stage = 1;
        if (wrong == 2) call.attributes.count = 0;
        if (wrong == 3) call.attributes.types = &other;
        if (wrong == 4) call.operands.types = &other;
        if (wrong == 5) call.results.types = &other;
        said[0] = 0;
        assert(gl_xla_handle(&call) == said && !strcmp(said, "this is no call of gradlane's") && !calls);
    }
}

/* Arrays of 2 x 3, no, one and again no elements, with tokens between them, as one flat array. */
static void check_flat(void) {
    float values[6] = {1, 2, 3, 4, 5, 6}, last = 7, flat[9] = {0};
    int64_t dimensions[] = {2, 3}, empty[] = {0, 3};
    const gl_xla_array token = {sizeof token, NULL, 17, NULL, 0, NULL}, first = {sizeof token, NULL, 11, values, 2, dimensions},
                       none = {sizeof token, NULL, 11, NULL, 2, empty}, scalar = {sizeof token, NULL, 11, &last, 0, NULL};
    const gl_xla_array *arrays[] = {&token, &first, &none, &token, &scalar, &none};
    uint8_t *to = (uint8_t *)(flat + 1);
    for (uint64_t elements = 0; elements < 9; elements++) {
        const int right = elements == 7;
        assert(gl_xla_gather(arrays, 6, 11, to, GL_TYPE_FLOAT32, GL_TYPE_FLOAT32, elements) == right - 1);
        for (int i = 0; i < 9; i++) assert(flat[i] == (elements >= 7 && i < 8 ? i : 0));
    }
    assert(gl_xla_gather(arrays, 6, 12, to, GL_TYPE_FLOAT64, GL_TYPE_FLOAT64, 7) == -1);
    uint16_t narrow[8] = {0};
    assert(!gl_xla_gather(arrays, 6, 11, (uint8_t *)narrow, GL_TYPE_BFLOAT16, GL_TYPE_FLOAT32, 7));
    assert(narrow[0] == 0x3f80 && narrow[5] == 0x40c0 && narrow[6] == 0x40e0 && !narrow[7]);
    memset(values, 0, sizeof values), last = 0;
    const uint8_t *from = (const uint8_t *)narrow;
    for (uint64_t elements = 0; elements < 9; elements++)
        if (elements != 7) assert(gl_xla_scatter(arrays, 6, 11, from, GL_TYPE_BFLOAT16, GL_TYPE_FLOAT32, elements) == -1);
    assert(gl_xla_scatter(arrays, 6, 10, from, GL_TYPE_BFLOAT16, GL_TYPE_FLOAT16, 7) == -1 && !values[0] && !last);
    assert(!gl_xla_scatter(arrays, 6, 11, from, GL_TYPE_BFLOAT16, GL_TYPE_FLOAT32, 7));
    for (int i = 0; i < 6; i++) assert(values[i] == i + 1);
    assert(last == 7);
    assert(!gl_xla_gather(NULL, 0, 11, to, GL_TYPE_FLOAT32, GL_TYPE_FLOAT32, 0));
}

int main(void) {
    check_flat();
    gl_xla_serve(add_one);
    check_versions();
    check_calls();
    return 0;
}
