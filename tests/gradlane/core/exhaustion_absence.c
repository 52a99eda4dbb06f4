/* SPDX-License-Identifier: Apache-2.0
 *
 * The same for a host that begins a step without its processes: of a tensor that a switch sums.
 */
#include <sys/eventfd.h>
#include <unistd.h>

#include "exchange/exchange.h"
#include "exhaustion.h"

enum { ELEMENTS = 200, BYTES = ELEMENTS * 4, SLICE = 144 };

static bool attempt(unsigned long n) {
    static float contribution[ELEMENTS], result[ELEMENTS];
    static const uint16_t layers[ELEMENTS];
    static gl_batch batch;
    const gl_config c = {.job = 1, .workers = 2, .slice_bytes = SLICE, .window = 4, .rate = 1000000000, .buffer = 64000,
                         .memory = 1 << 20, .sums = {GL_TYPE_INT16_LANES, 16, 4, 1},
                         .late_after = 1000, .late_steps = 2, .late_window = 5};
    const gl_exchange_config like = {.hosts = 2, .processes = 1, .slice_bytes = SLICE, .critical = 1, .late_steps = 2,
                                     .generation = 1};
    const gl_partition halves[] = {{0, ELEMENTS / 2, 0, 0, GL_DIRECT, 1}, {ELEMENTS / 2, ELEMENTS / 2, 0, 0, GL_DIRECT, 1}};
    uint8_t *values[] = {(uint8_t *)contribution};
    const gl_tensor t = {.element_type = GL_TYPE_FLOAT32, .reduction = GL_MEAN_OF_ARRIVED, .feedback = 1, .summed = 1,
                         .elements = ELEMENTS, .contributions = values, .result = (uint8_t *)result,
                         .partition_count = 2, .partitions = halves, .layers = layers};
    const int notify = eventfd(0, EFD_NONBLOCK);
    gl_runner *runner = gl_runner_new();
    gl_engine *engine = gl_engine_new(&c);
    gl_exchange *x = gl_exchange_new(runner, engine, &like, notify);
    CHECK(!gl_exchange_tensor(x, &t));
    out_of_memory_at(n, false);
    scarce = true;
    gl_exchange_go_on(x, 0, 1);
    const uint64_t kept = gl_engine_statistics(engine)->memory_used;
    for (uint64_t now = 1; now < 10; now++) gl_transmit(engine, &batch, now);
    gl_exchange_drain(x, engine, 10);
    scarce = false;
    gl_exchange_statistics counts;
    gl_exchange_counts(x, &counts);
    const unsigned failure = gl_exchange_failure(x)->kind;
    CHECK(!failure || failure == GL_FAILURE_MEMORY);
    /* What has begun is not released, and is all that is kept; the rest waits for the processes. */
    void *released = gl_exchange_release_tensor(x, 0);
    CHECK(failure || kept == (released ? 0u : 2 * BYTES));
    CHECK(counts.left_out == !released || failure);
    CHECK(allocations >= n || !(failure || released));
    gl_tensor_free(released);
    gl_exchange_stop(x);
    gl_engine_free(engine);
    gl_exchange_free(x);
    gl_runner_free(runner);
    close(notify);
    return allocations >= n;
}

unsigned long exhaust_absence(void) {
    unsigned long n = 1;
    while (attempt(n)) n++;
    return n;
}
