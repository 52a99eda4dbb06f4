/* SPDX-License-Identifier: Apache-2.0
 *
 * An engine's life.
 */
#include "engine/internal.h"

static void path_new(gl_engine *e, path *p) {
    p->share = p->rate = p->goal = e->rate;
    p->room = UINT32_MAX;
    p->rtt = INITIAL_RTT;
    p->round_queue = UINT32_MAX;
}

/* NULL only if memory is out. */
static const gl_range *ranges_copy(const gl_range *ranges, unsigned count) {
    gl_range *copy = calloc(count + 1, sizeof *copy);
    if (copy && count) memcpy(copy, ranges, count * sizeof *copy);
    return copy;
}

static const gl_loss *losses_copy(const gl_loss *losses, unsigned count) {
    gl_loss *copy = calloc(count + 1, sizeof *copy);
    if (copy && count) memcpy(copy, losses, count * sizeof *copy);
    return copy;
}

gl_engine *gl_engine_new(const gl_config *config) {
    const unsigned ranks = config->workers + config->servers;
    if (!config->workers || ranks > GL_MAX_RANKS || config->rank >= ranks || !config->rate || !config->window ||
        config->window > RING / 2 || config->slice_bytes < 8 || config->slice_bytes % 8)
        return NULL;
    gl_engine *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    e->config = *config;
    e->config.classes = ranges_copy(config->classes, config->class_count);
    e->config.precedences = ranges_copy(config->precedences, config->precedence_count);
    e->config.losses = losses_copy(config->losses, config->loss_count);
    e->ranks = ranks;
    e->counts = calloc((size_t)(ranks + 1) * (config->loss_count + 1), sizeof *e->counts);
    if (!e->config.classes || !e->config.precedences || !e->config.losses || !e->counts) return gl_engine_free(e), NULL;
    for (e->stride = 1; e->stride < ranks;) e->stride *= 2;
    e->rate = (double)config->rate / 8e6;
    e->queue_time = (double)config->buffer / 2 / e->rate;
    e->weight = config->weight ? config->weight : 1;
    if (!config->port && !(e->own_port = gl_port_new(0))) return gl_engine_free(e), NULL;
    port_join(config->port ? config->port : e->own_port, e);
    e->controls_tail = &e->controls;
    e->events_tail = &e->events;
    for (unsigned i = 0; i <= ranks; i++) path_new(e, &e->paths[i]);
    e->paths[ranks].multicast = true;
    for (unsigned rank = 0; rank < ranks; rank++) {
        e->peers[rank].srtt = INITIAL_RTT, e->peers[rank].base[0] = e->peers[rank].base[1] = UINT32_MAX;
        e->peers[rank].ring = calloc(RING, sizeof(rx_message *));
        if (!e->peers[rank].ring) return gl_engine_free(e), NULL;
    }
    return e;
}

void gl_engine_free(gl_engine *e) {
    if (!e) return;
    for (unsigned i = 0; i < OPERATIONS; i++)
        while (e->operations[i]) operation_free(e, e->operations[i]);
    for (unsigned rank = 0; rank < e->ranks && e->peers[rank].ring; rank++) {
        for (unsigned i = 0; i < RING; i++) rx_free(e, e->peers[rank].ring[i]);
        free(e->peers[rank].ring), free(e->peers[rank].routes);
    }
    for (unsigned i = 0; i <= e->ranks; i++) free(e->paths[i].messages.items), free(e->paths[i].repairs.items);
    free(e->timers.items), free(e->waiting[0].items), free(e->waiting[1].items);
    pool_free(e);
    for (control *c = e->controls, *next; c; c = next) next = c->next, free(c);
    for (gl_event *event; (event = gl_next_event(e));) gl_event_free(event);
    free((void *)e->config.classes), free((void *)e->config.precedences), free((void *)e->config.losses);
    if (e->port) port_leave(e);
    gl_port_free(e->own_port);
    free(e->counts), free(e);
}

uint16_t gl_engine_job(const gl_engine *e) { return e->config.job; }

int gl_engine_has_event(const gl_engine *e) { return e->events != NULL; }

int gl_engine_idle(const gl_engine *e) { return !e->unstopped && !e->controls; }

const gl_statistics *gl_engine_statistics(const gl_engine *e) { return &e->statistics; }

static void add_counts(gl_counts *sum, const gl_counts *c) {
    sum->slices_sent += c->slices_sent, sum->slices_repaired += c->slices_repaired, sum->bytes_sent += c->bytes_sent;
    sum->slices_expected += c->slices_expected, sum->slices_delivered += c->slices_delivered;
    sum->slices_lost += c->slices_lost, sum->slices_duplicate += c->slices_duplicate;
    sum->slices_late += c->slices_late, sum->budget_total += c->budget_total, sum->ecn_marked += c->ecn_marked;
    sum->bytes_received += c->bytes_received;
}

int gl_peer_statistics(const gl_engine *e, uint16_t rank, gl_counts *counts) {
    if (rank > e->ranks) return -1;
    *counts = (gl_counts){0};
    for (uint32_t i = 0; i <= e->config.loss_count; i++)
        add_counts(counts, &e->counts[rank * (e->config.loss_count + 1) + i]);
    return 0;
}

int gl_class_statistics(const gl_engine *e, uint32_t loss_class, gl_counts *counts) {
    if (loss_class > e->config.loss_count) return -1;
    *counts = (gl_counts){0};
    for (unsigned rank = 0; rank <= e->ranks; rank++)
        add_counts(counts, &e->counts[rank * (e->config.loss_count + 1) + loss_class]);
    return 0;
}

uint64_t gl_heard(const gl_engine *e, uint16_t rank) { return rank < e->ranks ? e->peers[rank].heard : 0; }

void gl_path_state(const gl_engine *e, uint16_t rank, uint64_t *rate, uint32_t *srtt) {
    *rate = rank < e->ranks ? (uint64_t)(e->paths[rank].rate * 8e6) : 0;
    *srtt = rank < e->ranks ? e->peers[rank].srtt : 0;
}
