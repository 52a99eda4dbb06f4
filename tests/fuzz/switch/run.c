/* SPDX-License-Identifier: Apache-2.0
 * The fuzzer: an input is a program, a way to run it (ports with a forwarding thread, ports that are files, no ports), and
 * then operations, of the control plane and on ports, and frames. Frames are any bytes. At the end every packet must be
 * accounted for, and every buffer be back. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "fuzz.h"
#include "wire/ecn.h"
#include "wire/ethernet.h"
#include "wire/offload.h"

enum { FRAME_SIZE = 1518, MOST_FRAMES = 240, MOST_ENDLESS = 8, MOST_STEPS = 400, PORTS = 6, MOST_SENT = 64 };
enum { LIVE, FILES, ALONE, MODES };

static const uint8_t *at, *end;
static uint32_t mode, frames, steps;
static int cleared;
static gl_tracer tracer;
static uint64_t trace_words[2048], trace_copy[2048];
static uint64_t made, gone, left;   /* packets */
static uint8_t output[1 << 20];

/* ---- The input ---- */

uint32_t fuzz_left(void) {
    return (uint32_t)(end - at);
}

uint8_t fuzz_byte(void) {
    return at < end ? *at++ : 0;
}

uint64_t fuzz_number(void) {
    uint64_t value = fuzz_byte();
    if (value >= 240) {
        value = 0;
        for (int i = 0; i < 8; i++) {
            value |= (uint64_t)fuzz_byte() << 8 * i;
        }
    }
    return value;
}

uint32_t fuzz_below(uint32_t limit) {
    return limit <= 256 ? fuzz_byte() % limit : (uint32_t)(fuzz_number() % limit);
}

uint8_t *fuzz_frame(uint32_t *length) {
    *length = fuzz_byte();
    *length = (*length | (uint32_t)fuzz_byte() << 8) % (FRAME_SIZE + 64);
    uint32_t given = *length < fuzz_left() ? *length : fuzz_left();
    uint8_t *frame = calloc(*length ? *length : 1, 1);
    memcpy(frame, at, given);
    at += given;
    return frame;
}

/* ---- Ports ---- */

uint32_t fuzz_port(void) {
    uint32_t number = fuzz_byte();
    return number < 240 ? 1 + number % (PORTS + 1) : number < 248 ? 510 : number < 252 ? 511 : 0;
}

static double share(void) {
    uint32_t value = fuzz_byte();
    return value < 192 ? 0 : value < 200 ? 1 : (value - 200) / 56.0;
}

static uint64_t duration(void) {
    uint32_t value = fuzz_byte();
    return value < 192 ? 0 : value < 254 ? (value - 192) * UINT64_C(20000) : fuzz_number() % 1000000000000000000u;
}

static gl_impairment any_impairment(void) {
    gl_impairment found = {0};
    if (fuzz_below(4) == 3) {
        found = (gl_impairment){share(), {share(), share(), share(), share()}, share(), share(), share()};
        found.delay = duration();
        found.jitter = duration();
        found.reorder_delay = duration();
    }
    return found;
}

static gl_port_config any_config(void) {
    gl_port_config config = {.rate = fuzz_number() * 100000, .buffer = FRAME_SIZE + fuzz_number() * 100, .up = 1};
    uint32_t what = fuzz_byte();
    config.ecn = what & 1 ? fuzz_number() : 0;
    for (int i = 0; what & 2 && i < GL_QUEUES; i++) {
        config.weights[i] = 1 + (i * 37 + what) % 1000;
    }
    config.up = (what & 28) != 4;
    config.tx = any_impairment();
    config.rx = any_impairment();
    return config;
}

static void add_port(uint32_t number) {
    static const uint32_t kinds[] = {GL_PORT_UDP, GL_PORT_PACKET, GL_PORT_TAP};
    uint32_t kind = mode == FILES ? GL_PORT_FILE : kinds[number % 3];
    int file = mode == FILES && number % 2 ? open("/dev/null", O_WRONLY | O_CLOEXEC) : -1;
    /* A packet socket's frames have no tag; see interfaces.py. */
    uint32_t limit = kind == GL_PORT_PACKET ? FRAME_SIZE - GL_VLAN_TAG : FRAME_SIZE;
    gl_port_add(fuzz_dataplane, number, kind, mode == FILES ? file : fuzz_descriptor(number), limit, any_config());
    if (file >= 0) {
        close(file);
    }
}

static void account(const gl_port_stats *stats) {
    made += stats->rx.packets + stats->copies.packets + stats->tx_impaired.duplicated.packets +
                    stats->rx_impaired.duplicated.packets;
    gone += stats->tx.packets + stats->rx_down.packets + stats->program.packets + stats->no_port.packets +
                    stats->rx_no_memory.packets + stats->tx_down.packets + stats->tx_no_memory.packets +
                    stats->tx_errors.packets + stats->cut.packets + stats->replaced.packets +
                    stats->tx_impaired.lost.packets + stats->rx_impaired.lost.packets;
    left += stats->tx_impaired.in_flight + stats->rx_impaired.in_flight;
    for (int i = 0; i < GL_QUEUES; i++) {
        gone += stats->queues[i].tail_dropped.packets + stats->queues[i].flushed.packets;
        left += stats->queues[i].depth.packets;
    }
}

static void change_port(uint32_t number) {
    gl_port *port = number < GL_DROP_PORT ? fuzz_dataplane->ports[number] : NULL;
    gl_port_stats stats[2];
    switch (fuzz_below(5)) {
    case 0:
        if (port) {
            gl_port_remove(fuzz_dataplane, number, stats);
            account(stats);
            fuzz_forget(number);
        }
        break;
    case 1:
        if (!port && number < GL_DROP_PORT) {
            add_port(number);
        }
        break;
    case 2:
        if (port) {
            gl_port_statistics(fuzz_dataplane, 2, (uint32_t[]){number, GL_PORTS}, stats);
        }
        break;
    case 3:
        if (port && fuzz_below(16) == 0) {
            gl_port_clear(fuzz_dataplane, number);
            cleared = 1;
        }
        break;
    default:
        if (port) {
            gl_port_configure(fuzz_dataplane, number, fuzz_dataplane->shared.clock, any_config());
        }
    }
}

static void trace(void) {
    uint32_t lost, what = fuzz_byte();
    if (fuzz_dataplane->shared.tracer) {
        gl_trace_take(fuzz_dataplane, &tracer, trace_copy, &lost);
    }
    if (what % 2) {
        gl_dataplane_trace(fuzz_dataplane, NULL, NULL, 0);
    } else if (fuzz_current->traced) {
        tracer = (gl_tracer){trace_words, 1 + 8 * what, 0, 0};
        gl_dataplane_trace(fuzz_dataplane, fuzz_current->traced, &tracer, what % 4 ? GL_PORTS : fuzz_port());
    }
}

/* ---- Frames ---- */

static void process_alone(uint32_t port, const uint8_t *frame, uint32_t length) {
    gl_sent sent[MOST_SENT];
    gl_tracer own = {trace_words, sizeof trace_words / sizeof *trace_words, 0, 0};
    int traced = fuzz_current->traced && frames % 2;
    gl_process *process = traced ? fuzz_current->traced : fuzz_current->process;
    gl_process_one(process, fuzz_state, port, frame, length, fuzz_clock, sent, MOST_SENT, output, sizeof output,
                   traced ? &own : NULL);
}

/* What a packet socket does with a frame that a card would cut, and with packets that it would have cut it into. */
static void cut_and_join(const struct virtio_net_hdr *offload, const uint8_t *frame, uint32_t length,
                         uint32_t behind) {
    gl_pool pool = {.packet_size = sizeof(gl_packet) + GL_HEADROOM + FRAME_SIZE, .limit = 4 << 20};
    uint8_t *whole = calloc(length + behind + 1, 1), header[GL_HEADERS];
    memcpy(whole, frame, length);
    uint32_t total = length + behind, near = total < FRAME_SIZE ? total : FRAME_SIZE;
    gl_slot slot = {.offload = *offload, .packet = gl_pool_get(&pool), .rest = whole + near};
    memcpy(slot.packet->data, whole, near);
    gl_counter missing = {0};
    gl_packet *packets[GL_BATCH], *next = gl_offload_cut(&pool, &slot, total, FRAME_SIZE, 1, &missing);
    uint32_t count = 0, done = 0;
    for (; next && count < GL_BATCH; next = next->next) {
        packets[count++] = next;
    }
    while (done < count) {
        struct virtio_net_hdr joined;
        struct iovec vectors[GL_BATCH + 1];
        uint32_t used, taken = gl_offload_join(packets + done, count - done, &joined, header, vectors, &used);
        fuzz_require(taken >= 1 && taken <= count - done && used <= taken + 1, "packets are joined that are not there");
        done += taken;
    }
    gl_pool_clear(&pool);
    free(whole);
}

/* A frame, several times if the input says so. 1 if the forwarding thread is to look for it. */
static int frame_in(int offloaded) {
    uint32_t length, behind = 0, number = fuzz_port();
    struct virtio_net_hdr offload = {0};
    if (offloaded) {
        for (uint32_t i = 0; i < sizeof offload; i++) {
            ((uint8_t *)&offload)[i] = fuzz_byte();
        }
        behind = (uint32_t)(fuzz_number() * 64 % GL_LONGEST);
    }
    uint8_t *frame = fuzz_frame(&length);
    uint32_t more = fuzz_byte(), count = more < 192 ? 1 : more - 190;
    int there = mode == ALONE || (number < GL_DROP_PORT && fuzz_dataplane->ports[number]);
    for (uint32_t i = 0; i < count && there && ++frames <= MOST_FRAMES; i++) {
        if (fuzz_state->losses.endless > MOST_ENDLESS) {
            break;  /* That was slow enough. */
        }
        if (mode == ALONE) {
            process_alone(number, frame, length);
        } else if (mode == FILES) {
            gl_feed(fuzz_dataplane, number, fuzz_clock, frame, length);
        } else {
            fuzz_arrive(number, &offload, frame, length, behind);
        }
    }
    if (mode == ALONE) {
        gl_mark_ce(frame, length);
        if (offloaded) {
            cut_and_join(&offload, frame, length, behind);
        }
    }
    free(frame);
    return mode == LIVE && there && fuzz_below(3) == 0;
}

static void inject(void) {
    uint32_t length, number = fuzz_port();
    uint8_t *frame = fuzz_frame(&length);
    if (++frames <= MOST_FRAMES) {
        gl_inject(fuzz_dataplane, number, frame, length);
    }
    free(frame);
}

int fuzz_operations(void) {
    while (fuzz_left() && ++steps < MOST_STEPS) {
        uint32_t operation = fuzz_byte() % 24;
        if (operation < 8) {
            if (frame_in(operation == 7)) {
                return 1;
            }
        } else if (operation < 18) {
            fuzz_control(operation - 8);
        } else if (operation == 18) {
            fuzz_clock += (duration() + fuzz_number() * 1000) % (3600 * GL_SECOND);
            return 1;
        } else if (mode == ALONE) {
            continue;
        } else if (operation == 19) {
            trace();
        } else if (operation == 20) {
            gl_dataplane_program(fuzz_dataplane, fuzz_below(8) ? fuzz_current->process : NULL, fuzz_state);
        } else if (operation == 21) {
            inject();
        } else {
            change_port(fuzz_port());
        }
    }
    return 0;
}

/* ---- A run ---- */

void fuzz_require(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "fuzzer: %s\n", what);
        abort();
    }
}

/* Packets that came or were copied are those that left, were dropped, or wait; and no buffer is lost. */
static void check_accounts(void) {
    gl_dataplane *dp = fuzz_dataplane;
    uint64_t free_packets = 0, posted = 0, slabs = 0;
    account(&dp->elsewhere);
    for (uint32_t i = 0; i < dp->count; i++) {
        gl_port_stats stats;
        gl_port_statistics(dp, 1, &dp->list[i]->number, &stats);
        account(&stats);
    }
    for (uint32_t i = 0; i < GL_BATCH; i++) {
        posted += dp->shared.inbox.slots[i].packet != NULL;
    }
    if (!cleared && made != gone + left) {
        fprintf(stderr, "fuzzer: made %llu packets, gone %llu, left %llu\n", (unsigned long long)made,
                (unsigned long long)gone, (unsigned long long)left);
        abort();
    }
    for (gl_packet *packet = dp->shared.pool.free; packet; packet = packet->next) {
        free_packets++;
    }
    for (void *slab = dp->shared.pool.slabs; slab; slab = *(void **)slab) {
        slabs++;
    }
    fuzz_require(free_packets + posted + gl_waiting(dp) == slabs * GL_SLAB_PACKETS, "a packet buffer is lost");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    at = data;
    end = data + size;
    frames = steps = 0;
    cleared = 0;
    made = gone = left = 0;
    fuzz_current = &fuzz_programs[fuzz_below(fuzz_program_count)];
    mode = fuzz_below(MODES);
    fuzz_system_begin(fuzz_byte());
    gl_lock *lock = gl_lock_new();
    fuzz_state_begin(lock);
    if (mode == ALONE) {
        fuzz_operations();
    } else {
        int events = open("/dev/null", O_WRONLY | O_CLOEXEC);
        /* Some inputs meet the end of memory for packets. */
        uint64_t memory = fuzz_byte() == 255 ? 128 << 10 : 64 << 20;
        fuzz_dataplane = gl_dataplane_new(lock, FRAME_SIZE, memory, 200000, 1, events);
        gl_epoch(fuzz_dataplane, 0);
        gl_dataplane_program(fuzz_dataplane, fuzz_current->process, fuzz_state);
        for (uint32_t i = 1; i <= PORTS / 2; i++) {
            add_port(i);
        }
        if (mode == FILES) {
            while (fuzz_operations()) {
            }
            gl_finish(fuzz_dataplane);
        } else {
            gl_run(fuzz_dataplane);
        }
        check_accounts();
        gl_dataplane_free(fuzz_dataplane);
        close(events);
    }
    fuzz_system_end();
    fuzz_state_end();
    gl_lock_free(lock);
    return 0;
}
