/* SPDX-License-Identifier: Apache-2.0
 * The fuzzer: an input is a job, and then what its workers call, what the network does, how time goes, and what somebody
 * sends who has the job's token. Where nobody does, all calls must come to their end, with the exact results where nothing
 * may be lost. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "world.h"

enum { MOST_STEPS = 400, MOST_ROUNDS = 20000, PATIENCE = 1000 };

fuzz_input fuzz_in;
fuzz_job fuzz_world;
const uint64_t fuzz_token = 0x1122334455667788;

void fuzz_require(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "fuzzer: %s\n", what);
        abort();
    }
}

void world_begin(bool honest) {
    static const uint16_t slice_bytes[] = {64, 8, 144, 256};
    static const uint32_t windows[] = {32, 1, 2, 8};
    static const uint64_t rates[] = {100000000, 1000000, 10000000000, 400000000000};
    static const uint64_t memories[] = {1 << 26, 0, 4096, 65536};
    static const uint32_t losses[] = {100000, 0, 500000, 1000000, 30000};
    const unsigned shape = fuzz_byte(), sizes = fuzz_byte(), extras = fuzz_byte();
    fuzz_job *w = &fuzz_world;
    memset(w, 0, sizeof *w);
    w->honest = honest;
    w->workers = 2 + shape % 3, w->servers = shape / 4 % 3;
    if (w->workers + w->servers > MOST_RANKS) w->servers = 0;
    w->ranks = w->workers + w->servers;
    for (w->stride = 1; w->stride < w->ranks;) w->stride *= 2;
    w->multicast = shape & 128;
    w->slice_bytes = slice_bytes[sizes % 4];
    w->message_base = shape & 64 ? 0xfffffff0 : 0;
    w->loss_count = fuzz_below(3);
    for (uint32_t i = 0; i < w->loss_count; i++)
        w->losses[i] = (gl_loss){(uint16_t)(10 * i), (uint16_t)(10 * i + 9), losses[fuzz_below(5)], losses[fuzz_below(5)]};
    w->now = 1000000;
    static const gl_range classes[] = {{0, 9, 0, 255, 3}, {10, 65535, 0, 255, 1}}, precedences[] = {{0, 65535, 0, 127, 2}};
    for (unsigned rank = 0; rank < w->ranks; rank++) {
        const bool aggregates = w->servers ? rank >= w->workers : true;
        w->ports[rank] = gl_port_new(extras & 1 ? 20000 : 0);
        const gl_config config = {
            .job = JOB, .rank = (uint16_t)rank, .workers = (uint16_t)w->workers, .servers = (uint16_t)w->servers,
            .slice_bytes = (uint16_t)w->slice_bytes, .token = fuzz_token, .message_base = w->message_base,
            .window = windows[sizes / 4 % 4], .rate = rates[sizes / 16 % 4], .buffer = extras & 2 ? 10000 : 64000,
            .loss_count = w->loss_count, .losses = w->losses, .multicast = w->multicast && aggregates,
            .port = extras & 4 ? NULL : w->ports[rank], .memory = memories[sizes / 64], .trace_every = extras / 8 % 4,
            .sums = {extras & 64 ? GL_TYPE_INT16_LANES : GL_TYPE_INT32_LANES, 16, 4, FIRST_GENERATION}, .tag = extras & 32, .class_count = 2, .precedence_count = 1, .classes = classes, .precedences = precedences};
        fuzz_require((w->engines[rank] = gl_engine_new(&config)) != NULL, "a sound job is refused");
    }
    calls_begin();
    summed_begin();
}

void world_end(void) {
    for (unsigned rank = 0; rank < fuzz_world.ranks; rank++) {
        const gl_statistics *s = gl_engine_statistics(fuzz_world.engines[rank]);
        fuzz_require(!s->budget_violations, "a budget is violated");
        fuzz_require(!fuzz_world.honest || !(s->bad_token | s->bad_job | s->bad_source | s->bad_budget | s->bad_class),
                     "a datagram of the job is refused");
        gl_engine_leave(fuzz_world.engines[rank]);
        gl_engine_free(fuzz_world.engines[rank]);
        gl_port_free(fuzz_world.ports[rank]);
    }
    network_end();
    calls_end();
    summed_end();
}

static void look(unsigned rank) {
    const gl_engine *e = fuzz_world.engines[rank];
    gl_waiting waiting;
    gl_counts counts;
    gl_path paths[GL_PATHS];
    uint64_t rate;
    uint32_t srtt;
    gl_oldest(e, fuzz_world.now, &waiting);
    gl_patience(e, fuzz_world.now), gl_engine_idle(e);
    gl_class_statistics(e, fuzz_below(4), &counts);
    for (uint16_t other = 0; other < fuzz_world.ranks; other++) {
        gl_flow_state(e, other, &rate, &srtt);
        gl_peer_statistics(e, other, &counts);
        fuzz_require(gl_paths(e, other, paths) <= GL_PATHS, "too many paths");
        fuzz_require(gl_heard(e, other) <= fuzz_world.now, "heard of in the future");
    }
}

/* Everybody sends, and time goes on until somebody has something to do. False: nobody ever has. */
static bool proceed(void) {
    for (unsigned rank = 0; rank < fuzz_world.ranks; rank++) network_transmit(rank);
    fuzz_world.now += 20;
    network_deliver_all();
    network_events();
    const uint64_t next = network_deadline();
    if (next != UINT64_MAX && next > fuzz_world.now) fuzz_world.now = next;
    return next != UINT64_MAX;
}

static void step(void) {
    switch (fuzz_byte() % 16) {
    case 0: calls_submit(); break;
    case 1: fuzz_below(2) ? calls_submit() : summed_submit(fuzz_below(fuzz_world.workers)); break;
    case 2:
    case 3:
    case 4: network_transmit(fuzz_below(fuzz_world.ranks)); break;
    case 5:
    case 6:
    case 7:
    case 8: network_deliver(); break;
    case 9: network_deliver_all(); break;
    case 10: fuzz_world.now += (uint64_t)fuzz_number() * 50; break;
    case 11: proceed(); break;
    case 12:
    case 13:
        if (!fuzz_world.honest) network_forge_changed();
        break;
    case 14:
        if (!fuzz_world.honest) network_forge_new();
        break;
    default:
        look(fuzz_below(fuzz_world.ranks));
        if (fuzz_below(4) == 3) summed_forget();
        if (fuzz_below(4) == 3) summed_halt(fuzz_below(2));
        network_events();
    }
}

/* On a network that loses nothing any more. */
static void come_to_an_end(void) {
    calls_submit_all();
    for (unsigned round = 0; !calls_complete() || !summed_complete(); round++) {
        fuzz_require(round < MOST_ROUNDS, "a call does not come to its end");
        fuzz_require(proceed() || calls_complete(), "a call waits for what nobody does");
        summed_submit_all();
        if (round % PATIENCE == PATIENCE - 1 && !summed_complete()) summed_halt(true);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_in = (fuzz_input){data, data + size};
    const unsigned how = fuzz_below(4);
    world_begin(how < 2);
    for (unsigned steps = 0; fuzz_in.at < fuzz_in.end && steps < MOST_STEPS; steps++) step();
    if (how == 0)
        come_to_an_end();
    else
        for (unsigned i = 0; how == 2 && i < 32; i++) proceed();
    world_end();
    return 0;
}
