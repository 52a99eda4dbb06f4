/* SPDX-License-Identifier: Apache-2.0
 *
 * The same for what a host's processes ask for: tensors and collectives of two processes, on a runner and a channel each.
 */
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "exhaustion.h"
#include "exchange/exchange.h"

enum { PROCESSES = 2, ELEMENTS = 512, BYTES = ELEMENTS * 4, REGION = 8 * BYTES, COLLECTIVES = 6 };

typedef struct {
    gl_runner *runner;
    gl_engine *engine;
    gl_exchange *exchange;
    gl_client *clients[PROCESSES];
    void *memory[PROCESSES];
    int kicks[PROCESSES], watch, slots[PROCESSES];
    float regions[PROCESSES][REGION / 4], contributions[PROCESSES][ELEMENTS], result[ELEMENTS];
    unsigned next; /* command */
    bool refused, failed;
} host;

static const uint8_t orders[COLLECTIVES] = {GL_ALL_REDUCE, GL_REDUCE_SCATTER, GL_ALL_GATHER, GL_ALL_TO_ALL, GL_BROADCAST,
                                            GL_REDUCE};

static bool set_up(host *h) {
    const gl_loss losses[] = {{0, 65535, 300000, 100000}};
    const gl_config c = {.job = 1, .workers = 1, .slice_bytes = 64, .window = 4, .rate = 1000000000, .buffer = 64000,
                         .loss_count = 1, .losses = losses, .memory = 1 << 20};
    const gl_exchange_config x = {.hosts = 1, .processes = PROCESSES, .slice_bytes = 64, .critical = 1};
    if (!(h->engine = gl_engine_new(&c)) || !(h->exchange = gl_exchange_new(h->runner, h->engine, &x, h->watch))) return false;
    for (unsigned k = 0; k < PROCESSES; k++) {
        int pipes[2];
        CHECK(!pipe2(pipes, 04000 /* O_NONBLOCK */));
        h->kicks[k] = pipes[0];
        h->memory[k] = mmap(NULL, gl_channel_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        scarce = false;
        h->clients[k] = gl_client_new(h->memory[k], pipes[1]);
        scarce = true;
        if (gl_exchange_open(h->exchange, k, h->memory[k], pipes[0])) return false;
        if (gl_exchange_region(h->exchange, k, 0, (uint8_t *)h->regions[k], REGION)) return false;
    }
    uint8_t *contributions[PROCESSES] = {(uint8_t *)h->contributions[0], (uint8_t *)h->contributions[1]};
    const gl_partition partitions[] = {{0, ELEMENTS, 300000, 100000, GL_DIRECT}};
    static const uint16_t layers[BYTES / 64], hosts[] = {0}, members[] = {0, 1};
    const gl_tensor t = {.element_type = GL_TYPE_FLOAT32, .reduction = GL_MEAN_OF_ARRIVED, .feedback = 1,
                         .elements = ELEMENTS, .contributions = contributions, .result = (uint8_t *)h->result,
                         .partition_count = 1, .partitions = partitions, .layers = layers};
    const gl_group g = {.host_count = 1, .member_count = PROCESSES, .hosts = hosts, .members = members};
    const uint32_t weights[] = {1};
    const gl_step_plan plan = {.algorithm = GL_DIRECT, .weights = weights};
    return !gl_exchange_tensor(h->exchange, &t) && !gl_exchange_group(h->exchange, &g) &&
           !gl_exchange_plan(h->exchange, 1, &plan);
}

static void command(host *h, unsigned process) {
    gl_command c = {.kind = GL_COMMAND_TENSOR};
    if (h->next)
        c = (gl_command){.kind = GL_COMMAND_COLLECTIVE, .collective = orders[h->next - 1], .element_type = GL_TYPE_FLOAT32,
                         .reduction = GL_SUM, .elements = ELEMENTS, .in = 0, .out = REGION / 2};
    h->slots[process] = gl_client_submit(h->clients[process], &c);
}

/* In the runner's thread, again and again: gives the next command when the last one is done. */
static void look(void *context, uint64_t now) {
    host *h = context;
    (void)now;
    const gl_failure *failure = gl_exchange_failure(h->exchange);
    if (failure->kind) {
        CHECK(failure->kind == GL_FAILURE_MEMORY && strstr(failure->text, "memory is out"));
        h->failed = true;
    }
    bool idle = true;
    for (unsigned k = 0; k < PROCESSES; k++)
        idle &= h->slots[k] < 0 || gl_client_state(h->clients[k], (unsigned)h->slots[k]) >= GL_DONE;
    if (h->failed || (idle && h->next > COLLECTIVES)) {
        gl_runner_stop(h->runner);
    } else if (idle) {
        scarce = false;
        for (unsigned k = 0; k < PROCESSES; k++) {
            if (h->slots[k] >= 0) gl_client_release(h->clients[k], (unsigned)h->slots[k]);
            command(h, k);
        }
        scarce = true;
        h->next++;
    }
}

static bool attempt(unsigned long n) {
    static host blank, h;
    h = blank;
    h.slots[0] = h.slots[1] = -1, h.kicks[0] = h.kicks[1] = -1;
    h.watch = eventfd(0, EFD_NONBLOCK);
    const int always = eventfd(1, EFD_NONBLOCK); /* readable, as nobody reads it */
    h.runner = gl_runner_new();
    out_of_memory_at(n, false);
    scarce = true;
    h.refused = !set_up(&h);
    struct sockaddr_storage peer = {0};
    if (!h.refused) h.refused = gl_runner_add(h.runner, h.engine, -1, &peer, 1, NULL, NULL) != 0;
    if (!h.refused) {
        scarce = false;
        gl_runner_deliver(h.runner, h.engine, gl_exchange_drain, h.exchange);
        CHECK(!gl_runner_watch(h.runner, always, look, &h));
        scarce = true;
        CHECK(!gl_runner_run(h.runner));
        CHECK(h.failed || h.next == COLLECTIVES + 1);
    }
    scarce = false;
    if (h.exchange) gl_exchange_stop(h.exchange);
    gl_engine_free(h.engine);
    if (h.exchange) gl_exchange_free(h.exchange);
    gl_runner_free(h.runner);
    for (unsigned k = 0; k < PROCESSES; k++) {
        gl_client_free(h.clients[k]);
        if (h.kicks[k] >= 0) close(h.kicks[k]), munmap(h.memory[k], gl_channel_bytes());
    }
    close(h.watch), close(always);
    return allocations >= n;
}

unsigned long exhaust_processes(void) {
    unsigned long n = 1;
    while (attempt(n)) n++;
    return n;
}
