/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * A job's beginning and end.
 */
#include "job/job.h"

#include <stdlib.h>
#include <string.h>

#include "job/controls.h"
#include "wire.h"

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

static const uint16_t *racks_copy(const gl_config *c) {
    uint16_t *copy = calloc(c->workers, sizeof *copy);
    if (copy && c->racks) memcpy(copy, c->racks, c->workers * sizeof *copy);
    return copy;
}

static bool is_power(uint32_t n) { return n && !(n & (n - 1)); }

static bool is_exact(const gl_config *c) {
    for (uint32_t i = 0; i < c->loss_count; i++)
        if (c->losses[i].push) return false;
    return true;
}

static bool are_sound(const gl_config *c) {
    const gl_sums *s = &c->sums;
    if (c->workers > GL_SUM_MEMBERS && (s->lanes != GL_TYPE_INT32_LANES || !is_exact(c))) return false;
    return (s->lanes == GL_TYPE_INT16_LANES || s->lanes == GL_TYPE_INT32_LANES) && c->workers >= 2 &&
           is_power(s->slots) && s->slots <= UINT16_MAX && is_power(s->window) &&
           s->window >= 4 && s->window <= GL_MAX_SUM_WINDOW;
}

static unsigned shards_of(const gl_config *c) { return c->shards ? c->shards : 1; }

static bool is_sound(const gl_config *c) {
    const unsigned ranks = ranks_of(c);
    return c->workers && ranks <= GL_MAX_RANKS && c->rank < ranks && c->rate && c->window && c->window <= RING / 2 &&
           c->shard < shards_of(c) && shards_of(c) <= GL_MAX_SHARDS && c->slice_bytes >= 8 && c->slice_bytes % 8 == 0 &&
           (!c->late_steps || c->late_steps < c->late_window) &&
           (!c->sums.lanes || are_sound(c));
}

static bool join(job *j) {
    const gl_config *c = &j->config;
    tenant *t = &j->tenant;
    t->rate = (double)c->rate / 8e6;
    t->queue_time = (double)c->buffer / 2 / t->rate;
    t->weight = (double)(c->weight ? c->weight : 1) / shards_of(c);
    t->rank = c->rank, t->ranks = j->ranks;
    t->sharers = calloc(2 * j->ranks, sizeof *t->sharers);
    gl_port *port = c->port ? c->port : gl_port_new(0);
    if (!t->sharers || !heap_reserve(&t->active, 2 * j->ranks) || !port) {
        if (!c->port) gl_port_free(port);
        return false;
    }
    t->port = port;
    port_join(t);
    j->uplink = (uplink){.rate = t->rate, .queue_time = t->queue_time, .receive_bytes = port->receive_bytes,
                         .datagram = GL_HEADER + c->slice_bytes, .rank = c->rank, .ranks = j->ranks,
                         .controller = &delay_controller};
    return true;
}

bool job_new(job *j, const gl_config *config, const upcalls *up, void *above) {
    j->mail_end = &j->mail_first;
    if (!is_sound(config)) return false;
    gl_config *c = &j->config;
    *c = *config;
    c->classes = ranges_copy(config->classes, config->class_count);
    c->precedences = ranges_copy(config->precedences, config->precedence_count);
    c->losses = losses_copy(config->losses, config->loss_count);
    c->racks = racks_copy(config);
    j->up = up, j->above = above;
    j->ranks = ranks_of(c);
    while (1u << j->stride_bits < j->ranks) j->stride_bits++;
    c->message_base += (uint32_t)c->shard << j->stride_bits;
    for (unsigned n = 1; n < shards_of(c); n *= 2) j->stride_bits++;
    j->counts = calloc((size_t)(j->ranks + 1) * (c->loss_count + 1), sizeof *j->counts);
    j->mail = calloc(j->ranks + 1, sizeof *j->mail);
    j->rtts = calloc(j->ranks, sizeof *j->rtts);
    j->pool.slice_bytes = c->slice_bytes, j->pool.used = &j->statistics.memory_used;
    for (unsigned rank = 0; j->rtts && rank < j->ranks; rank++) rtt_start(&j->rtts[rank]);
    return c->classes && c->precedences && c->losses && c->racks && j->counts && j->mail && j->rtts && join(j);
}

void job_leave(job *j) {
    gl_port *port = j->tenant.port;
    if (!port) return;
    port_leave(&j->tenant);
    j->tenant.port = NULL;
    if (!j->config.port) gl_port_free(port);
}

void job_free(job *j) {
    free(j->timers.items);
    pool_free(&j->pool);
    while (j->mail_first) mail_drop(j, (unsigned)(j->mail_first - j->mail));
    free((void *)j->config.classes), free((void *)j->config.precedences), free((void *)j->config.losses);
    free((void *)j->config.racks);
    job_leave(j);
    free(j->tenant.sharers), free(j->tenant.active.items), free(j->counts), free(j->mail), free(j->rtts);
}
