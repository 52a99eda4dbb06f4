/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * An engine puts the parts together: the sender, the receiver, and the operations above them.
 */
#include "engine/receiving.h"

#include <stdlib.h>

#include "arithmetic/types.h"
#include "base/bits.h"
#include "base/sender.h"
#include "engine/state.h"
#include "job/controls.h"
#include "operation/streams.h"
#include "tx/trace.h"

enum { TIMERS = 256 }; /* that are looked at in a turn; the others are due at once in the next */

gl_engine *gl_engine_new(const gl_config *config) {
    gl_engine *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    if (!operations_new(&e->operations, &e->job, &e->tx, &e->rx, config) ||
        !job_new(&e->job, config, &operation_upcalls, &e->operations) || !tx_new(&e->tx, &e->job) ||
        !rx_new(&e->rx, &e->job) || !sums_new(&e->sums, &e->job, &e->operations) ||
        !(e->dead = calloc(words(e->job.ranks), sizeof *e->dead)) || !(e->heard = calloc(e->job.ranks, sizeof *e->heard)))
        return gl_engine_free(e), NULL;
    return e;
}

void gl_engine_leave(gl_engine *e) {
    e->job.failed = true;
    job_leave(&e->job);
}

void gl_engine_free(gl_engine *e) {
    if (!e) return;
    sums_free(&e->sums);
    operations_free(&e->operations);
    rx_free(&e->rx);
    tx_free(&e->tx);
    job_free(&e->job);
    free(e->dead), free(e->heard);
    free(e);
}

uint16_t gl_engine_job(const gl_engine *e) { return e->job.config.job; }

unsigned gl_engine_shard(const gl_engine *e) { return e->job.config.token & (GL_MAX_SHARDS - 1); }

int gl_submit(gl_engine *e, const gl_submission *s, uint64_t now) {
    stream *summed = s->tensor < GL_FIRST_GROUP ? sums_find(&e->sums, s->tensor) : NULL;
    if (e->job.failed) return -1;
    return summed ? sums_submit(&e->sums, summed, s, now) : operation_submit(&e->operations, s, now);
}

int gl_engine_sums_open(gl_engine *e, const gl_sum_stream *like) { return sums_open(&e->sums, like) ? 0 : -1; }

void gl_engine_sums_halt(gl_engine *e) { sums_halt(&e->sums); }

unsigned gl_engine_sums_state(const gl_engine *e, gl_sum_state *states, unsigned most) {
    return sums_state(&e->sums, states, most);
}

int gl_engine_sums_resume(gl_engine *e, uint32_t generation, int by_switch, const gl_sum_rerun *reruns, unsigned count,
                          uint64_t now) {
    return sums_resume(&e->sums, generation, by_switch, reruns, count, now) ? 0 : -1;
}

uint64_t gl_engine_sums_overdue(const gl_engine *e, uint64_t now) { return sums_overdue(&e->sums, now); }

int gl_engine_group(gl_engine *e, uint16_t tensor, const uint16_t *ranks, unsigned count) {
    return streams_of_group(&e->operations, tensor, ranks, count) ? 0 : -1;
}

void gl_engine_close(gl_engine *e, uint16_t tensor) { operations_close(&e->operations, tensor); }

void gl_engine_drop(gl_engine *e, uint16_t rank) {
    job *j = &e->job;
    if (rank >= j->ranks || rank == j->config.rank) return;
    set_bit(e->dead, rank);
    operations_drop(&e->operations, rank);
    rx_drop_source(&e->rx, rank);
    mail_drop(j, rank);
}

int gl_engine_take_memory(gl_engine *e, uint64_t bytes) {
    job *j = &e->job;
    if (j->kept > j->config.memory || bytes > j->config.memory - j->kept) return -1;
    j->kept += bytes, j->statistics.memory_used += bytes;
    return 0;
}

void gl_engine_give_memory(gl_engine *e, uint64_t bytes) { e->job.kept -= bytes, e->job.statistics.memory_used -= bytes; }

void gl_engine_hold(gl_engine *e, uint32_t last) { e->operations.leaving.last = last; }

int gl_engine_owners_change(gl_engine *e, uint32_t first) { return owners_change(&e->operations.leaving, first) ? 0 : -1; }

/* Of a message that a header speaks of, parts per million. */
static uint32_t most_lost(const gl_config *c, const uint8_t *h) {
    return tolerated_of(c, get16(h + GL_AT_TENSOR), class_of(c, get16(h + GL_AT_LAYER)), h[GL_AT_FLAGS] & GL_FLAG_PULL);
}

/* Whether a datagram is for the job's engine here, of a rank that may send it. */
static bool is_ours(gl_engine *e, const uint8_t *h, uint32_t bytes) {
    const job *j = &e->job;
    gl_statistics *s = &e->job.statistics;
    if (bytes < GL_HEADER || h[0] >> 4 != GL_VERSION) return s->bad_header++, false;
    if (get16(h + GL_AT_JOB) != j->config.job) return s->bad_job++, false;
    if (get64(h + GL_AT_TOKEN) != j->config.token) return s->bad_token++, false;
    if (j->config.sums.lanes && h[GL_AT_FLAGS] & GL_FLAG_SUM) return true;
    const unsigned source = get_source(h);
    if (source >= j->ranks || source == j->config.rank || test_bit(e->dead, source)) return s->bad_source++, false;
    return true;
}

static bool is_slice(unsigned kind) { return kind == GL_KIND_DATA || kind == GL_KIND_REPAIR; }

/* Whether its header makes sense, as far as that can be told without its message. */
static bool makes_sense(gl_engine *e, const uint8_t *h, uint32_t bytes) {
    const gl_config *c = &e->job.config;
    gl_statistics *s = &e->job.statistics;
    const unsigned kind = h[0] & 15, item = gl_element_bytes(type_of(h[GL_AT_ELEMENT_TYPE]));
    const uint32_t length = get16(h + GL_AT_LENGTH), slices = get16(h + GL_AT_SLICES);
    if (bytes != GL_HEADER + (kind == GL_KIND_TRIMMED ? 0 : length)) return s->bad_length++, false;
    if (slices > GL_MAX_SLICES || get16(h + GL_AT_SLICE) >= slices) return s->bad_range++, false;
    if (!item || reduction_of(h[GL_AT_ELEMENT_TYPE]) > GL_PRODUCT || h[GL_AT_FLAGS] >= 2 * GL_FLAG_CRITICAL ||
        (h[GL_AT_FLAGS] & GL_FLAG_RETURNED && kind != GL_KIND_TRACE))
        return s->bad_header++, false;
    if (get16(h + GL_AT_BUDGET) > budget_of(most_lost(c, h), slices)) return s->bad_budget++, false;
    if ((is_slice(kind) || kind == GL_KIND_TRIMMED) && (length > c->slice_bytes || length & (item - 1)))
        return s->bad_length++, false;
    return true;
}

/* Whether a slice's header makes sense because that of another one does, and says how it came in the same way; which slice of
 * which message it is may differ. */
static bool follows(const uint8_t *h, uint32_t bytes, const uint8_t *other) {
    static const uint8_t same[GL_HEADER] = {
        [0] = 255, [GL_AT_JOB] = 255, 255, [GL_AT_SOURCE] = SOURCE_MASK >> 8, SOURCE_MASK & 255, [GL_AT_LAYER] = 255, 255,
        [GL_AT_TENSOR] = 255, 255, [GL_AT_FLAGS] = (uint8_t)~GL_FLAG_END, [GL_AT_ELEMENT_TYPE] = 255,
        [GL_AT_SLICES] = 255, 255, [GL_AT_BUDGET] = 255, 255, [GL_AT_TOKEN] = 255, 255, 255, 255, 255, 255, 255, 255};
    if (bytes < GL_HEADER) return false;
    uint32_t differs = 0;
    for (unsigned i = 0; i < GL_HEADER; i++) differs |= (h[i] ^ other[i]) & same[i];
    const uint32_t length = get16(h + GL_AT_LENGTH), item = gl_element_bytes(type_of(h[GL_AT_ELEMENT_TYPE]));
    return !differs && bytes == GL_HEADER + length && !(length & (item - 1)) &&
           get16(h + GL_AT_SLICE) < get16(h + GL_AT_SLICES);
}

/* A slice, and those that follow it. Returns the bytes of all of them. */
static uint32_t on_slices(gl_engine *e, const uint8_t *h, uint32_t bytes, uint32_t segment, bool congested, uint64_t now) {
    const unsigned source = get_source(h);
    uint32_t taken = segment;
    /* The first one is no shorter, so those that follow are no longer than a slice may be. */
    while (taken < bytes && follows(h + taken, segment < bytes - taken ? segment : bytes - taken, h)) taken += segment;
    if (taken > bytes) taken = bytes;
    e->job.statistics.datagrams_received += (taken - 1) / segment;
    report_arrivals(&e->rx, source, h, taken, segment, congested, now);
    for (const uint8_t *end = h + taken; h < end && !e->job.failed; h += segment)
        on_slice(&e->rx, source, h, get16(h + GL_AT_LENGTH), now);
    return taken;
}

static void on_other(gl_engine *e, const uint8_t *h, uint32_t length, uint64_t now) {
    const unsigned source = get_source(h);
    switch (h[0] & 15) {
    case GL_KIND_TRIMMED: on_trimmed(&e->rx, source, h, now); return;
    case GL_KIND_PROBE: on_probe(&e->rx, source, h, now); return;
    case GL_KIND_BITMAP: on_bitmap(&e->tx, source, h, h + GL_HEADER, now); return;
    case GL_KIND_STOP: on_stop(&e->tx, source, h, h + GL_HEADER, now); return;
    case GL_KIND_TRACE: on_trace(&e->tx, source, h, length); return;
    case GL_KIND_REPORT:
        if (length == GL_REPORT) {
            on_report(&e->tx, source, h, h + GL_HEADER, now);
            return;
        }
    }
    e->job.statistics.bad_header++;
}

/* A datagram of `size` bytes, with those of its message that follow it in all `bytes`. Returns the bytes of what it has taken. */
static uint32_t take(gl_engine *e, const uint8_t *h, uint32_t size, uint32_t bytes, bool congested, uint64_t now) {
    job *j = &e->job;
    j->statistics.datagrams_received++;
    if (!is_ours(e, h, size)) return size;
    const unsigned source = get_source(h);
    if (j->config.sums.lanes && h[GL_AT_FLAGS] & GL_FLAG_SUM) {
        /* Its source is who contributed last, perhaps this rank, or whom the switch answers. */
        if (sums_receive(&e->sums, h, size, congested, now) && source != j->config.rank) e->heard[source] = now;
        return size;
    }
    e->heard[source] = now;
    if (!makes_sense(e, h, size)) return size;
    if (is_slice(h[0] & 15)) return on_slices(e, h, bytes, size, congested, now);
    on_other(e, h, size - GL_HEADER, now);
    return size;
}

void receive_train(gl_engine *e, const uint8_t *h, uint32_t bytes, uint32_t segment, bool congested, bool held, uint64_t now) {
    job *j = &e->job;
    uint32_t taken;
    const bool holdable = held && buffers_have(j->pool.buffers, h), spare = holdable && buffers_spare(j->pool.buffers);
    j->holds = spare, j->crowded = holdable && !spare;
    do {
        if (j->failed) break;
        taken = take(e, h, segment < bytes ? segment : bytes, bytes, congested, now);
        h += taken, bytes -= taken;
    } while (bytes);
    j->holds = j->crowded = false;
}

void gl_receive(gl_engine *e, const uint8_t *datagram, uint32_t length, int congested, uint64_t now) {
    receive_train(e, datagram, length, length, congested, false, now);
}

void receive_into(gl_engine *e, buffers *b) {
    if (e->job.pool.buffers) return; /* what is held is in these */
    buffers_use(b);
    e->job.pool.buffers = b;
}

static void run_timers(gl_engine *e, uint64_t now) {
    heap_item *first;
    for (unsigned n = 0; n < TIMERS && (first = heap_first(&e->job.timers)) && first->key <= now && !e->job.failed; n++) {
        timer *t = container_of(first, timer, item);
        timer_stop(&e->job, t);
        switch (t->of) {
        case OF_TARGET: on_probe_due(&e->tx, container_of(t, target, probe), now); break;
        case OF_RECEIVED: on_check_due(&e->rx, container_of(t, rx_message, check), now); break;
        case OF_OPERATION: on_deadline(&e->operations, container_of(t, operation, deadline), now); break;
        case OF_WINDOW: on_window_due(&e->tx, now); break;
        case OF_STREAM: on_stream_due(&e->sums, container_of(t, stream, due), now); break;
        }
    }
}

int gl_transmit(gl_engine *e, gl_batch *b, uint64_t now) {
    run_timers(e, now);
    if (e->job.failed) {
        if (e->job.tenant.port) port_wait(&e->job.tenant, false); /* others send by it */
        return 0;
    }
    /* Sums and the other lanes in turn; control datagrams before both. */
    const bool first = e->sums_turn && !e->job.mail_first;
    if (first && sums_transmit(&e->sums, b, now)) return e->sums_turn = false, b->datagrams;
    if (tx_transmit(&e->tx, b, now)) return e->sums_turn = true, b->datagrams;
    if (!first && sums_transmit(&e->sums, b, now)) return e->sums_turn = false, b->datagrams;
    if (sums_waiting(&e->sums)) port_wait(&e->job.tenant, true);
    return 0;
}

uint64_t gl_deadline(const gl_engine *e, uint64_t now) {
    if (e->job.failed) return UINT64_MAX;
    const heap_item *first = heap_first(&e->job.timers);
    const uint64_t tx = tx_deadline(&e->tx, now), sums = sums_deadline(&e->sums), least = tx < sums ? tx : sums;
    const uint64_t deadline = first && first->key < least ? first->key : least;
    return deadline > now ? deadline : now;
}

uint64_t gl_patience(const gl_engine *e, uint64_t now) {
    const uint64_t tx = tx_patience(&e->tx, now), sums = sums_patience(&e->sums);
    return tx < sums ? tx : sums;
}

int gl_engine_has_event(const gl_engine *e) { return has_event(&e->operations); }

gl_event *gl_next_event(gl_engine *e) {
    gl_event *event;
    while ((event = next_event(&e->operations)) && sums_took(&e->sums, event)) gl_event_free(event);
    return event;
}

int gl_oldest(const gl_engine *e, uint64_t now, gl_waiting *waiting) {
    const part *p = sums_oldest(&e->sums);
    const int found = operation_oldest(&e->operations, now, waiting);
    if (!p || (found && waiting->age > now - p->since)) return found;
    *waiting = (gl_waiting){.age = now - p->since, .step = p->step, .tensor = p->is.tensor};
    return 1;
}

int gl_engine_idle(const gl_engine *e) { return !e->tx.unstopped && !e->job.mail_first && !sums_oldest(&e->sums) && !e->sums.pending; }

const gl_statistics *gl_engine_statistics(const gl_engine *e) { return &e->job.statistics; }

static void add_counts(gl_counts *sum, const gl_counts *c) {
    sum->slices_sent += c->slices_sent, sum->slices_repaired += c->slices_repaired, sum->bytes_sent += c->bytes_sent;
    sum->slices_expected += c->slices_expected, sum->slices_delivered += c->slices_delivered;
    sum->slices_lost += c->slices_lost, sum->slices_duplicate += c->slices_duplicate;
    sum->slices_late += c->slices_late, sum->budget_total += c->budget_total, sum->ecn_marked += c->ecn_marked;
    sum->bytes_received += c->bytes_received;
}

int gl_peer_statistics(const gl_engine *e, uint16_t rank, gl_counts *counts) {
    const job *j = &e->job;
    if (rank > j->ranks) return -1;
    *counts = (gl_counts){0};
    for (uint32_t i = 0; i <= j->config.loss_count; i++) add_counts(counts, counts_of(j, rank, i));
    return 0;
}

int gl_class_statistics(const gl_engine *e, uint32_t loss_class, gl_counts *counts) {
    const job *j = &e->job;
    if (loss_class > j->config.loss_count) return -1;
    *counts = (gl_counts){0};
    for (unsigned rank = 0; rank <= j->ranks; rank++) add_counts(counts, counts_of(j, rank, loss_class));
    return 0;
}

uint64_t gl_heard(const gl_engine *e, uint16_t rank) { return rank < e->job.ranks ? e->heard[rank] : 0; }

int gl_engine_lateness(const gl_engine *e, uint16_t rank, gl_lateness *lateness) {
    if (rank >= e->job.config.workers) return -1;
    arrivals_of(&e->operations.arrivals, rank, lateness);
    return 0;
}

void gl_engine_latenesses(const gl_engine *e, gl_lateness *all) {
    for (unsigned k = 0; k < e->job.config.workers; k++) arrivals_of(&e->operations.arrivals, k, &all[k]);
}

int gl_engine_left_out(const gl_engine *e, uint16_t rank, gl_left_out *found) {
    if (rank >= e->job.config.workers) return -1;
    left_out_of(&e->operations.leaving, rank, found);
    return 0;
}

void gl_engine_neighbour(const gl_engine *e, gl_neighbour *neighbour) {
    arrivals_neighbour(&e->operations.arrivals, neighbour);
}

void gl_engine_sum_waits(const gl_engine *e, gl_sum_waits *waits) { sums_waits(&e->sums, waits); }

void gl_engine_link(const gl_engine *e, gl_link *link) {
    link->received_count = meter_read(&e->job.tenant.in, link->received);
    link->sent_count = meter_read(&e->job.tenant.out, link->sent);
}

void gl_flow_held(const gl_engine *e, uint16_t rank, uint64_t *delivered, uint64_t *held) {
    *delivered = rank <= e->job.ranks ? e->tx.lanes[rank].flow.delivered : 0;
    *held = rank <= e->job.ranks ? e->tx.lanes[rank].flow.held : 0;
}

void gl_flow_state(const gl_engine *e, uint16_t rank, uint64_t *rate, uint32_t *srtt) {
    *rate = rank < e->job.ranks ? (uint64_t)(e->tx.lanes[rank].flow.rate * 8e6) : 0;
    *srtt = rank < e->job.ranks ? e->job.rtts[rank].srtt : 0;
}

void gl_flows_held(const gl_engine *e, uint64_t *delivered, uint64_t *held) {
    for (unsigned k = 0; k <= e->job.ranks; k++) gl_flow_held(e, (uint16_t)k, &delivered[k], &held[k]);
}

void gl_flow_states(const gl_engine *e, uint64_t *rate, uint32_t *srtt, bool *traced) {
    for (unsigned k = 0; k < e->job.ranks; k++) {
        gl_flow_state(e, (uint16_t)k, &rate[k], &srtt[k]);
        traced[k] = e->tx.paths[k] != NULL;
    }
}

unsigned gl_paths(const gl_engine *e, uint16_t rank, gl_path *paths) {
    return rank < e->job.ranks ? trace_paths(&e->tx, rank, paths) : 0;
}
