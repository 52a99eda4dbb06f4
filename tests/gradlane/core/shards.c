/* SPDX-License-Identifier: Apache-2.0
 * A job that is cut into shards, at two hosts as the daemon runs them, in one process under ThreadSanitizer: at each host a
 * runner's thread for each shard, which share the host's port and work on parts of the same tensor; processes that command all
 * shards and wait for all; and the daemon's thread, which meanwhile looks at all shards, and gives regions and tensors to all of
 * them and takes these back. */
#include "threads.h"

enum { HOSTS = 2, SHARDS = 3, PROCESSES = 2, PART = 100000, ELEMENTS = SHARDS * PART, SMALL = 3000, SLICE = 40000, STEPS = 40 };
enum { MAIN, OTHER, TOKEN = 0x700 };

typedef struct {
    gl_runner *runner;
    gl_engine *engine;
    gl_exchange *exchange;
    int notify, kicks[PROCESSES];
} shard;

typedef struct {
    int host, process;
    gl_client *clients[SHARDS]; /* as of a connection: one for each shard */
    void *memory[SHARDS];
    float *contribution;
} process;

static gl_port *ports[HOSTS];
static int sockets[SHARDS][HOSTS];
static struct sockaddr_storage addresses[SHARDS][HOSTS];
static shard shards[HOSTS][SHARDS];
static process processes[HOSTS][PROCESSES];
static float *results[HOSTS];
static atomic_bool over;

/* A shard gets its part of a tensor. */
static void give(shard *s, unsigned id, uint64_t elements, float *contributions[PROCESSES], float *result, uint64_t first) {
    const gl_partition all = {.elements = elements, .algorithm = GL_DIRECT};
    const uint16_t layers[PART * 4 / SLICE + 1] = {0};
    uint8_t *own[PROCESSES];
    for (int p = 0; p < PROCESSES; p++) own[p] = (uint8_t *)(contributions[p] + first);
    const gl_tensor tensor = {.id = (uint16_t)id, .element_type = GL_TYPE_FLOAT32, .reduction = GL_SUM, .elements = elements,
                              .contributions = own, .result = (uint8_t *)(result + first), .partition_count = 1,
                              .partitions = &all, .layers = layers};
    gl_runner_lock(s->runner);
    require(!gl_exchange_tensor(s->exchange, &tensor), "a tensor");
    gl_runner_unlock(s->runner);
}

static void join(int host) {
    for (int k = 0; k < SHARDS; k++) {
        shard *s = &shards[host][k];
        const gl_config config = {
            .job = 1, .rank = (uint16_t)host, .workers = HOSTS, .slice_bytes = SLICE, .token = TOKEN | (unsigned)k,
            .shard = (uint16_t)k, .shards = SHARDS, .window = 64, .rate = 10000000000, .buffer = 1 << 20, .port = ports[host],
            .memory = 1 << 20};
        const gl_exchange_config local = {.host = (uint16_t)host, .hosts = HOSTS, .processes = PROCESSES, .slice_bytes = SLICE};
        s->notify = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        s->engine = gl_engine_new(&config);
        require(s->engine && !gl_runner_add(s->runner, s->engine, sockets[k][host], addresses[k], HOSTS, NULL, NULL), "engine");
        s->exchange = gl_exchange_new(s->runner, s->engine, &local, s->notify);
        for (int p = 0; p < PROCESSES; p++) {
            process *its = &processes[host][p];
            int kick[2];
            require(!pipe(kick), "pipe");
            s->kicks[p] = kick[0];
            its->memory[k] = channel_memory();
            gl_runner_lock(s->runner);
            require(!gl_exchange_open(s->exchange, (unsigned)p, its->memory[k], kick[0]), "a channel");
            gl_runner_unlock(s->runner);
            its->clients[k] = gl_client_new(its->memory[k], kick[1]);
        }
    }
    float *contributions[PROCESSES];
    for (int p = 0; p < PROCESSES; p++) contributions[p] = processes[host][p].contribution;
    for (int k = 0; k < SHARDS; k++) give(&shards[host][k], MAIN, PART, contributions, results[host], (uint64_t)k * PART);
}

static void leave(int host) {
    for (int k = 0; k < SHARDS; k++) gl_exchange_stop(shards[host][k].exchange);
    for (int k = 0; k < SHARDS; k++) {
        gl_runner_remove(shards[host][k].runner, shards[host][k].engine);
        gl_engine_leave(shards[host][k].engine);
        gl_engine_free(shards[host][k].engine);
    }
    for (int k = 0; k < SHARDS; k++) {
        shard *s = &shards[host][k];
        gl_exchange_free(s->exchange);
        for (int p = 0; p < PROCESSES; p++) {
            gl_client_fail(processes[host][p].clients[k]);
            gl_client_free(processes[host][p].clients[k]);
            free(processes[host][p].memory[k]), close(s->kicks[p]);
        }
        close(s->notify);
    }
}

/* A training process: all parts of a step are submitted before any is waited for. */
static void *train(void *context) {
    process *its = context;
    for (int step = 1; step <= STEPS; step++) {
        int slots[SHARDS];
        for (int i = 0; i < ELEMENTS; i++) its->contribution[i] = (float)(step * (1 + its->host * PROCESSES + its->process));
        for (int k = 0; k < SHARDS; k++) {
            const gl_command command = {.kind = GL_COMMAND_TENSOR, .target = MAIN};
            require(gl_client_room(its->clients[k]) > 0, "room");
            slots[k] = gl_client_submit(its->clients[k], &command);
        }
        for (int k = 0; k < SHARDS; k++) wait_for(its->clients[k], slots[k]);
        const float sum = (float)(step * HOSTS * PROCESSES * (HOSTS * PROCESSES + 1) / 2);
        for (int i = 0; i < ELEMENTS; i++) require(results[its->host][i] == sum, "a wrong sum");
    }
    return NULL;
}

/* Whoever listens for any completion of a shard. */
static void *listen_to(void *client) {
    uint32_t seen = 0;
    while (!atomic_load(&over)) seen = gl_client_completions(client, seen, 2000);
    return NULL;
}

static void lock_all(shard *of) {
    for (int k = 0; k < SHARDS; k++) gl_runner_lock(of[k].runner);
}

static void unlock_all(shard *of) {
    for (int k = 0; k < SHARDS; k++) gl_runner_unlock(of[k].runner);
}

static void look_at(shard *s) {
    gl_exchange_statistics counts;
    gl_oldest_operation oldest;
    gl_runner_lock(s->runner);
    gl_exchange_counts(s->exchange, &counts);
    gl_exchange_oldest(s->exchange, &oldest, gl_now());
    require(!gl_exchange_failure(s->exchange)->kind, "an exchange has failed");
    require(gl_engine_statistics(s->engine)->bad_token == 0, "another shard's datagrams");
    gl_runner_unlock(s->runner);
    gl_runner_wake(s->runner);
}

/* The daemon's event loop: what several shards have, they get one after the other, and give back at once. */
static void *look_on(void *context) {
    const int host = (int)(intptr_t)context;
    shard *const its = shards[host];
    static float memory[HOSTS][PROCESSES + 1][SHARDS * SMALL];
    float *contributions[PROCESSES], *result = memory[host][PROCESSES];
    for (int p = 0; p < PROCESSES; p++) contributions[p] = memory[host][p];
    do {
        for (int k = 0; k < SHARDS; k++) {
            look_at(&its[k]);
            give(&its[k], OTHER, SMALL, contributions, result, (uint64_t)k * SMALL);
        }
        for (int k = 0; k < SHARDS; k++) {
            gl_runner_lock(its[k].runner);
            require(!gl_exchange_region(its[k].exchange, 0, 0, (uint8_t *)result, sizeof memory[host][0]), "a region");
            gl_runner_unlock(its[k].runner);
        }
        void *released[SHARDS];
        lock_all(its);
        for (int k = 0; k < SHARDS; k++) {
            gl_exchange_idle(its[k].exchange, MAIN); /* it may be either */
            require(gl_exchange_idle(its[k].exchange, OTHER), "nobody uses it");
            require(!gl_exchange_release_region(its[k].exchange, 0, 0), "a region again");
            require((released[k] = gl_exchange_release_tensor(its[k].exchange, OTHER)) != NULL, "a tensor again");
        }
        unlock_all(its);
        for (int k = 0; k < SHARDS; k++) gl_tensor_free(released[k]);
        usleep(500);
    } while (!atomic_load(&over));
    return NULL;
}

int main(void) {
    pthread_t loops[HOSTS][SHARDS], watchers[HOSTS], workers[HOSTS][PROCESSES], listeners[HOSTS][PROCESSES][SHARDS];
    for (int k = 0; k < SHARDS; k++)
        for (int host = 0; host < HOSTS; host++) sockets[k][host] = open_socket(&addresses[k][host]);
    for (int host = 0; host < HOSTS; host++) {
        ports[host] = gl_port_new(1 << 20);
        results[host] = calloc(ELEMENTS, sizeof(float));
        for (int p = 0; p < PROCESSES; p++)
            processes[host][p] = (process){.host = host, .process = p, .contribution = calloc(ELEMENTS, sizeof(float))};
        for (int k = 0; k < SHARDS; k++) {
            gl_runner *const r = shards[host][k].runner = gl_runner_new();
            require(!gl_runner_socket(r, sockets[k][host]), "socket");
            require(k || !gl_runner_read_aside(r), "a second thread");
            pthread_create(&loops[host][k], NULL, serve, r);
        }
        join(host);
    }
    for (int host = 0; host < HOSTS; host++) {
        pthread_create(&watchers[host], NULL, look_on, (void *)(intptr_t)host);
        for (int p = 0; p < PROCESSES; p++) {
            for (int k = 0; k < SHARDS; k++)
                pthread_create(&listeners[host][p][k], NULL, listen_to, processes[host][p].clients[k]);
            pthread_create(&workers[host][p], NULL, train, &processes[host][p]);
        }
    }
    for (int host = 0; host < HOSTS; host++)
        for (int p = 0; p < PROCESSES; p++) pthread_join(workers[host][p], NULL);
    atomic_store(&over, true);
    for (int host = 0; host < HOSTS; host++) {
        pthread_join(watchers[host], NULL);
        for (int p = 0; p < PROCESSES; p++)
            for (int k = 0; k < SHARDS; k++) pthread_join(listeners[host][p][k], NULL);
    }
    for (int host = 0; host < HOSTS; host++) leave(host);
    for (int host = 0; host < HOSTS; host++) {
        for (int k = 0; k < SHARDS; k++) {
            gl_runner *const r = shards[host][k].runner;
            gl_runner_stop(r);
            pthread_join(loops[host][k], NULL);
            gl_runner_free(r), close(sockets[k][host]);
        }
        gl_port_free(ports[host]);
        for (int p = 0; p < PROCESSES; p++) free(processes[host][p].contribution);
        free(results[host]);
    }
    return 0;
}
