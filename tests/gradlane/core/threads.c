/* SPDX-License-Identifier: Apache-2.0
 * Two hosts as the daemon runs them, in one process under ThreadSanitizer: at each a runner's thread for each job, which share
 * the host's port, and one that reads aside for host 0, processes that command through their channels and wait, and threads
 * that look on, add jobs and sockets and take them away meanwhile. */
#include "threads.h"

enum { HOSTS = 2, JOBS = 2, ELEMENTS = 400000, SLICE = 40000, STEPS = 60 };

typedef struct {
    gl_engine *engine;
    gl_exchange *exchange;
    gl_client *client;
    void *memory;
    float *values;
    int kicks, notify;
} member;

static gl_runner *runners[JOBS][HOSTS];
static gl_port *ports[HOSTS];
static int sockets[JOBS][HOSTS];
static struct sockaddr_storage addresses[JOBS][HOSTS];
static member members[JOBS][HOSTS];
static atomic_bool over;

static void join(int job, int host) {
    member *m = &members[job][host];
    gl_runner *r = runners[job][host];
    const gl_config config = {
        .job = (uint16_t)(1 + job), .rank = (uint16_t)host, .workers = HOSTS, .slice_bytes = SLICE, .token = 7, .window = 64,
        .rate = 10000000000, .buffer = 1 << 20, .port = ports[host], .memory = 1 << 20, .trace_every = 2};
    const gl_exchange_config local = {.host = (uint16_t)host, .hosts = HOSTS, .processes = 1, .slice_bytes = SLICE};
    int kick[2];
    require(!pipe(kick), "pipe");
    m->memory = channel_memory();
    m->values = calloc(ELEMENTS, sizeof *m->values);
    m->notify = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), m->kicks = kick[0];
    m->engine = gl_engine_new(&config);
    require(m->engine && !gl_runner_add(r, m->engine, sockets[job][host], addresses[job], HOSTS, NULL, NULL), "engine");
    m->exchange = gl_exchange_new(r, m->engine, &local, m->notify);
    const gl_partition all = {.elements = ELEMENTS, .algorithm = GL_DIRECT};
    const uint16_t layers[ELEMENTS * 4 / SLICE + 1] = {0};
    uint8_t *const contributions[] = {(uint8_t *)m->values};
    const gl_tensor tensor = {.element_type = GL_TYPE_FLOAT32, .reduction = 3, .elements = ELEMENTS,
                              .contributions = contributions, .result = (uint8_t *)m->values, .partition_count = 1,
                              .partitions = &all, .layers = layers};
    gl_runner_lock(r);
    require(!gl_exchange_open(m->exchange, 0, m->memory, kick[0]) && !gl_exchange_tensor(m->exchange, &tensor), "exchange");
    gl_runner_unlock(r);
    m->client = gl_client_new(m->memory, kick[1]);
}

static void leave(int job, int host) {
    member *m = &members[job][host];
    gl_exchange_stop(m->exchange);
    gl_runner_remove(runners[job][host], m->engine);
    gl_client_fail(m->client);
    gl_engine_leave(m->engine);
    gl_engine_free(m->engine);
    gl_exchange_free(m->exchange);
    gl_client_free(m->client);
    close(m->kicks), close(m->notify);
    free(m->memory), free(m->values);
}

/* A training process: every step's sum is twice as much as the one before. */
static void *train(void *context) {
    member *m = context;
    for (int i = 0; i < ELEMENTS; i++) m->values[i] = (float)(i % 3);
    for (int step = 1; step <= STEPS; step++) {
        const gl_command command = {.kind = GL_COMMAND_TENSOR};
        wait_for(m->client, gl_client_submit(m->client, &command));
    }
    for (int i = 0; i < ELEMENTS; i++) require(m->values[i] == (float)(i % 3) * 0x1p60f, "a wrong sum");
    return NULL;
}

/* Whoever listens for any completion. */
static void *listen_to(void *context) {
    member *m = context;
    uint32_t seen = 0;
    while (!atomic_load(&over)) seen = gl_client_completions(m->client, seen, 2000);
    return NULL;
}

/* The daemon's other threads. */
static void *look_on(void *context) {
    const int host = (int)(intptr_t)context;
    gl_runner *const r = runners[0][host];
    gl_runner_counts counts;
    gl_exchange_statistics statistics;
    gl_oldest_operation oldest;
    uint64_t errors;
    int last;
    while (!atomic_load(&over)) {
        member *m = &members[0][host];
        gl_runner_statistics(r, &counts);
        gl_runner_send_errors(r, m->engine, &errors, &last);
        gl_runner_lock(r);
        gl_exchange_counts(m->exchange, &statistics);
        gl_exchange_oldest(m->exchange, &oldest, gl_now());
        require(!gl_exchange_failure(m->exchange)->kind, "an exchange has failed");
        gl_runner_unlock(r);
        gl_runner_wake(r);
        const int other = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0); /* as of a multicast group */
        require(!gl_runner_socket(r, other), "another socket");
        gl_runner_unwatch(r, other);
        close(other);
        usleep(500);
    }
    return NULL;
}

int main(void) {
    pthread_t loops[JOBS][HOSTS], watchers[HOSTS], listeners[HOSTS], workers[JOBS][HOSTS];
    for (int job = 0; job < JOBS; job++)
        for (int host = 0; host < HOSTS; host++) sockets[job][host] = open_socket(&addresses[job][host]);
    for (int host = 0; host < HOSTS; host++) {
        ports[host] = gl_port_new(1 << 20);
        for (int job = 0; job < JOBS; job++) {
            gl_runner *const r = runners[job][host] = gl_runner_new();
            require(!gl_runner_socket(r, sockets[job][host]), "socket");
            require(host || !gl_runner_read_aside(r), "a second thread");
            pthread_create(&loops[job][host], NULL, serve, r);
        }
        join(0, host);
    }
    for (int host = 0; host < HOSTS; host++) {
        pthread_create(&watchers[host], NULL, look_on, (void *)(intptr_t)host);
        pthread_create(&listeners[host], NULL, listen_to, &members[0][host]);
        pthread_create(&workers[0][host], NULL, train, &members[0][host]);
    }
    /* Another job comes and goes meanwhile. */
    for (int host = 0; host < HOSTS; host++) join(1, host);
    for (int host = 0; host < HOSTS; host++) pthread_create(&workers[1][host], NULL, train, &members[1][host]);
    for (int host = 0; host < HOSTS; host++) pthread_join(workers[1][host], NULL);
    for (int host = 0; host < HOSTS; host++) leave(1, host);
    for (int host = 0; host < HOSTS; host++) pthread_join(workers[0][host], NULL);
    atomic_store(&over, true);
    for (int host = 0; host < HOSTS; host++) pthread_join(watchers[host], NULL), pthread_join(listeners[host], NULL);
    for (int host = 0; host < HOSTS; host++) leave(0, host);
    for (int host = 0; host < HOSTS; host++) {
        for (int job = 0; job < JOBS; job++) {
            gl_runner *const r = runners[job][host];
            gl_runner_counts counts;
            gl_runner_statistics(r, &counts);
            require(host || job ? counts.received_aside <= counts.received : counts.received_aside > 0, "read aside");
            require(!host || !counts.received_aside, "read aside by none");
            gl_runner_stop(r);
            pthread_join(loops[job][host], NULL);
            gl_runner_free(r), close(sockets[job][host]);
        }
        gl_port_free(ports[host]);
    }
    return 0;
}
